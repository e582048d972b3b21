"""Try again after an error that may pass: one schedule of waits for the API, the hubs and the stores."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import httpx
    import tenacity

_Result = TypeVar("_Result")


def asked_wait_s(answer: httpx.Response) -> float:
    """Return the seconds that a server asks to wait (Retry-After); 0.0 if it does not say.

    Example:
        >>> import httpx
        >>> asked_wait_s(httpx.Response(429, headers={"Retry-After": "1"}))
        1.0
    """
    asked = answer.headers.get("Retry-After", "")
    return float(asked) if re.fullmatch(r"\d{1,6}", asked) else 0.0


@dataclass(frozen=True)
class Patience:
    """Which errors may pass, how often something is tried until then, and how long the waits are."""

    may_pass: Callable[[BaseException], bool]
    n_attempts: Callable[[BaseException], int]
    first_wait_s: float
    longest_wait_s: float


def keep_trying(
    act: Callable[[], _Result],
    patience: Patience,
    *,
    sleep: Callable[[float], None] = time.sleep,
    tell: Callable[[BaseException, int, float], None] = lambda error, attempt, wait_s: None,
) -> _Result:
    """Do something until it works, or raise its last error.

    A wait is what the error asks for (``wait_s``) plus growing jitter, up to a cap. ``tell`` gets the error, the number
    of the next attempt, and the wait before it.
    """
    import tenacity  # slow to load, and not needed at the start of a command

    backoff = tenacity.wait_random_exponential(multiplier=patience.first_wait_s, max=patience.longest_wait_s)

    def error_of(state: tenacity.RetryCallState) -> BaseException:
        assert state.outcome is not None
        error = state.outcome.exception()
        assert error is not None  # a result ends the attempts
        return error

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(patience.may_pass),
        stop=lambda state: state.attempt_number >= patience.n_attempts(error_of(state)),
        wait=lambda state: min(patience.longest_wait_s, getattr(error_of(state), "wait_s", 0.0) + backoff(state)),
        sleep=sleep,
        before_sleep=lambda state: tell(error_of(state), state.attempt_number + 1, state.upcoming_sleep),
        reraise=True,
    )(act)
