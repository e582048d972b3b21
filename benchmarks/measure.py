"""Measure one part of a benchmark in a process of its own, so that its peak memory is its own."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_own_process(script: str, *arguments: str, python: str = sys.executable, **environment: str) -> dict[str, Any]:
    """Run ``script`` with arguments; return the JSON object it prints last, with its peak memory in GB."""
    command = [python, str(Path(script).resolve()), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | environment)
    return json.loads(done.stdout.splitlines()[-1])


def report(**figures: float | int | list[float]) -> None:
    """Print figures as the last line of a measured process, peak memory added."""
    figures["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 3)
    print(json.dumps(figures))


def cpu_seconds() -> float:
    """Return the processor seconds of this process and of the children that it waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def seconds(
    work: Callable[[], Any],
    repeats: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    choose: Callable[[list[float]], float] = statistics.median,
) -> tuple[float, Any]:
    """Return the median time of ``repeats`` calls by a clock (wall time), and the last result."""
    times: list[float] = []
    result = None
    for _ in range(repeats):
        start = clock()
        result = work()
        times.append(clock() - start)
    return choose(times), result
