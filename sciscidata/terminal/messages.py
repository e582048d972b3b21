"""Print safely: control characters from files and servers are shown as text, so that no terminal executes them."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

from sciscidata.errors import MemoryLimitError
from sciscidata.terminal.memory import about_memory, check_limits

#: Control characters (ESC begins commands to the terminal), marks that reorder or end a line, and lone surrogates.
_COMMANDS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

#: Colours and the like, around text.
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def printable(text: object, *, lines: bool = False) -> str:
    r"""Replace control characters, line reversals and line ends by their codes; ``lines`` keeps ``\n``.

    Every text goes through here before it is printed. Names, titles and messages may come from a file or a server.
    """

    def show(match: re.Match[str]) -> str:
        return "\n" if lines and match[0] == "\n" else match[0].encode("unicode_escape").decode("ascii")

    return _COMMANDS.sub(show, str(text))


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines: each column is as wide as its longest cell, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def counted(n: int, one: str, many: str = "") -> str:
    """Write a number and what it counts: ``many`` for any number but 1, by default ``one`` with an s."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def list_names(names: Sequence[str], most: int = 20) -> str:
    """List names for a message, of many the first ones and a count; "none" if there are none."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return (", ".join(map(shorten, names[:most])) or "none") + more


def shorten(text: str, most: int = 80) -> str:
    """Return a text for a message: of a long one the beginning, and without control characters."""
    return printable(text if len(text) <= most else f"{text[: most - 3]}...")


def one_line(text: object, most: int = 300) -> str:
    r"""Write a message of another library as one line for a sentence of ours; of a long one its first sentences.

    Example:
        >>> one_line("No file.  Look\nhere.", 20), one_line("No file. Look here.", 12), one_line("No file", 5)
        ('No file. Look here', 'No file', 'No …')
    """
    line = " ".join(str(text).split())
    if len(line) > most:
        first = line[:most]
        line = first.rpartition(". ")[0] or f"{first.rpartition(' ')[0]} …"
    return line.rstrip(".")


class TextRecord(logging.LogRecord):
    r"""A log record whose message is safe text, for every handler."""

    def __init__(self, *facts: Any, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*facts, **more)
        if self.exc_info:  # a formatter would make this text itself if it were missing
            self.exc_text = printable(logging.Formatter().formatException(self.exc_info), lines=True)

    def getMessage(self) -> str:
        """Return the message: ours as one line, those of other packages without colours."""
        message = super().getMessage()
        if self.name.startswith(("sciscidata", "sciscirl")):
            return printable(message)
        return printable(_COLOURS.sub("", message), lines=True)


def open_terminal() -> None:
    """Make streams, logs, warnings and tracebacks of this process print safe text only. For commands.

    A closed stream (``>&-``) is opened again, so that the next opened file does not take its place.
    """
    _reopen()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be text
            stream.reconfigure(errors="backslashreplace")
    logging.setLogRecordFactory(TextRecord)
    write = warnings.formatwarning

    def write_as_text(*facts: Any, **more: Any) -> str:  # noqa: ANN401
        return printable(write(*facts, **more), lines=True)

    warnings.formatwarning = write_as_text
    sys.excepthook = _tell_error
    threading.excepthook = _tell_error_of_thread
    sys.unraisablehook = _tell_ignored


def _tell_error(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    tell("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"))


def _tell_error_of_thread(facts: threading.ExceptHookArgs) -> None:
    if facts.exc_type is not SystemExit:
        tell(f"Exception in thread {facts.thread.name if facts.thread else None}:")
        _tell_error(facts.exc_type, facts.exc_value, facts.exc_traceback)


def _tell_ignored(facts: sys.UnraisableHookArgs) -> None:
    tell(f"{facts.err_msg or 'Exception ignored in'}: {facts.object!r}")
    _tell_error(facts.exc_type, facts.exc_value, facts.exc_traceback)


def _reopen() -> None:
    # In the order of their numbers, because the lowest that is free is taken.
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
        setattr(sys, name, os.fdopen(number, mode, closefd=False))


def tell(text: str) -> None:
    """Write a line of safe text to standard error; do nothing if that fails."""
    try:
        sys.stderr.write(f"{printable(text, lines=True)}\n")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def about_failure(error: Exception) -> str | None:
    """Say in one line which memory or file the system refused; None for any other error."""
    problem = about_memory(error)
    if problem is None and isinstance(error, OSError):
        from sciscidata.storage import about_os_error  # slow to load, and not needed at the start of a command

        problem = about_os_error(error)
    return problem


def show_cursor() -> None:
    """Clear the line of a progress bar that was cut short, and show the cursor again that it has hidden."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K\x1b[?25h")


def end_well(run: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """Run a command, flush its output, and return its exit status: 1 with a message if the output fails.

    The command does not start where memory is limited to less than it needs.
    """
    try:
        check_limits()
        status = run(words)
    except MemoryLimitError as error:
        tell(f"error: {error}")
        return 1
    except SystemExit as end:
        if end.code:
            raise
        status = 0  # of --help
    except UnicodeEncodeError as error:  # Python keeps bytes that it cannot decode as surrogates
        if not _SURROGATE.search(error.object):
            raise
        from sciscidata.storage.paths import about_undecodable

        tell(f"error: {about_undecodable(error.object)}")
        return 1
    except BrokenPipeError as error:  # the reader of output that is not buffered has gone, as `head` does
        discard(sys.stdout)
        tell(f"error: cannot write to a pipe that its reader has closed: {error.strerror}.")
        return 1
    try:
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if status == 0:
            tell(f"error: cannot write standard output: {error.strerror}.")
            status = 1
    return status


def discard(stream: Any) -> None:  # noqa: ANN401
    """Send pending output nowhere: Python would try again at its end, and exit with its own status."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):  # not a stream of the system
        return
