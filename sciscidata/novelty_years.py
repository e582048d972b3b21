"""Atypicality one citing year at a time: a year needs no other one, so years run in threads and rest on disk."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.graph import CitationGraph
from sciscidata.novelty_background import Background
from sciscidata.novelty_config import NoveltyConfig
from sciscidata.novelty_nulls import pair_moments, remark_on_concentration, venue_concentration
from sciscidata.novelty_scores import add_scores
from sciscidata.schemas import ATYPICALITY
from sciscidata.venue_pairs import (
    Cells,
    Groups,
    group,
    merge_others,
    observe,
    of_works,
    pairs_per_work,
    recount,
    year_places,
    year_slots,
)

logger = logging.getLogger(__name__)

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Columns = tuple[npt.NDArray[np.int64], Float64Array, Float64Array]


class YearScorer:
    """What the scores of any year are made from.

    Args:
        graph: the citation graph.
        venues: from ``venue_numbers``.
        config: checked.
        wanted: bool (graph.n_known), the works to give a row; all when None.
        background: of the same venues; the null model is made of the works themselves when None.

    Attributes:
        concentrations: of the venues, by year that was scored by the closed form; as of venue_concentration.
    """

    def __init__(
        self,
        graph: CitationGraph,
        venues: Int32Array,
        config: NoveltyConfig,
        wanted: BoolArray | None,
        background: Background | None,
    ) -> None:
        self.graph, self.venues, self.config = graph, venues, config
        self.wanted, self.background = wanted, background
        self.year_of = year_places(graph)
        self.left_out = np.zeros(graph.n_dated, np.bool_)
        n_years = graph.years.size
        self.n_cells, self.n_known = np.zeros((2, n_years), np.int64)  # venue pairs, and those the background holds
        self.concentrations: dict[int, float] = {}

    def score(self, j: int) -> pl.DataFrame:
        """Return ATYPICALITY of the works of the j-th year, in index order. Years may be scored at the same time."""
        year = int(self.graph.years[j])
        works = slice(int(self.graph.year_offsets[j]), int(self.graph.year_offsets[j + 1]))
        n = works.stop - works.start
        columns: Columns = np.zeros(n, np.int64), np.full(n, np.nan), np.full(n, np.nan)
        span, background = self.config.years, self.background
        if (span and not span[0] <= year <= span[1]) or (background and year not in background.years):
            self.left_out[works] = True
        else:
            self._fill(j, works, columns)
        n_pairs, z_p10, z_median = columns
        rows = pl.DataFrame(
            {
                "work_id": self.graph.work_ids[works],
                "publication_year": np.full(n, year, np.int32),
                "n_pairs": n_pairs,
                "z_p10": pl.Series(z_p10).fill_nan(None),
                "z_median": pl.Series(z_median).fill_nan(None),
            }
        ).with_columns(n_pairs=pl.when(pl.Series(~self.left_out[works])).then("n_pairs"))
        if self.wanted is not None:
            rows = rows.filter(self.wanted[works])
        return add_scores(rows, self.config.score).select(ATYPICALITY.names()).cast(ATYPICALITY)

    def undated(self) -> pl.DataFrame:
        """Return ATYPICALITY, null but for the ids, of the works without a year."""
        works = slice(self.graph.n_dated, self.graph.n_known)
        rows = pl.DataFrame({"work_id": self.graph.work_ids[works]})
        rows = rows if self.wanted is None else rows.filter(self.wanted[works])
        return pl.concat([pl.DataFrame(schema=ATYPICALITY), rows], how="diagonal")

    def _fill(self, j: int, works: slice, columns: Columns) -> None:
        """Go from slots to venue pairs, to their z, and back to the works."""
        config, background = self.config, self.background
        wanted = None if self.wanted is None else self.wanted[works]
        if wanted is not None and not wanted.any():
            return
        given = (self.graph, self.venues, self.year_of, j, config.max_references, self.left_out)
        slots = year_slots(*given, venue_required=config.venue_required)
        concentration = venue_concentration(slots) if background is None and config.null == "analytic" else None
        if wanted is not None and background is None:
            slots = merge_others(slots, wanted)
        groups = everybody = group(slots.offsets, slots.venues, slots.n_venues, unique_venues=config.unique_venues)
        if wanted is not None:
            offsets, kept = of_works(slots.offsets, wanted)
            groups = group(offsets, slots.venues[kept], slots.n_venues, unique_venues=config.unique_venues)
        cells = observe(groups, same_venue_pairs=config.same_venue_pairs)
        if cells.observed.size == 0:
            return
        if background is not None:
            observed, mean, deviation = background.moments(int(self.graph.years[j]), *cells.venues(slots.venue_numbers))
            self.n_known[j] = np.count_nonzero(~np.isnan(mean))
        else:
            if wanted is not None:
                cells = recount(cells, everybody, same_venue_pairs=config.same_venue_pairs)
            mean, deviation = pair_moments(slots, cells, int(self.graph.years[j]), config)
            observed = cells.observed
        self.n_cells[j] = observed.size
        if concentration is not None:
            self.concentrations[int(self.graph.years[j])] = concentration
        self._hand_out(groups, cells, self._z(observed, mean, deviation), columns)

    def _z(self, observed: npt.NDArray[Any], mean: Float64Array, deviation: Float64Array) -> Float64Array:
        if self.config.undefined_pairs == "infinite":
            deviation = np.nan_to_num(deviation)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (observed - mean) / deviation

    def _hand_out(self, groups: Groups, cells: Cells, z: Float64Array, columns: Columns) -> None:
        """Hand the z of the pairs to the works that hold them."""
        from sciscidata import work_quantile_kernels as kernels

        config, offsets, (n_pairs, low, middle) = self.config, groups.offsets, columns
        starts, n_entries = kernels.entry_places(offsets)
        entries = np.empty(n_entries)
        place = (groups.venues, groups.ends, starts, cells.starts, cells.partners)
        kernels.hand_out(*groups.by_venue, *place, z, entries)
        kernels.work_quantiles(offsets, groups.counts, starts, entries, n_pairs, low, middle, config.unique_pairs)
        undefined = n_pairs < config.min_pairs
        if config.undefined_pairs != "drop":
            given = {"same_venue_pairs": config.same_venue_pairs, "unique_pairs": config.unique_pairs}
            undefined |= n_pairs < pairs_per_work(groups, **given)
        for quantile in (low, middle):
            quantile[undefined | np.isinf(quantile)] = np.nan

    def report(self) -> None:
        """Say in the log where few venues dominate, or how much of what was asked for the background holds."""
        for remark in remark_on_concentration(self.concentrations):
            logger.warning("%s", remark)
        if self.background is None:
            return
        found, asked = int(self.n_known.sum()), int(self.n_cells.sum())
        path = self.background.path
        logger.info("%s holds %s of the %s venue pairs of the scored works", path, f"{found:,}", f"{asked:,}")
        years: list[int] = self.graph.years.tolist()
        lacking = [year for year in years if year not in self.background.years]
        if lacking:
            listed = ", ".join(map(str, lacking))
            logger.info("%s lacks %s of their %s years: %s", path, len(lacking), len(years), listed)
