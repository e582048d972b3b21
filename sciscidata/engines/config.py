"""The options of an engine, and what an engine is: a function that gives each task back with its outcome."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sciscidata.engines.task import Outcome, Task
from sciscidata.errors import ConfigError
from sciscidata.options.checks import Configuration, Folder, PositiveInt
from sciscidata.terminal.progress import Advance

Kind = Literal["local", "dask", "slurm", "list"]
#: Gives each task with its outcome, in any order. ``Advance`` gets the cost of every task, whole or in shares. A path
#: is where logs may go. Another engine is another function of this kind.
Runner = Callable[[Sequence[Task], Advance, Path], Generator[tuple[Task, Outcome]]]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class EngineConfig(Configuration):
    """Who runs the tasks of a stage, and what each task may take. The result does not depend on it.

    Attributes:
        engine: who runs the tasks. ``"local"``: threads or processes here. ``"dask"``: the workers of a Dask cluster.
            ``"slurm"``: job arrays. ``"list"``: any other scheduler, by the commands that are listed.
        address: of the Dask scheduler, like tcp://10.0.0.1:8786.
        scheduler_file: file by which the Dask scheduler makes itself known.
        slurm: what each job asks for, like partition=cpu,cpus_per_task=16,mem_gb=48,time=2h.
        tasks: pieces that a stage is cut into; parts and years are never cut. Slurm gets as many jobs at most.
        workers: how many tasks engine local does at once. None: as many as Polars has threads.
        threads: threads of each task.
        stage_dir: folder on a disk of each node, to which the graph is copied once. None: it is read where it lies.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or belongs to another engine.

    Example:
        >>> EngineConfig(engine="slurm", address="tcp://10.0.0.1:8786")
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: EngineConfig.address is given, but the engine is slurm. Leave it out, or set
        EngineConfig.engine='dask'.
    """

    engine: Kind = "local"
    address: str | None = None
    scheduler_file: Path | None = None
    slurm: str | None = None
    tasks: PositiveInt = 16
    workers: PositiveInt | None = None
    threads: PositiveInt = 1
    stage_dir: Folder | None = None

    def _check(self) -> None:
        belongs = {"address": "dask", "scheduler_file": "dask", "slurm": "slurm", "workers": "local"}
        for name, engine in belongs.items():
            if getattr(self, name) is not None and self.engine != engine:
                raise ConfigError(
                    f"EngineConfig.{name} is given, but the engine is {self.engine}. Leave it out, or set "
                    f"EngineConfig.engine={engine!r}."
                )
