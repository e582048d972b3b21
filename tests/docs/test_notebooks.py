"""Every notebook runs from top to bottom in IPython, on real tables with text ids and on what it makes itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.conftest import REPOSITORY

NOTEBOOK = REPOSITORY / "notebooks" / "own_table.ipynb"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_notebook() -> dict[str, Any]:
    """Run all cells as Jupyter does, and return the names that they define."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    for cell in cells:
        assert not cell.get("outputs")
        if cell["cell_type"] == "code":
            shell.run_cell(cell["source"]).raise_error()
    return shell.user_ns


def write_tables(folder: Path, **journal: pl.Expr) -> None:
    """Write real works and citations as a stranger has them: other names of columns, and ids that are text.

    Works without a year stay out with their citations, as in the reference.
    """
    nodes, edges = (pl.read_parquet(folder / f"{name}.parquet") for name in ("nodes", "edges"))
    nodes = nodes.drop_nulls("year")
    for end in ("citing", "cited"):
        edges = edges.join(nodes, left_on=end, right_on="id", how="semi")
    text = pl.format("paper {}", pl.col("id").cast(pl.String)).alias("paper")
    nodes.select(text, pl.col("year").cast(pl.Float64), **journal).write_parquet("papers.parquet")
    ends = {"from": "citing", "to": "cited"}
    named = {name: pl.format("paper {}", pl.col(end).cast(pl.String)) for name, end in ends.items()}
    edges.select(**named).write_parquet("cites.parquet")


@pytest.mark.parametrize("graph", ["handball", "hepth"])
def test_text_ids_come_back_with_the_scores_of_the_reference(graph, shared_data, here):
    folder = shared_data / f"graph_{graph}"
    write_tables(folder, journal=pl.col("venue") if graph == "handball" else pl.lit(None, pl.String))
    found = run_notebook()
    assert found["table"].index.str.startswith("paper ").all()
    counts = ("n_i", "n_j", "n_k")
    ours = found["labelled"].select(pl.col("original_id").str.strip_prefix("paper ").alias("id"), "cd_index", *counts)
    theirs = pl.read_parquet(folder / "cd5_reference.parquet").filter(pl.col("n_refs") > 0, pl.col("cd5").is_not_null())
    theirs = theirs.select(pl.col("id").cast(pl.String), pl.col("cd5").alias("cd_index"), *counts).cast(
        dict.fromkeys(counts, pl.UInt32)
    )
    both = [frame.sort("id") for frame in (ours.join(theirs, on="id", how="semi"), theirs)]
    assert both[0].height > 4_000
    assert_frame_equal(both[0], both[1].select(both[0].columns), abs_tol=1e-12)
    assert found["labelled"]["cd_10"].count() > found["labelled"]["cd_index"].count() / 2
    assert found["labelled"]["di5_index"].count() > 1_000
    assert (found["labelled"]["z_p10"].count() > 1_000) == (graph == "handball")
    assert (here / "by_year.png").stat().st_size > 10_000


def test_without_tables_it_makes_its_own_and_the_scores_take_fewer_than_fifteen_lines(here):
    found = run_notebook()
    assert len(found["table"]) == 5_000
    scoring = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"][1]
    assert len(scoring["source"].splitlines()) < 15
