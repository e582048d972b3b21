"""What a training run is started with: the options of each way to train, which the commands take too.

They are a partial of a preset: a class of options inherits parts of it, and ``partial_of_preset`` lets each of their
settings be left out. A setting is read from ``Run.preset``, never from the options.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta

from sciscidata.options.checks import Folder, PositiveInt, check_fields
from sciscidata.options.parser import read_texts
from sciscirl.envs.models import MODEL_CODE
from sciscirl.errors import SciSciRLError
from sciscirl.metrics.collapse import CollapseAction
from sciscirl.presets import CHANGES, find_preset, lay_over
from sciscirl.runs.existing_run import LogdirBehavior
from sciscirl.runs.folder import expand_home
from sciscirl.runs.lineage import find_start
from sciscirl.runs.trackers import check_trackers
from sciscirl.task.experiment import Adam, Adapter, BaseModel, Judging, Length, Loss, Pairs, Preset, Sampling
from sciscirl.task.plugins import load_plugin
from sciscirl.task.release import ListedPapers, Order, PaperChoice
from sciscirl.task.rules import Task
from sciscirl.task.targets import choose_target, narrow_target

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
PluginFile = Annotated[str, Meta(min_length=1, title="FILE.py")]
#: Tinker keeps a checkpoint for ten years at most.
Seconds = Annotated[int, Meta(ge=1, le=315_360_000)]
#: 90 days: enough to end a run, read its evaluations and choose a checkpoint.
SECONDS_KEPT = 7_776_000


_Class = TypeVar("_Class", bound=type)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def partial_of_preset(**defaults: Any) -> Callable[[_Class], _Class]:  # noqa: ANN401
    """Make a class a frozen dataclass of options; ``defaults`` take the place of inherited ones.

    What it inherits from a part of a preset may be left out: it is None then, and its text says so. A field of a part
    may have another type as an option, in its metadata.

    Example:
        >>> @partial_of_preset(seed=7)
        ... class LotteryOptions(Order):
        ...     "Options of a lottery."
        >>> LotteryOptions(batch_size=4)
        LotteryOptions(batch_size=4, seed=7, interleave=None)
        >>> read_texts(LotteryOptions.__doc__)["batch_size"]
        "papers in a step; None: the preset's."
    """

    def make(kind: _Class) -> _Class:
        doc, hints = inspect.cleandoc(kind.__doc__ or ""), dict[str, Any]()
        own, texts = read_texts(doc), ""
        for base in [base for base in kind.__bases__ if is_dataclass(base)]:
            of_base = get_type_hints(base, include_extras=True)
            told = {name: text for one in reversed(base.__mro__) for name, text in read_texts(one.__doc__).items()}
            for one in fields(base):
                hint = one.metadata.get("option", of_base[one.name])
                if one.name in defaults:
                    hints[one.name] = _without_none(hint)
                elif "_is_of_options" not in vars(base) and hint == _without_none(hint):
                    hints[one.name] = hint | None
                    text = told[one.name].rstrip(".")
                    end = ". None: the preset's." if ". " in text else "; None: the preset's."
                    texts += "" if one.name in own else f"\n    {one.name}: {text}{end}"
        head, title, rest = doc.partition("\nAttributes:")
        kind.__doc__ = f"{head}{title or (chr(10) * 2 + 'Attributes:')}{texts}{rest}" if texts else doc
        declared = inspect.get_annotations(kind)
        kind.__annotations__ = hints | declared
        for name in hints:
            setattr(kind, name, defaults.get(name))
        setattr(kind, "_is_of_options", True)  # noqa: B010 (no class declares it)
        made = dataclass(frozen=True, kw_only=True)(kind)
        init = made.__init__

        @wraps(init)
        def check_names(self: object, **options: Any) -> None:  # noqa: ANN401
            for name in GONE.keys() & options.keys() - {one.name for one in fields(made)}:
                raise SciSciRLError(f"{made.__name__} has no option {name!r}. {GONE[name]}")
            init(self, **options)

        setattr(made, "__init__", check_names)  # noqa: B010 (of any signature)
        names = [one.name for one in fields(made) if one.name in declared]
        setattr(made, "_declared", names)  # noqa: B010 (no class declares it)
        return made

    return make


#: What to give in the place of options of before 2026-12.
GONE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "resume": 'To go on with a run, give behavior_if_log_dir_exists="resume"; a sweep goes on by itself.',
        "keep_days": "Give ttl_seconds=...: 86400 for each day.",
        "num_minibatches": 'Give stream_minibatch_config="num_minibatches:4".',
        "kl_reference": 'Give kl_reference_config="load_checkpoint_path:tinker://...", or nothing for the base model.',
        "kl_discount": "Did you mean kl_discount_factor=...?",
    }
)


class Recorded:
    """Marks a class of options: what it declares itself decides how a step goes.

    The record of a run has these options, and a run that goes on must have the same.
    """


def list_recorded(options: RunOptions) -> dict[str, Any]:
    """List the options that the record of a run has beside the settings of its preset, by name."""
    marked = [kind for kind in reversed(type(options).__mro__) if Recorded in kind.__bases__]
    return {name: getattr(options, name) for kind in marked for name in vars(kind)["_declared"]}


def _without_none(hint: Any) -> Any:  # noqa: ANN401
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return Union[tuple(one for one in get_args(hint) if one is not NoneType)]  # noqa: UP007 (of a tuple)


@partial_of_preset()
class PluginOptions:
    """Options of what you register yourself.

    Attributes:
        plugin: run this Python file first, which registers presets, rewards, prompts or metrics of your own.

    Raises:
        SciSciRLError: on construction, if a value is impossible, or the plugin fails.
    """

    plugin: PluginFile | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if (names := getattr(value, "__chz_fields__", None)) is not None:  # a configuration of the cookbook
                value = {name: found for name in names if (found := getattr(value, name)) is not None}
            if isinstance(value, Mapping):
                pairs = tuple(f"{name}:{found}" for name, found in cast("Mapping[str, Any]", value).items())
                object.__setattr__(self, one.name, pairs)
        check_fields(self, SciSciRLError)
        if self.plugin is not None:
            load_plugin(self.plugin)


@partial_of_preset()
class TaskOptions(PluginOptions, Task, Length, ListedPapers):
    """What an answer earns: numbers over those of a reward.

    Attributes:
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
    """

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


@partial_of_preset()
class ServerOptions:
    """Options of a Tinker server.

    Attributes:
        base_url: a Tinker server; None: TINKER_BASE_URL, else Tinker.
    """

    base_url: str | None = None


@partial_of_preset()
class TrainingServerOptions(ServerOptions):
    """Options of training on a Tinker server.

    Attributes:
        ttl_seconds: Tinker deletes checkpoints after so many seconds, 90 days, except the last one; None: never.
        evaluators: at each evaluation also ask these benchmarks of the cookbook, such as ifeval or gsm8k:50 (50 of its
            questions instead of 100).
    """

    ttl_seconds: Seconds | None = SECONDS_KEPT
    evaluators: tuple[str, ...] = ()


@partial_of_preset()
class ModelOptions(BaseModel):
    """Options of a model.

    Attributes:
        renderer: the chat format; None: the model's own, without thinking.
    """

    renderer: str | None = None


@dataclass(frozen=True, kw_only=True)
class PresetName:
    """Which experiment.

    Attributes:
        preset: the experiment, one of those that ``sciscirl presets`` lists, or a file of your own (my.toml).
    """

    preset: str = "baseline"


@dataclass(frozen=True, kw_only=True)
class NumberFormat:
    """How a model of this process computes.

    Attributes:
        dtype: number format of the weights.
    """

    dtype: Precision = "bfloat16"


@partial_of_preset()
class CheckpointOptions:
    """Which checkpoint of a run.

    Attributes:
        step: of the checkpoint of a run; None: the last one.
    """

    step: Annotated[int, Meta(ge=0)] | None = None


@partial_of_preset()
class AskedOptions(PluginOptions):
    """Options of a task that is asked without training.

    Attributes:
        release: the folder of a release; on the command line also hf:OWNER/NAME@REVISION.
        n_papers: ask about only so many papers of a split, each class in its share; None: all.
    """

    release: Path
    n_papers: PositiveInt | None = None


@partial_of_preset(preset="baseline")
class RunOptions(TaskOptions, ModelOptions, Order, Adapter, Judging, PaperChoice, PresetName):
    """Options of every training run.

    Attributes:
        release: the folder of a release, or hf:OWNER/NAME@REVISION.
        log_path: the folder of the run; None: runs/PRESET, with sft-BACKEND before PRESET for supervised runs.
        behavior_if_log_dir_exists: what to do with a run in that folder: raise an error, resume it where it stopped,
            delete it and begin anew, or ask at a terminal. A folder without a run begins one. Files of yours beside
            those of the run stop a deletion; files of yours in its own folders go with them.
        dry_run: show what it takes, some prompts and the settings, and train nothing.
        max_steps: stop after this many steps; None: after the last epoch.
        eval_every: steps between evaluations; one more follows the last step.
        save_every: steps between checkpoints.
        interleave: spread the classes evenly over the batches; None: as the preset does.
        wandb_project: send the metrics to this project of trackio and Weights & Biases, too: of each that is installed.
        wandb_name: of the run there; None: the folder's name.
    """

    release: Folder = "slices/openalex"
    log_path: Folder | None = None
    behavior_if_log_dir_exists: LogdirBehavior = "raise"
    dry_run: bool = False
    max_steps: PositiveInt | None = None
    eval_every: PositiveInt = 50
    save_every: PositiveInt = 50
    wandb_project: str | None = None
    wandb_name: str | None = None


@partial_of_preset()
class CourseOptions(TrainingServerOptions):
    """Options of reinforcement learning that may be others when a run goes on.

    Attributes:
        collapse: when all answers have one label, warn, stop with exit status 3, or do nothing.
        compute_post_kl: measure how far each step moved the model, by one more pass over its answers.
        rolling_save_every: steps between further checkpoints that only resume; each takes the place of the last.
        load_checkpoint: start from the last checkpoint of this run, named by its folder and trained where this one is,
            or on a server from these weights (tinker://MODEL/weights/CHECKPOINT); the optimizer starts anew.
    """

    collapse: CollapseAction = "warn"
    compute_post_kl: bool = False
    rolling_save_every: Annotated[int, Meta(ge=0)] = 0
    load_checkpoint: str | None = None


@partial_of_preset(max_steps=250)
class TrainOptions(RunOptions, Sampling, Loss, CourseOptions, Recorded):
    """Options of reinforcement learning.

    Attributes:
        max_steps: training steps (the published tables show step 250).
        n_epochs: how often each paper may be shown; None: as often as the steps need.
        remove_constant_reward_groups: leave out groups whose rewards are all equal; None: as the preset does.
        max_steps_off_policy: sample while training goes on, by weights that are at most so many steps old; None: wait.
        stream_minibatch_config: train on a step's answers in parts, each when it is complete: num_minibatches:4;
            groups_per_batch is batch_size. None: in one.

    Example:
        >>> TrainOptions(preset="exp4", max_steps=0)
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: TrainOptions.max_steps is 0, needs a whole number from 1.
    """

    of_adapter: ClassVar[tuple[str, ...]] = ()  # options that a run from other weights keeps, on your own hardware
    max_steps_off_policy: Annotated[int, Meta(ge=0)] | None = None
    stream_minibatch_config: Pairs | None = None


@partial_of_preset()
class GoldOptions(Adam, Recorded):
    """Options of supervised fine-tuning.

    Attributes:
        confidence: in every target answer, because a release has no gold for it.
        loss_on: answer: every token of the answer; label: only those that say the label. Then evaluations score the
            labels too, because nothing teaches the rest of the answer.
    """

    confidence: float = 1.0
    loss_on: LossOn = "answer"


@partial_of_preset(preset="exp4", n_epochs=3, learning_rate=1e-4)
class SftOptions(RunOptions, GoldOptions):
    """Options of every supervised run.

    Attributes:
        preset: the experiment whose prompt and contract are used (see ``sciscirl presets``).
        n_epochs: how often each paper is shown, each time in another order.
        learning_rate: at the first step, or auto: the cookbook's rule; it falls linearly to 0.
    """

    backend: ClassVar[str]


@partial_of_preset()
class TinkerSftOptions(SftOptions, TrainingServerOptions):
    """Options of supervised fine-tuning on a Tinker server."""

    backend = "tinker"


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


_OF_RL: Final = [one.name for one in (*fields(Sampling), *fields(Loss))]
_ADAM: Final = [one.name for one in fields(Adam)]
#: What an evaluation calls ``temperature`` and so on, a preset calls ``eval_temperature``.
OF_EVALUATION: Final[Mapping[str, str]] = MappingProxyType(
    {one.name.removeprefix("eval_"): one.name for one in fields(Judging)}
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


def list_given(options: TaskOptions) -> dict[str, Any]:
    """List the options that have a value, by name."""
    return {one.name: value for one in fields(options) if (value := getattr(options, one.name)) is not None}


def resolve_preset(
    options: TaskOptions, preset: Preset | None = None, names: Mapping[str, str] = MappingProxyType({})
) -> Preset:
    """Return the preset that options name, or ``preset``, with options over it; ``names`` maps some to its fields."""
    given = {names.get(name, name): value for name, value in list_given(options).items()}
    changes = {name: value for name, value in given.items() if name in CHANGES}
    if "target" in changes:
        changes["target"] = choose_target(given["target"], given["release"])
    for name in ("class_weights", "loss_fn_config"):
        if name in given:
            changes[name] = tuple(read_pair(name, pair) for pair in given[name])
    if "kl_reference_config" in given:
        changes["kl_reference_config"] = tuple(tuple(pair.partition(":")[::2]) for pair in given["kl_reference_config"])
    made = lay_over(preset or find_preset(given["preset"]), changes)
    return made if preset is not None or "release" not in given else follow_release(made, given["release"])


def follow_release(preset: Preset, release: str | Path) -> Preset:
    """Return a preset that asks for the labels that a release was drawn of; a challenger knows all labels only."""
    if preset.adversarial is not None:
        return preset
    return preset.with_settings(target=narrow_target(preset.rules.target, release))


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

    def count_steps(self, n_batches: int) -> int:
        """Return on how many of so many batches the run trains."""
        return min(n_batches, self.options.max_steps or n_batches)


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
        preset, kind = preset.with_settings(group_size=1), f"sft-{options.backend}-"  # each paper has one gold answer
    folder = expand_home(options.log_path or f"runs/{kind}{preset.name}")
    if isinstance(options, TrainOptions) and options.load_checkpoint is not None:
        adapter = {name: getattr(options, name) for name in options.of_adapter}
        begun_from = find_start(options.load_checkpoint, folder, preset, adapter or None)
    return Run(options=options, preset=preset, folder=folder, begun_from=begun_from)


def read_pair(option: str, pair: str) -> tuple[str, float]:
    """Read a name with a number, NAME:NUMBER (SciSciRLError)."""
    name, _, number = pair.partition(":")
    try:
        return name, float(number)
    except ValueError:
        raise SciSciRLError(f"{option} is {pair!r}, needs NAME:NUMBER, for example {_EXAMPLES[option]}.") from None


_EXAMPLES: Final = {
    "class_weights": "disruptive:3,neutral:1",
    "loss_fn_config": "clip_low_threshold:0.8",
    "stream_minibatch_config": "num_minibatches:4",
}
