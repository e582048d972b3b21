"""Snapshot parts to WORKS and CITATIONS: MB/s on one core beside gzip alone and a plain ``json.loads`` flattener.

    python benchmarks/snapshot.py [--parts 2 4 8] [--records 20000] [--folder FOLDER]

Writes the parts with make_snapshot.py first; in a folder that is named they stay for the next run. Then memory
against the number of parts, and two workers against one.
Every measurement is user and system CPU time in a process of its own; MB are 10^6 bytes.
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measure import in_own_process, report


def cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def gunzip(parts: list[Path]) -> int:
    size = 0
    for path in parts:
        with gzip.open(path) as file:
            while block := file.read(1 << 20):
                size += len(block)
    return size


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
                concepts = sorted((-concept["score"], concept["display_name"]) for concept in work["concepts"])
                rows.append((number, work["publication_year"], work["title"], " ".join(word for _, word in placed),
                             work["cited_by_count"], work["primary_topic"]["field"]["display_name"],
                             [name for _, name in concepts[:8]], source.get("id"), source.get("display_name"),
                             work["language"], work["type"], work["is_retracted"], work["doi"]))  # fmt: skip
    return len(rows)


def ingest(folder: Path, edition: str, n_workers: int) -> int:
    from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot

    with tempfile.TemporaryDirectory(dir=folder) as out:
        config = SnapshotConfig(folder=str(folder), edition=edition, include_xpac=True, n_workers=n_workers)
        n_works = ingest_snapshot(config, out).provenance["works"]
    return n_works


def measured(what: str, folder: Path, n_workers: int) -> None:
    if what in ("jsonl", "parquet"):
        import polars as pl

        from sciscidata.records.abstracts import decode_inverted_indexes

        decode_inverted_indexes(pl.Series(['{"a":[0]}']))  # compile, or load the compiled kernel
    parts = sorted((folder / "data" / "jsonl" / "works").glob("updated_date=*/*.gz"))
    cpu, wall = cpu_seconds(), time.perf_counter()
    if what in ("gzip", "json.loads"):
        {"gzip": gunzip, "json.loads": flatten}[what](parts)
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
        files = sorted(first.glob("data/jsonl/works/*/*.gz"))
        compressed, plain = sum(file.stat().st_size for file in files), gunzip(files)
        print(f"{plain / 1e6:,.0f} MB of JSON, {compressed / 1e6:,.0f} MB compressed, on one thread")

        def run(what: str, folder: Path, workers: int = 1) -> dict:
            arguments = ("--measured", what, "--folder", str(folder), "--workers", str(workers))
            environment = {"POLARS_MAX_THREADS": "1"}
            runs = [in_own_process(__file__, *arguments, **environment) for _ in range(options.repeats)]
            best = {"cpu": min, "wall": min, "peak_gb": max, "workers_gb": max}
            return {name: choose(figures[name] for figures in runs) for name, choose in best.items()}

        for what in ("gzip", "json.loads", "jsonl", "parquet"):
            cpu = run(what, first)["cpu"]
            print(f"{what:<12} {plain / cpu / 1e6:>7.0f} MB/s of JSON {compressed / cpu / 1e6:>7.1f} MB/s compressed")
        for n, folder in folders.items():
            one, two = run("jsonl", folder), run("jsonl", folder, 2)
            print(f"{n:>4} parts: {one['peak_gb']:.2f} GB with one worker", end="")
            print(f"; two: {two['workers_gb']:.2f} GB each, {one['wall'] / two['wall']:.2f} times as fast")


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    main()
