"""Checks that several configurations share: what type hints alone do not keep out of a notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from sciscidata.errors import ConfigError

Config = TypeVar("Config")


def is_whole(value: object) -> bool:
    """Say whether a value is a whole number; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def require_config(config: object, kind: type[Config], example: str = "", *, name: str = "config") -> Config:
    """Return a configuration, and refuse what is none of its kind: a dict, a path, or nothing at all.

    Args:
        config: what was given.
        kind: the configuration's class.
        example: how it may be made, for the message.
        name: of the parameter.

    Raises:
        ConfigError: at once.
    """
    if not isinstance(config, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        msg = f"{name} is {config!r}, needs {article} {kind.__name__}, for example {kind.__name__}({example})."
        raise ConfigError(msg)
    return config


def checked_config(config: object, kind: type[Config], example: str = "", *, name: str = "config") -> Config:
    """Return a configuration, or the default one when None.

    Raises:
        ConfigError: at once, as require_config.
    """
    return kind() if config is None else require_config(config, kind, example, name=name)


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


def require_parquet_name(path: Path, what: str) -> None:
    """Refuse a name that promises another kind of file than Parquet; one without a suffix promises nothing.

    Args:
        path: the file to write.
        what: is written, and its verb.

    Raises:
        ConfigError: at once.

    Example:
        >>> require_parquet_name(Path("cd.csv"), "scores are")
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: scores are written as Parquet, and cd.csv is named otherwise. Choose cd.parquet,
        say.
    """
    if path.suffix.lower() not in ("", ".parquet", ".pq"):
        msg = f"{what} written as Parquet, and {path.name} is named otherwise. Choose {path.stem}.parquet, say."
        raise ConfigError(msg)


def parse_shard(text: object) -> tuple[int, int]:
    """Read which of how many shares is meant, the first being 1.

    Raises:
        ConfigError: at once; there is no such share.

    Example:
        >>> parse_shard("2/8")
        (2, 8)
        >>> parse_shard("9/8")
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: shard is '9/8', needs K/N with K from 1 to N: 2/8 is the second of eight shares.
    """
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text) if isinstance(text, str) else None
    shard, n_shards = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= shard <= n_shards:
        msg = f"shard is {text!r}, needs K/N with K from 1 to N: 2/8 is the second of eight shares."
        raise ConfigError(msg)
    return shard, n_shards
