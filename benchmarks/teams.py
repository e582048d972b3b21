"""Two published findings over every choice of a multiverse: small teams disrupt, and science disrupts less and less.

python benchmarks/teams.py                   teams, on the example
python benchmarks/teams.py --papers FOLDER   the decline, too, on papers of five fields without their authors

Teams (Wu, Wang & Evans 2019, doi:10.1038/s41586-019-0941-9): the slope of the percentile of the index, within field and
year, on the logarithm to base 2 of the number of authors: percentiles for twice as many authors. Decline (Park, Leahey
& Funk 2023, doi:10.1038/s41586-022-05543-x): the slope of the index, within fields, on the year, for ten years. Each
alone, and with the number of references held constant. Intervals of 95 % allow for unequal variance.

Results go to benchmarks/results/multiverse.json, tables to benchmarks/notes/multiverse.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks.label_confidence import read_papers
from sciscidata.indicators import Multiverse, MultiverseConfig, run_multiverse

OUT = Path(__file__).resolve().parent / "results" / "multiverse.json"
FEWEST = 10  # works of a cell
TEAMS = MultiverseConfig(missing=[0, 0.05, 0.1, 0.2])
DECLINE = MultiverseConfig(conventions=["default", "cdindex", "sciscinet_v1_cd5"], missing=[0, 0.05, 0.1, 0.2])
LENGTH = pl.col("n_refs").log1p()
CONTROLS = {"alone": (), "references": (LENGTH,)}


def fit(rows: pl.DataFrame, y: pl.Expr, x: pl.Expr, others: tuple[pl.Expr, ...], within: list[str]) -> dict[str, float]:
    """Return the slope of y on x and its interval of 95 %, others held constant, all within groups."""
    columns = [column - column.mean().over(within) for column in (y, x, *others)]
    values = rows.select(column.alias(str(i)) for i, column in enumerate(columns)).to_numpy()
    outcome, terms = values[:, 0], values[:, 1:]
    inverse = np.linalg.inv(terms.T @ terms)
    slopes = inverse @ terms.T @ outcome
    scores = (outcome - terms @ slopes)[:, None] * terms
    freedom = rows.height - rows.select(within).n_unique() - terms.shape[1]
    error = float(np.sqrt((inverse @ (scores.T @ scores) @ inverse)[0, 0] * rows.height / freedom))
    return {"estimate": slopes[0], "low": slopes[0] - 1.96 * error, "high": slopes[0] + 1.96 * error}


def slope_of_teams(frame: pl.DataFrame, others: tuple[pl.Expr, ...] = ()) -> dict[str, float]:
    """Return percentiles for twice as many authors."""
    cell = ["primary_field", "publication_year"]
    rows = frame.drop_nulls(["n_authors", *cell]).filter(pl.len().over(cell) >= FEWEST)
    percentile = (100 * (pl.col("disruption").rank() - 0.5) / pl.len()).over(cell)
    rows = rows.with_columns(percentile=percentile)
    return fit(rows, pl.col("percentile"), pl.col("n_authors").log(2), others, cell)


def slope_of_years(frame: pl.DataFrame, others: tuple[pl.Expr, ...] = ()) -> dict[str, float]:
    """Return the change of the index in ten years."""
    rows = frame.drop_nulls("primary_field")
    return fit(rows, pl.col("disruption"), pl.col("publication_year") / 10, others, ["primary_field"])


def run(estimate: Any, config: MultiverseConfig, *data: Any, authors: Any = None) -> Multiverse:
    """Run an estimate alone and with controls: one more choice."""
    parts = []
    for name, others in CONTROLS.items():
        found = run_multiverse(lambda frame, others=others: estimate(frame, others), *data, config, authors=authors)
        parts.append(found.specifications.with_columns(controls=pl.lit(name)))
    return Multiverse(pl.concat(parts))


def summarise(found: Multiverse) -> dict[str, Any]:
    """Return the figures that a page quotes."""
    main = found.specifications.row(0, named=True)
    by_index = found.specifications.group_by("index", maintain_order=True).agg(
        pl.col("estimate").median().alias("median"),
        above=(pl.col("low") > 0).mean(),
        below=(pl.col("high") < 0).mean(),
    )
    return {
        "specifications": found.specifications.height,
        "without estimate": found.n_failed,
        "main": {name: _round(main[name]) for name in ("works", "estimate", "low", "high")},
        "description": found.describe(),
        "by index": {row[0]: [*map(_round, row[1:])] for row in by_index.rows()},
        "share of variance": {row[0]: _round(row[1]) for row in found.influence.rows()},
    }


def _round(value: float) -> float:
    return value if isinstance(value, int) else round(value, 5)


def show(name: str, facts: dict[str, Any]) -> None:
    """Print what the page says of one finding."""
    main = facts["main"]
    print(f"\n{name}. {facts['description']}")
    print(f"main: {main['estimate']:.3g} ({main['low']:.3g} to {main['high']:.3g}), {main['works']:,} works")
    print("| index | median | interval above 0 | interval below 0 |\n|---|---|---|---|")
    for index, (median, above, below) in facts["by index"].items():
        print(f"| {index} | {median:.3g} | {above:.0%} | {below:.0%} |")
    print("; ".join(f"{choice} {share:.0%}" for choice, share in facts["share of variance"].items()))


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--papers", type=Path, help="folder with works.parquet and citations.parquet")
    papers = parser.parse_args().papers
    logging.basicConfig(level=logging.ERROR)
    kept = json.loads(OUT.read_text()) if OUT.exists() else {}
    corpus = ssd.scan_example()
    teams = run(slope_of_teams, TEAMS, corpus.works, corpus.citations, authors=ssd.scan_authors(ssd.ExampleConfig()))
    kept["teams, example"] = summarise(teams)
    if papers:
        works, citations = read_papers(papers)
        kept["decline, five fields"] = summarise(run(slope_of_years, DECLINE, works, citations))
    OUT.write_text(json.dumps(kept, indent=1) + "\n")
    for name, facts in kept.items():
        show(name, facts)


if __name__ == "__main__":
    main()
