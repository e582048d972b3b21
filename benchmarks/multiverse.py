"""A multiverse on a large graph: seconds and peak memory, beside a loop over compute_cd_index.

python benchmarks/multiverse.py              576 specifications on M, 1M works
python benchmarks/multiverse.py --size S     on another graph of graphs.py

The estimate is a regression coefficient with its interval, of the index on a number of authors drawn at random. The
loop scores every work for each specification, as one does by hand. It is timed on random specifications, whose
estimates have to be equal, and scaled to all.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.graphs import CACHE, N_WORKS, scan_graph
from sciscidata.disruption.missing_data import is_kept
from sciscidata.indicators import MultiverseConfig, is_judged, run_multiverse

CHOICES = MultiverseConfig(conventions=["default", "sciscinet_v1_cd5", "crossdi"], windows=[5, 3, 10, None])


def slope(frame: pl.DataFrame) -> tuple[float, float, float]:
    """Return the slope of the index on the logarithm of the number of authors, with its interval of 95 %."""
    x, y = frame["n_authors"].log().to_numpy(), frame["disruption"].to_numpy()
    x = x - x.mean()
    squares = (x * x).sum()  # not x @ x, whose threads would wait for each other on a busy machine
    b = (x * y).sum() / squares
    error = np.sqrt((((y - y.mean() - b * x) * x) ** 2).sum()) / squares
    return b, b - 1.96 * error, b + 1.96 * error


def read(size: str) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return a graph whose works have authors."""
    works, citations = scan_graph(size)
    authors = 1 + np.random.default_rng(1).poisson(3, N_WORKS[size])
    return works.collect().with_columns(n_authors=pl.Series(authors, dtype=pl.Int32)).lazy(), citations


def estimate_alone(works: pl.LazyFrame, citations: pl.LazyFrame, row: dict) -> tuple[float, float, float]:
    """Score every work for one specification, and estimate."""
    options = {"window_years": None if row["window"] == "all" else int(row["window"]), "family": True}
    default = row["convention"] == "default"
    config = ssd.CDConfig(**options) if default else ssd.CDConfig.compat(row["convention"], **options)
    left = citations.filter(is_kept("citations", row["missing"], 0)) if row["missing"] else citations
    scores = ssd.compute_cd_index(works, left, config).filter(
        pl.col(row["index"]).is_not_null(),
        pl.col("n_refs") >= row["min_references"],
        pl.col("n_i") + pl.col("n_j") >= row["min_citers"],
    )
    scores = scores.filter(is_judged()) if row["population"] == "judged" else scores
    places = works.select("work_id", "publication_year", "n_authors")
    joined = scores.join(places, on="work_id").sort("publication_year", "work_id")
    return slope(joined.with_columns(disruption=row["index"]).collect())


def main() -> None:
    """Print one table."""
    parser = measure.parser(__doc__)
    parser.add_argument("--size", choices=[*N_WORKS], default="M")
    parser.add_argument("--loop", type=int, default=6, help="specifications that the loop is timed on")
    options = parser.parse_args()
    works, citations = read(options.size)
    ssd.compute_cd_index(*ssd.scan_example()[:2], ssd.CDConfig(family=True)).collect()  # compile
    if options.part:
        took, found = measure.timed(lambda: run_multiverse(slope, works, citations, CHOICES))
        found.specifications.write_parquet(options.part)
        measure.report(**took, note=f"{found.specifications.height} specifications in {CHOICES.n_passes} passes")
        return
    kept = CACHE / f"multiverse-{options.size}.parquet"
    task = f"{options.size}: a multiverse"
    rows = [measure.try_process(task, "run_multiverse", __file__, "--size", options.size, "--part", str(kept))]
    specifications = pl.read_parquet(kept)
    chosen = random.Random(0).sample(specifications.rows(named=True), options.loop)
    took, alone = measure.timed(lambda: [estimate_alone(works, citations, row) for row in chosen])
    n_equal = sum(
        np.allclose([row[end] for end in ("estimate", "low", "high")], one)
        for row, one in zip(chosen, alone, strict=True)
    )
    scaled = {name: seconds * specifications.height / len(chosen) for name, seconds in took.items()}
    note = f"{n_equal} of {len(chosen)} estimates equal; time scaled from these to all"
    rows.append({"task": task, "tool": "a loop over compute_cd_index", **scaled, "note": note})
    measure.show(rows, options)


if __name__ == "__main__":
    main()
