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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args, get_origin

from sciscidata.options.did_you_mean import find_close, suggest
from sciscidata.terminal.messages import printable

if TYPE_CHECKING:
    from sciscidata.options.checks import Hint

#: The default of an option without which a command cannot run.
REQUIRED: Final = object()
_OWN_FLAGS: Final = ("--config", "--help", "--help-all")
#: The section of options that no settings file has.
ARGUMENTS: Final = "arguments"
#: The words for None, where a number may be None: TOML and a command line have no null.
_NO_LIMIT: Final = ("all", "none")
_YES_NO: Final = {"true": "--", "1": "--", "yes": "--", "false": "--no-", "0": "--no-", "no": "--no-"}
_SENTENCE_END: Final = re.compile(r"(?<=[^.])\.\s+(?=[A-Z\"`:])|;\s")
_VALUE: Final = r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\.\.\.|(?:[\w+-]|\.(?=\w))+"


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a command: ``owner`` is the class of the field, or the function of the argument.

    A ``flag`` without dashes is what the help calls a value that has its place before all flags. ``title`` is the
    heading of the full help that it stands below.
    """

    owner: str
    section: str
    name: str
    flag: str
    hint: Hint
    default: Any
    text: str
    title: str = ""

    @property
    def key(self) -> str:
        """Name of its value among the parsed arguments."""
        return self.name if self.section == ARGUMENTS else f"{self.section}.{self.name}"

    @property
    def has_flag(self) -> bool:
        """Whether a flag names its value."""
        return self.flag.startswith("--")

    @property
    def is_number(self) -> bool:
        """Whether it is a single number."""
        return bool(self.hint.kinds) and self.hint.kinds[0] in (int, float)

    def name_none(self, message: str) -> str:
        """Say what can be typed instead of ``or None``: nothing where None is the default, which needs no word."""
        is_typed = self._item.optional if self._item else self.is_number and self.default is not None
        return message.replace(", or None", f", or {_NO_LIMIT[0]}" if is_typed else "")

    @property
    def _item(self) -> Hint | None:
        """What one word of several has to be, None where there is one word only."""
        kind = self.hint.kinds[0] if self.hint.kinds else None
        return type(self.hint)(get_args(kind)[0]) if get_origin(kind) is tuple else None

    @property
    def default_text(self) -> str:
        """The default as the help shows it; what the docstring says about None, where that is the default."""
        if self.default is None or self.default == ():
            match = re.search(r"\b(?:None|[Ee]mpty|None,): ([^.;(]+)", self.text)
            return plain(match[1]).strip() if match else ""
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
            if self.hint.optional and self.is_number and value.lower() in _NO_LIMIT:
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
            if "://" in text and not self.has_flag and Path in self.hint.kinds:
                _refuse_url(text)
            return self.prepare(text)
        try:
            return kind(text)
        except ValueError:
            if self._item is not None and str in self._item.kinds:
                return text
            raise argparse.ArgumentTypeError(
                self.name_none(f"is {text!r}, needs {self.hint}{self.hint.elsewhere(text)}")
            ) from None

    def add_to(self, parser: argparse.ArgumentParser) -> argparse.Action:
        """Add its flag, or its place, to a parser."""
        kind = self.hint.kinds[0] if self.hint.kinds else str
        details: dict[str, Any] = {"type": self.read, "metavar": self._metavar(kind) if self.has_flag else self.flag}
        if kind is bool:
            details = {"action": argparse.BooleanOptionalAction}
        elif self.hint.choices and not self.is_number:
            details = {"choices": [*self.hint.choices]} | ({} if self.has_flag else {"metavar": self.flag})
        elif self.hint.is_list:
            least = self.hint.meta("min_length")
            details["nargs"] = "+" if least or (least is None and not self.has_flag) else "*"
        elif get_origin(kind) is tuple:
            details["nargs"] = len(get_args(kind))
        elif get_origin(kind) is not None:  # a mapping
            details |= {"nargs": "+", "action": _StorePairs, "type": str}
        if self.has_flag:
            details |= {"dest": self.key, "default": argparse.SUPPRESS, "required": self.default is REQUIRED}
        text = self.help if self.has_flag else plain(self.text).rstrip(".")
        return parser.add_argument(self.flag if self.has_flag else self.key, help=text.replace("%", "%%"), **details)

    def _metavar(self, kind: Any) -> str:  # noqa: ANN401
        titles = [self.hint.meta("title"), *(type(self.hint)(part).meta("title") for part in get_args(kind))]
        name = next((title for title in titles if title), None)
        if name is None:
            if get_origin(kind) not in (None, tuple):
                return "KEY=VALUE"
            name = "PATH" if Path in self.hint.kinds else "N" if kind in (int, float) or get_args(kind) else "TEXT"
        return f"{name}|{_NO_LIMIT[0]}" if self.is_number and self.hint.optional and self.default is not None else name


def _refuse_url(text: str) -> None:
    from sciscidata.remote.object_store import is_url

    if is_url(text):
        raise argparse.ArgumentTypeError("is a URL, needs a path on a disk. Copy the file out of the store first")


class _StorePairs(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:  # noqa: ANN401
        pairs = [value.partition("=") for value in values]
        if not all(equals for _, equals, _ in pairs):  # without the value: it may be a password
            raise argparse.ArgumentError(self, "needs KEY=VALUE")
        setattr(namespace, self.dest, {key: value for key, _, value in pairs})


def plain(text: str) -> str:
    """Return a docstring's text without its markup."""
    return re.sub(r"``(?:\"([^`]*)\"|([^`]*))``", lambda match: match[1] or match[2], text)


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


def make_flag(name: str) -> str:
    """Make a flag of a name of Python."""
    return f"--{name.replace('_', '-')}"


def list_fields(kind: type, section: str, name_flag: Callable[[str, str, Hint], str], title: str = "") -> list[Option]:
    """List the options of a configuration class by field, without nested configurations and ``python_only`` fields."""
    from sciscidata.options.checks import field_hints

    texts, hints = read_texts(kind.__doc__), field_hints(kind)
    options: list[Option] = []
    for field in dataclasses.fields(kind):
        hint, default = hints[field.name], field.default
        if field.metadata.get("python_only") or hint.configurations:
            continue
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        flag, text = name_flag(section, field.name, hint), texts.get(field.name, "")
        options.append(Option(kind.__name__, section, field.name, flag, hint, default, text, title))
    return options


def translate(message: str, options: Iterable[Option], in_file: Collection[tuple[str, str]] = ()) -> str:
    """Name the flags of a command where a message names the options of Python.

    ``Class.option`` and ``Class.option=True`` become ``--flag``, ``=False`` becomes ``--no-flag`` and ``=value``
    becomes ``--flag value``; so does ``option=value`` alone. Options in ``in_file`` (section and name) keep their names
    there.
    """
    known = {f"{option.owner}.{option.name}": option for option in options}
    flags: dict[str, set[str]] = {}
    for option in known.values():
        flags.setdefault(option.name, set()).add(option.flag)
    known |= {option.name: option for option in known.values() if len(flags[option.name]) == 1}
    named: list[Option] = []

    def name(match: re.Match[str]) -> str:
        option, value = known.get(match[1]), match[2]
        if option is None or (value is None and "." not in match[1]):
            return match[0]
        named.append(option)
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
    if named:
        message = named[0].name_none(message)
    classes = {
        option.owner: _stand_for(option, known) for option in known.values() if option.section not in ("", ARGUMENTS)
    }
    if "BuildConfig.source" in known:  # a source without options
        for source in known["BuildConfig.source"].hint.choices:
            classes.setdefault(f"{source.capitalize()}Config", f"--source {source}")
    pattern = rf"(?<![\w.])({'|'.join(classes)})(?![\w(]|\.\w)"
    return re.sub(pattern, lambda match: classes[match[1]], message) if classes else message


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
    """The one parser of a command: its help, its errors, and both spellings of an option.

    ``--help`` shows the flags ``shown`` in their order, or all; ``--help-all`` all options by heading.
    """

    def __init__(
        self,
        prog: str,
        options: Sequence[Option] = (),
        shown: Sequence[str] = (),
        *,
        example: str = "",
        **details: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(
            prog=prog, usage="%(prog)s [options]", formatter_class=HelpFormatter, allow_abbrev=False, **details
        )
        self._example = example
        self._options = {option.key: option for option in reversed(options)}  # the first of a name
        self._options = {option.key: self._options[option.key] for option in options}
        for option in self._options.values():
            option.add_to(self)
        flags = [option.flag for option in self._options.values() if option.has_flag and option.flag not in _OWN_FLAGS]
        self._shown = shown or flags
        if {*flags} > {*self._shown}:
            is_of_file = "--config" in self._option_string_actions
            text = f"show all {len(flags)} options, by section{' of the settings file' * is_of_file}"
            self.add_argument("--help-all", action=_HelpAll, nargs=0, default=argparse.SUPPRESS, help=text)

    def read(self, words: Sequence[str], *, takes_pairs: bool = False) -> dict[str, Any]:
        """Read the values that are typed, by key of their options; with ``takes_pairs`` also from ``name=value``."""
        parsed, rest = self.parse_known_args([*self._as_flags(words)] if takes_pairs else [*words])
        if rest:
            self.error(self._about_stray(rest, takes_pairs=takes_pairs))
        return vars(parsed)

    def _about_stray(self, words: Sequence[str], *, takes_pairs: bool) -> str:
        shown = [option for flag in self._shown for option in self._options.values() if option.flag == flag]
        for word, option in ((word, option) for word in words for option in shown if word in option.hint.choices):
            return f"{word!r} belongs to no flag. Did you mean {option.flag} {word}?"
        if not takes_pairs:  # not repeated, because it may be a key
            return "there is a value after the last flag that takes one."
        near = f" Did you mean {shown[0].name}={words[0]}?" if "--help-all" in self._option_string_actions else ""
        return f"{words[0]!r} is no option.{near}"

    def _as_flags(self, words: Sequence[str]) -> Iterator[str]:
        """Write pairs as flags, and ``name.key=value`` as one of several words of a flag, ``key:value``.

        Example:
            >>> from sciscidata.options.commands import make_parser
            >>> def sleep(*, hours: int = 8, is_deep: bool = False, places: tuple[str, ...] = ()) -> None: ...
            >>> [*make_parser(sleep, "sleep")._as_flags(["hours=9", "--is_deep=no", "places=a,b", "hour=9"])]
            ['--hours=9', '--no-is-deep', '--places', 'a', 'b', '--hour=9']
            >>> [*make_parser(sleep, "sleep")._as_flags(["places.bed=a", "--places.sofa", "b", "hours=9"])]
            ['--hours=9', '--places', 'bed:a', 'sofa:b']
        """
        named = {option.name: option for option in self._options.values() if option.has_flag}
        has_places, is_value, pairs = len(named) < len(self._options), False, dict[str, list[str]]()
        whole_flags = set[str]()
        rest = iter(words)
        for word in rest:
            is_flag, (name, equals, value) = word.startswith("--"), word.removeprefix("--").partition("=")
            name = name.replace("-", "_") if is_flag else name
            whole, dot, key = name.partition(".")
            if dot and (is_flag or equals) and (pair := named.get(whole)) and pair.hint.is_list and not is_value:
                value = value if equals else next(rest, "")
                if not value or value.startswith("--"):
                    self.error(f"{pair.flag}.{key} needs a value")
                pairs.setdefault(pair.flag, []).append(f"{key}:{value}")
                continue
            option = named.get(name) if (is_flag or equals) and not (is_value and not is_flag) else None
            is_value = False
            whole_flags.add(option.flag if option else "")
            if option is None:
                # Where paths may stand, name=path is one, but for a clear slip.
                is_slip = not has_places or (get_close_matches(name, named, 1, 0.75) and not Path(value).exists())
                is_option = is_flag or (equals and name.isidentifier() and is_slip)
                yield f"{make_flag(name)}{equals}{value}" if is_option else word
            elif bool in option.hint.kinds and value.lower() in _YES_NO:
                yield f"{_YES_NO[value.lower()]}{option.flag[2:]}"
            elif option.hint.is_list and equals:
                yield from (option.flag, *value.split(","))
            else:
                is_value = not equals and bool not in option.hint.kinds and not option.hint.is_list
                yield f"{option.flag}={value}" if equals else option.flag
        for flag, found in pairs.items():
            if flag in whole_flags:  # of two flags, the second would replace the first
                self.error(f"{flag} is typed both whole and by key. Type all of it by key: {flag}.KEY=VALUE")
            yield from (flag, *found)

    def format_help(self) -> str:
        """Format the short help."""
        return self._format({"options": [self._option_string_actions[flag] for flag in self._shown]})

    def format_full_help(self) -> str:
        """Format the help with every option."""
        sections: dict[str, list[argparse.Action]] = {}
        for option in self._options.values():
            if option.has_flag and option.flag not in _OWN_FLAGS:
                action = self._option_string_actions[option.flag]
                action.help = option.full_help.replace("%", "%%")
                sections.setdefault(option.title, []).append(action)
        return self._format(sections)

    def _format(self, sections: Mapping[str, list[argparse.Action]]) -> str:
        """Format sections of options; the first one also has the flags that every command has."""
        formatter = self._get_formatter()
        positionals = [action for action in self._actions if not action.option_strings]
        own = [self._option_string_actions[flag] for flag in _OWN_FLAGS if flag in self._option_string_actions]
        usage = " ".join([str(self.usage), *(str(action.metavar) for action in positionals)])
        formatter.add_usage(usage, [], [])
        formatter.add_text(self.description)
        formatter.add_text(self._example and f"  {self._example}")
        for number, (title, actions) in enumerate({"arguments": positionals, **sections}.items()):
            formatter.start_section(title)
            formatter.add_arguments(actions + own * (number == 1))
            formatter.end_section()
        formatter.add_text("Defaults stand in brackets." if self._options else "")
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Print one line, and exit with 2."""
        message = re.sub(r"^argument ([\w-]+)\S*: ", r"\1 ", translate(message, self._options.values()))
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
        if unknown:
            close = [match for flag in unknown if (match := find_close(flag, known))]
            near = f" Did you mean {' '.join(dict.fromkeys(close))}?" if close else _name_alike(unknown[0], known)
            # Without values: that of a misspelt --api-key is a key.
            self.error(f"unknown flag{'s' * (len(unknown) > 1)} {', '.join(unknown)}.{near}")
        return super().parse_known_args(args, namespace)


def _name_alike(flag: str, known: Iterable[str]) -> str:
    """Name the known flags that share a word with an unknown one, where none is close."""
    words = {word for word in flag.split("-") if len(word) > 2}
    alike = [name for name in known if words & {*name.split("-")}]
    return f" Flags with a word of it: {', '.join(alike[:3])}." if alike else ""


def _needed(match: re.Match[str]) -> str:
    if match[0].startswith("ignored"):
        return "takes no value"
    number = match[0].removeprefix("expected ").partition(" ")[0]
    return {"one": "needs a value", "at": "needs at least one value"}.get(number, f"needs {number} values")


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:  # noqa: ANN401
        assert isinstance(parser, OptionParser)
        sys.stdout.write(parser.format_full_help())
        parser.exit()
