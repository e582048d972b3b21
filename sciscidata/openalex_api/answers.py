"""Interpret an HTTP answer of OpenAlex: a good one, a passing error, a spent budget, or a refusal.

Sources: the rate limiter (github.com/ourresearch/openalex-api-proxy), the API's own errors
(github.com/ourresearch/openalex-elastic-api) and help.openalex.org, as of August 2026.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import msgspec

from sciscidata.errors import ApiError, ApiKeyError, DailyBudgetError
from sciscidata.openalex_api.config import KEY_VARIABLE, config_file
from sciscidata.openalex_api.request import shown

# Cannot match inside a text: there the quotes are escaped.
_TIMING: Final = re.compile(rb'"db_response_time_ms":\s*[0-9]+(?=\s*[,}])')
#: The id at the end of an address; no more of it is kept, since an address may hold the key.
_MOVED: Final = re.compile(r"/(W[0-9]{1,18})(?:[/?#]|$)", re.I)
_LONG_WAIT_S: Final = 3_600.0
_MOST_USD: Final = 100.0  # for one answer; ten thousand times the dearest call there is
_MOST_CHARACTERS: Final = 400  # OpenAlex lists all 150 filters when one is misspelt


class Answer(NamedTuple):
    """One HTTP answer; header names are looked up in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class TryAgainError(Exception):
    """The same request may succeed after ``wait_s``; if it ``is_lost``, the server may have charged for it."""

    def __init__(
        self,
        reason: str,
        *,
        answer: Answer | None = None,
        wait_s: float = 0.0,
        is_too_fast: bool = False,
        is_lost: bool = False,
    ) -> None:
        super().__init__(reason)
        self.answer = answer
        self.wait_s = wait_s
        self.is_too_fast = is_too_fast
        self.is_lost = is_lost


def how_to_get_a_key() -> str:
    """Return the last sentence of every message about a missing or wrong key."""
    page = "https://openalex.org/settings/api"
    return f'A key is free: {page}. Set {KEY_VARIABLE}, or put api_key = "..." in {config_file()}.'


def without_timing(answer: Answer) -> Answer:
    """Set the response time to 0, so that equal answers have equal bytes."""
    return answer._replace(body=_TIMING.sub(b'"db_response_time_ms":0', answer.body))


def read_answer(answer: Answer, request: str, *, has_key: bool, now: datetime) -> dict[str, Any]:
    """Return the JSON object of a good answer; a TryAgainError is passing, any other error final.

    ``has_key`` decides the advice in messages; the reset of the daily budget is counted from ``now``.
    """
    status = answer.status
    if status == 200:
        return _object(answer)
    if status == 429:
        raise _too_many(answer, request, now)
    if status >= 500 or status in (408, 425):
        raise TryAgainError(f"HTTP {status}{_said(answer)}", answer=answer, wait_s=_retry_after(answer, now))
    if status == 401:
        raise ApiKeyError(
            (
                f"OpenAlex does not accept the API key{_said(answer)}. Copy it again. {how_to_get_a_key()}"
                if has_key
                else f"OpenAlex needs an API key for {shown(request)}{_said(answer)}. {how_to_get_a_key()}"
            ),
            status=status,
        )
    raise ApiError(
        f"OpenAlex refused {shown(request)} with HTTP {status}{_said(answer)}. A retry would not help.",
        status=status,
        moved_to=moved[1] if (moved := _MOVED.search(answer.headers.get("location", ""))) else None,
    )


def read_cost(answer: Answer) -> float | None:
    """Return the cost of an answer in dollars; None if it is not stated, or impossible."""
    cost = _number(answer.headers.get("x-ratelimit-cost-usd"))
    return cost if cost is not None and cost <= _MOST_USD else None


def read_remaining(answer: Answer) -> float | None:
    """Return the rest of today's budget in dollars, if the answer states it."""
    return _number(answer.headers.get("x-ratelimit-remaining-usd"))


def _object(answer: Answer) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(answer.body)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise TryAgainError(
            f"the answer is not JSON ({error}; {len(answer.body):,} bytes arrived)", answer=answer
        ) from error
    if not isinstance(content, dict):
        raise TryAgainError(f"the answer is a JSON {type(content).__name__}, not an object", answer=answer)
    return content


def _too_many(answer: Answer, request: str, now: datetime) -> Exception:
    """Return the error for one of three kinds of 429: per second, per day, not in the plan."""
    reason = _said(answer)
    wait_s = _retry_after(answer, now)
    if "plan upgrade" in reason.lower():
        msg = f"OpenAlex refused {shown(request)}{reason}. It needs a paid plan: leave out that filter or sort."
        return ApiError(msg, status=429)
    # "Insufficient budget" today, "Insufficient credits" until the summer of 2026. An unexplained wait of hours is
    # also taken for a spent budget.
    is_budget = "insufficient" in reason.lower() or _field(answer, "dailyRemainingUsd") is not None
    if "per second" not in reason.lower() and (is_budget or wait_s > _LONG_WAIT_S):
        resets_at = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        msg = (
            f"The daily budget of OpenAlex is used up{reason}. It is full again at {resets_at:%Y-%m-%d %H:%M} UTC. "
            "Run the same command again then: every answer is stored, so it goes on where it stopped."
        )
        return DailyBudgetError(msg, resets_at=resets_at)
    return TryAgainError(f"too many requests per second{reason}", answer=answer, wait_s=wait_s or 1.0, is_too_fast=True)


def _retry_after(answer: Answer, now: datetime) -> float:
    """Return the seconds that the server asks to wait, as a number or until a date; 0.0 if it does not say."""
    text = answer.headers.get("retry-after")
    seconds = _number(text if text is not None else _field(answer, "retryAfter"))
    if seconds is None and text is not None:
        with suppress(TypeError, ValueError, OverflowError):  # no date, or one without a zone
            seconds = max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    return seconds or 0.0


def _said(answer: Answer) -> str:
    """Return the message of an error body in quotes and brackets, after a space; empty if it has none."""
    texts = [text for name in ("error", "message", "reason") if isinstance(text := _field(answer, name), str)]
    shown = " ".join(": ".join(texts).split())
    if len(shown) > _MOST_CHARACTERS:
        shown = shown[:_MOST_CHARACTERS] + "…"
    return f' ("{shown}")' if shown else ""


def _field(answer: Answer, name: str) -> Any:  # noqa: ANN401
    try:
        content = msgspec.json.decode(answer.body)
    except (ValueError, RecursionError):
        return None
    return content.get(name) if isinstance(content, dict) else None


def _number(value: Any) -> float | None:  # noqa: ANN401
    """Read a number of 0 or more; None for anything else."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
