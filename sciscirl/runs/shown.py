"""What a command prints: text for a terminal, and which command comes next."""

from __future__ import annotations

import shlex
from pathlib import Path

from sciscidata.terminal.messages import printable


def show(text: str, *, flush: bool = False) -> None:
    """Print for a terminal; what a model, run or server said stays text."""
    print(printable(text, lines=True), flush=flush)  # noqa: T201


def name_report(folder: Path, release: str, split: str) -> str:
    """Write the command that reports a run."""
    words = ["sciscirl", "report", str(folder), "--release", release, "--out", f"{folder.name}.html"]
    return shlex.join(words + (["--final"] if split != "test" else []))  # test has not chosen the checkpoint
