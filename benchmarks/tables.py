"""Ingest a CSV of citations with ids of text, beside DuckDB and Polars that number the same ids.

    python benchmarks/tables.py --rows 100_000_000 --peers VENV/bin/python   (benchmarks/requirements-peers.txt)

Works are a tenth of the rows. All read the same two files and write works and citations with whole numbers as Parquet.
The peers give works the numbers of their rows, and join them to both columns of the citations. DuckDB may use 3 GB.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.measure import report, timed, try_process

CACHE = Path(__file__).resolve().parent / ".cache"
CHUNK = 2_000_000


def by_duckdb(folder: Path, out: str) -> None:
    import duckdb

    db = duckdb.connect(f"{out}/numbers.db", config={"memory_limit": "3GB", "threads": 2, "temp_directory": out})
    db.sql("SET preserve_insertion_order = false; SET enable_progress_bar = false")
    db.sql(f"CREATE TABLE works AS SELECT row_number() OVER () AS work_id, * FROM read_csv('{folder}/works.csv')")
    db.sql(f"""COPY (SELECT a.work_id AS citing_id, b.work_id AS cited_id FROM read_csv('{folder}/citations.csv') AS c
        JOIN works AS a ON a.id = c.citing JOIN works AS b ON b.id = c.cited) TO '{out}/citations.parquet' """)
    db.sql(f"COPY works TO '{out}/works.parquet'")


def by_polars(folder: Path, out: str) -> None:
    import polars as pl

    works = pl.scan_csv(folder / "works.csv").with_row_index("work_id")
    works.sink_parquet(f"{out}/works.parquet")
    numbers = pl.scan_parquet(f"{out}/works.parquet").select("work_id", "id")
    citations = pl.scan_csv(folder / "citations.csv")
    for column in ("citing", "cited"):
        named = numbers.rename({"id": column, "work_id": f"{column}_id"})
        citations = citations.join(named, on=column).drop(column)
    citations.sink_parquet(f"{out}/citations.parquet")


def by_sciscidata(folder: Path, out: str) -> None:
    import sciscidata as ssd

    files = {"works": (str(folder / "works.csv"),), "citations": (str(folder / "citations.csv"),)}
    config = ssd.TablesConfig(**files, id="id", year="year", citing="citing", cited="cited")
    ssd.ingest(config, Path(out) / "corpus", cache_dir=out)


TOOLS = {"sciscidata": by_sciscidata, "DuckDB": by_duckdb, "Polars": by_polars}


def make(folder: Path, n_rows: int) -> None:
    """Write works.csv and citations.csv; ids have ten bytes."""
    import numpy as np
    import polars as pl

    rng, n_works = np.random.default_rng(7), n_rows // 10

    def ids(numbers: np.ndarray) -> pl.Series:
        # By a bijection modulo a prime, so that the order of the ids is not that of the years.
        return "P" + pl.Series((numbers + 1) * 387_420_489 % 999_999_937).cast(pl.String).str.zfill(9)

    for name, size in (("works", n_works), ("citations", n_rows)):
        with (folder / f"{name}.csv").open("wb") as file:
            for start in range(0, size, CHUNK):
                n = min(CHUNK, size - start)
                if name == "works":
                    at = np.arange(start, start + n)
                    rows = pl.DataFrame({"id": ids(at), "year": 1960 + at * 60 // n_works})
                else:
                    citing = rng.integers(1, n_works, n)
                    rows = pl.DataFrame({"citing": ids(citing), "cited": ids((citing * rng.random(n)).astype(int))})
                rows.write_csv(file, include_header=start == 0)


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help=measure.HIDDEN)
    options = parser.parse_args()
    if options.part == "make":
        make(options.folder, options.rows)
        return report()
    CACHE.mkdir(exist_ok=True)
    if options.part:
        if options.part == "sciscidata":
            with tempfile.TemporaryDirectory(dir=CACHE) as small:
                make(Path(small), 1_000)
                by_sciscidata(Path(small), small)  # compiles
        with tempfile.TemporaryDirectory(dir=CACHE) as out:
            cost, _ = timed(lambda: TOOLS[options.part](options.folder, out))
        return report(**cost)
    rows: list[measure.Row] = []
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        arguments = ("--folder", folder, "--rows", str(options.rows))
        measure.in_own_process(__file__, *arguments, "--part", "make")
        for tool in TOOLS:
            task = f"CSV of {options.rows:,} citations to Parquet with numbers"
            python = sys.executable if tool == "sciscidata" else options.peers
            rows.append(try_process(task, tool, __file__, *arguments, "--part", tool, python=python))
    return measure.show(rows, options)


if __name__ == "__main__":
    main()
