"""One work explained by a loopback OpenAlex: the same papers and sentences as from the same records on disk."""

from __future__ import annotations

import re

import polars as pl
import pytest

import sciscidata as ssd
from sciscidata import CDConfig, NoveltyConfig, OpenAlexConfig
from sciscidata.disruption.label_prior import SHIPPED
from sciscidata.errors import ConfigError, CostLimitError, OfflineError, WorkIdError
from sciscidata.sources.example.source import WORKS_FILE
from tests.servers.openalex_server import KEY, OpenAlexServer, api


@pytest.fixture(scope="module")
def example():
    works, citations, _ = ssd.scan_example()
    return works.collect(), citations.collect()


@pytest.fixture
def server():
    with OpenAlexServer(WORKS_FILE, key=KEY) as server:
        yield server


@pytest.mark.parametrize("convention", ["default", "pyscisci", "crossdi"])
def test_the_api_gives_the_papers_of_the_same_records_on_disk(server, example, tmp_path, convention):
    works, citations = example
    config = CDConfig() if convention == "default" else CDConfig.compat(convention)
    chosen = works.sort("cited_by_count", descending=True).drop_nulls("doi").head(4)
    for number, doi in chosen.select("work_id", "doi").rows():
        asked = ssd.explain(f"doi:{doi}", OpenAlexConfig(), None, config, cache_dir=tmp_path, api=api(server))
        on_disk = ssd.explain(number, works, citations, config, prior=SHIPPED)
        assert asked.scores.select(on_disk.scores.columns).equals(on_disk.scores)
        for name in ("citers", "references", "citers_of_references", "by_year", "conventions", "turns"):
            one, other = getattr(asked, name), getattr(on_disk, name)
            assert one.equals(other.select(one.columns)), name
        assert asked.text.replace(" (prior: the shipped one, of other works)", "").startswith(on_disk.text[:80])
    assert not server.repeated()


def test_asking_again_is_free_and_works_offline(server, example, tmp_path):
    number = example[0].sort("cited_by_count", descending=True)["work_id"][0]
    first = ssd.explain(number, OpenAlexConfig(), cache_dir=tmp_path, api=api(server))
    n_asked = len(server.log)
    assert ssd.explain(number, OpenAlexConfig(), cache_dir=tmp_path, api=api(server, offline=True)).text == first.text
    assert len(server.log) == n_asked
    with pytest.raises(OfflineError):
        ssd.explain("W5", OpenAlexConfig(), cache_dir=tmp_path, api=api(server, offline=True))


def test_long_lists_are_asked_for_by_years(server, example, tmp_path, monkeypatch):
    works, citations = example
    number = works.sort("cited_by_count", descending=True)["work_id"][1]
    monkeypatch.setattr("sciscidata.explanation.by_api._MOST_LISTED", 150)
    asked = ssd.explain(number, OpenAlexConfig(), cache_dir=tmp_path, api=api(server))
    expected = ssd.explain(number, works, citations, prior=SHIPPED)
    assert asked.scores["n_k"].item() == expected.scores["n_k"].item()
    assert asked.by_year.equals(expected.by_year.drop_nulls())
    assert any("publication_year" in entry.request and "cites" in entry.request for entry in server.log)
    monkeypatch.setattr("sciscidata.explanation.by_api._MOST_LISTED", 3)
    with pytest.raises(ConfigError, match=r"the API lists 3 at most. Explain the work in a corpus"):
        ssd.explain(number, OpenAlexConfig(), cache_dir=tmp_path, api=api(server))


def test_a_mistake_is_one_clear_error(server, tmp_path):
    settings = {"works": OpenAlexConfig(), "cache_dir": tmp_path, "api": api(server)}
    with pytest.raises(WorkIdError, match=r"OpenAlex has no work '10.9999/none'"):
        ssd.explain("10.9999/none", **settings)
    with pytest.raises(ConfigError, match=r"work is 1.5, needs an OpenAlex id"):
        ssd.explain(1.5, **settings)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="is the id of an author"):
        ssd.explain("A5023888391", **settings)
    with pytest.raises(ConfigError, match="the API lists no venues"):
        ssd.explain("W1593442063", novelty=NoveltyConfig(), **settings)
    with pytest.raises(ConfigError, match="Leave citations out"):
        ssd.explain("W1593442063", citations=pl.DataFrame(), **settings)
    with pytest.raises(CostLimitError):
        ssd.explain("W2560438049", OpenAlexConfig(), cache_dir=tmp_path, api=api(server, max_cost_usd=0.0001))


def test_the_command_prices_a_work_before_it_asks(server, run, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENALEX_API_KEY", KEY)
    words = ["explain", "openalex", "W1593442063", "--base-url", server.base_url, "--cache-dir", str(tmp_path / "c")]
    status, out, err = run(*words, "--dry-run")
    assert (status, err) == (0, "")
    looked = server.credits
    assert f"this look took {looked} calls" in out
    told = int(re.search(r"calls: about (\d+)", out)[1])
    status, out, _ = run(*words, "--html", str(tmp_path / "w.html"))
    assert status == 0
    assert out.startswith("W1593442063 (2002): ")
    assert abs(server.credits - looked - told) <= 2
    assert "data:image/png" in (tmp_path / "w.html").read_text("utf-8")
    (tmp_path / "openalex").mkdir()  # a folder of that name is one
    assert "is a folder, but no corpus" in run(*words[:3])[2]
    assert "would read: corpora/x; no cost" in run("explain", "corpora/x", "W1", "--dry-run")[1]
