"""Print the ladder, write its tables into the page, and draw it, from the kept results alone: ``show.py``.

python benchmarks/judgement/show.py keep SLICES RESULT.jsonl ...    # scores and counts, no text, into results/
python benchmarks/judgement/show.py                                 # docs/rl/judgement.md and its two pictures
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from draw import draw_answers, draw_ladder
from slices import LABELS, SLICES

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "rl" / "judgement.md"
DRAWS = 2000
#: What each row is, in the order of the table.
ROWS = {
    "majority": "majority",
    "metadata": "boosted trees on year, references, citations, field",
    "tfidf": "words (TF-IDF), logistic regression",
    "minilm": "MiniLM embeddings, logistic regression",
    "zero": "SmolLM2, asked for JSON",
    "hidden": "SmolLM2, hidden states, logistic regression",
    "sft": "SmolLM2, SFT",
    "title": "SmolLM2, SFT, title alone",
    "abstract": "SmolLM2, SFT, abstract alone",
    "all": "SmolLM2, SFT, year, citations and field shown",
    "soft": "SmolLM2, SFT on the chance of each label",
    "written": "SmolLM2, SFT on written chances",
    "leaning": "SmolLM2, SFT on 0.7 for the label, in writing",
    "just_rl": "RL from the base model, exp4's reward",
    "exp4": "SFT, then RL, exp4's reward",
    "exp4_long": "the same, three passes",
    "exp5": "SFT, then RL, exp5's reward",
    "exp6": "SFT, then RL, exp6's reward",
    "least_recall": "SFT, then RL, dual variable on the least recall",
    "label_centred": "SFT, then RL, reward less its label's mean",
    "expected": "SFT, then exp4's reward, expected over labels",
    "exp8": "SFT on 0.7, then RL, exp8's reward",
    "exp8_soft": "the same, quadratic score on the chance of each label",
}


#: The ways of the table of fields left out.
FIELD_WAYS = {"metadata": "counts", "tfidf": "TF-IDF", "minilm": "MiniLM", "sft": "SmolLM2, SFT", "": "less the mean"}


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
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True, cwd=DOCS).strip()
    by_name = {line["job"]["name"]: line for line in read_lines()} if (RESULTS / "ladder.jsonl.gz").exists() else {}
    for line in (json.loads(line) for path in results for line in path.read_text("utf-8").splitlines()):
        if "error" in line:
            continue  # a job that failed; a later line has it
        line.pop("paid", None)  # answers; sciscirl paid the same for each
        for judged in line["judged"]:
            if judged["side"] == "dev":
                del judged["said"], judged["chances"]
        by_name[line["job"]["name"]] = {"job": line["job"], "commit": commit} | line
    lines = [by_name[name] for name in sorted(by_name)]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "slices.json").write_text(json.dumps(golds) + "\n", "utf-8")
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (RESULTS / "ladder.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def read_lines() -> list[dict[str, Any]]:
    with gzip.open(RESULTS / "ladder.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def find_row(name: str) -> str:
    """Return the row of a job: ``sft_two_title_0`` is a ``title``, ``exp8_soft_three_0`` an ``exp8_soft``."""
    inner = next((row for row in ("title", "abstract", "all") if f"_{row}_" in name), None)
    return inner or max((row for row in ROWS if name.startswith(f"{row}_")), key=len, default=name)


def read_results() -> tuple[dict[str, Any], dict[tuple[str, str], dict[int, dict[str, Any]]]]:
    """Return the slices, and the first and last test answers by slice and row, then seed."""
    golds = json.loads((RESULTS / "slices.json").read_text("utf-8"))
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
    for line in read_lines():
        job = line["job"]
        if job["name"].startswith("rate"):
            continue
        tests = [judged for judged in line["judged"] if judged["side"] == "test"]
        last = tests[-1] | {"tests": tests, "seconds": line["seconds"], "way": job["way"]}
        if job["way"] in ("zero", "sft", "rl") and job["contract"] == "two_keys":
            last["less_mean"] = take_mean_off(last["chances"], len(SLICES[job["slice"].partition("-")[0]][0]))
        found[job["slice"], find_row(job["name"])][job["seed"]] = last
    return golds, found


def take_mean_off(chances: list[list[float]], n_labels: int) -> list[int]:
    """Choose labels by log-probability less its mean over all papers (Menon et al. 2021, arXiv:2007.07314).

    So the share of each label in the policy's own answers does not count, only what differs between papers.
    """
    logs = np.log(np.maximum(np.array(chances), 1e-4))
    logs -= logs.mean(0)
    logs[:, n_labels:] = -np.inf
    return logs.argmax(1).tolist()


def measure(said: np.ndarray, gold: np.ndarray) -> tuple[float, float, float]:
    """Return accuracy, macro-F1 and the least recall over the labels of the slice."""
    f1, recalls = [], []
    for label in np.unique(gold):
        hits = np.sum((said == label) & (gold == label))
        f1.append(2 * hits / max(1, np.sum(said == label) + np.sum(gold == label)))
        recalls.append(hits / np.sum(gold == label))
    return float(np.mean(said == gold)), float(np.mean(f1)), float(min(recalls))


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the mean over seeds (rows) and papers (columns), both drawn with replacement."""
    rng = np.random.default_rng(0)
    n_seeds, n_papers = values.shape
    draws = [
        values[np.ix_(rng.integers(n_seeds, size=n_seeds), rng.integers(n_papers, size=n_papers))].mean()
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
            low, high = interval(said == gold)
            seconds = [one["seconds"] for one in seeds.values() if one["seconds"] is not None]
            fair = [measure(np.array(one["less_mean"]), gold)[0] for one in seeds.values() if "less_mean" in one]
            rows.append({
                "slice": name, "row": row, "label": label, "seeds": len(seeds), "accuracy": each[:, 0].mean(),
                "low": low, "high": high, "macro_f1": each[:, 1].mean(), "least_recall": each[:, 2].mean(),
                "less_mean": float(np.mean(fair)) if fair else None,
                "invalid": float(np.mean(said < 0)), "seconds": float(np.mean(seconds)) if seconds else None,
            })  # fmt: skip
    return rows


def write_ladder(rows: list[dict[str, Any]]) -> str:
    """Return the table of all ways: a row each, with the three slices side by side."""
    at = {(one["row"], one["slice"]): one for one in rows}

    def cell(row: str, name: str, measured: str) -> str:
        one = at.get((row, name))
        if one is None or one[measured] is None:
            return ""
        return f"{one[measured]:.2f}" + (f" [{one['low']:.2f}, {one['high']:.2f}]" if measured == "accuracy" else "")

    columns = [("three", "accuracy"), ("three", "macro_f1"), ("three", "less_mean"), ("two", "accuracy"),
               ("two", "less_mean"), ("two_sure", "accuracy")]  # fmt: skip
    lines = ["| way | `three` | its macro-F1 | less the mean | `two` | less the mean | `two_sure` | seeds |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for row, label in ROWS.items():
        seeds = sorted({at[row, name]["seeds"] for name in SLICES if (row, name) in at})
        if seeds:
            cells = [label, *(cell(row, *column) for column in columns), ", ".join(map(str, seeds))]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pair_runs(golds: dict[str, Any], found: dict[tuple[str, str], dict[int, Any]]) -> list[dict[str, Any]]:
    """Return a row for each way of reinforcement: each run against its own start, paired by paper."""
    rows = []
    gold = np.array(golds["three"]["test"])
    for row, label in ROWS.items():
        seeds = [one for _, one in sorted(found.get(("three", row), {}).items()) if one["way"] == "rl"]
        if not seeds:
            continue
        ends = [[np.array(one["tests"][at]["said"]) for one in seeds] for at in (0, -1)]
        gains = np.array([(after == gold) * 1.0 - (before == gold) for before, after in zip(*ends, strict=True)])
        shares = [[float(np.mean([said == at for said in runs])) for at in range(len(LABELS))] for runs in ends]
        fair = []
        for at in (0, -1) if "less_mean" in seeds[0] else ():
            labels = np.array([take_mean_off(one["tests"][at]["chances"], len(LABELS)) for one in seeds])
            fair.append(float(np.mean(labels == gold)))
        rows.append({
            "row": row, "label": label, "steps": seeds[0]["tests"][-1]["step"], "seeds": len(seeds),
            "gain": float(gains.mean()), "interval": interval(gains), "shares": shares, "less_mean": fair,
        })  # fmt: skip
    return rows


def write_rl(rows: list[dict[str, Any]]) -> str:
    """Return the table of reinforcement."""
    lines = ["| way | steps | seeds | change in accuracy | shares said: before, after | less the mean: before, after |"]
    lines.append("|---" * 6 + "|")
    for one in rows:
        shares = ", ".join(" ".join(f"{share:.2f}" for share in shares) for shares in one["shares"])
        low, high = one["interval"]
        lines.append(
            f"| {one['label']} | {one['steps']} | {one['seeds']} | {one['gain']:+.3f} [{low:.3f}, {high:.3f}] | "
            f"{shares} | {', '.join(f'{fair:.2f}' for fair in one['less_mean'])} |"
        )
    return "\n".join(lines)


def measure_fields(golds: dict[str, Any], found: dict[tuple[str, str], dict[int, Any]]) -> list[dict[str, Any]]:
    """Return the accuracy of each way on the test papers of a field that training had not, two labels."""
    rows = []
    for name in sorted({slice_ for slice_, _ in found if "-" in slice_}):
        field = name.partition("-")[2]
        gold = np.array([g for g, own in zip(golds["two"]["test"], golds["two"]["field"], strict=True) if own == field])
        said = {row: [np.array(one["said"]) for one in found.get((name, row), {}).values()] for row in FIELD_WAYS}
        said[""] = [np.array(one["less_mean"]) for one in found.get((name, "sft"), {}).values()]
        right = {row: float(np.mean([measure(one, gold)[0] for one in said[row]])) for row in FIELD_WAYS if said[row]}
        rows.append({"field": field, "papers": gold.size, "right": right})
    return rows


def write_fields(rows: list[dict[str, Any]]) -> str:
    """Return the table of fields left out."""
    lines = ["| field left out | papers | " + " | ".join(FIELD_WAYS.values()) + " |"]
    lines.append("|---" * (len(FIELD_WAYS) + 2) + "|")
    for one in rows:
        cells = [f"{one['right'][way]:.2f}" if way in one["right"] else "" for way in FIELD_WAYS]
        lines.append(f"| {one['field']} | {one['papers']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def show() -> None:
    golds, found = read_results()
    rows = tabulate(golds, found)
    for one in rows:
        seconds = "" if one["seconds"] is None else f", {one['seconds']:.0f} s"
        print(
            f"{one['slice']}, {one['label']}: {one['accuracy']:.3f} ({one['low']:.3f} to {one['high']:.3f}), macro-F1 "
            f"{one['macro_f1']:.3f}, least recall {one['least_recall']:.3f}, invalid {one['invalid']:.3f}{seconds}"
        )
    for one in found["two_sure", "memory_sure_0"].values():
        views = ", ".join(f"{asked['view']} {asked['right']:.3f}" for asked in one["tests"])
        print(f"\nshuffled labels learnt by heart, asked by {views}")
    runs, fields = pair_runs(golds, found), measure_fields(golds, found)
    tables = {"ladder": write_ladder(rows), "rl": write_rl(runs), "fields": write_fields(fields)}
    page = PAGE.read_text("utf-8")
    for name, table in tables.items():
        begin, end = f"<!-- {name}: show.py writes this table -->", f"<!-- end of {name} -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
        print(f"\n{table}")
    PAGE.write_text(page, "utf-8")
    draw_ladder(rows, golds, ROWS)
    draw_answers(rows, golds, found, runs, fields)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    keeping = parser.add_subparsers(dest="step").add_parser("keep")
    keeping.add_argument("slices", type=Path)
    keeping.add_argument("results", type=Path, nargs="+")
    options = parser.parse_args()
    if options.step == "keep":
        keep(options.slices, options.results)
    else:
        show()
