"""Listed works by a loopback OpenAlex: the scores of the same records on disk, by few calls, each paid once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from pathlib import Path

import polars as pl
import pytest

from sciscidata import (
    ApiConfig,
    CDConfig,
    ExampleConfig,
    OpenAlexConfig,
    RecordsConfig,
    compute_atypicality,
    scan_example,
    scan_records,
    score_ids,
    write_background,
)
from sciscidata.cli.main import main
from sciscidata.errors import ConfigError, CostLimitError, DailyBudgetError, OfflineError
from sciscidata.sources.example.source import WORKS_FILE
from tests import program
from tests.conftest import example_lines
from tests.servers.openalex_server import KEY, OpenAlexServer, api

SAME = [
    "asked", "openalex_id", "reason", "doi", "title", "publication_year", "n_references", "n_i", "n_j", "n_k",
    "cd_index", "cd_low", "cd_high", "disruption_label", "label_confidence", "window_complete",
]  # fmt: skip


@pytest.fixture(scope="module")
def works():
    return scan_example().works.collect()


@pytest.fixture(scope="module")
def dois(works):
    """Twenty DOIs in the forms that people have, those of the most cited works first."""
    forms = ["https://doi.org/{}", "doi:{}", "{}", "HTTP://DX.DOI.ORG/{}"]
    found = works.drop_nulls("doi").sort("cited_by_count", descending=True)["doi"].head(20)
    return [forms[place % 4].format(doi.upper()) for place, doi in enumerate(found)]


@pytest.fixture
def server():
    with OpenAlexServer(WORKS_FILE, key=KEY) as server:
        yield server


@pytest.mark.parametrize("convention", ["default", "cdindex", "sciscinet_v1_d", "novelpy", "crossdi"])
def test_twenty_dois_have_the_scores_of_the_same_records_on_disk(server, dois, tmp_path, convention):
    cd = CDConfig() if convention == "default" else CDConfig.compat(convention)
    asked = score_ids(dois, OpenAlexConfig(), cd=cd, cache_dir=tmp_path, api=api(server))
    on_disk = score_ids(dois, ExampleConfig(), cd=cd, prior="shipped", cache_dir=tmp_path)
    assert asked.select(SAME).equals(on_disk.select(SAME))
    assert asked["openalex_id"].null_count() == 0
    assert not server.repeated()
    assert server.credits <= 4 * 20


def test_a_second_run_and_one_offline_ask_nothing_and_give_the_same(server, dois, tmp_path):
    settings = {"source": OpenAlexConfig(), "cache_dir": tmp_path}
    first = score_ids(dois, api=api(server), **settings)
    n_asked = len(server.log)
    assert score_ids(dois, api=api(server), **settings).equals(first)
    assert score_ids(dois, api=api(server, offline=True), **settings).equals(first)
    assert len(server.log) == n_asked
    with pytest.raises(OfflineError):
        score_ids(["W1"], api=api(server, offline=True), **settings)


def test_ids_that_openalex_does_not_have_cost_nothing_and_say_what_became_of_them(server, works, tmp_path):
    server.api.merged["W77"] = f"W{works['work_id'][3]}"
    server.api.merged["W78"] = "W79"
    listed = ["W77", "W78", "W1", "10.9999/none", "10.9999/no,ne", "A12345", f"W{works['work_id'][3]}"]
    found = score_ids(listed, OpenAlexConfig(), cache_dir=tmp_path, api=api(server))
    assert found["reason"].to_list()[:6] == ["merged", *["not found"] * 4, "not a work"]
    assert found["openalex_id"].to_list() == [f"W{works['work_id'][3]}", *[None] * 5, f"W{works['work_id'][3]}"]
    assert found[0].select("n_i", "n_j", "n_k", "cd_index").equals(found[6].select("n_i", "n_j", "n_k", "cd_index"))
    assert sum(entry.credits for entry in server.log if "/works/" in entry.request) == 0


def test_a_doi_with_signs_of_a_filter_is_asked_for_alone(tmp_path):
    records = [json.loads(line) for line in example_lines()]
    records[0]["doi"] = "https://doi.org/10.1234/a,b|c"
    with OpenAlexServer(records, key=KEY) as server:
        found = score_ids(["10.1234/A,B|C"], OpenAlexConfig(), cache_dir=tmp_path, api=api(server))
    assert found["openalex_id"].to_list() == [records[0]["id"].rpartition("/")[2]]


@pytest.mark.slow
def test_novelty_comes_from_a_background_and_the_venues_of_references(tmp_path):
    records = [json.loads(line) for line in example_lines()]
    for record in records:
        record.pop("host_venue", None)  # which today's API does not have
    source = RecordsConfig(inputs=(str(tmp_path / "works.jsonl"),))
    (tmp_path / "works.jsonl").write_text("\n".join(map(json.dumps, records)))
    path = tmp_path / "pairs.parquet"
    write_background(source, path, cache_dir=tmp_path)
    works, citations, _ = scan_records(source)
    expected = compute_atypicality(works, citations, background=path).drop_nulls("z_p10").collect()
    some = expected.sort("work_id").head(15)
    listed = [f"W{number}" for number in some["work_id"]]
    with OpenAlexServer(records, key=KEY) as server:
        found = score_ids(listed, OpenAlexConfig(), background=path, cache_dir=tmp_path, api=api(server))
    for column in ("n_pairs", "z_p10", "z_median", "novelty_score"):
        assert found[column].to_list() == some[column].to_list(), column
    assert found["novelty_label"].null_count() == 0


def test_a_run_stops_before_it_overspends_and_goes_on(server, dois, tmp_path):
    settings = {"source": OpenAlexConfig(), "cache_dir": tmp_path}
    with pytest.raises(CostLimitError):
        score_ids(dois, api=api(server, max_cost_usd=0.002), **settings)
    assert server.cost_usd <= 0.002
    found = score_ids(dois, api=api(server), **settings)
    assert found.select(SAME).equals(score_ids(dois, ExampleConfig(), prior="shipped", cache_dir=tmp_path).select(SAME))
    assert not server.repeated()
    with OpenAlexServer(WORKS_FILE, key=KEY, daily_credits=10) as poor, pytest.raises(DailyBudgetError):
        score_ids(dois, OpenAlexConfig(), cache_dir=tmp_path / "other", api=api(poor))


def test_the_dry_run_prices_what_the_run_costs(server, dois, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENALEX_API_KEY", KEY)
    (tmp_path / "dois.txt").write_text("\n".join(dois))
    command = ["score", "--ids", "dois.txt", "--base-url", server.base_url, "--cache-dir", "cache", "--out", "s.csv"]
    assert main([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    looked = server.credits
    assert f"this look took {looked} calls, ${looked * 1e-4:.4f}; the answers are kept" in said
    assert not (tmp_path / "s.csv").exists()
    told = int(re.search(r"calls: about (\d+)", said)[1])
    assert main(command) == 0
    assert abs((server.credits - looked) - told) <= 2
    assert not server.repeated()
    assert pl.read_csv("s.csv").height == 20


def test_works_of_many_references_are_counted_from_lists(server, dois, tmp_path, monkeypatch):
    monkeypatch.setattr("sciscidata.by_id.by_api.MOST_REFERENCES", 30)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENALEX_API_KEY", KEY)
    (tmp_path / "dois.txt").write_text("\n".join(dois))
    command = [
        "score",
        "--ids",
        "dois.txt",
        "--base-url",
        server.base_url,
        "--cache-dir",
        "cache",
        "--out",
        "s.parquet",
    ]
    for convention in ("default", "crossdi"):
        cd = CDConfig() if convention == "default" else CDConfig.compat(convention)
        asked = score_ids(dois, OpenAlexConfig(), cd=cd, cache_dir=tmp_path / convention, api=api(server))
        on_disk = score_ids(dois, ExampleConfig(), cd=cd, prior="shipped", cache_dir=tmp_path)
        assert (on_disk["n_references"] > 30).sum() > 5
        assert asked.select(SAME).equals(on_disk.select(SAME))
    before = server.credits
    assert main([*command, "--dry-run"]) == 0
    looked = server.credits
    assert main(command) == 0
    assert server.credits > looked > before
    monkeypatch.setattr("sciscidata.explanation.by_api._MOST_LISTED", 2)
    some = score_ids(dois, OpenAlexConfig(), cache_dir=tmp_path / "few", api=api(server))
    assert (some["reason"] == "too many references").sum() > 5


@pytest.mark.slow
def test_kills_and_faults_change_no_byte_and_pay_nothing_twice(server, dois, tmp_path):
    for name in ("clean", "chaos"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dois.txt").write_text("\n".join(dois))

    def command(server: OpenAlexServer) -> list[str]:
        return ["score", "--ids", "dois.txt", "--base-url", server.base_url, "--cache-dir", "cache", "--out", "s.csv"]

    def run_here(server: OpenAlexServer, home: Path) -> int:
        """Run it in this process, which has its modules loaded; return its status."""
        with (
            pytest.MonkeyPatch.context() as patch,
            (home / "log.txt").open("a") as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            patch.chdir(home)
            patch.setenv("OPENALEX_API_KEY", KEY)
            return main(command(server))

    environment = os.environ | {"OPENALEX_API_KEY": KEY}
    assert run_here(server, tmp_path / "clean") == 0
    faults = {"fault_rate": 0.2, "fault_seed": 3, "slow_s": 0.05, "retry_after_s": 0, "max_consecutive_faults": 2}
    killed, chaos = 0, tmp_path / "chaos"
    with OpenAlexServer(WORKS_FILE, key=KEY, **faults) as faulty:
        for _ in range(60):
            if killed < 3:
                goal = len(faulty.log) + 8
                process = program.start(*command(faulty), cwd=chaos, log=chaos / "log.txt", env=environment)
                while process.poll() is None and len(faulty.log) < goal:
                    time.sleep(0.002)
                process.kill()
                status = process.wait(timeout=300)
                killed += status == -9
            else:
                status = run_here(faulty, chaos)
            if status == 0:
                break
            assert status in (-9, 1, 75)
            assert not (chaos / "s.csv").exists()
        repeated = faulty.repeated()
    assert killed == 3
    assert (chaos / "s.csv").read_bytes() == (tmp_path / "clean" / "s.csv").read_bytes()
    assert sum(repeated.values()) - len(repeated) <= killed * ApiConfig().concurrency
    assert "Traceback" not in (chaos / "log.txt").read_text()


def test_what_the_api_cannot_say_is_refused(server, tmp_path):
    with pytest.raises(ConfigError, match="needs the whole graph"):
        score_ids(["W1"], OpenAlexConfig(), cd=CDConfig.compat("pyscisci"), cache_dir=tmp_path, api=api(server))
    assert not server.log


def test_a_list_of_unknown_works_gives_rows_and_a_warning(server, tmp_path, caplog):
    listed = ["10.9999/none", "W1"]
    for source in (OpenAlexConfig(), ExampleConfig()):
        for prior in ("corpus", "shipped"):
            caplog.clear()
            found = score_ids(listed, source, prior=prior, cache_dir=tmp_path, api=api(server))
            assert found["reason"].to_list() == ["not found", "not found"]
            assert found.select("openalex_id", "cd_index", "prior").null_count().row(0) == (2, 2, 2)
            assert ("WARNING", "2 ids: judged 0, not found 2") in [
                (r.levelname, r.getMessage()) for r in caplog.records
            ]
