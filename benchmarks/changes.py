"""Compare two files of scores of millions of made works, as ``sciscidata compare`` does: python benchmarks/changes.py.

Between the two, a fiftieth of the works has a citer more of either kind, and one or two hundredths of them are missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from sciscidata.cli.main import main as sciscidata
from sciscidata.corpus.scores import write_scores
from sciscidata.disruption.config import CDConfig
from sciscidata.schemas import CD_SCORES

ROWS_AT_ONCE = 1 << 20


def make(n_works: int, out: Path, *, version: int) -> None:
    """Write a version of the scores of as many works."""
    common, own = np.random.default_rng(0), np.random.default_rng(version)
    ids = np.sort(common.choice(10 * n_works, n_works, replace=False)) + 2_000_000_000
    counts = {name: common.poisson(mean, n_works) for name, mean in (("n_i", 1.5), ("n_j", 2), ("n_k", 20))}
    more = {name: own.random(n_works) < share for name, share in (("n_i", 0.02), ("n_j", 0.02), ("n_k", 0.5))}
    rows = pl.DataFrame({"work_id": ids, **{name: counts[name] + more[name] for name in counts}})
    total = pl.sum_horizontal(*counts)
    index = pl.when(total > 0).then((pl.col("n_i") - pl.col("n_j")) / total)
    rows = rows.with_columns(cd_index=index, window_complete=own.random(n_works) < 0.9)
    rows = rows.filter(own.random(n_works) > version / 100).cast({**CD_SCORES})
    facts = {"stage": "cd", "format_version": 2, "config": CDConfig().stated(), "corpus_sha256": str(version)}
    parts = (rows.slice(start, ROWS_AT_ONCE) for start in range(0, rows.height, ROWS_AT_ONCE))
    write_scores(parts, out, facts, replace=False)


def main() -> None:
    """Make both versions and compare them; the last line has seconds and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-works", type=int, default=5_000_000, help="works of each version [5,000,000]")
    n_works = parser.parse_args().n_works
    with TemporaryDirectory() as folder:
        a, b, out = (str(Path(folder) / f"{name}.parquet") for name in ("a", "b", "changes"))
        make(n_works, Path(a), version=1)
        make(n_works, Path(b), version=2)
        sciscidata(["compare", a, b, "--out", out])


if __name__ == "__main__":
    main()
