"""Read the authors of a snapshot as its corpus would have them: of a work in two parts, the newest part counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import BoolArray, Int64Array
from sciscidata.errors import CorruptRecordError
from sciscidata.sources.snapshot.authors import read_authors
from sciscidata.sources.snapshot.layout import Layout, Part
from sciscidata.sources.snapshot.source import SnapshotConfig, read_deleted_ids, report_problems

_LOG = logging.getLogger(__name__)
#: Reads columns of AUTHORS of one file, and lists works of which it has the first 100 authors only.
ReadAuthors: TypeAlias = Callable[[Sequence[str]], Iterator[tuple[pl.DataFrame, list[int]]]]


class WorksSeen:
    """Ids of works, in 8 bytes each: a set of all works of science would take 30 GB.

    Example:
        >>> seen = WorksSeen(np.array([5, 2]))
        >>> seen.add(np.array([9]))
        >>> seen.has(np.array([9, 1, 5])).tolist()
        [True, False, True]
    """

    def __init__(self, ids: Int64Array) -> None:
        self._runs = [np.sort(ids)]

    def has(self, ids: Int64Array) -> BoolArray:
        """Tell which of some ids it has."""
        found = np.zeros(len(ids), np.bool_)
        for run in filter(len, self._runs):
            found |= run[np.minimum(np.searchsorted(run, ids), len(run) - 1)] == ids
        return found

    def add(self, ids: Int64Array) -> None:
        """Add ids. Each run is more than twice as long as the next, so that there are few."""
        new = np.sort(ids)
        while self._runs and len(self._runs[-1]) <= 2 * len(new):
            new = np.sort(np.concatenate([self._runs.pop(), new]), kind="stable")  # merges two sorted runs
        self._runs.append(new)


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
