"""The final evaluation of a run: its selected checkpoint, judged by the test split once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sciscirl.errors import RunFolderError
from sciscirl.evaluation.evaluate import EvaluationConfig, evaluate_model
from sciscirl.evaluation.select_checkpoint import Criterion, SelectionConfig, select_checkpoint
from sciscirl.runs.folder import RUN_FILE, describe_run, find_eval_split
from sciscidata.storage.small_files import read_json

#: The folder of the final evaluation within that of its run.
FINAL: Final = "final"


async def judge_finally(
    run: Path, release: Path, *, metric: Criterion = "macro_f1", base_url: str | None = None
) -> Path:
    """Select a checkpoint of a run by its own evaluations, and judge it by the test split, once.

    The result lies in ``final`` in the folder of the run. A run that has one is not judged again.

    Args:
        run: its folder.
        release: the folder of the release that it was trained on.
        metric: of the selection (``select_checkpoint``).
        base_url: a Tinker server; None: TINKER_BASE_URL, else Tinker.

    Returns:
        The folder of the result.

    Raises:
        RunFolderError: the folder holds no training run, or one of another release, or its own evaluations were on the
            test split, so that test has chosen the checkpoint.
        SciSciRLError: as ``select_checkpoint`` and ``evaluate_model``.
    """
    folder = run / FINAL
    if (folder / RUN_FILE).is_file():
        return folder
    selection = select_checkpoint(run, SelectionConfig(metric=metric))
    chosen_on = find_eval_split(run)
    if chosen_on == "test":
        msg = (
            f"{run} was judged by test all along, so no papers are left that did not choose the checkpoint. Leave out "
            "--final, or train with eval_split=dev."
        )
        raise RunFolderError(msg)
    if read_json(run / RUN_FILE)["release"] != describe_run(release, {})["release"]:
        msg = f"{run} was trained on another release than {release}, which may have its papers in test. Give its own."
        raise RunFolderError(msg)
    chosen = selection.chosen
    config = EvaluationConfig(release=release, out=folder, split="test", run=run, step=chosen.step, base_url=base_url)
    selected = {"step": chosen.step, "metric": metric, "rule": selection.config.rule, "split": chosen_on}
    await evaluate_model(config, {"selected": selected})
    return folder
