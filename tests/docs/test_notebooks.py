"""On real data the notebooks print what is kept in them. Without it they run on what they make themselves."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.conftest import REPOSITORY

_SPEC = importlib.util.spec_from_file_location("_notebooks", REPOSITORY / "docs" / "_notebooks.py")
notebooks = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(notebooks)

OWN_TABLE = REPOSITORY / "notebooks" / "1_own_table.ipynb"
SYNTHETIC = "5_train_and_compare"  # on purpose
NAMES = [path.stem for path in notebooks.NOTEBOOKS]
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder; what a notebook says about logging is forgotten."""
    logger = logging.getLogger("sciscidata")
    level = logger.level
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    logger.setLevel(level)


def texts_of(notebook: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """The cell, the text and the kind of each output: what it printed, its value, the caption of its picture."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            shown = output.get("data", {"text/plain": output.get("text")})
            yield cell["id"], "".join(shown["text/plain"]), "image/png" in shown


def numbers_of(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in _NUMBER.findall(text)]


def assert_scores_are_those_of_the_reference(labelled: pl.DataFrame, ids: pl.Expr, folder: Path) -> None:
    counts = ("n_i", "n_j", "n_k")
    ours = labelled.select(ids.alias("id"), "cd_index", *counts)
    theirs = pl.read_parquet(folder / "cd5_reference.parquet").filter(pl.col("n_refs") > 0, pl.col("cd5").is_not_null())
    theirs = theirs.select(pl.col("id").cast(pl.String), pl.col("cd5").alias("cd_index"), *counts).cast(
        dict.fromkeys(counts, pl.UInt32)
    )
    both = [frame.sort("id") for frame in (ours.join(theirs, on="id", how="semi"), theirs)]
    assert both[0].height > 4_000
    assert_frame_equal(both[0], both[1].select(both[0].columns), abs_tol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_prints_on_real_data_what_is_kept_in_it(name, here, monkeypatch, request):
    """Numbers may differ in their last digits: a trained model depends on the order of sums."""
    if name != SYNTHETIC:
        shared_data = request.getfixturevalue("shared_data")
        monkeypatch.setenv("SCISCI_SHARED_DATA", str(shared_data))
    path = REPOSITORY / "notebooks" / f"{name}.ipynb"
    ran, found = notebooks.run_notebook(path)
    kept = list(texts_of(json.loads(path.read_text("utf-8"))))
    assert sum(is_picture for *_, is_picture in kept)
    for (cell, now, drawn), (kept_cell, before, kept_drawn) in zip(texts_of(ran), kept, strict=True):
        assert (cell, drawn, _NUMBER.sub("#", now)) == (kept_cell, kept_drawn, _NUMBER.sub("#", before))
        assert numbers_of(now) == pytest.approx(numbers_of(before), rel=0.01, abs=0.011), cell
        assert now.strip()  # a picture has a caption
    if path == OWN_TABLE:
        ids = pl.col("original_id").str.extract(r"#(\d+)$")
        assert_scores_are_those_of_the_reference(found["labelled"], ids, shared_data / "graph_handball")
        assert found["labelled"]["z_p10"].count() > 1_000
        assert (here / "by_year.png").stat().st_size > 10_000


def test_text_ids_of_own_files_come_back_with_the_scores_of_the_reference(shared_data):
    """Works without a year stay out with their citations, as in the reference."""
    folder = shared_data / "graph_hepth"
    nodes, edges = (pl.read_parquet(folder / f"{name}.parquet") for name in ("nodes", "edges"))
    nodes = nodes.drop_nulls("year")
    for end in ("citing", "cited"):
        edges = edges.join(nodes, left_on=end, right_on="id", how="semi")
    text = pl.format("paper {}", pl.col("id").cast(pl.String)).alias("paper")
    years, no_journal = pl.col("year").cast(pl.Float64), pl.lit(None, pl.String)
    nodes.select(text, years, journal=no_journal).write_parquet("papers.parquet")
    ends = {"from": "citing", "to": "cited"}
    named = {name: pl.format("paper {}", pl.col(end).cast(pl.String)) for name, end in ends.items()}
    edges.select(**named).write_parquet("cites.parquet")
    _, found = notebooks.run_notebook(OWN_TABLE)
    assert found["table"].index.str.startswith("paper ").all()
    ids = pl.col("original_id").str.strip_prefix("paper ")
    assert_scores_are_those_of_the_reference(found["labelled"], ids, folder)
    assert found["labelled"]["cd_10"].count() > found["labelled"]["cd_index"].count() / 2
    assert found["labelled"]["di5_index"].count() > 1_000
    assert found["labelled"]["z_p10"].count() == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != SYNTHETIC])
def test_without_real_data_a_notebook_says_so_and_runs_on_a_synthetic_world(name, monkeypatch):
    monkeypatch.setenv("SCISCI_SHARED_DATA", "nowhere")
    ran, _ = notebooks.run_notebook(REPOSITORY / "notebooks" / f"{name}.ipynb")
    printed = [text for *_, text, _ in texts_of(ran)]
    assert "synthetic" in printed[0]


def test_the_scores_of_a_table_take_fewer_than_fifteen_lines():
    cells = ["".join(cell["source"]) for cell in json.loads(OWN_TABLE.read_text("utf-8"))["cells"]]
    opened, scored = (next(cell for cell in cells if call in cell) for call in ("from_tables(", "compute_labels("))
    assert len(opened.splitlines()) + len(scored.splitlines()) < 15
