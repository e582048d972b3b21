"""What the kept results say: answers of each way on the test papers, and how they are measured.

A row of ``results/ladder.jsonl.gz`` has answers and chances as numbers, in the order of ``results/slices.json``.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np
from scipy.special import stdtrit
from slices import LABELS, SLICES

RESULTS = Path(__file__).parent / "results"
N_DRAWS = 2_000
N_FOLDS = 5
#: What each job of the ladder is, by the beginning of its name.
WAYS = {
    "majority": "majority",
    "metadata": "boosted trees on year, citations so far, number of references, field",
    "tfidf": "`words`: TF-IDF, logistic regression",
    "minilm": "MiniLM embeddings, logistic regression",
    "zero": "SmolLM2, asked for JSON",
    "hidden": "SmolLM2, hidden states, logistic regression",
    "sft": "SmolLM2, SFT",
    "title": "SmolLM2, SFT, title alone",
    "abstract": "SmolLM2, SFT, abstract alone",
    "all": "SmolLM2, SFT, with year, citations so far, field",
    "long": "SmolLM2, SFT, with year, field, 512 tokens",
    "references": "the same, with titles of references",
    "numbers": "the same, with numbers at publication",
    "both": "the same, with both",
    "soft": "SmolLM2, SFT on the chance of each label",
    "written": "SmolLM2, SFT on written chances",
    "leaning": "SmolLM2, SFT on 0.7 for the label, in writing",
    "just_rl": "RL from the base model, exp4's reward",
    "exp4": "SFT, then RL, exp4's reward",
    "exp4_long": "the same, three passes",
    "exp4_best": "from the best with references or numbers, exp4's reward",
    "exp5": "SFT, then RL, exp5's reward",
    "exp6": "SFT, then RL, exp6's reward",
    "exp6_best": "from the best with references or numbers, exp6's reward",
    "least_recall": "SFT, then RL, dual variable on the least recall",
    "label_centred": "SFT, then RL, reward less its label's mean",
    "expected": "SmolLM2, SFT, then exp4's reward, expected over labels",
    "exp8": "SFT on 0.7, then RL, exp8's reward",
    "exp8_soft": "the same, quadratic score on the chance of each label",
}

Slices = dict[str, Any]
Runs = dict[tuple[str, str], list[dict[str, Any]]]


def read_kept(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def read_lines() -> list[dict[str, Any]]:
    with gzip.open(RESULTS / "ladder.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def find_way(job: dict[str, Any]) -> str:
    """Return the way of a job: ``sft_two_title_0`` is a ``title``, ``exp8_soft_three_0`` an ``exp8_soft``."""
    way = max((way for way in WAYS if job["name"].startswith(f"{way}_")), key=len, default=job["name"])
    return job["view"] if way == "sft" and job["view"] in WAYS else way


def read_results() -> tuple[Slices, Runs]:
    """Return the slices, and by slice and way its runs in the order of their seeds."""
    slices = read_kept("slices")
    runs: Runs = defaultdict(list)
    for line in read_lines():
        job = line["job"]
        if job["name"].startswith("rate"):
            continue
        tests = [judged for judged in line["judged"] if judged["side"] == "test"]
        if job["way"] in ("zero", "sft", "rl") and job["contract"] == "two_keys":
            n_labels = count_labels(job["slice"])
            priors = {judged.get("step"): judged.get("prior") for judged in line["judged"] if judged["side"] == "dev"}
            for judged in tests:
                judged["corrected"] = correct_prior(judged["chances"], n_labels, priors.get(judged.get("step")))
        runs[job["slice"], find_way(job)].append(tests[-1] | {"job": job, "tests": tests})
    for seeds in runs.values():
        seeds.sort(key=lambda run: run["job"]["seed"])
    return slices, runs


def count_labels(name: str) -> int:
    """Return the number of labels of a slice; ``second`` and ``two-archaeology`` have those of ``two``."""
    return len(SLICES.get(name, SLICES["two"])[0])


def find_gold(slices: Slices, name: str) -> np.ndarray:
    """Return the labels of the test papers; those of ``two-archaeology`` are of that field."""
    if name == "second":
        return np.array(read_kept("second")["test"])
    name, _, field = name.partition("-")
    gold = np.array(slices[name]["test"])
    return gold[np.array(slices[name]["field"]) == field] if field else gold


def share_out(chances: list[list[float]], n_labels: int) -> np.ndarray:
    """Return the chances of the labels of the slice, which add up to 1."""
    chance = np.maximum(np.array(chances)[:, :n_labels], 1e-4)
    return chance / chance.sum(1, keepdims=True)


def correct_prior(chances: list[list[float]], n_labels: int, prior: list[float] | None = None) -> list[int]:
    """Choose labels by chance over its mean over other papers, as ``sciscirl evaluate --prior-correction`` does.

    ``prior`` is the mean over dev. Kept results without one take the mean over the other four fifths of the test
    papers. Source: Zhou et al. 2023, arXiv:2309.17249; of training with shares, Menon et al. 2021, arXiv:2007.07314.
    """
    chance = share_out(chances, n_labels)
    if prior is not None:
        return (chance / np.array(prior)).argmax(1).tolist()
    fold = np.arange(len(chance)) % N_FOLDS
    means = np.array([chance[fold != one].mean(0) for one in range(N_FOLDS)])
    return (chance / means[fold]).argmax(1).tolist()


def find_interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the mean over seeds (rows) and papers (columns), as ``sciscirl compare`` has it.

    The papers are drawn anew. To this Student's t adds, in squares, how far the mean of these seeds may be off.
    """
    by_paper, by_seed = values.mean(0), values.mean(1)
    draws = np.random.default_rng(0).integers(0, by_paper.size, (N_DRAWS, by_paper.size))
    low, high = np.percentile(by_paper[draws].mean(1), (2.5, 97.5))
    middle = float(by_paper.mean())
    off = 0.0
    if len(by_seed) > 1:
        off = float(stdtrit(len(by_seed) - 1, 0.975)) * stdev(map(float, by_seed)) / math.sqrt(len(by_seed))
    return middle - math.hypot(middle - low, off), middle + math.hypot(high - middle, off)


def say(values: np.ndarray, digits: int = 2, sign: str = "") -> str:
    """Write the mean and its interval; values are by seed and paper."""
    low, high = find_interval(values)
    return f"{values.mean():{sign}.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def say_kept(ends: list[float], digits: int = 2, sign: str = "") -> str:
    """Write a mean and its interval that are kept as numbers."""
    middle, low, high = ends
    return f"{middle:{sign}.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def find_macro_f1(said: np.ndarray, gold: np.ndarray) -> float:
    hits = {label: np.sum((said == label) & (gold == label)) for label in np.unique(gold)}
    return float(np.mean([2 * hit / (np.sum(said == at) + np.sum(gold == at)) for at, hit in hits.items()]))


def find_calibration_error(chances: list[list[float]], gold: np.ndarray, n_labels: int) -> float:
    """Return the expected calibration error of the likeliest label, in ten bins of equal width."""
    chance = share_out(chances, n_labels)
    sure, is_right = chance.max(1), chance.argmax(1) == gold
    bins = np.ceil(sure * 10)
    return (
        float(sum(abs(np.sum(sure[bins == one]) - np.sum(is_right[bins == one])) for one in np.unique(bins)))
        / gold.size
    )


def find_shares(said: np.ndarray) -> list[float]:
    return [float(np.mean(said == label)) for label in range(len(LABELS))]
