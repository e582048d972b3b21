"""Answers are checked against what was asked, and the pages of a list against each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl

import pytest

from sciscidata.errors import ApiError, OfflineError
from sciscidata.openalex_api.answer_checks import check_answer
from sciscidata.openalex_api.client import ApiConfig, OpenAlexClient
from sciscidata.openalex_api.request import works_request
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.sources.openalex.citer_counts import ask_citers, converse
from tests.servers.openalex_server import OpenAlexServer


def count_of(*groups: object, **meta: object) -> dict[str, object]:
    return {"meta": {"count": 3, "page": 1} | meta, "group_by": [*groups]}


def list_of(*works: object, **meta: object) -> dict[str, object]:
    results = [{"id": f"https://openalex.org/W{work}"} if isinstance(work, int) else work for work in works]
    return {"meta": {"count": len(works), "page": 1, "per_page": 100} | meta, "results": results}


def record(work: int, **facts: object) -> dict[str, object]:
    return {"id": f"https://openalex.org/W{work}"} | facts


COUNT = works_request(filter="cites:W1", group_by="publication_year:include_unknown")
PAGE = works_request(filter="is_retracted:false", per_page=100, page=1)
SECOND = works_request(filter="is_retracted:false", per_page=100, page=2)
CITERS = works_request(filter="cites:W1", per_page=100, page=1, select="id,referenced_works")
RECORDS = works_request(filter="openalex:W1|W2", per_page=100, page=1)
YEAR = works_request(filter="is_retracted:false,publication_year:1990-1999", per_page=100, page=1, sample=2, seed=1)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (PAGE, {}),
        (PAGE, {"meta": None, "results": []}),
        (PAGE, {"meta": [], "results": []}),
        (COUNT, {"meta": {"count": "3"}}),
        (COUNT, count_of(count=True)),
        (COUNT, count_of(count=None)),
        (COUNT, count_of({"key": "2001", "count": 2})),
        (COUNT, count_of({"key": "2001", "count": 2}, {"key": "2001", "count": 1})),
        (COUNT, count_of({"key": "2001", "count": 4}, {"key": "2002", "count": -1})),
        (COUNT, count_of({"key": "two", "count": 3})),
        (COUNT, count_of({"key": "2001", "count": 3}, page=9)),
        (COUNT, {"meta": {"count": 3, "groups_count": 1}, "group_by": None}),
        (COUNT, count_of(count=0, per_page=0)),
        (COUNT, count_of({"key": "2001", "count": 3}, timed_out=True)),
        (COUNT, count_of({"count": 3})),
        (COUNT, list_of(1, 2)),
        (PAGE, count_of({"key": "2001", "count": 3}, per_page=100)),
        (PAGE, list_of({}, count=1)),
        (PAGE, list_of(1, {"id": None})),
        (PAGE, list_of(1, "W2")),
        (PAGE, list_of(1, 1)),
        (PAGE, list_of(page=9)),
        (PAGE, list_of(page=9, count=150)),
        (PAGE, list_of(per_page=0, count=150)),
        (PAGE, list_of(*range(25), per_page=25, count=150)),
        (PAGE, list_of(1, page=True)),
        (PAGE, list_of(1, page=None)),
        (PAGE, list_of(1, count=2)),
        (PAGE, list_of(1, 2, count=1)),
        (PAGE, list_of(*range(101))),
        (SECOND, list_of(count=101, page=2)),
        (SECOND, list_of(*range(100), count=150, page=1)),
        (CITERS, list_of(record(7, referenced_works=["https://openalex.org/W11"]))),
        (CITERS, list_of(record(7, referenced_works=None))),
        (RECORDS, list_of(1, 3)),
        (YEAR, list_of(record(7, publication_year=2001))),
        (YEAR, list_of(record(7, publication_year=None))),
        (YEAR, list_of(*(record(work, publication_year=1990) for work in (1, 2, 3)))),
    ],
)
def test_answers_that_contradict_themselves_or_what_was_asked_are_wrong(request_, answer):
    assert check_answer(request_, answer)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (COUNT, count_of({"key": "2001", "count": 2}, {"key": "-111", "count": 1})),
        (COUNT, count_of({"key": 2001, "count": 3}) | {"results": []}),
        (COUNT, count_of({"key": "2001", "count": 2}, {"key": "unknown", "count": 1}, groups_count=2, per_page=200)),
        (COUNT, count_of({"key": "2001", "count": 2}, {"key": None, "count": 1})),
        (COUNT, count_of({"key": "2001", "count": 3}, {"key": "2002", "count": 0}, groups_count=1, timed_out=False)),
        (COUNT, count_of(*({"key": f"{1800 + n}", "count": 2} for n in range(200)), count=407, per_page=200)),  # cut
        (PAGE, list_of(record(1), {"id": "w2"}, {"id": "https://openalex.org/w3"})),
        (PAGE, list_of()),
        (PAGE, list_of(*range(100), count=10**6)),
        (SECOND, list_of(1, page=2, count=101)),
        (SECOND, list_of(page=2, count=99)),
        (CITERS, list_of(record(7, referenced_works=["w1", None]))),
        (CITERS, list_of(record(7, referenced_works=[f"W{n}" for n in range(10, 5_010)]))),  # cut by OpenAlex
        (CITERS, list_of(record(1, referenced_works=["https://openalex.org/W1"]))),  # it cites itself
        (CITERS.replace("W1", "https%3A%2F%2Fopenalex.org%2Fw1"), list_of(record(7, referenced_works=["W1"]))),
        (CITERS.replace("W1", "W2%7CW1"), list_of(record(7, referenced_works=["W1"]))),
        (CITERS.replace("W1", "%21W1"), list_of(record(7, referenced_works=None))),
        (RECORDS.replace("W1", "%21W1"), list_of(3)),
        (RECORDS.replace("W", "w"), list_of(1, 2)),
        (YEAR.replace("1990-1999", "%3E1989"), list_of(record(7, publication_year=2001))),
        (RECORDS, list_of(2)),  # it does not have the other one
        (YEAR, list_of(record(7, publication_year=1990), record(8, publication_year=1999))),
    ],
)
def test_answers_to_what_was_asked_are_right(request_, answer):
    assert check_answer(request_, answer) is None


# A work with 150 citers on two pages. 75 of them cite its reference, too.

FIRST = works_request(
    corpus="core", filter="cites:W1", page=1, per_page=100, select="id,publication_year,referenced_works"
)
LATER = FIRST.replace("page=1&", "page=2&")


def citers_of_w1(n: int) -> list[dict[str, Any]]:
    ours, too = "https://openalex.org/W1", "https://openalex.org/W2"
    citers = [record(100 + i, publication_year=2001, referenced_works=[ours, too][: 1 + i % 2]) for i in range(n)]
    return [record(1, publication_year=2000, referenced_works=[too]), *citers]


class Altered(OpenAlexServer):
    """Alters the answers to each of the first ``n_wrong`` requests for a page."""

    def __init__(self, page: int, alter: Callable[[dict[str, Any], dict[str, Any]], Any], n_wrong: int) -> None:
        super().__init__(citers_of_w1(150))
        self._page, self._alter, self._n_wrong = page, alter, n_wrong

    def respond(self, path, params, headers, request):
        answer, fault, price = super().respond(path, params, headers, request)
        if dict(params)["page"] == f"{self._page}" and self._n_wrong:
            self._n_wrong -= 1
            other = self.api.answer(path, [*parse_qsl(FIRST.partition("?")[2])]).payload
            answer.payload = self._alter(answer.payload, other)
        return answer, fault, price


def stating(**meta: Any) -> Callable[[dict[str, Any], dict[str, Any]], Any]:
    return lambda answer, _: answer | {"meta": answer["meta"] | meta}


ALTERED: dict[str, tuple[int, Callable[[dict[str, Any], dict[str, Any]], Any]]] = {
    "page 2 repeats page 1": (2, lambda answer, first: answer | {"results": first["results"][:50]}),
    "page 2 is page 1": (2, lambda answer, first: first),
    "page 2 overlaps page 1": (2, lambda answer, first: answer | {
        "results": answer["results"][1:] + first["results"][:1]}),
    "page 2 has another total": (2, lambda answer, first: answer | {
        "meta": answer["meta"] | {"count": 149}, "results": answer["results"][1:]}),
    "page 1 has another total": (1, stating(count=160)),
    "another page": (2, stating(page=9)),
    "page 9 and nothing": (2, lambda answer, first: stating(page=9)(answer | {"results": []}, first)),
    "pages of 0": (1, lambda answer, first: stating(per_page=0)(answer | {"results": []}, first)),
    "no meta": (1, lambda answer, _: answer | {"meta": None}),
    "too few": (2, lambda answer, _: answer | {"results": answer["results"][:-1]}),
    "too many": (1, lambda answer, first: answer | {"results": [*answer["results"], record(9)]}),
    "a work twice": (1, lambda answer, _: answer | {"results": answer["results"][:-1] + answer["results"][:1]}),
    "no citer": (2, lambda answer, _: answer | {"results": [*answer["results"][:-1], record(7, referenced_works=[])]}),
}  # fmt: skip


@contextmanager
def client_of(server: OpenAlexServer, store: ResponseStore, **changes: Any):
    config = ApiConfig(**{"base_url": server.base_url, "requests_per_second": 1e6} | changes)
    with OpenAlexClient(config, store, sleep=lambda _: None) as client:
        yield client


def citers_found(client: OpenAlexClient) -> tuple[int, int]:
    (focal,) = converse(client, [ask_citers(1, [2], 150)])
    return focal.citing_focal.total(), focal.citing_both.total()


@pytest.mark.parametrize("kind", ALTERED)
def test_wrong_pages_are_asked_for_again_until_the_citers_are_right(tmp_path, kind):
    with Altered(*ALTERED[kind], n_wrong=2) as server, ResponseStore(tmp_path) as store:
        with client_of(server, store) as client:
            assert citers_found(client) == (150, 75)
            assert 4 <= client.n_calls <= 6
            assert client.summary().n_requests == 2
        with client_of(server, store, offline=True) as client:
            assert citers_found(client) == (150, 75)


@pytest.mark.parametrize("kind", ALTERED)
def test_pages_that_stay_wrong_end_in_one_error_and_nothing_wrong_is_stored(tmp_path, kind):
    page, alter = ALTERED[kind]
    with Altered(page, alter, n_wrong=10**6) as server, ResponseStore(tmp_path) as store:
        with client_of(server, store, max_attempts=3) as client:
            with pytest.raises(
                ApiError, match=r"filter=cites%3AW1&page=[12].* in 3 attempts; last: the answer is wrong"
            ):
                citers_found(client)
            assert client.n_calls <= 6
        assert not store.get(server_key(LATER))
        first = store.get(server_key(FIRST))
        assert first is None or len(json.loads(first)["results"]) == 100


def server_key(request: str) -> str:
    return f"http://127.0.0.1 {request}"


def test_an_index_that_changes_between_two_pages_is_asked_for_the_whole_list(tmp_path):
    """The first page is of yesterday. Today there is one work more, first in the order."""
    with ResponseStore(tmp_path) as store:
        with OpenAlexServer(citers_of_w1(150)) as yesterday, client_of(yesterday, store) as client:
            client.fetch(FIRST, check_answer)
        with OpenAlexServer([*citers_of_w1(150), citers_of_w1(1)[1] | record(5)]) as today:
            with client_of(today, store) as client:
                assert citers_found(client) == (151, 75)
                assert client.n_calls == 3
            with client_of(today, store) as client:
                assert citers_found(client) == (151, 75)
                assert client.n_calls == 0


@pytest.mark.parametrize("kind", ["page 2 repeats page 1", "page 9 and nothing"])
def test_wrong_pages_of_an_older_store_are_no_longer_trusted(tmp_path, kind):
    with OpenAlexServer(citers_of_w1(150)) as server, ResponseStore(tmp_path) as store:
        first, later = (server.api.answer("/works", parse_qsl(text.partition("?")[2])) for text in (FIRST, LATER))
        later.payload = ALTERED[kind][1](later.payload, first.payload)
        for request, answer in ((FIRST, first), (LATER, later)):
            store.put(server_key(request), answer.body(), 0.0001)
        with (
            client_of(server, store, offline=True) as client,
            pytest.raises(OfflineError, match=r"cites%3AW1&page=2.* is wrong: page .*offline=False"),
        ):
            citers_found(client)
        with client_of(server, store) as client:
            assert citers_found(client) == (150, 75)
