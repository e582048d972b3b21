"""Ingest a CSV of citations with ids of text, beside DuckDB that numbers the same ids.

    python benchmarks/tables.py FOLDER --rows 100_000_000 --peers VENV/bin/python   (benchmarks/requirements-peers.txt)

Works are a tenth of the rows. Both read the same two files and write works and citations with whole numbers as Parquet.
DuckDB gives works the numbers of their rows, and joins them to both columns of the citations.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

CHUNK = 2_000_000
DUCKDB = """
import json, resource, sys, time, duckdb
folder, out = sys.argv[1:]
start = time.perf_counter()
db = duckdb.connect(f"{out}/numbers.db", config={"memory_limit": "3GB", "threads": 2, "temp_directory": out})
db.sql("SET preserve_insertion_order = false; SET enable_progress_bar = false")
db.sql(f"CREATE TABLE works AS SELECT row_number() OVER () AS work_id, * FROM read_csv('{folder}/works.csv')")
db.sql(f'''COPY (SELECT a.work_id AS citing_id, b.work_id AS cited_id FROM read_csv('{folder}/citations.csv') AS c
JOIN works AS a ON a.id = c.citing JOIN works AS b ON b.id = c.cited) TO '{out}/citations.parquet' ''')
db.sql(f"COPY works TO '{out}/works.parquet'")
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"seconds": time.perf_counter() - start, "cpu": usage.ru_utime + usage.ru_stime,
                  "peak_gb": usage.ru_maxrss * 1024 / 1e9}))
"""


def make(folder: Path, n_rows: int) -> None:
    """Write works.csv and citations.csv, unless they are there; ids have ten bytes."""
    import numpy as np
    import polars as pl

    if (folder / "made").exists() and (folder / "made").read_text() == str(n_rows):
        return
    folder.mkdir(parents=True, exist_ok=True)
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
    (folder / "made").write_text(str(n_rows))


def ours(folder: Path) -> None:
    """Ingest in this process, and report."""
    import resource

    import sciscidata as ssd
    from benchmarks.measure import report

    files = {"works": (str(folder / "works.csv"),), "citations": (str(folder / "citations.csv"),)}
    config = ssd.TablesConfig(**files, id="id", year="year", citing="citing", cited="cited")
    start = time.perf_counter()
    facts = ssd.ingest(config, folder / "corpus", cache_dir=folder).provenance
    seconds = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    report(seconds=seconds, cpu=cpu, works=facts["works"], citations=facts["citations"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--peers", default="")
    parser.add_argument("--part", choices=["ours"], default=None)
    options = parser.parse_args()
    if options.part:
        ours(options.folder)
        return
    import subprocess

    from benchmarks.measure import in_own_process

    make(options.folder, options.rows)
    shutil.rmtree(options.folder / "corpus", ignore_errors=True)
    print("sciscidata", in_own_process(__file__, str(options.folder), "--part", "ours"))
    if options.peers:
        out = options.folder / "duckdb"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        command = [options.peers, "-c", DUCKDB, str(options.folder), str(out)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        print("duckdb    ", done.stdout.strip())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    main()
