"""Scores in one file per publication year: made by this process or by tasks, then read by work_id.

Works of one year are neighbours in a graph's index. No measure needs the scores of another year. So memory holds the
scores of one year. A killed run loses only the years that it was working on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.engines.engine import Engine
from sciscidata.engines.task import Task, hand_over, name_of
from sciscidata.graph.graph import CitationGraph, for_tasks
from sciscidata.storage import cached_folder, hash_file, note_finished, whole_when_done
from sciscidata.storage.lock import own_work
from sciscidata.storage.parquet import ROWS_PER_GROUP, write_parquet
from sciscidata.storage.paths import list_visible

_ROWS_PER_BATCH = 1 << 21  # about as many rows are in memory; sorting them takes about 1 GB
_SAMPLE = 1 << 16


class YearFiles(NamedTuple):
    """The files of a folder, one for each year of a graph. Sorted by name, they have the order of its index."""

    graph: CitationGraph
    folder: Path

    def path(self, j: int) -> Path:
        """Return the file of the j-th year, ``00003-1994.parquet``; that of works without a year comes last."""
        years = self.graph.years
        return self.folder / f"{j:05}-{years[j] if j < years.size else 'undated'}.parquet"

    def write(self, j: int, rows: pl.DataFrame) -> None:
        """Write one file whole or not at all."""
        path = self.path(j)
        with whole_when_done(path) as unfinished:
            write_parquet(rows, unfinished, row_group_size=ROWS_PER_GROUP["scores"])
            note_finished(self.folder, path.name, hash_file(unfinished))


def cache_years(graph: CitationGraph, folder: Path, fill: Callable[[YearFiles, YearFiles], None]) -> Path:
    """Fill a folder of the cache, and return it; a killed run goes on with the years that it lacks.

    ``fill`` gets the files to write, and the files of tasks, which are gone at the end.
    """
    tasks = folder.with_name(f"{folder.name}.tasks").absolute()

    def make(unfinished: Path) -> None:
        fill(YearFiles(graph, unfinished), YearFiles(graph, tasks))

    with own_work(tasks):
        return cached_folder(folder, make, resume=True)


class YearWork(NamedTuple):
    """What is done for each year: a declared function, its name for people, and what it gets; arrays go as files."""

    function: Callable[..., dict[str, Any] | None]
    what: str
    arguments: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]


def take_years(
    engine: Engine, files: YearFiles, years: Sequence[int], work: YearWork
) -> list[tuple[int, Path, dict[str, Any]]]:
    """Have tasks make the files of some years of a graph on disk; return place, file and facts of each."""
    graph, home = files
    arrays = {name: hand_over(array, home / f"{name}.npy") for name, array in work.arrays.items()}
    of_all = {**work.arguments, **for_tasks(graph, engine.config.stage_dir), **arrays}
    n_references = np.diff(graph.ref_offsets[graph.year_offsets])
    tasks = [
        Task(
            name=f"{work.what} of {graph.years[j]}",
            work=name_of(work.function),
            arguments={**of_all, "j": j},
            out=str(files.path(j)),
            cost=float(n_references[j]),
        )
        for j in years
    ]
    facts = engine.do_all(tasks, home, what=work.what, unit="references")
    return [(j, Path(done.out), one) for j, done, one in zip(years, tasks, facts, strict=True)]


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
