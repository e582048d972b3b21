"""Real citation networks: the example that comes with the package, and two that state no licence (``shared_data``)."""

from __future__ import annotations

import polars as pl
import pytest

import sciscidata as ssd
from tests.conftest import REPOSITORY, shared_data_folder


def scan_real(name: str = "example") -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return WORKS (work_id, publication_year, source_id) and CITATIONS of example, handball or hepth."""
    if name == "example":
        works, citations, _ = ssd.scan_example()
        return works.select("work_id", "publication_year", "source_id"), citations
    folder = shared_data_folder() / f"graph_{name}"
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}; set SCISCI_SHARED_DATA")
    nodes, edges = (pl.scan_parquet(folder / f"{part}.parquet") for part in ("nodes", "edges"))
    venue = "source_no" if name == "handball" else pl.lit(None, pl.Int64)
    works = nodes.select(work_id=pl.col("id").cast(pl.Int64), publication_year="year", source_id=venue)
    return works, edges.select(pl.col("citing", "cited").cast(pl.Int64).name.suffix("_id"))


def read_reference(name: str) -> tuple[pl.LazyFrame, pl.LazyFrame, pl.DataFrame]:
    """Return WORKS, CITATIONS, and what PyPI cdindex 1.0.20 gives them: work_id, n_refs, n_i, n_j, n_k, cd5."""
    works, citations = scan_real(name)
    if name == "example":
        return works, citations, pl.read_parquet(REPOSITORY / "tests" / "golden" / "example_cdindex.parquet")
    works = works.drop_nulls("publication_year")  # the others were left out
    for end in ("citing_id", "cited_id"):
        citations = citations.join(works, left_on=end, right_on="work_id", how="semi")
    expected = pl.read_parquet(shared_data_folder() / f"graph_{name}" / "cd5_reference.parquet")
    return works, citations, expected.with_columns(work_id=pl.col("id").cast(pl.Int64))
