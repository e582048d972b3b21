"""Temperature scaling finds a temperature that was put there, and changes nothing but probabilities."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscirl.cli.main import main
from sciscirl.errors import PredictionsError, SciSciRLError
from sciscirl.lab.analysis.baselines import evaluate_baselines
from sciscirl.lab.analysis.calibrate import (
    NOISE,
    apply_temperatures,
    calibrate_evaluation,
    find_noise,
    fit_temperatures,
    measure_nll,
    render_calibration,
)
from sciscirl.lab.analysis.compare import CompareConfig
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.report.comparison import compare_files
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import read_predictions
from sciscirl.task.contracts import Answer
from sciscirl.task.papers import list_labels
from sciscirl.task.predictions import make_prediction, prediction_schema
from sciscirl.task.rewards import REWARDS, score_answer
from tests.sciscirl.made_runs import make_evaluation
from tests.sciscirl.toy import make_slice

LABELS = list_labels("disruption")["disruption_label"]


def make_row(name, target, golds, chances, *, is_valid=True, has_forecast=True):
    columns = list_labels(target)
    forecast = {
        word: float(chance)
        for row, words in zip(chances, columns.values(), strict=True)
        for word, chance in zip(words, row, strict=True)
    }
    labels = {column: max(words, key=lambda word: forecast[word]) for column, words in columns.items()}
    answer = Answer(
        target=target, labels=labels if is_valid else {}, forecast=forecast if is_valid and has_forecast else {},
        confidence=math.prod(forecast[label] for label in labels.values()) if is_valid else None, is_json=True,
        is_valid=is_valid, tolerant_labels={}, tolerant_confidence=None, has_think=False,
        problem="" if is_valid else "wrong_keys",
    )  # fmt: skip
    gold = dict(zip(columns, golds, strict=True))
    return make_prediction(name, gold, answer, score_answer(answer, gold, REWARDS["strong"]), "")


def draw(n, heat, target="disruption", seed=0, **more) -> pl.DataFrame:
    """Predictions of a model that knows the probabilities of the labels, and states them ``heat`` times too sharp."""
    draws = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        golds, chances = [], []
        for words in list_labels(target).values():
            logits = draws.normal(size=len(words))
            true, stated = (np.exp(one) / np.exp(one).sum() for one in (logits, heat * logits))
            golds.append(str(draws.choice(words, p=true)))
            chances.append(stated)
        rows.append(make_row(f"W{number}", target, golds, chances, **more))
    return pl.DataFrame(rows, schema=prediction_schema(target))


@pytest.mark.parametrize("heat", [0.5, 1.0, 3.0])
def test_the_temperature_that_was_put_there_is_found_and_taken_out(heat):
    dev, test = draw(1500, heat), draw(1500, heat, seed=1)
    found = fit_temperatures(dev)
    assert found["disruption"] == pytest.approx(heat, rel=0.15)
    scaled = apply_temperatures(test, found)
    before, after = measure_predictions(test), measure_predictions(scaled)
    assert after["ece"] < 0.05
    if heat != 1:
        assert after["ece"] < before["ece"] - 0.05
        assert after["forecast_brier"] < before["forecast_brier"]
        assert measure_nll(scaled)["nll/disruption"] < measure_nll(test)["nll/disruption"]
    kept = [name for name in test.columns if name not in {"forecast", "confidence"}]
    assert scaled.select(kept).equals(test.select(kept))
    for text, sure, label in zip(scaled["forecast"], scaled["confidence"], scaled["label"], strict=True):
        forecast = json.loads(text)
        assert sum(forecast.values()) == pytest.approx(1)
        assert sure == forecast[label] == max(forecast.values())


def test_in_the_joint_task_each_label_has_its_own_temperature():
    dev = draw(2000, 2.0, "joint")
    found = fit_temperatures(dev)
    assert set(found) == {"disruption", "novelty"}
    scaled = apply_temperatures(dev, found)
    first, second = (json.loads(scaled[f"forecast_{name}"][0]) for name in found)
    assert scaled["confidence"][0] == pytest.approx(max(first.values()) * max(second.values()))


def test_a_stated_confidence_is_scaled_where_there_is_no_forecast():
    dev = draw(2000, 3.0, has_forecast=False)
    found = fit_temperatures(dev)
    assert set(found) == {"confidence"}
    scaled = apply_temperatures(dev, found)
    assert measure_predictions(scaled)["ece"] < measure_predictions(dev)["ece"] - 0.05
    assert scaled["forecast"].is_null().all()
    with pytest.raises(PredictionsError, match="the temperatures are of confidence, the predictions state disruption"):
        apply_temperatures(draw(3, 1.0), found)


def test_a_calibration_on_noise_says_that_it_is_noise():
    heat, noise, draws = draw(150, 2.0), [], np.random.default_rng(1)
    for seed in range(40):
        table = draw(60, 2.0, seed=seed)
        shuffled = table["gold"].gather(draws.permutation(len(table)))
        noise.append(table.with_columns(gold=shuffled))
    assert find_noise(heat)["disruption"] < 0.01
    called = [find_noise(table)["disruption"] > NOISE for table in noise]
    assert sum(called) >= 36  # of 40, 5 % are 2
    constant = heat.with_columns(forecast=pl.lit(heat["forecast"][0]), confidence=pl.lit(heat["confidence"][0]))
    assert find_noise(constant)["disruption"] == 1
    for has_forecast, name in ((True, "disruption"), (False, "confidence")):
        sure = draw(300, 1.0, has_forecast=has_forecast)
        golds = sure["gold"].gather(draws.permutation(len(sure)))
        assert find_noise(sure)[name] < 0.01
        assert find_noise(sure.with_columns(gold=golds))[name] > NOISE
        assert find_noise(pl.concat([sure] * 3))[name] == find_noise(sure)[name]
    assert find_noise(draw(5, 1.0, is_valid=False)) == {}


@pytest.mark.parametrize(("heat", "is_noise", "said"), [
    (2.0, True, "disruption: noise. Its probabilities are not surely higher for right labels"),
    (1.0, False, "disruption: its temperature cannot be told from 1"),
    (3.0, False, None),
])  # fmt: skip
def test_what_calibration_is_worth_is_said_beside_the_temperature(tmp_path, heat, is_noise, said):
    settings = {"model": "m", "split": "dev"}
    for place, seed in (("dev", 0), ("test", 1)):
        table = draw(200, heat, seed=seed).with_columns(openalex_id=pl.lit(place) + pl.col("openalex_id"))
        if is_noise:
            table = table.with_columns(gold=pl.Series(np.random.default_rng(9).permutation(table["gold"].to_list())))
        make_evaluation(tmp_path / place, table, settings | {"split": place})
    result = calibrate_evaluation(tmp_path / "test", tmp_path / "dev")
    shown = render_calibration(result)
    assert [line for line in shown.splitlines() if line.startswith("disruption: ")] == (
        [] if said is None else [line for line in shown.splitlines() if line.startswith(said)]
    )
    assert (said or "temperature: ") in shown
    recorded = json.loads((result.out / "run.json").read_text("utf-8"))["settings"]["calibration"]
    assert (recorded["p"]["disruption"] > NOISE) == is_noise


def test_answers_that_are_not_valid_stay_wrong_and_teach_no_temperature():
    dev = draw(500, 2.0)
    invalid = draw(100, 1.0, seed=2, is_valid=False)
    assert fit_temperatures(pl.concat([dev, invalid])) == fit_temperatures(dev)
    scaled = apply_temperatures(pl.concat([dev, invalid]), {"disruption": 2.0})
    assert scaled["confidence"].null_count() == scaled["forecast"].null_count() == 100
    assert measure_predictions(scaled)["invalid"] == pytest.approx(1 / 6)
    with pytest.raises(PredictionsError, match="no answer is valid"):
        fit_temperatures(invalid)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(LABELS), st.lists(st.floats(0, 1), min_size=3, max_size=3)), min_size=1, max_size=9
    ),
    st.floats(0.02, 50),
)
def test_any_forecast_keeps_its_order(given_, temperature):
    rows = [
        make_row(f"W{number}", "disruption", [gold], [[(one + 1e-3) / (sum(row) + 3e-3) for one in row]])
        for number, (gold, row) in enumerate(given_)
    ]
    table = pl.DataFrame(rows, schema=prediction_schema("disruption"))
    scaled = apply_temperatures(table, {"disruption": temperature})
    for before, after in zip(map(json.loads, table["forecast"]), map(json.loads, scaled["forecast"]), strict=True):
        for one in LABELS:
            for other in LABELS:
                assert before[one] < before[other] or after[one] >= after[other] - 1e-12
    assert (
        measure_nll(apply_temperatures(table, fit_temperatures(table)))["nll/disruption"]
        <= measure_nll(table)["nll/disruption"] + 1e-6
    )


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The baselines on dev and on test, of a release with both."""
    home = tmp_path_factory.mktemp("calibrated")
    release = make_slice(home / "slice", n_train=60, n_test=18, n_dev=18)
    for split in ("dev", "test"):
        evaluate_baselines(EvaluationConfig(release=release, out=home / split, split=split))
    return home


def test_an_evaluation_is_calibrated_on_dev_and_is_one_like_others(judged, tmp_path, capsys):
    test, dev, out = judged / "test" / "words", judged / "dev" / "words", tmp_path / "out"
    assert main(["calibrate", str(test), "--on", str(dev), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "temperature: disruption " in shown
    assert f"result: {out}" in shown
    stated = json.loads((out / "run.json").read_text("utf-8"))["settings"]["calibration"]
    assert stated["temperatures"] == pytest.approx(fit_temperatures(read_predictions(dev / "predictions.parquet")))
    assert (stated["split"], stated["n_answers"]) == ("dev", 18)
    metrics = json.loads((out / "metrics.json").read_text("utf-8"))
    assert metrics["forecast_brier"] < json.loads((test / "metrics.json").read_text("utf-8"))["forecast_brier"]
    (pair,) = compare_files([f"raw={test}", f"calibrated={out}"], CompareConfig()).pairs
    assert (pair.only_left, pair.only_right) == (0, 0)
    assert main(["calibrate", str(test), "--on", str(dev), "--out", str(out)]) == 1
    assert "holds a run or an evaluation already" in capsys.readouterr().err
    result = calibrate_evaluation(judged / "test" / "majority", judged / "dev" / "majority", tmp_path / "majority")
    assert "temperature: disruption" in render_calibration(result)


def test_what_would_flatter_or_mix_models_is_refused(judged, tmp_path):
    test, dev = judged / "test", judged / "dev"
    for on, said in (
        (test / "words", "18 papers of .* are in .* too"),
        (dev / "majority", "has baseline='words', .* has 'majority'"),
        (judged, "is not the folder of a run"),
    ):
        with pytest.raises(SciSciRLError, match=said):
            calibrate_evaluation(test / "words", on, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    calibrate_evaluation(test / "majority", dev / "majority", tmp_path / "once")
    with pytest.raises(SciSciRLError, match="is calibrated already"):
        calibrate_evaluation(tmp_path / "once", dev / "majority", tmp_path / "twice")
