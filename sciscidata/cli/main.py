"""The ``sciscidata`` command. Parses, calls once, prints what came out."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sciscidata.cli.commands import COMMANDS, Command, list_options, make_parser
from sciscidata.errors import MemoryLimitError, SciSciDataError
from sciscidata.options.did_you_mean import suggest
from sciscidata.options.parser import ARGUMENTS, translate

# Nothing else up here: main has to be ready for Ctrl-C before the packages are loaded, which takes its time.
from sciscidata.terminal.memory import check_limits, collect_garbage_rarely
from sciscidata.terminal.messages import about_failure, end_well, open_terminal, show_cursor, tell
from sciscidata.terminal.processes import python_environment

if TYPE_CHECKING:
    from sciscidata.config import BuildConfig

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done. 1: the user can mend it. 2: wrong usage. 75: stopped; the same command goes on later. 130: interrupted.
    Without ``arguments`` those of this process are read, which the command then has to itself: Ctrl-C ends it.
    """
    if arguments is not None:
        return _run(arguments)
    signal.signal(signal.SIGINT, _interrupt)
    os.environ |= python_environment()  # for what libraries start
    open_terminal()
    collect_garbage_rarely()
    try:
        check_limits()
        status = end_well(_run, sys.argv[1:])
        if status:
            _leave(status)
        return status
    except MemoryLimitError as error:
        tell(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from sciscidata.storage import clear_unfinished

        # Polars runs deferred work in its own threads, which an interrupt does not reach. So clear away their files
        # here, and show the cursor that a progress bar of theirs has hidden.
        clear_unfinished()
        command = COMMANDS.get((sys.argv[1:2] or [""])[0])
        show_cursor()
        tell(f"interrupted: {'the same command goes on' if command and command.goes_on else 'nothing was released'}")
        _leave(130)


def _leave(status: int) -> NoReturn:
    """End this process now. Its queries may have left threads of Polars at work.

    The interpreter's own end would wait for them, or abort (status 134) where one of them runs Python.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status)


def build_main() -> int:
    """Run ``sciscidata build`` with the arguments of a script."""
    sys.argv.insert(1, "build")
    return main()


def _interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt for the first Ctrl-C only: Polars raises its own, and a second cuts clearing short."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not isinstance(sys.exception(), KeyboardInterrupt):
        raise KeyboardInterrupt


def _run(arguments: Sequence[str]) -> int:
    name = arguments[0] if arguments else ""
    parser = make_parser(*COMMANDS.keys() & {name})
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    if name and name not in COMMANDS and not name.startswith("-"):
        near = suggest(name, COMMANDS) or f" The commands are {', '.join(COMMANDS)}."
        parser.error(f"there is no command {name!r}.{near}")
    if name.startswith("-") and name not in ("-h", "--help", "--version"):
        parser.error(f"the first word needs to be one of {', '.join(COMMANDS)}; flags come after it.")
    options, rest = parser.parse_known_args([*arguments])
    if rest:  # not repeated, because it may be a key
        parser.prog += f" {name}"
        from sciscidata.cli.settings import SOURCES

        if COMMANDS[name].top and (sources := [word for word in rest if word in SOURCES]):
            parser.error(f"{sources[0]!r} belongs to no flag. Did you mean --source {sources[0]}?")
        parser.error("there is a value after the last flag that takes one.")
    in_file: set[tuple[str, str]] = set()
    parsed = vars(options)

    def name_flags(message: str) -> str:
        options = list_options(name)
        if not COMMANDS[name].top:  # verify and describe name the options of the command that made the file, too
            own_names = {option.name for option in options}
            options += [option for option in list_options("build") if option.name not in own_names]
        corpus = parsed.get("corpus.folder", "CORPUS")
        message = message.replace("diagnose(works, citations)", f"sciscidata diagnose {corpus}")
        message = message.replace("ExampleConfig", "--source example")  # it has no option to find it by
        return translate(message, options, in_file)

    logging.basicConfig(level=logging.INFO, handlers=[_handler(name_flags)])
    try:
        config = _configure(options, in_file) if COMMANDS[name].top else None
        COMMANDS[name].run(options, config)
        if config is not None:
            _log_next(COMMANDS[name], config)
    except SciSciDataError as error:
        tell(f"error: {name_flags(str(error))}")
        return getattr(error, "exit_code", 1)
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        # A folder that may not be entered fails at the first look into it, wherever that is.
        problem = about_failure(error)
        if problem is None:
            raise
        tell(f"error: {problem}")
        return 1
    return 0


def _log_next(command: Command, config: BuildConfig) -> None:
    """Say what to type next; on standard error, because standard output has the facts."""
    places = {"out": shlex.quote(str(config.out)), "corpus": shlex.quote(str(getattr(config.source, "folder", "")))}
    for word, line in zip(("next", "then"), command.next, strict=False):
        logger.info("%s: sciscidata %s", word, line.format(**places))


def _handler(name_flags: Callable[[str], str]) -> logging.Handler:
    """Return a handler that writes each message as a line to standard error, with the flags of the command."""
    handler = logging.StreamHandler(sys.stderr)
    handler.format = lambda record: name_flags(logging.Formatter().format(record))
    return handler


def _configure(options: argparse.Namespace, in_file: set[tuple[str, str]]) -> BuildConfig:
    """Put the flags over the settings file, and note in ``in_file`` which settings are left of the file."""
    from sciscidata.cli.settings import merge, read_toml, resolve

    flags: dict[str, dict[str, Any]] = {}
    for key, value in vars(options).items():
        section, dot, setting = key.partition(".")
        if dot and section != ARGUMENTS:
            flags.setdefault(section, {})[setting] = value
    settings = read_toml(options.config) if "config" in options else {}
    in_file |= {(section, setting) for section, values in settings.items() for setting in values}
    in_file -= {(section, setting) for section, values in flags.items() for setting in values}
    given = merge(settings, flags)
    if (path := getattr(options, f"{ARGUMENTS}.from_manifest", None)) is not None:
        from sciscidata.cli.run_settings import check_background, read_release_settings

        config = resolve(merge(read_release_settings(Path(path), given), given), given)
        check_background(config, Path(path))
        return config
    corpus = flags.get("corpus", {}).get("folder")
    base = {"": {"cache_dir": str(Path(corpus) / "cache")}} if corpus and COMMANDS[options.command].cache else {}
    return resolve(merge(base, given))
