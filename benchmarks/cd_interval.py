"""How often the CD index by other citers lies in the interval of a work, by number of citers, and how fast it is.

python benchmarks/cd_interval.py                       three real graphs
python benchmarks/cd_interval.py --papers FOLDER       papers of one's own, too
python benchmarks/cd_interval.py --size M              time on a generated graph

The citers of each work are split into two random halves, five times. One half gives the interval, the other one the
index. Works with a citer in both count. Results go to benchmarks/results/cd_interval.json.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.graphs import N_WORKS, scan_graph
from benchmarks.label_confidence import CITERS, is_cited, pair_up, read_graphs
from sciscidata.indicators import compute_cd_interval, find_noise_effect

OUT = Path(__file__).resolve().parent / "results" / "cd_interval.json"
LEVELS = (0.8, 0.95)


def judge(scores: pl.DataFrame) -> dict[str, Any]:
    """Return coverage by level and number of citers; how near the index and the shrunk mean come to the other half."""
    parts, reliability = [], []
    for known, other in pair_up("random halves", scores):
        both = is_cited(known) & is_cited(other)
        rows = known.filter(both).select(citers=pl.col("n_i") + pl.col("n_j"))
        rows = rows.with_columns(index=known.filter(both)["cd_index"], other=other.filter(both)["cd_index"])
        for level in LEVELS:
            found = compute_cd_interval(known, level=level).collect().filter(both)
            width = (found["cd_high"] - found["cd_low"]).alias(f"width {level}")
            inside = ((found["cd_low"] <= rows["other"]) & (rows["other"] <= found["cd_high"])).alias(f"inside {level}")
            rows = rows.with_columns(inside, width, shrunk=found["cd_shrunk"])
        parts.append(rows)
        predicted = find_noise_effect(known.filter(both)).reliability
        reliability.append((predicted, rows.select(pl.corr("index", "other")).item()))
    whole = pl.concat(parts)
    columns = [pl.len().alias("works"), *(pl.col(f"{what} {x}").mean() for x in LEVELS for what in ("inside", "width"))]
    classes = {name: pl.col("citers").is_between(low, high) for name, low, high in CITERS} | {"all": pl.lit(True)}
    table = {name: whole.filter(of).select(columns).row(0, named=True) for name, of in classes.items()}
    errors = {name: (whole[name] - whole["other"]).pow(2).mean() for name in ("index", "shrunk")}
    predicted, observed = np.mean(reliability, axis=0)
    halves = {"reliability predicted": predicted, "correlation of halves": observed}
    return {"coverage": table, "squared error against the other half": errors, **halves}


def show(name: str, found: dict[str, Any]) -> None:
    """Print one graph as two rows of a table."""
    for level in LEVELS:
        rows = [(row[f"inside {level}"], row[f"width {level}"]) for row in found["coverage"].values()]
        cells = " | ".join(f"{inside:.2f} ({width:.2f})" for inside, width in rows)
        print(f"| {name}, {level:.0%} | {cells} |", flush=True)
    errors = found["squared error against the other half"]
    print(
        f"  squared error: index {errors['index']:.4f}, shrunk {errors['shrunk']:.4f}; reliability "
        f"{found['reliability predicted']:.3f}, correlation of halves {found['correlation of halves']:.3f}"
    )


def main() -> None:
    """Measure what was asked for."""
    parser = measure.parser(__doc__)
    parser.add_argument("--size", choices=N_WORKS, help="time on a generated graph")
    parser.add_argument("--papers", type=Path, help="a folder with works.parquet and citations.parquet of one's own")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    if options.size:
        scores = ssd.compute_cd_index(*scan_graph(options.size)).collect()
        compute_cd_interval(scores.head(10)).collect()  # compiles
        start, processor = time.perf_counter(), time.process_time()
        compute_cd_interval(scores).collect()
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        known = scores.drop_nulls("cd_index")
        kept[f"speed {options.size}"] = {
            "works": known.height,
            "different counts": known.select("n_i", "n_j", "n_k").n_unique(),
            "seconds": round(seconds, 1),
            "processor seconds": round(processor, 1),
        }
        print(kept[f"speed {options.size}"])
    else:
        for name, graph in read_graphs(options.papers).items():
            scored = ssd.compute_cd_index(graph.works, graph.citations)
            kept[name] = judge(scored.drop_nulls("cd_index").sort("work_id").collect())
            show(name, kept[name])
    OUT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
