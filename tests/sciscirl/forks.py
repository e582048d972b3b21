"""Run scripts in forks of a process that has already imported what is slow to import: about 1 s each instead of 10.

This module imports nothing else of the tests: every fork imports it.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest.mock import patch

#: Slow to import, and they start no thread. Polars does, so each fork imports it.
_PRELOADED = [
    "matplotlib.figure",
    "sklearn.linear_model",
    "tinker_cookbook.rl.train",
    "tinker_cookbook.supervised.train",
    "transformers.models.auto.tokenization_auto",
    "tests.less_garbage",
]
#: Read when these packages are imported.
_AT_IMPORT = {"HF_HUB_OFFLINE": "1", "TINKER_TELEMETRY": "0"}


class Fork:
    """A script that runs; ``out`` and ``err`` are the files that it writes to."""

    def __init__(
        self, words: list[str], folder: Path, *, environment: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        number = time.monotonic_ns()
        self.words, self.out, self.err = words, folder / f"{number}.out", folder / f"{number}.err"
        context = get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        with patch.dict(os.environ, _AT_IMPORT):
            ensure_running()
        arguments = (words, dict(environment), cwd or Path.cwd(), self.out, self.err)
        self.process: BaseProcess = context.Process(target=_be_script, args=arguments)
        self.process.start()

    def wait(self, seconds: float) -> subprocess.CompletedProcess[str]:
        """Wait for its end, as ``subprocess.run`` does."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.kill()
            raise subprocess.TimeoutExpired(
                self.words, seconds, self.out.read_text("utf-8"), self.err.read_text("utf-8")
            )
        out, err = (path.read_text("utf-8") if path.exists() else "" for path in (self.out, self.err))
        return subprocess.CompletedProcess(self.words, self.process.exitcode, out, err)

    def kill(self) -> None:
        """End it, if it still runs."""
        with suppress(ValueError):
            self.process.kill()
            self.process.join()


def _be_script(words: list[str], environment: dict[str, str], cwd: Path, out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")
