"""What the rewards beyond the published ones promise: every constant answer earns the same, forecasts are proper."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sciscirl.errors import RewardError
from sciscirl.lab.objectives.batch_term import batch_term, shares_said
from sciscirl.presets import PRESETS
from sciscirl.task.contracts import CONTRACTS, contract_keys, parse_answer, render_answer
from sciscirl.task.pairs import pair_papers
from sciscirl.task.papers import PAIRS, TARGETS, VOCABULARIES
from sciscirl.task.release import read_split
from sciscirl.task.rewards import (
    ADJACENT,
    MAX_WEIGHT,
    REWARDS,
    RewardTable,
    balance,
    quadratic_loss,
    score_answer,
)
from sciscirl.task.rules import TaskRules
from tests.sciscirl.papers import write_slice

EVERY = [dict(zip(VOCABULARIES, pair, strict=True)) for pair in product(*VOCABULARIES.values())]
columns = st.sampled_from([*VOCABULARIES])
counts = st.lists(st.integers(1, 10_000), min_size=3, max_size=3).filter(lambda held: 30 * min(held) >= sum(held))
forecasts = st.lists(st.integers(0, 1000), min_size=3, max_size=3).filter(any).map(
    lambda parts: [part / sum(parts) for part in parts]
)  # fmt: skip


def say(labels, contract, target, **options):
    return parse_answer(render_answer(labels, contract, target, **options), contract, target)


def foresee(forecast: dict[str, float], target: str = "disruption"):
    """A valid answer with any forecast, ties and all: what the score says of it is no matter of the contract."""
    certain = {column: VOCABULARIES[column][0] for column in TARGETS[target]}
    return replace(say(certain, "probabilities", target), forecast=forecast)


def mean_reward(answer, target, table, held) -> float:
    """What the same answer to every paper earns on average, over papers of each label as often as ``held`` says."""
    (column,) = TARGETS[target]
    earned = [score_answer(answer, label, table).total * held[label] for label in VOCABULARIES[column]]
    return math.fsum(earned) / sum(held.values())


def balanced_tables(held) -> list[RewardTable]:
    """Tables with and without a price for wrong answers; a little one, so that no weight makes it worse than broken."""
    own = RewardTable(name="own", broken=-0.9, kept=0.05, correct=0.7, wrong=-0.9e-4, is_balanced=True)
    return [balance(table, held.items()) for table in (REWARDS["balanced"], REWARDS["balanced_shares"], own)]


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Every pair of labels, in unequal numbers."""
    rows = [gold for number, gold in enumerate(EVERY, 1) for _ in range(number)]
    return read_split(write_slice(tmp_path_factory.mktemp("slice") / "s", rows), "train", needs=TARGETS["joint"])


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_for_every_row_and_preset_the_gold_answer_earns_the_most_and_each_broken_form_its_value(papers, preset):
    every = EVERY
    if preset.rules.target == PAIRS:
        papers, every = pair_papers(papers), [{"choice_label": letter} for letter in "AB"]
    assert papers
    rules = preset.rules.fitted(papers)
    table, kind = rules.table, (rules.contract, rules.target)
    low, high = table.bounds
    for paper in papers:
        gold = paper.labels(rules.target)
        right = render_answer(gold, *kind)
        fields = json.loads(right)

        def earn(text, gold=gold):
            return score_answer(rules.parse(text), gold, table).total

        valid = [render_answer(labels, *kind, confidence=c) for labels in every for c in (1.0, 0.5)]
        broken = [
            *({key: value for key, value in fields.items() if key != gone} for gone in fields),
            fields | {"extra": 1},
            fields | {next(iter(fields)): "Neutral"},
            [fields],
        ]
        unreadable = ["", right[:-1], f"```json\n{right}\n```", f"{right} Done."]
        assert earn(right) == pytest.approx(table.best(*gold.values())) == max(map(earn, valid))
        assert {earn(json.dumps(form)) for form in broken} == {table.broken}
        assert {earn(text) for text in unreadable} == {table.not_json}
        assert low < table.not_json < table.broken < min(map(earn, valid)) - table.share_penalty
        assert max(map(earn, valid)) <= high
        for text in (*map(json.dumps, broken), *unreadable):
            assert earn(text + "<think>") == table.not_json + table.think


@given(columns, counts)
def test_every_constant_label_earns_the_same_whatever_the_shares(column, numbers):
    held = dict(zip(VOCABULARIES[column], numbers, strict=True))
    target = column.removesuffix("_label")
    for table in balanced_tables(held):
        for contract in CONTRACTS:  # a forecast that is certain is a label
            earned = [mean_reward(say(label, contract, target), target, table, held) for label in held]
            assert earned == pytest.approx([table.kept + table.correct / 3 + table.wrong * 2 / 3] * 3, abs=1e-8)


@given(columns, counts, forecasts)
def test_of_all_constant_forecasts_the_uniform_one_earns_the_most(column, numbers, forecast):
    # With weights w = 1 / (K q), sum_y q_y w_y (1 - |p - e_y|^2 / 2) has its gradient, sum_y q_y w_y (e_y - p), vanish
    # where p_y = q_y w_y / sum(q w) = 1 / K.
    held = dict(zip(VOCABULARIES[column], numbers, strict=True))
    target = column.removesuffix("_label")
    uniform = foresee(dict.fromkeys(held, 1 / 3), target)
    for table in balanced_tables(held):
        answer = foresee(dict(zip(held, forecast, strict=True)), target)
        gap = mean_reward(uniform, target, table, held) - mean_reward(answer, target, table, held)
        distance = math.fsum((p - 1 / 3) ** 2 for p in forecast)
        assert gap == pytest.approx((table.correct - table.wrong) * distance / 2, abs=1e-8)


@given(counts, forecasts, forecasts)
def test_the_best_forecast_of_a_paper_is_the_belief_as_it_would_be_of_balanced_classes(numbers, belief, forecast):
    held = dict(zip(VOCABULARIES["disruption_label"], numbers, strict=True))
    table = balance(REWARDS["balanced"], held.items())
    weighted = [b * w for b, (_, w) in zip(belief, table.gold_weights, strict=True)]
    best = [value / math.fsum(weighted) for value in weighted]

    def expect(forecast):
        answer = foresee(dict(zip(held, forecast, strict=True)))
        return math.fsum(b * score_answer(answer, label, table).total for b, label in zip(belief, held, strict=True))

    assert expect(best) >= expect(forecast) - 1e-8


@given(columns, forecasts, st.integers(0, 2))
def test_the_quadratic_score_is_bounded_and_paid_between_wrong_and_correct(column, forecast, index):
    labels = VOCABULARIES[column]
    gold, target = labels[index], column.removesuffix("_label")
    answer = foresee(dict(zip(labels, forecast, strict=True)), target)
    loss = quadratic_loss(answer.forecast, column, gold)
    assert loss == pytest.approx(sum((p - (i == index)) ** 2 for i, p in enumerate(forecast)) / 2, abs=1e-12)
    assert 0 <= loss <= 1 + 1e-12
    for table in (REWARDS["strong"], balance(REWARDS["balanced"], [(label, 1) for label in labels])):
        total = score_answer(answer, gold, table).total
        assert total == pytest.approx(table.kept + table.correct - loss * (table.correct - table.wrong), abs=1e-8)
        assert table.broken < table.kept + table.wrong - 1e-9 <= total <= table.best(gold) + 1e-9


def test_a_label_that_is_next_to_the_right_one_earns_a_fifth():
    task = {
        (said, gold): score_answer(say(said, "two_keys", "novelty"), gold, REWARDS["partial"]).task
        for said, gold in product(VOCABULARIES["novelty_label"], repeat=2)
    }
    assert task == {
        ("novel", "novel"): 1.0, ("novel", "balanced"): 0.2, ("novel", "conventional"): 0.0,
        ("balanced", "novel"): 0.2, ("balanced", "balanced"): 1.0, ("balanced", "conventional"): 0.2,
        ("conventional", "novel"): 0.0, ("conventional", "balanced"): 0.2, ("conventional", "conventional"): 1.0,
    }  # fmt: skip
    for said, gold in product(VOCABULARIES["disruption_label"], repeat=2):
        task = score_answer(say(said, "two_keys", "disruption"), gold, REWARDS["partial"]).task
        assert task == float(said == gold)
    assert all((right, left) in ADJACENT for left, right in ADJACENT)


@given(st.sampled_from(EVERY), st.sampled_from(EVERY), st.sampled_from(["partial", "strong", "soft", "disruptive_x3"]))
def test_a_joint_answer_earns_the_mean_of_its_tasks_and_each_is_named(said, gold, name):
    table = REWARDS[name]
    parts = score_answer(say(said, "two_keys", "joint"), gold, table)
    alone = {
        column: score_answer(say(said[column], "two_keys", column.removesuffix("_label")), label, table).task
        for column, label in gold.items()
    }
    assert parts.tasks == pytest.approx(alone)
    assert parts.task == pytest.approx(math.fsum(alone.values()) / 2, abs=1e-9)
    assert parts.total == pytest.approx(table.kept + parts.task)


@given(st.lists(st.integers(100, 1000), min_size=6, max_size=6), st.sampled_from(EVERY), st.sampled_from(EVERY))
def test_every_constant_pair_of_labels_earns_the_same(numbers, one, other):
    held = dict(zip([label for labels in VOCABULARIES.values() for label in labels], numbers, strict=True))
    # Of independent labels, so that the papers of a pair are as many as the product says.
    scale = [sum(held[label] for label in labels) for labels in VOCABULARIES.values()]
    table = balance(REWARDS["balanced"], held.items())

    def expect(said):
        answer = say(said, "two_keys", "joint")
        return math.fsum(
            score_answer(answer, gold, table).total * math.prod(held[label] for label in gold.values())
            for gold in EVERY
        ) / math.prod(scale)

    assert expect(one) == pytest.approx(expect(other), abs=1e-7)


@given(columns, counts)
def test_no_weight_is_above_ten_and_a_class_that_would_need_more_is_refused_with_what_it_takes(column, numbers):
    held = dict(zip(VOCABULARIES[column], numbers, strict=True))
    assert max(weight for _, weight in balance(REWARDS["balanced"], held.items()).gold_weights) <= MAX_WEIGHT
    rest = sum(numbers[1:])
    rarest = -(-rest // 29)  # a thirtieth of all
    first = next(iter(held))
    held[first] = rarest
    assume(min(held.values()) == rarest)
    balance(REWARDS["balanced"], held.items())
    held[first] = rarest - 1
    with pytest.raises(RewardError, match=r"more than 10 times what it does with equal class counts\. Build a release"):
        balance(REWARDS["balanced"], held.items())


def test_a_balanced_table_scores_nothing_before_it_is_fitted_to_the_training_split():
    answer = say("neutral", "two_keys", "disruption")
    with pytest.raises(RewardError, match=r"has no weight for neutral\. .*TaskRules\.fitted\(papers\)"):
        score_answer(answer, "neutral", REWARDS["balanced"])
    novelty_only = balance(REWARDS["balanced"], [(label, 1) for label in VOCABULARIES["novelty_label"]])
    with pytest.raises(RewardError, match="no weight"):
        score_answer(answer, "neutral", novelty_only)
    assert TaskRules(reward="balanced").table == REWARDS["balanced"]


@given(counts, st.lists(st.integers(0, 100), min_size=3, max_size=3).filter(any), st.integers(0, 2), st.integers(0, 2))
def test_the_batch_term_is_the_slope_of_the_squared_excess(due, said, gaining, losing):
    labels, table = VOCABULARIES["disruption_label"], REWARDS["balanced_shares"]
    share = [value / sum(said) for value in said]
    aim = [value / sum(due) for value in due]
    excess = {label: s - a for label, s, a in zip(labels, share, aim, strict=True)}
    term = [batch_term(say(label, "two_keys", "disruption"), excess, table) for label in labels]
    assert all(abs(value) <= table.share_penalty for value in term)
    assert all(
        (value > 0) == (excess[label] < 0) for label, value in zip(labels, term, strict=True) if abs(value) > 1e-9
    )

    def penalty(shift):
        moved = [s + shift * ((i == gaining) - (i == losing)) for i, s in enumerate(share)]
        return -table.share_penalty / 2 * math.fsum((m - a) ** 2 for m, a in zip(moved, aim, strict=True))

    slope = (penalty(1e-4) - penalty(-1e-4)) / 2e-4
    assert term[gaining] - term[losing] == pytest.approx(slope, abs=1e-6)


@given(st.lists(st.sampled_from(EVERY), min_size=1, max_size=20))
def test_what_answers_say_adds_up_to_one_for_each_label_column(said):
    for target in TARGETS:
        for labels in said:
            soft, hard = (shares_said(say(labels, contract, target)) for contract in ("probabilities", "two_keys"))
            assert soft == {label: hard.get(label, 0.0) for label in contract_keys("probabilities", target)}
            assert sum(hard.values()) == len(TARGETS[target])
    total = Counter()
    for labels in said:
        total.update(shares_said(say(labels, "two_keys", "joint")))
    assert sum(total.values()) == 2 * len(said)
