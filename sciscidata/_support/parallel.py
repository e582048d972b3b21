"""Reading in a thread of its own, so that what is read next is there when it is asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Event
from typing import Any, Final, TypeVar

# ---------- Work on a stream of items with several threads, and get the results in the order of the items.


Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_AHEAD: Final = 2  # items per thread: enough that no thread waits for the slowest


class StoppedError(Exception):
    """Raised by work that sees ``stop``: somebody else's error is the one to raise."""


def map_in_order(
    work: Callable[[Item, Event], Result], items: Iterable[Item], n_threads: int
) -> Generator[tuple[Item, Result]]:
    """Yield every item with its result, in order.

    Items are taken as needed, two per thread ahead, in the caller's thread. When the work on one fails,
    ``stop`` is set: the other threads end what they are at, no item is begun any more, the results before the
    failed one are yielded, and then its error is raised. The same holds when the caller breaks off or is
    interrupted; in every case no thread is left behind.

    Args:
        work: gets an item and ``stop``; where it could go on for long, it looks at ``stop`` and raises
            StoppedError.
        items: taken lazily.
        n_threads: how many items are worked on at once.

    Example:
        >>> list(map_in_order(lambda n, stop: n * n, [3, 1, 2], n_threads=2))
        [(3, 9), (1, 1), (2, 4)]
    """
    stop = Event()

    def run(item: Item) -> Result:
        if stop.is_set():
            raise StoppedError
        try:
            return work(item, stop)
        except BaseException:
            stop.set()
            raise

    pool = ThreadPoolExecutor(n_threads)
    ahead: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            ahead.append((item, pool.submit(run, item)))
            if len(ahead) == _LOOK_AHEAD * n_threads or stop.is_set():
                yield _first_result(ahead)
        while ahead:
            yield _first_result(ahead)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _first_result(ahead: deque[tuple[Item, Future[Result]]]) -> tuple[Item, Result]:
    item, future = ahead.popleft()
    try:
        return item, future.result()
    except StoppedError:
        raise _first_error(future for _, future in ahead) from None


def _first_error(futures: Iterable[Future[Any]]) -> BaseException:
    """Return the error that made the others stop; the earliest, if there are several."""
    errors = (future.exception() for future in futures)
    return next(error for error in errors if error is not None and not isinstance(error, StoppedError))


_Item = TypeVar("_Item")
_AHEAD: Final = 2


def read_ahead(items: Iterable[_Item], n_ahead: int = _AHEAD) -> Generator[_Item]:
    """Give the same items in the same order, while a thread reads the next ones.

    It pays where reading releases the GIL, as pyarrow does. Nothing is read before the first item is asked for, and
    what reading raises is raised in its turn. Who stops early waits for the item that is being read: then no thread
    uses ``items`` any more, and what they come from can be closed.

    Args:
        items: used in one thread, that of this reader.
        n_ahead: items that are held beside the one that was given last; one at least.

    Example:
        >>> list(read_ahead(number**2 for number in range(5)))
        [0, 1, 4, 9, 16]
    """
    source = iter(items)

    def take() -> list[_Item]:
        return list(islice(source, 1))  # none at the end

    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as pool:
        waiting: deque[Future[list[_Item]]] = deque(pool.submit(take) for _ in range(n_ahead))
        try:
            while taken := waiting.popleft().result():
                waiting.append(pool.submit(take))
                yield from taken
        finally:
            for future in waiting:
                future.cancel()
