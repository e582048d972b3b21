"""What a first call waits for: seconds of a call in a new environment, where numba compiles, and of the next process.

    python benchmarks/first_call.py

Each call has 2,000 works, and comes after the import of the package. numba's cache is a new folder for each one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.measure import report, timed, try_process

CALLS = ("compute_cd_index", "compute_atypicality", "compute_label_confidence")


def call(name: str) -> None:
    """Time one call."""
    import polars as pl

    import sciscidata as ssd
    from benchmarks.graphs import scan_graph

    frames = [frame.collect().lazy() for frame in scan_graph("XS", venues=True)]
    if name == "compute_label_confidence":
        n = pl.int_range(2_000, dtype=pl.UInt32)
        counts = pl.select(n_i=n % 7, n_j=n % 5, n_k=n % 97, cd_index=((n % 7).cast(pl.Int64) - n % 5) / 100)
        frames = [counts]
    cost, _ = timed(lambda: getattr(ssd, name)(*frames).collect())
    report(**cost)


def main() -> None:
    options = measure.parser(__doc__).parse_args()
    if options.part:
        return call(options.part)
    rows: list[measure.Row] = []
    for name in CALLS:
        with tempfile.TemporaryDirectory() as cache:
            for tool in ("new environment", "next process"):
                row = try_process(f"first call of `{name}`", tool, __file__, "--part", name, NUMBA_CACHE_DIR=cache)
                rows.append(row)
    return measure.show(rows, options)


if __name__ == "__main__":
    main()
