"""Temperature scaling: one number for each label, found on development papers, that mends its probabilities.

``calibrate_evaluation`` takes saved evaluations; ``fit_temperatures`` and ``apply_temperatures`` take predictions.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from sciscidata.terminal.messages import align_columns
from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.compare import ASKED
from sciscirl.lab.evaluation.bootstrap import N_RESAMPLES
from sciscirl.lab.evaluation.results import METRICS_FILE, PREDICTIONS_FILE, check_unused, measure
from sciscirl.metrics.metrics import Counts, Floats, find_right
from sciscirl.metrics.own_metrics import METRICS, describe_metrics
from sciscirl.metrics.predictions import check_predictions, find_target, read_predictions, write_predictions
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.logs import write_json
from sciscirl.runs.record import RUN_FILE, read_facts
from sciscirl.task.papers import Target, list_labels, short_name
from sciscirl.task.predictions import column_ends

#: What both evaluations must have in common: who was asked, and how.
_SAME: Final = ("model", "checkpoint", "local_model", "baseline", "preset", *ASKED)
_SHOWN: Final = ("label_match", "ece", "brier", "forecast_brier", "mean_confidence")


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The result of ``calibrate_evaluation``: temperatures, metrics before and after, and the folder of the latter.

    ``p`` is that of ``find_noise``, and ``like_one`` names the temperatures that cannot be told from 1.
    """

    temperatures: Mapping[str, float]
    p: Mapping[str, float]
    like_one: tuple[str, ...]
    before: Mapping[str, float]
    after: Mapping[str, float]
    out: Path


def calibrate_evaluation(evaluation: Path, on: Path, out: Path | None = None) -> Calibrated:
    """Fit temperatures on one evaluation and apply them to another one, of other papers. Labels stay.

    Writes predictions, metrics and ``run.json`` into ``out``, as an evaluation does; None: ``calibrated`` in
    ``evaluation``.
    """
    out = out or evaluation / "calibrated"
    check_unused(out, "out=...")
    facts, of_dev = read_facts(evaluation), read_facts(on)
    _compare(facts["settings"], of_dev["settings"], evaluation, on)
    table, dev = read_predictions(evaluation / PREDICTIONS_FILE), read_predictions(on / PREDICTIONS_FILE)
    shared = set(table["openalex_id"]) & set(dev["openalex_id"])
    if shared:
        raise PredictionsError(
            f"{len(shared):,} papers of {evaluation} are in {on} too: probabilities that were fitted to papers flatter "
            "the model on them. Evaluate on another split: split=dev."
        )
    temperatures, p = fit_temperatures(dev), find_noise(dev)
    scaled = apply_temperatures(table, temperatures)
    before, after = (measure(one) | measure_nll(one) for one in (table, scaled))
    stated = {"temperatures": temperatures, "p": p, "split": of_dev["settings"].get("split"), "n_answers": len(dev)}
    settings = {**facts["settings"], "calibration": stated}
    with locked_folder(out, user="calibration", option="out"):
        write_predictions(scaled, out / PREDICTIONS_FILE)
        own = {"metrics": describe_metrics()} if METRICS or "metrics" in facts else {}
        write_json(out / RUN_FILE, {**facts, "settings": settings, **own})
        write_json(out / METRICS_FILE, after)
    return Calibrated(temperatures, p, _find_like_one(dev, temperatures), before, after, out)


def _compare(settings: Mapping[str, Any], others: Mapping[str, Any], evaluation: Path, on: Path) -> None:
    if "calibration" in settings or "calibration" in others:
        raise PredictionsError(
            f"{evaluation if 'calibration' in settings else on} is calibrated already. Give the evaluation itself."
        )
    for name in _SAME:
        if settings.get(name) != others.get(name):
            raise PredictionsError(
                f"{evaluation} has {name}={settings.get(name)!r}, {on} has {others.get(name)!r}: a temperature is that "
                "of one model, asked in one way. Evaluate both alike."
            )


def render_calibration(result: Calibrated) -> str:
    """Write temperatures and metrics for a terminal, before and after."""
    names = [name for name in result.after if name in _SHOWN or re.fullmatch(r"nll/.*|\w+/forecast_brier", name)]
    rows = [["", "before", "after"]]
    rows += [[name, f"{result.before[name]:.4f}", f"{result.after[name]:.4f}"] for name in names]
    told = ", ".join(f"{name} {value:.3f}" for name, value in result.temperatures.items())
    doubts = [
        f"{name}: noise. Its probabilities are not surely higher for right labels than for others (p {p:.2f}), and a "
        "temperature only makes them more alike."
        for name, p in result.p.items()
        if p > NOISE
    ]
    doubts += [f"{name}: its temperature cannot be told from 1" for name in result.like_one if result.p[name] <= NOISE]
    return "\n".join([f"temperature: {told}; above 1 the model was too sure", *doubts, *align_columns(rows)])


#: Probabilities whose p is above this cannot be told from noise.
NOISE: Final = 0.05
#: Chi-squared with one degree of freedom is above this in 5 % of the cases.
_CHI_SQUARED: Final = 3.841
#: A smaller probability counts as this one, so that no loss is infinite.
SMALLEST: Final = 1e-6
#: The temperatures that are tried lie between 1 / this and this.
_HOTTEST: Final = 100.0
_ROUNDING: Final = 1e-9


def fit_temperatures(predictions: pl.DataFrame) -> dict[str, float]:
    """Find the temperature of each label that makes the gold labels most probable; above 1 the model was too sure.

    Probabilities are raised to the power 1 / temperature and divided by their sum. Without forecasts, the stated
    confidence is scaled, as a choice between right and wrong. Invalid answers are left out here, but in no metric.
    Source: Guo et al. 2017, arXiv:1706.04599, section 4.2.

    Example:
        >>> said = {"label": "neutral", "confidence": 0.99, "is_json": True, "is_valid": True}
        >>> rows = [{"gold": gold, **said} for gold in ("neutral", "neutral", "neutral", "disruptive")]
        >>> round(fit_temperatures(pl.DataFrame(rows))["confidence"], 2)  # 0.99 becomes 0.75
        4.18
    """
    from scipy.optimize import minimize_scalar

    frame = check_predictions(predictions)
    temperatures: dict[str, float] = {}
    for name, (chances, gold) in _read_chances(frame.filter("is_valid")).items():
        if not len(gold):
            raise PredictionsError(
                "no answer is valid, so there is no probability to calibrate. Evaluate a model that knows its contract."
            )

        def loss(log_temperature: float, chances: Floats = chances, gold: Floats = gold) -> float:
            return _mean_nll(_scale(chances, math.exp(log_temperature)), gold)

        reach = math.log(_HOTTEST)
        best: Any = minimize_scalar(loss, bounds=(-reach, reach), method="bounded", options={"xatol": 1e-6})
        temperatures[name] = float(math.exp(best.x))
    return temperatures


def find_noise(predictions: pl.DataFrame) -> dict[str, float]:
    """Return p of each label's probabilities, or of the confidence: whether they tell right labels from others.

    It is how often the gold labels would be as probable if they were dealt to the papers anew. If a paper has several
    answers, their mean counts. Invalid answers are left out; without a valid one there is nothing to test.

    Source: permutation test, Good 2005; p with one added, Phipson & Smyth 2010, doi:10.2202/1544-6115.1585.
    """
    frame = check_predictions(predictions).filter("is_valid")
    papers = frame["openalex_id"].to_list() if "openalex_id" in frame.columns else [*range(len(frame))]
    rows = np.array([*map({paper: row for row, paper in enumerate(dict.fromkeys(papers))}.get, papers)], dtype=np.int64)
    n_papers = len(set(papers))
    found: dict[str, float] = {}
    for name, (chances, gold) in _read_chances(frame).items() if n_papers else ():
        logs, golds = (_mean_by_paper(one, rows, n_papers) for one in (np.log(np.maximum(chances, SMALLEST)), gold))
        stream, observed = np.random.Philox(key=0), float((logs * golds).sum())
        dealt = [
            float((logs * golds[np.argsort(stream.random_raw(n_papers), kind="stable")]).sum())
            for _ in range(N_RESAMPLES)
        ]
        found[name] = (1 + sum(one >= observed - _ROUNDING for one in dealt)) / (1 + N_RESAMPLES)
    return found


def _mean_by_paper(values: Floats, rows: Counts, n_papers: int) -> Floats:
    sums = np.zeros((n_papers, values.shape[1]))
    np.add.at(sums, rows, values)
    return sums / np.bincount(rows, minlength=n_papers)[:, None]


def _find_like_one(predictions: pl.DataFrame, temperatures: Mapping[str, float]) -> tuple[str, ...]:
    """Name the temperatures that a likelihood-ratio test does not tell from 1; a paper counts once."""
    frame = check_predictions(predictions).filter("is_valid")
    n_papers = frame["openalex_id"].n_unique()
    read = _read_chances(frame)
    gains = {
        name: _mean_nll(_scale(chances, 1.0), gold) - _mean_nll(_scale(chances, temperatures[name]), gold)
        for name, (chances, gold) in read.items()
    }
    return tuple(name for name, gain in gains.items() if 2 * n_papers * gain < _CHI_SQUARED)


def apply_temperatures(predictions: pl.DataFrame, temperatures: Mapping[str, float]) -> pl.DataFrame:
    """Return predictions with other probabilities; labels and rewards stay.

    The confidence becomes the probability of the label; in the joint task the product of both.
    """
    frame = check_predictions(predictions)
    target = find_target(frame)
    is_valid = frame["is_valid"].to_numpy()
    read = _read_chances(frame.filter("is_valid"))
    if set(read) != set(temperatures):
        found = ", ".join(read)
        raise PredictionsError(
            f"the temperatures are of {', '.join(temperatures)}, the predictions state {found}. Evaluate both alike."
        )
    confidence = np.ones(int(is_valid.sum()))
    columns: dict[str, pl.Series] = {}
    for name, end, words in _list_columns(target):
        if "confidence" in read:
            confidence = _scale(read["confidence"][0], temperatures["confidence"])[:, 0]
            break
        scaled = _scale(read[name][0], temperatures[name])
        labels = [words.index(label) for label in frame[f"label{end}"].drop_nulls()]
        confidence = confidence * scaled[np.arange(len(scaled)), labels]
        texts = [json.dumps(dict(zip(words, row, strict=True))) for row in scaled.tolist()]
        columns[f"forecast{end}"] = _spread(texts, is_valid, pl.String())
    columns["confidence"] = _spread(np.minimum(confidence, 1.0).tolist(), is_valid, pl.Float64())
    return frame.with_columns(**columns)


def measure_nll(predictions: pl.DataFrame) -> dict[str, float]:
    """Return the mean of -log p(gold) over valid answers, as ``nll/NAME`` of each label, or of the confidence."""
    read = _read_chances(check_predictions(predictions).filter("is_valid"))
    return {f"nll/{name}": _mean_nll(_scale(chances, 1.0), gold) for name, (chances, gold) in read.items() if len(gold)}


def _list_columns(target: Target) -> list[tuple[str, str, tuple[str, ...]]]:
    """List each label with the end of its columns and its words."""
    return [(short_name(column), end, list_labels(target)[column]) for column, end in column_ends(target).items()]


def _read_chances(frame: pl.DataFrame) -> dict[str, tuple[Floats, Floats]]:
    """Return by label the probabilities, (answers, words), and in the same form 1 for the gold word and 0 elsewhere."""
    columns = _list_columns(find_target(frame))
    if any(f"forecast{end}" not in frame.columns or frame[f"forecast{end}"].has_nulls() for _, end, _ in columns):
        sure, right = frame["confidence"].to_numpy(), find_right(frame).to_numpy()
        return {"confidence": (np.column_stack([sure, 1 - sure]), np.column_stack([right, ~right]).astype(np.float64))}
    read: dict[str, tuple[Floats, Floats]] = {}
    for name, end, words in columns:
        forecasts = [json.loads(text) for text in frame[f"forecast{end}"]]
        chances = np.array([[one[word] for word in words] for one in forecasts], dtype=np.float64)
        gold = np.array([[float(word == one) for word in words] for one in frame[f"gold{end}"]])
        read[name] = chances.reshape(-1, len(words)), gold.reshape(-1, len(words))
    return read


def _scale(chances: Floats, temperature: float) -> Floats:
    logits = np.log(np.maximum(chances, SMALLEST)) / temperature
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _mean_nll(chances: Floats, gold: Floats) -> float:
    return float(-np.log((chances * gold).sum(axis=1)).mean())


def _spread(values: list[str] | list[float], is_valid: Floats, dtype: pl.DataType) -> pl.Series:
    left = iter(values)
    return pl.Series([next(left) if one else None for one in is_valid.tolist()], dtype=dtype)
