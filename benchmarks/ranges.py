"""How far figures of one graph hold on others: every range that the pages state, and the graphs behind it.

python benchmarks/ranges.py --papers FOLDER              all parts, nine real graphs and two generated ones
python benchmarks/ranges.py --parts labels               as far as they are read, one part

labels: labels after 3, 5 and 10 years, and with a part of the data missing. Of ``papers``, each field is a graph.
cohort: final labels after 3, 5 and 10 years of the same works, those followed for ten years, by citers at that age.
worlds: the ceiling of labels, in worlds whose rates are known.
novelty: shares of the novelty labels by the margin rule, where venues are known.
null:   the closed form of the null model on the first works of each graph, against 500 draws.

Results go to benchmarks/results/ranges.json, graph by graph, so a later run adds what is missing. Figures under
``elsewhere`` were found by others on graphs that are not here. ``tests/docs/test_ranges.py`` holds pages to this file.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.graphs import generate
from benchmarks.label_confidence import CITERS, LABELS, Graph, is_cited, pair_up, read_graphs, score
from benchmarks.real_graphs import LAST_YEAR, scan_real
from sciscidata.disruption._exact_label_kernels import Cuts
from sciscidata.disruption.closed_null_model import expect
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.label_chances import chances_of_rates
from sciscidata.disruption.label_confidence import best_expected
from sciscidata.disruption.label_prior import classes_of, find_label_prior
from sciscidata.disruption.null_model import Draws, score_nulls
from sciscidata.graph.graph import build_graph
from sciscidata.indicators import find_effect_of_missing_data, find_label_stability

OUT = Path(__file__).resolve().parent / "results" / "ranges.json"
PARTS = ("labels", "cohort", "novelty", "null", "worlds")
#: First that many works of each graph, by year.
NULL_SIZES = (300, 1_000, 3_000)
#: Works of whole small worlds, all of them over 45 years.
NULL_WORLDS = (50, 100, 200, 500, 1_000, 2_000)
N_DRAWS = 500
#: Works of a world, and how many worlds.
WORLD_SIZES = {1_500: 5, 20_000: 3, 70_000: 2}
WINDOWS = CDConfig(windows=(10,))
#: Draws the rate of citers of each work, and the share of n_i among them, by its citers and n_k in the graph.
DrawRates: TypeAlias = Callable[[np.random.Generator, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def read_every(papers: Path | None) -> dict[str, Graph]:
    """Read every graph, with last_year, the first year that is not whole. Each field of ``papers`` is one more."""
    graphs = read_graphs(papers)
    works, citations = scan_real("hepph")
    graphs["hepph"] = Graph(works.with_columns(last_year=pl.lit(LAST_YEAR["hepph"])), citations)
    if papers:
        every = graphs["papers"]
        for field in every.works.select(pl.col("primary_field").unique().sort()).collect().to_series():
            works = every.works.filter(primary_field=field).drop("primary_field")
            graphs[field] = Graph(works, every.citations.join(works.select(citing_id="work_id"), on="citing_id"))
    world = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=20_000))
    graphs["synthetic"] = Graph(world.works.select("work_id", "publication_year", last_year=2024), world.citations)
    works, citations = (pl.LazyFrame(columns) for columns in generate(20_000))
    works = works.select(work_id="paper_id", publication_year=pl.col("year").cast(pl.Int32), last_year=2024)
    graphs["generated"] = Graph(works, citations.select(citing_id="citing", cited_id="cited"))
    return graphs


def judge_labels(graph: Graph) -> dict[str, Any]:
    """Return what labels of a graph do over years, and when data are missing."""
    scored = ssd.compute_cd_index(graph.works, graph.citations, WINDOWS).drop_nulls("cd_index")
    scores = ssd.compute_labels(scored.join(graph.works, on="work_id").sort("work_id")).collect()
    cited = scores.filter(is_cited(scores) & scores["window_complete"])
    few = (cited["n_i"] + cited["n_j"] <= 3).mean()
    found: dict[str, Any] = {"judged": cited.height, "three citers or fewer": few}
    ((early, late),) = pair_up("5 and 10 years", scores)
    both = is_cited(early) & is_cited(late)
    sure = ssd.compute_label_confidence(early).collect().filter(both)
    same = (early["disruption_label"] == late["disruption_label"]).filter(both)
    if sure.height:
        found["after 5 and 10 years"] = {
            "works": sure.height,
            "confidence": sure["label_confidence"].mean(),
            "agree": same.mean(),
        }
    last = graph.works.select(pl.col("last_year").max()).collect().item()
    stable = find_label_stability(graph.works, graph.citations, last_year=last)
    group = pl.col("group")
    three_or_more = stable.filter(group.is_in(["3-5 citers", "6-10 citers", "11-30 citers", "31+ citers"]))
    weighted = (pl.col("share_same") * pl.col("works")).sum() / pl.col("works").sum()
    three_or_more = three_or_more.group_by("age").agg(pl.col("works").sum(), share_same=weighted)
    stable = pl.concat([stable, three_or_more.with_columns(group=pl.lit("3+ citers")).select(stable.columns)])
    found["final label"] = {
        name[0]: {
            str(age): [works, share]
            for age, works, share in rows.sort("age").select("age", "works", "share_same").rows()
        }
        for name, rows in stable.group_by("group", maintain_order=True)
    }
    ceilings: dict[str, dict[str, float] | None] = {"as they occur": None, "a third each": dict.fromkeys(LABELS, 1 / 3)}
    found["ceiling"] = {
        name: [ceiling.accuracy, ceiling.macro_f1]
        for name, ceiling in ((name, ssd.find_label_ceiling(scores, shares=of)) for name, of in ceilings.items())
    }
    missing = find_effect_of_missing_data(graph.works, graph.citations)
    found["missing"] = {
        f"{share:.0%} of {kind}": {
            "ceiling": [rows["ceiling_accuracy"][0], rows["ceiling_macro_f1"][0]],
            **{
                row["label"]: {name: row[name] for name in ("share_same", "share_lost", "label_share")}
                for row in rows.iter_rows(named=True)
            },
        }
        for (kind, share), rows in missing.group_by("missing", "share", maintain_order=True)
    }
    return found


def judge_cohort(graph: Graph) -> dict[str, Any]:
    """Return [works, share with the final label] by citers and age, of the works whose window of ten years is over."""
    config = CDConfig(window_years=None, windows=(3, 5, 10))
    scored = ssd.compute_cd_index(graph.works, graph.citations, config).filter(pl.col("n_i") + pl.col("n_j") > 0)
    scored = scored.join(graph.works, on="work_id").filter(pl.col("publication_year") + 10 < pl.col("last_year"))
    scores = ssd.compute_labels(scored).collect()
    found: dict[str, Any] = {}
    for age in (3, 5, 10):
        early = ssd.compute_labels(scores.select("work_id", cd_index=f"cd_index_{age}")).collect()
        rows = scores.with_columns(same=early["disruption_label"] == scores["disruption_label"]).drop_nulls("same")
        citers = pl.col(f"n_i_{age}").cast(pl.Int64) + pl.col(f"n_j_{age}")
        for name, low, high in CITERS[:3]:
            of = rows.filter(citers.is_between(low, high))
            found.setdefault(name, {})[str(age)] = [of.height, of["same"].mean()]
    return found


def judge_novelty(graph: Graph) -> dict[str, Any] | None:
    """Return the share of each novelty label by the margin rule, null where no venue is known."""
    if "source_id" not in graph.works.collect_schema():
        return None
    labelled = ssd.compute_labels(ssd.compute_atypicality(graph.works, graph.citations)).drop_nulls("novelty_label")
    counts = labelled.group_by("novelty_label").len().sort("novelty_label").collect()
    return {"works": counts["len"].sum()} | {label: n / counts["len"].sum() for label, n in counts.rows()}


def with_index(counts: np.ndarray) -> pl.DataFrame:
    """Make CD_SCORES from rows of n_i, n_j, n_k."""
    return score(counts, pl.DataFrame({"work_id": np.arange(len(counts))}))


def families(counts: np.ndarray) -> Iterator[tuple[str, DrawRates]]:
    """Yield families of worlds like a graph of ``counts`` (n_i, n_j, n_k). Real shares are of works with 20 citers."""
    prior, citers = find_label_prior(with_index(counts)), counts[:, :2].sum(axis=1)
    known = counts[citers >= 20, 0] / citers[citers >= 20]
    a, b = np.array(prior.a), np.array(prior.b)
    mean = citers.mean()
    yield (
        "gamma rates, one beta",
        lambda rng, n, n_k: (rng.gamma(0.8, mean / 0.8, n.size), rng.beta(0.6, 1.6, n.size)),
    )
    yield (
        "gamma rates, assumed prior",
        lambda rng, n, n_k: (rng.gamma(0.8, mean / 0.8, n.size), rng.beta(a[classes_of(n_k)], b[classes_of(n_k)])),
    )
    yield "assumed prior", lambda rng, n, n_k: (n, rng.beta(a[classes_of(n_k)], b[classes_of(n_k)]))
    yield "real shares", lambda rng, n, n_k: (n, rng.choice(known, n.size))
    yield "all alike", lambda rng, n, n_k: (n, np.full(n.size, known.mean()))
    yield "two kinds, 0.05 and 0.8", lambda rng, n, n_k: (n, np.where(rng.random(n.size) < 0.25, 0.8, 0.05))
    yield "two kinds, 0.4 and 0.6", lambda rng, n, n_k: (n, np.where(rng.random(n.size) < 0.5, 0.4, 0.6))
    yield "less with more citers", lambda rng, n, n_k: (n, rng.beta(2 / (1 + n / 4), 2))


def judge_worlds(counts: np.ndarray) -> dict[str, Any]:
    """Return the best expected accuracy and macro-F1 of predictors that know the rates, minus the ceiling."""
    cut, found = ssd.LabelThresholds(), {}
    cuts = Cuts(float(cut.consolidating_max), float(cut.disruptive_min), cut.inclusive)
    counts = counts[counts[:, :2].sum(axis=1) > 0]
    for name, draw_rates in families(counts):
        for size, n_worlds in WORLD_SIZES.items():
            beyond = []
            for seed in range(n_worlds):
                rng = np.random.default_rng(seed)
                taken = counts[rng.integers(0, len(counts), size)]
                citers, share = draw_rates(rng, taken[:, :2].sum(axis=1), taken[:, 2])
                n_k = rng.poisson(taken[:, 2])
                rates = np.maximum(np.stack([citers * share, citers * (1 - share)], 1), 1e-9)
                drawn = np.column_stack([rng.poisson(rates), n_k])
                cited, chances = drawn[:, :2].sum(axis=1) > 0, chances_of_rates(rates, n_k, cuts)
                ceiling = ssd.find_label_ceiling(with_index(drawn[cited]))
                best = best_expected(chances[cited])
                beyond.append((best[0] - ceiling.accuracy, best[1] - ceiling.macro_f1))
            found.setdefault(name, {})[str(size)] = {
                what: [float(min(values)), float(max(values))]
                for what, values in zip(("accuracy", "macro-F1"), zip(*beyond, strict=True), strict=True)
            }
            print(name, size, found[name][str(size)], flush=True)
    return found


def judge_null(graph: Graph, size: int) -> dict[str, Any] | None:
    """Return how far the closed form lies from the mean of draws, on the years that hold the first ``size`` works."""
    per_year = graph.works.drop_nulls("publication_year").group_by("publication_year").len().sort("publication_year")
    years = per_year.filter(pl.col("len").cum_sum().shift(fill_value=0) < size).collect()["publication_year"]
    works = graph.works.filter(pl.col("publication_year") <= years.max()).select("work_id", "publication_year")
    citations = graph.citations.join(works.select(citing_id="work_id"), on="citing_id", how="semi")
    small = build_graph(works, citations, n_threads=1)
    mean, std = expect(small, CDConfig())
    drawn = score_nulls(small, {"": CDConfig()}, Draws("rewired", N_DRAWS), n_threads=1)["", ""]
    rows = drawn.head(small.n_dated).with_columns(mean=mean, std=std).filter(pl.col("null_std") > 0)
    if not rows.height:
        return None
    off, ratio = rows["mean"] - rows["null_mean"], rows["std"] / rows["null_std"]
    return {
        "works": small.n_dated,
        "with a spread": int((std > 0).sum()),
        "vary": rows.height,
        "mean error": off.mean(),
        "mean absolute error": off.abs().mean(),
        "largest error": off.abs().max(),
        "ratio of standard deviations": ratio.median(),
    }


def rounded(value: Any) -> Any:
    """Round every number to four digits."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def write(kept: dict[str, Any]) -> str:
    """Write JSON with one line for each graph, so that a change of one is a change of a line."""
    parts = []
    for part, of in kept.items():
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in of.items())
        parts.append(f" {json.dumps(part)}: {{\n{rows}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Measure what was asked for."""
    parser = measure.parser(__doc__)
    parser.add_argument("--papers", type=Path, help="a folder with works.parquet and citations.parquet of one's own")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}

    def keep(part: str, name: str, found: Any) -> None:
        kept.update(json.loads(OUT.read_text()) if OUT.exists() else {})  # another run may do another part
        kept.setdefault(part, {})[name] = rounded(found)
        OUT.write_text(write(kept))
        print(part, name, kept[part][name], flush=True)

    graphs = read_every(options.papers)
    for name, graph in graphs.items():
        for part, judge in (("labels", judge_labels), ("cohort", judge_cohort), ("novelty", judge_novelty)):
            if part in options.parts and name not in kept.get(part, {}):
                keep(part, name, judge(graph))
    firsts = [(f"{name}, first {size:,}", graph, size) for name, graph in graphs.items() for size in NULL_SIZES]
    worlds = {n: ssd.scan_synthetic(ssd.SyntheticConfig(n_works=n))[:2] for n in NULL_WORLDS}
    for name, graph, size in [*firsts, *((f"world of {n:,}", Graph(*world), n) for n, world in worlds.items())]:
        is_new = name not in kept.get("null", {}) and not name.startswith(("papers", "generated"))
        if "null" in options.parts and is_new:
            keep("null", name, judge_null(graph, size))
    for name in ("hepth", "handball") if "worlds" in options.parts else ():
        if name not in kept.get("worlds", {}):
            scores = ssd.compute_cd_index(*graphs[name][:2]).drop_nulls("cd_index").sort("work_id").collect()
            keep("worlds", name, judge_worlds(scores.select("n_i", "n_j", "n_k").to_numpy().astype(np.int64)))


if __name__ == "__main__":
    main()
