"""An answer is valid or it is not: judged beside an independent reader of JSON, on anything a model could write."""

from __future__ import annotations

import inspect
import json
import re
import sys
import time
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sciscirl.task.contracts import (
    CONTRACTS,
    MAX_DEPTH,
    SUM_TOLERANCE,
    Reasons,
    contract_keys,
    parse_answer,
    render_answer,
)
from sciscirl.task.papers import TARGETS, VOCABULARIES
from tests.sciscirl.papers import hostile_texts

# The judge: JSON by the letter of RFC 8259, read one token at a time

SPACE = "[ \t\n\r]*"
STRING = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
TOKEN = re.compile(rf"{SPACE}([{{}}\[\],:]|{STRING}|{NUMBER}|true|false|null|\Z){SPACE}")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
WORDS = {"true": True, "false": False, "null": None}
LABELS = ("disruptive", "consolidating", "neutral")
ORACLE_VOCABULARIES = {"disruption_label": LABELS, "novelty_label": ("novel", "balanced", "conventional")}
COLUMNS = {
    "disruption": ["disruption_label"],
    "novelty": ["novelty_label"],
    "joint": ["disruption_label", "novelty_label"],
}


class NotJsonError(Exception):
    pass


class Members(list):
    """An object: its (key, value) pairs in order, repeats and all."""


class Reader:
    """Reads a token at a time; a text that goes on with no token is no JSON."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text, self.at, self.left, self.token = text, 0, max_depth, ""
        self.advance()

    def advance(self) -> str:
        """Step to the next token, "" at the end; return the one before."""
        before, found = self.token, TOKEN.match(self.text, self.at)
        if found is None:
            raise NotJsonError
        self.at, self.token = found.end(), found[1]
        return before

    def document(self):
        value = self.value()
        if self.token:
            raise NotJsonError
        return value

    def value(self):
        token = self.advance()
        if token == "{":
            return Members(self.items("}", self.member))
        if token == "[":
            return self.items("]", self.value)
        if token[:1] == '"':
            return unescape(token)
        if token in WORDS:
            return WORDS[token]
        if token in "}],:":  # or nothing
            raise NotJsonError
        return float(token)

    def items(self, closing, read):
        self.left -= 1
        found = []
        while self.token != closing and self.left >= 0:
            found.append(read())
            if self.token != closing and (self.advance() != "," or self.token == closing):
                raise NotJsonError
        if self.left < 0:
            raise NotJsonError
        self.advance()
        self.left += 1
        return found

    def member(self):
        key = self.advance()
        if key[:1] != '"' or self.advance() != ":":
            raise NotJsonError
        return unescape(key), self.value()


def unescape(token: str) -> str:
    text = re.sub(r"\\(u([0-9a-fA-F]{4})|.)", lambda m: chr(int(m[2], 16)) if m[2] else ESCAPES[m[1]], token[1:-1])
    # Pairs of escaped surrogates are one character; a half that is left over stays what it is.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def has_repeats(value) -> bool:
    if isinstance(value, Members):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(has_repeats(inner) for _, inner in value)
    return isinstance(value, list) and any(map(has_repeats, value))


def is_words(value) -> bool:
    return isinstance(value, str) and value.strip() != "" and not any("\ud800" <= c <= "\udfff" for c in value)


def is_share(value) -> bool:
    return isinstance(value, float) and 0 <= value <= 1


def judge(text: str, contract: str, target: str = "disruption", max_depth: int = 32):
    """Say whether ``text`` is JSON, whether it is valid, and the labels and confidence of a valid answer."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        return False, False, {}, None
    try:
        value = Reader(text, max_depth).document()
    except NotJsonError:
        return False, False, {}, None
    broken = True, False, {}, None
    columns = COLUMNS[target]
    keys = {*columns, "confidence"}
    if contract == "four_keys":
        keys |= {"label_justification", "evidence_signals"}
    if contract == "probabilities":
        keys = {label for column in columns for label in ORACLE_VOCABULARIES[column]}
    if not isinstance(value, Members) or has_repeats(value) or {key for key, _ in value} != keys:
        return broken
    fields = dict(value)
    if contract == "probabilities":
        labels, sure = {}, Fraction(1)
        if not all(map(is_share, fields.values())):
            return broken
        for column in columns:
            chances = {label: Fraction(repr(fields[label])) for label in ORACLE_VOCABULARIES[column]}
            total = sum(chances.values())
            if abs(total - 1) > Fraction(1, 1000):
                return broken
            likeliest = [label for label in chances if chances[label] == max(chances.values())]
            if len(likeliest) > 1:
                return broken
            labels[column] = likeliest[0]
            sure *= chances[labels[column]] / total
        return True, True, labels, float(sure)
    labels = {column: fields[column] for column in columns}
    if not all(isinstance(label, str) and label in ORACLE_VOCABULARIES[column] for column, label in labels.items()):
        return broken
    if not is_share(fields["confidence"]):
        return broken
    if contract == "four_keys":
        signals = fields["evidence_signals"]
        if not is_words(fields["label_justification"]):
            return broken
        if isinstance(signals, Members) or not isinstance(signals, list) or not signals:
            return broken
        if not all(map(is_words, signals)):
            return broken
    return True, True, labels, fields["confidence"]


# What it judges

EVERY_LABEL = tuple(label for labels in VOCABULARIES.values() for label in labels)
contracts = st.sampled_from(CONTRACTS)
targets = st.sampled_from([*TARGETS])
kinds = st.tuples(contracts, targets)
any_text = st.text(st.characters())  # halves of surrogate pairs too
numbers = st.floats(0, 1) | st.floats() | st.integers() | st.sampled_from([0, 1, True, False, -0.0, 1.0000000001])
leaves = st.none() | numbers | any_text | st.sampled_from([*EVERY_LABEL, "Disruptive", "neutral ", "0.5"])
json_values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4)
)
# Mostly the right types, so that many are valid and the rest nearly so.
near_fields = st.fixed_dictionaries(
    {
        **{column: st.sampled_from(labels) | leaves for column, labels in VOCABULARIES.items()},
        "label_justification": hostile_texts | json_values,
        "evidence_signals": st.lists(hostile_texts, max_size=3) | json_values,
        "confidence": st.floats(0, 1) | numbers | json_values,
    }
)
# In thousandths, of which most add up to about a thousand.
near_forecasts = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from([-2, -1, 0, 0, 0, 1, 2])),
    min_size=2,
    max_size=2,
).map(
    lambda triples: (
        {
            label: value / 1000
            for labels, (one, two, off) in zip(VOCABULARIES.values(), triples, strict=True)
            for label, value in zip(labels, (one, two * (1000 - one) // 1000, 0), strict=True)
        }
        | {
            labels[2]: (1000 - one - two * (1000 - one) // 1000 + off) / 1000
            for labels, (one, two, off) in zip(VOCABULARIES.values(), triples, strict=True)
        }
    )
)
GOLD = {"disruption_label": "neutral", "novelty_label": "novel"}
GOOD = {
    (contract, target): render_answer(GOLD, contract, target, confidence=0.5)
    for contract in CONTRACTS
    for target in TARGETS
}
GOOD |= {contract: GOOD[contract, "disruption"] for contract in CONTRACTS}
SPOILERS = (
    *("", " ", "\n", "\t", "\xa0", "\ufeff", "\x00", "```", "```json\n", "<think>", "//", "\u0660", "\ud800"),
    *(",", "}", "{", "[", "]", '"', "'", "\\", "NaN", "Infinity", "1e999", "0x1", "01", "+1", ".5", "5.", "true"),
)


def check(text: str, contract: str, target: str = "disruption") -> None:
    answer = parse_answer(text, contract, target)
    is_json, is_valid, labels, confidence = judge(text, contract, target)
    assert (answer.is_json, answer.is_valid, answer.labels) == (is_json, is_valid, labels)
    assert answer.confidence == (confidence if contract != "probabilities" else pytest.approx(confidence))
    assert answer.label == next(iter(labels.values()), None)
    assert answer.target == target
    assert (answer.problem == "") == answer.is_valid
    assert (answer.problem in {"not_json", "nested_too_deep"}) == (not answer.is_json)
    assert answer.has_think == ("<think>" in text)
    if answer.is_valid:
        assert (answer.tolerant_labels, answer.tolerant_confidence) == (answer.labels, answer.confidence)
    assert set(answer.tolerant_labels) in (set(), {*TARGETS[target]})
    assert all(label in VOCABULARIES[column] for column, label in answer.tolerant_labels.items())
    assert answer.tolerant_labels or answer.tolerant_confidence is None
    assert bool(answer.forecast) == (answer.is_valid and contract == "probabilities")


@st.composite
def spoiled_answers(draw) -> str:
    """A good answer with one or two pieces put in, taken out, or put twice, anywhere."""
    text = GOOD[draw(kinds)]
    for _ in range(draw(st.integers(1, 2))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 6)))
        text = text[:start] + draw(st.sampled_from(SPOILERS) | st.just(text[start:end] * 2)) + text[end:]
    return text


@given(any_text | hostile_texts, kinds)
def test_any_text_gets_the_verdict_of_an_independent_reader(text, kind):
    check(text, *kind)


@given(json_values, kinds, st.booleans(), st.sampled_from([None, 2]))
def test_any_json_gets_the_verdict_of_an_independent_reader(value, kind, ascii_only, indent):
    check(json.dumps(value, ensure_ascii=ascii_only, indent=indent), *kind)


@given(near_fields, st.sampled_from(["four_keys", "two_keys"]), targets, st.booleans())
def test_nearly_right_answers_get_the_verdict_of_an_independent_reader(fields, contract, target, ascii_only):
    kept = {key: fields[key] for key in contract_keys(contract, target)}
    check(json.dumps(kept, ensure_ascii=ascii_only), contract, target)
    check(json.dumps(fields, ensure_ascii=ascii_only), contract, target)


@given(near_forecasts, targets, st.none() | st.tuples(st.sampled_from(EVERY_LABEL), json_values))
def test_nearly_right_forecasts_get_the_verdict_of_an_independent_reader(forecast, target, change):
    if change is not None:
        forecast = forecast | {change[0]: change[1]}
    check(json.dumps({key: forecast[key] for key in contract_keys("probabilities", target)}), "probabilities", target)
    check(json.dumps(forecast), "probabilities", target)


@given(near_forecasts, targets)
def test_a_forecast_is_normed_and_its_label_is_the_most_probable_the_first_of_equals(forecast, target):
    text = json.dumps({key: forecast[key] for key in contract_keys("probabilities", target)})
    answer = parse_answer(text, "probabilities", target)
    for column in TARGETS[target] if answer.is_valid else ():
        stated = [forecast[label] for label in VOCABULARIES[column]]
        assert answer.labels[column] == VOCABULARIES[column][stated.index(max(stated))]
        assert sum(answer.forecast[label] for label in VOCABULARIES[column]) == pytest.approx(1, abs=1e-12)
        assert all(
            answer.forecast[label] == pytest.approx(forecast[label], abs=2 * SUM_TOLERANCE)
            for label in VOCABULARIES[column]
        )


@given(spoiled_answers(), kinds)
@example('{"disruption_label": "neutral", "confidence": 0.5, "confidence": 0.5}', ("two_keys", "disruption"))
def test_spoiled_answers_get_the_verdict_of_an_independent_reader(text, kind):
    check(text, *kind)


@st.composite
def golds(draw) -> dict[str, str]:
    return {column: draw(st.sampled_from(labels)) for column, labels in VOCABULARIES.items()}


@given(golds(), kinds, st.floats(0, 1), hostile_texts, st.lists(hostile_texts, min_size=1))
def test_what_is_rendered_is_valid_and_reads_back(gold, kind, confidence, words, signals):
    contract, target = kind
    text = render_answer(
        gold, *kind, confidence=confidence, reasons=Reasons(f"a {words}", [f"b {signal}" for signal in signals])
    )
    answer = parse_answer(text, *kind)
    assert tuple(json.loads(text)) == contract_keys(*kind)
    assert answer.is_valid or (contract == "probabilities" and confidence <= 0.334 and answer.problem == "tie")
    if contract != "probabilities":
        assert (answer.labels, answer.confidence) == ({column: gold[column] for column in TARGETS[target]}, confidence)
    elif confidence > 0.334:
        assert answer.labels == {column: gold[column] for column in TARGETS[target]}
        assert answer.confidence == pytest.approx(confidence ** len(TARGETS[target]), abs=3e-4)
    for other in GOOD:
        if isinstance(other, tuple) and other != kind:
            assert parse_answer(text, *other).problem == "wrong_keys"


TWO = '{{"disruption_label": {label}, "confidence": {confidence}}}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TWO.format(label='"neutral"', confidence="0.5"), ""),
        (TWO.format(label='"neutral"', confidence="0"), ""),
        (TWO.format(label='"neutral"', confidence="1E-400"), ""),
        (TWO.format(label='"neu\\u0074ral"', confidence="1.0e0"), ""),
        (" \t\r\n" + GOOD["two_keys"] + "\n", ""),
        ('{"confidence":0.5,"disruption_label":"neutral"}', ""),
        (TWO.format(label='"neutral"', confidence="true"), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence="1.0000000000000002"), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence="1e999"), "bad_confidence"),
        (TWO.format(label='"Neutral"', confidence="0.5"), "bad_label"),
        (TWO.format(label='"\\ud800"', confidence="0.5"), "bad_label"),
        (TWO.format(label='"neutral"', confidence="NaN"), "not_json"),
        (TWO.format(label='"neutral"', confidence="00.5"), "not_json"),
        (TWO.format(label="'neutral'", confidence="0.5"), "not_json"),
        (TWO.format(label='"neutral\n"', confidence="0.5"), "not_json"),
        (TWO.format(label='"\ud800"', confidence="0.5"), "not_json"),
        ("\ufeff" + GOOD["two_keys"], "not_json"),
        (f"```json\n{GOOD['two_keys']}\n```", "not_json"),
        (GOOD["two_keys"][:-1], "not_json"),
        ("", "not_json"),
        (f"[{GOOD['two_keys']}]", "not_an_object"),
        ('[{"a": 1, "a": 1}]', "duplicate_key"),
        ("null", "not_an_object"),
        ("{}", "wrong_keys"),
        ('{"disruption_label": "neutral"}', "wrong_keys"),
        ('{"disruption_label": "neutral", "Confidence": 0.5}', "wrong_keys"),
        ('{"disruption_label": "neutral", "confidence": 0.5, "confidence": 0.5}', "duplicate_key"),
        ('{"disruption_label": "neutral", "confidenc\\u0065": 0.1, "confidence": 0.5}', "duplicate_key"),
    ],
)
def test_each_way_to_go_wrong_has_its_name(text, problem):
    assert parse_answer(text, "two_keys").problem == problem
    check(text, "two_keys")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_read_to_a_fixed_depth_and_refused_beyond(opening, closing):
    def nested(depth: int) -> str:
        return opening * depth + "0" + closing * depth

    assert parse_answer(nested(MAX_DEPTH), "two_keys").is_json
    assert parse_answer(nested(MAX_DEPTH + 1), "two_keys").problem == "nested_too_deep"
    assert parse_answer(nested(100_000), "two_keys").problem == "nested_too_deep"
    assert parse_answer(opening * 100_000, "two_keys").problem == "nested_too_deep"


def test_the_verdict_does_not_depend_on_how_deep_the_program_is():
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH

    def from_below(depth: int):
        return parse_answer(text, "two_keys") if depth == 0 else from_below(depth - 1)

    here = len(inspect.stack())
    assert from_below(sys.getrecursionlimit() - here - 3 * MAX_DEPTH).is_json


@pytest.mark.parametrize(
    "piece",
    ['"', '\\"', '{"', '{"\\"', '{"a":', "{", "}", "[", "\\", '{"\\"{"\\"', "9", '{"disruption_label":"neutral"}'],
)
def test_long_hostile_texts_are_read_in_linear_time(piece):
    # A quadratic reader would need many minutes for these.
    assert not parse_answer(piece * 100_000, "two_keys").is_valid


@pytest.mark.parametrize("contract", ["two_keys", "probabilities"])
@pytest.mark.parametrize("piece", ["{", "{}", '{"a":1}', '{"a":', '{"a":{', '{"disruption_label":"neutral"}'])
def test_a_text_of_nothing_but_braces_takes_about_as_long_as_any_other(piece, contract):
    def measure(one: str) -> float:
        before = time.process_time()
        parse_answer((one * 1_000_000)[:1_000_000], contract)
        return time.process_time() - before

    assert measure(piece) < 10 * min(measure('"'), measure("[]"))


@pytest.mark.parametrize(
    ("text", "label", "confidence"),
    [
        ('{{{"a": {"disruption_label": "neutral", "confidence": 1}', "neutral", 1.0),
        ('{"disruption_\\u006cabel": "neutral"} so', "neutral", None),
        ('```json\n{"disruption_label": "disruptive", "confidence": 0.5}\n```', "disruptive", 0.5),
        ('The "answer": {"disruption_label": "Disruptive ", "confidence": 0.5} I think.', "disruptive", 0.5),
        ('{"disruption_label": "neutral", "confidence": 7}', "neutral", None),
        ('{"disruption_label": "neutral"}', "neutral", None),
        (
            '{"disruption_label": "neutral", "confidence": "0.5"} {"disruption_label": "neutral", "confidence": 1}',
            "neutral",
            1.0,
        ),
        (
            '{"disruption_label": "neutral", "confidence": 1} {"disruption_label": "disruptive", "confidence": 1}',
            None,
            None,
        ),
        ('{ oh {"disruption_label": "neutral", "confidence": 1}', "neutral", 1.0),
        ('{"a": {"disruption_label": "neutral", "confidence": 1}}', "neutral", 1.0),
        ('{"disruption_label": "neutral", "note": "} {", "confidence": 1} so', "neutral", 1.0),
        ('{"disruption_label": "neutral", "disruption_label": "disruptive"}', None, None),
        ('{"disruption_label": "neutral", "confidence": NaN}', None, None),
        ('{"disruption_label": "neutral", "confidence": 0.5', None, None),
        ("{'disruption_label': 'neutral'}", None, None),
        ("disruptive", None, None),
        ('"neutral"', None, None),
        ('{"disruption_label": ["neutral"]}', None, None),
    ],
)
def test_the_tolerant_reader_finds_what_a_person_would_and_makes_nothing_valid(text, label, confidence):
    answer = parse_answer(text, "two_keys")
    assert (answer.tolerant_label, answer.tolerant_confidence) == (label, confidence)
    assert (answer.is_valid, answer.label, answer.confidence) == (False, None, None)


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ((0.333, 0.333, 0.334), ""),
        ((0.334, 0.333, 0.333), ""),
        ((0.1, 0.2, 0.7), ""),
        ((0.33, 0.33, 0.33), "bad_sum"),
        ((0.333, 0.333, 0.3329999999), "bad_sum"),
        ((0.335, 0.333, 0.333), ""),
        ((0.335, 0.333, 0.3330000001), "bad_sum"),
        ((0, 0, 0), "bad_sum"),
        ((33, 33, 34), "bad_probability"),
        ((1.1, 0, 0), "bad_probability"),
        ((True, 0, 0), "bad_probability"),
        ((None, 0, 1), "bad_probability"),
    ],
)
def test_probabilities_are_numbers_that_add_up(numbers, problem):
    text = json.dumps(dict(zip(LABELS, numbers, strict=True)))
    assert parse_answer(text, "probabilities").problem == problem
    check(text, "probabilities")


@pytest.mark.parametrize(
    ("numbers", "label"),
    [
        (("0.4", "0.4", "0.2"), None),
        (("0.4", "0.2", "0.4"), None),
        (("0.2", "0.4", "4e-1"), None),
        (("0.333", "0.333", "0.333"), None),
        (("0", "0.5", "0.5"), None),
        (("0.3", "0.3", "0.4"), "neutral"),
        # Nearer to each other than a division by their sum can tell.
        (("0.33333333333333337", "0.3333333333333334", "0.333"), "consolidating"),
    ],
)
def test_the_order_of_probabilities_never_decides_a_tie(numbers, label):
    pairs = [f'"{name}": {number}' for name, number in zip(LABELS, numbers, strict=True)]
    for order in (pairs, pairs[::-1]):
        text = f"{{{', '.join(order)}}}"
        check(text, "probabilities")
        for said in (text, f"I say: {text}."):
            answer = parse_answer(said, "probabilities")
            assert answer.tolerant_label == label
        answer = parse_answer(text, "probabilities")
        assert (answer.label, answer.problem) == (label, "" if label else "tie")
        assert bool(answer.forecast) == (label is not None)


def test_minus_nothing_is_nothing():
    answer = parse_answer('{"disruption_label": "neutral", "confidence": -0.0}', "two_keys")
    assert str(answer.confidence) == "0.0"
    answer = parse_answer('{"disruptive": -0, "consolidating": 1, "neutral": -0e9}', "probabilities")
    assert str(dict(answer.forecast)) == "{'disruptive': 0.0, 'consolidating': 1.0, 'neutral': 0.0}"
