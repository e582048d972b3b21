"""Options as the cookbook's tools take them (``preset=exp4``) and as everyone's do (``--preset exp4``)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from sciscidata._support.memory import check_limits
from sciscidata.errors import MemoryLimitError

try:  # every script begins here
    check_limits()
    import chz
    from chz.blueprint import (
        ConstructionException,
        EntrypointHelpException,
        ExtraneousBlueprintArg,
        InvalidBlueprintArg,
        MissingBlueprintArg,
    )
except MemoryLimitError as error:
    sys.exit(f"error: {error}")
except ModuleNotFoundError as missing:
    sys.exit(
        f"error: {missing.name} is not installed; sciscidata does without it, sciscirl does not. Install that too: "
        "python3 scripts/install.py rl (into .venv; --venv names another environment)."
    )

from sciscidata._support.terminal import about_failure, end_well, open_terminal, printable, tell
from sciscidata.errors import SciSciDataError
from sciscirl.errors import SciSciRLError

Options = TypeVar("Options")


def read_options(target: type[Options], words: Sequence[str]) -> Options | str:
    """Read a command line into a chz class.

    Args:
        target: the class.
        words: what follows the name of the script.

    Returns:
        An object of that class; or the text of ``--help``, if asked for.

    Raises:
        SciSciRLError: if an option is unknown, or its value not of its type.

    Example:
        >>> @chz.chz
        ... class Trip:
        ...     goal: str
        ...     n_days: int = 1
        ...     by_train: bool = False
        >>> read_options(Trip, ["--goal", "Basel", "n_days=2", "--by-train"])
        Trip(goal='Basel', n_days=2, by_train=True)
        >>> read_options(Trip, ["goal=Basel", "--days=2"])
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: Extraneous argument 'days' to Blueprint ... See --help.
    """
    if "--help" in words or "-h" in words:
        words = ["--help"]
    else:
        words = _as_pairs(words, {name for name, field in chz.chz_fields(target).items() if field.x_type is bool})
    try:
        return chz.Blueprint(target).make_from_argv(list(words))
    except EntrypointHelpException as error:
        return str(error)
    except (
        ExtraneousBlueprintArg,
        InvalidBlueprintArg,
        MissingBlueprintArg,
        ConstructionException,
        ValueError,
    ) as error:
        # Of chz's message the first line says what is wrong, the rest is about its own machinery.
        message = str(error).strip().splitlines()[0].removesuffix("...")
        msg = f"{message}. See --help."
        raise SciSciRLError(msg) from error


def take_word(words: Sequence[str], name: str, choices: Sequence[str]) -> tuple[str | None, list[str]]:
    """Take one option out of a command line: the one that decides which others there are.

    Returns:
        Its value, None where it is not given but help is asked for; and the other words.

    Raises:
        SciSciRLError: if it is missing, or not one of ``choices``.

    Example:
        >>> take_word(["--fruit", "pear", "n=2"], "fruit", ["apple", "pear"])
        ('pear', ['n=2'])
        >>> take_word(["fruit=plum"], "fruit", ["apple", "pear"])
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: fruit is 'plum', needs one of apple, pear. See --help.
    """
    rest, value = list(words), None
    for place, word in enumerate(rest):
        given, equals, value = word.removeprefix("--").partition("=")
        if given == name and (equals or word.startswith("--")):
            value = value if equals else "".join(rest[place + 1 : place + 2])
            del rest[place : place + (1 if equals else 2)]
            break
    else:
        if {"--help", "-h"} & set(rest):
            return None, rest
        value = None
    if value not in choices:
        msg = f"{name} is {value!r}, needs one of {', '.join(choices)}. See --help."
        raise SciSciRLError(msg)
    return value, rest


def _as_pairs(words: Sequence[str], flags: set[str]) -> list[str]:
    """Write every option as name=value."""
    pairs: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            pairs.append(word)
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not equals and name in flags:
            value = "True"
        elif not equals:
            if not rest:
                msg = f"{word} needs a value. See --help."
                raise SciSciRLError(msg)
            value = rest.pop(0)
        pairs.append(f"{name}={value}")
    return pairs


def run_script(main: Callable[[Sequence[str]], None]) -> int:
    """Run a script: a user's mistake is one line and exit code 1, or the error's own, Ctrl-C is 130."""
    open_terminal()

    def run(words: Sequence[str]) -> int:
        try:
            main(words)
        except SciSciDataError as error:
            tell(f"error: {_one_line(error)}")
            return getattr(error, "exit_code", 1)
        except (OSError, MemoryError, RuntimeError, ImportError) as error:
            told = about_failure(error)
            if told is None:
                raise
            tell(f"error: {told}")
            return 1
        except KeyboardInterrupt:
            tell("interrupted")
            return 130
        return 0

    return end_well(run, sys.argv[1:])


def show(text: str, *, flush: bool = False) -> None:
    """Print for a terminal; what models, runs and servers said in it is text, and nothing else."""
    print(printable(text, lines=True), flush=flush)  # noqa: T201 (the scripts print through this)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
