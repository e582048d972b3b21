"""The whole flow: real records and the synthetic world, the same bytes everywhere, and runs cut short."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from sciscidata.config import BuildConfig
from sciscidata.corpus.folder import CorpusConfig
from sciscidata.corpus.writer import write_corpus
from sciscidata.disruption.index import compute_cd_index
from sciscidata.eligibility import add_references
from sciscidata.errors import (
    BackgroundError,
    ConfigError,
    InputNotFoundError,
    NotEnoughWorksError,
    ReleaseExistsError,
    SchemaMismatchError,
)
from sciscidata.label_thresholds import (
    DISRUPTION_LABELS,
    LabelThresholds,
    compute_labels,
    compute_novelty_labels,
    count_labels,
)
from sciscidata.novelty.atypicality import compute_atypicality, join_atypicality
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.pipeline import build, write_background
from sciscidata.release.manifest import DOCUMENTS, NOVELTY_COLUMNS
from sciscidata.release.read import DATA_FILES, SCORES_FILE, Release
from sciscidata.release.verify import verify_release
from sciscidata.release.write_json_lines import render_jsonl
from sciscidata.sampling.balance import BALANCED
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.draw import draw
from sciscidata.schemas import EXAMPLE, Corpus
from sciscidata.sources.example.source import WORKS_FILE, ExampleConfig
from sciscidata.sources.kinds import Facts, Scored
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from sciscidata.stages import ingest
from tests.conftest import REPOSITORY, example_lines
from tests.program import run
from tests.real_graphs import read_reference
from tests.sampling.drawing import demand_of

#: SHA-256 of the default slice, `build_slice.py --source synthetic`. A change here is an entry under Data in the
#: CHANGELOG.
DEFAULT_SLICE = {
    "train.jsonl": "90213b7a0020e580178fead22f4bdffc7544fbc0ef4f6c267caa89de7aa3aecb",
    "test.jsonl": "8a01e4d59511234d4d2e5679b6730af61862791d79a443e415c635b6af44d74b",
}
#: The same for the slice of real records in the README.
SYNERGY_SLICE = {
    "train.jsonl": "0ca0734a6ffcd105686ed9f97c4e319f8cc77978c477dd51dba29ff54737af67",
    "test.jsonl": "67fc8adc7eea4012a23baa852c17955e28715b4867120176e3c612ae745066ed",
}
#: Both without novelty: what they were before novelty was part of a release. Ids, texts and disruption are the same.
DEFAULT_SLICE_WITHOUT_NOVELTY = {
    "train.jsonl": "80b1d5b74aba21e0f9738c75301c267bc3878b729d58310a23f6b1718f3538b4",
    "test.jsonl": "c93046a286919ce192710d95d3456e15fab0815e3b42a38b42cb64afd7b0b878",
}
SYNERGY_SLICE_WITHOUT_NOVELTY = {
    "train.jsonl": "ad6196123c058fc683e4eef5319ff1c09be598899ea9996a1965ed6f847b0154",
    "test.jsonl": "b0692b88babb8ac1105c0198d4cf8188baa4ff781d4adf940f036df09cbd8bba",
}
PICTURES = ("disruption.png", "novelty.png", "novelty_by_year.png")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hashes(folder: Path, names=DEFAULT_SLICE) -> dict[str, str]:
    return {name: sha256(folder / name) for name in names}


def small(tmp_path: Path, **changes) -> BuildConfig:
    settings = {
        "source": SyntheticConfig(n_works=4_000),
        "out": tmp_path / "slice",
        "split": SplitConfig(n_train=90, n_test=9),
        "cache_dir": tmp_path / "cache",
    }
    return BuildConfig(**(settings | changes))


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Release:
    """The small release with nothing changed; tests leave it as it is."""
    return build(small(tmp_path_factory.mktemp("plain")))


@pytest.mark.slow
def test_the_default_slice_has_the_pinned_bytes(tmp_path):
    done = run("build", "--source", "synthetic", "--out", "slice", "--cache-dir", "cache", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert hashes(tmp_path / "slice") == DEFAULT_SLICE
    manifest = json.loads((tmp_path / "slice" / "manifest.json").read_text())
    assert {name: manifest["files"][name]["sha256"] for name in DEFAULT_SLICE} == DEFAULT_SLICE
    assert [manifest["sides"][split]["rows"] for split in ("train", "test")] == [5000, 500]


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "rows"), [("1", "100000"), ("2", "500")])
def test_threads_and_batches_change_no_byte_of_a_slice(tmp_path, plain, threads, rows):
    """Batches of few rows come back in another order, where two threads work on them."""
    code = "import sys; from pathlib import Path; from tests.pipeline.test_pipeline import *; "
    code += "build(small(Path(sys.argv[1])))"
    settings = {"POLARS_MAX_THREADS": threads, "POLARS_ENGINE_AFFINITY": "streaming", "POLARS_IDEAL_MORSEL_SIZE": rows}
    command = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, env=os.environ | settings, check=True)
    assert hashes(tmp_path / "slice", DATA_FILES) == hashes(plain.folder, DATA_FILES)


@pytest.mark.rendered
def test_two_runs_give_the_same_files_parquet_and_manifest_too(tmp_path, plain):
    again = build(small(tmp_path))
    names = sorted(path.name for path in plain.folder.iterdir())
    assert names == sorted([*DATA_FILES, *DOCUMENTS, SCORES_FILE, "manifest.json", *PICTURES])
    assert hashes(plain.folder, names) == hashes(again.folder, names)


def test_real_records_give_a_verified_balanced_slice_with_the_pinned_bytes(tmp_path):
    config = small(tmp_path, source=ExampleConfig(), split=SplitConfig(n_train=120, n_test=30))
    release = build(config)
    verify_release(release.folder)
    assert hashes(release.folder) == SYNERGY_SLICE
    assert release.train["disruption_label"].value_counts(sort=True)["count"].to_list() == [40, 40, 40]
    filters = release.manifest["counts"]["filters"]
    assert filters["works"] == 4381
    assert filters["works"] - filters["eligible"] == sum(
        count for name, count in filters.items() if name not in ("works", "eligible")
    )
    assert str(tmp_path) not in (release.folder / "manifest.json").read_text()
    # Every released score is the one PyPI cdindex computed.
    expected = read_reference("example")[2].with_columns(openalex_id=pl.format("W{}", "work_id"))
    rows = pl.concat([release.train, release.test]).join(expected, on="openalex_id")
    assert rows.height == 150
    assert (rows["cd_index"] == rows["cd5"]).all()
    assert [rows[name].null_count() for name in NOVELTY_COLUMNS] == [72] * 3


def without_novelty(path: Path) -> bytes:
    """Take from canonical lines what novelty has put there."""
    lines = [json.loads(line) | dict.fromkeys(NOVELTY_COLUMNS) for line in path.read_bytes().split(b"\n")[:-1]]
    return render_jsonl(pl.DataFrame(lines, schema=EXAMPLE))


def test_novelty_changes_its_own_fields_and_neither_ids_nor_anything_else(tmp_path):
    records = ExampleConfig()
    split = SplitConfig(n_train=120, n_test=30)
    without = build(small(tmp_path, source=records, split=split, novelty=None))
    assert hashes(without.folder) == SYNERGY_SLICE_WITHOUT_NOVELTY
    assert without.manifest["novelty"]["available"] is False
    assert without.manifest["atypicality"] is None
    assert not (set(PICTURES[1:]) & set(without.manifest["files"]))
    ranked = build(small(tmp_path, source=records, split=split, novelty=NoveltyConfig(score="rank"), overwrite=True))
    assert hashes(ranked.folder) != SYNERGY_SLICE
    for name, before in SYNERGY_SLICE_WITHOUT_NOVELTY.items():
        assert hashlib.sha256(without_novelty(ranked.folder / name)).hexdigest() == before


@pytest.mark.slow
def test_the_default_slice_without_novelty_is_what_it_was_before_there_was_any(tmp_path):
    config = small(tmp_path, source=SyntheticConfig(), split=SplitConfig(), novelty=None)
    assert hashes(build(config).folder) == DEFAULT_SLICE_WITHOUT_NOVELTY


def test_released_novelty_is_that_of_compute_atypicality_over_the_whole_source(tmp_path):
    shuffles = NoveltyConfig(null="permutation", n_shuffles=5, seed=3)
    release = build(small(tmp_path, novelty=shuffles))
    world = scan_synthetic(SyntheticConfig(n_works=4_000))
    scores = compute_novelty_labels(compute_atypicality(world.works, world.citations, shuffles)).collect()
    expected = scores.select(*NOVELTY_COLUMNS, openalex_id=pl.format("W{}", "work_id"))
    for frame in (release.train, release.test):
        joined = frame.select("openalex_id").join(expected, on="openalex_id", how="left", maintain_order="left")
        assert frame.select(NOVELTY_COLUMNS).equals(joined.select(NOVELTY_COLUMNS))
    stated = release.manifest["atypicality"]
    assert stated["config"]["seed"] == 3
    assert stated["background"] is None
    assert stated["works"] == 4_000
    assert stated["scored_works"] == scores["z_p10"].count()
    assert stated["scored_pairs"] == scores.drop_nulls("z_p10")["n_pairs"].sum()
    assert stated["conventionality_cut"] == statistics.median_low(scores["z_median"].drop_nulls())
    eligible = release.manifest["counts"]["eligible"]["novelty_label"]
    assert release.manifest["counts"]["scored"]["novelty_label"] == count_labels(scores, "novelty_label")
    assert 0 < sum(eligible.values()) < release.manifest["counts"]["filters"]["eligible"]


@pytest.mark.parametrize(
    ("balance", "n_cells", "rule", "score"), [("novelty", 3, "uzzi", "sigmoid"), ("joint", 9, "margin", "rank")]
)
def test_novelty_can_be_balanced_alone_and_with_disruption(tmp_path, balance, n_cells, rule, score):
    config = small(
        tmp_path,
        split=SplitConfig(n_train=90, n_test=9, balance=balance),
        novelty=NoveltyConfig(score=score),
        thresholds=LabelThresholds(novelty_rule=rule),
    )
    release = build(config)
    verify_release(release.folder)
    columns = BALANCED[balance]
    for frame in (release.train, release.test):
        assert frame.group_by(columns).len()["len"].to_list() == [frame.height // n_cells] * n_cells


def test_a_background_of_the_source_itself_gives_the_same_lines_and_its_hash_in_the_manifest(tmp_path, plain):
    table = write_background(SyntheticConfig(n_works=4_000), tmp_path / "pairs.parquet", cache_dir=tmp_path / "cache")
    saved = build(small(tmp_path, background=table.path))
    assert hashes(plain.folder) == hashes(saved.folder)
    stated = saved.manifest["atypicality"]["background"]
    assert stated["sha256"] == sha256(table.path)
    assert stated["n_pairs"] == pl.read_parquet(table.path).height
    assert (stated["first_year"], stated["last_year"]) == (1980, 2024)
    assert str(tmp_path) not in (saved.folder / "manifest.json").read_text()
    verify_release(saved.folder)


def test_a_background_that_does_not_fit_is_refused_before_anything_is_read(tmp_path):
    table = write_background(SyntheticConfig(n_works=500), tmp_path / "pairs.parquet", cache_dir=tmp_path / "before")
    shuffles = NoveltyConfig(null="permutation")
    with pytest.raises(ConfigError, match="another null model"):
        build(small(tmp_path, background=table.path, novelty=shuffles))
    with pytest.raises(InputNotFoundError, match="no background at"):
        build(small(tmp_path, background=tmp_path / "none.parquet"))
    with pytest.raises(BackgroundError, match="no Parquet file"):
        build(small(tmp_path, background=Path(__file__)))
    assert not (tmp_path / "cache").exists()


def test_a_background_replaces_nothing_but_a_background_and_only_when_asked(tmp_path):
    path, source = tmp_path / "pairs.parquet", SyntheticConfig(n_works=500)
    write_background(source, path, cache_dir=tmp_path)
    before = sha256(path)
    other = NoveltyConfig(null="permutation")
    with pytest.raises(ReleaseExistsError, match="overwrite=True"):
        write_background(source, path, other, cache_dir=tmp_path)
    assert sha256(path) == before
    assert write_background(source, path, other, cache_dir=tmp_path, overwrite=True).null_model["n_shuffles"] == 10
    thesis = tmp_path / "thesis.parquet"
    thesis.write_text("years of work")
    folder = tmp_path / "folder.parquet"
    folder.mkdir()
    for foreign in (thesis, folder):
        with pytest.raises(ReleaseExistsError, match="not replaced"):
            write_background(source, foreign, cache_dir=tmp_path, overwrite=True)
    assert thesis.read_text() == "years of work"
    with pytest.raises(ConfigError, match="the OpenAlex API gives a sample"):
        write_background(OpenAlexConfig(), tmp_path / "new.parquet")


def test_reading_the_records_in_another_order_or_in_parts_gives_the_same_slice(tmp_path):
    lines = list(example_lines())
    random.Random(3).shuffle(lines)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines[:2000]))
    with gzip.open(tmp_path / "b.jsonl.gz", "wb", compresslevel=1) as file:
        file.write(b"\n".join(lines[2000:]))
    inputs = (str(tmp_path / "b.jsonl.gz"), str(tmp_path / "a.jsonl"))
    config = small(tmp_path, source=RecordsConfig(inputs=inputs), split=SplitConfig(n_train=120, n_test=30))
    assert hashes(build(config).folder) == SYNERGY_SLICE


def test_an_impossible_quota_names_side_class_and_remedy_and_leaves_nothing(tmp_path):
    config = small(tmp_path, split=SplitConfig(n_train=5_000, n_test=500))
    with pytest.raises(NotEnoughWorksError, match=r"train needs 1,66. 'neutral' works, found \d+ of 2,\d+ eligible"):
        build(config)
    assert not config.out.exists()


@pytest.mark.parametrize("balance", ["novelty", "joint"])
def test_what_needs_novelty_is_refused_at_once_where_it_is_switched_off(tmp_path, balance):
    with pytest.raises(ConfigError, match="novelty is switched off"):
        small(tmp_path, novelty=None, split=SplitConfig(balance=balance))
    with pytest.raises(ConfigError, match="background is given, but novelty is switched off"):
        small(tmp_path, novelty=None, background="pairs.parquet")


def test_without_balancing_the_natural_shares_are_drawn(tmp_path):
    release = build(small(tmp_path, split=SplitConfig(n_train=600, n_test=60, balance="none")))
    counts = release.manifest["class_counts"]["train"]["disruption_label"]
    eligible = release.manifest["counts"]["eligible"]["disruption_label"]
    assert sum(counts.values()) == 600
    for label in DISRUPTION_LABELS:
        assert counts[label] / 600 == pytest.approx(eligible[label] / sum(eligible.values()), abs=0.06)
    verify_release(release.folder)


def test_records_and_the_corpus_made_of_them_give_the_same_slice_repeated_papers_too(tmp_path):
    """Of papers on record twice both take the lowest id: five pairs of the example would be drawn here."""
    records = RecordsConfig(inputs=(str(WORKS_FILE),))
    ingest(records, tmp_path / "corpus", cache_dir=tmp_path / "cache")
    split = SplitConfig(n_train=900, n_test=150, balance="none")
    corpus = CorpusConfig(folder=tmp_path / "corpus")
    one = build(small(tmp_path, source=records, split=split, novelty=None))
    other = build(small(tmp_path, source=corpus, split=split, novelty=None, out=tmp_path / "other"))
    assert hashes(one.folder) == hashes(other.folder)
    filters = [release.manifest["counts"]["filters"] for release in (one, other)]
    assert [stated["duplicate"] for stated in filters] == [5, 5]


def test_a_chain_of_repeated_papers_is_one_paper_for_a_corpus_too(tmp_path):
    """Each shares a title or a DOI with the next, and only the whole chain shows which id is the lowest.

    One that may not be drawn, for it has no abstract, joins nothing.
    """
    world = scan_synthetic(SyntheticConfig(n_works=3_000))
    works = world.works.collect()
    eligible = build(small(tmp_path, source=SyntheticConfig(n_works=3_000), novelty=None)).train["openalex_id"]
    chained = sorted(int(name[1:]) for name in eligible)[:60]
    is_chained = pl.col("work_id").is_in(chained)
    place = pl.col("work_id").replace_strict({work: n for n, work in enumerate(chained)}, default=None)
    works = works.with_columns(
        title=pl.when(is_chained).then(pl.format("Chain {}", place // 2)).otherwise("title"),
        doi=pl.when(is_chained).then(pl.format("10.1/{}", (place + 1) // 2)).otherwise("doi"),
        abstract=pl.when(pl.col("work_id") != chained[30]).then("abstract"),
    )
    corpus = Corpus(works.lazy(), world.citations, {"kind": "test"})
    write_corpus(corpus, tmp_path / "chained")
    split = SplitConfig(n_train=900, n_test=90, balance="none")
    late = build(small(tmp_path, source=CorpusConfig(folder=tmp_path / "chained"), split=split, out=tmp_path / "late"))
    drawn = {int(name[1:]) for split in (late.train, late.test) for name in split["openalex_id"]}
    scores = compute_labels(
        join_atypicality(compute_cd_index(works.lazy(), world.citations), works.lazy(), world.citations, None),
        LabelThresholds(),
    )
    rows = add_references(scores, world.citations)
    early = draw(Scored(rows, Facts({}, works.lazy()), works.lazy()), demand_of(split))
    assert drawn == set(early.drawn["work_id"])
    assert drawn & set(chained) <= {chained[0], chained[31]}
    assert late.manifest["counts"]["filters"]["duplicate"] > 20


def test_a_background_may_be_made_of_frames_of_ones_own(tmp_path):
    config = SyntheticConfig(n_works=500)
    works, citations, _ = scan_synthetic(config)
    own = write_background(Corpus(works, citations, {}), tmp_path / "own.parquet", cache_dir=tmp_path)
    named = write_background(config, tmp_path / "named.parquet", cache_dir=tmp_path)
    assert sha256(own.path) == sha256(named.path)
    with pytest.raises(SchemaMismatchError, match="source_id"):
        write_background(Corpus(works.drop("source_id"), citations, {}), tmp_path / "wrong.parquet")
    assert not (tmp_path / "wrong.parquet").exists()


def test_what_a_notebook_shows_is_short(tmp_path, plain):
    config, release = small(tmp_path), Release(tmp_path / "slice", plain.manifest)
    corpus = scan_synthetic(SyntheticConfig(n_works=500))
    background = write_background(corpus, tmp_path / "pairs.parquet", cache_dir=tmp_path)
    for shown in (repr(corpus), repr(background), repr(release), repr(config), repr(NoveltyConfig())):
        assert len(shown.replace(str(tmp_path), "")) < 300
        assert shown.count("\n") <= 3
    assert "train: " in repr(release)
    assert repr(NoveltyConfig()) == "NoveltyConfig()"
    assert repr(NoveltyConfig(n_shuffles=7)) == "NoveltyConfig(n_shuffles=7)"
