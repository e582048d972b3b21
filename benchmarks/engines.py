"""What cutting a stage into tasks costs, and where more workers stop helping.

python benchmarks/engines.py overhead                 what a task costs that does nothing, on each engine that is here
python benchmarks/engines.py workers --size M         ingest, cd and novelty by 1, 2 and 4 workers of this machine
python benchmarks/engines.py shares --size M          CD_5 in 1 to 256 shares: processor seconds, and makespans
python benchmarks/engines.py simulate                 all of OpenAlex with 1 to 256 workers, from the figures in BASIS

``shares`` scores each share in this process, with one thread and the graph open. A makespan takes measured times:
every idle worker takes the next task, the largest first; --failures of the tasks are lost halfway and begun again by
another worker, and --stragglers take three times as long (seeded, mean of 50 runs). Starting workers is not in it.

``simulate`` does the same for a run from snapshot to scores, with starting workers, reading the graph from shared
storage, and what one process does alone. Every figure it starts from is in BASIS with where it comes from.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.graphs import CACHE
from benchmarks.measure import Row, timed

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
N_RUNS = 50
STAGES = ("ingest", "cd", "novelty")


# Overhead


@contextmanager
def dask_cluster(home: Path) -> Generator[Path]:
    """Run a scheduler and two workers on this machine; give the file by which they are found."""
    file = home / "scheduler.json"
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    scheduler = ("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    worker = ("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard")
    running = []
    with (home / "dask.log").open("w") as log:
        for words in (scheduler, worker, worker):
            command = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(file)]
            running.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=home))
            while not file.exists():
                time.sleep(0.05)
    try:
        yield file
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def overhead(n_tasks: int) -> None:
    """Time tasks that are refused at once, and the smallest that write a file, on two workers."""
    from benchmarks import slurm_cluster
    from sciscidata.disruption.index import cache_cd_index
    from sciscidata.engines.engine import engine, read_list
    from sciscidata.engines.task import Task
    from sciscidata.errors import ResumableError
    from sciscidata.graph.graph import build_graph
    from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic

    empty = [Task(name=str(n), work="no:task", arguments={"n": n}) for n in range(n_tasks)]
    print(f"{n_tasks} tasks on 2 workers, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<8} {'empty: first two, s':>20} {'further, ms':>17} {'file: first two, s':>20} {'further, ms':>17}")

    def measure(name: str, home: Path, **options) -> None:
        works, citations, _ = scan_synthetic(SyntheticConfig(n_works=2_000))
        graph = build_graph(works, citations, cache_dir=home)
        with suppress(ResumableError), engine("list", tasks=n_tasks) as on:
            cache_cd_index(graph, home, engine=on)
        (folder,) = home.glob("cd-*.tasks")
        shown = ""
        for tasks in (empty, read_list(folder)):
            with engine(name, **options, tasks=n_tasks) as on:
                start, ends = time.perf_counter(), []
                for _ in on.run(tasks, lambda amount, note="": None, home):
                    ends.append(time.perf_counter() - start)
            shown += f" {ends[1]:>20.2f} {1000 * (ends[-1] - ends[1]) / (len(tasks) - 2):>17.1f}"
        print(f"{name:<8}{shown}", flush=True)

    with tempfile.TemporaryDirectory() as home:
        measure("local", Path(home), workers=2)
    with tempfile.TemporaryDirectory() as home, dask_cluster(Path(home)) as file:
        measure("dask", Path(home), scheduler_file=file)
    if slurm_cluster.can_start():
        with tempfile.TemporaryDirectory() as home, slurm_cluster.one_node(Path(home)):
            measure("slurm", Path(home) / "run", slurm="partition=cpu,mem_gb=0.3,time=20m")
    else:
        print("slurm    is not here: apt install slurm-wlm, and be root")


# Workers of this machine


def snapshot(home: Path) -> Path:
    """Make a snapshot of 16 parts, 400 MB of JSON, once."""
    folder = CACHE / "engines-snapshot"
    if not folder.exists():
        make_snapshot(home / "made", 16, 4_000)
        (home / "made").rename(folder)
    return folder


def make_snapshot(folder: Path, parts: int, records: int) -> None:
    command = [sys.executable, "benchmarks/make_snapshot.py", str(folder), "--edition", "jsonl"]
    sizes = ["--parts", str(parts), "--records", str(records)]
    subprocess.run([*command, *sizes], check=True, cwd=CACHE.parent.parent, stdout=subprocess.DEVNULL)


def compile_loops(home: Path, stages: Sequence[str]) -> None:
    """Run each stage once on little, so that no figure has the compiler in it."""
    import sciscidata as ssd

    corpus, cache = home / "small", home / "small-cache"
    ssd.ingest(ssd.SyntheticConfig(n_works=500), corpus, cache_dir=cache)
    ssd.write_cd_index(corpus, home / "small-cd.parquet", cache_dir=cache)
    if "novelty" in stages:
        ssd.write_atypicality(corpus, home / "small-novelty.parquet", cache_dir=cache)
    if "ingest" in stages:
        make_snapshot(home / "one-part", 1, 50)
        ssd.ingest(ssd.SnapshotConfig(folder=str(home / "one-part")), home / "small-parts", cache_dir=cache)


def workers(size: str, counts: Sequence[int], stages: Sequence[str]) -> list[Row]:
    """Time three stages by workers of this machine; the note has a hash of all values that they write."""
    import polars as pl

    from benchmarks.graphs import scan_graph
    from sciscidata.corpus.writer import write_corpus
    from sciscidata.engines.engine import engine
    from sciscidata.schemas import WORKS, Corpus
    from sciscidata.sources.snapshot.source import SnapshotConfig
    from sciscidata.stages import ingest, open_corpus_graph, write_atypicality, write_cd_index

    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        home = Path(name)
        works, citations = scan_graph(size, venues=True)
        there = works.collect_schema()
        works = works.with_columns(pl_null(WORKS, there)).select(list(WORKS))
        write_corpus(Corpus(works, citations, {"kind": "graph"}), home / "corpus", texts=False, inputs=[])
        open_corpus_graph(home / "corpus", cache_dir=home / "cache")
        parts = snapshot(home)

        def once(stage: str, n: int) -> Row:
            out, cache = home / f"{stage}-{n}", home / "cache"
            write = {"cd": write_cd_index, "novelty": write_atypicality}
            with engine("local", workers=n, tasks=16) as on:
                if stage == "ingest":
                    config = SnapshotConfig(folder=str(parts))
                    cost, _ = timed(lambda: ingest(config, out, cache_dir=cache, engine=on))
                else:
                    file = out.with_suffix(".parquet")
                    cost, _ = timed(lambda: write[stage](home / "corpus", file, cache_dir=cache, engine=on))
            made = [*out.rglob("*.parquet")] if stage == "ingest" else [out.with_suffix(".parquet")]
            for folder in cache.glob("cd-*" if stage == "cd" else "novelty-*"):
                shutil.rmtree(folder)
            return {**cost, "note": measure.fingerprint(*map(pl.read_parquet, sorted(made)))}

        compile_loops(home, stages)
        names = {
            "ingest": "ingest of 16 parts of 25 MB of JSON",
            "cd": f"{size}: cd, 16 shares",
            "novelty": f"{size}: novelty",
        }
        return [
            {"task": names[stage], "tool": f"{n} worker{'s' * (n > 1)}", **once(stage, n)}
            for stage in stages
            for n in counts
        ]


def pl_null(schema, there) -> list:
    """Make the columns that a graph does not have."""
    import polars as pl

    return [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in there]


# Shares


def time_shares(graph, n_tasks: int, home: Path) -> tuple[list[float], float]:
    """Return the processor seconds of each share, and of what lies around them."""
    from sciscidata.disruption.config import CDConfig
    from sciscidata.disruption.index import cache_cd_index
    from sciscidata.engines.config import EngineConfig
    from sciscidata.engines.engine import Engine
    from sciscidata.engines.task import run_task

    taken = []

    def run(tasks, advance, _):
        for given in tasks:
            start = time.process_time()
            outcome = run_task(given)
            taken.append(time.process_time() - start)
            advance(given.cost)
            yield given, outcome

    on = Engine(config=EngineConfig(tasks=n_tasks), run=run)
    start = time.process_time()
    cache_cd_index(graph, home / f"in-{n_tasks}", CDConfig(), engine=on)
    return taken, time.process_time() - start - sum(taken)


def makespan(times: Sequence[float], n_workers: int, failures: float, stragglers: float, seed: int) -> float:
    """Return when the last task ends, if every idle worker takes the next one."""
    draw = random.Random(seed)
    waiting, free = list(times), [0.0] * n_workers
    while waiting:
        taken = waiting.pop(0)
        begin = heapq.heappop(free)
        length = taken * (3 if draw.random() < stragglers else 1)
        if draw.random() < failures:
            length /= 2
            waiting.append(taken)
        heapq.heappush(free, begin + length)
    return max(free)


def mean_makespan(times: Sequence[float], n_workers: int, options: argparse.Namespace) -> float:
    times = sorted(times, reverse=True)
    return statistics.mean(
        makespan(times, n_workers, options.failures, options.stragglers, seed) for seed in range(N_RUNS)
    )


def shares(options: argparse.Namespace) -> None:
    """Score a graph in one piece and in shares."""
    from benchmarks.scale import make, scan
    from sciscidata.corpus.scores import write_scores
    from sciscidata.disruption.index import score_graph
    from sciscidata.graph.graph import build_graph, graph_folder, read_graph
    from sciscidata.graph.year_files import by_work_id

    make(options.size)
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        graph = build_graph(*scan(options.size), cache_dir=home)
        start = time.process_time()
        read_graph(graph_folder(graph), trusted=True)
        print(f"{options.size}: {time.process_time() - start:.2f} CPU s to open the graph")
        score_graph(graph, focal=range(100), n_threads=1)  # compiles
        start = time.process_time()
        score_graph(graph, n_threads=1)
        whole = time.process_time() - start
        print(f"{whole:.2f} CPU s in one piece, one thread")
        print(
            f"{'tasks':>6} {'CPU s':>7} {'longest':>8} {'around':>7}   times as fast with {' '.join(map(str, WORKERS))}"
        )
        for n_tasks in options.tasks:
            times, around = time_shares(graph, n_tasks, Path(home))
            gains = [whole / mean_makespan(times, n, options) for n in WORKERS]
            shown = "  ".join(f"{gain:.1f}" for gain in gains)
            print(f"{n_tasks:>6} {sum(times):>7.2f} {max(times):>8.2f} {around:>7.2f}   {shown}", flush=True)
        (folder,) = Path(home).glob(f"in-{n_tasks}/cd-*/")
        start = time.process_time()
        write_scores(by_work_id(folder, graph.work_ids), Path(home) / "cd.parquet", {}, replace=False)
        print(f"{time.process_time() - start:.2f} CPU s to sort the scores into one file")


# All of OpenAlex

#: What the simulation starts from, and where it comes from.
BASIS = {
    "works": (510e6, "OpenAlex, June 2026"),
    "citations": (2.96e9, "benchmarks/README.md: the largest graph measured"),
    "snapshot_gb": (666, "OpenAlex, June 2026: JSON lines, compressed"),
    "n_parts": (1_000, "assumed, all of one size"),
    "ingest_mb_s": (37, "measured on real records, nothing beside: MB compressed a second and core"),
    "written_per_read": (0.32, "measured on real records"),
    "build_s": (639, "measured: two cores of one machine"),
    "cd_cpu_s": (2_191, "measured: CD_5 in one piece"),
    "share_ns": (
        60,
        "measured (shares; 5M works: 46, M: 65): each further share, processor time per work of the graph",
    ),
    "around_us": (0.5, "measured (shares, 5M works): hashing the graph, putting files together, per work"),
    "file_us": (0.45, "measured (shares, M): sorting the scores into one file, per work"),
    "pairs_per_citation": (22.6, "measured on graph L; OpenAlex has shorter lists, so it is too much"),
    "pair_ns": (58, "measured on graph L: novelty, processor time per pair of references"),
    "growth": (1.045, "assumed: works a year, 1900 to 2024, as in scale_graph.py; the last year has 4.3 %"),
    "graph_gb": (24, "measured"),
    "open_s": (2.6, "measured on M (0.01 s), by size: to open and check the graph in a process"),
    "start_s": (3, "measured: a worker starts and loads compiled loops"),
    "workers_per_node": (16, "assumed"),
    "storage_gb_s": (2, "assumed: shared storage, all nodes together"),
}


def simulate(options: argparse.Namespace) -> None:
    """Print how long each stage of all of OpenAlex takes, by workers."""
    print("\n".join(f"{name:<20} {value:>14,.6g}   {source}" for name, (value, source) in BASIS.items()), "\n")
    rows = simulate_all(options)
    print("| workers | " + " | ".join(rows[0]) + " | all, h | times as fast |\n|" + "---|" * (len(rows[0]) + 3))
    totals = [sum(row.values()) for row in rows]
    for n, row, total in zip(WORKERS, rows, totals, strict=True):
        cells = [f"{seconds / 60:.0f}" for seconds in row.values()]
        print(f"| {n} | {' | '.join(cells)} | {total / 3600:.2f} | {totals[0] / total:.1f} |")


def simulate_all(options: argparse.Namespace | None = None) -> list[dict[str, float]]:
    """Return the seconds of each stage, for each number of WORKERS."""
    basis = {name: float(value) for name, (value, _) in BASIS.items()}
    chosen = options or argparse.Namespace(failures=0.02, stragglers=0.05)
    return [_run(basis, n, chosen) for n in WORKERS]


def _run(basis: dict[str, float], n: int, options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of each stage with ``n`` workers."""
    bandwidth = basis["storage_gb_s"]
    nodes = -(-n // basis["workers_per_node"])
    begin = basis["start_s"] + basis["open_s"] + nodes * basis["graph_gb"] / bandwidth
    around = (basis["around_us"] + basis["file_us"]) * 1e-6 * basis["works"]

    n_parts = int(basis["n_parts"])
    part = basis["snapshot_gb"] * 1e3 / basis["ingest_mb_s"] / n_parts
    moved = basis["snapshot_gb"] * (1 + basis["written_per_read"]) / bandwidth
    ingest = basis["start_s"] + max(mean_makespan([part] * n_parts, n, options), moved)

    each = basis["share_ns"] * 1e-9 * basis["works"]
    shares_tried = [count for count in WORKERS if n <= count <= 4 * n] or [n]
    cd = min(mean_makespan([basis["cd_cpu_s"] / count + each] * count, n, options) for count in shares_tried)

    weights = [basis["growth"] ** year for year in range(125)]
    whole = basis["citations"] * basis["pairs_per_citation"] * basis["pair_ns"] * 1e-9
    novelty = mean_makespan([whole * weight / sum(weights) for weight in weights], n, options)
    return {
        "ingest, min": ingest,
        "graph": basis["build_s"],
        "CD_5": begin + cd,
        "novelty": begin + novelty,
        "put together": 2 * around,
    }


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("what", choices=("overhead", "workers", "shares", "simulate"))
    parser.add_argument("--size", default="M", help="of the graph: S, M, L, or a size of benchmarks/scale.py [M]")
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="of workers [all]")
    parser.add_argument("--failures", type=float, default=0.02, help="share of tasks that are lost halfway [0.02]")
    parser.add_argument("--stragglers", type=float, default=0.05, help="share that takes three times as long [0.05]")
    options = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    if options.what == "overhead":
        overhead(options.tasks[-1])
    elif options.what == "workers":
        measure.show(workers(options.size, options.workers, options.stages), options)
    elif options.what == "shares":
        shares(options)
    else:
        simulate(options)


if __name__ == "__main__":
    main()
