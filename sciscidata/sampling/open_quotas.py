"""What a draw still needs, so that a source that pays for every score asks for no more than that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from sciscidata.label_thresholds import LabelThresholds, compute_disruption_labels
from sciscidata.sampling.eligibility import EligibilityConfig, join_candidates, mark_removals
from sciscidata.sampling.split import (
    BALANCED,
    SPLITS,
    SplitConfig,
    class_quotas,
    quota_cells,
    split_keys,
    split_of_keys,
)
from sciscidata.scoring import compute_labels

#: One class: ("disruptive",), or ("disruptive", "novel") in a joint draw.
Cell: TypeAlias = tuple[str, ...]

_ORDERED = ("consolidating", "neutral", "disruptive")  # by rising cd_index


@dataclass
class Demand:
    """Quotas of the cells of both splits, filled by scored works.

    ``columns`` are the labels that make up a cell; of a draw without balance, the one it needs. ``cells`` are all of
    them, in the order in which quotas are handed out. ``cell_of`` is, by work_id, the cell of every scored work that
    may be drawn.
    """

    thresholds: LabelThresholds
    eligibility: EligibilityConfig
    split: SplitConfig
    window_years: int | None

    def __post_init__(self) -> None:
        self.columns = BALANCED[self.split.balance] or ("disruption_label",)
        self.cells: list[Cell] = quota_cells(self.columns)
        self._need: dict[tuple[str, Cell], int] = {
            (str(split), cell): quota
            for split, size in self.split.sizes.items()
            for cell, quota in class_quotas(size, self.cells).items()
        }
        self._have: dict[tuple[str, Cell], int] = dict.fromkeys(self._need, 0)
        self._total = 0
        self._possible: dict[float, frozenset[Cell]] = {}
        self.cell_of: dict[int, Cell] = {}

    @property
    def needs_novelty(self) -> bool:
        """Whether novelty decides what is drawn; only then must it be known before the end."""
        return "novelty_label" in self.columns

    @property
    def open_cells(self) -> dict[str, frozenset[Cell]]:
        """For each split, the cells that still have room; without balance all of them, until there are enough works."""
        if self.split.balance == "none":
            is_open = self._total < self.split.n_train + self.split.n_test
            return dict.fromkeys(SPLITS, frozenset(self.cells if is_open else ()))
        return {split: frozenset(cell for cell in self.cells if self.missing(split, cell) > 0) for split in SPLITS}

    @property
    def filled(self) -> int:
        """Works that the draw would take of those scored so far."""
        if self.split.balance == "none":
            return min(self._total, self.split.n_train + self.split.n_test)
        return sum(min(self._have[place], need) for place, need in self._need.items())

    @property
    def is_met(self) -> bool:
        """Whether every quota in both splits is full."""
        return not any(self.open_cells.values())

    def missing(self, split: str, cell: Cell) -> int:
        """Works that a cell of a split still lacks."""
        return max(0, self._need[split, cell] - self._have[split, cell])

    @property
    def still_missing(self) -> dict[tuple[str, Cell], int]:
        """What the draw still lacks, by split and cell; without balance the total, as ``("", ())``."""
        if self.split.balance == "none":
            n = max(0, self.split.n_train + self.split.n_test - self._total)
            return {("", ()): n}
        return {place: self.missing(*place) for place in self._need}

    def update(self, works: pl.DataFrame, citations: pl.DataFrame, scores: pl.DataFrame) -> None:
        """Count what is eligible among all works scored so far, by the rules of the draw.

        Texts matter only in whether they are blank, titles also in whether they repeat. ``scores`` is CD_SCORES with
        the columns of ATYPICALITY, which may be null unless ``needs_novelty``.
        """
        candidates = join_candidates(works, compute_labels(scores, self.thresholds), citations)
        marked = mark_removals(candidates, self.eligibility, window_years=self.window_years)
        has_cell = pl.all_horizontal(pl.col(column).is_not_null() for column in self.columns)
        eligible = marked.filter(pl.col("removed_by").is_null(), has_cell).select("work_id", *self.columns).collect()
        self.cell_of = {work_id: tuple(cell) for work_id, *cell in eligible.rows()}
        placed = eligible.select(*self.columns, split=self.splits(eligible["work_id"]))
        counts: dict[tuple[str, Cell], int] = dict.fromkeys(self._need, 0)
        for split, *cell, n in placed.group_by("split", *self.columns).len().rows():
            counts[split, tuple(cell)] = n
        self._have, self._total = counts, eligible.height

    def splits(self, work_ids: pl.Series) -> pl.Series:
        """Say in which split each work would be."""
        return split_of_keys(split_keys(work_ids, self.split.seed), self.split)

    def possible_cells(self, n_i: int, n_j: int) -> frozenset[Cell]:
        """Return the cells that a work may still get once n_k is known: n_k can only draw its index towards 0.

        Its novelty is unknown, so any novelty label is possible.
        """
        furthest = (n_i - n_j) / (n_i + n_j) if n_i + n_j else 0.0
        if furthest not in self._possible:
            ends = compute_disruption_labels(pl.DataFrame({"cd_index": [0.0, furthest]}), self.thresholds).collect()
            low, high = sorted(_ORDERED.index(label) for label in ends["disruption_label"])
            self._possible[furthest] = self.cells_with(_ORDERED[low : high + 1])
        return self._possible[furthest]

    def cells_with(self, disruption_labels: Iterable[str]) -> frozenset[Cell]:
        """Return the cells of works with one of these labels; all cells where disruption is not balanced."""
        labels = frozenset(disruption_labels)
        if "disruption_label" not in self.columns:
            return frozenset(self.cells)
        place = self.columns.index("disruption_label")
        return frozenset(cell for cell in self.cells if cell[place] in labels)
