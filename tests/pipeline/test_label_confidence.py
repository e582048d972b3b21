"""Label confidence in a build: the filter counts what the confidences of all works say, on every path."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sciscidata import (
    BuildConfig,
    EligibilityConfig,
    LabelledConfig,
    LabelThresholds,
    NoveltyConfig,
    OpenAlexConfig,
    SciSciNetConfig,
    SplitConfig,
    SyntheticConfig,
    build,
    compute_cd_index,
    compute_label_confidence,
    compute_labels,
    find_label_ceiling,
    indicators,
    ingest,
    scan_synthetic,
    verify,
)
from sciscidata.cli.main import main
from sciscidata.disruption.label_prior import count_citers
from sciscidata.errors import ConfigError, InputNotFoundError, VerificationError
from sciscidata.release.read import Release, hash_manifest, render_manifest

WORLD = SyntheticConfig(n_works=3_000)
SPLIT = SplitConfig(n_train=60, n_test=30, balance="none")


def test_works_with_an_unsure_label_are_not_drawn_from_memory_or_disk(tmp_path: Path) -> None:
    works, citations, _ = scan_synthetic(WORLD)
    scores = compute_label_confidence(compute_cd_index(works, citations)).collect()
    sure = scores.filter(pl.col("label_confidence") >= 0.7)
    places: dict[str, Any] = {"split": SPLIT, "cache_dir": tmp_path / "cache"}
    every = build(BuildConfig(source=WORLD, out=tmp_path / "every", **places)).manifest
    assert "ceiling" in every
    rules = EligibilityConfig(min_label_confidence=0.7)
    release = build(BuildConfig(source=WORLD, out=tmp_path / "sure", eligibility=rules, **places))
    verify(release.folder)
    assert "ceiling" not in release.manifest  # sure labels are no fair draw of citers
    counts, before = release.manifest["counts"]["filters"], every["counts"]["filters"]
    assert "unsure_label" not in before
    assert "min_label_confidence" not in every["eligibility"]
    assert counts["unsure_label"] > 100
    assert counts["unsure_label"] + counts["eligible"] + counts["duplicate"] == before["eligible"] + before["duplicate"]
    drawn = pl.concat([release.train, release.test])["openalex_id"].str.strip_prefix("W").cast(pl.Int64)
    assert drawn.len() == 90
    assert drawn.is_in(sure["work_id"].implode()).all()

    ingest(WORLD, tmp_path / "corpus", cache_dir=tmp_path / "cache")
    flags = ["--min-label-confidence", "0.7", "--n-train", "60", "--n-test", "30", "--balance", "none"]
    corpus = ["--corpus", str(tmp_path / "corpus"), "--out", str(tmp_path / "disk")]
    assert main(["build", *corpus, *flags, "--cache-dir", str(tmp_path / "cache")]) == 0
    again = json.loads((tmp_path / "disk" / "manifest.json").read_text())
    assert again["sides"] == release.manifest["sides"]
    assert again["counts"]["filters"]["unsure_label"] >= counts["unsure_label"]  # before texts are read


def test_a_release_states_its_ceiling_and_warns_of_labels_that_may_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    split = SplitConfig(n_train=0, n_test=90)
    release = build(BuildConfig(source=WORLD, out=tmp_path / "slice", split=split, cache_dir=tmp_path / "cache"))
    verify(release.folder)
    works, citations, _ = scan_synthetic(WORLD)
    scores = compute_labels(compute_cd_index(works, citations))
    expected = find_label_ceiling(scores, shares=dict.fromkeys(("disruptive", "consolidating", "neutral"), 1 / 3))
    ceiling = release.manifest["ceiling"]
    assert ceiling["accuracy"] == pytest.approx(expected.accuracy, abs=0.02)
    assert ceiling["macro_f1"] == pytest.approx(expected.macro_f1, abs=0.02)
    assert main(["describe", str(release.folder), "--verbose"]) == 0
    printed = f"accuracy {ceiling['accuracy']:.3f}, macro-F1 {ceiling['macro_f1']:.3f}"
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{100 * ceiling['accuracy']:.0f} % of these disruption labels right ({printed})" in shown
    assert printed in (release.folder / "README.md").read_text()
    assert re.search(r"Labels are unsure\. Cited anew, 1\d of 100 neutral works would be neutral again\.", caplog.text)
    manifest = {name: part for name, part in release.manifest.items() if name != "ceiling"}
    seal = {"manifest_sha256": hash_manifest(manifest)}
    (release.folder / "manifest.json").write_bytes(render_manifest(manifest | seal))
    verify(release.folder)


def test_a_release_says_how_sure_its_labels_are_as_all_works_do(tmp_path: Path) -> None:
    """Most neutral works are drawn, so the prior of the draw as it is would be off."""
    places: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    split = SplitConfig(n_train=600, n_test=60, n_dev=9)
    release = build(BuildConfig(source=WORLD, out=tmp_path / "slice", split=split, **places))
    verify(release.folder)
    found = release.label_confidence
    assert found.select("openalex_id", "split").equals(release.scores.select("openalex_id", "split"))
    works, citations, _ = scan_synthetic(WORLD)
    scores = compute_labels(compute_cd_index(works, citations))
    assert release.label_prior == indicators.find_label_prior(scores)
    rests_on = release.manifest["label_prior"]["rests_on"]
    assert rests_on["source"] == release.manifest["source"]["kind"]
    assert rests_on["counts_sha256"] == hashlib.sha256(count_citers(scores).astype("<i8").tobytes()).hexdigest()
    of_all = compute_label_confidence(scores).with_columns(openalex_id=pl.format("W{}", "work_id")).collect()
    assert found.drop("split").equals(
        found.select("openalex_id")
        .join(of_all, on="openalex_id", maintain_order="left")
        .select(found.drop("split").columns)
    )
    as_drawn = release.scores.join(pl.concat([release.train, release.test, release.dev]), on="openalex_id")
    confidence = compute_label_confidence(as_drawn, prior=release.label_prior).collect()
    assert confidence["label_confidence"].equals(found["label_confidence"])

    # One made before the prior was kept takes that of its own works, each label as often as it is eligible.
    manifest = {name: part for name, part in release.manifest.items() if name != "label_prior"}
    older = Release(release.folder, manifest)
    gap = (older.label_confidence["label_confidence"] - found["label_confidence"]).abs().mean()
    assert older.label_prior is None
    assert 0 < float(str(gap)) < 0.015
    for wrong in ({}, {**release.manifest["label_prior"], "a": [1]}):
        stated = manifest | {"label_prior": wrong}
        seal = {"manifest_sha256": hash_manifest({k: v for k, v in stated.items() if k != "manifest_sha256"})}
        (release.folder / "manifest.json").write_bytes(render_manifest(stated | seal))
        with pytest.raises(VerificationError, match=r"was not written by sciscidata.*LabelPrior"):
            verify(release.folder)

    inputs = tuple(str(release.folder / f"{name}.jsonl") for name in ("train", "test"))
    copied = SplitConfig(n_train=60, n_test=30)
    copy = build(BuildConfig(source=LabelledConfig(inputs=inputs), out=tmp_path / "copy", split=copied, **places))
    with pytest.raises(
        InputNotFoundError, match=r"copy lacks n_i, n_j or n_k of 90 of 90 works, first W.*recompute=True"
    ):
        _ = copy.label_confidence


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        (SciSciNetConfig(folder="tables"), r"SciSciNetConfig\.recompute=True"),
        (LabelledConfig(inputs=("rows.jsonl",)), "Name the files that the scores come from"),
        (OpenAlexConfig(), "Read a snapshot"),
    ],
)
def test_a_source_without_counts_of_all_works_cannot_be_filtered_by_confidence(source: Any, remedy: str) -> None:
    rules = EligibilityConfig(min_label_confidence=0.7)
    with pytest.raises(ConfigError, match=rf"min_label_confidence needs n_i, n_j and n_k of all works.*{remedy}"):
        BuildConfig(source=source, out=Path("x"), eligibility=rules)


def test_where_novelty_is_balanced_the_filter_is_of_the_novelty_label(tmp_path: Path) -> None:
    rule, rules = LabelThresholds(novelty_rule="uzzi"), EligibilityConfig(min_label_confidence=0.3)
    config = BuildConfig(
        source=WORLD, out=tmp_path / "sure", cache_dir=tmp_path / "cache", thresholds=rule, eligibility=rules,
        split=SplitConfig(n_train=30, n_test=15, balance="novelty"),
    )  # fmt: skip
    release = build(config)
    verify(release.folder)
    works, citations, _ = scan_synthetic(WORLD)
    sure = indicators.compute_novelty_confidence(works, citations, thresholds=rule).filter(
        pl.col("label_confidence") >= 0.3
    )
    drawn = pl.concat([release.train, release.test])["openalex_id"].str.strip_prefix("W").cast(pl.Int64)
    assert drawn.len() == 45
    assert drawn.is_in(sure.collect()["work_id"].implode()).all()
    assert release.manifest["counts"]["filters"]["unsure_label"] > 100
    with pytest.raises(ConfigError, match=r"NoveltyConfig\.score is 'rank'.*Set NoveltyConfig\.score='sigmoid'"):
        replace(config, novelty=NoveltyConfig(score="rank"))
    with pytest.raises(ConfigError, match="min_label_confidence needs the references of all works"):
        replace(config, source=OpenAlexConfig())
