"""The citation graphs of every speed figure: S, M and L of the seeded generator that lies with the shared data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
WORKS = {"S": "100,000 works, 2.2M citations", "M": "1M works, 22.6M citations", "L": "5M works, 113.9M citations"}


def shared_data() -> Path:
    """Return the folder of shared data: SCISCI_SHARED_DATA, else ../shared/data beside the checkout."""
    return Path(os.environ.get("SCISCI_SHARED_DATA", HERE.parent.parent / "shared" / "data"))


def graph_files(size: str) -> Path:
    """Return the folder with refs.parquet and papers.parquet of one size, generated on first use."""
    folder = CACHE / size
    if not (folder / "refs.parquet").exists():
        generator = shared_data().parent / "gen_graph.py"
        if not generator.exists():
            sys.exit(f"no graph generator at {generator}; set SCISCI_SHARED_DATA to the shared data folder")
        subprocess.run([sys.executable, str(generator), "--size", size, "--out", str(folder)], check=True)
    return folder


def scan_graph(size: str, *, venues: bool = False) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return CITATIONS and WORKS (work_id and publication_year, with ``venues`` source_id) of one size, lazily."""
    folder = graph_files(size)
    citations = pl.scan_parquet(folder / "refs.parquet").select(citing_id="citing", cited_id="cited")
    works = pl.scan_parquet(folder / "papers.parquet")
    columns = {"work_id": "paper_id", "publication_year": pl.col("year").cast(pl.Int32)}
    if venues:
        columns["source_id"] = pl.col("journal").cast(pl.Int64)
    return works.select(**columns), citations
