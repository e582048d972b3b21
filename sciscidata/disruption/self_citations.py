"""Author self-citations: which citations they are, and what the CD index is without citers that share an author."""

from __future__ import annotations

import logging
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray, Int64Array
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.counts import Clock, Counter, cut_evenly, run_in_order, split_at
from sciscidata.disruption.index import add_indices, counted_rows, score_schema
from sciscidata.disruption.windows import close_windows, find_open_in_fields, last_year_of, mark_windows, window_schema
from sciscidata.errors import SchemaMismatchError
from sciscidata.frames import AnyFrame, near_cast, to_lazy
from sciscidata.graph.graph import CitationGraph, build_graph, require_times
from sciscidata.options.checks import check_threads, checked_config
from sciscidata.records.ids import with_original_ids
from sciscidata.schemas import CITATIONS, SWAPPED, require_columns
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import progress_bar

if TYPE_CHECKING:
    from sciscidata.disruption._author_kernels import Authors

logger = logging.getLogger(__name__)

#: What the names of columns begin with where citers that share an author do not count.
INDEPENDENT: Final = "independent_"
N_SELF_CITERS: Final = "n_self_citers"
_STAGE: Final = "compute_independent_cd_index"
_COUNTS: Final = ("n_i", "n_j", "n_k")


def find_self_citations(citations: AnyFrame, authors: AnyFrame) -> pl.LazyFrame:
    """List the citations between works that share an author.

    A work that cites itself is no author self-citation, and left out. A citation of a work without known authors is
    left out, too: whether it is one is not known.

    Args:
        citations: CITATIONS, in any order; repeats count once.
        authors: one row per work and author: work_id (Int64) and author_id (whole numbers or text), as ``scan_authors``
            gives them.

    Returns:
        citing_id, cited_id, and n_shared_authors (UInt32, from 1), one row per citation, unordered.

    Raises:
        SchemaMismatchError: when called, if a column is missing or has another dtype.

    Example:
        >>> citations = pl.DataFrame({"citing_id": [2, 3, 3], "cited_id": [1, 1, 2]})
        >>> authors = pl.DataFrame({"work_id": [1, 2, 3, 3], "author_id": ["poe", "poe", "poe", "woolf"]})
        >>> find_self_citations(citations, authors.filter(author_id="poe")).collect().sort(pl.all()).rows()
        [(2, 1, 1), (3, 1, 1), (3, 2, 1)]
    """
    stage = "find_self_citations"
    try:
        citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=stage)
    except SchemaMismatchError as error:
        if SWAPPED not in str(error):
            raise
        raise SchemaMismatchError(  # no works are taken here
            f"{stage}: citations have a column 'work_id', and need citing_id and cited_id. Give citations first, then "
            f"authors: {stage}(citations, authors)."
        ) from None
    pairs = require_authors(authors, stage).unique()
    distinct = (
        citations.select("citing_id", "cited_id")
        .drop_nulls()
        .filter(pl.col("citing_id") != pl.col("cited_id"))
        .unique()
    )
    shared = distinct.join(pairs.rename({"work_id": "citing_id"}), on="citing_id").join(
        pairs.rename({"work_id": "cited_id"}), on=["cited_id", "author_id"]
    )
    return shared.group_by("citing_id", "cited_id").agg(n_shared_authors=pl.len().cast(pl.UInt32))


def compute_independent_cd_index(
    works: AnyFrame,
    citations: AnyFrame,
    authors: AnyFrame,
    config: CDConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work twice: by all later works, and by those that share no author with it.

    The second score leaves out of n_i, n_j and n_k of focal work f every later work that shares an author with f. For
    other focal works it still counts. Do not delete self-citations from ``citations`` instead: citers of f that cite
    its references, too, would then move from n_j into n_k.

    Args:
        works: WORKS, as for ``compute_cd_index``.
        citations: CITATIONS.
        authors: one row per work and author, as ``scan_authors`` gives them.
        config: which convention; ``CDConfig()`` when None.
        cache_dir: as in ``compute_cd_index``.
        n_threads: as in ``compute_cd_index``.

    Returns:
        The columns of ``compute_cd_index``, one row per work, unordered. Then n_self_citers (UInt32): works in the
        window that cite f and share an author with it; and each count and index again without works that share an
        author, such as independent_n_i and independent_cd_index. Null where no author of the work is known. A later
        work without known authors counts as one that shares none. Each further window has its own: n_self_citers_10.
        The log says once how many works are concerned, and how many have no known author.

    Raises:
        ConfigError, SchemaMismatchError, WorkIdError, EmptyInputError: as ``compute_cd_index``.

    Source:
        The index: Funk & Owen-Smith 2017, doi:10.1287/mnsc.2015.2366. That self-citations close triads, and so lower
        it: Petersen et al. 2023, arXiv:2306.01949.

    Example:
        Work 3 shares an author with work 2, and cites its reference, too. Work 4 does not.

        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4], "publication_year": [1990, 2000, 2001, 2002]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [2, 3, 3, 4], "cited_id": [1, 1, 2, 2]})
        >>> authors = pl.LazyFrame({"work_id": [2, 3, 4], "author_id": [7, 7, 8]})
        >>> scores = compute_independent_cd_index(works, citations, authors).filter(pl.col("work_id") == 2)
        >>> scores.select("cd_index", "n_self_citers", "independent_cd_index").collect().row(0)
        (0.0, 1, 1.0)
    """
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=_STAGE)
    check_threads(n_threads)
    config = checked_config(config, CDConfig, "window_years=10")
    works = require_times(works, config.time, stage=_STAGE)
    pairs = require_authors(authors, _STAGE)

    def score() -> pl.DataFrame:
        graph = build_graph(works, citations, time=config.time, cache_dir=cache_dir, n_threads=n_threads)
        scores = score_independently(graph, pairs, config, n_threads or pl.thread_pool_size())
        scores = close_windows(scores, find_open_in_fields(works, config, last_year_of(graph)))
        _say(scores)
        return scores

    return with_original_ids(pl.defer(score, schema=_schema(config)), works)


def require_authors(authors: AnyFrame, stage: str) -> pl.LazyFrame:
    """Check the columns of pairs of works and authors, and return these without nulls."""
    lazy = to_lazy(authors, "authors", stage)
    got = lazy.collect_schema()
    if missing := [name for name in ("work_id", "author_id") if name not in got]:
        raise SchemaMismatchError(
            f"{stage}: authors lack column {missing[0]!r}; they have {', '.join(got) or 'none'}. Needed is one row per "
            "work and author, as sciscidata.scan_authors gives them."
        )
    work = pl.col("work_id") if got["work_id"] == pl.Int64() else None
    work = work if work is not None else near_cast("work_id", got["work_id"], pl.Int64(), f"{stage}: authors")
    if work is None:
        raise SchemaMismatchError(
            f"{stage}: authors column 'work_id' is {got['work_id']}, needs Int64, as in WORKS. "
            "sciscidata.scan_authors(table, id=..., authors=...) makes it of ids of any kind."
        )
    if not (got["author_id"].is_integer() or got["author_id"] in (pl.String(), pl.Categorical, pl.Enum)):
        raise SchemaMismatchError(
            f"{stage}: authors column 'author_id' is {got['author_id']}, needs whole numbers or text, one author a "
            "row. sciscidata.scan_authors(table, id=..., authors=...) takes lists apart."
        )
    author = pl.col("author_id")
    return lazy.select(work, author if got["author_id"].is_integer() else author.cast(pl.String)).drop_nulls()


def _schema(config: CDConfig) -> pl.Schema:
    """Return the columns of the scores, then those without citers that share an author."""
    columns = score_schema(config)
    again = {name: dtype for name, dtype in columns.items() if name not in ("work_id", "n_refs")}
    self_citers = {N_SELF_CITERS + window: pl.UInt32() for window in config.all_windows}
    columns |= window_schema(config)
    return pl.Schema(columns | self_citers | {INDEPENDENT + name: dtype for name, dtype in again.items()})


def score_independently(graph: CitationGraph, pairs: pl.LazyFrame, config: CDConfig, n_threads: int) -> pl.DataFrame:
    """Score the works of a graph, by (year, work_id); works without a year come last."""
    authors = _list_authors(graph, pairs)
    schema, last_year = _schema(config), last_year_of(graph)
    dated = range(graph.n_dated)
    parts = [schema.to_frame()]
    with progress_bar("CD index", int(graph.ref_offsets[dated.stop]), unit="references") as advance:
        counter = Counter(graph, config, n_threads, advance)
        own = _OwnCiters(graph, config, authors, n_threads)
        for span in split_at(graph.year_offsets, dated):
            rows = counted_rows(graph, span, counter.count(span))
            minus = own.count(span)
            is_known = pl.Series(np.diff(authors.offsets[span.start : span.stop + 1]) > 0)
            without = rows.with_columns(
                (pl.col(name).cast(pl.Int64) - minus[name].cast(pl.Int64)).cast(rows.schema[name])
                for name in minus.columns
                if name in rows.columns
            )
            again = add_indices(without, config).drop("work_id", "n_refs", strict=False)
            again = minus.select(pl.col(f"^{N_SELF_CITERS}.*$").cast(pl.UInt32)).hstack(
                again.rename(lambda name: INDEPENDENT + name)
            )
            again = again.select(pl.when(is_known).then(pl.all()))
            usual = add_indices(rows, config).hstack(mark_windows(graph, config, span, last_year))
            parts.append(usual.hstack(again).cast(schema).select(schema.names()))
    undated = pl.DataFrame({"work_id": graph.work_ids[dated.stop : graph.n_known]})
    return pl.concat([*parts, undated], how="diagonal").select(schema.names())


class _OwnCiters:
    """Counts of the works that share an author with each focal work and cite it or its references."""

    def __init__(self, graph: CitationGraph, config: CDConfig, authors: Authors, n_threads: int) -> None:
        self._graph, self._config, self._authors, self._n_threads = graph, config, authors, n_threads
        self._clock = Clock(graph, config)
        self._by_age = config.window_from == "cited"
        self._ages: AnyArray = np.zeros((len(config.all_windows), 2, 1), np.int64)
        if self._by_age:
            self._ages = np.zeros((len(config.all_windows), 2, graph.n_works), np.int64)
            for row, window in zip(self._ages, config.all_windows.values(), strict=True):
                places = np.array([self._clock.place(time, window) for time in self._clock.times.tolist()], np.int64)
                row[:, : graph.n_dated] = np.repeat(places.reshape(-1, 2), np.diff(self._clock.offsets), axis=0).T

    def count(self, focal: range) -> pl.DataFrame:
        """Count n_i, n_j, n_k, n_self_citers and those of the family for every window, and ``n_ever``."""
        counts = np.concatenate([self._count(span) for span in self._clock.split(focal)])
        n_i, n_j, n_k, strong, shared, to_date, ever = np.moveaxis(counts, 2, 0)
        if self._config.focal_citers == "any":
            n_i = to_date - n_j
        columns: dict[str, AnyArray] = {"n_ever": ever[:, 0]}
        for w, window in enumerate(self._config.all_windows):
            columns |= {f"{name}{window}": one[:, w] for name, one in zip(_COUNTS, (n_i, n_j, n_k), strict=True)}
            columns |= {
                f"n_j{self._config.di_l}{window}": strong[:, w],
                f"n_shared{window}": shared[:, w],
                f"n_to_date{window}": to_date[:, w],
                f"{N_SELF_CITERS}{window}": n_i[:, w] + n_j[:, w],
            }
        return pl.DataFrame(columns)

    def _count(self, focal: range) -> Int64Array:
        from sciscidata.disruption import _author_kernels as kernels

        graph, config = self._graph, self._config
        time = self._clock.time_of(focal)
        lows, highs = zip(*(self._clock.place(time, window) for window in config.all_windows.values()), strict=True)
        counts_before = self._by_age or config.family or config.focal_citers == "any"
        begin = 0 if counts_before or config.uncited == "null_if_never" else lows[0]
        stop = graph.n_dated if self._by_age else max(highs)
        stop = graph.n_works if config.uncited == "null_if_never" else stop
        reach = kernels.Reach(begin, stop, lows[0], config.di_l, self._by_age)
        references = kernels.References(graph.ref_offsets, graph.refs)
        ends = np.array(highs, np.int64)
        counts = np.zeros((len(focal), len(highs), 7), np.int64)

        def share(span: tuple[int, int]) -> None:
            rows = counts[span[0] - focal.start : span[1] - focal.start]
            kernels.count_own_citers(*span, references, self._authors, reach, ends, self._ages, rows)

        spans = [*pairwise(cut_evenly(graph, focal.start, focal.stop, 4 * self._n_threads))]
        deque(run_in_order(share, spans, self._n_threads), maxlen=0)
        is_late = [config.is_too_late(time, window) for window in config.all_windows.values()]
        counts[:, is_late, :-1] = 0  # all but the citers at any time
        return counts


def _list_authors(graph: CitationGraph, pairs: pl.LazyFrame) -> Authors:
    """Number the authors of the works of a graph, and list them by work, and their works by author."""
    from sciscidata.disruption import _author_kernels as kernels

    rows = pairs.unique().collect(engine="streaming")
    ids = graph.work_ids
    order = np.argsort(ids)
    wanted = rows["work_id"].to_numpy()
    places = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), ids.size - 1)]
    is_there = ids[places] == wanted
    works = places[is_there].astype(np.int32)
    codes = rows["author_id"].filter(pl.Series(is_there)).rank("dense").fill_null(0).cast(pl.Int32).to_numpy() - 1
    n_authors = int(codes.max(initial=-1)) + 1
    by_work, by_author = np.lexsort((codes, works)), np.lexsort((works, codes))
    return kernels.Authors(
        _offsets(works, ids.size), codes[by_work].astype(np.int32), _offsets(codes, n_authors), works[by_author]
    )


def _offsets(keys: AnyArray, n: int) -> Int64Array:
    return np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n))]).astype(np.int64)


def _say(scores: pl.DataFrame) -> None:
    """Log once how many works have a citer that shares an author, and of how many no author is known."""
    dated = scores.filter(pl.col("n_i").is_not_null())
    n_known = dated.height - dated[N_SELF_CITERS].null_count()
    if not n_known and dated.height:
        logger.warning(
            "%s: authors has no author of a work in works. Make both of the same source, with the same ids.", _STAGE
        )
        return
    cited = scores.filter(pl.col(N_SELF_CITERS) > 0)
    means = [
        f"{mean:.3f}" if mean is not None else "undefined"
        for mean in cited.select(
            usual=pl.col("cd_index").mean(), independent=pl.col(f"{INDEPENDENT}cd_index").mean()
        ).row(0)
    ]
    logger.info(
        "%s: %s by works that share an author with them; their mean cd_index is %s, and %s without such citers. Null, "
        "since no author is known: %s.",
        *(_STAGE, counted(cited.height, "work is cited", "works are cited"), *means),
        counted(dated.height - n_known, "work"),
    )
