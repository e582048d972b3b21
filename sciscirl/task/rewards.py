"""The rewards: what a judged answer earns, in named parts that are logged one by one.

A reward of your own needs no change here: call ``register_reward``, write the table ``[reward]`` into a preset file, or
give options like ``reward_wrong``. Challenged answers are paid in ``lab/adversarial/rewards.py``.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import pickle
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, Final, cast

from msgspec import Meta

from sciscidata.options.checks import Hint, check_value, field_hints
from sciscidata.options.did_you_mean import find_unknown, suggest
from sciscirl.errors import ReleaseError, RewardError, SciSciRLError
from sciscirl.task.contracts import Answer
from sciscirl.task.papers import VOCABULARIES, OwnTarget, Paper, Target, list_labels, name_gold
from sciscirl.task.registry import add_entry

_LABELS: Final = tuple(label for vocabulary in VOCABULARIES.values() for label in vocabulary)
#: Pairs of labels that are nearly right: balanced lies between novel and conventional. Disruption has no such middle,
#: because neutral is a third kind of mark and not half of each.
ADJACENT: Final = frozenset(
    {("novel", "balanced"), ("balanced", "novel"), ("conventional", "balanced"), ("balanced", "conventional")}
)
#: The largest factor on a label's task part. The natural shares of labels, 12.5 % at least, need 2.7.
MAX_WEIGHT: Final = 10


def _total(*parts: float) -> float:
    # 0.05 - 0.6 is not -0.55 in binary. Rounded, totals are what the table says, and equal cases tie.
    return round(math.fsum(parts), 9)


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A function of answer and paper, known by its name and its source's SHA-256. It pickles by value if need be."""

    call: Callable[[Answer, Paper], float] = field(compare=False, repr=False)
    name: str
    sha256: str

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle  # comes with the cookbook

        return _unpickle, (cloudpickle.dumps(self.call), self.name, self.sha256)


def _unpickle(call: bytes, name: str, sha256: str) -> RewardFunction:
    return RewardFunction(pickle.loads(call), name, sha256)


def name_source(function: Callable[..., Any], error: type[SciSciRLError]) -> tuple[str, str]:
    """Return the name of a function, and the SHA-256 of its source (``error``: it cannot be read)."""
    try:
        return function.__name__, hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
    except (OSError, TypeError, AttributeError) as cause:
        raise error(f"function is {function!r}, whose source cannot be read. Define it in a file.") from cause


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardTable:
    """What each case earns: R = R_parse + R_contract + R_task + R_think.

    The task part of one label is ``wrong + s * (correct - wrong)``. A label alone has s = 1 if it is right, else 0. A
    forecast p has the quadratic score ``s = 1 - sum((p - y)**2) / 2``; y is 1 for the gold label and 0 for others. A
    certain forecast scores as its label would, and an honest forecast scores highest on average. For two labels the
    task part is the mean.

    A balanced table multiplies the task part of a paper by ``1 / (K * share)``. K is the number of labels, ``share``
    that of its label in the training split. So every constant answer earns ``kept + correct / K + wrong * (K - 1) / K``
    on average. A constant forecast earns more, the nearer it is to the normed product of weights and shares. That is
    uniform.

    A function returns the task part of a valid answer to the paper, from ``wrong`` to ``correct``. It may use the
    labels and scores of the paper (``paper.gold``), which no prompt shows.

    The batch term is ``-share_penalty * (share of the label among recent answers - its share in the training split)``,
    see ``batch_term.batch_term``. RewardError if a value is not finite, or a weight is not positive or has an
    unknown label. It is also raised if a better case would not earn more than a worse one.

    Source: quadratic score, Brier 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2; Gneiting & Raftery 2007,
    doi:10.1198/016214506000001437.
    """

    name: str
    not_json: float = -1.0  # the parse part of an answer that is not JSON; only think is added to it
    broken: float  # the contract part of JSON that breaks the contract; it has no task part
    kept: float  # the contract part of a valid answer
    correct: float  # the task part of a valid answer with the right label, before weights
    wrong: float  # the task part of a valid answer with another label
    adjacent: float | None = None  # the same, if that label is ADJACENT to the right one; None: wrong
    think: float = -1.0  # added to any case if the raw text <think> is anywhere in the answer
    class_weights: tuple[tuple[str, float], ...] = ()  # gold label and factor on correct; a label without a pair has 1
    is_balanced: bool = False
    gold_weights: tuple[tuple[str, float], ...] = ()  # gold label and factor on the whole task part, set by balance
    labels: tuple[str, ...] = _LABELS  # what a gold label may be; those of an own label are set by balance
    share_penalty: float = 0.0
    function: RewardFunction | None = None

    def __post_init__(self) -> None:
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        numbers = [value for value in own.values() if isinstance(value, (int, float))]
        numbers += [value for _, value in (*self.class_weights, *self.gold_weights)]
        if not all(map(math.isfinite, numbers)):
            raise RewardError(f"reward table {self.name!r} holds a value that is not finite. Give numbers.")
        for name in ("class_weights", "gold_weights"):
            pairs = dict(own[name])
            if len(own[name]) != len(set(pairs) & set(self.labels)) or min(pairs.values(), default=1) <= 0:
                said = ", ".join(f"{label}:{value:g}" for label, value in own[name])
                near = "".join(suggest(label, self.labels) for label in pairs if label not in self.labels)
                raise RewardError(
                    f"{name} is {said}, needs positive factors, at most one for each of {', '.join(self.labels)}.{near}"
                )
        if self.gold_weights and not self.is_balanced:
            raise RewardError(
                f"reward table {self.name!r} has gold_weights but is not balanced. Set is_balanced, or drop them."
            )
        if self.is_balanced and (self.adjacent is not None or self.class_weights):
            raise RewardError(
                f"reward table {self.name!r} is balanced and has adjacent or class_weights: constant answers would no "
                "longer earn the same. Leave adjacent and class_weights out."
            )
        if self.function is not None and (self.is_balanced or self.adjacent is not None or self.class_weights):
            raise RewardError(
                f"reward {self.name!r} is a function, which alone says what a label earns. Leave is_balanced, adjacent "
                "and class_weights out."
            )
        for label in self.labels:
            self._check_ladder(label)

    def _check_ladder(self, label: str) -> None:
        between = () if self.adjacent is None else (self._paid(label, self.adjacent),)
        worst = _total(self._paid(label, self.wrong), -self.share_penalty)
        ladder = (self.not_json, self.broken, worst, *between, self.best(label))
        if any(worse >= better for worse, better in pairwise(ladder)) or self.think > 0 or self.share_penalty < 0:
            raise RewardError(
                f"reward table {self.name!r} pays {ladder} for not JSON, broken, wrong, correct ({label}), "
                f"{self.think} for <think>, and has share_penalty {self.share_penalty}. Needs rising values, nothing "
                "above 0 for <think>, and a penalty from 0."
            )

    def _paid(self, label: str, task: float) -> float:
        return _total(self.kept, dict(self.gold_weights).get(label, 1.0) * task)

    def best(self, *gold_labels: str) -> float:
        """Return the most that an answer can earn on a paper of this label, or these two, without batch term."""
        return _total(self.kept, math.fsum(self.task_part(gold, 1.0) for gold in gold_labels) / len(gold_labels))

    def task_part(self, gold_label: str, score: float) -> float:
        """Return the task part of an answer with quadratic score ``score`` (0 to 1) on a paper of this label."""
        correct = self.correct * dict(self.class_weights).get(gold_label, 1.0)
        return dict(self.gold_weights).get(gold_label, 1.0) * math.fsum((score * correct, (1 - score) * self.wrong))

    def ask_function(self, answer: Answer, paper: Paper | None) -> float:
        """Return what the function of this reward says, checked."""
        if self.function is None or paper is None:
            raise RewardError(f"reward {self.name!r} is a function of the paper. Score answers with TaskRules.score.")
        try:
            value: Any = self.function.call(answer, paper)
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            raise RewardError(
                f"reward {self.name!r} failed on {paper.openalex_id} in line {line} ({type(error).__name__}: {error}). "
                f"Mend it: it gets an answer and a paper, whose scores are {', '.join(paper.gold.scores)}."
            ) from error
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.wrong <= value <= self.correct:
            raise RewardError(
                f"reward {self.name!r} returned {value!r} for {paper.openalex_id}, needs a number from {self.wrong} to "
                f"{self.correct}. Mend it, or state its range as wrong and correct."
            )
        return float(value)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that any answer can earn, without batch term."""
        return _total(self.not_json, self.think), max(map(self.best, self.labels))


@dataclass(frozen=True, slots=True)
class RewardParts:
    """The four parts of one reward, and their sum. ``tasks`` holds the task part of each label column."""

    parse: float
    contract: float
    task: float
    think: float
    total: float
    tasks: Mapping[str, float] = field(default_factory=dict[str, float], repr=False)

    def named(self) -> dict[str, float]:
        """Return the four parts and their total by name, for a log."""
        return {name: getattr(self, name) for name in ("parse", "contract", "task", "think", "total")}


_SOFT: Final = RewardTable(name="soft", broken=-0.5, kept=0.0, correct=0.75, wrong=0.0)
_STRONG: Final = RewardTable(name="strong", broken=-0.75, kept=0.05, correct=1.0, wrong=-0.6)
_BALANCED: Final = RewardTable(name="balanced", broken=-0.75, kept=0.05, correct=1.0, wrong=0.0, is_balanced=True)
_REWARDS: Final = {
    table.name: table
    for table in (
        _SOFT,
        _STRONG,
        replace(_STRONG, name="disruptive_x3", class_weights=(("disruptive", 3.0),)),
        replace(_STRONG, name="partial", wrong=0.0, adjacent=0.2),
        _BALANCED,
        replace(_BALANCED, name="balanced_shares", share_penalty=0.5),
    )
}
#: Every reward by name. Published: soft (Baseline, Exp1), strong (Exp2 to Exp4), disruptive_x3 (Exp5), partial (the
#: novelty and joint tasks). The others are ours. Those of ``register_reward`` follow.
REWARDS: Final[Mapping[str, RewardTable]] = MappingProxyType(_REWARDS)
#: The rewards that every process knows by their name.
BUILT_IN: Final = frozenset(_REWARDS)
#: What a reward of one's own may set; the other fields follow from where it is used.
NUMBERS: Final = tuple(
    one.name for one in fields(RewardTable) if one.name not in {"name", "gold_weights", "labels", "function"}
)


def find_reward(name: str) -> RewardTable:
    """Return the reward of a name."""
    if name not in REWARDS:
        raise RewardError(
            f"reward is {name!r}, needs one of {', '.join(REWARDS)}.{suggest(name, REWARDS)} For one of your own, give "
            "its file too: plugin=FILE.py."
        )
    return REWARDS[name]


def change_reward(
    table: RewardTable, numbers: Mapping[str, Any], name: str | None = None, target: Target | None = None
) -> RewardTable:
    """Return a table with other numbers, checked; without a name it is named after its changes.

    Example:
        >>> change_reward(REWARDS["strong"], {"wrong": -0.3, "class_weights": {"disruptive": 3}}).name
        'strong(wrong=-0.3, class_weights=disruptive:3)'
    """
    if msg := find_unknown(numbers, NUMBERS, where="a reward", what="number"):
        raise RewardError(msg)
    hints, changes = field_hints(RewardTable), dict[str, Any]()
    for key, value in numbers.items():
        pairs = tuple(cast("Mapping[str, Any]", value).items()) if isinstance(value, Mapping) else value
        changes[key] = check_value(f"reward {key}", pairs, hints[key], RewardError)
    if name is None:
        changed = {key: value for key, value in changes.items() if value != getattr(table, key)}
        said = ", ".join(f"{key}={_say(value)}" for key, value in changed.items())
        name = f"{table.name}({said})" if changed else table.name
    if isinstance(target, OwnTarget):
        changes["labels"] = target.label.classes
    return replace(table, name=name, **changes)


def _say(value: float | bool | tuple[tuple[str, float], ...] | None) -> str:
    return "+".join(f"{name}:{one:g}" for name, one in value) if isinstance(value, tuple) else f"{value}"


def register_reward(
    name: str,
    *,
    base: str = "strong",
    function: Callable[[Answer, Paper], float] | None = None,
    **numbers: Any,  # noqa: ANN401 (checked)
) -> RewardTable:
    """Add a reward of your own to REWARDS, for this process. Runs record it whole, a function by its source's SHA-256.

    Args:
        name: by which presets and options name it.
        base: the reward whose numbers it has where no other is given.
        function: says what a valid answer to a paper earns, from ``wrong`` to ``correct``. A run first tries it on some
            papers: the right label must earn more than any other.
        numbers: ``not_json``, ``broken``, ``kept``, ``correct``, ``wrong``, ``adjacent``, ``think``, ``class_weights``,
            ``is_balanced``, ``share_penalty``, as in the published tables.

    Raises:
        RewardError: the name is taken by another reward, or a number is unknown. Or a better answer would not earn more
            than a worse one.

    Example:
        >>> register_reward("mild", base="strong", wrong=-0.2).best("neutral")
        1.05
    """
    table = change_reward(find_reward(base), numbers, name)
    if function is not None:
        table = replace(table, function=RewardFunction(function, *name_source(function, RewardError)))
    add_entry(_REWARDS, name, table, "reward", RewardError)
    return table


def balance(table: RewardTable, counts: Iterable[tuple[str, int]], target: Target | None = None) -> RewardTable:
    """Weight a balanced table by the counts of each label in a training split (``papers.count_labels``).

    RewardError if a label has less than 1/MAX_WEIGHT of an even share. A few papers would count like all others.
    """
    known, vocabularies = dict(counts), VOCABULARIES if target is None else list_labels(target)
    weights: list[tuple[str, float]] = []
    for vocabulary in vocabularies.values():
        held = [known[label] for label in vocabulary if label in known]
        needed = max(1, math.ceil(sum(held) / (len(vocabulary) * MAX_WEIGHT)))
        if held and (len(held) < len(vocabulary) or min(held) < needed):
            raise RewardError(
                f"the training split has {known} papers, reward {table.name!r} needs at least {needed:,} of each "
                f"label. With fewer, one right answer would earn more than {MAX_WEIGHT} times what it does with equal "
                "class counts. Build a release balanced by this label, or choose another reward."
            )
        weights += [(label, sum(held) / (len(held) * known[label])) for label in vocabulary if held]
    labels = _LABELS if target is None else tuple(label for vocabulary in vocabularies.values() for label in vocabulary)
    return replace(table, gold_weights=tuple(weights), labels=labels)


_ANSWER: Final = Hint(Annotated[Answer, Meta(description="an Answer: rules.parse(text)")])


def score_answer(
    answer: Answer,
    gold: str | Mapping[str, str] | None,
    table: RewardTable,
    weights: Mapping[str, float] = MappingProxyType({}),
    paper: Paper | None = None,
) -> RewardParts:
    """Reward one judged answer.

    Args:
        answer: from ``parse_answer``.
        gold: the paper's label, or one for each label column (``Paper.labels``).
        table: what each case earns, for example ``TaskRules.table``.
        weights: how much each label counts (``TaskRules.weigh``). The task part is the sum of what the answer would
            earn with each label, times its weight. With the chances of the labels it is what the answer earns on
            average if the work is cited anew. For a forecast this is the quadratic score against the chances, minus the
            same amount for all answers. Empty: the gold label counts whole.
        paper: what a reward that is a function sees.

    Raises:
        RewardError: there is no such answer or gold label, or a balanced table has no weight for the label.

    Example:
        >>> from sciscirl.task.contracts import parse_answer
        >>> answer = parse_answer('{"disruption_label": "disruptive", "confidence": 0.9}', "two_keys")
        >>> score_answer(answer, "disruptive", REWARDS["disruptive_x3"])
        RewardParts(parse=0.0, contract=0.05, task=3.0, think=0.0, total=3.05)
        >>> answer = parse_answer('{"disruptive": 0.5, "consolidating": 0, "neutral": 0.5}', "probabilities")
        >>> score_answer(answer, "disruptive", REWARDS["strong"])  # a tie names no label
        RewardParts(parse=0.0, contract=-0.75, task=0.0, think=0.0, total=-0.75)
        >>> answer = parse_answer('{"disruptive": 0.5, "consolidating": 0.1, "neutral": 0.4}', "probabilities")
        >>> score_answer(answer, "disruptive", REWARDS["strong"]).task  # score 1 - (0.25 + 0.01 + 0.16) / 2
        0.664
        >>> answer = parse_answer('{"disruption_label": "neutral", "confidence": 0.9}', "two_keys")
        >>> score_answer(answer, "disruptive", REWARDS["strong"], {"disruptive": 0.7, "neutral": 0.3}).task  # not -0.6
        -0.12
    """
    check_value("answer", answer, _ANSWER, RewardError)
    try:
        golds = name_gold(gold, answer.target)
    except ReleaseError as error:
        raise RewardError(f"the answer cannot be scored: {error}") from error
    if table.is_balanced and not set(golds.values()) <= {label for label, _ in table.gold_weights}:
        raise RewardError(
            f"reward {table.name!r} is balanced and has no weight for {', '.join(golds.values())}. Give it the class "
            "counts of the training split: TaskRules.fitted(papers), or balance(table, counts)."
        )
    parse = contract = task = 0.0
    tasks: dict[str, float] = {}
    if not answer.is_json:
        parse = table.not_json
    elif not answer.is_valid:
        contract = table.broken
    elif table.function is not None:
        contract, task = table.kept, table.ask_function(answer, paper)
        tasks = dict.fromkeys(golds, task)
    else:
        contract = table.kept
        tasks = {
            column: _total(*(n * _task_part(answer, column, one, table) for one, n in (weights or {label: 1}).items()))
            for column, label in golds.items()
        }
        task = _total(math.fsum(tasks.values()) / len(tasks))
    think = table.think if answer.has_think else 0.0
    return RewardParts(parse, contract, task, think, _total(parse, contract, task, think), tasks)


def _task_part(answer: Answer, column: str, gold: str, table: RewardTable) -> float:
    said = answer.labels[column]
    if answer.forecast:
        return _total(table.task_part(gold, 1 - quadratic_loss(answer.forecast, column, gold)))
    if table.adjacent is not None and (said, gold) in ADJACENT:
        return table.adjacent
    return _total(table.task_part(gold, float(said == gold)))


def quadratic_loss(forecast: Mapping[str, float], column: str, gold: str) -> float:
    """Return half the squared distance of a forecast from the truth: 0 if certain and right, 1 if certain and wrong."""
    # The forecast of an own label has its classes and no others; a label that was not asked for has no chance.
    labels = VOCABULARIES.get(column, forecast)
    return math.fsum((forecast.get(label, 0.0) - (label == gold)) ** 2 for label in labels) / 2
