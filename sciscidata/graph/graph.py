"""The citation graph in flat arrays: build it, keep it on disk, map it into memory.

Works are renumbered by (publication year, id), so index order is time order. Then the works of some years in a row are
one range of indices. Every list of citers is sorted by time. The citers of a work inside a window are one slice of it.
The arrays have the same bytes for any order of the input, memory limit, and number of threads.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import polars as pl
from filelock import FileLock

from sciscidata._kernels.arrays import AnyArray, Int32Array, Int64Array, UInt64Array, read_only
from sciscidata._support.parallel import map_in_order, run_all
from sciscidata.engines.task import shared
from sciscidata.errors import InputNotFoundError, StorageError
from sciscidata.frames import AnyFrame
from sciscidata.graph.build import DTYPES, OF_DATES, Means, Nodes, edge_batches, lay_out, map_array, read_nodes
from sciscidata.options.checks import check_threads, check_value
from sciscidata.schemas import CITATIONS, DATES, WORKS, require_columns
from sciscidata.storage import cached_folder, is_whole_folder, scratch_folder
from sciscidata.storage.disk_errors import errors_about
from sciscidata.storage.paths import list_visible
from sciscidata.storage.small_files import read_whole
from sciscidata.terminal.progress import progress_bar

#: What the works are ordered by.
Time = Literal["publication_year", "publication_date"]

FORMAT_VERSION = 1  # a change of the spool in ``build.py`` gives the spool another name
#: Edges sorted at a time, in 2 GB: a pair of indices, its row entry, and an entry that waits to be written.
_MOST_EDGES = 1 << 27
GRAPH_INDEX = "graph.json"
_NODE_COLUMNS = ("work_id", "publication_year")
_SPAN = 1 << 22  # numbers to look at together


@dataclass(frozen=True, eq=False, kw_only=True)
class CitationGraph:
    """A citation graph, renumbered so that index order is time order.

    It keeps the references of every work. Lists of citers are made when they are needed, which halves what is kept.
    The arrays are read-only.

    Attributes:
        work_ids: int64 (n), n below 2^31. Works with a year first, by (year, id); then those without one, by id.
        years: int32 (k), the distinct publication years in ascending order.
        year_offsets: int64 (k + 1); the works of ``years[j]`` have indices year_offsets[j] .. year_offsets[j+1].
        n_known: works with a row in WORKS have smaller indices. The rest are known only from citations.
        ref_offsets, refs: int64 (n + 1), int32 (m). The references of i are refs[ref_offsets[i]:ref_offsets[i+1]],
            ascending, without repeats, or the work itself.
        citer_offsets: int64 (n + 1); i has citer_offsets[i+1] - citer_offsets[i] citers.
        days: int64, the distinct dates of works in days since 1970, ascending. None unless it was built by dates;
            then works are ordered by (day, id).
        day_offsets: int64; the works of ``days[j]`` have indices day_offsets[j] .. day_offsets[j+1]. None likewise.
        n_rows, n_citing_themselves: rows of CITATIONS with both ids, and those in which a work cites itself; None where
            they were not counted.
    """

    work_ids: Int64Array
    years: Int32Array
    year_offsets: Int64Array
    n_known: int
    ref_offsets: Int64Array
    refs: Int32Array
    citer_offsets: Int64Array
    days: Int64Array | None = None
    day_offsets: Int64Array | None = None
    n_rows: int | None = None
    n_citing_themselves: int | None = None

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for field in fields(self):
            if isinstance(array := getattr(self, field.name), np.ndarray):
                object.__setattr__(self, field.name, read_only(array))

    def __repr__(self) -> str:
        """Count works and citations; the arrays are long."""
        years = f"{self.years[0]} to {self.years[-1]}" if self.years.size else "no years"
        return f"CitationGraph({self.n_known:,} works, {years}, {self.n_citations:,} citations)"

    @property
    def n_works(self) -> int:
        """Number of nodes, including works known only from citations."""
        return self.work_ids.size

    @property
    def n_dated(self) -> int:
        """Number of nodes with a publication year; their indices come first."""
        return int(self.year_offsets[-1])

    @property
    def n_citations(self) -> int:
        """Number of distinct citations."""
        return self.refs.size

    def find(self, work_ids: Int64Array, years: pl.Series) -> Int64Array:
        """Return the indices of works by ids and years (null for none); any index if a work is not there."""
        if self.days is not None:  # ids do not ascend within a year
            by_id = np.argsort(self.work_ids[: self.n_known])
            places = np.searchsorted(self.work_ids[: self.n_known], work_ids, sorter=by_id)
            return by_id[np.minimum(places, self.n_known - 1)]
        n_years, indices = self.years.size, np.zeros(work_ids.size, np.int64)
        places = np.searchsorted(self.years, years.fill_null(0).to_numpy())
        slots = np.where(years.is_null().to_numpy(), n_years, places)
        order = np.lexsort((work_ids, slots))
        edges: list[int] = np.searchsorted(slots[order], np.arange(n_years + 2)).tolist()
        offsets = [*self.year_offsets.tolist(), self.n_known]
        for slot in np.flatnonzero(np.diff(edges)).tolist():
            some, low, high = order[edges[slot] : edges[slot + 1]], offsets[slot], offsets[slot + 1]
            place = low + np.searchsorted(self.work_ids[low:high], work_ids[some])
            indices[some] = np.minimum(place, self.n_known - 1)
        return indices

    def citers_among(self, citing: range, n_threads: int = 1) -> tuple[AnyArray, Int32Array]:
        """Return citers among the works ``citing``: those of i are citers[starts[i]:starts[i+1]], in order of time."""
        from sciscidata.graph import _kernels as kernels

        begin, end = self.ref_offsets[[citing.start, citing.stop]].tolist()
        refs = self.refs[begin:end]
        starts = np.zeros(self.n_works + 2, np.uint32 if refs.size <= np.iinfo(np.uint32).max else np.int64)
        counts, cursor = starts[2:], starts[1:-1]  # which moves to the end of each list, where the next one begins
        citers = np.empty_like(refs, subok=False)
        ends = np.linspace(0, self.n_citations, n_threads + 1).astype(np.int64)[1:-1]
        cuts: list[int] = [0, *np.searchsorted(self.citer_offsets, ends).tolist(), self.n_works]

        def count(share: tuple[int, int]) -> None:
            kernels.count(refs, share[0], counts[slice(*share)])

        def scatter(share: tuple[int, int]) -> None:
            first, last = citing.start, citing.stop
            kernels.scatter_citers(self.ref_offsets, self.refs, first, last, share[0], cursor[slice(*share)], citers)

        run_all(count, pairwise(cuts), n_threads)
        np.cumsum(starts, out=starts)
        run_all(scatter, pairwise(cuts), n_threads)
        return starts[:-1], citers


def build_graph(
    works: AnyFrame,
    citations: AnyFrame,
    *,
    time: Time = "publication_year",
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> CitationGraph:
    """Read the edge list once and lay it out in flat arrays.

    Works that occur only in ``citations`` become nodes without a year: they count as references, never as citers.
    Repeats, nulls, and citations of a work by itself are dropped. ``time="publication_date"`` orders works by day, and
    the date says the year. A work with a year only is dated 1 July, off by half a year at most, and by none on average.
    ``cache_dir`` keeps the arrays under a hash of the content of both frames, in any order of rows, and maps them into
    memory. Damaged files are made again, and a killed build continues after its last finished stage. Memory: at most
    2 GB for edges while building; 4 bytes per edge for the arrays, 8 more until the references are sorted, and 28 per
    work.
    """
    citations, nodes, means = _prepare(works, citations, time, n_threads)
    if cache_dir is None:
        with scratch_folder() as scratch:
            arrays: dict[str, Any] = lay_out(citations, nodes, scratch, None, means)
            return CitationGraph(n_known=nodes.ids.size, **arrays)
    n_rows, n_citing_themselves, key = _content_key(citations, nodes, means.n_threads)
    make = partial(_make, citations, nodes, replace(means, n_edges=n_rows))
    graph = read_graph(cached_folder(Path(cache_dir) / f"graph-{key}", make, resume=True), trusted=True)
    return replace(graph, n_rows=n_rows, n_citing_themselves=n_citing_themselves)


def write_graph(works: pl.LazyFrame, citations: pl.LazyFrame, folder: Path, time: Time = "publication_year") -> None:
    """Write a graph into a folder of ``cached_folder``, empty or begun by a killed run; else as ``build_graph``."""
    citations, nodes, means = _prepare(works, citations, time, None)
    _make(citations, nodes, means, folder)


def _prepare(
    works: AnyFrame, citations: AnyFrame, time: Time, n_threads: int | None
) -> tuple[pl.LazyFrame, Nodes, Means]:
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage="build_graph")
    check_value("time", time, Time)
    works = require_times(works, time, stage="build_graph")
    check_threads(n_threads)
    nodes = read_nodes(works.select(*_NODE_COLUMNS, *(DATES if time == "publication_date" else ())))
    means = Means(most_edges=_MOST_EDGES, n_threads=n_threads or pl.thread_pool_size())
    return citations.select("citing_id", "cited_id").drop_nulls(), nodes, means


def require_times(works: AnyFrame, time: Time, *, stage: str) -> pl.LazyFrame:
    """Check the columns of works that a graph is built from, as require_columns does."""
    columns = {name: WORKS[name] for name in _NODE_COLUMNS}
    if time == "publication_date":
        columns |= DATES
    return require_columns(works, columns, frame_name="WORKS", stage=stage)


def _make(citations: pl.LazyFrame, nodes: Nodes, means: Means, folder: Path) -> None:
    arrays = lay_out(citations, nodes, folder, folder, replace(means, lasting=True))
    metadata = {"format_version": FORMAT_VERSION, "n_known": nodes.ids.size, "n_citations": arrays["refs"].size}
    metadata |= {"days": True} if nodes.days is not None else {}
    (folder / GRAPH_INDEX).write_text(json.dumps(metadata) + "\n")


def read_graph(folder: str | Path, *, trusted: bool = False, whole: bool = True) -> CitationGraph:
    """Map the arrays of a graph that ``build_graph`` has cached; ``trusted`` skips the SHA-256, a second per GB.

    Without ``whole`` no number is looked at: for a reader of few, who checks these.
    """
    folder = Path(folder)
    try:
        metadata: dict[str, Any] = {**json.loads(read_whole(folder / GRAPH_INDEX))}
        version, n_known, n_citations = (metadata[name] for name in ("format_version", "n_known", "n_citations"))
    except OSError:
        raise InputNotFoundError(
            f"no citation graph in {folder}: {GRAPH_INDEX} is missing. Name a folder that build_graph has made."
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _damage(folder) from None
    if version != FORMAT_VERSION:
        raise InputNotFoundError(
            f"{folder} holds a graph of format {version!r}, needs {FORMAT_VERSION}. Build it again with this version."
        )
    if not (trusted or is_whole_folder(folder)):
        raise _damage(folder)
    try:
        names = DTYPES if metadata.get("days") else DTYPES.keys() - OF_DATES
        arrays: dict[str, Any] = {name: map_array(folder, name) for name in names}
        graph = CitationGraph(n_known=n_known, **arrays)
    except (OSError, ValueError):  # a file is missing, or holds half a number at its end
        raise _damage(folder) from None
    if n_citations != graph.n_citations or (whole and not _is_consistent(graph)):
        raise _damage(folder)
    return graph


def _is_consistent(graph: CitationGraph) -> bool:
    """Whether every number is a valid place in another array: the compiled loops do not check."""
    n = graph.n_works
    offsets = (
        (graph.year_offsets, graph.years.size, graph.n_known),
        (graph.ref_offsets, n, graph.n_citations),
        (graph.citer_offsets, n, graph.n_citations),
    )
    if graph.days is not None and graph.day_offsets is not None:
        offsets += ((graph.day_offsets, graph.days.size, graph.n_dated),)
    return (
        type(graph.n_known) is int
        and graph.n_known <= n
        and all(array.size == size + 1 and array[0] == 0 and array[-1] <= most for array, size, most in offsets)
        and graph.ref_offsets[-1] == graph.citer_offsets[-1] == graph.refs.size
        and all(_is_ascending(array) for array, *_ in offsets)
        and _are_below(graph.refs, n)
    )


def _is_ascending(array: Int64Array) -> bool:
    spans = (array[start : start + _SPAN + 1] for start in range(0, array.size, _SPAN))
    return all(bool((span[1:] >= span[:-1]).all()) for span in spans)


def _are_below(indices: Int32Array, n: int) -> bool:
    """Whether all indices are from 0 to n - 1; as unsigned numbers, negative ones are large."""
    unsigned = indices.view(np.uint32)
    spans = (unsigned[start : start + _SPAN] for start in range(0, indices.size, _SPAN))
    return all(int(span.max()) < n for span in spans)


def _damage(folder: Path) -> StorageError:
    return StorageError(
        f"the citation graph in {folder} is damaged: its files differ from their SHA-256. Remove the folder, and run "
        "again: the graph is built anew."
    )


def graph_folder(graph: CitationGraph) -> Path:
    """Return the folder of a graph that is mapped from disk, as those of ``cache_dir`` are."""
    mapped: Any = graph.ref_offsets.base  # never empty, so it is mapped
    return Path(mapped.filename).parent


class GraphInTask(TypedDict):
    """What a task opens a graph with."""

    graph: str
    stage_dir: str | None


def for_tasks(graph: CitationGraph, stage_dir: str | None) -> GraphInTask:
    """Say where tasks find a graph that lies on a disk."""
    return {"graph": str(graph_folder(graph).absolute()), "stage_dir": stage_dir}


@shared
def open_in_task(folder: str, stage_dir: str | None) -> CitationGraph:
    """Open a graph for the tasks of this process, with ``stage_dir`` from a copy on the node's disk.

    Whoever made the tasks has compared its files with their SHA-256; a copy is compared again.
    """
    source = Path(folder)
    if stage_dir is None:
        return read_graph(source, trusted=True)

    def copy(target: Path) -> None:
        for path in list_visible(source.iterdir()):
            shutil.copyfile(path, target / path.name)

    place = Path(stage_dir)
    with errors_about(place):
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / f"{source.name}.lock"):  # the other tasks of this node wait for the one that copies
            return read_graph(cached_folder(place / source.name, copy), trusted=True)


def content_hash(graph: CitationGraph, *facts: object) -> str:
    """Hash everything that scores of a graph depend on, as 32 digits: the graph and ``facts`` (JSON types)."""
    digest = hashlib.sha256(json.dumps([*facts, graph.n_known]).encode())
    of_dates = () if graph.days is None or graph.day_offsets is None else (graph.days, graph.day_offsets)
    for array in (graph.work_ids, graph.years, graph.year_offsets, graph.ref_offsets, graph.refs, *of_dates):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]


def _content_key(citations: pl.LazyFrame, nodes: Nodes, n_threads: int) -> tuple[int, int, str]:
    """Count edges, and those of a work by itself, and hash the content of works and edges, in any order of rows."""
    from sciscidata.graph._kernels import add_content_hash

    def lanes_of(batch: tuple[Int64Array, Int64Array]) -> tuple[UInt64Array, int, int]:
        lanes = np.zeros(2, np.uint64)
        add_content_hash(*batch, lanes)
        return lanes, batch[0].size, int(np.count_nonzero(batch[0] == batch[1]))

    lanes = np.zeros(2, np.uint64)
    n_edges = n_self = 0
    with progress_bar("hash citations", unit="citations") as advance:
        for added, size, own in map_in_order(lanes_of, edge_batches(citations), n_threads):
            lanes += added
            n_edges += size
            n_self += own
            advance(size)
    digest = hashlib.sha256(f"{FORMAT_VERSION}:{n_edges}:{lanes[0]}:{lanes[1]}:".encode())
    for part in nodes.parts():
        digest.update(part.data)
    return n_edges, n_self, digest.hexdigest()[:32]
