"""An answer is valid or it is not: judged beside an independent reader of JSON, on anything a model could write."""

from __future__ import annotations

import inspect
import json
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sciscirl.contracts import CONTRACTS, MAX_DEPTH, parse_answer, render_answer
from tests.rl.json_oracle import LABELS, judge
from tests.rl.papers import hostile_texts

contracts = st.sampled_from(sorted(CONTRACTS))
any_text = st.text(st.characters())  # halves of surrogate pairs too
numbers = st.floats(0, 1) | st.floats() | st.integers() | st.sampled_from([0, 1, True, False, -0.0, 1.0000000001])
leaves = st.none() | numbers | any_text | st.sampled_from([*LABELS, "Disruptive", "neutral ", "0.5"])
json_values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4)
)
key_names = st.sampled_from([*CONTRACTS["four_keys"], "novelty_label", "Confidence", ""])
# Mostly the right types, so that many are valid and the rest nearly so.
near_fields = st.fixed_dictionaries(
    {
        "disruption_label": st.sampled_from(LABELS) | leaves,
        "label_justification": hostile_texts | json_values,
        "evidence_signals": st.lists(hostile_texts, max_size=3) | json_values,
        "confidence": st.floats(0, 1) | numbers | json_values,
    }
)
GOOD = {contract: render_answer("neutral", contract, confidence=0.5) for contract in CONTRACTS}
SPOILERS = (
    *("", " ", "\n", "\t", "\xa0", "\ufeff", "\x00", "```", "```json\n", "<think>", "//", "\u0660", "\ud800"),
    *(",", "}", "{", "[", "]", '"', "'", "\\", "NaN", "Infinity", "1e999", "0x1", "01", "+1", ".5", "5.", "true"),
)


def check(text: str, contract: str) -> None:
    answer = parse_answer(text, contract)
    assert (answer.is_json, answer.is_valid, answer.label, answer.confidence) == judge(text, contract)
    assert (answer.problem == "") == answer.is_valid
    assert (answer.problem in {"not_json", "nested_too_deep"}) == (not answer.is_json)
    assert answer.has_think == ("<think>" in text)
    if answer.is_valid:
        assert (answer.tolerant_label, answer.tolerant_confidence) == (answer.label, answer.confidence)
    assert answer.tolerant_label in {None, *LABELS}
    assert answer.tolerant_label is not None or answer.tolerant_confidence is None


@st.composite
def spoiled_answers(draw) -> str:
    """A good answer with one or two pieces put in, taken out, or put twice, anywhere."""
    text = GOOD[draw(contracts)]
    for _ in range(draw(st.integers(1, 2))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 6)))
        text = text[:start] + draw(st.sampled_from(SPOILERS) | st.just(text[start:end] * 2)) + text[end:]
    return text


@given(any_text | hostile_texts, contracts)
def test_any_text_gets_the_verdict_of_an_independent_reader(text, contract):
    check(text, contract)


@given(json_values, contracts, st.booleans(), st.sampled_from([None, 2]))
def test_any_json_gets_the_verdict_of_an_independent_reader(value, contract, ascii_only, indent):
    check(json.dumps(value, ensure_ascii=ascii_only, indent=indent), contract)


@given(near_fields, contracts, st.booleans())
def test_nearly_right_answers_get_the_verdict_of_an_independent_reader(fields, contract, ascii_only):
    kept = {key: fields[key] for key in CONTRACTS[contract]}
    check(json.dumps(kept, ensure_ascii=ascii_only), contract)
    check(json.dumps(fields, ensure_ascii=ascii_only), contract)


@given(spoiled_answers(), contracts)
@example('{"disruption_label": "neutral", "confidence": 0.5, "confidence": 0.5}', "two_keys")
def test_spoiled_answers_get_the_verdict_of_an_independent_reader(text, contract):
    check(text, contract)


@given(near_fields, key_names, json_values)
def test_a_key_twice_is_never_valid(fields, key, value):
    whole = json.dumps(fields)
    text = f"{{{json.dumps(key)}: {json.dumps(value)}, {whole[1:]}"
    check(text, "four_keys")
    assert not parse_answer(text, "four_keys").is_valid


@given(st.sampled_from(LABELS), contracts, st.floats(0, 1), hostile_texts, st.lists(hostile_texts, min_size=1))
def test_what_is_rendered_is_valid_and_reads_back(label, contract, confidence, words, signals):
    text = render_answer(
        label,
        contract,
        confidence=confidence,
        justification=f"a {words}",
        signals=[f"b {signal}" for signal in signals],
    )
    answer = parse_answer(text, contract)
    assert (answer.is_valid, answer.label, answer.confidence) == (True, label, confidence)
    assert tuple(json.loads(text)) == CONTRACTS[contract]
    (other,) = set(CONTRACTS) - {contract}
    assert parse_answer(text, other).problem == "wrong_keys"


TWO = '{{"disruption_label": {label}, "confidence": {confidence}}}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TWO.format(label='"neutral"', confidence="0.5"), ""),
        (TWO.format(label='"neutral"', confidence="0"), ""),
        (TWO.format(label='"neutral"', confidence="1"), ""),
        (TWO.format(label='"neutral"', confidence="1E-400"), ""),
        (TWO.format(label='"neu\\u0074ral"', confidence="1.0e0"), ""),
        (" \t\r\n" + GOOD["two_keys"] + "\n", ""),
        ('{"confidence":0.5,"disruption_label":"neutral"}', ""),
        (TWO.format(label='"neutral"', confidence="true"), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence='"0.5"'), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence="null"), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence="[0.5]"), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence="1.0000000000000002"), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence="-1e-300"), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence="1e999"), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence="9" * 6000), "bad_confidence"),
        (TWO.format(label='"neutral"', confidence="50"), "bad_confidence"),
        (TWO.format(label='"Neutral"', confidence="0.5"), "bad_label"),
        (TWO.format(label='"neutral "', confidence="0.5"), "bad_label"),
        (TWO.format(label='["neutral"]', confidence="0.5"), "bad_label"),
        (TWO.format(label="null", confidence="0.5"), "bad_label"),
        (TWO.format(label='"\\ud800"', confidence="0.5"), "bad_label"),
        (TWO.format(label='"neutral"', confidence="NaN"), "not_json"),
        (TWO.format(label='"neutral"', confidence="Infinity"), "not_json"),
        (TWO.format(label='"neutral"', confidence="-Infinity"), "not_json"),
        (TWO.format(label='"neutral"', confidence=".5"), "not_json"),
        (TWO.format(label='"neutral"', confidence="00.5"), "not_json"),
        (TWO.format(label='"neutral"', confidence="\u0660"), "not_json"),
        (TWO.format(label="'neutral'", confidence="0.5"), "not_json"),
        (TWO.format(label='"neutral"', confidence="0.5,"), "not_json"),
        (TWO.format(label='"neutral\n"', confidence="0.5"), "not_json"),
        (TWO.format(label='"\ud800"', confidence="0.5"), "not_json"),
        ("\ufeff" + GOOD["two_keys"], "not_json"),
        ("\xa0" + GOOD["two_keys"], "not_json"),
        (GOOD["two_keys"] + "\x00", "not_json"),
        (GOOD["two_keys"] + ".", "not_json"),
        (GOOD["two_keys"] * 2, "not_json"),
        (f"```json\n{GOOD['two_keys']}\n```", "not_json"),
        (f"<think>{GOOD['two_keys']}</think>", "not_json"),
        (GOOD["two_keys"][:-1], "not_json"),
        ("", "not_json"),
        (f"[{GOOD['two_keys']}]", "not_an_object"),
        ('[{"a": 1, "a": 1}]', "duplicate_key"),
        ('"neutral"', "not_an_object"),
        ("null", "not_an_object"),
        ("3", "not_an_object"),
        ("{}", "wrong_keys"),
        ('{"disruption_label": "neutral"}', "wrong_keys"),
        ('{"disruption_label": "neutral", "confidence": 0.5, "note": 1}', "wrong_keys"),
        ('{"disruption_label": "neutral", "Confidence": 0.5}', "wrong_keys"),
        ('{"disruption_label": "neutral", "confidence": 0.5, "confidence": 0.5}', "duplicate_key"),
        ('{"disruption_label": "neutral", "confidence": {"a": 1, "a": 1}}', "duplicate_key"),
        ('{"disruption_label": "neutral", "confidenc\\u0065": 0.1, "confidence": 0.5}', "duplicate_key"),
    ],
)
def test_each_way_to_go_wrong_has_its_name(text, problem):
    assert parse_answer(text, "two_keys").problem == problem
    check(text, "two_keys")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, ""),
        ({"label_justification": ""}, "bad_justification"),
        ({"label_justification": " \n"}, "bad_justification"),
        ({"label_justification": ["because"]}, "bad_justification"),
        ({"label_justification": "half \ud83d"}, "bad_justification"),
        ({"label_justification": "whole \U0001f600 <think>"}, ""),
        ({"evidence_signals": []}, "bad_signals"),
        ({"evidence_signals": "one"}, "bad_signals"),
        ({"evidence_signals": ["one", 2]}, "bad_signals"),
        ({"evidence_signals": ["one", " "]}, "bad_signals"),
        ({"evidence_signals": {"one": 1}}, "bad_signals"),
        ({"evidence_signals": {}}, "bad_signals"),
    ],
)
def test_the_words_of_an_answer_are_words(changed, problem):
    text = json.dumps(json.loads(GOOD["four_keys"]) | changed)
    assert parse_answer(text, "four_keys").problem == problem
    check(text, "four_keys")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_read_to_a_fixed_depth_and_refused_beyond(opening, closing):
    def nested(depth: int) -> str:
        return opening * depth + "0" + closing * depth

    assert parse_answer(nested(MAX_DEPTH), "two_keys").is_json
    assert parse_answer(nested(MAX_DEPTH + 1), "two_keys").problem == "nested_too_deep"
    assert parse_answer(nested(100_000), "two_keys").problem == "nested_too_deep"
    assert parse_answer(opening * 100_000, "two_keys").problem == "nested_too_deep"


def test_brackets_inside_strings_are_not_nesting():
    words = "[{" * 100 + '"' + "[" * 100
    assert parse_answer(render_answer("neutral", "four_keys", justification=words), "four_keys").is_valid


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


@pytest.mark.parametrize(
    ("text", "label", "confidence"),
    [
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


@given(st.sampled_from(LABELS), contracts, st.floats(0, 1), st.text("abc .:\n`'*"), st.text("abc .:\n`'*"))
def test_prose_around_an_answer_costs_the_strict_reader_its_label_and_the_tolerant_one_nothing(
    label, contract, confidence, before, after
):
    answer = parse_answer(f"{before}.{render_answer(label, contract, confidence=confidence)}{after}", contract)
    assert not answer.is_json
    assert (answer.tolerant_label, answer.tolerant_confidence) == (label, confidence)
