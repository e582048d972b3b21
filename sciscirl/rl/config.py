"""From a short command line to the cookbook's config of a run."""

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
from sciscirl.envs.dataset import LabelDatasetBuilder, name_fields
from sciscirl.envs.dynamic_sampling import DynamicSampling
from sciscirl.errors import SciSciRLError
from sciscirl.evaluation.evaluator import Evaluator, LabelEvaluator, build_evaluator
from sciscirl.metrics.collapse import CollapseAlarm, check_action
from sciscirl.presets import Preset, choose_opponents, find_preset
from sciscirl.runs.folder import METRICS_FILE, expand_home, read_rows
from sciscirl.runs.server import DAYS_KEPT, check_weights, seconds_to_keep
from sciscirl.task.papers import read_split
from sciscirl.task.rules import check_positive

_log = logging.getLogger(__name__)


@chz.chz
class TrainOptions:
    """What ``scripts/train_rl.py`` takes. What is None comes from the preset."""

    preset: str = chz.field(default="baseline", doc="which experiment; --list shows them")
    release: str = chz.field(default="slices/openalex", doc="the folder of a slice")
    model: str | None = chz.field(default=None, doc="base model: a name, or a folder that the server serves")
    renderer: str | None = chz.field(default=None, doc="chat format; by default the model's own, without thinking")
    log_path: str | None = chz.field(default=None, doc="folder of the run (runs/PRESET)")
    resume: bool = chz.field(default=False, doc="go on where the run in log_path stopped")
    dry_run: bool = chz.field(default=False, doc="show config, prompts and cost; ask no server")
    base_url: str | None = chz.field(default=None, doc="a Tinker server; else TINKER_BASE_URL, else Tinker")
    max_steps: int = chz.field(default=250, doc="training steps; the published tables are of step 250")
    n_epochs: int | None = chz.field(default=None, doc="how often each paper may be shown; as many as max_steps takes")
    eval_every: int = chz.field(default=50, doc="steps between evaluations; the last step is always followed by one")
    eval_concurrently: bool | None = chz.field(
        default=None, doc="train on during evaluations; by default on Tinker, without W&B"
    )
    save_every: int = chz.field(default=50, doc="steps between checkpoints")
    keep_days: int = chz.field(default=DAYS_KEPT, doc="Tinker drops checkpoints before the last after so many days")
    n_train: int | None = chz.field(default=None, doc="use the first so many training papers")
    n_test: int | None = chz.field(default=None, doc="use the first so many test papers")
    interleave: bool | None = chz.field(default=None, doc="spread the classes evenly over the batches")
    seed: int | None = chz.field(default=None, doc="of the order of the papers")
    batch_size: int | None = None
    group_size: int | None = None
    max_tokens: int | None = None
    max_paper_tokens: int | None = chz.field(default=None, doc="a paper's record is cut to so many tokens")
    learning_rate: float | None = None
    lora_rank: int | None = None
    temperature: float | None = None
    eval_temperature: float | None = chz.field(default=None, doc="of sampling in evaluations; that of training")
    collapse: str = chz.field(default="warn", doc="where all answers say one label: warn, stop (exit status 3), or off")
    remove_constant_reward_groups: bool | None = chz.field(default=None, doc="skip groups whose rewards are all equal")
    n_refills: int | None = chz.field(default=None, doc="sample such groups anew first, so often, of other papers")
    challenger: str | None = chz.field(default=None, doc="adversarial: rules, or a base model that challenges")
    judge: str | None = chz.field(default=None, doc="adversarial: a base model that judges reasoning, not the rubric")
    load_checkpoint: str | None = chz.field(default=None, doc="start from these weights (tinker://...)")
    wandb_project: str | None = chz.field(default=None, doc="also log to Weights & Biases")
    wandb_name: str | None = None


def resolve_preset(options: TrainOptions) -> Preset:
    """Return the preset with what the command line says over it.

    Raises:
        SciSciRLError: if there is no such preset, or a value is impossible.

    Example:
        >>> resolve_preset(TrainOptions(preset="exp4", model="Qwen/Qwen3-8B")).model
        'Qwen/Qwen3-8B'
    """
    preset = find_preset(options.preset)
    given: dict[str, Any] = {
        name: value
        for name in (
            "model", "seed", "batch_size", "group_size", "max_tokens", "learning_rate", "lora_rank", "temperature",
            "interleave", "remove_constant_reward_groups", "n_refills",
        )
        if (value := getattr(options, name)) is not None
    }  # fmt: skip
    if options.max_paper_tokens is not None:
        given["rules"] = replace(preset.rules, max_paper_tokens=options.max_paper_tokens)
    return replace(preset, **given, adversarial=choose_opponents(preset, options.challenger, options.judge))


def make_dataset_builder(options: TrainOptions, preset: Preset) -> LabelDatasetBuilder:
    """Return what builds the training batches.

    Raises:
        ReleaseError: if the slice is missing or was altered.
        SciSciRLError: if the cookbook knows no chat format for the model and none is named.
    """
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
        n_spares=preset.n_refills,
        collapse=check_action(options.collapse),
    )
    if options.n_epochs is not None:
        return builder
    n_papers = len(read_split(options.release, "train", needs=())[: options.n_train])
    n_epochs = -(-options.max_steps * preset.batch_size // max(n_papers, 1))
    return chz.replace(builder, n_epochs=max(n_epochs, 1))


def resolve_folder(options: TrainOptions) -> Path:
    """Return the folder of the run.

    Raises:
        SciSciRLError: if it is below a home that there is not.

    Example:
        >>> resolve_folder(TrainOptions(preset="exp4")).as_posix()
        'runs/exp4'
    """
    return expand_home(options.log_path or f"runs/{options.preset}")


def make_config(options: TrainOptions) -> train.Config:
    """Build the cookbook's config of a run. Reads the slice's training split, asks no server.

    Raises:
        ReleaseError: if the slice is missing or was altered.
        SciSciRLError: if an option is impossible.
    """
    check_positive(max_steps=options.max_steps, eval_every=options.eval_every, save_every=options.save_every)
    for name in ("n_train", "n_test", "n_epochs"):
        if getattr(options, name) is not None:
            check_positive(**{name: getattr(options, name)})
    check_weights(load_checkpoint=options.load_checkpoint)
    preset = resolve_preset(options)
    if preset.group_size < 2:
        msg = (
            "group_size is 1, needs at least 2: rewards are centred within the answers to a paper, so that one alone "
            "teaches nothing."
        )
        raise SciSciRLError(msg)
    if options.eval_temperature is not None and not 0 <= options.eval_temperature < float("inf"):
        msg = f"eval_temperature is {options.eval_temperature!r}, needs a number of at least 0."
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
        ttl_seconds=seconds_to_keep(options.keep_days),
        log_path=str(log_path),
        base_url=options.base_url,
        load_checkpoint_path=options.load_checkpoint,
        remove_constant_reward_groups=preset.remove_constant_reward_groups,
        rollout_error_tolerance=DynamicSampling(default_rollout_strategy_for_model(preset.model))
        if preset.n_refills
        else None,
        # For some models the cookbook would clamp what a cut-off answer earns; here the table says it, for any model.
        termination=TerminationRewardPolicy(zero_reward_on_limit=False),
        wandb_project=options.wandb_project,
        wandb_name=options.wandb_name or (log_path.name if options.wandb_project else None),
        evaluator_builders=[lambda: make_evaluator(options, builder, make_alarm(options, log_path))],
    )


def make_alarm(options: TrainOptions, folder: Path) -> CollapseAlarm:
    """Return what warns of collapse, or ends the run; it knows the evaluations that the folder has already.

    Raises:
        SciSciRLError: if there is no such action.
    """
    rows = read_rows(folder / METRICS_FILE)
    history = [{name: value for name, value in row.items() if name.startswith("test/")} for row in rows]
    return CollapseAlarm(action=check_action(options.collapse), history=filter(None, history))


def make_evaluator(
    options: TrainOptions,
    builder: LabelDatasetBuilder,
    alarm: CollapseAlarm | None = None,
    *,
    kind: type[Evaluator] = LabelEvaluator,
) -> Evaluator:
    """Return what judges the held-out split during a run: alone, or while training goes on.

    Raises:
        ReleaseError: if the slice is missing or was altered.
        PromptError: if a paper does not fit under the cap even without its abstract.
    """
    return build_evaluator(
        builder,
        resolve_preset(options),
        resolve_folder(options),
        temperature=options.eval_temperature,
        alarm=alarm,
        kind=kind,
    )


def builder_of(config: train.Config) -> LabelDatasetBuilder:
    """Return what builds the batches of a config that ``make_config`` made."""
    builder = config.dataset_builder
    if not isinstance(builder, LabelDatasetBuilder):
        msg = f"a config of this package has a LabelDatasetBuilder, not a {type(builder).__name__}"
        raise TypeError(msg)
    return builder
