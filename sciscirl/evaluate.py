"""Evaluate a model, a checkpoint, baselines, or predictions made earlier, on one side of a slice."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sciscirl.errors import SciSciRLError
from sciscirl.folder_lock import locked_folder, refuse_slice
from sciscirl.measuring import METRICS_FILE, PREDICTIONS_FILE, measure, save_evaluation
from sciscirl.predictions import read_predictions
from sciscirl.run_folder import RUN_FILE, describe_run
from sciscirl.subject import EvaluationConfig, Subject, find_subject
from sciscirl.task import TARGETS, Paper, read_split
from sciscirl.task_rules import TaskRules

if TYPE_CHECKING:
    from sciscirl.evaluator import DisruptionEvaluator

_OPTION: Final = "folder for the result: --out"
_log = logging.getLogger(__name__)


async def evaluate_model(config: EvaluationConfig) -> dict[str, float]:
    """Ask a model about every paper of a side.

    Writes ``predictions.parquet`` (PREDICTIONS), ``metrics.json`` and ``run.json`` into ``config.out``.

    Returns:
        What ``compute_metrics`` and ``bootstrap_intervals`` compute.

    Raises:
        SliceError: if the slice is missing or was altered.
        PromptError: if a paper does not fit under the cap even without its abstract.
        SciSciRLError: if the server is down, refuses the key, or does not offer the model or checkpoint; a local model
            is not to be had; or ``config.out`` cannot be written, is in use, or holds another result.
    """
    from sciscirl.adversarial import make_opponents
    from sciscirl.chat_format import choose_renderer, make_renderer
    from sciscirl.dataset import check_fit
    from sciscirl.evaluator import DisruptionEvaluator
    from sciscirl.server import check_opponents, check_server

    _check_unused(config.out)
    subject = find_subject(config)
    _compare_slices(subject, config.release)
    preset, base = subject.preset, subject.preset.model
    if subject.local_model is not None:
        from sciscirl.local_model import find_base_model

        base = find_base_model(subject.local_model)
    else:
        check_server(base, config.base_url, needs_training=False)
    papers = _read(config, preset.rules)
    check_opponents(preset.adversarial, config.base_url)
    renderer_name = subject.renderer_name or choose_renderer(base)
    renderer = make_renderer(base, renderer_name)
    check_fit(papers, preset.rules, renderer)
    evaluator = DisruptionEvaluator(
        papers,
        fit_rules(preset.rules, config.release, subject.n_train),
        renderer,
        max_tokens=preset.max_tokens,
        temperature=subject.temperature,
        group_size=config.group_size,
        name=config.side,
        opponents=None
        if preset.adversarial is None
        else make_opponents(preset.adversarial, base, renderer_name, config.base_url),
    )
    asked = {"model": base, "checkpoint": subject.checkpoint, "renderer": renderer_name, "side": config.side}
    asked |= {"local_model": str(subject.local_model)} if subject.local_model is not None else {}
    sampled = {"max_tokens": preset.max_tokens, "temperature": subject.temperature, "group_size": config.group_size}
    told = {"preset": preset.name, "trained_on": subject.trained_on}
    # Held before anything is asked: answers that are paid for have a place to go, and no two evaluations the same one.
    with _held(config.out):
        _check_unused(config.out)  # once more: another evaluation may have ended meanwhile
        if subject.local_model is not None:
            await _ask_here(evaluator, subject.local_model)
        else:
            await _ask_server(evaluator, subject, config.base_url)
        if evaluator.predictions is None:
            msg = "an evaluation that returned has predictions"
            raise AssertionError(msg)
        return save_evaluation(evaluator.predictions, config, asked | sampled | told)


def _held(folder: Path) -> AbstractContextManager[None]:
    return locked_folder(folder, user="evaluation", option=_OPTION)


def _check_unused(folder: Path) -> None:
    """Answers cost money, and a run's folder says what it was: neither is written over."""
    refuse_slice(folder, _OPTION)
    if any((folder / name).exists() for name in (RUN_FILE, PREDICTIONS_FILE, METRICS_FILE)):
        msg = f"{folder} holds a run or an evaluation already. Choose another {_OPTION}."
        raise SciSciRLError(msg)


def _compare_slices(subject: Subject, release: Path) -> None:
    here = describe_run(release, {})["release"]["manifest_sha256"]
    if subject.trained_on not in {None, here}:
        _log.warning(
            "the run was trained on another slice than %s. Where sides were drawn otherwise, papers that it was "
            "trained on may be among those that it is judged by.",
            release,
        )


def _read(config: EvaluationConfig, rules: TaskRules) -> list[Paper]:
    return read_split(config.release, config.side, needs=TARGETS[rules.target])[: config.n_papers]


def fit_rules(rules: TaskRules, release: Path, n_train: int | None = None) -> TaskRules:
    """Return the rules with the class counts of a slice's training side, if the reward is weighted by them."""
    if not rules.table.is_balanced:
        return rules
    return rules.fitted(read_split(release, "train", needs=TARGETS[rules.target])[:n_train])


async def _ask_here(evaluator: DisruptionEvaluator, folder: Path) -> None:
    from sciscirl.local_completer import LocalCompleter
    from sciscirl.local_model import load_local_model

    tokenizer = evaluator.renderer.tokenizer
    model = load_local_model(folder)
    await evaluator.eval_token_completer(
        LocalCompleter(model, tokenizer, max_tokens=evaluator.max_tokens, temperature=evaluator.temperature)
    )


async def _ask_server(evaluator: DisruptionEvaluator, subject: Subject, base_url: str | None) -> None:
    from sciscirl.server import open_sampling

    async with open_sampling(subject.preset.model, subject.checkpoint, base_url) as client:
        await evaluator(client)


def evaluate_baselines(config: EvaluationConfig, *, seed: int = 0) -> dict[str, dict[str, float]]:
    """Let the cheap baselines judge the same papers; each gets a folder below ``config.out``.

    Returns:
        Metrics by name of the baseline.

    Raises:
        SliceError: if the slice is missing or was altered.
        SciSciRLError: if there is nothing to learn from, or the side is the one that baselines learn from.
    """
    from sciscirl.baselines import BASELINES, run_baseline

    if config.side == "train":
        msg = "baselines learn from the training side, so that judging them by it says nothing. Choose --side test."
        raise SciSciRLError(msg)
    rules = find_subject(config).preset.rules
    train, asked = read_split(config.release, "train", needs=TARGETS[rules.target]), _read(config, rules)
    # All of them before any is written: where one cannot learn, nothing is left half done.
    predictions = {name: run_baseline(name, train, asked, seed=seed, rules=rules) for name in BASELINES}
    with _held(config.out):
        return {
            name: save_evaluation(
                judged,
                replace(config, out=config.out / name),
                {"baseline": name, "side": config.side, "seed": seed},
            )
            for name, judged in predictions.items()
        }


def evaluate_predictions(path: Path) -> dict[str, float]:
    """Recompute metrics and intervals from a predictions file: no slice, no server.

    Raises:
        PredictionsError: if there is no such file, or it holds no table of predictions.
    """
    return measure(read_predictions(path))
