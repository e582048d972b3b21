"""Demand: which works may be drawn, how many of each class, and what of that scored works have filled.

The one object that knows quotas. The draw reads what is wanted; a source that pays for every score asks what is still
missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from sciscidata.eligibility import FILTERS, EligibilityConfig, chosen_names, join_candidates, mark_removals, names_read
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.label_thresholds import LABELS_BY_INDEX, LabelThresholds, compute_disruption_labels, compute_labels
from sciscidata.own_label import OwnLabel, vocabularies
from sciscidata.sampling.balance import quota_cells
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.split import (
    balanced_columns,
    draw_order,
    find_quotas,
    group_of_keys,
    needed_columns,
    split_keys,
)
from sciscidata.sources.kinds import STRUCTURE, Cell, Facts, Texts
from sciscidata.sources.lazy_batches import put_beside

logger = logging.getLogger(__name__)


@dataclass
class Demand:
    """What is wanted, and quotas of the cells of every group of ``split.groups``, filled by scored works.

    ``cells`` are in the order in which ``quotas`` are handed out; ``cell_of`` has that of every scored work that may be
    drawn. Without balance a group has one quota, that of the cell ``()``. ``left_out`` names filters that are off
    because the source lacks what they read.
    """

    thresholds: LabelThresholds
    eligibility: EligibilityConfig
    split: SplitConfig
    window_years: int | None
    label: OwnLabel | None = None
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.balance, self.groups = str(self.split.balance), self.split.groups
        self.balanced = balanced_columns(self.split, self.label)
        self.columns = self.balanced or ("disruption_label",)
        # Only then must novelty be known before the end.
        self.needs_novelty = "novelty_label" in self.columns
        self.cells: list[Cell] = quota_cells(self.columns, self.label)
        # Within field and years quotas follow from the works that there are, and classes may be found in a build.
        is_known = self.cells and not self.split.cell_columns
        quotas = self.find_quotas(pl.DataFrame()).rows() if is_known else []
        self.quotas: dict[tuple[str, Cell], int] = {(group, tuple(cell)): n for group, *cell, n in quotas}
        self._have: dict[tuple[str, Cell], int] = dict.fromkeys(self.quotas, 0)
        self._possible: dict[float, frozenset[Cell]] = {}
        self.cell_of: dict[int, Cell] = {}

    def again(self) -> Demand:
        """Return the same demand with nothing filled."""
        return replace(self)

    # What is wanted

    @property
    def needed(self) -> tuple[str, ...]:
        """The label columns that a work needs to be drawn."""
        return needed_columns(self.split, self.label)

    @property
    def vocabularies(self) -> dict[str, tuple[str, ...]]:
        """The classes of every label column."""
        return vocabularies(self.label)

    @property
    def read_early(self) -> list[str]:
        """Columns of works, besides the year, that filters, the balance or labels by rank read before texts."""
        cells = self.split.cell_columns or self.thresholds.cell_columns
        names = dict.fromkeys([*names_read(self.eligibility), *cells])
        return [name for name in names if name != "publication_year"]

    def find_quotas(self, counts: pl.DataFrame) -> pl.DataFrame:
        """Return how many works of each cell are drawn; ``counts`` are read within field and years only."""
        return find_quotas(counts, self.split, self.label)

    def take_structure(self, rows: pl.LazyFrame, texts: Texts) -> pl.LazyFrame:
        """Keep what is judged before texts. Fields and venues that ``rows`` lack are put beside, 40 bytes a work.

        Only works that have a chosen one get them; all do if only the balance reads them.
        """
        early, has_names = self.read_early, texts.fields is None
        there = rows.collect_schema()
        rows = rows.select(name for name in there if name in STRUCTURE or (has_names and name in early))
        if texts.fields is None or not early:
            return rows
        chosen = chosen_names(self.eligibility) or [pl.col("primary_field").is_not_null()]
        beside = texts.fields.select("work_id", *early).filter(pl.any_horizontal(chosen))
        return put_beside(rows, beside.collect(engine="streaming"))

    def leave_out(self, facts: Facts) -> None:
        """Switch off filters that read what the source lacks; a ConfigError if one of them, or a label, was asked for.

        The provenance names them.
        """
        if "novelty_label" in self.balanced and (why := facts.lacks.get("z_p10")):
            raise SchemaMismatchError(why)
        lacking = {name: row for name, row in FILTERS.items() if row.reads and {*row.reads} <= facts.lacks.keys()}
        if not lacking:
            return
        # Texts come after counts, and the window after texts, in the manifests that there are.
        in_order = sorted(
            lacking.values(),
            key=lambda row: ("publication_year" in row.reads, bool({"title", "abstract"} & {*row.reads})),
        )
        off = dict[str, Any]()
        for name, reads in ((option, row.reads) for row in in_order for option in row.options):
            off |= _switch_off(
                self.eligibility, name, f"the {facts.files} have no column {' or '.join(map(repr, reads))}"
            )
        if not facts.has_index and not self.balance.startswith(("label", "none")):
            raise ConfigError(
                f"SplitConfig.balance is {self.balance!r}, and the {facts.files} have no cd_index, so no work "
                "has such a label. Set SplitConfig.balance='label'."
            )
        self.eligibility = replace(self.eligibility, **off)
        self.left_out = (*off, *(name for name, row in lacking.items() if not row.options))
        facts.provenance["filters_left_out"] = [*self.left_out]
        if self.left_out:  # texts with a label are not expected to have them
            level = logging.WARNING if facts.has_index else logging.INFO
            logger.log(level, "%s lack the columns for %s: not applied", facts.files, ", ".join(self.left_out))

    # What is still missing

    @property
    def open_cells(self) -> dict[str, frozenset[Cell]]:
        """For each group, the cells that still have room; without balance all of them, until there are enough works."""
        missing = self.still_missing
        return {
            group: frozenset(cell for cell in self.cells if missing.get((group, cell)) or missing.get((group, ())))
            for group in self.groups
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

    def update(self, works: pl.DataFrame, scores: pl.DataFrame) -> None:
        """Count what is eligible among all works scored so far; of texts it matters if they are blank or repeat."""
        candidates = join_candidates(works, compute_labels(scores, self.thresholds), self.eligibility)
        marked = mark_removals(candidates, self.eligibility, window_years=self.window_years)
        has_cell = pl.all_horizontal(pl.col(column).is_not_null() for column in self.columns)
        eligible = marked.filter(pl.col("removed_by").is_null(), has_cell).select("work_id", *self.columns).collect()
        self.cell_of = {work_id: tuple(cell) for work_id, *cell in eligible.rows()}
        placed = eligible.select(*self.columns, split=self.groups_of(eligible["work_id"]))
        self._have = dict.fromkeys(self.quotas, 0)
        for group, *cell, n in placed.group_by("split", *self.columns).len().rows():
            self._have[group, tuple(cell) if self.balanced else ()] += n

    def groups_of(self, work_ids: pl.Series) -> pl.Series:
        """Say from which group of ``split.groups`` each work would be drawn."""
        return group_of_keys(split_keys(work_ids, self.split.seed), self.split)

    def in_order(self, work_ids: Iterable[int]) -> list[tuple[str, int]]:
        """Return group and id of each work in the order of the draw, those of dev last."""
        ids = pl.Series("work_id", [*work_ids], pl.Int64)
        keyed = pl.DataFrame([ids, split_keys(ids, self.split.seed), self.groups_of(ids)])
        return keyed.sort(pl.col("split") == "dev", draw_order(), "work_id").select("split", "work_id").rows()

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


def _switch_off(config: EligibilityConfig, name: str, why: str) -> Mapping[str, Any]:
    """Return what switches an option off; none if it is off; a ConfigError with the reason if it was asked for."""
    set_to, at_default = getattr(config, name), getattr(EligibilityConfig(), name)
    nothing = None if at_default is None else type(at_default)()  # False, 0 or (): the filter is off
    if set_to == nothing:
        return {}
    if set_to != at_default:
        raise ConfigError(
            f"EligibilityConfig.{name} is {set_to!r}, and {why} to filter by. Add the column, or leave the option out."
        )
    return {name: nothing}
