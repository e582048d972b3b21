"""Put a training run together: its batches, who judges it, how answers are sampled.

All parts meet here and nowhere else. The core knows them as ``Parts``.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import chz
from tinker_cookbook.rl import train
from tinker_cookbook.rl.rollout_presets import default_rollout_strategy_for_model
from tinker_cookbook.rl.rollout_strategy import RolloutStrategy

import sciscirl.lab.training.rl as rl
from sciscirl.envs.dataset import LabelDatasetBuilder, check_fit
from sciscirl.errors import with_own_names
from sciscirl.lab.adversarial.env import challenge_by
from sciscirl.lab.evaluator import AnswerSampling, LabelEvaluator
from sciscirl.lab.label_scoring import LabelScoring
from sciscirl.lab.objectives.dataset import BegunRun, RunDatasetBuilder
from sciscirl.lab.objectives.dynamic_sampling import DynamicSampling
from sciscirl.metrics.collapse import CollapseAlarm
from sciscirl.options import Run, RunOptions, SftOptions, TrainOptions, resolve_run
from sciscirl.presets import PUBLISHED
from sciscirl.runs.chat_format import choose_renderer
from sciscirl.task.experiment import Preset
from sciscirl.task.release import EvalSplit, PaperChoice, open_release, settle_choice


async def train_preset(options: TrainOptions) -> Path:
    """Train, with evaluations on the way and one after the last step.

    With ``collapse="stop"``, the run ends when evaluations or training answers show a collapsed model. Its last
    checkpoint stays the last that was saved, and ``metrics.jsonl`` says ``collapse_stop``.

    The folder holds ``run.json`` (settings, commit, the release's SHA-256, versions), ``config.json`` (the cookbook's),
    ``metrics.jsonl`` and ``checkpoints.jsonl``. It also has a folder for each step with every rollout, and in
    ``predictions`` a Parquet file for each evaluation.

    Returns:
        That folder.

    Raises:
        ReleaseError: the release is missing or was altered.
        SciSciRLError: an option is impossible, or the folder is in use or holds another run. Or the server is down,
            refuses the key or does not offer the model.
        CollapseError: the model has collapsed and ``collapse="stop"``; the folder is complete.
        StorageError: the disk failed. The run can be resumed.
    """
    run = resolve_run(options)
    return await rl.train_on_server(run, compose(run))


def make_config(options: TrainOptions | Run[TrainOptions]) -> train.Config:
    """Build the configuration of the cookbook's loop, ``tinker_cookbook.rl.train.main``, for options of a run.

    ``train_preset`` runs that loop too, and keeps the record, the lock and the alarms of a run. Reads the training
    split, asks no server.

    Raises:
        ReleaseError: the release is missing or was altered.
        SciSciRLError: an option is impossible or has no effect.
    """
    run = options if isinstance(options, Run) else resolve_run(options)
    return rl.make_config(run, compose(run))


def make_builder(name: str, release: str, model: str, **options: Any) -> LabelDatasetBuilder:  # noqa: ANN401 (checked)
    """Return the builder with which ``sciscirl train`` trains a preset, for a loop of your own.

    It has no held-out batches, because ``train_preset`` brings its evaluator: ``chz.replace(..., has_test=True)``.

    Args:
        name: the preset.
        release: the folder of the release.
        model: the base model, by name or folder.
        options: others of TrainOptions, by our names or the cookbook's. Papers are shown as often as ``max_steps``
            takes.

    Raises:
        ReleaseError: the release is missing or was altered.
        SciSciRLError: no preset has that name, or an option is impossible or has no effect.
    """
    options = with_own_names(options)
    return make_run_builder(resolve_run(TrainOptions(preset=name, release=release, model=model, **options)))


def compose(run: Run[TrainOptions]) -> rl.Parts:
    """Return the parts of a run of reinforcement learning."""
    rl.check_preset(run.preset)
    builder = make_run_builder(run)

    def begin(step: int) -> LabelDatasetBuilder:
        return chz.replace(
            builder, begun=BegunRun(folder=str(run.folder), first_step=step, action=run.options.collapse)
        )

    return rl.Parts(builder, begin, partial(make_evaluator, run, builder), _make_strategy(run.preset))


def _make_strategy(preset: Preset) -> RolloutStrategy | None:
    """Return how a group is sampled, where the preset asks for more than the cookbook's way."""
    sampling = preset.sampling
    if sampling.top_p == 1 and not sampling.dynamic_sampling:
        return None
    return DynamicSampling(default_rollout_strategy_for_model(preset.model), sampling.top_p)


def make_run_builder(run: Run[TrainOptions]) -> RunDatasetBuilder:
    """Return the builder of the training batches."""
    options, preset = run.options, run.preset
    is_published = preset.name in PUBLISHED and preset.rules.target == "disruption"
    return RunDatasetBuilder(
        **name_fields(run, "test" if is_published else "held_out"),
        group_size=preset.sampling.group_size,
        eval_group_size=preset.judging.eval_group_size,
        min_steps=options.max_steps or 0,
        n_spares=preset.sampling.dynamic_sampling,
        adversarial=preset.adversarial,
    )


def name_fields(run: Run[RunOptions], without_dev: EvalSplit = "held_out") -> dict[str, Any]:
    """Return the fields of the builder of a run, for both ways to train; ``without_dev``: what judges it then."""
    options, preset = run.options, run.preset
    chosen = PaperChoice(**{one.name: getattr(options, one.name) for one in fields(PaperChoice)})
    return {
        "release": options.release,
        "model_name": preset.model,
        "renderer_name": options.renderer or choose_renderer(preset.model),
        "task": preset.rules,
        "order": preset.order,
        "choice": settle_choice(chosen, options.release, without_dev),
        "has_test": False,  # our own evaluator judges the same papers, by more measures
    }


def make_evaluator(
    run: Run[RunOptions], builder: LabelDatasetBuilder, alarm: CollapseAlarm | None = None
) -> LabelEvaluator:
    """Make the evaluator of a run (PromptError if a paper does not fit)."""
    options, preset = run.options, run.preset
    is_gold = isinstance(options, SftOptions)
    papers, rules, renderer = builder.eval_papers(), builder.rules(), builder.renderer()
    check_fit(papers, rules, renderer)
    return LabelEvaluator(
        papers,
        rules,
        renderer,
        AnswerSampling.of(preset),
        name=builder.eval_split,
        folder=run.folder / "predictions",
        alarm=alarm,
        challenge=challenge_by(preset.adversarial, rules.target),
        scoring=LabelScoring() if is_gold and options.loss_on == "label" else None,
        ceiling=open_release(builder.release).manifest.get("ceiling"),
        is_taught=is_gold or (run.begun_from or {}).get("kind") == "sft",
    )
