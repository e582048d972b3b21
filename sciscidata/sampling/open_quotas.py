"""What a draw still needs, so that a source that pays for every score asks for no more than that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from sciscidata.label_thresholds import LABELS_BY_INDEX, LabelThresholds, compute_disruption_labels, compute_labels
from sciscidata.sampling.balance import BALANCED, class_quotas, quota_cells
from sciscidata.sampling.filter import EligibilityConfig, join_candidates, mark_removals
from sciscidata.sampling.split import SplitConfig, group_of_keys, split_keys

#: One class: ("disruptive",), or ("disruptive", "novel") in a joint draw.
Cell: TypeAlias = tuple[str, ...]


@dataclass
class Demand:
    """Quotas of the cells of every group of ``split.groups``, filled by scored works.

    ``cells`` are in the order in which ``quotas`` are handed out; ``cell_of`` has that of every scored work that may be
    drawn. Without balance a group has one quota, that of the cell ``()``.
    """

    thresholds: LabelThresholds
    eligibility: EligibilityConfig
    split: SplitConfig
    window_years: int | None

    def __post_init__(self) -> None:
        self.columns = BALANCED[self.split.balance] or ("disruption_label",)
        self.cells: list[Cell] = quota_cells(self.columns)
        quota_of = self.cells if BALANCED[self.split.balance] else [()]
        self.quotas: dict[tuple[str, Cell], int] = {
            (group, cell): quota
            for group, size in self.split.groups.items()
            for cell, quota in class_quotas(size, quota_of).items()
        }
        self._have: dict[tuple[str, Cell], int] = dict.fromkeys(self.quotas, 0)
        self._possible: dict[float, frozenset[Cell]] = {}
        self.cell_of: dict[int, Cell] = {}

    @property
    def needs_novelty(self) -> bool:
        """Whether novelty decides what is drawn; only then must it be known before the end."""
        return "novelty_label" in self.columns

    @property
    def open_cells(self) -> dict[str, frozenset[Cell]]:
        """For each group, the cells that still have room; without balance all of them, until there are enough works."""
        missing = self.still_missing
        return {
            group: frozenset(cell for cell in self.cells if missing.get((group, cell)) or missing.get((group, ())))
            for group in self.split.groups
        }

    @property
    def filled(self) -> int:
        """Works that the draw would take of those scored so far."""
        return sum(min(self._have[place], need) for place, need in self.quotas.items())

    @property
    def is_met(self) -> bool:
        """Whether every quota is full."""
        return not any(self.still_missing.values())

    @property
    def still_missing(self) -> dict[tuple[str, Cell], int]:
        """What the draw still lacks, by group and cell; without balance by group and ``()``."""
        return {place: max(0, need - self._have[place]) for place, need in self.quotas.items()}

    def update(self, works: pl.DataFrame, citations: pl.DataFrame, scores: pl.DataFrame) -> None:
        """Count what is eligible among all works scored so far; of texts it matters if they are blank or repeat."""
        candidates = join_candidates(works, compute_labels(scores, self.thresholds), citations, self.eligibility)
        marked = mark_removals(candidates, self.eligibility, window_years=self.window_years)
        has_cell = pl.all_horizontal(pl.col(column).is_not_null() for column in self.columns)
        eligible = marked.filter(pl.col("removed_by").is_null(), has_cell).select("work_id", *self.columns).collect()
        self.cell_of = {work_id: tuple(cell) for work_id, *cell in eligible.rows()}
        placed = eligible.select(*self.columns, split=self.groups_of(eligible["work_id"]))
        self._have = dict.fromkeys(self.quotas, 0)
        for group, *cell, n in placed.group_by("split", *self.columns).len().rows():
            self._have[group, tuple(cell) if BALANCED[self.split.balance] else ()] += n

    def groups_of(self, work_ids: pl.Series) -> pl.Series:
        """Say from which group of ``split.groups`` each work would be drawn."""
        return group_of_keys(split_keys(work_ids, self.split.seed), self.split)

    def possible_cells(self, n_i: int, n_j: int) -> frozenset[Cell]:
        """Return cells that a work may get once n_k is known, which draws its index towards 0; novelty may be any."""
        furthest = (n_i - n_j) / (n_i + n_j) if n_i + n_j else 0.0
        if furthest not in self._possible:
            ends = compute_disruption_labels(pl.DataFrame({"cd_index": [0.0, furthest]}), self.thresholds).collect()
            low, high = sorted(LABELS_BY_INDEX.index(label) for label in ends["disruption_label"])
            self._possible[furthest] = self.cells_with(LABELS_BY_INDEX[low : high + 1])
        return self._possible[furthest]

    def cells_with(self, disruption_labels: Iterable[str]) -> frozenset[Cell]:
        """Return the cells of works with one of these labels; all cells where disruption is not balanced."""
        labels = frozenset(disruption_labels)
        if "disruption_label" not in self.columns:
            return frozenset(self.cells)
        place = self.columns.index("disruption_label")
        return frozenset(cell for cell in self.cells if cell[place] in labels)
