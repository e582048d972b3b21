"""The ``sciscirl`` command: find the subcommand, read its options, run it, and say in one line what went wrong."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from sciscidata import __version__
from sciscidata.errors import SciSciDataError, how_to_install
from sciscidata.options.parser import OptionParser, translate
from sciscidata.terminal.memory import check_limits, collect_garbage_rarely
from sciscidata.terminal.messages import about_failure, end_well, open_terminal, tell
from sciscidata.terminal.processes import python_environment
from sciscirl.cli.commands import COMMANDS, call_words, show
from sciscirl.cli.flags import list_options

_OF_SFT: Final = {"peft", "accelerate", "bitsandbytes", "gguf"}  # packages of that extra


def main(words: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 done, 1 the user can mend it, 2 wrong usage, 3 the model collapsed, 130 interrupted."""
    if words is None:
        os.environ |= python_environment()  # for what libraries start
    open_terminal()
    collect_garbage_rarely()
    # What callers of Tinker's SDK will have to change, such as the cookbook, is no news for a user.
    warnings.filterwarnings("ignore", ".*deprecated", FutureWarning, module="tinker|sciscirl")
    # It speaks of a downloadable kernel for four bits on a CPU, also where nothing has four bits.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    return end_well(_run_and_tell, sys.argv[1:] if words is None else words)


def _run_and_tell(words: Sequence[str]) -> int:
    try:
        check_limits()
        run(words)
    except SciSciDataError as error:
        tell(f"error: {' '.join(str(error).split())}")
        return getattr(error, "exit_code", 1)
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        told = about_failure(error)
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("scisci"):
            extras = ["local"] if error.name == "trl" else ["rl", "sft"] if error.name in _OF_SFT else ["rl"]
            told = f"{error.name} is not installed. Run {how_to_install(*extras)}."
        if told is None:
            raise
        tell(f"error: {told}")
        return 1
    except KeyboardInterrupt:
        tell("interrupted")
        return 130
    return 0


def run(words: Sequence[str]) -> None:
    """Run one command; its errors name flags. SystemExit after ``--help``, or if the words cannot be read."""
    if not words or words[0] in ("-h", "--help", "--version"):
        show(f"sciscirl {__version__}" if "--version" in words else render_commands())
        return
    same = [name for name in COMMANDS if name.startswith(f"{words[0]} ")]
    # "sweep" is a command, and with one more word another.
    n_words = 2 if same and not (words[0] in COMMANDS and _is_option(words[1:2])) else 1
    name = " ".join(words[:n_words])
    if name not in COMMANDS:
        close = get_close_matches(name, same or COMMANDS, 1)
        told = (
            f"Did you mean {close[0]}?"
            if close and len(words) >= n_words
            else f"Choose one of {', '.join(same or COMMANDS)}."
        )
        OptionParser(prog="sciscirl").error(f"there is no command {name!r}. {told}")
    try:
        call_words(name, words[n_words:])
    except SciSciDataError as error:
        options = list_options(COMMANDS[name])  # a name that two classes share is named by its class, then alone
        message = translate(translate(str(error), options), {option.name: option for option in options}.values())
        error.args = (message,)
        raise


def _is_option(words: Sequence[str]) -> bool:
    return not words or words[0].startswith("-") or "=" in words[0]


def render_commands() -> str:
    """List every command in a line."""
    return "\n".join(
        [
            "usage: sciscirl COMMAND [--option value | option=value ...]",
            "",
            "Train language models to judge science, and judge them, on a release of sciscidata.",
            "",
            *(f"  {name:17}  {(command.__doc__ or '').partition(chr(10))[0]}" for name, command in COMMANDS.items()),
            "",
            "sciscirl COMMAND --help shows the main options and an example, --help-all all options.",
        ]
    )
