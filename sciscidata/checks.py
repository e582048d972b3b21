"""Checks that several configurations share: what type hints alone do not keep out of a notebook."""

from __future__ import annotations

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
