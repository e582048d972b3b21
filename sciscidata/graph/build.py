"""Build the arrays of a citation graph in bounded memory, whatever the number of edges.

1. Edges come in any order. Their ids become indices. The pairs go to a file, the spool, in chunks, each for a range of
   citing indices, a bucket.
2. References: each bucket is read back and sorted.
3. The number of citers of each work. Who they are is for ``CitationGraph.citers_among`` to say, a few years at a time.

Every file gets its name when it is whole, so a later run continues after the last finished stage. The content of the
spool depends on the order of the input; the arrays do not.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray, Int32Array, Int64Array, read_only
from sciscidata._support.parallel import map_in_order, run_all
from sciscidata.errors import ONE_ROW_EACH, EmptyInputError, WorkIdError
from sciscidata.storage import hash_file, note_finished, whole_when_done
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import progress_bar

_ROWS_AT_ONCE: Final = 1 << 20
_UNDATED: Final = np.iinfo(np.int32).min
_RESERVED = np.iinfo(np.int64).min
_BATCH_EDGES = 1 << 20
_CHUNK_EDGES = 1 << 14
_AT_ONCE = 256  # look-ups: their cache lines fit the first-level cache
_MIN_BUCKET_WORKS = 1 << 16
_MAX_BUCKETS = 512

DTYPES: dict[str, type[np.generic]] = {
    "work_ids": np.int64,
    "years": np.int32,
    "year_offsets": np.int64,
    "ref_offsets": np.int64,
    "refs": np.int32,
    "citer_offsets": np.int64,
    "days": np.int64,
    "day_offsets": np.int64,
}
#: Arrays that only a graph by dates has.
OF_DATES = ("days", "day_offsets")


@dataclass(frozen=True, kw_only=True)
class Means:
    """The limits of a build: ``most_edges`` in memory, of 16 bytes, and ``n_threads`` beside the one that reads.

    ``lasting`` flushes finished files to the disk, to survive a failure of the machine. ``n_edges`` is for the progress
    bar.
    """

    most_edges: int
    n_threads: int
    lasting: bool = False
    n_edges: int | None = None


def lay_out(
    citations: pl.LazyFrame, nodes: Nodes, scratch: Path, folder: Path | None, means: Means
) -> dict[str, AnyArray]:
    """Make the arrays of a CitationGraph. Those that ``folder`` holds are kept; a whole spool in ``scratch`` is used.

    Without ``folder`` arrays are in memory or, if they exceed it, in files in ``scratch``: mapped pages survive these.
    """
    store = Store(folder, means.lasting)
    # The three are made together: one may be missing because it was damaged.
    made = [store.find(name) for name in ("work_ids", "ref_offsets", "refs")]
    refs = made[-1]
    if refs is None or any(array is None for array in made):
        if not (spool_folder := scratch / "edges").exists():
            spool_edges(citations, nodes.ids, scratch, means)
        spool = Spool(spool_folder, nodes.ids.size)
        if folder is None and spool.n_edges > means.most_edges:
            store = Store(scratch)
        store.keep("work_ids", nodes.ids.size + spool.new_ids.size, [nodes.ids, np.sort(spool.new_ids)])
        refs = store.keep("refs", spool.n_edges, _sorted_references(spool, store, means))
    shutil.rmtree(scratch / "edges", ignore_errors=True)  # the arrays made from it are whole
    n = store.get("work_ids").size
    if store.find("citer_offsets") is None:
        store.keep("citer_offsets", n + 1, [_citer_offsets(read_only(refs), n, means)])
    store.keep("years", nodes.years.size, [nodes.years])
    store.keep("year_offsets", nodes.year_offsets.size, [nodes.year_offsets])
    if nodes.days is not None and nodes.day_offsets is not None:
        store.keep("days", nodes.days.size, [nodes.days])
        store.keep("day_offsets", nodes.day_offsets.size, [nodes.day_offsets])
    return {name: store.get(name) for name in DTYPES if name not in OF_DATES or nodes.days is not None}


class Store:
    """Holds finished arrays, in files that are mapped into memory, or in plain memory without a folder."""

    def __init__(self, folder: Path | None, lasting: bool = False) -> None:
        self._folder, self._lasting = folder, lasting
        self._held: dict[str, AnyArray] = {}

    def find(self, name: str) -> AnyArray | None:
        """Return an array if it is finished."""
        if name not in self._held and self._folder is not None and (self._folder / f"{name}.bin").exists():
            self._held[name] = map_array(self._folder, name)
        return self._held.get(name)

    def get(self, name: str) -> AnyArray:
        """Return an array that is finished."""
        array = self.find(name)
        assert array is not None
        return array

    def keep(self, name: str, most: int, blocks: Iterable[AnyArray]) -> AnyArray:
        """Join blocks of at most ``most`` numbers in all; for a file, only one block is in memory."""
        if self._folder is None:
            whole = np.empty(most, DTYPES[name])
            size = 0
            for block in blocks:
                whole[size : size + block.size] = block
                size += block.size
            self._held[name] = whole[:size]
        else:
            digest = hashlib.sha256()
            with whole_when_done(self._folder / f"{name}.bin", lasting=self._lasting) as unfinished:
                with unfinished.open("wb") as file:
                    for block in blocks:
                        content = np.ascontiguousarray(block, DTYPES[name]).data
                        file.write(content)
                        if self._lasting:
                            digest.update(content)
                if self._lasting:
                    note_finished(self._folder, f"{name}.bin", digest.hexdigest())
        return self.get(name)


def map_array(folder: Path, name: str) -> AnyArray:
    """Map a finished array into memory."""
    path = folder / f"{name}.bin"
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, DTYPES[name])
    return np.memmap(path, DTYPES[name], mode="r")


def _sorted_references(spool: Spool, store: Store, means: Means) -> Iterator[Int32Array]:
    """Sort edges by (citing, cited), one block of citing works at a time; store ``ref_offsets`` at the end."""
    from sciscidata.graph import _kernels as kernels

    budget = max(1, means.most_edges // means.n_threads)
    degree = np.zeros(spool.n_works, np.int64)

    def count(bucket: int, low: int, high: int, chunks: Iterable[Int32Array]) -> Int64Array:
        lengths = np.zeros(high - low, np.uint32)
        for citing, _ in chunks:
            kernels.count(read_only(citing), low, lengths)
        return _offsets(lengths)

    def blocks() -> Iterator[tuple[int, int, int]]:
        for bucket, (low, high) in enumerate(pairwise(spool.starts)):
            if spool.sizes[bucket] <= budget:
                yield bucket, low, high
            else:  # few works hold most of the references, or most citing works have no record
                offsets = count(bucket, low, high, spool.read(bucket))
                yield from ((bucket, low + first, low + last) for first, last in _blocks(offsets, budget))

    def sort(block: tuple[int, int, int]) -> tuple[Int32Array, int]:
        bucket, low, high = block
        loaded = list(spool.read(bucket)) if spool.sizes[bucket] <= budget else None
        offsets = count(*block, loaded if loaded is not None else spool.read(bucket))
        refs = np.empty(offsets[-1], np.int32)
        cursor = offsets[:-1].copy()
        for citing, cited in loaded if loaded is not None else spool.read(bucket):
            kernels.scatter(citing, cited, low, cursor, refs)
        n = kernels.sort_rows_drop_repeats(refs, cursor, degree[low:high], np.empty(0, np.int32))
        return refs[:n], high - low

    with progress_bar("sort references", spool.n_works, unit="works") as advance:
        for refs, n_works in map_in_order(sort, blocks(), means.n_threads):
            yield refs
            advance(n_works)
    store.keep("ref_offsets", spool.n_works + 1, [_offsets(degree)])


def _citer_offsets(refs: Int32Array, n_works: int, means: Means) -> Int64Array:
    """Count the citers of each work; each thread counts those of its share of the works."""
    from sciscidata.graph import _kernels as kernels

    degree = np.zeros(n_works, np.uint32)
    cuts: list[int] = np.linspace(0, n_works, means.n_threads + 1).astype(np.int64).tolist()

    def count(share: tuple[int, int]) -> None:
        kernels.count(refs, share[0], degree[share[0] : share[1]])

    run_all(count, pairwise(cuts), means.n_threads)
    return _offsets(degree)


def _offsets(lengths: AnyArray) -> Int64Array:
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


@dataclass(frozen=True, eq=False)
class Nodes:
    """Works by (year, id), or by (day, id), those without a year last; offsets say where each begins."""

    ids: Int64Array
    years: Int32Array
    year_offsets: Int64Array
    days: Int64Array | None = None
    day_offsets: Int64Array | None = None

    def parts(self) -> Iterator[AnyArray]:
        """Yield all ids, then all years, in pieces, then distinct days and their offsets, for a hash of the works."""
        yield self.ids
        ends = [*self.year_offsets.tolist(), self.ids.size]
        for year, (first, last) in zip([*self.years.tolist(), _UNDATED], pairwise(ends), strict=True):
            for start in range(first, last, _ROWS_AT_ONCE):
                yield np.full(min(_ROWS_AT_ONCE, last - start), year, np.int32)
        if self.days is not None and self.day_offsets is not None:
            yield self.days
            yield self.day_offsets


def read_nodes(works: pl.LazyFrame) -> Nodes:
    """Bring works into index order, by days instead of years with a column publication_date; a mere year is 1 July.

    Rows go to the range of their year, then each year is sorted in place. This takes 20 bytes of memory per work, and 8
    at the end; sorting the frame takes 45.
    """
    rows = works.collect(engine="streaming")
    if rows.is_empty():
        raise EmptyInputError("build_graph: WORKS has no row. Check the source and the filters before this stage.")
    if n_null := rows["work_id"].null_count():
        raise WorkIdError(
            f"build_graph: WORKS has {counted(n_null, 'row')} without a work_id. Drop them: .drop_nulls('work_id')."
        )
    refuse_reserved(rows["work_id"])
    by_day = "publication_date" in rows.columns
    times = _days(rows) if by_day else rows["publication_year"]
    rows = pl.DataFrame([rows["work_id"], times.alias("time")])
    per_time = rows["time"].value_counts().drop_nulls("time").sort("time")
    distinct = per_time["time"].to_numpy()
    offsets = np.zeros(distinct.size + 1, np.int64)
    np.cumsum(per_time["count"].to_numpy(), out=offsets[1:])
    ids = np.empty(rows.height, np.int64)
    cursor = offsets.copy()
    for part in rows.iter_slices(_ROWS_AT_ONCE):
        _scatter(part, distinct, cursor, ids)
    for first, last in pairwise([*offsets.tolist(), ids.size]):
        ids[first:last].sort()
    if not by_day:
        return Nodes(ids, distinct, offsets)
    years, first_days = np.unique(distinct.astype("M8[D]").astype("M8[Y]").astype(np.int64) + 1970, return_index=True)
    return Nodes(ids, years.astype(np.int32), offsets[[*first_days.tolist(), -1]], distinct, offsets)


def _days(rows: pl.DataFrame) -> pl.Series:
    """Return the date of every work in days since 1970; of a work with a year only, 1 July."""
    year = rows["publication_year"]
    months = (year.fill_null(1970).to_numpy().astype(np.int64) - 1970) * 12 + 6
    middle = pl.Series(months.astype("M8[M]").astype("M8[D]").astype(np.int64)).set(year.is_null(), None)
    return pl.select(pl.coalesce(rows["publication_date"].to_physical().cast(pl.Int64), middle)).to_series()


def _scatter(rows: pl.DataFrame, times: AnyArray, cursor: Int64Array, ids: Int64Array) -> None:
    """Append the ids of some rows to the range of their time, and move ``cursor`` on."""
    time = rows["time"]
    slot = np.where(time.is_null().to_numpy(), times.size, np.searchsorted(times, time.fill_null(_UNDATED).to_numpy()))
    order = np.argsort(slot, kind="stable")
    in_order = rows["work_id"].to_numpy()[order]
    counts = np.bincount(slot, minlength=cursor.size)
    start = 0
    for at in np.flatnonzero(counts).tolist():
        first, count = int(cursor[at]), int(counts[at])
        ids[first : first + count] = in_order[start : start + count]
        start += count
    cursor += counts


def edge_batches(citations: pl.LazyFrame) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Read (citing_id, cited_id) batch by batch, in any order; refuse an id of -2^63."""
    for batch in citations.collect_batches(chunk_size=_BATCH_EDGES, maintain_order=False, engine="streaming"):
        citing, cited = batch["citing_id"], batch["cited_id"]
        refuse_reserved(citing)
        refuse_reserved(cited)
        yield read_only(citing.to_numpy()), read_only(cited.to_numpy())


def refuse_reserved(ids: pl.Series) -> None:
    """Raise WorkIdError for an id of -2^63, by which other programs mark a missing value."""
    if ids.min() == _RESERVED:
        raise WorkIdError(
            f"build_graph: {ids.name} is -2^63 ({_RESERVED}), which no work can have. It often stands for a missing "
            "value: make it null, and drop works without an id."
        )


def spool_edges(citations: pl.LazyFrame, known_ids: Int64Array, scratch: Path, means: Means) -> None:
    """Write every edge as a pair of indices to the folder ``scratch / "edges"``."""
    table = table_of(known_ids)

    def find(
        batch: tuple[Int64Array, Int64Array],
    ) -> tuple[tuple[Int64Array, Int64Array], Int32Array, Int32Array, bool]:
        citing, any_strange = look_up(table, known_ids, batch[0])
        cited, any_missing = look_up(table, known_ids, batch[1])
        return batch, citing, cited, any_strange or any_missing

    new = _NewIds(known_ids.size)
    with whole_when_done(scratch / "edges", lasting=means.lasting) as unfinished:
        unfinished.mkdir()
        with (
            _SpoolWriter(unfinished, known_ids.size, means.lasting) as writer,
            progress_bar("read citations", means.n_edges, unit="citations") as advance,
        ):
            for batch, citing, cited, any_missing in map_in_order(find, edge_batches(citations), means.n_threads):
                if any_missing:
                    new.number(*batch, citing, cited)
                writer.write(citing, cited)
                advance(citing.size)
        new.ids[: new.n].tofile(unfinished / "new_ids")
        if means.lasting:
            note_finished(scratch, "edges/pairs", writer.digest.hexdigest())
            for name in ("chunks", "new_ids"):
                note_finished(scratch, f"edges/{name}", hash_file(unfinished / name))


def table_of(ids: Int64Array) -> AnyArray:
    """Build the hash table from id to position, at most half full when as many ids are added again."""
    table = np.full(1 << int(2 * ids.size + 2048).bit_length(), np.iinfo(np.uint32).max, np.uint32)
    if (repeated := _add(table, ids, ids.size)) < ids.size:
        raise WorkIdError(
            f"build_graph: work_id {ids[repeated]} occurs more than once in WORKS, needs one row per work. "
            f"Keep one row each: {ONE_ROW_EACH}."
        )
    return table


def _add(table: AnyArray, ids: Int64Array, n: int) -> int:
    """Add the last ``n`` ids to their table; return how many of them were not there."""
    from sciscidata.graph import _kernels as kernels

    ids, hashes = read_only(ids), np.empty(_AT_ONCE, np.uint64)
    return kernels.look_up(table, ids, ids[ids.size - n :], True, np.empty(0, np.int32), hashes)


def look_up(table: AnyArray, ids: Int64Array, wanted: Int64Array) -> tuple[Int32Array, bool]:
    """Return the position of each wanted id, -1 where there is none, and whether one is missing."""
    from sciscidata.graph import _kernels as kernels

    positions = np.empty(wanted.size, np.int32)
    hashes = np.empty(_AT_ONCE, np.uint64)
    return positions, kernels.look_up(table, read_only(ids), read_only(wanted), False, positions, hashes) > 0


class _NewIds:
    """Numbers the ids that WORKS does not hold, batch by batch."""

    def __init__(self, first: int) -> None:
        self.first, self.n = first, 0
        self.ids = np.empty(1024, np.int64)
        self.table = table_of(self.ids[:0])

    def number(self, citing_ids: Int64Array, cited_ids: Int64Array, citing: Int32Array, cited: Int32Array) -> None:
        """Replace -1 in ``citing`` and ``cited`` by indices, but for an id that only cites itself."""
        is_edge = citing_ids != cited_ids
        for ids, indices in ((citing_ids, citing), (cited_ids, cited)):
            rows = np.flatnonzero((indices < 0) & is_edge)
            wanted = ids[rows]
            positions, any_missing = look_up(self.table, self.ids[: self.n], wanted)
            if any_missing:
                is_new = positions < 0
                new, place = np.unique(wanted[is_new], return_inverse=True)
                positions[is_new] = self.n + place
                self._add(new)
            indices[rows] = self.first + positions

    def _add(self, ids: Int64Array) -> None:
        start, self.n = self.n, self.n + ids.size
        if self.n > self.ids.size:
            self.ids = np.resize(self.ids, 2 * self.n)
        self.ids[start : self.n] = ids
        if 2 * self.n > self.table.size:
            self.table = table_of(self.ids[: self.n])
        else:
            _add(self.table, self.ids[: self.n], ids.size)


class _SpoolWriter:
    """Collects edges in one buffer per bucket; appends full ones to ``pairs``, and their (bucket, edges) to ``chunks``.

    Bucket b has the citing indices b * 2^shift .. (b + 1) * 2^shift - 1 of works in WORKS, the last bucket all others.
    """

    def __init__(self, folder: Path, n_known: int, lasting: bool) -> None:
        self._folder, self._n_known, self._lasting = folder, n_known, lasting
        n_buckets, self._shift = _division(n_known)
        self._buffers = np.empty((n_buckets, 2, _CHUNK_EDGES), np.int32)
        self._filled = np.zeros(n_buckets, np.int64)
        self._chunks: list[tuple[int, int]] = []
        self.digest = hashlib.sha256()  # of the pairs

    def __enter__(self) -> _SpoolWriter:
        self._file = (self._folder / "pairs").open("wb")
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            for bucket in np.flatnonzero(self._filled).tolist():
                self._flush(bucket)
        np.array(self._chunks, np.int32).reshape(-1, 2).tofile(self._folder / "chunks")

    def write(self, citing: Int32Array, cited: Int32Array) -> None:
        from sciscidata.graph import _kernels as kernels

        start = 0
        while start < citing.size:
            start, full = kernels.partition(
                citing, cited, start, self._n_known, self._shift, self._buffers, self._filled
            )
            if full >= 0:
                self._flush(full)

    def _flush(self, bucket: int) -> None:
        content = self._buffers[bucket].data.cast("B")
        self._file.write(content)
        if self._lasting:
            self.digest.update(content)
        self._chunks.append((bucket, int(self._filled[bucket])))
        self._filled[bucket] = 0


def _division(n_known: int) -> tuple[int, int]:
    """Return the number of buckets, and the works in each as a power of two."""
    shift = (max(_MIN_BUCKET_WORKS, n_known // (_MAX_BUCKETS - 2)) - 1).bit_length()
    return (n_known >> shift) + 2, shift


class Spool:
    """Reads edges as pairs of indices, bucket by bucket; new ids get their final indices."""

    def __init__(self, folder: Path, n_known: int) -> None:
        self.n_known = n_known
        self.new_ids = np.fromfile(folder / "new_ids", np.int64)
        self._path = folder / "pairs"
        self._chunks = np.fromfile(folder / "chunks", np.int32).reshape(-1, 2)
        self._final_index = np.empty(self.new_ids.size, np.int32)
        self._final_index[np.argsort(self.new_ids)] = np.arange(n_known, self.n_works, dtype=np.int32)
        n_buckets, shift = _division(n_known)
        #: Where the rows of each bucket begin, and the end of the last one.
        self.starts = [*(min(bucket << shift, n_known) for bucket in range(n_buckets)), self.n_works]
        self.sizes = np.bincount(self._chunks[:, 0], self._chunks[:, 1], n_buckets).astype(np.int64)

    @property
    def n_works(self) -> int:
        """Number of nodes, including works known only from citations."""
        return self.n_known + self.new_ids.size

    @property
    def n_edges(self) -> int:
        """Number of edges, including repeats."""
        return int(self.sizes.sum())

    def read(self, bucket: int) -> Iterator[Int32Array]:
        """Read the pairs of one bucket, chunk by chunk: citing indices, and cited ones."""
        with self._path.open("rb") as file:
            for chunk in np.flatnonzero(self._chunks[:, 0] == bucket).tolist():
                pairs = np.empty((2, _CHUNK_EDGES), np.int32)
                file.seek(pairs.nbytes * chunk)
                file.readinto(pairs.data)
                pairs = pairs[:, : self._chunks[chunk, 1]]
                for indices in pairs if self.new_ids.size else ():
                    places = np.flatnonzero(indices >= self.n_known)
                    indices[places] = self._final_index[indices[places] - self.n_known]
                yield pairs
