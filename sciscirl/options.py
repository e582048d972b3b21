"""What a training run is started with: the options of each way to train, which the commands take too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar

from msgspec import Meta

from sciscidata.options.checks import Folder, PositiveInt, Share, check_fields
from sciscirl.envs.models import MODEL_CODE
from sciscirl.errors import SciSciRLError
from sciscirl.metrics.collapse import CollapseAction
from sciscirl.presets import (
    CHANGES,
    Beta,
    LearningRate,
    LossName,
    Positive,
    Preset,
    SamplingTemperature,
    Temperature,
    find_preset,
    lay_over,
)
from sciscirl.runs.folder import expand_home
from sciscirl.runs.lineage import find_start
from sciscirl.runs.trackers import check_trackers
from sciscirl.task.contracts import ContractName
from sciscirl.task.registry import load_plugin
from sciscirl.task.release import EvalSplit, choose_target
from sciscirl.task.rules import Weight

TopP = Annotated[float, Meta(gt=0, le=1)]
#: PyTorch starts as many, and crashes where the system has no more.
Threads = Annotated[int, Meta(ge=1, le=1024)]
Precision = Literal["bfloat16", "float16", "float32"]
#: Weights on a server.
Weights = Annotated[
    str,
    Meta(
        pattern=r"^tinker://[^/]+/.+",
        description="a path as checkpoints.jsonl of a run has them: tinker://MODEL/CHECKPOINT",
    ),
]
#: How answers are found: the model writes them, or its probabilities of the labels are compared.
AnswersBy = Literal["sampled", "logprobs"]
#: By which papers a model's own bias for a label is measured.
PriorCorrection = Literal["content_free", "train"]
#: What supervised training learns: whole answers, or the tokens that say the label.
LossOn = Literal["answer", "label"]
#: Names with a number each, as a command line has them: ("disruptive:3", "neutral:1").
Pairs = tuple[str, ...]
PluginFile = Annotated[str, Meta(min_length=1, title="FILE.py")]
#: Tinker keeps a checkpoint for ten years at most.
Days = Annotated[int, Meta(ge=1, le=3650)]
#: Enough to end a run, read its evaluations and choose a checkpoint.
DAYS_KEPT = 90


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskOptions:
    """Options over those of a preset: what is asked, how it is answered, and what an answer earns.

    Attributes:
        target: the labels that are asked for: disruption, novelty, joint, pairs (which of two papers is the more
            disruptive one), or an own label of the release, by its name or as "label"; None: the preset's.
        style: the prompt: plain, ontology, checklist, or one of your own; None: the preset's.
        contract: the keys of an answer; None: the preset's.
        reward: a name in the table of rewards; None: the preset's. The next options change its numbers.
        reward_not_json: the reward of an answer that is not JSON; None: the reward's.
        reward_broken: of JSON that breaks the contract; None: the reward's.
        reward_kept: for keeping the contract; None: the reward's.
        reward_correct: for the right label, on top; None: the reward's.
        reward_wrong: for a wrong label, on top; None: the reward's.
        reward_adjacent: for a label next to the right one (novelty), on top; None: the reward's.
        reward_think: added if the answer has raw thinking; None: the reward's.
        class_weights: factors on the reward for a right label, such as disruptive:3; None: the reward's.
        balanced: weight labels so that every constant answer earns the same; None: as the reward does.
        share_penalty: cost of labels that are said too often; None: the reward's.
        max_tokens: longest answer that is sampled; None: the preset's.
        max_paper_tokens: cut the text of a paper to this many tokens; None: the preset's.
        hide: fields of a paper that neither prompt nor baselines see, such as cited_by_count; None: the preset's.
        weight: how the labels of a paper count, in rewards and in supervised training. equal: its label, like that of
            any other. confidence: its label, as much as one can trust it (label_confidence). chances: each label, as
            likely as it is if the work is cited anew (soft targets). None: the preset's.
        ids: use only papers whose ids this file lists, one a line: of each split those that are in it.
        plugin: run this Python file first, which registers presets, rewards or prompts of your own.

    Raises:
        SciSciRLError: on construction, if a value is impossible, or the plugin fails.
    """

    target: str | None = None
    style: str | None = None
    contract: ContractName | None = None
    reward: str | None = None
    reward_not_json: float | None = None
    reward_broken: float | None = None
    reward_kept: float | None = None
    reward_correct: float | None = None
    reward_wrong: float | None = None
    reward_adjacent: float | None = None
    reward_think: float | None = None
    class_weights: Pairs | None = None
    balanced: bool | None = None
    share_penalty: float | None = None
    max_tokens: PositiveInt | None = None
    max_paper_tokens: PositiveInt | None = None
    hide: tuple[str, ...] | None = None
    weight: Weight | None = None
    ids: Path | None = None
    plugin: PluginFile | None = None

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        if self.plugin is not None:
            load_plugin(self.plugin)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions(TaskOptions):
    """Options of every training run.

    Attributes:
        preset: the experiment, one of those that ``sciscirl presets`` lists, or a file of your own (my.toml).
        release: the folder of a release, or hf:OWNER/NAME@REVISION.
        model: the base model, by name or folder; None: the preset's.
        renderer: the chat format; None: the model's own, without thinking.
        log_path: the folder of the run; None: runs/PRESET, with sft-BACKEND before PRESET for supervised runs.
        resume: continue this run where it stopped.
        dry_run: show what it takes, some prompts and the settings, and train nothing.
        max_steps: stop after this many steps; None: after the last epoch.
        n_epochs: how often each paper is shown, each time in another order.
        eval_every: steps between evaluations; one more follows the last step.
        save_every: steps between checkpoints.
        eval_split: papers that evaluations judge by and checkpoints are chosen by: dev, held_out (training papers that
            are kept out) or test; None: dev, or held_out if the release has no dev. Reinforcement learning of
            disruption with a published preset then takes test, as its notes did.
        n_train: use so many training papers, each class in its share; None: all.
        n_test: judge by so many papers, each class in its share; None: all.
        interleave: spread the classes evenly over the batches; None: as the preset does.
        seed: of the order of the papers. On your own hardware also of new weights and of sampled answers, which a
            Tinker server draws by itself. None: the preset's.
        batch_size: papers in a step; None: the preset's.
        learning_rate: of the optimizer, or auto: the cookbook's rule for the model; None: the preset's.
        lora_rank: of the adapter; None: the preset's.
        eval_temperature: of sampling in evaluations, 0 is greedy; None: the preset's.
        eval_top_p: of sampling in evaluations, from the most probable tokens with this share; None: the preset's.
        eval_group_size: answers to each held-out paper in evaluations; None: the preset's.
        wandb_project: send the metrics to this project of trackio and Weights & Biases, too: of each that is installed.
        wandb_name: of the run there; None: the folder's name.
    """

    preset: str = "baseline"
    release: Folder = "slices/openalex"
    model: str | None = None
    renderer: str | None = None
    log_path: Folder | None = None
    resume: bool = False
    dry_run: bool = False
    max_steps: PositiveInt | None = None
    n_epochs: PositiveInt | None = None
    eval_every: PositiveInt = 50
    save_every: PositiveInt = 50
    eval_split: EvalSplit | None = None
    n_train: PositiveInt | None = None
    n_test: PositiveInt | None = None
    interleave: bool | None = None
    seed: int | None = None
    batch_size: PositiveInt | None = None
    learning_rate: LearningRate | Literal["auto"] | None = None
    lora_rank: PositiveInt | None = None
    eval_temperature: Temperature | None = None
    eval_top_p: TopP | None = None
    eval_group_size: PositiveInt | None = None
    wandb_project: str | None = None
    wandb_name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainOptions(RunOptions):
    """Options of reinforcement learning.

    Attributes:
        max_steps: training steps (the published tables show step 250).
        n_epochs: how often each paper may be shown; None: as often as the steps need.
        group_size: answers to each paper, within which rewards are centred; None: the preset's.
        temperature: of sampling in training; None: the preset's.
        top_p: of sampling in training, from the most probable tokens with this share; None: the preset's.
        loss_fn: the loss; None: the preset's.
        loss_fn_config: numbers of the loss, such as clip_low_threshold:0.8 clip_high_threshold:1.28;
            None: the preset's.
        num_substeps: optimizer steps for the answers of a training step; None: the preset's.
        kl_penalty_coef: cost of each nat by which the model leaves the reference; None: the preset's.
        kl_reference: base, or weights to sample from (tinker://...); None: the preset's.
        kl_discount: adds the penalties of later tokens, each discounted by this; None: the preset's.
        base_url: a Tinker server; None: TINKER_BASE_URL, else Tinker.
        keep_days: Tinker deletes checkpoints after this many days, except the last one.
        collapse: when all answers have one label, warn, stop with exit status 3, or do nothing.
        remove_constant_reward_groups: leave out groups whose rewards are all equal; None: as the preset does.
        dynamic_sampling: how often a group with equal rewards is first sampled again,
            with another paper (DAPO); None: the preset's.
        max_steps_off_policy: sample while training goes on, by weights that are at most so many steps old; None: wait.
        num_minibatches: train on a step's answers in so many parts, each when it is complete; None: in one.
        compute_post_kl: measure how far each step moved the model, by one more pass over its answers.
        rolling_save_every: steps between further checkpoints that only resume; each takes the place of the last.
        load_checkpoint: start from the last checkpoint of this run, named by its folder and trained where this one is,
            or on a server from these weights (tinker://MODEL/weights/CHECKPOINT); the optimizer starts anew.

    Example:
        >>> TrainOptions(preset="exp4", max_steps=0)
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: TrainOptions.max_steps is 0, needs a whole number from 1.
    """

    of_adapter: ClassVar[tuple[str, ...]] = ()  # options that a run from other weights keeps, on your own hardware
    max_steps: PositiveInt = 250
    group_size: PositiveInt | None = None
    temperature: SamplingTemperature | None = None
    top_p: TopP | None = None
    loss_fn: LossName | None = None
    loss_fn_config: Pairs | None = None
    num_substeps: PositiveInt | None = None
    kl_penalty_coef: Annotated[float, Meta(ge=0)] | None = None
    kl_reference: str | None = None
    kl_discount: Share | None = None
    base_url: str | None = None
    keep_days: Days = DAYS_KEPT
    collapse: CollapseAction = "warn"
    remove_constant_reward_groups: bool | None = None
    dynamic_sampling: Annotated[int, Meta(ge=0)] | None = None
    max_steps_off_policy: Annotated[int, Meta(ge=0)] | None = None
    num_minibatches: PositiveInt | None = None
    compute_post_kl: bool = False
    rolling_save_every: Annotated[int, Meta(ge=0)] = 0
    load_checkpoint: str | None = None


# No slots: of the bases of a class, Python allows them to one.
@dataclass(frozen=True, kw_only=True)
class GoldOptions:
    """Options of supervised fine-tuning.

    Attributes:
        adam_beta1: of the optimizer of supervised runs; None: the preset's.
        adam_beta2: of the optimizer of supervised runs; None: the preset's.
        adam_eps: of the optimizer of supervised runs; None: the preset's.
        confidence: in every target answer, because a release has no gold for it.
        loss_on: answer: every token of the answer; label: only those that say the label. Then evaluations score the
            labels too, because nothing teaches the rest of the answer.
    """

    adam_beta1: Beta | None = None
    adam_beta2: Beta | None = None
    adam_eps: Positive | None = None
    confidence: float = 1.0
    loss_on: LossOn = "answer"


@dataclass(frozen=True, kw_only=True, slots=True)
class SftOptions(GoldOptions, RunOptions):
    """Options of every supervised run.

    Attributes:
        preset: the experiment whose prompt and contract are used (see ``sciscirl presets``).
        n_epochs: how often each paper is shown, each time in another order.
        learning_rate: at the first step, or auto: the cookbook's rule; it falls linearly to 0.
    """

    backend: ClassVar[str]
    preset: str = "exp4"
    n_epochs: PositiveInt = 3
    learning_rate: LearningRate | Literal["auto"] = 1e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class TinkerSftOptions(SftOptions):
    """Options of supervised fine-tuning on a Tinker server.

    Attributes:
        base_url: a Tinker server; None: TINKER_BASE_URL, else Tinker.
        keep_days: Tinker deletes checkpoints after this many days, except the last one.
    """

    backend: ClassVar[str] = "tinker"
    base_url: str | None = None
    keep_days: Days = DAYS_KEPT


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCodeOptions:
    """Options of a model that brings code.

    Attributes:
        trust_remote_code: run Python files that the model brings, with all that you may do on this machine; without it,
            a model that needs them is refused. HF_TRUST_REMOTE_CODE=1 in the environment does the same.
    """

    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.trust_remote_code:
            os.environ[MODEL_CODE] = "1"


_OF_RUN: Final = {one.name for one in fields(RunOptions)}
_OF_RL: Final = [one.name for one in fields(TrainOptions) if one.name in CHANGES and one.name not in _OF_RUN]
_ADAM: Final = [one.name for one in fields(GoldOptions) if one.name in CHANGES]
#: What an evaluation calls ``temperature`` and so on, a preset calls ``eval_temperature``.
OF_EVALUATION: Final[Mapping[str, str]] = MappingProxyType(
    {name: f"eval_{name}" for name in ("temperature", "top_p", "group_size")}
)
_OF_TRAINING: Final = ["learning_rate", "lora_rank", "interleave", *_OF_RL, *_ADAM]
#: Options of one command that have no effect in another, and why.
NO_EFFECT: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "train": dict.fromkeys(
            _ADAM, "the cookbook's loop of reinforcement learning fixes beta1 0.9, beta2 0.95 and eps 1e-8"
        ),
        "sft": dict.fromkeys(_OF_RL, "supervised training samples no answers"),
        "evaluate": {name: "an evaluation trains nothing" for name in _OF_TRAINING if name not in OF_EVALUATION}
        | {other: f"here it is called {name}" for name, other in OF_EVALUATION.items()},
    }
)


def refuse_without_effect(command: str, options: Mapping[str, object]) -> None:
    """Refuse options that only another command reads."""
    for name in options:
        if reason := NO_EFFECT.get(command, {}).get(name):
            raise SciSciRLError(f"{name} has no effect in sciscirl {command}: {reason}. Leave it out.")


def resolve_preset(
    options: TaskOptions, preset: Preset | None = None, names: Mapping[str, str] = MappingProxyType({})
) -> Preset:
    """Return the preset that options name, or ``preset``, with options over it; ``names`` maps some to its fields."""
    given: dict[str, Any] = {
        names.get(one.name, one.name): value
        for one in fields(options)
        if (value := getattr(options, one.name)) is not None
    }
    changes = {name: value for name, value in given.items() if name in CHANGES}
    if "target" in changes:
        changes["target"] = choose_target(given["target"], given["release"])
    for name in ("class_weights", "loss_fn_config"):
        if name in given:
            changes[name] = tuple(_read_pair(name, pair) for pair in given[name])
    return lay_over(preset or find_preset(given["preset"]), changes)


_Options = TypeVar("_Options", bound=RunOptions, covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run(Generic[_Options]):
    """A training run: what follows from its options, resolved once and handed down.

    Attributes:
        options: as they were given. What a preset has too is read from ``preset`` only.
        preset: with the options over it.
        folder: where the run writes.
        begun_from: the weights that it starts from, as ``find_start`` describes them; None: the base model.
    """

    options: _Options
    preset: Preset
    folder: Path
    begun_from: Mapping[str, Any] | None = None


def resolve_run(options: _Options) -> Run[_Options]:
    """Resolve the options of a training run; its folder is ``runs/PRESET``, or ``runs/sft-BACKEND-PRESET``.

    Example:
        >>> resolve_run(TrainOptions(preset="two_keys")).folder.as_posix()
        'runs/exp4'
        >>> resolve_run(TinkerSftOptions()).folder.as_posix()
        'runs/sft-tinker-exp4'
    """
    if options.wandb_project is not None:
        check_trackers()
    preset, kind, begun_from = resolve_preset(options), "", None
    if isinstance(options, SftOptions):
        preset, kind = replace(preset, group_size=1), f"sft-{options.backend}-"  # each paper has one gold answer
    folder = expand_home(options.log_path or f"runs/{kind}{preset.name}")
    if isinstance(options, TrainOptions) and options.load_checkpoint is not None:
        adapter = {name: getattr(options, name) for name in options.of_adapter}
        begun_from = find_start(options.load_checkpoint, folder, preset, adapter or None)
    return Run(options=options, preset=preset, folder=folder, begun_from=begun_from)


def _read_pair(option: str, pair: str) -> tuple[str, float]:
    name, _, number = pair.partition(":")
    try:
        return name, float(number)
    except ValueError:
        raise SciSciRLError(f"{option} is {pair!r}, needs NAME:NUMBER, for example {_EXAMPLES[option]}.") from None


_EXAMPLES: Final = {"class_weights": "disruptive:3,neutral:1", "loss_fn_config": "clip_low_threshold:0.8"}
