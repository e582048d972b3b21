"""Snapshot parts to WORKS and CITATIONS: beside gzip alone, a ``json.loads`` flattener, DuckDB and Polars.

    python benchmarks/snapshot.py [--parts 2 4 8] [--records 20000] [--folder FOLDER] [--before CLONE] [--peers PYTHON]

Writes the parts with make_snapshot.py first; in a folder that is named they stay for the next run. ``--before`` names
an older clone of this repository, which reads the same parts. ``--real`` names JSON lines of real works, else those of
the package are taken; they are written as a snapshot and read too. Then memory against the number of parts, and two
workers against one. Each measurement has its own process and one thread; MB are 10^6 bytes of compressed JSON lines.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # behind PYTHONPATH, which may name an older clone

from benchmarks import measure
from benchmarks.measure import ONE_THREAD, Failed, Row, in_own_process, report, timed


def gunzip(parts: list[Path]) -> int:
    """Decompress as the snapshot source does, and nothing else."""
    from sciscidata.sources.record_files import raw_chunks
    from sciscidata.storage.decompression import decompress_gzip

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


def ingest(folder: Path, edition: str, n_workers: int, out: Path) -> None:
    from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot

    config = SnapshotConfig(folder=str(folder), edition=edition, include_xpac=True, n_workers=n_workers)
    ingest_snapshot(config, out)


def fingerprint(corpus: Path) -> str:
    """Return the first digits of the SHA-256 of all tables of a corpus."""
    files = [file for name in ("works", "texts", "citations") for file in sorted((corpus / name).glob("*.parquet"))]
    sums = [hashlib.sha256(file.read_bytes()).hexdigest() for file in [*files, corpus / "removed.parquet"]]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()[:12]


READERS = {"gzip": gunzip, "json.loads": flatten, "DuckDB": duckdb_reader, "Polars": polars_reader}
#: What a reader imports before its time is taken.
MODULES = {"gzip": "sciscidata.sources.record_files", "DuckDB": "duckdb", "Polars": "polars"}
#: What is not quite the same work.
NAMES = {
    "gzip": "ISA-L inflates, and nothing else",
    "json.loads": "`json.loads` loop, writes nothing",
    "DuckDB": "DuckDB, abstracts stay indexes",
    "Polars": "Polars, no abstracts",
}


def parts_of(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "jsonl" / "works").glob("updated_date=*/*.gz"))


def write_real(folder: Path, lines: Path | None) -> None:
    """Write real works as a snapshot of one part, in both editions."""
    from benchmarks.make_snapshot import export_record, write_manifest, write_part
    from sciscidata.sources.example.source import WORKS_FILE
    from sciscidata.sources.record_files import decompressed_chunks

    content = b"".join(decompressed_chunks(lines or WORKS_FILE))
    rows = [export_record(json.loads(line)) for line in content.split(b"\n") if line]
    name = "updated_date=2026-06-01/part_0000"
    for edition in ("jsonl", "parquet"):
        write_part(folder, edition, name, rows)
        write_manifest(folder, edition, {name: len(rows)})


def measured(what: str, folder: Path, n_workers: int) -> None:
    if what in ("jsonl", "parquet"):
        import polars as pl

        from benchmarks.make_snapshot import export_record, write_manifest, write_part
        from sciscidata.records.abstracts import decode_inverted_indexes

        decode_inverted_indexes(pl.Series(['{"a":[0]}']))  # compile, or load the compiled kernel
        with tempfile.TemporaryDirectory() as home:  # and all others
            name = "updated_date=2026-06-01/part_0000"
            write_part(Path(home), what, name, [export_record({"id": "W1", "publication_year": 1, "is_xpac": False})])
            write_manifest(Path(home), what, {name: 1})
            ingest(Path(home), what, 1, Path(home) / "out")
        with tempfile.TemporaryDirectory(dir=folder) as out:
            cost, _ = timed(lambda: ingest(folder, what, n_workers, Path(out)))
            return report(**cost, note=f"fingerprint {fingerprint(Path(out))}")
    if what in MODULES:
        importlib.import_module(MODULES[what])
    cost, _ = timed(lambda: READERS[what](parts_of(folder)))
    return report(**cost)


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--workers", type=int, default=1, help=measure.HIDDEN)
    options = parser.parse_args()
    if options.part == "real":
        write_real(options.folder, options.real)
        return report()
    if options.part:
        return measured(options.part, options.folder, options.workers)

    here, rows = Path(__file__).parents[1], list[Row]()
    with ExitStack() as stack:
        home = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folders = {n: home / str(n) for n in options.parts}
        for n, folder in folders.items():
            edition, last = ("both", "parquet") if n == options.parts[0] else ("jsonl", "jsonl")
            if not (folder / "data" / last / "works" / "manifest.json").exists():  # it is written last
                script = str(Path(__file__).with_name("make_snapshot.py"))
                sizes = ("--parts", str(n), "--records", str(options.records), "--edition", edition)
                measure.run([sys.executable, script, str(folder), *sizes])
        if not parts_of(home / "real"):
            given = ("--real", str(options.real)) if options.real else ()
            in_own_process(__file__, "--part", "real", "--folder", str(home / "real"), *given)

        def best(task: str, what: str, folder: Path, workers: int = 1, tool: str = "", clone: Path = here) -> Row:
            """Return the least of some runs."""
            arguments = ("--part", what, "--folder", str(folder), "--workers", str(workers))
            path = os.pathsep.join([str(clone), os.environ.get("PYTHONPATH", "")])
            python = options.peers if what in ("DuckDB", "Polars") else sys.executable
            found: Any = {"task": task, "tool": tool or what}
            try:
                for _ in range(options.repeats):
                    run = in_own_process(__file__, *arguments, python=python, **ONE_THREAD, PYTHONPATH=path)
                    note = {"note": run.pop("note")} if "note" in run else {}
                    found |= note | {name: min(taken, found.get(name, taken)) for name, taken in run.items()}
            except Failed as error:
                return {**found, "note": f"did not run: {error}"}
            return found

        def compare(folder: Path, kind: str) -> None:
            compressed = sum(file.stat().st_size for file in parts_of(folder)) / 1e6
            task = f"{kind} works to WORKS and CITATIONS, {compressed:,.0f} MB compressed"
            cases = [("jsonl", "sciscidata, JSON lines", here), ("parquet", "sciscidata, Parquet", here)]
            if options.before:
                cases += [(what, f"{tool}, before", options.before) for what, tool, _ in cases]
            cases += [(what, NAMES.get(what, what), here) for what in READERS]
            for what, tool, clone in cases:
                row = best(task, what, folder, tool=tool, clone=clone)
                if "cpu_s" in row:
                    told = (f"{compressed / row['cpu_s']:.1f} MB a CPU second", row.get("note", ""))
                    row["note"] = "; ".join(filter(None, told))
                rows.append(row)

        compare(folders[options.parts[0]], "synthetic")
        compare(home / "real", "real")
        for n_parts, folder in folders.items():
            task = f"{n_parts} parts of {options.records:,} works, JSON lines"
            rows += [
                best(task, "jsonl", folder, tool=tool, workers=n) for n, tool in ((1, "1 process"), (2, "2 processes"))
            ]
    return measure.show(rows, options)


if __name__ == "__main__":
    main()
