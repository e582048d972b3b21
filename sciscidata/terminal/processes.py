"""Start Python so that it imports nothing from the current folder: a stranger's ``polars.py`` may lie there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = str(Path(__file__).resolve().parents[2])


def python_command(*words: str, python: str | Path = sys.executable) -> list[str]:
    """Return the command that starts Python; ``-m`` alone would look for modules in the current folder first."""
    return [str(python), "-P", *words]


def python_environment() -> dict[str, str]:
    """Return the environment of a process that starts Python, by whatever command."""
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, places))}


def import_path() -> str:
    """Return where this process finds modules, for PYTHONPATH, without the current folder unless it was named there."""
    named = {_ROOT, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))}
    here = Path.cwd()
    return os.pathsep.join(place for place in sys.path if place in named or Path(place).resolve() != here)
