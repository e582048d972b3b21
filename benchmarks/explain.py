"""Explain works one by one: whether the counts equal those of all works and of joins, and what a large graph takes.

python benchmarks/explain.py                    1,000 random works of each of five graphs
python benchmarks/explain.py --graph FOLDER     seconds and peak memory of random works of a graph on disk
python benchmarks/explain.py --size M           the same of a graph made here

The graphs are the example, XS and S of ``graphs.py``, and HepTh and handball of the folder that SCISCI_SHARED_DATA
names. A graph that is missing is left out. A new process explains each work of a large graph, so imports
count. The second work of a process takes as long as one in a notebook.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.graphs import CACHE, N_WORKS, scan_graph
from benchmarks.recount import SEED, count_differences, read_neighbourhood
from sciscidata.graph.graph import build_graph, graph_folder, read_graph

HOME = Path(__file__).resolve().parent
RESULTS = HOME / "results" / "explain.json"
COUNTS = ["n_i", "n_j", "n_k", "cd_index"]
REAL = {"hepth": "graph_hepth", "handball": "graph_handball"}


def scan(name: str) -> tuple[pl.LazyFrame, pl.LazyFrame] | None:
    """Return works and citations of a graph; None if it is not there."""
    if name == "example":
        works, citations, _ = ssd.scan_example()
        return works.select("work_id", "publication_year").collect().lazy(), citations.collect().lazy()
    if name in N_WORKS:
        works, citations = scan_graph(name)
        return works.select("work_id", pl.col("publication_year").cast(pl.Int32)), citations
    folder = Path(os.environ.get("SCISCI_SHARED_DATA", HOME.parent.parent / "shared" / "data")) / REAL[name]
    if not folder.is_dir():
        return None
    nodes, edges = (pl.scan_parquet(folder / f"{part}.parquet") for part in ("nodes", "edges"))
    works = nodes.select(work_id=pl.col("id").cast(pl.Int64), publication_year=pl.col("year").cast(pl.Int32))
    return works, edges.select(pl.col("citing", "cited").cast(pl.Int64).name.suffix("_id"))


def compare(name: str, n: int) -> dict[str, Any] | None:
    """Explain random works of a graph, and count those that differ from all works scored together, and from joins."""
    frames = scan(name)
    if frames is None:
        return None
    works, citations = frames
    near = read_neighbourhood(works, citations, n)
    graph = build_graph(works, citations)
    ids = near.focal["focal"].to_list()
    start = time.perf_counter()
    rows = pl.concat([ssd.explain(work, graph).scores.select("work_id", *COUNTS, "window_complete") for work in ids])
    took = (time.perf_counter() - start) / len(ids)
    scored = ssd.compute_cd_index(works, citations).collect()
    both = rows.join(scored.select(rows.columns), on="work_id", suffix="_all", validate="1:1")
    same = pl.all_horizontal(pl.col(one).eq_missing(pl.col(f"{one}_all")) for one in rows.columns[1:])
    n_other = len(ids) - both.filter(same).height
    dated = near._replace(focal=near.focal.drop_nulls("y"))
    return {
        "graph": name,
        "works": len(ids),
        "citations": graph.n_citations,
        "other than all works": n_other,
        "other than joins": count_differences(dated, rows),
        "ms a work": round(1000 * took),
    }


def explain_two(folder: Path, seed: int) -> None:
    """Explain two random works with citers of a graph on disk, and report what each took."""
    rng, start = np.random.default_rng(seed), time.perf_counter()
    graph = read_graph(folder, trusted=True, whole=False)
    took, sizes = [], []
    for _ in range(2):
        while True:
            at = int(rng.integers(graph.n_dated))
            if np.diff(graph.ref_offsets[at : at + 2])[0] and np.diff(graph.citer_offsets[at : at + 2])[0]:
                break
        found = ssd.explain(int(graph.work_ids[at]), folder)
        took.append(round(time.perf_counter() - start, 2))
        start = time.perf_counter()
        sizes.append([found.references.height, found.citers.height, int(found.by_year["works"].sum())])
    measure.report(first_s=took[0], second_s=took[1], references_citers_counted=sizes)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", type=int, default=1_000, help="random works of each graph")
    parser.add_argument("--save", action="store_true", help="keep what the five graphs gave in results/explain.json")
    parser.add_argument("--graph", type=Path, help="folder of a graph to explain random works of")
    parser.add_argument("--size", choices=[*N_WORKS], help="graph to make, and explain random works of")
    parser.add_argument("--seed", type=int, help=measure.HIDDEN)
    options = parser.parse_args()
    folder = options.graph
    if options.size:
        frames = scan(options.size)
        assert frames is not None
        folder = graph_folder(build_graph(*frames, cache_dir=CACHE))
    if folder is None:
        rows: list[dict[str, Any]] = []
        for name in ("example", *REAL, "XS", "S"):
            if (row := compare(name, options.works)) is None:
                print(f"{name}: left out, not there")
                continue
            rows.append(row)
            print(json.dumps(row), flush=True)
        if options.save:
            RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
        return
    if options.seed is not None:
        explain_two(folder, options.seed)
        return
    for seed in range(SEED, SEED + 5):
        found = measure.in_own_process(__file__, "--graph", str(folder), "--seed", str(seed))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
