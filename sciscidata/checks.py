"""Checks that several configurations share: what type hints alone do not keep out of a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sciscidata.errors import ConfigError


def is_whole(value: object) -> bool:
    """Say whether a value is a whole number; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_threads(n_threads: object) -> None:
    """Refuse a number of threads that is none.

    Raises:
        ConfigError: at once; it is neither None nor a whole number from 1.
    """
    if n_threads is not None and not (isinstance(n_threads, int) and is_whole(n_threads) and n_threads > 0):
        msg = f"n_threads is {n_threads!r}, needs a whole number from 1, or None for as many as Polars uses."
        raise ConfigError(msg)


def conventional_options(
    kind: type, conventions: Mapping[str, Mapping[str, Any]], name: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of a named convention of a configuration, with changes put over them.

    Raises:
        ConfigError: at once, if there is no such convention, or ``kind`` no such option.
    """
    # Lists, because what a TOML file names need not be hashable.
    asked = [("convention", name, list(conventions))]
    asked += [("option", option, [field.name for field in fields(kind)]) for option in changes]
    for what, word, known in asked:
        if word not in known:
            msg = f"{kind.__name__}.compat: no {what} {word!r}; choose one of {', '.join(known)}."
            raise ConfigError(msg)
    return {**conventions[name], **changes}
