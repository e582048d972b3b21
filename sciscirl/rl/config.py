"""Options of a training run, and the cookbook's config that follows from them."""

from __future__ import annotations

import importlib.util
from functools import partial

import chz
from tinker_cookbook.rl import train
from tinker_cookbook.rl.rollout_limits import TerminationRewardPolicy
from tinker_cookbook.rl.rollout_presets import default_rollout_strategy_for_model
from tinker_cookbook.rl.rollout_strategy import RolloutStrategy

from sciscirl.envs.dataset import DynamicSampling, LabelDatasetBuilder, NucleusSampling, name_fields
from sciscirl.errors import SciSciRLError
from sciscirl.evaluation.evaluator import Evaluator, LabelEvaluator, build_evaluator
from sciscirl.lab_parts import load_part
from sciscirl.metrics.collapse import CollapseAction, CollapseAlarm
from sciscirl.options import Run, TrainOptions, refuse_without_effect
from sciscirl.presets import BASE, PUBLISHED, Preset
from sciscirl.runs.folder import METRICS_FILE, read_rows
from sciscirl.task.papers import EVAL_SPLITS


def make_dataset_builder(run: Run[TrainOptions]) -> LabelDatasetBuilder:
    """Return the builder of the training batches."""
    options, preset = run.options, run.preset
    make_builder = (
        LabelDatasetBuilder
        if preset.adversarial is None
        else partial(load_part("AdversarialDatasetBuilder"), adversarial=preset.adversarial, base_url=options.base_url)
    )
    builder = make_builder(
        **name_fields(run, "test" if preset.name in PUBLISHED else None),
        group_size=preset.group_size,
        eval_group_size=preset.eval_group_size,
        n_epochs=options.n_epochs or 1,
        n_spares=preset.dynamic_sampling,
    )
    if options.n_epochs is not None:
        return builder
    n_papers = len(builder.read("train"))
    n_epochs = -(-options.max_steps * preset.batch_size // max(n_papers, 1))
    return chz.replace(builder, n_epochs=max(n_epochs, 1))


def check_preset(preset: Preset) -> None:
    """Make sure that a preset can be trained by reinforcement learning (SciSciRLError)."""
    if preset.group_size < 2:
        msg = (
            "group_size is 1, needs at least 2: rewards are centred within the answers to a paper, so that one alone "
            "teaches nothing."
        )
        raise SciSciRLError(msg)
    fixed = Preset(name="", change="", rules=preset.rules)
    for name in ("adam_beta1", "adam_beta2", "adam_eps"):
        if getattr(preset, name) != getattr(fixed, name):
            refuse_without_effect("train", {name: getattr(preset, name)})


def make_config(run: Run[TrainOptions]) -> train.Config:
    """Build the cookbook's config of a run. Reads the training split, asks no server."""
    options, preset = run.options, run.preset
    check_preset(preset)
    if options.wandb_project and importlib.util.find_spec("wandb") is None:
        msg = "wandb_project is set, but wandb is not installed. pip install wandb, or leave it out."
        raise SciSciRLError(msg)
    builder = make_dataset_builder(run)
    return train.Config(
        learning_rate=preset.learning_rate,
        dataset_builder=builder,
        model_name=preset.model,
        renderer_name=builder.renderer_name,
        recipe_name=f"sciscirl_{preset.rules.target}",
        max_tokens=preset.max_tokens,
        temperature=preset.temperature,
        loss_fn=preset.loss_fn,
        loss_fn_config=dict(preset.loss_fn_config) or None,
        num_substeps=preset.num_substeps,
        kl_penalty_coef=preset.kl_penalty_coef,
        kl_discount_factor=preset.kl_discount,
        kl_reference_config=_make_reference(preset),
        lora_rank=preset.lora_rank,
        max_steps=options.max_steps,
        eval_every=options.eval_every,
        save_every=options.save_every,
        ttl_seconds=options.keep_days * 86_400,
        log_path=str(run.folder),
        base_url=options.base_url,
        load_checkpoint_path=run.begun_from["path"] if run.begun_from else None,
        remove_constant_reward_groups=preset.remove_constant_reward_groups,
        rollout_error_tolerance=_make_strategy(preset),
        # For some models the cookbook would set the reward of a cut-off answer to 0; our reward table decides.
        termination=TerminationRewardPolicy(zero_reward_on_limit=False),
        wandb_project=options.wandb_project,
        wandb_name=options.wandb_name or (run.folder.name if options.wandb_project else None),
        evaluator_builders=[lambda: make_evaluator(run, builder, make_alarm(run, options.collapse))],
    )


def _make_reference(preset: Preset) -> train.KLReferenceConfig | None:
    if not preset.kl_penalty_coef:
        return None
    weights = None if preset.kl_reference == BASE else preset.kl_reference
    return train.KLReferenceConfig(base_model=preset.model, load_checkpoint_path=weights)


def _make_strategy(preset: Preset) -> RolloutStrategy | None:
    """Return how a group is sampled, where the preset asks for more than the cookbook's way."""
    strategy = default_rollout_strategy_for_model(preset.model)
    if preset.top_p < 1:
        strategy = NucleusSampling(preset.top_p, strategy)
    if preset.dynamic_sampling:
        return DynamicSampling(strategy)
    return strategy if preset.top_p < 1 else None


def make_alarm(run: Run[TrainOptions], action: CollapseAction) -> CollapseAlarm:
    """Return the alarm that warns of collapse or ends the run, with the evaluations already in the folder."""
    rows = read_rows(run.folder / METRICS_FILE)
    history = [{name: value for name, value in row.items() if name.partition("/")[0] in EVAL_SPLITS} for row in rows]
    return CollapseAlarm(action=action, history=filter(None, history))


def make_evaluator(
    run: Run[TrainOptions],
    builder: LabelDatasetBuilder,
    alarm: CollapseAlarm | None = None,
    *,
    kind: type[Evaluator] = LabelEvaluator,
) -> Evaluator:
    """Return the evaluator of the run; ``kind`` says whether training goes on meanwhile."""
    return build_evaluator(builder, run.preset, run.folder, alarm=alarm, kind=kind)


def builder_of(config: train.Config) -> LabelDatasetBuilder:
    """Return the dataset builder of a config from ``make_config``."""
    builder = config.dataset_builder
    if not isinstance(builder, LabelDatasetBuilder):
        msg = f"a config of this package has a LabelDatasetBuilder, not a {type(builder).__name__}"
        raise TypeError(msg)
    return builder
