"""Show on standard error what runs, and since when, so that no wait is silent.

Imports the standard library alone: ``scripts/install.py`` loads this file before anything is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final

#: Between two lines of a log. A terminal's line changes twice a second.
SILENCE_S: Final = 10.0
_PAUSE_S: Final = 0.5
_CLEAR: Final = "\r\x1b[2K"


class Heartbeat:
    """Shows one task at a time: in a line of a terminal that changes, else by a line at least every ten seconds."""

    def __init__(self) -> None:
        self._stream, self._lock, self._ended = sys.stderr, threading.RLock(), threading.Event()
        self._is_terminal = self._stream.isatty()
        self._what: str | None = None
        self._note, self._begun, self._shown = "", 0.0, 0.0

    def __enter__(self) -> Heartbeat:
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._ended.set()

    def begin(self, what: str) -> None:
        """Say that a task begins, which ends the one before."""
        with self._lock:
            self.end()
            self._what, self._note, self._begun, self._shown = what, "", time.monotonic(), time.monotonic()
            self._write(what if self._is_terminal else f"{what}\n")

    def note(self, text: str) -> None:
        """Take what a task says, to be shown behind it."""
        self._note = "".join(sign if sign.isprintable() else " " for sign in text).strip()

    def end(self) -> None:
        """Say how long the task took, if it took seconds; then be silent."""
        with self._lock:
            seconds = time.monotonic() - self._begun
            if self._what is not None and self._is_terminal:
                self._write(f"{_CLEAR}{self._what}{f', {seconds:.0f} s' if seconds >= 1 else ''}\n")
            self._what = None

    def _beat(self) -> None:
        while not self._ended.wait(_PAUSE_S):
            with self._lock:
                now = time.monotonic()
                if self._what is None or (not self._is_terminal and now - self._shown < SILENCE_S - _PAUSE_S):
                    continue
                self._shown, line = now, f"{self._what}: {now - self._begun:.0f} s"
                line += f", {self._note}" if self._note else ""
                width = shutil.get_terminal_size().columns - 1 if self._is_terminal else 160
                self._write(f"{_CLEAR}{line[:width]}" if self._is_terminal else f"{line[:width]}\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # closed: the work goes on
            self._what = None


def follow(
    command: list[str], tell: Callable[[str], None], env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command, and hand each line on as it comes. What it said is ``stdout``, errors among it."""
    said: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", env=env,
    ) as process:  # fmt: skip
        for line in process.stdout or ():
            said.append(line)
            tell(line)
    return subprocess.CompletedProcess(command, process.returncode, "".join(said))
