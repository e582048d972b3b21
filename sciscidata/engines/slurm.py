"""Tasks in a Slurm job array, by submitit. A job that is requeued, or lost, finds what it has finished."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec

from sciscidata.engines.config import EngineConfig, Runner
from sciscidata.engines.task import Outcome, Task, run_task
from sciscidata.errors import ConfigError, import_extra
from sciscidata.terminal.processes import python_command, python_environment
from sciscidata.terminal.progress import Advance

_POLL_S: Final = 1.0
_LOOK_S: Final = 15.0  # between two looks into the queue
_TRIES: Final = 3
_SHOWN: Final = 400  # characters of a job's log
_MINUTES: Final = {"m": 1, "h": 60, "d": 1440}


def submit(config: EngineConfig) -> Runner:
    """Make a runner that submits job arrays; a ConfigError says what is missing for that, or wrong."""
    submitit = import_extra("submitit", "slurm", "engine slurm")
    asked = read_request(config.slurm or "")
    cluster = asked.pop("cluster", "slurm")
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise ConfigError(
            "engine slurm: there is no sbatch on this machine. Run the command on a login node of the cluster."
        )

    def run(tasks: Sequence[Task], advance: Advance, home: Path) -> Generator[tuple[Task, Outcome]]:
        python = {f"{cluster}_python": shlex.join(python_command())}
        executor: Any = submitit.AutoExecutor(folder=home / "slurm", cluster=cluster, **python)
        executor.update_parameters(**{"name": "sciscidata", "cpus_per_task": config.threads} | asked)
        waiting = _bundles(tasks, config.tasks)
        for _ in range(_TRIES):
            lost: list[list[Task]] = []
            with patch.dict(os.environ, python_environment()):  # submitit starts more than the command above
                submitted = executor.map_array(_do_all, [*map(msgspec.json.encode, waiting)])
            jobs = dict(zip(submitted, waiting, strict=True))
            try:
                for job, outcomes in _as_done(jobs):
                    if outcomes is None:
                        lost.append(jobs[job])
                        continue
                    for task, outcome in zip(jobs[job], outcomes, strict=True):
                        advance(task.cost)
                        yield task, outcome
            finally:
                for job in jobs:
                    if not _is_over(job):
                        job.cancel(check=False)
            waiting = lost
            if not waiting:
                return
        for bundle in waiting:
            job = next(job for job, tasks in jobs.items() if tasks is bundle)  # pyright: ignore[reportPossiblyUnboundVariable]
            msg = (
                f"{bundle[0].name}: its Slurm job {job.job_id} was lost {_TRIES} times. {_tail(job)} Give it more time "
                f"or memory, and run again: what is finished is kept. Logs: {home / 'slurm'}"
            )
            yield bundle[0], Outcome(error="StorageError", message=msg)

    return run


def read_request(text: str) -> dict[str, Any]:
    """Read what a job asks for, into options of submitit.

    Example:
        >>> read_request("partition=cpu,cpus_per_task=16,mem_gb=48,time=2h")
        {'slurm_partition': 'cpu', 'cpus_per_task': 16, 'mem_gb': 48.0, 'timeout_min': 120}
        >>> read_request("time=soon")
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: EngineConfig.slurm asks for a time of 'soon', needs one like 90m, 2h or 1d.
    """
    asked: dict[str, Any] = {}
    further: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"[a-z_]+", name) or not re.fullmatch(r"[\w.:/@+-]+", value):
            raise ConfigError(
                f"EngineConfig.slurm has {pair!r}, needs NAME=VALUE, like partition=cpu,mem_gb=48,time=2h."
            )
        if name == "time":
            duration = re.fullmatch(r"([0-9]+)([mhd]?)", value)
            if duration is None:
                raise ConfigError(f"EngineConfig.slurm asks for a time of {value!r}, needs one like 90m, 2h or 1d.")
            asked["timeout_min"] = int(duration[1]) * _MINUTES.get(duration[2], 1)
        elif name in ("cpus_per_task", "mem_gb", "array_parallelism"):
            if not re.fullmatch(r"[0-9]+(\.[0-9]+)?" if name == "mem_gb" else r"[1-9][0-9]*", value):
                raise ConfigError(f"EngineConfig.slurm asks for {name} of {value!r}, needs a number.")
            key = "slurm_array_parallelism" if name == "array_parallelism" else name
            asked[key] = float(value) if name == "mem_gb" else int(value)
        elif name == "cluster":
            if value not in ("slurm", "local"):
                raise ConfigError(
                    f"EngineConfig.slurm asks for a cluster {value!r}, needs slurm, or local to try it without one."
                )
            asked["cluster"] = value
        elif name == "partition":
            asked["slurm_partition"] = value
        else:
            further[name] = value
    return asked | ({"slurm_additional_parameters": further} if further else {})


def _bundles(tasks: Sequence[Task], n_bundles: int) -> list[list[Task]]:
    """Deal tasks, the largest first, to as many jobs as asked, always to the one with least to do."""
    bundles: list[list[Task]] = [[] for _ in range(min(n_bundles, len(tasks)))]
    costs = [0.0] * len(bundles)
    for task in tasks:
        least = costs.index(min(costs))
        bundles[least].append(task)
        costs[least] += max(task.cost, 1e-9)
    return bundles


def _do_all(encoded: bytes) -> list[bytes]:
    """Do the tasks of one job. An error ends its own task only, and is its outcome."""
    return [msgspec.json.encode(run_task(task)) for task in msgspec.json.decode(encoded, type=list[Task])]


def _as_done(jobs: dict[Any, list[Task]]) -> Generator[tuple[Any, list[Outcome] | None]]:
    """Give each job when it is over, with its outcomes, or None if it left none."""
    open_jobs, looked = list(jobs), time.monotonic()
    missing: set[str] = set()  # seen neither in the queue nor done, once
    while open_jobs:
        for job in [job for job in open_jobs if _is_over(job)]:
            open_jobs.remove(job)
            yield job, _outcomes(job)
        if open_jobs and time.monotonic() - looked >= _LOOK_S:
            looked = time.monotonic()
            queued = _queued()
            gone = {job.job_id for job in open_jobs if queued is not None and job.job_id not in queued}
            for job in [job for job in open_jobs if job.job_id in gone & missing and not _is_over(job)]:
                open_jobs.remove(job)
                yield job, None
            missing = gone
        time.sleep(_POLL_S if open_jobs else 0)


def _is_over(job: Any) -> bool:  # noqa: ANN401
    """Whether a job has left its result; one of this machine also if it has ended without."""
    return job.paths.result_pickle.exists() or (type(job).__name__ == "LocalJob" and job.done(force_check=True))


def _outcomes(job: Any) -> list[Outcome] | None:  # noqa: ANN401
    try:
        return [msgspec.json.decode(one, type=Outcome) for one in job.result()]
    except Exception:  # the job itself has failed, in whatever way
        return None


def _queued() -> set[str] | None:
    """List this user's queued jobs, as ``17_3`` for task 3 of an array; None if Slurm does not answer."""
    command = ["squeue", "--me", "--noheader", "--array", "--format=%F_%K"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {line.strip().removesuffix("_N/A") for line in done.stdout.splitlines()} if done.returncode == 0 else None


def _tail(job: Any) -> str:  # noqa: ANN401
    try:
        text = job.paths.stderr.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
    return f"Its log ends: {text[-_SHOWN:]}" if text else ""
