"""Calibrate an evaluation by another one of the same model on development papers, from their saved probabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from sciscidata.terminal.messages import align_columns
from sciscirl.errors import PredictionsError
from sciscirl.evaluation.evaluate import METRICS_FILE, PREDICTIONS_FILE, check_unused, measure
from sciscirl.lab.analysis.calibration import apply_temperatures, fit_temperatures, measure_nll
from sciscirl.lab.analysis.compare import ASKED
from sciscirl.metrics.predictions import read_predictions, write_predictions
from sciscirl.runs.folder import RUN_FILE, locked_folder, write_json
from sciscirl.runs.lineage import read_facts

#: What both evaluations must have in common: who was asked, and how.
_SAME: Final = ("model", "checkpoint", "local_model", "baseline", "preset", *ASKED)
_SHOWN: Final = ("label_match", "ece", "brier", "forecast_brier", "mean_confidence")


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The result of ``calibrate_evaluation``: temperatures, metrics before and after, and the folder of the latter."""

    temperatures: Mapping[str, float]
    before: Mapping[str, float]
    after: Mapping[str, float]
    out: Path


def calibrate_evaluation(evaluation: Path, on: Path, out: Path | None = None) -> Calibrated:
    """Fit temperatures on one evaluation and apply them to another one (``calibration.py``).

    Writes predictions, metrics and ``run.json`` into ``out``, as an evaluation does; None: the folder ``calibrated``
    in ``evaluation``. Labels stay, so every metric of them does.

    Raises:
        PredictionsError: a folder holds no evaluation; the two share papers, or are of other models or ways of asking.
        SciSciRLError: ``out`` holds a result already.
    """
    out = out or evaluation / "calibrated"
    check_unused(out, "out=...")
    facts, of_dev = read_facts(evaluation), read_facts(on)
    _compare(facts["settings"], of_dev["settings"], evaluation, on)
    table, dev = read_predictions(evaluation / PREDICTIONS_FILE), read_predictions(on / PREDICTIONS_FILE)
    shared = set(table["openalex_id"]) & set(dev["openalex_id"])
    if shared:
        msg = (
            f"{len(shared):,} papers of {evaluation} are in {on} too: probabilities that were fitted to papers flatter "
            "the model on them. Evaluate on another split: split=dev."
        )
        raise PredictionsError(msg)
    temperatures = fit_temperatures(dev)
    scaled = apply_temperatures(table, temperatures)
    before, after = (measure(one) | _name_nll(one) for one in (table, scaled))
    stated = {"temperatures": temperatures, "split": of_dev["settings"].get("split"), "n_answers": len(dev)}
    settings = {**facts["settings"], "calibration": stated}
    with locked_folder(out, user="calibration", option="out"):
        write_predictions(scaled, out / PREDICTIONS_FILE)
        write_json(out / RUN_FILE, {**facts, "settings": settings})
        write_json(out / METRICS_FILE, after)
    return Calibrated(temperatures, before, after, out)


def _compare(settings: Mapping[str, Any], others: Mapping[str, Any], evaluation: Path, on: Path) -> None:
    if "calibration" in settings or "calibration" in others:
        msg = f"{evaluation if 'calibration' in settings else on} is calibrated already. Give the evaluation itself."
        raise PredictionsError(msg)
    for name in _SAME:
        if settings.get(name) != others.get(name):
            msg = (
                f"{evaluation} has {name}={settings.get(name)!r}, {on} has {others.get(name)!r}: a temperature is that "
                "of one model, asked in one way. Evaluate both alike."
            )
            raise PredictionsError(msg)


def _name_nll(predictions: pl.DataFrame) -> dict[str, float]:
    return {f"nll/{name}": value for name, value in measure_nll(predictions).items()}


def render_calibration(result: Calibrated) -> str:
    """Write temperatures and metrics for a terminal, before and after."""
    names = [name for name in result.after if name in _SHOWN or re.fullmatch(r"nll/.*|\w+/forecast_brier", name)]
    rows = [["", "before", "after"]]
    rows += [[name, f"{result.before[name]:.4f}", f"{result.after[name]:.4f}"] for name in names]
    told = ", ".join(f"{name} {value:.3f}" for name, value in result.temperatures.items())
    return "\n".join([f"temperature: {told}; above 1 the model was too sure", *align_columns(rows)])
