"""Tasks on the workers of a Dask cluster. A task of a worker that dies goes to another one."""

from __future__ import annotations

import importlib
import logging
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec

from sciscidata.engines.config import EngineConfig, Runner
from sciscidata.engines.task import Outcome, Task, run_task
from sciscidata.errors import ConfigError, import_extra
from sciscidata.terminal.progress import Advance

_PATIENCE_S: Final = 30
logger = logging.getLogger(__name__)


@contextmanager
def connect(config: EngineConfig) -> Generator[Runner]:
    """Connect to a scheduler until the block ends; a ConfigError says why that cannot be."""
    distributed = import_extra("distributed", "dask", "engine dask")
    if (config.address is None) == (config.scheduler_file is None):
        raise ConfigError("engine dask needs EngineConfig.address or EngineConfig.scheduler_file, one of them.")
    where = config.address or str(config.scheduler_file)
    if config.scheduler_file is not None and not config.scheduler_file.is_file():
        raise ConfigError(f"there is no file {where}. Start one: dask scheduler --scheduler-file {where}")
    address: dict[str, Any] = (
        {"address": config.address} if config.address else {"scheduler_file": str(config.scheduler_file)}
    )
    try:
        client: Any = distributed.Client(**address, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(
            f"no Dask scheduler answers at {where}. Check the address, and that `dask scheduler` runs there."
        ) from error
    with _silent(), client:
        _check_workers(client, where)
        yield lambda tasks, advance, _: _run(client, tasks, advance)


@contextmanager
def _silent() -> Generator[None]:
    """Keep the client from logging tracebacks of a scheduler that was lost: the error of a task says it."""
    loggers = [logging.getLogger(f"distributed.{name}") for name in ("client", "utils")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _check_workers(client: Any, where: str) -> None:  # noqa: ANN401
    """Wait for a worker, and compare the version of this package on all of them."""
    try:
        client.wait_for_workers(1, timeout=_PATIENCE_S)
    except TimeoutError as error:
        raise ConfigError(
            f"the Dask scheduler at {where} has no worker. Start some: dask worker {where} --nthreads 1"
        ) from error
    ours = _version()
    for worker, version in client.run(_version, on_error="return").items():
        if isinstance(version, Exception):
            raise ConfigError(
                f"the Dask worker {worker} cannot import sciscidata ({version}). Install sciscidata {ours} there."
            )
        if version != ours:
            raise ConfigError(
                f"the Dask worker {worker} has sciscidata {version}, here is {ours}. Install the same version there."
            )
    logger.info("%d Dask workers: %s", len(client.scheduler_info()["workers"]), client.dashboard_link)


def _version() -> str:
    return importlib.import_module("sciscidata").__version__


def _do(encoded: bytes) -> bytes:
    return msgspec.json.encode(run_task(msgspec.json.decode(encoded, type=Task)))


def _outcome_of(future: Any, task: Task) -> Outcome:  # noqa: ANN401
    why = "could not be done: the Dask scheduler has ended, or cannot be reached any more. "
    remedy = "Start it and its workers again, and run the same command"
    if future.status == "finished":
        with suppress(OSError):  # the result is fetched now, by way of the scheduler
            return msgspec.json.decode(future.result(), type=Outcome)
    elif future.status == "error":
        why = f"could not be done on the Dask cluster: {future.exception()}. If workers died, give "
        remedy = "them more memory or each task fewer works, and run again"
    return Outcome(error="StorageError", message=f"{task.name} {why}{remedy}: what is finished is kept.")


def _run(client: Any, tasks: Sequence[Task], advance: Advance) -> Generator[tuple[Task, Outcome]]:  # noqa: ANN401
    from distributed import as_completed

    run = secrets.token_hex(4)  # the same task of an earlier run is another one
    futures = {
        client.submit(_do, msgspec.json.encode(task), key=f"{task.name} {run}", pure=False): task for task in tasks
    }
    try:
        for future in as_completed(futures, loop=client.loop):
            task = futures[future]
            outcome = _outcome_of(future, task)
            advance(task.cost)
            future.release()
            yield task, outcome
    finally:
        client.cancel([*futures], force=True)
