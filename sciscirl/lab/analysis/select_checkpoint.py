"""Choose a checkpoint of a run from its evaluations, by differences that are larger than chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from sciscidata.options.checks import check_fields
from sciscidata.options.did_you_mean import suggest
from sciscidata.terminal.messages import align_columns, printable
from sciscidata.terminal.shares import percent
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.lab.evaluation.bootstrap import Resampled, find_intervals, percentile_interval, resample_metrics
from sciscirl.metrics.collapse import find_signs
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.own_metrics import METRICS
from sciscirl.metrics.predictions import read_predictions
from sciscirl.runs.checkpoints import list_evaluations, list_weights
from sciscirl.runs.record import RUN_FILE, find_eval_split

#: By what a checkpoint can be chosen, beside metrics of one's own.
CRITERIA: Final = ("macro_f1", "min_class_recall", "balanced_accuracy", "label_match")
_LEVEL: Final = 0.95  # of the intervals


@dataclass(frozen=True, kw_only=True)
class SelectionConfig(Resampled):
    """By what a checkpoint is chosen.

    Attributes:
        metric: the metric that decides: macro_f1, min_class_recall, balanced_accuracy, label_match, or one of your own,
            whose direction counts.
        name: of the evaluations, as in the names of their files: dev, held_out or test; None: those of the run.
        n_resamples: of the bootstrap.
    """

    metric: str = "macro_f1"
    name: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        if self.metric not in (*CRITERIA, *METRICS):
            known = (*CRITERIA, *METRICS)
            raise SciSciRLError(
                f"SelectionConfig.metric is {self.metric!r}, needs one of {', '.join(known)}."
                f"{suggest(self.metric, known)} For one of your own, give its file too: plugin=FILE.py."
            )


_UNKNOWN: Final = (math.nan, math.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One evaluation of a run. Intervals are from low to high, NaN where the resamples give none."""

    step: int  # before which it was made; 0 is what the run began with
    checkpoint: str | None  # weights of that step, on a server or in a folder; None if not kept, and for step 0
    score: float  # the metric
    low: float
    high: float
    behind: float  # the best that can be chosen; negative for a better one without a checkpoint
    behind_se: float  # standard error of that difference
    behind_low: float
    behind_high: float
    signs: tuple[str, ...]  # of collapse, by the default thresholds


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen evaluation, the best one, and all of them by step."""

    chosen: Candidate
    best: Candidate
    candidates: tuple[Candidate, ...]
    config: SelectionConfig


def select_checkpoint(folder: Path, config: SelectionConfig = SelectionConfig()) -> Selection:
    """Choose the earliest evaluated checkpoint that is behind the best by at most one standard error of the difference.

    Differences are paired: the same resamples of papers for both. These papers flatter it: report its metrics on
    others. Source: Breiman et al. 1984, Classification and Regression Trees, section 3.4.3.
    """
    if not (folder / RUN_FILE).is_file():
        raise RunFolderError(
            f"{folder} is not the folder of a run: it has no {RUN_FILE}. Give the log_path of a training run."
        )
    if (folder / "predictions.parquet").is_file():
        raise RunFolderError(f"{folder} is an evaluation, and has no checkpoints to choose from. Give a training run.")
    tables = _read_evaluations(folder, config.name or find_eval_split(folder))
    kept = list_weights(folder)
    eligible = [step == 0 or step in kept for step in tables]
    if not any(eligible):
        raise RunFolderError(
            f"{folder} was evaluated before steps {', '.join(map(str, tables))}, and weights were kept at "
            f"{', '.join(map(str, kept)) or 'none'}. Choose eval_every a multiple of save_every."
        )
    metrics = [measure_predictions(table) for table in tables.values()]
    if lacking := [step for step, one in zip(tables, metrics, strict=True) if config.metric not in one]:
        raise SciSciRLError(
            f"{config.metric} is undefined at step {', '.join(map(str, lacking))} of {folder}. Choose another metric."
        )
    scores = np.array([one[config.metric] for one in metrics])
    drawn = resample_metrics(list(tables.values()), n_resamples=config.n_resamples)[config.metric]
    sign = 1 if config.metric not in METRICS or METRICS[config.metric].higher_is_better else -1
    best = int(np.argmax(np.where(eligible, sign * scores, -np.inf)))
    behind = sign * (drawn[best] - drawn)
    ends_behind = [percentile_interval(row, _LEVEL) or _UNKNOWN for row in behind]
    ends = [
        find_intervals(table, {config.metric: drawn[row]}, _LEVEL).get(config.metric, _UNKNOWN)
        for row, table in enumerate(tables.values())
    ]
    candidates = tuple(
        Candidate(
            step=step,
            checkpoint=kept.get(step) if step else None,
            score=float(scores[row]),
            low=ends[row][0],
            high=ends[row][1],
            behind=float(sign * (scores[best] - scores[row])),
            behind_se=float(np.nan_to_num(np.nanstd(behind[row]))),
            behind_low=ends_behind[row][0],
            behind_high=ends_behind[row][1],
            signs=find_signs(metrics[row]),
        )
        for row, step in enumerate(tables)
    )
    chosen = next(one for one, can in zip(candidates, eligible, strict=True) if can and one.behind <= one.behind_se)
    return Selection(chosen, candidates[best], candidates, config)


def _read_evaluations(folder: Path, name: str) -> dict[int, pl.DataFrame]:
    files = list_evaluations(folder, name)
    if not files:
        raise RunFolderError(
            f"{folder} has no evaluation {name!r} (predictions/{name}_000050.parquet). Wait, or give another name."
        )
    return {step: read_predictions(path) for step, path in files.items()}


def render_selection(selection: Selection) -> str:
    """Draw the choice as a table for a terminal, one line for each evaluation; ``>`` marks the chosen one."""
    config, chosen, best = selection.config, selection.chosen, selection.best
    level = percent(_LEVEL)
    rows = [
        ["", "step", config.metric, f"{level} interval", "behind the best", f"{level} interval", "weights", "signs"]
    ]
    for one in selection.candidates:
        weights = "kept" if one.checkpoint else "as begun" if one.step == 0 else "not kept"
        behind = ("best", "") if one is best else (
            f"{one.behind:.4f} ± {one.behind_se:.4f}", f"[{one.behind_low:.4f}, {one.behind_high:.4f}]"
        )  # fmt: skip
        rows.append(
            [
                ">" if one is chosen else "",
                str(one.step),
                f"{one.score:.4f}",
                "" if math.isnan(one.low) else f"[{one.low:.4f}, {one.high:.4f}]",
                *behind,
                weights,
                f"collapse: {', '.join(one.signs)}" if one.signs else "",
            ]
        )
    is_only = len(selection.candidates) == 1
    why = "one evaluation: nothing to choose from" if is_only else "training gained nothing that these papers can tell"
    lines = [
        *align_columns(rows),
        f"chosen: step {chosen.step}, the earliest whose {config.metric} is behind the best by at most one standard "
        f"error of that difference; ± is a standard error, from {config.n_resamples:,} paired resamples of the papers.",
        "These papers chose it, so they flatter it: report it on others (sciscirl report --final).",
        f"checkpoint: {printable(chosen.checkpoint or '') or f'what the run began with: {why}'}",
    ]
    return "\n".join(lines)
