"""CD_5 on the generated graphs, beside other packages on the same graph; every value compared.

python benchmarks/cd_index.py --size M --peers VENV/bin/python    about 5 minutes
    --focal all                      every work by each peer (M: 45 minutes)
    --only xfast_cdindex             one peer, or several
python benchmarks/cd_index.py --size M --windows 1 3 5 10 all   these windows in one pass, beside the widest alone

VENV has the peers: benchmarks/requirements-peers.txt. Each part runs in its own process. Ours is warmed up once, since
numba compiles on first use and keeps the result on disk. A peer is given whole years as time stamps. What a slow one
takes for some works is scaled up to all.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.graphs import WORKS, graph_files, scan_graph
from benchmarks.measure import Row, in_own_process, report, timed
from benchmarks.recount import SEED, count_differences, read_neighbourhood

N_COUNTED = 2_000
#: Packages with the module of each that has a graph, and how many works it scores unless told.
PEERS = {
    "xfast_cdindex": ("xfast_cdindex.cdindex", "all"),
    "fast_cdindex": ("fast_cdindex.cdindex", "20000"),
    "cdindex": ("cdindex", "20000"),
    "DuckDB": ("", "20000"),
}
#: How one would write it first. A row of ``refs`` has the citing year, too.
SQL = """
    WITH pairs AS (
        SELECT f.work_id, r.citing, true AS cites_focal FROM focal f JOIN refs r ON r.cited = f.work_id
        WHERE r.year - f.year BETWEEN 1 AND 5
        UNION ALL
        SELECT f.work_id, r.citing, false
        FROM focal f JOIN refs o ON o.citing = f.work_id JOIN refs r ON r.cited = o.cited
        WHERE r.year - f.year BETWEEN 1 AND 5
    ), citers AS (
        SELECT work_id, bool_or(cites_focal) AS f, NOT bool_and(cites_focal) AS b FROM pairs GROUP BY work_id, citing
    )
    SELECT work_id, (count(*) FILTER (f AND NOT b) - count(*) FILTER (f AND b)) / count(*) AS cd
    FROM citers GROUP BY work_id
"""


def ours(size: str, out: Path) -> None:
    """Parquet to graph, graph to scores on 1 and 2 threads, and the whole family; values kept for comparison."""
    from sciscidata.disruption.index import CDConfig, score_graph
    from sciscidata.graph.graph import build_graph

    config = CDConfig.compat("cdindex")
    family = CDConfig.compat("cdindex", family=True)
    tiny = build_graph(*scan_graph_tiny())
    for warm in (config, family):
        score_graph(tiny, warm)
    build, graph = timed(lambda: build_graph(*scan_graph(size)), 3)
    runs: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for _ in range(5):  # in turn, so that a slow spell of the machine strikes both
        for threads, taken in runs.items():
            cost, scores = timed(lambda n=threads: score_graph(graph, config, n_threads=n))
            taken.append(cost)
    scores.write_parquet(out)
    best = {threads: {name: min(run[name] for run in taken) for name in build} for threads, taken in runs.items()}
    whole, _ = timed(lambda: score_graph(graph, family, n_threads=1), 2)
    report(n_works=scores.height, load=build, compute=best[1], two_threads=best[2], family=whole)


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
    folder = graph_files(size)
    papers = pl.read_parquet(folder / "papers.parquet")
    n = papers.height if focal == "all" else min(int(focal), papers.height)
    chosen = papers.select(work_id="paper_id", year="year").sample(n, seed=SEED)
    load, compute = in_duckdb(folder, chosen) if name == "DuckDB" else in_package(name, folder, papers, chosen)
    load_cost, graph = timed(load)
    cost, values = timed(lambda: compute(graph))
    scores = chosen.select("work_id", cd_peer=pl.Series(values, dtype=pl.Float64).fill_nan(None))
    scores.write_parquet(out)
    report(load=load_cost, compute={name: taken * papers.height / n for name, taken in cost.items()}, n_focal=n)


def in_package(name: str, folder: Path, papers: pl.DataFrame, chosen: pl.DataFrame) -> tuple[Callable, Callable]:
    """Return how a package loads the graph, and how it scores the works."""
    make = importlib.import_module(PEERS[name][0]).Graph
    names = papers["paper_id"].cast(pl.String).to_list()
    focal = chosen["work_id"].cast(pl.String).to_list()

    def load() -> Any:
        graph = make()
        for name, year in zip(names, papers["year"].to_list(), strict=True):
            graph.add_vertex(name, year)
        for batch in pl.scan_parquet(folder / "refs.parquet").collect_batches(chunk_size=1 << 20):
            for citing, cited in batch.cast(pl.String).iter_rows():
                graph.add_edge(citing, cited)
        getattr(graph, "prepare_for_searching", lambda: None)()
        return graph

    return load, lambda graph: [graph.cdindex(name, 5) for name in focal]


def in_duckdb(folder: Path, chosen: pl.DataFrame) -> tuple[Callable, Callable]:
    """Return how DuckDB loads the graph, and how it scores the works, on one thread."""
    import duckdb

    def load() -> Any:
        db = duckdb.connect(config={"threads": 1})
        db.register("focal", chosen.to_arrow())
        db.sql(
            f"CREATE TABLE refs AS SELECT citing, cited, year FROM '{folder}/refs.parquet' "
            f"JOIN '{folder}/papers.parquet' ON paper_id = citing"
        )
        return db

    def compute(db: Any) -> list[float | None]:
        found = dict(db.execute(SQL).fetchall())
        return [found.get(work) for work in chosen["work_id"]]

    return load, compute


def compare(size: str, focal: str | None, peers: list[str], python: str) -> list[Row]:
    """Run ours and each peer, compare their values, and return the rows of both tasks."""
    graph_files(size)
    whole, alone = f"{size}: from Parquet to CD_5 of every work", f"{size}: CD_5 alone"
    rows: dict[str, list[Row]] = {whole: [], alone: []}

    def add(tool: str, found: dict[str, Any], note: str = "") -> None:
        load, compute = found["load"], found["compute"]
        both = {name: load[name] + compute[name] for name in load}
        memory = {"peak_gb": found["peak_gb"]}
        rows[whole].append({"task": whole, "tool": tool, **both, **memory, "note": note})
        rows[alone].append({"task": alone, "tool": tool, **compute})

    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.parquet" for name in ("ours", *peers)}
        a = in_own_process(__file__, "--size", size, "--part", "ours", "--values", str(files["ours"]))
        beside: dict[str, Any] = {}
        for name in peers:  # all of them before values are read: a process counts what this one held when it began
            arguments = ("--size", size, "--only", name, "--focal", focal or PEERS[name][1], "--part", "peer")
            beside[name] = measure.try_process(
                whole, name, __file__, *arguments, "--values", str(files[name]), python=python
            )
        scores = pl.read_parquet(files["ours"])
        if n_wrong := count_differences(read_neighbourhood(*scan_graph(size), N_COUNTED), scores):
            sys.exit(f"{size}: counts of {n_wrong:,} of {N_COUNTED:,} works differ from those of joins")
        add("sciscidata, 1 thread", a, f"{WORKS[size]}; counts of {N_COUNTED:,} works equal joins")
        rows[alone].append({"task": alone, "tool": "sciscidata, 2 threads", **a["two_threads"]})
        rows[alone].append({"task": alone, "tool": "sciscidata, whole family", **a["family"]})
        for name, found in beside.items():
            if "compute" not in found:
                rows[whole].append(found)
                continue
            both = pl.read_parquet(files[name]).join(scores, on="work_id", validate="1:1")
            n_equal = both.filter(pl.col("cd_index").eq_missing(pl.col("cd_peer"))).height
            n, scaled = found["n_focal"], "" if found["n_focal"] == a["n_works"] else ", time scaled to all"
            add(name, found, f"cd_index of {n_equal:,} of {n:,} works equal, bit for bit{scaled}")
    return [*rows[whole], *rows[alone]]


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--size", choices=WORKS, default="M")
    parser.add_argument("--focal", help="works that a peer scores: a number, or all [xfast_cdindex all, others 20000]")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=[*PEERS], help="peers to run [all]")
    parser.add_argument(
        "--windows", nargs="+", metavar="YEARS", help="compare windows in one pass with the widest alone"
    )
    parser.add_argument("--values", type=Path, help=measure.HIDDEN)
    options = parser.parse_args()
    if options.part == "ours":
        ours(options.size, options.values)
    elif options.part == "peer":
        peer(options.only[0], options.size, options.focal, options.values)
    elif options.part == "windows":
        windows(options.size, options.windows)
    elif options.windows:
        graph_files(options.size)
        found = in_own_process(__file__, "--size", options.size, "--part", "windows", "--windows", *options.windows)
        print(f"{options.size}: {WORKS[options.size]}; windows {' '.join(options.windows)}: all values as run by run")
        for name in ("plain", "family"):
            alone, together, ratio = (found[f"{name}_{what}"] for what in ("alone", "together", "ratio"))
            print(f"{name}: widest alone {alone:.2f} s, all {together:.2f} s of one processor: {ratio:.2f} times")
    else:
        measure.show(compare(options.size, options.focal, options.only, options.peers), options)


if __name__ == "__main__":
    main()
