"""OpenAlex on 127.0.0.1: a real HTTP server over real records, with faults on demand and a log of what it cost.

By hand::

    python -m tests.servers.openalex_server --records works.jsonl.gz --port 8080 --key secret --fault-rate 0.2

In a test::

    with OpenAlexServer(records, key="secret", fault_rate=0.2) as server:
        run(base_url=server.base_url, api_key="secret")
    assert server.credits == 12 and not server.repeated()

What it serves, refuses and words differently is in ``tests.servers.openalex``; the shapes are checked against recorded
exchanges in ``tests/openalex_api/test_loopback_server.py``. Left out: search, ``group_by`` with several fields, queries
by POST, compression. What OpenAlex serves and this does not is answered with 501, never wrongly.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.servers.openalex import gate
from tests.servers.openalex.answers import Answer, Api, price
from tests.servers.openalex.faults import FAULTS, SPOILT, FaultPlan, Faults, partial, refusal
from tests.servers.openalex.records import Records, read_works
from tests.servers.openalex.wire import HttpServer, LogEntry

logger = logging.getLogger(__name__)


class OpenAlexServer:
    """Serves from entering the context to leaving it.

    Args:
        records: JSONL file(s) of OpenAlex works (``.gz`` or not), or works as dicts.
        port: 0 takes a free one.
        key: the key(s) that are accepted; None: any key is wrong, as an unknown one is.
        daily_credits: a key's budget per day (UTC).
        keyless_daily_credits: the budget of everybody without a key.
        per_second: enforced requests per second of each account; None: OpenAlex's 30 with a key and 10 without;
            ``math.inf``: no limit.
        keyless_cursor: whether cursor paging works without a key (not so since October 2026, some say).
        short_page_cursor: a next_cursor after a short page too, as until March 2026.
        language: given to works whose record knows none.
        merged: merged work ids and where they moved (an id, or a URL), answered with 301.
        drift: another state of the index: each start orders a seed's sample anew.
        fault_rate: share of requests to fail, 0..1.
        fault_seed: which ones, and how.
        faults: kinds to draw from.
        max_consecutive_faults: how often in a row the same request may fail.
        slow_s: how late a slow answer is.
        retry_after_s: the Retry-After of injected short 429 (otherwise 1) and 503 (otherwise 30).
        log_path: where to append the log as JSON lines.
        clock: seconds since the epoch, for tests of midnight.
    """

    def __init__(
        self,
        records: Records,
        *,
        port: int = 0,
        key: str | tuple[str, ...] | None = None,
        daily_credits: int = gate.DAILY_CREDITS,
        keyless_daily_credits: int = gate.KEYLESS_DAILY_CREDITS,
        per_second: float | None = None,
        keyless_cursor: bool = True,
        short_page_cursor: bool = False,
        language: str | None = None,
        merged: Mapping[str, str] | None = None,
        drift: bool = False,
        fault_rate: float = 0.0,
        fault_seed: int = 0,
        faults: tuple[str, ...] = FAULTS,
        max_consecutive_faults: int = 3,
        slow_s: float = 1.0,
        retry_after_s: int | None = None,
        log_path: str | Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        works, sources = read_works(records, language=language)
        self.n_works = len(works.ids)
        self.api = Api(
            works,
            sources,
            merged=dict(merged or {}),
            drift=os.urandom(8).hex() if drift else "",
            short_page_cursor=short_page_cursor,
        )
        self.clock = clock
        self.keyless_cursor = keyless_cursor
        keyless_rate = gate.KEYLESS_PER_SECOND if per_second is None else per_second
        keyed_rate = gate.PER_SECOND if per_second is None else per_second
        self.keyless = gate.Account(keyless_daily_credits, keyless_rate, clock)
        keys = (key,) if isinstance(key, str) else key or ()
        self.accounts = {name: gate.Account(daily_credits, keyed_rate, clock) for name in keys}
        self.fault_plan = FaultPlan(
            rate=fault_rate,
            seed=fault_seed,
            kinds=faults,
            consecutive=max_consecutive_faults,
            slow_s=slow_s,
            retry_after_s=retry_after_s,
        )
        self.faults = Faults(self.fault_plan)
        self.log: list[LogEntry] = []
        self._log_path = Path(log_path) if log_path else None
        self._log_lock = threading.Lock()
        self._http = HttpServer(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def credits(self) -> int:
        """The bill so far, in credits of $0.0001."""
        with self._log_lock:
            return sum(entry.credits for entry in self.log)

    @property
    def cost_usd(self) -> float:
        return self.credits * gate.USD_PER_CREDIT

    def repeated(self) -> dict[str, int]:
        """Requests that were answered in full more than once, and how often."""
        with self._log_lock:
            delivered = Counter(entry.request for entry in self.log if entry.delivered)
        return {request: n for request, n in delivered.items() if n > 1}

    def __enter__(self) -> OpenAlexServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.hang_up()
        self._http.server_close()

    def record(self, entry: LogEntry) -> None:
        with self._log_lock:
            self.log.append(entry)
            if self._log_path is not None:
                with self._log_path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(dataclasses.asdict(entry)) + "\n")

    def respond(
        self, path: str, params: list[tuple[str, str]], headers: Mapping[str, str], request: str
    ) -> tuple[Answer, str | None, int]:
        """The answer to a GET, the fault dealt to it, and its price."""
        key = gate.key_of(params, headers)
        if key is not None and key not in self.accounts:
            return gate.bad_key(), None, 0
        account = self.accounts[key] if key is not None else self.keyless
        if path.strip("/") == "rate-limit":
            if key is None:
                return gate.key_needed("You must provide a valid API key to check rate limit status"), None, 0
            return account.status(key), None, 0
        if key is None and not self.keyless_cursor and any(name == "cursor" for name, _ in params):
            return gate.key_needed("Cursor paging needs an API key. Get one free at https://openalex.org"), None, 0

        credits = price(path, params)
        refused = account.admit(credits)
        if refused is not None:
            refused.headers |= account.headers(0)
            return refused, None, 0
        fault = self.faults.deal(request)
        if fault is None or fault in SPOILT:
            answer = self._answer(path, [pair for pair in params if pair[0] not in gate.KEY_NAMES])
            answer, fault = self._spoil(answer, fault, request)
        else:
            answer = refusal(fault, self.fault_plan, credits=credits, per_second=account.per_second, now=self.clock())
        cost = account.settle(answer, credits)
        if answer.status == 200 and isinstance(answer.payload, dict) and "meta" in answer.payload:
            answer.payload["meta"]["cost_usd"] = round(cost * gate.USD_PER_CREDIT, 4)
        answer.headers = account.headers(cost) | answer.headers
        if fault == "daily429":
            answer.headers |= {"X-RateLimit-Remaining": "0", "X-RateLimit-Remaining-USD": "0"}
        return answer, fault, cost

    def _answer(self, path: str, params: list[tuple[str, str]]) -> Answer:
        try:
            return self.api.answer(path, params)
        except Exception:  # a bug here must not look like a fault on demand
            logger.exception("no answer to %s", path)
            return Answer(500, {"error": "Bug in the loopback server", "message": "see its log"})

    def _spoil(self, answer: Answer, fault: str | None, request: str) -> tuple[Answer, str | None]:
        """Apply what changes the content; an error or an empty answer has nothing to spoil."""
        if fault is None or answer.status != 200:
            return answer, None
        if fault == "partial":
            payload = partial(answer.payload, request, self.fault_plan.seed)
            if payload is None:
                return answer, None
            answer.payload = payload
        if fault == "slow":
            time.sleep(self.fault_plan.slow_s)
        return answer, fault


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.servers.openalex_server", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--records", nargs="+", required=True, metavar="FILE", help="JSONL of works, .gz or not")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--key", action="append", help="an accepted key; may be repeated")
    parser.add_argument("--daily-credits", type=int, default=gate.DAILY_CREDITS)
    parser.add_argument("--keyless-daily-credits", type=int, default=gate.KEYLESS_DAILY_CREDITS)
    parser.add_argument("--per-second", type=float, help="enforced rate; OpenAlex's by default, 0 for none")
    parser.add_argument("--no-keyless-cursor", dest="keyless_cursor", action="store_false")
    parser.add_argument("--short-page-cursor", action="store_true", help="a cursor after a short page too")
    parser.add_argument("--language", help="for works whose record knows none, for example en")
    parser.add_argument("--merged", action="append", default=[], metavar="W1=W2", help="W1 was merged into W2")
    parser.add_argument("--drift", action="store_true", help="samples change with each start")
    parser.add_argument("--fault-rate", type=float, default=0.0)
    parser.add_argument("--fault-seed", type=int, default=0)
    parser.add_argument("--faults", default=",".join(FAULTS), help="comma list (default: %(default)s)")
    parser.add_argument("--max-consecutive-faults", type=int, default=3)
    parser.add_argument("--slow-s", type=float, default=1.0)
    parser.add_argument("--retry-after-s", type=int, help="of injected short 429 and 503")
    parser.add_argument("--log", dest="log_path", metavar="FILE", help="append a JSON line per request")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = vars(_parse(arguments))
    options["key"] = tuple(options["key"] or ())
    options["faults"] = tuple(options["faults"].split(","))
    options["merged"] = dict(pair.split("=", 1) for pair in options["merged"])
    options["per_second"] = math.inf if options["per_second"] == 0 else options["per_second"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with OpenAlexServer(options.pop("records"), **options) as server, suppress(KeyboardInterrupt):
        print(f"{server.n_works} works at {server.base_url}", flush=True)
        threading.Event().wait()
    print(f"{len(server.log)} requests, ${server.cost_usd:.4f}", flush=True)


if __name__ == "__main__":
    main()
