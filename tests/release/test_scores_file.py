"""``scores.parquet``: what the scores of a release follow from. Every change of a number in it is found."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sciscidata.config import BuildConfig
from sciscidata.corpus.folder import CorpusConfig
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import compute_cd_index
from sciscidata.eligibility import count_references
from sciscidata.errors import InputNotFoundError, VerificationError
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.atypicality import add_scores, compute_atypicality
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.pipeline import build, export_labelled
from sciscidata.release.manifest import DOCUMENTS
from sciscidata.release.read import DATA_FILES, SCORES_FILE, Release, read_release
from sciscidata.release.verify import _check_labels, verify
from sciscidata.release.write_json_lines import render_jsonl
from sciscidata.sampling.config import SplitConfig
from sciscidata.schemas import SCORES, WORKS
from sciscidata.sources.labelled import LabelledConfig
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from sciscidata.stages import ingest
from tests.release.test_release import restate

WORLD = SyntheticConfig(n_works=3_000)
#: SHA-256 of the rows as canonical lines. A change here is an entry under Data in the CHANGELOG.
PINNED = "00f8429a95df69a361ca16bc607991f03b885cb3ebacbd97caa49173b82753f4"
FROM_WORKS = ("doi", "source_id", "source_name", "language", "work_type")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scores")


def make(home: Path, name: str, **changes: Any) -> Release:
    split = SplitConfig(n_train=60, n_test=9, n_dev=6)
    settings = {"source": WORLD, "out": home / name, "split": split, "cache_dir": home / "cache"}
    return build(BuildConfig(**(settings | changes)))


@pytest.fixture(scope="module")
def margin(home: Path) -> Release:
    return make(home, "margin")


@pytest.fixture(scope="module")
def uzzi(home: Path) -> Release:
    return make(home, "uzzi", thresholds=LabelThresholds(novelty_rule="uzzi"))


@pytest.fixture(scope="module")
def rank(home: Path) -> Release:
    options = {"novelty": NoveltyConfig(score="rank"), "thresholds": LabelThresholds(novelty_rule="uzzi")}
    return make(home, "rank", **options)


def test_it_holds_what_the_stages_compute_for_the_released_works_in_their_order(margin: Release) -> None:
    works, citations, _ = scan_synthetic(WORLD)
    ids = pl.concat([margin.train, margin.test, margin.dev])["openalex_id"]
    expected = pl.DataFrame({"work_id": ids.str.strip_prefix("W").cast(pl.Int64)})
    frames = (
        works.select("work_id", *FROM_WORKS).collect(),
        compute_cd_index(works, citations).collect(),
        compute_atypicality(works, citations).collect(),
        count_references(citations).collect(),
    )
    for frame in frames:
        expected = expected.join(frame, on="work_id", how="left", maintain_order="left")
    sizes = {"train": 60, "test": 9, "dev": 6}
    expected = expected.with_columns(ids, split=pl.Series([name for name, n in sizes.items() for _ in range(n)]))
    assert margin.scores.schema == SCORES
    assert margin.scores.equals(expected.select(SCORES.names()).cast(SCORES))
    assert margin.scores["n_pairs"].max() > 1
    assert {name: WORKS[name] for name in FROM_WORKS} == {name: SCORES[name] for name in FROM_WORKS}


def test_its_numbers_are_the_same_everywhere(margin: Release) -> None:
    # Of its bytes, as of other Parquet files, this holds within one environment.
    assert hashlib.sha256(render_jsonl(margin.scores)).hexdigest() == PINNED


@pytest.mark.rendered
def test_nothing_else_in_a_release_changes_with_it(margin: Release, home: Path) -> None:
    without = make(home, "without", scores_file=False)
    names = {path.name for path in margin.folder.iterdir()}
    assert names - {path.name for path in without.folder.iterdir()} == {SCORES_FILE}
    for name in names - {SCORES_FILE, *DOCUMENTS, "manifest.json"}:
        assert (margin.folder / name).read_bytes() == (without.folder / name).read_bytes()
    stated = [
        {key: value for key, value in manifest.items() if key not in ("files", "manifest_sha256", "label_prior")}
        for manifest in (margin.manifest, without.manifest)
    ]
    assert stated[0] == stated[1]
    assert "label_prior" in margin.manifest  # without counts, no confidence follows from it
    assert "label_prior" not in without.manifest
    files = dict(margin.manifest["files"])
    assert set(files.pop(SCORES_FILE)) == {"bytes", "sha256"}
    data = {*files} - {*DOCUMENTS}  # the documents name the file of scores
    assert {name: files[name] for name in data} == {name: without.manifest["files"][name] for name in data}


def test_a_release_without_it_is_read_and_verified_as_before(home: Path) -> None:
    release = make(home, "before", scores_file=False)
    found = verify(release.folder)
    assert found.counts == {"dev": 6, "test": 9, "train": 60}
    assert found.recomputed is not None
    assert set(found.recomputed.done) == {"disruption_label", "novelty_label"}
    assert "there is no scores.parquet" in found.recomputed.left["cd_index"]
    assert "scores.parquet" not in repr(release)
    with pytest.raises(InputNotFoundError, match=r"has no scores\.parquet.*BuildConfig\.scores_file=True"):
        _ = read_release(release.folder).scores


def test_it_shows_in_a_release(rank: Release) -> None:
    assert "scores.parquet: what the scores follow from" in repr(rank)
    (rank.folder / SCORES_FILE).rename(rank.folder / "kept")
    with pytest.raises(InputNotFoundError, match=r"lacks scores\.parquet"):
        read_release(rank.folder)
    (rank.folder / "kept").rename(rank.folder / SCORES_FILE)


def test_works_drawn_before_their_texts_have_the_same_file(margin: Release, home: Path) -> None:
    ingest(WORLD, home / "corpus", cache_dir=home / "cache")
    late = make(home, "late", source=CorpusConfig(folder=home / "corpus"))
    assert verify(late.folder).recomputed == verify(margin.folder).recomputed
    for name in (*DATA_FILES, SCORES_FILE):
        assert (late.folder / name).read_bytes() == (margin.folder / name).read_bytes()


@pytest.mark.parametrize(
    "cd",
    [
        CDConfig(uncited="null_if_never", undefined="zero"),
        CDConfig.compat("novelpy"),
        CDConfig.compat("pyscisci"),
        CDConfig.compat("sciscinet_v1_cd5", family=True),
    ],
    ids=["zero", "novelpy", "pyscisci", "cd5"],
)
@pytest.mark.parametrize("is_corpus", [False, True], ids=["plain", "late"])
def test_every_convention_of_the_cd_index_is_recomputed(home: Path, cd: CDConfig, is_corpus: bool) -> None:
    source: Any = WORLD
    if is_corpus:
        source = CorpusConfig(folder=home / "conventions")
        if not (home / "conventions").exists():
            ingest(WORLD, home / "conventions", cache_dir=home / "cache")
    thresholds = LabelThresholds(novelty_rule="uzzi")
    changes = {"source": source, "cd": cd, "overwrite": True, "thresholds": thresholds}
    release = make(home, "convention", split=SplitConfig(n_train=300, n_test=0, balance="none"), **changes)
    found = verify(release.folder).recomputed
    assert found is not None
    assert found.done["cd_index"] == "n_i, n_j, n_k"
    scores = release.scores
    ratio = (pl.col("n_i").cast(pl.Int64) - pl.col("n_j")) / (pl.col("n_i") + pl.col("n_j") + pl.col("n_k"))
    assert scores.select(ratio.fill_nan(0.0).alias("cd_index"))["cd_index"].equals(release.train["cd_index"])


@pytest.mark.parametrize("undefined", ["infinite", "drop"])
def test_uzzis_labels_follow_from_z_where_pairs_are_undefined(home: Path, undefined: Any) -> None:
    novelty = NoveltyConfig(undefined_pairs=undefined, null="permutation")
    options = {"novelty": novelty, "thresholds": LabelThresholds(novelty_rule="uzzi"), "overwrite": True}
    release = make(home, "undefined", split=SplitConfig(n_train=300, n_test=0, balance="none"), **options)
    done, _ = verify(release.folder).recomputed or ({}, {})
    assert done["novelty_label"] == "z_p10, z_median, conventionality_cut of the manifest"


def test_what_was_recomputed_is_said(margin: Release, uzzi: Release, rank: Release, home: Path) -> None:
    in_all = {"cd_index": "n_i, n_j, n_k", "disruption_label": "cd_index"}
    of_z = {"novelty_score": "z_p10", "conventionality_score": "z_median"}
    by_score = {"novelty_label": "novelty_score, conventionality_score"}
    by_z = {"novelty_label": "z_p10, z_median, conventionality_cut of the manifest"}
    assert verify(margin.folder).recomputed == (in_all | of_z | by_score, {})
    assert verify(uzzi.folder).recomputed == (in_all | of_z | by_z, {})
    done, left = verify(rank.folder).recomputed or ({}, {})
    assert done == in_all | by_z
    assert {name: reason.partition(";")[0] for name, reason in left.items()} == dict.fromkeys(
        of_z, "a rank among all works of a year"
    )
    without = make(home, "plain", novelty=None)
    assert verify(without.folder).recomputed == (in_all, {})
    assert without.scores["z_p10"].null_count() == without.scores.height


@pytest.mark.parametrize("labels", ["check", "trust"])
def test_labelled_files_know_no_counts_and_none_are_invented(home: Path, labels: Any) -> None:
    if not (home / "labelled").exists():
        export_labelled(BuildConfig(source=WORLD, out=home / "labelled", cache_dir=home / "cache"))
    source = LabelledConfig(inputs=(str(home / "labelled"),), labels=labels)
    release = make(home, f"again-{labels}", source=source)
    known = {name for name in SCORES if release.scores[name].null_count() < release.scores.height}
    assert known == {"openalex_id", "split"}
    done, left = verify(release.folder).recomputed or ({}, {})
    assert left["cd_index"] == "its counts are not known"
    assert left["novelty_score"] == "z is not known"
    assert ("disruption_label" in done) == (labels == "check")


def edit(**changes: pl.Expr) -> Any:
    return lambda frame: frame.with_columns(**changes)


def in_first_row(name: str, value: pl.Expr) -> Any:
    is_first = pl.int_range(pl.len()) == pl.arg_where(pl.col(name).is_not_null()).first()
    return edit(**{name: pl.when(is_first).then(value).otherwise(name).cast(SCORES[name])})


DAMAGES: dict[str, tuple[Any, str]] = {
    "n_i": (in_first_row("n_i", pl.col("n_i") + 1), "cd_index of 1 row does not follow from n_i, n_j, n_k"),
    "n_j": (in_first_row("n_j", pl.col("n_j") + 1), "cd_index of 1 row does not follow"),
    "n_k of all": (edit(n_k=pl.col("n_k") + 1), "cd_index of"),
    "no counts": (edit(n_i=pl.lit(None, pl.UInt32)), "train: cd_index of 60 rows does not follow"),
    "no references": (edit(n_references=pl.lit(0, pl.Int64)), "train: cd_index of 60 rows does not follow"),
    "a lost z": (in_first_row("z_p10", pl.lit(None)), "novelty_score of 1 row "),
    "z of all": (edit(z_median=pl.col("z_median").reverse()), "conventionality_score of"),
    "no z": (edit(z_p10=pl.lit(None, pl.Float64)), "novelty_score of"),
    "a row less": (lambda frame: frame.head(-1), "scores.parquet: 74 rows, the splits have 75"),
    "a row twice": (lambda frame: pl.concat([frame, frame.tail(1)]), "scores.parquet: 76 rows, the splits have 75"),
    "the first row gone": (lambda frame: frame.tail(-1), "scores.parquet row 1 is W"),
    "another order": (lambda frame: frame.reverse(), "scores.parquet row 1 is W"),
    "another work": (in_first_row("openalex_id", pl.lit("W1")), "scores.parquet row 1 is W1 of train, needs W"),
    "another split": (in_first_row("split", pl.lit("dev")), "of dev, needs W"),
    "no id": (in_first_row("openalex_id", pl.lit(None)), "scores.parquet row 1 is None of train, needs W"),
    "a column less": (lambda frame: frame.drop("n_k"), "scores.parquet has other columns than SCORES: no n_k"),
    "another type": (edit(n_i=pl.col("n_i").cast(pl.Int64)), "other columns than SCORES: n_i Int64"),
}


@pytest.fixture
def copy(uzzi: Release, tmp_path: Path) -> Path:
    return Path(shutil.copytree(uzzi.folder, tmp_path / "copy"))


@pytest.mark.parametrize("name", DAMAGES)
def test_a_change_is_found_by_its_hash_and_by_recomputation_where_the_manifest_fits(copy: Path, name: str) -> None:
    change, finding = DAMAGES[name]
    change(pl.read_parquet(copy / SCORES_FILE)).write_parquet(copy / SCORES_FILE)
    with pytest.raises(VerificationError, match=r"scores\.parquet: sha256"):
        verify(copy)
    with pytest.raises(VerificationError, match=r"scores\.parquet is damaged"):
        _ = read_release(copy).scores
    restate(copy)
    with pytest.raises(VerificationError) as caught:
        verify(copy)
    assert finding in str(caught.value)


def test_a_file_that_is_no_parquet_is_named(copy: Path) -> None:
    (copy / SCORES_FILE).write_bytes(b"PAR1 or not")
    restate(copy)
    with pytest.raises(VerificationError, match=r"scores\.parquet cannot be read"):
        verify(copy)


@pytest.mark.parametrize("key", ["cd", "atypicality"])
def test_a_manifest_whose_conventions_cannot_be_read_is_said(copy: Path, key: str) -> None:
    restate(copy, **{key: {"config": {"score": "sigmoid"}, "window": 5}})
    with pytest.raises(VerificationError):
        verify(copy)


def test_another_cut_of_uzzis_rule_is_found(copy: Path) -> None:
    restate(copy, thresholds=read_release(copy).manifest["thresholds"] | {"uzzi_tail_max": -1.0})
    with pytest.raises(VerificationError, match="novelty_label of"):
        verify(copy)


@pytest.mark.parametrize(("z_median", "label"), [(70.0, "balanced"), (9.0, "novel")])
def test_a_z_beyond_8_tells_a_label_of_uzzis_rule_where_its_sigmoid_does_not(z_median: float, label: str) -> None:
    z = pl.DataFrame({"publication_year": [2000], "z_p10": [-1.0], "z_median": [z_median]})
    row = {"openalex_id": "W1", "cd_index": 0.0, "disruption_label": "neutral", "novelty_label": "balanced"}
    frame = add_scores(z, "sigmoid").with_columns(pl.lit(value).alias(name) for name, value in row.items())
    stated = {"config": {"score": "sigmoid"}, "conventionality_cut": 69.0}
    options = ("train", frame.drop("z_p10", "z_median"), LabelThresholds(novelty_rule="uzzi"), stated)
    assert not list(_check_labels(*options))
    assert bool(list(_check_labels(*options, z.drop("publication_year")))) == (label != "balanced")


def test_a_z_that_changes_places_is_found_behind_ranks_too(rank: Release, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(rank.folder, tmp_path / "copy"))
    frame = pl.read_parquet(copy / SCORES_FILE)
    frame.with_columns(z_p10=-pl.col("z_p10")).write_parquet(copy / SCORES_FILE)
    restate(copy)
    with pytest.raises(VerificationError, match=r"novelty_score of .* rows is not in the order of z_p10"):
        verify(copy)


@pytest.mark.parametrize("name", FROM_WORKS)
def test_what_follows_from_nothing_else_is_known_by_its_hash_alone(copy: Path, name: str) -> None:
    frame = pl.read_parquet(copy / SCORES_FILE)
    frame.with_columns(pl.lit(None, SCORES[name]).alias(name)).write_parquet(copy / SCORES_FILE)
    with pytest.raises(VerificationError, match=r"scores\.parquet: sha256"):
        verify(copy)
    restate(copy)
    verify(copy)
