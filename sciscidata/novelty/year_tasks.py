"""Citing years as tasks: each reads the graph and the venues, and writes the Parquet file of one year."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sciscidata.engines.engine import Engine
from sciscidata.engines.task import Task, hand_over, name_of
from sciscidata.graph.graph import CitationGraph, for_tasks
from sciscidata.storage.year_parts import part_path


class YearWork(NamedTuple):
    """What is done for each year: a declared function, its name for people, and what it gets; arrays go as files."""

    function: Callable[..., dict[str, Any] | None]
    what: str
    arguments: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]


def take_years(
    engine: Engine, home: Path, graph: CitationGraph, years: Sequence[int], work: YearWork
) -> list[tuple[int, Path, dict[str, Any]]]:
    """Have work done for some years of a graph on disk; return place, file and facts of each."""
    arrays = {name: hand_over(array, home / f"{name}.npy") for name, array in work.arrays.items()}
    of_all = {**work.arguments, **for_tasks(graph, engine.config.stage_dir), **arrays}
    n_references = np.diff(graph.ref_offsets[graph.year_offsets])
    tasks = [
        Task(
            name=f"{work.what} of {graph.years[j]}",
            work=name_of(work.function),
            arguments={**of_all, "j": j},
            out=str(part_path(home, j, graph.years[j])),
            cost=float(n_references[j]),
        )
        for j in years
    ]
    facts = engine.do_all(tasks, home, what=work.what, unit="references")
    return [(j, Path(done.out), one) for j, done, one in zip(years, tasks, facts, strict=True)]
