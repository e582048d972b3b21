"""Scores on disk, a file per publication year, each whole; and from there row by row in the order of their ids.

Works of one year are neighbours in a graph's index, and no measure needs the scores of another year. So a killed run
loses the years it was at, and no more than a year's scores are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.storage.atomic import whole_when_done
from sciscidata.storage.cache import file_checksum, note_finished
from sciscidata.storage.parquet import write_parquet
from sciscidata.storage.paths import list_visible

_ROWS_PER_BATCH = 1 << 21  # about, and at once in memory, with what sorting them needs about 1 GB
_SAMPLE = 1 << 16
_ROWS_PER_GROUP = 1 << 18


def part_path(folder: Path, j: int, name: object) -> Path:
    """Say where the scores of the j-th year go, so that files sorted by name have the order of the index.

    Example:
        >>> part_path(Path("cd"), 3, 1994).name
        '00003-1994.parquet'
    """
    return folder / f"{j:05}-{name}.parquet"


def write_part(path: Path, rows: pl.DataFrame) -> None:
    """Write one file whole or not at all."""
    with whole_when_done(path) as unfinished:
        write_parquet(rows, unfinished, row_group_size=_ROWS_PER_GROUP)
        note_finished(path.parent, path.name, file_checksum(unfinished))


def by_work_id(folder: Path, work_ids: npt.NDArray[np.int64]) -> Iterator[pl.DataFrame]:
    """Read the parts in a folder in the order of ``work_id``, a span of ids at a time: together they need not fit.

    Parts, of which each is sorted by itself, are scanned once per span; their statistics spare most of the reading.

    Args:
        folder: with at least one part.
        work_ids: the ids in it, in any order: where to cut is decided on a sample of them.
    """
    scores = pl.scan_parquet(list_visible(folder.glob("*.parquet")), glob=False)
    sample = np.sort(work_ids[:: max(1, work_ids.size // _SAMPLE)])
    n_spans = max(1, -(-work_ids.size // _ROWS_PER_BATCH))
    bounds = [int(sample[sample.size * edge // n_spans]) for edge in range(1, n_spans)]
    work_id = pl.col("work_id")
    for low, high in pairwise([None, *bounds, None]):
        span = scores if low is None else scores.filter(work_id >= low)
        yield (span if high is None else span.filter(work_id < high)).collect(engine="streaming").sort("work_id")
