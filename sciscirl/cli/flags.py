"""Make the flags of a command from its signature: name, type, default and help of an option stand once, in Python."""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from sciscidata._support.terminal import TextParser
from sciscidata._support.validate import Hint
from sciscirl.errors import SciSciRLError

Command = Callable[..., None]
_YES_NO: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class UsageError(SciSciRLError, ValueError):
    """A command line cannot be read."""

    exit_code: Final = 2


class Option(NamedTuple):
    """One option of a command; ``default`` is ``MISSING`` where it has to be given."""

    name: str
    hint: Hint
    default: Any
    text: str
    group: str
    is_positional: bool

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return bool(self.hint.kinds) and get_origin(self.hint.kinds[0]) in (tuple, list)

    @property
    def one(self) -> Hint:
        """The hint of one of its values."""
        return Hint(get_args(self.hint.kinds[0])[0]) if self.is_list else self.hint

    @property
    def kind(self) -> type:
        """The type of one of its values."""
        return str if self.one.choices else self.one.kinds[0]

    @property
    def flag(self) -> str:
        """How a command line has it."""
        return self.name.upper() if self.is_positional else _flag(self.name)

    def read(self, word: str) -> Any:  # noqa: ANN401
        """Read one of its values."""
        if self.kind is Path:
            from sciscirl.runs.folder import expand_home

            return expand_home(word)
        value = _YES_NO.get(word.lower()) if self.kind is bool else word
        try:
            if value is None or (self.one.choices and value not in self.one.choices):
                raise ValueError
            return self.kind(value)
        except ValueError:
            msg = f"{self.flag} is {word!r}, needs {str(self.one).removesuffix(', or None')}."
            raise UsageError(msg) from None


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# ---------- From a signature to options, and from values back to arguments


class _Modules:
    """Imports what an annotation names, when it is looked up: commands are listed without loading their packages."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return _Modules(f"{self._name}.{name}") if name.islower() else getattr(import_module(self._name), name)


def _hints(owner: Any) -> dict[str, Any]:  # noqa: ANN401
    names = None if isinstance(owner, type) else {"sciscirl": _Modules("sciscirl")}
    return get_type_hints(owner, localns=names, include_extras=True)


def _class_in(hint: Any) -> type | None:  # noqa: ANN401
    """Return the class of options that an annotation names, alone or as ``partial[Class]``."""
    hint = get_args(hint)[0] if get_origin(hint) is partial else hint
    return hint if is_dataclass(hint) and isinstance(hint, type) else None


def list_options(command: Command) -> list[Option]:
    """List the options of a command, positional ones first.

    Its parameters before ``*`` are positional. A class of options among its parameters stands for its fields, all of
    which may be left out of a ``partial[Class]``.

    Example:
        >>> def sleep(place: str, *, hours: int = 8) -> None:
        ...     '''Sleep.
        ...
        ...     Options:
        ...         place: a bed.
        ...         hours: until you wake up.
        ...     '''
        >>> [(option.flag, option.kind.__name__, option.text) for option in list_options(sleep)]
        [('PLACE', 'str', 'a bed'), ('--hours', 'int', 'until you wake up')]
    """
    hints, texts = _hints(command), _read_texts(command)
    found: dict[str, Option] = {}
    of_classes: list[Option] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if kind := _class_in(hints[name]):
            of_classes += _list_fields(kind, None if get_origin(hints[name]) is partial else MISSING)
        else:
            default = MISSING if parameter.default is parameter.empty else parameter.default
            is_positional = parameter.kind is not parameter.KEYWORD_ONLY
            found[name] = Option(name, Hint(hints[name]), default, texts.get(name, ""), "options", is_positional)
    found = {option.name: option for option in of_classes if option.name not in found} | found
    return sorted(found.values(), key=lambda option: (not option.is_positional, option.group != "options"))


def _list_fields(kind: type, missing: object) -> list[Option]:
    hints, options = _hints(kind), list[Option]()
    owners = {name: owner for owner in kind.__mro__ for name in inspect.get_annotations(owner)}
    texts = {name: text for owner in reversed(kind.__mro__) for name, text in _read_texts(owner).items()}
    for field in fields(kind):
        if nested := _class_in(hints[field.name]):
            options += _list_fields(nested, missing)
        else:
            group = (owners[field.name].__doc__ or "").partition(".")[0].lower()
            default = missing if field.default is MISSING else field.default
            options.append(
                Option(field.name, Hint(hints[field.name]), default, texts.get(field.name, ""), group, False)
            )
    return options


def _read_texts(owner: object) -> dict[str, str]:
    """Read what a docstring says of each option, in one line and without its full stop."""
    doc = inspect.cleandoc(owner.__doc__ or "")
    section = re.search(r"^(?:Attributes|Options):\n((?: {4}.*(?:\n|$)|\n)+)", doc, re.MULTILINE)
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {5}.*)*)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(text.split()).rstrip(".").replace("``", "") for name, text in found}


def call(command: Command, values: Mapping[str, Any]) -> None:
    """Call a command with the values of its options, made into its classes of options."""
    arguments: dict[str, Any] = {}
    for name, hint in _hints(command).items():
        if kind := _class_in(hint):
            make = _fill(kind, values)
            arguments[name] = make if get_origin(hint) is partial else make()
        elif name in values:
            arguments[name] = values[name]
    command(**arguments)


def _fill(kind: type, values: Mapping[str, Any]) -> partial[Any]:
    nested = {name: _fill(inner, values)() for name, hint in _hints(kind).items() if (inner := _class_in(hint))}
    return partial(kind, **{field.name: values[field.name] for field in fields(kind) if field.name in values}, **nested)


def read_words(command: Command, words: Sequence[str]) -> dict[str, Any]:
    """Read a command line: options as ``--name value``, ``--name=value`` or ``name=value``.

    Returns:
        The values that are given, by the name of the option.

    Raises:
        UsageError: if an option is unknown or missing, or its value is not one.

    Example:
        >>> def sleep(*, hours: int = 8, is_deep: bool = False) -> None: ...
        >>> read_words(sleep, ["hours=9", "--is-deep"])
        {'hours': 9, 'is_deep': True}
        >>> read_words(sleep, ["--hour", "9"])
        Traceback (most recent call last):
        ...
        sciscirl.cli.flags.UsageError: no option --hour. Did you mean --hours?
    """
    options = list_options(command)
    named = {option.name: option for option in options if not option.is_positional}
    places = [option for option in options if option.is_positional]
    values: dict[str, Any] = {}
    placed: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        is_flag, (name, equals, value) = word.startswith("--"), word.removeprefix("--").partition("=")
        name = name.replace("-", "_") if is_flag else name
        option = named.get(name) if is_flag or equals else None
        negated = named.get(name.removeprefix("no_")) if is_flag and not equals else None
        if option is None and negated is not None and negated.kind is bool:
            values[negated.name] = False
        elif option is None:
            # A path may be a word like name=path: there only a clear slip is one.
            close = difflib.get_close_matches(name, named, 1, 0.6 if is_flag or not places else 0.75)
            guess = f" Did you mean {_flag(close[0])}?" if close else ""
            if is_flag or (equals and (not places or (guess and not Path(value).exists()))):
                msg = f"no option {_flag(name)}.{guess}"
                raise UsageError(msg)
            placed.append(word)
        else:
            given = value.split(",") if equals and option.is_list and option.kind is not Path else [value] * len(equals)
            given = ["True"] if option.kind is bool and not equals else given
            while not equals and option.kind is not bool and rest and (option.is_list or not given):
                if rest[0].startswith("--") or (given and rest[0].partition("=")[0] in named):
                    break
                given.append(rest.pop(0))
            if not given:
                msg = f"{option.flag} needs a value."
                raise UsageError(msg)
            read = tuple(option.read(one) for one in given)
            values[name] = read if option.is_list else read[0]
    for option in places:
        taken = placed if option.is_list else placed[:1]
        placed = placed[len(taken) :]
        values |= {option.name: [option.read(word) for word in taken]} if option.is_list and taken else {}
        values |= {option.name: option.read(taken[0])} if taken and not option.is_list else {}
    if placed:
        msg = f"no option takes {placed[0]!r}."
        raise UsageError(msg)
    if missing := [option.flag for option in options if option.default is MISSING and option.name not in values]:
        msg = f"{missing[0]} is missing."
        raise UsageError(msg)
    return values


# ---------- From options to help, completion and messages


def make_parser(command: Command, parser: argparse.ArgumentParser, shown: Sequence[str] = ()) -> None:
    """Add the options of a command to a parser, which shows the options ``shown``, or all in their groups."""
    options = list_options(command)
    if shown:
        options.sort(key=lambda option: shown.index(option.name) if option.name in shown else len(shown))
    groups: dict[str, Any] = {}
    for option in options:
        if shown and option.name not in shown and not option.is_positional:
            continue
        title = "options" if shown else option.group
        if title not in groups and not option.is_positional:
            groups[title] = parser.add_argument_group(title)
        choices, metavar = option.one.choices, {int: "N", float: "X", Path: "PATH"}.get(option.kind)
        if option.kind is bool:
            details = {"action": argparse.BooleanOptionalAction if option.default is not False else "store_true"}
        elif option.is_positional:
            details: dict[str, Any] = {"metavar": option.flag, "nargs": "+" if option.is_list else None}
        else:
            metavar = option.one.meta("title") or metavar or option.name.rpartition("_")[2].upper()
            details = {"choices": choices} if choices else {"metavar": metavar}
            details |= {"nargs": "+"} if option.is_list else {}
        name = option.name if option.is_positional else option.flag
        action = groups.get(title, parser).add_argument(name, help=_help_of(option, options), **details)
        if option.kind is Path:
            action.complete = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}  # shtab.FILE


def _help_of(option: Option, options: Sequence[Option]) -> str:
    default: Any = option.default
    said = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    # A folder of this user says less than the text, which says whose it is.
    is_own = isinstance(default, Path) and default.is_absolute()
    has_none = default is None or default is MISSING or isinstance(default, bool) or is_own or not said
    return name_flags(option.text if has_none else f"{option.text} [{said}]", options).replace("%", "%%")


def render_help(command: Command, prog: str, shown: Sequence[str] = ()) -> str:
    """Write the help of a command, with the options ``shown``, or all."""
    doc, options = inspect.getdoc(command) or "", list_options(command)
    places = "".join(f" {option.flag}{' ...' if option.is_list else ''}" for option in options if option.is_positional)
    text, _, example = doc.partition("\n\nExample:\n")
    n_more = sum(not option.is_positional and option.name not in shown for option in options) if shown else 0
    end = [f"example:\n{example}"] if example else []
    end += [f"{n_more} more options: {prog} --help-all"] if n_more else []
    parser = TextParser(
        usage=f"{prog}{places} [--option value | option=value ...]",
        description=text.partition("\n\nOptions:")[0],
        epilog="\n\n".join(end),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    make_parser(command, parser, shown)
    return parser.format_help().rstrip("\n")


def name_flags(message: str, options: Iterable[Option]) -> str:
    """Write the Python names of options in a message as flags.

    Example:
        >>> def sleep(*, max_hours: int = 8, is_deep: bool = False, place: str = "bed") -> None: ...
        >>> options = list_options(sleep)
        >>> name_flags("max_hours is 0. Leave Night.place out, or choose max_hours=9 is_deep=True.", options)
        '--max-hours is 0. Leave --place out, or choose --max-hours 9 --is-deep.'
    """
    flags = {option.name: option.flag for option in options}
    names = "|".join(sorted(flags, key=len, reverse=True)) or "(?!)"

    def with_value(found: re.Match[str]) -> str:
        flag, value = flags[found[1]], found[2].strip("'\"")
        if value in ("True", "False"):
            return flag if value == "True" else f"--no-{flag[2:]}"
        return f"{flag} {value}".rstrip()

    message = re.sub(rf"(?<![\w/.-])(?:[A-Z]\w*\.)?({names})=(\S*?)(?=[,;.:)]*(?:\s|$))", with_value, message)
    # Alone, a name of one word may be a word of the message.
    bare = "|".join(name for name in names.split("|") if "_" in name) or "(?!)"
    alone = rf"\b[A-Z]\w*\.({names})\b|(?<![\w/.'\"-])({bare})(?![\w/'\"(])|^({names})(?= is )"
    return re.sub(alone, lambda found: flags[found[1] or found[2] or found[3]], message)
