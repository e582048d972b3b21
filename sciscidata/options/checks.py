"""Check arguments and the fields of configurations: a message says what is wrong, what was given and what is needed.

Bounds and choices stand in the type hints, where the command line reads them too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from sciscidata.errors import ConfigError
from sciscidata.options.did_you_mean import find_unknown, suggest

Config = TypeVar("Config")

_MOST_SHOWN: Final = 200  # characters of a value in a message
_WRONG: Final = object()
_NUMBERS: Final = ("no", "one", "two", "three", "four")

#: Hints that several configurations share. A title stands for the value in a usage line.
Folder = Annotated[str, msgspec.Meta(min_length=1, title="FOLDER", description="the path of a folder")]
File = Annotated[str, msgspec.Meta(min_length=1, title="FILE", description="the path of a file")]
FolderOrUrl = Annotated[str, msgspec.Meta(min_length=1, title="FOLDER", description="a folder or a URL")]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Year = Annotated[int, msgspec.Meta(ge=-9_999, le=9_999, title="YEAR")]


class Hint:
    """A type hint taken apart: bounds (``metas``), types but None and Literal (``kinds``), and dataclasses of these."""

    def __init__(self, hint: Any) -> None:  # noqa: ANN401
        self.whole, self.optional = hint, False
        self.metas: list[msgspec.Meta] = []
        self.kinds: list[Any] = []
        self.choices: list[Any] = []
        self._add(hint)
        self.configurations = tuple[type, ...](filter(dataclasses.is_dataclass, self.kinds))

    def _add(self, hint: Any) -> None:  # noqa: ANN401
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            self.metas += [meta for meta in arguments[1:] if isinstance(meta, msgspec.Meta)]
            self._add(arguments[0])
        elif origin in (Union, UnionType):
            for member in arguments:
                self._add(member)
        elif origin is Literal:
            self.choices += arguments
        elif hint in (None, NoneType):
            self.optional = True
        else:
            self.kinds.append(hint)

    def __str__(self) -> str:
        """Say what is needed."""
        return self._needed() + (", or None" if self.optional else "")

    @property
    def is_list(self) -> bool:
        """Whether it asks for a tuple of any length."""
        return any(get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis for kind in self.kinds)

    def meta(self, name: str) -> Any:  # noqa: ANN401
        """Return a bound or name, None where there is none."""
        return next((value for meta in self.metas if (value := getattr(meta, name)) is not None), None)

    def elsewhere(self, value: object) -> str:
        """Say which option takes a value that this one does not: ``extra={"elsewhere": (pattern, sentence)}``."""
        pattern, sentence = (self.meta("extra") or {}).get("elsewhere", ("", ""))
        return f". {sentence.format(value)}" if sentence and re.fullmatch(pattern, str(value)) else ""

    def _needed(self) -> str:
        if self.meta("description"):
            return self.meta("description")
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}" if len(self.choices) > 1 else str(self.choices[0])
        if self.configurations:
            names = [kind.__name__ for kind in self.kinds]
            return f"one of {', '.join(names)}" if len(names) > 1 else f"{_article(names[0])} {names[0]}"
        kind, arguments = get_origin(self.kinds[0]) or self.kinds[0], get_args(self.kinds[0])
        if kind is tuple:
            item = Hint(arguments[0])
            if arguments[-1] is Ellipsis:
                words = str(item).removeprefix("a ").removesuffix(" that is not empty")
                at_least = words if words.startswith("one ") else f"one {words}"
                return f"a list of at least {at_least}" if self.meta("min_length") else f"a list of {_plural(words)}"
            return f"{_NUMBERS[len(arguments)]} {_plural(str(item))}"
        if kind is str:
            return "text that is not empty" if self.meta("min_length") else "text"
        if kind in (int, float):
            return ("a whole number" if kind is int else "a number") + self._bounds()
        words = {bool: "True or False", Path: "a path", dict: "a dict", Mapping: "a dict"}
        return words.get(kind, f"{_article(str(kind.__name__))} {kind.__name__}")

    def _bounds(self) -> str:
        ge, gt, le, lt = (self.meta(name) for name in ("ge", "gt", "le", "lt"))
        low = f"from {_number(ge)}" if ge is not None else f"above {_number(gt)}" if gt is not None else ""
        if le is not None:
            high = f"to {_number(le)}" if ge is not None else f"up to {_number(le)}"
        else:
            high = f"below {_number(lt)}" if lt is not None else ""
        comma = "," if low and high and not high.startswith("to ") else ""
        return "".join(f" {word}" for word in (low + comma, high) if word)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and abs(value) > 9_999 else f"{value:g}"


def _article(name: str) -> str:
    return "an" if name[0] in "AEIOUaeiou" else "a"


def _plural(text: str) -> str:
    return re.sub(r"^(?:a )?(text|path|(?:whole )?number)", r"\1s", text)


@functools.cache
def field_hints(kind: type) -> Mapping[str, Hint]:
    """Return the type hint of each field of a configuration."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: Hint(hints[field.name]) for field in dataclasses.fields(kind)}


class Configuration:
    """What every configuration (a frozen dataclass with ``repr=False``) does: check its fields, show what is set."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Write the call that makes it, without the options that have their defaults, and without secrets."""
        config: Any = self
        defaults = {
            field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            for field in dataclasses.fields(config)
            if field.repr
        }
        changed = (f"{name}={getattr(self, name)!r}" for name in defaults if getattr(self, name) != defaults[name])
        return f"{type(self).__name__}({', '.join(changed)})"

    def __init_subclass__(cls) -> None:
        if (init := cls.__dict__.get("__init__")) is None:  # before the dataclass has made it
            return

        @functools.wraps(init)
        def check_names(self: Any, *values: Any, **options: Any) -> None:  # noqa: ANN401
            if problem := find_unknown(options, field_hints(cls), where=cls.__name__, what="option"):
                raise ConfigError(problem)
            init(self, *values, **options)

        setattr(cls, "__init__", check_names)  # noqa: B010 (of any signature)

    def __post_init__(self) -> None:
        check_fields(self)
        self._check()

    def _check(self) -> None:
        """Raise a ConfigError for fields that contradict each other."""


class Conventional(Configuration):
    """A configuration that knows the conventions of other implementations, by name."""

    __slots__ = ()
    conventions: ClassVar[Mapping[str, Mapping[str, Any]]]

    @classmethod
    def compat(cls, name: str, **changes: Any) -> Self:  # noqa: ANN401
        """Return the convention of another implementation, so that its published numbers can be reproduced.

        Args:
            name: a key of ``conventions``.
            **changes: options to set differently, for example ``seed=1`` or ``window_years=10``.

        Raises:
            ConfigError: immediately, if there is no such convention or option, and as the class itself.
        """
        check_value(f"{cls.__name__}.compat", name, Literal[*cls.conventions])
        return cls(**{**cls.conventions[name], **changes})


def check_fields(config: Any, error: type[Exception] = ConfigError) -> None:  # noqa: ANN401
    """Check every field of a frozen dataclass against its type hint. Call it first in ``__post_init__``.

    Bounds are ``Annotated[int, msgspec.Meta(ge=0)]``, choices ``Literal``. True is not a number, and NaN and infinity
    are refused. Where the hint asks for it, a list becomes a tuple, a whole number a float, text a path, and a path
    text. A message never holds the value of a field with ``repr=False`` or ``metadata={"secret": True}``.
    """
    kind: type = type(config)
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), f"{kind.__name__}.{field.name}"
        secret = not field.repr or "secret" in field.metadata
        converted = check_value(name, value, field_hints(kind)[field.name], error, secret=secret)
        if converted is not value:
            object.__setattr__(config, field.name, converted)


def check_value(
    name: str,
    value: Any,  # noqa: ANN401
    hint: Any,  # noqa: ANN401
    error: type[Exception] = ConfigError,
    *,
    secret: bool = False,
) -> Any:  # noqa: ANN401
    """Return one argument in the type of its hint, with the rules and the message of check_fields."""
    hint = hint if isinstance(hint, Hint) else Hint(hint)
    try:
        return convert(value, hint)
    except ValueError as problem:
        got = f"of type {type(value).__name__}" if secret else show_value(value)
        known = (Hint(get_args(hint.kinds[0])[0]) if hint.is_list else hint).choices
        words = [word for word in (value if isinstance(value, list | tuple) else [value]) if isinstance(word, str)]
        meant = next((suggest(word, known) for word in words if word not in known), "")
        raise error(f"{name} is {got}, {problem}{hint.elsewhere(value)}.{meant}") from None


def convert(value: Any, hint: Hint) -> Any:  # noqa: ANN401
    """Return a value in the type that a hint asks for; a ValueError says what is needed, without the value."""
    plain = value
    if isinstance(value, float):
        plain = float(value)  # NumPy has its own number types
    elif isinstance(value, os.PathLike) and hint.kinds == [str]:
        plain = os.fspath(value)
    elif isinstance(value, str | os.PathLike) and hint.is_list and str not in hint.kinds:
        plain = (os.fspath(value),)  # one stands for a list of one
    try:
        if hint.choices and hint.kinds and all(isinstance(kind, type) and str in kind.__bases__ for kind in hint.kinds):
            # One of some words, or an object that stands for another: msgspec knows no such union.
            is_object = isinstance(value, tuple(hint.kinds))
            converted = value if is_object else msgspec.convert(plain, Literal[*hint.choices])
        elif hint.configurations:
            converted = value if isinstance(value, tuple(hint.kinds)) or (value is None and hint.optional) else _WRONG
        else:
            converted = msgspec.convert(plain, hint.whole, dec_hook=_make_path)
    except (msgspec.ValidationError, UnicodeEncodeError):
        converted = _WRONG
    parts: tuple[Any, ...] = converted if isinstance(converted, tuple) else (converted,)
    if converted is _WRONG or any(isinstance(part, float) and not math.isfinite(part) for part in parts):
        is_number = isinstance(plain, float) and not math.isfinite(plain)
        needed = str(hint).replace("a number", "a finite number", 1) if is_number else str(hint)
        raise ValueError(f"needs {needed}")
    if any(isinstance(part, str | Path) and "\0" in str(part) for part in parts):
        raise ValueError("needs text without a NUL character")
    return converted


def _make_path(kind: type, value: Any) -> object:  # noqa: ANN401
    if kind is Path:
        return Path(value)  # refuses what is no path by itself
    if not isinstance(value, kind):
        raise TypeError
    return value


def show_value(value: object) -> str:
    """Write a value for a message, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # more digits than Python prints, or somebody else's object
        return f"of type {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def is_whole(value: object) -> bool:
    """Say whether a value is a whole number; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def require_config(config: object, kind: type[Config], example: str = "", *, name: str = "config") -> Config:
    """Return a configuration; a ConfigError with an ``example`` for any other kind, such as a dict or a path."""
    needed = f"{_article(kind.__name__)} {kind.__name__}, for example {kind.__name__}({example})"
    return check_value(name, config, Annotated[kind, msgspec.Meta(description=needed)])


def checked_config(config: object, kind: type[Config], example: str = "", *, name: str = "config") -> Config:
    """Return a configuration, or the default one when None; errors are as in require_config."""
    return kind() if config is None else require_config(config, kind, example, name=name)


def check_threads(n_threads: object) -> None:
    """Raise a ConfigError unless a number of threads is None (as many as Polars uses) or at least 1."""
    check_value("n_threads", n_threads, PositiveInt | None)


def require_parquet_name(path: Path, what: str) -> None:
    """Raise a ConfigError, which begins with ``what``, for a suffix that promises another kind of file than Parquet."""
    if path.suffix.lower() not in ("", ".parquet", ".pq"):
        raise ConfigError(f"{what} written as Parquet, and {path.name} is named otherwise. Choose {path.stem}.parquet.")


def parse_shard(text: object) -> tuple[int, int]:
    """Read which of how many shares is meant, counted from 1; a ConfigError if there is none."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text) if isinstance(text, str) else None
    shard, n_shards = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= shard <= n_shards:
        raise ConfigError(f"shard is {text!r}, needs K/N with K from 1 to N: 2/8 is the second of eight shares.")
    return shard, n_shards
