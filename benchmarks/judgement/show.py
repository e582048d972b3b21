"""Print the ladder as a table and draw it, from the kept results alone: ``show.py``.

python benchmarks/judgement/show.py keep SLICES RESULT.jsonl ...    # once: scores and counts, no text, into results/
python benchmarks/judgement/show.py                                 # the table, and docs/images/judgement.png
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from slices import LABELS, SLICES

RESULTS = Path(__file__).parent / "results"
IMAGE = Path(__file__).parents[2] / "docs" / "images" / "judgement.png"
DRAWS = 2000
#: What each row is, in the order of the table.
ROWS = {
    "majority": "majority",
    "metadata": "boosted trees on year, references, citations, field",
    "tfidf": "words (TF-IDF), logistic regression",
    "minilm": "MiniLM embeddings, logistic regression",
    "zero": "SmolLM2, asked for JSON",
    "zero_less_mean": "SmolLM2, label log-probabilities less their mean",
    "hidden": "SmolLM2, hidden states, logistic regression",
    "sft": "SmolLM2, SFT",
    "title": "SmolLM2, SFT, title alone",
    "soft": "SmolLM2, SFT on the chance of each label",
    "soft_less_mean": "the same, log-probabilities less their mean",
    "written": "SmolLM2, SFT on written chances",
    "exp4": "SFT, then RL, exp4's reward",
    "exp5": "SFT, then RL, exp5's reward",
    "exp6": "SFT, then RL, exp6's reward",
    "least_recall": "SFT, then RL, dual variable on the least recall",
}


def keep(slices: Path, results: list[Path]) -> None:
    """Keep what the table needs: labels and answers as numbers, in the order of the papers' hashed titles."""
    import sciscidata as ssd

    pool = pl.read_parquet(slices / "pool.parquet")
    golds: dict[str, Any] = {}
    for name, (labels, least) in SLICES.items():
        drawn = pl.read_parquet(slices / f"{name}.parquet")
        test = drawn.filter(side="test")["row"].sort()
        shares = dict.fromkeys(labels, 1 / len(labels))
        ceiling = ssd.find_label_ceiling(pool, shares=shares) if not least else None
        golds[name] = {
            "papers": {side: drawn.filter(side=side).height for side in ("train", "dev", "test")},
            "ceiling": ceiling and {"accuracy": round(ceiling.accuracy, 4), "macro_f1": round(ceiling.macro_f1, 4)},
            "least_confidence": least,
            "test": [LABELS.index(label) for label in pool[test]["disruption_label"]],
            "field": pool[test]["primary_field"].to_list(),
        }
    lines = [json.loads(line) for path in results for line in path.read_text("utf-8").splitlines()]
    for line in lines:
        line.pop("paid", None)  # answers; sciscirl paid the same for each
        for judged in line["judged"]:
            if judged["side"] == "dev":
                del judged["said"], judged["chances"]
    lines.sort(key=lambda line: line["job"]["name"])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "slices.json").write_text(json.dumps(golds) + "\n", "utf-8")
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (RESULTS / "ladder.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def read_results() -> tuple[dict[str, Any], dict[tuple[str, str], dict[int, dict[str, Any]]]]:
    """Return the slices, and the last test answers by slice and row, then seed."""
    golds = json.loads((RESULTS / "slices.json").read_text("utf-8"))
    with gzip.open(RESULTS / "ladder.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
    for line in lines:
        job, name = line["job"], line["job"]["name"]
        if name.startswith("rate"):
            continue
        row = "title" if "title" in name else next((row for row in ROWS if name.startswith(row)), name)
        last = [judged for judged in line["judged"] if judged["side"] == "test"][-1]
        found[job["slice"], row][job["seed"]] = last | {"seconds": line["seconds"]}
        if (less_mean := f"{row}_less_mean") in ROWS:
            logs = np.log(np.maximum(np.array(last["chances"]), 1e-4))
            logs -= logs.mean(0)  # the prior of the policy's own answers: Menon et al. 2021, arXiv:2007.07314
            logs[:, len(SLICES[job["slice"]][0]) :] = -np.inf
            found[job["slice"], less_mean][job["seed"]] = last | {"said": logs.argmax(1).tolist(), "seconds": None}
    return golds, found


def measure(said: np.ndarray, gold: np.ndarray) -> tuple[float, float, float]:
    """Return accuracy, macro-F1 and the least recall over the labels of the slice."""
    f1, recalls = [], []
    for label in np.unique(gold):
        hits = np.sum((said == label) & (gold == label))
        f1.append(2 * hits / max(1, np.sum(said == label) + np.sum(gold == label)))
        recalls.append(hits / np.sum(gold == label))
    return float(np.mean(said == gold)), float(np.mean(f1)), float(min(recalls))


def interval(said: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of accuracy over seeds (rows of ``said``) and papers, both drawn with replacement."""
    rng = np.random.default_rng(0)
    right = said == gold
    draws = [
        right[np.ix_(rng.integers(len(said), size=len(said)), rng.integers(gold.size, size=gold.size))].mean()
        for _ in range(DRAWS)
    ]
    return tuple(np.quantile(draws, (0.025, 0.975)))


def tabulate(golds: dict[str, Any], found: dict[tuple[str, str], dict[int, Any]]) -> list[dict[str, Any]]:
    """Return a row for each slice and way: its measures, their interval, and the seconds of a run."""
    rows = []
    for name in golds:
        gold = np.array(golds[name]["test"])
        for row, label in ROWS.items():
            if not (seeds := found.get((name, row))):
                continue
            said = np.array([seeds[seed]["said"] for seed in sorted(seeds)])
            each = np.array([measure(one, gold) for one in said])
            low, high = interval(said, gold)
            seconds = [one["seconds"] for one in seeds.values() if one["seconds"] is not None]
            rows.append({
                "slice": name, "row": row, "label": label, "seeds": len(seeds), "accuracy": each[:, 0].mean(),
                "low": low, "high": high, "macro_f1": each[:, 1].mean(), "least_recall": each[:, 2].mean(),
                "invalid": float(np.mean(said < 0)), "seconds": float(np.mean(seconds)) if seconds else None,
            })  # fmt: skip
    return rows


def show() -> None:
    golds, found = read_results()
    rows = tabulate(golds, found)
    for name, held in golds.items():
        ceiling = held["ceiling"]
        words = f"ceiling {ceiling['accuracy']:.2f}, macro-F1 {ceiling['macro_f1']:.2f}" if ceiling else "no ceiling"
        print(f"\n{name}: {held['papers']}, {words}\n")
        print("| row | seeds | accuracy, 95 % | macro-F1 | least recall | invalid | seconds |")
        print("|---|---|---|---|---|---|---|")
        for one in (one for one in rows if one["slice"] == name):
            seconds = "" if one["seconds"] is None else f"{one['seconds']:.0f}"
            print(
                f"| {one['label']} | {one['seeds']} | {one['accuracy']:.3f} ({one['low']:.3f} to {one['high']:.3f}) | "
                f"{one['macro_f1']:.3f} | {one['least_recall']:.3f} | {one['invalid']:.3f} | {seconds} |"
            )
    print("\ntrained without a field, tested on it (two labels):\n")
    for name in sorted({slice_ for slice_, _ in found if "-" in slice_}):
        field = name.partition("-")[2]
        gold = np.array([g for g, own in zip(golds["two"]["test"], golds["two"]["field"], strict=True) if own == field])
        words = [
            f"{row} {measure(np.array(one['said']), gold)[0]:.3f}"
            for (slice_, row), seeds in found.items() if slice_ == name for one in seeds.values()
        ]  # fmt: skip
        print(f"{field} ({gold.size} papers):", ", ".join(words))
    draw(rows, golds)


def draw(rows: list[dict[str, Any]], golds: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(golds), figsize=(13, 5.4), layout="constrained", sharey=True)
    order = [row for row in ROWS if any(one["row"] == row for one in rows)][::-1]
    for axis, (name, held) in zip(axes, golds.items(), strict=True):
        for one in (one for one in rows if one["slice"] == name):
            at = order.index(one["row"])
            axis.plot((one["low"], one["high"]), (at, at), color="#4477aa")
            axis.plot(one["accuracy"], at, "o", color="#4477aa")
        n_labels = len(set(held["test"]))
        axis.axvline(1 / n_labels, color="#999999", linestyle=":", label="chance")
        if held["ceiling"]:
            axis.axvline(held["ceiling"]["accuracy"], color="#cc6677", label="ceiling")
        sure = f", confidence from {held['least_confidence']}" if held["least_confidence"] else ""
        axis.set(title=f"{n_labels} labels{sure}\n{held['papers']['test']:,} test papers", xlabel="accuracy")
        axis.set_yticks(range(len(order)), [ROWS[row] for row in order])
        axis.legend(loc="upper right" if n_labels > 2 else "lower left", fontsize=8)
    figure.savefig(IMAGE, dpi=110)


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        keep(Path(sys.argv[2]), [Path(path) for path in sys.argv[3:]])
    else:
        show()
