"""Snapshot parts to WORKS and CITATIONS: MB/s a core beside gzip alone, a ``json.loads`` flattener, DuckDB and Polars.

    python benchmarks/snapshot.py [--parts 2 4 8] [--records 20000] [--folder FOLDER] [--before CLONE] [--real FILE]

Writes the parts with make_snapshot.py first; in a folder that is named they stay for the next run. ``--before`` names
an older clone of this repository, which reads the same parts. ``--real`` names JSON lines of real works, else those of
the package; they are written as a snapshot and read too. Then memory against the number of parts, and two workers
against one. Each measurement has its own process. It is user and system CPU time; MB are 10^6 bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # behind PYTHONPATH, which may name an older clone

from benchmarks.make_snapshot import export_record, write_manifest, write_part
from benchmarks.measure import cpu_seconds, in_own_process, report
from sciscidata.sources.example.source import WORKS_FILE
from sciscidata.sources.record_files import decompressed_chunks, raw_chunks
from sciscidata.storage.decompression import decompress_gzip


def gunzip(parts: list[Path]) -> int:
    """Decompress as the snapshot source does, and nothing else."""
    return sum(len(piece) for path in parts for piece in decompress_gzip(raw_chunks(path)))


def flatten(parts: list[Path]) -> int:
    """Do what one would write first: rows of the same columns, no abstract decoded any better than by a loop."""
    rows, edges = [], []
    for path in parts:
        with gzip.open(path) as lines:
            for line in lines:
                work = json.loads(line)
                number = int(work["id"].rsplit("W", 1)[1])
                edges.extend((number, int(url.rsplit("W", 1)[1])) for url in work["referenced_works"])
                index = work["abstract_inverted_index"] or {}
                placed = sorted((place, word) for word, places in index.items() for place in places)
                source = (work["primary_location"] or {}).get("source") or {}
                topic = work["primary_topic"]
                concepts = sorted((-float(concept["score"]), concept["display_name"]) for concept in work["concepts"])
                rows.append((number, work["publication_year"], work["title"], " ".join(word for _, word in placed),
                             work["cited_by_count"], topic["field"]["display_name"] if topic else None,
                             [name for _, name in concepts[:8]], source.get("id"), source.get("display_name"),
                             work["language"], work["type"], work["is_retracted"], work["doi"]))  # fmt: skip
    return len(rows)


_COLUMNS = """
    CAST(regexp_extract(id, 'W([0-9]+)$', 1) AS BIGINT) AS work_id, CAST(publication_year AS INTEGER) AS year, title,
    abstract_inverted_index::VARCHAR AS abstract, cited_by_count, primary_topic.field.display_name AS field,
    list_transform(concepts, lambda c: c.display_name)[1:8] AS concepts, primary_location.source.id AS source_id,
    primary_location.source.display_name AS source_name, language, type, is_retracted, doi
"""
_TYPES = """{id: 'VARCHAR', publication_year: 'BIGINT', title: 'VARCHAR', abstract_inverted_index: 'JSON',
    cited_by_count: 'BIGINT', primary_topic: 'STRUCT(field STRUCT(display_name VARCHAR))',
    concepts: 'STRUCT(display_name VARCHAR)[]', language: 'VARCHAR', type: 'VARCHAR', is_retracted: 'BOOLEAN',
    primary_location: 'STRUCT(source STRUCT(id VARCHAR, display_name VARCHAR))', doi: 'VARCHAR',
    referenced_works: 'VARCHAR[]'}"""


def duckdb_reader(parts: list[Path]) -> int:
    """Write the same columns with DuckDB; the abstracts stay indexes."""
    import duckdb

    with tempfile.TemporaryDirectory() as out, duckdb.connect(config={"threads": 1}) as connection:
        files = [str(path) for path in parts]
        connection.execute(
            f"CREATE TABLE t AS FROM read_json($files, columns={_TYPES}, format='newline_delimited', "
            "maximum_object_size=300000000)",
            {"files": files},
        )
        connection.execute(f"COPY (SELECT {_COLUMNS} FROM t) TO '{out}/works.parquet' (COMPRESSION zstd)")
        edges = "SELECT id, unnest(referenced_works) AS cited FROM t"
        connection.execute(f"COPY ({edges}) TO '{out}/citations.parquet' (COMPRESSION zstd)")
        return connection.execute("SELECT count(*) FROM t").fetchall()[0][0]


def polars_reader(parts: list[Path]) -> int:
    """Write the same columns with Polars, but no abstracts: they have no schema."""
    import polars as pl

    name = pl.Struct({"display_name": pl.String})
    schema = {
        "id": pl.String, "publication_year": pl.Int64, "title": pl.String, "cited_by_count": pl.Int64,
        "primary_topic": pl.Struct({"field": name}), "concepts": pl.List(name), "language": pl.String,
        "primary_location": pl.Struct({"source": pl.Struct({"id": pl.String, "display_name": pl.String})}),
        "type": pl.String, "is_retracted": pl.Boolean, "doi": pl.String, "referenced_works": pl.List(pl.String),
    }  # fmt: skip
    n = 0
    with tempfile.TemporaryDirectory() as out:
        for path in parts:
            # The whole file: Polars reads no compressed JSON lines in pieces here.
            works = pl.read_ndjson(gzip.decompress(path.read_bytes()), schema=schema)
            number = pl.col("id").str.extract(r"W(\d+)$").cast(pl.Int64)
            works.with_columns(number).drop("referenced_works").write_parquet(
                f"{out}/works.parquet", compression="zstd"
            )
            edges = works.select("id", "referenced_works").explode("referenced_works")
            edges.write_parquet(f"{out}/citations.parquet", compression="zstd")
            n += works.height
    return n


def ingest(folder: Path, edition: str, n_workers: int) -> int:
    from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot

    with tempfile.TemporaryDirectory(dir=folder) as out:
        config = SnapshotConfig(folder=str(folder), edition=edition, include_xpac=True, n_workers=n_workers)
        n_works = ingest_snapshot(config, out).provenance["works"]
    return n_works


READERS = {"gzip": gunzip, "json.loads": flatten, "DuckDB": duckdb_reader, "Polars": polars_reader}


def parts_of(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "jsonl" / "works").glob("updated_date=*/*.gz"))


def write_real(folder: Path, lines: Path) -> None:
    """Write real works as a snapshot of one part, in both editions."""
    content = b"".join(decompressed_chunks(lines))
    rows = [export_record(json.loads(line)) for line in content.split(b"\n") if line]
    name = "updated_date=2026-06-01/part_0000"
    for edition in ("jsonl", "parquet"):
        write_part(folder, edition, name, rows)
        write_manifest(folder, edition, {name: len(rows)})


def measured(what: str, folder: Path, n_workers: int) -> None:
    if what in ("jsonl", "parquet"):
        import polars as pl

        from sciscidata.records.abstracts import decode_inverted_indexes

        decode_inverted_indexes(pl.Series(['{"a":[0]}']))  # compile, or load the compiled kernel
        with tempfile.TemporaryDirectory() as home:  # and all others
            name = "updated_date=2026-06-01/part_0000"
            write_part(Path(home), what, name, [export_record({"id": "W1", "publication_year": 1, "is_xpac": False})])
            write_manifest(Path(home), what, {name: 1})
            ingest(Path(home), what, 1)
    parts = parts_of(folder)
    cpu, wall = cpu_seconds(), time.perf_counter()
    if what in READERS:
        READERS[what](parts)
    else:
        ingest(folder, what, n_workers)
    report(
        cpu=cpu_seconds() - cpu,
        wall=time.perf_counter() - wall,
        workers_gb=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--real", type=Path, nargs="?", const=WORKS_FILE)
    parser.add_argument("--measured", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measured:
        measured(options.measured, options.folder, options.workers)
        return

    with ExitStack() as stack:
        home = options.folder or stack.enter_context(tempfile.TemporaryDirectory())
        folders = {n: Path(home, str(n)) for n in options.parts}
        for n, folder in folders.items():
            edition, last = ("both", "parquet") if n == options.parts[0] else ("jsonl", "jsonl")
            if (folder / "data" / last / "works" / "manifest.json").exists():  # it is written last
                continue
            # In a process of its own: a child's peak memory counts what its parent held when it was forked.
            script = Path(__file__).with_name("make_snapshot.py")
            sizes = ("--parts", str(n), "--records", str(options.records), "--edition", edition)
            subprocess.run([sys.executable, str(script), str(folder), *sizes], check=True)
        first = folders[options.parts[0]]
        here = Path(__file__).parents[1]

        def run(what: str, folder: Path, workers: int = 1, clone: Path = here) -> dict:
            arguments = ("--measured", what, "--folder", str(folder), "--workers", str(workers))
            environment = {
                "POLARS_MAX_THREADS": "1",
                "PYTHONPATH": os.pathsep.join([str(clone), os.environ.get("PYTHONPATH", "")]),
            }
            runs = [
                in_own_process(str(Path(__file__).resolve()), *arguments, **environment) for _ in range(options.repeats)
            ]
            best = {"cpu": min, "wall": min, "peak_gb": max, "workers_gb": max}
            return {name: choose(figures[name] for figures in runs) for name, choose in best.items()}

        def compare(folder: Path) -> None:
            files = parts_of(folder)
            compressed, plain = sum(file.stat().st_size for file in files), gunzip(files)
            print(f"{plain / 1e6:,.0f} MB of JSON, {compressed / 1e6:,.0f} MB compressed, on one thread")
            cases = [(what, what, here) for what in (*READERS, "jsonl", "parquet")]
            if options.before:
                cases += [(f"{what}, before", what, options.before) for what in ("jsonl", "parquet")]
            for label, what, clone in cases:
                found = run(what, folder, clone=clone)
                of_json, of_file = (size / found["cpu"] / 1e6 for size in (plain, compressed))
                print(f"{label:<16} {of_json:>7.0f} MB/s of JSON {of_file:>7.1f} compressed", end="")
                print(f" {found['peak_gb']:>6.2f} GB", flush=True)

        compare(first)
        if options.real:
            real = Path(home, "real")
            if not parts_of(real):
                write_real(real, options.real)
            print("real works:")
            compare(real)
        for n, folder in folders.items():
            one, two = run("jsonl", folder), run("jsonl", folder, 2)
            print(f"{n:>4} parts: {one['peak_gb']:.2f} GB with one worker", end="")
            print(f"; two: {two['workers_gb']:.2f} GB each, {one['wall'] / two['wall']:.2f} times as fast")


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    main()
