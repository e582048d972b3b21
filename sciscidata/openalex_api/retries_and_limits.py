"""What a run has spent at OpenAlex, exact to the nano-dollar, and never more than allowed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import tenacity

from sciscidata.errors import ApiError, CostLimitError
from sciscidata.openalex_api.answers import Answer, TryAgainError, read_cost, read_remaining
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.openalex_api.request import Request

# ---------- A pace that all threads of a client share: evenly spaced, slower after a complaint, then slowly back.


_SLOWEST: Final = 1 / 16  # of the full rate
_RECOVERY: Final = 1 / 100  # of the full rate, per answer


class Pacer:
    """Hands out moments to send a request at, never more than ``rate`` a second.

    Evenly spaced instead of in bursts: a server that counts per second sees no peak.

    Args:
        rate: requests per second at full pace.
        clock: seconds that only grow.

    Example:
        >>> pacer, waits = Pacer(4.0, clock=lambda: 0.0), []
        >>> for _ in range(3):
        ...     pacer.wait(waits.append)
        >>> waits
        [0.0, 0.25, 0.5]
    """

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._full_rate = self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock()
        self._slowed_at = float("-inf")

    def wait(self, sleep: Callable[[float], object]) -> None:
        """Take the next moment, and sleep until then."""
        with self._lock:
            now = self._clock()
            moment = max(now, self._next)
            self._next = moment + 1 / self._rate
        sleep(moment - now)

    def slow_down(self, pause_s: float) -> None:
        """Halve the pace, and let nobody start within ``pause_s``: the server complained."""
        with self._lock:
            now = self._clock()
            # One crowded second answers every thread with the same complaint; it counts once.
            if now - self._slowed_at >= 1.0:
                self._slowed_at = now
                self._rate = max(self._rate / 2, self._full_rate * _SLOWEST)
            self._next = max(self._next, now + pause_s)

    def speed_up(self) -> None:
        """Note an answer without complaint: a hundredth of the way back to the full pace."""
        with self._lock:
            self._rate = min(self._full_rate, self._rate + self._full_rate * _RECOVERY)


# ---------- How often a question is asked again, and how long is waited before it is.


_log = logging.getLogger(__name__)

_FIRST_BACKOFF_S: Final = 0.5
_FIRST_ATTEMPTS: Final = 3
_LONG_WAIT_S: Final = 5.0  # a user who waits this long wants to know why


def ask_until_answered(
    ask: Callable[[], dict[str, Any] | None],
    request: Request,
    config: ApiConfig,
    *,
    was_reached: Callable[[], bool],
    sleep: Callable[[float], None],
) -> dict[str, Any] | None:
    """Ask until there is a good answer; between attempts wait what the server asks, plus jitter that grows, capped.

    Args:
        ask: one attempt; raises TryAgainError for an error of the moment. Other errors end the asking.
        request: what is asked, for messages.
        config: how often at the most, and the longest wait.
        was_reached: whether the server ever answered. One that was never there is given up soon: then it is the
            network or the address, not its load.
        sleep: waits so many seconds.

    Returns:
        What ``ask`` returns.

    Raises:
        ApiError: no attempt had a good answer.

    Example:
        >>> from sciscidata.openalex_api.request import works_request
        >>> def fail():
        ...     raise TryAgainError("HTTP 503")
        >>> ask_until_answered(fail, works_request(1), ApiConfig(), was_reached=lambda: False, sleep=lambda s: None)
        Traceback (most recent call last):
        sciscidata.errors.ApiError: OpenAlex gave no good answer to ... in 3 attempts; last: HTTP 503. ...
    """

    def allowed() -> int:
        return config.max_attempts if was_reached() else min(_FIRST_ATTEMPTS, config.max_attempts)

    backoff = tenacity.wait_random_exponential(multiplier=_FIRST_BACKOFF_S, max=config.max_sleep_s)

    def pause(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked_s = error.wait_s if isinstance(error, TryAgainError) else 0.0
        return min(config.max_sleep_s, asked_s + backoff(state))

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TryAgainError),
        stop=lambda state: state.attempt_number >= allowed(),
        wait=pause,
        sleep=sleep,
        before_sleep=lambda state: _log_retry(request, state),
        reraise=True,
    )
    try:
        return retrying(ask)
    except TryAgainError as error:
        msg = (
            f"OpenAlex gave no good answer to {request} in {allowed()} attempts; last: {error}. "
            "Every answer so far is kept: run the same command again later, and it goes on where it stopped."
        )
        raise ApiError(msg, status=error.answer.status if error.answer else None) from error


def _log_retry(request: Request, state: tenacity.RetryCallState) -> None:
    wait_s = state.upcoming_sleep
    level = logging.WARNING if wait_s >= _LONG_WAIT_S else logging.DEBUG
    error = state.outcome.exception() if state.outcome else None
    _log.log(level, "%s: %s. Attempt %d in %.1f s.", request, error, state.attempt_number + 1, wait_s)


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
