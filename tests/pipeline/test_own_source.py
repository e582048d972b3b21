"""A Corpus that a program has made is a source like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sciscidata import BuildConfig, SplitConfig, SyntheticConfig, build, export_labelled, ingest, scan_synthetic
from sciscidata.cli.main import main
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.schemas import Corpus

WORLD = SyntheticConfig(n_works=3_000)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return scan_synthetic(WORLD)


def config(home: Path, source: Any, name: str = "slice") -> BuildConfig:
    split = SplitConfig(n_train=30, n_test=6)
    return BuildConfig(source=source, out=home / name, split=split, cache_dir=home / "cache")


def test_a_corpus_gives_the_release_and_the_export_of_its_source(corpus: Corpus, tmp_path: Path) -> None:
    own = Corpus(corpus.works, corpus.citations, {"kind": "mine", "file": "works.txt"})
    release, expected = build(config(tmp_path, own)), build(config(tmp_path, WORLD, "expected"))
    assert release.manifest["source"] == {"kind": "mine", "file": "works.txt"}
    files = [{name: facts for name, facts in made.manifest["files"].items() if "jsonl" in name}
             for made in (release, expected)]  # fmt: skip
    assert files[0] == files[1]
    exports = [export_labelled(config(tmp_path, source, f"all-{n}")) for n, source in enumerate((own, WORLD))]
    assert exports[0]["sha256"] == exports[1]["sha256"]
    on_disk = ingest(own, tmp_path / "corpus", cache_dir=tmp_path / "cache")
    assert on_disk.provenance["file"] == "works.txt"
    assert on_disk.works.sort("work_id").collect().equals(own.works.sort("work_id").collect())


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"works": lambda c: c.works.drop("doi")}, SchemaMismatchError, "WORKS lacks column 'doi'"),
        ({"citations": lambda c: c.citations.cast(pl.String)}, SchemaMismatchError, "is String, needs Int64"),
        ({"works": lambda _: 7}, SchemaMismatchError, "is of type int, needs a frame"),
        ({"provenance": lambda _: {"file": Path("x")}}, ConfigError, "cannot be written as JSON"),
    ],
)
def test_a_wrong_corpus_is_refused_before_a_row_is_read(
    corpus: Corpus, tmp_path: Path, changes: Any, error: Any, told: str
) -> None:
    def fail(_: pl.DataFrame) -> pl.DataFrame:
        pytest.fail("a row was read")

    unread = corpus._replace(works=corpus.works.map_batches(fail, schema=corpus.works.collect_schema()))
    wrong = unread._replace(**{name: change(unread) for name, change in changes.items()})
    for act in (lambda: build(config(tmp_path, wrong)), lambda: ingest(wrong, tmp_path / "c", cache_dir=tmp_path)):
        with pytest.raises(error, match=told):
            act()
    assert not (tmp_path / "slice").exists()


def test_a_release_of_it_is_repeated_only_from_a_source_that_a_command_can_open(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = corpus._replace(provenance={"kind": "mine"})
    build(config(tmp_path, own))
    ingest(own, tmp_path / "corpus", cache_dir=tmp_path / "cache")
    again = ["build", "--from-manifest", str(tmp_path / "slice"), "--out", str(tmp_path / "again")]
    assert main(again) == 1
    assert "Repeat it in Python, or name a corpus on disk with the same works: --corpus." in capsys.readouterr().err
    # A corpus on disk reads texts after the draw, so it may draw another of two equal papers.
    assert main([*again, "--corpus", str(tmp_path / "corpus"), "--cache-dir", str(tmp_path / "cache")]) == 0
