"""The loopback OpenAlex against recorded exchanges, brute force over its own records, and its promises to tests."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.sources.example.source import WORKS_FILE
from tests.conftest import example_lines
from tests.servers.openalex_server import FAULTS, REFUSALS, SPOILT, OpenAlexServer

KEY = "k-0123456789"
BEARER = {"Authorization": f"Bearer {KEY}"}


def exchanges(folder: Path, name: str) -> list[dict[str, Any]]:
    """Recorded requests with their decoded bodies."""
    path = folder / "openalex" / "cassettes" / name
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    recorded = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["http_interactions"]
    return [
        {
            "url": httpx.URL(one["request"]["uri"]),
            "status": one["response"]["status"],
            "headers": one["response"]["headers"],
            "json": json.loads(one["response"]["body"]["string"]),
        }
        for one in recorded
    ]


def shape(value: Any) -> Any:
    """Keys and types, in order; the elements of a list taken together."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


@pytest.fixture(scope="module")
def records():
    return [json.loads(line) for line in example_lines()]


@pytest.fixture(scope="module")
def some(records):
    """Few enough to start many servers over."""
    return records[:300]


@pytest.fixture(scope="module")
def server():
    with OpenAlexServer(WORKS_FILE, key=KEY, per_second=math.inf, daily_credits=10**9) as running:
        yield running


@pytest.fixture(scope="module")
def api(server):
    with client_of(server, headers=BEARER) as client:
        yield client


def client_of(server: OpenAlexServer, **options: Any) -> httpx.Client:
    """A client that waits however busy the machine is, and uses neither a proxy nor certificates (60 ms to load)."""
    return httpx.Client(base_url=server.base_url, timeout=600, trust_env=False, verify=False, **options)


def ids(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [work["id"] for work in answer.json()["results"]]


# Shapes and words, against what the real API said


def test_a_list_answer_has_the_recorded_keys_in_order_and_their_types(some, shared_data):
    recorded = exchanges(shared_data, "pro_request_list_count.yml")[0]["json"]
    works = [work | {"ids": recorded["results"][0]["ids"]} for work in some]
    with OpenAlexServer(works, per_second=math.inf) as server, client_of(server) as client:
        ours = client.get("/works", params={"select": "ids", "per_page": 1, "page": 1}).json()
    ours["meta"]["cost_usd"] = recorded["meta"].get("cost_usd")  # the client reads the price from a header
    recorded["meta"].setdefault("cost_usd", None)
    assert list(ours) == list(recorded)
    assert shape(ours) == shape(recorded)


def test_recorded_queries_give_the_recorded_works_over_the_recorded_world(shared_data):
    recorded = exchanges(shared_data, "oa_snowball.yml.gz")
    world = {work["id"]: work for one in recorded for work in one["json"]["results"]}
    n_compared = 0
    with OpenAlexServer(world.values(), per_second=math.inf) as server, client_of(server) as client:
        for one in recorded:
            asked = {name: value for name, value in one["url"].params.items() if name != "cursor"}
            if asked["filter"].startswith("cited_by"):  # the client never asks this
                continue
            ours, theirs = client.get("/works", params=asked).json(), one["json"]
            assert ours["meta"]["count"] == theirs["meta"]["count"]
            if theirs["meta"]["per_page"] > 1:
                by_id = {work["id"]: work for work in ours["results"]}
                assert by_id.keys() == {work["id"] for work in theirs["results"]}
                for work in theirs["results"]:
                    kept = {k: v for k, v in work.items() if k not in ("grants", "is_authors_truncated")}
                    assert {k: by_id[work["id"]][k] for k in kept} == kept
                    n_compared += 1
    assert n_compared == 7


def test_a_wrong_key_is_refused_in_the_recorded_words(server, shared_data):
    recorded = exchanges(shared_data, "pro_rate_limit_status_401.yml")[0]
    with client_of(server) as client:
        for path in ("/works", "/works/W1"):
            for word in ("Bearer wrong", "Bearer"):
                answer = client.get(path, headers={"Authorization": word})
                assert (answer.status_code, answer.json()) == (401, recorded["json"])


# Filters


def reference_of(record: dict[str, Any], key: str) -> Any:
    return {
        "publication_year": record["publication_year"],
        "cited_by_count": record["cited_by_count"],
        "referenced_works_count": len(record["referenced_works"]),
    }[key]


numbers = st.sampled_from(["publication_year", "cited_by_count", "referenced_works_count"])


@st.composite
def number_clauses(draw):
    key = draw(numbers)
    low = draw(st.integers(1990, 2022) if key == "publication_year" else st.integers(0, 120))
    high = low + draw(st.integers(0, 20))
    text, test = draw(
        st.sampled_from(
            [
                (f"{low}", lambda v: v == low),
                (f"!{low}", lambda v: v != low),
                (f">{low}", lambda v: v > low),
                (f"{low}-{high}", lambda v: low <= v <= high),
                (f"!{low}-{high}", lambda v: not low <= v <= high),
                (f"{low}-", lambda v: v >= low),
                (f"-{low}", lambda v: v <= low),
                (f"{low}|{high}", lambda v: v in (low, high)),
                (f"!{low}|{high}", lambda v: v not in (low, high)),
            ]
        )
    )
    return f"{key}:{text}", lambda record: test(reference_of(record, key))


@settings(max_examples=15)
@given(clauses=st.lists(number_clauses(), min_size=1, max_size=3))
def test_number_filters_agree_with_brute_force(api, records, clauses):
    answer = api.get("/works", params={"filter": ",".join(text for text, _ in clauses), "per_page": 1})
    assert answer.json()["meta"]["count"] == sum(all(test(r) for _, test in clauses) for r in records)


@settings(max_examples=15)
@given(data=st.data())
def test_citation_filters_agree_with_brute_force(api, records, data):
    cited = Counter(reference for record in records for reference in record["referenced_works"])
    popular = [reference for reference, _ in cited.most_common(60)]
    first = data.draw(st.lists(st.sampled_from(popular), min_size=1, max_size=8, unique=True))
    second = data.draw(st.lists(st.sampled_from(popular), min_size=1, max_size=8, unique=True))
    negated = data.draw(st.booleans())

    def spelled(identifiers: list[str]) -> str:
        styles = [lambda i: i, lambda i: i[21:], lambda i: i[21:].lower()]
        return "|".join(data.draw(st.sampled_from(styles))(i) for i in identifiers)

    text = f"cites:{spelled(first)},cites:{'!' if negated else ''}{spelled(second)}"
    expected = {
        record["id"]
        for record in records
        if set(first) & set(record["referenced_works"])
        and bool(set(second) & set(record["referenced_works"])) != negated
    }
    answer = api.get("/works", params={"filter": text, "per_page": 200, "select": "id"})
    assert answer.json()["meta"]["count"] == len(expected)
    if len(expected) <= 200:
        assert set(ids(answer)) == expected


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("has_abstract:true", lambda r: bool(r["abstract_inverted_index"])),
        ("is_retracted:true", lambda r: r["is_retracted"]),
        ("type:article", lambda r: r["type"] in ("journal-article", "proceedings-article")),
        ("type:!article", lambda r: r["type"] not in ("journal-article", "proceedings-article")),
        ("type:types/book-chapter|preprint", lambda r: r["type"] in ("book-chapter", "posted-content")),
        ("primary_topic.field.id:17", lambda r: False),
        (
            "primary_location.source.id:S12898181",
            lambda r: (
                (r["primary_location"] or r)["source" if r["primary_location"] else "host_venue"]["id"]
                == "https://openalex.org/S12898181"
            ),
        ),
    ],
)
def test_other_filters_agree_with_brute_force(api, records, text, test):
    def holds(record: dict[str, Any]) -> bool:
        try:
            return test(record)
        except TypeError:  # no source
            return False

    answer = api.get("/works", params={"filter": text, "per_page": 1})
    assert answer.json()["meta"]["count"] == sum(map(holds, records)), answer.text


def counts_by_calls(api: httpx.Client, focal: str, references: list[str]) -> list[Counter]:
    """Citers of the focal work; of it and a reference; of a reference but neither of it nor itself. Per year."""

    def per_year(text: str) -> Counter:
        answer = api.get("/works", params={"filter": text, "group_by": "publication_year"}).json()
        counts = Counter({int(group["key"]): group["count"] for group in answer["group_by"]})
        assert counts.total() == answer["meta"]["count"]
        return counts

    chunks = ["|".join(references[i : i + 100]) for i in range(0, len(references), 100)]
    both: Counter = Counter()
    either: Counter = Counter()
    for i, chunk in enumerate(chunks):
        new = "".join(f",cites:!{earlier}" for earlier in chunks[:i])
        both += per_year(f"cites:{focal},cites:{chunk}{new}")
        either += per_year(f"cites:{chunk},openalex:!{focal}{new}")
    return [per_year(f"cites:{focal}"), both, either - both]


def counts_by_lists(api: httpx.Client, focal: str, references: list[str]) -> list[Counter]:
    """The same from listed citers, for reference lists whose chunks do not fit in one request line."""

    def citers(text: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for page in itertools.count(1):
            params = {"filter": text, "select": "id,publication_year", "per_page": 100, "page": page}
            answer = api.get("/works", params=params).json()
            found |= {work["id"][21:]: work["publication_year"] for work in answer["results"]}
            if len(found) == answer["meta"]["count"]:
                return found

    of_focal = citers(f"cites:{focal}")
    of_reference: dict[str, int] = {}
    for i in range(0, len(references), 100):
        of_reference |= citers(f"cites:{'|'.join(references[i : i + 100])},openalex:!{focal}")
    both = of_focal.keys() & of_reference.keys()
    return [
        Counter(of_focal.values()),
        Counter(of_focal[citer] for citer in both),
        Counter(year for citer, year in of_reference.items() if citer not in both),
    ]


def counts_by_brute_force(records: list[dict[str, Any]], work: dict[str, Any]) -> list[Counter]:
    of_focal: Counter = Counter()
    both: Counter = Counter()
    of_reference: Counter = Counter()
    for citer in records:
        cites_focal = work["id"] in citer["referenced_works"]
        cites_reference = not set(work["referenced_works"]).isdisjoint(citer["referenced_works"])
        of_focal[citer["publication_year"]] += cites_focal
        both[citer["publication_year"]] += cites_focal and cites_reference
        of_reference[citer["publication_year"]] += cites_reference and not cites_focal and citer["id"] != work["id"]
    return [+of_focal, +both, +of_reference]


def test_counts_per_year_tell_disruption_even_of_works_with_hundreds_of_references(api, records):
    world = [r for r in records if r["id"] not in r["referenced_works"]]
    cited = Counter(reference for record in records for reference in record["referenced_works"])
    by_length = sorted(world, key=lambda r: -len(r["referenced_works"]))
    assert len(by_length[1]["referenced_works"]) > 500
    chosen = by_length[:10] + sorted(world, key=lambda r: -cited[r["id"]])[:15]
    for work in chosen:
        references = [reference[21:] for reference in work["referenced_works"]]
        count = counts_by_calls if len(references) <= 500 else counts_by_lists
        assert count(api, work["id"][21:], references) == counts_by_brute_force(records, work)


# Paging, selecting, sampling, sorting, grouping


def test_a_seeded_sample_repeats_itself_and_pages_without_overlap(api, server):
    params = {"sample": 130, "seed": "7", "per_page": 50, "select": "id", "filter": "publication_year:2015-"}
    pages = [api.get("/works", params=params | {"page": page}) for page in (1, 2, 3, 4)]
    assert [len(ids(page)) for page in pages] == [50, 50, 30, 0]
    assert {page.json()["meta"]["count"] for page in pages} == {130}
    drawn = [i for page in pages for i in ids(page)]
    assert len(set(drawn)) == 130
    assert drawn[:50] == ids(api.get("/works", params=params))
    assert drawn[:50] != ids(api.get("/works", params=params | {"seed": "8"}))
    assert api.get("/works?sample=9000&seed=1&per_page=1").json()["meta"]["count"] == 4381


def test_group_by_counts_every_year(api, records):
    years = Counter(str(r["publication_year"]) for r in records)
    answer = api.get("/works?group_by=publication_year").json()
    assert {g["key"]: g["count"] for g in answer["group_by"]} == years
    assert answer["meta"]["count"] == len(records)
    assert answer["meta"]["groups_count"] == len(years)
    assert [g["count"] for g in answer["group_by"]] == sorted(years.values(), reverse=True)


# Refusals


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("filter=cites:" + "|".join(f"W{i}" for i in range(10, 111)), "Maximum number of values exceeded for cites"),
        ("filter=cites:W10|!W11", "can only be used at the beginning"),
        ("filter=cites:paper", "'paper' is not a valid OpenAlex ID"),
        ("filter=publication_year:soon", "must be a number"),
        ("filter=has_abstract:yes", "must be true or false"),
        ("select=id,primary_location.source", "primary_location.source is not a valid select field"),
        ("select=id&group_by=publication_year", "select does not work with group_by"),
        ("per_page=201", "per-page parameter must be between 1 and 200"),
        ("per_page=many", "must be a number"),
        ("page=101&per_page=100", "Maximum results size of 10,000"),
        ("sample=10001&seed=1", "less than or equal to 10,000"),
        ("sample=10&page=2", "A seed value is required"),
        ("sample=10&seed=1&group_by=publication_year", "sample does not work with group_by"),
    ],
)
def test_what_openalex_refuses_is_refused_with_400_and_costs_nothing(api, query, words):
    answer = api.get(f"/works?{query}")
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"error", "message"}
    assert words in answer.json()["message"]
    assert answer.headers["X-RateLimit-Cost-USD"] == "0"


def test_a_request_line_beyond_8190_bytes_is_stopped_at_the_edge(api):
    chunk = "|".join(f"W{i}" for i in range(2_000_000_000, 2_000_000_100))
    fits = "/works?filter=" + ",".join([f"cites:{chunk}"] * 5)
    assert api.get(fits).status_code == 200
    assert api.get(fits + f",cites:{chunk}").status_code == 400


@pytest.mark.parametrize("query", ["search=x", "filter=author.id:A1", "group_by=type", "sort=doi", "cursor=*"])
def test_what_is_not_served_is_refused_and_never_guessed(api, query):
    assert api.get(f"/works?{query}").status_code == 501


# Budget and rate


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_list_costs_a_credit_a_single_work_and_an_error_nothing_and_the_day_ends_at_midnight(some):
    clock = Clock(86_400 * 20_000 + 80_000.0)
    with (
        OpenAlexServer(some, key=KEY, daily_credits=3, per_second=math.inf, clock=clock) as server,
        client_of(server, headers=BEARER) as client,
    ):
        work = f"/works/{some[0]['id'][21:]}"
        for path, cost in (("/works", 1), (work, 0), ("/works?filter=x:1", 0), ("/works/W1", 0), ("/works?page=2", 1)):
            answer = client.get(path)
            assert answer.headers["X-RateLimit-Credits-Used"] == str(cost), path
        assert client.get("/works?group_by=publication_year").headers["X-RateLimit-Remaining"] == "0"
        spent = client.get("/works")
        assert spent.status_code == 429
        assert "Insufficient budget" in spent.json()["message"]
        assert spent.headers["Retry-After"] == spent.headers["X-RateLimit-Reset"] == "6400"
        assert {"dailyRemainingUsd", "creditsRequired", "creditsRemaining", "retryAfter"} <= spent.json().keys()
        assert client.get(work).status_code == 200  # free calls go on
        clock.now += 6_400
        assert client.get("/works").headers["X-RateLimit-Remaining"] == "2"
        assert server.credits == 4
        assert math.isclose(server.cost_usd, 0.0004)


def test_a_budget_is_never_overdrawn_by_simultaneous_requests(some):
    with OpenAlexServer(some, key=KEY, daily_credits=20, per_second=math.inf, clock=Clock(1e6)) as server:
        with client_of(server, headers=BEARER) as client, ThreadPoolExecutor(8) as pool:
            statuses = Counter(pool.map(lambda _: client.get("/works?per_page=1").status_code, range(60)))
        assert statuses == {200: 20, 429: 40}
        assert server.credits == 20


def test_the_rate_is_enforced_per_second_and_a_refused_call_costs_nothing(some):
    clock = Clock(1_000_000.0)
    with OpenAlexServer(some, key=KEY, clock=clock) as server, client_of(server) as client:
        for headers, rate in (({}, 10), (BEARER, 30)):
            statuses = [client.get("/works?per_page=1", headers=headers).status_code for _ in range(rate + 3)]
            assert statuses == [200] * rate + [429] * 3
            answer = client.get("/works", headers=headers)
            assert f"Rate limit exceeded: {rate} requests per second" in answer.json()["message"]
            assert answer.headers["Retry-After"] == "1"
        clock.now += 1
        assert client.get("/works", headers=BEARER).status_code == 200
        assert server.credits == 41


# Faults


def faulty(some: list[dict[str, Any]], **options: Any) -> OpenAlexServer:
    return OpenAlexServer(some, key=KEY, per_second=math.inf, slow_s=0.01, **options)


def test_a_reset_breaks_the_body_off_and_is_paid_for(some):
    with faulty(some, fault_rate=1, faults=("reset",)) as server, client_of(server, headers=BEARER) as client:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            client.get("/works")
        assert server.log[0].fault == "reset"
        assert server.credits == 1


@pytest.mark.parametrize("query", ["group_by=publication_year", "per_page=200"])
def test_a_partial_answer_contradicts_itself(some, query):
    with faulty(some, fault_rate=1, faults=("partial",), max_consecutive_faults=1) as server:
        both = set()
        for year in range(2000, 2008):
            with client_of(server, headers=BEARER) as client:
                wrong = client.get(f"/works?{query}&filter=publication_year:{year}-{year + 4}").json()
                right = client.get(f"/works?{query}&filter=publication_year:{year}-{year + 4}").json()
            total = sum(g["count"] for g in wrong["group_by"]) or len(wrong["results"])
            assert total != wrong["meta"]["count"]
            assert (sum(g["count"] for g in right["group_by"]) or len(right["results"])) == right["meta"]["count"]
            both.add(total < wrong["meta"]["count"])
        assert both == {True, False}


def test_faults_depend_on_the_request_and_not_on_the_order_of_threads(some):
    paths = [f"/works?filter=publication_year:{year}&per_page=1" for year in range(1980, 2022)]

    def outcomes(workers: int, order: int) -> dict[str, list[str | None]]:
        with faulty(some, fault_rate=0.5, fault_seed=3) as server, client_of(server, headers=BEARER) as client:

            def ask(path: str) -> None:
                for _ in range(5):
                    try:
                        client.get(path)
                    except httpx.TransportError:
                        continue

            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(ask, paths[::order]))
            seen: dict[str, list[str | None]] = {}
            for entry in server.log:
                seen.setdefault(entry.request, []).append(entry.fault)
            return seen

    one, many = outcomes(1, 1), outcomes(8, -1)
    assert one == many
    dealt = Counter(fault for faults in one.values() for fault in faults)
    assert set(dealt) > set(FAULTS) - {"partial"}
    assert 0.3 < 1 - dealt[None] / dealt.total() < 0.6
    assert set(REFUSALS) | set(SPOILT) == set(FAULTS)
