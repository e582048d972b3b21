"""OpenAlex on 127.0.0.1: a real HTTP server over real records, with faults on demand and a log of what it cost.

By hand::

    python -m tests.servers.openalex_server --records works.jsonl.gz --port 8080

In a test::

    with OpenAlexServer(records, key="secret", fault_rate=0.2) as server:
        run(base_url=server.base_url, api_key="secret")
    assert server.credits == 12 and not server.repeated()
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import math
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.servers.openalex_works import HTML, Answer, Params, Records, read_works

USD_PER_CREDIT = 0.0001
#: The limit on the request line, counted after each | is written as %7C.
MAX_REQUEST_LINE = 8_190

#: Instead of the answer.
REFUSALS = ("rate429", "daily429", "plan429", "500", "502", "503", "504")
#: To the answer itself, which is paid for: the connection is reset half-way; the JSON ends half-way under a fitting
#: Content-Length; it comes late; counts or rows are missing, as after a soft timeout of Elasticsearch.
SPOILT = ("reset", "truncated", "slow", "partial")
FAULTS = REFUSALS + SPOILT


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogEntry:
    """One exchange. ``request`` is the same for the same question: sorted parameters, no e-mail address."""

    request: str
    status: int
    fault: str | None
    credits: int

    @property
    def delivered(self) -> bool:
        """Whether the client got a whole and true answer."""
        return self.status == 200 and self.fault in (None, "slow")


class Account:
    """The day of one key, or of everybody without a key."""

    def __init__(self, daily_credits: int, clock: Callable[[], float]) -> None:
        self.daily_credits, self.clock = daily_credits, clock
        self._lock = threading.Lock()
        self._day, self._used = -1, 0

    def admit(self, credits: int) -> Answer | None:
        """Reserve the price; the refusal if the day is spent."""
        with self._lock:
            now = self.clock()
            if now // 86_400 != self._day:
                self._day, self._used = int(now // 86_400), 0
            if self._used + credits > self.daily_credits:
                return budget_spent(credits, self.daily_credits - self._used, now)
            self._used += credits
            return None

    def give_back(self, credits: int) -> None:
        with self._lock:
            self._used = max(0, self._used - credits)

    def headers(self, cost: int) -> dict[str, str]:
        left = self.daily_credits - self._used
        return {
            "X-RateLimit-Remaining": str(left),
            "X-RateLimit-Credits-Used": str(cost),
            "X-RateLimit-Reset": str(seconds_to_midnight(self.clock())),
            "X-RateLimit-Remaining-USD": usd(left),
            "X-RateLimit-Cost-USD": usd(cost),
        }


class OpenAlexServer:
    """Serves from entering the context to leaving it.

    Args:
        records: a JSONL file of OpenAlex works (``.gz`` or not), or works as dicts.
        port: 0 takes a free one.
        key: the key that is accepted; None: any key is wrong.
        daily_credits: the budget per day (UTC) of a key, and of everybody without one.
        fault_rate: share of requests to fail, 0..1.
        fault_seed: which ones, and how.
        max_consecutive_faults: how often in a row the same request may fail.
        slow_s: how late a slow answer is.
        retry_after_s: the Retry-After of injected short 429 (otherwise 1) and 503 (otherwise 30).
        clock: seconds since the epoch, for tests of midnight.
    """

    def __init__(
        self,
        records: Records,
        *,
        port: int = 0,
        key: str | None = None,
        daily_credits: int = 10**9,
        fault_rate: float = 0.0,
        fault_seed: int = 0,
        max_consecutive_faults: int = 3,
        slow_s: float = 1.0,
        retry_after_s: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.api, self.clock = read_works(records), clock
        self.accounts = {name: Account(daily_credits, clock) for name in {None, key}}
        self.log: list[LogEntry] = []
        self._fault_rate, self._fault_seed, self._most_in_a_row = fault_rate, fault_seed, max_consecutive_faults
        self._slow_s, self._retry_after_s = slow_s, retry_after_s
        self._attempts: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._http = _HttpServer(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def credits(self) -> int:
        """The bill so far, in credits of $0.0001."""
        return sum(entry.credits for entry in self.log[:])

    @property
    def cost_usd(self) -> float:
        return self.credits * USD_PER_CREDIT

    def repeated(self) -> dict[str, int]:
        """Requests that were answered in full more than once, and how often."""
        delivered = Counter(entry.request for entry in self.log[:] if entry.delivered)
        return {request: n for request, n in delivered.items() if n > 1}

    def __enter__(self) -> OpenAlexServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.hang_up()
        self._http.server_close()

    def respond(self, path: str, params: Params, headers: Message, request: str) -> tuple[Answer, str | None, int]:
        """The answer to a GET, the fault dealt to it, and its price."""
        scheme, _, key = headers.get("Authorization", "").partition(" ")
        account = self.accounts.get(key if scheme.lower() == "bearer" else None)
        if account is None:
            return Answer(401, {"error": "Invalid or missing API key", "message": "API key not found"}), None, 0
        credits = 0 if path.startswith("/works/") else 1  # a single work is free
        refused = account.admit(credits)
        if refused is not None:
            refused.headers |= account.headers(0)
            return refused, None, 0
        fault = self._deal(request)
        if fault is None or fault in SPOILT:
            answer = self.api.answer(path, params)
            if answer.status != 200:
                fault = None
            elif fault == "partial":
                payload = self._partial(answer.payload, request)
                answer.payload, fault = (answer.payload, None) if payload is None else (payload, fault)
            elif fault == "slow":
                time.sleep(self._slow_s)
        else:
            answer = refusal(fault, credits, self.clock())
            if self._retry_after_s is not None and fault in ("rate429", "503"):
                answer.headers["Retry-After"] = str(self._retry_after_s)
        cost = credits if answer.status == 200 else 0
        account.give_back(credits - cost)
        answer.headers = account.headers(cost) | answer.headers
        if fault == "daily429":
            answer.headers |= {"X-RateLimit-Remaining": "0", "X-RateLimit-Remaining-USD": "0"}
        return answer, fault, cost

    def _deal(self, request: str) -> str | None:
        """Deal a fault, or none: a function of the seed, the request and how often it was asked."""
        with self._lock:
            attempt = self._attempts[request]
            self._attempts[request] += 1
            share, kind = _draw(self._fault_seed, request, attempt)
            if share >= self._fault_rate or self._in_a_row[request] >= self._most_in_a_row:
                self._in_a_row[request] = 0
                return None
            self._in_a_row[request] += 1
            return FAULTS[kind % len(FAULTS)]

    def _partial(self, payload: Any, request: str) -> Any | None:
        """The answer with something missing that its own numbers give away; None where nothing can be missing."""
        meta = payload.get("meta")
        if not meta or not meta["count"]:
            return None
        groups, rows = payload.get("group_by"), payload.get("results")
        if _draw("partial", self._fault_seed, request)[1] % 2 or not (groups or rows):
            return payload | {"meta": meta | {"count": meta["count"] - max(1, meta["count"] // 3)}}
        if groups:
            fewer = [group | {"count": group["count"] - (group["count"] + 2) // 3} for group in groups]
            fewer = [group for group in fewer if group["count"]]
            return payload | {"meta": meta | {"groups_count": len(fewer)}, "group_by": fewer}
        return payload | {"results": rows[: len(rows) - (len(rows) + 2) // 3]}


def _draw(*key: Any) -> tuple[float, int]:
    digest = hashlib.sha256(":".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16])


def seconds_to_midnight(now: float) -> int:
    return math.ceil(86_400 - now % 86_400)


def usd(credits: int) -> str:
    return f"{credits * USD_PER_CREDIT:.4f}".rstrip("0").rstrip(".")


def budget_spent(credits: int, left: int, now: float) -> Answer:
    wait = seconds_to_midnight(now)
    message = (
        f"Insufficient budget. This request costs ${usd(credits)} but you only have ${usd(left)} remaining. "
        "Resets at midnight UTC. Need more? See https://openalex.org/pricing"
    )
    payload = {"error": "Rate limit exceeded", "message": message, "retryAfter": wait}
    payload |= {"creditsRequired": credits, "creditsRemaining": left, "dailyRemainingUsd": float(usd(left))}
    return Answer(429, payload, headers={"Retry-After": str(wait)})


def refusal(kind: str, credits: int, now: float) -> Answer:
    """The answer that stands in for the real one."""
    page = "<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"
    plan = {"error": "Plan upgrade required", "message": "from_updated_date needs a plan with the daily snapshot."}
    fast = {"error": "Rate limit exceeded", "message": "Rate limit exceeded: 30 requests per second.", "retryAfter": 1}
    busy = {"error": "Service Unavailable", "message": "Please try again shortly."}
    return {
        "rate429": Answer(429, fast, headers={"Retry-After": "1"}),
        "daily429": budget_spent(credits, 0, now),
        "plan429": Answer(429, plan),
        "500": Answer(500, {"error": "Internal Server Error", "message": "Something went wrong."}),
        "502": Answer(502, page, content_type=HTML),
        "503": Answer(503, busy, headers={"Retry-After": "30"}),
        "504": Answer(504, {"error": "Gateway timeout", "reason": "query_timeout"}),
    }[kind]


class _HttpServer(ThreadingHTTPServer):
    """Threads per connection, and a way to end connections that clients keep open."""

    daemon_threads = False  # so that closing waits for them
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], openalex: OpenAlexServer) -> None:
        self.openalex = openalex
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the client was quicker

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16  # headers and body leave in one piece
    server: _HttpServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        params = parse_qsl(parts.query, keep_blank_values=True)
        kept = sorted(pair for pair in params if pair[0] != "mailto")
        request = f"GET {parts.path}?" + "&".join(f"{name}={value}" for name, value in kept)
        fault, credits = None, 0
        if len(self.requestline) + 2 * self.requestline.count("|") > MAX_REQUEST_LINE:
            answer = Answer(400, {"error": "Bad Request", "message": "Request Line is too large"})
        else:
            answer, fault, credits = self.server.openalex.respond(parts.path, params, self.headers, request)
        body = answer.body()
        sent = body[: len(body) // 2] if fault in ("reset", "truncated") else body
        entry = LogEntry(request=request, status=answer.status, fault=fault, credits=credits)
        self.server.openalex.log.append(entry)  # first: a client that has its answer finds it in the log
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body if fault == "reset" else sent)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)
        self.wfile.flush()
        if fault == "reset":  # the peer sees a reset, not an end: what is unsent goes, and RST stands for FIN
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.close(self.connection.detach())

    def log_message(self, format: str, *args: object) -> None:
        """Silence the access log on stderr; there is a better one."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.openalex_server")
    parser.add_argument("--records", type=Path, required=True, metavar="FILE", help="JSONL of works, .gz or not")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    with OpenAlexServer(**vars(parser.parse_args())) as server:
        print(f"{len(server.api.ids)} works at {server.base_url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
