"""How labels age: citers of later years alone, and the chance of the label of a longer window, with its error.

python benchmarks/label_ageing.py                    three real graphs
python benchmarks/label_ageing.py --papers FOLDER    papers of one's own by field, too

"Alone": counts of years 6 to 10 are those of ten years less those of five. Each citer is of one year, so this is the
definition with the citers of these years only, n_k included. Judged works with a whole window of ten years count, if
something cites them in years 6 to 10. Of cit-HepTh, with works of one such year, the same is done with 3 and 6 years.
Results go to benchmarks/results/label_ageing.json.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.label_confidence import CITERS, COUNTS, LABELS, calibration_error, read_graphs, score
from sciscidata.disruption.label_ageing import FEWEST_WORKS, judge_chances
from sciscidata.indicators import find_label_ageing, is_judged

OUT = Path(__file__).resolve().parent / "results" / "label_ageing.json"
YEARS = 10  # that are counted at most
#: Ways to tell works of a label apart, by what is known after the first window.
KEYS = {
    "label": pl.lit(0),
    "citers": pl.sum_horizontal(pl.col("citers") > most for most in (1, 2, 5, 10, 30)),
    "difference of n_i and n_j": pl.sum_horizontal(pl.col("margin") > most for most in (1, 2, 5, 10)),
    "fifth of label_confidence": (pl.col("label_confidence") * 5).floor().clip(0, 4),
    "tenth of label_confidence": (pl.col("label_confidence") * 10).floor().clip(0, 9),
    "fifth and digits of n_k": (pl.col("label_confidence") * 5).floor().clip(0, 4) * 4
    + pl.sum_horizontal(pl.col("n_k") > most for most in (0, 9, 99)),
}


def read_scores(papers: Path | None) -> Iterator[tuple[str, pl.DataFrame, tuple[str, str]]]:
    """Give the scores of each graph or field, and how the columns of the first and of the later window end."""
    windows = ssd.CDConfig(windows=(3, 6, 10))
    for name, (works, citations) in read_graphs(papers).items():
        scored = ssd.compute_cd_index(works, citations, windows).join(works, on="work_id")
        scores = scored.filter(pl.col("cd_index").is_not_null()).sort("work_id").collect()
        if name == "papers":
            for (field,), rows in scores.group_by("primary_field", maintain_order=True):
                yield str(field), rows, ("", "_10")
            continue
        yield name, scores, ("", "_10")
        if name == "hepth":
            yield "hepth, 3 and 6 years", scores.drop_nulls("cd_index_3"), ("_3", "_6")


def known_after(scores: pl.DataFrame, window: str, later: str, cut: ssd.LabelThresholds) -> pl.DataFrame:
    """Return what is known of judged works after the first window, and their later labels."""
    first = scores.select(pl.col(f"{name}{window}").alias(name) for name in (*COUNTS, "cd_index"))
    sure = ssd.compute_label_confidence(ssd.compute_labels(first, cut), cut).collect()
    whole = ssd.compute_labels(scores.select(cd_index=f"cd_index{later}"), cut).collect()["disruption_label"]
    n_i, n_j = (pl.col(name).cast(pl.Int64) for name in ("n_i", "n_j"))
    of_later = scores.select(pl.col(f"{name}{later}").cast(pl.Int64) for name in COUNTS).to_numpy()
    alone = score(of_later - first.select(COUNTS).cast(pl.Int64).to_numpy(), scores.select("work_id"))
    facts = {"citers": n_i + n_j, "margin": (n_i - n_j).abs(), "later": whole, "year": scores["publication_year"]}
    rows = sure.with_columns(
        **facts, alone=alone["disruption_label"], again=alone["n_i"] + alone["n_j"], n_j_again=alone["n_j"]
    )
    counts = scores.select((is_judged(window) & pl.col(f"window_complete{later}")).fill_null(value=False)).to_series()
    return rows.filter(counts)


def compare_alone(rows: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Return predicted and observed agreement with the citers of later years alone, by label and number of citers."""
    again = rows.filter(pl.col("again") > 0).with_columns(same=pl.col("alone") == pl.col("disruption_label"))
    classes = {"all": pl.lit(value=True)} | {name: pl.col("citers").is_between(low, high) for name, low, high in CITERS}
    means = {"works": pl.len(), "predicted": pl.col("label_confidence").mean(), "observed": pl.col("same").mean()}
    return {
        label: {
            name: {key: value and round(value, 3) for key, value in found.items()}
            for name, of in classes.items()
            for found in [again.filter(of, disruption_label=label).select(**means).row(0, named=True)]
        }
        for label in LABELS
    }


def compare_models(rows: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Return the errors of later works by each way to tell works apart, as ``find_label_ageing`` judges its own."""
    year = rows["year"].to_numpy()
    ends = np.unique(year)[:-1]
    if not ends.size:
        return {}
    last = ends[np.abs([2 * np.count_nonzero(year <= end) - year.size for end in ends]).argmin()]
    place = {label: at for at, label in enumerate(LABELS)}
    found: dict[str, dict[str, float]] = {}
    for name, key in KEYS.items():
        cells = rows.select(pl.col("disruption_label", "later").replace_strict(place), key=key.cast(pl.Int64))
        label, later, band = cells.to_numpy().T
        parts = []
        for part in ((year <= last) & (year > last - YEARS), year > last):
            counts = np.zeros((3, int(band.max()) + 1, 3), np.int64)
            np.add.at(counts, (label[part], band[part], later[part]), 1)
            parts.append(counts)
        if errors := judge_chances(*parts):
            error = errors["all"]
            found[name] = {"calibration error": round(error.calibration_error, 4), "brier": round(error.brier, 4)}
            found["base rate"] = {"brier": round(error.brier_of_base_rate, 4)}
    newer = rows.filter(year > last)
    confidence = newer["label_confidence"].to_numpy()
    same = (newer["later"] == newer["disruption_label"]).to_numpy()
    found["label_confidence as it is"] = {
        "calibration error": round(calibration_error(confidence, same), 4),
        "brier": round(float(((confidence - same) ** 2).mean()), 4),
    }
    return found


def judge(scores: pl.DataFrame, window: str, later: str) -> dict[str, Any]:
    """Return all that is measured of one graph."""
    rows = known_after(scores, window, later, ssd.LabelThresholds())
    wide = known_after(scores, window, later, ssd.LabelThresholds.preset("wide"))
    ageing = find_label_ageing(scores, window=window, later=later)
    errors = {name: {k: round(v, 4) for k, v in e._asdict().items()} for name, e in ageing.errors.items()}
    same = rows.with_columns(same=pl.col("later") == pl.col("disruption_label")).group_by("disruption_label")
    of_label = {
        label: list(rest)
        for label, *rest in same.agg(pl.len(), pl.col("same").mean().round(3)).sort("disruption_label").rows()
    }
    return {
        "judged works": rows.height,
        "years": [rows["year"].min(), rows["year"].max()],
        "share of n_j in the first and in the later years": rows.filter(pl.col("again") > 0)
        .select(
            (pl.col(n_j).sum() / pl.col(n).sum()).round(3).alias(n)
            for n_j, n in (("n_j", "citers"), ("n_j_again", "again"))
        )
        .row(0),
        "alone": compare_alone(rows),
        "works, share with the same label after the later window": of_label,
        "chances": {"works": ageing.works, "years": [ageing.first_year, ageing.last_year], "errors": errors},
        "ways": {"default": compare_models(rows), "wide": compare_models(wide)},
    }


def show(found: dict[str, Any]) -> None:
    """Print the tables of the page."""
    print("| alone: predicted, in brackets observed, of works |", " | ".join(LABELS), "|\n|---|---|---|---|")
    for name, one in found.items():
        cells = [one["alone"][label]["all"] for label in LABELS]
        texts = [f"{c['predicted']:.2f} ({c['observed']:.2f}) of {c['works']:,}" if c["works"] else "" for c in cells]
        print(f"| {name} |", " | ".join(texts), "|")
    print(f"\nOf at least {FEWEST_WORKS} works, observed less predicted, lowest and highest graph:")
    for label in LABELS:
        for name in ("all", *(name for name, *_ in CITERS)):
            gaps = {
                graph: one["alone"][label][name]["observed"] - one["alone"][label][name]["predicted"]
                for graph, one in found.items()
                if one["alone"][label][name]["works"] >= FEWEST_WORKS
            }
            if gaps:
                ends = [min(gaps, key=gaps.__getitem__), max(gaps, key=gaps.__getitem__)]
                print(f"  {label}, {name}: {len(gaps)} graphs,", ", ".join(f"{gaps[x]:+.2f} {x}" for x in ends))
    print("\n| chances on later works | works | predicted | observed | error | by chance | Brier | base | sharpness |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, one in found.items():
        for label, e in one["chances"]["errors"].items():
            numbers = " | ".join(f"{value:.3f}" for key, value in e.items() if key != "works")
            print(f"| {name}, {label} | {e['works']:,} | {numbers} |")
    shares = {name: one["share of n_j in the first and in the later years"] for name, one in found.items()}
    print("\nShare of n_j among citers in the first and in the later years:", shares)
    for kind in ("default", "wide"):
        print(f"\n| thresholds {kind}: mean over graphs, largest | calibration error | Brier |\n|---|---|---|")
        for way in (*KEYS, "base rate", "label_confidence as it is"):
            some = [one["ways"][kind][way] for one in found.values() if way in one["ways"][kind]]
            cells = []
            for key in ("calibration error", "brier"):
                values = [row[key] for row in some if key in row]
                cells.append(f"{np.mean(values):.4f}, {max(values):.3f}" if values else "")
            print(f"| {way} ({len(some)} graphs) |", " | ".join(cells), "|")


def main() -> None:
    """Measure every graph, keep the results and print them."""
    parser = measure.parser(__doc__)
    parser.add_argument("--papers", type=Path, help="a folder with works.parquet and citations.parquet of one's own")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    found = {name: judge(scores, *ends) for name, scores, ends in read_scores(options.papers)}
    OUT.write_text(
        "{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()) + "\n}\n"
    )
    show(found)


if __name__ == "__main__":
    main()
