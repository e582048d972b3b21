"""What an answer must look like: one JSON object with exactly the keys of its contract.

The verdict is a function of the text alone. It never raises, takes time linear in the text, and does not depend on
how deep in a program it is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from sciscirl.task import VOCABULARIES

ContractName = Literal["four_keys", "two_keys"]
#: The keys of each contract, in the order in which prompts show them.
CONTRACTS: Final[dict[ContractName, tuple[str, ...]]] = {
    "four_keys": ("disruption_label", "label_justification", "evidence_signals", "confidence"),
    "two_keys": ("disruption_label", "confidence"),
}
Problem = Literal[
    "",
    "not_json",
    "nested_too_deep",
    "not_an_object",
    "duplicate_key",
    "wrong_keys",
    "bad_label",
    "bad_justification",
    "bad_signals",
    "bad_confidence",
    "cut_off",  # said by who sampled it, never by a text alone
]
#: RFC 8259 lets a reader limit depth. A fixed limit, unlike Python's stack, is the same wherever it is reached.
MAX_DEPTH: Final = 32
THINK: Final = "<think>"

# Possessive, and with the end optional: what was scanned is consumed, found or not, so that time stays linear.
_STRING: Final = r'"(?:[^"\\]|\\.)*+"?'
_BRACKETS: Final = re.compile(rf"{_STRING}|([\[{{])|([\]}}])", re.DOTALL)
_FLAT_OBJECT: Final = re.compile(rf'\{{(?:{_STRING}|[^{{"}}])*+(\}}?)', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one model output.

    Attributes:
        label: the label of a valid answer, else None.
        confidence: 0 to 1, of a valid answer, else None.
        is_json: the whole text is one JSON value (RFC 8259), whatever its type.
        is_valid: it also keeps the contract.
        tolerant_label: the label that a lenient reader finds in JSON objects inside the text, where they agree;
            reported, never rewarded.
        tolerant_confidence: the confidence beside it, if it is a number from 0 to 1.
        has_think: the raw text ``<think>`` is anywhere in it.
        problem: the first reason why it is not valid, ``""`` if it is.
    """

    label: str | None
    confidence: float | None
    is_json: bool
    is_valid: bool
    tolerant_label: str | None
    tolerant_confidence: float | None
    has_think: bool
    problem: Problem


def parse_answer(text: str, contract: ContractName) -> Answer:
    """Judge one model output by its contract. Never raises.

    Valid is one JSON object with exactly the contract's keys, each once; ``disruption_label`` one of the vocabulary,
    to the letter; ``confidence`` a JSON number from 0 to 1 (true, "0.9" and NaN are none); ``label_justification`` a
    string and ``evidence_signals`` an array of one or more strings, none of them blank. Before and after it only
    JSON's own white space: no fence, no byte order mark, no remark. ``<think>`` inside a string breaks nothing here;
    the reward has a term of its own for it.

    Args:
        text: the output as sampled, thinking and all; one that was cut off is not JSON any more.
        contract: ``"four_keys"`` or ``"two_keys"``.

    Example:
        >>> answer = parse_answer('{"disruption_label": "neutral", "confidence": 0.6}', "two_keys")
        >>> answer.is_valid, answer.label, answer.confidence
        (True, 'neutral', 0.6)
        >>> answer = parse_answer('Sure: {"disruption_label": "neutral", "confidence": 0.6}', "two_keys")
        >>> answer.is_json, answer.label, answer.problem, answer.tolerant_label
        (False, None, 'not_json', 'neutral')
    """
    value, problem = _decode(text)
    is_json = problem in {"", "duplicate_key"}
    problem = problem or _find_problem(value, CONTRACTS[contract])
    tolerant_label, tolerant_confidence = _read_tolerantly(text)
    label = confidence = None
    if not problem:
        label, confidence = value["disruption_label"], value["confidence"]
    return Answer(
        label=label,
        confidence=confidence,
        is_json=is_json,
        is_valid=not problem,
        tolerant_label=tolerant_label,
        tolerant_confidence=tolerant_confidence,
        has_think=THINK in text,
        problem=problem,
    )


def render_answer(
    label: str,
    contract: ContractName,
    *,
    confidence: float = 1.0,
    justification: str = "Stated by the citation record.",
    signals: Sequence[str] = ("citation record",),
) -> str:
    """Write a valid answer in the one form that prompts show and supervised targets have.

    Example:
        >>> render_answer("neutral", "two_keys", confidence=0.5)
        '{"disruption_label": "neutral", "confidence": 0.5}'
    """
    values: dict[str, Any] = {
        "disruption_label": label,
        "label_justification": justification,
        "evidence_signals": list(signals),
        "confidence": confidence,
    }
    return json.dumps({key: values[key] for key in CONTRACTS[contract]}, ensure_ascii=False)


class _DuplicateKeyError(ValueError):
    pass


def _decode(text: str) -> tuple[Any, Problem]:
    """Read JSON as RFC 8259 has it, where Python's reader is more generous. Every number becomes a float."""
    if not _is_utf8(text):
        return None, "not_json"
    if _depth(text) > MAX_DEPTH:
        return None, "nested_too_deep"
    try:
        # As floats, numbers of any length are read in linear time and without Python's limit on digits.
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_int=float, parse_constant=_refuse_constant)
    except ValueError:
        return None, "not_json"
    try:
        return _as_dicts(pairs), ""
    except _DuplicateKeyError:
        return None, "duplicate_key"


class _Pairs(list[tuple[str, Any]]):
    """An object as read, before its keys are known to differ."""


def _as_dicts(value: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, _Pairs):
        whole = {key: _as_dicts(inner) for key, inner in value}
        if len(whole) < len(value):
            raise _DuplicateKeyError
        return whole
    return [_as_dicts(inner) for inner in cast("list[Any]", value)] if isinstance(value, list) else value


def _refuse_constant(name: str) -> float:
    msg = f"{name} is no JSON number"
    raise ValueError(msg)


def _depth(text: str) -> int:
    deepest = depth = 0
    for match in _BRACKETS.finditer(text):
        depth += bool(match[1]) - bool(match[2])
        deepest = max(deepest, depth)
    return deepest


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_words(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and _is_utf8(value)


def _is_confidence(value: object) -> bool:
    return isinstance(value, float) and 0.0 <= value <= 1.0


_CHECKS: Final[dict[str, tuple[Callable[[Any], bool], Problem]]] = {
    "disruption_label": (lambda value: value in VOCABULARIES["disruption_label"], "bad_label"),
    "label_justification": (_is_words, "bad_justification"),
    "evidence_signals": (
        lambda value: isinstance(value, list) and bool(value) and all(map(_is_words, cast("list[Any]", value))),
        "bad_signals",
    ),
    "confidence": (_is_confidence, "bad_confidence"),
}


def _find_problem(value: Any, keys: tuple[str, ...]) -> Problem:  # noqa: ANN401 (JSON)
    if not isinstance(value, dict):
        return "not_an_object"
    fields = cast("dict[str, Any]", value)
    if set(fields) != set(keys):
        return "wrong_keys"
    for key in keys:
        holds, problem = _CHECKS[key]
        if not holds(fields[key]):
            return problem
    return ""


def _read_tolerantly(text: str) -> tuple[str | None, float | None]:
    found = list(_find_labelled_objects(text))
    if len({label for label, _ in found}) != 1:  # two labels that differ are no answer
        return None, None
    return found[-1]


def _find_labelled_objects(text: str) -> Iterator[tuple[str, float | None]]:
    for match in _FLAT_OBJECT.finditer(text):
        value, _ = _decode(match[0]) if match[1] else (None, "")
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        label, confidence = fields.get("disruption_label"), fields.get("confidence")
        if isinstance(label, str) and label.strip().lower() in VOCABULARIES["disruption_label"]:
            yield label.strip().lower(), confidence if _is_confidence(confidence) else None
