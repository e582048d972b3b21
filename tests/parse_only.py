"""Ask programs whether they know the words of command lines, and run none: ``python -m tests.parse_only < LINES.json``.

LINES is a list of command lines, each a list of words. The program's own parser reads them, whatever module made it;
what comes after would run the command, so it ends there. Prints, for each line, what the program said against it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
_parse = argparse.ArgumentParser.parse_known_args
_reading: list[argparse.ArgumentParser] = []


class _AllRead(BaseException):
    """A parser has read its words; the first argument has those that are left."""


def _parse_and_end(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
    self.allow_abbrev = False  # a page has whole names
    if _reading:  # the parser of a subcommand
        return _parse(self, args, namespace)
    _reading.append(self)
    try:
        _, rest = _parse(self, args, namespace)
    finally:
        _reading.clear()
    raise _AllRead(rest)


def _refuse_to_write(event: str, arguments: tuple[Any, ...]) -> None:
    writes = event == "open" and isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if writes and REPOSITORY in (path := Path(arguments[0]).resolve()).parents and "__pycache__" not in path.parts:
        raise PermissionError(f"would write {path.relative_to(REPOSITORY)}")


def _ask(words: Sequence[str]) -> str:
    program, *rest = words
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            if program.endswith(".py"):
                sys.argv, sys.path[0] = [*words], str(Path(program).resolve().parent)
                runpy.run_path(program, run_name="__main__")
                return f"{program} reads no words"
            status = import_module(f"{program}.cli.main").main(rest)
        except _AllRead as read:
            return f"{program} has nothing to read {read.args[0]}" if read.args[0] else ""
        except SystemExit as end:
            status = end.code
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "" if not status and "usage: " in said.getvalue() else f"{status}: {said.getvalue()}"


def ask(lines: Iterable[Sequence[str]]) -> list[str]:
    """Ask in a new process, because programs import what they like; return what each said, "" where all is known."""
    command = [sys.executable, "-m", "tests.parse_only"]
    settings: dict[str, Any] = {"cwd": REPOSITORY, "text": True, "timeout": 300, "check": True}
    return json.loads(subprocess.run(command, input=json.dumps([*lines]), stdout=subprocess.PIPE, **settings).stdout)


if __name__ == "__main__":
    argparse.ArgumentParser.parse_known_args = _parse_and_end
    os._exit = sys.exit  # a program that ends the process at once ends its line only
    sys.addaudithook(_refuse_to_write)
    print(json.dumps([_ask(line) for line in json.load(sys.stdin)]))
