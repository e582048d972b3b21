"""Runs ``python -m sciscidata`` in forks of a process that has loaded the packages: a new interpreter takes 2 s of CPU.

Each run has its own arguments, folder, variables and streams, and ends as a process does. The process that forks runs
nothing itself, so that no thread of Polars is lost in a fork.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

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
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(stdout or folder, "" if stdout else "out"), Path(stderr or folder, "" if stderr else "err")
        arguments = [os.fsdecode(word) for word in words]
        question = {"words": arguments, "cwd": str(cwd), "env": dict(os.environ if env is None else env)}
        server.stdin.write(json.dumps(question | {"streams": [str(out), str(err)]}).encode() + b"\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        said = [b"" if named else path.read_bytes() for named, path in ((stdout, out), (stderr, err))]
    return subprocess.CompletedProcess(arguments, status, *said)


@cache
def _server() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.forked"]
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    server = subprocess.Popen(command, cwd=REPOSITORY, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(server.wait)
    atexit.register(server.stdin.close)  # type: ignore[union-attr]  (first: then it ends)
    return server


def _serve() -> None:
    import sciscidata.cli.page
    import sciscidata.cli.settings
    import sciscidata.cli.summary
    import sciscidata.stages  # noqa: F401
    from tests.quick import leave_out_what_takes_long

    leave_out_what_takes_long()
    with os.fdopen(os.dup(1), "wb") as answers:
        for line in sys.stdin.buffer:
            child = os.fork()
            if not child:
                _be_command(**json.loads(line))
            answers.write(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            answers.flush()


def _be_command(words: list[str], cwd: str, env: dict[str, str], streams: list[str]) -> None:
    for number, name in enumerate([os.devnull, *streams]):
        file = os.open(name, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY, 0o600)
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
