"""What an evaluation comes to: its metrics, the files that it writes, and a table for a terminal."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from sciscidata.errors import StorageError
from sciscidata.release.manifest import describe_judged
from sciscidata.terminal.messages import align_columns, counted, printable
from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluation.bootstrap import bootstrap_intervals
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.metrics.collapse import explain_doubt
from sciscirl.metrics.metrics import COMPARED, FEWEST, count_golds, measure_predictions, relate_to_ceiling
from sciscirl.metrics.own_metrics import METRICS
from sciscirl.metrics.predictions import find_target, read_predictions, write_predictions
from sciscirl.runs.checkpoints import list_evaluations
from sciscirl.runs.folder import refuse_release
from sciscirl.runs.logs import write_json
from sciscirl.runs.record import RUN_FILE, describe_run, find_ceiling, find_eval_split, is_taught, read_facts
from sciscirl.task.papers import VOCABULARIES, short_name
from sciscirl.task.predictions import tie_metrics
from sciscirl.task.release import open_release

PREDICTIONS_FILE: Final = "predictions.parquet"
METRICS_FILE: Final = "metrics.json"
#: What errors call the folder of an evaluation.
OUT_OPTION: Final = "folder: EvaluationConfig.out"


def check_unused(folder: Path, option: str = OUT_OPTION) -> None:
    """Refuse to overwrite a result: answers cost money, and a run folder says what the run was."""
    refuse_release(folder, option)
    if any((folder / name).exists() for name in (RUN_FILE, PREDICTIONS_FILE, METRICS_FILE)):
        raise SciSciRLError(f"{folder} holds a run or an evaluation already. Choose another {option}.")


def measure(predictions: pl.DataFrame, ceiling: Mapping[str, float] | None = None) -> dict[str, float]:
    """Compute metrics with intervals and the way to the ceiling, and tie rates if a paper has several answers."""
    metrics = measure_predictions(predictions) | bootstrap_intervals(predictions)
    metrics |= relate_to_ceiling(metrics, ceiling, find_target(predictions))
    if not {"openalex_id", "reward"} <= set(predictions.columns):
        return metrics
    groups = predictions.group_by("openalex_id", maintain_order=True).agg("reward")["reward"].to_list()
    return metrics | (tie_metrics(groups) if len(groups) < len(predictions) else {})


def save_evaluation(
    predictions: pl.DataFrame, config: EvaluationConfig, settings: Mapping[str, Any]
) -> dict[str, float]:
    """Write predictions, metrics and settings into ``config.out``; return the metrics.

    Predictions may have cost money: if they cannot be written there, they are kept in a temporary folder.
    """
    facts = describe_run(config.release, settings)
    metrics = measure(predictions, facts["ceiling"])
    files = [config.out / name for name in (PREDICTIONS_FILE, RUN_FILE, METRICS_FILE)]
    new = [file for file in files if not file.exists()]
    try:
        write_predictions(predictions, files[0])
        write_json(files[1], facts)
        write_json(files[2], metrics)
    except StorageError as error:
        for file in new:  # so that the same command can be repeated
            file.unlink(missing_ok=True)
        try:
            rescued = Path(tempfile.mkdtemp(prefix="sciscirl-")) / PREDICTIONS_FILE
            write_predictions(predictions, rescued)
        except OSError:  # full too: the first error says what to mend
            raise error from None
        raise StorageError(
            f"{error} The answers are kept in {rescued}: sciscirl evaluate --from-predictions."
        ) from error
    return metrics


_OF_A_LABEL: Final = (
    "label_match", "ceiling/label_match", "way_to_ceiling/label_match",
    "macro_f1", "ceiling/macro_f1", "way_to_ceiling/macro_f1",
    "balanced_accuracy", "min_class_recall", "mcc", "forecast_brier", "recall/*",
)  # fmt: skip
#: The main metrics, in the order in which a table shows them; * stands for any label or flip.
_SHOWN: Final = (
    "n", *_OF_A_LABEL, "both_match",
    *(f"{short_name(column)}/{name}" for column in VOCABULARIES for name in _OF_A_LABEL),
    "parse_ok", "format_strict_ok", "invalid", "first/label_match", "flip/*", "flip_rate/*", "brier", "ece",
    *("reward", "reward_correctness", "reward_reasoning", "reward_adaptation"),
)  # fmt: skip


def render_metrics(results: Mapping[str, Mapping[str, float]]) -> str:
    """Draw the main metrics as a table for a terminal: one row for each metric, one column for each result."""
    names = [name for name in dict.fromkeys(chain(*results.values())) if not name.endswith(("/low", "/high"))]
    shown = [name for pattern in _SHOWN for name in names if fnmatchcase(name, pattern)]
    titles = dict(zip(shown, shown, strict=True))
    titles |= {name: one.title for name, one in METRICS.items() if name in names}
    rows = [[title, *(_cell(metrics, name) for metrics in results.values())] for name, title in titles.items()]
    return "\n".join(align_columns([["", *map(printable, results)], *rows]))


_GAVE_UP: Final = "flip_rate/right_to_wrong"


def render_results(results: Mapping[str, Mapping[str, float]], saw: Mapping[str, str] = MappingProxyType({})) -> str:
    """Write what a reader asks first, a row for each result: accuracy, the way to the ceiling, invalid answers.

    A table for each label. It says what a guess gets, and which rows surely differ from it. ``saw`` says what each
    baseline saw, by name.
    """
    starts = [f"{short_name(column)}/" for column in VOCABULARIES]
    of_two = [start for start in starts if any(f"{start}label_match" in one for one in results.values())]
    return "\n\n".join(_render_label(results, saw, start) for start in of_two or [""])


def _render_label(results: Mapping[str, Mapping[str, float]], saw: Mapping[str, str], start: str) -> str:
    match, way = f"{start}label_match", f"{start}way_to_ceiling/label_match"
    shown = {name: one for name, one in results.items() if match in one}
    first = next(iter(shown.values()))
    golds = {label: n for label, n in sorted(count_golds(first, start).items()) if n}
    guess, n = max(golds.values()) / sum(golds.values()), min(one["n"] for one in shown.values())
    classes = ", ".join(f"{count:,} {printable(label)}" for label, count in golds.items())
    top = first.get(f"{start}ceiling/label_match")
    best = "" if top is None else f"; the best possible model about {_percent(top, 100)} %"
    on = f"{start.rstrip('/')}, " * bool(start) + counted(round(n), "answer")
    lines = [f"{on} ({classes}). A guess, always the commonest, gets {_percent(guess, n)} % right{best}.", ""]
    columns: dict[str, Callable[[Mapping[str, float]], str]] = {
        "accuracy, %": partial(_percents, name=match),
        "of the way, %": partial(_percents, name=way),
        "invalid, %": partial(_percents, name="invalid", ends=False),
        "right answers given up, %": partial(_percents, name=_GAVE_UP),
        **{own.title: partial(_cell, name=name) for name, own in METRICS.items()},
    }
    written = {title: [write(one) for one in shown.values()] for title, write in columns.items()}
    written = {title: cells for title, cells in written.items() if {*cells} != {"-"}}
    if any(saw.values()):
        written["knew"] = [saw.get(name, "") for name in shown]
    lines += align_columns([["", *written], *zip(map(printable, shown), *written.values(), strict=True)])
    goes = "" if top is None else " The way goes from a guess (0 %) to the best possible model (100 %)."
    lines += ["", f"Brackets hold 95 % intervals.{goes}"]
    if n < FEWEST:
        return "\n".join([*lines, f"{n:,.0f} answers are too few to tell."])
    ends = {name: (one.get(f"{match}/low", 0), one.get(f"{match}/high", 1)) for name, one in shown.items()}
    sides = {
        "surely better than a guess": [name for name, (low, _) in ends.items() if low > guess],
        "surely worse": [name for name, (_, high) in ends.items() if high < guess],
    }
    told = [f"{side}: {', '.join(map(printable, names))}" for side, names in sides.items() if names]
    return "\n".join([*lines, f"With {on}, {'; '.join(told) or 'no row differs surely from a guess'}."])


def _percent(value: float, n: float) -> str:
    """Write a share in per cent, with the digits that so many answers allow."""
    return f"{100 * value:z.{0 if n < 1_000 else 1}f}"


def _percents(metrics: Mapping[str, float], name: str, *, ends: bool = True) -> str:
    if name not in metrics:
        return "-"
    shown = [_percent(metrics[one], metrics["n"]) for one in (name, f"{name}/low", f"{name}/high") if one in metrics]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]" if ends and len(shown) == 3 else shown[0]


def say_judged(release_folder: str | Path) -> str:
    """Say how many papers of a release are judged works: cited in a window that is over; "" if it is not known."""
    return describe_judged(open_release(release_folder).manifest) or ""


def _cell(metrics: Mapping[str, float], name: str, digits: int = 4) -> str:
    if name not in metrics:
        return "-"
    if name == "n":
        return f"{metrics[name]:,.0f}"
    ends = [metrics[end] for end in (f"{name}/low", f"{name}/high") if end in metrics]
    shown = [f"{value:z.{digits}f}" for value in (metrics[name], *ends)]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]" if ends else shown[0]


def render_end(run: Path) -> str:
    """Write the last evaluation of a training run in one line, and what is doubtful about it."""
    facts, evaluations = read_facts(run), list_evaluations(run, find_eval_split(run))
    if not evaluations:
        return "not evaluated"
    step, path = evaluations.popitem()
    metrics = measure(read_predictions(path), find_ceiling(path))
    # Below 0 the model is worse than a guess, and not on its way.
    related = [name for name in metrics if name.endswith("ceiling/macro_f1") and metrics[name] > 0]
    said = ", ".join(f"{name} {_cell(metrics, name, 3)}" for name in (*COMPARED, *related, "invalid", *METRICS))
    doubt = explain_doubt(metrics, str(facts["settings"].get("contract", "")), is_taught=is_taught(facts))
    line = f"step {step:,}, {metrics['n']:,.0f} answers: {said}"
    return f"{line}; {doubt.rstrip('.')}" if doubt else line
