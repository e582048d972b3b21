"""Make the options of a command from its signature: each is written once, in Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

from sciscidata.options.checks import Hint, convert
from sciscidata.options.parser import REQUIRED, Option, OptionParser, read_texts
from sciscidata.options.parser import list_options as list_fields

Command = Callable[..., None]
_YES_NO: Final = {"true": "--", "1": "--", "yes": "--", "false": "--no-", "0": "--no-", "no": "--no-"}


class _Modules:
    """Imports what an annotation names, when it is looked up: commands are listed without loading their packages."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return _Modules(f"{self._name}.{name}") if name.islower() else getattr(import_module(self._name), name)


def _hints(command: Command) -> dict[str, Any]:
    return get_type_hints(command, localns={"sciscirl": _Modules("sciscirl")}, include_extras=True)


def _class_in(hint: Any) -> type | None:  # noqa: ANN401
    """Return the class of options that an annotation names, alone or as ``partial[Class]``."""
    hint = get_args(hint)[0] if get_origin(hint) is partial else hint
    return hint if is_dataclass(hint) and isinstance(hint, type) else None


def _flag(section: str, name: str, hint: Hint) -> str:
    return f"--{name.replace('_', '-')}"


def list_options(command: Command) -> list[Option]:
    """List the options of a command; parameters before ``*`` have no flag, and a class stands for its fields.

    All of them may be left out of a ``partial[Class]``. Two classes may share a field.
    """
    hints, texts = _hints(command), read_texts(command.__doc__)
    found: dict[str, Option] = {}
    of_classes: list[Option] = []
    for name, parameter in inspect.signature(command).parameters.items():
        hint = Hint(hints[name])
        if kind := _class_in(hints[name]):
            missing = None if get_origin(hints[name]) is partial else REQUIRED
            of_classes += [
                replace(one, default=missing) if one.default is MISSING else one for one in _list_fields(kind)
            ]
        else:
            flag = _flag("", name, hint) if parameter.kind is parameter.KEYWORD_ONLY else ""
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            found[name] = Option("", "", name, flag, hint, default, texts.get(name, ""))
    return [*found.values(), *(option for option in of_classes if option.name not in found)]


@cache
def _list_fields(kind: type) -> Sequence[Option]:
    """List the options of a class, each in the section of its first owner."""
    found: dict[str, Option] = {}
    for owner in [one for one in reversed(kind.__mro__) if "__dataclass_fields__" in vars(one)]:
        title = (owner.__doc__ or "").partition(".")[0]
        for option in list_fields(owner, title, _flag):
            known = found.get(option.name, option)
            if isinstance(option.default, Path) and option.default.is_absolute():  # of this user: the text says more
                option = replace(option, default=None)
            found[option.name] = replace(
                option, owner=kind.__name__, section=known.section, text=option.text or known.text
            )
    return [*found.values()]


def call(command: Command, values: Mapping[str, Any]) -> None:
    """Call a command with the values of its options, made into its classes of options."""
    arguments: dict[str, Any] = {}
    for name, hint in _hints(command).items():
        if kind := _class_in(hint):
            make = partial(kind, **{one.name: values[one.name] for one in fields(kind) if one.name in values})
            arguments[name] = make if get_origin(hint) is partial else make()
        elif name in values:
            arguments[name] = convert(values[name], Hint(hint))
    command(**arguments)


def make_parser(command: Command, prog: str, shown: Sequence[str] = ()) -> OptionParser:
    """Make the parser of a command, whose short help has the options named ``shown``, or all."""
    text, _, example = inspect.cleandoc(command.__doc__ or "").partition("\n\nExample:\n")
    about, example = text.partition("\n\nArgs:")[0], example.strip()
    parser = OptionParser(prog=prog, description=about, example=example)
    add_options(parser, command, shown)
    return parser


def add_options(parser: OptionParser, command: Command, shown: Sequence[str] = ()) -> None:
    """Add the options of a command to a parser."""
    options = list_options(command)
    for option in options:
        if not option.flag:
            details: dict[str, Any] = {"metavar": option.name.upper(), "help": option.full_help}
            details |= {"nargs": "+"} if option.hint.is_list else {}
            details |= {"choices": option.hint.choices} if option.hint.choices else {}
            parser.add_argument(option.key, type=option.prepare, **details)
    flags = {option.name: option for option in options if option.flag}
    main = [flags[name].flag for name in shown or flags]
    parser.add_options(
        [*flags.values()], main, {option.section: option.section or "options" for option in flags.values()}
    )


def read_words(parser: OptionParser, command: Command, words: Sequence[str], first: str = "") -> dict[str, Any]:
    """Read values that are given as ``--name value`` or ``name=value``; ``first`` may be meant by a word alone."""
    found, strange = parser.parse_known_args([*_as_flags(words, list_options(command))])
    if strange:
        near = f" Did you mean {first}={strange[0]}?" if first else ""
        parser.error(f"{strange[0]!r} is no option.{near}")
    return {key.rpartition(".")[2]: value for key, value in vars(found).items()}


def _as_flags(words: Sequence[str], options: Sequence[Option]) -> Iterator[str]:
    """Write options as flags.

    Example:
        >>> def sleep(*, hours: int = 8, is_deep: bool = False, places: tuple[str, ...] = ()) -> None: ...
        >>> [*_as_flags(["hours=9", "--is_deep=no", "places=a,b", "hour=9"], list_options(sleep))]
        ['--hours=9', '--no-is-deep', '--places', 'a', 'b', '--hour=9']
    """
    named = {option.name: option for option in options if option.flag}
    has_places, is_value = any(not option.flag for option in options), False
    for word in words:
        is_flag, (name, equals, value) = word.startswith("--"), word.removeprefix("--").partition("=")
        name = name.replace("-", "_") if is_flag else name
        option = named.get(name) if (is_flag or equals) and not (is_value and not is_flag) else None
        is_value = False
        if option is None:
            # Where paths may stand, name=path is one, but for a clear slip.
            is_slip = not has_places or (get_close_matches(name, named, 1, 0.75) and not Path(value).exists())
            is_option = is_flag or (equals and name.isidentifier() and is_slip)
            yield f"{_flag('', name, Hint(str))}{equals}{value}" if is_option else word
        elif bool in option.hint.kinds and value.lower() in _YES_NO:
            yield f"{_YES_NO[value.lower()]}{option.flag[2:]}"
        elif option.hint.is_list and equals:
            yield from (option.flag, *value.split(","))
        else:
            is_value = not equals and bool not in option.hint.kinds and not option.hint.is_list
            yield f"{option.flag}={value}" if equals else option.flag
