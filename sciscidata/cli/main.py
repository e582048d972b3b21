"""The ``sciscidata`` command. Parses, calls once, prints what came out."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

# Nothing else up here: main has to be ready for Ctrl-C before the packages are loaded, which takes its time.
from sciscidata import __version__
from sciscidata._support.memory import check_limits
from sciscidata._support.terminal import TextParser, about_failure, end_well, open_terminal, show_cursor, tell
from sciscidata.cli.flags import Flag, add_flags, list_flags
from sciscidata.cli.stages import add_stages
from sciscidata.errors import ConfigError, MemoryLimitError, SciSciDataError

if TYPE_CHECKING:
    from sciscidata.config import BuildConfig

_RESUMABLE = (["ingest"], ["graph"], ["cd"], ["novelty"])
_COMMANDS = "build, background, ingest, graph, cd, novelty, export, verify, describe"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done. 1: the user can mend it. 2: wrong usage. 75: stopped; the same command goes on later. 130: interrupted.

    Args:
        arguments: None takes those of this process, which the command then has to itself: Ctrl-C ends it.
    """
    if arguments is not None:
        return _run(arguments)
    signal.signal(signal.SIGINT, _interrupt)
    open_terminal()
    try:
        check_limits()
        return end_well(_run, sys.argv[1:])
    except MemoryLimitError as error:
        tell(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from sciscidata.storage import clear_unfinished

        # Polars runs what was deferred in threads of its own, which hear of no interrupt: what they would have
        # cleared away is done here, and the cursor shown that a progress bar of theirs has hidden.
        clear_unfinished()
        told = "the same command goes on" if sys.argv[1:2] in _RESUMABLE else "nothing was released"
        show_cursor()
        tell(f"interrupted: {told}")
        # At once: the interpreter's own end would wait for, or break off inside, threads that are still at work.
        os._exit(130)


def build_main() -> int:
    """Run ``sciscidata build`` with the arguments of a script."""
    sys.argv.insert(1, "build")
    return main()


def _interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt for the first Ctrl-C, and once only; a second one ends the process there and then.

    Polars raises its own for the same key press: another on top of it would cut short the removal of half work.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not isinstance(sys.exception(), KeyboardInterrupt):
        raise KeyboardInterrupt


def _run(arguments: Sequence[str]) -> int:
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        # Without their values: that of a misspelt --api-key is a key.
        names = [word.partition("=")[0] for word in unknown if word.startswith("--")]
        parser.error(f"unknown: {', '.join(names) or 'a value after the last flag that takes one'}. See --help.")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        options.run(options)
    except SciSciDataError as error:
        tell(f"error: {error}")
        return getattr(error, "exit_code", 1)
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        # A folder that may not be entered fails at the first look into it, wherever that is.
        told = about_failure(error)
        if told is None:
            raise
        tell(f"error: {told}")
        return 1
    return 0


class _Parser(TextParser):
    """Repeats nothing that may be a key."""

    def error(self, message: str) -> NoReturn:
        # Where a flag stands before the command, its value is taken for one.
        if message.startswith("argument COMMAND: invalid choice"):
            message = f"the first word needs to be one of {_COMMANDS}; flags come after it."
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sciscidata", description="Labelled, balanced, frozen slices of science.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser(
        "build",
        help="read works, score and label them, release a slice",
        description="Read works, score and label them, and release a balanced, frozen slice. "
        "Defaults stand in brackets.",
        argument_default=argparse.SUPPRESS,
    )
    add_flags(build, list_flags())
    build.set_defaults(run=_build)
    background = commands.add_parser(
        "background",
        help="save the null model of novelty of a whole corpus",
        description="Save how often every two venues are expected to meet in a reference list, by year, over all works "
        "of a source: build --background FILE scores other works against it. Defaults stand in brackets.",
        argument_default=argparse.SUPPRESS,
    )
    add_flags(background, [flag for flag in list_flags() if _is_for_background(flag)])
    background.add_argument("--out", dest=".out", metavar="FILE", required=True, help="the table to write")
    background.set_defaults(run=_background)
    add_stages(commands, _configuration)
    for name, run, what, text in (
        ("verify", _verify, "PATH", "check a release, corpus, graph, export, file of scores or background"),
        ("describe", _describe, "PATH", "print what a release, corpus, graph, file of scores or background holds"),
    ):
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        command.add_argument("path", type=Path, metavar=what, help="where it lies")
        command.set_defaults(run=run)
    return parser


def _is_for_background(flag: Flag) -> bool:
    if flag.section == "":
        return flag.name in ("source", "cache_dir", "overwrite")
    sources = ("records", "synthetic", "sciscinet", "snapshot", "corpus")
    if flag.flag in ("--recompute", "--sciscinet-texts"):  # it is always made of the references, and reads no text
        return False
    return flag.section in sources or (flag.section == "novelty" and flag.name != "score")


def _build(options: argparse.Namespace) -> None:
    from sciscidata.cli.summary import print_release
    from sciscidata.pipeline import build

    print_release(build(_configuration(options)))


def _background(options: argparse.Namespace) -> None:
    from sciscidata.cli.summary import print_background
    from sciscidata.pipeline import write_background

    start = time.monotonic()
    config = _configuration(options)
    if config.novelty is None or config.background is not None:
        what = "novelty is switched off" if config.novelty is None else f"background names {config.background}"
        msg = f"{what}, but this command makes the null model of novelty, from the source's own works. Leave that out."
        raise ConfigError(msg)
    table = write_background(
        config.source, config.out, config.novelty, cache_dir=config.cache_dir, overwrite=config.overwrite
    )
    print_background(table, time.monotonic() - start)


def _configuration(options: argparse.Namespace, base: dict[str, Any] | None = None) -> BuildConfig:
    """Put the flags over the configuration file, and this over ``base``."""
    from sciscidata.cli.settings import merge, read_toml, resolve

    flags: dict[str, dict[str, Any]] = {}
    for key, value in vars(options).items():
        section, dot, name = key.partition(".")
        if dot:
            flags.setdefault(section, {})[name] = value
    settings = read_toml(options.config) if "config" in options else {}
    return resolve(merge(merge(base or {}, settings), flags))


def _verify(options: argparse.Namespace) -> None:
    from sciscidata.cli.summary import print_verified
    from sciscidata.release.verify import verify

    print_verified(verify(options.path))


def _describe(options: argparse.Namespace) -> None:
    from sciscidata.cli.summary import print_path

    print_path(options.path)
