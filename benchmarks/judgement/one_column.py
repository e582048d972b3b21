"""How far one column at publication tells two labels apart: ``one_column.py PAPERS SLICES OUT``.

OUT is ``results/one_column.json``: by column its accuracy on the first test of ``two``, and its median by label.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
from at_publication import read_pool, read_slice, say_interval
from sklearn.linear_model import LogisticRegression
from slices import SLICES, run

COLUMNS = ("n_coupled_twice", "n_references")


def main(papers: Path, slices: Path, out: Path) -> None:
    drawn = read_slice(read_pool(papers, slices), slices / "two.parquet")
    train, test = drawn.sides["train"], drawn.sides["test"]
    found = {}
    for column in COLUMNS:
        counts = drawn.own[column].cast(pl.Float64).fill_null(0).to_numpy()
        logs = np.log1p(counts)[:, None]
        right = LogisticRegression().fit(logs[train], drawn.gold[train]).predict(logs[test]) == drawn.gold[test]
        medians = {
            name: float(np.median(counts[test & (drawn.gold == at)])) for at, name in enumerate(SLICES["two"][0])
        }
        found[column] = {"accuracy": say_interval(right * 1.0), "medians": medians}
    out.write_text(json.dumps(found) + "\n", "utf-8")


if __name__ == "__main__":
    run(main, __doc__, "papers", "slices", "out")
