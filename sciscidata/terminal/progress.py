"""What a long run says while it works: steps in the log, bars on a terminal or in a notebook."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, Protocol, TextIO

from sciscidata.terminal.heartbeat import Heartbeat
from sciscidata.terminal.messages import printable

logger = logging.getLogger(__name__)

_steps: ContextVar[tuple[str, ...]] = ContextVar("_steps", default=())
_PATIENCE_S: Final = 2.0  # in a notebook, quicker work shows nothing
_PAUSE_S: Final = 0.5
#: Of a log record (``extra``) about what a release states too, so that a build prints it at its end.
AT_END: Final = {"at_end": True}


@contextmanager
def name_steps(*names: str) -> Generator[None]:
    """Name the steps of a run, in their order; ``begin_step`` says which one begins."""
    token = _steps.set(names)
    try:
        yield
    finally:
        _steps.reset(token)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, StepLines):
                handler.end_line()


def begin_step(name: str) -> None:
    """Log that a step begins; outside of a run that names it, do nothing."""
    names = _steps.get()
    if name in names:
        step = {"step": f"[{names.index(name) + 1}/{len(names)}] {name:<{max(map(len, names))}}"}
        logger.info("%s", step["step"].rstrip(), extra=step)


def end_step(*facts: str) -> None:
    """Log what a step has found, as far as it is known; outside of a run with steps, do nothing."""
    fact = ", ".join(filter(None, facts))
    if fact and _steps.get():
        logger.info("%s", fact, extra={"fact": fact})


class StepLines(logging.StreamHandler[TextIO]):
    """Writes log messages to standard error, a line each. What a step has found stands behind its name.

    A record says by its attributes that a ``step`` begins, or which ``fact`` it is of the step that runs. With
    ``holds`` those of AT_END are held until ``tell_held``.
    """

    def __init__(self, *, holds: bool = False) -> None:
        super().__init__(sys.stderr)
        self._holds, self._held = holds, list[logging.LogRecord]()
        self._line, self._width, self._facts = "", 0, list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        if self._holds and getattr(record, "at_end", False):
            self._held.append(record)
            return
        step, fact = getattr(record, "step", ""), getattr(record, "fact", "")
        if fact and self._line:
            if fact not in self._facts:
                before = "; " if self._facts else " " * (self._width + 2 - len(self._line))
                self._facts.append(fact)
                self._write(before + printable(fact))
            return
        self.end_line()
        if step:
            self._facts, self._width = [], len(step)
            self._write(step.rstrip())
        else:
            super().emit(record)

    def tell_held(self) -> None:
        """Write what was held, after all, because the command has failed."""
        self._holds = False
        for record in self._held:
            self.handle(record)

    def end_line(self) -> None:
        """End the line of the step that runs, if there is one."""
        if self._line:
            self._write("\n")
            self._line = ""

    def _write(self, text: str) -> None:
        """Write more of a line; on a terminal all of it, because a bar may have been shown in its place."""
        is_shown, self._line = bool(self._line), self._line + text
        if is_shown and self.stream.isatty() and len(self._line) < shutil.get_terminal_size().columns:
            text = f"\r\x1b[2K{self._line}"
        with suppress(OSError, ValueError):  # closed: the work goes on
            self.stream.write(text)
            self.stream.flush()


@contextmanager
def show_steps(*names: str, then: str = "", notes_of: str = "") -> Generator[None]:
    """Name the steps of a command, and show on standard error which one runs, and since when.

    ``then`` is the step after which the command itself says how it goes on. What the logger ``notes_of`` says is shown
    behind a step.
    """

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said = record.getMessage()
            if not hasattr(record, "step"):
                heartbeat.note(said)
                return
            heartbeat.begin(said)
            if then and said.endswith(f"] {then}"):
                heartbeat.end()

    handler, heard = Shown(), [logger, *([logging.getLogger(notes_of)] if notes_of else [])]
    levels = [one.level for one in heard]
    with name_steps(*names, *([then] if then else [])), Heartbeat() as heartbeat:
        for one in heard:
            one.addHandler(handler)
            one.setLevel(logging.INFO)
            one.propagate = False
        try:
            yield
        finally:
            for one, level in zip(heard, levels, strict=True):
                one.removeHandler(handler)
                one.setLevel(level)
                one.propagate = True


class Advance(Protocol):
    """Advances a bar by an amount, and may write a short note behind it."""

    def __call__(self, amount: float, note: str = "", /) -> None:
        """Advance the bar."""
        ...


@contextmanager
def progress_bar(description: str, total: float | None = None, *, unit: str = "") -> Generator[Advance]:
    """Show a bar while the block runs, on a terminal or in a notebook; yield the function that advances it.

    Without a ``total`` a count is shown: a bar would look full.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console, total = Console(stderr=True), total or None
    if console.is_jupyter:
        line = _NotebookLine(description, total, unit)
        yield line.advance
        line.show("done")
        return
    if not console.is_terminal:
        yield lambda amount, note="": None
        return
    columns = (
        TextColumn("{task.fields[what]}", markup=False),
        BarColumn() if total else SpinnerColumn(),
        TextColumn("{task.completed:,.0f}" + (f" {unit}" if unit else ""), markup=False),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        *([TimeRemainingColumn()] if total else []),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, what=printable(description), note="")
        yield lambda amount, note="": bar.update(task, advance=amount, note=printable(note))


class _NotebookLine:
    """One line of text below a cell, changed twice a second at most. Rich would leave an empty widget for every bar."""

    def __init__(self, description: str, total: float | None, unit: str) -> None:
        self._what, self._total, self._unit = printable(description), total, unit
        self._start = self._shown = time.monotonic()
        self._done, self._handle = 0.0, None

    def advance(self, amount: float, note: str = "", /) -> None:
        self._done += amount
        now = time.monotonic()
        if now - self._start >= _PATIENCE_S and now - self._shown >= _PAUSE_S:
            self._shown = now
            self.show(f"{self._done / self._total:.0%} {note}" if self._total else note)

    def show(self, state: str) -> None:
        seconds = time.monotonic() - self._start
        if seconds < _PATIENCE_S:
            return
        from IPython.display import display

        text = f"{self._what}: {self._done:,.0f} {self._unit} in {seconds:.0f} s {printable(state)}".rstrip()
        content: Any = {"text/plain": text}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
