"""From a judged answer to its reward, in named parts that are logged one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Final

from sciscirl.contracts import Answer
from sciscirl.errors import RewardError
from sciscirl.task import VOCABULARIES

_LABELS: Final = VOCABULARIES["disruption_label"]


def _total(*parts: float) -> float:
    # 0.05 - 0.6 is not -0.55 in binary. Rounded, totals are what the table says, and equal cases tie.
    return round(math.fsum(parts), 9)


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardTable:
    """What each case earns: R = R_parse + R_contract + R_task + R_think.

    Attributes:
        name: by which presets and logs call it.
        not_json: the parse part of an answer that is not JSON; nothing else but ``think`` is added to it.
        broken: the contract part of JSON that breaks the contract; no task part.
        kept: the contract part of a valid answer.
        correct: the task part of a valid answer with the right label, before its class weight.
        wrong: the task part of a valid answer with another label.
        think: added to any of these if the raw text ``<think>`` is anywhere in the answer.
        class_weights: pairs of gold label and factor on ``correct``; a label that is not there has 1.

    Raises:
        RewardError: on construction, if a value is not finite, a weight is not positive or its label unknown, or
            if a better case would not earn more than a worse one.
    """

    name: str
    not_json: float = -1.0
    broken: float
    kept: float
    correct: float
    wrong: float
    think: float = -1.0
    class_weights: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        numbers = [getattr(self, field.name) for field in fields(self) if field.name not in {"name", "class_weights"}]
        weights = dict(self.class_weights)
        if not all(math.isfinite(value) for value in (*numbers, *weights.values())):
            msg = f"reward table {self.name!r} holds a value that is not finite. Give numbers."
            raise RewardError(msg)
        known = len(self.class_weights) == len(set(weights) & set(_LABELS))
        if not known or min(weights.values(), default=1) <= 0:
            msg = (
                f"reward table {self.name!r} has class_weights {self.class_weights!r}, needs positive factors, one for "
                f"a label of {', '.join(_LABELS)}."
            )
            raise RewardError(msg)
        ladder = (self.not_json, self.broken, _total(self.kept, self.wrong), min(map(self.best, _LABELS)))
        if any(worse >= better for worse, better in pairwise(ladder)) or self.think > 0:
            msg = (
                f"reward table {self.name!r} pays {ladder} for not JSON, broken, wrong, correct, and {self.think} for "
                "<think>. Needs rising values, and nothing above 0 for <think>."
            )
            raise RewardError(msg)

    def best(self, gold_label: str) -> float:
        """Return the most that an answer can earn on a paper of this class."""
        return _total(self.kept, self.weighted(gold_label))

    def weighted(self, gold_label: str) -> float:
        """Return the task part of a right answer on a paper of this class."""
        return self.correct * dict(self.class_weights).get(gold_label, 1.0)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that any answer can earn."""
        return _total(self.not_json, self.think), max(map(self.best, _LABELS))


@dataclass(frozen=True, slots=True)
class RewardParts:
    """The four parts of one reward, and their sum; ``dataclasses.asdict`` makes them loggable."""

    parse: float
    contract: float
    task: float
    think: float
    total: float


_SOFT: Final = RewardTable(name="soft", broken=-0.5, kept=0.0, correct=0.75, wrong=0.0)
_STRONG: Final = RewardTable(name="strong", broken=-0.75, kept=0.05, correct=1.0, wrong=-0.6)
_DISRUPTIVE_X3: Final = replace(_STRONG, name="disruptive_x3", class_weights=(("disruptive", 3.0),))
#: The published tables. Soft: Baseline and Exp1; strong: Exp2 to Exp4; disruptive_x3: Exp5.
REWARDS: Final = {table.name: table for table in (_SOFT, _STRONG, _DISRUPTIVE_X3)}


def score_answer(answer: Answer, gold_label: str | None, table: RewardTable) -> RewardParts:
    """Reward one judged answer.

    Args:
        answer: what ``parse_answer`` returned.
        gold_label: the paper's label.
        table: one of REWARDS, or another.

    Raises:
        RewardError: if ``gold_label`` is not in the vocabulary: such a paper cannot be rewarded.

    Example:
        >>> from sciscirl.contracts import parse_answer
        >>> answer = parse_answer('{"disruption_label": "disruptive", "confidence": 0.9}', "two_keys")
        >>> score_answer(answer, "disruptive", REWARDS["disruptive_x3"])
        RewardParts(parse=0.0, contract=0.05, task=3.0, think=0.0, total=3.05)
    """
    if gold_label is None or gold_label not in _LABELS:
        msg = f"the gold label is {gold_label!r}, needs one of: {', '.join(_LABELS)}."
        raise RewardError(msg)
    parse = contract = task = 0.0
    if not answer.is_json:
        parse = table.not_json
    elif not answer.is_valid:
        contract = table.broken
    else:
        contract = table.kept
        task = table.weighted(gold_label) if answer.label == gold_label else table.wrong
    think = table.think if answer.has_think else 0.0
    return RewardParts(parse, contract, task, think, _total(parse, contract, task, think))
