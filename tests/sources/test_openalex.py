"""Slices pulled from a loopback OpenAlex: the same numbers as the graph, no call too many, and runs cut short."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import logging
import os
import random
import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sciscidata.cli.main import main
from sciscidata.config import BuildConfig
from sciscidata.disruption.config import COMPAT, CDConfig
from sciscidata.disruption.index import compute_cd_index
from sciscidata.eligibility import EligibilityConfig
from sciscidata.errors import (
    ConfigError,
    CostLimitError,
    EmptyInputError,
    NotEnoughWorksError,
    OfflineError,
    SciSciDataError,
)
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.openalex_api.answer_checks import check_answer, other_pages
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.pipeline import build
from sciscidata.records.json_record import read_record
from sciscidata.records.work_columns import rows_of_records, works_of
from sciscidata.release.read import Release
from sciscidata.release.verify import verify_release
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.demand import Demand
from sciscidata.sources.example.source import WORKS_FILE, scan_example
from sciscidata.sources.kinds import ToAsk
from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
from sciscidata.sources.openalex.citer_counts import (
    MOST_REFERENCES,
    REFERENCE_WORKS,
    ReferenceRecords,
    ask_citers,
    ask_reference_citers,
    converse,
)
from sciscidata.sources.openalex.source import pull_openalex
from sciscidata.sources.openalex.works_of_answers import works_frame, works_in
from sciscidata.sources.registry import open_source
from tests import program
from tests.conftest import example_lines
from tests.servers.openalex_server import FAULTS, KEY, LogEntry, OpenAlexServer, api

YEARS = {"from_year": 1960, "to_year": 2022}
ALL = OpenAlexConfig(**YEARS)
#: As few candidates as fill the small slices of these tests.
SOURCE = OpenAlexConfig(**YEARS, candidates_per_round=600)


@pytest.fixture(scope="module")
def server():
    with OpenAlexServer(WORKS_FILE, key=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def answers(built) -> Path:
    """A cache folder for tests that do not count calls: an answer comes over the network once for all of them."""
    return built.settings.cache_dir


class Built(NamedTuple):
    """A release, how it was built, what the server was asked for it, and what the log told; tests leave it as it is."""

    release: Release
    settings: BuildConfig
    calls: list[LogEntry]
    told: str


@pytest.fixture(scope="module")
def built(server, tmp_path_factory) -> Built:
    settings = config(server, tmp_path_factory.mktemp("built"), source=ALL, split=SplitConfig(n_train=120, n_test=30))
    before, told = len(server.log), io.StringIO()
    logger, listener = logging.getLogger("sciscidata"), logging.StreamHandler(told)
    level = logger.level
    logger.setLevel("INFO")
    logger.addHandler(listener)
    try:
        release = build(settings)
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
    return Built(release, settings, server.log[before:], told.getvalue())


class DirectClient:
    """Asks a loopback server without HTTP, which takes ten times as long as the answer."""

    def __init__(self, server: OpenAlexServer) -> None:
        self.server = server

    def fetch_all(self, requests, check, *, n_listed=0):
        for request in requests:
            first = self.fetch(request, check)
            pages = [first, *(self.fetch(other, check) for other in other_pages(request, first, n_listed))]
            yield first | {"results": [work for page in pages for work in page.get("results", [])]}

    def fetch(self, request, check):
        answer = self.server.api.answer("/works", parse_qsl(request.partition("?")[2]))
        assert answer.status == 200
        content = json.loads(answer.body())
        assert check(request, content) is None
        return content


@pytest.fixture(scope="module")
def graph_world() -> tuple[pl.DataFrame, pl.DataFrame]:
    works, citations, _ = scan_example()
    return works.collect(), citations.collect()


def config(server: OpenAlexServer, home: Path, **changes) -> BuildConfig:
    settings = {
        "source": SOURCE,
        "out": home / "slice",
        "cache_dir": home / "cache",
        "api": api(server),
        "split": SplitConfig(n_train=18, n_test=6),
        "eligibility": EligibilityConfig(last_year=2022),
    }
    return BuildConfig(**(settings | changes))


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.jsonl"))}


def yearly(pairs: pl.DataFrame) -> dict[int, dict[int, int]]:
    counts: dict[int, dict[int, int]] = {}
    for focal, year, n in pairs.group_by("focal", "year").len().rows():
        counts.setdefault(focal, {})[year] = n
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("listed", [True, False], ids=["citers listed", "citers counted"])
def test_every_work_has_the_counts_of_the_graph_in_every_year(server, graph_world, tmp_path, listed):
    """Half of 4,381 works, and all with long lists (up to 500); by joins, which share nothing with the kernels."""
    works, citations = graph_world
    edges = citations.filter(pl.col("citing_id") != pl.col("cited_id")).unique()
    years = works.select(citer="work_id", year="publication_year")
    of_focal = edges.select(focal="cited_id", citer="citing_id").join(years, on="citer")
    references = edges.select(focal="citing_id", reference="cited_id")
    of_refs = references.join(edges.select(reference="cited_id", citer="citing_id"), on="reference")
    of_refs = (
        of_refs.select("focal", "citer").unique().filter(pl.col("focal") != pl.col("citer")).join(years, on="citer")
    )
    both = of_focal.join(of_refs.select("focal", "citer"), on=["focal", "citer"], how="semi")
    expected = [yearly(pairs) for pairs in (of_focal, both, of_refs)]
    lists = references.group_by("focal").agg("reference")
    own = {focal: sorted(found) for focal, found in lists.rows()}
    assert sum(200 < len(found) <= MOST_REFERENCES for found in own.values()) >= 2
    share = 2 if listed else 8
    ids = [work for work in works["work_id"] if work % share == 0 or len(own.get(work, [])) > 90]
    ids = [work for work in ids if len(own.get(work, [])) <= MOST_REFERENCES]
    long_lists = [work for work in ids if len(own.get(work, [])) > 200]  # their requests are the longest
    with ResponseStore(tmp_path) as store, OpenAlexClient(api(server), store) as client:
        for asker, some in ((client, long_lists), (DirectClient(server), ids)):
            citers = converse(asker, [ask_citers(i, own.get(i, []), 1 if listed else 10**6) for i in some])
            of_references = converse(asker, [ask_reference_citers(i, own.get(i, [])) for i in some])
            records = ReferenceRecords(asker)
            records.ask(reference for work in some for reference in own.get(work, []))
            assert_counts(some, citers, of_references, records, own, expected, listed=listed)


def assert_counts(ids, citers, of_references, records, own, expected, *, listed):
    for work, focal, references_ in zip(ids, citers, of_references, strict=True):
        assert (focal.shared is not None) == listed
        both_in_vain, all_in_vain = records.counted_in_vain(work, own.get(work, []))
        citing_both = focal.citing_both if listed else focal.citing_both - both_in_vain
        found = (focal.citing_focal, citing_both, references_ - all_in_vain)
        assert tuple(dict(counter) for counter in found) == tuple(counts.get(work, {}) for counts in expected), work


@pytest.mark.slow
@pytest.mark.parametrize("name", ["default", *(name for name in COMPAT if name != "pyscisci")])
def test_a_whole_pull_scores_works_as_the_graph_does_in_every_convention(server, graph_world, answers, name):
    convention = CDConfig(family=True, di_l=2) if name == "default" else CDConfig.compat(name, family=True)
    works, citations = graph_world
    graph = compute_cd_index(works.lazy(), citations.lazy(), convention).collect()
    eligibility = EligibilityConfig(last_year=2022)
    demand = Demand(LabelThresholds(), eligibility, SplitConfig(n_train=30, n_test=3), convention.window_years)
    with ResponseStore(answers / "openalex") as store, OpenAlexClient(api(server), store) as client:
        candidates = Candidates.count(client, SOURCE, convention, eligibility)
        pulled = pull_openalex(candidates, convention, demand.quotas)
    assert pulled.scores.height >= 100
    both = pulled.scores.join(graph, on="work_id", suffix="_graph", validate="1:1")
    assert both.height == pulled.scores.height
    n_jl = f"n_j{convention.di_l}"
    listed = both.filter(pl.col(n_jl).is_not_null())
    assert listed.height >= both.height / 2
    for rows, columns in ((both, ("n_i", "n_j", "n_refs", "di_nok_index")), (listed, (n_jl, "n_shared", "dependence"))):
        for column in columns:
            assert rows[column].eq_missing(rows[f"{column}_graph"]).all(), column
    assert (pulled.scores["n_i"] == pulled.scores["n_j"]).any()
    scored = both.filter(pl.col("n_k").is_not_null())
    assert scored.height >= 40
    for column in ("n_k", "cd_index", "mcd_index"):
        assert scored[column].eq_missing(scored[f"{column}_graph"]).all(), column
    certain = both.filter(pl.col("n_k").is_null(), pl.col("cd_index").is_not_null())
    assert certain["cd_index"].eq_missing(certain["cd_index_graph"]).all()


def test_a_slice_costs_what_was_estimated_and_few_calls_a_work(built, graph_world):
    release, _, calls, log = built
    verify_release(release.folder)
    bill = sum(entry.credits for entry in calls)
    source = release.manifest["source"]
    assert source["requests"] == bill
    assert source["cost_of_answers_usd"] == pytest.approx(bill * 1e-4)
    assert bill / source["judged"] <= 3.2
    assert len({entry.request for entry in calls}) == len(calls)
    # Told first from published shares, then with every doubling; half-way at the latest it is right to 15 %.
    told = [
        (int(calls.replace(",", "")), float(cost))
        for calls, cost in re.findall(r"about ([\d,]+) more calls, \$([\d.]+) in all", log)
    ]
    half_way = [cost for calls, cost in told if calls >= bill / 2]
    assert len(told) >= 4
    assert half_way[-1] == pytest.approx(bill * 1e-4, rel=0.15)
    # Every released score is the one of the whole graph.
    whole = compute_cd_index(*graph_world).select(openalex_id=pl.format("W{}", "work_id"), whole="cd_index").collect()
    rows = pl.concat([release.train, release.test]).join(whole, on="openalex_id")
    assert rows.height == 150
    assert (rows["cd_index"] == rows["whole"]).all()


def estimate(settings: BuildConfig) -> ToAsk:
    with open_source(settings.source, settings.cache_dir, settings.api) as source:
        return source.estimate(settings.demand.quotas, settings.measures)


def pull(settings: BuildConfig) -> None:
    with open_source(settings.source, settings.cache_dir, settings.api) as source:
        source.until(settings.demand.quotas, settings.measures)


UZZI = LabelThresholds(novelty_rule="uzzi")
DRAWS = {
    "disruption": {"split": SplitConfig(n_train=24, n_test=6)},
    "disruption in small rounds": {"split": SplitConfig(n_train=18, n_test=6), "source": SOURCE},
    "no balance": {"split": SplitConfig(n_train=90, n_test=15, balance="none")},
    "novelty": {"split": SplitConfig(n_train=24, n_test=6, balance="novelty"), "thresholds": UZZI},
    "both": {"split": SplitConfig(n_train=9, n_test=0, balance="joint"), "thresholds": UZZI},
}


@pytest.mark.parametrize(
    "draw", [draw if draw == "novelty" else pytest.param(draw, marks=pytest.mark.slow) for draw in DRAWS]
)
def test_a_dry_run_bounds_the_calls_before_a_run_and_after_a_part_of_it(server, tmp_path, draw):
    settings = config(server, tmp_path, **{"source": ALL} | DRAWS[draw])
    limited = dataclasses.replace(settings, api=api(server, max_cost_usd=0.04))
    before = len(server.log)
    planned = estimate(settings)
    assert (planned.asked_calls, planned.judged) == (2, 0)
    with contextlib.suppress(CostLimitError):
        pull(limited)
    part = len(server.log)
    later = estimate(settings)
    assert later.asked_calls == 0
    assert later.judged >= 100
    pull(settings)
    for found, n_calls in ((planned, len(server.log) - before - 2), (later, len(server.log) - part)):
        at_least, about, at_most = found.calls
        assert at_least <= n_calls <= at_most
        assert at_least <= about <= at_most
    assert later.calls[2] < planned.calls[2]


def test_a_dry_run_after_the_run_says_how_many_works_have_a_novelty_label(built):
    done = estimate(built.settings)
    assert (done.asked_calls, done.calls) == (1, (0, 0, 0))
    release = built.release
    n_labelled = sum(split["novelty_label"].is_not_null().sum() for split in (release.train, release.test))
    fewest, most = done.novelty_labels
    assert 0 < fewest <= n_labelled <= most < 150
    balanced = dataclasses.replace(built.settings, split=SplitConfig(n_train=9, n_test=0, balance="novelty"))
    assert estimate(balanced).novelty_labels == (9, 9)


@pytest.mark.rendered
def test_rebuilding_offline_gives_the_same_bytes_and_asks_nothing(server, built, tmp_path):
    first, settings = built.release, built.settings
    n_calls = len(server.log)
    offline = dataclasses.replace(settings, out=tmp_path / "again", api=api(server, offline=True))
    second = build(offline)
    assert len(server.log) == n_calls
    names = sorted(path.name for path in first.folder.iterdir())
    for name in names:
        assert (first.folder / name).read_bytes() == (second.folder / name).read_bytes(), name
    other_seed = dataclasses.replace(offline, out=tmp_path / "b", source=OpenAlexConfig(seed=1))
    with pytest.raises(OfflineError, match="store"):
        build(other_seed)


def test_the_draw_takes_the_lowest_keys_of_the_candidates_it_judged(built):
    release = built.release
    assert release.manifest["class_counts"]["train"]["disruption_label"] == {
        "consolidating": 40, "disruptive": 40, "neutral": 40,
    }  # fmt: skip
    assert release.manifest["source"]["passed_over"].keys() <= {"side_full", "label_full", "unfit_record"}


def test_a_development_split_is_pulled_too_and_changes_no_other(server, answers, tmp_path):
    # Without novelty, whose null model is made of all works judged: of those of dev too.
    settings = [
        config(server, tmp_path / str(n), split=SplitConfig(n_train=18, n_test=6, n_dev=n), source=ALL, novelty=None)
        for n in (0, 6)
    ]
    without, release = (build(dataclasses.replace(one, cache_dir=answers)) for one in settings)
    assert verify_release(release.folder).dev.height == 6
    assert hashes(without.folder).items() <= hashes(release.folder).items()


def test_the_last_year_is_found_out_and_no_window_is_judged_twice(tmp_path):
    """Without last_year, and with a fitting work that has no year: candidates up to 2016 for data up to 2022."""
    works = [*map(json.loads, example_lines())]
    undated = next(work for work in works if work["referenced_works"] and work["abstract_inverted_index"])
    undated["publication_year"] = None
    with OpenAlexServer(works, key=KEY) as server_:
        release = build(config(server_, tmp_path, eligibility=EligibilityConfig()))
    counts = release.manifest["counts"]
    assert counts["last_year"] == 2022
    assert counts["filters"]["window_incomplete"] == 0
    assert max(release.train["publication_year"].max(), release.test["publication_year"].max()) >= 2013


def test_what_the_records_or_the_counts_rule_out_is_not_paid_for(server, tmp_path):
    before = len(server.log)
    with pytest.raises(NotEnoughWorksError, match="30,000 works are wanted, and OpenAlex has 2,882 candidates"):
        build(config(server, tmp_path, split=SplitConfig(n_train=30_000, n_test=0)))
    assert len(server.log) - before == 1
    two_years = EligibilityConfig(last_year=2022, min_year=2005, max_year=2006)
    with pytest.raises(NotEnoughWorksError, match=r"Lower SplitConfig\.n_train"):
        build(config(server, tmp_path, eligibility=two_years, split=SplitConfig(n_train=30, n_test=3)))
    asked = {re.search(r"publication_year:(\d{4})", entry.request) for entry in server.log[before:]}
    assert {match[1] for match in asked if match} == {"2005", "2006"}


@pytest.mark.parametrize("changes", [{"candidates_per_round": 7}, {"max_candidates": 80}])
def test_rounds_and_limits_of_candidates_are_kept(server, answers, tmp_path, changes):
    split = SplitConfig(n_train=12, n_test=0, balance="none")
    source = OpenAlexConfig(**YEARS, **changes)
    release = build(config(server, tmp_path, source=source, split=split, cache_dir=answers))
    source = release.manifest["source"]
    assert source["candidates"] <= min(80, 7 * source["rounds"] if "candidates_per_round" in changes else 80)


def test_a_cost_limit_stops_before_the_money_is_spent_and_the_slice_can_be_had_in_parts(server, tmp_path, caplog):
    few = {"source": OpenAlexConfig(**YEARS, candidates_per_round=300), "split": SplitConfig(n_train=9, n_test=3)}
    limited = config(server, tmp_path, api=api(server, max_cost_usd=0.005), **few)
    runs = 0
    while not limited.out.exists():
        before = server.credits
        runs += 1
        with contextlib.suppress(CostLimitError):
            build(limited)
        assert server.credits - before <= 50
        assert runs < 30
    assert runs >= 3
    assert "this is more than ApiConfig.max_cost_usd=0.005" in caplog.text
    whole = config(server, tmp_path, out=tmp_path / "whole", cache_dir=tmp_path / "other", **few)
    assert hashes(build(whole).folder) == hashes(limited.out)


def test_filters_that_nothing_fits_say_so(server, tmp_path):
    with pytest.raises(EmptyInputError, match="Widen the years"):
        build(config(server, tmp_path, source=OpenAlexConfig(from_year=1500, to_year=1600)))
    with pytest.raises(ConfigError, match="whole graph"):
        build(config(server, tmp_path, cd=CDConfig.compat("pyscisci")))
    with pytest.raises(ConfigError, match="from_year"):
        OpenAlexConfig(from_year=2020, to_year=2010)


def test_years_and_venues_of_references_are_those_of_the_records(server, graph_world, tmp_path):
    works, citations = graph_world
    inside = citations.filter(pl.col("cited_id").is_in(works["work_id"].implode())).head(900)["cited_id"]
    with ResponseStore(tmp_path) as store, OpenAlexClient(api(server), store) as client:
        records = ReferenceRecords(client)
        assert records.works().schema == REFERENCE_WORKS
        records.ask(inside.head(500))
        records.ask(inside)
        records.ask([1])
        found = records.works()
        assert client.n_calls <= -(-inside.n_unique() // 100) + 2
    assert found["work_id"].to_list() == sorted(set(inside))
    both = found.join(works, on="work_id", suffix="_record", validate="1:1")
    assert (both["publication_year"] == both["publication_year_record"]).all()
    known = both.filter(pl.col("source_id").is_not_null())  # today's API has no host_venue to fall back on
    assert known.height >= 0.95 * both.height
    assert (known["source_id"] == known["source_id_record"]).all()
    assert (known["source_name"] == known["source_name_record"]).all()


def test_a_record_of_an_answer_becomes_the_row_that_its_line_becomes():
    lines = example_lines()[::20]
    from_lines = rows_of_records((0, read_record(line)) for line in lines).rows
    works = works_in([{"results": [json.loads(line) for line in lines]}])
    assert works_frame(works).equals(works_of(from_lines))
    assert [work.references for work in works] == from_lines["references"].to_list()
    assert works_frame(works)["abstract"].count() > 50


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=6,
)
fields = ("id", "publication_year", "referenced_works", "key", "count", "page", "per_page", "groups_count", "results")


@st.composite
def odd_answers(draw):
    """An answer of the right shape with some of its parts replaced by anything, or a list made huge."""
    count = draw(st.integers(0, 3))
    record = {
        "id": "https://openalex.org/W7",
        "publication_year": 2001,
        "referenced_works": ["https://openalex.org/W1"],
    }
    if draw(st.booleans()):
        answer = {"meta": {"count": count, "page": 1, "per_page": 100}, "results": [dict(record) for _ in range(count)]}
    else:
        groups = [{"key": str(2000 + i), "count": 1} for i in range(count)]
        answer = {"meta": {"count": count, "groups_count": count}, "group_by": groups}
    if draw(st.booleans()) and answer.get("results"):
        answer["results"][0]["referenced_works"] = ["https://openalex.org/W1"] * 20_000
    for part in (*answer.get("results", []), *answer.get("group_by", []), answer["meta"], answer):
        for name in draw(st.lists(st.sampled_from(fields), max_size=1)):
            part[name] = draw(json_values)
    return answer


@given(st.lists(odd_answers(), min_size=6, max_size=6), st.booleans(), st.integers(0, 500))
@example([{"meta": {"count": 0, "groups_count": 0}, "group_by": [], "results": None}] * 6, True, 0)
def test_any_answer_continues_a_dialogue_or_gives_a_clear_error(answers, listed, n_references):
    supply = itertools.cycle(answers)
    for dialogue in (
        ask_citers(9, range(10, 10 + n_references), 1 if listed else 10**6),
        ask_reference_citers(9, range(10, 10 + n_references)),
    ):
        given_ = None
        try:
            for _ in range(4):
                wanted = dialogue.send(given_)
                given_ = [next(supply) for _ in wanted]
                if any(itertools.starmap(check_answer, zip(wanted, given_, strict=True))):
                    break  # the client asks again
        except (StopIteration, SciSciDataError):
            pass


def arguments_of(server_url: str, home: Path, *flags: str) -> list[str]:
    (home / "slice.toml").write_text(
        f'out = "{home}/slice"\ncache_dir = "{home}/cache"\n'
        "[api]\nrequests_per_second = 10000\nmax_sleep_s = 0.2\n"
        "[openalex]\nfrom_year = 1960\nto_year = 2022\ncandidates_per_round = 150\n"
        f"[split]\nn_train = 9\nn_test = 3\n[eligibility]\nlast_year = 2022\n"
    )
    return ["--email", "you@example.org", "--base-url", server_url, "--config", str(home / "slice.toml"), *flags]


def run_script(server_url: str, home: Path, *flags: str) -> subprocess.Popen[bytes]:
    """Run the command in a process of its own."""
    words = ("build", *arguments_of(server_url, home, *flags))
    return program.start(*words, cwd=home, log=home / "log.txt", env=os.environ | {"OPENALEX_API_KEY": KEY})


def run_here(server_url: str, home: Path, *flags: str) -> int:
    """Run the same command in this process, which has its modules loaded; return its status."""
    with (
        pytest.MonkeyPatch.context() as patch,
        (home / "log.txt").open("a") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        patch.setenv("OPENALEX_API_KEY", KEY)
        return main(["build", *arguments_of(server_url, home, *flags)])


def test_the_whole_command_needs_an_address_and_a_key_and_never_writes_the_key(server, tmp_path):
    assert run_script(server.base_url, tmp_path).wait(timeout=600) == 0
    verify_release(tmp_path / "slice")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 8
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
        assert b"you@example.org" not in path.read_bytes(), path
    assert not any(KEY in str(entry) for entry in server.log)


def test_a_wrong_key_is_one_clear_error(server, tmp_path, monkeypatch):
    assert run_here(server.base_url, tmp_path, "--api-key", "wrong") == 1
    text = (tmp_path / "log.txt").read_text()
    assert "openalex.org" in text
    assert "Traceback" not in text
    assert "wrong" not in text


def test_a_spent_day_ends_with_a_status_of_its_own_and_the_same_command_goes_on(tmp_path):
    noon = 12 * 60 * 60.0  # of a day that does not end while this runs
    with OpenAlexServer(WORKS_FILE, daily_credits=80, clock=lambda: noon, key=KEY) as day:
        assert run_here(day.base_url, tmp_path) == 75
        asked = {entry.request for entry in day.log if entry.delivered}
    text = (tmp_path / "log.txt").read_text()
    assert re.search(r"It is full again at \d{4}-\d\d-\d\d \d\d:\d\d UTC\.", text)
    assert "Traceback" not in text
    assert not (tmp_path / "slice").exists()
    with OpenAlexServer(WORKS_FILE, key=KEY) as next_day:
        assert run_script(next_day.base_url, tmp_path).wait(timeout=600) == 0  # in another process
        again = {entry.request for entry in next_day.log if entry.delivered}
    assert len(asked) == 80
    assert not asked & again
    verify_release(tmp_path / "slice")


@pytest.mark.slow
def test_faults_of_every_kind_and_five_kills_change_no_byte_and_pay_nothing_twice(server, tmp_path):
    clean, chaos = tmp_path / "clean", tmp_path / "chaos"
    clean.mkdir()
    chaos.mkdir()
    assert run_here(server.base_url, clean) == 0
    moments = random.Random(1)
    killed = runs = 0
    settings = {"fault_rate": 0.2, "fault_seed": 3, "slow_s": 0.05, "retry_after_s": 0, "max_consecutive_faults": 2}
    with OpenAlexServer(WORKS_FILE, key=KEY, **settings) as faulty:
        for _ in range(400):
            n_asked = len(faulty.log)
            runs += 1
            if killed < 5:
                process = run_script(faulty.base_url, chaos, "--overwrite")
                goal = n_asked + moments.randrange(1, 25)
                while process.poll() is None and len(faulty.log) < goal:
                    time.sleep(0.002)
                process.kill()
                status = process.wait(timeout=600)
                killed += status == -9
            else:
                status = run_here(faulty.base_url, chaos, "--overwrite")
                if status == 0:
                    break
            assert status in (-9, 0, 1, 75)
        kinds = {entry.fault for entry in faulty.log if entry.fault}
        repeated = faulty.repeated()
    assert killed == 5
    assert kinds == {*FAULTS}
    assert "Traceback" not in (chaos / "log.txt").read_text()
    assert hashes(chaos / "slice") == hashes(clean / "slice")
    # An answer on its way to a process that is killed, or in the middle of a thread's work, is lost; no other one.
    assert sum(repeated.values()) - len(repeated) <= killed * ApiConfig().concurrency
