"""The ``sciscirl`` command: find the subcommand, read its options, run it, and say in one line what went wrong."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from typing import Final

from sciscidata import __version__
from sciscidata._support.memory import check_limits
from sciscidata._support.terminal import TextParser, about_failure, end_well, open_terminal, tell
from sciscidata.errors import SciSciDataError
from sciscirl.cli.commands import COMMANDS, SHOWN, show
from sciscirl.cli.flags import (
    UsageError,
    call,
    list_options,
    make_parser,
    name_flags,
    read_words,
    render_help,
)

_SHELLS: Final = ("bash", "zsh", "tcsh")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done. 1: the user can mend it. 2: wrong usage. 3: the run collapsed, and was to end then. 130: interrupted.

    Args:
        words: None takes those of this process.
    """
    open_terminal()
    return end_well(_run_and_tell, sys.argv[1:] if words is None else words)


def _run_and_tell(words: Sequence[str]) -> int:
    try:
        check_limits()
        run(words)
    except SciSciDataError as error:
        tell(f"error: {' '.join(str(error).split())}")
        return getattr(error, "exit_code", 1)
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        told = _about_missing(error) or about_failure(error)
        if told is None:
            raise
        tell(f"error: {told}")
        return 1
    except KeyboardInterrupt:
        tell("interrupted")
        return 130
    return 0


def _about_missing(error: Exception) -> str | None:
    if not isinstance(error, ModuleNotFoundError) or str(error.name).startswith(("sciscirl", "sciscidata")):
        return None
    return (
        f"{error.name} is not installed. Install it: python3 scripts/install.py rl (into .venv; --venv names another)."
    )


def run(words: Sequence[str]) -> None:
    """Run one command.

    Raises:
        SciSciDataError: as the command does; the message names flags instead of Python's options.
    """
    if not words or words[0] in ("-h", "--help", "--help-all"):
        show(render_commands())
        return
    if words[0] == "--version":
        show(f"sciscirl {__version__}")
        return
    if words[0] == "completion":
        show(_completion(words[1:]))
        return
    name, rest = _find_command(words)
    command, prog = COMMANDS[name], f"sciscirl {name}"
    if {"-h", "--help", "--help-all"} & set(rest):
        show(render_help(command, prog, () if "--help-all" in rest else SHOWN.get(name, "").split()))
        return
    try:
        call(command, read_words(command, rest))
    except UsageError as error:
        error.args = (f"{error} See {prog} --help.",)
        raise
    except SciSciDataError as error:
        error.args = (name_flags(str(error), list_options(command)),)
        raise


def _find_command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    n_words = 2 if any(name.startswith(f"{words[0]} ") for name in COMMANDS) else 1
    name = " ".join(words[:n_words])
    if name in COMMANDS:
        return name, words[n_words:]
    known = [*COMMANDS, "completion"] if n_words == 1 else [one for one in COMMANDS if one.startswith(f"{words[0]} ")]
    close = difflib.get_close_matches(name, known, 1)
    guess = f" Did you mean {close[0]}?" if close and close[0] != name else ""
    msg = f"no command {name!r}.{guess} Choose one of {', '.join(known)}."
    raise UsageError(msg)


def render_commands() -> str:
    """List every subcommand in a line.

    Example:
        >>> print(render_commands().splitlines()[4])
          train              Train by reinforcement learning
    """
    lines = [(name, (command.__doc__ or "").partition(".\n")[0]) for name, command in COMMANDS.items()]
    lines += [("completion", f"Print the completion of a shell: {', '.join(_SHELLS)}")]
    return "\n".join(
        [
            "usage: sciscirl COMMAND [--option value | option=value ...]",
            "",
            "Train language models to judge science, and judge them, on a release of sciscidata.",
            "",
            *(f"  {name:17}  {text.rstrip('.')}" for name, text in lines),
            "",
            "sciscirl COMMAND --help shows the main options and an example, --help-all all options.",
        ]
    )


def _completion(words: Sequence[str]) -> str:
    import shtab

    if [*words] not in [[shell] for shell in _SHELLS]:
        msg = f"completion needs one of {', '.join(_SHELLS)}. Example: sciscirl completion bash > ~/.sciscirl.bash"
        raise UsageError(msg)
    root = TextParser(prog="sciscirl", description="Train and judge language models.")
    places = {"": root.add_subparsers()}
    for name, command in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in places:
            places[group] = places[""].add_parser(group, help=group).add_subparsers()
        text = (command.__doc__ or "").partition("\n")[0]
        make_parser(command, places[group].add_parser(last, help=text))
    return shtab.complete(root, words[0])
