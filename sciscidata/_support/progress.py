"""A progress bar on standard error for long work; silent where there is no terminal."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from sciscidata._support.terminal import printable


class Advance(Protocol):
    """Advances a bar by an amount, and may write a short note behind it."""

    def __call__(self, amount: float, note: str = "", /) -> None: ...


@contextmanager
def progress_bar(description: str, total: float | None = None, *, unit: str = "") -> Generator[Advance]:
    """Show a bar while the block runs; yield the function that advances it.

    ``description`` is the work, in the imperative; ``unit`` the things counted, for example ``"works"``. A ``total`` of
    None shows a pulse and a count.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield lambda amount, note="": None
        return
    columns = (
        TextColumn("{task.fields[what]}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f}" + (f" {unit}" if unit else ""), markup=False),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, what=printable(description), note="")
        yield lambda amount, note="": bar.update(task, advance=amount, note=printable(note))
