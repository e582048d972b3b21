"""The client against servers on 127.0.0.1: every kind of answer, every kind of failure, and no key anywhere."""

from __future__ import annotations

import gzip
import itertools
import json
import logging
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sciscidata.errors import (
    ApiError,
    ApiKeyError,
    ConfigError,
    CostLimitError,
    DailyBudgetError,
    OfflineError,
    SciSciDataError,
)
from sciscidata.openalex_api.client import ApiConfig, OpenAlexClient, works_request
from sciscidata.openalex_api.request import MAX_REQUEST_BYTES
from sciscidata.openalex_api.retries_and_limits import Pacer
from sciscidata.openalex_api.store import ResponseStore
from tests.conftest import example_lines
from tests.servers.openalex_server import OpenAlexServer
from tests.servers.serving import Handler, Server

KEY = "aSecretKeyOf22Letters0"
SERVER = "http://127.0.0.1 "  # before the keys of answers in the store
COST = {"X-RateLimit-Cost-USD": "0.0001", "X-RateLimit-Remaining-USD": "0.5"}


@dataclass
class Reply:
    """What the scripted server sends; ``fault`` is one of "", "lost", "silent", "drip", "reset", "cut", "trickle"."""

    status: int = 200
    body: Any = field(default_factory=lambda: {"meta": {"count": 1}, "results": []})
    headers: dict[str, str] = field(default_factory=lambda: dict(COST))
    fault: str = ""
    blocks: Iterable[bytes] | None = None  # instead of the body, without a stated length

    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Scripted(Handler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        server = self.server
        with server.lock:
            nth = server.asked[self.path]
            server.asked[self.path] += 1
            server.heads.append((self.path, dict(self.headers)))
        reply = server.script(self.path, nth)
        if reply.fault == "lost":  # nothing arrives of an answer that was made, and paid for
            self.close_connection = True
            return
        if reply.fault in ("silent", "drip"):  # no answer, or one byte of its head at a time
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Head: " if reply.fault == "drip" else b"")
            while not server.is_closing.wait(0.01):
                self.wfile.write(b"x" if reply.fault == "drip" else b"")
                self.wfile.flush()
            return
        content = reply.content()
        self.send_response(reply.status)
        length = str(10**9 if reply.fault == "trickle" else len(content))
        framing = {"Content-Length": length} if reply.blocks is None else {"Transfer-Encoding": "chunked"}
        for name, value in (framing | reply.headers).items():
            self.send_header(name, value)
        self.end_headers()
        if reply.blocks is not None:
            for block in (*reply.blocks, b"") if isinstance(reply.blocks, list) else reply.blocks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
            return
        if reply.fault == "trickle":
            while True:  # until nobody listens any more
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.001)
        self.wfile.write(content[: len(content) // 2] if reply.fault else content)
        self.wfile.flush()
        if reply.fault:
            self.close_connection = True
        if reply.fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.close(self.connection.detach())


class ScriptedServer(Server):
    def __init__(self) -> None:
        super().__init__(Scripted)
        self.lock, self.is_closing = threading.Lock(), threading.Event()
        self.asked: Counter[str] = Counter()
        self.heads: list[tuple[str, dict[str, str]]] = []
        self.script: Callable[[str, int], Reply] = lambda path, nth: Reply()

    def __exit__(self, *error: object) -> None:
        self.is_closing.set()
        super().__exit__(*error)


@pytest.fixture(name="server")
def server_fixture() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture(name="store")
def store_fixture(tmp_path: Path) -> Iterator[ResponseStore]:
    with ResponseStore(tmp_path / "cache") as store:
        yield store


class Sleeps(list[float]):
    """Notes how long somebody would have slept, and goes on at once."""

    def waits(self) -> list[float]:
        return [seconds for seconds in self if seconds > 0.0001]  # the rest is pacing at full speed


@contextmanager
def client_of(server: ScriptedServer, store: ResponseStore, **options: Any) -> Iterator[tuple[OpenAlexClient, Sleeps]]:
    sleeps = Sleeps()
    defaults = {"base_url": server.url, "api_key": KEY, "requests_per_second": 1e6}
    with OpenAlexClient(ApiConfig(**defaults | options), store, sleep=sleeps.append) as client:
        yield client, sleeps


def error_body(message: str) -> dict[str, str]:
    return {"error": "Some error", "message": message}


LIST = works_request(filter="cites:W1", per_page=100)


def one(work: int) -> str:
    return works_request(filter=f"cites:W{work}")


TOO_FAST = Reply(429, error_body("Rate limit exceeded: 30 requests per second"), {"Retry-After": "1"})
NO_BUDGET = Reply(
    429,
    error_body("Insufficient budget. Resets at midnight UTC.") | {"dailyRemainingUsd": 0, "retryAfter": 40_000},
    {"Retry-After": "40000", "X-RateLimit-Reset": "40000"},
)
TRANSIENT = {
    "500": Reply(500, b"oops", {}),
    "502": Reply(502, b"<html>", {}),
    "503": Reply(503, error_body("busy"), {"Retry-After": "30"}),
    "408": Reply(408, b"", {}),
    "too fast": TOO_FAST,
    "too fast, unexplained": Reply(429, b"error code: 1015", {}),
    "reset": Reply(fault="reset"),
    "cut": Reply(fault="cut"),
    "half a JSON": Reply(body=b'{"meta": {"coun'),
    "a list": Reply(body=[1]),
    "not UTF-8": Reply(body=b'{"a": "\xff"}'),
    "too deep": Reply(body=b'{"a":' * 200_000 + b"1" + b"}" * 200_000),
}


def test_an_answer_is_asked_for_once_and_then_comes_from_the_store(server, store):
    server.script = lambda path, nth: Reply(body={"meta": {"count": 42}})
    for _ in range(2):
        with client_of(server, store) as (client, _):
            assert client.fetch(LIST) == {"meta": {"count": 42}}
            assert client.fetch(LIST) == {"meta": {"count": 42}}
            assert client.remaining_usd in (0.5, None)
    assert sum(server.asked.values()) == 1
    assert (client.n_calls, client.cost_usd) == (0, 0.0)


@pytest.mark.parametrize("reply", TRANSIENT.values(), ids=TRANSIENT)
def test_a_passing_failure_is_tried_again_until_it_works(server, store, reply):
    server.script = lambda path, nth: reply if nth < 3 else Reply()
    with client_of(server, store) as (client, sleeps):
        assert client.fetch(LIST)["meta"] == {"count": 1}
        assert client.n_calls == 4
        assert len(sleeps.waits()) >= 2
        assert max(sleeps) <= 60


@pytest.mark.parametrize("kind", ["503", "too fast", "cut", "half a JSON"])
def test_a_lasting_failure_ends_in_one_clear_error_and_is_not_kept(server, store, kind):
    reply = TRANSIENT[kind]
    server.script = lambda path, nth: reply
    with client_of(server, store, max_attempts=3) as (client, _), pytest.raises(ApiError) as caught:
        client.fetch(LIST)
    assert "in 3 attempts" in str(caught.value)
    assert "run the same command again" in str(caught.value)
    assert caught.value.status == reply.status
    assert client.n_calls == 3
    assert store.summary().n_requests == 0


def test_a_server_that_is_not_there_is_a_clear_error(store):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers
        config = ApiConfig(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}", max_attempts=2)
        with (
            OpenAlexClient(config, store, sleep=lambda _: None) as client,
            pytest.raises(ApiError, match="ConnectError") as caught,
        ):
            client.fetch(LIST)
    assert caught.value.status is None


@pytest.mark.parametrize(
    ("asked", "at_least"),
    [
        *[("30", 30), ("86400", 60), ("1e300", 60), ("0", 0), ("-5", 0), ("nan", 0), ("soon", 0), ("9" * 5000, 0)],
        *[("Fri, 31 Dec 2100 23:59:59 GMT", 60), ("Sat, 01 Jan 2000 00:00:00 GMT", 0), ("Fri, 99 Dec 9999 1:1:1", 0)],
    ],
)
def test_a_wait_is_what_the_server_asks_but_never_beyond_the_cap(server, store, asked, at_least):
    server.script = lambda path, nth: Reply(503, b"", {"Retry-After": asked}) if nth < 2 else Reply()
    with client_of(server, store) as (client, sleeps):
        client.fetch(LIST)
    assert all(at_least <= seconds <= 60 for seconds in sleeps.waits())
    assert at_least == 0 or len(sleeps.waits()) == 2


@pytest.mark.parametrize("word", ["budget", "credits"])
@pytest.mark.parametrize("headers", [{"X-RateLimit-Reset": "3600"}, {"Retry-After": "3600"}])
def test_a_spent_budget_stops_the_run_and_names_the_time_of_the_reset(server, store, headers, word):
    server.script = lambda path, nth: Reply(429, error_body(f"Insufficient {word}. Need more?"), headers)
    with client_of(server, store) as (client, sleeps), pytest.raises(DailyBudgetError) as caught:
        client.fetch(LIST)
    assert client.n_calls == 1
    assert sleeps.waits() == []
    assert caught.value.exit_code == 75
    assert datetime.now(UTC) - timedelta(minutes=5) < caught.value.resets_at <= datetime.now(UTC) + timedelta(days=1)
    assert "00:00 UTC" in str(caught.value)
    assert "goes on where it stopped" in str(caught.value)


def test_an_unexplained_wait_of_hours_is_a_spent_day_too(server, store):
    server.script = lambda path, nth: Reply(429, b"", {"Retry-After": "50000"})
    with client_of(server, store) as (client, _), pytest.raises(DailyBudgetError):
        client.fetch(LIST)


@pytest.mark.parametrize(
    ("status", "message", "kind", "advice"),
    [
        (429, "Plan upgrade required: from_updated_date", ApiError, "paid plan"),
        (400, "x is not a valid field. " + "Valid fields are: y. " * 300, ApiError, "not a valid field"),
        (404, "no such endpoint", ApiError, "no such endpoint"),
        (401, "API key not found", ApiKeyError, "openalex.org/settings/api"),
    ],
)
def test_a_refusal_is_not_tried_again_and_says_what_openalex_said(server, store, status, message, kind, advice):
    server.script = lambda path, nth: Reply(status, error_body(message), {})
    with client_of(server, store) as (client, sleeps), pytest.raises(kind, match=advice) as caught:
        client.fetch(LIST)
    assert client.n_calls == 1
    assert sleeps.waits() == []
    assert caught.value.status == status
    assert len(str(caught.value)) < 900
    assert store.summary().n_requests == 0


def test_a_missing_and_a_wrong_key_have_different_errors(server, store):
    server.script = lambda path, nth: Reply(401, error_body("API key not found"), {})
    with client_of(server, store) as (client, _), pytest.raises(ApiKeyError, match="does not accept the API key"):
        client.fetch(LIST)
    with (
        client_of(server, store, api_key=None) as (client, _),
        pytest.raises(ApiKeyError, match="needs an API key for /works"),
    ):
        client.fetch(LIST)


def test_a_redirect_is_refused_and_the_key_goes_nowhere_else(server, store):
    with ScriptedServer() as other:
        server.script = lambda path, nth: Reply(302, b"", {"Location": f"{other.url}/works"})
        with client_of(server, store) as (client, _), pytest.raises(ApiError, match=r"refused /works.* with HTTP 302"):
            client.fetch(LIST)
        assert other.asked == {}


def test_who_asks_is_said_in_headers_and_is_no_part_of_the_question(server, store):
    with client_of(server, store, email="you@example.org") as (client, _):
        client.fetch(LIST)
    ((path, headers),) = server.heads
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert "mailto:you@example.org" in headers["User-Agent"]
    assert path == LIST
    with client_of(server, store, api_key=None, email="they@example.org") as (client, _):
        client.fetch(LIST)
    assert client.n_calls == 0


def test_the_key_is_nowhere_but_in_the_header(server, store, caplog):
    caplog.set_level(logging.DEBUG)
    replies = [
        *TRANSIENT.values(),
        NO_BUDGET,
        *(Reply(status, error_body(f"key {KEY}!"), {}) for status in (400, 401, 403)),
    ]
    replies += [Reply(), Reply(body={"you sent": KEY}), Reply(302, b"", {"Location": f"http://other/{KEY}"})]
    texts = [repr(ApiConfig(api_key=KEY))]
    for i, reply in enumerate(replies):
        server.script = lambda path, nth, reply=reply: reply
        with client_of(server, store, max_attempts=2, email="you@example.org") as (client, _):
            texts.append(repr(client))
            try:
                client.fetch(one(i))
            except SciSciDataError as error:
                while error:
                    texts += [repr(error), str(error), repr(vars(error))]
                    error = error.__cause__ or error.__context__
    store.close()
    assert len(texts) > 30
    assert store.path.stat().st_size > 0
    texts += [record.getMessage() for record in caplog.records]
    assert not [text for text in texts if KEY in text]
    for path in store.path.parent.iterdir():
        content = path.read_bytes()
        assert KEY.encode() not in content
        assert b"example.org" not in content
    assert all(KEY not in path for path, _ in server.heads)


def test_one_server_has_one_name():
    urls = ["https://api.openalex.org", "https://API.openalex.org:443/", " https://api.openalex.org/ "]
    assert {ApiConfig(base_url=url).server for url in urls} == {"https://api.openalex.org"}
    assert ApiConfig(base_url="https://a.org:8000/x/").server == "https://a.org:8000/x"
    assert ApiConfig(base_url="http://127.0.0.9:8000").server == "http://127.0.0.9"


@pytest.mark.parametrize(
    ("name", "value"),
    [("ALL_PROXY", "socks5://user:pass-word@127.0.0.1:1"), ("HTTPS_PROXY", "garbage:::1"), ("SSL_CERT_FILE", __file__)],
)
def test_an_environment_that_allows_no_connection_is_named(store, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=name) as caught:
        OpenAlexClient(ApiConfig(), store)
    assert "unset" in str(caught.value)
    assert "pass-word" not in str(caught.value)
    with OpenAlexClient(ApiConfig(offline=True), store) as client:
        assert client.n_calls == 0


def test_a_wrong_answer_is_asked_for_again_and_never_kept(server, store):
    def check(_: str, content: dict[str, Any]) -> str | None:
        return None if content["meta"]["count"] == 3 else f"count {content['meta']['count']} and not 3"

    server.script = lambda path, nth: Reply(body={"meta": {"count": min(nth, 3)}})
    with client_of(server, store) as (client, _):
        assert client.fetch(LIST, check) == {"meta": {"count": 3}}
        assert client.n_calls == 4
        assert client.cost_usd == 0.0004
        assert client.summary().cost_usd == 0.0001
    server.script = lambda path, nth: Reply(body={"meta": {"count": 9}})
    with client_of(server, store, max_attempts=3) as (client, _), pytest.raises(ApiError, match="count 9 and not 3"):
        client.fetch(works_request(filter="cites:W2"), check)
    assert store.summary().n_requests == 1


def test_how_long_openalex_took_is_no_part_of_the_answer(server, store, tmp_path):
    text = r'{"db_response_time_ms": 7} \\"db_response_time_ms":8,'
    digests = set()
    for i, took in enumerate((0, 3, 12345)):
        body = {"meta": {"db_response_time_ms": took, "count": 1}, "results": [{"title": text}]}
        server.script = lambda path, nth, body=body: Reply(body=body)
        with ResponseStore(tmp_path / str(i)) as fresh, client_of(server, fresh) as (client, _):
            answer = client.fetch(LIST)
            assert answer == {"meta": {"db_response_time_ms": 0, "count": 1}, "results": [{"title": text}]}
            assert client.fetch(LIST) == answer
            digests.add(client.summary().sha256)
    assert len(digests) == 1


def test_offline_never_touches_the_network(server, store):
    with client_of(server, store) as (client, _):
        client.fetch(LIST)
    with client_of(server, store, offline=True) as (client, _):
        assert client.fetch(LIST)
        with pytest.raises(OfflineError, match=r"/works\?filter=cites%3AW5.*ApiConfig.offline=False"):
            client.fetch(one(5))
    assert sum(server.asked.values()) == 1


def test_answers_of_another_server_are_kept_apart(server, store):
    store.put(LIST, b'{"meta": "of OpenAlex"}', 0)
    with client_of(server, store) as (client, _):
        assert client.fetch(LIST)["meta"] == {"count": 1}
    with OpenAlexClient(ApiConfig(offline=True), store) as client:
        assert client.fetch(LIST)["meta"] == "of OpenAlex"


def test_equal_simultaneous_requests_become_one_call(server, store):
    def script(path: str, nth: int) -> Reply:
        time.sleep(0.05)
        return Reply(500, b"", {}) if nth == 0 else Reply(body={"n": nth})

    server.script = script
    with client_of(server, store) as (client, _), ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(client.fetch, [LIST, works_request(per_page=100, filter="cites:W1")] * 8))
    assert answers == [{"n": 1}] * 16
    assert server.asked[LIST] == 2


def number_of(path: str) -> int:
    return int(path.rpartition("W")[2])


def echo(path: str, nth: int) -> Reply:
    return Reply(body={"n": number_of(path)})


def test_fetch_all_answers_in_the_order_of_the_requests(server, store):
    rng = random.Random(0)
    delays = [rng.random() / 50 for _ in range(100)]

    def script(path: str, nth: int) -> Reply:
        time.sleep(delays[number_of(path)])
        return echo(path, nth) if nth else Reply(500, b"", {})

    server.script = script
    order = [*range(100), *range(0, 100, 7)]
    with client_of(server, store, concurrency=4) as (client, _):
        answers = [answer["n"] for answer in client.fetch_all(one(i) for i in order)]
    assert answers == order
    assert client.n_calls == 200
    assert set(server.asked.values()) == {2}


def test_fetch_all_takes_requests_only_as_needed(server, store):
    server.script = echo
    counter, before = itertools.count(), set(threading.enumerate())
    with client_of(server, store, concurrency=2) as (client, _):
        answers = client.fetch_all(one(i) for i in counter)
        assert [next(answers)["n"] for _ in range(5)] == [0, 1, 2, 3, 4]
        answers.close()
        assert next(counter) <= 5 + 2 * 2
        assert client.summary().n_requests == 5  # what was asked ahead is kept, and no part of the result
    assert store.summary().n_requests >= 5
    begun = set(threading.enumerate()) - before
    assert not [thread for thread in begun if thread.name.startswith("ThreadPoolExecutor")]


def test_an_error_lets_calls_under_way_end_and_be_kept(server, store):
    arrived = threading.Barrier(4)

    def script(path: str, nth: int) -> Reply:
        if number_of(path) < 4:
            arrived.wait(timeout=60)  # four calls are under way
            if number_of(path) == 2:
                return NO_BUDGET
            time.sleep(0.2)
        return echo(path, nth)

    server.script = script
    seen = []
    with client_of(server, store, concurrency=4) as (client, _):
        with pytest.raises(DailyBudgetError):
            seen.extend(answer["n"] for answer in client.fetch_all(one(i) for i in range(100)))
        assert seen == [0, 1]
        assert client.n_calls == 4
        assert client.cost_usd == 0.0003
    assert {i for i in range(100) if store.get(SERVER + one(i))} == {0, 1, 3}


def test_an_error_wakes_threads_that_wait_to_try_again(server, store):
    server.script = lambda path, nth: Reply(503, b"", {"Retry-After": "50"}) if "W0" in path else NO_BUDGET
    config = ApiConfig(base_url=server.url, api_key=KEY, requests_per_second=20, concurrency=2)
    started = time.monotonic()
    with OpenAlexClient(config, store) as client, pytest.raises(DailyBudgetError):
        list(client.fetch_all([one(0), one(1)]))
    assert time.monotonic() - started < 45  # and not the 50 that the server asked for


def test_an_interrupted_caller_keeps_what_was_under_way(server, store):
    def script(path: str, nth: int) -> Reply:
        time.sleep(0.1)
        return echo(path, nth)

    def interrupted() -> Iterator[str]:
        yield from (one(i) for i in range(3))
        while len(server.asked) < 3:
            time.sleep(0.001)
        raise KeyboardInterrupt

    server.script = script

    with client_of(server, store) as (client, _), pytest.raises(KeyboardInterrupt):
        list(client.fetch_all(interrupted()))
    assert store.summary().n_requests == 3


def test_costs_are_read_from_the_header_else_from_the_price_list(server, store):
    stated = [
        Reply(headers={"X-RateLimit-Cost-USD": "0.001"}),
        Reply(headers={}),  # the price list: 1 credit
        Reply(headers={"X-RateLimit-Cost-USD": "1e300", "X-RateLimit-Remaining-USD": "inf"}, body={"meta": 1}),
        Reply(fault="cut", headers={"X-RateLimit-Cost-USD": "0.0005"}),
        Reply(500, b"", {}),
    ]
    spent: list[float] = []
    server.script = lambda path, nth: stated[int(path.rpartition("W")[2])]
    with client_of(server, store, max_attempts=1) as (client, _):
        client.watch(spent.append)
        for i in range(len(stated)):
            try:
                client.fetch(one(i))
            except ApiError:
                assert i >= 3
    assert spent == [0.001, 0.0011, 0.0012, 0.0017, 0.0017]
    assert client.cost_usd == 0.0017
    assert client.remaining_usd is None
    with client_of(server, store) as (client, _):
        client.watch(spent.append)
        client.watch(None)
        client.fetch(one(1))
    assert len(spent) == 5


def test_a_limit_is_never_exceeded_by_many_threads(server, store):
    def script(path: str, nth: int) -> Reply:
        time.sleep(0.01)
        return Reply(body={"n": 0})

    server.script = script
    requests = [one(i) for i in range(50)]
    for n_done in (23, 46):
        with client_of(server, store, max_cost_usd=0.0023) as (client, _):
            with pytest.raises(CostLimitError, match="goes on where it stopped") as caught:
                list(client.fetch_all(requests))
            assert client.cost_usd <= 0.0023
        assert caught.value.exit_code == 75
        assert store.summary().n_requests == n_done  # the next run goes on
    with client_of(server, store, max_cost_usd=0.0023) as (client, _):
        assert len(list(client.fetch_all(requests))) == 50
    assert set(server.asked.values()) == {1}


def test_answers_that_are_lost_on_the_way_count_against_the_limit(server, store):
    server.script = lambda path, nth: Reply(fault="lost" if nth < 2 else "")
    with client_of(server, store, max_cost_usd=0.001) as (client, _):
        with pytest.raises(CostLimitError, match=r"and up to 0\.0007 for calls without an answer"):
            _ = [client.fetch(one(i)) for i in range(10)]
        assert client.cost_usd == pytest.approx(0.0003)
    assert server.asked.total() == 10  # three requests of three calls each, and one more


def test_nothing_is_spent_with_a_limit_of_zero(server, store):
    with client_of(server, store, max_cost_usd=0) as (client, _), pytest.raises(CostLimitError):
        client.fetch(LIST)
    assert client.n_calls == 0


def test_without_a_key_one_warning_shows_how_to_get_one(server, store, caplog):
    server.script = echo
    with client_of(server, store, api_key=" ") as (client, _):
        list(client.fetch_all(one(i) for i in range(20)))
    told = [record.getMessage() for record in caplog.records if "settings/api" in record.getMessage()]
    assert len(told) == 1
    assert "OPENALEX_API_KEY" in told[0]
    assert "Authorization" not in server.heads[0][1]


PACKED = {"Content-Encoding": "gzip"}
ENDLESS = {
    "one byte of the body at a time": lambda: Reply(fault="trickle"),
    "one byte of the head at a time": lambda: Reply(fault="drip"),
    "nothing": lambda: Reply(fault="silent"),
    "a body of empty blocks": lambda: Reply(
        headers=PACKED, blocks=itertools.chain([gzip.compress(b"")[:10]], itertools.repeat(b"\0\0\0\xff\xff" * 99))
    ),
    "a body of empty files": lambda: Reply(headers=PACKED, blocks=itertools.repeat(gzip.compress(b""))),
}


@pytest.mark.parametrize("reply", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_is_given_up_at_the_deadline(server, store, reply):
    server.script = lambda path, nth: reply() if nth == 0 else Reply()
    started = time.monotonic()
    with client_of(server, store, timeout_s=0.5) as (client, _):
        assert client.fetch(LIST)
    assert client.n_calls == 2
    assert time.monotonic() - started < 5


def test_a_server_without_end_is_one_clear_error(server, store):
    server.script = lambda path, nth: Reply(fault="drip")
    with (
        client_of(server, store, timeout_s=0.2, max_attempts=2) as (client, _),
        pytest.raises(ApiError, match=r"no answer in 2 attempts; last: the answer took longer than 0\.2 s"),
    ):
        client.fetch(LIST)
    assert store.summary().n_requests == 0


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_answer_that_is_too_large_is_cut_off_with_one_clear_error(server, store, monkeypatch, is_packed):
    monkeypatch.setattr("sciscidata.openalex_api.http.MOST_ANSWER_BYTES", 2 << 20)
    blocks = [gzip.compress(bytes(20 << 20), 1)] if is_packed else itertools.repeat(b" " * 65_536)
    headers = {"Content-Encoding": "gzip"} if is_packed else {}
    server.script = lambda path, nth: Reply(headers=headers, blocks=blocks)
    with client_of(server, store) as (client, _), pytest.raises(ApiError, match="answer to /works has more than 2 MB"):
        client.fetch(LIST)
    assert server.asked.total() == 1  # a second one would be as large


def test_an_answer_compressed_as_requested_is_read(server, store):
    server.script = lambda path, nth: Reply(body=gzip.compress(b'{"id": 1}'), headers={"Content-Encoding": "gzip"})
    with client_of(server, store) as (client, _):
        assert client.fetch(one(1)) == {"id": 1}


# Anything may come back.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
known = st.sampled_from(["meta", "error", "message", "reason", "retryAfter", "dailyRemainingUsd", "results"])
objects = st.dictionaries(known, json_values, max_size=4) | st.fixed_dictionaries(
    {"meta": st.dictionaries(st.sampled_from(["count", "cost_usd"]), json_values)}
)
bodies = (
    st.binary(max_size=40)
    | json_values.map(lambda value: json.dumps(value).encode())
    | objects.map(lambda value: json.dumps(value).encode())
)
header_names = st.sampled_from(
    [
        *["Retry-After", "X-RateLimit-Reset", "X-RateLimit-Cost-USD", "X-RateLimit-Credits-Used", "Location"],
        *["X-RateLimit-Remaining-USD", "Content-Type", "Content-Encoding", "X"],
    ]
)
header_values = (
    st.floats().map(str)
    | st.integers().map(str)
    | st.just("9" * 3000)
    | st.sampled_from(["gzip", "//", "http://[::1", "/works?a=\xe9", "http://xn--/", "http://\u2603.example/".encode().decode("latin-1")])
    | st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=12)
)  # fmt: skip
statuses = st.sampled_from(
    [200, 200, 200, 204, 301, 302, 400, 401, 403, 404, 408, 418, 429, 429, 500, 503, 504, 599, 999]
)


@pytest.fixture(scope="module", name="any_server")
def any_server_fixture() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def ask_anything(url: str) -> None:
    with TemporaryDirectory() as folder, ResponseStore(Path(folder)) as store:
        config = ApiConfig(base_url=url, api_key=KEY, max_attempts=2, requests_per_second=1e6, timeout_s=5)
        for request in (LIST, one(1)):
            with OpenAlexClient(config, store, sleep=lambda _: None) as client:
                try:
                    answer = client.fetch(request)
                except SciSciDataError as error:
                    assert len(str(error)) > 20  # noqa: PT017
                    continue
                assert isinstance(answer, dict)
                assert client.fetch(request) == answer
                assert client.cost_usd >= 0
                json.dumps(client.remaining_usd, allow_nan=False)


@given(statuses, st.dictionaries(header_names, header_values, max_size=4), bodies)
@example(200, {}, b'{"a": "\\ud800"}')
@example(200, {"Content-Encoding": "gzip"}, b"not gzip")
@example(429, {"Retry-After": "9" * 3000, "X-RateLimit-Reset": "9" * 3000}, b"{}")
def test_any_answer_gives_a_result_or_a_clear_error(any_server, status, headers, body):
    any_server.script = lambda path, nth: Reply(status, body, headers)
    ask_anything(any_server.url)


# Killed in the middle.

RUN = """
import sys
from pathlib import Path
from sciscidata.openalex_api.client import ApiConfig, OpenAlexClient, works_request
from sciscidata.openalex_api.store import ResponseStore
config = ApiConfig(base_url=sys.argv[1], api_key="any", requests_per_second=1e4)
with ResponseStore(Path(sys.argv[2])) as store, OpenAlexClient(config, store) as client:
    answers = client.fetch_all(works_request(filter=f"cites:W{i}") for i in range(300))
    print([answer["n"] for answer in answers] == list(range(300)), client.summary().sha256)
"""


def test_a_run_that_is_killed_again_and_again_pays_for_no_kept_answer_twice(tmp_path):
    def script(path: str, nth: int) -> Reply:
        time.sleep(0.005)
        return echo(path, nth)

    def command(server: ScriptedServer, folder: Path) -> list[str]:
        return [sys.executable, "-c", RUN, server.url, str(folder)]

    @contextmanager
    def one_server() -> Iterator[ScriptedServer]:
        """At its end it has heard all that was asked, which may lie in a socket when the asker is dead."""
        server = ScriptedServer()
        server.script, server.daemon_threads = script, False  # it waits for its threads
        with server:
            yield server

    store_folder = tmp_path / "store"
    asked: Counter[str] = Counter()
    under_way: set[str] = set()
    for n_more in (5, 60, 110):
        with one_server() as server:
            process = subprocess.Popen(command(server, store_folder), stdout=subprocess.DEVNULL)
            while sum(server.asked.values()) < n_more:
                assert process.poll() is None, "it ended by itself"
                time.sleep(0.002)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        asked += server.asked
        with ResponseStore(store_folder) as store:
            kept = {path for path in asked if store.get(SERVER + path)}
        assert len(kept) >= n_more - 8
        under_way |= set(asked) - kept
    with one_server() as server:
        done = subprocess.run(command(server, store_folder), capture_output=True, text=True, check=True)
    asked += server.asked
    with one_server() as server:
        again = subprocess.run(command(server, tmp_path / "clean"), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True")
    assert done.stdout == again.stdout
    assert {path for path, n in asked.items() if n > 1} <= under_way
    assert len(under_way) <= 3 * 8  # eight threads at each kill


# Against a whole OpenAlex in small, with a fifth of all calls going wrong.


def check_counts(_: str, content: dict[str, Any]) -> str | None:
    """The invariants of a list: as many rows as counted, and groups that add up."""
    if "meta" not in content:
        return None
    count = content["meta"]["count"]
    if "results" in content:
        n_rows = len(content["results"])
        return None if n_rows == count else f"{n_rows} rows of {count}"
    found = sum(group["count"] for group in content["group_by"])
    return None if found == count else f"groups add up to {found} and not to {count}"


def test_chaos_ends_with_the_answers_of_a_clean_run_and_with_the_servers_bill(tmp_path):
    records = [json.loads(line) for line in example_lines()[:300]]
    works = [int(record["id"].rpartition("W")[2]) for record in records[:150]]
    requests = [works_request(filter=f"cites:W{work}", group_by="publication_year") for work in works]
    requests += [works_request(filter=f"openalex:W{a}|W{b}", per_page=100) for a, b in itertools.pairwise(works)]

    def run(server: OpenAlexServer, folder: Path) -> tuple[list[Any], Any, float, int]:
        config = ApiConfig(base_url=server.base_url, api_key=KEY, requests_per_second=1e4, max_sleep_s=0.01)
        spent = 0.0
        with ResponseStore(folder) as store:
            for n_stops in range(100):
                with OpenAlexClient(config, store) as client:
                    try:
                        answers = list(client.fetch_all(requests, check_counts))
                    except (DailyBudgetError, ApiError):
                        spent += client.cost_usd
                    else:
                        return answers, client.summary(), spent + client.cost_usd, n_stops
        pytest.fail("stopped a hundred times")

    with OpenAlexServer(records, key=KEY) as server:
        clean, clean_summary, bill, n_stops = run(server, tmp_path / "clean")
        assert n_stops == 0
        assert bill == pytest.approx(server.cost_usd)
        assert len(server.log) == len(set(requests))
    with OpenAlexServer(records, key=KEY, fault_rate=0.2, slow_s=0.01) as server:
        chaotic, summary, bill, n_stops = run(server, tmp_path / "chaos")
        assert n_stops > 0
        assert {entry.fault for entry in server.log} > {"rate429", "daily429", "503", "reset", "truncated", "partial"}
        assert server.repeated() == {}
        assert bill == pytest.approx(server.cost_usd)
    assert [n for n, pair in enumerate(zip(clean, chaotic, strict=True)) if pair[0] != pair[1]] == []
    day = {"first_fetched_on": None, "last_fetched_on": None}  # it may be another one by now
    assert summary._replace(**day) == clean_summary._replace(**day)


# The parts.


def test_the_pace_is_even_and_pauses():
    now = [0.0]
    pacer = Pacer(10.0, clock=lambda: now[0])
    starts: list[float] = []

    def sleep(seconds: float) -> None:
        now[0] += seconds
        starts.append(now[0])

    def gaps(n: int) -> list[float]:
        starts.clear()
        for _ in range(n):
            pacer.wait(sleep)
        return [round(after - before, 6) for before, after in itertools.pairwise(starts)]

    assert gaps(20) == [0.1] * 19
    now[0] += 100
    assert gaps(3) == [0.1] * 2  # rest is not saved up for a burst
    pacer.pause(2.0)
    before = now[0]
    assert gaps(3) == [0.1] * 2
    assert starts[0] - before == pytest.approx(2.0)


words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@given(st.permutations([("filter", "cites:W1|W2"), ("select", "id"), ("per_page", "100")]))
def test_the_order_of_parameters_makes_no_other_question(params):
    assert works_request(**dict(params)) == "/works?filter=cites%3AW1%7CW2&per_page=100&select=id"


@given(st.dictionaries(words, st.text(st.characters(exclude_categories=["Cs"]), max_size=9), min_size=1, max_size=4))
def test_different_questions_have_different_keys(params):
    from urllib.parse import parse_qsl

    key = works_request(**params)
    assert key.isascii()
    assert parse_qsl(key.partition("?")[2], keep_blank_values=True) == sorted(params.items())


def test_a_question_that_openalex_would_cut_off_is_refused_here():
    ids = [f"W{4_000_000_000 + i}" for i in range(100)]
    chunks = ["cites:" + "|".join(ids)] * 5
    assert len(works_request(filter=",".join(chunks))) < MAX_REQUEST_BYTES
    with pytest.raises(ConfigError, match="Split it"):
        works_request(filter=",".join(chunks + chunks[:1]))


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("sciscidata.openalex_api.config.config_file", lambda: tmp_path / "openalex.toml")
    for name in ("OPENALEX_API_KEY", "OPENALEX_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "openalex.toml"


def test_flags_go_over_the_environment_and_that_over_the_file(home, monkeypatch):
    assert ApiConfig.from_environment().api_key is None
    assert ApiConfig.from_environment().base_url == "https://api.openalex.org"
    home.write_text('api_key = " of-the-file\\n"\nemail = "you@example.org"\n')
    assert ApiConfig.from_environment().api_key == "of-the-file"
    assert ApiConfig.from_environment().email == "you@example.org"
    monkeypatch.setenv("OPENALEX_API_KEY", "  ")
    assert ApiConfig.from_environment().api_key == "of-the-file"
    monkeypatch.setenv("OPENALEX_API_KEY", "of-the-shell\n")
    monkeypatch.setenv("OPENALEX_BASE_URL", "http://127.0.0.1:1/")
    assert ApiConfig.from_environment().api_key == "of-the-shell"
    assert ApiConfig.from_environment().base_url == "http://127.0.0.1:1"
    config = ApiConfig.from_environment(api_key="of-the-flag", base_url="http://127.0.0.1:2", concurrency=3)
    assert (config.api_key, config.base_url, config.concurrency) == ("of-the-flag", "http://127.0.0.1:2", 3)


@pytest.mark.parametrize("content", [f"api_key = {KEY}", f"api_kye = '{KEY}'", f"api_key = ['{KEY}']", f"{KEY}\xff"])
def test_a_bad_file_is_named_and_not_quoted(home, content):
    home.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"openalex\.toml") as caught:
        ApiConfig.from_environment()
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "options",
    [
        *({"base_url": url} for url in ("ftp://api.openalex.org", "https://user:word@api.openalex.org", "http://[::1")),
        {"base_url": "https://api.openalex.org?api_key=k"},
        {"api_key": "two words"},
        {"email": "nobody"},
        {"email": "a@b\r\nX: y"},
        {"requests_per_second": float("nan")},
        {"timeout_s": -1},
        {"max_attempts": 1.5},
    ],
)
def test_an_impossible_option_is_refused_without_repeating_a_key(options):
    with pytest.raises(ConfigError) as caught:
        ApiConfig(**options)
    assert str(options.get("api_key", "\0")) not in str(caught.value)
