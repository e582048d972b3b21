"""One stage at a time, each from disk to disk: the values of the whole flow, one error each, and runs cut short."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from benchmarks.make_sciscinet import make as make_sciscinet
from benchmarks.make_snapshot import export_record, write_manifest, write_part
from sciscidata.corpus import folder as corpus_folder
from sciscidata.corpus import scores as score_files
from sciscidata.corpus import writer as corpus_writing
from sciscidata.corpus.folder import CorpusConfig, naming_damage, open_corpus_graph, scan_corpus
from sciscidata.corpus.writer import write_corpus
from sciscidata.disruption.index import CDConfig, compute_cd_index
from sciscidata.disruption.null_model import compute_null_cd_index
from sciscidata.errors import ConfigError, EmptyInputError, InputNotFoundError, ReleaseExistsError, StorageError
from sciscidata.graph import year_files
from sciscidata.graph.graph import build_graph, graph_folder, read_graph
from sciscidata.novelty.atypicality import YearScorer, compute_atypicality
from sciscidata.novelty.background import VenuePairs, write_null_model
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.schemas import CITATIONS, WORKS, Corpus
from sciscidata.scoring import Measures, score_structure
from sciscidata.sources.example.source import WORKS_FILE
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.records import RecordsConfig, scan_records
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from sciscidata.sources.snapshot.source import SnapshotConfig
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from sciscidata.stages import ingest, write_atypicality, write_cd_index
from sciscidata.storage import seal_json

WORLD = SyntheticConfig(n_works=3_000)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("stages")
    ingest(WORLD, home / "world", cache_dir=home / "cache")
    return home / "world"


def files(folder: Path) -> dict[str, bytes]:
    """Every byte of a corpus, but for the lock and what is made of it."""
    paths = [path for path in folder.rglob("*") if path.is_file() and "cache" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.name != ".lock"}


def sorted_rows(frame) -> pl.DataFrame:
    return frame.lazy().collect().sort(pl.all())


def spoil(file: Path) -> None:
    """Damage a file, so that its size stays."""
    content = bytearray(file.read_bytes())
    length = min(2_000, len(content) // 2)
    start = len(content) // 3 if file.parent.name == "texts" else 40  # its first column is not read
    content[start : start + length] = b"x" * length
    file.write_bytes(content)


# A corpus on disk


def test_a_corpus_gives_back_the_rows_that_went_in_and_text_lies_apart(world):
    corpus, source = scan_corpus(world), scan_synthetic(WORLD)
    assert_frame_equal(corpus.works.collect(), source.works.collect())
    assert_frame_equal(corpus.citations.collect(), source.citations.collect())
    assert (corpus.provenance["kind"], corpus.provenance["works"]) == ("synthetic", 3_000)
    assert not {"title", "abstract"} & set(pl.read_parquet_schema(next((world / "works").glob("*.parquet"))))


def test_real_records_give_the_corpus_that_reading_them_gives(tmp_path):
    source = RecordsConfig(inputs=(str(WORKS_FILE),))
    corpus = ingest(source, tmp_path / "out", cache_dir=tmp_path / "cache")
    plain = scan_records(source)
    assert_frame_equal(corpus.works.collect().sort("work_id"), plain.works.collect().sort("work_id"))
    assert sorted_rows(corpus.citations).equals(sorted_rows(plain.citations))
    assert corpus.provenance["inputs"][0]["name"] == WORKS_FILE.name
    assert str(tmp_path) not in (tmp_path / "out" / "corpus.json").read_text()


@pytest.mark.parametrize("texts", [True, False])
def test_sciscinet_gives_works_citations_and_texts_if_asked(tmp_path, texts):
    make_sciscinet(tmp_path / "tables", 500, n_bytes=200)
    source = SciSciNetConfig(folder=str(tmp_path / "tables"))
    corpus = ingest(source, tmp_path / "out", cache_dir=tmp_path / "cache", texts=texts)
    tables = scan_sciscinet(source)
    expected, found = tables.works.collect().sort("work_id"), corpus.works.collect().sort("work_id")
    text = ["title", "abstract"]
    assert_frame_equal(found.drop(text, "language"), expected.drop(text, "language"))
    assert list((tmp_path / "out" / "texts").iterdir()) == [] or texts
    assert found["title"].null_count() == (expected["title"].null_count() if texts else 500)
    assert sorted_rows(corpus.citations).equals(sorted_rows(tables.citations))


works_in_parts = st.lists(st.integers(1, 10**12), unique=True, min_size=1, max_size=30)


@settings(max_examples=30)
@given(works_in_parts, st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), max_size=40))
def test_any_rows_come_back_in_their_order_from_any_number_of_parts(ids, edges):
    from tempfile import TemporaryDirectory

    works = pl.DataFrame([{"work_id": i, "title": f"On {i}", "is_retracted": False} for i in ids], schema=WORKS)
    works = works.with_columns(concepts=pl.lit([], dtype=WORKS["concepts"]))
    citations = pl.DataFrame(edges, schema=CITATIONS, orient="row")
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as home:
        patch.setattr(corpus_writing, "_PART_ROWS", {"works": 7, "citations": 9})
        corpus = write_corpus(Corpus(works.lazy(), citations.lazy(), {"kind": "test"}), Path(home) / "corpus")
        assert_frame_equal(corpus.works.collect(), works)
        assert_frame_equal(corpus.citations.collect(), citations)
        wanted = works["work_id"][-1:]
        some = corpus.works.filter(pl.col("work_id").is_in(wanted.implode())).select("title").collect()
        assert some["title"].to_list() == [f"On {ids[-1]}"]
        assert len(list((Path(home) / "corpus" / "works").iterdir())) == -(-len(ids) // 7)


def test_a_second_ingest_of_the_same_writes_nothing_and_of_another_replaces_when_asked(tmp_path):
    places = {"out": tmp_path / "out", "cache_dir": tmp_path / "cache"}
    ingest(WORLD, **places)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    ingest(WORLD, **places)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    with pytest.raises(ReleaseExistsError, match=r"holds another corpus.*overwrite=True"):
        ingest(SyntheticConfig(n_works=50), **places)
    with pytest.raises(ReleaseExistsError, match="with other options"):
        ingest(WORLD, **places, texts=False)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    other = ingest(SyntheticConfig(n_works=50), **places, overwrite=True)
    assert other.works.select("work_id").collect().height == other.provenance["works"] == 50


@pytest.mark.parametrize("table", ["works", "citations", "texts"])
def test_every_command_on_a_damaged_corpus_names_the_file(run, world, tmp_path, table):
    shutil.copytree(world, tmp_path / "corpus", ignore=shutil.ignore_patterns("cache"))
    spoil(tmp_path / "corpus" / table / "part-000000.parquet")
    commands = [
        ["build", "--corpus", "corpus", "--out", "slice", "--n-train", "30", "--n-test", "3"],
        ["export", "--corpus", "corpus", "--out", "labelled"],
        ["background", "--corpus", "corpus", "--out", "pairs.parquet"],
        ["graph", "corpus"],
        ["cd", "corpus", "--out", "cd.parquet"],
        ["null-cd", "corpus", "--out", "null.parquet", "--n-draws", "2"],
        ["novelty", "corpus", "--out", "novelty.parquet"],
    ]
    for arguments in commands[: 2 if table == "texts" else None]:
        status, _, errors = run(*arguments)
        assert status == 1, arguments
        assert re.search(rf"^error: .*{table}/part-000000.parquet is damaged: .*same ingest again", errors, re.M)
    assert not {"slice", "labelled", "pairs.parquet", "cd.parquet"} & {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_query_of_ones_own_on_a_damaged_corpus_names_the_file(world, tmp_path, engine):
    shutil.copytree(world, tmp_path / "corpus", ignore=shutil.ignore_patterns("cache"))
    for table in ("works", "citations"):
        spoil(tmp_path / "corpus" / table / "part-000000.parquet")
    works, citations, _ = scan_corpus(tmp_path / "corpus")
    joined = citations.join(works.select("work_id"), left_on="citing_id", right_on="work_id").head(3)
    with pytest.raises(StorageError, match=r"part-000000.parquet is damaged"):
        joined.collect(engine=engine)


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_citations_of_a_corpus_take_filters_slices_and_counts(world, engine):
    citations, expected = scan_corpus(world).citations, scan_synthetic(WORLD).citations.collect()
    low = pl.col("cited_id") < expected["cited_id"].median()
    for ask in (
        lambda frame: frame.select(pl.len()),
        lambda frame: frame.filter(low).head(7),
        lambda frame: frame.select("cited_id").slice(5, 4),
        lambda frame: frame.filter(low).select(pl.col("citing_id").n_unique()),
        lambda frame: frame.tail(2),
    ):
        assert_frame_equal(ask(citations).collect(engine=engine), ask(expected.lazy()).collect())


def test_another_failure_than_damage_keeps_its_own_error(world):
    with pytest.raises(ZeroDivisionError), naming_damage(world):
        raise ZeroDivisionError


def test_the_null_model_of_a_corpus_is_that_of_its_frames(run, world, tmp_path):
    asked = ["null-cd", str(world), "--out", "null.parquet", "--null", "configuration", "--n-draws", "3", "--seed", "4"]
    status, output, _ = run(*asked, "--window-years", "10")
    assert (status, "CD index against a null model" in output, "n_draws 3" in output) == (0, True, True)
    found, corpus = pl.read_parquet(tmp_path / "null.parquet"), scan_synthetic(WORLD)
    options = {"null": "configuration", "n_draws": 3, "seed": 4}
    expected = compute_null_cd_index(corpus.works, corpus.citations, CDConfig(window_years=10), **options)
    assert found.equals(expected.sort("work_id").collect())
    before = (tmp_path / "null.parquet").stat().st_mtime_ns
    assert run(*asked, "--window-years", "10")[0] == 0
    assert (tmp_path / "null.parquet").stat().st_mtime_ns == before
    status, _, errors = run(*asked, "--window-years", "5")
    assert (status, "null.parquet already exists" in errors) == (1, True)
    assert run("verify", "null.parquet")[0] == run("describe", "null.parquet", "--html", "null.html")[0] == 0
    assert "data:image/png" in (tmp_path / "null.html").read_text()


def test_a_changed_table_is_another_corpus(tmp_path):
    make_sciscinet(tmp_path / "tables", 300, n_bytes=200)
    source, places = SciSciNetConfig(folder=str(tmp_path / "tables")), {"cache_dir": tmp_path / "cache"}
    ingest(source, tmp_path / "out", texts=False, **places)
    papers = pl.read_parquet(tmp_path / "tables" / "sciscinet_papers.parquet")
    papers.head(200).write_parquet(tmp_path / "tables" / "sciscinet_papers.parquet")
    with pytest.raises(ReleaseExistsError, match="files that have changed since"):
        ingest(source, tmp_path / "out", texts=False, **places)
    places |= {"overwrite": True}
    assert ingest(source, tmp_path / "out", texts=False, **places).provenance["works"] == 200
    assert ingest(source, tmp_path / "out", **places).works.collect()["title"].count() > 100  # and so are texts


def test_a_snapshot_is_read_with_its_texts_or_not_at_all(tmp_path):
    config = SnapshotConfig(folder=str(snapshot(tmp_path / "openalex", 60)), n_workers=1)
    with pytest.raises(ConfigError, match="texts=False"):
        ingest(config, tmp_path / "out", cache_dir=tmp_path, texts=False)
    assert not (tmp_path / "out").exists()


def test_two_runs_do_not_write_one_corpus(tmp_path):
    with corpus_writing.locked_folder(tmp_path / "out"), pytest.raises(StorageError, match="another run is at work"):
        ingest(WORLD, tmp_path / "out", cache_dir=tmp_path / "cache")


FOREIGN = ("works/hand_curated.parquet", "works/part-00000-abc.snappy.parquet", "citations/part-000000.parquet",
           "receipts/rent.pdf", "thesis.tex", "works", "corpus.json", "removed.parquet")  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("kind", ["world", "snapshot"])
def test_what_is_no_corpus_is_never_taken_for_one(tmp_path, name, kind):
    file = tmp_path / "mine" / name
    file.parent.mkdir(parents=True)
    file.write_text('{"parts of": "a choir"}')
    source = WORLD if kind == "world" else SnapshotConfig(folder=str(snapshot(tmp_path / "openalex", 60)), n_workers=1)
    for overwrite in (False, True):
        with pytest.raises(StorageError, match=rf"mine holds {re.escape(name)}, which is no part of a corpus"):
            ingest(source, tmp_path / "mine", cache_dir=tmp_path, overwrite=overwrite)
    assert files(tmp_path / "mine") == {name: b'{"parts of": "a choir"}'}


def test_files_that_somebody_puts_into_a_corpus_stay_and_do_not_count(tmp_path):
    places = {"out": tmp_path / "out", "cache_dir": tmp_path / "cache", "overwrite": True}
    small = SyntheticConfig(n_works=50)
    config = SnapshotConfig(folder=str(snapshot(tmp_path / "openalex", 60)), n_workers=1)
    ingest(small, **places)
    theirs = [tmp_path / "out" / name for name in FOREIGN[:2]] + [tmp_path / "out" / "notes.txt"]
    for file in theirs:
        file.write_text("mine")
    for source, n_works in ((WORLD, 3_000), (config, 60), (config, 60), (small, 50)):
        assert ingest(source, **places).works.select("work_id").collect().height == n_works
        assert [file.read_text() for file in theirs] == ["mine"] * 3


def test_an_unfinished_corpus_of_another_source_is_kept_too(world, tmp_path):
    shutil.copytree(world, tmp_path / "out", ignore=shutil.ignore_patterns("cache", "corpus.json"))
    whole = files(tmp_path / "out")
    with pytest.raises(ReleaseExistsError, match="overwrite=True"):
        ingest(SyntheticConfig(n_works=50), tmp_path / "out", cache_dir=tmp_path)
    assert files(tmp_path / "out") == whole


@pytest.mark.parametrize("source", [OpenAlexConfig(), CorpusConfig(folder="x")])
def test_only_whole_sources_are_ingested(tmp_path, source):
    with pytest.raises(ConfigError, match=r"SnapshotConfig\.folder"):
        ingest(source, tmp_path / "out", cache_dir=tmp_path)


# Graph and scores


def test_scores_on_disk_are_those_of_the_frames_sorted_by_id(world, tmp_path):
    source, places = scan_synthetic(WORLD), {"cache_dir": tmp_path / "cache"}
    cd = pl.read_parquet(write_cd_index(world, tmp_path / "cd.parquet", CDConfig(family=True), **places))
    assert_frame_equal(
        cd, compute_cd_index(source.works, source.citations, CDConfig(family=True)).collect().sort("work_id")
    )
    ranked = NoveltyConfig(score="rank")
    novelty = pl.read_parquet(write_atypicality(world, tmp_path / "novelty.parquet", ranked, **places))
    assert_frame_equal(novelty, compute_atypicality(source.works, source.citations, ranked).collect().sort("work_id"))
    assert len(list((tmp_path / "cache").glob("graph-*"))) == 1


@pytest.mark.parametrize("rows_per_batch", [100, 3_000])
def test_scores_are_the_same_rows_in_any_number_of_batches_of_which_none_is_large(
    world, tmp_path, monkeypatch, rows_per_batch
):
    places = {"cache_dir": world.parent / "scores"}
    whole = pl.read_parquet(write_cd_index(world, tmp_path / "whole.parquet", **places))
    monkeypatch.setattr(year_files, "_ROWS_PER_BATCH", rows_per_batch)
    path = write_cd_index(world, tmp_path / "cd.parquet", **places)
    assert_frame_equal(pl.read_parquet(path), whole)
    metadata = pq.read_metadata(path)
    largest = max(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
    assert largest <= 2 * rows_per_batch
    assert (metadata.num_row_groups > 1) == (rows_per_batch < 3_000)


def test_the_shards_of_a_corpus_are_together_the_whole(world, tmp_path):
    places, config = {"cache_dir": world.parent / "scores"}, CDConfig(family=True)
    whole = pl.read_parquet(write_cd_index(world, tmp_path / "whole.parquet", config, **places))
    files = [write_cd_index(world, tmp_path / f"cd-{k}.parquet", config, shard=f"{k}/3", **places) for k in (1, 2, 3)]
    parts = [pl.read_parquet(file) for file in files]
    assert all(part["work_id"].is_sorted() and part.height for part in parts)
    assert sum(part.height for part in parts) == whole.height
    assert_frame_equal(pl.scan_parquet(files).sort("work_id").collect(), whole)


def test_more_shards_than_works_leave_some_of_them_empty_but_readable(tmp_path):
    ingest(SyntheticConfig(n_works=12), tmp_path / "few", cache_dir=tmp_path)
    files = [
        write_cd_index(tmp_path / "few", tmp_path / f"cd-{k}.parquet", shard=f"{k}/15", cache_dir=tmp_path / "cache")
        for k in range(1, 16)
    ]
    found = pl.scan_parquet(files).sort("work_id").collect()
    expected = pl.read_parquet(write_cd_index(tmp_path / "few", tmp_path / "cd.parquet", cache_dir=tmp_path / "cache"))
    assert_frame_equal(found, expected)


def test_one_shard_is_another_result_than_the_next_and_says_which_it_is(run, world, tmp_path):
    command = ["cd", str(world), "--out", "cd.parquet", "--cache-dir", "cache"]
    status, out, errors = run(*command, "--shard", "2/3")
    assert status == 0, errors
    assert "shard 2/3 of the works" in out
    assert run("describe", "cd.parquet")[1] in out
    for other in (["--shard", "3/3"], ["--shard", "2/4"], []):
        status, _, errors = run(*command, *other)
        assert (status, "--overwrite" in errors) == (1, True)
    assert run(*command, "--shard", "02/3")[0] == 0


@pytest.mark.parametrize("shard", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/5", "", " 1/3"])
def test_a_shard_that_is_none_is_refused_at_once(world, tmp_path, shard):
    with pytest.raises(ConfigError, match=r"needs K/N with K from 1 to N: 2/8 is"):
        write_cd_index(world, tmp_path / "cd.parquet", shard=shard, cache_dir=tmp_path / "cache")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("config", [NoveltyConfig(), NoveltyConfig(score="rank", years=(1990, 2010))])
def test_novelty_goes_on_with_the_years_it_has_not_written(world, tmp_path, monkeypatch, config):
    whole = write_atypicality(world, tmp_path / "whole.parquet", config, cache_dir=tmp_path / "a")
    (parts,) = (tmp_path / "a").glob("novelty-*")
    n_years, scored = len(list(parts.glob("*[0-9].parquet"))), []
    score = YearScorer.score

    def stop(self, j):
        if len(scored) == 5:
            raise KeyboardInterrupt
        rows = score(self, j)
        scored.append(j)
        return rows

    monkeypatch.setattr(YearScorer, "score", stop)
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        write_atypicality(world, tmp_path / "out.parquet", config, cache_dir=tmp_path / "b")
    assert not (tmp_path / "out.parquet").exists()
    first, scored = scored, []
    monkeypatch.setattr(YearScorer, "score", lambda self, j: scored.append(j) or score(self, j))
    out = write_atypicality(world, tmp_path / "out.parquet", config, cache_dir=tmp_path / "b")
    assert out.read_bytes() == whole.read_bytes()
    assert (len(first), len(scored)) == (5, n_years - 5)
    assert not set(first) & set(scored)


def test_novelty_against_another_background_is_not_taken_from_the_years_on_disk(world, tmp_path):
    places, frames = {"cache_dir": tmp_path / "cache"}, scan_synthetic(WORLD)
    some = frames.works.filter(pl.col("work_id") % 3 != 0)
    for name, works in (("all", frames.works), ("some", some)):
        write_null_model(VenuePairs.of(works, frames.citations), tmp_path / f"{name}.parquet")
    found = [
        pl.read_parquet(write_atypicality(world, tmp_path / f"n-{i}.parquet", background=table, **places))
        for i, table in enumerate((None, tmp_path / "all.parquet", tmp_path / "some.parquet"))
    ]
    assert_frame_equal(found[0], found[1])
    assert not found[0].equals(found[2])
    assert len(list((tmp_path / "cache").glob("novelty-*"))) == 3


def test_a_graph_that_is_there_is_found_without_reading_the_corpus_and_made_again_when_damaged(
    world, tmp_path, monkeypatch
):
    corpus = tmp_path / "corpus"
    shutil.copytree(world, corpus, ignore=shutil.ignore_patterns("cache"))
    built = []
    build = corpus_folder.write_graph
    monkeypatch.setattr(corpus_folder, "write_graph", lambda *args: built.append(1) or build(*args))
    first = open_corpus_graph(corpus, cache_dir=tmp_path / "cache")
    again = open_corpus_graph(corpus, cache_dir=tmp_path / "cache")
    assert len(built) == 1
    assert graph_folder(again) == graph_folder(first)
    (arrays,) = (tmp_path / "cache").iterdir()
    whole = files(arrays)
    spoil(arrays / "refs.bin")
    with pytest.raises(StorageError, match="is damaged"):
        read_graph(arrays)
    open_corpus_graph(corpus, cache_dir=tmp_path / "cache")
    assert len(built) == 2
    assert files(arrays) == whole


@pytest.mark.parametrize("name", ["x.csv", "x.parquet.txt"])
def test_backgrounds_and_scores_are_not_written_under_the_name_of_another_format(run, world, tmp_path, name):
    status, _, errors = run("background", "--corpus", str(world), "--out", name)
    assert status == 1
    assert f"error: a background is written as Parquet, and {name} is named otherwise. Choose " in errors
    for write in (write_cd_index, write_atypicality):
        with pytest.raises(ConfigError, match="named otherwise"):
            write(world, tmp_path / name, cache_dir=tmp_path / "cache")
    with pytest.raises(ConfigError, match="named otherwise"):
        write_null_model(VenuePairs.of(*scan_corpus(world)[:2]), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_structure_counts_what_the_filters_ask_for(world, tmp_path):
    from sciscidata.eligibility import count_references

    works, citations, _ = scan_corpus(world)
    measures = Measures(cd=CDConfig(), novelty=NoveltyConfig(), background=None, cache_dir=tmp_path)
    found = score_structure(build_graph(works, citations), works, measures)
    listed = dict(count_references(citations).collect().rows())
    assert found["n_references"].to_list() == [listed.get(work_id, 0) for work_id in found["work_id"]]
    cd = compute_cd_index(works, citations).collect()
    rows = found.join(cd, on="work_id", suffix="_expected")
    known = rows.drop_nulls("n_i")
    assert (known["n_citers"] == known["n_i"] + known["n_j"]).all()
    assert rows["cd_index"].equals(rows["cd_index_expected"], null_equal=True)
    atypicality = compute_atypicality(works, citations).collect()
    rows = found.select(atypicality.columns).sort("work_id")
    assert_frame_equal(rows, atypicality.sort("work_id"))


def test_the_same_result_is_left_alone_and_another_only_replaced_when_asked(world, tmp_path):
    out, places = tmp_path / "cd.parquet", {"cache_dir": tmp_path / "cache"}
    write_cd_index(world, out, **places)
    before = out.stat().st_mtime_ns
    write_cd_index(world, out, **places)
    assert out.stat().st_mtime_ns == before
    other = CDConfig(window_years=3)
    with pytest.raises(ReleaseExistsError, match="overwrite=True"):
        write_cd_index(world, out, other, **places)
    with pytest.raises(ReleaseExistsError, match="overwrite=True"):
        write_atypicality(world, out, **places)
    write_cd_index(world, out, other, **places, overwrite=True)
    assert out.stat().st_mtime_ns > before
    foreign = tmp_path / "mine.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(foreign)
    with pytest.raises(ReleaseExistsError, match="no file of scores"):
        write_cd_index(world, foreign, **places, overwrite=True)
    assert pl.read_parquet(foreign).columns == ["a"]


def snapshot(folder: Path, n: int = 900) -> Path:
    """Write a snapshot of works that cite one another."""
    rng = random.Random(0)
    records = [
        {"id": f"https://openalex.org/W{number}", "publication_year": 1990 + number * 30 // n, "is_xpac": False,
         "title": f"Work {number}", "abstract_inverted_index": {"dams": [0], "leak": [1]}, "language": "en",
         "primary_location": {"source": {"id": f"https://openalex.org/S{number % 9 + 1}", "display_name": "J"}},
         "referenced_works": [f"https://openalex.org/W{rng.randrange(1, number)}" for _ in range(6 * (number > 1))]}
        for number in range(1, n + 1)
    ]  # fmt: skip
    parts = {f"updated_date=2026-06-0{day}/part_0000": records[day::3] for day in range(3)}
    parts = {name.replace("-00", "-03"): rows for name, rows in parts.items()}
    for name, rows in parts.items():
        write_part(folder, "jsonl", name, [export_record(entry) for entry in rows])
    write_manifest(folder, "jsonl", {name: len(rows) for name, rows in parts.items()})
    return folder


def test_a_snapshot_is_ingested_once_and_drawn_from_like_the_corpus_made_of_it(run, tmp_path):
    folder = snapshot(tmp_path / "openalex")
    small = ["--n-train", "30", "--n-test", "3", "--balance", "none"]
    status, out, errors = run("build", "--snapshot", str(folder), "--n-workers", "1", "--out", "a", *small)
    assert status == 0, errors
    assert "works from the OpenAlex snapshot" in out
    run("ingest", "--snapshot", str(folder), "--n-workers", "1", "--out", "corpus")
    status, out, errors = run("build", "--corpus", "corpus", "--out", "b", *small)
    assert status == 0, errors
    for name in ("train.jsonl", "test.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    texts = next(iter((tmp_path / "cache").glob("snapshot-*"))) / "texts"
    before = {path: path.stat().st_mtime_ns for path in texts.iterdir()}
    run("build", "--snapshot", str(folder), "--n-workers", "1", "--out", "c", *small)
    assert before == {path: path.stat().st_mtime_ns for path in texts.iterdir()}
    assert isinstance(SnapshotConfig(folder=str(folder)), SnapshotConfig)


# The commands


def test_every_stage_says_what_it_read_and_wrote_and_how_much_it_took(run, tmp_path):
    took = r"took \d+\.\d s, peak memory \d+\.\d\d GB( \(largest worker \d+\.\d\d GB\))?\n$"
    status, out, errors = run("ingest", "--source", "synthetic", "--n-works", "3000", "--out", "world")
    assert status == 0, errors
    assert re.search(r"works: 3,000\n", out)
    assert re.search(r"texts +1 files +[\d,]+ bytes\n", out)
    assert re.search(took, out)
    assert run("describe", "world")[1] in out
    status, out, errors = run("graph", "world")
    assert status == 0, errors
    assert re.search(r"distinct citations: \d\d,\d{3}\n", out)
    assert re.search(took, out)
    folder = re.search(r"graph: (.*)\n", out)[1]
    assert folder.startswith("world/cache/graph-")
    assert run("describe", folder)[1] in out
    windows = ["--window", "1", "3", "all"]
    for name, flags in (("cd", ["--family", "--window-years", "3", *windows]), ("novelty", ["--null", "permutation"])):
        status, out, errors = run(name, "world", "--out", f"{name}.parquet", *flags)
        assert status == 0, errors
        assert f"sha256 {hashlib.sha256((tmp_path / f'{name}.parquet').read_bytes()).hexdigest()}" in out
        assert re.search(r"works: 3,000 \(2,\d{3} with a score\)\n", out)
        assert re.search(took, out)
        assert run("describe", f"{name}.parquet")[1] in out
        assert "window_years 3" in out or "null permutation" in out
    scores = pl.read_parquet(tmp_path / "cd.parquet")
    assert {"n_shared", "n_shared_1"} <= {*scores.columns}
    assert "n_shared_3" not in scores.columns  # --window-years 3 has it as n_shared
    assert scores["cd_index_all"].count() > scores["cd_index_1"].count() > 0
    run("background", "--corpus", "world", "--out", "pairs.parquet")
    assert "null model: null analytic" in run("describe", "pairs.parquet")[1]
    status, out, errors = run("novelty", "world", "--out", "by.parquet", "--background", "pairs.parquet")
    assert status == 0, errors
    assert "null model: background " in out


def test_every_labelled_work_of_any_source_is_exported_with_the_lines_of_a_release(run, tmp_path):
    make_sciscinet(tmp_path / "tables", 900, n_bytes=200)
    world = ["--source", "synthetic", "--n-works", "900"]
    run("ingest", *world, "--out", "world")
    for name, flags in (("a", world), ("b", ["--corpus", "world"]), ("c", ["--sciscinet", "tables"])):
        status, out, errors = run("export", *flags, "--out", name, "--cache-dir", "cache")
        assert status == 0, errors
        assert run("describe", name)[1] in out
        assert re.search(r"took \d", out)
    lines = {name: (tmp_path / name / "labelled.jsonl").read_text().splitlines() for name in "abc"}
    assert sorted(lines["a"]) == sorted(lines["b"])
    source = scan_synthetic(SyntheticConfig(n_works=900))
    cd = compute_cd_index(source.works, source.citations).collect()
    z = compute_atypicality(source.works, source.citations).collect()
    either = cd.join(z, on="work_id").filter(pl.col("cd_index").is_not_null() | pl.col("z_p10").is_not_null())
    rows = pl.DataFrame([json.loads(line) for line in lines["a"]], infer_schema_length=None)
    assert sorted(rows["openalex_id"]) == sorted(f"W{work_id}" for work_id in either["work_id"])
    assert 100 < len(lines["c"]) < 900
    status, _, errors = run("export", *world, "--out", "a")
    assert status == 1
    assert "already exists" in errors
    status, _, errors = run("export", "--out", "d")
    assert "the OpenAlex API gives a sample" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["graph", "nowhere"], "no corpus in nowhere: there is no such folder"),
        (["cd", "file", "--out", "cd.parquet"], "no corpus in file: it is a file, and a corpus is a folder"),
        (["cd", ".", "--out", "cd.parquet"], "no corpus in .: no readable corpus.json"),
        (["cd", "half", "--out", "cd.parquet"], "the corpus in half is not finished"),
        (["novelty", "lonely", "--out", "n.parquet"], "holds no citations, so it has no graph"),
        (["ingest", "--snapshot", "nowhere", "--out", "x"], "snapshot folder nowhere does not exist"),
        (["ingest", "--out", "x"], "a corpus is made of a whole source"),
        (["ingest", "--source", "synthetic", "--n-works", "9", "--out", "file"], "cannot write file"),
        (["build", "--source", "synthetic", "--n-works", "9", "--out", "file/x"], "cannot write "),
        (["build", "--source", "corpus"], "the source corpus needs a folder: --corpus"),
        (["describe", "file"], "file is no Parquet file. Give the path of a release, a corpus"),
        (["cd", "lonely", "--out", "file"], "too damaged to be recognised as one, so it is not replaced"),
    ],
)
def test_a_mistake_is_one_clear_line(run, tmp_path, arguments, message):
    (tmp_path / "file").write_text("text")
    (tmp_path / "half" / "works").mkdir(parents=True)
    lonely = pl.LazyFrame([{"work_id": 1, "is_retracted": False, "publication_year": 2000}], schema=WORKS)
    write_corpus(Corpus(lonely, pl.LazyFrame(schema=CITATIONS), {"kind": "test"}), tmp_path / "lonely")
    status, _, errors = run(*arguments)
    assert status == 1
    (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert message in line


def test_a_source_without_works_makes_no_corpus(tmp_path):
    none = Corpus(pl.LazyFrame(schema=WORKS), pl.LazyFrame(schema=CITATIONS), {})
    with pytest.raises(EmptyInputError, match="no work"):
        write_corpus(none, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_a_disk_alters_while_an_ingest_goes_on_is_not_taken_for_what_was_written(tmp_path, monkeypatch):
    monkeypatch.setitem(corpus_writing._PART_ROWS, "works", 500)
    source, altered = scan_synthetic(SyntheticConfig(n_works=2_000)), []

    def alter(_: float) -> None:
        part = tmp_path / "out" / "works" / "part-000000.parquet"
        if not altered:
            content = bytearray(part.read_bytes())
            content[len(content) // 3] ^= 4
            part.write_bytes(content)
            altered.append(part)

    with pytest.raises(StorageError, match=r"part-000000.parquet is damaged"):
        write_corpus(source, tmp_path / "out", advance=alter).works.collect()
    mended = write_corpus(source, tmp_path / "out").works.select("work_id").collect()
    assert altered
    assert mended.equals(source.works.select("work_id").collect())


def test_a_hidden_file_beside_the_scores_of_years_is_not_one_of_them(world, tmp_path):
    write_cd_index(world, tmp_path / "cd.parquet", cache_dir=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").glob("cd-*")
    part = sorted(folder.glob("[0-9]*.parquet"))[0]
    shutil.copy(part, folder / ".x.parquet")
    (folder / f"._{part.name}").write_bytes(b"\0\5\x16\7")  # what macOS leaves on other disks
    again = write_cd_index(world, tmp_path / "again.parquet", cache_dir=tmp_path / "cache")
    assert again.read_bytes() == (tmp_path / "cd.parquet").read_bytes()


@pytest.mark.parametrize("name", ["refs", "ref_offsets", "citer_offsets", "year_offsets"])
@pytest.mark.parametrize("change", ["far", "negative", "cut", "half a number", "gone"])
def test_a_graph_that_would_lead_kernels_astray_is_refused(world, tmp_path, name, change):
    open_corpus_graph(world, cache_dir=world.parent / "kept")  # made once for all of these
    shutil.copytree(world.parent / "kept", tmp_path / "cache")
    (folder,) = (tmp_path / "cache").glob("graph-*")
    file = folder / f"{name}.bin"
    content = bytearray(file.read_bytes())
    width = 4 if name == "refs" else 8
    middle = len(content) // width // 2 * width
    if change == "gone":
        file.unlink()
    else:
        number = {"far": 1 << 30, "negative": -5}.get(change, 0)
        content[middle : middle + width] = number.to_bytes(width, "little", signed=True)
        file.write_bytes(content[: {"cut": -width, "half a number": -3}.get(change, len(content))])
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())
            if path.name != "SHA256SUMS"]  # fmt: skip
    (folder / "SHA256SUMS").write_text("".join(sums))
    with pytest.raises(StorageError, match=r"citation graph in .* is damaged"):
        open_corpus_graph(world, cache_dir=tmp_path / "cache")


# What to do about damage and links


@pytest.fixture
def scored(world, tmp_path) -> Path:
    return write_cd_index(world, tmp_path / "cd.parquet", cache_dir=world.parent / "scores")


@pytest.mark.parametrize("what", ["the footer's length", "the corpus", "the facts", "the name of the facts"])
def test_what_is_said_about_a_damaged_file_of_scores_is_what_helps(run, world, scored, what):
    whole = scored.read_bytes()
    at = {
        "the footer's length": len(whole) - 7,
        "the corpus": whole.index(b'"corpus_sha256": "') + 20,
        "the facts": whole.index(b'window_years"') + 12,
        "the name of the facts": whole.index(b"sciscidata_stage"),
    }[what]
    scored.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    status, _, told = run("verify", "cd.parquet")
    told = " ".join(told.split())
    assert status == 1
    assert "background" not in told or "neither" in told
    command = ("cd", str(world), "--out", "cd.parquet", "--cache-dir", str(world.parent / "scores"))
    status, _, refused = run(*command)
    assert status == 1
    if "with --overwrite" in told:
        assert "is there, and damaged" in refused
        assert run(*command, "--overwrite")[0] == 0
    else:
        assert "remove it and repeat the command that wrote it" in told
        assert "Choose another file, or remove it" in refused
        assert run(*command, "--overwrite")[0] == 1
        scored.unlink()
        assert run(*command)[0] == 0
    assert scored.read_bytes() == whole


@pytest.mark.parametrize("columns", [{"part": "work_id"}, {"work_id": "paper_id"}, None])
def test_a_list_of_removed_rows_with_other_columns_is_named(world, tmp_path, columns):
    folder = shutil.copytree(world, tmp_path / "out", ignore=shutil.ignore_patterns("cache"))
    file = folder / "removed.parquet"
    rows = pl.DataFrame(schema={"part": pl.String(), "work_id": pl.Int64()})
    rows = rows.cast({"work_id": pl.String()}) if columns is None else rows.select(*columns).rename(columns)
    rows.write_parquet(file)
    report = json.loads((folder / "corpus.json").read_text())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / "corpus.json").write_bytes(seal_json(report | {"removed_sha256": digest}))
    with pytest.raises(
        StorageError, match=r"removed.parquet is no list of removed rows \(part: String, work_id: Int64"
    ):
        scan_corpus(folder)


def test_a_corpus_of_an_earlier_version_is_refused_with_the_remedy(world, tmp_path):
    folder = shutil.copytree(world, tmp_path / "out", ignore=shutil.ignore_patterns("cache"))
    report = json.loads((folder / "corpus.json").read_text())
    del report["format_version"]
    (folder / "corpus.json").write_bytes(seal_json(report))
    with pytest.raises(InputNotFoundError, match=r"made by an earlier version.*Run the same ingest again"):
        scan_corpus(folder)
    assert ingest(WORLD, folder, cache_dir=tmp_path).works.select("n_authors").collect().height == 3_000


@pytest.mark.skipif(os.name != "posix", reason="links need rights there")
def test_the_cache_in_a_corpus_is_no_link_however_it_is_named_and_one_elsewhere_may_be(run, world, tmp_path):
    shutil.copytree(world, tmp_path / "world", ignore=shutil.ignore_patterns("cache"))
    (tmp_path / "victim").mkdir()
    (tmp_path / "world" / "cache").symlink_to(tmp_path / "victim")
    (tmp_path / "alias").symlink_to("world")
    names = ["world/cache", f"{tmp_path}/world/cache", "./world/../world/cache", "alias/cache", "world/cache/sub"]
    for option in ([], *(["--cache-dir", name] for name in names)):
        status, _, errors = run("graph", "world", *option)
        assert (status, "world/cache is a link" in errors) == (1, True), option
    slices = ["--n-train", "30", "--n-test", "3", "--out", "slice", "--cache-dir", f"{tmp_path}/world/cache"]
    assert run("build", "--corpus", "world", *slices)[0] == 1
    assert list((tmp_path / "victim").iterdir()) == []
    (tmp_path / "mine").symlink_to("victim")
    assert run("graph", "world", "--cache-dir", "mine")[0] == 0
    assert list((tmp_path / "victim").glob("graph-*"))


def test_what_lies_where_scores_are_to_be_by_then_is_not_replaced(world, tmp_path, monkeypatch):
    out = write_cd_index(world, tmp_path / "cd.parquet", cache_dir=tmp_path / "cache")
    seal = score_files.seal
    monkeypatch.setattr(score_files, "seal", lambda file: (out.write_text("years of work"), seal(file)))
    with pytest.raises(ReleaseExistsError, match="not replaced"):
        write_cd_index(world, out, CDConfig(window_years=3), cache_dir=tmp_path / "cache", overwrite=True)
    assert out.read_text() == "years of work"
