"""Work on a stream of items with several threads, and get the results in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice, repeat
from threading import Event
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_HELD_PER_THREAD: Final = 2  # so that no thread waits for the slowest one


class StoppedError(Exception):
    """Raised by work that is not needed any more; the error that stopped it is the one to report."""


def map_in_order(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    n_threads: int,
    *,
    n_held: int | None = None,
    stop: Event | None = None,
) -> Generator[Result]:
    """Yield ``work(item)``, done in threads, for every item, in order.

    When the work on an item fails, no further item is begun. The results before it are yielded, and then its error is
    raised. No thread is left behind. ``items`` are taken as needed, in the caller's thread; at most ``n_held`` (2 per
    thread) are begun and not yet yielded. Give more where one item may take as long as many others. ``stop`` is set on
    an error and at the end. Work that waits for long looks at it, and raises StoppedError.
    """
    stop = stop or Event()
    n_held = n_held or _HELD_PER_THREAD * n_threads

    def run(item: Item) -> Result:
        if stop.is_set():
            raise StoppedError
        try:
            return work(item)
        except BaseException:
            stop.set()
            raise

    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="sciscidata")
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(run, item))
            if len(pending) >= n_held or stop.is_set():
                yield _take_first(pending)
        while pending:
            yield _take_first(pending)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _take_first(pending: deque[Future[Result]]) -> Result:
    """Return the first result, or raise the error that made the others stop; the earliest, if there are several."""
    try:
        return pending.popleft().result()
    except StoppedError:
        errors = (future.exception() for future in pending)
        raise next(error for error in errors if error is not None and not isinstance(error, StoppedError)) from None


def run_all(work: Callable[[Item], Result], items: Iterable[Item], n_threads: int) -> list[Result]:
    """Return ``work(item)`` for every item, in order, when all are done; errors are as in ``map_in_order``.

    One thread is the caller's own: memory that another thread freed would be lost to it.
    """
    return list(map(work, items) if n_threads == 1 else map_in_order(work, items, n_threads))


def read_ahead(items: Iterable[Item], n_ahead: int = 2) -> Generator[Item]:
    """Give the same items in order, while one thread reads the next ones; gains where reading releases the GIL.

    A caller that stops early waits for the item being read: then what the items come from can be closed.
    """
    source = iter(items)
    # Each call takes a list of one item, or of none at the end.
    reading = map_in_order(lambda _: list(islice(source, 1)), repeat(None), 1, n_held=n_ahead + 1)
    with closing(reading):
        for taken in reading:
            if not taken:
                return
            yield from taken
