"""CD_5 on the generated graphs, beside other packages on the same graph; every value compared.

python benchmarks/cd_index.py --size M --python VENV/bin/python    20,000 focal works for the peer (about 2 minutes)
    --focal all                      every work (about 20 minutes: the peer needs 15)
    --peers cdindex xfast_cdindex    another peer, or several
python benchmarks/cd_index.py --size M --windows 1 3 5 10 all   these windows in one pass, beside the widest alone

VENV has the peers: benchmarks/requirements-peers.txt. Each part runs in its own process. Ours is warmed up once, since
numba compiles on first use and keeps the result on disk. A peer is given whole years as time stamps.
Processor seconds are those of all threads together. Other work on the machine stretches them less than wall time.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.graphs import WORKS, graph_files, scan_graph
from benchmarks.measure import in_own_process, report, seconds
from benchmarks.recount import SEED, count_differences, read_neighbourhood

N_COUNTED = 2_000
#: Packages, and the module of each that has a graph.
PEERS = {"cdindex": "cdindex", "fast_cdindex": "fast_cdindex.cdindex", "xfast_cdindex": "xfast_cdindex.cdindex"}


def ours(size: str, out: Path) -> None:
    """Parquet to graph, graph to scores on 1 and 2 threads, and the whole family; values kept for comparison."""
    from sciscidata.disruption.index import CDConfig, score_graph
    from sciscidata.graph.graph import build_graph

    config = CDConfig.compat("cdindex")
    family = CDConfig.compat("cdindex", family=True)
    tiny = build_graph(*scan_graph_tiny())
    for warm in (config, family):
        score_graph(tiny, warm)
    build, graph = seconds(lambda: build_graph(*scan_graph(size)), 3, time.process_time)
    scores = pl.DataFrame()
    figures: dict[str, float] = {"build": build}
    for name, convention, repeats in (("compute", config, 7), ("family", family, 3)):
        times: dict[int, list[float]] = {1: [], 2: []}
        used: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(repeats):  # in turn, so that a slow spell of the machine strikes both
            for threads, taken in times.items():
                start = time.process_time()
                once, found = seconds(lambda n=threads, c=convention: score_graph(graph, c, n_threads=n))
                used[threads].append(time.process_time() - start)
                taken.append(once)
                scores = found if convention is config else scores
        figures |= {f"{name}_{threads}": statistics.median(taken) for threads, taken in used.items()}
        figures[f"{name}_ratio"] = statistics.median(a / b for a, b in zip(*times.values(), strict=True))
    scores.write_parquet(out)
    report(n_works=scores.height, **figures)


def windows(size: str, asked: list[str]) -> None:
    """Several windows in one pass against the widest alone: processor seconds of one thread; values compared."""
    from sciscidata.disruption.index import CDConfig, score_graph
    from sciscidata.graph.graph import build_graph

    chosen = tuple(None if text == "all" else int(text) for text in asked)
    widest = None if None in chosen else max(window for window in chosen if window is not None)
    tiny, graph = build_graph(*scan_graph_tiny()), build_graph(*scan_graph(size))
    figures: dict[str, float] = {}
    for name, family in (("plain", False), ("family", True)):
        alone = CDConfig(window_years=widest, family=family)
        together = CDConfig(window_years=widest, family=family, windows=chosen)
        times: dict[CDConfig, list[float]] = {alone: [], together: []}
        scores = {config: score_graph(tiny, config) for config in times}
        for _ in range(9 if size == "S" else 3):
            for config, taken in times.items():  # in turn, so that a slow spell of the machine strikes both
                start = time.process_time()
                scores[config] = score_graph(graph, config, n_threads=1)
                taken.append(time.process_time() - start)
        for window in chosen:
            single = score_graph(graph, CDConfig(window_years=window, family=family), n_threads=1)
            suffix = f"_{'all' if window is None else window}"
            again = {name: name if name in ("work_id", "n_refs") else name + suffix for name in single.columns}
            if not scores[together].select(pl.col(old).alias(name) for name, old in again.items()).equals(single):
                sys.exit(f"window {window}: scores differ from a run with this window alone")
        figures |= {f"{name}_alone": min(times[alone]), f"{name}_together": min(times[together])}
        figures[f"{name}_ratio"] = statistics.median(b / a for a, b in zip(*times.values(), strict=True))
    report(n_works=graph.n_known, **figures)


def scan_graph_tiny() -> tuple[pl.LazyFrame, pl.LazyFrame]:
    works = pl.LazyFrame({"work_id": [1, 2, 3], "publication_year": [1990, 2000, 2001]})
    citations = pl.LazyFrame({"citing_id": [2, 3, 3], "cited_id": [1, 2, 9]})
    return works.cast({"publication_year": pl.Int32}), citations


def peer(name: str, size: str, focal: str, out: Path) -> None:
    """Load the whole graph into a package and score the sampled works one by one, as its API has it."""
    make = importlib.import_module(PEERS[name]).Graph

    folder = graph_files(size)
    papers = pl.read_parquet(folder / "papers.parquet")
    names = papers["paper_id"].cast(pl.String).to_list()

    def load() -> Any:
        graph = make()
        for name, year in zip(names, papers["year"].to_list(), strict=True):
            graph.add_vertex(name, year)
        for batch in pl.scan_parquet(folder / "refs.parquet").collect_batches(chunk_size=1 << 20):
            for citing, cited in batch.cast(pl.String).iter_rows():
                graph.add_edge(citing, cited)
        getattr(graph, "prepare_for_searching", lambda: None)()
        return graph

    load_time, graph = seconds(load, clock=time.process_time)
    chosen = names if focal == "all" else papers["paper_id"].sample(int(focal), seed=SEED).cast(pl.String).to_list()
    compute, values = seconds(lambda: [graph.cdindex(name, 5) for name in chosen], clock=time.process_time)
    scores = pl.DataFrame({"work_id": chosen, "cd_peer": values}).cast({"work_id": pl.Int64, "cd_peer": pl.Float64})
    scores.with_columns(pl.col("cd_peer").fill_nan(None)).write_parquet(out)
    report(load=load_time, compute=compute, n_focal=len(chosen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=WORKS, default="M")
    parser.add_argument("--focal", default="20000", help="focal works the peer scores: a number, or all")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["cdindex"])
    parser.add_argument("--python", metavar="PYTHON", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument(
        "--windows", nargs="+", metavar="YEARS", help="compare windows in one pass with the widest alone"
    )
    parser.add_argument("--part", choices=["ours", "peer", "windows"], help=argparse.SUPPRESS)
    parser.add_argument("--values", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "ours":
        return ours(options.size, options.values)
    if options.part == "peer":
        return peer(options.peers[0], options.size, options.focal, options.values)
    if options.part == "windows":
        return windows(options.size, options.windows)
    graph_files(options.size)
    if options.windows:
        found = in_own_process(__file__, "--size", options.size, "--part", "windows", "--windows", *options.windows)
        print(f"{options.size}: {WORKS[options.size]}; windows {' '.join(options.windows)}: all values as run by run")
        for name in ("plain", "family"):
            alone, together, ratio = (found[f"{name}_{what}"] for what in ("alone", "together", "ratio"))
            print(f"{name}: widest alone {alone:.2f} s, all {together:.2f} s of one processor: {ratio:.2f} times")
        return None
    with tempfile.TemporaryDirectory() as folder:
        files = {part: Path(folder) / f"{part}.parquet" for part in ("ours", *options.peers)}
        common = ("--size", options.size, "--focal", options.focal)
        a = in_own_process(__file__, *common, "--part", "ours", "--values", str(files["ours"]))
        beside = {
            name: in_own_process(
                __file__,
                *common,
                "--part",
                "peer",
                "--peers",
                name,
                "--values",
                str(files[name]),
                python=options.python,
            )
            for name in options.peers
        }
        scores = pl.read_parquet(files["ours"])
        values = {
            name: pl.read_parquet(files[name]).join(scores, on="work_id", validate="1:1") for name in options.peers
        }
    print(f"{options.size}: {WORKS[options.size]}")
    for name, b in beside.items():
        differ = values[name].filter(~pl.col("cd_index").eq_missing(pl.col("cd_peer"))).height
        if differ or values[name].height != b["n_focal"]:
            sys.exit(f"cd_index differs from that of {name} for {differ:,} of {b['n_focal']:,} works")
        print(f"values: cd_index equal to that of {name}, bit for bit, for {b['n_focal']:,} works")
    if n_wrong := count_differences(read_neighbourhood(*scan_graph(options.size), N_COUNTED), scores):
        sys.exit(f"counts differ for {n_wrong:,} of {N_COUNTED:,} works")
    print(f"counts: n_i, n_j, n_k equal to joins for a sample of {N_COUNTED:,} works")
    print(
        "\n| processor seconds | load or build | CD_5 of all works | both | peak memory, GB "
        "| times ours: CD_5 | both |\n|---|---|---|---|---|---|---|"
    )
    own = a["build"] + a["compute_1"]
    for name, b in beside.items():
        scored = b["compute"] * a["n_works"] / b["n_focal"]
        cells = f"{b['load']:.1f} | {scored:.1f} | {b['load'] + scored:.1f} | {b['peak_gb']:.2f}"
        ratios = f"{scored / a['compute_1']:.1f} | {(b['load'] + scored) / own:.1f}"
        print(f"| {name} ({b['n_focal']:,} works scored) | {cells} | {ratios} |")
    print(f"| sciscidata | {a['build']:.2f} | {a['compute_1']:.2f} | {own:.2f} | {a['peak_gb']:.2f} | 1 | 1 |")
    print(f"\n2 threads against 1, wall time, run by run in turn: {a['compute_ratio']:.2f} times. ", end="")
    print(f"Whole family: {a['family_1']:.2f} s on 1 thread, {a['family_2']:.2f} s on 2.")


if __name__ == "__main__":
    main()
