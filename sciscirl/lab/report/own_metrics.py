"""Metrics of your own in comparisons and reports: those that are computed here, and those that only records hold."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec

from sciscidata.storage.sums import read_json
from sciscirl.lab.analysis.compare import Comparison
from sciscirl.lab.evaluation.results import METRICS_FILE, PREDICTIONS_FILE
from sciscirl.lab.report.layout import ABSENT, Section, Table, show_estimate, show_metric, show_title
from sciscirl.metrics.own_metrics import METRICS
from sciscirl.runs import logs
from sciscirl.runs.checkpoints import read_judgement

_warn_once = cache(logging.getLogger(__name__).warning)
_REMEDY = "To compute it here, give the file that registers it: --plugin FILE.py."


class _Function(msgspec.Struct):
    name: str
    sha256: str


class StatedMetric(msgspec.Struct):
    """What ``run.json`` says of a metric."""

    name: str
    bounds: tuple[float, float]
    higher_is_better: bool
    function: _Function


def list_missing(facts: Mapping[str, Any]) -> list[str]:
    """List the metrics of a record that are not registered here; one that is another function now is warned of."""
    missing: list[str] = []
    for one in msgspec.convert(facts.get("metrics", []), list[StatedMetric]):
        here = METRICS.get(one.name)
        if here is None:
            missing.append(one.name)
        elif here.sha256 != one.function.sha256:
            _warn_once(
                f"metric {one.name!r} was another function when it was recorded (SHA-256 {one.function.sha256[:12]}, "
                f"now {here.sha256[:12]}). It is computed anew."
            )
    return missing


def find_kept(missing: Sequence[str], judged: Mapping[str, Any]) -> dict[str, float]:
    """Return what a record keeps of metrics, with the ends of intervals."""
    names = [f"{name}{end}" for name in missing for end in ("", "/low", "/high")]
    return {name: judged[name] for name in names if isinstance(judged.get(name), int | float)}


def read_judged(file: Path, folder: Path) -> Mapping[str, Any]:
    """Read what the folder of a predictions file keeps of its metrics; {} if nothing."""
    step = file.stem.rpartition("_")[2]
    if file.name != PREDICTIONS_FILE and step.isdecimal():
        rows = [row for row in logs.read_rows(folder / logs.METRICS_FILE) if row.get("step") == int(step)]
        return read_judgement(rows[-1]) if rows else {}
    try:
        kept: Any = read_json(folder / METRICS_FILE)
    except (OSError, ValueError):
        kept = None
    return cast("dict[str, Any]", kept if isinstance(kept, dict) else {})


def warn_of_missing(kept: Mapping[str, Mapping[str, float | None]]) -> None:
    """Say which metrics are not registered here, and what the records keep of them, by model."""
    for name in dict.fromkeys(metric for one in kept.values() for metric in one if "/" not in metric):
        said = "; ".join(f"{model} {show_metric(one, name)}" for model, one in kept.items() if name in one)
        _warn_once(f"metric {name!r} is not registered here, so it is not compared. Kept: {said}. {_REMEDY}")


def list_shown(comparison: Comparison) -> list[str]:
    """List the metrics of one's own that a comparison has."""
    return [name for name in METRICS if any(name in scores for scores in comparison.scores.values())]


def make_table(comparison: Comparison, on: str) -> list[Table]:
    """Make the table of these metrics of every model and baseline, if there is one."""
    shown = list_shown(comparison)
    rows = [
        [model, *(show_estimate(scores[name]) if name in scores else ABSENT for name in shown)]
        for model, scores in comparison.scores.items()
    ]
    return [Table(f"Metrics of your own, {on}", ["", *map(show_title, shown)], rows)] if shown else []


def view_kept(runs: Mapping[str, tuple[Mapping[str, Any], Mapping[str, float]]]) -> Section | None:
    """Show metrics that are not registered here as the runs keep them; ``runs`` has facts and metrics of each."""
    kept = {name: metrics for name, (facts, metrics) in runs.items() if list_missing(facts)}
    stated = {one["name"]: one for name in kept for one in runs[name][0]["metrics"] if one["name"] not in METRICS}
    if not stated:
        return None
    head = ["", *(name if one["higher_is_better"] else f"{name} (less is better)" for name, one in stated.items())]
    rows = [[model, *(show_metric(metrics, name) for name in stated)] for model, metrics in kept.items()]
    text = f"As the runs kept them: their functions are not registered here, so nothing is compared by them. {_REMEDY}"
    return Section("own-metrics", "Metrics that are not registered here", text, [Table("As kept", head, rows)])
