"""A program is a set of functions: options come from their signatures, help from their docstrings.

A parameter before ``*`` has its place before all flags, and one after it has a flag. A class of options stands for its
fields; ``partial[Class]`` too, and may leave some out. ``Annotated[..., part]`` stands for what a ``Part`` lists, such
as ``arguments`` of another function. Hints are read when they are needed, because what they name takes long to load.

A docstring says what the command does, and has the sections ``Args``, ``Shown`` (the flags of its short help; without
it, all) and ``Example``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from sciscidata.errors import ConfigError, SciSciDataError
from sciscidata.options.did_you_mean import suggest
from sciscidata.options.parser import (
    ARGUMENTS,
    REQUIRED,
    Option,
    OptionParser,
    list_fields,
    make_flag,
    read_texts,
    translate,
)
from sciscidata.terminal.messages import about_failure, printable, tell

Command = Callable[..., None]
Values = Mapping[str, Any]
#: Settings that were read from a file, as section and name.
InFile = set[tuple[str, str]]
#: Headings that come first in the full help.
GENERAL: Final = "general"
_HERE: Final = "this command only"


class Part(NamedTuple):
    """What a parameter stands for.

    ``list_options`` lists options. ``make`` makes the argument of the values that were typed, by key, and notes which
    settings it has read from a file.
    """

    list_options: Callable[[], list[Option]]
    make: Callable[[Values, InFile], Any]


def arguments(function: Callable[..., Any], *names: str) -> Part:
    """Stand for keyword arguments of a function, which is handed over with those that were typed: ``partial[...]``.

    Their texts are in the function's docstring. A list has a flag in the singular.
    """
    options = [
        dataclasses.replace(option, flag=option.flag.removesuffix("s") if option.hint.is_list else option.flag)
        for option in _list_parameters(function)
        if option.name in names
    ]

    def make(values: Values, _: InFile) -> Any:  # noqa: ANN401
        return partial(function, **{one.name: _check(one, values) for one in options if one.name in values})

    return Part(lambda: options, make)


def _check(option: Option, values: Values) -> Any:  # noqa: ANN401
    from sciscidata.options.checks import check_value

    value = values[option.name]
    if len(option.hint.kinds) > 1:  # text or a path: the function takes both
        return value
    try:
        return check_value(option.flag, value, option.hint)
    except ConfigError as error:
        raise ConfigError(option.name_none(str(error))) from None


def _value(option: Option) -> Part:
    """Stand for one value."""

    def make(values: Values, _: InFile) -> Any:  # noqa: ANN401
        return _check(option, values)

    return Part(lambda: [option], make)


def _fields(kind: Any, *, is_partial: bool) -> Part:  # noqa: ANN401
    """Stand for the fields of a class of options, each below the heading of its first owner."""

    def list_options() -> list[Option]:
        listed: dict[str, Option] = {}
        for owner in [one for one in reversed(kind.__mro__) if "__dataclass_fields__" in vars(one)]:
            title = (owner.__doc__ or "").partition(".")[0]
            for option in list_fields(owner, ARGUMENTS, lambda _, name, __: make_flag(name), title):
                first, default = listed.get(option.name, option), option.default
                if default is dataclasses.MISSING:
                    default = None if is_partial else REQUIRED
                elif isinstance(default, Path) and default.is_absolute():  # of this user: the text says more
                    default = None
                listed[option.name] = dataclasses.replace(
                    first, owner=kind.__name__, hint=option.hint, default=default, text=option.text or first.text
                )
        return [*listed.values()]

    def make(values: Values, _: InFile) -> Any:  # noqa: ANN401
        made = partial(kind, **{one.name: values[one.name] for one in dataclasses.fields(kind) if one.name in values})
        return made if is_partial else made()

    return Part(list_options, make)


class _Modules:
    """Imports what a hint names when it is looked up."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        try:
            return _Modules(import_module(f"{self._name}.{name}").__name__)
        except ModuleNotFoundError as error:
            if error.name != f"{self._name}.{name}":
                raise
            return getattr(import_module(self._name), name)


def _list_parameters(function: Callable[..., Any]) -> list[Option]:
    """List the parameters of a function as options; those before ``*`` have a place instead of a flag."""
    from sciscidata.options.checks import Hint

    packages = {name: _Modules(name) for name in ("sciscidata", function.__module__.partition(".")[0])}
    hints, texts = get_type_hints(function, localns=packages, include_extras=True), read_texts(function.__doc__)
    options: list[Option] = []
    for name, one in inspect.signature(function).parameters.items():
        flag = make_flag(name) if one.kind is one.KEYWORD_ONLY else name.upper()
        default, text = REQUIRED if one.default is one.empty else one.default, texts.get(name, "")
        options.append(Option(function.__name__, ARGUMENTS, name, flag, Hint(hints[name]), default, text, _HERE))
    return options


def _list_parts(command: Command) -> list[tuple[Option, Part]]:
    """List the parameters of a command, and what each stands for."""
    parts: list[tuple[Option, Part]] = []
    for option in _list_parameters(command):
        hint = option.hint.whole
        kind = get_args(hint)[0] if get_origin(hint) is partial else hint
        own = [one for one in get_args(hint) if isinstance(one, Part)]
        is_class = dataclasses.is_dataclass(kind)
        part = own[0] if own else _fields(kind, is_partial=kind is not hint) if is_class else _value(option)
        parts.append((option, part))
    return parts


def list_options(command: Command) -> list[Option]:
    """List the options of a command in the order of its full help. Two classes may share a name: the first counts."""
    options = [option for _, part in _list_parts(command) for option in part.list_options()]
    return sorted(options, key=lambda option: (option.title != GENERAL, option.title != _HERE))


def read_sections(command: Command) -> dict[str, str]:
    """Read the sections of a command's docstring by name; "" is what it says first."""
    parts = re.split(r"^(Args|Shown|Example):\n", inspect.cleandoc(command.__doc__ or ""), flags=re.MULTILINE)
    return {name: inspect.cleandoc(text) for name, text in zip(["", *parts[1::2]], parts[::2], strict=True)}


def summarise(command: Command) -> str:
    """Return the first sentence of a command's docstring."""
    return re.split(r"(?<=\.)\s", read_sections(command)[""])[0]


def make_parser(command: Command, prog: str) -> OptionParser:
    """Make the parser of a command."""
    return OptionParser(prog, description=read_sections(command)[""], **_describe(command))


def _describe(command: Command) -> dict[str, Any]:
    said = read_sections(command)
    return {
        "options": list_options(command),
        "shown": said.get("Shown", "").split(),
        "example": said.get("Example", ""),
    }


def call(command: Command, values: Values, in_file: InFile) -> None:
    """Call a command with the values that were typed."""
    parts = [(one.name, part) for one, part in _list_parts(command) if one.default is REQUIRED or one.key in values]
    command(**{name: part.make(values, in_file) for name, part in parts})


class Program:
    """A program with commands by name, and ``completion``; ``sweep repro`` is one of two words.

    Args:
        name: what is typed.
        about: what it does, in a sentence.
        version: of the package.
        commands: a function for each name.
        takes_pairs: also read ``name=value`` as ``--name value``.
    """

    def __init__(
        self, name: str, about: str, version: str, commands: Mapping[str, Command], *, takes_pairs: bool = False
    ) -> None:
        self.name, self.about, self.version = name, about, version
        self.takes_pairs = takes_pairs

        def completion(shell: Literal["bash", "zsh", "tcsh"]) -> None:
            """Print a script that completes commands and options in a shell.

            Args:
                shell: bash, zsh or tcsh.

            Example:
                eval "$({} completion bash)"
            """
            self.complete(shell)

        completion.__doc__ = inspect.cleandoc(completion.__doc__ or "").format(name)
        self.commands = {**commands, "completion": completion}

    def run(self, words: Sequence[str]) -> int:
        """Run a command by its words. Print an error in one line. Return the exit status."""
        try:
            self.act(words)
        except SciSciDataError as error:
            tell(f"error: {error}")
            return getattr(error, "exit_code", 1)
        except (OSError, MemoryError, RuntimeError, ImportError) as error:
            # A folder that may not be entered fails at the first look into it, wherever that is.
            problem = self.about_failure(error)
            if problem is None:
                raise
            tell(f"error: {problem}")
            return 1
        return 0

    def act(self, words: Sequence[str]) -> None:
        """Run a command by its words. Its errors name flags. SystemExit if the words cannot be read."""
        if not words or words[0] in ("-h", "--help", "--version"):
            text = f"{self.name} {self.version}" if "--version" in words else self.render()
            print(printable(text, lines=True))  # noqa: T201
            return
        name, rest = self.find(words)
        in_file: InFile = set()
        try:
            self.call(name, rest, in_file)
        except SciSciDataError as error:
            error.args = (self.name_flags(name, str(error), in_file),)
            raise

    def call(self, name: str, words: Sequence[str], in_file: InFile) -> None:
        """Call the command of that name with words as they are typed."""
        call(self.commands[name], self.read(name, words), in_file)

    def read(self, name: str, words: Sequence[str]) -> dict[str, Any]:
        """Read the values of a command that words give."""
        return make_parser(self.commands[name], f"{self.name} {name}").read(words, takes_pairs=self.takes_pairs)

    def name_flags(self, name: str, message: str, in_file: InFile) -> str:
        """Name the flags of a command where a message names options of Python."""
        return translate(message, list_options(self.commands[name]), in_file)

    def about_failure(self, error: Exception) -> str | None:
        """Say in one line what the system refused; None for an error that has to be mended here."""
        return about_failure(error)

    def find(self, words: Sequence[str]) -> tuple[str, Sequence[str]]:
        """Return the name of the command that the first words name, and the other words."""
        first = words[0]
        longer = [name for name in self.commands if name.startswith(f"{first} ")]
        is_longer = bool(longer) and not (first in self.commands and (not words[1:] or re.search("^-|=", words[1])))
        name = " ".join(words[: 1 + is_longer])
        if name not in self.commands:
            known = ", ".join(longer or self.commands)
            near = suggest(name, longer or self.commands) or f" Choose one of {known}."
            is_flag = first.startswith("-")  # not repeated, because it may be a key
            OptionParser(self.name).error(
                f"the first word needs to be one of {known}; flags come after it."
                if is_flag
                else f"there is no command {name!r}.{near}"
            )
        return name, words[1 + is_longer :]

    def render(self) -> str:
        """List every command in a line."""
        pair = " | option=value" * self.takes_pairs
        return "\n".join(
            [
                f"usage: {self.name} COMMAND [--option value{pair} ...]",
                "",
                self.about,
                "",
                *(f"  {name:17}  {summarise(command)}" for name, command in self.commands.items()),
                "",
                f"{self.name} COMMAND --help shows the main options and an example, --help-all all options.",
            ]
        )

    def complete(self, shell: str) -> None:
        """Print a script that completes commands and options in a shell."""
        import shtab

        root = OptionParser(self.name)
        root.add_argument("--version", action="store_true", help="print the version")
        places = {"": root.add_subparsers()}
        for name, command in self.commands.items():
            group, _, last = name.rpartition(" ")
            # shtab leaves out commands without help.
            parser = places[group].add_parser(last, help=summarise(command), **_describe(command))
            if any(other.startswith(f"{name} ") for other in self.commands):
                places[name] = parser.add_subparsers()
        sys.stdout.write(shtab.complete(root, shell) + "\n")
