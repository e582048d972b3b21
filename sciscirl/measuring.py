"""What an evaluation comes to: metrics with their intervals, its files, and a table for a terminal."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from sciscidata.errors import StorageError
from sciscidata.terminal import printable
from sciscirl.intervals import bootstrap_intervals
from sciscirl.metrics import compute_metrics, tie_metrics
from sciscirl.predictions import write_predictions
from sciscirl.run_folder import RUN_FILE, describe_run, write_json
from sciscirl.subject import EvaluationConfig
from sciscirl.task import VOCABULARIES, short_name

PREDICTIONS_FILE: Final = "predictions.parquet"
METRICS_FILE: Final = "metrics.json"
_OF_A_LABEL: Final = ("label_match", "macro_f1", "balanced_accuracy", "min_class_recall", "mcc", "forecast_brier")
_SHOWN: Final = (
    *_OF_A_LABEL,
    *(f"recall/{label}" for labels in VOCABULARIES.values() for label in labels),
    "both_match",
    *(
        f"{short_name(column)}/{name}"
        for column, labels in VOCABULARIES.items()
        for name in (*_OF_A_LABEL, *(f"recall/{label}" for label in labels))
    ),
    "parse_ok",
    "format_strict_ok",
    "invalid",
    "first/label_match",
    *(f"flip/{flip}" for flip in ("right_to_wrong", "wrong_to_right", "kept_right", "kept_wrong")),
    *(f"flip_rate/{flip}" for flip in ("right_to_wrong", "wrong_to_right", "changed_while_wrong")),
    "brier",
    "ece",
    "reward",
    *(f"reward_{part}" for part in ("correctness", "reasoning", "adaptation")),
)


def measure(predictions: pl.DataFrame) -> dict[str, float]:
    """Compute the metrics and their intervals, and how far rewards tie where a paper has more than one answer.

    Example:
        >>> said = {"gold": "neutral", "label": "neutral", "confidence": 0.9, "is_json": True, "is_valid": True}
        >>> rows = [{"openalex_id": "W1", **said, "reward": 0.75}, {"openalex_id": "W1", **said, "reward": 0.75}]
        >>> measure(pl.DataFrame(rows))["reward_uniform_group_rate"]
        1.0
    """
    metrics = compute_metrics(predictions) | bootstrap_intervals(predictions)
    if not {"openalex_id", "reward"} <= set(predictions.columns):
        return metrics
    groups = predictions.group_by("openalex_id", maintain_order=True).agg("reward")["reward"].to_list()
    return metrics | (tie_metrics(groups) if len(groups) < len(predictions) else {})


def save_evaluation(
    predictions: pl.DataFrame, config: EvaluationConfig, settings: Mapping[str, Any]
) -> dict[str, float]:
    """Write predictions, metrics and what they are of; return the metrics.

    Raises:
        StorageError: if they cannot be written. Predictions, which may have been paid for, then lie where it says, in
            the system's folder for temporary files, unless that is full too.
    """
    metrics = measure(predictions)
    try:
        write_predictions(predictions, config.out / PREDICTIONS_FILE)
    except StorageError as error:
        try:
            rescued = Path(tempfile.mkdtemp(prefix="sciscirl-")) / PREDICTIONS_FILE
            write_predictions(predictions, rescued)
        except OSError:  # full too: what is to be mended is where they were to go
            raise error from None
        msg = f"{error} The answers are kept in {rescued}: evaluate.py --from-predictions."
        raise StorageError(msg) from error
    write_json(config.out / RUN_FILE, describe_run(config.release, settings))
    write_json(config.out / METRICS_FILE, metrics)
    return metrics


def render_metrics(results: Mapping[str, Mapping[str, float]]) -> str:
    """Draw the main metrics as a table for a terminal: one row for each, one column for each result.

    Example:
        >>> print(render_metrics({"majority": {"label_match": 1 / 3, "label_match/low": 0.3, "label_match/high": 0.4}}))
                     majority
        label_match  0.3333 [0.3000, 0.4000]
    """
    rows = [["", *map(printable, results)]]
    for name in _SHOWN:
        if any(name in metrics for metrics in results.values()):
            rows.append([name, *(_cell(metrics, name) for metrics in results.values())])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _cell(metrics: Mapping[str, float], name: str) -> str:
    if name not in metrics:
        return "-"
    if f"{name}/low" not in metrics:
        return f"{metrics[name]:.4f}"
    return f"{metrics[name]:.4f} [{metrics[f'{name}/low']:.4f}, {metrics[f'{name}/high']:.4f}]"
