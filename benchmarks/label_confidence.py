"""How sure disruption labels are on real graphs, how well this is predicted, and how fast.

python benchmarks/label_confidence.py                        three real graphs: all tables
python benchmarks/label_confidence.py --papers FOLDER        papers with fields, too, whose texts may not be passed on
python benchmarks/label_confidence.py --pictures             only what the pictures show, into results/ (with --papers)
python benchmarks/label_confidence.py --size M               time beside that of CD_5

No text of a work is read.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import polars.selectors as cs

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.graphs import N_WORKS, scan_graph
from benchmarks.real_graphs import LAST_YEAR, scan_real
from sciscidata import indicators
from sciscidata.indicators import compute_novelty_confidence, find_effect_of_missing_data, find_label_stability
from sciscidata.novelty.background import VenuePairs, write_null_model

LABELS = ("consolidating", "neutral", "disruptive")
COUNTS = ("n_i", "n_j", "n_k")
FORMS: dict[str, dict[str, Any]] = {"plain": {"shrink": False}, "default": {}}
CITERS = (("1-2", 1, 2), ("3-5", 3, 5), ("6-10", 6, 10), ("11-30", 11, 30), ("> 30", 31, 1 << 40))
SPLITS = 5
KINDS = ("random halves", "odd and even years", "5 and 10 years")
#: How pages and pictures call the graphs.
NAMES = {"hepth": "HepTh", "papers": "five fields"}


class Graph(NamedTuple):
    """Works and citations."""

    works: pl.LazyFrame
    citations: pl.LazyFrame


def read_graphs(papers: Path | None) -> dict[str, Graph]:
    """Read every graph.

    Its works have last_year, the first that is not whole, source_id where it is known, and in ``papers`` primary_field.
    """
    example = ssd.scan_example()
    frames = {name: scan_real(name) for name in ("hepth", "handball")} | {"example": (example.works, example.citations)}
    last_years = LAST_YEAR | {"example": 2022}
    read = ("work_id", "publication_year", cs.by_name("source_id", require_all=False))
    graphs = {
        name: Graph(works.select(*read, last_year=pl.lit(last_years[name])), citations)
        for name, (works, citations) in frames.items()
    }
    return graphs | ({"papers": read_papers(papers)} if papers else {})


def read_papers(folder: Path) -> Graph:
    """Read papers with fields, without their texts."""
    works = pl.scan_parquet(folder / "works.parquet")
    columns = ("work_id", "primary_field", pl.col("publication_year").cast(pl.Int32))
    works = works.select(
        *columns,
        last_year=pl.col("last_full_year") + 1,
        source_id=pl.col("source_name").rank("dense").cast(pl.Int64),
    )
    return Graph(works, pl.scan_parquet(folder / "citations.parquet"))


def score(counts: np.ndarray, facts: pl.DataFrame) -> pl.DataFrame:
    """Make CD_SCORES with their labels from rows of n_i, n_j, n_k."""
    total = counts.sum(axis=1)
    index = np.where(total > 0, (counts[:, 0] - counts[:, 1]) / np.maximum(total, 1), np.nan)
    columns = {name: pl.Series(counts[:, place], dtype=pl.UInt32) for place, name in enumerate(COUNTS)}
    return ssd.compute_labels(facts.with_columns(**columns, cd_index=pl.Series(index).fill_nan(None))).collect()


def is_cited(scores: pl.DataFrame) -> pl.Series:
    return (scores["n_i"] + scores["n_j"] > 0) & scores["cd_index"].is_not_null()


def calibration_error(confidence: np.ndarray, is_same: np.ndarray) -> float:
    """Return the expected calibration error over ten bins of equal width."""
    places = np.minimum((confidence * 10).astype(int), 9)
    return float(np.abs(np.bincount(places, confidence, 10) - np.bincount(places, is_same, 10)).sum() / len(places))


def print_by_label_and_citers(graphs: dict[str, pl.DataFrame]) -> None:
    """Print the mean confidence by label and by number of citers."""
    print("\n| graph | form | works with a citer | consolidating, neutral, disruptive |", end="")
    print(" | ".join(f" {name}" for name, *_ in CITERS), "|\n|---|---|---|---|---|---|---|---|---|")
    for name, scores in graphs.items():
        for form in ("plain", "default"):
            rows = ssd.compute_label_confidence(scores, **FORMS[form]).collect()
            rows = rows.filter(is_cited(rows))
            confidence, citers = pl.col("label_confidence"), pl.col("n_i") + pl.col("n_j")
            by_label = [rows.filter(disruption_label=label)["label_confidence"].mean() for label in LABELS]
            by_citers = [
                rows.filter(citers.is_between(low, high)).select(confidence.mean()).item() for _, low, high in CITERS
            ]
            cells = [", ".join(f"{value:.2f}" for value in by_label), *(f"{value:.2f}" for value in by_citers)]
            print(f"| {name} | {form} | {rows.height:,} |", " | ".join(cells), "|")


def pair_up(kind: str, scores: pl.DataFrame) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """Return pairs of scores of the same works: what is known, and what it is to predict."""

    def counts(rows: pl.DataFrame, ending: str = "") -> np.ndarray:
        return rows.select(f"{name}{ending}" for name in COUNTS).to_numpy().astype(np.int64)

    facts = [name for name in scores.columns if name in ("work_id", "primary_field")]
    if kind == "random halves":
        whole, pairs = counts(scores), []
        for seed in range(SPLITS):
            half = np.random.default_rng(seed).binomial(whole, 0.5)
            pairs.append((score(half, scores.select(facts)), score(whole - half, scores.select(facts))))
        return pairs
    years = 6 if kind == "odd and even years" else 10
    rows = scores.filter(pl.col("publication_year") + years < pl.col("last_year"))
    if kind == "5 and 10 years":
        return [(score(counts(rows), rows.select(facts)), score(counts(rows, "_10"), rows.select(facts)))]
    up_to = [np.zeros((rows.height, 3), np.int64)]
    up_to += [counts(rows, "" if age == 5 else f"_{age}") for age in range(1, 7)]
    odd, even = (sum(up_to[age] - up_to[age - 1] for age in ages) for ages in ((1, 3, 5), (2, 4, 6)))
    halves = [score(part, rows.select(facts)) for part in (odd, even)]
    return [(halves[0], halves[1]), (halves[1], halves[0])]


def print_calibration(
    graphs: dict[str, pl.DataFrame], kinds: Sequence[str] = KINDS
) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """Print how well the agreement of labels is predicted; return predicted and observed of the random halves."""
    print(
        "\n| what | graph | works | agree | form | predicted | error | by chance | consolidating, neutral, disruptive |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    kept: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
    for kind in kinds:
        for name, scores in graphs.items():
            pairs = pair_up(kind, scores)
            for form, options in FORMS.items():
                found, errors, chance = [], [], []
                for known, other in pairs:
                    rows = ssd.compute_label_confidence(known, **options).collect()
                    same = rows["disruption_label"] == other["disruption_label"]
                    both = is_cited(known) & is_cited(other)
                    confidence, is_same = rows["label_confidence"].filter(both).to_numpy(), same.filter(both).to_numpy()
                    found.append((confidence, is_same, rows["disruption_label"].filter(both).to_numpy()))
                    if confidence.size:
                        errors.append(calibration_error(confidence, is_same))
                        drawn = np.random.default_rng(0).random((20, confidence.size)) < confidence
                        chance.append(np.mean([calibration_error(confidence, one) for one in drawn]))
                confidence, is_same, label = (np.concatenate(parts) for parts in zip(*found, strict=True))
                if not confidence.size:
                    continue
                if kind == "random halves":
                    kept[form, name] = confidence, is_same
                by_label = ", ".join(
                    f"{confidence[label == one].mean():.2f} ({is_same[label == one].mean():.2f})"
                    for one in LABELS
                    if (label == one).any()
                )
                print(
                    f"| {kind} | {name} | {confidence.size // len(pairs):,} | {is_same.mean():.3f} | {form} "
                    f"| {confidence.mean():.3f} | {np.mean(errors):.3f} | {np.mean(chance):.3f} | {by_label} |",
                    flush=True,
                )
    return kept


def print_ceilings(graphs: dict[str, pl.DataFrame]) -> None:
    """Print the highest accuracy and macro-F1, as the labels are and if each label is drawn equally often."""
    print("\n| graph | labels | works | accuracy | macro-F1 | s |\n|---|---|---|---|---|---|")
    for name, scores in graphs.items():
        for kind, shares in (("as they are", None), ("a third each", dict.fromkeys(LABELS, 1 / 3))):
            start = time.perf_counter()
            ceiling = ssd.find_label_ceiling(scores, shares=shares)
            print(
                f"| {name} | {kind} | {ceiling.works:,} | {ceiling.accuracy:.3f} | {ceiling.macro_f1:.3f} "
                f"| {time.perf_counter() - start:.1f} |",
                flush=True,
            )


def print_stability(name: str, graph: Graph) -> None:
    """Print which share of labels is that of all years."""
    last = graph.works.select(pl.col("last_year").max()).collect().item()
    found = find_label_stability(graph.works, graph.citations, last_year=last)
    print(f"\n| {name} | " + " | ".join(f"{age} years" for age in (3, 5, 10)), "|\n|---|---|---|---|")
    for group in found["group"].unique(maintain_order=True):
        cells = []
        for age in (3, 5, 10):
            row = found.filter(age=age, group=group)
            cells.append(f"{row['share_same'].item():.2f} ({row['works'].item():,})" if row.height else "")
        print(f"| {group} |", " | ".join(cells), "|")


def print_missing(name: str, graph: Graph) -> None:
    """Print what missing citations and missing reference lists do to labels."""
    found = find_effect_of_missing_data(graph.works, graph.citations)
    for (kind, share), rows in found.group_by("missing", "share", maintain_order=True):
        of_all, of_label = rows.filter(label="all").row(0, named=True), rows.filter(pl.col("label") != "all")
        same, shares = (", ".join(f"{x:.2f}" for x in of_label[c]) for c in ("share_same", "label_share"))
        print(
            f"| {name}, {share:.0%} of {kind} | {of_all['share_same']:.2f} | {same} | {of_all['share_lost']:.2f} "
            f"| {shares} | {of_all['ceiling_accuracy']:.2f}, {of_all['ceiling_macro_f1']:.2f} |",
            flush=True,
        )


def print_novelty(name: str, works: pl.LazyFrame, citations: pl.LazyFrame) -> None:
    """Print how well one half of a reference list predicts the novelty label of the other, the z of pairs given."""
    rows = citations.unique().sort("citing_id", "cited_id").collect()
    is_first = pl.int_range(pl.len()).over("citing_id") * 2 < pl.len().over("citing_id")
    with TemporaryDirectory() as home:
        pairs = write_null_model(VenuePairs.of(works, citations), Path(home) / "pairs.parquet")
        for rule, shrink in ((rule, shrink) for rule in ("margin", "uzzi") for shrink in (False, True)):
            cut, parts, errors, chance = ssd.LabelThresholds(novelty_rule=rule), [], [], []
            for seed in range(SPLITS):
                mixed = rows.sample(fraction=1, shuffle=True, seed=seed)
                one, other = mixed.filter(is_first), mixed.filter(~is_first)
                known = compute_novelty_confidence(works, one, thresholds=cut, shrink=shrink, background=pairs)
                wanted = ssd.compute_labels(ssd.compute_atypicality(works, other, background=pairs), cut)
                both = known.join(wanted.select("work_id", other="novelty_label"), on="work_id").collect()
                both = both.drop_nulls(["novelty_label", "other"]).with_columns(
                    same=pl.col("novelty_label") == pl.col("other")
                )
                confidence = both["label_confidence"].to_numpy()
                errors.append(calibration_error(confidence, both["same"].to_numpy()))
                drawn = np.random.default_rng(0).random((20, confidence.size)) < confidence
                chance.append(np.mean([calibration_error(confidence, one) for one in drawn]))
                parts.append(both)
            whole = pl.concat(parts)
            means = [pl.col("label_confidence").mean(), pl.col("same").mean()]
            by_label = ", ".join(
                f"{label} {said:.2f} ({same:.2f})"
                for label, said, same in whole.group_by("novelty_label").agg(means).sort("novelty_label").rows()
            )
            said, same = whole.select(means).row(0)
            print(
                f"| {name}, {rule} | {whole.height // SPLITS:,} | {same:.3f} "
                f"| {'default' if shrink else 'shrink=False'} | {said:.3f} "
                f"| {np.mean(errors):.3f} | {np.mean(chance):.3f} | {by_label} |",
                flush=True,
            )


def keep_pictures(scores: dict[str, pl.DataFrame], sources: dict[str, Graph]) -> None:
    """Keep what the pictures of ``pictures.py`` show."""
    bins = []
    for (form, name), (confidence, is_same) in print_calibration(scores, KINDS[:1]).items():
        places = np.minimum((confidence * 10).astype(int), 9)
        size, said, same = (np.bincount(places, values, 10) for values in (None, confidence, is_same))
        for n, one, other in zip(size, said, same, strict=True):
            if n >= 25 * SPLITS:
                row = {"predicted": one / n, "observed": other / n, "works": int(n) // SPLITS}
                bins.append({"form": form, "graph": NAMES.get(name, name), **row})
    stability = find_label_stability(*sources["handball"][:2], ages=(1, 3, 5, 10), last_year=LAST_YEAR["handball"])
    effect = find_effect_of_missing_data(*sources["hepth"][:2])
    kept = {"halves": bins, "stability": stability.to_dicts(), "missing": effect.to_dicts()}
    path = Path(__file__).with_name("results") / "label_confidence_pictures.json"
    path.write_text(json.dumps(kept) + "\n", "utf-8")
    print(f"kept in {path}")


def measure_speed(size: str) -> None:
    """Time label confidence and what follows from it beside CD_5, on all threads that Polars has.

    Self-citations: three authors a work, each of a pool of one author for two works. Both rows begin with frames.
    """
    from sciscidata.disruption.index import score_graph
    from sciscidata.graph.graph import build_graph

    frames = scan_graph(size)
    graph = build_graph(*frames)
    scores = score_graph(graph)
    ssd.compute_label_confidence(scores).collect()
    indicators.compute_cd_interval(scores).collect()
    indicators.find_noise_effect(scores)
    ids = frames[0].select("work_id").collect().to_series()
    random = np.random.Generator(np.random.Philox(0))
    authors = pl.DataFrame({"work_id": ids}).join(pl.DataFrame({"place": [1, 2, 3]}), how="cross").select("work_id")
    authors = authors.with_columns(author_id=random.integers(0, len(ids) // 2, authors.height)).unique()
    indicators.compute_independent_cd_index(*frames, authors).collect()
    wide = ssd.LabelThresholds.preset("wide")
    ssd.compute_label_confidence(scores[:2_000], wide).collect()
    task = f"{size}: label confidence of every work"
    work = {
        "CD_5": (3, lambda: score_graph(graph)),
        "label confidence": (3, lambda: ssd.compute_label_confidence(scores).collect()),
        "`shrink=False`": (3, lambda: ssd.compute_label_confidence(scores, shrink=False).collect()),
        "thresholds ±0.1": (1, lambda: ssd.compute_label_confidence(scores, wide).collect()),
        "interval of the index": (1, lambda: indicators.compute_cd_interval(scores).collect()),
        "noise in groups": (1, lambda: indicators.find_noise_effect(scores)),
        "CD_5, from frames": (3, lambda: ssd.compute_cd_index(*frames).collect()),
        "CD_5 and without self-citations, from frames": (
            1,
            lambda: indicators.compute_independent_cd_index(*frames, authors).collect(),
        ),
    }
    rows: list[measure.Row] = []
    for tool, (repeats, one) in work.items():
        cost, made = measure.timed(one, repeats)
        note = f"all values {measure.fingerprint(made)}" if isinstance(made, pl.DataFrame) else ""
        if tool == "thresholds ±0.1":  # other sums of the same terms differ in the last digits
            note = f"means {', '.join(f'{made[name].mean():.9f}' for name in ('label_confidence', 'p_neutral'))}"
        rows.append({"task": task, "tool": tool, **cost, "note": note})
    measure.report(rows=rows)


def main() -> None:
    """Measure what was asked for."""
    parser = measure.parser(__doc__)
    parser.add_argument("--size", choices=N_WORKS, help="time on a generated graph")
    parser.add_argument("--pictures", action="store_true", help="keep what the pictures show, and nothing else")
    parser.add_argument("--papers", type=Path, help="a folder with works.parquet and citations.parquet of one's own")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    if options.part:
        return measure_speed(options.size)
    if options.size:
        found = measure.in_own_process(__file__, "--size", options.size, "--part", "speed")
        found["rows"][0]["peak_gb"] = found["peak_gb"]
        return measure.show(found["rows"], options)
    scores: dict[str, pl.DataFrame] = {}
    sources = read_graphs(options.papers)
    windows = ssd.CDConfig(windows=(1, 2, 3, 4, 6, 10))
    for name, graph in sources.items():
        counted = ssd.compute_cd_index(graph.works, graph.citations, windows).join(graph.works, on="work_id")
        scores[name] = ssd.compute_labels(counted.filter(pl.col("cd_index").is_not_null()).sort("work_id")).collect()
    if options.pictures:
        return keep_pictures(scores, sources)
    print_by_label_and_citers(scores)
    print_calibration(scores)
    print_ceilings(scores)
    for name, graph in sources.items():
        print_stability(name, graph)
    print("\n| missing | same label | consolidating, neutral, disruptive | lost | their shares | ceiling |")
    print("|---|---|---|---|---|---|")
    for name, graph in sources.items():
        print_missing(name, graph)
    print("\n| novelty | works | halves agree | form | predicted | error | by chance | by label |")
    print("|---|---|---|---|---|---|---|---|")
    world = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=20_000))
    for name, (works, citations, *_) in {**sources, "synthetic": world}.items():
        if name != "hepth":  # it has no venues
            print_novelty(name, works, citations)


if __name__ == "__main__":
    main()
