"""Each notebook prints what is kept in it, from data that come with the package."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import Image
from polars.testing import assert_frame_equal

import sciscidata as ssd
from tests.conftest import REPOSITORY

_SPEC = importlib.util.spec_from_file_location("_notebooks", REPOSITORY / "docs" / "_notebooks.py")
notebooks = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(notebooks)

OWN_TABLE = REPOSITORY / "notebooks" / "1_own_table.ipynb"
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
            yield cell["id"], "".join(shown.get("text/plain", shown.get("text/markdown"))), "image/png" in shown


@pytest.mark.parametrize("name", NAMES)
def test_each_picture_has_a_twin_for_phones(name: str):
    notebook = json.loads((REPOSITORY / "notebooks" / f"{name}.ipynb").read_text("utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    for output in pictures:
        texts = output["data"]["image/png"], output["metadata"]["narrow"]
        wide, narrow = (Image.open(io.BytesIO(base64.b64decode(text))).width for text in texts)
        assert 2 * narrow < wide < 900
    assert pictures


def numbers_of(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in _NUMBER.findall(text)]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_prints_what_is_kept_in_it(name: str):
    """Numbers may differ in their last digits: a trained model depends on the order of sums."""
    path = REPOSITORY / "notebooks" / f"{name}.ipynb"
    ran, _ = notebooks.run_notebook(path)
    kept = list(texts_of(json.loads(path.read_text("utf-8"))))
    assert sum(is_picture for *_, is_picture in kept)
    for (cell, now, drawn), (kept_cell, before, kept_drawn) in zip(texts_of(ran), kept, strict=True):
        assert (cell, drawn, _NUMBER.sub("#", now)) == (kept_cell, kept_drawn, _NUMBER.sub("#", before))
        assert numbers_of(now) == pytest.approx(numbers_of(before), rel=0.01, abs=0.011), cell
        assert now.strip()  # a picture has a caption


def test_a_table_of_ones_own_takes_the_place_of_the_papers_that_come_with_the_package(here: Path):
    """Its ids are text, its years are whole numbers in a column of floats, and it knows no journal."""
    corpus = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=1_000))
    works = corpus.works.select(
        paper=pl.format("paper {}", "work_id"), year=pl.col("publication_year").cast(pl.Float64)
    )
    works.with_columns(journal=pl.lit(None, pl.String)).sink_parquet("papers.parquet")
    ends = {"from": pl.format("paper {}", "citing_id"), "to": pl.format("paper {}", "cited_id")}
    corpus.citations.select(**ends).sink_parquet("cites.parquet")
    _, found = notebooks.run_notebook(OWN_TABLE)
    expected = ssd.compute_cd_index(corpus.works, corpus.citations).with_columns(pl.format("paper {}", "work_id"))
    scores = found["labelled"].select(
        work_id="original_id", **{name: name for name in ("n_i", "n_j", "n_k", "cd_index")}
    )
    assert_frame_equal(scores, expected.select(scores.columns).collect(), check_row_order=False)
    assert found["labelled"]["z_p10"].count() == 0
    assert (here / "by_year.png").stat().st_size > 10_000


def test_the_scores_of_a_table_take_fewer_than_fifteen_lines():
    cells = ["".join(cell["source"]) for cell in json.loads(OWN_TABLE.read_text("utf-8"))["cells"]]
    opened, scored = (next(cell for cell in cells if call in cell) for call in ("from_tables(", "compute_labels("))
    assert len(opened.splitlines()) + len(scored.splitlines()) < 15
