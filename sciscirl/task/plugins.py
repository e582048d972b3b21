"""Run a Python file that registers presets, rewards, prompts or metrics, for a command."""

from __future__ import annotations

import hashlib
import traceback
from pathlib import Path
from typing import Final

from sciscidata.storage.small_files import SETTINGS_BYTES, read_whole
from sciscirl.errors import SciSciRLError

#: Name and SHA-256 of each plugin that this process has run, for the records of its runs.
PLUGINS: Final[list[dict[str, str]]] = []


def load_plugin(path: str) -> None:
    """Run a Python file that registers parts of your own, once in a process; errors name the line."""
    file = Path(path)
    try:
        code = read_whole(file, SETTINGS_BYTES)
    except OSError as error:
        raise SciSciRLError(f"plugin {path} cannot be read: {error.strerror or error}. Check the path.") from error
    facts = {"name": file.name, "sha256": hashlib.sha256(code).hexdigest()}
    if facts in PLUGINS:
        return
    try:
        exec(compile(code, str(file), "exec"), {"__name__": file.stem, "__file__": str(file)})
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = error.lineno if isinstance(error, SyntaxError) else next(reversed(lines), None)
        where = f" in line {line}" if line else ""
        reason = " ".join(str(error).split()).rstrip(".")
        raise SciSciRLError(
            f"plugin {path} failed{where} ({type(error).__name__}: {reason}). Mend the file, or leave plugin out."
        ) from error
    PLUGINS.append(facts)
