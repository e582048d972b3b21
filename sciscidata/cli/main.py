"""The ``sciscidata`` command. Parses, calls once, prints what came out."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from sciscidata.cli.commands import PROGRAM

# Nothing else up here: main has to be ready for Ctrl-C before the packages are loaded, which takes its time.
from sciscidata.terminal.memory import collect_garbage_rarely
from sciscidata.terminal.messages import end_well, open_terminal, show_cursor, tell
from sciscidata.terminal.processes import python_environment


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done. 1: the user can mend it. 2: wrong usage. 75: stopped; the same command goes on later. 130: interrupted.
    Without ``arguments`` those of this process are read, which the command then has to itself: Ctrl-C ends it.
    """
    if arguments is not None:
        return PROGRAM.run(arguments)
    signal.signal(signal.SIGINT, _interrupt)
    os.environ |= python_environment()  # for what libraries start
    open_terminal()
    collect_garbage_rarely()
    try:
        status = end_well(PROGRAM.run, sys.argv[1:])
        if status == 0:
            if sys.getprofile() or sys.gettrace():  # a profiler writes what it saw behind this
                return status
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        _leave(status)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from sciscidata.storage import clear_unfinished

        # Polars runs deferred work in its own threads, which an interrupt does not reach. So clear away their files
        # here, and show the cursor that a progress bar of theirs has hidden.
        clear_unfinished()
        show_cursor()
        tell(f"interrupted: {PROGRAM.about_interrupt(sys.argv[1:])}")
        _leave(130)


def _leave(status: int) -> NoReturn:
    """End this process now. Its queries may have left threads of Polars at work.

    The interpreter's own end would wait for them, or abort (status 134) where one of them runs Python. It would also
    take apart every module, which takes 0.4 s once numba is loaded.
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
