"""Evaluate a model, a checkpoint, or saved predictions in one split of a release; baselines are in ``lab/analysis``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sciscidata.storage import hash_file
from sciscirl.envs.model_folder import find_base_model
from sciscirl.lab.evaluation.config import LOCAL_OPTIONS, EvaluationConfig, check_answers, refuse_options
from sciscirl.lab.evaluation.results import OUT_OPTION, check_unused, measure, save_evaluation
from sciscirl.lab.evaluation.subject import Subject, find_subject, fit_rules, read_asked
from sciscirl.metrics.predictions import read_predictions
from sciscirl.presets import describe_rules
from sciscirl.runs.checkpoints import note_test_look
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.lineage import warn_of_other_release
from sciscirl.runs.record import find_ceiling
from sciscirl.task.release import Part, open_release

if TYPE_CHECKING:
    from sciscirl.lab.evaluator import LabelEvaluator
    from sciscirl.lab.label_scoring import LabelScoring


async def evaluate_model(
    config: EvaluationConfig, stated: Mapping[str, object] = MappingProxyType({})
) -> dict[str, float]:
    """Ask a model about every paper of a split.

    Writes ``predictions.parquet`` (PREDICTIONS), ``metrics.json`` and ``run.json`` into ``config.out``; ``stated`` is
    recorded there too. A run that is judged by test has that noted in its folder. The record says how often it was.

    Returns:
        The metrics of ``measure_predictions`` and the intervals of ``bootstrap_intervals``.

    Raises:
        ReleaseError: the release is missing or was altered.
        PromptError: a paper does not fit under the cap even without its abstract.
        SciSciRLError: the server is down, refuses the key, or does not offer the model or checkpoint. Or a local model
            cannot be loaded, or ``config.out`` cannot be written, is in use, or holds another result.
    """
    from sciscirl.envs.dataset import check_fit
    from sciscirl.envs.tokenizer import make_renderer
    from sciscirl.lab.adversarial.env import challenge_by
    from sciscirl.lab.evaluator import AnswerSampling, LabelEvaluator
    from sciscirl.runs.chat_format import choose_renderer, warn_of_renderer
    from sciscirl.runs.server_checks import check_server

    check_unused(config.out)
    subject = find_subject(config)
    if config.chat_url is not None:
        from sciscirl.lab.evaluation.chat_server import evaluate_on_chat_server

        return await evaluate_on_chat_server(config, subject, stated)
    warn_of_other_release(subject.trained_on, config.release, config.run)
    preset, base = subject.preset, subject.preset.model
    if subject.local_model is not None:
        base = find_base_model(subject.local_model)
    else:
        refuse_options(config, LOCAL_OPTIONS, "the model is on a server, which decides")
        check_server(base, config.base_url, needs_training=False)
    split = config.split or subject.eval_split
    papers = read_asked(config, subject)
    renderer_name = subject.renderer_name or choose_renderer(base)
    warn_of_renderer(base, config.renderer)
    renderer = make_renderer(base, renderer_name)
    check_fit(papers, preset.rules, renderer)
    scoring = _find_scoring(config, subject)
    check_fit(scoring.prior_papers if scoring else (), preset.rules, renderer)
    rules = fit_rules(preset.rules, config.release)
    sampling = AnswerSampling.of(preset)
    evaluator = LabelEvaluator(
        papers,
        rules,
        renderer,
        sampling,
        name=split,
        challenge=challenge_by(preset.adversarial, rules.target),
        scoring=scoring,
        is_taught=bool((subject.weights or {}).get("is_taught")),
    )
    settings: dict[str, Any] = {
        "model": base,
        "checkpoint": subject.checkpoint,
        "renderer": renderer_name,
        **({"local_model": str(subject.local_model)} if subject.local_model is not None else {}),
        **({} if scoring else sampling._asdict()),
        "preset": preset.name,
        "trained_on": subject.trained_on,
        **describe_rules(preset.rules),
        "answers": "logprobs" if scoring else "sampled",
        "split": split,
        "n_papers": config.n_papers,
        **({"ids_sha256": hash_file(Path(config.ids))} if config.ids is not None else {}),
        **stated,
        **({"weights": subject.weights} if subject.weights else {}),
    }
    # Lock it before anything is asked: paid answers have a place, and no two evaluations share one.
    with locked_folder(config.out, user="evaluation", option=OUT_OPTION):
        check_unused(config.out)  # once more: another evaluation may have ended meanwhile
        if subject.local_model is not None:
            settings |= await _ask_local_model(evaluator, subject.local_model, config)
        else:
            await _ask_server(evaluator, subject, config.base_url)
        if evaluator.predictions is None:
            raise AssertionError("an evaluation that returned has predictions")
        if evaluator.prior:
            settings |= {"prior_correction": config.prior_correction, "prior": evaluator.prior}
        if config.run is not None and split == "test":
            looked = {"out": str(config.out), "step": config.step, "n_papers": len(papers)}
            settings["n_test_looks"] = note_test_look(config.run, **looked)
        return save_evaluation(evaluator.predictions, config, settings)


def evaluate_predictions(path: Path) -> dict[str, float]:
    """Recompute metrics and intervals from a predictions file: no release, no server."""
    return measure(read_predictions(path), find_ceiling(path))


def _find_scoring(config: EvaluationConfig, subject: Subject) -> LabelScoring | None:
    """Say how labels are scored; None: answers are sampled."""
    answers = config.answers or subject.answers
    check_answers(config, answers)
    if answers == "sampled":
        return None
    train = Part(config.release, "train", subject.n_held_out, n_papers=config.n_prior)
    from sciscirl.lab.label_scoring import make_scoring

    drawn = open_release(config.release).manifest.get("split", {}).get("labels", ())
    return make_scoring(
        subject.preset, config.prior_correction, partial(train.read, subject.preset.rules.target), drawn
    )


async def _ask_server(evaluator: LabelEvaluator, subject: Subject, base_url: str | None) -> None:
    from sciscirl.runs.server_checks import open_sampling

    async with open_sampling(subject.preset.model, subject.checkpoint, base_url) as client:
        await evaluator(client)


async def _ask_local_model(evaluator: LabelEvaluator, folder: Path, config: EvaluationConfig) -> dict[str, Any]:
    """Ask a model in this process. Return what decides its answers to the last bit."""
    import torch

    from sciscirl.lab.models.local_completer import LocalCompleter
    from sciscirl.lab.models.local_model import count_threads, load_local_model

    before = torch.get_num_threads()
    torch.set_num_threads(config.n_threads or count_threads())
    try:
        model = load_local_model(folder, dtype=config.dtype)
        completer = LocalCompleter.of_evaluator(evaluator, model, seed=config.seed, batch_size=config.batch_size or 32)
        await evaluator.eval_token_completer(completer)
        return {
            "batch_size": completer.batch_size,
            "dtype": str(model.dtype).removeprefix("torch."),
            "device": str(model.device),
            "n_threads": torch.get_num_threads(),
            "seed": config.seed,
        }
    finally:
        torch.set_num_threads(before)
