"""How often a question is asked again, and how long is waited before it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import tenacity

from sciscidata.errors import ApiError
from sciscidata.openalex.answers import TryAgainError
from sciscidata.openalex.config import ApiConfig
from sciscidata.openalex.request import Request

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
        >>> from sciscidata.openalex.request import works_request
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
