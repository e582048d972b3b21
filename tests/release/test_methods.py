"""The methods section of a release: what it says follows from the manifest, of every kind of release."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sciscidata import (
    BuildConfig,
    CDConfig,
    EligibilityConfig,
    NoveltyConfig,
    OwnLabel,
    SplitConfig,
    SyntheticConfig,
    build,
    compute_cd_index,
    describe_methods,
    scan_synthetic,
)
from sciscidata.cli.main import main
from sciscidata.errors import ConfigError, SciSciDataError
from sciscidata.judged import is_judged
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.release.read import Release


def release_of(home: Path, **settings) -> Release:
    split = SplitConfig(n_train=30, n_test=3)
    config = {"source": SyntheticConfig(n_works=2_000), "split": split} | settings
    return build(BuildConfig(**config, out=home / "slice", cache_dir=home / "cache"))


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Release:
    return release_of(tmp_path_factory.mktemp("methods"))


def flat(text: str) -> str:
    return " ".join(text.split())


def test_every_number_of_the_text_is_in_the_manifest(release):
    text, manifest = flat(describe_methods(release)), release.manifest
    filters = manifest["counts"]["filters"]
    for n in (filters["works"], filters["eligible"], filters["few_citations"], filters["window_incomplete"]):
        assert f"{n:,}" in text
    judged = sum(manifest["counts"]["judged"]["scored"]["disruption_label"].values())  # filters keep no other work
    assert f"{judged - filters['eligible']:,} of these are judged and have an index" in text
    assert "1 to 5 years later" in text
    assert "at least 0.001" in text
    assert "30 for train, 3 for test" in text
    assert manifest["manifest_sha256"] in text
    assert f"{manifest['ceiling']['accuracy']:.3f}" in text
    assert "10.1287/mnsc.2015.2366" in text
    assert "EligibilityConfig" not in text
    assert max(map(len, describe_methods(release).partition("**References")[0].splitlines())) <= 90


def test_the_folder_and_the_command_give_the_same(release, capsys):
    assert describe_methods(release.folder) == describe_methods(release)
    assert main(["describe", str(release.folder), "--methods"]) == 0
    assert capsys.readouterr().out == describe_methods(release)


@pytest.mark.parametrize(
    ("settings", "said", "unsaid"),
    [
        (
            {"cd": CDConfig.compat("cdindex")},
            ["that of cdindex", "1 to 5 years"],
            ["Holst"],
        ),
        ({"cd": CDConfig(uncited="null")}, ["uncited = null"], ["convention is that"]),
        ({"novelty": NoveltyConfig(null="permutation", n_shuffles=3)}, ["3 times (seed 0)"], ["closed form"]),
        ({"novelty": None}, ["**Labels.**"], ["**Novelty.**", "Uzzi"]),
        ({"eligibility": EligibilityConfig(min_citations=2)}, ["fewer than 2 citers"], []),
        ({"thresholds": LabelThresholds.preset("wide")}, ["above 0.1", "below -0.1"], []),
        ({"label": OwnLabel(name="old_label", classes=("a", "b"), sql="'a'")}, ["a, b", "old_label"], []),
    ],
    ids=["preset", "option", "shuffles", "no novelty", "more citers", "wide", "own label"],
)
def test_it_says_what_was_chosen(tmp_path, settings, said, unsaid):
    text = flat(describe_methods(release_of(tmp_path, **settings)))
    assert [words for words in said if words not in text] == []
    assert [words for words in unsaid if words in text] == []


def test_works_with_few_citers_are_judged_where_more_are_asked_for(tmp_path):
    release = release_of(tmp_path, eligibility=EligibilityConfig(min_citations=2))
    works, citations, _ = scan_synthetic(SyntheticConfig(n_works=2_000))
    scores = compute_cd_index(works, citations).drop_nulls("cd_index").filter(is_judged()).collect()
    n = scores.height - release.manifest["counts"]["filters"]["eligible"]
    assert f" {n:,} of these are judged and have an index" in flat(describe_methods(release))


def test_a_folder_that_is_no_release_is_refused(tmp_path):
    with pytest.raises(SciSciDataError, match=r"no manifest\.json"):
        describe_methods(tmp_path)


@pytest.mark.parametrize("release", [pl.DataFrame({"work_id": [1]}), pl.LazyFrame(), None, 7])
def test_what_is_no_release_is_one_error_that_says_what_is_needed(release):
    with pytest.raises(ConfigError, match=f"describe_methods: .*{type(release).__name__}.*build or read_release"):
        describe_methods(release)
