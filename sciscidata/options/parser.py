"""Options of a command, made from the fields of configurations: flags, help and defaults, and what errors call them.

Nothing is typed twice. A flag has the name of the field, and its hint for type and bounds. Its help is the field's line
in the docstring of the class.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args, get_origin

from sciscidata.options.did_you_mean import Renamed, find_close, suggest
from sciscidata.terminal.messages import printable

if TYPE_CHECKING:
    from sciscidata.options.checks import Hint

#: The default of an option without which a command cannot run.
REQUIRED: Final = object()
_OWN_FLAGS: Final = ("--config", "--help", "--help-all")
#: The section of options that are arguments of a function, which no settings file has.
ARGUMENTS: Final = "arguments"
#: The words for None, where a number may be None: TOML and a command line have no null.
_NO_LIMIT: Final = ("all", "none")
_SENTENCE_END: Final = re.compile(r"(?<=[^.])\.\s+(?=[A-Z\"`:])|;\s")
_VALUE: Final = r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\.\.\.|(?:[\w+-]|\.(?=\w))+"


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a command: ``owner`` is the class of the field, or the function of the argument."""

    owner: str
    section: str
    name: str
    flag: str
    hint: Hint
    default: Any
    text: str

    @property
    def key(self) -> str:
        """Name of its value among the parsed arguments."""
        return f"{self.section}.{self.name}"

    @property
    def is_number(self) -> bool:
        """Whether it is a single number."""
        return bool(self.hint.kinds) and self.hint.kinds[0] in (int, float)

    @property
    def none_words(self) -> str:
        """What errors say instead of ``or None``: nothing where None is the default, which needs no word."""
        return f", or {_NO_LIMIT[0]}" if self.is_number and self.default is not None else ""

    @property
    def _item(self) -> Hint | None:
        """What one word of several has to be, None where there is one word only."""
        kind = self.hint.kinds[0] if self.hint.kinds else None
        return type(self.hint)(get_args(kind)[0]) if get_origin(kind) is tuple else None

    @property
    def default_text(self) -> str:
        """The default as the help shows it; what the docstring says about None, where that is the default."""
        if self.default is None or self.default == ():
            found = re.search(r"\b(?:None|[Ee]mpty|None,): ([^.;(]+)", self.text)
            return plain(found[1]).strip() if found else ""
        if isinstance(self.default, bool):
            return "yes" if self.default else "no"
        if isinstance(self.default, tuple):
            return " ".join(map(str, self.default))
        if self.default is REQUIRED:
            return "required"
        return "" if self.default is dataclasses.MISSING else str(self.default)

    @property
    def help(self) -> str:
        """The first sentence of its text, and the default."""
        return self._describe(_SENTENCE_END.split(self.text, maxsplit=1)[0], self.default_text)

    @property
    def full_help(self) -> str:
        """Its whole text, and the default where the text does not say it."""
        return self._describe(self.text, "" if self.default is None else self.default_text)

    def _describe(self, text: str, default: str) -> str:
        return plain(text).rstrip(".") + (f" [{default}]" if default else "")

    def prepare(self, value: Any) -> Any:  # noqa: ANN401
        """Turn a word for None into None, and ``~`` into the user's home; anything else is for check_fields."""
        if isinstance(value, list | tuple) and self._item is not None and self._item.optional:
            return [None if one in _NO_LIMIT else one for one in value]
        if isinstance(value, str):
            if self.hint.optional and self.is_number and value in _NO_LIMIT:
                return None
            if Path in self.hint.kinds or self.hint.meta("title") in ("FOLDER", "FILE"):
                from sciscidata.storage import expand_home  # with what follows, too slow for a first --help

                return expand_home(value)
        return value

    def read(self, text: str) -> Any:  # noqa: ANN401
        """Read one word of a command line; an ArgumentTypeError if it is not what the hint asks for."""
        kind = self.hint.kinds[0] if self.hint.kinds else str
        if text in self.hint.choices:
            return text
        if self._item is not None:
            kind = [*self._item.kinds, str][0]
            if self._item.optional and text in _NO_LIMIT:
                return None
        if kind not in (int, float) or self.prepare(text) is None:
            return self.prepare(text)
        try:
            return kind(text)
        except ValueError:
            if self._item is not None and str in self._item.kinds:
                return text
            words = f"{self.hint}".replace(", or None", self.none_words)
            raise argparse.ArgumentTypeError(f"is {text!r}, needs {words}") from None

    def add_to(self, group: Any) -> argparse.Action:  # noqa: ANN401 (argparse's own type is private)
        """Add its flag to a parser or to a group of one."""
        kind = self.hint.kinds[0] if self.hint.kinds else str
        details: dict[str, Any] = {"type": self.read, "metavar": self._metavar(kind)}
        if kind is bool:
            details = {"action": argparse.BooleanOptionalAction}
        elif self.hint.choices and not self.is_number:
            details = {"choices": [*self.hint.choices]}
        elif self.hint.is_list:
            details["nargs"] = "+" if self.hint.meta("min_length") else "*"
        elif get_origin(kind) is tuple:
            details["nargs"] = len(get_args(kind))
        elif get_origin(kind) is not None:  # a mapping
            details |= {"nargs": "+", "action": _StorePairs, "type": str}
        required = {"required": True} if self.default is REQUIRED else {}
        help_ = self.help.replace("%", "%%")
        return group.add_argument(
            self.flag, dest=self.key, default=argparse.SUPPRESS, help=help_, **details, **required
        )

    def _metavar(self, kind: Any) -> str:  # noqa: ANN401
        titles = [self.hint.meta("title"), *(type(self.hint)(part).meta("title") for part in get_args(kind))]
        name = next((title for title in titles if title), None)
        if name is None:
            if get_origin(kind) not in (None, tuple):
                return "KEY=VALUE"
            name = "PATH" if Path in self.hint.kinds else "N" if kind in (int, float) or get_args(kind) else "TEXT"
        return f"{name}|{_NO_LIMIT[0]}" if self.is_number and self.hint.optional and self.default is not None else name


class _StorePairs(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:  # noqa: ANN401
        pairs = [value.partition("=") for value in values]
        if not all(equals for _, equals, _ in pairs):  # without the value: it may be a password
            raise argparse.ArgumentError(self, "needs KEY=VALUE")
        setattr(namespace, self.dest, {key: value for key, _, value in pairs})


def plain(text: str) -> str:
    """Return a docstring's text without its markup."""
    return re.sub(r"``(?:\"([^`]*)\"|([^`]*))``", lambda found: found[1] or found[2], text)


def read_texts(docstring: str | None) -> dict[str, str]:
    r"""Return what the ``Attributes:`` or ``Args:`` section of a docstring says about each name.

    Example:
        >>> read_texts("Go.\n\n    Args:\n        n, m: how many\n            times.\n\n    Returns:\n        It.")
        {'n': 'how many times.', 'm': 'how many times.'}
    """
    by_name = re.search(r"^(?:Attributes|Args):\n(.*?)(?:\n\s*\n|\Z)", inspect.cleandoc(docstring or ""), re.S | re.M)
    texts: dict[str, str] = {}
    for entry in re.split(r"^ {4}(?=\S)", by_name[1] if by_name else "", flags=re.M)[1:]:
        names, _, text = entry.partition(":")
        texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def list_options(kind: type, section: str, name_flag: Callable[[str, str, Hint], str]) -> list[Option]:
    """List the options of a configuration class by field, without nested configurations and ``python_only`` fields."""
    from sciscidata.options.checks import field_hints

    texts, hints = read_texts(kind.__doc__), field_hints(kind)
    options: list[Option] = []
    for field in dataclasses.fields(kind):
        if field.metadata.get("python_only"):
            continue
        hint, default = hints[field.name], field.default
        if field.default_factory is not dataclasses.MISSING:
            default = dataclasses.MISSING if hint.configurations else field.default_factory()
        if not hint.configurations:
            flag = name_flag(section, field.name, hint)
            text = texts.get(field.name, "")
            options.append(Option(kind.__name__, section, field.name, flag, hint, default, text))
    return options


def translate(message: str, options: Iterable[Option], in_file: Collection[tuple[str, str]] = ()) -> str:
    """Name the flags of a command where a message names the options of Python.

    ``Class.option`` and ``Class.option=True`` become ``--flag``, ``=False`` becomes ``--no-flag`` and ``=value``
    becomes ``--flag value``; so does ``option=value`` alone. Options in ``in_file`` (section and name) keep their names
    there.
    """
    known = {f"{option.owner}.{option.name}": option for option in options}
    names = [option.name for option in known.values()]
    known |= {option.name: option for option in known.values() if names.count(option.name) == 1}
    none: list[str] = []  # what None is called, for the first option of the message

    def name(found: re.Match[str]) -> str:
        option, value = known.get(found[1]), found[2]
        if option is None or (value is None and "." not in found[1]):
            return found[0]
        none.append(option.none_words)
        words = " ".join(re.findall(r"[^\s'\"(),]+", value or ""))
        if (option.section, option.name) in in_file:
            where = f"[{option.section}] {option.name}" if option.section else option.name
            return f"{where} = {value.lower() if value in ('True', 'False') else value}" if value else where
        if words == "False" and bool in option.hint.kinds:
            return f"--no-{option.flag[2:]}"
        if words == "None" and option.is_number:
            words = _NO_LIMIT[0]
        return option.flag if words in ("", "True", "...", "None") else f"{option.flag} {words}"

    message = re.sub(rf"(?<![\w.-])([A-Z]\w+\.\w+|[a-z]\w+(?==))(?:=({_VALUE}))?", name, message)
    message = re.sub(r"(--[\w-]+ [\w.-]+), (?=--[\w-]+ \w)", r"\1 ", message)  # as they are typed
    if none:
        message = message.replace(", or None", none[0])
    classes = {
        option.owner: _stand_for(option, known) for option in known.values() if option.section not in ("", ARGUMENTS)
    }
    pattern = rf"(?<![\w.])({'|'.join(classes)})(?![\w(]|\.\w)"
    return re.sub(pattern, lambda found: classes[found[1]], message) if classes else message


def _stand_for(option: Option, known: Mapping[str, Option]) -> str:
    """Say what stands for the class of an option: the flag that a source needs, or a section."""
    needed = [one.flag for one in known.values() if one.owner == option.owner and one.default is dataclasses.MISSING]
    source = known.get("BuildConfig.source")
    is_source = source is not None and option.section in source.hint.choices
    return needed[0] if needed else f"--source {option.section}" if is_source else f"[{option.section}]"


class HelpFormatter(argparse.HelpFormatter):
    """Writes ``--[no-]flag`` for a switch, and keeps the lines of an example."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, argparse.BooleanOptionalAction):
            return f"--[no-]{action.option_strings[0][2:]}"
        return super()._format_action_invocation(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("  ") else super()._fill_text(text, width, indent)


class OptionParser(argparse.ArgumentParser):
    """A parser with ``--help`` for what matters, and ``--help-all``; ``renamed`` maps names of other programs."""

    def __init__(self, *, example: str = "", renamed: Renamed | None = None, **details: Any) -> None:  # noqa: ANN401
        super().__init__(formatter_class=HelpFormatter, allow_abbrev=False, **details)
        self._example, self._renamed = example, renamed or {}
        self._shown: dict[str, list[str]] = {}
        self._full: dict[str, str] = {}
        self._titles: Mapping[str, str] = {}

    def add_options(self, options: Sequence[Option], main: Sequence[str], titles: Mapping[str, str]) -> None:
        """Add options. ``--help`` shows the flags ``main`` in their order, ``--help-all`` all under ``titles``."""
        self.usage, self._titles = "%(prog)s [options]", titles
        for option in options:
            option.add_to(self)
            self._full[option.key] = option.full_help
            self._shown.setdefault(option.section, []).append(option.flag)
        self._main = main
        if any(option.flag not in main for option in options):
            sections = "section of the settings file" if "--config" in self._option_string_actions else "section"
            count = f"show all {len(options)} options, by {sections}"
            self.add_argument("--help-all", action=_HelpAll, nargs=0, default=argparse.SUPPRESS, help=count)

    def format_help(self) -> str:
        """Format the short help."""
        if not self._titles:
            return super().format_help()
        by_flag = self._option_string_actions
        return self._format([("options", [by_flag[flag] for flag in self._main] + self._general(*_OWN_FLAGS))])

    def format_full_help(self) -> str:
        """Format the help with every option."""
        sections: list[tuple[str, list[argparse.Action]]] = []
        for section, title in self._titles.items():
            actions = [self._option_string_actions[flag] for flag in self._shown.get(section, ())]
            for action in actions:
                action.help = self._full[action.dest].replace("%", "%%")
            sections.append((title, actions if section else actions + self._general(*_OWN_FLAGS)))
        return self._format(sections)

    def _general(self, *flags: str) -> list[argparse.Action]:
        return [self._option_string_actions[flag] for flag in flags if flag in self._option_string_actions]

    def _format(self, sections: Sequence[tuple[str, Sequence[argparse.Action]]]) -> str:
        formatter = self._get_formatter()
        positionals = [action for action in self._actions if not action.option_strings]
        usage = " ".join([str(self.usage), *(str(action.metavar) for action in positionals)])
        formatter.add_usage(usage, [], [])
        formatter.add_text(self.description)
        formatter.add_text(self._example and f"  {self._example}")
        for title, actions in (("arguments", positionals), *sections):
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text("Defaults stand in brackets.")
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Print one line, and exit with 2."""
        message = re.sub(r"^argument ([\w-]+)\S*: ", r"\1 ", message)
        message = re.sub(r"^the following arguments are required: (.*)", r"\1 is required", message)
        # The value of a flag that takes none may be that of the flag before it, and a key.
        message = re.sub(r"(?:ignored explicit argument|expected) .*", _needed, message, flags=re.S)
        self.exit(2, f"error: {message.rstrip('.?')}{'?' if message.endswith('?') else '.'} See {self.prog} --help.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        choices = None if action.choices is None else [*map(str, action.choices)]
        if choices is not None and value not in choices:
            near = suggest(str(value), choices)
            raise argparse.ArgumentError(action, f"is {value!r}, needs one of {', '.join(choices)}.{near}")

    def _print_message(self, message: str, file: Any = None) -> None:  # noqa: ANN401
        super()._print_message(printable(message, lines=True), file)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] (overloads)
        self,
        args: Any = None,  # noqa: ANN401
        namespace: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Refuse unknown flags first: what follows from them would hide the mistake."""
        known = [*self._option_string_actions]
        flags = [word.partition("=")[0] for word in takewhile(lambda word: word != "--", args or ())]
        unknown = [flag for flag in flags if flag.startswith("--") and flag not in known]
        if unknown and self._subparsers is None:  # else they are flags of a command
            close = [match for flag in unknown if (match := find_close(flag, known, self._renamed))]
            near = f" Did you mean {' '.join(dict.fromkeys(close))}?" if close else ""
            # Without values: that of a misspelt --api-key is a key.
            self.error(f"unknown flag{'s' * (len(unknown) > 1)} {', '.join(unknown)}.{near}")
        return super().parse_known_args(args, namespace)


def _needed(found: re.Match[str]) -> str:
    if found[0].startswith("ignored"):
        return "takes no value"
    number = found[0].removeprefix("expected ").partition(" ")[0]
    return {"one": "needs a value", "at": "needs at least one value"}.get(number, f"needs {number} values")


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:  # noqa: ANN401
        assert isinstance(parser, OptionParser)
        sys.stdout.write(parser.format_full_help())
        parser.exit()
