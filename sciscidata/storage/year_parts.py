"""Keep scores in one file per publication year while a run makes them, then read all by work_id.

Works of one year are neighbours in a graph's index. No measure needs the scores of another year. So memory holds the
scores of one year. A killed run loses only the years that it was working on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.storage.atomic import whole_when_done
from sciscidata.storage.cache import note_finished
from sciscidata.storage.parquet import ROWS_PER_GROUP, write_parquet
from sciscidata.storage.paths import hash_file, list_visible

_ROWS_PER_BATCH = 1 << 21  # about as many rows are in memory; sorting them takes about 1 GB
_SAMPLE = 1 << 16


def part_path(folder: Path, j: int, name: object) -> Path:
    """Return the file of the j-th year, ``00003-1994.parquet``; files sorted by name have the order of the index."""
    return folder / f"{j:05}-{name}.parquet"


def write_part(path: Path, rows: pl.DataFrame) -> None:
    """Write one file whole or not at all."""
    with whole_when_done(path) as unfinished:
        write_parquet(rows, unfinished, row_group_size=ROWS_PER_GROUP["scores"])
        note_finished(path.parent, path.name, hash_file(unfinished))


def by_work_id(folder: Path, work_ids: npt.NDArray[np.int64]) -> Iterator[pl.DataFrame]:
    """Read the files in a folder, each sorted by itself, by ``work_id``, one span of ids at a time.

    A sample of ``work_ids`` decides where to cut. Statistics of the files avoid most of the reading.
    """
    scores = pl.scan_parquet(list_visible(folder.glob("*.parquet")), glob=False)
    sample = np.sort(work_ids[:: max(1, work_ids.size // _SAMPLE)])
    n_spans = max(1, -(-work_ids.size // _ROWS_PER_BATCH))
    bounds = [int(sample[sample.size * edge // n_spans]) for edge in range(1, n_spans)]
    work_id = pl.col("work_id")
    for low, high in pairwise([None, *bounds, None]):
        span = scores if low is None else scores.filter(work_id >= low)
        yield (span if high is None else span.filter(work_id < high)).collect(engine="streaming").sort("work_id")
