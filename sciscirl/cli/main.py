"""The ``sciscirl`` command: it runs one command, and says in one line what went wrong."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence

from sciscidata.terminal.memory import collect_garbage_rarely
from sciscidata.terminal.messages import end_well, open_terminal, tell
from sciscidata.terminal.processes import python_environment
from sciscirl.cli.commands import PROGRAM


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
    try:
        return end_well(PROGRAM.run, sys.argv[1:] if words is None else words)
    except KeyboardInterrupt:
        tell("interrupted")
        return 130
