"""Labelled files give the release that their source gives; what they cannot say is refused or left out by name."""

from __future__ import annotations

import gzip
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

from sciscidata import (
    BuildConfig,
    CDConfig,
    EligibilityConfig,
    ExampleConfig,
    LabelledConfig,
    LabelThresholds,
    NoveltyConfig,
    OwnLabel,
    SplitConfig,
    SyntheticConfig,
    build,
    export_labelled,
    scan_synthetic,
    verify,
    write_background,
)
from sciscidata.cli.main import main
from sciscidata.disruption.index import compute_cd_index
from sciscidata.eligibility import count_references
from sciscidata.errors import (
    ConfigError,
    CorruptRecordError,
    EmptyInputError,
    LabelMismatchError,
    NotEnoughWorksError,
    SchemaMismatchError,
    WorkIdError,
)
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.stages import ingest

WORLD = SyntheticConfig(n_works=3_000)
SPLIT = SplitConfig(n_train=60, n_test=9)
#: The filters for which a release has the fields.
TEXT_ONLY: dict[str, Any] = {"exclude_retracted": False, "languages": (), "min_references": 0, "min_citations": 0}
SETTINGS = EligibilityConfig(last_year=2024, **TEXT_ONLY)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labelled")


@pytest.fixture(scope="module")
def export(home: Path) -> Path:
    export_labelled(BuildConfig(source=WORLD, out=home / "all", cache_dir=home / "cache"))
    return home / "all"


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}


def draw(home: Path, out: Path, *inputs: Path | str, **changes: Any) -> dict[str, bytes]:
    labels = {"labels": changes.pop("labels")} if "labels" in changes else {}
    source = LabelledConfig(inputs=tuple(map(str, inputs)), **labels)
    settings = {"eligibility": SETTINGS, "split": SPLIT, "cache_dir": home / "cache"} | changes
    release = build(BuildConfig(source=source, out=out, **settings))
    verify(release.folder)
    return bytes_of(release.folder)


@pytest.mark.parametrize("balance", ["joint", "pool", "none"])
def test_an_export_gives_the_release_that_its_source_gives(
    home: Path, export: Path, tmp_path: Path, balance: Any
) -> None:
    split = SplitConfig(n_train=18, n_test=9, n_dev=9, balance=balance)
    places = {"out": tmp_path / "direct", "cache_dir": home / "cache"}
    direct = build(BuildConfig(source=WORLD, eligibility=SETTINGS, split=split, **places))
    assert draw(home, tmp_path / "labelled", export, split=split) == bytes_of(direct.folder)


def test_real_records_give_the_same_release_through_an_export(tmp_path: Path) -> None:
    records = ExampleConfig()
    settings = EligibilityConfig(last_year=2022, **TEXT_ONLY)
    places = {"cache_dir": tmp_path / "cache"}
    export_labelled(BuildConfig(source=records, out=tmp_path / "all", **places))
    direct = build(BuildConfig(source=records, out=tmp_path / "direct", eligibility=settings, split=SPLIT, **places))
    drawn = draw(tmp_path, tmp_path / "drawn", tmp_path / "all", eligibility=settings)
    assert drawn == bytes_of(direct.folder)
    assert draw(tmp_path, tmp_path / "again", direct.folder, eligibility=settings) == drawn


def test_with_the_columns_of_the_filters_no_filter_is_left_out(home: Path, export: Path, tmp_path: Path) -> None:
    works, citations, _ = scan_synthetic(WORLD)
    counts = compute_cd_index(works, citations).select("work_id", n_citers=pl.col("n_i") + pl.col("n_j"))
    facts = works.select("work_id", "language", "work_type", "is_retracted", "doi")
    beside = facts.join(counts, on="work_id").join(count_references(citations), on="work_id", how="left")
    rows = pl.scan_ndjson(export / "labelled.jsonl", infer_schema_length=None).with_columns(
        work_id=pl.col("openalex_id").str.strip_prefix("W").cast(pl.Int64)
    )
    rows.join(beside, on="work_id").drop("work_id").collect().write_parquet(tmp_path / "all.parquet")
    for settings in (EligibilityConfig(last_year=2024), EligibilityConfig(last_year=2024, min_references=9)):
        name = str(settings.min_references)
        places = {"out": tmp_path / name, "cache_dir": home / "cache"}
        direct = build(BuildConfig(source=WORLD, split=SPLIT, eligibility=settings, **places))
        drawn = draw(home, tmp_path / f"{name} drawn", tmp_path / "all.parquet", eligibility=settings)
        assert drawn == bytes_of(direct.folder)


def test_every_kind_of_file_gives_the_same_works(home: Path, export: Path, tmp_path: Path) -> None:
    lines = (export / "labelled.jsonl").read_bytes()
    expected = draw(home, tmp_path / "0", export)
    (tmp_path / "one.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "two.zst").write_bytes(zstandard.compress(lines))
    rows = pl.read_ndjson(lines, infer_schema_length=None)
    rows.with_columns(pl.col("primary_field").cast(pl.Categorical)).write_parquet(tmp_path / "three.parquet")
    halves = lines.splitlines(keepends=True)
    (tmp_path / "part-1.jsonl").write_bytes(b"\n" + b"".join(halves[:999]))
    rows[999:].write_parquet(tmp_path / "part-2.parquet")
    for number, given in enumerate([("one.gz",), ("two.zst",), ("three.parquet",), ("part-*",)], 1):
        assert draw(home, tmp_path / str(number), *(tmp_path / name for name in given)) == expected


def test_filters_without_their_columns_are_left_out_by_name_or_refused(
    home: Path, export: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        drawn = draw(home, tmp_path / "slice", export, eligibility=EligibilityConfig(last_year=2024))
    left_out = ["exclude_retracted", "languages", "min_references", "min_citations"]
    assert f"lack the columns for {', '.join(left_out)}" in caplog.text
    assert json.loads((tmp_path / "slice" / "manifest.json").read_bytes())["source"]["filters_left_out"] == left_out
    assert drawn == draw(home, tmp_path / "off", export)
    for name, value in {"min_references": 2, "languages": ("de",), "work_types": ("article",)}.items():
        with pytest.raises(ConfigError, match=rf"EligibilityConfig\.{name} is .*no column"):
            draw(home, tmp_path / "x", export, eligibility=EligibilityConfig(**{name: value}))


def test_labels_are_checked_trusted_or_computed_again(home: Path, export: Path, tmp_path: Path) -> None:
    wide = LabelThresholds.preset("wide")
    with pytest.raises(LabelMismatchError, match=r"'disruptive' should be 'neutral' \(W.*LabelledConfig\.labels="):
        draw(home, tmp_path / "x", export, thresholds=wide)
    places = {"out": tmp_path / "direct", "cache_dir": home / "cache"}
    direct = build(BuildConfig(source=WORLD, eligibility=SETTINGS, split=SPLIT, thresholds=wide, **places))
    again = draw(home, tmp_path / "again", export, thresholds=wide, labels="recompute")
    assert again == bytes_of(direct.folder)
    trusted = draw(home, tmp_path / "trusted", export, thresholds=wide, labels="trust")
    assert trusted == draw(home, tmp_path / "narrow", export)
    stated = json.loads((tmp_path / "trusted" / "manifest.json").read_bytes())["source"]
    assert stated["labels"] == "trust"
    assert stated["contradicting"]["disruption_label"] > 100


@pytest.mark.parametrize("balance", ["disruption", "joint", "label", "none"])
@pytest.mark.parametrize("labels", ["check", pytest.param("trust", marks=pytest.mark.rendered), "recompute"])
def test_what_is_built_by_any_labels_and_any_balance_is_verified(
    home: Path, export: Path, tmp_path: Path, labels: str, balance: Any
) -> None:
    rows = pl.read_ndjson(export / "labelled.jsonl", infer_schema_length=None).with_columns(own=pl.col("cd_index") > 0)
    row = pl.int_range(pl.len())
    gaps = [pl.when(row % 3 < n).then(name).alias(name) for n, name in enumerate(VOCABULARIES, 1)]
    names = [*VOCABULARIES]
    files = {"whole": rows, "gaps": rows.with_columns(gaps), "none": rows.drop(names)}
    files["swapped"] = rows.with_columns(pl.col(name).shuffle(seed=3) for name in names)
    label = OwnLabel(classes=("true", "false"), column="own")
    split, settings = SplitConfig(n_train=9, n_test=9, balance=balance), {"labels": labels, "label": label}
    built = list[str]()
    for name, frame in files.items():
        frame.write_parquet(tmp_path / f"{name}.parquet")
        with suppress(LabelMismatchError, NotEnoughWorksError):
            draw(home, tmp_path / name, tmp_path / f"{name}.parquet", split=split, **settings)  # verifies it, too
            built.append(name)
    can_lack_labels = labels == "recompute" or balance.startswith(("label", "none"))
    expected = ["whole", "gaps", *(["none"] if can_lack_labels else []), "swapped"]
    assert built == (["whole"] if labels == "check" else expected)


def test_of_uzzis_rule_only_the_presence_of_labels_is_checked(home: Path, tmp_path: Path) -> None:
    uzzi = LabelThresholds(novelty_rule="uzzi")
    places = {"cache_dir": home / "cache"}
    export_labelled(BuildConfig(source=WORLD, out=tmp_path / "all", thresholds=uzzi, **places))
    direct = build(
        BuildConfig(source=WORLD, out=tmp_path / "direct", eligibility=SETTINGS, split=SPLIT, thresholds=uzzi, **places)
    )
    assert draw(home, tmp_path / "drawn", tmp_path / "all", thresholds=uzzi) == bytes_of(direct.folder)
    with pytest.raises(LabelMismatchError, match="novelty_label"):
        draw(home, tmp_path / "x", tmp_path / "all")
    with pytest.raises(ConfigError, match="labels by z, which labelled files do not hold"):
        draw(home, tmp_path / "x", tmp_path / "all", thresholds=uzzi, labels="recompute")
    lines = (tmp_path / "all" / "labelled.jsonl").read_text().splitlines()
    first = json.loads(lines[0]) | {"novelty_score": 0.5, "conventionality_score": 0.5, "novelty_label": None}
    (tmp_path / "one.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]))
    with pytest.raises(LabelMismatchError, match="1 novelty_label None should be 'a label'"):
        draw(home, tmp_path / "x", tmp_path / "one.jsonl", thresholds=uzzi)


def test_a_release_can_be_planned_and_repeated(
    home: Path, export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = SplitConfig(n_train=18, n_test=9, n_dev=9, balance="novelty")
    drawn = draw(home, tmp_path / "first", export, split=split)
    words = ["build", "--labelled", str(export), "--cache-dir", str(home / "cache")]
    assert main([*words, "--n-dev", "20", "--dry-run"]) == 0
    plan = capsys.readouterr().out
    assert "would read: 1 file of labelled works" in plan
    assert "would draw: 5,000 train, 500 test and 20 dev works" in plan
    assert main([*words, "--from-manifest", str(tmp_path / "first"), "--out", str(tmp_path / "again")]) == 0
    assert "the lines of train, test and dev are those of" in capsys.readouterr().out
    assert bytes_of(tmp_path / "again") == drawn
    assert main(["describe", str(tmp_path / "first"), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    totals = re.search(r"<tr><td>train / test / dev</td>(?:<td>[^<]*</td>)*<td>([^<]+)</td></tr>", page)
    assert totals[1] == "18 / 9 / 9"


ROW: dict[str, Any] = {
    "openalex_id": "W1",
    "title": "On sleep",
    "publication_year": 2000,
    "cd_index": 0.5,
    "disruption_label": "disruptive",
}


@pytest.mark.parametrize(
    ("rows", "error", "says"),
    [
        ([ROW, "{"], CorruptRecordError, r"in\.jsonl, line 2: .*A row is one JSON object on one line"),
        ([ROW, ROW | {"cd_index": "high"}], SchemaMismatchError, r"in\.jsonl cannot be read: .*'cd_index'.*high"),
        ([{"openalex_id": "W1"}], SchemaMismatchError, "lacks publication_year, cd_index; it has openalex_id"),
        ([ROW | {"openalex_id": ""}], WorkIdError, r"1 row has no openalex_id"),
        ([ROW, ROW], WorkIdError, "labelled files: 1 id occurs more than once, for example 'W1'"),
        ([ROW, ROW | {"openalex_id": "1"}], WorkIdError, "the ids '1' and 'W1' have one number"),
        ([ROW | {"disruption_label": "novel"}], LabelMismatchError, "is 'novel', needs one of disruptive"),
        ([ROW | {"cited_by_count": 2**70}], SchemaMismatchError, "cannot be read: .*1180591620717411303424"),
        ([], EmptyInputError, r"no labelled work in in\.jsonl \(empty\)"),
    ],
)
def test_what_is_no_row_is_named(tmp_path: Path, rows: list[Any], error: type[Exception], says: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    with pytest.raises(error, match=says):
        draw(tmp_path, tmp_path / "x", path)


def test_a_parquet_file_without_a_needed_column_is_named(tmp_path: Path) -> None:
    pl.DataFrame([ROW]).drop("cd_index").write_parquet(tmp_path / "in.parquet")
    with pytest.raises(SchemaMismatchError, match=r"in\.parquet lacks cd_index; it has openalex_id"):
        draw(tmp_path, tmp_path / "x", tmp_path / "in.parquet")
    pl.DataFrame([ROW | {"cd_index": "high"}]).write_parquet(tmp_path / "text.parquet")
    with pytest.raises(SchemaMismatchError, match=r"text\.parquet cannot be read"):
        draw(tmp_path, tmp_path / "x", tmp_path / "text.parquet")


@pytest.mark.parametrize(
    "use",
    [
        lambda source, out: build(BuildConfig(source=source, out=out, cd=CDConfig(same_year=True))),
        lambda source, out: build(BuildConfig(source=source, out=out, novelty=NoveltyConfig(null="permutation"))),
        lambda source, out: build(BuildConfig(source=source, out=out, background=Path("null.parquet"))),
        lambda source, out: ingest(source, out, cache_dir=out),
        lambda source, out: write_background(source, f"{out}.parquet", cache_dir=out),
    ],
)
def test_what_needs_citations_is_refused(tmp_path: Path, use: Callable[[LabelledConfig, Path], Any]) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(ROW))
    with pytest.raises(ConfigError, match=r"labelled files|a corpus is made of a whole source"):
        use(LabelledConfig(inputs=(str(tmp_path / "in.jsonl"),)), tmp_path / "x")


REVIEWS = pl.DataFrame(
    {
        "text": [f"The {word} was {'dull' if n % 2 else 'fine'}, {n}." for n, word in enumerate(["film", "plot"] * 60)],
        "label": ["bad", "good"] * 60,
    }
)
TEXT_FILES: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "csv with an index": lambda frame, path: frame.with_row_index("").write_csv(path),
    "json lines": lambda frame, path: frame.write_ndjson(path),
    "a list over lines": lambda frame, path: path.write_text(json.dumps(frame.to_dicts(), indent=1)),
    "parquet": lambda frame, path: frame.write_parquet(path),
}
OF_TEXTS = ["--label", "label", "--n-train", "20", "--n-test", "10"]


def build_texts(home: Path, file: Path, out: Path, *flags: str) -> int:
    places = ["--out", str(out), "--cache-dir", str(home / "cache")]
    return main(["build", "--labelled", str(file), *OF_TEXTS, *places, *flags])


@pytest.mark.parametrize("kind", TEXT_FILES)
def test_a_text_and_a_label_are_enough_for_a_release(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    TEXT_FILES[kind](REVIEWS, tmp_path / "reviews")
    assert build_texts(home, tmp_path / "reviews", tmp_path / "slice") == 0
    summary = capsys.readouterr().out
    assert main(["verify", str(tmp_path / "slice")]) == 0
    rows = pl.concat(pl.read_parquet(tmp_path / "slice" / f"{split}.parquet") for split in ("train", "test"))
    labels = dict(REVIEWS.rows())
    assert all(labels[text] == label for text, label in rows.select("abstract", "own_label").rows())
    assert rows["own_label"].value_counts().sort("own_label").rows() == [("bad", 15), ("good", 15)]
    assert rows["openalex_id"].n_unique() == 30
    card = (tmp_path / "slice" / "README.md").read_text()
    for text in (card, summary, (tmp_path / "slice" / "CITATION.cff").read_text()):
        assert not re.search("bibliometric|citation record|citers|Languages kept|disruption label|no year", text)
    assert "Own labels of 30 texts" in card
    assert "The labels are the column label of the files" in card
    page = tmp_path / "page.html"
    assert main(["describe", str(tmp_path / "slice"), "--html", str(page)]) == 0
    assert "disruption classes" not in page.read_text()


def test_without_sizes_as_many_texts_are_drawn_as_fit(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    REVIEWS.write_csv(tmp_path / "in.csv")
    words = ["build", "--labelled", str(tmp_path / "in.csv"), "--label", "label", "--cache-dir", str(home / "cache")]
    with caplog.at_level(logging.WARNING):
        assert main([*words, "--out", str(tmp_path / "free")]) == 0
    sizes = re.search(r"too few texts for 5,000 \+ 500, so (\d+) \+ (\d+) are drawn", caplog.text).groups()
    assert sum(map(int, sizes)) >= 80
    assert main([*words, "--out", str(tmp_path / "stated"), "--n-train", sizes[0], "--n-test", sizes[1]]) == 0
    assert (tmp_path / "free/train.jsonl").read_bytes() == (tmp_path / "stated/train.jsonl").read_bytes()
    assert main([*words, "--out", str(tmp_path / "large"), "--n-train", "600"]) == 1
    assert main([*words, "--out", str(tmp_path / "half"), "--n-train", "40"]) == 0
    assert pl.read_parquet(tmp_path / "half/train.parquet").height == 40


def test_a_retracted_text_is_left_out_in_the_words_of_any_table(home: Path, tmp_path: Path) -> None:
    words = pl.Series(["Yes", "1.0", "no", "false", "TRUE", "0"] * 20)
    REVIEWS.with_columns(is_retracted=words).write_csv(tmp_path / "in.csv")
    assert build_texts(home, tmp_path / "in.csv", tmp_path / "slice", "--n-train", "20", "--n-test", "4") == 0
    counts = json.loads((tmp_path / "slice" / "manifest.json").read_bytes())["counts"]["filters"]
    assert (counts["retracted"], counts["eligible"]) == (60, 60)


def test_of_equal_texts_the_first_is_read_and_two_classes_of_one_are_an_error(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    pl.concat([REVIEWS, REVIEWS[:1]]).write_csv(tmp_path / "in.csv")
    with caplog.at_level(logging.WARNING):
        assert build_texts(home, tmp_path / "in.csv", tmp_path / "slice") == 0
    assert "labelled files: 1 repeated text; only the first of equal texts is read" in caplog.text
    assert json.loads((tmp_path / "slice" / "manifest.json").read_bytes())["source"]["repeated_texts"] == 1
    twisted = REVIEWS[:1].with_columns(label=pl.lit("good"))
    pl.concat([REVIEWS, twisted]).write_csv(tmp_path / "in.csv")
    assert build_texts(home, tmp_path / "in.csv", tmp_path / "other") == 1
    assert f"1 work has two classes in in.csv, for example {REVIEWS['text'][0]!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "flags", "says"),
    [
        (["text", "label"], ["--balance", "disruption"], "--balance is 'disruption'.* no cd_index.*--balance label"),
        (["review", "label"], [], "has no text for a model to read; it has review, label.*--text"),
        (["text", "label"], ["--text", "body"], "lacks body; it has text, label. Rename"),
        (["Review", "label"], ["--text", "review"], r"it has Review, label\. Did you mean Review\?"),
        (["text", "class"], [], "no column label; it has text, class. Name it: --label"),
        (
            ["text", "label"],
            ["--label", "text"],
            r"column 'text' has 120 classes \('The film was fine, 0.*needs 2 to 20",
        ),
    ],
)
def test_what_texts_lack_is_named_by_its_flag(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: list[str], flags: list[str], says: str
) -> None:
    REVIEWS.rename(dict(zip(REVIEWS.columns, columns, strict=True))).write_csv(tmp_path / "in.csv")
    assert build_texts(home, tmp_path / "in.csv", tmp_path / "slice", *flags) == 1
    assert re.search(says, capsys.readouterr().err)
    assert not (tmp_path / "slice").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["yes"], r"column 'Stars given' has 1 class \('yes'\), needs 2 to 20"),
        (["yes", "Yes"], r"has 2 classes \('Yes', 'yes'\), needs .* not the same word in upper and lower case"),
        (["weak yes", "no"], "column 'Stars given' holds 'weak yes', which cannot be a class. It needs"),
        (["a,b", "c"], "holds 'a,b', which cannot be a class"),
        ([""], "column 'Stars given' is empty for all of 120 works"),
        (["10", "9", "None"], ["stars_given_label", ["9", "10"]]),
    ],
)
def test_the_classes_of_a_column_are_found_or_one_error_names_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
    words: list[str], says: str | list[Any],
) -> None:  # fmt: skip
    values = pl.Series("Stars given", [words[n % len(words)] for n in range(120)])
    REVIEWS.drop("label").with_columns(values).write_csv(tmp_path / "in.csv")
    code = build_texts(home, tmp_path / "in.csv", tmp_path / "slice", "--label", "Stars given")
    if isinstance(says, str):
        assert code == 1
        assert re.search(says, capsys.readouterr().err)
        assert not (tmp_path / "slice").exists()
        return
    manifest = json.loads((tmp_path / "slice" / "manifest.json").read_bytes())
    assert [manifest["label"]["name"], manifest["label"]["classes"]] == says
    assert manifest["split"]["balance"] == "label"
    assert re.search("40 values are NA, None or the like", caplog.text)


def test_without_a_label_the_error_says_how_to_name_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    REVIEWS.write_csv(tmp_path / "in.csv")
    words = ("--labelled", tmp_path / "in.csv", "--cache-dir", tmp_path, "--out", tmp_path / "o")
    assert main(["build", *map(str, words)]) == 1
    assert "need no score: name its column, --label." in capsys.readouterr().err
