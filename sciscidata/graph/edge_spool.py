"""Edges on disk while a graph is built: pairs of indices, not 64-bit ids, grouped into buckets of citing works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from isal import isal_zlib

from sciscidata._kernels.arrays import Int32Array, Int64Array
from sciscidata._support.parallel import map_in_order
from sciscidata._support.progress import progress_bar
from sciscidata.errors import ONE_ROW_EACH, WorkIdError
from sciscidata.storage import file_checksum, note_finished, quick_checksum, whole_when_done

_RESERVED = np.iinfo(np.int64).min
_BATCH_EDGES = 1 << 20
_CHUNK_EDGES = 1 << 14
_MIN_BUCKET_WORKS = 1 << 16
_MAX_BUCKETS = 512


@dataclass(frozen=True, kw_only=True)
class Means:
    """The limits of a build.

    As many as ``most_edges``, of 16 bytes each while they are sorted, fit into memory, for all threads together.
    ``n_threads`` work beside the one that reads. ``lasting`` flushes finished files to the disk, so that they survive a
    failure of the machine. ``n_edges`` of the input, if known, is for the progress bar.
    """

    most_edges: int
    n_threads: int
    lasting: bool = False
    n_edges: int | None = None


def edge_batches(citations: pl.LazyFrame) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Read (citing_id, cited_id) batch by batch, in any order; refuse an id of -2^63."""
    for batch in citations.collect_batches(chunk_size=_BATCH_EDGES, maintain_order=False, engine="streaming"):
        citing, cited = batch["citing_id"], batch["cited_id"]
        refuse_reserved(citing)
        refuse_reserved(cited)
        yield citing.to_numpy(), cited.to_numpy()


def refuse_reserved(ids: pl.Series) -> None:
    """Raise WorkIdError for an id of -2^63, by which other programs mark a missing value."""
    if ids.min() == _RESERVED:
        msg = (
            f"build_graph: {ids.name} is -2^63 ({_RESERVED}), which no work can have. It often stands for a missing "
            "value: make it null, and drop works without an id."
        )
        raise WorkIdError(msg)


def spool_edges(citations: pl.LazyFrame, known_ids: Int64Array, scratch: Path, means: Means) -> None:
    """Write every edge as a pair of indices to the folder ``scratch / "spool"``."""
    from sciscidata.graph import _kernels as kernels

    table = _table_of(known_ids)

    def find(
        batch: tuple[Int64Array, Int64Array],
    ) -> tuple[tuple[Int64Array, Int64Array], Int32Array, Int32Array, bool]:
        citing, cited = np.empty((2, batch[0].size), np.int32)
        n_missing = kernels.find_all(table, known_ids, batch[0], citing)
        n_missing += kernels.find_all(table, known_ids, batch[1], cited)
        return batch, citing, cited, n_missing > 0

    new = _NewIds(known_ids.size)
    with whole_when_done(scratch / "spool", lasting=means.lasting) as unfinished:
        unfinished.mkdir()
        with (
            _SpoolWriter(unfinished, known_ids.size) as writer,
            progress_bar("read citations", means.n_edges, unit="citations") as advance,
        ):
            for batch, citing, cited, any_missing in map_in_order(find, edge_batches(citations), means.n_threads):
                if any_missing:
                    new.number(*batch, citing, cited)
                writer.write(citing, cited)
                advance(citing.size)
        new.ids[: new.n].tofile(unfinished / "new_ids")
        if means.lasting:
            note_finished(scratch, "spool/pairs", quick_checksum(writer.checksum))
            for name in ("chunks", "new_ids"):
                note_finished(scratch, f"spool/{name}", file_checksum(unfinished / name))


def _table_of(ids: Int64Array) -> Int32Array:
    """Build the hash table from id to position; it is at most half full when as many ids are added again."""
    from sciscidata.graph import _kernels as kernels

    table = np.full(1 << int(2 * ids.size + 2048).bit_length(), -1, np.int32)
    repeated = kernels.insert_all(table, ids)
    if repeated >= 0:
        msg = (
            f"build_graph: work_id {ids[repeated]} occurs more than once in WORKS, needs one row per work. "
            f"Keep one row each: {ONE_ROW_EACH}."
        )
        raise WorkIdError(msg)
    return table


class _NewIds:
    """Numbers the ids that WORKS does not hold, in order of appearance."""

    def __init__(self, first: int) -> None:
        self.first, self.n = first, 0
        self.ids = np.empty(1024, np.int64)
        self.table = _table_of(self.ids[:0])

    def number(self, citing_ids: Int64Array, cited_ids: Int64Array, citing: Int32Array, cited: Int32Array) -> None:
        """Replace -1 in ``citing`` and ``cited`` by indices."""
        from sciscidata.graph import _kernels as kernels

        start = 0
        while start < citing.size:
            if self.n + 2 > self.ids.size:
                self.ids = np.resize(self.ids, 2 * self.ids.size)
                self.table = _table_of(self.ids[: self.n])
            start, self.n = kernels.number_new(
                self.table, self.ids, self.n, self.first, citing_ids, cited_ids, start, citing, cited
            )


class _SpoolWriter:
    """Collects edges in one buffer per bucket; appends full ones to ``pairs``, and their (bucket, edges) to ``chunks``.

    Bucket b has the citing indices b * 2^shift .. (b + 1) * 2^shift - 1 of works in WORKS, the last bucket all others.
    """

    def __init__(self, folder: Path, n_known: int) -> None:
        self._folder, self._n_known = folder, n_known
        n_buckets, self._shift = _division(n_known)
        self._buffers = np.empty((n_buckets, _CHUNK_EDGES, 2), np.int32)
        self._filled = np.zeros(n_buckets, np.int64)
        self._chunks: list[tuple[int, int]] = []
        self.checksum = 0  # CRC-32 of the pairs

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
        self._file.write(self._buffers[bucket].data)
        self.checksum = isal_zlib.crc32(self._buffers[bucket].data, self.checksum)
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
        """Read the pairs of one bucket, chunk by chunk."""
        from sciscidata.graph._kernels import relabel_tail

        with self._path.open("rb") as file:
            for chunk in np.flatnonzero(self._chunks[:, 0] == bucket).tolist():
                pairs = np.empty((self._chunks[chunk, 1], 2), np.int32)
                file.seek(8 * _CHUNK_EDGES * chunk)
                file.readinto(pairs.data)
                if self.new_ids.size:
                    relabel_tail(pairs, self.n_known, self._final_index)
                yield pairs
