"""What a run or an evaluation refuses, and what it says, before it costs anything."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import polars as pl
import pytest

from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import PredictionsError, ReleaseError, SciSciRLError
from sciscirl.lab.analysis.baselines import evaluate_baselines, run_baseline
from sciscirl.lab.dry_run import describe_server_training
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model, evaluate_predictions
from sciscirl.lab.evaluation.results import measure
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.evaluator import AnswerSampling, LabelEvaluator
from sciscirl.lab.training.rl import train_preset
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import write_predictions
from sciscirl.options import TrainOptions, resolve_run
from sciscirl.presets import PRESETS, describe
from sciscirl.runs.record import begin_run
from sciscirl.task.release import read_split
from sciscirl.task.rules import TaskRules
from tests.sciscirl.papers import write_slice
from tests.sciscirl.tinker_stub import KEY, serve_models
from tests.sciscirl.toy import RENDERER, Scripted, make_slice

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def run(tmp_path, toy_slice, toy_model) -> Path:
    """The folder of a training run that has come to a checkpoint."""
    folder = tmp_path / "run"
    folder.mkdir()
    settings = describe(PRESETS["exp5"]) | {"model": toy_model, "renderer": RENDERER, "max_paper_tokens": 1024}
    begin_run(folder, toy_slice, settings, behavior="raise")
    (folder / "checkpoints.jsonl").write_text(
        json.dumps({"name": "final", "batch": 1, "sampler_path": "tinker://x/final"}) + "\n", "utf-8"
    )
    return folder


def ask(config: EvaluationConfig):
    return asyncio.run(evaluate_model(config))


def main(*words: str) -> None:
    PROGRAM.act(["evaluate", *words])


@pytest.mark.parametrize("name", ["run.json", "predictions.parquet"])
def test_answers_are_never_written_over_a_run_or_over_others(toy_slice, tmp_path, name):
    (tmp_path / name).write_text("{}", "utf-8")
    config = EvaluationConfig(release=toy_slice, out=tmp_path, model="a/b", renderer=RENDERER, base_url=NOBODY)
    with pytest.raises(SciSciRLError, match="holds a run or an evaluation already"):
        ask(config)


def test_where_one_baseline_cannot_learn_none_is_left_half_done(tmp_path):
    release = write_slice(tmp_path / "slice", [{"disruption_label": "neutral", "cd_index": 0.0}] * 6, n_test=2)
    with pytest.raises(SciSciRLError, match="two classes at least"):
        evaluate_baselines(EvaluationConfig(release=release, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_run_is_asked_as_what_it_was_trained_as(toy_slice, tmp_path, run):
    with pytest.raises(SciSciRLError, match="was trained as exp5, not exp4"):
        find_subject(EvaluationConfig(release=toy_slice, out=tmp_path, run=run, preset="exp4"))
    for preset in (None, "exp5"):
        subject = find_subject(EvaluationConfig(release=toy_slice, out=tmp_path, run=run, preset=preset))
        assert subject.preset.name == "exp5"
    assert find_subject(EvaluationConfig(release=toy_slice, out=tmp_path)).preset.name == "baseline"


def test_a_run_that_was_trained_on_another_slice_is_warned_of(toy_slice, tmp_path, run, caplog):
    out, other = tmp_path / "out", make_slice(tmp_path / "other", 12, 6)
    for release, n_warnings in ((toy_slice, 0), (other, 1)):
        caplog.clear()
        with (
            caplog.at_level(logging.WARNING, logger="sciscirl"),
            pytest.raises(SciSciRLError, match="no Tinker server"),
        ):
            ask(EvaluationConfig(release=release, out=out, run=run, base_url=NOBODY))
        said = [record.getMessage() for record in caplog.records if record.name == "sciscirl.runs.lineage"]
        assert len(said) == n_warnings
        assert all("trained on another release" in text for text in said)


def test_where_papers_repeat_it_is_measured_how_far_rewards_tie(toy_slice):
    frame = run_baseline("majority", read_split(toy_slice, "train"), read_split(toy_slice, "test")).predictions
    other = frame.with_columns(reward=pl.when(pl.col("gold") == "neutral").then("reward").otherwise(-1.0))
    # One answer after the other, not paper by paper: groups are those of the id. A third of the papers is neutral.
    assert measure(pl.concat([frame, other]))["reward_uniform_group_rate"] == pytest.approx(1 / 3)
    assert "reward_uniform_group_rate" not in measure(frame)
    assert "reward_uniform_group_rate" not in measure(pl.concat([frame, other]).drop("reward"))


def test_signs_of_a_search_pattern_in_a_name_are_part_of_the_name(toy_slice, tmp_path):
    release = make_slice(tmp_path / "a[1]*?", 6, 3)
    assert len(read_split(release, "test")) == 3
    frame = run_baseline("majority", read_split(release, "train"), read_split(release, "test")).predictions
    write_predictions(frame, tmp_path / "p[2].parquet")
    assert evaluate_predictions(tmp_path / "p[2].parquet")["n"] == 3


def test_a_folder_in_place_of_a_predictions_file_is_not_said_to_be_missing(tmp_path):
    with pytest.raises(SciSciRLError, match="is a folder"):
        main("--from-predictions", str(tmp_path))


def test_a_slice_without_test_papers_is_said_by_the_dry_run_and_before_training(tmp_path, toy_model, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    release = write_slice(tmp_path / "slice", [{}] * 6)
    with serve_models([{"model_name": toy_model}]) as url:
        options = TrainOptions(
            release=str(release), model=toy_model, renderer=RENDERER, batch_size=2, max_steps=1, base_url=url,
            log_path=str(tmp_path / "run"),
        )  # fmt: skip
        with pytest.raises(ReleaseError, match="no paper in the test split"):
            describe_server_training(resolve_run(options))
        with pytest.raises(ReleaseError, match="no paper in the test split"):
            asyncio.run(train_preset(options))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "forecast",
    [
        "", "x", "[]", "null", "{}", '{"disruptive": 1}', '{"disruptive": "1", "consolidating": 0, "neutral": 0}',
        '{"disruptive": NaN, "consolidating": 0, "neutral": 0}', '{"disruptive": 2, "consolidating": 0, "neutral": 0}',
        '{"novel": 1, "balanced": 0, "conventional": 0}',
    ],
)  # fmt: skip
def test_a_forecast_that_is_none_is_one_clear_error(toy_slice, tmp_path, forecast):
    frame = run_baseline("majority", read_split(toy_slice, "train"), read_split(toy_slice, "test")).predictions
    write_predictions(frame.with_columns(forecast=pl.lit(forecast)), tmp_path / "p.parquet")
    with pytest.raises(PredictionsError, match="9 of 9 predictions have a forecast that is none"):
        evaluate_predictions(tmp_path / "p.parquet")


def test_a_forecast_that_ties_is_wrong_is_invalid_and_is_counted(toy_slice, toy_renderer):
    papers = read_split(toy_slice, "test")
    forecasts = [{"disruptive": 0.4, "consolidating": 0.4, "neutral": 0.2}] * 3
    forecasts += [{"disruptive": 0.1, "consolidating": 0.2, "neutral": 0.7}] * 5 + [{}]
    rules = TaskRules(contract="probabilities", reward="strong")
    evaluator = LabelEvaluator(papers, rules, toy_renderer, AnswerSampling(200))
    policy = Scripted(toy_renderer.tokenizer, map(json.dumps, forecasts))
    metrics = asyncio.run(evaluator.eval_token_completer(policy))
    assert (metrics["test/forecast_tie_rate"], metrics["test/invalid"]) == (3 / 9, 4 / 9)
    assert metrics["test/format_strict_ok"] == 1 - metrics["test/invalid"]
    assert metrics["test/predicted_share/disruptive"] == 0.0
    assert metrics["test/predicted_share/invalid"] == 4 / 9
    # Where all tie there is no forecast on record, and still a rate; where labels are asked for there is none.
    tied = evaluator.predictions.filter(problem="tie")
    assert measure_predictions(tied)["forecast_tie_rate"] == 1.0
    bare = tied.with_columns(problem=pl.lit("bad_label"))
    assert "forecast_tie_rate" not in measure_predictions(bare)


def test_the_dry_run_counts_the_answers_that_dynamic_sampling_may_take(toy_slice, toy_model):
    options = {"release": str(toy_slice), "model": toy_model, "renderer": RENDERER, "preset": "exp4", "batch_size": 4,
               "max_steps": 2, "n_test": 3, "max_paper_tokens": 4000}  # fmt: skip
    once, often = (
        describe_server_training(resolve_run(TrainOptions(**options, dynamic_sampling=n)))
        .partition("in all, ")[2]
        .split("\n")[0]
        for n in (None, 3)
    )
    # 2 steps of 4 papers x 2 answers, and 2 evaluations of 3; with 3 spares each answer of training up to 4 times.
    assert f" {(16 + 6) * 64:,} sampled, " in once
    assert f" {(64 + 6) * 64:,} sampled, " in often
    assert once.partition(" sampled, ")[2] == often.partition(" sampled, ")[2]
