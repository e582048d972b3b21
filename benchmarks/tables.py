"""Number ids of text in tables, beside DuckDB and Polars that number the same ids by joins.

python benchmarks/tables.py --size M --peers VENV/bin/python            a graph, DOIs for ids: frames, CSV, Parquet
python benchmarks/tables.py --rows 100_000_000 --peers VENV/bin/python  a CSV of any size, ids of ten bytes

VENV has the peers: benchmarks/requirements-peers.txt. From files, all write works and citations with whole numbers as
Parquet. The peers give works the numbers of their rows, and join them to both columns of the citations. DuckDB may use
3 GB. Works of ``--rows`` are a tenth of the rows.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.measure import report, timed, try_process

CACHE = Path(__file__).resolve().parent / ".cache"
CHUNK = 2_000_000


def by_duckdb(folder: Path, out: str, kind: str) -> None:
    import duckdb

    db = duckdb.connect(f"{out}/numbers.db", config={"memory_limit": "3GB", "threads": 2, "temp_directory": out})
    db.sql("SET preserve_insertion_order = false; SET enable_progress_bar = false")
    read = f"read_{kind}('{folder}/%s.{kind}')"
    db.sql(f"CREATE TABLE works AS SELECT row_number() OVER () AS work_id, * FROM {read % 'works'}")
    db.sql(f"""COPY (SELECT a.work_id AS citing_id, b.work_id AS cited_id FROM {read % "citations"} AS c
        JOIN works AS a ON a.id = c.citing JOIN works AS b ON b.id = c.cited) TO '{out}/citations.parquet' """)
    db.sql(f"COPY works TO '{out}/works.parquet'")


def join(citations: Any, numbers: Any) -> Any:
    """Put numbers in the place of ids, in frames of Polars."""
    for column in ("citing", "cited"):
        named = numbers.rename({"id": column, "work_id": f"{column}_id"})
        citations = citations.join(named, on=column).drop(column)
    return citations


def by_polars(folder: Path, out: str, kind: str) -> None:
    import polars as pl

    scan: Any = pl.scan_csv if kind == "csv" else pl.scan_parquet
    works = scan(folder / f"works.{kind}").with_row_index("work_id")
    works.sink_parquet(f"{out}/works.parquet")
    numbers = pl.scan_parquet(f"{out}/works.parquet").select("work_id", "id")
    join(scan(folder / f"citations.{kind}"), numbers).sink_parquet(f"{out}/citations.parquet")


def by_sciscidata(folder: Path, out: str, kind: str) -> None:
    import sciscidata as ssd

    works, citations = ((str(folder / f"{name}.{kind}"),) for name in ("works", "citations"))
    config = ssd.TablesConfig(works=works, citations=citations, id="id", year="year", citing="citing", cited="cited")
    ssd.ingest(config, Path(out) / "corpus", cache_dir=out)


TOOLS = {"sciscidata": by_sciscidata, "DuckDB": by_duckdb, "Polars": by_polars}


def hash_values(frame: Any) -> str:
    """Hash the values of a frame of numbers in their order, in little memory."""
    hashes = {name: hashlib.sha256() for name in frame.collect_schema().names()}
    for batch in frame.collect_batches(maintain_order=True):
        for column in batch:
            hashes[column.name].update(column.to_numpy().tobytes())
    return hashlib.sha256("".join(each.hexdigest() for each in hashes.values()).encode()).hexdigest()[:12]


def from_frames(folder: Path, what: str) -> None:
    """Measure what tables in memory take: all of ours and the index after it, or the joins alone."""
    import polars as pl

    frames = [pl.read_parquet(folder / f"{name}.parquet") for name in ("works", "citations")]
    if what == "Polars":
        cost, joined = timed(lambda: join(frames[1], frames[0].with_row_index("work_id").drop("year")))
        return report(**cost, note=f"{joined.height:,} citations, two joins")
    import sciscidata as ssd

    def number(works: pl.DataFrame, citations: pl.DataFrame) -> Any:
        return ssd.from_tables(works, citations, id="id", year="year", citing="citing", cited="cited")

    def score(corpus: Any) -> pl.DataFrame:
        return ssd.compute_cd_index(corpus.works, corpus.citations).collect()

    score(number(frames[0].head(1_000), frames[1].head(5_000)))  # compiles
    cost, corpus = timed(lambda: number(*frames))
    if what == "sciscidata":
        hashed = [hash_values(corpus.works.select("work_id", "publication_year")), hash_values(corpus.citations)]
        return report(**cost, note=f"values {' '.join(hashed)}")
    frames.clear()
    cost, scores = timed(lambda: score(corpus))
    scores = scores.select("work_id", "n_i", "n_j", "n_k").sort("work_id")
    return report(**cost, note=f"values {hash_values(scores.lazy())}")


def make_graph(folder: Path, size: str) -> None:
    """Write works and citations of a generated graph as CSV and Parquet; its ids become DOIs of 27 bytes."""
    import polars as pl

    from benchmarks.graphs import scan_graph

    works, citations = scan_graph(size)

    def doi(column: str) -> pl.Expr:
        number = pl.col(column)
        return pl.format("10.{}/j.scisci.{}", 1_000 + number % 8_999, number.cast(pl.String).str.zfill(10))

    for name, frame in {
        "works": works.select(id=doi("work_id"), year="publication_year"),
        "citations": citations.select(citing=doi("citing_id"), cited=doi("cited_id")),
    }.items():
        frame.sink_csv(folder / f"{name}.csv", maintain_order=True)
        frame.sink_parquet(folder / f"{name}.parquet", maintain_order=True)


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


def from_files(folder: Path, tool: str, kind: str) -> None:
    """Measure what files take."""
    note: dict[str, str] = {}
    if tool == "sciscidata":
        with tempfile.TemporaryDirectory(dir=CACHE) as small:
            make(Path(small), 1_000)
            by_sciscidata(Path(small), small, "csv")  # compiles
    with tempfile.TemporaryDirectory(dir=CACHE) as out:
        cost, _ = timed(lambda: TOOLS[tool](folder, out, kind))
        if tool == "sciscidata":
            import sciscidata as ssd

            corpus = ssd.scan_corpus(Path(out) / "corpus")
            hashed = [hash_values(corpus.works.select("work_id", "publication_year")), hash_values(corpus.citations)]
            note["note"] = f"values {' '.join(hashed)}"
    report(**cost, **note)


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--size", choices=("XS", "S", "M", "L"))
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help=measure.HIDDEN)
    parser.add_argument("--kind", default="csv", help=measure.HIDDEN)
    options = parser.parse_args()
    if options.part == "make":
        make_graph(options.folder, options.size) if options.size else make(options.folder, options.rows)
        return report()
    CACHE.mkdir(exist_ok=True)
    if options.part:
        measured = from_frames if options.kind == "frames" else from_files
        arguments = (options.part,) if options.kind == "frames" else (options.part, options.kind)
        return measured(options.folder, *arguments)
    rows: list[measure.Row] = []
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        arguments = ("--folder", folder, *(("--size", options.size) if options.size else ("--rows", str(options.rows))))
        measure.in_own_process(__file__, *arguments, "--part", "make")

        def measure_part(task: str, tool: str, kind: str, part: str) -> None:
            python = options.peers if tool in ("DuckDB", "Polars") else sys.executable
            command = (__file__, *arguments, "--kind", kind, "--part", part)
            rows.append(try_process(task, tool, *command, python=python))

        if options.size:
            for tool in ("sciscidata", "Polars"):
                measure_part(f"{options.size}: `from_tables`, ids like DOIs", tool, "frames", tool)
            measure_part(f"{options.size}: `from_tables`, ids like DOIs", "CD_5 after it", "frames", "CD_5")
            for kind, named in {"csv": "CSV", "parquet": "Parquet"}.items():
                for tool in TOOLS:
                    measure_part(f"{options.size}: {named} with such ids to Parquet with numbers", tool, kind, tool)
        else:
            for tool in TOOLS:
                measure_part(f"CSV of {options.rows:,} citations to Parquet with numbers", tool, "csv", tool)
    return measure.show(rows, options)


if __name__ == "__main__":
    main()
