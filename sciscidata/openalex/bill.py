"""What a run has spent at OpenAlex, exact to the nano-dollar, and never more than allowed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from sciscidata.errors import CostLimitError
from sciscidata.openalex.answers import Answer, read_cost, read_remaining

_NANO: Final = 1_000_000_000  # whole nano-dollars: a sum does not depend on which thread came first


class Bill:
    """Counts calls and dollars for all threads of a client.

    Args:
        limit_usd: refuse the call that could go beyond; None: no limit.

    Example:
        >>> bill = Bill(limit_usd=0.0002)
        >>> bill.settle(bill.reserve(0.0001), Answer(200, {"x-ratelimit-cost-usd": "0.0001"}, b""))
        0.0001
        >>> bill.n_calls, bill.cost_usd
        (1, 0.0001)
    """

    def __init__(self, limit_usd: float | None = None) -> None:
        self._limit = limit_usd
        self._watcher: Callable[[float], None] | None = None
        self._lock = threading.Lock()
        self._spent = self._reserved = 0
        self.n_calls = 0
        self.remaining_usd: float | None = None

    @property
    def cost_usd(self) -> float:
        """Dollars spent so far."""
        return self._spent / _NANO

    def watch(self, callback: Callable[[float], None] | None) -> None:
        """Call back with ``cost_usd`` whenever a call is settled, one at a time, from any thread; None: no more."""
        with self._lock:
            self._watcher = callback

    def reserve(self, price_usd: float) -> float:
        """Set the price of a call aside, so that calls at once cannot overspend together; return it.

        Raises:
            CostLimitError: the call could go beyond the limit.
        """
        with self._lock:
            if self._limit is not None and self._spent + self._reserved + _nano(price_usd) > _nano(self._limit):
                msg = (
                    f"Stopped before spending more than max_cost_usd = {self._limit:g} ({self.cost_usd:g} dollars "
                    "spent). Every answer is kept: run the same command with a higher limit, or again with the same, "
                    "and it goes on where it stopped."
                )
                raise CostLimitError(msg)
            self._reserved += _nano(price_usd)
            self.n_calls += 1
        return price_usd

    def settle(self, price_usd: float, answer: Answer | None) -> float:
        """Replace what was set aside by what the answer cost, and return that.

        As stated in the answer; else the price of a good answer, and nothing for an error or for no answer.
        """
        stated = read_cost(answer) if answer else None
        at_list_price = price_usd if answer and answer.status == 200 else 0.0
        cost = at_list_price if stated is None else stated
        remaining = read_remaining(answer) if answer else None
        with self._lock:
            self._reserved -= _nano(price_usd)
            self._spent += _nano(cost)
            if remaining is not None:
                self.remaining_usd = remaining
            if self._watcher:
                self._watcher(self.cost_usd)
        return cost


def _nano(dollars: float) -> int:
    return round(dollars * _NANO)
