"""Faults on demand. Which request fails how is a function of the seed, the request and how often it was asked."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections import defaultdict
from typing import Any

from tests.servers.openalex.answers import HTML, Answer
from tests.servers.openalex.gate import budget_spent, too_fast

#: Instead of the answer.
REFUSALS = ("rate429", "daily429", "plan429", "500", "502", "503", "504")
#: To the answer itself, which is paid for: the connection is reset half-way; the JSON ends half-way under a fitting
#: Content-Length; it comes late; counts or rows are missing, as after a soft timeout of Elasticsearch.
SPOILT = ("reset", "truncated", "slow", "partial")
FAULTS = REFUSALS + SPOILT


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """How often and how requests fail; never more than ``consecutive`` times in a row for the same request."""

    rate: float = 0.0
    seed: int = 0
    kinds: tuple[str, ...] = FAULTS
    consecutive: int = 3
    slow_s: float = 1.0
    retry_after_s: int | None = None  # instead of the 1 s of a short 429 and the 30 s of a 503

    def __post_init__(self) -> None:
        unknown = set(self.kinds) - set(FAULTS)
        if unknown or not self.kinds:
            message = f"faults must be of {', '.join(FAULTS)}; got {', '.join(sorted(unknown)) or 'none'}"
            raise ValueError(message)


class Faults:
    """Deals a fault, or none, to each attempt at a request."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self._lock = threading.Lock()
        self._attempts: dict[str, int] = defaultdict(int)
        self._in_a_row: dict[str, int] = defaultdict(int)

    def deal(self, request: str) -> str | None:
        if not self.plan.rate:
            return None
        with self._lock:
            attempt = self._attempts[request]
            self._attempts[request] += 1
            drawn = _draw(self.plan.seed, request, attempt)
            if drawn[0] >= self.plan.rate or self._in_a_row[request] >= self.plan.consecutive:
                self._in_a_row[request] = 0
                return None
            self._in_a_row[request] += 1
            return self.plan.kinds[drawn[1] % len(self.plan.kinds)]


def _draw(*key: Any) -> tuple[float, int]:
    digest = hashlib.sha256(":".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16])


def refusal(kind: str, plan: FaultPlan, *, credits: int, per_second: float, now: float) -> Answer:
    """The answer that stands in for the real one."""
    answer = _refusal(kind, credits, per_second, now)
    if plan.retry_after_s is not None and kind in ("rate429", "503"):
        answer.headers["Retry-After"] = str(plan.retry_after_s)
    return answer


def _refusal(kind: str, credits: int, per_second: float, now: float) -> Answer:
    if kind == "rate429":
        return too_fast(per_second)
    if kind == "daily429":
        return budget_spent(credits, 10_000, 10_000, now)
    if kind == "plan429":
        message = "from_updated_date needs a plan with the daily snapshot. See https://openalex.org/pricing"
        return Answer(429, {"error": "Plan upgrade required", "message": message})
    if kind == "500":
        return Answer(500, {"error": "Internal Server Error", "message": "Something went wrong."})
    if kind == "502":
        page = "<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"
        return Answer(502, page, content_type=HTML)
    if kind == "503":
        payload = {"error": "Service Unavailable", "message": "Please try again shortly."}
        return Answer(503, payload, headers={"Retry-After": "30"})
    return Answer(504, {"error": "Gateway timeout", "reason": "query_timeout"})


def partial(payload: Any, request: str, seed: int) -> Any | None:
    """The answer with something missing that its own numbers give away; None where nothing can be missing.

    Either meta.count is too low, or groups or rows are. (Elasticsearch may also lower both alike; no client can
    tell that from a single answer, so it is not done here.)
    """
    meta = payload.get("meta") if isinstance(payload, dict) else None
    if not meta or not meta["count"]:
        return None
    groups, rows = payload.get("group_by"), payload.get("results")
    if _draw("partial", seed, request)[1] % 2 or not (groups or rows):
        count = meta["count"]
        return payload | {"meta": meta | {"count": count - max(1, count // 3)}}
    if groups:
        fewer = [group | {"count": group["count"] - (group["count"] + 2) // 3} for group in groups]
        fewer = [group for group in fewer if group["count"]]
        fewer_meta = meta | {"groups_count": len(fewer)}
        return payload | {"meta": fewer_meta, "group_by": fewer}
    return payload | {"results": rows[: len(rows) - (len(rows) + 2) // 3]}
