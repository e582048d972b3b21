"""Demand: which works may be drawn, and how many of each class. The one object that knows this.

The draw reads it. A source that pays for every score gets its quotas, and fills them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from sciscidata.eligibility import FILTERS, EligibilityConfig, chosen_names, names_read
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.label_thresholds import LabelThresholds
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
from sciscidata.schemas import COVERAGE
from sciscidata.sources.kinds import STRUCTURE, Facts, Texts
from sciscidata.sources.lazy_batches import put_beside
from sciscidata.sources.quotas import Quotas

logger = logging.getLogger(__name__)


@dataclass
class Demand:
    """What is wanted. ``left_out`` names filters that are off because the source lacks what they read."""

    thresholds: LabelThresholds
    eligibility: EligibilityConfig
    split: SplitConfig
    window_years: int | None
    label: OwnLabel | None = None
    left_out: tuple[str, ...] = ()

    @property
    def balanced(self) -> tuple[str, ...]:
        """The label columns whose classes are balanced."""
        return balanced_columns(self.split, self.label)

    @property
    def quotas(self) -> Quotas:
        """What a source that is asked has to fill; nothing of it is filled. Its classes are known before a build."""
        columns = self.balanced or ("disruption_label",)
        return Quotas(
            thresholds=self.thresholds,
            eligibility=self.eligibility,
            window_years=self.window_years,
            balance=str(self.split.balance),
            groups=self.split.groups,
            columns=columns,
            cells=quota_cells(columns, self.label, self.split.labels),
            wanted={(group, tuple(cell)): n for group, *cell, n in self.find_quotas(pl.DataFrame()).rows()},
            in_order=self.in_order,
        )

    def in_order(self, work_ids: Iterable[int]) -> list[tuple[str, int]]:
        """Return group and id of each work in the order of the draw, those of dev last."""
        ids = pl.Series("work_id", [*work_ids], pl.Int64)
        keys = split_keys(ids, self.split.seed)
        keyed = pl.DataFrame([ids, keys, group_of_keys(keys, self.split)])
        return keyed.sort(pl.col("split") == "dev", draw_order(), "work_id").select("split", "work_id").rows()

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
        cells = self.split.cell_columns or (*self.split.columns_read, *self.thresholds.cell_columns)
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
        rows = rows.select(name for name in there if name in (*STRUCTURE, *COVERAGE) or (has_names and name in early))
        if texts.fields is None or not early:
            return rows
        chosen = chosen_names(self.eligibility) or [pl.col("primary_field").is_not_null()]
        beside = texts.fields.select("work_id", *early).filter(pl.any_horizontal(chosen))
        return put_beside(rows, beside.collect(engine="streaming"))

    def stated(self) -> dict[str, Any]:
        """State in JSON types how many works are wanted, and the label of one's own, for a manifest."""
        return {"split": self.split.stated()} | ({} if self.label is None else {"label": self.label.stated()})

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
        if not facts.has_index and not self.split.balance.startswith(("label", "none")):
            raise ConfigError(
                f"SplitConfig.balance is {self.split.balance!r}, and the {facts.files} have no cd_index, so no work "
                "has such a label. Set SplitConfig.balance='label'."
            )
        self.eligibility = replace(self.eligibility, **off)
        self.left_out = (*off, *(name for name, row in lacking.items() if not row.options))
        facts.provenance["filters_left_out"] = [*self.left_out]
        if self.left_out:  # texts with a label are not expected to have them
            level = logging.WARNING if facts.has_index else logging.INFO
            logger.log(level, "%s lack the columns for %s: not applied", facts.files, ", ".join(self.left_out))


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
