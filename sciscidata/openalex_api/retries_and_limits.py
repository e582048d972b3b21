"""Retry waits (``ask_until_answered``), requests per second (``Pacer``) and the spending limit (``Bill``).

After HTTP 429, ``answers.py`` says how long to wait, and ``remote/retries.py`` adds the backoff.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from sciscidata.errors import ApiError, CostLimitError
from sciscidata.openalex_api.answers import Answer, TryAgainError, read_cost, read_remaining
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.openalex_api.request import CREDIT_USD, shown
from sciscidata.remote.retries import Patience, keep_trying
from sciscidata.remote.urls import NO_NETWORK, show_address

_FIRST_BACKOFF_S: Final = 0.5
_FIRST_ATTEMPTS: Final = 3
_LONG_WAIT_S: Final = 5.0  # a user who waits this long is shown the reason
_NANO: Final = 1_000_000_000  # costs are whole nano-dollars: a sum does not depend on the order of threads

_log = logging.getLogger(__name__)


class Pacer:
    """Spaces the requests of all threads evenly: at most ``rate`` a second, and none in a pause."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock()

    def wait(self, sleep: Callable[[float], object]) -> None:
        """Sleep until the next request may be sent."""
        with self._lock:
            now = self._clock()
            moment = max(now, self._next)
            self._next = moment + 1 / self._rate
        sleep(moment - now)

    def pause(self, pause_s: float) -> None:
        """Start no request within ``pause_s``, after a complaint of the server."""
        with self._lock:
            self._next = max(self._next, self._clock() + pause_s)


def ask_until_answered(
    ask: Callable[[], dict[str, Any]],
    request: str,
    config: ApiConfig,
    *,
    was_reached: Callable[[], bool],
    sleep: Callable[[float], None],
) -> dict[str, Any]:
    """Retry until there is a good answer, or raise ApiError after the last attempt.

    A server that never answered gets three attempts, because the network or the address is wrong.
    """

    def allowed() -> int:
        return config.max_attempts if was_reached() else min(_FIRST_ATTEMPTS, config.max_attempts)

    def tell(error: BaseException, attempt: int, wait_s: float) -> None:
        level = logging.WARNING if wait_s >= _LONG_WAIT_S else logging.DEBUG
        _log.log(level, "%s: %s. Attempt %d in %.1f s.", shown(request), error, attempt, wait_s)

    def may_pass(error: BaseException) -> bool:
        return isinstance(error, TryAgainError)

    patience = Patience(may_pass, lambda _: allowed(), _FIRST_BACKOFF_S, config.max_sleep_s)
    try:
        return keep_trying(ask, patience, sleep=sleep, tell=tell)
    except TryAgainError as error:
        if not was_reached():
            raise ApiError(
                f"{show_address(config.base_url)} gave no answer in {allowed()} attempts; last: {error}. {NO_NETWORK} "
                "With ApiConfig.offline=True, what earlier runs have fetched is used."
            ) from error
        raise ApiError(
            f"OpenAlex gave no good answer to {shown(request)} in {allowed()} attempts; last: {error}. "
            "Every good answer is stored: run the same command again later, and it goes on where it stopped.",
            status=error.answer.status if error.answer else None,
        ) from error


class Bill:
    """Counts calls and dollars for all threads of a client; a call that could exceed the limit is a CostLimitError."""

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
        """Call ``callback`` with ``cost_usd`` after every call, one thread at a time; None: stop."""
        with self._lock:
            self._watcher = callback

    def reserve(self) -> None:
        """Reserve the price of a call until it is settled, so that simultaneous calls cannot overspend together.

        A lost answer may have been charged: its call is never settled, and counts against the limit.
        """
        with self._lock:
            at_most = self._spent + self._reserved + _nano(CREDIT_USD)
            if self._limit is not None and at_most > _nano(self._limit):
                waiting = (
                    f", and up to {self._reserved / _NANO:g} for calls without an answer" if self._reserved else ""
                )
                raise CostLimitError(
                    f"Stopped before spending more than ApiConfig.max_cost_usd={self._limit:g} ({self.cost_usd:g} "
                    f"dollars spent{waiting}). Every answer is stored: run again, with the same or a higher limit, and "
                    "it goes on where it stopped."
                )
            self._reserved += _nano(CREDIT_USD)
            self.n_calls += 1

    def settle(self, answer: Answer | None) -> float:
        """Replace a reserved price by the real cost, and return that.

        A good answer that states no cost takes the reserved price; an error is free.
        """
        stated = read_cost(answer) if answer else None
        at_list_price = CREDIT_USD if answer and answer.status == 200 else 0.0
        cost = at_list_price if stated is None else stated
        remaining = read_remaining(answer) if answer else None
        with self._lock:
            self._reserved -= _nano(CREDIT_USD)
            self._spent += _nano(cost)
            if remaining is not None:
                self.remaining_usd = remaining
            if self._watcher:
                self._watcher(self.cost_usd)
        return cost


def _nano(dollars: float) -> int:
    return round(dollars * _NANO)
