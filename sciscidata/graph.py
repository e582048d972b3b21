"""The citation graph in flat arrays: what the kernels read.

Works are renumbered by (publication year, id). Index order is then time order, and three things follow for
free: the transpose comes out sorted by time, the works of a span of years are one range of indices, and so
the citers of a paper inside a window are one slice of its list.

The build streams the edge list once, in any order, and holds in memory the ids of the works, one hash table,
and at most ``memory_limit_mb`` of edges; everything larger goes through files. The result is the same to the
last byte whatever the order of the input, the limit, or the number of threads.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.errors import EmptyInputError, WorkIdError
from sciscidata.progress import progress_bar
from sciscidata.schemas import CITATIONS, WORKS, require_columns
from sciscidata.storage import cached_folder, scratch_folder

FORMAT_VERSION = 1
_BATCH_EDGES = 1 << 20
_BYTES_PER_EDGE = 16  # one spooled pair, its row entry and the transpose
_FACTS = "graph.json"
_DTYPES: dict[str, type[np.generic]] = {
    "work_ids": np.int64,
    "years": np.int32,
    "year_offsets": np.int64,
    "ref_offsets": np.int64,
    "refs": np.int32,
    "citer_offsets": np.int64,
    "citers": np.int32,
}

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class CitationGraph:
    """Both directions of a citation graph, renumbered so that index order is time order.

    Attributes:
        work_ids: int64 (n). Works with a year first, by (year, id); then those without one, by id.
        years: int32 (k), the distinct publication years in ascending order.
        year_offsets: int64 (k + 1); the works of ``years[j]`` have indices year_offsets[j] .. year_offsets[j+1].
        n_known: works with a row in WORKS have indices below this one; the rest are known only from citations.
        ref_offsets, refs: int64 (n + 1), int32 (m). The references of i are refs[ref_offsets[i]:ref_offsets[i+1]],
            ascending, without repeats or self-citations.
        citer_offsets, citers: the same for the citers of i, ascending, that is in order of time.
    """

    work_ids: Int64Array
    years: Int32Array
    year_offsets: Int64Array
    n_known: int
    ref_offsets: Int64Array
    refs: Int32Array
    citer_offsets: Int64Array
    citers: Int32Array

    @property
    def n_works(self) -> int:
        """Number of nodes, those known only as references included."""
        return self.work_ids.size

    @property
    def n_dated(self) -> int:
        """Number of nodes with a publication year; their indices come first."""
        return int(self.year_offsets[-1])

    @property
    def n_citations(self) -> int:
        """Number of distinct citations."""
        return self.refs.size

    def first_index_from(self, year: int) -> int:
        """Return the index of the first work published in ``year`` or later."""
        return int(self.year_offsets[np.searchsorted(self.years, year)])


def build_graph(
    citations: pl.LazyFrame,
    works: pl.LazyFrame,
    *,
    cache_dir: str | Path | None = None,
    memory_limit_mb: int = 2048,
) -> CitationGraph:
    """Read the edge list once and lay it out in flat arrays. Executes.

    Args:
        citations: CITATIONS, in any order; repeats and self-citations are dropped, nulls too.
        works: WORKS; only work_id and publication_year are read. Works that occur only in ``citations`` become
            nodes without a year: they count as references, never as citers.
        cache_dir: keep the arrays here, under a hash of the content of both frames, and map them into memory;
            a later call with the same content, whatever its row order, maps the same files again. Files that
            were damaged meanwhile are made again, with a warning in the log.
        memory_limit_mb: most memory for edges while building.

    Returns:
        A CitationGraph; its arrays are memory maps when ``cache_dir`` is given or edges exceed the limit.

    Raises:
        SchemaMismatchError: a column is missing or has another dtype.
        WorkIdError: in ``works`` a work_id is null or occurs twice; or an id anywhere is -2^63.
        EmptyInputError: ``works`` has no row.
        StorageError: the disk is full, or ``cache_dir`` (without it, TMPDIR) cannot be written.

    Example:
        >>> works = pl.LazyFrame({"work_id": [30, 10, 20], "publication_year": [2001, 2000, 2001]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [20, 30, 30], "cited_id": [10, 10, 99]})
        >>> graph = build_graph(citations, works)
        >>> graph.work_ids, graph.year_offsets, graph.citers
        (array([10, 20, 30, 99]), array([0, 1, 3]), array([1, 2, 2], dtype=int32))
    """
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage="build_graph")
    columns = ("work_id", "publication_year")
    works = require_columns(works, WORKS, frame_name="WORKS", stage="build_graph", columns=columns)
    citations = citations.select("citing_id", "cited_id").drop_nulls()
    nodes = _sorted_nodes(works.select(columns))
    if cache_dir is None:
        with scratch_folder() as scratch:
            return _build(citations, nodes, scratch, None, memory_limit_mb)

    def make(folder: Path) -> None:
        graph = _build(citations, nodes, folder, folder, memory_limit_mb)
        facts = {"format_version": FORMAT_VERSION, "n_known": graph.n_known, "n_citations": graph.n_citations}
        (folder / _FACTS).write_text(json.dumps(facts) + "\n")

    return _open_graph(cached_folder(Path(cache_dir) / f"graph-{_content_key(citations, nodes)}", make))


def _open_graph(folder: Path) -> CitationGraph:
    """Map the arrays of a finished graph folder into memory."""
    n_known: int = json.loads((folder / _FACTS).read_text())["n_known"]
    return CitationGraph(n_known=n_known, **{name: _map_array(folder, name) for name in _DTYPES})


def _map_array(folder: Path, name: str) -> npt.NDArray[Any]:
    path = folder / f"{name}.bin"
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, _DTYPES[name])
    return np.memmap(path, _DTYPES[name], mode="r")


def _sorted_nodes(works: pl.LazyFrame) -> pl.DataFrame:
    """Collect (work_id, publication_year) in index order; undated works last."""
    nodes = works.sort("publication_year", "work_id", nulls_last=True).collect()
    if nodes.is_empty():
        msg = "build_graph: WORKS has no row. Check the source and the filters before this stage."
        raise EmptyInputError(msg)
    n_null = nodes["work_id"].null_count()
    if n_null:
        msg = f"build_graph: WORKS has {n_null:,} rows without a work_id. Drop them: .drop_nulls('work_id')."
        raise WorkIdError(msg)
    _refuse_reserved(nodes["work_id"])
    return nodes


def _content_key(citations: pl.LazyFrame, nodes: pl.DataFrame) -> str:
    """Hash what the graph depends on, not the order of its rows."""
    from sciscidata.graph_kernels import add_content_hash

    lanes = np.zeros(2, np.uint64)
    n_edges = 0
    for citing, cited in _edge_batches(citations):
        add_content_hash(citing, cited, lanes)
        n_edges += citing.size
    digest = hashlib.sha256(f"{FORMAT_VERSION}:{n_edges}:{lanes[0]}:{lanes[1]}:".encode())
    digest.update(nodes["work_id"].to_numpy().tobytes())
    digest.update(nodes["publication_year"].fill_null(np.iinfo(np.int32).min).to_numpy().tobytes())
    return digest.hexdigest()[:32]


def _edge_batches(citations: pl.LazyFrame) -> Iterator[tuple[Int64Array, Int64Array]]:
    for batch in citations.collect_batches(chunk_size=_BATCH_EDGES, maintain_order=False, engine="streaming"):
        citing, cited = batch["citing_id"], batch["cited_id"]
        _refuse_reserved(citing)
        _refuse_reserved(cited)
        yield citing.to_numpy(), cited.to_numpy()


def _refuse_reserved(ids: pl.Series) -> None:
    from sciscidata.graph_kernels import EMPTY

    if ids.min() == EMPTY:
        msg = (
            f"build_graph: {ids.name} is -2^63 ({EMPTY}), which no work can have. It often stands for a missing "
            "value: make it null, and drop works without an id."
        )
        raise WorkIdError(msg)


def _build(
    citations: pl.LazyFrame, nodes: pl.DataFrame, scratch: Path, folder: Path | None, memory_limit_mb: int
) -> CitationGraph:
    """Spool renumbered edges to a scratch file, then sort them by citing and by cited work.

    Where the arrays exceed the limit and no folder was asked for, they go to files in ``scratch``, whose pages
    outlive its removal for as long as they stay mapped.
    """
    with tempfile.TemporaryFile(dir=scratch) as file:
        new_ids, n_edges = _spool_edges(citations, nodes["work_id"].to_numpy(), file)
        budget = max(1, (memory_limit_mb << 20) // _BYTES_PER_EDGE)
        store = _Store(folder or (scratch if n_edges > budget else None))
        order = np.argsort(new_ids, kind="stable")
        n = nodes.height + new_ids.size
        final_index = np.empty(new_ids.size, np.int32)
        final_index[order] = np.arange(nodes.height, n, dtype=np.int32)
        spool = _Spool(file, nodes.height, final_index)
        degree = np.zeros(n, np.int64)
        refs = store.keep("refs", _sorted_references(spool, degree, budget))
    ref_offsets = store.keep("ref_offsets", [_offsets(degree)])
    citers = store.keep("citers", _citers_by_time(ref_offsets, refs, degree, budget))
    per_year = nodes["publication_year"].drop_nulls().value_counts().sort("publication_year")
    return CitationGraph(
        work_ids=store.keep("work_ids", [nodes["work_id"].to_numpy(), new_ids[order]]),
        years=store.keep("years", [per_year["publication_year"].to_numpy()]),
        year_offsets=store.keep("year_offsets", [_offsets(per_year["count"].to_numpy())]),
        n_known=nodes.height,
        ref_offsets=ref_offsets,
        refs=refs,
        citer_offsets=store.keep("citer_offsets", [_offsets(degree)]),
        citers=citers,
    )


@dataclass(frozen=True)
class _Store:
    """Where finished arrays live: a file each, mapped into memory, or plain memory when there is no folder."""

    folder: Path | None

    def keep(self, name: str, blocks: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Put blocks end to end; a file is written block by block, so that only one is in memory."""
        if self.folder is None:
            held = list(blocks)
            return held[0] if len(held) == 1 else np.concatenate([np.empty(0, _DTYPES[name]), *held])
        with (self.folder / f"{name}.bin").open("wb") as file:
            for block in blocks:
                file.write(np.ascontiguousarray(block, _DTYPES[name]).data)
        return _map_array(self.folder, name)


@dataclass(frozen=True)
class _Spool:
    """Edges as pairs of int32 in a scratch file; ids outside WORKS carry provisional indices from ``first`` on."""

    file: IO[bytes]
    first: int
    final_index: Int32Array

    def chunks(self) -> Iterator[Int32Array]:
        """Read the file from its start, with final indices."""
        from sciscidata.graph_kernels import relabel_tail

        self.file.seek(0)
        while chunk := self.file.read(8 * _BATCH_EDGES):
            pairs = np.frombuffer(bytearray(chunk), np.int32).reshape(-1, 2)
            if self.final_index.size:
                relabel_tail(pairs, self.first, self.final_index)
            yield pairs


def _spool_edges(citations: pl.LazyFrame, known_ids: Int64Array, file: IO[bytes]) -> tuple[Int64Array, int]:
    """Write every edge as a pair of indices; return the ids that WORKS does not hold, in order of appearance."""
    from sciscidata import graph_kernels as kernels

    keys, values = _hash_table(known_ids)
    new_ids = np.empty(max(1024, keys.size // 2 - known_ids.size), np.int64)
    n_new = n_edges = 0
    pairs = np.empty((_BATCH_EDGES, 2), np.int32)
    with progress_bar("read citations", unit="citations") as advance:
        for citing, cited in _edge_batches(citations):
            start = 0
            if pairs.shape[0] < citing.size:
                pairs = np.empty((citing.size, 2), np.int32)
            while start < citing.size:
                if n_new + 2 > new_ids.size:
                    keys, values = _hash_table(np.concatenate([known_ids, new_ids[:n_new]]))
                    new_ids = np.resize(new_ids, max(2 * new_ids.size, keys.size // 2 - known_ids.size))
                start, written, n_new = kernels.renumber_pairs(
                    keys, values, new_ids, n_new, known_ids.size, citing, cited, start, pairs
                )
                file.write(pairs[:written].data)
                n_edges += written
            advance(citing.size)
    return new_ids[:n_new], n_edges


def _hash_table(ids: Int64Array) -> tuple[Int64Array, Int32Array]:
    """Build id -> position, at most half full once as many new ids have come as there is room for."""
    from sciscidata import graph_kernels as kernels

    size = 1 << int(2 * ids.size + 2048).bit_length()
    keys = np.full(size, kernels.EMPTY, np.int64)
    values = np.empty(size, np.int32)
    repeated = kernels.insert_all(keys, values, ids, 0)
    if repeated >= 0:
        msg = (
            f"build_graph: work_id {ids[repeated]} occurs more than once in WORKS, needs one row per work. "
            "Drop repeats: .unique('work_id', keep='any')."
        )
        raise WorkIdError(msg)
    return keys, values


def _sorted_references(spool: _Spool, degree: Int64Array, budget: int) -> Iterator[Int32Array]:
    """Sort edges by (citing, cited), a block of citing works at a time; fill ``degree`` with row lengths."""
    from sciscidata import graph_kernels as kernels

    for pairs in spool.chunks():
        kernels.count_citing(pairs, degree)
    offsets = _offsets(degree)
    for low, high in _blocks(offsets, budget):
        refs = np.empty(offsets[high] - offsets[low], np.int32)
        cursor = offsets[low:high] - offsets[low]
        for pairs in spool.chunks():
            kernels.scatter_references(pairs, low, high, cursor, refs)
        n_left = kernels.sort_rows_drop_repeats(refs, cursor, degree[low:high])
        yield refs[:n_left]


def _citers_by_time(ref_offsets: Int64Array, refs: Int32Array, degree: Int64Array, budget: int) -> Iterator[Int32Array]:
    """Transpose, a block of cited works at a time; fill ``degree`` with the number of citers."""
    from sciscidata import graph_kernels as kernels

    degree[:] = 0
    kernels.count_cited(refs, degree)
    offsets = _offsets(degree)
    for low, high in _blocks(offsets, budget):
        citers = np.empty(offsets[high] - offsets[low], np.int32)
        kernels.scatter_citers(ref_offsets, refs, low, high, offsets[low:high] - offsets[low], citers)
        yield citers


def _offsets(lengths: npt.NDArray[Any]) -> Int64Array:
    """Turn row lengths into the start of each row, and the end of the last."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _blocks(offsets: Int64Array, budget: int) -> Iterator[tuple[int, int]]:
    """Cut rows into ranges of at most ``budget`` entries (one row at least)."""
    low, n = 0, offsets.size - 1
    while low < n:
        high = max(low + 1, int(np.searchsorted(offsets, offsets[low] + budget, side="right")) - 1)
        yield low, min(high, n)
        low = high
