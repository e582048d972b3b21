"""An experiment: a preset, which is a task, an order of papers, a sampling, an optimiser and a judging.

Each part has its settings, what they mean and their checks in one place. The options of a command inherit the parts
(``options.py``), and a name is in one part only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from sciscidata.options.checks import PositiveInt, Share, check_fields
from sciscidata.options.did_you_mean import find_unknown, suggest
from sciscirl.errors import RewardError, SciSciRLError
from sciscirl.task.papers import OwnTarget
from sciscirl.task.release import Order
from sciscirl.task.rules import Task, TaskRules

#: The model of the published runs, retired from Tinker on 2026-06-12.
HISTORICAL_MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
LossName = Literal["importance_sampling", "ppo", "cispo", "dro"]
_CLIPS: Final = ("clip_low_threshold", "clip_high_threshold")
#: The losses of reinforcement learning, and the numbers that each takes. Of Tinker's others, ``gspo`` and
#: ``stable_reinforce`` need inputs that the cookbook's loop of 0.5.8 does not send.
#: Source: https://tinker-docs.thinkingmachines.ai/losses
LOSSES: Final[Mapping[LossName, tuple[str, ...]]] = MappingProxyType(
    {"importance_sampling": (), "ppo": _CLIPS, "cispo": _CLIPS, "dro": ("beta",)}
)
#: What a KL reference is, by the cookbook's names.
_OF_REFERENCE: Final = ("base_model", "load_checkpoint_path")
Beta = Annotated[float, Meta(ge=0, lt=1)]
Positive = Annotated[float, Meta(gt=0)]
#: Above 2, which is the most that most servers take, sampling is close to drawing tokens by chance.
Temperature = Annotated[float, Meta(ge=0, le=2)]
SamplingTemperature = Annotated[float, Meta(gt=0, le=2)]
TopP = Annotated[float, Meta(gt=0, le=1)]
LearningRate = Annotated[float, Meta(gt=0, le=1, description="a number above 0, up to 1, or auto")]
#: Names with a value each, as a command line has them, ("disruptive:3", "neutral:1"), or in Python as a dict.
Pairs = Annotated[tuple[str, ...] | Mapping[str, Any], Meta(description="a dict, or a list of NAME:VALUE")]


# Options inherit several parts: no part has slots, which Python allows to one base of a class.
class _Part:
    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)


@dataclass(frozen=True, kw_only=True)
class Length(_Part):
    """How long an answer may be, in training and evaluations.

    Attributes:
        max_tokens: longest answer that is sampled.
    """

    max_tokens: PositiveInt = 256


@dataclass(frozen=True, kw_only=True)
class BaseModel(_Part):
    """Which model is trained.

    Attributes:
        model: the base model, by name or folder.
    """

    model: Annotated[str, Meta(min_length=1)] = HISTORICAL_MODEL


@dataclass(frozen=True, kw_only=True)
class Sampling(_Part):
    """How answers are sampled in training by reward.

    Attributes:
        group_size: answers to each paper, within which rewards are centred.
        temperature: of sampling in training.
        top_p: of sampling in training, from the most probable tokens with this share.
        remove_constant_reward_groups: leave out groups whose rewards are all equal.
        dynamic_sampling: how often a group with equal rewards is first sampled again, with another paper (DAPO).
    """

    group_size: PositiveInt = 2
    temperature: SamplingTemperature = 1.0
    top_p: TopP = 1.0
    remove_constant_reward_groups: bool = False
    dynamic_sampling: Annotated[int, Meta(ge=0)] = 0


@dataclass(frozen=True, kw_only=True)
class Adapter(_Part):
    """How an adapter is trained.

    Attributes:
        learning_rate: of the optimizer, or auto: the cookbook's rule for the model.
        lora_rank: of the adapter.
    """

    learning_rate: LearningRate = field(default=4e-5, metadata={"option": LearningRate | Literal["auto"]})
    lora_rank: PositiveInt = 32


@dataclass(frozen=True, kw_only=True)
class Loss(_Part):
    """The loss of training by reward.

    Attributes:
        loss_fn: the loss.
        loss_fn_config: numbers of the loss, such as clip_low_threshold:0.8 clip_high_threshold:1.28.
        num_substeps: optimizer steps for the answers of a training step.
        kl_penalty_coef: cost of each nat by which the model leaves the reference.
        kl_reference_config: what the penalty compares with: load_checkpoint_path:PATH, weights to sample from
            (tinker://...), of base_model:NAME; empty: the base model that is trained.
        kl_discount_factor: adds the penalties of later tokens, each discounted by this.
    """

    loss_fn: LossName = "importance_sampling"
    loss_fn_config: tuple[tuple[str, float], ...] = field(default=(), metadata={"option": Pairs})
    num_substeps: PositiveInt = 1
    kl_penalty_coef: Annotated[float, Meta(ge=0)] = 0.0
    kl_reference_config: tuple[tuple[str, str], ...] = field(default=(), metadata={"option": Pairs})
    kl_discount_factor: Share = 0.0

    def __post_init__(self) -> None:
        _Part.__post_init__(self)
        known, named = LOSSES[self.loss_fn], dict(self.loss_fn_config)
        if strange := [name for name in named if name not in known]:
            takes = f"takes {' and '.join(known)}" if known else "takes no numbers"
            msg = f"loss_fn_config {strange[0]!r} has no effect: loss_fn {self.loss_fn!r} {takes}. Leave it out."
            msg += suggest(strange[0], known)
            raise SciSciRLError(msg)
        low, high = named.get(_CLIPS[0], 0.0), named.get(_CLIPS[1], float("inf"))
        if len(named) < len(self.loss_fn_config) or min(named.values(), default=0.0) < 0 or low > 1 or high < 1:
            raise SciSciRLError(
                f"loss_fn_config is {self.loss_fn_config!r}. Needs each number once, from 0; clip thresholds are "
                "ratios, with 1 between them: clip_low_threshold 0.8, clip_high_threshold 1.28."
            )
        reference = dict(self.kl_reference_config)
        if problem := find_unknown(reference, _OF_REFERENCE, where="kl_reference_config"):
            raise SciSciRLError(problem)
        path = reference.get("load_checkpoint_path")
        if path is not None and not re.match(r"tinker://[^/]+/(?!weights/).", path):
            raise SciSciRLError(
                f"kl_reference_config.load_checkpoint_path is {path!r}, needs weights to sample from, the sampler_path "
                "of a checkpoint (tinker://...). Leave it out for the base model."
            )
        if not self.kl_penalty_coef and (reference or self.kl_discount_factor):
            name = "kl_reference_config" if reference else "kl_discount_factor"
            raise SciSciRLError(
                f"{name} has no effect, because kl_penalty_coef is 0. Set kl_penalty_coef too, or leave {name} out."
            )


@dataclass(frozen=True, kw_only=True)
class Adam(_Part):
    """The optimizer of supervised runs.

    Attributes:
        adam_beta1: of the optimizer of supervised runs.
        adam_beta2: of the optimizer of supervised runs.
        adam_eps: of the optimizer of supervised runs.
    """

    adam_beta1: Beta = 0.9
    adam_beta2: Beta = 0.95
    adam_eps: Positive = 1e-8


@dataclass(frozen=True, kw_only=True)
class Optimiser(Loss, Adapter, Adam):
    """How weights change: learning rate and rank of the adapter, the loss, and Adam's numbers."""


@dataclass(frozen=True, kw_only=True)
class Judging(_Part):
    """How evaluations sample.

    Attributes:
        eval_temperature: of sampling in evaluations, 0 is greedy.
        eval_top_p: of sampling in evaluations, from the most probable tokens with this share.
        eval_group_size: answers to each held-out paper in evaluations.
    """

    eval_temperature: Temperature = 1.0
    eval_top_p: TopP = 1.0
    eval_group_size: PositiveInt = 1


Credit = Literal["both", "mean"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AdversarialRules:
    """What a challenged answer earns. RewardError if revision is above defence."""

    credit: Credit = "both"  # both: +1 if both labels are right, else -1, as published; mean: of +1 or -1 for each
    reasoning: Annotated[float, Meta(ge=0, le=0.3)] = 0.3  # the most that R_reasoning can be
    revision: Annotated[float, Meta(ge=0, le=0.2)] = 0.2  # R_adaptation of a label that was wrong, then right
    defence: Annotated[float, Meta(ge=0, le=0.2)] = 0.2  # the same, right both times

    def __post_init__(self) -> None:
        check_fields(self, RewardError)
        if self.revision > self.defence:
            raise RewardError(
                f"revision is {self.revision}, above defence {self.defence}: a wrong start would pay. Raise defence."
            )


@dataclass(frozen=True, kw_only=True)
class Preset(Length, BaseModel):
    """One experiment, whole.

    The notes publish ``max_tokens`` of exp4; its default, learning rate, rank and temperatures are ours or the
    cookbook's.

    Attributes:
        name: by which ``find_preset`` finds it.
        change: what sets it apart, in words.
        base: the preset that it changes; None: it stands alone.
        rules: labels, prompt, contract and reward.
        order: which papers come in which step.
        sampling: how answers are sampled in training.
        optimiser: how weights change.
        judging: how evaluations sample.
        adversarial: how an answer is challenged, and what it earns instead of ``rules.reward``; None: no challenge.

    Raises:
        SciSciRLError: on construction, if a value is impossible or has no effect. Or an adversarial preset has no
            reasons to challenge, or a balanced reward.

    Source: dynamic sampling and clip-higher, Yu et al. 2025, DAPO, arXiv:2503.14476; plain GRPO, Shao et al. 2024,
    DeepSeekMath, arXiv:2402.03300, and JustRL, arXiv:2512.16649; clipped importance weights, MiniMax 2025, CISPO,
    arXiv:2506.13585.

    Example:
        >>> from sciscirl.presets import PRESETS
        >>> PRESETS["exp4"].max_tokens, PRESETS["exp4"].rules.contract, PRESETS["exp4"].sampling.group_size
        (64, 'two_keys', 2)
    """

    name: str
    change: str
    base: str | None = None
    rules: TaskRules = TaskRules()  # noqa: RUF009 (frozen)
    order: Order = Order()  # noqa: RUF009 (frozen)
    sampling: Sampling = Sampling()
    optimiser: Optimiser = Optimiser()
    judging: Judging = Judging()
    adversarial: AdversarialRules | None = None

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        self._check_challenge()

    def list_settings(self) -> dict[str, Any]:
        """List every setting by its name."""
        return {name: getattr(getattr(self, PART_OF[name]) if name in PART_OF else self, name) for name in SETTINGS}

    def with_settings(self, **settings: Any) -> Preset:  # noqa: ANN401 (each part checks its own)
        """Return this preset with other values of any setting or field.

        Example:
            >>> from sciscirl.presets import PRESETS
            >>> changed = PRESETS["exp4"].with_settings(batch_size=4, contract="four_keys")
            >>> changed.order, changed.rules.contract, changed.name
            (Order(batch_size=4, seed=0, interleave=False), 'four_keys', 'exp4')
        """
        of_parts: dict[str, dict[str, Any]] = {}
        own = {name: value for name, value in settings.items() if name not in PART_OF}
        for name in settings.keys() - own:
            of_parts.setdefault(PART_OF[name], {})[name] = settings[name]
        parts = {part: replace(getattr(self, part), **values) for part, values in of_parts.items()}
        return replace(self, **parts, **own)

    def _check_challenge(self) -> None:
        if self.adversarial is None:
            return
        if isinstance(self.rules.target, OwnTarget):
            raise SciSciRLError(
                f"preset {self.name!r} challenges answers about disruption and novelty, and the task is the own label "
                f"{self.rules.target.label.name}. Choose a preset that is not adversarial."
            )
        if self.rules.contract != "four_keys" or self.rules.table.is_balanced:
            raise SciSciRLError(
                f"preset {self.name!r} is adversarial, with contract {self.rules.contract!r} and reward "
                f"{self.rules.reward!r}. Needs four_keys, for the reasons, and a reward that is not balanced."
            )
        if self.rules.is_weighed:
            raise SciSciRLError(
                f"preset {self.name!r} is adversarial, and pays by its own rules: weight has no effect. Leave it out."
            )


_PARTS: Final[Mapping[str, type]] = MappingProxyType(
    {"rules": TaskRules, "order": Order, "sampling": Sampling, "optimiser": Optimiser, "judging": Judging}
)
#: In which part of a preset each setting is.
PART_OF: Final[Mapping[str, str]] = MappingProxyType(
    {one.name: part for part, kind in _PARTS.items() for one in fields(kind)}
)
_INNER: Final = {one.name for one in fields(TaskRules)} - {one.name for one in fields(Task)}
#: Every setting of a preset by its name; what else rules hold has no name on a command line.
SETTINGS: Final = ("change", "model", "max_tokens", *(name for name in PART_OF if name not in _INNER))
