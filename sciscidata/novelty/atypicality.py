"""Atypicality (Uzzi et al. 2013): does a work join venues that are rarely cited together?

One citing year needs no other year, so years run in threads, and their scores can rest on disk.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array, Int32Array
from sciscidata._kernels.portable_math import sigmoid
from sciscidata._support.parallel import run_all
from sciscidata.engines.engine import Engine
from sciscidata.engines.task import hash_array, shared, task
from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame
from sciscidata.graph.graph import CitationGraph, content_hash, open_in_task
from sciscidata.graph.year_files import YearFiles, YearWork, cache_years, take_years
from sciscidata.novelty import venue_pairs as pairs
from sciscidata.novelty.background import Background, read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.null_model import pair_moments, remark_on_concentration, venue_concentration
from sciscidata.novelty.shapes import Cells, Entries, Groups, Quantiles
from sciscidata.options.checks import check_threads, checked_config
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.schemas import ATYPICALITY, require_columns
from sciscidata.storage import hash_file
from sciscidata.storage.parquet import read_parquet, write_parquet
from sciscidata.storage.spill import RowSpool
from sciscidata.terminal.progress import AT_END, Advance

logger = logging.getLogger(__name__)

_FORMAT_VERSION = 1
_SPOOLED_ROWS: Final = 1 << 18
_PARTS: Final = 64  # more than a year in each, for tables with strange years; neighbours are far apart
_SCORES: Final = ("novelty_score", "conventionality_score")

Score: TypeAlias = Literal["sigmoid", "rank"]
WriteQuantiles: TypeAlias = Callable[[slice, Groups, Entries, Quantiles], None]


def compute_atypicality(
    works: AnyFrame,
    citations: AnyFrame,
    config: NoveltyConfig | None = None,
    *,
    background: str | Path | None = None,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work by how unusual the venue pairs in its reference list are.

    z of a venue pair = (observed - expected) / standard deviation of its count in the citing year. The null model (see
    ``NoveltyConfig``) gives expected value and deviation. Every two references of a work give one z.

    Args:
        works: WORKS; only work_id, publication_year and source_id are read. For the journals of the literature, set
            source_id to null where the source is not a journal. A reference counts if its work has a row here.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        config: the null model, which pairs count, how z becomes a score; ``NoveltyConfig()`` when None.
        background: a file of ``write_background``: take the null model of each pair from there. A work gets the value
            of the large corpus if all its references are there, with year and venue. A pair or a year that the
            background lacks is undefined.
        cache_dir: keep the graph here for later runs.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The result does not depend on it.

    Returns:
        ATYPICALITY, one row per work, unordered. n_pairs: UInt32, pairs with a z;
        null if the work has no year, another year than ``config.years``, or too many references. z_p10 and z_median:
        Float64, linear quantiles of z over the pairs; low z_p10 is atypical, high z_median is conventional.
        novelty_score = 1 / (1 + exp(z_p10)) and conventionality_score = 1 / (1 + exp(-z_median)), z clipped at ±8:
        Float64, 0 .. 1. Null where undefined.

    Raises:
        ConfigError, SchemaMismatchError, WorkIdError, EmptyInputError: as ``compute_cd_index``; a ConfigError also if
            ``background`` is of another null model.
        InputNotFoundError, BackgroundError: when called, if ``background`` is missing or is another kind of file; at
            collect, if it is damaged.

    Source: Uzzi et al. 2013, doi:10.1126/science.1240474. We compared 2,513 works of one year of a synthetic corpus.
    Ten shuffles, as is usual, give 2.5 % another sign of z_p10 than 2,000 do. The closed form gives 0.16 % another sign
    than 20,000.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5, 6], "source_id": [7, 7, 8, 8, None, None],
        ...     "publication_year": [1990, 1990, 1990, 1990, 2000, 2000]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [5, 5, 6, 6], "cited_id": [1, 2, 3, 4]})
        >>> scores = compute_atypicality(works, citations).filter(pl.col("work_id") > 4).sort("work_id").collect()
        >>> scores.select("work_id", "n_pairs", pl.col("z_median", "novelty_score").round(4)).rows()
        [(5, 1, 1.4142, 0.1956), (6, 1, 1.4142, 0.1956)]
    """
    corpus = pairs.require_corpus(works, citations, "compute_atypicality")
    config = checked_config(config, NoveltyConfig)
    check_threads(n_threads)
    table = None if background is None else read_background(background, config)

    def score(graph: CitationGraph, venues: Int32Array) -> pl.DataFrame:
        known = None if table is None else table.for_venues_of(corpus.works)
        return YearScorer(graph, venues, config, known, n_threads).score_all()

    return pairs.defer_scores(score, ATYPICALITY, corpus, cache_dir)


def join_atypicality(
    scores: AnyFrame,
    works: AnyFrame,
    citations: AnyFrame,
    config: NoveltyConfig | None,
    *,
    background: str | Path | None = None,
) -> pl.LazyFrame:
    """Join ATYPICALITY to the scores of works, lazily and in their order; null if ``config`` is None."""
    names = [name for name in ATYPICALITY if name != "work_id"]
    scored = require_columns(scores, ATYPICALITY, frame_name="scores", stage="join_atypicality", columns=["work_id"])
    scored = scored.drop(names, strict=False)
    if config is None:
        return scored.with_columns(pl.lit(None, dtype=ATYPICALITY[name]).alias(name) for name in names)
    atypicality = compute_atypicality(works, citations, config, background=background)

    def join() -> pl.DataFrame:
        left = scored.collect()  # one after the other: each builds a graph
        right = atypicality.collect().drop(ORIGINAL_ID, strict=False)  # the scores have it
        return left.join(right, on="work_id", how="left", maintain_order="left")

    schema = {**scored.collect_schema(), **{name: ATYPICALITY[name] for name in names}}
    return pl.defer(join, schema=schema)


def cache_atypicality(scorer: YearScorer, cache_dir: str | Path, *, engine: Engine | None = None) -> Path:
    """Score every work of a graph into a folder of the cache, one Parquet file per publication year.

    Memory: the scores of one year per thread. A killed run goes on with the years it has not written. The folder's name
    is a hash of all that the scores depend on. The files hold all works of WORKS in index order when read by name.
    ``engine`` has a task for each citing year of a graph that lies on a disk.
    """
    graph, background = scorer.graph, scorer.background
    key_parts: list[object] = [_FORMAT_VERSION, asdict(scorer.config), hash_array(scorer.venues)]
    if background is not None:  # which knows venues by their ids, not by their numbers
        key_parts += [hash_file(background.path), hash_array(background.source_ids)]

    def fill(files: YearFiles, tasks: YearFiles) -> None:
        def write(j: int) -> None:
            if not files.path(j).exists():
                files.write(j, scorer.score(j))

        if engine is not None:
            _take_years(scorer, engine, tasks, files)
        else:
            pairs.score_years(graph, write, "atypicality", scorer.n_threads, large_alone=True)
        scorer.report()
        if graph.n_known > graph.n_dated:
            files.write(graph.years.size, scorer.undated())

    return cache_years(graph, Path(cache_dir) / f"novelty-{content_hash(graph, *key_parts)}", fill)


def _take_years(scorer: YearScorer, engine: Engine, tasks: YearFiles, files: YearFiles) -> None:
    """Have tasks score the years that ``files`` lack, and copy their files there."""
    background = scorer.background
    years = [j for j in range(scorer.graph.years.size) if not files.path(j).exists()]
    arguments = {
        "config": asdict(scorer.config),
        "background": None if background is None else str(background.path.absolute()),
    }
    arrays = {"venues": scorer.venues, **({} if background is None else {"source_ids": background.source_ids})}
    work = YearWork(score_one_year, "atypicality", arguments, arrays)
    for j, path, result in take_years(engine, tasks, years, work):
        scorer.n_cells[j], scorer.n_known[j] = result["n_cells"], result["n_known"]
        if result["concentration"] is not None:
            scorer.concentrations[int(scorer.graph.years[j])] = result["concentration"]
        files.write(j, read_parquet(path))


@shared
def _scorer_in_task(of_all: str) -> YearScorer:
    arguments = json.loads(of_all)
    graph, config = open_in_task(arguments["graph"], arguments["stage_dir"]), NoveltyConfig(**arguments["config"])
    background = None
    if arguments["background"] is not None:
        background = replace(read_background(arguments["background"]), source_ids=np.load(arguments["source_ids"]))
    return YearScorer(graph, np.load(arguments["venues"]), config, background, 1)


@task
def score_one_year(_: Advance, *, j: int, out: Path, **of_all: Any) -> dict[str, Any]:  # noqa: ANN401
    """Score the works of the j-th year of a graph on disk into one Parquet file."""
    scorer = _scorer_in_task(json.dumps(of_all, sort_keys=True))
    write_parquet(scorer.score(j), out)
    counts = {"n_cells": int(scorer.n_cells[j]), "n_known": int(scorer.n_known[j])}
    return counts | {"concentration": scorer.concentrations.get(int(scorer.graph.years[j]))}


class YearScorer:
    """Scores the works of a graph, one year after the other.

    ``venues`` are ``venue_numbers(graph, works)``, a background is one ``for_venues_of(works)``; the rest is as in
    ``compute_atypicality``. ``concentrations`` say how much few venues dominate, for each citing year that the closed
    form scored.
    """

    def __init__(
        self,
        graph: CitationGraph,
        venues: Int32Array,
        config: NoveltyConfig | None = None,
        background: Background | None = None,
        n_threads: int | None = None,
    ) -> None:
        check_threads(n_threads)
        self.config, self.n_threads = checked_config(config, NoveltyConfig), n_threads or pl.thread_pool_size()
        if venues.shape != (graph.n_dated,):
            needed = f"needs ({graph.n_dated},), one for each dated work: venue_numbers(graph, works)."
            raise ConfigError(f"venues has shape {venues.shape}, {needed}")
        if background is not None:
            background.check_null_model(self.config)
            if background.source_ids.size != venues.max(initial=-1) + 1:
                raise ConfigError(f"{background.path} does not know these venues yet: background.for_venues_of(works).")
        self.graph, self.venues, self.background = graph, venues, background
        self.lists = pairs.references_of(graph, venues)
        self.left_out = pairs.first_left_out(venues, needed=self.config.venue_required)
        n_years = graph.years.size
        self.n_cells, self.n_known = np.zeros((2, n_years), np.int64)  # venue pairs, and those the background holds
        self.concentrations: dict[int, float] = {}

    @classmethod
    def of(
        cls, graph: CitationGraph, works: pl.LazyFrame, config: NoveltyConfig, background: Path | None
    ) -> YearScorer:
        """Make the scorer of the works that a graph was built from; ``background`` is a file."""
        known = None if background is None else read_background(background).for_venues_of(works)
        return cls(graph, pairs.venue_numbers(graph, works), config, known)

    def score_all(self, write: WriteQuantiles | None = None, *, what: str = "atypicality") -> pl.DataFrame:
        """Score every year, in threads: rows by (year, work_id), those without a year last. ``what`` names the bar."""
        years: dict[int, pl.DataFrame] = {}

        def score(j: int) -> None:
            years[j] = self.score(j, write)

        pairs.score_years(self.graph, score, what, self.n_threads, large_alone=write is None)
        self.report()
        return pl.concat([*(years[j] for j in range(self.graph.years.size)), self.undated()])

    def score(self, j: int, write: WriteQuantiles | None = None) -> pl.DataFrame:
        """Return ATYPICALITY of the j-th year, in index order; threads may share this.

        ``write`` sees the z of all pairs, and writes the quantiles of the works.
        """
        year = int(self.graph.years[j])
        works = slice(int(self.graph.year_offsets[j]), int(self.graph.year_offsets[j + 1]))
        n = works.stop - works.start
        n_pairs, (z_p10, z_median) = np.zeros(n, np.int64), np.full((2, n), np.nan)
        span, background = self.config.years, self.background
        if (span and not span[0] <= year <= span[1]) or (background and year not in background.years):
            self.left_out[works] = True
        else:
            self._fill(j, works, Quantiles(n_pairs, z_p10, z_median), write)
        rows = pl.DataFrame(
            {
                "work_id": self.graph.work_ids[works],
                "publication_year": np.full(n, year, np.int32),
                "n_pairs": n_pairs,
                "z_p10": z_p10,
                "z_median": z_median,
            },
            nan_to_null=True,
        )
        if self.left_out[works].any():
            rows = rows.with_columns(n_pairs=pl.when(pl.Series(~self.left_out[works])).then("n_pairs"))
        return add_scores(rows, self.config.score).select(pl.col(name).cast(kind) for name, kind in ATYPICALITY.items())

    def undated(self) -> pl.DataFrame:
        """Return ATYPICALITY of the works without a year: null but for the ids."""
        works = slice(self.graph.n_dated, self.graph.n_known)
        rows = pl.DataFrame({"work_id": self.graph.work_ids[works]})
        return pl.concat([pl.DataFrame(schema=ATYPICALITY), rows], how="diagonal")

    def _fill(self, j: int, works: slice, columns: Quantiles, write: WriteQuantiles | None) -> None:
        """Go from slots to venue pairs, to their z, and back to the works."""
        config, background = self.config, self.background
        slots = pairs.year_slots(self.graph, self.lists, j, config.max_references, self.left_out)
        groups = pairs.group(slots.offsets, slots.venues, slots.n_venues, unique_venues=config.unique_venues)
        if not groups.n_pairs.any():
            return
        concentration = venue_concentration(slots) if background is None and config.null == "analytic" else None
        is_alone = write is None and pairs.is_large(self.graph, j)
        year, n_threads = int(self.graph.years[j]), self.n_threads if is_alone else 1
        of_null_model = pair_moments(slots, year, config, n_threads) if background is None else None

        def z_of(rows: tuple[int, int] | None) -> tuple[Cells, Float64Array]:
            cells = pairs.observe(groups, same_venue_pairs=config.same_venue_pairs, rows=rows)
            if of_null_model is not None:
                observed, (mean, deviation) = cells.observed, of_null_model(cells)
            elif background is not None and cells.observed.size:
                observed, mean, deviation = background.moments(year, *cells.venues(slots.venue_numbers))
                self.n_known[j] = np.count_nonzero(~np.isnan(mean))
            else:
                return cells, np.empty(0)
            if config.undefined_pairs == "infinite":
                deviation = np.nan_to_num(deviation)
            with np.errstate(divide="ignore", invalid="ignore"):
                z = (observed - mean) / deviation
            return cells._replace(observed=cells.observed[:0].copy()), z

        # Shuffles and what looks at all pairs need them together.
        in_parts = concentration is not None and write is None
        valued = run_all(z_of, pairs.parts_of_rows(groups) if in_parts else [None], n_threads)
        of_null_model = None  # its tables take as much memory as the quantiles will
        self.n_cells[j] = sum(z.size for _, z in valued)
        if self.n_cells[j] == 0:
            return
        if concentration is not None:
            self.concentrations[year] = concentration
        if write is None:
            pairs.write_quantiles(groups, valued, columns, unique_pairs=config.unique_pairs, n_threads=n_threads)
        else:
            write(works, groups, pairs.hand_out(groups, valued), columns)
        n_pairs, *quantiles = columns
        undefined = n_pairs < config.min_pairs
        if config.undefined_pairs != "drop":
            which = {"same_venue_pairs": config.same_venue_pairs, "unique_pairs": config.unique_pairs}
            undefined |= n_pairs < pairs.pairs_per_work(groups.offsets, groups.counts, **which)
        for quantile in quantiles:
            quantile[undefined | np.isinf(quantile)] = np.nan

    def report(self) -> None:
        """Log where few venues dominate, and how much of what was asked for the background holds."""
        for remark in remark_on_concentration(self.concentrations):
            _say_once(remark)
        if self.background is None:
            return
        known, asked = int(self.n_known.sum()), int(self.n_cells.sum())
        path = self.background.path
        logger.info("%s holds %s of the %s venue pairs of the scored works", path, f"{known:,}", f"{asked:,}")
        years: list[int] = self.graph.years.tolist()
        lacking = [year for year in years if year not in self.background.years]
        if lacking:
            listed = ", ".join(map(str, lacking))
            logger.info("%s lacks %s of their %s years: %s", path, len(lacking), len(years), listed)


@cache
def _say_once(remark: str) -> None:
    """Log a remark, once in a process: each measure of the same data would repeat it."""
    logger.info("%s", remark, extra=AT_END)


def add_scores(rows: pl.DataFrame, score: Score) -> pl.DataFrame:
    """Add novelty_score, high where z_p10 is low, and conventionality_score, high where z_median is; null stays."""
    if score == "rank":

        def rank(z: pl.Expr) -> pl.Expr:
            return ((z.rank("average") - 0.5) / z.count()).over("publication_year")

        return rows.with_columns(novelty_score=rank(-pl.col("z_p10")), conventionality_score=rank(pl.col("z_median")))
    # NumPy has no null, but NaN.
    scores = {"novelty_score": -rows["z_p10"].to_numpy(), "conventionality_score": rows["z_median"].to_numpy()}
    return rows.with_columns(pl.Series(name, sigmoid(z), nan_to_null=True) for name, z in scores.items())


def rescore(rows: pl.LazyFrame, score: Score) -> pl.LazyFrame:
    """Compute the two scores from ``z_p10`` and ``z_median``; a ``"rank"`` needs ``publication_year``."""
    scores = {name: ATYPICALITY[name] for name in ("novelty_score", "conventionality_score")}
    # A sigmoid needs only its row; a rank needs all rows of a year.
    return rows.map_batches(
        lambda frame: add_scores(frame, score),
        schema={**rows.collect_schema(), **scores},
        predicate_pushdown=False,
        projection_pushdown=False,
        streamable=score == "sigmoid",
    )


def rank_on_disk(rows: pl.LazyFrame, folder: Path) -> pl.LazyFrame:
    """Return what ``add_scores(rows, "rank")`` gives, unordered, with a few years at a time in memory.

    Rows are put apart by year in ``folder``, about 40 bytes of disk each. The result reads them there.
    """
    bare = rows.drop(_SCORES, strict=False)
    has_z = pl.any_horizontal(pl.col("z_p10", "z_median").is_not_null())
    # Works without a z have no rank, and are the most of SciSciNet.
    number = pl.when(has_z).then(pl.col("publication_year").cast(pl.Int64).fill_null(0) % _PARTS).otherwise(_PARTS)
    with RowSpool(folder, "unranked") as spool:
        for batch in bare.collect_batches(chunk_size=_SPOOLED_ROWS, maintain_order=False, engine="streaming"):
            spool.add(batch, batch.select(number.cast(pl.Int64)).to_series().to_numpy())
    absent = [pl.lit(None, dtype=ATYPICALITY[name]).alias(name) for name in _SCORES]
    parts = [bare.clear().with_columns(absent)]
    for part in filter(Path.exists, map(spool.path, range(_PARTS))):
        ranked = part.with_name(part.name.removeprefix("un"))
        unranked = pl.scan_ipc(part, glob=False).collect(engine="in-memory")
        add_scores(unranked, "rank").write_ipc(ranked, compression="lz4")
        part.unlink()
        parts.append(pl.scan_ipc(ranked, glob=False))
    if (rest := spool.path(_PARTS)).exists():
        parts.append(pl.scan_ipc(rest, glob=False).with_columns(absent))
    return pl.concat(parts)
