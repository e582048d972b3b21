"""What cutting a stage into tasks costs, and where more workers stop helping: the CD index of one graph in shares.

python benchmarks/engines.py --size M --tasks 1 8 64 256

Each share is scored in this process, one after the other, with one thread and the graph open: processor seconds of the
shares together, and of the longest. From these measured times follow makespans of 1 to 256 workers: tasks are taken in
the order of the engine, the largest first; --failures of them are lost halfway and begun again by another worker, and
--stragglers take three times as long (seeded, mean of 50 runs). Starting a worker is not in it: 1 to 2 s each, once.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.graphs import scan_graph
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import cache_cd_index, score_graph
from sciscidata.engines.config import EngineConfig
from sciscidata.engines.engine import Engine
from sciscidata.engines.task import run_task
from sciscidata.graph.graph import build_graph

WORKERS = (1, 2, 4, 16, 64, 256)
N_RUNS = 50


def time_shares(graph, n_tasks: int, home: Path) -> list[float]:
    """Return the processor seconds of each share."""
    taken = []

    def run(tasks, advance, _):
        for given in tasks:
            start = time.process_time()
            outcome = run_task(given)
            taken.append(time.process_time() - start)
            advance(given.cost)
            yield given, outcome

    on = Engine(config=EngineConfig(tasks=n_tasks), run=run)
    cache_cd_index(graph, home / f"in-{n_tasks}", CDConfig(), engine=on)
    return taken


def makespan(times: list[float], n_workers: int, failures: float, stragglers: float, seed: int) -> float:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="M", choices=("S", "M", "L"))
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--failures", type=float, default=0.02, help="share of tasks that are lost halfway [0.02]")
    parser.add_argument("--stragglers", type=float, default=0.05, help="share that takes three times as long [0.05]")
    options = parser.parse_args()
    works, citations = scan_graph(options.size)
    with tempfile.TemporaryDirectory() as home:
        graph = build_graph(works, citations, cache_dir=home)
        score_graph(graph, n_threads=1)  # compiles
        start = time.process_time()
        score_graph(graph, n_threads=1)
        whole = time.process_time() - start
        print(f"{options.size}: {whole:.2f} CPU s in one piece, one thread")
        print(f"{'tasks':>6} {'CPU s':>7} {'longest':>8}   speed-up with workers: {'  '.join(map(str, WORKERS))}")
        for n_tasks in options.tasks:
            times = time_shares(graph, n_tasks, Path(home))
            gains = [
                whole
                / statistics.mean(
                    makespan(times, n, options.failures, options.stragglers, seed) for seed in range(N_RUNS)
                )
                for n in WORKERS
            ]
            shown = "  ".join(f"{gain:.1f}" for gain in gains)
            print(f"{n_tasks:>6} {sum(times):>7.2f} {max(times):>8.2f}   {shown}", flush=True)


if __name__ == "__main__":
    main()
