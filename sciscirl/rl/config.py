"""Options of a training run, and the cookbook's config that follows from them."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import chz
from tinker_cookbook.rl import train
from tinker_cookbook.rl.rollout_limits import TerminationRewardPolicy
from tinker_cookbook.rl.rollout_presets import default_rollout_strategy_for_model

from sciscirl.envs.adversarial import AdversarialDatasetBuilder
from sciscirl.envs.dataset import DynamicSampling, LabelDatasetBuilder, name_fields
from sciscirl.errors import SciSciRLError
from sciscirl.evaluation.evaluator import Evaluator, LabelEvaluator, build_evaluator
from sciscirl.metrics.collapse import CollapseAlarm
from sciscirl.options import TrainOptions
from sciscirl.presets import Preset, choose_opponents, find_preset
from sciscirl.runs.folder import METRICS_FILE, expand_home, read_rows
from sciscirl.runs.server_checks import check_weights
from sciscirl.task.papers import choose_target, read_split

_log = logging.getLogger(__name__)


def resolve_preset(options: TrainOptions) -> Preset:
    """Return the preset with the given options over it.

    Example:
        >>> resolve_preset(TrainOptions(preset="exp4", model="Qwen/Qwen3-8B")).model
        'Qwen/Qwen3-8B'
    """
    preset = find_preset(options.preset)
    given: dict[str, Any] = {
        name: value
        for name in (
            "model", "seed", "batch_size", "group_size", "max_tokens", "learning_rate", "lora_rank", "temperature",
            "interleave", "remove_constant_reward_groups", "dynamic_sampling",
        )
        if (value := getattr(options, name)) is not None
    }  # fmt: skip
    of_rules: dict[str, Any] = {}
    if options.max_paper_tokens is not None:
        of_rules["max_paper_tokens"] = options.max_paper_tokens
    if options.target is not None:
        of_rules["target"] = choose_target(options.target, options.release)
    given |= {"rules": replace(preset.rules, **of_rules)} if of_rules else {}
    return replace(preset, **given, adversarial=choose_opponents(preset, options.challenger, options.judge))


def make_dataset_builder(options: TrainOptions, preset: Preset) -> LabelDatasetBuilder:
    """Return the builder of the training batches."""
    make_builder = (
        LabelDatasetBuilder
        if preset.adversarial is None
        else partial(AdversarialDatasetBuilder, adversarial=preset.adversarial, base_url=options.base_url)
    )
    builder = make_builder(
        **name_fields(preset, options.release, options.renderer, options.n_train, options.n_test),
        group_size=preset.group_size,
        eval_group_size=preset.eval_group_size,
        n_epochs=options.n_epochs or 1,
        n_spares=preset.dynamic_sampling,
        collapse=options.collapse,
    )
    if options.n_epochs is not None:
        return builder
    n_papers = len(read_split(options.release, "train", needs=())[: options.n_train])
    n_epochs = -(-options.max_steps * preset.batch_size // max(n_papers, 1))
    return chz.replace(builder, n_epochs=max(n_epochs, 1))


def resolve_folder(options: TrainOptions) -> Path:
    """Return the folder of the run.

    Example:
        >>> resolve_folder(TrainOptions(preset="exp4")).as_posix()
        'runs/exp4'
    """
    return expand_home(options.log_path or f"runs/{options.preset}")


def make_config(options: TrainOptions) -> train.Config:
    """Build the cookbook's config of a run. Reads the training split, asks no server."""
    check_weights(load_checkpoint=options.load_checkpoint)
    preset = resolve_preset(options)
    if preset.group_size < 2:
        msg = (
            "group_size is 1, needs at least 2: rewards are centred within the answers to a paper, so that one alone "
            "teaches nothing."
        )
        raise SciSciRLError(msg)
    if options.wandb_project and importlib.util.find_spec("wandb") is None:
        msg = "wandb_project is set, but wandb is not installed. pip install wandb, or leave it out."
        raise SciSciRLError(msg)
    log_path = resolve_folder(options)
    builder = make_dataset_builder(options, preset)
    return train.Config(
        learning_rate=preset.learning_rate,
        dataset_builder=builder,
        model_name=preset.model,
        renderer_name=builder.renderer_name,
        recipe_name=f"sciscirl_{preset.rules.target}",
        max_tokens=preset.max_tokens,
        temperature=preset.temperature,
        lora_rank=preset.lora_rank,
        max_steps=options.max_steps,
        eval_every=options.eval_every,
        save_every=options.save_every,
        ttl_seconds=options.keep_days * 86_400,
        log_path=str(log_path),
        base_url=options.base_url,
        load_checkpoint_path=options.load_checkpoint,
        remove_constant_reward_groups=preset.remove_constant_reward_groups,
        rollout_error_tolerance=DynamicSampling(default_rollout_strategy_for_model(preset.model))
        if preset.dynamic_sampling
        else None,
        # For some models the cookbook would set the reward of a cut-off answer to 0; our reward table decides.
        termination=TerminationRewardPolicy(zero_reward_on_limit=False),
        wandb_project=options.wandb_project,
        wandb_name=options.wandb_name or (log_path.name if options.wandb_project else None),
        evaluator_builders=[lambda: make_evaluator(options, builder, make_alarm(options, log_path))],
    )


def make_alarm(options: TrainOptions, folder: Path) -> CollapseAlarm:
    """Return the alarm that warns of collapse or ends the run, with the evaluations already in the folder."""
    rows = read_rows(folder / METRICS_FILE)
    history = [{name: value for name, value in row.items() if name.startswith("test/")} for row in rows]
    return CollapseAlarm(action=options.collapse, history=filter(None, history))


def make_evaluator(
    options: TrainOptions,
    builder: LabelDatasetBuilder,
    alarm: CollapseAlarm | None = None,
    *,
    kind: type[Evaluator] = LabelEvaluator,
) -> Evaluator:
    """Return the evaluator of the test split; ``kind`` says whether training goes on meanwhile."""
    return build_evaluator(
        builder,
        resolve_preset(options),
        resolve_folder(options),
        temperature=options.eval_temperature,
        alarm=alarm,
        kind=kind,
    )


def builder_of(config: train.Config) -> LabelDatasetBuilder:
    """Return the dataset builder of a config from ``make_config``."""
    builder = config.dataset_builder
    if not isinstance(builder, LabelDatasetBuilder):
        msg = f"a config of this package has a LabelDatasetBuilder, not a {type(builder).__name__}"
        raise TypeError(msg)
    return builder
