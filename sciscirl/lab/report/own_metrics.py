"""Metrics of your own in comparisons and reports: those that are computed here, and those that only records hold."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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

_log = logging.getLogger(__name__)
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
            _log.warning(
                "metric %r was another function when it was recorded (SHA-256 %s, now %s). It is computed anew.",
                *(one.name, one.function.sha256[:12], here.sha256[:12]),
            )
    return missing


def find_kept(missing: Sequence[str], judged: Mapping[str, Any]) -> dict[str, float]:
    """Return what a record keeps of metrics, with the ends of intervals."""
    names = [f"{name}{end}" for name in missing for end in ("", "/low", "/high")]
    return {name: judged[name] for name in names if isinstance(judged.get(name), int | float)}


def read_judged(file: Path, folder: Path) -> Mapping[str, Any]:
    """Read what the folder of a predictions file keeps of its metrics; {} if nothing."""
    if file.name != PREDICTIONS_FILE:
        step = file.stem.rpartition("_")[2]
        rows = [row for row in logs.read_rows(folder / logs.METRICS_FILE) if f"{row.get('step')}" == step.lstrip("0")]
        return read_judgement(rows[-1]) if rows else {}
    try:
        return cast("dict[str, Any]", read_json(folder / METRICS_FILE))
    except (OSError, ValueError):
        return {}


def warn_of_missing(kept: Mapping[str, Mapping[str, float]]) -> None:
    """Say which metrics are not registered here, and what the records keep of them, by model."""
    for name in dict.fromkeys(metric for one in kept.values() for metric in one if "/" not in metric):
        said = "; ".join(f"{model} {show_metric(one, name)}" for model, one in kept.items() if name in one)
        _log.warning("metric %r is not registered here, so it is not compared. Kept: %s. %s", name, said, _REMEDY)


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
    missing = {name: find_kept(list_missing(facts), metrics) for name, (facts, metrics) in runs.items()}
    names = [*dict.fromkeys(metric for kept in missing.values() for metric in kept if "/" not in metric)]
    if not names:
        return None
    less = {
        one["name"] for facts, _ in runs.values() for one in facts.get("metrics", []) if not one["higher_is_better"]
    }
    head = ["", *(f"{name} (less is better)" if name in less else name for name in names)]
    rows = [[model, *(show_metric(kept, name) for name in names)] for model, kept in missing.items() if kept]
    text = f"As the runs kept them: their functions are not registered here, so nothing is compared by them. {_REMEDY}"
    return Section("own-metrics", "Metrics that are not registered here", text, [Table("As kept", head, rows)])
