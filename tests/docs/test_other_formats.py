"""What the page on R and Stata promises: ids, labels, long texts and missing values come back as they were."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import sciscidata as ssd
from tests.conftest import REPOSITORY
from tests.docs.test_examples import blocks_of


@pytest.fixture(name="names", scope="module")
def names_of_the_page(tmp_path_factory) -> dict[str, Any]:
    """Run the page, and return its variables; ``folder`` has what it wrote."""
    names: dict[str, Any] = {"folder": tmp_path_factory.mktemp("formats")}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(names["folder"])
        for block in blocks_of(REPOSITORY / "docs" / "to_r_and_stata.md"):
            if block.language == "python" and not block.mark.startswith("not run"):
                exec(block.code, names)
    return names


def same(back: pd.DataFrame, names: dict[str, Any], *, empty_is_missing: bool = False) -> None:
    table = names["table"]
    assert back.columns.to_list() == table.columns.to_list()
    for column in back:
        one, other = (frame[column].astype(object).where(frame[column].notna(), None) for frame in (back, table))
        if empty_is_missing and table[column].dtype == "str":
            one = one.replace("", None)
        assert one.to_list() == other.to_list(), column


def test_stata_gets_all_values_and_value_labels(names):
    back = pd.read_stata(names["folder"] / "table.dta")
    assert back["disruption_label"].cat.categories.to_list() == names["words"]
    assert back["title"].str.len().max() > 244
    same(back, names, empty_is_missing=True)
    with pd.read_stata(names["folder"] / "table.dta", iterator=True) as reader:
        assert reader.variable_labels()["cd_index"] == "CD index, 5 years"


def test_feather_gets_all_values(names):
    back = pd.read_feather(names["folder"] / "table.feather")
    assert back["disruption_label"].cat.categories.to_list() == names["words"]
    same(back, names)


def test_pyreadstat_reads_labels_of_values_and_columns(names):
    pyreadstat = pytest.importorskip("pyreadstat")
    back, facts = pyreadstat.read_dta(names["folder"] / "table.dta", apply_value_formats=True)
    assert facts.variable_value_labels == {"disruption_label": dict(enumerate(names["words"]))}
    assert facts.column_names_to_labels["disruption_label"] == "label of the CD index"
    same(back, names, empty_is_missing=True)


def test_rds_gets_all_values_and_factors(names, tmp_path):
    pyreadr = pytest.importorskip("pyreadr")
    pyreadr.write_rds(tmp_path / "table.rds", names["table"], compress="gzip")
    back = pyreadr.read_r(tmp_path / "table.rds")[None].reset_index(drop=True)
    same(back, names)
    assert isinstance(back["disruption_label"].dtype, pd.CategoricalDtype)
    assert back["window_complete"].dtype == bool


def test_abstracts_of_any_length_reach_stata(tmp_path):
    abstracts = ssd.scan_example().works.select("abstract").to_pandas()
    abstracts.to_stata(tmp_path / "long.dta", write_index=False, version=118)
    back = pd.read_stata(tmp_path / "long.dta")["abstract"]
    assert back.to_list() == abstracts["abstract"].fillna("").to_list()
    assert back.str.len().max() > 2_045


@pytest.mark.parametrize("kind", ["dta", "rds", "feather", "csv"])
def test_ids_of_19_digits_are_text_in_every_format(tmp_path, kind):
    ids = [2**53 + 1, 2**62 - 1, 1_234_567_890_123_456_789]
    papers = pl.DataFrame({"id": ids, "year": [1990, 2000, 2001]})
    cites = pl.DataFrame({"citing_id": ids[1:], "cited_id": ids[:2]})
    works, citations, _ = ssd.from_tables(papers, cites, id="id", year="year")
    table = ssd.compute_cd_index(works, citations).to_pandas()
    path: Path = tmp_path / f"ids.{kind}"
    if kind == "dta":
        table.to_stata(path, write_index=False, version=118)
        back = pd.read_stata(path)
    elif kind == "rds":
        pyreadr = pytest.importorskip("pyreadr")
        pyreadr.write_rds(path, table)
        back = pyreadr.read_r(path)[None]
    elif kind == "feather":
        table.to_feather(path)
        back = pd.read_feather(path)
    else:
        table.to_csv(path, index=False)
        back = pd.read_csv(path, dtype={"work_id": str})
    assert sorted(back["work_id"]) == sorted(map(str, ids))


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_the_command_for_r_keeps_every_digit_and_reads_true_and_false(tmp_path):
    ids = [1_234_567_890_123_456_740, 1_234_567_890_123_456_741, 1_234_567_890_123_456_742]
    papers = pl.DataFrame({"work_id": ids, "publication_year": [1990, 1995, 2000]})
    cites = pl.DataFrame({"citing_id": ids[1:], "cited_id": ids[:2]})
    ssd.score_ids([*map(str, ids), "lost"], ssd.from_tables(papers, cites), cache_dir=tmp_path).write_csv(
        tmp_path / "scores.csv"
    )
    blocks = blocks_of(REPOSITORY / "docs" / "to_r_and_stata.md")
    (read,) = (block.code for block in blocks if "read.csv" in block.code)
    (tmp_path / "read.R").write_text(
        f"options(warn = 2)\n{read}\ncat(scores$openalex_id, scores$asked, scores$window_complete, sep = ' ')\n"
    )
    run = subprocess.run(["Rscript", "read.R"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [*map(str, ids), "NA", *map(str, ids), "lost", "TRUE", "FALSE", "FALSE", "NA"]
