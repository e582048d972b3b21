"""What is known of a work on the day it appears: its references, and what earlier works made of them."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Int64Array
from sciscidata.disruption.counts import cut_evenly, run_in_order
from sciscidata.frames import AnyFrame
from sciscidata.graph.edges import watched
from sciscidata.graph.graph import CitationGraph, build_graph
from sciscidata.options.checks import check_threads
from sciscidata.records.ids import with_original_ids
from sciscidata.schemas import CITATIONS, WORKS, require_columns
from sciscidata.terminal.progress import Advance, progress_bar

_STAGE: Final = "compute_publication_features"
_RECENT_YEARS: Final = 5

#: One row per work of WORKS: what earlier years say of its references. Null when undefined; without a year, all is.
PUBLICATION_FEATURES = pl.Schema(
    {
        "work_id": pl.Int64(),
        "publication_year": pl.Int32(),
        "primary_field": pl.String(),
        "n_references": pl.Int64(),
        "n_references_dated": pl.Int64(),
        "reference_age_mean": pl.Float64(),
        "reference_age_median": pl.Float64(),
        "reference_age_min": pl.Int64(),
        "reference_age_max": pl.Int64(),
        "reference_citations": pl.Int64(),
        "reference_citations_mean": pl.Float64(),
        "reference_citations_median": pl.Float64(),
        "reference_citations_max": pl.Int64(),
        "share_references_uncited": pl.Float64(),
        "reference_recent_citations": pl.Int64(),
        "reference_recent_citations_mean": pl.Float64(),
        "n_references_with_cd": pl.Int64(),
        "reference_cd_mean": pl.Float64(),
        "n_coupled": pl.Int64(),
        "n_coupled_twice": pl.Int64(),
        "coupling_max": pl.Int64(),
        "coupling_mean": pl.Float64(),
    }
)


def compute_publication_features(
    works: AnyFrame,
    citations: AnyFrame,
    *,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Describe every work by what was known when it appeared: its references, and what earlier years made of them.

    Citations of the same year or later reach no row. So the columns may predict what becomes of a work.

    Args:
        works: WORKS: work_id, publication_year, and primary_field if it is there.
        citations: CITATIONS, in any order, references to works outside ``works`` among them. Repeats, and works that
            cite themselves, are ignored.
        cache_dir: keep the graph here for later runs.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The result does not depend on it.

    Returns:
        PUBLICATION_FEATURES, one row per work, unordered. *Earlier* works have a year before that of the work.
        publication_year (Int32), primary_field (String): as in ``works``.
        n_references: Int64, distinct references, with or without a row in ``works``.
        n_references_dated: Int64, of these, with a year up to that of the work.
        reference_age_mean, _median (Float64), _min, _max (Int64): years from dated references to the work.
        reference_citations: Int64, citations of all references by earlier works; _mean, _median (Float64), _max (Int64)
        of a reference. share_references_uncited: Float64, references that no earlier work cites, 0 .. 1.
        reference_recent_citations: Int64, those by works of the last five years before; _mean: Float64.
        n_references_with_cd: Int64, earlier references that have references, and that an earlier work cites after
        their own year; reference_cd_mean: Float64, their mean CD index by all earlier works, -1 .. 1.
        n_coupled, n_coupled_twice: Int64, earlier works that cite at least one, two of the references. coupling_max:
        Int64, the most references that an earlier work shares; coupling_mean: Float64, the mean over n_coupled.
        Null where undefined. Without a year, all but the field is null. Without references, all but year, field and
        n_references (0).

    Raises:
        ConfigError: when called, if ``n_threads`` is not a whole number above 0.
        SchemaMismatchError: when called, if a column is missing or has another dtype.
        WorkIdError, EmptyInputError: at collect, as in ``compute_cd_index``.

    Memory: 8 bytes a citation, about 300 a work, and 8 more a work for each thread.

    Source: Kessler 1963, doi:10.1002/asi.5090140103 (bibliographic coupling).

    Example:
        Work 4 cites works 1 and 2; work 3 of an earlier year cites both, too.

        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4], "publication_year": [1990, 1995, 2000, 2001]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [2, 3, 3, 4, 4], "cited_id": [1, 1, 2, 1, 2]})
        >>> found = compute_publication_features(works, citations).filter(pl.col("work_id") == 4)
        >>> columns = ("n_references", "reference_age_mean", "reference_citations", "reference_cd_mean", "coupling_max")
        >>> found.select(columns).collect().row(0)
        (2, 8.5, 3, -1.0, 2)
    """
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=_STAGE)
    check_threads(n_threads)
    columns = ["work_id", "publication_year"]
    given = require_columns(works, WORKS, frame_name="WORKS", stage=_STAGE, columns=columns)
    if "primary_field" in given.collect_schema():
        columns = [*columns, "primary_field"]
        given = require_columns(given, WORKS, frame_name="WORKS", stage=_STAGE, columns=columns)
    else:
        given = given.with_columns(primary_field=pl.lit(None, pl.String))

    def describe() -> pl.DataFrame:
        graph = build_graph(given, citations, cache_dir=cache_dir, n_threads=n_threads)
        counts = describe_graph(graph, n_threads or pl.thread_pool_size())
        rows = watched(with_shares(counts), graph, _STAGE)
        facts = given.select("work_id", "publication_year", "primary_field").collect()
        return rows.join(facts, on="work_id", how="left").select(PUBLICATION_FEATURES.names())

    return with_original_ids(pl.defer(describe, schema=PUBLICATION_FEATURES), given)


def describe_graph(graph: CitationGraph, n_threads: int, indices: Int64Array | None = None) -> pl.DataFrame:
    """Count for the works of a graph, in index order: work_id, n_references, those of ``Counts``, and cd_sum.

    Without a year, all is null; without references, all is 0. ``indices``, in ascending order, are the works that get a
    row; all do when None. Works after the last of them are not looked at.
    """
    chosen = np.arange(graph.n_known) if indices is None else indices
    dated, offsets = chosen[: np.searchsorted(chosen, graph.n_dated)], graph.ref_offsets
    n_years = int(np.searchsorted(graph.year_offsets, dated[-1], side="right")) if dated.size else 0
    with progress_bar("features at publication", float(offsets[graph.year_offsets[n_years]]), unit="references") as bar:
        years = _Years(graph, dated, n_threads, bar)
        for year, (low, high) in zip(
            graph.years[:n_years].tolist(), pairwise(graph.year_offsets.tolist()), strict=False
        ):
            years.describe(year, low, high)
    columns = {"n_references": offsets[dated + 1] - offsets[dated], **years.counts._asdict(), "cd_sum": years.cd_sums}
    ids = pl.DataFrame({"work_id": graph.work_ids[chosen]})
    return pl.concat([ids[: dated.size].with_columns(**columns), ids[dated.size :]], how="diagonal")


class _Years:
    """Counts for the works ``chosen`` of one year after the other; the past grows along."""

    def __init__(self, graph: CitationGraph, chosen: Int64Array, n_threads: int, advance: Advance) -> None:
        from sciscidata.disruption import _publication_kernels as kernels

        self.graph, self._n_threads, self._advance = graph, n_threads, advance
        n, n_dated, offsets = graph.n_works, graph.n_dated, graph.ref_offsets
        years = np.repeat(graph.years, np.diff(graph.year_offsets))
        self._lists = kernels.Lists(offsets, graph.refs, *graph.citers_among(range(n_dated), n_threads), years)
        self._past = kernels.Past(*(np.zeros(size, np.uint32) for size in (n, n, n_dated, n_dated, n_dated)))
        self._chosen = chosen
        self.counts = kernels.Counts(*(np.zeros(chosen.size, np.int64) for _ in kernels.Counts._fields))
        self.cd_sums = np.zeros(chosen.size)
        longest = int(np.diff(offsets[: n_dated + 1]).max(initial=1))
        rooms = (
            kernels.Scratch(np.zeros((n_dated, 2), np.uint32), np.zeros(1, np.int64), np.empty(longest, np.int64))
            for _ in range(n_threads)
        )
        self._rooms = [*rooms]
        self._n_old = 0  # works that are older than the last years

    def describe(self, year: int, low: int, high: int) -> None:
        """Count for the works ``low`` .. ``high - 1`` of the next year, and let their citations be of the past."""
        from sciscidata.disruption import _publication_kernels as kernels
        from sciscidata.graph import _kernels as graph_kernels

        graph, lists, past, offsets = self.graph, self._lists, self._past, self.graph.ref_offsets
        n_old = int(graph.year_offsets[np.searchsorted(graph.years, year - _RECENT_YEARS)])
        graph_kernels.count(graph.refs[offsets[self._n_old] : offsets[n_old]], 0, past.n_old)
        self._n_old = n_old
        place = kernels.Place(year, low, high)
        counts = kernels.Counts(*(np.zeros(high - low, np.int64) for _ in kernels.Counts._fields))
        cd_sums = np.zeros(high - low)
        cites_both = np.zeros(int(offsets[high] - offsets[low]), np.uint8)
        free: SimpleQueue[kernels.Scratch] = SimpleQueue()
        for room in self._rooms:
            free.put(room)

        def share(span: tuple[int, int]) -> int:
            room = free.get()
            kernels.describe(*span, lists, place, past, room, cites_both, counts, cd_sums)
            free.put(room)
            return int(offsets[span[1]] - offsets[span[0]])

        spans = [*pairwise(cut_evenly(graph, low, high, 4 * self._n_threads))]
        with closing(run_in_order(share, spans, self._n_threads)) as results:
            for done in results:
                self._advance(done)
        for room in self._rooms:
            kernels.take_new(past.n_touching, room.marks)
        kernels.end_year(lists, place, past, cites_both)
        kept = slice(*np.searchsorted(self._chosen, (low, high)).tolist())
        for column, of_year in zip((*self.counts, self.cd_sums), (*counts, cd_sums), strict=True):
            column[kept] = of_year[self._chosen[kept] - low]


def with_shares(counts: pl.DataFrame) -> pl.DataFrame:
    """Make the columns of PUBLICATION_FEATURES from whole numbers, null where they count none."""
    n, dated, with_cd, coupled = map(pl.col, ("n_references", "n_references_dated", "n_with_cd", "n_coupled"))
    cited, recent = pl.col("citations"), pl.col("recent_citations")
    of_references = {
        "n_references_dated": dated,
        "reference_citations": cited,
        "reference_citations_mean": cited / n,
        "reference_citations_median": pl.col("citations_middle") / 2,
        "reference_citations_max": pl.col("citations_max"),
        "share_references_uncited": pl.col("n_uncited") / n,
        "reference_recent_citations": recent,
        "reference_recent_citations_mean": recent / n,
        "n_references_with_cd": with_cd,
        "n_coupled": coupled,
        "n_coupled_twice": pl.col("n_coupled_twice"),
    }
    of_dated = {
        "reference_age_mean": pl.col("age_sum") / dated,
        "reference_age_median": pl.col("age_middle") / 2,
        "reference_age_min": pl.col("age_min"),
        "reference_age_max": pl.col("age_max"),
    }
    of_coupled = {"coupling_max": pl.col("coupling_max"), "coupling_mean": pl.col("coupling_sum") / coupled}
    of_cd = {"reference_cd_mean": pl.col("cd_sum") / with_cd}
    groups = ((n, of_references), (dated, of_dated), (coupled, of_coupled), (with_cd, of_cd))
    return counts.select(
        "work_id",
        n,
        *(pl.when(some > 0).then(made).alias(name) for some, group in groups for name, made in group.items()),
    )
