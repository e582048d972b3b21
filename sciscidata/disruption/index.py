"""The CD (disruption) index, its family and variants, exact, for every work of a citation graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.counts import Counter, split_at
from sciscidata.disruption.windows import (
    close_windows,
    find_open_in_fields,
    last_year_of,
    mark_windows,
    say_judged,
    window_schema,
)
from sciscidata.engines.engine import Engine
from sciscidata.engines.task import Task, name_of, task
from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame
from sciscidata.graph.edges import watched
from sciscidata.graph.graph import (
    CitationGraph,
    GraphInTask,
    build_graph,
    content_hash,
    for_tasks,
    open_in_task,
    require_times,
)
from sciscidata.graph.year_files import YearFiles, cache_years
from sciscidata.options.checks import check_threads, checked_config, is_whole
from sciscidata.records.ids import with_original_ids
from sciscidata.schemas import CD_FAMILY, CD_SCORES, CITATIONS, require_columns
from sciscidata.storage.parquet import write_parquet
from sciscidata.terminal.progress import Advance, progress_bar

_FORMAT_VERSION = 2
_ROWS_AT_ONCE = 1 << 22
_COUNTS = {name: pl.UInt32() for name in ("n_i", "n_j", "n_k")} | {
    name: pl.Int64() for name in ("n_shared", "n_to_date")
}
_OF_DI_5 = {"n_j5": "n_j{}", "di5_index": "di{}_index"}
_OF_ALL_WINDOWS = {"n_refs": pl.UInt32(), "n_ever": pl.Int64()}


def compute_cd_index(
    works: AnyFrame,
    citations: AnyFrame,
    config: CDConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work by the CD (disruption) index: do later works cite it alone, or with its references?

    Count works published 1 .. window_years years after focal work f. n_i cite f but not its references. n_j cite f and
    at least one of them. n_k cite at least one of them and not f. cd_index = (n_i - n_j) / (n_i + n_j + n_k).

    Args:
        works: WORKS; only work_id, publication_year and, if they are there, primary_field and, with ``config.time``,
            publication_date are read.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        config: which convention; ``CDConfig()`` when None.
        cache_dir: keep the graph here for later runs.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The result does not depend on it.

    Returns:
        CD_SCORES, one row per work, unordered. n_i, n_j, n_k: UInt32, works. cd_index: Float64, -1 consolidating .. +1
        disruptive. Null if the work has no reference or no year, or if all three counts are 0. With ``config.family``
        also CD_FAMILY: n_refs (distinct references), n_j5 (citers that share at least 5 of them), n_shared (shared
        references summed over citers), mcd_index (cd_index times the citers up to the window's end; with
        window_from="cited" those inside it), di5_index ((n_i - n_j5) / (n_i + n_j5 + n_k)), di_nok_index ((n_i - n_j) /
        (n_i + n_j)), dependence (n_shared / (n_i + n_j)). With ``config.di_l`` of 3, n_j3 and di3_index instead of n_j5
        and di5_index. With ``config.windows`` the counts and indices of each window too: n_i_10, n_j_10, n_k_10,
        cd_index_10. Last, window_complete (and window_complete_10): Boolean, whether the window is over before the
        data's last year, so that no citer is still to come. Null without a year, or if the window has no end. A
        ``primary_field`` of ``works`` whose works end earlier counts to its own last year.

    Raises:
        ConfigError: when called, if ``config`` is not a CDConfig, or ``n_threads`` not a whole number above 0.
        SchemaMismatchError: when called, if a column is missing or has another dtype.
        WorkIdError: at collect, if a work_id is null or repeated.
        EmptyInputError: at collect, if ``works`` has no row.

    Source: Funk & Owen-Smith 2017, doi:10.1287/mnsc.2015.2366; DI_5 and DI without n_k: Bornmann et al. 2020,
    doi:10.1162/qss_a_00068; null without references: Holst et al. 2024, arXiv:2402.14583.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5], "publication_year": [1990, 2000, 2001, 2002, 2003]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [2, 3, 4, 4, 5], "cited_id": [1, 2, 2, 1, 1]})
        >>> compute_cd_index(works, citations).filter(pl.col("work_id") == 2).collect().row(0)
        (2, 1, 1, 1, 0.0, False)
    """
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage="compute_cd_index")
    config = _checked(config, n_threads)
    works = require_times(works, config.time, stage="compute_cd_index")

    def score() -> pl.DataFrame:
        graph = build_graph(works, citations, time=config.time, cache_dir=cache_dir, n_threads=n_threads)
        scores = watched(score_graph(graph, config, n_threads=n_threads), graph, "compute_cd_index")
        scores = close_windows(scores, find_open_in_fields(works, config, last_year_of(graph)))
        say_judged(scores, "compute_cd_index")
        return scores

    schema = pl.Schema(score_schema(config) | window_schema(config))
    return with_original_ids(pl.defer(score, schema=schema), works)


def score_graph(
    graph: CitationGraph,
    config: CDConfig | None = None,
    *,
    focal: range | None = None,
    n_threads: int | None = None,
    advance: Advance | None = None,
) -> pl.DataFrame:
    """Score works of a graph. Rows as of compute_cd_index, by (year, work_id); works without a year come last.

    ``focal`` is a range of indices of WORKS; all others still count as citers. ``advance`` replaces the progress bar.
    """
    config = _checked(config, n_threads)
    focal, dated = _checked_focal(graph, focal)
    columns: dict[str, AnyArray] = {}
    for span, counts in _counts_by_year(graph, config, split_at(graph.year_offsets, dated), n_threads, advance):
        for name, part in counts.items():
            whole = columns.setdefault(name, np.empty(len(dated), part.dtype))
            whole[span.start - dated.start : span.stop - dated.start] = part
    parts = [counted_rows(graph, dated, columns)] if columns else []
    rows = pl.concat([*parts, _undated_rows(graph, range(dated.stop, focal.stop), config)], how="diagonal")
    # Slice by slice, since every step of the arithmetic makes a column.
    starts = range(0, max(rows.height, 1), _ROWS_AT_ONCE)
    scores = pl.concat([add_indices(rows.slice(start, _ROWS_AT_ONCE), config) for start in starts])
    return scores.hstack(mark_windows(graph, config, focal, last_year_of(graph)))


def cache_cd_index(
    graph: CitationGraph,
    cache_dir: str | Path,
    config: CDConfig | None = None,
    *,
    focal: range | None = None,
    engine: Engine | int | None = None,
) -> Path:
    """Score works of a graph into a folder of the cache, one Parquet file per publication year.

    Memory: the scores of one year. A killed run goes on after the last year it has written. The files hold all focal
    works in index order when read by name. ``engine`` scores them, and needs a graph on disk; a number is threads of
    this process, None as many as Polars uses. The bytes do not depend on it.
    """
    n_threads = None if isinstance(engine, Engine) else engine
    config = _checked(config, n_threads)
    focal, dated = _checked_focal(graph, focal)
    last_year = last_year_of(graph)

    def year_of(span: range) -> int:
        return int(np.searchsorted(graph.year_offsets, span.start, side="right")) - 1

    def fill(files: YearFiles, tasks: YearFiles) -> None:
        spans = [span for span in split_at(graph.year_offsets, dated) if not files.path(year_of(span)).exists()]
        if isinstance(engine, Engine) and spans:
            shares = _score_shares(graph, config, dated, engine, tasks.folder)
            for span in spans:
                files.write(year_of(span), _rows_of(shares, span))
            spans = []
        for span, counts in _counts_by_year(graph, config, spans, n_threads):
            rows = add_indices(counted_rows(graph, span, counts), config)
            files.write(year_of(span), rows.hstack(mark_windows(graph, config, span, last_year)))
        if dated.stop < focal.stop or not focal:
            undated = range(dated.stop, max(dated.stop, focal.stop))
            rows = add_indices(_undated_rows(graph, undated, config), config)
            files.write(graph.years.size, rows.hstack(mark_windows(graph, config, undated, last_year)))

    share = [] if len(focal) == graph.n_known else [focal.start, focal.stop]
    key = content_hash(graph, _FORMAT_VERSION, config.stated(), share)
    return cache_years(graph, Path(cache_dir) / f"cd-{key}", fill)


def _score_shares(
    graph: CitationGraph, config: CDConfig, dated: range, engine: Engine, home: Path
) -> list[tuple[range, Path]]:
    """Have tasks score shares of the works with about as many references each; return the file of each."""
    offsets, n = graph.ref_offsets, engine.config.tasks
    bounds = offsets[dated.start] + (offsets[dated.stop] - offsets[dated.start]) * np.arange(1, n) // n
    inner = np.searchsorted(offsets[dated.start : dated.stop], bounds) + dated.start
    cuts = np.unique([dated.start, *inner.tolist(), dated.stop]).tolist()
    of_all = for_tasks(graph, engine.config.stage_dir) | {"config": asdict(config), "n_threads": engine.config.threads}
    spans = [range(*pair) for pair in pairwise(cuts)]
    tasks = [
        Task(
            name=f"CD index, share {number} of {len(spans)}",
            work=name_of(score_share),
            arguments=of_all | {"first": span.start, "last": span.stop},
            out=str(home / f"{number:05}.parquet"),
            cost=float(offsets[span.stop] - offsets[span.start]),
        )
        for number, span in enumerate(spans, 1)
    ]
    engine.do_all(tasks, home, what="CD index", unit="references")
    return [(span, Path(one.out)) for span, one in zip(spans, tasks, strict=True)]


class _Share(GraphInTask):
    """Which works a task scores, and how."""

    config: dict[str, Any]
    n_threads: int
    first: int
    last: int


@task
def score_share(advance: Advance, *, out: Path, **share: Unpack[_Share]) -> None:
    """Score the works from ``first`` up to ``last`` of a graph on disk into one Parquet file."""
    graph, config = open_in_task(share["graph"], share["stage_dir"]), CDConfig(**share["config"])
    focal = range(share["first"], share["last"])
    write_parquet(score_graph(graph, config, focal=focal, n_threads=share["n_threads"], advance=advance), out)


def _rows_of(shares: list[tuple[range, Path]], span: range) -> pl.DataFrame:
    """Read the rows of some works from the files of shares."""
    parts: list[pl.DataFrame] = []
    for share, path in shares:
        low, high = max(share.start, span.start), min(share.stop, span.stop)
        if low < high:
            rows = pl.scan_parquet(path, glob=False).slice(low - share.start, high - low)
            parts.append(rows.collect(engine="in-memory"))  # which keeps their order
    return pl.concat(parts, rechunk=True)


def shard_range(graph: CitationGraph, shard: int, n_shards: int) -> range:
    """Return the works of one of ``n_shards`` shares with about as many references each, for ``focal``."""
    if not (is_whole(n_shards) and is_whole(shard) and 0 <= shard < n_shards):
        raise ConfigError(f"shard is {shard!r} of {n_shards!r}, needs whole numbers, the shard from 0 to n_shards - 1.")
    offsets = graph.ref_offsets[: graph.n_known + 1]
    total = int(offsets[-1] - offsets[0])
    bounds = [int(offsets[0]) + total * edge // n_shards for edge in (shard, shard + 1)]
    first, last = np.searchsorted(offsets, bounds).tolist()
    return range(first if shard else 0, last if shard < n_shards - 1 else graph.n_known)


def _counts_by_year(
    graph: CitationGraph, config: CDConfig, spans: list[range], n_threads: int | None, bar: Advance | None = None
) -> Iterator[tuple[range, dict[str, AnyArray]]]:
    """Count for one span of works after the other, with a bar, unless one is given."""
    if not spans:
        return
    n_references = sum(int(graph.ref_offsets[span.stop] - graph.ref_offsets[span.start]) for span in spans)
    with nullcontext(bar) if bar else progress_bar("CD index", n_references, unit="references") as advance:
        counter = Counter(graph, config, n_threads or pl.thread_pool_size(), advance, spans[-1].stop)
        for span in spans:
            yield span, counter.count(span)


def _checked_focal(graph: CitationGraph, focal: range | None) -> tuple[range, range]:
    """Return the works to score, and those of them that have a year."""
    focal = range(graph.n_known) if focal is None else focal
    if not (isinstance(focal, range) and focal.step == 1 and 0 <= focal.start <= focal.stop <= graph.n_known):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"focal is {focal!r}, needs a range of indices without gaps, from 0 to {graph.n_known:,} at most."
        )
    return focal, range(focal.start, max(focal.start, min(focal.stop, graph.n_dated)))


def _checked(config: CDConfig | None, n_threads: int | None) -> CDConfig:
    check_threads(n_threads)
    return checked_config(config, CDConfig, "window_years=10")


def counted_rows(graph: CitationGraph, span: range, counts: dict[str, AnyArray]) -> pl.DataFrame:
    """Put works and counts side by side: what add_indices reads."""
    n_refs = np.diff(graph.ref_offsets[span.start : span.stop + 1]).astype(np.uint32)
    n_ever = np.diff(graph.citer_offsets[span.start : span.stop + 1])
    work_ids = graph.work_ids[span.start : span.stop]
    return pl.DataFrame({"work_id": work_ids, **counts, "n_refs": n_refs, "n_ever": n_ever})


def _undated_rows(graph: CitationGraph, span: range, config: CDConfig) -> pl.DataFrame:
    """Return rows of null for works without a year."""
    rows = pl.DataFrame({"work_id": graph.work_ids[span.start : span.stop]})
    counts = _COUNTS | {f"n_j{config.di_l}": pl.UInt32()}
    columns = {name + window: dtype for name, dtype in counts.items() for window in config.all_windows}
    return rows.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in (columns | _OF_ALL_WINDOWS).items())


def score_schema(config: CDConfig) -> pl.Schema:
    """Return the columns of the scores: CD_SCORES, CD_FAMILY on request, then both again for each further window."""
    columns = dict(CD_SCORES | CD_FAMILY) if config.family else dict(CD_SCORES)
    columns = {_OF_DI_5.get(name, name).format(config.di_l): dtype for name, dtype in columns.items()}
    of_windows = {name: dtype for name, dtype in columns.items() if name not in ("work_id", "n_refs")}
    further = [window for window in config.all_windows if window]
    return pl.Schema(columns | {name + window: of_windows[name] for window in further for name in of_windows})


def add_indices(counts: pl.DataFrame, config: CDConfig) -> pl.DataFrame:
    """Compute every index from whole numbers, so that one division is the only rounding; null counts give null."""
    schema = score_schema(config)
    indices = {name + window: made for window in config.all_windows for name, made in _indices(window, config).items()}
    return counts.with_columns(**indices).select(schema.names()).cast(schema)


def _indices(window: str, config: CDConfig) -> dict[str, pl.Expr]:
    """Make the indices of the counts whose names end with ``window``."""
    n_i, n_j, n_k = (pl.col(name + window).cast(pl.Int64) for name in ("n_i", "n_j", "n_k"))
    usable = pl.lit(value=True)
    if config.zero_references == "null":
        usable &= pl.col("n_refs") > 0
    if config.uncited != "keep":
        usable &= (n_i + n_j if config.uncited == "null" else pl.col("n_ever")) > 0

    def ratio(above: pl.Expr, below: pl.Expr) -> pl.Expr:
        return pl.when(usable & (below > 0)).then(above / below)

    cd = ratio(n_i - n_j, n_i + n_j + n_k)
    indices = {"cd_index": cd}
    if config.undefined == "zero":
        indices["cd_index"] = pl.when(n_i.is_not_null()).then(cd.fill_null(0.0))
    if config.family:
        n_jl, n_shared = (pl.col(name + window).cast(pl.Int64) for name in (f"n_j{config.di_l}", "n_shared"))
        indices |= {
            "mcd_index": cd * pl.col(f"n_to_date{window}"),
            f"di{config.di_l}_index": ratio(n_i - n_jl, n_i + n_jl + n_k),
            "di_nok_index": ratio(n_i - n_j, n_i + n_j),
            "dependence": ratio(n_shared, n_i + n_j),
        }
    return indices


def compute_cd_variants(
    works: AnyFrame,
    citations: AnyFrame,
    config: CDConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work by the disruption family and by variants that follow from the same counts.

    Args:
        works: WORKS, as for ``compute_cd_index``.
        citations: CITATIONS.
        config: which convention; ``CDConfig(family=True)`` when None. The family is always added.
        cache_dir: as in ``compute_cd_index``.
        n_threads: as in ``compute_cd_index``.

    Returns:
        One row per work, unordered: CD_SCORES, CD_FAMILY, and three columns, all Float64.
        orig_base: 1 - n_shared / ((n_i + n_j) n_refs), the share of missing links of citers to references; 0 .. 1.
        inverse_dependence: 1 + the largest dependence of all works - dependence; from 1, high is disruptive. It depends
        on which works are in ``works``.
        di5_nok_index: (n_i - n_j5) / (n_i + n_j5); -1 .. 1. With ``config.di_l`` of 3 it is di3_nok_index.
        They are null where dependence is: without citers in the window or, by default, without references. orig_base is
        null without references in any convention. With ``config.windows`` each window has its own: orig_base_10.

    Raises:
        ConfigError, SchemaMismatchError, WorkIdError, EmptyInputError: as ``compute_cd_index``.

    Source: Shibayama & Wang 2020, doi:10.1007/s11192-019-03263-0 (orig_base); Bornmann et al. 2020,
    doi:10.1162/qss_a_00068 (inverse dependence, DI_5 without n_k). The formulas are those of CrossDI (Xu et al. 2025,
    doi:10.1016/j.joi.2025.101685).

    Example:
        Citers 3 and 4 could cite two references each, and cite one of these four.

        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5], "publication_year": [1990, 2000, 2001, 2002, 1991]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [2, 2, 3, 4, 4], "cited_id": [1, 5, 2, 2, 1]})
        >>> columns = ("dependence", "inverse_dependence", "orig_base", "di5_nok_index")
        >>> scores = compute_cd_variants(works, citations).filter(pl.col("work_id") == 2)
        >>> scores.select(columns).collect().row(0)
        (0.5, 1.0, 0.75, 1.0)
    """
    config = replace(_checked(config, n_threads), family=True)
    scores = compute_cd_index(works, citations, config, cache_dir=cache_dir, n_threads=n_threads)
    return scores.with_columns(
        **{
            name + window: made
            for window in config.all_windows
            for name, made in variants_of(window, config.di_l).items()
        }
    )


def variants_of(window: str, least: int) -> dict[str, pl.Expr]:
    """Make the variants of the window whose columns end with ``window``."""
    counts = (f"{name}{window}" for name in ("n_i", "n_j", f"n_j{least}", "n_shared"))
    n_i, n_j, n_jl, n_shared = (pl.col(name).cast(pl.Int64) for name in counts)
    dependence = pl.col(f"dependence{window}")
    links, strong = (n_i + n_j) * pl.col("n_refs").cast(pl.Int64), n_i + n_jl
    return {
        "orig_base": pl.when(dependence.is_not_null() & (links > 0)).then(1 - n_shared / links),
        "inverse_dependence": 1 + (dependence.max() - dependence),
        f"di{least}_nok_index": pl.when(dependence.is_not_null() & (strong > 0)).then((n_i - n_jl) / strong),
    }
