"""Novelty of works pulled from a loopback OpenAlex: the values of the graph, balanced draws, and what they cost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import polars as pl
import pytest

from sciscidata.config import BuildConfig, source_request
from sciscidata.errors import BackgroundError, ConfigError
from sciscidata.label_thresholds import LabelThresholds, compute_labels
from sciscidata.novelty.atypicality import compute_atypicality
from sciscidata.novelty.background import write_null_model
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.pipeline import build
from sciscidata.release.release import Release
from sciscidata.release.verify import verify_release
from sciscidata.sampling.filter import EligibilityConfig
from sciscidata.sampling.split import SplitConfig
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.records import RecordsConfig, scan_records
from sciscidata.sources.registry import open_source
from tests.conftest import example_lines
from tests.servers.openalex_server import OpenAlexServer

KEY = "a-secret-key-1234"
SOURCE = OpenAlexConfig(from_year=1960, to_year=2022)
UZZI = LabelThresholds(novelty_rule="uzzi")
NOVELTY = ("n_pairs", "z_p10", "z_median", "novelty_score", "conventionality_score")


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> Path:
    """Real works as today's API has them: a venue that only host_venue names is not there any more."""
    works = [
        {name: value for name, value in json.loads(line).items() if name != "host_venue"} for line in example_lines()
    ]
    path = tmp_path_factory.mktemp("records") / "works.jsonl"
    path.write_text("".join(json.dumps(work) + "\n" for work in works), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def server(records):
    with OpenAlexServer(records, key=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def world(records) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """The whole graph, from the server's own records."""
    works, citations, _ = scan_records(RecordsConfig(inputs=(str(records),)))
    return works.collect().lazy(), citations.collect().lazy()


@pytest.fixture(scope="module")
def background(world, tmp_path_factory) -> Path:
    works, citations = world
    return write_null_model(works, citations, tmp_path_factory.mktemp("background") / "pairs.parquet")


def config(server: OpenAlexServer, home: Path, **changes) -> BuildConfig:
    settings = {
        "source": SOURCE,
        "out": home / "slice",
        "cache_dir": home / "cache",
        "api": ApiConfig(base_url=server.base_url, api_key=KEY, requests_per_second=1e6, max_sleep_s=0.2),
        "split": SplitConfig(n_train=12, n_test=6),
        "thresholds": UZZI,
        "eligibility": EligibilityConfig(last_year=2022),
    }
    return BuildConfig(**(settings | changes))


def offline(settings: BuildConfig, **changes) -> BuildConfig:
    return dataclasses.replace(settings, api=dataclasses.replace(settings.api, offline=True), **changes)


def judged_by(settings: BuildConfig) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What an offline run judges: scores and works."""
    settings = offline(settings)
    with open_source(settings.source, source_request(settings)) as source:
        return source.scores.collect(), source.works.collect()


def released(release: Release) -> pl.DataFrame:
    rows = pl.concat([release.train, release.test])
    return rows.with_columns(work_id=pl.col("openalex_id").str.slice(1).cast(pl.Int64))


def assert_same(left: pl.DataFrame, right: pl.DataFrame, columns: tuple[str, ...]) -> None:
    both = left.join(right, on="work_id", suffix="_expected", validate="1:1")
    assert both.height == left.height
    for column in columns:
        assert both[column].eq_missing(both[f"{column}_expected"]).all(), column


@pytest.mark.parametrize("has_background", [False, True])
def test_novelty_is_that_of_the_judged_works_or_of_the_background(server, world, background, tmp_path, has_background):
    settings = config(server, tmp_path, background=background if has_background else None)
    release = build(settings)
    verify_release(release.folder)
    scores, judged = judged_by(settings)
    # Independently of the pull: the judged works' reference lists in the whole graph are the null model.
    works, citations = world
    ids = judged["work_id"].implode()
    wanted = citations if has_background else citations.filter(pl.col("citing_id").is_in(ids))
    expected = compute_atypicality(works, wanted).collect()
    assert scores["z_p10"].count() >= 50
    assert_same(released(release), expected, NOVELTY[-2:])
    if not has_background:
        assert_same(scores, expected, NOVELTY)
        labels = compute_labels(scores, UZZI).collect()
        assert_same(released(release), labels, ("novelty_label", "disruption_label"))
    assert KEY not in (release.folder / "manifest.json").read_text()


def test_novelty_changes_nothing_of_a_draw_that_balances_disruption(server, tmp_path):
    """Three slices from one store: what was asked for the first is free for the others."""
    variants = {
        "off": {"novelty": None},
        "without venues": {"source": dataclasses.replace(SOURCE, venues=False)},
        "on": {},
    }
    bills: dict[str, int] = {}
    releases: dict[str, Release] = {}
    for name, changes in variants.items():
        before = server.credits
        settings = config(server, tmp_path, out=tmp_path / name, thresholds=LabelThresholds(), **changes)
        releases[name] = build(settings)
        bills[name] = server.credits - before
        has_novelty = released(releases[name])["novelty_label"].is_not_null()
        assert has_novelty.any() == (name == "on")
    drawn = [released(release)["openalex_id"].to_list() for release in releases.values()]
    assert drawn[0] == drawn[1] == drawn[2]
    (judged,) = {release.manifest["source"]["judged"] for release in releases.values()}
    # A hundredth of a call for each reference that was not asked for anyway.
    assert bills["without venues"] == 0
    assert 0 < bills["on"] <= 0.3 * judged


@pytest.mark.parametrize("balance", ["novelty", "joint"])
def test_novelty_cannot_be_balanced_and_nothing_is_asked(server, tmp_path, balance):
    before = len(server.log)
    with pytest.raises(ConfigError, match="no draw from the OpenAlex API can balance them"):
        build(config(server, tmp_path, split=SplitConfig(balance=balance)))
    assert len(server.log) == before


def test_a_background_is_checked_before_anything_is_paid_for(server, background, tmp_path):
    before = server.credits
    nonsense = tmp_path / "pairs.parquet"
    nonsense.write_text("not a table")
    with pytest.raises(BackgroundError):
        build(config(server, tmp_path, background=nonsense))
    shuffled = NoveltyConfig(null="permutation")
    with pytest.raises(ConfigError, match="another null model"):
        build(config(server, tmp_path, background=background, novelty=shuffled))
    assert server.credits - before <= 1  # how many works of each year there are
