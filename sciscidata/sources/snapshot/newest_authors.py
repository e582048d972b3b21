"""Read the authors of a snapshot as its corpus would have them: of a work in two parts, the newest part counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata._kernels.arrays import BoolArray, Int64Array
from sciscidata.errors import CorruptRecordError
from sciscidata.sources.snapshot.authors import read_authors
from sciscidata.sources.snapshot.layout import Layout, Part
from sciscidata.sources.snapshot.source import SnapshotConfig, read_deleted_ids, report_problems

_LOG = logging.getLogger(__name__)
_LARGE: Final = 1 << 34
#: Reads columns of AUTHORS of one file, and lists works of which it has the first 100 authors only.
ReadAuthors: TypeAlias = Callable[[Sequence[str]], Iterator[tuple[pl.DataFrame, list[int]]]]


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


def find_author_readers(config: SnapshotConfig, layout: Layout) -> Callable[[], list[ReadAuthors]]:
    """Find what reads the parts of a snapshot on this machine, the newest first; called again for each query."""
    report_problems(layout, config)

    def readers() -> list[ReadAuthors]:
        seen = WorksSeen(read_deleted_ids([file for file in layout.deleted if isinstance(file, Path)]))
        return [partial(_read_part, part, config, seen) for part in reversed(layout.parts)]

    return readers


def _read_part(
    part: Part, config: SnapshotConfig, seen: WorksSeen, columns: Sequence[str]
) -> Iterator[tuple[pl.DataFrame, list[int]]]:
    works: set[int] = set()
    batches = read_authors(part, works, columns, include_xpac=config.include_xpac)
    try:
        if config.corrupt == "skip":
            batches = iter([*batches])  # a damaged part does not count at all
        for rows, cut in batches:
            is_older = seen.has(np.array(cut, np.int64)).tolist()
            counted = rows.filter(~seen.has(rows["work_id"].to_numpy()))
            yield counted, [work for work, older in zip(cut, is_older, strict=True) if not older]
    except CorruptRecordError as error:
        if config.corrupt == "fail":
            raise CorruptRecordError(
                f"{part.name}: {error}. Copy it again, or skip corrupt parts with SnapshotConfig.corrupt='skip'."
            ) from error
        _LOG.warning("%s: %s", part.name, error)
        return
    seen.add(np.fromiter(works, np.int64, len(works)))
