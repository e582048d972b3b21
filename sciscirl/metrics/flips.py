"""What a challenge did to answers: how often it made them right or wrong."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import polars as pl

from sciscirl.task.papers import Target, short_name
from sciscirl.task.predictions import column_ends


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
