"""Novelty of works pulled from a loopback OpenAlex: the values of the graph, balanced draws, and what they cost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import polars as pl
import pytest

from sciscidata.config import BuildConfig
from sciscidata.disruption.index import CDConfig
from sciscidata.eligibility import EligibilityConfig
from sciscidata.errors import BackgroundError, ConfigError, NotEnoughWorksError
from sciscidata.label_thresholds import LabelThresholds, compute_labels
from sciscidata.novelty.atypicality import compute_atypicality
from sciscidata.novelty.background import VenuePairs, write_null_model
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.pipeline import build
from sciscidata.release.read import Release
from sciscidata.release.verify import verify_release
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.demand import Demand
from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
from sciscidata.sources.openalex.source import pull_openalex
from sciscidata.sources.quotas import Quotas
from sciscidata.sources.records import RecordsConfig, scan_records
from sciscidata.sources.registry import open_source
from tests.conftest import example_lines
from tests.servers.openalex_server import KEY, OpenAlexServer, api

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
    return write_null_model(VenuePairs.of(works, citations), tmp_path_factory.mktemp("background") / "pairs.parquet")


def config(server: OpenAlexServer, home: Path, **changes) -> BuildConfig:
    settings = {
        "source": SOURCE,
        "out": home / "slice",
        "cache_dir": home / "cache",
        "api": api(server),
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
    with open_source(settings.source, settings.cache_dir, settings.api) as source:
        scored = source.until(settings.demand.quotas, settings.measures)
        return scored.rows.collect(), scored.works.collect()


def released(release: Release) -> pl.DataFrame:
    rows = pl.concat([release.train, release.test])
    return rows.with_columns(work_id=pl.col("openalex_id").str.slice(1).cast(pl.Int64))


def assert_same(left: pl.DataFrame, right: pl.DataFrame, columns: tuple[str, ...]) -> None:
    both = left.join(right, on="work_id", suffix="_expected", validate="1:1")
    assert both.height == left.height
    for column in columns:
        assert both[column].eq_missing(both[f"{column}_expected"]).all(), column


def test_a_draw_that_balances_novelty_has_the_scores_of_the_judged_works(server, world, tmp_path):
    settings = config(server, tmp_path, split=SplitConfig(n_train=18, n_test=6, balance="novelty"))
    before = len(server.log)
    release = build(settings)
    verify_release(release.folder)
    calls = server.log[before:]
    assert release.train["novelty_label"].value_counts()["count"].to_list() == [6, 6, 6]
    assert release.test["novelty_label"].value_counts()["count"].to_list() == [2, 2, 2]
    scores, judged = judged_by(settings)
    assert len(server.log) - before == len(calls)
    # Independently of the pull: the judged works' reference lists in the whole graph are the null model.
    works, citations = world
    ids = judged["work_id"].implode()
    expected = compute_atypicality(works, citations.filter(pl.col("citing_id").is_in(ids))).collect()
    assert scores["z_p10"].count() >= 100
    assert_same(scores, expected, NOVELTY)
    assert_same(released(release), expected, NOVELTY[-2:])
    expected = compute_labels(scores, UZZI).collect()
    assert_same(released(release), expected, ("novelty_label", "disruption_label"))
    assert len(calls) / judged.height <= 3.2
    assert len({entry.request for entry in calls}) == len(calls)


def test_a_joint_draw_from_a_background_has_the_scores_of_the_whole_corpus(server, world, background, tmp_path):
    split = SplitConfig(n_train=9, n_test=9, balance="joint")
    settings = config(server, tmp_path, split=split, background=background)
    release = build(settings)
    assert release.manifest["source"]["judged"] <= 1_500  # of 2,871: it looked in time
    cells = released(release).group_by("disruption_label", "novelty_label").len()
    assert cells["len"].to_list() == [2] * 9
    works, citations = world
    expected = compute_atypicality(works, citations).collect()
    assert_same(released(release), expected, NOVELTY[-2:])
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
def test_novelty_cannot_be_balanced_without_venues_and_nothing_is_asked(server, tmp_path, balance):
    before = len(server.log)
    no_venues = dataclasses.replace(SOURCE, venues=False)
    with pytest.raises(ConfigError, match="venues"):
        build(config(server, tmp_path, source=no_venues, split=SplitConfig(balance=balance)))
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


class Moving(Quotas):
    """Takes the test split to be full at its first looks, as if its labels had been others."""

    looks = 0

    def update(self, works: pl.DataFrame, scores: pl.DataFrame) -> None:
        super().update(works, scores)
        self.looks += 1
        if self.looks <= 2:
            self._have |= {(split, cell): 10**6 for split, cell in self.wanted if split == "test"}


def test_works_that_were_passed_over_are_judged_when_labels_change(server, tmp_path):
    settings = config(server, tmp_path, split=SplitConfig(n_train=210, n_test=90, balance="novelty"))
    source = dataclasses.replace(SOURCE, max_candidates=400)
    quotas = Demand(UZZI, settings.eligibility, settings.split, 5).quotas
    quotas = Moving(**{name: getattr(quotas, name) for name in Quotas.__dataclass_fields__})
    with ResponseStore(tmp_path) as store, OpenAlexClient(settings.api, store) as client:
        candidates = Candidates.count(client, source, CDConfig(), settings.eligibility)
        result = pull_openalex(candidates, CDConfig(), quotas, NoveltyConfig())
    assert quotas.looks >= 4
    assert not quotas.is_met
    # Too few for the quota, so everybody is needed, those of the test split who came while it looked full too.
    assert result.provenance["passed_over"].keys() <= {"unfit_record"}
    assert result.scores.height == 400 - sum(result.provenance["passed_over"].values())


def test_a_joint_draw_that_the_candidates_cannot_fill_names_the_cells_that_fall_short(server, tmp_path):
    split = SplitConfig(n_train=27, n_test=9, balance="joint")
    few = dataclasses.replace(SOURCE, max_candidates=150)
    with pytest.raises(NotEnoughWorksError, match="'disruptive' \\+ 'novel'"):
        build(config(server, tmp_path, source=few, split=split))
