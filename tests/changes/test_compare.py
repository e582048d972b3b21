"""Two versions of a corpus of real records, months apart, and what is said of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import sciscidata as ssd
from sciscidata.changes import compare as compare_module
from sciscidata.corpus.scores import read_score_facts
from sciscidata.errors import (
    ConfigError,
    EmptyInputError,
    InputNotFoundError,
    ReleaseExistsError,
    SchemaMismatchError,
    StorageError,
    WorkIdError,
)
from sciscidata.judged import is_judged
from sciscidata.pipeline import build
from sciscidata.plots import plot_changes
from sciscidata.release.read import Release
from sciscidata.schemas import CHANGES
from sciscidata.stages import ingest, write_atypicality, write_cd_index
from tests.changes.test_causes import told_of
from tests.conftest import example_lines
from tests.real_graphs import scan_real

OTHER_YEAR, LESS_CITING = 2068180175, (2110609533, 2127324240)


def number(url: str) -> int:
    return int(url.rsplit("W", 1)[1])


class Versions(NamedTuple):
    """Records, corpora and scores of the older version and of the newer one."""

    records: tuple[list[dict[str, Any]], list[dict[str, Any]]]
    corpora: tuple[Path, Path]
    scores: tuple[Path, Path]
    merged: tuple[int, int]
    deleted: int


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    """Older: the works up to 2016, without every tenth. Newer: all, but that a few records are edited."""
    home = tmp_path_factory.mktemp("versions")
    records = [json.loads(line) for line in example_lines()]
    older = [one for one in records if one["publication_year"] <= 2016 and number(one["id"]) % 10]
    with_doi = [one for one in older if one["doi"] and number(one["id"]) not in (OTHER_YEAR, LESS_CITING[0])]
    merged, into, deleted = with_doi[0], with_doi[1], with_doi[2]
    newer = []
    for one in records:
        edited = dict(one)
        if one["id"] in (merged["id"], deleted["id"]):
            continue
        if one["id"] == into["id"]:
            edited["doi"] = merged["doi"]
        if number(one["id"]) == OTHER_YEAR:
            edited["publication_year"] -= 1
        if number(one["id"]) == LESS_CITING[0]:
            edited["referenced_works"] = [url for url in one["referenced_works"] if number(url) != LESS_CITING[1]]
        newer.append(edited)
    corpora = (home / "older", home / "newer")
    for some, folder in zip((older, newer), corpora, strict=True):
        file = home / f"{folder.name}.jsonl"
        file.write_text("".join(json.dumps(one) + "\n" for one in some), encoding="utf-8")
        ingest(ssd.RecordsConfig(inputs=(str(file),)), folder, cache_dir=home / "cache")
    scores = tuple(write_cd_index(folder, home / f"{folder.name}.parquet") for folder in corpora)
    ids = (number(merged["id"]), number(into["id"]))
    return Versions((older, newer), corpora, scores, ids, number(deleted["id"]))  # pyright: ignore[reportArgumentType]


def count_by_sets(records: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Year, references and counts of every work, of plain sets of the records."""
    years = {number(one["id"]): one["publication_year"] for one in records}
    references = {number(one["id"]): {number(url) for url in one["referenced_works"]} for one in records}
    citers: dict[int, set[int]] = {}
    for citing, cited in references.items():
        cited.discard(citing)
        for work in cited:
            citers.setdefault(work, set()).add(citing)
    found = {}
    for work, year in years.items():
        inside = {citer for citer, when in years.items() if year < when <= year + 5}
        of_work = citers.get(work, set()) & inside
        of_references = set().union(*(citers[one] & inside for one in references[work])) - {work}
        n_i, n_j, n_k = len(of_work - of_references), len(of_work & of_references), len(of_references - of_work)
        total, n_refs = n_i + n_j + n_k, len(references[work])
        index = (n_i - n_j) / total if total and n_refs else None
        found[work] = {"year": year, "n_refs": n_refs, "n_i": n_i, "n_j": n_j, "n_k": n_k, "cd_index": index}
    return found


def test_two_versions_of_a_corpus_are_told_apart_as_plain_sets_tell_them(versions):
    older, newer = (count_by_sets(some) for some in versions.records)
    found = ssd.compare(*versions.corpora)
    rows = found.changes.collect()
    assert rows.schema == CHANGES
    assert rows["work_id"].is_sorted()
    assert {*rows["work_id"]} == older.keys() | newer.keys()
    names = {"publication_year": "year", "n_references": "n_refs", **{name: name for name in ("n_i", "n_j", "n_k")}}
    cut = ssd.LabelThresholds()
    for row in rows.iter_rows(named=True):
        work = row["work_id"]
        for side, counts in (("a", older), ("b", newer)):
            there = counts.get(work, dict.fromkeys([*names.values(), "cd_index"]))
            assert [row[f"{name}_{side}"] for name in names] == [there[key] for key in names.values()]
            assert row[f"cd_index_{side}"] == there["cd_index"]
        if row["moved"]:
            assert row["cause"] == told_of(older[work], newer[work], cut)
    gone = {versions.merged[0]: "merged", versions.deleted: "lost"}
    assert dict(rows.filter(pl.col("status").is_in(["merged", "lost"])).select("work_id", "status").rows()) == gone
    assert rows.drop_nulls("merged_into").select("work_id", "merged_into").rows() == [versions.merged]
    assert found.works == {
        "kept": len(older) - 2,
        "gained": len(newer) - len(older) + 2,
        "lost": 1,
        "merged": 1,
    }
    causes = dict(rows.select("work_id", "cause").rows())
    assert (causes[OTHER_YEAR], causes[LESS_CITING[0]]) == ("changed_year", "lost_references")
    assert dict(found.causes.rows()).keys() >= {"new_citers", "changed_year", "lost_references"}


def test_labels_that_moved_are_counted_of_works_judged_in_both_and_the_others_beside_them(versions):
    found = ssd.compare(*versions.corpora)
    rows = found.changes.collect()
    kept = rows.filter(status="kept")
    both = kept.filter("judged_a", "judged_b").filter(pl.any_horizontal(pl.col("label_a", "label_b").is_not_null()))
    assert found.labels["n"].sum() == both.height
    assert found.causes["n"].sum() == both["moved"].sum() > 10
    became = kept.filter(~pl.col("judged_a"), "judged_b")
    assert became.height > 300  # their windows are over now
    text = str(found)
    assert repr(found) == text  # what a notebook shows
    assert f"became judged: {became.height:,}, of which {became['moved'].sum():,} have another label" in text
    assert found.verdict.startswith(f"Not the same: {both['moved'].sum()} of {both.height:,} works judged in both (")
    assert f"; {became.height:,} became judged, {became['moved'].sum():,} of them with another label" in found.verdict
    assert "1 merged into another" in found.verdict
    step = both.filter(pl.col("cd_index_a") != pl.col("cd_index_b")).select(
        (pl.col("cd_index_a") - pl.col("cd_index_b")).abs()
    )
    assert found.steps["quantile"][-1] == step.to_series().max()


def test_judged_works_are_those_that_cd_counts_and_the_lines_add_up(versions):
    found = ssd.compare(*versions.scores)
    of_a, of_b = (
        pl.scan_parquet(file).filter(is_judged(), pl.col("cd_index").is_not_null()).collect().height
        for file in versions.scores
    )
    (line,) = (line for line in str(found).splitlines() if line.startswith("judged: "))
    n_both = found.labels["n"].sum()
    assert line == f"judged: {of_a:,} in A, {of_b:,} in B; {n_both:,} in both, counted below"
    became, only_b = (
        int(re.search(f"{name}: ([0-9,]+)", str(found))[1].replace(",", ""))  # pyright: ignore[reportOptionalSubscript]
        for name in ("became judged", "judged works that only B has")
    )
    assert n_both + became + only_b == of_b


def test_what_is_compared_is_never_replaced(run, versions, releases, tmp_path):
    older, newer = versions.scores
    before = older.read_bytes()
    linked = tmp_path / "linked.parquet"
    linked.hardlink_to(older)
    symbolic = tmp_path / "symbolic.parquet"
    symbolic.symlink_to(newer)
    corpora = versions.corpora
    cases = [
        *((versions.scores, out) for out in (older, newer, linked, symbolic)),
        (corpora, corpora[0] / "changes.parquet"),
        (corpora, corpora[1] / "works" / "new" / "changes.parquet"),
        ((releases[0], releases[1]), releases[1].folder / "train.parquet"),
    ]
    for sides, out in cases:
        with pytest.raises(StorageError, match=r"which is read\. Choose another file"):
            ssd.compare(*sides, out=out, overwrite=True)
    assert older.read_bytes() == before
    status, _, told = run("compare", *map(str, versions.scores), "--out", str(older), "--overwrite")
    assert (status, told.count("\n"), older.read_bytes() == before) == (1, 1, True)
    picture = corpora[0] / "changes.png"
    status, _, told = run("compare", *map(str, corpora), "--picture", str(picture))
    assert (status, picture.exists()) == (1, False)
    assert "--picture" in told


def test_a_picture_that_cannot_be_written_stops_the_command_before_any_work(run, versions, tmp_path):
    (tmp_path / "mine.png").write_bytes(b"mine")
    (tmp_path / "file").touch()
    for picture in ("/proc/changes.png", "file/changes.png", "mine.png"):
        status, _, told = run("compare", *map(str, versions.scores), "--out", "c.parquet", "--picture", picture)
        assert (status, told.count("\n"), (tmp_path / "c.parquet").exists()) == (1, 1, False)
        assert picture in told
    assert (tmp_path / "mine.png").read_bytes() == b"mine"


def test_files_of_scores_tell_the_same_labels_and_say_what_they_do_not_know(versions):
    of_corpora, of_scores = ssd.compare(*versions.corpora), ssd.compare(*versions.scores)
    assert of_scores.labels.equals(of_corpora.labels)
    assert "changed years, new and lost references, merged works" in str(of_scores)
    assert "not told" not in str(of_corpora)
    assert of_scores.works["lost"] == 2


def test_scores_of_a_list_are_compared_with_those_of_another_month(run, versions, tmp_path):
    older, newer = versions.corpora
    whole = ssd.compare(older, newer)
    works = whole.changes.filter("moved").collect()["work_id"]
    listed = [f"W{number}" for number in works] + ["W1", "10.1/none", f"W{works[0]}"]
    (tmp_path / "ids.txt").write_text("\n".join(listed))
    files = [str(tmp_path / f"{name}.parquet") for name in "ab"]
    for file, corpus in zip(files, (older, newer), strict=True):
        assert run("score", "--ids", str(tmp_path / "ids.txt"), "--corpus", str(corpus), "--out", file)[0] == 0
    found = ssd.compare(*files)
    both = found.changes.collect().join(whole.changes.collect(), on="work_id", suffix="_all")
    assert both.height == works.len()
    for name in ("label_a", "label_b", "cause", "judged_a", "judged_b", "n_references_b", "publication_year_a"):
        assert both[name].to_list() == both[f"{name}_all"].to_list(), name
    assert [name for name, *_ in found.settings.rows()] == ["source corpus_sha256"]
    assert found.verdict in run("compare", *files)[1]


def test_scores_of_a_list_say_that_the_data_are_not_known_if_no_corpus_states_them(run, versions, tmp_path):
    corpus = str(versions.corpora[1])
    numbers = ssd.compare(*versions.corpora).changes.filter(status="kept").collect()["work_id"].head(20)
    (tmp_path / "ids.txt").write_text("\n".join(f"W{number}" for number in numbers))
    score = ("score", "--ids", str(tmp_path / "ids.txt"), "--cache-dir", str(tmp_path / "cache"), "--prior", "shipped")
    files = {name: str(tmp_path / f"{name}.parquet") for name in ("corpus", "again", "example")}
    for name in ("corpus", "again"):
        assert run(*score, "--corpus", corpus, "--out", files[name])[0] == 0
    assert run(*score, "--source", "example", "--out", files["example"])[0] == 0
    same = str(ssd.compare(files["corpus"], files["again"]))
    assert "settings and data: the same, as far as both state them" in same
    assert "whether the data" not in same
    unknown = str(ssd.compare(files["corpus"], files["example"]))
    assert "settings: the same, as far as both state them; data: not known" in unknown
    assert "not told: whether the data are the same; A or B does not state its corpus" in unknown
    assert "ids.txt" not in unknown
    assert "of: ids.txt" in run("describe", files["corpus"])[1]
    assert "corpus.json sha256 " in run("describe", files["corpus"])[1]


def test_a_large_comparison_goes_part_by_part_and_writes_the_same(versions, tmp_path, monkeypatch):
    whole = ssd.compare(*versions.corpora, out=tmp_path / "whole.parquet")
    monkeypatch.setattr(compare_module, "_ROWS_AT_ONCE", 500)
    parts = ssd.compare(*versions.corpora, out=tmp_path / "parts.parquet")
    assert str(parts) == str(whole)
    assert parts.changes.collect().equals(whole.changes.collect())
    assert ssd.verify(tmp_path / "parts.parquet").kind == "scores"
    assert read_score_facts(tmp_path / "whole.parquet")["stage"] == "changes"


def test_one_corpus_by_two_conventions_moves_by_the_convention_only(versions):
    _, newer = versions.corpora
    windows = ssd.compare(newer, newer, windows=(5, 10))
    assert windows.settings.rows() == [("window_years", "5", "10")]
    assert {*windows.causes["cause"]} == {"window"}
    conventions = ssd.compare(newer, newer, conventions=("default", "crossdi"))
    assert {*conventions.causes["cause"]} == {"convention"}
    assert "same_year: False in A, True in B" in str(conventions)
    data_too = ssd.compare(*versions.corpora, windows=(5, 10))
    assert {*data_too.causes["cause"]} == {"several"}
    bare = ssd.compare(newer, newer, conventions=("default", "cdindex"))  # it gives works without references an index
    moved = bare.changes.filter("moved", "judged_b").collect()
    assert {*moved["cause"]} == {"convention"}
    n = moved.height
    assert n > 100
    assert bare.verdict.endswith(f"differ; {n} became judged, {n} of them with another label.")


def test_what_is_the_same_may_be_reported_as_the_same(versions, tmp_path):
    _, newer = versions.corpora
    copy = tmp_path / "again.parquet"
    write_cd_index(newer, copy)
    found = ssd.compare(versions.scores[1], copy)
    assert found.is_same
    assert found.verdict == "Same works, same labels: report as the same."
    assert "settings and data: the same" in str(found)
    assert found.causes.is_empty()
    scores = pl.read_parquet(copy)
    near = ssd.compare(scores, scores.with_columns(pl.col("cd_index") * 1.0000001))
    assert not near.is_same
    assert near.verdict.startswith("Same labels, other indices: ")
    fewer = ssd.compare(scores, scores.head(4_000))
    assert fewer.verdict.startswith("Same labels, other works")


@pytest.fixture(scope="module")
def releases(versions, tmp_path_factory) -> list[Release]:
    home = tmp_path_factory.mktemp("releases")
    cuts = [ssd.LabelThresholds.preset(name) for name in ("default", "default", "wide", "default")]
    corpora = (*versions.corpora, versions.corpora[1], versions.corpora[1])
    return [
        build(
            ssd.BuildConfig(
                source=ssd.CorpusConfig(folder=str(corpora[i])),
                split=ssd.SplitConfig(n_train=30, n_test=6, seed=3 if i == 2 else 0),
                thresholds=cuts[i],
                out=home / str(i),
                cache_dir=home / "cache",
                novelty=None,
                scores_file=i < 3,
            )
        )
        for i in range(4)
    ]


def test_works_of_two_releases_stay_in_their_splits(releases):
    found = ssd.compare(releases[0].folder, releases[1])
    both = found.splits["n"].sum()
    assert both > 10
    assert f"splits: 0 of {both} papers of both moved to another split" in str(found)
    assert found.settings["setting"].str.starts_with("source ").all()
    rows = found.changes.collect()
    assert dict(rows.drop_nulls("split_a").group_by("split_a").len().rows()) == {"train": 30, "test": 6}
    assert rows["judged_a"].drop_nulls().all()


def test_other_thresholds_and_seeds_of_releases_are_said_first(releases):
    found = ssd.compare(releases[1], releases[2])
    first = str(found).splitlines()[:8]
    assert "  seed: 0 in A, 3 in B" in first
    assert "  disruptive_min: 0.001 in A, 0.1 in B" in first
    assert {*found.causes["cause"]} == {"thresholds"}
    assert found.splits.filter(pl.col("split_a") != pl.col("split_b"))["n"].sum() > 0


def test_a_release_without_its_counts_has_labels_that_moved_for_unknown_reasons(releases):
    found, known = ssd.compare(releases[0], releases[3]), ssd.compare(releases[0], releases[1])
    assert found.labels.equals(known.labels)
    assert {*found.causes["cause"]} <= {"unknown"}
    assert "why labels moved, and which works are judged; A or B has no counts" in str(found)


def test_what_cannot_be_compared_is_said_in_one_line(versions, releases, tmp_path):
    older, newer = versions.corpora
    scores = pl.read_parquet(versions.scores[0])
    novelty = write_atypicality(newer, tmp_path / "novelty.parquet")
    graph = next((newer / "cache").glob("graph-*"))
    cases: list[tuple[type[Exception], str, tuple[Any, Any], dict[str, Any]]] = [
        (ConfigError, "is a release, and .* is a corpus", (releases[0].folder, older), {}),
        (ConfigError, "is a graph, which is not compared", (releases[0].folder, graph), {}),
        (ConfigError, "holds novelty, needs CD indices", (novelty, versions.scores[0]), {}),
        (ConfigError, "is given twice", (older, older), {}),
        (InputNotFoundError, "is a folder, but no release and no corpus", (tmp_path, older), {}),
        (ConfigError, "is given twice", (scores, scores), {}),
        (ConfigError, "is given twice", (older, older / ".." / older.name), {"windows": (5,)}),
        (ConfigError, "has no effect: a file of scores", versions.scores, {"windows": (5, 10)}),
        (ConfigError, "has 3 values", versions.corpora, {"windows": (5, 10, 3)}),
        (ConfigError, "no convention 'foo'", versions.corpora, {"conventions": ("foo",)}),
        (EmptyInputError, "compare: A has no work", (scores.clear(), scores), {}),
        (EmptyInputError, "no work in common", (scores, scores.with_columns(pl.col("work_id") + 1)), {}),
        (SchemaMismatchError, "B lacks column 'n_i'", (scores, scores.drop("n_i")), {}),
        (SchemaMismatchError, "B is of type dict, needs a frame", (scores, {"work_id": [1]}), {}),
        (WorkIdError, "occurs more than once", (scores, pl.concat([scores, scores])), {}),
        (InputNotFoundError, "does not exist", ("nowhere", older), {}),
    ]
    for error, told, sides, options in cases:
        with pytest.raises(error, match=told):
            ssd.compare(*sides, **options)
    with pytest.raises(EmptyInputError):
        ssd.compare(scores, scores.with_columns(pl.col("work_id") + 1), out=tmp_path / "none.parquet")
    assert not (tmp_path / "none.parquet").exists()
    mine = tmp_path / "mine.parquet"
    scores.write_parquet(mine)
    with pytest.raises(ReleaseExistsError):
        ssd.compare(*versions.scores, out=mine)
    assert pl.read_parquet(mine).equals(scores)


def test_the_picture_shows_every_label_and_cause(versions):
    found = ssd.compare(*versions.corpora)
    table, causes = plot_changes(found.changes).axes
    numbers = {text.get_text().partition("\n")[0] for text in table.texts}
    assert numbers >= {f"{n:,}" for n in found.labels["n"]}
    assert (table.get_ylabel(), table.get_xlabel(), table.yaxis_inverted()) == ("label in A", "label in B", True)
    places = {text.get_position(): text.get_text().partition("\n")[0] for text in table.texts}
    names = ["consolidating", "neutral", "disruptive"]
    for one, other, n in found.labels.rows():
        assert places[names.index(other), names.index(one)] == f"{n:,}"
    few = found.changes.filter("judged_a", "judged_b", cause="new_citers")
    assert all(float(tick).is_integer() for tick in plot_changes(few).axes[1].get_xticks())
    shown = {label.get_text().replace(" ", "_") for label in causes.get_yticklabels()}
    assert shown == {*found.causes["cause"]}
    still = pl.read_parquet(versions.scores[0])
    (_, nothing) = plot_changes(ssd.compare(still, still.clone()).changes).axes
    assert [text.get_text() for text in nothing.texts] == ["no label moved"]


def test_the_command_prints_it_and_ends_well(run, versions, tmp_path):
    words = [*map(str, versions.corpora), "--out", "changes.parquet", "--picture", "changes.png"]
    status, out, _ = run("compare", *words)
    assert status == 0
    lines = out.splitlines()
    assert (
        lines[: len(str(ssd.compare(*versions.corpora)).splitlines())]
        == str(ssd.compare(*versions.corpora)).splitlines()
    )
    assert (tmp_path / "changes.png").read_bytes().startswith(b"\x89PNG")
    status, out, _ = run("describe", "changes.parquet", "--html", "changes.html")
    assert (status, out.splitlines()[0]) == (0, "what changed from A to B")
    assert "<img" in (tmp_path / "changes.html").read_text(encoding="utf-8")
    status, _, told = run("compare", *map(str, versions.corpora), "--window", "5", "-1")
    assert (status, told.count("years from 0 to 9999, or all for no end.")) == (1, 1)
    status, _, told = run("compare", *map(str, versions.scores[:1] * 2))
    assert (status, told.count("\n")) == (1, 1)
    assert "--window 5 10" in told


def test_a_month_of_real_preprints_agrees_with_their_citations():
    works, citations = scan_real("hepth")
    sides = [
        ssd.compute_cd_index(some := works.filter(pl.col("publication_year") <= year), citations)
        .join(some.select("work_id", "publication_year"), on="work_id")
        .collect()
        for year in (2000, 2001)
    ]
    found = ssd.compare(*sides)
    rows = found.changes.collect()
    citers = {side: pl.col(f"n_i_{side}") + pl.col(f"n_j_{side}") for side in "ab"}
    assert rows.filter(cause="new_citers").select((citers["b"] > citers["a"]).all()).item()
    assert {*rows["cause"].drop_nulls()} <= {"new_citers", "citers_of_references", "several", "new_references"}
    assert found.works["gained"] == works.filter(publication_year=2001).select(pl.len()).collect().item()
