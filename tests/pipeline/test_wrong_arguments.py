"""What a notebook may hand over by mistake in place of a configuration: named at once, with what is needed."""

from __future__ import annotations

from functools import partial

import polars as pl
import pytest

import sciscidata as ssd
from sciscidata.disruption.compare import compare_scores
from sciscidata.label_thresholds import compute_disruption_labels, compute_novelty_labels, compute_uzzi_cells
from sciscidata.sources.records import pull_records
from sciscidata.sources.snapshot.source import ingest_snapshot

CD = pl.DataFrame({"work_id": [1], "cd_index": [0.5], "disruption_label": ["disruptive"]})
Z = pl.DataFrame({"z_p10": [0.5], "z_median": [0.5], "novelty_score": [0.5], "conventionality_score": [0.5]})
BUILD = partial(ssd.BuildConfig, out="slice")
WORLD = ssd.SyntheticConfig(n_works=9)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda wrong: compute_disruption_labels(CD, wrong), "thresholds is .*, needs a LabelThresholds"),
        (lambda wrong: compute_novelty_labels(Z, wrong), "thresholds is .*, needs a LabelThresholds"),
        (lambda wrong: compute_uzzi_cells(Z, wrong), "thresholds is .*, needs a LabelThresholds"),
        (lambda wrong: compare_scores(CD, CD, wrong), "thresholds is .*, needs a LabelThresholds"),
        (lambda wrong: ssd.draw_split(CD, wrong), "config is .*, needs a SplitConfig"),
        (ssd.scan_synthetic, "config is .*, needs a SyntheticConfig"),
        (ssd.scan_records, r"config is .*, needs a RecordsConfig, for example RecordsConfig\(inputs="),
        (lambda wrong: pull_records(wrong, "cache"), "config is .*, needs a RecordsConfig"),
        (ssd.scan_sciscinet, r"config is .*, needs a SciSciNetConfig, for example SciSciNetConfig\(folder="),
        (lambda wrong: ingest_snapshot(wrong, "corpus"), "config is .*, needs a SnapshotConfig"),
        (ssd.build, "config is .*, needs a BuildConfig"),
        (ssd.export_labelled, "config is .*, needs a BuildConfig"),
        (lambda wrong: ssd.write_background(wrong, "b.parquet"), "source is .*, needs one of ExampleConfig"),
        (lambda wrong: ssd.ingest(wrong, "corpus", cache_dir="cache"), "source is .*, needs one of Exam"),
        (lambda wrong: ssd.write_cd_index("corpus", "s", wrong, cache_dir="cache"), "needs a CDConfig"),
        (lambda wrong: ssd.write_atypicality("corpus", "s", wrong, cache_dir="cache"), "needs a NoveltyConfig"),
        (lambda wrong: BUILD(source=wrong), "BuildConfig.source is .*, needs one of ExampleConfig"),
        (lambda wrong: BUILD(source=WORLD, cd=wrong), "BuildConfig.cd is .*, needs a CDConfig"),
        (lambda wrong: BUILD(source=WORLD, thresholds=wrong), "BuildConfig.thresholds is .*, needs a LabelThresholds"),
        (lambda wrong: BUILD(source=WORLD, eligibility=wrong), "BuildConfig.eligibility is .*, needs an Eligib"),
        (lambda wrong: BUILD(source=WORLD, split=wrong), "BuildConfig.split is .*, needs a SplitConfig"),
        (lambda wrong: BUILD(source=WORLD, novelty=wrong), "BuildConfig.novelty is .*, needs a NoveltyConfig"),
    ],
)
@pytest.mark.parametrize("wrong", ["works.jsonl", {}], ids=repr)
def test_what_is_no_configuration_is_refused_before_anything_is_read(call, told, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ssd.SciSciDataError, match=told):
        call(wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("write", "instead"), [(ssd.write_cd_index, "cd_index"), (ssd.write_atypicality, "atypicality")]
)
def test_frames_in_place_of_a_corpus_on_disk_are_said(write, instead, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    works, citations, _ = corpus = ssd.scan_synthetic(WORLD)
    for wrong in ((works, citations, "x.csv"), (works, citations), (corpus, "x.parquet")):
        with pytest.raises(ssd.SciSciDataError, match=rf"needs the folder of a corpus.*compute_{instead}\(works, cit"):
            write(*wrong)
    assert not list(tmp_path.iterdir())


def test_scores_are_cached_in_the_corpus_where_nothing_else_is_said(tmp_path):
    ssd.ingest(ssd.SyntheticConfig(n_works=300), tmp_path / "world", cache_dir=tmp_path)
    ssd.write_cd_index(tmp_path / "world", tmp_path / "cd.parquet")
    assert [*(tmp_path / "world" / "cache").glob("cd-*")]
