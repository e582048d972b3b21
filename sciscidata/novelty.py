"""Atypicality: does a work join venues that are rarely joined? Exact under a stated null model.

Source: Uzzi, Mukherjee, Stringer & Jones 2013, doi:10.1126/science.1240474.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.errors import ConfigError
from sciscidata.graph import CitationGraph, build_graph
from sciscidata.novelty_background import Background, read_background
from sciscidata.novelty_config import COMPAT, NoveltyConfig
from sciscidata.novelty_nulls import pair_moments
from sciscidata.novelty_scores import add_scores
from sciscidata.schemas import ATYPICALITY, WORKS, require_columns
from sciscidata.venue_pair_scores import check_venues, checked_config, require_corpus, score_years
from sciscidata.venue_pairs import (
    Cells,
    Groups,
    group,
    merge_others,
    observe,
    of_works,
    pairs_per_work,
    recount,
    venue_numbers,
    year_places,
    year_slots,
)

__all__ = ["COMPAT", "NoveltyConfig", "compute_atypicality", "score_atypicality", "venue_numbers"]

logger = logging.getLogger(__name__)

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


def compute_atypicality(
    citations: pl.LazyFrame,
    works: pl.LazyFrame,
    config: NoveltyConfig | None = None,
    *,
    focal: pl.LazyFrame | pl.Series | None = None,
    background: str | Path | None = None,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work by how unusual the venue pairs in its reference list are. Runs nothing until collected.

    z of a venue pair = (observed - expected) / standard deviation, over all works of the citing year; see
    novelty_nulls. Every two references of a work give one z; z_p10 and z_median are their linear quantiles.

    Args:
        citations: CITATIONS, in any order; repeats and self-citations are ignored.
        works: WORKS; only work_id, publication_year and source_id are read. For the journals of the literature, make
            source_id null where the source is no journal. A reference counts if its work has a row here.
        config: conventions; ``NoveltyConfig()`` when None.
        focal: score these works only (a Series of ids, or a frame with work_id), each as if all were scored: all works
            of ``works`` make up the null model. Much cheaper if they are few.
        background: a file of write_background: take the z of a pair from there, whatever ``works`` holds besides. A
            work gets the value of the large corpus if all its references are in ``citations``, with year and venue in
            ``works``. A pair that the background does not hold is undefined, as is a year that it lacks.
        cache_dir: keep the graph here for later runs; see build_graph.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The result does not depend on it.

    Returns:
        ATYPICALITY, one row per work (per focal work that ``works`` knows), unordered. n_pairs: pairs with a z; null
        if the work has no year, another one than asked for, or too many references. z_p10: low is atypical, high is
        conventional at its boldest; z_median: high is conventional; novelty_score = 1 / (1 + exp(z_p10)),
        conventionality_score = 1 / (1 + exp(-z_median)), with z clipped at ±8; both 0 .. 1, null where undefined.

    Raises:
        ConfigError: at once, if ``config`` is no NoveltyConfig or ``n_threads`` no number of threads, if ranks are
            asked for among ``focal`` works only, or if ``background`` was made under another null model.
        SchemaMismatchError: at once, before any row is read.
        InputNotFoundError, BackgroundError: at once, if there is no ``background``, or it is no such file; at
            collect, if it is damaged.
        WorkIdError: at collect, if a work_id is null or repeated.
        EmptyInputError: at collect, if ``works`` has no row.

    Source: Uzzi et al. 2013, doi:10.1126/science.1240474. For 2,513 works of one year of a synthetic corpus, ten
    shuffles, as is usual, give 2.5 % another sign of z_p10 than 2,000 do; the closed form 0.16 % against 20,000.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5, 6], "source_id": [7, 7, 8, 8, None, None],
        ...     "publication_year": [1990, 1990, 1990, 1990, 2000, 2000]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [5, 5, 6, 6], "cited_id": [1, 2, 3, 4]})
        >>> scores = compute_atypicality(citations, works).filter(pl.col("work_id") > 4).sort("work_id").collect()
        >>> scores.select("work_id", "n_pairs", pl.col("z_median", "novelty_score").round(4)).rows()
        [(5, 1, 1.4142, 0.1956), (6, 1, 1.4142, 0.1956)]
        >>> compute_atypicality(citations, works, focal=pl.Series([6])).collect().equals(scores[1:])
        True
    """
    stage = "compute_atypicality"
    citations, works = require_corpus(citations, works, stage)
    config = _checked(config, n_threads, only_some=focal is not None)
    if focal is not None:
        listed = focal.rename("work_id").to_frame() if isinstance(focal, pl.Series) else focal
        focal = require_columns(listed, WORKS, frame_name="focal", stage=stage, columns=["work_id"])
    table = None if background is None else read_background(background)
    if table is not None:
        table.check_null_model(config)

    def score() -> pl.DataFrame:
        graph = build_graph(citations, works, cache_dir=cache_dir)
        wanted = None if focal is None else focal.select("work_id").collect().to_series().drop_nulls().to_numpy()
        known = None if table is None else table.for_venues_of(works)
        venues = venue_numbers(graph, works)
        return score_atypicality(graph, venues, config, focal=wanted, background=known, n_threads=n_threads)

    return pl.defer(score, schema=ATYPICALITY)


def score_atypicality(
    graph: CitationGraph,
    venues: Int32Array,
    config: NoveltyConfig | None = None,
    *,
    focal: Int64Array | None = None,
    background: Background | None = None,
    n_threads: int | None = None,
) -> pl.DataFrame:
    """Score every work of a graph built before. Executes; the frame is that of compute_atypicality.

    Rows come in the graph's index order, that is by (year, id), works without a year last.

    Args:
        graph: the citation graph.
        venues: from ``venue_numbers``.
        config: as in compute_atypicality.
        focal: int64, ids of the works to score; all when None.
        background: ``read_background(path).for_venues_of(works)``, of the same ``works`` as ``venues``.
        n_threads: as in compute_atypicality; years are shared among threads.

    Raises:
        ConfigError: at once, if ``config`` is no NoveltyConfig or asks for ranks among ``focal`` works, ``n_threads``
            is no number of threads, ``venues`` not of this graph, or ``background`` of another null model or other
            venues.
        BackgroundError: if the background turns out to be damaged.
    """
    config = _checked(config, n_threads, only_some=focal is not None)
    if background is not None:
        background.check_null_model(config)
    check_venues(graph, venues)
    if background is not None and background.source_ids.size != venues.max(initial=-1) + 1:
        msg = f"{background.path} does not know these venues yet: background.for_venues_of(works)."
        raise ConfigError(msg)
    run = _Run(graph, venues, config, _wanted(graph, focal), background)
    score_years(graph, run.score_year, "atypicality", n_threads)
    run.report()
    return run.table()


def _checked(config: NoveltyConfig | None, n_threads: int | None, *, only_some: bool) -> NoveltyConfig:
    """Refuse also what no single option shows to be wrong."""
    config = checked_config(config, NoveltyConfig, n_threads)
    if only_some and config.score == "rank":
        msg = "score='rank' ranks a work among all of its year, which focal leaves out. Score all, and filter."
        raise ConfigError(msg)
    return config


def _wanted(graph: CitationGraph, focal: Int64Array | None) -> BoolArray | None:
    """Mark the works of WORKS, in index order, that are asked for."""
    if focal is None:
        return None
    ids = np.unique(focal)
    wanted = np.isin(graph.work_ids[: graph.n_known], ids)
    n_unknown = ids.size - np.count_nonzero(wanted)
    if n_unknown:
        logger.warning("%s of %s focal works are not in WORKS and get no row", f"{n_unknown:,}", f"{ids.size:,}")
    return wanted


class _Run:
    """What every year reads, and what it writes: one place per dated work, or per year."""

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
        n, n_years = graph.n_dated, graph.years.size
        self.n_pairs = np.zeros(n, np.int64)
        self.z_p10, self.z_median = np.full((2, n), np.nan)
        self.left_out = np.zeros(n, np.bool_)
        self.n_cells, self.n_known = np.zeros((2, n_years), np.int64)  # venue pairs, and those the background holds

    def score_year(self, j: int) -> None:
        """Score the works of the j-th year: slots, venue pairs, their z, and back to the works."""
        year = int(self.graph.years[j])
        works = slice(int(self.graph.year_offsets[j]), int(self.graph.year_offsets[j + 1]))
        span, background = self.config.years, self.background
        if (span and not span[0] <= year <= span[1]) or (background and year not in background.years):
            self.left_out[works] = True
            return
        wanted = None if self.wanted is None else self.wanted[works]
        if wanted is not None and not wanted.any():
            return
        config = self.config
        given = (self.graph, self.venues, self.year_of, j, config.max_references, self.left_out)
        slots = year_slots(*given, venue_required=config.venue_required)
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
            observed, mean, deviation = background.moments(year, *cells.venues(slots.venue_numbers))
            self.n_known[j] = np.count_nonzero(~np.isnan(mean))
        else:
            if wanted is not None:
                cells = recount(cells, everybody, same_venue_pairs=config.same_venue_pairs)
            mean, deviation = pair_moments(slots, cells, year, config)
            observed = cells.observed
        self.n_cells[j] = observed.size
        self._write(groups, cells, self._z(observed, mean, deviation), works)

    def _z(self, observed: npt.NDArray[Any], mean: Float64Array, deviation: Float64Array) -> Float64Array:
        if self.config.undefined_pairs == "infinite":
            deviation = np.nan_to_num(deviation)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (observed - mean) / deviation

    def _write(self, groups: Groups, cells: Cells, z: Float64Array, works: slice) -> None:
        """Hand the z of the pairs to the works that hold them."""
        from sciscidata import work_quantile_kernels as kernels

        config, offsets = self.config, groups.offsets
        starts, n_entries = kernels.entry_places(offsets)
        entries = np.empty(n_entries)
        place = (groups.venues, groups.ends, starts, cells.starts, cells.partners)
        kernels.hand_out(*groups.by_venue, *place, z, entries)
        n_pairs, low, middle = self.n_pairs[works], self.z_p10[works], self.z_median[works]
        kernels.work_quantiles(offsets, groups.counts, starts, entries, n_pairs, low, middle, config.unique_pairs)
        undefined = n_pairs < config.min_pairs
        if config.undefined_pairs != "drop":
            given = {"same_venue_pairs": config.same_venue_pairs, "unique_pairs": config.unique_pairs}
            undefined |= n_pairs < pairs_per_work(groups, **given)
        for quantile in (low, middle):
            quantile[undefined | np.isinf(quantile)] = np.nan

    def report(self) -> None:
        """Say in the log how much of what was asked for the background holds."""
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

    def table(self) -> pl.DataFrame:
        """Return ATYPICALITY, in index order."""
        graph, n = self.graph, self.graph.n_dated
        rows = pl.DataFrame(
            {
                "work_id": graph.work_ids[:n],
                "publication_year": graph.years[self.year_of],
                "n_pairs": pl.Series(self.n_pairs),
                "z_p10": pl.Series(self.z_p10).fill_nan(None),
                "z_median": pl.Series(self.z_median).fill_nan(None),
            }
        ).with_columns(n_pairs=pl.when(pl.Series(~self.left_out)).then("n_pairs"))
        undated = pl.DataFrame({"work_id": graph.work_ids[n : graph.n_known]})
        if self.wanted is not None:
            rows, undated = rows.filter(self.wanted[:n]), undated.filter(self.wanted[n:])
        rows = pl.concat([add_scores(rows, self.config.score), undated], how="diagonal")
        return rows.select(ATYPICALITY.names()).cast(ATYPICALITY)
