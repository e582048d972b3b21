"""Temperature scaling: one number for each label, found on development papers, that mends its probabilities."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from sciscirl.errors import PredictionsError
from sciscirl.metrics.metrics import Floats, find_right
from sciscirl.metrics.predictions import check_predictions, column_ends, find_target
from sciscirl.task.papers import Target, list_labels, short_name

#: A smaller probability counts as this one, so that no loss is infinite.
SMALLEST: Final = 1e-6
#: The temperatures that are tried lie between 1 / this and this.
_HOTTEST: Final = 100.0


def fit_temperatures(predictions: pl.DataFrame) -> dict[str, float]:
    """Find the temperature of each label that makes the gold labels most probable.

    Probabilities are raised to the power 1 / temperature and divided by their sum. Above 1 the model was too sure,
    below 1 not sure enough. Where answers have no forecast, the stated confidence is scaled instead, as a choice
    between being right and being wrong. Its name is ``confidence``. Answers that are not valid have no probabilities,
    and are left out here, but in no metric.

    Returns:
        Temperatures by the name of the label.

    Raises:
        PredictionsError: there are no predictions, or no valid answer.

    Source: Guo et al. 2017, arXiv:1706.04599, section 4.2; the minimum is found by ``scipy.optimize.minimize_scalar``.

    Example:
        >>> said = {"label": "neutral", "confidence": 0.99, "is_json": True, "is_valid": True}
        >>> rows = [{"gold": gold, **said} for gold in ("neutral", "neutral", "neutral", "disruptive")]
        >>> round(fit_temperatures(pl.DataFrame(rows))["confidence"], 2)  # 0.99 becomes 0.75
        4.18
    """
    from scipy.optimize import minimize_scalar

    frame = check_predictions(predictions)
    found: dict[str, float] = {}
    for name, (chances, gold) in _read_chances(frame.filter("is_valid")).items():
        if not len(gold):
            msg = (
                "no answer is valid, so there is no probability to calibrate. Evaluate a model that knows its contract."
            )
            raise PredictionsError(msg)

        def loss(log_temperature: float, chances: Floats = chances, gold: Floats = gold) -> float:
            return _mean_nll(_scale(chances, math.exp(log_temperature)), gold)

        reach = math.log(_HOTTEST)
        best: Any = minimize_scalar(loss, bounds=(-reach, reach), method="bounded", options={"xatol": 1e-6})
        found[name] = float(math.exp(best.x))
    return found


def apply_temperatures(predictions: pl.DataFrame, temperatures: Mapping[str, float]) -> pl.DataFrame:
    """Return predictions with other probabilities; labels and rewards stay.

    The confidence becomes the probability of the label; in the joint task the product of both. PredictionsError if the
    temperatures are of other labels, or of a confidence instead.
    """
    frame = check_predictions(predictions)
    target = find_target(frame)
    is_valid = frame["is_valid"].to_numpy()
    read = _read_chances(frame.filter("is_valid"))
    if set(read) != set(temperatures):
        found = ", ".join(read)
        msg = f"the temperatures are of {', '.join(temperatures)}, the predictions state {found}. Evaluate both alike."
        raise PredictionsError(msg)
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
    """Return the mean of -log p(gold) over valid answers, by the name of the label, or of the confidence."""
    read = _read_chances(check_predictions(predictions).filter("is_valid"))
    return {name: _mean_nll(_scale(chances, 1.0), gold) for name, (chances, gold) in read.items() if len(gold)}


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
    given = iter(values)
    return pl.Series([next(given) if one else None for one in is_valid.tolist()], dtype=dtype)
