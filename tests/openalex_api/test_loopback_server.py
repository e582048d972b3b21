"""The loopback OpenAlex against recorded exchanges; that its counts are right, the tests of pulls show."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.conftest import example_lines
from tests.servers.openalex_server import OpenAlexServer


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


def client_of(server: OpenAlexServer) -> httpx.Client:
    """A client that waits however busy the machine is, and uses neither a proxy nor certificates (60 ms to load)."""
    return httpx.Client(base_url=server.base_url, timeout=600, trust_env=False, verify=False)


def test_a_list_answer_has_the_recorded_keys_in_order_and_their_types(shared_data):
    recorded = exchanges(shared_data, "pro_request_list_count.yml")[0]["json"]
    works = [work | {"ids": recorded["results"][0]["ids"]} for work in map(json.loads, example_lines()[:300])]
    with OpenAlexServer(works) as server, client_of(server) as client:
        ours = client.get("/works", params={"select": "ids", "per_page": 1, "page": 1}).json()
    ours["meta"]["cost_usd"] = recorded["meta"].get("cost_usd")  # the client reads the price from a header
    recorded["meta"].setdefault("cost_usd", None)
    assert list(ours) == list(recorded)
    assert shape(ours) == shape(recorded)


def test_recorded_queries_give_the_recorded_works_over_the_recorded_world(shared_data):
    recorded = exchanges(shared_data, "oa_snowball.yml.gz")
    world = {work["id"]: work for one in recorded for work in one["json"]["results"]}
    n_compared = 0
    with OpenAlexServer(world.values()) as server, client_of(server) as client:
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


def test_a_wrong_key_is_refused_in_the_recorded_words(shared_data):
    recorded = exchanges(shared_data, "pro_rate_limit_status_401.yml")[0]
    with OpenAlexServer([], key="k-0123456789") as server, client_of(server) as client:
        for path in ("/works", "/works/W1"):
            for word in ("Bearer wrong", "Bearer"):
                answer = client.get(path, headers={"Authorization": word})
                assert (answer.status_code, answer.json()) == (401, recorded["json"])
