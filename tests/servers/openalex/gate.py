"""Who may ask, how often and for how much: keys, the daily budget and the rate, as the API's edge enforces them."""

from __future__ import annotations

import datetime
import math
import threading
from collections.abc import Callable, Iterable, Mapping

from tests.servers.openalex.answers import Answer

USD_PER_CREDIT = 0.0001
DAILY_CREDITS, KEYLESS_DAILY_CREDITS = 10_000, 1_000
PER_SECOND, KEYLESS_PER_SECOND = 30, 10
KEY_NAMES = ("api_key", "api-key")


def key_of(params: Iterable[tuple[str, str]], headers: Mapping[str, str]) -> str | None:
    """The key in any of the accepted places; None if there is none, empty if it is blank."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token
    for name, value in params:
        if name in KEY_NAMES:
            return value
    for name in KEY_NAMES:
        if name in headers:
            return headers[name]
    return None


def seconds_to_midnight(now: float) -> int:
    return math.ceil(86_400 - now % 86_400)


def usd(credits: float) -> str:
    return f"{credits * USD_PER_CREDIT:.4f}".rstrip("0").rstrip(".")


class Account:
    """One key's day and second. Thread-safe."""

    def __init__(self, daily_credits: int, per_second: float, clock: Callable[[], float]) -> None:
        self.daily_credits = daily_credits
        self.per_second = per_second
        self.clock = clock
        self._lock = threading.Lock()
        self._day = -1
        self._used = 0
        self._tokens = per_second
        self._refilled = clock()

    @property
    def used(self) -> int:
        """Credits spent since the last midnight UTC."""
        with self._lock:
            self._new_day()
            return self._used

    def _new_day(self) -> None:
        day = int(self.clock() // 86_400)
        if day != self._day:
            self._day, self._used = day, 0

    def admit(self, credits: int) -> Answer | None:
        """Take a place in this second and reserve the price; the refusal if there is none."""
        with self._lock:
            self._new_day()
            now = self.clock()
            if self.per_second != math.inf:
                refill = max(0.0, now - self._refilled) * self.per_second
                self._tokens, self._refilled = min(self.per_second, self._tokens + refill), now
                if self._tokens < 1:
                    return too_fast(self.per_second)
                self._tokens -= 1
            if self._used + credits > self.daily_credits:
                return budget_spent(credits, self.daily_credits, self._used, now)
            self._used += credits
            return None

    def settle(self, answer: Answer, reserved: int) -> int:
        """What the answer costs in the end: errors are free, and so is a redirect."""
        cost = reserved if answer.status == 200 else 0
        if cost != reserved:
            with self._lock:
                self._used = max(0, self._used - (reserved - cost))
        return cost

    def headers(self, cost: int) -> dict[str, str]:
        left = max(0, self.daily_credits - self.used)
        return {
            "X-RateLimit-Limit": str(self.daily_credits),
            "X-RateLimit-Remaining": str(left),
            "X-RateLimit-Credits-Used": str(cost),
            "X-RateLimit-Onetime-Remaining": "0",
            "X-RateLimit-Reset": str(seconds_to_midnight(self.clock())),
            "X-RateLimit-Limit-USD": usd(self.daily_credits),
            "X-RateLimit-Remaining-USD": usd(left),
            "X-RateLimit-Prepaid-Remaining-USD": "0",
            "X-RateLimit-Cost-USD": usd(cost),
        }

    def status(self, key: str) -> Answer:
        """``GET /rate-limit``."""
        now = self.clock()
        left = max(0, self.daily_credits - self.used)
        midnight = datetime.datetime.fromtimestamp(now + seconds_to_midnight(now), datetime.UTC)
        budget = {
            "daily_budget_usd": float(usd(self.daily_credits)),
            "daily_used_usd": float(usd(self.daily_credits - left)),
            "daily_remaining_usd": float(usd(left)),
            "prepaid_balance_usd": 0.0,
            "prepaid_remaining_usd": 0.0,
            "resets_at": midnight.strftime("%Y-%m-%dT00:00:00Z"),
            "resets_in_seconds": seconds_to_midnight(now),
            "endpoint_costs_usd": {"singleton": 0.0, "list": 0.0001, "search": 0.001, "semantic": 0.001}
            | {"content": 0.01, "text": 0.01},
        }
        shown = f"{key[:3]}...{key[-3:]}" if len(key) > 6 else "***"
        return Answer(200, {"api_key": shown, "rate_limit": budget})


def bad_key() -> Answer:
    payload = {"error": "Invalid or missing API key", "message": "API key not found"}
    return Answer(401, payload, headers={"Cache-Control": "no-store"})


def key_needed(message: str) -> Answer:
    payload = {"error": "Authentication required", "message": message}
    return Answer(401, payload, headers={"Cache-Control": "no-store"})


def too_fast(per_second: float) -> Answer:
    message = f"Rate limit exceeded: {per_second:g} requests per second. Please slow down."
    payload = {"error": "Rate limit exceeded", "message": message, "retryAfter": 1}
    return Answer(429, payload, headers={"Retry-After": "1"})


def budget_spent(credits: int, daily_credits: int, used: int, now: float) -> Answer:
    left, wait = max(0, daily_credits - used), seconds_to_midnight(now)
    message = (
        f"Insufficient budget. This request costs ${usd(credits)} but you only have ${usd(left)} remaining. "
        "Resets at midnight UTC. Need more? See https://openalex.org/pricing"
    )
    payload = {
        "error": "Rate limit exceeded",
        "message": message,
        "retryAfter": wait,
        "creditsRequired": credits,
        "creditsRemaining": left,
        "onetimeCreditsRemaining": 0,
        "dailyRemainingUsd": float(usd(left)),
    }
    headers = {"Retry-After": str(wait), "X-RateLimit-Credits-Required": str(credits)}
    return Answer(429, payload, headers=headers)
