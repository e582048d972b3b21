"""Add a preset, a reward or a prompt of one's own to those with a name; a plugin does it for a command."""

from __future__ import annotations

import hashlib
import logging
import traceback
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from sciscidata.options.checks import check_value
from sciscidata.storage.small_files import SETTINGS_BYTES, read_whole
from sciscirl.errors import SciSciRLError

#: Name and SHA-256 of each plugin that this process has run, for the records of its runs.
PLUGINS: Final[list[dict[str, str]]] = []
_ADDED: Final = set[tuple[str, str]]()
_log = logging.getLogger(__name__)
_Name = Annotated[str, Meta(pattern=r"^[\w.-]{1,64}$", description="up to 64 letters, digits, dots and dashes")]


def add_entry(entries: dict[str, Any], name: str, value: object, kind: str, error: type[SciSciRLError]) -> None:
    """Add an entry, or replace one that was added before: a notebook may run a cell again."""
    check_value(f"the name of a {kind}", name, _Name, error)
    if name in entries and (kind, name) not in _ADDED and entries[name] != value:
        raise error(f"there is another {kind} {name!r}. Choose another name.")
    if entries.get(name, value) != value:
        _log.warning("%s %r takes the place of another of this name.", kind, name)
    _ADDED.add((kind, name))
    entries[name] = value


def load_plugin(path: str) -> None:
    """Run a Python file that registers presets, rewards or prompts, once in a process; errors name the line."""
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
