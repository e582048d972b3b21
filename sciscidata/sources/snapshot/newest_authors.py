"""Read the authors of a snapshot as its corpus would have them: of a work in two parts, the newest part counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from sciscidata.errors import CorruptRecordError
from sciscidata.sources.snapshot.authors import read_authors
from sciscidata.sources.snapshot.layout import Layout, Part
from sciscidata.sources.snapshot.removals import WorksSeen, read_deleted_ids
from sciscidata.sources.snapshot.source import SnapshotConfig, report_problems

_LOG = logging.getLogger(__name__)
#: Reads columns of AUTHORS of one file, and lists works of which it has the first 100 authors only.
ReadAuthors: TypeAlias = Callable[[Sequence[str]], Iterator[tuple[pl.DataFrame, list[int]]]]


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
