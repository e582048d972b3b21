"""The final evaluation of a run: its selected checkpoint and its last one, judged by the test split once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sciscidata.storage.sums import read_json
from sciscirl.errors import RunFolderError
from sciscirl.lab.analysis.select_checkpoint import SelectionConfig, select_checkpoint
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.runs.checkpoints import list_weights
from sciscirl.runs.logs import METRICS_FILE
from sciscirl.runs.record import RUN_FILE, describe_run, find_eval_split

#: Folders of final evaluations within that of their run: of the selected checkpoint, and the last one.
FINALS: Final = ("final", "last")
_log = logging.getLogger(__name__)


async def judge_finally(
    runs: Sequence[Path],
    release: Path,
    *,
    metric: str = "macro_f1",
    base_url: str | None = None,
    has_last: bool = True,
) -> list[Path]:
    """Select a checkpoint of each run by its own evaluations, and judge it by the test split, once, into ``final``.

    The last checkpoint, if it is another one, is judged into ``last``, if ``has_last``. What has a result is not judged
    again. Runs that were judged by test all along are passed over: test has chosen their checkpoint.
    """
    chosen_by_others: list[Path] = []
    for run in runs:
        if (run / METRICS_FILE).exists():
            if find_eval_split(run) != "test":
                chosen_by_others.append(run)
            else:
                _log.warning("%s was judged by test all along: there is no final evaluation of it.", run)
    if not chosen_by_others:
        raise RunFolderError(
            f"{', '.join(map(str, runs))}: no training run was judged by dev or held-out papers, so test has no "
            "checkpoint to judge that it did not choose. Leave --final out, or train with eval_split=dev."
        )
    planned = [plan for run in chosen_by_others for plan in _plan(run, release, metric, base_url)[: 1 + has_last]]
    for config, stated in planned:
        if not (config.out / RUN_FILE).is_file():
            await evaluate_model(config, stated)
    return [config.out for config, _ in planned]


def _plan(
    run: Path, release: Path, metric: str, base_url: str | None
) -> list[tuple[EvaluationConfig, dict[str, object]]]:
    """Return the final evaluations of a run, and what each states about how its checkpoint was selected."""
    selection = select_checkpoint(run, SelectionConfig(metric=metric))
    if read_json(run / RUN_FILE)["release"] != describe_run(release, {})["release"]:
        raise RunFolderError(
            f"{run} was trained on another release than {release}, and may know papers of its test. Give its own."
        )
    chosen = selection.chosen.step
    selected = {"step": chosen, "metric": metric, "split": find_eval_split(run)}
    last = next(reversed(list_weights(run)), None)
    steps = [chosen] if last is None or last == chosen else [chosen, last]
    common: dict[str, Any] = {"release": release, "split": "test", "run": run, "base_url": base_url}
    return [
        (EvaluationConfig(out=run / name, step=step, **common), {"selected": selected} if step == chosen else {})
        for name, step in zip(FINALS, steps, strict=False)
    ]
