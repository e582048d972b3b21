"""What is written down of answers: their rows of predictions, and what can be told of one answer or one group."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np
import polars as pl

from sciscirl.task.contracts import Answer
from sciscirl.task.papers import VOCABULARIES, OwnTarget, Target, list_labels, name_gold, short_name
from sciscirl.task.rewards import RewardParts

#: The prediction of an answer that is not valid; it is never right.
INVALID: Final = "invalid"
#: One row per answer to a task with one label. An evaluation writes it, and the metrics read it.
PREDICTIONS: Final = pl.Schema(
    {
        "openalex_id": pl.String(),
        "gold": pl.String(),
        "label": pl.String(),  # null unless is_valid
        "forecast": pl.String(),  # JSON, label names to probabilities; null unless is_valid under probabilities
        "confidence": pl.Float64(),  # null unless is_valid
        "is_json": pl.Boolean(),
        "is_valid": pl.Boolean(),
        "has_think": pl.Boolean(),
        "problem": pl.String(),
        "tolerant_label": pl.String(),
        "tolerant_confidence": pl.Float64(),
        "reward": pl.Float64(),
        "reward_parse": pl.Float64(),
        "reward_contract": pl.Float64(),
        "reward_task": pl.Float64(),
        "reward_think": pl.Float64(),
        "text": pl.String(),
    }
)
#: Columns that the joint task has once for each label; ``confidence`` then is that both are right.
PER_LABEL: Final = ("gold", "label", "forecast", "tolerant_label", "reward_task")
#: The column that says which own label was asked for; the predictions of other tasks have none.
TASK: Final = "task"
_OF_ANSWER: Final = ("confidence", "is_json", "is_valid", "has_think", "problem", "tolerant_confidence")


def column_ends(target: Target) -> dict[str, str]:
    """Return what the names of a label's columns end with, by label column: nothing if the task has one label."""
    columns = list_labels(target)
    return {column: f"_{short_name(column)}" if len(columns) > 1 else "" for column in columns}


def prediction_schema(target: Target) -> pl.Schema:
    """Return the columns of the predictions of a task: PREDICTIONS, in the joint task those of a label twice.

    That of an own label has ``task``, its name and classes as JSON, so that a file can be measured without its release.
    """
    schema: dict[str, Any] = {}
    for column, dtype in PREDICTIONS.items():
        if column not in PER_LABEL or column == "reward_task":
            schema[column] = dtype
        if column in PER_LABEL:
            schema |= {f"{column}{end}": dtype for end in column_ends(target).values()}
    return pl.Schema(schema | ({TASK: pl.String()} if isinstance(target, OwnTarget) else {}))


def make_prediction(
    openalex_id: str, gold: str | Mapping[str, str], answer: Answer, reward: RewardParts, text: str
) -> dict[str, str | float | bool | None]:
    """Make the row of one answer (``prediction_schema``); ``gold`` is the label, or one for each label column."""
    parts = {("reward" if name == "total" else f"reward_{name}"): value for name, value in reward.named().items()}
    row: dict[str, Any] = {"openalex_id": openalex_id, "text": text, **parts}
    row |= {name: getattr(answer, name) for name in _OF_ANSWER}
    if isinstance(answer.target, OwnTarget):
        row[TASK] = answer.target.to_json()
    golds, words = name_gold(gold, answer.target), {**list_labels(answer.target), **VOCABULARIES}
    for column, end in column_ends(answer.target).items():
        # A label that was not asked for has no chance.
        forecast = {name: answer.forecast.get(name, 0.0) for name in words[column]} if answer.forecast else None
        row[f"gold{end}"], row[f"label{end}"] = golds[column], answer.labels.get(column)
        row[f"forecast{end}"] = json.dumps(forecast) if forecast else None
        row[f"tolerant_label{end}"] = answer.tolerant_labels.get(column)
        if end:
            row[f"reward_task{end}"] = reward.tasks.get(column, 0.0)
    return {name: row[name] for name in prediction_schema(answer.target)}


#: Metrics whose mean over both labels also has the plain name in the joint task; ``min_class_recall`` has the least.
AVERAGED: Final = (
    "label_match", "tolerant_label_match", "macro_f1", "balanced_accuracy", "mcc", "forecast_brier"
)  # fmt: skip
#: The square of a group's mean reward. Its mean over groups tells how much groups differ.
GROUP_SQUARE: Final = "reward_group_mean_square"


def merge_labels(by_label: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the metrics of several labels, numbers or arrays: each after the name of its label, and those for both."""
    merged = {f"{label}/{name}": value for label, part in by_label.items() for name, value in part.items()}
    for name in (*AVERAGED, "min_class_recall"):
        values = [part[name] for part in by_label.values() if name in part]
        if len(values) == len(by_label):
            merge = np.min if name == "min_class_recall" else np.mean
            merged[name] = merge(values, axis=0) if isinstance(values[0], np.ndarray) else float(merge(values))
    return merged


def tie_metrics(rewards_by_group: Iterable[Sequence[float]]) -> dict[str, float]:
    """Measure how often rewards tie within a group, the answers to one prompt; a tie leaves nothing to learn from."""
    groups = [list(group) for group in rewards_by_group if len(group) > 1]
    if not groups:
        return {}
    counts = [(len(set(group)), len(group)) for group in groups]
    pairs = [left == right for group in groups for left, right in combinations(group, 2)]
    return {
        "reward_tie_group_rate": sum(distinct < n for distinct, n in counts) / len(groups),
        "reward_uniform_group_rate": sum(distinct == 1 for distinct, _ in counts) / len(groups),
        "reward_tie_pair_rate": sum(pairs) / len(pairs),
        "reward_unique_fraction_mean": math.fsum(distinct / n for distinct, n in counts) / len(groups),
    }
