"""Runs ``python -m sciscidata`` in forks of a process that has loaded the packages: a new interpreter takes 2 s of CPU.

Each run has its own arguments, folder, variables and streams, and ends as a process does. The process that forks runs
nothing itself, so that no thread of Polars is lost in a fork.
"""

from __future__ import annotations

import atexit
import gc
import json
import math
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent


def run(
    *words: str | bytes | os.PathLike[str],
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdout: str = "",
    stderr: str = "",
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as ``subprocess.run`` does; ``stdout`` and ``stderr`` name files to write to instead."""
    if not hasattr(os, "fork"):
        program = [sys.executable, "-m", "sciscidata", *words]
        return subprocess.run(program, cwd=cwd, env=env, capture_output=True, check=False)
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(stdout or folder, "" if stdout else "out"), Path(stderr or folder, "" if stderr else "err")
        status = _start(words, cwd, env, (out, err)).wait()
        said = [b"" if named else path.read_bytes() for named, path in ((stdout, out), (stderr, err))]
    return subprocess.CompletedProcess([os.fsdecode(word) for word in words], status, *said)


def start(
    *words: str | bytes | os.PathLike[str], cwd: Path, log: Path, env: Mapping[str, str] | None = None
) -> Running | subprocess.Popen[bytes]:
    """Start a command as ``subprocess.Popen`` does; what it prints is added to ``log``."""
    if not hasattr(os, "fork"):
        with log.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "sciscidata", *words], cwd=cwd, env=env, stdout=file, stderr=file
            )
    return _start(words, cwd, env, (log, log))


class Running:
    """A command that was started, as ``subprocess.Popen`` has it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        return self._ask(os.WNOHANG)

    def wait(self, timeout: float = math.inf) -> int:
        deadline = time.monotonic() + timeout
        while math.isfinite(timeout) and self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.005)
        status = self._ask(0)
        assert status is not None
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _ask(self, options: int) -> int | None:
        if self._status is None:
            self._status = _ask({"pid": self.pid, "options": options})
        return self._status


def _start(
    words: Sequence[str | bytes | os.PathLike[str]],
    cwd: Path,
    env: Mapping[str, str] | None,
    streams: tuple[Path, Path],
) -> Running:
    question = {"words": [os.fsdecode(word) for word in words], "cwd": str(cwd), "streams": [*map(str, streams)]}
    return Running(_ask(question | {"env": dict(os.environ if env is None else env)}))


def _ask(question: dict[str, Any]) -> Any:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(question).encode() + b"\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


@cache
def _server() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.forked"]
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    server = subprocess.Popen(command, cwd=REPOSITORY, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(server.wait)
    atexit.register(server.stdin.close)  # type: ignore[union-attr]  (first: then it ends)
    return server


def _serve() -> None:
    gc.disable()
    import sciscidata.cli.page
    import sciscidata.cli.settings
    import sciscidata.cli.summary
    import sciscidata.stages  # noqa: F401
    import tests.warm_kernels
    from tests.quick import leave_out_what_takes_long

    leave_out_what_takes_long()
    import tests.less_garbage  # noqa: F401

    with os.fdopen(os.dup(1), "wb") as answers:
        for line in sys.stdin.buffer:
            question = json.loads(line)
            if "pid" in question:
                pid, status = os.waitpid(question["pid"], question["options"])
                answer = os.waitstatus_to_exitcode(status) if pid else None
            else:
                answer = os.fork()
                if not answer:
                    _be_command(**question)
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()


def _be_command(words: list[str], cwd: str, env: dict[str, str], streams: list[str]) -> None:
    for number, name in enumerate([os.devnull, *streams]):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv, status = ["sciscidata", *words], 0
    try:
        runpy.run_module("sciscidata", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
