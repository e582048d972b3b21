"""Add a preset, reward, prompt or metric of one's own to those with a name."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Final

from msgspec import Meta

from sciscidata.options.checks import check_value
from sciscirl.errors import SciSciRLError

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
