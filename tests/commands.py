"""A process that runs commands of the package one after another.

A test gets an answer whatever a command does: a panic, a signal and a hang end this process, not the tests. By hand::

    with Commands() as commands:
        commands.run("verify", folder).status
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
#: A command on some hundred works takes less than a second; so much is left to a busy machine before it counts as hung.
LIMIT_S = float(os.environ.get("SCISCI_COMMAND_LIMIT_S", "180"))
_MEMORY = 5 << 30
_CRASHED = 99
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Outcome(NamedTuple):
    """How a command ended.

    ``status`` is its exit status; negative: the signal that ended the process; None: it took too long.
    """

    status: int | None
    out: str = ""
    err: str = ""
    value: Any = None

    @property
    def verdict(self) -> str:
        """Say in a word how it ended: "done", "named error" (in one line), or what should never be."""
        if self.status is None:
            return "hang"
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        if self.status < 0:
            return "killed by a signal"
        if self.status == _CRASHED or "Traceback (most recent" in self.err or "panicked at" in self.err:
            return "traceback"
        if self.status == 0:
            return "done"
        return "named error" if self.status == 1 and len(lines) == 1 else "unclear error"


class Commands:
    """Starts the process when it is needed, and anew when it has died.

    Args:
        environment: further variables of it.
    """

    def __init__(self, **environment: str) -> None:
        self._environment = {"COLUMNS": "200"} | environment
        self.limit_s = 600.0  # until the first commands have loaded and compiled what they need
        self._process: Any = None

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def run(self, *arguments: object, picture: tuple[str, Path, Path] | None = None) -> Outcome:
        """Run ``sciscidata`` with some arguments.

        Args:
            arguments: paths and numbers become text.
            picture: a regular expression of "event path", a folder, and where to copy it the first time that Python is
                about to do this: what is on disk then is what kill -9 would leave.
        """
        return self._ask(None, [str(one) for one in arguments], picture)

    def call(self, function: Callable[..., Any], *arguments: object) -> Outcome:
        """Call a function of some module there; ``value`` is what it gives."""
        return self._ask(function, [str(one) for one in arguments], None)

    def _ask(self, *question: Any) -> Outcome:
        if self._process is None:
            spawn = multiprocessing.get_context("spawn")
            self._here, there = spawn.Pipe()
            self._process = spawn.Process(target=_serve, args=(there, self._environment))
            self._process.start()
            there.close()
        self._here.send(question)
        try:
            if self._here.poll(self.limit_s):
                return Outcome(*self._here.recv())
            status = None
        except EOFError:
            self._process.join()
            status = self._process.exitcode if self._process.exitcode < 0 else _CRASHED
        self.close()
        return Outcome(status, err="the process ended")


# The process


class _Picture:
    """Copies a folder in the middle of what Python does to it."""

    def __init__(self) -> None:
        self.wanted: tuple[str, Path, Path] | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.wanted is None or not (event == "os.rename" or (event == "open" and (arguments[2] or 0) & _WRITES)):
            return
        (pattern, folder, target), wanted = self.wanted, self.wanted
        self.wanted = None  # what happens here is not looked at
        named = zip(arguments[:2], arguments[2:], strict=True) if event == "os.rename" else [(arguments[0], -1)]
        if any(re.fullmatch(pattern, f"{event} {_path(name, base)}") for name, base in named):
            shutil.copytree(folder, target, symlinks=True, copy_function=_copy_if_there)
        else:
            self.wanted = wanted


def _copy_if_there(source: str, target: str) -> None:
    """Copy a file, unless another thread of the command has renamed it since its folder was listed."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _path(name: Any, folder: int) -> str:
    if isinstance(name, int):
        return ""
    base = Path(f"/proc/self/fd/{folder}").readlink() if folder >= 0 else Path.cwd()
    return str(base / os.fsdecode(name))


def _serve(asked: Connection, environment: dict[str, str]) -> None:
    import resource

    os.environ.update(environment)
    os.chdir(REPOSITORY)
    with suppress(ValueError, OSError):  # what is damaged may ask for any amount
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    from sciscidata import SciSciDataError
    from sciscidata.cli.main import main
    from tests.pictures import leave_empty

    leave_empty()
    picture = _Picture()
    sys.addaudithook(picture)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        while True:
            function, arguments, wanted = asked.recv()
            for file in (out, err):
                os.ftruncate(file.fileno(), 0)
                os.lseek(file.fileno(), 0, os.SEEK_SET)
            picture.wanted, status, value = wanted, _CRASHED, None
            try:
                if function:
                    value, status = function(*arguments), 0
                else:
                    status = main(arguments)
            except SciSciDataError as error:  # of a function: told as a command tells it
                sys.stderr.write(f"error: {error}\n")
                status = 1
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 2
            except BaseException:
                traceback.print_exc()
            picture.wanted = None
            sys.stdout.flush()
            sys.stderr.flush()
            said = (os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace") for file in (out, err))
            asked.send((status, *said, value))
