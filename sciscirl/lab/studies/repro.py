"""Ask the same prompts under other batch sizes, number formats and threads: how far do answers repeat?

Each run is an evaluation; RUNS lists what is changed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from sciscidata.errors import SciSciDataError
from sciscidata.terminal.messages import align_columns, printable
from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.evaluation.results import OUT_OPTION, PREDICTIONS_FILE
from sciscirl.lab.sweep_folder import begin_sweep, write_table
from sciscirl.metrics.predictions import read_predictions
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.record import RUN_FILE, describe_run
from sciscirl.task.predictions import INVALID

#: The options of EvaluationConfig that each run changes.
RUNS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "repeat": {},
        "one-prompt-at-a-time": {"batch_size": 1},
        "eight-prompts-at-a-time": {"batch_size": 8},
        "one-thread": {"n_threads": 1},
        "two-threads": {"n_threads": 2},
        **{name: {"dtype": name} for name in ("float32", "bfloat16", "float16")},
    }
)
_REFERENCE: Final = "reference"
_log = logging.getLogger(__name__)

#: What a sweep reports: the columns of ``compare_answers``, or why a run could not be made.
TABLE: Final = pl.Schema(
    {
        "run": pl.String(),
        "n": pl.Int64(),
        "identical_share": pl.Float64(),
        "first_divergence_median": pl.Float64(),
        "label_flip_share": pl.Float64(),
        "logprob_difference_max": pl.Float64(),
        "reason": pl.String(),
    }
)


async def run_repro(
    config: EvaluationConfig, against: Sequence[Path] = (), runs: Mapping[str, Mapping[str, Any]] = RUNS
) -> pl.DataFrame:
    """Evaluate a model as ``config`` says, and again with the changes of each run; compare the answers (TABLE).

    A sweep that was stopped goes on. A run that cannot be made here is a row with the reason. ``against`` are
    evaluations of the same papers made elsewhere.
    """
    options: dict[str, Any] = json.loads(json.dumps(asdict(config) | {"settings": dict(runs)}, default=str))
    stated = {name: value for name, value in options.items() if name not in {"release", "out", "base_url"}}
    facts = describe_run(config.release, stated)
    with locked_folder(config.out, user="sweep", option=OUT_OPTION):
        begin_sweep(config.out, facts)
        first = await _ask(config, _REFERENCE, {})
        rows = [
            {"run": str(one), **compare_answers(read_predictions(one / PREDICTIONS_FILE), first)} for one in against
        ]
        for name, changes in runs.items():
            try:
                rows.append({"run": name, **compare_answers(await _ask(config, name, changes), first)})
            except (SciSciDataError, RuntimeError, NotImplementedError) as error:
                _log.warning("%s could not be run: %s", name, error)
                rows.append({"run": name, "reason": " ".join(str(error).split())[:300]})
        table = pl.DataFrame(rows, schema=TABLE)
        write_table(config.out, "sweep", table)
    return table


async def _ask(config: EvaluationConfig, name: str, changes: Mapping[str, Any]) -> pl.DataFrame:
    out = config.out / name
    if not (out / RUN_FILE).is_file():
        await evaluate_model(replace(config, out=out, **changes))
    return read_predictions(out / PREDICTIONS_FILE)


def compare_answers(answers: pl.DataFrame, reference: pl.DataFrame) -> dict[str, Any]:
    """Compare the answers of two evaluations of the same papers.

    ``first_divergence_median`` is the place of the first other letter, from 0. ``label_flip_share``: an invalid answer
    counts as one more label. ``logprob_difference_max`` is for answers=logprobs.
    """
    if not answers["openalex_id"].equals(reference["openalex_id"]):
        raise SciSciRLError("the two evaluations are of other papers. Evaluate both in one split of one release.")
    texts = [*zip(answers["text"].fill_null(""), reference["text"].fill_null(""), strict=True)]
    places = [_first_other(left, right) for left, right in texts if left != right]
    labels = [name for name in reference.columns if name.startswith("label")]
    flipped = [answers[name].fill_null(INVALID) != reference[name].fill_null(INVALID) for name in labels]
    facts = {
        "n": len(texts),
        "identical_share": 1 - len(places) / len(texts),
        "first_divergence_median": pl.Series(places, dtype=pl.Float64()).median(),
        "label_flip_share": sum(map(any, zip(*flipped, strict=True))) / len(texts),
    }
    try:
        scores = [(json.loads(left), json.loads(right)) for left, right in texts]
        gaps = [abs(left[name] - right[name]) for left, right in scores for name in right]
        return facts | {"logprob_difference_max": max(gaps)}
    except (ValueError, TypeError, LookupError):  # answers, not scores
        return facts


def _first_other(left: str, right: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def render_repro(table: pl.DataFrame) -> str:
    """Write the table for a terminal, and why runs are missing."""
    shown = [name for name in TABLE if name != "reason"]
    rows = [[printable(_show(row[name])) for name in shown] for row in table.iter_rows(named=True)]
    missing = [f"{row['run']}: {row['reason']}" for row in table.iter_rows(named=True) if row["reason"] is not None]
    return "\n".join([*align_columns([shown, *rows]), *map(printable, missing)])


def _show(value: str | float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
