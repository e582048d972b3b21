"""A progress bar on standard error for whatever takes long; silent when nobody is watching a terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def progress_bar(description: str, total: float | None = None, *, unit: str = "") -> Generator[Callable[[float], None]]:
    """Show a bar while the block runs; yield the function that advances it.

    Args:
        description: what is being done, in the imperative.
        total: amount of work; None shows a pulse and a count.
        unit: what is counted, for example ``"works"``.

    Example:
        >>> with progress_bar("count citers", total=3) as advance:
        ...     for _ in range(3):
        ...         advance(1)
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}" + (f" {unit}" if unit else "")),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda amount: bar.advance(task, amount)
