"""The example: real works that come with the package, and the release that they give as typed."""

import hashlib
import re

import polars as pl

from sciscidata import BuildConfig, ExampleConfig, SplitConfig, build, scan_example, scan_records, verify
from sciscidata.schemas import CITATIONS, WORKS
from sciscidata.sources.example.source import AUTHORS_FILE, WORKS_FILE
from sciscidata.sources.records import RecordsConfig


def test_the_files_are_small_and_those_that_their_source_is_stated_of():
    stated = WORKS_FILE.with_name("SOURCE.md").read_text("utf-8")
    files = (WORKS_FILE, AUTHORS_FILE)
    assert re.findall(r"[0-9a-f]{64}", stated) == [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert "CC0" in stated
    assert WORKS_FILE.stat().st_size < 4_000_000


def test_the_works_are_those_of_the_original_records(shared_data):
    records = RecordsConfig(inputs=(str(shared_data / "openalex" / "synergy_A.works.jsonl.gz"),), dates=True)
    packed = RecordsConfig(inputs=(str(WORKS_FILE),), dates=True)
    for ours, theirs in zip(scan_records(packed)[:2], scan_records(records)[:2], strict=True):
        assert ours.collect().equals(theirs.collect())


def test_both_frames_are_lazy_and_have_the_usual_columns():
    works, citations, provenance = scan_example()
    assert works.collect_schema() == WORKS
    assert citations.collect_schema() == CITATIONS
    assert provenance["kind"] == "example"
    assert works.select(pl.col("title", "abstract").count()).collect().row(0) == (4_367, 4_159)


def test_a_build_draws_what_suits_the_example_unless_told(tmp_path):
    release = build(BuildConfig(source=ExampleConfig(), out=tmp_path / "slice", cache_dir=tmp_path / "cache"))
    assert (release.train.height, release.test.height) == (120, 30)
    assert release.train["novelty_label"].drop_nulls().n_unique() == 3
    assert "cc0-1.0" in (tmp_path / "slice" / "README.md").read_text("utf-8")
    assert verify(tmp_path / "slice").counts == {"test": 30, "train": 120}
    asked = BuildConfig(source=ExampleConfig(), out=tmp_path, split=SplitConfig())
    assert asked.split.n_train == 5_000
