"""The loopback OpenAlex against recorded exchanges, brute force over its own records, and its promises to tests."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import REPOSITORY
from tests.servers.openalex.faults import FAULTS, REFUSALS, SPOILT
from tests.servers.openalex_server import OpenAlexServer

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


def records_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).split(b"\n") if line.strip()]


def shape(value: Any) -> Any:
    """Keys and types, in order; the elements of a list taken together."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


@pytest.fixture(scope="module")
def synergy(shared_data):
    return shared_data / "openalex" / "synergy_A.works.jsonl.gz"


@pytest.fixture(scope="module")
def records(synergy):
    return records_of(synergy)


@pytest.fixture(scope="module")
def some(records):
    """Few enough to start many servers over."""
    return records[:300]


@pytest.fixture(scope="module")
def server(synergy):
    with OpenAlexServer(synergy, key=KEY, per_second=math.inf, daily_credits=10**9) as running:
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


@pytest.mark.parametrize(
    ("cassette", "which"),
    [
        ("pro_request_list_count.yml", 0),
        ("pro_request_biodiversity_and_group_by_type.yml", 0),
        ("pro_fetch_search_biodiversity_AND_finance.yml.gz", 0),
    ],
)
def test_a_list_answer_has_the_recorded_keys_in_order_and_their_types(api, shared_data, cassette, which):
    recorded = exchanges(shared_data, cassette)[which]
    params = {name: value for name, value in recorded["url"].params.items() if name not in ("api_key", "filter")}
    ours = api.get("/works", params=params).json()
    assert list(ours) == list(recorded["json"])
    assert shape(ours["meta"]) == shape(recorded["json"]["meta"])
    assert list(ours["meta"]) == list(recorded["json"]["meta"])
    assert shape(ours["group_by"]) == shape(recorded["json"]["group_by"])
    if "select" in params:
        assert set(ours["results"][0]) == set(recorded["json"]["results"][0]) == {"ids"}


def test_recorded_queries_give_the_recorded_works_over_the_recorded_world(shared_data):
    recorded = exchanges(shared_data, "oa_snowball.yml.gz")
    world = {work["id"]: work for one in recorded for work in one["json"]["results"]}
    with OpenAlexServer(world.values(), per_second=math.inf) as server, client_of(server) as client:
        for one in recorded:
            ours = client.get(f"/works?{one['url'].query.decode()}").json()
            theirs = one["json"]
            assert ours["meta"]["count"] == theirs["meta"]["count"]
            assert [ours["meta"][k] for k in ("page", "per_page", "groups_count")] == [
                theirs["meta"][k] for k in ("page", "per_page", "groups_count")
            ]
            if theirs["meta"]["per_page"] > 1:
                assert {w["id"] for w in ours["results"]} == {w["id"] for w in theirs["results"]}
                by_id = {w["id"]: w for w in ours["results"]}
                for work in theirs["results"]:
                    kept = {k: v for k, v in work.items() if k not in ("grants", "is_authors_truncated")}
                    assert {k: by_id[work["id"]][k] for k in kept} == kept


def test_the_empty_last_page_of_a_cursor_walk_is_as_recorded(api, shared_data):
    recorded = exchanges(shared_data, "pro_snowball.yml")[4]["json"]
    assert recorded["meta"]["next_cursor"] is None
    ours = api.get("/works", params={"cursor": "*", "per_page": 1, "filter": "publication_year:1970"}).json()
    ours = api.get(
        "/works", params={"cursor": ours["meta"]["next_cursor"], "per_page": 1, "filter": "publication_year:1970"}
    ).json()
    ours["meta"].pop("cost_usd")  # younger than the recording
    assert shape(ours) == shape(recorded)


@pytest.mark.parametrize("which", [0, 1])
def test_an_unknown_field_is_refused_in_the_recorded_words(api, shared_data, which):
    recorded = exchanges(shared_data, "opt_filter_names.yml")[which]
    path = recorded["url"].raw_path.decode()
    ours = api.get(path)
    assert (ours.status_code, ours.json()) == (400, recorded["json"])
    ours_headers = {name.lower() for name in ours.headers}
    assert {name for name in recorded["headers"] if name.startswith("x-ratelimit")} <= ours_headers


@pytest.mark.parametrize(
    ("params", "headers"),
    [
        ({"api_key": "wrong"}, {}),
        ({"api_key": ""}, {}),
        ({"api-key": KEY + "\n"}, {}),
        ({}, {"Authorization": "Bearer wrong"}),
        ({}, {"Authorization": "Bearer"}),
        ({}, {"api-key": "wrong"}),
    ],
)
def test_a_wrong_key_is_refused_in_the_recorded_words(server, shared_data, params, headers):
    recorded = exchanges(shared_data, "pro_rate_limit_status_401.yml")[0]
    with client_of(server) as client:
        for path in ("/rate-limit", "/works", "/works/W1"):
            answer = client.get(path, params=params, headers=headers)
            assert (answer.status_code, answer.json()) == (401, recorded["json"])


@pytest.mark.parametrize(
    ("params", "headers"),
    [
        ({"api_key": KEY}, {}),
        ({"api-key": KEY}, {}),
        ({}, BEARER),
        ({}, {"Authorization": f"bearer {KEY}"}),
        ({}, {"api_key": KEY}),
        ({}, {"api-key": KEY}),
    ],
)
def test_the_key_is_accepted_in_every_place_that_openalex_accepts(server, shared_data, params, headers):
    recorded = exchanges(shared_data, "pro_rate_limit_status_200.yml")[0]
    with client_of(server) as client:
        answer = client.get("/rate-limit", params=params, headers=headers)
        assert answer.status_code == 200
        assert list(answer.json()["rate_limit"]) == list(recorded["json"]["rate_limit"])
        assert KEY not in answer.text
        assert client.get("/rate-limit").status_code == 401


def test_a_single_work_agrees_in_type_with_the_recorded_ones(shared_data):
    recorded = exchanges(shared_data, "pro_request_single_identifier.yml")[0]["json"]
    path = shared_data / "openalex" / "openalexpro_A.works.jsonl.gz"
    with OpenAlexServer(path, per_second=math.inf) as server, client_of(server) as client:
        ours = client.get("/works/W2755950973").json()
    for name in set(ours) & set(recorded):
        assert ours[name] is None or recorded[name] is None or type(ours[name]) is type(recorded[name]), name


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
                (f"<{low}", lambda v: v < low),
                (f"{low}-{high}", lambda v: low <= v <= high),
                (f"!{low}-{high}", lambda v: not low <= v <= high),
                (f"{low}-", lambda v: v >= low),
                (f"-{low}", lambda v: v <= low),
                (f"{low}|{high}", lambda v: v in (low, high)),
                (f"!{low}|{high}", lambda v: v not in (low, high)),
            ]
        )
    )
    spelled = key.replace("_", draw(st.sampled_from(["-", "_"])))
    return f"{spelled}:{text}", lambda record: test(reference_of(record, key))


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

    text = f"cites:{spelled(first)},referenced_works:{'!' if negated else ''}{spelled(second)}"
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
        ("has_doi:false", lambda r: not r["doi"]),
        ("doi:null", lambda r: not r["doi"]),
        ("has-references:true", lambda r: bool(r["referenced_works"])),
        ("is_retracted:true", lambda r: r["is_retracted"]),
        ("is_paratext:false", lambda r: not r["is_paratext"]),
        ("type:article", lambda r: r["type"] in ("journal-article", "proceedings-article")),
        ("type:!article", lambda r: r["type"] not in ("journal-article", "proceedings-article")),
        ("type:types/book-chapter|preprint", lambda r: r["type"] in ("book-chapter", "posted-content")),
        ("language:null", lambda r: True),
        ("from_publication_date:2010-06-01", lambda r: r["publication_date"] >= "2010-06-01"),
        ("to-publication-date:2010-06-01", lambda r: r["publication_date"] <= "2010-06-01"),
        ("publication_date:>2010-06-01", lambda r: r["publication_date"] > "2010-06-01"),
        ("primary_topic.field.id:17", lambda r: False),
        ("topics.field.id:null", lambda r: True),
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


def test_fields_of_todays_records_can_be_filtered_and_grouped(shared_data):
    path = shared_data / "openalex" / "openalexpro_A.works.jsonl.gz"
    records = records_of(path)
    fields = Counter(r["primary_topic"]["field"]["id"] for r in records if r["primary_topic"])
    with OpenAlexServer(path, per_second=math.inf) as server, client_of(server) as client:
        for field, count in fields.items():
            for spelled in (field, field.rsplit("/", 1)[1]):
                params = {"filter": f"primary_topic.field.id:{spelled}", "corpus": "core"}
                assert client.get("/works", params=params).json()["meta"]["count"] == count
        groups = client.get("/works", params={"group_by": "primary_topic.field.id"}).json()["group_by"]
        assert {g["key"]: g["count"] for g in groups} == fields
        languages = client.get("/works", params={"group_by": "language:include_unknown"}).json()
        assert {g["key"].rsplit("/", 1)[-1]: g["count"] for g in languages["group_by"]} == Counter(
            r["language"] or "unknown" for r in records
        )


def test_the_expansion_is_only_seen_on_request(some):
    world = [record | {"is_xpac": i % 3 == 0} for i, record in enumerate(some)]
    with OpenAlexServer(world, per_second=math.inf) as server, client_of(server) as client:
        for query, count in (
            ("per_page=1", 200),
            ("corpus=core", 200),
            ("corpus=expansion", 100),
            ("corpus=all", 300),
            ("include_xpac=true", 300),
            ("corpus=all&filter=is_xpac:true", 100),
        ):
            assert client.get(f"/works?{query}").json()["meta"]["count"] == count, query


def test_ids_of_the_openalex_filter_and_of_single_calls_may_be_bare_lower_case_or_urls(api, records):
    work = records[5]
    bare, doi = work["id"][21:], work["doi"]
    for spelled in (bare, bare.lower(), work["id"]):
        assert ids(api.get("/works", params={"filter": f"ids.openalex:{spelled}"})) == [work["id"]]
        assert api.get(f"/works/{spelled}").json()["id"] == work["id"]
    for spelled in (f"doi:{doi[16:]}", doi, f"doi:{doi[16:].upper()}"):
        assert api.get(f"/works/{spelled}").json()["id"] == work["id"]
    assert ids(api.get("/works", params={"filter": f"doi:{doi[16:]}|{records[6]['doi']}", "select": "id"}))
    assert set(ids(api.get("/works", params={"filter": f"cited_by:{bare}", "per_page": 200}))) == {
        r["id"] for r in records if r["id"] in work["referenced_works"]
    }


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
        found, cursor = {}, "*"
        while cursor:
            params = {"filter": text, "select": "id,publication_year", "per_page": 100, "cursor": cursor}
            answer = api.get("/works", params=params).json()
            found |= {work["id"][21:]: work["publication_year"] for work in answer["results"]}
            cursor = answer["meta"]["next_cursor"]
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


@pytest.mark.parametrize(("per_page", "pages"), [(7, 2), (200, 1), (5, 3), (1, 11)])
def test_a_cursor_walk_meets_every_work_once_and_an_exact_multiple_costs_one_empty_page(api, records, per_page, pages):
    expected = {record["id"] for record in records[:10]}
    ten = "openalex:" + "|".join(sorted(expected))
    walked, sizes, cursor = [], [], "*"
    while cursor:
        answer = api.get(
            "/works",
            params={"filter": ten, "per-page": per_page, "cursor": cursor, "select": "id"},
        )
        walked += ids(answer)
        sizes.append(len(answer.json()["results"]))
        cursor = answer.json()["meta"]["next_cursor"]
    assert len(walked) == 10
    assert set(walked) == expected
    assert len(sizes) == pages
    assert (sizes[-1] == 0) == (10 % per_page == 0)


def test_a_short_page_may_carry_a_cursor_as_it_did_until_march_2026(some):
    with OpenAlexServer(some, per_second=math.inf, short_page_cursor=True) as server, client_of(server) as client:
        first = client.get("/works?cursor=*&per_page=200&filter=publication_year:2015").json()
        assert 0 < len(first["results"]) < 200
        last = client.get(
            "/works",
            params={
                "cursor": first["meta"]["next_cursor"],
                "per_page": 200,
                "filter": "publication_year:2015",
            },
        ).json()
        assert (last["results"], last["meta"]["next_cursor"]) == ([], None)


@pytest.mark.parametrize("sort", [None, "publication_year", "publication_date:desc", "publication_year:desc,doi"])
def test_pages_and_cursors_walk_the_same_order(api, sort):
    params = {"filter": "publication_year:2018", "per_page": 50, "select": "id"} | ({"sort": sort} if sort else {})
    by_page = [i for page in (1, 2, 3, 4) for i in ids(api.get("/works", params=params | {"page": page}))]
    by_cursor, cursor = [], "*"
    while cursor:
        answer = api.get("/works", params=params | {"cursor": cursor})
        by_cursor += ids(answer)
        cursor = answer.json()["meta"]["next_cursor"]
    assert by_page == by_cursor[:200]
    assert len(set(by_cursor)) == len(by_cursor) == answer.json()["meta"]["count"]


def test_sorting_orders_by_the_field_and_puts_works_without_it_last(api, records):
    answer = api.get("/works", params={"sort": "doi:desc", "per_page": 200, "page": 22, "select": "doi"})
    assert [w["doi"] for w in answer.json()["results"]][-1] is None
    answer = api.get("/works", params={"sort": "cited_by_count", "per_page": 200, "select": "cited_by_count"})
    counts = [work["cited_by_count"] for work in answer.json()["results"]]
    assert counts == sorted(r["cited_by_count"] for r in records)[:200]


def test_select_keeps_the_fields_in_openalex_order_and_lists_cut_long_author_lists(api, records):
    answer = api.get("/works", params={"select": "referenced_works,id,language", "per_page": 100})
    assert all(list(work) == ["id", "language", "referenced_works"] for work in answer.json()["results"])


def test_lists_cut_long_author_lists_and_single_calls_do_not(records):
    authors = [author for record in records[:200] for author in record["authorships"]][:150]
    crowd = records[1] | {"authorships": authors}
    with OpenAlexServer([crowd], per_second=math.inf) as server, client_of(server) as client:
        listed = client.get("/works").json()["results"][0]
        single = client.get(f"/works/{crowd['id'][21:]}").json()
    assert (listed["authorships"], listed["is_authors_truncated"]) == (authors[:100], True)
    assert single["authorships"] == authors
    assert "is_authors_truncated" not in single


def test_a_record_of_2023_is_served_in_the_shape_of_today(api, records):
    old = records[0]
    served = api.get(f"/works/{old['id'][21:]}").json()
    assert not {"host_venue", "alternate_host_venues", "ngrams_url"} & served.keys()
    assert (served["type"], served["type_crossref"]) == ("article", "journal-article")
    assert served["referenced_works_count"] == len(old["referenced_works"])
    same = served.keys() & old.keys() - {"type"}
    assert {name: served[name] for name in same} == {name: old[name] for name in same}


def test_a_seeded_sample_repeats_itself_and_pages_without_overlap(api, server):
    params = {"sample": 130, "seed": "7", "per_page": 50, "select": "id", "filter": "publication_year:2015-"}
    pages = [api.get("/works", params=params | {"page": page}) for page in (1, 2, 3, 4)]
    assert [len(ids(page)) for page in pages] == [50, 50, 30, 0]
    assert {page.json()["meta"]["count"] for page in pages} == {130}
    drawn = [i for page in pages for i in ids(page)]
    assert len(set(drawn)) == 130
    assert drawn[:50] == ids(api.get("/works", params=params))
    assert drawn[:50] != ids(api.get("/works", params=params | {"seed": "8"}))
    assert ids(api.get("/works?sample=20&select=id")) != ids(api.get("/works?sample=20&select=id"))
    assert api.get("/works?sample=9000&seed=1&per_page=1").json()["meta"]["count"] == 4381


def test_a_sample_drifts_with_the_state_of_the_index_only_if_asked(some):
    def drawn(**options: Any) -> list[str]:
        with OpenAlexServer(some, per_second=math.inf, **options) as server, client_of(server) as client:
            return ids(client.get("/works?sample=100&seed=1&per_page=100&select=id"))

    assert drawn() == drawn()
    assert drawn(drift=True) != drawn(drift=True)


def test_group_by_counts_every_value_and_hides_the_unknown_one(api, records):
    years = Counter(str(r["publication_year"]) for r in records)
    answer = api.get("/works?group_by=publication_year").json()
    assert {g["key"]: g["count"] for g in answer["group_by"]} == years
    assert answer["meta"]["count"] == len(records)
    assert answer["meta"]["groups_count"] == len(years)
    assert [g["count"] for g in answer["group_by"]] == sorted(years.values(), reverse=True)

    doi = {g["key"]: g["count"] for g in api.get("/works?group-by=has_doi").json()["group_by"]}
    assert doi == {"true": sum(bool(r["doi"]) for r in records), "false": sum(not r["doi"] for r in records)}
    assert api.get("/works?group_by=language").json()["group_by"] == []
    unknown = api.get("/works?group_by=language:include_unknown").json()["group_by"]
    assert unknown == [{"key": "unknown", "key_display_name": "unknown", "count": len(records)}]


def test_group_by_shows_200_groups_and_a_cursor_walks_all_of_them_by_key(api):
    first = api.get("/works?group_by=primary_location.source.id").json()
    assert len(first["group_by"]) == first["meta"]["groups_count"] == 200
    keys, counts, cursor = [], [], "*"
    while cursor:
        params = {"group_by": "primary_location.source.id", "cursor": cursor}
        answer = api.get("/works", params=params).json()
        keys += [g["key"] for g in answer["group_by"]]
        counts += [g["count"] for g in answer["group_by"]]
        cursor = answer["meta"]["next_cursor"]
    assert answer["group_by"] == []
    assert keys == sorted(set(keys))
    assert sorted(counts, reverse=True)[:200] == [g["count"] for g in first["group_by"]]


def test_sources_are_those_the_works_name(api, records):
    named = {r["primary_location"]["source"]["id"] for r in records if (r["primary_location"] or {}).get("source")}
    some = sorted(i for i in named if i)[:100]
    answer = api.get(
        "/sources",
        params={"filter": "openalex:" + "|".join(i[21:] for i in some), "per_page": 100, "select": "id,display_name"},
    )
    assert sorted(ids(answer)) == some
    assert all(source["display_name"] for source in answer.json()["results"])
    assert api.get(f"/sources/{some[0][21:]}").json()["id"] == some[0]


# Refusals


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("filter=publication_year:2020&filter=type:article", "Only one filter parameter is allowed"),
        ("filter=host_venue.id:V1", "deprecated in favor of locations"),
        ("filter=cites:" + "|".join(f"W{i}" for i in range(10, 111)), "Maximum number of values exceeded for cites"),
        ("filter=cites:W10|!W11", "can only be used at the beginning"),
        ("filter=cites:paper", "'paper' is not a valid OpenAlex ID"),
        ("filter=publication_year", "Invalid query parameter in publication_year"),
        ("filter=publication_year:soon", "must be a number"),
        ("filter=from_publication_date:2020", "invalid date"),
        ("filter=has_abstract:yes", "must be true or false"),
        ("filter=is_retracted:yes", "must be true, false null"),
        ("select=id,primary_location.source", "primary_location.source is not a valid select field"),
        ("select=id&group_by=type", "select does not work with group_by"),
        ("per_page=201", "per-page parameter must be between 1 and 200"),
        ("per-page=0", "per-page parameter must be between 1 and 200"),
        ("per_page=many", "must be a number"),
        ("page=0", "greater than 0"),
        ("page=101&per_page=100", "Maximum results size of 10,000"),
        ("page=2&cursor=*", "Cannot use page parameter with cursor"),
        ("cursor=null", "Cursor is null"),
        ("cursor=bm9uc2Vuc2U=", "Invalid cursor value"),
        ("sample=10001", "less than or equal to 10,000"),
        ("sample=ten", "sample must be an integer"),
        ("sample=10&page=2", "A seed value is required"),
        ("sample=10&sort=publication_year", "sample does not work with sort"),
        ("sample=10&group_by=type", "sample does not work with group_by"),
        ("sample=10&seed=1&cursor=*", "sample does not work with cursor"),
        ("seed=1", "must include the sample parameter"),
        ("group_by=publication_date", "Cannot group by date"),
        ("group_by=cites", "Group by referenced_works is not supported"),
        ("group_by=type&page=2", "Unable to paginate beyond page 1"),
        ("group_by=type:known", "include_unknown"),
        ("group_by=has_doi&cursor=*", "return true or false"),
        ("sort=relevance_score", "Must include a search query"),
        ("sort=fame", "fame is not a valid field"),
        ("corpus=everything", "corpus must be one of"),
        ("corpus=all&include_xpac=true", "cannot be combined"),
        ("limit=5", "limit is not a valid parameter"),
    ],
)
def test_what_openalex_refuses_is_refused_with_400_and_costs_nothing(api, query, words):
    answer = api.get(f"/works?{query}")
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"error", "message"}
    assert words in answer.json()["message"]
    assert answer.headers["X-RateLimit-Cost-USD"] == "0"


def test_a_hundred_values_and_a_hundred_and_one_lie_on_either_side_of_the_limit(api):
    assert api.get("/works?filter=cites:" + "|".join(f"W{i}" for i in range(10, 110))).status_code == 200


def test_a_request_line_beyond_8190_bytes_is_stopped_at_the_edge(api):
    chunk = "|".join(f"W{i}" for i in range(2_000_000_000, 2_000_000_100))
    fits = "/works?filter=" + ",".join([f"cites:{chunk}"] * 5)
    assert api.get(fits).status_code == 200
    answer = api.get(fits + f",cites:{chunk}")
    assert answer.status_code == 400
    assert "x-openalex-edge-reject" in answer.headers


@pytest.mark.parametrize("name", ["from_updated_date", "to_created_date", "from-created-date"])
def test_dates_of_change_need_a_plan(api, name):
    answer = api.get(f"/works?filter={name}:2026-01-01")
    assert (answer.status_code, answer.json()["error"]) == (429, "Plan upgrade required")


@pytest.mark.parametrize(
    "query",
    [
        "search=x",
        "filter=title.search:x",
        "filter=author.id:A1",
        "group_by=type,language",
        "group_by=type&sort=key",
        "format=csv",
    ],
)
def test_an_unknown_feature_of_openalex_is_refused_and_never_guessed(api, query):
    assert api.get(f"/works?{query}").status_code == 501


def test_unknown_works_are_404_merged_ones_301_and_other_methods_405(some):
    survivor = some[0]["id"][21:]
    with (
        OpenAlexServer(
            some, merged={"W77": survivor, "W78": "http://127.0.0.1:9/works/W1"}, per_second=math.inf
        ) as server,
        client_of(server) as client,
    ):
        assert client.get("/works/W9999999999").status_code == 404
        assert client.get("/works/doi:10.1/none").status_code == 404
        assert client.get("/nothing").status_code == 404
        moved = client.get("/works/W77")
        assert (moved.status_code, moved.headers["Location"]) == (301, f"/works/{survivor}")
        assert client.get("/works/W77", follow_redirects=True).json()["id"] == some[0]["id"]
        assert client.get("/works/W78").headers["Location"] == "http://127.0.0.1:9/works/W1"
        assert client.post("/", json={"get_rows": "works"}).status_code == 405
        assert client.get("/works/W77", follow_redirects=True).status_code == 200  # the connection still works


values = st.one_of(
    st.text(max_size=30),
    st.integers().map(str),
    st.sampled_from(["*", "null", "id", "type", "publication_year", "publication_year:desc", "true", "10"]),
    st.lists(
        st.tuples(
            st.sampled_from(["cites", "openalex", "doi", "publication_year", "type", "has_doi", "publication_date"]),
            st.one_of(st.text(max_size=12), st.sampled_from(["!null", "!1|2", "-", "1-2-3", ">", "nan", "W1|!W2"])),
        ).map(":".join),
        max_size=3,
    ).map(",".join),
)
names = st.sampled_from(
    ["filter", "select", "per_page", "page", "cursor", "sample", "seed", "sort", "group_by", "corpus", "mailto", "x"]
)


@settings(max_examples=150)
@given(params=st.lists(st.tuples(names, values), max_size=4))
def test_any_query_is_answered(api, params):
    assert api.get("/works", params=params).status_code in (200, 400, 429, 501)


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
        for path, cost in (("/works", 1), (work, 0), ("/works?filter=x:1", 0), ("/works/W1", 0), ("/sources", 1)):
            answer = client.get(path)
            assert answer.headers["X-RateLimit-Credits-Used"] == str(cost), path
        assert client.get("/works?group_by=type").headers["X-RateLimit-Remaining"] == "0"
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


def test_headers_tell_the_budget_in_credits_and_in_dollars(some):
    with OpenAlexServer(some, per_second=math.inf) as server, client_of(server) as client:
        answer = client.get("/works")
    assert {name: answer.headers[f"X-RateLimit-{name}"] for name in ("Limit", "Remaining", "Limit-USD")} == {
        "Limit": "1000",
        "Remaining": "999",
        "Limit-USD": "0.1",
    }
    assert answer.headers["X-RateLimit-Remaining-USD"] == "0.0999"
    assert answer.headers["X-RateLimit-Cost-USD"] == "0.0001"
    assert answer.json()["meta"]["cost_usd"] == 0.0001
    assert 0 < int(answer.headers["X-RateLimit-Reset"]) <= 86_400


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


def test_keyless_cursors_can_be_refused_as_since_october_2026(some):
    with (
        OpenAlexServer(some, key=KEY, keyless_cursor=False, per_second=math.inf) as server,
        client_of(server) as client,
    ):
        assert client.get("/works?cursor=*").status_code == 401
        assert client.get("/works?cursor=*", headers=BEARER).status_code == 200
        assert client.get("/works").status_code == 200


# Faults


def faulty(some: list[dict[str, Any]], **options: Any) -> OpenAlexServer:
    return OpenAlexServer(some, key=KEY, per_second=math.inf, slow_s=0.01, **options)


def test_an_injected_wait_can_be_shortened(some):
    for seconds, waits in ((None, {"rate429": "1", "503": "30"}), (0, {"rate429": "0", "503": "0"})):
        for kind, wait in waits.items():
            with (
                faulty(some, fault_rate=1, faults=(kind,), retry_after_s=seconds) as server,
                client_of(server) as client,
            ):
                assert client.get("/works").headers["Retry-After"] == wait


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_on_demand_has_its_status_and_costs_nothing(some, kind):
    with faulty(some, fault_rate=1, faults=(kind,)) as server, client_of(server, headers=BEARER) as client:
        answer = client.get("/works")
        assert answer.status_code == (429 if kind.endswith("429") else int(kind))
        assert server.credits == 0
        assert server.log[0].fault == kind
        words = {"rate429": "requests per second", "daily429": "Insufficient budget", "plan429": "Plan upgrade"}
        assert words.get(kind, "") in answer.text
        assert [client.get("/works").status_code for _ in range(3)][-1] == 200  # at most three in a row


def test_a_reset_breaks_the_body_off(some):
    with faulty(some, fault_rate=1, faults=("reset",)) as server, client_of(server, headers=BEARER) as client:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            client.get("/works")
        assert server.log[0].fault == "reset"
        assert server.credits == 1


def test_a_truncated_answer_has_a_fitting_length_and_no_json(some):
    with faulty(some, fault_rate=1, faults=("truncated",)) as server, client_of(server, headers=BEARER) as client:
        answer = client.get("/works")
        assert answer.status_code == 200
        assert int(answer.headers["Content-Length"]) == len(answer.content) == server.log[0].served_bytes
        with pytest.raises(json.JSONDecodeError):
            answer.json()


def test_a_slow_answer_is_late_and_right(some):
    with OpenAlexServer(some, fault_rate=1, faults=("slow",), slow_s=0.3) as server, client_of(server) as client:
        answer = client.get("/works?per_page=1")
        assert answer.elapsed.total_seconds() >= 0.3
        assert answer.json()["meta"]["count"] == len(some)
        assert server.log[0].delivered


@pytest.mark.parametrize("query", ["group_by=publication_year", "per_page=200&filter=publication_year:2014-"])
def test_a_partial_answer_contradicts_itself(some, query):
    with faulty(some, fault_rate=1, faults=("partial",), max_consecutive_faults=1) as server:
        both = set()
        for seed in range(8):  # the seed of nothing: it makes another request
            with client_of(server, headers=BEARER) as client:
                wrong = client.get(f"/works?{query}&bypass_cache={seed}").json()
                right = client.get(f"/works?{query}&bypass_cache={seed}").json()
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


def test_a_client_that_asks_again_gets_every_answer_within_four_attempts(some):
    paths = [f"/works?filter=publication_year:{year}&group_by=type" for year in range(1990, 2022)]
    paths += [f"/works/{record['id'][21:]}" for record in some[:30]]
    paths += [f"/works?filter=cites:{record['id'][21:]}&select=id" for record in some[:30]]

    def content(answer: httpx.Response) -> Any:
        data = answer.raise_for_status().json()
        groups, count = data.get("group_by"), data.get("meta", {}).pop("count", 0)
        if (sum(group["count"] for group in groups) if groups else len(data.get("results", ()))) != count:
            raise ValueError("partial")
        return {name: value for name, value in data.items() if name != "meta"}

    with faulty(some) as clean, client_of(clean, headers=BEARER) as client:
        expected = [content(client.get(path)) for path in paths]
    with faulty(some, fault_rate=0.6, fault_seed=5) as server, client_of(server, headers=BEARER) as client:
        for path, content_of_path in zip(paths, expected, strict=True):
            for _ in range(4):
                try:
                    got = content(client.get(path))
                    break
                except (httpx.HTTPError, ValueError):
                    got = None
            assert got == content_of_path
        assert server.repeated() == {}
        assert {entry.fault for entry in server.log} == {*FAULTS, None}
        assert server.credits == sum(entry.credits for entry in server.log) > len(paths) - 30


def test_an_unknown_kind_of_fault_is_refused(some):
    with pytest.raises(ValueError, match="faults must be of"):
        OpenAlexServer(some[:1], faults=("flood",))


# Log, life and death


def test_the_log_holds_every_request_without_the_key(some, tmp_path):
    log = tmp_path / "log.jsonl"
    with OpenAlexServer(some, key=KEY, per_second=math.inf, log_path=log) as server, client_of(server) as client:
        client.get(f"/works?api_key={KEY}&per_page=1&mailto=me@example.org")
        client.get(f"/works?per_page=1&api%5Fkey={KEY}")
        client.get("/works?per_page=2", headers=BEARER)
        client.get(f"/works?per-page=3&api_key={KEY}x")
        assert [entry.target for entry in server.log] == [
            "/works?per_page=1&mailto=me@example.org",
            "/works?per_page=1",
            "/works?per_page=2",
            "/works?per-page=3",
        ]
        assert server.repeated() == {"GET /works?per_page=1": 2}
        assert [entry.status for entry in server.log] == [200, 200, 200, 401]
    text = log.read_text()
    assert KEY not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["credits"] for line in lines] == [1, 1, 1, 0]
    assert all(line["served_bytes"] > 0 and line["method"] == "GET" for line in lines)


def test_leaving_the_context_ends_every_thread_even_with_open_connections(some):
    before = set(threading.enumerate())  # those of other tests may end meanwhile
    with OpenAlexServer(some, per_second=math.inf) as server:
        clients = [client_of(server) for _ in range(3)]
        for client in clients:
            client.get("/works?per_page=1")
        assert set(threading.enumerate()) - before
    assert not set(threading.enumerate()) - before
    for client in clients:
        client.close()


def test_it_starts_by_hand_and_stops_on_request(synergy):
    command = [
        sys.executable,
        "-m",
        "tests.servers.openalex_server",
        "--records",
        str(synergy),
        "--key",
        KEY,
        "--language",
        "en",
    ]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        base_url = process.stdout.readline().split()[-1]
        answer = httpx.get(
            f"{base_url}/works?filter=language:en&per_page=1", headers=BEARER, timeout=600, trust_env=False
        )
        assert answer.json()["meta"]["count"] == 4381
        assert "127.0.0.1" in base_url
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    assert rest.strip() == "1 requests, $0.0001"
