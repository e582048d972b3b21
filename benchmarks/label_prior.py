"""The prior of label confidence that comes with the package, and how far from the own prior of a graph it leads.

python benchmarks/label_prior.py                    three real graphs
python benchmarks/label_prior.py --papers FOLDER    papers of one's own, too: the shipped prior has these

Each graph is judged by its own prior, by that of the other graphs together, by that of 100 of its works, and by that of
a balanced draw of 900 of its works: mean distance of the confidence of works with a citer from that by its own prior.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.label_confidence import LABELS, is_cited, read_graphs
from sciscidata.disruption.label_prior import LabelPrior, count_citers, fit_prior


def distance(scores: pl.DataFrame, prior: LabelPrior, own: LabelPrior) -> float:
    """Return the mean distance between the confidences by two priors."""
    found = [ssd.compute_label_confidence(scores, prior=one).collect()["label_confidence"] for one in (prior, own)]
    return float((found[0] - found[1]).abs().mean() or 0)  # pyright: ignore[reportArgumentType]


def main() -> None:
    """Print the prior of all graphs together, and the table."""
    parser = measure.parser(__doc__)
    parser.add_argument("--papers", type=Path, help="a folder with works.parquet and citations.parquet of one's own")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    scores: dict[str, pl.DataFrame] = {}
    for name, graph in read_graphs(options.papers).items():
        labelled = ssd.compute_labels(ssd.compute_cd_index(graph.works, graph.citations)).sort("work_id").collect()
        scores[name] = labelled.filter(is_cited(labelled))
    counts = {name: count_citers(rows) for name, rows in scores.items()}
    print(fit_prior(np.sum([*counts.values()], axis=0)).to_json())
    print("\n| graph | other graphs | 100 works | balanced draw |\n|---|---|---|---|")
    for name, rows in scores.items():
        own = fit_prior(counts[name])
        others = fit_prior(np.sum([found for other, found in counts.items() if other != name], axis=0))
        few = [distance(rows, fit_prior(count_citers(rows.sample(100, seed=seed))), own) for seed in range(20)]
        parts = [rows.filter(disruption_label=label).sample(300, with_replacement=True, seed=0) for label in LABELS]
        drawn = distance(rows, fit_prior(count_citers(pl.concat(parts))), own)
        print(f"| {name} | {distance(rows, others, own):.3f} | {np.mean(few):.3f} | {drawn:.3f} |", flush=True)


if __name__ == "__main__":
    main()
