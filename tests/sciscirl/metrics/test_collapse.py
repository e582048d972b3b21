"""The alarm on the published runs, which collapsed, at its edges, and in a run that it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from pathlib import Path

import polars as pl
import pytest
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig
from tinker_cookbook.stores.storage import storage_from_uri
from tinker_cookbook.stores.training_store import TrainingRunStore

from sciscidata.label_thresholds import DISRUPTION_LABELS
from sciscirl.cli.main import main
from sciscirl.errors import CollapseError
from sciscirl.lab.training import rl as training
from sciscirl.lab.training.rl import train_preset
from sciscirl.metrics.collapse import CollapseAlarm, CollapseConfig, explain_doubt, find_signs, measure_spread
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.options import TrainOptions
from sciscirl.task.predictions import INVALID
from tests.sciscirl.metrics.test_metrics import PREDICTED, PUBLISHED, row
from tests.sciscirl.tinker_stub import serve_models
from tests.sciscirl.toy import Scripted, say

ONE = CollapseConfig(n_evaluations=1)
COLLAPSED = {
    "predicted_share/disruptive": 1.0, "predicted_share/neutral": 0.0, "predicted_share/invalid": 0.0,
    "min_class_recall": 0.0,
}  # fmt: skip
HEALTHY = {"predicted_share/disruptive": 0.5, "predicted_share/neutral": 0.5, "min_class_recall": 0.4}


def measure(table: dict) -> dict[str, float]:
    return measure_predictions(
        [
            row(gold, None if label == INVALID else label)
            for gold, counts in zip(DISRUPTION_LABELS, table["confusion"], strict=True)
            for label, count in zip(PREDICTED, counts, strict=True)
            for _ in range(count)
        ]
    )


def test_exactly_the_published_runs_that_lost_a_class_are_found():
    found = {table["name"]: find_signs(measure(table)) for table in (*PUBLISHED["runs"], *PUBLISHED["exp5"])}
    assert {name for name, signs in found.items() if signs} == {"exp4", "step 250", "step 500", "step 2000"}
    assert found["exp4"] == ("min_class_recall 0.007 < 0.05",)
    assert [sign.split()[0] for sign in found["step 2000"]] == [
        "predicted_share/disruptive", "entropy", "min_class_recall"
    ]  # fmt: skip


def test_each_threshold_is_a_sign_only_beyond_itself():
    shares = {"predicted_share/a": 0.75, "predicted_share/b": 0.25, "predicted_share/invalid": 0.0}
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(2)
    metrics = shares | {"min_class_recall": 0.25}
    assert measure_spread(metrics) == {"largest_share": 0.75, "entropy": pytest.approx(entropy)}
    exact = {"share_max": 0.75, "entropy_min": measure_spread(metrics)["entropy"], "recall_min": 0.25}
    assert find_signs(metrics, CollapseConfig(**exact)) == ()
    for name, beyond in (("share_max", -1), ("entropy_min", 1), ("recall_min", 1)):
        moved = exact | {name: exact[name] + beyond * 1e-9}
        assert len(find_signs(metrics, CollapseConfig(**moved))) == 1


def test_invalid_answers_count_as_no_label_and_alone_have_no_entropy():
    metrics = {"predicted_share/a": 0.2, "predicted_share/b": 0.2, "predicted_share/invalid": 0.6}
    assert measure_spread(metrics) == {"largest_share": 0.2, "entropy": pytest.approx(1.0)}
    signs = find_signs(metrics | {"min_class_recall": 0.1}, CollapseConfig(share_max=0.1))
    assert signs == ("predicted_share/a 0.200 > 0.1",)
    nothing = {"predicted_share/a": 0.0, "predicted_share/b": 0.0, "predicted_share/invalid": 1.0}
    assert measure_spread(nothing) == {"largest_share": 0.0}
    assert find_signs(nothing | {"min_class_recall": 0.0}) == ("min_class_recall 0.000 < 0.05",)


def test_two_labels_of_one_evaluation_are_each_looked_at():
    both = {f"test/disruption/{name}": value for name, value in HEALTHY.items()} | {
        f"test/novelty/{name}": value for name, value in COLLAPSED.items()
    }
    assert {sign.split()[0] for sign in find_signs(both)} == {
        "test/novelty/predicted_share/disruptive", "test/novelty/entropy", "test/novelty/min_class_recall"
    }  # fmt: skip
    assert {"test/disruption/collapse/entropy", "test/novelty/collapse/alarm"} <= set(CollapseAlarm()(both))


def test_one_bad_evaluation_among_good_ones_raises_no_alarm(caplog):
    alarm = CollapseAlarm(CollapseConfig(n_evaluations=2))
    with caplog.at_level(logging.WARNING):
        raised = [alarm(metrics, step)["collapse/alarm"] for step, metrics in
                  enumerate((COLLAPSED, HEALTHY, COLLAPSED, COLLAPSED, COLLAPSED, HEALTHY))]  # fmt: skip
    assert raised == [0.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    assert [record.args for record in caplog.records] == [(), ()]
    assert "at step 3 predicted_share/disruptive 1.000 > 0.8" in caplog.text


def test_what_was_evaluated_before_a_run_went_on_counts():
    alarm = CollapseAlarm(CollapseConfig(n_evaluations=2), "stop", history=[HEALTHY, COLLAPSED])
    with pytest.raises(CollapseError, match="collapsed: at step 50") as caught:
        alarm(COLLAPSED, 50)
    assert caught.value.step == 50
    assert caught.value.metrics == COLLAPSED | {
        "collapse/largest_share": 1.0, "collapse/entropy": 0.0, "collapse/alarm": 1.0
    }  # fmt: skip


def test_few_valid_answers_allow_no_verdict(caplog):
    few = COLLAPSED | {"n": 12.0, "invalid": 0.0}
    assert find_signs(few) == ()
    assert len(find_signs(few | {"n": 50.0})) == 3
    assert len(find_signs(few | {"n": 50.0, "invalid": 0.02})) == 1
    joint = {f"test/novelty/{name}": value for name, value in COLLAPSED.items()} | {"test/n": 12.0, "test/invalid": 0.0}
    assert find_signs(joint) == ()
    assert len(find_signs(joint | {"test/n": 50.0})) == 3
    alarm = CollapseAlarm(ONE, "stop")
    assert alarm(few, 0)["collapse/alarm"] == 0.0


@pytest.mark.parametrize(
    ("n_same", "n", "is_sure"), [(30, 30, True), (16, 16, True), (15, 15, False), (29, 30, True), (28, 30, False)]
)
def test_few_answers_are_enough_where_one_label_is_surely_above_the_share(n_same, n, is_sure):
    """Wilson's low ends: 0.886, 0.806, 0.796, 0.833, 0.787."""
    metrics = measure_predictions(
        [row(("neutral", "disruptive")[place % 2], "neutral") for place in range(n_same)]
        + [row("disruptive", "disruptive")] * (n - n_same)
    )
    assert find_signs(metrics) == ((f"predicted_share/neutral {n_same / n:.3f} > 0.8",) if is_sure else ())
    doubt = explain_doubt(metrics, "two_keys")
    assert (doubt is None) == is_sure
    assert is_sure or doubt.startswith(f"{n} valid answers are too few")


def test_answers_that_are_no_json_are_a_matter_of_form_not_of_classes():
    lost = [row("neutral", None)] * 500
    metrics = measure_predictions(lost)
    assert find_signs(metrics) == ()
    said = "0 of 500 answers were JSON; does the model know the contract two_keys? Fine-tune first: sciscirl sft."
    assert explain_doubt(metrics, "two_keys") == said
    half = measure_predictions(lost[:250] + [row("neutral", "neutral")] * 250)
    assert explain_doubt(half, "two_keys") is None
    broken = explain_doubt(half | {"parse_ok": 1.0, "invalid": 0.6}, "evidence")
    assert broken.startswith("500 of 500 answers were JSON, but only 200 kept the contract; does the model know")


@pytest.fixture
def run_options(options):
    return options | {"max_steps": 5, "eval_group_size": 6}


def run_scripted(options: dict, tokenizer, monkeypatch) -> list[int]:
    """Run the launcher with a loop that only evaluates: a model that answers alike from step 2 on. Return its steps."""
    reached: list[int] = []

    async def loop(config):
        store = TrainingRunStore(storage_from_uri(config.log_path))
        evaluator = config.evaluator_builders[0]()
        for step in range(config.max_steps):
            turns = (say(label) for label in list(DISRUPTION_LABELS) * 18)
            policy = Scripted(tokenizer, turns if step < 2 else lambda _: say("neutral"))
            export = RolloutSummaryExportConfig(split="eval/test", iteration=step, base_name="eval_test")
            metrics = await evaluator.eval_token_completer(policy, rollout_summary_export=export, store=store)
            store.write_metrics(metrics, step=step)
            reached.append(step)

    monkeypatch.setattr(training.train, "main", loop)
    with serve_models([{"model_name": options["model"]}]) as url:
        assert asyncio.run(train_preset(TrainOptions(**options, base_url=url))) == Path(options["log_path"])
    return reached


def test_a_collapsed_run_ends_early_and_leaves_what_it_has(run_options, toy_renderer, monkeypatch, caplog):
    with pytest.raises(
        CollapseError,
        match=r"at step 3 .* in a row.*continue anyway with behavior_if_log_dir_exists=resume collapse=warn",
    ):
        run_scripted(run_options | {"collapse": "stop"}, toy_renderer.tokenizer, monkeypatch)
    rows = [json.loads(line) for line in (Path(run_options["log_path"]) / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in rows] == [0, 1, 2, 3]
    assert [line["test/collapse/alarm"] for line in rows] == [0.0, 0.0, 0.0, 1.0]
    assert (rows[-1]["collapse_stop"], rows[-1]["test/min_class_recall"]) == (1.0, 0.0)
    predictions = pl.read_parquet(Path(run_options["log_path"]) / "predictions" / "test_000003.parquet")
    assert predictions["label"].unique().to_list() == ["neutral"]
    assert "collapsed" not in caplog.text  # said once, by the error


def test_a_collapsed_run_ends_its_command_with_one_line_and_its_own_exit_code(capsys, monkeypatch):
    monkeypatch.setattr(
        "sciscirl.cli.commands.PROGRAM.commands", {"presets": lambda: CollapseAlarm(ONE, "stop")(COLLAPSED, 7)}
    )
    assert main(["presets"]) == CollapseError.exit_code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the model has collapsed: at step 7 predicted_share/disruptive 1.000 > 0.8")


def test_a_warned_run_goes_on(run_options, toy_renderer, monkeypatch, caplog):
    assert run_scripted(run_options, toy_renderer.tokenizer, monkeypatch) == [0, 1, 2, 3, 4]
    assert caplog.text.count("the model has collapsed") == 2
    rows = [json.loads(line) for line in (Path(run_options["log_path"]) / "metrics.jsonl").read_text().splitlines()]
    assert [line["test/collapse/alarm"] for line in rows] == [0.0, 0.0, 0.0, 1.0, 1.0]
