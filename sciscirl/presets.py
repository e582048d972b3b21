"""Presets: the published experiments and our own, each a named set of options.

Source of baseline to exp5, novelty, joint and adversarial: the notes "Tinker, smol-RL and QDoRA", parts 1 and 2 (2026).
Values that the notes do not state are marked. The other presets are ours.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Annotated, Final

from msgspec import Meta

from sciscidata._support.terminal import align_columns
from sciscidata._support.validate import PositiveInt, check_fields
from sciscirl.errors import SciSciRLError
from sciscirl.task.adversarial_rewards import AdversarialRules
from sciscirl.task.papers import OwnTarget
from sciscirl.task.rules import TaskRules

#: The model of the published runs, retired from Tinker on 2026-06-12.
HISTORICAL_MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
#: A model of about the same size that Tinker offered in November 2026.
CURRENT_MODEL: Final = "Qwen/Qwen3-8B"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """One experiment, whole.

    Attributes:
        name: by which ``find_preset`` finds it.
        change: what sets it apart, in words.
        rules: labels, prompt, contract and reward.
        max_tokens: longest answer; a longer one is cut off and invalid. 64 is published for exp4, 256 is ours.
        model: the base model.
        batch_size: papers in a step.
        group_size: answers to each paper in training; rewards are centred within them.
        eval_group_size: answers to each held-out paper.
        seed: of the order of the papers.
        learning_rate: of Adam; not published, the cookbook's value for its GRPO example.
        lora_rank: not published, the cookbook's default.
        temperature: of sampling, in training and evaluation; not published, the cookbook's default.
        interleave: spread each class evenly over the batches.
        remove_constant_reward_groups: leave out groups whose rewards are all equal; they teach nothing.
        dynamic_sampling: how often a group with equal rewards is first sampled again, each time with another training
            paper of its class.
        adversarial: how an answer is challenged, and what it earns instead of ``rules.reward``; None: no challenge.

    Raises:
        SciSciRLError: on construction, if a value is impossible, or an adversarial preset has no reasons to challenge
            or a balanced reward.

    Source: dynamic sampling, Yu et al. 2025, DAPO, arXiv:2503.14476.

    Example:
        >>> PRESETS["exp4"].max_tokens, PRESETS["exp4"].rules.contract
        (64, 'two_keys')
    """

    name: str
    change: str
    rules: TaskRules
    max_tokens: PositiveInt = 256
    model: Annotated[str, Meta(min_length=1)] = HISTORICAL_MODEL
    batch_size: PositiveInt = 16
    group_size: PositiveInt = 2
    eval_group_size: PositiveInt = 1
    seed: int = 0
    learning_rate: Annotated[float, Meta(gt=0)] = 4e-5
    lora_rank: PositiveInt = 32
    temperature: Annotated[float, Meta(gt=0)] = 1.0
    interleave: bool = False
    remove_constant_reward_groups: bool = False
    dynamic_sampling: Annotated[int, Meta(ge=0)] = 0
    adversarial: AdversarialRules | None = None

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        if self.adversarial is not None and isinstance(self.rules.target, OwnTarget):
            msg = (
                f"preset {self.name!r} challenges answers about disruption and novelty, and the task is the own label "
                f"{self.rules.target.label.name}. Choose a preset that is not adversarial."
            )
            raise SciSciRLError(msg)
        if self.adversarial is not None and (self.rules.contract != "four_keys" or self.rules.table.is_balanced):
            msg = (
                f"preset {self.name!r} is adversarial, with contract {self.rules.contract!r} and reward "
                f"{self.rules.reward!r}. Needs four_keys, for the reasons, and a reward that is not balanced."
            )
            raise SciSciRLError(msg)


_PUBLISHED: Final = (
    Preset(name="baseline", change="four keys, soft reward", rules=TaskRules()),
    Preset(name="exp1", change="+ the three labels' definitions in the prompt", rules=TaskRules(style="ontology")),
    Preset(name="exp2", change="+ strong reward", rules=TaskRules(style="ontology", reward="strong")),
    Preset(
        name="exp3",
        change="+ decision checklist and mini examples",
        rules=TaskRules(style="checklist", reward="strong"),
    ),
    Preset(
        name="exp4",
        change="+ two keys, at most 64 tokens",
        rules=TaskRules(style="checklist", contract="two_keys", reward="strong"),
        max_tokens=64,
    ),
    Preset(
        name="exp5",
        change="exp4, correct disruptive counts three times",
        rules=TaskRules(style="checklist", contract="two_keys", reward="disruptive_x3"),
        max_tokens=64,
    ),
)
_EXP6: Final = Preset(
    name="exp6",
    change="exp4, constant answers earn the same, labels said too often cost; classes interleaved",
    rules=TaskRules(style="checklist", contract="two_keys", reward="balanced_shares"),
    max_tokens=64,
    model=CURRENT_MODEL,
    interleave=True,
)
_EXP7: Final = replace(
    _EXP6,
    name="exp7",
    change="exp6 without the cost of labels said too often",
    rules=replace(_EXP6.rules, reward="balanced"),
)
_NOVELTY: Final = TaskRules(target="novelty", style="checklist", contract="two_keys", reward="partial")
_ADVERSARIAL: Final = replace(
    _EXP6,
    name="adversarial",
    change="both labels, challenged, defended or revised",
    rules=TaskRules(target="joint", style="ontology", contract="four_keys", reward="partial"),
    max_tokens=256,
    group_size=4,
    adversarial=AdversarialRules(),
)
_OURS: Final = (
    _EXP6,
    _EXP7,
    replace(
        _EXP7,
        name="exp8",
        change="exp7, three probabilities, quadratic score",
        rules=replace(_EXP7.rules, contract="probabilities"),
    ),
    replace(
        _EXP7,
        name="exp9",
        change="exp7, constant groups sampled again up to 3 times, then left out",
        remove_constant_reward_groups=True,
        dynamic_sampling=3,
    ),
    replace(_EXP6, name="novelty", change="novelty, 0.2 for the adjacent label", rules=_NOVELTY),
    replace(
        _EXP6,
        name="joint",
        change="disruption and novelty, mean of both",
        rules=replace(_NOVELTY, target="joint"),
    ),
    replace(
        _EXP6,
        name="joint_balanced",
        change="joint, six probabilities, every constant label earns the same",
        rules=replace(_NOVELTY, target="joint", contract="probabilities", reward="balanced"),
        max_tokens=96,
    ),
    _ADVERSARIAL,
    replace(
        _ADVERSARIAL,
        name="adversarial_mean",
        change="adversarial, half of the correctness for each label",
        adversarial=AdversarialRules(credit="mean"),
    ),
    replace(
        _ADVERSARIAL,
        name="adversarial_disruption",
        change="adversarial, disruption alone",
        rules=replace(_ADVERSARIAL.rules, target="disruption"),
    ),
)
#: Every experiment by name, in the order of the notes, then ours.
PRESETS: Final[Mapping[str, Preset]] = MappingProxyType({preset.name: preset for preset in (*_PUBLISHED, *_OURS)})


def find_preset(name: str) -> Preset:
    """Return the preset of a name.

    Raises:
        SciSciRLError: if no preset has that name.

    Example:
        >>> find_preset("exp44")
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: no preset 'exp44'. Did you mean exp4? Presets are baseline, exp1, exp2, exp3, ...
    """
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, 1)
        guess = f" Did you mean {close[0]}?" if close else ""
        msg = f"no preset {name!r}.{guess} Presets are {', '.join(PRESETS)}."
        raise SciSciRLError(msg)
    return PRESETS[name]


def choose_opponents(preset: Preset, challenger: str | None, judge: str | None) -> AdversarialRules | None:
    """Return a preset's adversarial rules, with the given challenger or judge (SciSciRLError if it has no rules).

    Example:
        >>> choose_opponents(find_preset("adversarial"), "Qwen/Qwen3-8B", None).challenger
        'Qwen/Qwen3-8B'
    """
    given = {name: who for name, who in (("challenger", challenger), ("judge", judge)) if who is not None}
    if given and preset.adversarial is None:
        msg = f"preset {preset.name!r} has no {' and no '.join(given)}. Leave it out, or choose preset=adversarial."
        raise SciSciRLError(msg)
    return None if preset.adversarial is None else replace(preset.adversarial, **given)


def render_presets() -> str:
    """Write the presets as a table for a terminal, one line each.

    Example:
        >>> print(render_presets().splitlines()[0])
        name            labels      prompt     contract       reward           max_tokens  batch x group  change
    """
    head = ("name", "labels", "prompt", "contract", "reward", "max_tokens", "batch x group", "change")
    rows = [
        (
            preset.name,
            preset.rules.target,
            preset.rules.style,
            preset.rules.contract,
            preset.rules.reward if preset.adversarial is None else "adversarial",
            str(preset.max_tokens),
            f"{preset.batch_size} x {preset.group_size}",
            preset.change,
        )
        for preset in PRESETS.values()
    ]
    return "\n".join(align_columns([head, *rows]))


def describe(preset: Preset) -> dict[str, object]:
    """Return a preset in JSON types, flat, for the record of a run; without class counts, which the release decides.

    Example:
        >>> describe(PRESETS["exp5"])["reward"]
        'disruptive_x3'
    """
    own = {field.name: getattr(preset, field.name) for field in fields(Preset)}
    rules = {field.name: getattr(preset.rules, field.name) for field in fields(TaskRules)}
    left_out = {"rules", "class_counts", "adversarial"}
    flat: dict[str, object] = {name: value for name, value in (own | rules).items() if name not in left_out}
    target = preset.rules.target
    if isinstance(target, OwnTarget):  # so that a run is read without its release
        flat |= {"target": str(target), "own_label": json.loads(target.to_json())}
    return flat if preset.adversarial is None else flat | {"adversarial": asdict(preset.adversarial)}
