"""Start a Python program in a fork of a process that has loaded its libraries, and has done nothing else.

Torch, Transformers and the cookbook take five seconds of a processor to load, more than most of what tests start.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest.mock import patch

#: What commands that train, judge and report load in the end, and those of sciscidata that tests kill. An import that
#: fails here fails in the program, too.
_LOADED = [
    "sciscirl.lab.training.rl",
    "sciscirl.lab.studies.sweep",
    "sciscirl.lab.report.report",
    "transformers.models.auto.tokenization_auto",
    "sciscidata.cli.main",
    "sciscidata.pipeline",
    "sciscidata.stages",
    "sciscidata.plots._notebook_figure",
    "matplotlib.backends.backend_agg",
]
#: Begin the names of variables that Python and libraries read when they are loaded.
_READ_AT_IMPORT = ("PYTHON", "HF_", "TRANSFORMERS_", "OMP_")


@functools.cache
def load() -> dict[str, str]:
    """Start the process that is forked, one for each process of the tests. Return the variables that were read."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    forkserver.set_forkserver_preload(_LOADED)
    with patch.dict(os.environ, environment):
        forkserver._forkserver._stop()  # one that other tests began has loaded less
        forkserver.ensure_running()
    return _list_read(environment)


def _list_read(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_IMPORT)}


def may_fork(environment: Mapping[str, str]) -> bool:
    """Whether a program with these variables would load what is loaded, on a system where that may be forked."""
    return sys.platform == "linux" and load() == _list_read(environment)


def start_fork(
    words: Sequence[str], *, environment: Mapping[str, str], cwd: Path | None, out: Path, err: Path
) -> ForkServerProcess:
    """Start what ``python WORDS`` would: a script, or ``-c`` and a program. It writes to two files."""
    load()
    context = multiprocessing.get_context("forkserver")
    fork = context.Process(target=_run, args=([*words], dict(environment), cwd, out, err))
    fork.start()
    return fork


def _run(words: list[str], environment: dict[str, str], cwd: Path | None, out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    if cwd is not None:
        os.chdir(cwd)
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = [*words]
            sys.path.insert(0, str(Path(words[0]).resolve().parent))
            runpy.run_path(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # which the end of a fork leaves out
