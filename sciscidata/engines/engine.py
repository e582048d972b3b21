"""Choose who does the work of a stage, and have it done: what is finished already is not done again."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from sciscidata.engines.config import EngineConfig, Kind, Runner
from sciscidata.engines.task import Outcome, Task, read_receipt, run_task
from sciscidata.errors import ConfigError, InputNotFoundError, ResumableError
from sciscidata.options.checks import PositiveInt
from sciscidata.storage.atomic import flush
from sciscidata.storage.small_files import read_whole
from sciscidata.terminal.progress import Advance, progress_bar

_LIST = "tasks.json"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine that is ready: what ``engine`` gives. ``run`` is its Runner."""

    config: EngineConfig
    run: Runner

    def do_all(self, tasks: Sequence[Task], home: Path, *, what: str, unit: str) -> list[dict[str, Any]]:
        """Have tasks done whose files lie in ``home``, a folder that all workers see; return their facts, in order.

        A task with a receipt is not done again. The first error ends it; what was finished by then stays.
        """
        home.mkdir(parents=True, exist_ok=True)
        _write_list(tasks, home)
        results: dict[str, dict[str, Any]] = {}
        with progress_bar(what, sum(task.cost for task in tasks), unit=unit) as advance:

            def tell(amount: float, _: str = "") -> None:
                advance(amount, f"{len(results):,} of {len(tasks):,} tasks")

            for task in tasks:
                if (receipt := read_receipt(task)) is not None:
                    results[task.name] = receipt
                    tell(task.cost)
            todo = sorted((task for task in tasks if task.name not in results), key=lambda task: -task.cost)
            # The largest first, so that no large one runs alone at the end.
            with closing(self.run(todo, tell, home)) as outcomes:
                for task, outcome in outcomes:
                    results[task.name] = outcome.get()
        return [results[task.name] for task in tasks]


@contextmanager
def engine(engine: Kind = "local", **options: Any) -> Generator[Engine]:  # noqa: ANN401
    """Connect to what runs the tasks of the stages, until the block ends.

    Args:
        engine: ``"local"``, ``"dask"``, ``"slurm"`` or ``"list"``.
        options: further fields of EngineConfig: address, scheduler_file, slurm, tasks, workers, threads, stage_dir.

    Yields:
        What ``ingest``, ``write_background``, ``export_labelled`` and what writes scores take as ``engine``.

    Raises:
        ConfigError: an option is unknown or wrong, the scheduler does not answer, or a package is not installed.

    Example:
        >>> with engine("local", workers=2) as on:
        ...     on.config.tasks
        16
    """
    config = EngineConfig(engine=engine, **options)
    if config.engine == "dask":
        from sciscidata.engines.dask import connect

        with connect(config) as run:
            yield Engine(config=config, run=run)
        return
    yield Engine(config=config, run=_runner(config))


def _runner(config: EngineConfig) -> Runner:
    if config.engine == "slurm":
        from sciscidata.engines.slurm import submit

        return submit(config)
    if config.engine == "list":
        return _list
    from sciscidata.engines.local import run_here

    n_workers = config.workers or pl.thread_pool_size()
    return lambda tasks, advance, _: run_here(tasks, n_workers, advance)


def _list(tasks: Sequence[Task], _: Advance, home: Path) -> Generator[tuple[Task, Outcome]]:
    if tasks and not all(task.out for task in tasks):
        raise ConfigError(
            "the parts of a snapshot cannot be listed as commands. Choose EngineConfig.engine='slurm' or 'dask'."
        )
    if tasks:
        waiting = [task.name for task in tasks]
        every = [task.name for task in read_list(home)]
        numbers = ",".join(str(every.index(name) + 1) for name in sorted(waiting, key=every.index))
        raise ResumableError(
            f"{len(tasks):,} tasks wait. On any machine that sees this folder, run `sciscidata tasks {home} --run N` "
            f"for N = {numbers}. Then run the same command again: it puts the result together."
        )
    yield from ()


def _write_list(tasks: Sequence[Task], home: Path) -> None:
    unfinished = home / f".{_LIST}.{secrets.token_hex(8)}.tmp"
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(list(tasks)), indent=1))
    flush(unfinished)
    unfinished.replace(home / _LIST)


def read_list(home: str | Path) -> list[Task]:
    """Read the tasks of a stage from the folder that holds their files."""
    try:
        return msgspec.json.decode(read_whole(Path(home) / _LIST), type=list[Task])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputNotFoundError(
            f"no tasks in {home}: there is no readable {_LIST}. Name the folder that the stage has printed."
        ) from error


def do_listed(home: str | Path, *, run: PositiveInt | None = None) -> list[str]:
    """List the tasks of a folder, or do one of them here if it is not done. Return lines to print.

    Args:
        home: folder that the stage has printed.
        run: number of the task to do. None: list all tasks.
    """
    tasks = read_list(home)
    if run is None:
        return [
            f"{number:>6}  {'waits' if read_receipt(task) is None else 'done '}  {task.name}"
            for number, task in enumerate(tasks, 1)
        ]
    if run > len(tasks):
        raise ConfigError(f"there is no task {run} in {home}, needs a number from 1 to {len(tasks):,}.")
    task = tasks[run - 1]
    if Path(task.out).parent.absolute() != Path(home).absolute():
        raise ConfigError(f"{home} was moved: its tasks write into {Path(task.out).parent}. Start the stage again.")
    run_task(task).get()
    return [f"{run:>6}  done   {task.name}"]
