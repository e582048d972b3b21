"""A label of one's own: where it comes from, and that it is balanced, released, verified and exported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata import (
    BuildConfig,
    CorpusConfig,
    LabelledConfig,
    OpenAlexConfig,
    OwnLabel,
    SplitConfig,
    SyntheticConfig,
    build,
    export_labelled,
    ingest,
    read_release,
    verify,
)
from sciscidata.cli.build_options import read_toml, resolve
from sciscidata.cli.repeat_run import read_release_settings, render_toml
from sciscidata.cli.summary import print_release, print_verified
from sciscidata.errors import (
    ConfigError,
    EmptyInputError,
    InputNotFoundError,
    NotEnoughWorksError,
    SchemaMismatchError,
    VerificationError,
    WorkIdError,
)
from sciscidata.own_label import compute_own_labels
from sciscidata.plots import plot_by_year
from sciscidata.release.verify import _check_own_label
from sciscidata.sampling.split import draw_split
from sciscidata.schemas import EXAMPLE


def top_label(*cell: str) -> OwnLabel:
    place = pl.col("cited_by_count").rank("max", descending=True).over(cell)
    is_top = 20 * place <= pl.col("cited_by_count").count().over(cell)
    return OwnLabel(
        name="impact_label",
        classes=("top", "rest"),
        expression=pl.when(is_top).then(pl.lit("top")).when(place.is_not_null()).then(pl.lit("rest")),
        meanings={"top": "among the 5 % most cited of its year"},
        question="Is it among the most cited of its year?",
    )


TOP_OF_FIELD = top_label("primary_field", "publication_year")
TOP = top_label("publication_year")  # a small world has too few works of one field and year
#: The same in SQL. The works that are cited at least as often are all but those that are cited less.
OVER = "OVER (PARTITION BY primary_field, publication_year"
TOP_SQL = OwnLabel(
    name="impact_label",
    classes=("top", "rest"),
    sql=f"CASE WHEN cited_by_count IS NULL THEN NULL WHEN 20 * (COUNT(cited_by_count) {OVER}) - RANK() {OVER} "
    f"ORDER BY cited_by_count) + 1) <= COUNT(cited_by_count) {OVER}) THEN 'top' ELSE 'rest' END",
)
FROM_COLUMN = OwnLabel(name="impact_label", classes=("top", "rest"), column="impact_label")
WORLD = SyntheticConfig(n_works=4_000)
BY_LABEL = SplitConfig(n_train=30, n_test=10, balance="label")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def impact(cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("slices") / "impact"
    return build(BuildConfig(source=WORLD, out=out, cache_dir=cache, label=TOP, split=BY_LABEL))


@pytest.fixture(scope="module")
def exported(cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "all"
    export_labelled(BuildConfig(source=WORLD, out=out, cache_dir=cache, label=TOP))
    return out


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([2000, 2001]), st.none() | st.integers(0, 6)),
        min_size=1,
        max_size=90,
    )
)
def test_the_top_5_percent_are_those_of_plain_python_with_ties_at_the_cut_out(rows):
    works = pl.DataFrame(
        {
            "work_id": range(len(rows)),
            "primary_field": [field for field, *_ in rows],
            "publication_year": [year for _, year, _ in rows],
            "cited_by_count": [cited for *_, cited in rows],
        },
        schema_overrides={"cited_by_count": pl.Int64},
    )
    expected = {}
    for work_id, (field, year, cited) in enumerate(rows):
        peers = [other for *cell, other in rows if cell == [field, year] and other is not None]
        if cited is not None:
            at_least = sum(other >= cited for other in peers)
            expected[work_id] = "top" if 20 * at_least <= len(peers) else "rest"
    for label in (TOP_OF_FIELD, TOP_SQL):
        if not expected:
            with pytest.raises(EmptyInputError, match="empty for all"):
                compute_own_labels(works.lazy(), works.lazy(), label)
            continue
        found = compute_own_labels(works.lazy(), works.lazy(), label)
        assert dict(found.rows()) == expected
        backwards = compute_own_labels(works.reverse().lazy(), works.lazy(), label)
        assert dict(backwards.rows()) == expected


def test_a_release_by_an_own_label_has_it_as_its_thirteenth_column_in_equal_numbers(impact):
    again = read_release(impact.folder)
    for split, n in (("train", 15), ("test", 5)):
        frame = getattr(again, split)
        assert frame.columns == [*EXAMPLE, "impact_label"]
        assert dict(frame["impact_label"].value_counts().rows()) == {"top": n, "rest": n}
        line = json.loads((impact.folder / f"{split}.jsonl").read_text("utf-8").splitlines()[0])
        assert list(line) == frame.columns
    stated = again.manifest["label"]
    assert (stated["name"], stated["classes"], stated["meanings"]) == ("impact_label", ["top", "rest"], TOP.meanings)
    assert "cited_by_count" in stated["expression"]
    assert again.manifest["class_counts"]["train"]["impact_label"] == {"top": 15, "rest": 15}
    assert again.manifest["counts"]["scored"]["impact_label"]["top"] < 400
    assert "label.png" in again.manifest["files"]
    assert verify(impact.folder).recomputed.left["impact_label"] == "only compared with its classes"


def test_verify_finds_a_word_that_is_no_class(impact):
    unknown = impact.train.with_columns(impact_label=pl.lit("lots"))
    (found,) = _check_own_label("train", unknown, TOP)
    assert "impact_label of 30 rows is none of top, rest" in found


def test_verify_finds_a_quota_that_a_manifest_does_not_keep(impact, tmp_path):
    import shutil

    from sciscidata.release.read import hash_manifest, render_manifest

    folder = tmp_path / "copy"
    shutil.copytree(impact.folder, folder)

    def add_class(entry):
        filled = {name: add_class(value) for name, value in entry.items()} if isinstance(entry, dict) else entry
        return {**filled, "else": 0} if isinstance(entry, dict) and {*entry} == {"top", "rest"} else filled

    manifest = add_class(impact.manifest)
    manifest["label"]["classes"] = ["top", "rest", "else"]
    manifest["manifest_sha256"] = hash_manifest(manifest)
    (folder / "manifest.json").write_bytes(render_manifest(manifest))
    with pytest.raises(VerificationError, match="rows of class else, the split asks for"):
        verify(folder)


def test_drawing_before_texts_draws_the_works_that_drawing_after_them_draws(impact, cache, tmp_path):
    ingest(WORLD, tmp_path / "corpus", cache_dir=cache)
    source = CorpusConfig(folder=str(tmp_path / "corpus"))
    late = build(BuildConfig(source=source, out=tmp_path / "late", cache_dir=cache, label=TOP, split=BY_LABEL))
    assert late.train.equals(impact.train)
    assert late.test.equals(impact.test)
    assert late.manifest["counts"]["scored"]["impact_label"] == impact.manifest["counts"]["scored"]["impact_label"]


def test_an_export_carries_the_label_and_labelled_files_bring_it_back(exported, cache, tmp_path):
    assert verify(exported).counts == {"works": 4_000}
    rows = [json.loads(line) for line in (exported / "labelled.jsonl").read_text("utf-8").split("\n") if line]
    assert list(rows[0]) == [*EXAMPLE, "impact_label"]
    report = json.loads((exported / "labelled.json").read_text("utf-8"))
    assert set(report["classes"]["impact_label"]) == {"top", "rest", "null"}
    assert report["label"]["name"] == "impact_label"
    source = LabelledConfig(inputs=(str(exported),))
    back = build(BuildConfig(source=source, out=tmp_path / "s", cache_dir=cache, label=FROM_COLUMN, split=BY_LABEL))
    words = {row["openalex_id"]: row["impact_label"] for row in rows}
    assert all(words[i] == label for i, label in back.train.select("openalex_id", "impact_label").rows())
    assert back.manifest["source"]["label_files"][0]["name"] == "labelled.jsonl"


def test_a_file_beside_the_works_gives_the_label_and_the_rest_is_never_drawn(cache, tmp_path):
    ids = [f"W{n}" for n in export_ids(cache)]
    known = {i: ("a", "b", "")[n % 3] for n, i in enumerate(ids)}
    path = tmp_path / "own.csv"
    path.write_text("paper,kind\n" + "".join(f"{i},{word}\n" for i, word in known.items()), "utf-8")
    settings = {
        "": {"source": "synthetic", "out": str(tmp_path / "s"), "cache_dir": str(cache)},
        "synthetic": {"n_works": 4_000},
        "split": {"n_train": 30, "n_test": 10, "balance": "label"},
        "label": {"name": "kind_label", "classes": ["a,b"], "column": "kind", "file": str(path), "id": "paper"},
    }
    config = resolve(settings)
    release = build(config)
    assert all(known[i] == word for i, word in release.train.select("openalex_id", "kind_label").rows())
    assert release.train["kind_label"].null_count() == 0
    (file,) = release.manifest["source"]["label_files"]
    assert (file["name"], file["bytes"]) == ("own.csv", path.stat().st_size)
    toml = tmp_path / "run.toml"
    toml.write_text(render_toml(config), "utf-8")
    assert resolve(read_toml(toml)) == config
    assert read_release_settings(release.folder)["label"]["classes"] == ["a", "b"]

    path.write_text(path.read_text("utf-8") + f"{ids[0]},b\n", "utf-8")
    with pytest.raises(WorkIdError, match=r"two classes in own\.csv"):
        build(resolve(settings | {"": settings[""] | {"overwrite": True}}))
    path.write_text("paper,other\nW1,a\n", "utf-8")
    with pytest.raises(SchemaMismatchError, match=r"own.csv has no column kind; it has paper, other"):
        build(resolve(settings | {"": settings[""] | {"overwrite": True}}))
    path.unlink()
    with pytest.raises(InputNotFoundError, match="does not exist"):
        build(resolve(settings | {"": settings[""] | {"overwrite": True}}))


def export_ids(cache: Path) -> list[int]:
    from sciscidata import scan_synthetic

    return scan_synthetic(WORLD).works.select("work_id").collect()["work_id"].sort().to_list()


def test_a_column_of_own_tables_is_the_label(tmp_path):
    works = [f"{n},{1990 + n % 20},Title {n},Abstract {n},{('x', 'y')[n % 2]}" for n in range(200)]
    Path(tmp_path, "works.csv").write_text("\n".join(["key,year,title,abstract,kind", *works]), "utf-8")
    cites = [f"{n},{m}" for n in range(200) for m in range(n) if n % 20 - m % 20 in (1, 2)]
    Path(tmp_path, "cites.csv").write_text("\n".join(["citing_id,cited_id", *cites]), "utf-8")
    settings = {
        "": {"out": str(tmp_path / "s"), "cache_dir": str(tmp_path / "cache")},
        "tables": {"works": [str(tmp_path / "works.csv")], "citations": [str(tmp_path / "cites.csv")], "id": "key",
                   "year": "year"},
        "eligibility": {"complete_window": False, "languages": []},
        "split": {"n_train": 4, "n_test": 2, "balance": "label"},
        "label": {"name": "kind_label", "classes": ["x", "y"], "column": "kind"},
    }  # fmt: skip
    release = build(resolve(settings))
    assert all(word == ("x", "y")[int(i) % 2] for i, word in release.train.select("openalex_id", "kind_label").rows())
    settings["label"] = {"name": "kind_label", "classes": ["x", "z"], "column": "kind"}
    settings[""]["overwrite"] = True
    with pytest.raises(
        SchemaMismatchError, match=r"kind_label is 'y' for 100 of 200 works, needs one of x, z, or null"
    ):
        build(resolve(settings))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "impact"}, "ends in _label"),
        ({"name": "novelty_label"}, "is a column of every release"),
        ({"classes": ("top",)}, "needs 2 to 20 different names"),
        ({"classes": ("top", "invalid")}, "cannot be a class"),
        ({"column": None}, "got none of them"),
        ({"sql": "CASE WHEN 1 THEN 'top' END"}, "got OwnLabel.column and OwnLabel.sql"),
        ({"column": None, "sql": "1 +"}, "OwnLabel.sql cannot be read"),
        ({"column": None, "sql": "a" + "+a" * 60_000}, "has 120,001 characters, needs at most 20,000"),
        ({"column": None, "sql": " OR ".join(["a > 1"] * 1_000)}, "steps one in another, needs at most 120"),
        ({"column": None, "expression": sum(map(pl.col, ["a"] * 500), pl.lit(0))}, "expression has 50. steps"),
        ({"id": "key"}, "OwnLabel.id is given without OwnLabel.file"),
        ({"meanings": {"bottom": "few"}}, "explains 'bottom', which is no class"),
        ({"column": "cited_by_count", "hidden": ()}, "a prompt would show the answer"),
        ({"hidden": ("title",)}, "needs a list of"),
    ],
)
def test_a_label_that_cannot_be_used_is_one_error_before_anything_is_read(options, message):
    good = {"name": "impact_label", "classes": ("top", "rest"), "column": "impact"}
    with pytest.raises(ConfigError, match=message):
        OwnLabel(**good | options)


def test_a_build_without_the_label_that_it_is_balanced_by_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no label of your own"):
        BuildConfig(source=WORLD, out=tmp_path, split=BY_LABEL)
    with pytest.raises(ConfigError, match="the OpenAlex API gives a sample"):
        BuildConfig(source=OpenAlexConfig(), out=tmp_path, label=TOP)


def test_an_expression_that_fails_or_names_no_column_says_so():
    works = pl.LazyFrame({"work_id": [1], "title": ["On sleep"]})
    names = {"name": "impact_label", "classes": ("top", "rest")}
    with pytest.raises(ConfigError, match="needs the column 'grade', and the works have work_id, title"):
        compute_own_labels(works, works, OwnLabel(**names, column="grade"))
    with pytest.raises(ConfigError, match=r"OwnLabel.expression cannot be computed"):
        compute_own_labels(works, works, OwnLabel(**names, expression=pl.col("title") + 1))
    with pytest.raises(SchemaMismatchError, match=r"is Decimal\(.*\), needs text"):
        compute_own_labels(works, works, OwnLabel(**names, sql="LENGTH(title) / 2.0"))


def test_a_draw_by_an_own_label_names_the_class_that_is_too_small():
    rows = pl.DataFrame({"work_id": range(40), "impact_label": ["top"] * 2 + ["rest"] * 37 + [None]})
    with pytest.raises(NotEnoughWorksError, match="widen the classes of the label"):
        draw_split(rows, BY_LABEL, label=TOP)
    with pytest.raises(ConfigError, match="no label of your own"):
        draw_split(rows, BY_LABEL)


def test_summaries_and_pictures_name_the_classes(impact, capsys):
    print_release(impact)
    print_verified(verify(impact.folder))
    printed = capsys.readouterr().out
    assert re.search(r"^impact +top +rest +all$", printed, re.MULTILINE)
    assert "top: among the 5 % most cited" in printed
    assert "impact_label (only compared with its classes)" in printed
    figure = plot_by_year(impact.train, label="top", score="", few=1, data="a slice", width="one")
    assert figure.axes[0].get_ylabel() == "share top"
    with pytest.raises(ConfigError, match="label is 'bottom'"):
        plot_by_year(impact.train, label="bottom", score="")
