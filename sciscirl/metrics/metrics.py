"""The metrics of a set of answers. An answer that is not valid counts as wrong in every one, and is never left out."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscirl.metrics.own_metrics import measure_own
from sciscirl.metrics.predictions import check_predictions, find_target, split_by_label
from sciscirl.task.papers import OwnTarget, Target, list_labels, short_name
from sciscirl.task.predictions import INVALID, PREDICTIONS, column_ends, merge_labels
from sciscirl.task.rewards import quadratic_loss

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_REWARDS: Final = (
    *(name for name in PREDICTIONS if name.startswith("reward")),
    "reward_correctness", "reward_reasoning", "reward_adaptation",
)  # fmt: skip
#: The metrics that models are compared by; for each, larger is better.
COMPARED: Final = ("label_match", "macro_f1", "min_class_recall")
#: Fewer answers tell nothing, and are not drawn.
FEWEST: Final = 30
_N_BINS: Final = 10


def measure_predictions(predictions: pl.DataFrame | Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Compute every metric of one evaluation.

    An undefined metric has no key. Examples are the recall of a class without papers, and the precision of one that was
    never predicted. F1 is 0 for a class that was never predicted.

    Args:
        predictions: PREDICTIONS, at least ``gold``, ``label``, ``confidence``, ``is_json`` and ``is_valid``. There is
            one row per answer, as a frame or as rows of :func:`make_prediction`. Or predictions of the joint task, with
            two columns for some (``predictions.prediction_schema``).

    Returns:
        All between 0 and 1 unless said otherwise, for each label C:

        - ``n``: number of answers.
        - ``label_match``: share with the right label, of all answers (accuracy).
        - ``parse_ok``, ``format_strict_ok``, ``invalid``: share that is JSON, keeps the contract, breaks it.
        - ``think``, ``tolerant_label_match``: share with ``<think>``; share that a lenient reader would call right.
        - ``recall/C``, ``precision/C``, ``f1/C``: an invalid answer is a miss of its class and predicts no class.
        - ``macro_f1``, ``balanced_accuracy``, ``min_class_recall``: mean F1, mean recall and least recall of the
          classes that have papers.
        - ``mcc``: Matthews' correlation for several classes (-1 to 1), with *invalid* as one more predicted class. By
          convention it is 0 for a constant prediction.
        - ``predicted_share/C``, ``predicted_share/invalid``: of all answers; they add up to 1.
        - ``confusion/GOLD/PREDICTED``: number of answers; predicted may be *invalid*.
        - ``mean_confidence``: of valid answers.
        - ``brier``: mean squared distance of confidence and being right (0 or 1); an invalid answer costs 1.
        - ``ece``: expected calibration error in ten bins of equal width, (0, 0.1] and so on, 0 in the first. An invalid
          answer counts as wrong with confidence 1.
        - ``forecast_brier``: with forecasts, half the mean squared distance of all probabilities from the truth; an
          invalid answer costs 1. The uniform forecast of K labels has (K - 1) / 2K: 1/3 of three.
        - ``forecast_tie_rate``: with forecasts, share of answers whose probabilities tie at the top. They name no
          label, so they are a part of ``invalid``.
        - ``reward``, ``reward_parse`` and so on: means, in units of reward, where the columns are there.
        - Those of ``register_metric``, by name, each in its own range.

        In the joint task, metrics of one label are ``disruption/...`` and ``novelty/...``. The plain name has the mean
        of both for AVERAGED, and the least for min_class_recall. ``both_match`` is the share with both labels right;
        confidence, brier and ece are about that.

        For challenged answers, all of this is about the final answer. ``flip_metrics`` says what the challenge
        changed.

    Raises:
        PredictionsError: there is no row, a column is missing, or a label or gold label is unknown. Or ``label`` and
            ``confidence`` are null in a valid answer, or set in an invalid one.

    Source: MCC, Gorodkin 2004, doi:10.1016/j.compbiolchem.2004.09.006; its value for constant predictions, Chicco &
    Jurman 2020, doi:10.1186/s12864-019-6413-7; ECE, Guo et al. 2017, arXiv:1706.04599.

    Example:
        >>> said = {"confidence": 0.9, "is_json": True, "is_valid": True}
        >>> lost = {"gold": "neutral", "label": None, "confidence": None, "is_json": False, "is_valid": False}
        >>> metrics = measure_predictions([{"gold": "disruptive", "label": "disruptive", **said}, lost])
        >>> metrics["label_match"], metrics["recall/neutral"], metrics["confusion/neutral/invalid"]
        (0.5, 0.0, 1.0)
    """
    frame = check_predictions(predictions)
    parts = split_by_label(frame)
    right = find_right(frame)
    metrics = {
        "n": float(len(frame)),
        "parse_ok": _share(frame["is_json"]),
        "format_strict_ok": _share(frame["is_valid"]),
        "invalid": _share(~frame["is_valid"]),
    }
    if "has_think" in frame.columns:
        metrics["think"] = _share(frame["has_think"])
    if any(name.startswith("forecast") and frame[name].is_not_null().any() for name in frame.columns) or _ties(frame):
        metrics["forecast_tie_rate"] = _ties(frame) / len(frame)
    words = list_labels(find_target(frame))
    by_label = {
        name: _label_metrics(part, column, words[column])
        for (name, part), column in zip(parts.items(), words, strict=True)
    }
    if len(by_label) == 1:
        metrics |= next(iter(by_label.values()))
    else:
        metrics |= merge_labels(by_label) | {"both_match": _share(right)}
    metrics |= _confidence_metrics(frame["confidence"], right)
    if any(name.startswith("first_label") for name in frame.columns):
        metrics |= measure_flips(frame, find_target(frame))
    return metrics | {name: fmean(frame[name]) for name in _REWARDS if name in frame.columns} | measure_own(frame)


def relate_to_ceiling(
    metrics: Mapping[str, float], ceiling: Mapping[str, float] | None, target: Target
) -> dict[str, float]:
    """Say how high any predictor of the disruption labels can get, and how far these metrics have come.

    For ``label_match`` and ``macro_f1``, ``ceiling/METRIC`` is the highest expected value, ``way_to_ceiling/METRIC``
    the share of the way from chance to there. Chance is the share of the commonest label, and for macro-F1 1 / labels.

    Example:
        >>> metrics = {"macro_f1": 0.55, "confusion/neutral/neutral": 3.0, "confusion/disruptive/disruptive": 2.0}
        >>> related = relate_to_ceiling(metrics, {"accuracy": 0.8, "macro_f1": 0.7}, "disruption")
        >>> related["ceiling/macro_f1"], round(related["way_to_ceiling/macro_f1"], 3)
        (0.7, 0.25)
    """
    if ceiling is None or target not in ("disruption", "joint") or isinstance(target, OwnTarget):
        return {}
    start = "disruption/" if target == "joint" else ""
    held = [n for n in count_golds(metrics, start).values() if n]
    related: dict[str, float] = {}
    for metric, stated, chance in (
        ("label_match", "accuracy", max(held) / sum(held)),
        ("macro_f1", "macro_f1", 1 / len(held)),
    ):
        if (top := ceiling.get(stated)) is None:
            continue
        related[f"{start}ceiling/{metric}"] = top
        for end in ("", "/low", "/high"):
            if f"{start}{metric}{end}" in metrics and top > chance:
                way = (metrics[f"{start}{metric}{end}"] - chance) / (top - chance)
                related[f"{start}way_to_ceiling/{metric}{end}"] = way
    return related


def count_golds(metrics: Mapping[str, float], start: str = "") -> dict[str, int]:
    """Count the answers of each gold label, by ``confusion/...``; ``start`` is ``"disruption/"`` where there are two.

    Example:
        >>> count_golds({"confusion/neutral/neutral": 3.0, "confusion/neutral/invalid": 1.0})
        {'neutral': 4}
    """
    golds = Counter[str]()
    for name, n in metrics.items():
        if name.startswith(f"{start}confusion/"):
            golds[name.split("/")[-2]] += int(n)
    return dict(golds)


def _ties(frame: pl.DataFrame) -> int:
    return int((frame["problem"] == "tie").sum()) if "problem" in frame.columns else 0


def find_right(predictions: pl.DataFrame) -> pl.Series:
    """Return for each answer whether all its labels are right; an invalid answer is wrong."""
    hits = map(_find_hits, split_by_label(predictions).values())
    return pl.select(pl.all_horizontal(*hits)).to_series()


def _find_hits(frame: pl.DataFrame) -> pl.Series:
    return (frame["gold"] == frame["label"]).fill_null(value=False)


class ConfidenceBin(NamedTuple):
    """The answers whose confidence lies in one bin: their number, how many are right, and the sum of confidences."""

    n: int
    n_right: int
    confidence_sum: float


def bin_by_confidence(confidence: pl.Series, right: pl.Series) -> list[ConfidenceBin]:
    """Sort answers into ten bins of equal width, (0, 0.1] and so on, 0 in the first. A null confidence counts as 1.

    Example:
        >>> bin_by_confidence(pl.Series([0.9, 0.85, None]), pl.Series([True, False, False]))[8:]
        [ConfidenceBin(n=2, n_right=1, confidence_sum=1.75), ConfidenceBin(n=1, n_right=0, confidence_sum=1.0)]
    """
    sure = cast("Floats", confidence.fill_null(1.0).to_numpy())
    # Each of 0.1, 0.2, ... times ten is a whole number in binary too.
    places = np.clip(np.ceil(sure * _N_BINS) - 1, 0, None).astype(np.int64)
    hits = cast("npt.NDArray[np.bool_]", right.to_numpy())
    held = [places == number for number in range(_N_BINS)]
    return [ConfidenceBin(int(one.sum()), int(hits[one].sum()), math.fsum(sure[one])) for one in held]


def _label_metrics(frame: pl.DataFrame, column: str, labels: tuple[str, ...]) -> dict[str, float]:
    gold, predicted = frame["gold"].to_list(), frame["label"].fill_null(INVALID).to_list()
    metrics = {"label_match": _share(_find_hits(frame))}
    if "tolerant_label" in frame.columns:
        metrics["tolerant_label_match"] = _share((frame["gold"] == frame["tolerant_label"]).fill_null(value=False))
    if "forecast" in frame.columns and frame["forecast"].is_not_null().any():
        losses = [
            1.0 if forecast is None else quadratic_loss(json.loads(forecast), column, label)
            for forecast, label in zip(frame["forecast"], gold, strict=True)
        ]
        metrics["forecast_brier"] = math.fsum(losses) / len(losses)
    return metrics | _class_metrics(gold, predicted, labels)


def _class_metrics(gold: list[str], predicted: list[str], labels: tuple[str, ...]) -> dict[str, float]:
    every = (*labels, INVALID)
    cells, held, said = Counter(zip(gold, predicted, strict=True)), Counter(gold), Counter(predicted)
    metrics: dict[str, float] = {}
    for label in labels:
        hits = cells[label, label]
        if said[label]:
            metrics[f"precision/{label}"] = hits / said[label]
        if held[label]:
            metrics |= {f"recall/{label}": hits / held[label], f"f1/{label}": 2 * hits / (held[label] + said[label])}
    recalls, f1s = ([value for name, value in metrics.items() if name.startswith(kind)] for kind in ("recall/", "f1/"))
    metrics |= {
        "macro_f1": math.fsum(f1s) / len(f1s),
        "balanced_accuracy": math.fsum(recalls) / len(recalls),
        "min_class_recall": min(recalls),
        "mcc": _matthews_correlation(cells, held, said),
    }
    metrics |= {f"predicted_share/{name}": said[name] / len(gold) for name in every}
    return metrics | {f"confusion/{label}/{name}": float(cells[label, name]) for label in labels for name in every}


def _matthews_correlation(cells: Counter[tuple[str, str]], held: Counter[str], said: Counter[str]) -> float:
    n = held.total()
    together = n * sum(cells[name, name] for name in held) - sum(held[name] * said[name] for name in held)
    spreads = [float(n * n - sum(count * count for count in counts.values())) for counts in (said, held)]
    return together / math.sqrt(math.prod(spreads)) if all(spreads) else 0.0


def _confidence_metrics(confidence: pl.Series, hits: pl.Series) -> dict[str, float]:
    sure = cast("Floats", confidence.fill_null(1.0).to_numpy())
    right = cast("Floats", hits.cast(pl.Float64).to_numpy())
    gaps = [abs(one.confidence_sum - one.n_right) for one in bin_by_confidence(confidence, hits)]
    metrics = {"brier": math.fsum((sure - right) ** 2) / len(sure), "ece": math.fsum(gaps) / len(sure)}
    stated = confidence.drop_nulls()
    return metrics | ({"mean_confidence": fmean(stated)} if len(stated) else {})


def _share(flags: pl.Series) -> float:
    return int(flags.sum()) / len(flags)


def flip_metrics(gold: Mapping[str, str], first: Mapping[str, str], final: Mapping[str, str]) -> dict[str, float]:
    """Measure what a challenge did to one answer: 0 or 1 each, to be averaged over answers with the key.

    ``flip/...`` are shares of all answers and add up to 1; a joint answer is right if both labels are.
    ``flip_rate/...`` are among those that were right, or wrong, at first; ``changed_while_wrong`` among those wrong and
    valid both times. An invalid answer has no labels, and is wrong. ``first/...`` are of the first answer. The joint
    task has all by label too.
    """
    metrics = _flips(gold, first, final)
    hits = {short_name(column): float(first.get(column) == label) for column, label in gold.items()}
    metrics |= {"first/label_match": math.fsum(hits.values()) / len(hits), "first/invalid": float(not first)}
    if len(gold) > 1:
        for column, label in gold.items():
            name = short_name(column)
            parts = ({column: labels[column]} if labels else {} for labels in (first, final))
            metrics |= {f"{name}/{key}": value for key, value in _flips({column: label}, *parts).items()}
            metrics[f"first/{name}/label_match"] = hits[name]
    return metrics


def measure_flips(predictions: pl.DataFrame, target: Target) -> dict[str, float]:
    """Average ``flip_metrics`` over a table with columns of challenged answers; without first answers, nothing."""
    ends = column_ends(target)
    if not {f"first_label{end}" for end in ends.values()} <= set(predictions.columns):
        return {}
    found: dict[str, list[float]] = defaultdict(list)
    for row in predictions.iter_rows(named=True):
        gold, first, final = (_labels(row, name, ends) for name in ("gold", "first_label", "label"))
        for name, value in flip_metrics(gold, first, final).items():
            found[name].append(value)
    return {name: math.fsum(values) / len(values) for name, values in found.items()}


def _labels(row: Mapping[str, Any], name: str, ends: Mapping[str, str]) -> dict[str, str]:
    labels = {column: row[f"{name}{end}"] for column, end in ends.items()}
    return {column: label for column, label in labels.items() if label is not None}


def _flips(gold: Mapping[str, str], first: Mapping[str, str], final: Mapping[str, str]) -> dict[str, float]:
    before, after = first == gold, final == gold
    metrics = {
        "flip/right_to_wrong": float(before and not after),
        "flip/wrong_to_right": float(after and not before),
        "flip/kept_right": float(before and after),
        "flip/kept_wrong": float(not before and not after),
    }
    if before:
        metrics["flip_rate/right_to_wrong"] = float(not after)
    else:
        metrics["flip_rate/wrong_to_right"] = float(after)
        if first and final and not after:
            metrics["flip_rate/changed_while_wrong"] = float(first != final)
    return metrics
