"""The priors of label confidence that come with the package, and how far from the own prior of a graph they lead.

python benchmarks/label_prior.py                    three real graphs
python benchmarks/label_prior.py --papers FOLDER    papers of one's own, too: the shipped prior has these

Each graph is judged by its own prior, by that of the other graphs together, by that of 100 of its works, and by that of
a balanced draw of 900 of its works: mean distance of the confidence of works with a citer from that by its own prior.
For novelty labels, by that of the other graphs together. Before, how unequal the sides of all works and of a balanced
draw are, and whether they count as chosen by label.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.label_confidence import LABELS, Graph, is_cited, read_graphs
from sciscidata.disruption.label_prior import (
    LabelPrior,
    count_citers,
    count_pairs,
    find_sides,
    fit_prior,
    is_chosen_by_side,
)
from sciscidata.graph.graph import build_graph
from sciscidata.novelty.atypicality import YearScorer
from sciscidata.novelty.label_confidence import redraw_lists
from sciscidata.novelty.novelty_prior import NoveltyPrior, fit_novelty_prior


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
    graphs = read_graphs(options.papers)
    for name, graph in graphs.items():
        labelled = ssd.compute_labels(ssd.compute_cd_index(graph.works, graph.citations)).sort("work_id").collect()
        scores[name] = labelled.filter(is_cited(labelled))
    counts = {name: count_citers(rows) for name, rows in scores.items()}
    print(fit_prior(np.sum([*counts.values()], axis=0)).to_json())
    print("\n| graph | sides of all works: difference, mean | of a balanced draw | chosen? |\n|---|---|---|---|")
    for name, rows in scores.items():
        least = min(rows["disruption_label"].value_counts()["count"])
        draw = pl.concat([rows.filter(disruption_label=label).sample(least, seed=1) for label in LABELS])
        found = [count_pairs(some) for some in (rows, draw)]
        said = [", ".join(f"{part:.2f}" for part in find_sides(pairs)[:2]) for pairs in found]
        print(f"| {name} | {said[0]} | {said[1]} | {', '.join(str(is_chosen_by_side(pairs)) for pairs in found)} |")
    print("\n| graph | other graphs | 100 works | balanced draw |\n|---|---|---|---|")
    for name, rows in scores.items():
        own = fit_prior(counts[name])
        others = fit_prior(np.sum([found for other, found in counts.items() if other != name], axis=0))
        few = [distance(rows, fit_prior(count_citers(rows.sample(100, seed=seed))), own) for seed in range(20)]
        parts = [rows.filter(disruption_label=label).sample(300, with_replacement=True, seed=0) for label in LABELS]
        drawn = distance(rows, fit_prior(count_citers(pl.concat(parts))), own)
        print(f"| {name} | {distance(rows, others, own):.3f} | {np.mean(few):.3f} | {drawn:.3f} |", flush=True)
    for rule in ("margin", "uzzi"):
        print_novelty({name: graph for name, graph in graphs.items() if name != "hepth"}, rule)  # it has no venues


def print_novelty(graphs: dict[str, Graph], rule: Literal["margin", "uzzi"]) -> None:
    """Print the prior of novelty labels of all graphs together, and how far that of the others leads."""
    cut, lists = ssd.LabelThresholds(novelty_rule=rule), {}
    for name, (works, citations) in graphs.items():
        scorer = YearScorer.of(build_graph(works, citations), works, ssd.NoveltyConfig(), None)
        lists[name] = redraw_lists(scorer, cut)

    priors = {}
    for name, one in lists.items():
        known = one.own >= 0
        priors[name] = fit_novelty_prior(one.own[known], one.sizes[known], one.halves, one.cut)

    def together(names: list[str]) -> NoveltyPrior:
        """Return the mean of some priors: each graph counts once, since shares differ between graphs."""
        some = [priors[name] for name in names]
        shares = np.mean([one.shares for one in some], axis=0)
        cut = None if rule == "margin" else float(np.mean([one.conventionality_cut for one in some]))
        of_ten, works = float(np.mean([one.of_ten for one in some])), sum(one.works for one in some)
        return NoveltyPrior(of_ten=of_ten, shares=tuple(map(tuple, shares)), works=works, conventionality_cut=cut)

    print(f"\n{rule}: {together([*lists]).to_json()}\n| graph | own weight of ten | other graphs |\n|---|---|---|")
    for name, one in lists.items():
        mine, others = priors[name], together([other for other in lists if other != name])
        known = one.own >= 0
        gap = mine.mix(one.chances, one.sizes) - others.mix(one.chances, one.sizes)
        mean = np.abs(gap[known, one.own[known]]).mean()
        print(f"| {name} | {mine.of_ten:.3f} | {mean:.3f} |", flush=True)


if __name__ == "__main__":
    main()
