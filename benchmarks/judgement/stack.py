"""Does the fine-tuned model add to what is known at publication, and the reverse? ``stack.py PAPERS SLICES OUT``.

The baselines learn from train, as in ``at_publication.py``. The model is SmolLM2 after SFT, by its kept chances of test
papers (``results/ladder.jsonl.gz``); its chances of dev were not kept. So each row is a logistic regression on the
log-odds of its parts, cross-fitted on the test papers: ten folds by hashed title, each judged by what the other nine
say. Rows of one part are fitted the same way, so that a difference is not one of calibration.

A difference is the mean over seeds. Its interval of 95 % takes t with the variance over test papers (2,000 draws, the
fits kept) plus that over three seeds, and Satterthwaite's degrees of freedom. OUT is ``results/stack.json``;
its ``said`` has the answers of each row, by seed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from at_publication import ALL, WITH_WORDS, judge, make_inputs, read_pool, read_slice, write_rows
from scipy.stats import rankdata, t
from sklearn.linear_model import LogisticRegression
from slices import SLICES, run

KEPT = Path(__file__).parent / "results" / "ladder.jsonl.gz"
#: The jobs of each slice, a seed each.
MODELS = {"three": "sft_three", "two": "sft_two", "two_sure": "sft_sure"}
N_FOLDS = 10
DRAWS = 2_000
LEAST = 1e-4  # chances were kept to four digits
NAMES = {"words": "words", ALL: "numbers", WITH_WORDS: "words and numbers"}
ROWS = {
    "words": ("words",),
    "numbers": ("numbers",),
    "words and numbers": ("words and numbers",),
    "model": ("model",),
    "words and model": ("words", "model"),
    "numbers and model": ("numbers", "model"),
    "words and numbers, and model": ("words and numbers", "model"),
}
#: What is added to what: the row, and the row without it.
ADDED = (
    ("model to words", "words and model", "words"),
    ("model to numbers", "numbers and model", "numbers"),
    ("model to words and numbers", "words and numbers, and model", "words and numbers"),
    ("numbers to model", "numbers and model", "model"),
    ("words and numbers to model", "words and numbers, and model", "model"),
)


def read_model(name: str) -> list[np.ndarray]:
    """Return the kept chances of the test papers of a slice, for each seed."""
    with gzip.open(KEPT, "rt", encoding="utf-8") as file:
        judged = {line["job"]["name"]: line["judged"] for line in map(json.loads, file)}
    n_labels = len(SLICES[name][0])
    lasts = ([one for one in judged[f"{MODELS[name]}_{seed}"] if one["side"] == "test"][-1] for seed in range(3))
    return [np.array(last["chances"])[:, :n_labels] for last in lasts]


def to_log_odds(chances: np.ndarray) -> np.ndarray:
    """Return a column for each label but the last: its log-odds against the last."""
    logs = np.log(np.maximum(chances, LEAST))
    return logs[:, :-1] - logs[:, -1:]


def cross_fit(parts: list[np.ndarray], gold: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return the chances of each paper's labels, from a regression that did not see its fold."""
    columns = np.column_stack(parts)
    columns = (columns - columns.mean(0)) / columns.std(0)
    chances = np.zeros((gold.size, gold.max() + 1))
    for one in range(N_FOLDS):
        model = LogisticRegression(C=1.0, max_iter=1000).fit(columns[fold != one], gold[fold != one])
        chances[fold == one] = model.predict_proba(columns[fold == one])
    return chances


def find_accuracy(chances: np.ndarray, gold: np.ndarray) -> float:
    return float(np.mean(chances.argmax(1) == gold))


def find_log_loss(chances: np.ndarray, gold: np.ndarray) -> float:
    return float(-np.log(chances[np.arange(gold.size), gold]).mean())


def find_auc(chances: np.ndarray, gold: np.ndarray) -> float:
    """Return the area under the curve; of three labels the mean of each against the others."""
    areas = []
    for label in range(1 if chances.shape[1] == 2 else 0, chances.shape[1]):
        is_label = gold == label
        n_own, n_other = is_label.sum(), (~is_label).sum()
        above = rankdata(chances[:, label])[is_label].sum() - n_own * (n_own + 1) / 2
        areas.append(above / (n_own * n_other))
    return float(np.mean(areas))


MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": find_accuracy,
    "auc": find_auc,
    "log_loss": find_log_loss,
}


def say_difference(
    with_it: list[np.ndarray], without: list[np.ndarray] | None, gold: np.ndarray, measure: str
) -> list[float]:
    """Return the mean difference over seeds, and its interval over papers and seeds; None: from 0."""
    find = MEASURES[measure]
    bases = without or [None] * len(with_it)

    def differ(at: np.ndarray) -> list[float]:
        pairs = zip(with_it, bases, strict=True)
        return [find(a[at], gold[at]) - (0 if b is None else find(b[at], gold[at])) for a, b in pairs]

    by_seed = np.array(differ(np.arange(gold.size)))
    rng = np.random.default_rng(0)
    drawn = [np.mean(differ(rng.integers(0, gold.size, gold.size))) for _ in range(DRAWS)]
    of_papers, of_seeds = np.var(drawn), by_seed.var(ddof=1) / by_seed.size
    variance = of_papers + of_seeds
    freedom = variance**2 / (of_papers**2 / (gold.size - 1) + of_seeds**2 / (by_seed.size - 1))
    half = t.ppf(0.975, freedom) * variance**0.5
    return [round(float(x), 4) for x in (by_seed.mean(), by_seed.mean() - half, by_seed.mean() + half)]


def main(papers: Path, slices: Path, out: Path) -> None:
    pool = read_pool(papers, slices)
    found: list[dict[str, Any]] = []
    for name in SLICES:
        drawn = read_slice(pool, slices / f"{name}.parquet")
        gold = drawn.gold[drawn.sides["test"]]
        fold = (drawn.own.filter(drawn.sides["test"])["key"] // 10 % N_FOLDS).to_numpy()
        made = make_inputs(drawn)
        judged = judge({key: made[key] for key in NAMES}, drawn, ())
        parts = {NAMES[row["set"]]: [to_log_odds(row["chances"])] * 3 for row in judged}
        parts["model"] = [to_log_odds(chances) for chances in read_model(name)]
        chances = {
            row: [cross_fit([parts[part][seed] for part in of], gold, fold) for seed in range(3)]
            for row, of in ROWS.items()
        }
        rows: dict[str, Any] = {
            row: {
                measure: round(float(np.mean([find(one, gold) for one in of])), 4) for measure, find in MEASURES.items()
            }
            for row, of in chances.items()
        }
        for row, of in chances.items():
            rows[row]["interval"] = say_difference(of, None, gold, "accuracy")[1:]
        added = {
            what: {measure: say_difference(chances[row], chances[base], gold, measure) for measure in MEASURES}
            for what, row, base in ADDED
        }
        said = {row: [one.argmax(1).tolist() for one in of] for row, of in chances.items()}
        found.append({"slice": name, "papers": gold.size, "seeds": 3, "rows": rows, "added": added, "said": said})
        for key, value in (rows | added).items():
            print(name, key, value, flush=True)
    write_rows(found, out)


if __name__ == "__main__":
    run(main, __doc__, "papers", "slices", "out")
