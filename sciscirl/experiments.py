"""The published runs as presets: nothing but data.

Source of the runs: the notes "Tinker, smol-RL and QDoRA", parts 1 and 2 (2026). What they do not state is marked so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final, get_args

from sciscirl.contracts import ContractName
from sciscirl.errors import SciSciRLError
from sciscirl.prompts import PromptStyle
from sciscirl.rewards import REWARDS

#: The model of the published runs, retired from Tinker on 2026-06-12.
HISTORICAL_MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRules:
    """What the model is asked, how it has to answer, and what that earns.

    Attributes:
        style: which prompt (``prompts.render_prompt``).
        contract: which keys the answer has.
        reward: a name in ``rewards.REWARDS``.
        max_paper_tokens: title and abstract are cut to this many tokens together; not published.

    Raises:
        SciSciRLError: on construction, if a value is not one of those.

    Example:
        >>> TaskRules(style="poem")
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: style is 'poem', needs one of plain, ontology, checklist.
    """

    style: PromptStyle = "plain"
    contract: ContractName = "four_keys"
    reward: str = "soft"
    max_paper_tokens: int = 1024

    def __post_init__(self) -> None:
        for name, allowed in (
            ("style", get_args(PromptStyle)),
            ("contract", get_args(ContractName)),
            ("reward", tuple(REWARDS)),
        ):
            if getattr(self, name) not in allowed:
                msg = f"{name} is {getattr(self, name)!r}, needs one of {', '.join(allowed)}."
                raise SciSciRLError(msg)
        check_positive(max_paper_tokens=self.max_paper_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """One experiment, whole.

    Attributes:
        name: what ``preset=`` on the command line takes.
        change: what sets it apart, in words.
        rules: prompt, contract and reward.
        max_tokens: an answer that is longer is cut off, and invalid. 64 is published for Exp4; 256 is ours.
        model: the base model; ``model=`` on the command line goes over it.
        batch_size: papers a step.
        group_size: answers to each paper while training; rewards are centred within these.
        eval_group_size: answers to each held-out paper.
        seed: of the order of the papers.
        learning_rate: of Adam; not published, the cookbook's value for its GRPO example.
        lora_rank: not published, the cookbook's default.
        temperature: of sampling, in training and evaluation; not published, the cookbook's default.

    Raises:
        SciSciRLError: on construction, if a number is not positive, or one that counts is not whole.

    Example:
        >>> PRESETS["exp4"].max_tokens, PRESETS["exp4"].rules.contract
        (64, 'two_keys')
    """

    name: str
    change: str
    rules: TaskRules
    max_tokens: int = 256
    model: str = HISTORICAL_MODEL
    batch_size: int = 16
    group_size: int = 2
    eval_group_size: int = 1
    seed: int = 0
    learning_rate: float = 4e-5
    lora_rank: int = 32
    temperature: float = 1.0

    def __post_init__(self) -> None:
        counts = ("max_tokens", "batch_size", "group_size", "eval_group_size", "lora_rank")
        check_positive(**{name: getattr(self, name) for name in counts})
        for name in ("learning_rate", "temperature"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
                msg = f"{name} is {value!r}, needs a number above 0."
                raise SciSciRLError(msg)


def check_positive(**values: object) -> None:
    """Refuse what is not a whole number of at least 1.

    Raises:
        SciSciRLError: if one of ``values`` is not, with its name.

    Example:
        >>> check_positive(batch_size=0)
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: batch_size is 0, needs a whole number of at least 1.
    """
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            msg = f"{name} is {value!r}, needs a whole number of at least 1."
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
#: Every experiment by name, in the order of the notes.
PRESETS: Final[Mapping[str, Preset]] = MappingProxyType({preset.name: preset for preset in _PUBLISHED})


def find_preset(name: str) -> Preset:
    """Look an experiment up.

    Raises:
        SciSciRLError: if there is none of that name.

    Example:
        >>> find_preset("exp9")
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: no preset 'exp9'. There are baseline, exp1, exp2, exp3, exp4, exp5; see --list.
    """
    if name not in PRESETS:
        msg = f"no preset {name!r}. There are {', '.join(PRESETS)}; see --list."
        raise SciSciRLError(msg)
    return PRESETS[name]


def render_presets() -> str:
    """Draw the presets as a table for a terminal, one line each.

    Example:
        >>> print(render_presets().splitlines()[0])
        name      prompt     contract   reward         max_tokens  batch x group  change
    """
    head = ("name", "prompt", "contract", "reward", "max_tokens", "batch x group", "change")
    rows = [
        (
            preset.name,
            preset.rules.style,
            preset.rules.contract,
            preset.rules.reward,
            str(preset.max_tokens),
            f"{preset.batch_size} x {preset.group_size}",
            preset.change,
        )
        for preset in PRESETS.values()
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def describe(preset: Preset) -> dict[str, object]:
    """Flatten a preset into JSON types, for the record of a run.

    Example:
        >>> describe(PRESETS["exp5"])["reward"]
        'disruptive_x3'
    """
    own = {field.name: getattr(preset, field.name) for field in fields(Preset) if field.name != "rules"}
    return own | {field.name: getattr(preset.rules, field.name) for field in fields(TaskRules)}
