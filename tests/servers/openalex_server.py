"""OpenAlex on 127.0.0.1: a real HTTP server over real records, with faults on demand and a log of what it cost.

It answers what the client asks: a work by its id, and lists of works that are filtered, sampled, cut to some fields or
counted by year. Anything else is answered with an error, never wrongly. By hand::

    python -m tests.servers.openalex_server --records works.jsonl.gz --port 8080

In a test::

    with OpenAlexServer(records, key="secret", fault_rate=0.2) as server:
        run(base_url=server.base_url, api_key="secret")
    assert server.credits == 12 and not server.repeated()
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import math
import re
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from sciscidata.openalex_api.config import ApiConfig
from sciscidata.sources.record_files import decompressed_chunks
from tests.servers.serving import Handler, Server

USD_PER_CREDIT = 0.0001
MAX_VALUES, MAX_PER_PAGE, MAX_ROWS = 100, 200, 10_000
#: The limit on the request line, counted after each | is written as %7C.
MAX_REQUEST_LINE = 8_190
#: Instead of the answer.
REFUSALS = ("rate429", "daily429", "plan429", "500", "502", "503", "504")
#: To the answer itself, which is paid for: the connection is reset half-way; the JSON ends half-way under a fitting
#: Content-Length; it comes late; counts or rows are missing, as after a soft timeout of Elasticsearch.
SPOILT = ("reset", "truncated", "slow", "partial")
FAULTS = REFUSALS + SPOILT
Params = list[tuple[str, str]]

#: Crossref's words, which ``type`` held until 2023, and the ones it holds now.
_TYPES = {
    **{"journal-article": "article", "proceedings-article": "article", "posted-content": "preprint"},
    **{"monograph": "book", "edited-book": "book", "reference-book": "book"},
    **{"book-section": "book-chapter", "book-part": "book-chapter", "report-series": "report"},
    **{"journal-issue": "paratext", "journal-volume": "paratext", "journal": "paratext", "proceedings": "paratext"},
}
_PARAMETERS = {"corpus", "filter", "group_by", "mailto", "page", "per_page", "sample", "seed", "select"}
#: The fields that a list may be cut to, of those that OpenAlex has.
_FIELDS = """
    id doi title display_name publication_year publication_date ids language primary_location type is_retracted
    cited_by_count primary_topic topics concepts referenced_works abstract_inverted_index updated_date created_date
""".split()  # noqa: SIM905 - a list literal would fill 20 lines


@dataclass
class Answer:
    """What goes back."""

    status: int
    payload: Any
    headers: dict[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        return self.payload.encode() if isinstance(self.payload, str) else msgspec.json.encode(self.payload)


@dataclass(frozen=True, kw_only=True)
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


# The works


def short_id(text: str) -> str | None:
    """``W123`` of a bare, lower-case or URL id; None for anything else."""
    match = re.fullmatch(r"(?:https?://(?:api\.)?openalex\.org/(?:[a-z]+/)?)?([a-z]\d+)", text.strip(), re.IGNORECASE)
    return match[1].upper() if match else None


def _modern(record: dict[str, Any]) -> dict[str, Any]:
    """Give a record of 2023 the shape that the API has now, and a language if it knows none."""
    kind = record.get("type")
    now = {"type": _TYPES.get(kind or "", kind), "language": record.get("language") or "en"}
    return {"referenced_works": [], "topics": []} | record | now


def _filtered_by(work: dict[str, Any]) -> dict[str, list[Any]]:
    """Return what a work has under each field of a filter."""
    source = (work.get("primary_location") or {}).get("source") or work.get("host_venue") or {}
    subject = (work.get("primary_topic") or {}).get("field") or {}
    references = [short_id(cited) or cited for cited in work["referenced_works"] or ()]
    return {
        "openalex": [short_id(work["id"])],
        "doi": [str(work.get("doi") or "").lower().removeprefix("https://doi.org/") or None],
        "cites": references,
        "primary_location.source.id": [short_id(source.get("id") or "")],
        "primary_topic.field.id": [str(subject.get("id") or "").rpartition("/")[2]],
        "publication_year": [work.get("publication_year")],
        "cited_by_count": [work.get("cited_by_count")],
        "referenced_works_count": [len(references)],
        "type": [work["type"]],
        "language": [work["language"]],
        "is_retracted": [str(bool(work.get("is_retracted"))).lower()],
        "has_abstract": [str(bool(work.get("abstract_inverted_index"))).lower()],
    }


class Refused(Exception):
    """OpenAlex answers this request with an error, or this server has not learnt to answer it."""


class Works:
    """All works, numbered in OpenAlex's order: most cited first, then by id."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self.merged: dict[str | None, str] = {}  # ids that lead to another work
        self.works = sorted(map(_modern, records), key=lambda work: (-(work.get("cited_by_count") or 0), work["id"]))
        self.ids = [short_id(work["id"]) or work["id"] for work in self.works]
        self._samples: dict[str, list[int]] = {}
        self._rows: dict[str, dict[Any, set[int]]] = defaultdict(lambda: defaultdict(set))
        for row, work in enumerate(self.works):
            for name, values in _filtered_by(work).items():
                for value in values:
                    self._rows[name][value].add(row)

    def matching(self, text: str) -> set[int]:
        """Return the works that satisfy every clause of a filter."""
        rows = set(range(len(self.ids)))
        for clause in text.split(",") if text else ():
            name, _, value = clause.partition(":")
            parts = value.removeprefix("!").split("|")
            if name not in self._rows or len(parts) > MAX_VALUES or any(part.startswith("!") for part in parts):
                raise Refused(f"The filter {name} is not served here, or has more than {MAX_VALUES} values.")
            found = set[int]().union(*(self._holding(name, part) for part in parts))
            rows = rows - found if value.startswith("!") else rows & found
        return rows

    def _holding(self, name: str, value: str) -> set[int]:
        """Return the works that hold a value, or one within a range."""
        rows = self._rows[name]
        if name.endswith(("_year", "_count")):
            bounds = re.fullmatch(r"(>?)(\d+)|(\d*)-(\d*)", value)
            if not bounds:
                raise Refused(f"Value for param {name} must be a number.")
            above, number, low, high = bounds.groups()
            first, last = (int(number) + bool(above), math.inf if above else int(number)) if number else (
                int(low or 0), int(high) if high else math.inf)  # fmt: skip
            return set[int]().union(*(rows[held] for held in list(rows) if held is not None and first <= held <= last))
        if name in ("openalex", "cites", "primary_location.source.id"):
            identifier = short_id(value)
            if identifier is None:
                raise Refused(f"'{value}' is not a valid OpenAlex ID.")
            return rows.get(identifier, set())
        if name == "doi":
            return rows.get(value.lower().removeprefix("https://doi.org/"), set())
        return rows.get(value.rpartition("/")[2].lower(), set())

    def answer(self, path: str, params: Params) -> Answer:
        """Answer a GET."""
        entity, _, identifier = path.strip("/").partition("/")
        try:
            asked = _checked(params)
            if entity == "works" and not identifier:
                return Answer(200, self._list(asked))
        except (Refused, ValueError) as problem:
            return Answer(400, {"error": "Invalid query parameters error.", "message": str(problem)})
        if entity == "works" and short_id(identifier) in self.merged:
            return Answer(301, "", {"Location": f"https://api.openalex.org/works/{self.merged[short_id(identifier)]}"})
        name, value = "openalex", short_id(identifier)
        if identifier.lower().startswith("doi:"):
            name, value = "doi", unquote(identifier)[4:].lower()
        for row in self._rows[name].get(value, ()) if entity == "works" else ():
            return Answer(200, _cut(self.works[row], asked.get("select")))
        return Answer(404, "<h1>Not Found</h1>")

    def _list(self, asked: dict[str, str]) -> dict[str, Any]:
        group_by = asked.get("group_by")
        page, per_page = int(asked.get("page", 1)), int(asked.get("per_page", MAX_PER_PAGE if group_by else 25))
        if not 1 <= per_page <= MAX_PER_PAGE or page < 1 or page * per_page > MAX_ROWS:
            raise Refused(f"A page has 1 to {MAX_PER_PAGE} results, and {MAX_ROWS} results are the last.")
        rows = self.matching(asked.get("filter", ""))
        meta = {"count": len(rows), "db_response_time_ms": 3, "page": page, "per_page": per_page}
        if group_by:
            groups = self._by_year(group_by, rows)[:per_page]
            return {"meta": meta | {"groups_count": len(groups)}, "group_by": groups}
        chosen = sorted(rows)
        if "sample" in asked:
            chosen = [row for row in self._shuffled(asked["seed"]) if row in rows][: int(asked["sample"])]
            meta["count"] = len(chosen)
        results = [_cut(self.works[row], asked.get("select")) for row in chosen[(page - 1) * per_page :][:per_page]]
        return {"meta": meta | {"groups_count": None}, "results": results, "group_by": []}

    def _shuffled(self, seed: str) -> list[int]:
        if seed not in self._samples:
            drawn = [hashlib.sha256(f":{seed}:{identifier}".encode()).digest() for identifier in self.ids]
            self._samples[seed] = sorted(range(len(drawn)), key=drawn.__getitem__)
        return self._samples[seed]

    def _by_year(self, group_by: str, rows: set[int]) -> list[dict[str, Any]]:
        name, _, option = group_by.partition(":")
        if name != "publication_year" or option not in ("", "include_unknown"):
            raise Refused(f"group_by={group_by} is not served here.")
        counts = {year: len(held & rows) for year, held in self._rows[name].items() if option or year is not None}
        groups = [{"key": "-111" if year is None else str(year), "count": n} for year, n in counts.items() if n]
        named = [group | {"key_display_name": group["key"].replace("-111", "unknown")} for group in groups]
        return sorted(named, key=lambda group: (-group["count"], group["key"]))


def _checked(params: Params) -> dict[str, str]:
    """Refuse what OpenAlex refuses to be asked together, or what is not served here."""
    asked = {name.replace("-", "_"): value for name, value in params}
    fields = asked["select"].split(",") if "select" in asked else []
    for problem, is_so in (
        ("parameters that are not served here", asked.keys() - _PARAMETERS or len(asked) < len(params)),
        ("another corpus", asked.get("corpus", "core") != "core"),
        ("sample does not work with group_by", {"sample", "group_by"} <= asked.keys()),
        ("select does not work with group_by", {"select", "group_by"} <= asked.keys()),
        ("a seed is required to page through samples", "sample" in asked and "seed" not in asked),
        ("sample size must be at most 10,000", not 0 <= int(asked.get("sample", 0)) <= MAX_ROWS),
        ("not a valid select field", not {*_FIELDS} >= {*fields}),
    ):
        if is_so:
            raise Refused(f"{problem}: {', '.join(name for name, _ in params)}")
    return asked


def _cut(work: dict[str, Any], select: str | None) -> dict[str, Any]:
    return work if select is None else {name: work.get(name) for name in _FIELDS if name in select.split(",")}


@functools.cache
def _read_file(path: Path) -> Works:
    lines = b"".join(decompressed_chunks(path)).split(b"\n")  # on \n only: titles hold U+2028
    return Works(msgspec.json.decode(line) for line in lines if line.strip())


# The server


class OpenAlexServer(Server):
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
        records: Path | Iterable[dict[str, Any]],
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
        super().__init__(_Handler, port)
        self.base_url = self.url
        self.api = _read_file(records) if isinstance(records, Path) else Works(records)
        self.log: list[LogEntry] = []
        self._keys, self._daily_credits, self._clock = {None, key}, daily_credits, clock
        self._fault_rate, self._fault_seed, self._most_in_a_row = fault_rate, fault_seed, max_consecutive_faults
        self._slow_s, self._retry_after_s = slow_s, retry_after_s
        self._spent: Counter[tuple[str | None, int]] = Counter()  # by key and day
        self._attempts, self._in_a_row = Counter[str](), Counter[str]()
        self._lock = threading.Lock()

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

    def respond(self, path: str, params: Params, headers: Message, request: str) -> tuple[Answer, str | None, int]:
        """Return the answer to a GET, the fault dealt to it, and its price."""
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        key = given if scheme.lower() == "bearer" else None
        if key not in self._keys:
            return Answer(401, {"error": "Invalid or missing API key", "message": "API key not found"}), None, 0
        price = 0 if path.startswith("/works/") else 1  # a single work is free
        now = self._clock()
        day = (key, int(now // 86_400))
        with self._lock:
            if self._spent[day] + price > self._daily_credits:
                return _refusal("daily429", now), None, 0
            self._spent[day] += price
        fault = self._deal(request)
        if fault in REFUSALS:
            answer = _refusal(fault, now)
            if self._retry_after_s is not None and fault in ("rate429", "503"):
                answer.headers["Retry-After"] = str(self._retry_after_s)
        else:
            answer = self.api.answer(path, params)
            if fault == "slow":
                time.sleep(self._slow_s)
            if fault == "partial":
                fault = fault if self._make_partial(answer, request) else None
            fault = fault if answer.status == 200 else None
        cost = price if answer.status == 200 else 0
        with self._lock:
            self._spent[day] -= price - cost
        left = 0 if fault == "daily429" else (self._daily_credits - self._spent[day]) * USD_PER_CREDIT
        stated = {"Cost-USD": f"{cost * USD_PER_CREDIT:.4f}", "Remaining-USD": f"{left:.4f}", "Credits-Used": str(cost)}
        answer.headers |= {f"X-RateLimit-{name}": value for name, value in stated.items()}
        return answer, fault, cost

    def _deal(self, request: str) -> str | None:
        """Deal a fault, or none: a function of the seed, the request and how often it was asked."""
        with self._lock:
            share, kind = _draw(self._fault_seed, request, self._attempts[request])
            self._attempts[request] += 1
            if share >= self._fault_rate or self._in_a_row[request] >= self._most_in_a_row:
                self._in_a_row[request] = 0
                return None
            self._in_a_row[request] += 1
            return FAULTS[kind % len(FAULTS)]

    def _make_partial(self, answer: Answer, request: str) -> bool:
        """Take something away that the answer's own numbers give away; return False where nothing can be missing."""
        payload: dict[str, Any] = answer.payload
        meta = payload.get("meta") if answer.status == 200 else None
        if not meta or not meta["count"]:
            return False
        groups, rows = payload.get("group_by"), payload.get("results")
        if _draw("partial", self._fault_seed, request)[1] % 2 or not (groups or rows):
            answer.payload = payload | {"meta": meta | {"count": meta["count"] - max(1, meta["count"] // 3)}}
        elif groups:
            fewer = [group | {"count": group["count"] - (group["count"] + 2) // 3} for group in groups]
            fewer = [group for group in fewer if group["count"]]
            answer.payload = payload | {"meta": meta | {"groups_count": len(fewer)}, "group_by": fewer}
        else:
            answer.payload = payload | {"results": rows[: len(rows) - (len(rows) + 2) // 3]}
        return True


#: The key that tests give to a server.
KEY = "a-secret-key-1234"


def api(server: OpenAlexServer, **changes: Any) -> ApiConfig:
    """Ask a server that has KEY, without waiting between calls."""
    settings = {"base_url": server.base_url, "api_key": KEY, "requests_per_second": 1e6, "max_sleep_s": 0.2}
    return ApiConfig(**(settings | changes))


def _draw(*key: Any) -> tuple[float, int]:
    digest = hashlib.sha256(":".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16])


def _refusal(kind: str, now: float) -> Answer:
    """Return the answer that stands in for the real one."""
    wait = str(math.ceil(86_400 - now % 86_400))
    spent = {"error": "Rate limit exceeded", "message": "Insufficient budget. Resets at midnight UTC.",
             "retryAfter": int(wait), "dailyRemainingUsd": 0}  # fmt: skip
    plan = {"error": "Plan upgrade required", "message": "from_updated_date needs a plan with the daily snapshot."}
    fast = {"error": "Rate limit exceeded", "message": "Rate limit exceeded: 30 requests per second.", "retryAfter": 1}
    return {
        "rate429": Answer(429, fast, headers={"Retry-After": "1"}),
        "daily429": Answer(429, spent, headers={"Retry-After": wait, "X-RateLimit-Reset": wait}),
        "plan429": Answer(429, plan),
        "500": Answer(500, {"error": "Internal Server Error", "message": "Something went wrong."}),
        "502": Answer(502, "<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"),
        "503": Answer(503, {"error": "Service Unavailable", "message": "Try again."}, headers={"Retry-After": "30"}),
        "504": Answer(504, {"error": "Gateway timeout", "reason": "query_timeout"}),
    }[kind]


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16  # headers and body leave in one piece
    server: OpenAlexServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        params = parse_qsl(parts.query, keep_blank_values=True)
        kept = sorted(pair for pair in params if pair[0] != "mailto")
        request = f"GET {parts.path}?" + "&".join(f"{name}={value}" for name, value in kept)
        fault, credits = None, 0
        if len(self.requestline) + 2 * self.requestline.count("|") > MAX_REQUEST_LINE:
            answer = Answer(400, {"error": "Bad Request", "message": "Request Line is too large"})
        else:
            answer, fault, credits = self.server.respond(parts.path, params, self.headers, request)
        body = answer.body()
        sent = body[: len(body) // 2] if fault in ("reset", "truncated") else body
        entry = LogEntry(request=request, status=answer.status, fault=fault, credits=credits)
        self.server.log.append(entry)  # first: a client that has its answer finds it in the log
        self.send_response(answer.status)
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.openalex_server")
    parser.add_argument("--records", type=Path, required=True, metavar="FILE", help="JSONL of works, .gz or not")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    with OpenAlexServer(**vars(parser.parse_args())) as server:
        print(f"{len(server.api.ids)} works at {server.base_url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
