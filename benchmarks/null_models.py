"""Measure the null models of disruption.

python benchmarks/null_models.py --size M                           time and memory: a draw, its index, the closed form
python benchmarks/null_models.py --size M --draws 20                mean, spread and labels, too
python benchmarks/null_models.py --graph hepth --draws 1000         and the closed form
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.graphs import N_WORKS, scan_graph
from benchmarks.measure import Row, timed
from benchmarks.real_graphs import FILES, scan_real
from sciscidata.disruption.closed_null_model import expect
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import score_graph
from sciscidata.disruption.null_model import Draws, rewire, score_nulls
from sciscidata.graph.graph import CitationGraph, build_graph
from sciscidata.label_thresholds import compute_disruption_labels


def measure_speed(graph: CitationGraph, size: str) -> list[Row]:
    """Time the index, and a draw of each null model with the index of the draw; each once before, to compile."""
    small = build_graph(*scan_graph(min(size, "S", key=N_WORKS.__getitem__)), n_threads=1)
    for null in ("rewired", "configuration"):
        score_nulls(small, {"": CDConfig()}, Draws(null, 2), n_threads=1)
    expect(small, CDConfig())
    task = f"{size}: a draw of a null model, one thread"
    cost, _ = timed(lambda: score_graph(graph, n_threads=1), 3)
    rows: list[Row] = [{"task": task, "tool": "CD_5", **cost}]
    for null in ("rewired", "configuration"):
        cost, draw = timed(lambda null=null: rewire(graph, 0, null=null, n_threads=1))
        note = f"{draw.n_mended / graph.n_citations:.2%} of the citations swapped; stuck cells: {draw.n_stuck}"
        rows.append({"task": task, "tool": f"a draw, {null}", **cost, "note": note})
        cost, _ = timed(lambda draw=draw: score_graph(draw.graph, n_threads=1), 3)
        rows.append({"task": task, "tool": "CD_5 of this draw", **cost})
        del draw
    task = f"{size}: mean and spread of the null model, one thread"
    cost, _ = timed(lambda: score_nulls(graph, {"": CDConfig()}, Draws("rewired", 2), n_threads=1))
    rows.append({"task": task, "tool": "two draws and their index", **cost})
    cost, (mean, std) = timed(lambda: expect(graph, CDConfig()))
    values = pl.DataFrame({"work_id": graph.work_ids[: graph.n_dated], "mean": mean, "std": std})
    note = f"values to 6 places: {measure.fingerprint(values.with_columns(pl.col('mean', 'std').round(6)))}"
    rows.append({"task": task, "tool": "closed form", **cost, "note": note})
    return rows


def summarise(scores: pl.DataFrame) -> None:
    """Print mean and spread of index and null, and how the labels lie."""
    known = scores.drop_nulls(["cd_index", "null_mean"])
    print(known.select("cd_index", "null_mean", "null_std", "z").describe())
    z = pl.col("z")
    bands = {"n": pl.len(), "z < -2": (z < -2).sum(), "z > 2": (z > 2).sum(), "no z": z.null_count()}
    print(compute_disruption_labels(known).group_by("disruption_label").agg(**bands).sort("n").collect())


def compare_closed_form(graph: CitationGraph, scores: pl.DataFrame, n_draws: int) -> None:
    """Print how far the closed approximation lies from the draws, over the works whose draws vary."""
    mean, std = expect(graph, CDConfig())
    rows = scores.head(graph.n_dated).with_columns(mean=mean, std=std).filter(pl.col("null_std") > 0)
    noise = float((rows["null_std"] / n_draws**0.5).mean())
    print(f"{rows.height} works; mean standard error of the drawn means: {noise:.5f}")
    off = rows["mean"] - rows["null_mean"]
    in_std = (off / rows["null_std"]).abs()
    print(
        f"mean error {off.mean():.5f}, mean absolute error {off.abs().mean():.5f}, correlation "
        f"{rows.select(pl.corr('mean', 'null_mean')).item():.4f}, error in null_std: median {in_std.median():.3f}, "
        f"95th percentile {in_std.quantile(0.95):.3f}"
    )
    ratio = rows["std"] / rows["null_std"]
    print("std over null_std, quantiles:", *(f"{ratio.quantile(q):.3f}" for q in (0.05, 0.25, 0.5, 0.75, 0.95)))
    both = rows.with_columns(own=(pl.col("cd_index") - pl.col("mean")) / pl.col("std")).drop_nulls(["own", "z"])
    same = ((both["own"].abs() > 2) == (both["z"].abs() > 2)).mean()
    print(
        f"z: Spearman {both.select(pl.corr('own', 'z', method='spearman')).item():.4f}, |z| > 2 agrees for {same:.2%}"
    )


def main() -> None:
    """Measure what was asked for."""
    parser = measure.parser(__doc__)
    parser.add_argument("--size", choices=N_WORKS, help="a generated graph [M]")
    parser.add_argument("--graph", choices=FILES, help="a real one")
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--null", choices=("rewired", "configuration"), default="rewired")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    size = options.size or "M"
    if not options.graph and not options.part:
        found = measure.in_own_process(__file__, "--size", size, "--part", "speed")
        found["rows"][0]["peak_gb"] = found["peak_gb"]
        measure.show(found["rows"], options)
        if not options.draws:
            return
    graph = build_graph(*(scan_real(options.graph) if options.graph else scan_graph(size)), n_threads=1)
    if options.part:
        return measure.report(rows=measure_speed(graph, size))
    start = time.process_time()
    found = score_nulls(graph, {"": CDConfig()}, Draws(options.null, options.draws), n_threads=1)
    scores = found["", ""]
    print(f"{options.draws} draws and their index: {(time.process_time() - start) / options.draws:.3f} CPU s each")
    summarise(scores)
    if options.graph and options.null == "rewired":
        compare_closed_form(graph, scores, options.draws)


if __name__ == "__main__":
    main()
