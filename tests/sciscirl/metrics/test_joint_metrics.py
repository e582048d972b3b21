"""Novelty, and both labels together: each as if it were alone, and what stands for both."""

from __future__ import annotations

import json
import math
from itertools import product

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscirl.errors import PredictionsError
from sciscirl.lab.evaluation.bootstrap import bootstrap_intervals
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import check_predictions, split_by_label
from sciscirl.task.contracts import parse_answer, render_answer
from sciscirl.task.papers import TARGETS, VOCABULARIES, name_gold
from sciscirl.task.predictions import AVERAGED, make_prediction, prediction_schema
from sciscirl.task.rewards import REWARDS, score_answer

EVERY = [dict(zip(VOCABULARIES, pair, strict=True)) for pair in product(*VOCABULARIES.values())]
spoken = st.tuples(
    st.sampled_from(EVERY),
    st.none() | st.sampled_from(EVERY),
    st.integers(34, 100).map(lambda hundredths: hundredths / 100),
)


def predict(gold, said, confidence, target, contract="two_keys") -> dict:
    text = "?" if said is None else render_answer(said, contract, target, confidence=confidence)
    answer = parse_answer(text, contract, target)
    gold = name_gold(gold, target)
    return make_prediction("W1", gold, answer, score_answer(answer, gold, REWARDS["strong"]), text)


def predict_all(answers, target, contract="two_keys") -> pl.DataFrame:
    rows = [predict(*answer, target, contract) for answer in answers]
    return pl.DataFrame(rows, schema=prediction_schema(target))


@given(st.lists(spoken, min_size=1, max_size=25), st.sampled_from(["two_keys", "probabilities"]))
@settings(max_examples=40)
def test_each_label_of_a_joint_task_is_judged_as_if_it_were_alone(answers, contract):
    joint = measure_predictions(predict_all(answers, "joint", contract))
    alone = {name: measure_predictions(predict_all(answers, name, contract)) for name in ("disruption", "novelty")}
    for name, metrics in alone.items():
        own = {key.removeprefix(f"{name}/"): value for key, value in joint.items() if key.startswith(f"{name}/")}
        assert own.items() <= metrics.items()
        assert {"macro_f1", "min_class_recall", "predicted_share/invalid"} <= set(own)
        assert set(metrics) - set(own) <= {
            "n", "parse_ok", "format_strict_ok", "invalid", "think", "brier", "ece", "mean_confidence", "reward",
            "reward_parse", "reward_contract", "reward_task", "reward_think", "forecast_tie_rate",
        }  # fmt: skip
    for name in AVERAGED:
        if name in joint:
            assert joint[name] == pytest.approx(math.fsum(alone[label][name] for label in alone) / 2)
    assert ("forecast_brier" in joint) == (contract == "probabilities" and any(said for _, said, _ in answers))
    assert joint["min_class_recall"] == min(alone[label]["min_class_recall"] for label in alone)
    assert joint["reward"] == pytest.approx(math.fsum(alone[label]["reward"] for label in alone) / 2)
    assert joint["both_match"] == sum(gold == said for gold, said, _ in answers) / len(answers)
    assert joint["both_match"] <= min(alone[label]["label_match"] for label in alone)


@given(st.lists(spoken, min_size=1, max_size=25))
@settings(max_examples=40)
def test_confidence_in_a_joint_answer_is_that_both_are_right(answers):
    metrics = measure_predictions(predict_all(answers, "joint"))
    loss = [1.0 if said is None else (c - (gold == said)) ** 2 for gold, said, c in answers]
    assert metrics["brier"] == pytest.approx(math.fsum(loss) / len(loss))
    stated = [c for _, said, c in answers if said]
    assert metrics.get("mean_confidence") == (pytest.approx(sum(stated) / len(stated)) if stated else None)


@given(st.lists(spoken, min_size=1, max_size=15), st.integers(0, 100))
@settings(max_examples=25)
def test_intervals_of_a_joint_task_are_of_the_same_papers_for_both_labels(answers, seed):
    frame = predict_all(answers, "joint")
    intervals, metrics = bootstrap_intervals(frame, n_resamples=30, seed=seed), measure_predictions(frame)
    assert {name.rpartition("/")[0] for name in intervals} <= set(metrics)
    for name, part in split_by_label(frame).items():
        alone = bootstrap_intervals(part.with_columns(confidence=frame["confidence"]), n_resamples=30, seed=seed)
        alone = {key: value for key, value in alone.items() if not key.startswith("format_strict_ok")}
        own = {key: value for key, value in intervals.items() if key.startswith(f"{name}/")}
        assert own == {f"{name}/{key}": value for key, value in alone.items()}
    # Where both labels are right for the same papers, their mean varies as much as either; drawn apart, it would less.
    same = predict_all([(gold, said and gold, c) for gold, said, c in answers], "joint")
    twice = bootstrap_intervals(same, n_resamples=30, seed=seed)
    assert twice.get("macro_f1/low") == pytest.approx(twice.get("novelty/macro_f1/low"))


@given(st.lists(spoken, min_size=1, max_size=10), st.sampled_from(["two_keys", "probabilities"]))
@settings(max_examples=40)
def test_forecasts_come_back_from_the_table_as_they_were_said(answers, contract):
    for target in TARGETS:
        frame = predict_all([(g, s, c) for g, s, c in answers], target, contract)
        for (gold, said, confidence), row in zip(answers, frame.to_dicts(), strict=True):
            for column in TARGETS[target]:
                end = f"_{column.removesuffix('_label')}" if target == "joint" else ""
                stored = row[f"forecast{end}"]
                assert (stored is None) == (said is None or contract != "probabilities")
                assert row[f"gold{end}"] == gold[column]
                if stored is not None:
                    assert json.loads(stored)[said[column]] == pytest.approx(confidence, abs=1e-3)


def test_nearly_the_uniform_forecast_costs_a_third_and_an_invalid_answer_costs_one():
    text = '{"novel": 0.33334, "balanced": 0.33333, "conventional": 0.33333}'
    answer = parse_answer(text, "probabilities", "novelty")
    row = make_prediction("W1", "novel", answer, score_answer(answer, "novel", REWARDS["strong"]), text)
    lost = predict("novel", None, 1.0, "novelty", "probabilities")
    assert measure_predictions([row])["forecast_brier"] == pytest.approx(1 / 3, abs=1e-5)
    assert measure_predictions([row, lost])["forecast_brier"] == pytest.approx(2 / 3, abs=1e-5)
    assert "forecast_brier" not in measure_predictions([lost])


GOOD = predict(EVERY[0], EVERY[1], 0.5, "joint")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gold_disruption": None}, "have an unknown gold label"),
        ({"label_disruption": None}, "have a label or confidence without being valid, or are valid without"),
        ({"confidence": None}, "have a label or confidence without being valid, or are valid without"),
        ({"is_json": False}, "are valid but not JSON"),
        ({"reward_task_novelty": math.inf}, "have no finite reward"),
    ],
)
def test_a_joint_table_that_no_evaluation_made_is_refused(changed, message):
    assert len(check_predictions([GOOD])) == 1
    with pytest.raises(PredictionsError, match=message):
        measure_predictions([GOOD | changed])
