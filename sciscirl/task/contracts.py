"""What an answer must look like: one JSON object with exactly the keys of its contract.

The verdict depends on the text alone. Reading never raises, and takes time linear in the text. It gives the same
verdict at any depth of the call stack.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from sciscirl.task.papers import Target, list_labels, name_gold

JsonProblem = Literal["", "not_json", "nested_too_deep", "duplicate_key"]
#: RFC 8259 lets a reader limit depth. A fixed limit is the same everywhere, unlike Python's stack.
MAX_DEPTH: Final = 32
ContractName = Literal["four_keys", "two_keys", "probabilities"]
CONTRACTS: Final[tuple[ContractName, ...]] = get_args(ContractName)
Problem = (
    JsonProblem
    | Literal[
        "not_an_object",
        "wrong_keys",
        "bad_label",
        "bad_justification",
        "bad_signals",
        "bad_confidence",
        "bad_probability",
        "bad_sum",
        "tie",  # several labels are the most probable, so the answer names none
        "cut_off",  # known to the sampler only: the text alone cannot show it
    ]
)
THINK: Final = "<think>"
#: What OpenAI's API, Tinker and Inspect call it if an answer did not end by itself.
_CUT_OFF: Final = frozenset({"length", "max_tokens", "model_length", "content_filter", "abort"})
#: How far the sum of probabilities may be from 1. Thirds may be written with three digits (0.333), not with two. An
#: answer gains nothing inside the tolerance, because forecasts are divided by their sum.
SUM_TOLERANCE: Final = 1e-3

# Possessive, and with the end optional: what was scanned is consumed, found or not, so that time stays linear. Of
# objects one in another, group 1 has the innermost, to which group 2 is the end.
_STRING: Final = r'"(?:[^"\\]|\\.)*+"?'
_BRACKETS: Final = re.compile(rf"{_STRING}|([\[{{])|([\]}}])", re.DOTALL)
_FLAT_OBJECT: Final = re.compile(rf'(?:(\{{(?:{_STRING}|[^{{"}}])*+))++(\}}?)', re.DOTALL)


def read_json(text: str) -> tuple[Any, JsonProblem]:
    """Read one JSON value by RFC 8259, or None and the problem, such as a repeated key. Numbers are floats."""
    if not is_utf8(text):
        return None, "not_json"
    if _is_too_deep(text):
        return None, "nested_too_deep"
    has_repeats = False

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal has_repeats
        whole = dict(pairs)
        has_repeats |= len(whole) < len(pairs)
        return whole

    try:
        # As floats, numbers of any length are read in linear time and without Python's limit on digits.
        value = json.loads(text, object_pairs_hook=read_object, parse_int=float, parse_constant=_refuse_constant)
    except ValueError:
        return None, "not_json"
    return (None, "duplicate_key") if has_repeats else (value, "")


def is_utf8(text: str) -> bool:
    """Say whether a text can be encoded: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _is_too_deep(text: str) -> bool:
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += match.lastindex == 1
        depth -= match.lastindex == 2
        if depth > MAX_DEPTH:
            return True
    return False


class Reasons(NamedTuple):
    """What an answer says for its label, under ``four_keys``."""

    label_justification: str = "Stated by the citation record."
    evidence_signals: Sequence[str] = ("citation record",)


def contract_keys(contract: ContractName, target: Target = "disruption") -> tuple[str, ...]:
    """Return the keys of a contract, in the order in which prompts show them.

    In the joint task ``four_keys`` and ``two_keys`` have one more label key, and ``probabilities`` has six labels.
    """
    columns = list_labels(target)
    if contract == "probabilities":
        return tuple(label for labels in columns.values() for label in labels)
    return (*columns, *(Reasons._fields if contract == "four_keys" else ()), "confidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The verdict on one model output. Labels, forecast and confidence are empty or None unless it is valid.

    Under ``probabilities``, ``forecast`` has the probability of each label name, adding up to 1 for each label column.
    ``confidence`` is that of the label; for two labels the product. A lenient reader finds ``tolerant_labels`` in JSON
    objects inside the text, where these agree. They are reported, never rewarded.
    """

    target: Target = "disruption"
    labels: Mapping[str, str]  # by label column
    forecast: Mapping[str, float]
    confidence: float | None  # 0 to 1
    is_json: bool  # the whole text is one JSON value (RFC 8259) of any type
    is_valid: bool  # it also keeps the contract
    tolerant_labels: Mapping[str, str]
    tolerant_confidence: float | None  # in the same object, if it is a number from 0 to 1
    has_think: bool  # the raw text <think> is anywhere in the output
    problem: Problem  # the first reason why the output is not valid, "" if it is

    @property
    def label(self) -> str | None:
        """The label of a valid answer (the first of two), else None."""
        return next(iter(self.labels.values()), None)

    @property
    def tolerant_label(self) -> str | None:
        """The label that a lenient reader finds (the first of two), else None."""
        return next(iter(self.tolerant_labels.values()), None)


def parse_answer(text: str, contract: ContractName, target: Target = "disruption") -> Answer:
    """Judge one model output, as sampled and with its thinking, by its contract. Never raises.

    A valid answer is one JSON object with exactly the keys of the contract, each once:

    - a label is one of its vocabulary, to the letter;
    - ``confidence`` and each probability is a JSON number from 0 to 1 (not true, "0.9" or NaN);
    - ``label_justification`` is a string and ``evidence_signals`` an array of one or more strings, all with visible
      text;
    - the probabilities of a vocabulary add up to 1 within SUM_TOLERANCE, and one is above the others. Its label is the
      answer. If several tie at the top, the model named no label, and choosing one would answer in its place.

    Only JSON's own white space may stand before and after the object: no code fence, byte order mark or remark.
    ``<think>`` inside a string keeps the contract; the reward has a term of its own for it.

    Example:
        >>> answer = parse_answer('{"disruption_label": "neutral", "confidence": 0.6}', "two_keys")
        >>> answer.is_valid, answer.label, answer.confidence
        (True, 'neutral', 0.6)
        >>> answer = parse_answer('Sure: {"disruption_label": "neutral", "confidence": 0.6}', "two_keys")
        >>> answer.is_json, answer.label, answer.problem, answer.tolerant_label
        (False, None, 'not_json', 'neutral')
        >>> answer = parse_answer('{"novel": 0.75, "balanced": 0, "conventional": 0.25}', "probabilities", "novelty")
        >>> answer.label, answer.confidence, answer.forecast["balanced"]
        ('novel', 0.75, 0.0)
        >>> parse_answer('{"novel": 0.5, "balanced": 0, "conventional": 0.5}', "probabilities", "novelty").problem
        'tie'
    """
    value, problem = read_json(text)
    found = problem or _find_problem(value, contract, target)
    tolerant_labels, tolerant_confidence = _read_tolerantly(text, contract, target)
    labels, forecast, confidence = ({}, {}, None) if found else _read(value, contract, target)
    return Answer(
        target=target,
        labels=labels,
        forecast=forecast,
        confidence=confidence,
        is_json=problem in {"", "duplicate_key"},
        is_valid=not found,
        tolerant_labels=tolerant_labels,
        tolerant_confidence=tolerant_confidence,
        has_think=THINK in text,
        problem=found,
    )


def is_cut_off(stop_reason: object) -> bool:
    """Say whether an answer was cut off, by the reason that its server gives; None, of many a server, is no reason."""
    return stop_reason in _CUT_OFF


def void(answer: Answer) -> Answer:
    """Make an answer that was cut off invalid, even if its text is complete so far."""
    return replace(answer, labels={}, forecast={}, confidence=None, is_valid=False, problem="cut_off")


def render_answer(
    labels: str | Mapping[str, str],
    contract: ContractName,
    target: Target = "disruption",
    *,
    confidence: float = 1.0,
    reasons: Reasons = Reasons(),  # noqa: B008 (a tuple)
) -> str:
    """Write a valid answer, in the one form that prompts show and supervised targets have.

    Under ``probabilities``, ``confidence`` is that of each label, rounded to four digits; the others share the rest.
    Unless it is above 1 divided by the number of labels, the labels tie and the answer is not valid.
    """
    gold = name_gold(labels, target)
    values: dict[str, Any] = {**gold, **reasons._asdict(), "confidence": confidence}
    for column, label in gold.items():
        vocabulary = list_labels(target)[column]
        rest = (1 - confidence) / (len(vocabulary) - 1)
        values |= {name: round(confidence if name == label else rest, 4) for name in vocabulary}
    return json.dumps({key: values[key] for key in contract_keys(contract, target)}, ensure_ascii=False)


def _is_words(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_utf8(value)


def _is_share(value: object) -> bool:
    return isinstance(value, float) and 0.0 <= value <= 1.0


def _find_problem(value: Any, contract: ContractName, target: Target) -> Problem:  # noqa: ANN401 (JSON)
    if not isinstance(value, dict):
        return "not_an_object"
    fields = cast("dict[str, Any]", value)
    keys = contract_keys(contract, target)
    if set(fields) != set(keys):
        return "wrong_keys"
    for key in keys:
        if problem := _check_field(key, fields[key], list_labels(target).get(key, ())):
            return problem
    if contract != "probabilities":
        return ""
    # As written: in binary, three times 0.333 is further from 1 than 0.001.
    sums = (sum(Fraction(repr(fields[label])) for label in labels) for labels in list_labels(target).values())
    if any(abs(total - 1) > Fraction(repr(SUM_TOLERANCE)) for total in sums):
        return "bad_sum"
    return "tie" if _is_tied(fields, target) else ""


def _is_tied(fields: Mapping[str, float], target: Target) -> bool:
    """Say whether a vocabulary's highest probability is there twice, as written, before any division could round."""
    chances = [[fields[label] for label in labels] for labels in list_labels(target).values()]
    return any(each.count(max(each)) > 1 for each in chances)


def _check_field(key: str, value: Any, vocabulary: tuple[str, ...]) -> Problem:  # noqa: ANN401 (JSON)
    if vocabulary:
        return "" if value in vocabulary else "bad_label"
    if key == "label_justification":
        return "" if _is_words(value) else "bad_justification"
    if key == "evidence_signals":
        holds = isinstance(value, list) and bool(value) and all(map(_is_words, cast("list[Any]", value)))
        return "" if holds else "bad_signals"
    if _is_share(value):
        return ""
    return "bad_confidence" if key == "confidence" else "bad_probability"


def _read(
    fields: dict[str, Any], contract: ContractName, target: Target
) -> tuple[dict[str, str], dict[str, float], float]:
    columns = list_labels(target)
    if contract != "probabilities":
        return {column: fields[column] for column in columns}, {}, abs(fields["confidence"])  # -0 is 0
    forecast: dict[str, float] = {}
    for vocabulary in columns.values():
        total = math.fsum(fields[label] for label in vocabulary)
        forecast |= {label: abs(fields[label]) / total for label in vocabulary}
    labels = {column: most_probable(fields, vocabulary) for column, vocabulary in columns.items()}
    return labels, forecast, math.prod(forecast[label] for label in labels.values())


def most_probable(forecast: Mapping[str, float], labels: Sequence[str]) -> str:
    """Return the label with the highest probability; if several have it, the first of ``labels``."""
    return max(labels, key=lambda label: forecast[label])  # max keeps the first


def _read_tolerantly(text: str, contract: ContractName, target: Target) -> tuple[dict[str, str], float | None]:
    read: tuple[dict[str, str], float | None] = {}, None
    for labels, confidence in _find_labelled_objects(text, contract, target):
        if read[0] and read[0] != labels:  # two labels that differ are no answer
            return {}, None
        read = labels, confidence
    return read


def _find_labelled_objects(
    text: str, contract: ContractName, target: Target
) -> Iterator[tuple[dict[str, str], float | None]]:
    columns = list_labels(target)
    written: dict[str, str] = {label.lower(): label for labels in columns.values() for label in labels}
    key = f'"{contract_keys(contract, target)[0]}"'
    for match in _FLAT_OBJECT.finditer(text):
        part = match[1]
        if not match[2] or (key not in part and "\\u00" not in part):  # a key may be written in escapes
            continue
        value, _ = read_json(f"{part}}}")
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if contract == "probabilities":
            known = all(_is_share(fields.get(label)) for label in contract_keys(contract, target))
            if known and not _is_tied(fields, target):
                labels, _, confidence = _read(fields, contract, target)
                yield labels, confidence
            continue
        found = {column: str(fields[column]).strip() for column in columns if isinstance(fields.get(column), str)}
        said = {column: written.get(label.lower(), label.lower()) for column, label in found.items()}
        if len(said) == len(columns) and all(label in columns[column] for column, label in said.items()):
            confidence = fields.get("confidence")
            yield said, confidence if _is_share(confidence) else None
