"""Citing years as tasks: each reads the graph and the venues, and writes the Parquet file of one year."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sciscidata.engines.engine import Engine
from sciscidata.engines.task import Task, hand_over, name_of
from sciscidata.graph.graph import CitationGraph, graph_folder
from sciscidata.storage.year_parts import part_path


def take_years(
    engine: Engine,
    home: Path,
    graph: CitationGraph,
    years: Sequence[int],
    work: Callable[..., dict[str, Any] | None],
    arguments: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    *,
    what: str,
) -> list[tuple[int, Path, dict[str, Any]]]:
    """Have ``work`` done for the years of a graph on disk; ``arrays`` go as files. Return place, file and facts."""
    of_graph = {"graph": str(graph_folder(graph).absolute()), "stage_dir": engine.config.stage_dir}
    handed = {name: hand_over(array, home / f"{name}.npy") for name, array in arrays.items()}
    n_references = np.diff(graph.ref_offsets[graph.year_offsets])
    tasks = [
        Task(
            name=f"{what} of {graph.years[j]}",
            work=name_of(work),
            arguments={**arguments, **of_graph, **handed, "j": j},
            out=str(part_path(home, j, graph.years[j])),
            cost=float(n_references[j]),
        )
        for j in years
    ]
    facts = engine.do_all(tasks, home, what=what, unit="references")
    return [(j, Path(done.out), found) for j, done, found in zip(years, tasks, facts, strict=True)]
