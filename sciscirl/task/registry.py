"""Add a preset, a reward or a prompt of one's own to those that have a name here."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sciscidata._support.validate import check_value
from sciscirl.errors import SciSciRLError

_Name = Annotated[str, Meta(pattern=r"^[\w.-]{1,64}$", description="up to 64 letters, digits, dots and dashes")]


def add_entry(entries: dict[str, Any], name: str, value: object, kind: str, error: type[SciSciRLError]) -> None:
    """Add an entry; ``error`` if its name cannot be one, or is that of another entry. Adding it again does nothing.

    Example:
        >>> add_entry({"strong": 1}, "strong", 2, "reward", SciSciRLError)
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: there is another reward 'strong'. Choose another name.
    """
    check_value(f"the name of a {kind}", name, _Name, error)
    if entries.setdefault(name, value) != value:
        msg = f"there is another {kind} {name!r}. Choose another name."
        raise error(msg)
