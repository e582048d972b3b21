"""Start ``python -m sciscidata`` in a new process, as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Word = str | bytes | os.PathLike[str]


def run(
    *words: Word, cwd: Path, env: Mapping[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end; ``stdout`` and ``stderr`` are files to write to instead."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | streams
    return subprocess.run(_command(words), cwd=cwd, env=env, check=False, **streams)


def start(*words: Word, cwd: Path, log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a command; what it prints is added to ``log``."""
    with log.open("ab") as file:
        return subprocess.Popen(_command(words), cwd=cwd, env=env, stdout=file, stderr=file)


def _command(words: tuple[Word, ...]) -> list[Word]:
    return [sys.executable, "-P", "-m", "sciscidata", *words]
