"""Runs with known evaluations: which checkpoint is chosen, and why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sciscidata.label_thresholds import DISRUPTION_LABELS
from sciscirl.errors import PredictionsError, RunFolderError, SciSciRLError
from sciscirl.lab.analysis.select_checkpoint import SelectionConfig, render_selection, select_checkpoint
from sciscirl.lab.evaluation.bootstrap import bootstrap_intervals
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import write_predictions
from sciscirl.runs.checkpoints import list_weights
from sciscirl.runs.logs import write_json
from sciscirl.task.predictions import PREDICTIONS

N = 300
GOLD = [DISRUPTION_LABELS[number % 3] for number in range(N)]
NEXT = dict(zip(DISRUPTION_LABELS, (*DISRUPTION_LABELS[1:], DISRUPTION_LABELS[0]), strict=True))


def answers(wrong: set[int], invalid: set[int] = frozenset(), n: int = N) -> pl.DataFrame:
    """Right answers to papers 0 to ``n`` - 1 but for those."""
    labels = [None if i in invalid else NEXT[GOLD[i]] if i in wrong else GOLD[i] for i in range(n)]
    rows = [
        dict.fromkeys(PREDICTIONS) | {
            "openalex_id": f"W{i}", "gold": GOLD[i], "label": label, "confidence": None if label is None else 0.5,
            "is_json": label is not None, "is_valid": label is not None, "reward": 0.0, "reward_parse": 0.0,
            "reward_contract": 0.0, "reward_task": 0.0, "reward_think": 0.0, "has_think": False,
        }
        for i, label in enumerate(labels)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=PREDICTIONS)


def make_run(folder: Path, tables: dict[int, pl.DataFrame], kept: set[int] | None = None) -> Path:
    folder.mkdir(parents=True)
    write_json(folder / "run.json", {})
    for step, table in tables.items():
        write_predictions(table, folder / "predictions" / f"test_{step:06d}.parquet")
    steps = sorted(set(tables) - {0} if kept is None else kept)
    records = [{"name": f"{step:06d}", "batch": step, "sampler_path": f"tinker://run/{step}"} for step in steps]
    (folder / "checkpoints.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return folder


def first(n: int) -> set[int]:
    return set(range(n))


def test_the_last_weights_of_the_supervised_loop_are_those_of_its_last_step(tmp_path):
    run = make_run(tmp_path / "run", {0: answers(first(100)), 5: answers(first(50)), 12: answers(first(10))}, kept={5})
    final = {"name": "final", "epoch": 1, "batch": 0, "final": True, "sampler_path": "tinker://run/final"}
    with (run / "checkpoints.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(final) + "\n")
    rows = [{"step": step, "epoch": 0} for step in range(12)] + [{"step": 12, "test/label_match": 0.5}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    chosen = select_checkpoint(run).chosen
    assert (chosen.step, chosen.checkpoint) == (12, "tinker://run/final")
    assert list_weights(run) == {5: "tinker://run/5", 12: "tinker://run/final"}


def test_the_earliest_that_cannot_be_told_from_the_best_is_chosen(tmp_path):
    # 100 papers wrong at first; from step 100 on 30, then 29, then 28, each a part of the one before.
    run = make_run(tmp_path / "run", {0: answers(first(100)), 50: answers(first(60)), 100: answers(first(30)),
                                      150: answers(first(29)), 200: answers(first(28))})  # fmt: skip
    selection = select_checkpoint(run)
    assert selection.best.step == 200
    # Step 100 is behind by 2 papers, which only are wrong: standard error sqrt(2).
    assert (selection.chosen.step, selection.chosen.checkpoint) == (150, "tinker://run/150")


def test_the_differences_are_paired(tmp_path):
    run = make_run(tmp_path / "run", {50: answers(first(110)), 100: answers(first(90))})
    config = SelectionConfig(metric="label_match")
    early, late = select_checkpoint(run, config).candidates
    assert early.behind == pytest.approx(20 / N)
    # 20 of 300 papers differ; unpaired, the standard error would be 0.039.
    assert early.behind_se == pytest.approx(np.sqrt(20 / N * (1 - 20 / N) / N), rel=0.1)
    assert 0.03 < early.behind_low < 20 / N < early.behind_high < 0.11
    assert (late.behind, late.behind_se, late.behind_low, late.behind_high) == (0.0, 0.0, 0.0, 0.0)


def test_the_figures_are_those_of_the_metrics(tmp_path):
    table = answers(first(70), invalid=set(range(280, 300)))
    run = make_run(tmp_path / "run", {50: table})
    for metric in ("macro_f1", "min_class_recall"):
        (one,) = select_checkpoint(run, SelectionConfig(metric=metric, n_resamples=1000)).candidates
        intervals = bootstrap_intervals(table)
        assert one.score == measure_predictions(table)[metric]
        assert (one.low, one.high) == (intervals[f"{metric}/low"], intervals[f"{metric}/high"])


def test_accuracy_and_the_least_recall_choose_differently_and_collapse_is_shown(tmp_path):
    third = {i for i in range(N) if i % 3 == 0}
    one_class_lost = answers(third)
    balanced = answers({i for i in range(N) if i % 9 in {0, 1, 2, 3}})
    run = make_run(tmp_path / "run", {50: one_class_lost, 100: balanced})
    assert select_checkpoint(run, SelectionConfig(metric="label_match")).chosen.step == 50
    selection = select_checkpoint(run, SelectionConfig(metric="min_class_recall"))
    assert selection.chosen.step == 100
    assert selection.candidates[0].signs == ("min_class_recall 0.000 < 0.05",)
    assert "collapse: min_class_recall 0.000 < 0.05" in render_selection(selection)


def test_several_answers_to_a_paper_are_resampled_together(tmp_path):
    table = answers(first(100))
    (single,) = select_checkpoint(make_run(tmp_path / "a", {50: table})).candidates
    (triple,) = select_checkpoint(make_run(tmp_path / "b", {50: pl.concat([table] * 3)})).candidates
    assert (triple.low, triple.high) == (single.low, single.high)  # the same answer thrice is no more evidence


def test_training_that_gained_nothing_leaves_the_model_it_began_with(tmp_path):
    selection = select_checkpoint(make_run(tmp_path / "run", {0: answers(first(50)), 50: answers(first(50))}))
    assert (selection.chosen.step, selection.chosen.checkpoint) == (0, None)
    assert "checkpoint: what the run began with: training gained nothing" in render_selection(selection)
    single = select_checkpoint(make_run(tmp_path / "single", {0: answers(first(50))}))
    assert "began with: one evaluation: nothing to choose from" in render_selection(single)


def test_weights_that_were_not_kept_cannot_be_chosen_and_are_not_compared_with(tmp_path):
    run = make_run(tmp_path / "run", {50: answers(first(5)), 100: answers(first(50))}, kept={100})
    selection = select_checkpoint(run)
    assert selection.chosen.step == selection.best.step == 100
    assert selection.candidates[0].behind < 0
    assert "not kept" in render_selection(selection).splitlines()[1]


def test_weights_of_a_step_taken_twice_are_the_later_ones(tmp_path):
    run = make_run(tmp_path / "run", {50: answers(first(50))})
    with (run / "checkpoints.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"name": "a", "batch": 50, "sampler_path": "tinker://again/50"}) + "\n")
        file.write(json.dumps({"name": "b", "batch": 50, "state_path": "tinker://again/state"}) + "\n")
    assert select_checkpoint(run).chosen.checkpoint == "tinker://again/50"


def test_other_evaluations_and_strays_are_left_alone(tmp_path):
    run = make_run(tmp_path / "run", {50: answers(first(50))})
    for name in ("test.parquet", ".test_000100.parquet.unfinished", "contest_000100.parquet"):
        (run / "predictions" / name).write_text("?", "utf-8")
    assert [one.step for one in select_checkpoint(run).candidates] == [50]
    with pytest.raises(RunFolderError, match=r"no evaluation 'other'.*other_000050\.parquet"):
        select_checkpoint(run, SelectionConfig(name="other"))


def test_nothing_to_choose_from_is_said(tmp_path):
    with pytest.raises(RunFolderError, match=r"has no run\.json"):
        select_checkpoint(tmp_path)
    empty = make_run(tmp_path / "empty", {})
    (evaluation := tmp_path / "evaluation").mkdir()
    write_json(evaluation / "run.json", {})
    write_predictions(answers(set()), evaluation / "predictions.parquet")
    with pytest.raises(RunFolderError, match=r"evaluation is an evaluation, .* Give a training run"):
        select_checkpoint(evaluation)
    with pytest.raises(RunFolderError, match="has no evaluation 'test'"):
        select_checkpoint(empty)
    unkept = make_run(tmp_path / "unkept", {50: answers(first(5)), 150: answers(first(5))}, kept={100})
    with pytest.raises(RunFolderError, match="before steps 50, 150, and weights were kept at 100"):
        select_checkpoint(unkept)
    odd = make_run(tmp_path / "odd", {50: answers(first(5)), 100: answers(first(5), n=200)})
    with pytest.raises(PredictionsError, match="not of the same papers"):
        select_checkpoint(odd)


@pytest.mark.parametrize("change", [{"metric": "loss"}, {"n_resamples": 0}])
def test_an_impossible_choice_is_refused(change):
    with pytest.raises(SciSciRLError, match=rf"^SelectionConfig\.{next(iter(change))} is "):
        SelectionConfig(**change)


def test_the_script_prints_a_table(tmp_path, script_here):
    run = make_run(tmp_path / "run", {0: answers(first(150)), 50: answers(first(50))})
    done = script_here("select_checkpoint.py", run, "--metric", "min_class_recall", "--n-resamples", "200")
    assert done.returncode == 0, done.stderr
    head, untrained, trained, *_ = done.stdout.splitlines()
    assert head.split()[:2] == ["step", "min_class_recall"]
    assert untrained.split()[0] == "0"
    assert trained.split()[:2] == [">", "50"]
    assert done.stdout.splitlines()[-1] == "checkpoint: tinker://run/50"
