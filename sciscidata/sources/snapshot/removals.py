"""Find the rows of a snapshot that do not count: deleted works, and works that a newer part has again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata._kernels.arrays import BoolArray, Int64Array
from sciscidata.corpus.folder import REMOVED_ROWS
from sciscidata.errors import CorruptRecordError, EmptyInputError
from sciscidata.sources.tables.files import TableFile

REMOVED: Final = pl.Schema({**REMOVED_ROWS, "is_deleted": pl.Boolean()})
_IDS_AT_ONCE: Final = 16_000_000  # about half a gigabyte with what sorting needs
_LARGE: Final = 1 << 34


class WorksSeen:
    """Ids of works, as bits: 1 GB for all of OpenAlex, where a set would take 30. A set has only ids of 2^34 and more.

    Example:
        >>> seen = WorksSeen(np.array([5, 2]))
        >>> seen.add(np.array([9, 10**17]))
        >>> seen.has(np.array([9, 1, 5, 10**17])).tolist()
        [True, False, True, True]
    """

    def __init__(self, ids: Int64Array) -> None:
        self._bits = np.zeros(0, np.uint8)
        self._large: set[int] = set()
        self.add(ids)

    def has(self, ids: Int64Array) -> BoolArray:
        """Tell which of some ids it has."""
        found = np.zeros(len(ids), np.bool_)
        is_small = ids >> 3 < len(self._bits)
        small = ids[is_small]
        found[is_small] = self._bits[small >> 3] & _bit_of(small)
        if self._large:
            found |= np.array([one in self._large for one in ids.tolist()], np.bool_)
        return found

    def add(self, ids: Int64Array) -> None:
        """Add ids, which are no less than 0."""
        is_small = ids < _LARGE
        self._large.update(ids[~is_small].tolist())
        small = ids[is_small]
        n_bytes = (int(small.max()) >> 3) + 1 if len(small) else 0
        if n_bytes > len(self._bits):
            grown = np.zeros(1 << (n_bytes - 1).bit_length(), np.uint8)  # takes memory only where bits are set
            grown[: len(self._bits)] = self._bits
            self._bits = grown
        np.bitwise_or.at(self._bits, small >> 3, _bit_of(small))


def _bit_of(ids: Int64Array) -> npt.NDArray[np.uint8]:
    return np.left_shift(1, ids & 7).astype(np.uint8)


def read_deleted_ids(files: Sequence[Path]) -> Int64Array:
    """Read the ids of deleted works, sorted, each once, from ``deleted_ids.csv.gz`` or the older ``merged_ids``."""
    batches = [np.empty(0, np.int64)]
    for path in files:
        try:
            table = TableFile(path)
            names = [name for name in ("work_id", "id") if name in table.columns]
            if not names:
                raise CorruptRecordError("it has no column work_id or id")
            for batch in table.read(names[:1]):
                ids = batch.to_series().str.extract(r"(?i)^(?:.*/)?W([0-9]{1,18})$").cast(pl.Int64)
                batches.append(ids.drop_nulls().to_numpy())
        except (CorruptRecordError, EmptyInputError) as error:
            raise CorruptRecordError(
                f"{path} is no list of deleted works: {error}. Copy it again, or remove it to keep all works."
            ) from error
    return np.unique(np.concatenate(batches))


def find_removals(parts: Sequence[tuple[str, Path]], deleted: Int64Array, n_works: int) -> pl.DataFrame:
    """Find the rows that do not count: deleted works, and all copies of a work but that of the last of ``parts``.

    A deleted work that occurs twice has two rows. Up to 16 million of ``n_works`` are sorted by id. If there are more,
    the parts are read from the newest back, and each id is a bit: 1 GB for all of OpenAlex.
    """
    frames = [REMOVED.to_frame()]
    n_sorted, least = n_works, 0
    if n_works > _IDS_AT_ONCE:
        n_sorted, least = 0, _LARGE
        seen = WorksSeen(deleted)
        for name, path in reversed(parts):
            ids = _read_ids(path)
            n_sorted += int((ids >= _LARGE).sum())
            ids = ids[ids < _LARGE]
            removed = ids[seen.has(ids)]
            seen.add(ids)
            is_deleted = np.append(deleted, -1)[np.searchsorted(deleted, removed)] == removed
            rows = {"part": name, "work_id": removed, "is_deleted": is_deleted}
            frames.append(pl.DataFrame(rows, schema=REMOVED))
    n_rounds = -(-n_sorted // _IDS_AT_ONCE)
    for turn in range(n_rounds):
        ids_of_parts: list[Int64Array] = []
        for _, path in parts:
            ids = _read_ids(path)
            ids_of_parts.append(ids if n_rounds == 1 and not least else ids[(ids >= least) & (ids % n_rounds == turn)])
        ids = np.concatenate(ids_of_parts)
        place = np.repeat(np.arange(len(parts)), [len(ids) for ids in ids_of_parts])
        order = np.argsort(ids, kind="stable")  # copies of one work stay in the order of the parts
        ids, place = ids[order], place[order]
        is_stale = np.append(ids[1:] == ids[:-1], False)
        is_deleted = np.isin(ids, deleted)
        removed = is_stale | is_deleted
        names = pl.Series([name for name, _ in parts], dtype=pl.String).gather(place[removed])
        frames.append(
            pl.DataFrame({"part": names, "work_id": ids[removed], "is_deleted": is_deleted[removed]}, schema=REMOVED)
        )
    return pl.concat(frames).sort("part", "work_id")


def _read_ids(path: Path) -> Int64Array:
    return pl.read_parquet(path, columns=["work_id"], glob=False).to_series().to_numpy()
