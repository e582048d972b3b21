"""A repr worth reading in a notebook: a configuration shows what differs from its defaults."""

from __future__ import annotations

import dataclasses
from typing import Any


def short_repr(self: Any) -> str:  # noqa: ANN401
    """Write a configuration as the call that makes it, without the options that have their defaults.

    Example:
        >>> @dataclasses.dataclass(repr=False)
        ... class Window:
        ...     years: int = 5
        ...     start: int = 0
        ...     __repr__ = short_repr
        >>> Window(), Window(years=10)
        (Window(), Window(years=10))
    """
    changed: list[str] = []
    for field in dataclasses.fields(self):
        if not field.repr:  # a key, a password
            continue
        make = field.default_factory
        default = field.default if make is dataclasses.MISSING else make()
        if (value := getattr(self, field.name)) != default:
            changed.append(f"{field.name}={value!r}")
    return f"{type(self).__name__}({', '.join(changed)})"
