"""Result files: what one evaluation or another's model answered, small and checked."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import sciscidata as ssd
from sciscirl import write_result
from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import PredictionsError, SciSciRLError
from sciscirl.lab.analysis.compare import CompareConfig
from sciscirl.lab.report.comparison import compare_files, render_comparison
from tests.sciscirl.toy import make_slice


def evaluate_baselines(release: Path, out: Path) -> None:
    PROGRAM.call("evaluate", ["--release", str(release), "--baselines", "--out", str(out)], set())


def answer(release: Path, label: str = "neutral") -> pl.DataFrame:
    ids = ssd.read_release(release).test["openalex_id"]
    return pl.DataFrame({"openalex_id": ids, "label": [label] * len(ids), "confidence": [0.5] * len(ids)})


@pytest.fixture(scope="module")
def evaluations(toy_slice, tmp_path_factory):
    """The folder of an evaluation of each baseline; tests leave it as it is."""
    out = tmp_path_factory.mktemp("results") / "all"
    evaluate_baselines(toy_slice, out)
    return out


@pytest.fixture(scope="module")
def results(evaluations):
    """Their result files; tests leave them as they are."""
    compare_files([str(evaluations)], CompareConfig(), evaluations.parent / "comparison")
    return evaluations.parent / "comparison/results"


def test_result_files_say_the_same_as_the_folders_and_a_row_can_be_added(toy_slice, tmp_path, evaluations, results):
    folders = compare_files([str(evaluations)], CompareConfig())
    files = compare_files([str(results)], CompareConfig())
    assert {name: files.scores[name] for name in folders.scores} == dict(folders.scores)
    assert files.saw == folders.saw
    mine = write_result(
        tmp_path / "mine.result.json", toy_slice, answer(toy_slice), model="always neutral", saw="no paper", seed=3
    )
    both = compare_files([str(results), str(mine)], CompareConfig(reference="majority"), release=toy_slice)
    assert both.scores["mine"]["label_match"].value == pytest.approx(1 / 3)
    assert both.saw["mine"] == "no paper"
    assert "mine" in render_comparison(both)
    stated = json.loads(mine.read_text("utf-8"))
    assert stated["settings"] == {"model": "always neutral", "saw": "no paper", "split": "test", "seed": 3}
    assert (
        stated["release"]["manifest_sha256"]
        == json.loads((results / "words.result.json").read_text("utf-8"))["release"]["manifest_sha256"]
    )
    assert "title" not in json.dumps(stated["answers"])


def change(path: Path, edit) -> Path:
    content = json.loads(path.read_text("utf-8"))
    edit(content)
    (path.parent / "SHA256SUMS").unlink(missing_ok=True)
    path.write_text(json.dumps(content), "utf-8")
    return path


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda one: one["answers"]["label"].__setitem__(0, "disruptive"), "mine.result.json was changed: its answers"),
        (lambda one: one.update(split_sha256="0" * 64), "is of release .*0000000"),
        (lambda one: one.pop("answers_sha256"), "it has no 'answers_sha256'"),
        (lambda one: one.update(format_version=9), "has the format 9, needs 1"),
    ],
)
def test_a_file_that_does_not_fit_is_one_clear_error(edit, said, toy_slice, tmp_path, results):
    mine = write_result(tmp_path / "mine.result.json", toy_slice, answer(toy_slice), model="m", saw="title")
    change(mine, edit)
    with pytest.raises(PredictionsError, match=said):
        compare_files([str(results), str(mine)], CompareConfig())


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda rows: rows.tail(-1), "lacks 1 paper of the split, first"),
        (lambda rows: pl.concat([rows, rows.head(1)]), "has 2 answers to .*, needs 1"),
        (
            lambda rows: rows.with_columns(label=pl.lit("novel")),
            "label 'novel', need disruptive, .* for disruption only",
        ),
        (lambda rows: rows.with_columns(openalex_id=pl.lit("W0") + pl.col("openalex_id")), "that the split does not"),
        (lambda rows: rows.drop("confidence"), "no column 'confidence'"),
        (
            lambda rows: rows.with_columns(confidence=pl.lit(2.0)),
            "confidence 2.0 beside the label neutral .*, need 0 to 1",
        ),
        (lambda rows: rows.with_columns(label=pl.lit(None, pl.String)), "confidence 0.5 beside the label None"),
    ],
)
def test_answers_that_do_not_fit_are_refused_before_a_file_is_written(edit, said, toy_slice, tmp_path):
    path = tmp_path / "mine.result.json"
    with pytest.raises(SciSciRLError, match=said):
        write_result(path, toy_slice, edit(answer(toy_slice)), model="m", saw="title")
    assert not path.exists()


def test_a_table_of_some_papers_is_said_to_be_one_and_has_the_ceiling_of_its_release(tmp_path, caplog):
    release = make_slice(tmp_path / "release", ceiling={"accuracy": 0.9, "macro_f1": 0.9, "works": 9})
    evaluate_baselines(release, tmp_path / "all")
    rows = pl.read_parquet(tmp_path / "all/words/predictions.parquet")
    rows.tail(-2).write_parquet(tmp_path / "some.parquet")
    compared = compare_files([f"some={tmp_path / 'some.parquet'}"], CompareConfig(), release=release)
    assert f"some has no answers to 2 papers of test, which has {rows.height}" in caplog.text
    assert compared.ceiling == {"accuracy": 0.9, "macro_f1": 0.9, "works": 9}


def test_a_release_shows_gold_labels_that_were_changed(toy_slice, tmp_path, results):
    from sciscirl.lab.analysis.result_file import _hash

    def edit(one):
        one["answers"]["gold"] = one["answers"]["gold"][::-1]
        one["answers_sha256"] = _hash(one["answers"])

    mine = write_result(tmp_path / "mine.result.json", toy_slice, answer(toy_slice), model="m", saw="title")
    change(mine, edit)
    with pytest.raises(PredictionsError, match="another gold label"):
        compare_files([str(mine)], CompareConfig(), release=toy_slice)


def test_a_result_file_that_lacks_a_paper_is_refused_by_its_release(toy_slice, tmp_path):
    from sciscirl.lab.analysis.result_file import _hash

    def edit(one):
        one["answers"] = {name: values[1:] for name, values in one["answers"].items()}
        one["answers_sha256"] = _hash(one["answers"])

    mine = write_result(tmp_path / "mine.result.json", toy_slice, answer(toy_slice), model="m", saw="title")
    with pytest.raises(PredictionsError, match="mine lacks 1 paper of the split"):
        compare_files([str(change(mine, edit))], CompareConfig(), release=toy_slice)
