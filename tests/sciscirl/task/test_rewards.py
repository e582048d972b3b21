"""Every case earns what the published table says, for every paper and every preset."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.label_thresholds import DISRUPTION_LABELS, NOVELTY_LABELS
from sciscirl.errors import RewardError
from sciscirl.presets import PRESETS
from sciscirl.task.contracts import parse_answer, render_answer
from sciscirl.task.release import read_split
from sciscirl.task.rewards import ADJACENT, REWARDS, balance, score_answer
from tests.conftest import REPOSITORY
from tests.sciscirl.papers import hostile_texts, write_slice

# Case by case, as printed: valid and correct (disruptive, other), valid and wrong, contract broken, not JSON.
PUBLISHED = {
    "baseline": (0.75, 0.75, 0.0, -0.5, -1.0),
    "exp1": (0.75, 0.75, 0.0, -0.5, -1.0),
    "exp2": (1.05, 1.05, -0.55, -0.75, -1.0),
    "exp3": (1.05, 1.05, -0.55, -0.75, -1.0),
    "exp4": (1.05, 1.05, -0.55, -0.75, -1.0),
    "exp5": (3.05, 1.05, -0.55, -0.75, -1.0),
}
#: Of one release with as many papers of each label: then a balanced reward weighs none.
EVEN = dict.fromkeys((*DISRUPTION_LABELS, *NOVELTY_LABELS), 9)
tables = st.sampled_from([table for table in REWARDS.values() if not table.is_balanced])
labels = st.sampled_from(DISRUPTION_LABELS)


def render_rewards() -> str:
    """What an answer earns under each reward, as a table of Markdown."""
    head = ["reward", "right", "next to right", "wrong", "in another form", "without JSON"]
    rows = [head, ["---"] * len(head)]
    for table in REWARDS.values():
        fitted = balance(table, EVEN.items()) if table.is_balanced else table
        earned: dict[str, set[float]] = {name: set() for name in head[1:]}
        for target, labels in (("disruption", DISRUPTION_LABELS), ("novelty", NOVELTY_LABELS)):
            for gold, said in product(labels, repeat=2):
                near = table.adjacent is not None and (gold, said) in ADJACENT
                case = "right" if gold == said else "next to right" if near else "wrong"
                texts = {case: render_answer(said, "two_keys", target), "in another form": "{}", "without JSON": said}
                for name, text in texts.items():
                    earned[name].add(score_answer(parse_answer(text, "two_keys", target), gold, fitted).total)
        rows.append([f"`{table.name}`", *(", ".join(map(str, sorted(e))) for e in earned.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def test_the_page_shows_what_an_answer_earns():
    table, page = render_rewards(), (REPOSITORY / "docs" / "rl" / "objectives.md").read_text("utf-8")
    assert [line for line in table.splitlines() if line not in page] == []
    assert table in page


def test_what_is_no_answer_is_invalid_or_refused():
    answer = PRESETS["exp4"].rules.parse(None)
    assert (answer.is_valid, answer.problem) == (False, "not_json")
    with pytest.raises(RewardError, match=r"answer is 'neutral', needs an Answer: rules\.parse\(text\)"):
        score_answer("neutral", "neutral", REWARDS["strong"])


def broken_forms(gold: str, contract: str) -> list[str]:
    """JSON that breaks the contract in each way, the right label in all that can hold it."""
    fields = json.loads(render_answer(gold, contract))
    without = [{key: value for key, value in fields.items() if key != gone} for gone in fields]
    changed = [
        {**fields, "disruption_label": gold.upper()},
        {**fields, "confidence": 1.5},
        {**fields, "confidence": True},
        {**fields, "confidence": "0.5"},
        {**fields, "extra": 1},
        [fields],
        gold,
    ]
    twice = f'{{"disruption_label": "{gold}", {json.dumps(fields)[1:]}'
    return [*map(json.dumps, (*without, *changed)), twice]


def unreadable_forms(gold: str, contract: str) -> list[str]:
    answer = render_answer(gold, contract)
    return ["", gold, answer[:-1], f"```json\n{answer}\n```", f"{answer} Done.", f"{answer}{answer}"]


def earn(text: str, gold: str, preset) -> float:
    return score_answer(parse_answer(text, preset.rules.contract), gold, REWARDS[preset.rules.reward]).total


@pytest.mark.parametrize("name", PUBLISHED)
def test_for_every_row_the_gold_answer_earns_the_most_and_each_broken_form_its_value(tmp_path, name):
    preset, (disruptive, other, wrong, broken, not_json) = PRESETS[name], PUBLISHED[name]
    contract, table = preset.rules.contract, REWARDS[preset.rules.reward]
    papers = read_split(write_slice(tmp_path / "slice", [{}] * 30), "train")
    assert {paper.gold.disruption_label for paper in papers} == set(DISRUPTION_LABELS)
    for paper in papers:
        gold = paper.gold.disruption_label
        best = disruptive if gold == "disruptive" else other
        expected = {render_answer(gold, contract): best}
        expected |= {render_answer(label, contract): wrong for label in DISRUPTION_LABELS if label != gold}
        expected |= dict.fromkeys(broken_forms(gold, contract), broken)
        expected |= dict.fromkeys(unreadable_forms(gold, contract), not_json)
        for text, value in expected.items():
            assert earn(text, gold, preset) == value, text
        assert max(expected.values()) == best == table.best(gold)
        assert not_json == min(expected.values())
    assert table.bounds == (not_json - 1.0, max(disruptive, other))


@pytest.mark.parametrize("name", PUBLISHED)
def test_thinking_aloud_costs_one_more_in_every_case(name):
    preset = PRESETS[name]
    for gold in DISRUPTION_LABELS:
        for text in (*broken_forms(gold, preset.rules.contract), *unreadable_forms(gold, preset.rules.contract)):
            quoted = text.replace("extra", "<think>", 1)
            if quoted == text:
                quoted = f"<think>{text}" if not parse_answer(text, preset.rules.contract).is_json else text
            if quoted != text:
                assert earn(quoted, gold, preset) == pytest.approx(earn(text, gold, preset) - 1, abs=1e-12)


@given(
    hostile_texts | labels.map(lambda label: render_answer(label, "two_keys")),
    labels,
    tables,
    st.sampled_from(["four_keys", "two_keys"]),
)
def test_every_reward_lies_within_the_bounds_and_is_the_sum_of_its_parts(text, gold, table, contract):
    parts = score_answer(parse_answer(text, contract), gold, table)
    least, most = table.bounds
    assert least <= parts.total <= table.best(gold) <= most
    assert parts.total == pytest.approx(parts.parse + parts.contract + parts.task + parts.think, abs=1e-9)
    assert parts.named() == {name: value for name, value in asdict(parts).items() if name != "tasks"}
    assert (parts.think == 0) == ("<think>" not in text)


def test_parts_name_where_a_reward_comes_from():
    table = REWARDS["disruptive_x3"]
    right, wrong = (parse_answer(render_answer(label, "two_keys"), "two_keys") for label in ("disruptive", "neutral"))
    assert list(score_answer(right, "disruptive", table).named().values()) == [0.0, 0.05, 3.0, 0.0, 3.05]
    assert list(score_answer(wrong, "disruptive", table).named().values()) == [0.0, 0.05, -0.6, 0.0, -0.55]
    assert list(score_answer(parse_answer("{}", "two_keys"), "neutral", table).named().values()) == [
        0,
        -0.75,
        0,
        0,
        -0.75,
    ]
    assert list(score_answer(parse_answer("<think>", "two_keys"), "neutral", table).named().values()) == [
        -1,
        0,
        0,
        -1,
        -2,
    ]


@pytest.mark.parametrize("gold", [None, "", "Neutral", "novel"])
def test_a_paper_without_a_known_label_cannot_be_scored(gold):
    with pytest.raises(RewardError, match="needs one of: disruptive, consolidating, neutral"):
        score_answer(parse_answer("{}", "two_keys"), gold, REWARDS["soft"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"correct": float("nan")}, "not finite"),
        ({"class_weights": (("Neutral", 2.0),)}, r"is Neutral:2, needs positive factors, .*\. Did you mean neutral\?"),
        ({"class_weights": (("neutral", 2.0), ("neutral", 3.0))}, "needs positive factors"),
        ({"wrong": 1.0}, "rising values"),
        ({"wrong": 0.3, "class_weights": (("neutral", 0.25),)}, "rising values"),
        ({"think": 0.5}, "nothing above 0"),
        ({"adjacent": 1.0}, "rising values"),
        ({"share_penalty": 0.2}, "rising values"),  # wrong, and said too often: as bad as broken
        ({"gold_weights": (("neutral", 1.0),)}, "not balanced"),
        ({"is_balanced": True, "gold_weights": (("neutral", 1.5),)}, "rising values"),
        ({"is_balanced": True, "adjacent": 0.2}, "would no longer earn the same"),
    ],
)
def test_a_table_that_rewards_the_worse_case_is_refused(changes, message):
    with pytest.raises(RewardError, match=message):
        replace(REWARDS["strong"], **changes)
