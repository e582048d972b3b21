"""Quotas: what a demand hands to a source that pays for every score, which fills them with scored works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import polars as pl

from sciscidata.eligibility import EligibilityConfig, join_candidates, mark_removals
from sciscidata.label_thresholds import LABELS_BY_INDEX, LabelThresholds, compute_disruption_labels, compute_labels

#: One class: ("disruptive",), or ("disruptive", "novel") in a joint draw.
Cell: TypeAlias = tuple[str, ...]


@dataclass
class Quotas:
    """How many works of each class are wanted, which works count, and what of that scored works have filled.

    Attributes:
        thresholds: where one label ends and the next begins.
        eligibility: which works may be drawn. The source learns the last year of the data.
        window_years: citation window of the scores.
        balance: whose classes are balanced, for messages.
        groups: works of each group of ``SplitConfig.groups``.
        columns: label columns that make up a cell.
        cells: in the order in which quotas are handed out.
        wanted: works of each cell of every group; without balance one number a group, of the cell ``()``.
        in_order: gives group and id of each work in the order of the draw, those of dev last.
        cell_of: that of every scored work that may be drawn.
    """

    thresholds: LabelThresholds
    eligibility: EligibilityConfig
    window_years: int | None
    balance: str
    groups: dict[str, int]
    columns: tuple[str, ...]
    cells: list[Cell]
    wanted: dict[tuple[str, Cell], int]
    in_order: Callable[[Iterable[int]], list[tuple[str, int]]]

    def __post_init__(self) -> None:
        # Only then must novelty be known before the end.
        self.needs_novelty = "novelty_label" in self.columns
        self.cell_of: dict[int, Cell] = {}
        self._have = Counter[tuple[str, Cell]]()
        self._possible: dict[float, frozenset[Cell]] = {}

    def again(self) -> Quotas:
        """Return the same quotas with nothing filled."""
        return replace(self)

    @property
    def open_cells(self) -> dict[str, frozenset[Cell]]:
        """The cells of each group that still have room; without balance, all cells or no cell."""
        missing = self.still_missing
        return {
            group: frozenset(cell for cell in self.cells if missing.get((group, cell)) or missing.get((group, ())))
            for group in self.groups
        }

    @property
    def filled(self) -> int:
        """Works that the draw would take of those scored so far."""
        return sum(min(self._have[place], need) for place, need in self.wanted.items())

    @property
    def is_met(self) -> bool:
        """Whether every quota is full."""
        return not any(self.still_missing.values())

    @property
    def still_missing(self) -> dict[tuple[str, Cell], int]:
        """What the draw still lacks, by group and cell; without balance by group and ``()``."""
        return {place: max(0, need - self._have[place]) for place, need in self.wanted.items()}

    def update(self, works: pl.DataFrame, scores: pl.DataFrame) -> None:
        """Count what is eligible among all works scored so far; of texts it matters if they are blank or repeat."""
        candidates = join_candidates(works, compute_labels(scores, self.thresholds), self.eligibility)
        marked = mark_removals(candidates, self.eligibility, window_years=self.window_years)
        has_cell = pl.all_horizontal(pl.col(column).is_not_null() for column in self.columns)
        eligible = marked.filter(pl.col("removed_by").is_null(), has_cell).select("work_id", *self.columns).collect()
        self.cell_of = {work_id: tuple(cell) for work_id, *cell in eligible.rows()}
        is_balanced = any(cell for _, cell in self.wanted)
        placed = self.in_order(self.cell_of)
        self._have = Counter((group, self.cell_of[work_id] if is_balanced else ()) for group, work_id in placed)

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
