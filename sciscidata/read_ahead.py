"""Reading in a thread of its own, so that what is read next is there when it is asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Final, TypeVar

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
