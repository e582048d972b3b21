"""A collapse is seen in what training samples, between evaluations, by the thresholds that these have."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from pathlib import Path

import chz
import pytest
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig, serialize_rollout_summaries
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.stores.storage import storage_from_uri
from tinker_cookbook.stores.training_store import TrainingRunStore

from sciscirl.errors import CollapseError
from sciscirl.lab.objectives import collapse_watch as training_watch
from sciscirl.lab.objectives.collapse_watch import TrainingWatch
from sciscirl.lab.objectives.dataset import BegunRun, RunDatasetBuilder
from sciscirl.lab.training import rl as training
from sciscirl.lab.training.rl import train_preset
from sciscirl.metrics.collapse import CollapseAlarm, CollapseConfig
from sciscirl.options import TrainOptions
from sciscirl.task.contracts import render_answer
from sciscirl.task.experiment import AdversarialRules
from sciscirl.task.papers import TARGETS, VOCABULARIES
from tests.sciscirl.tinker_stub import serve_models
from tests.sciscirl.toy import Scripted, make_builder, say

KINDS = [("two_keys", "disruption"), ("probabilities", "disruption"), ("two_keys", "novelty"), ("two_keys", "joint")]
WINDOW, BATCH, GROUP = 3, 4, 2
SMALL = CollapseConfig(n_watched=WINDOW * BATCH - 1, n_valid_min=1)  # as many whole batches as it takes


async def roll_out(groups, store: TrainingRunStore, step: int, texts, tokenizer) -> None:
    """Sample the answers of a batch and write them down, as the cookbook's loop does."""
    policy = Scripted(tokenizer, texts)
    done = [await do_group_rollout(group, policy) for group in groups]
    tags = [group.logging_tags() for group in groups]
    records = serialize_rollout_summaries(split="train", iteration=step, trajectory_groups_P=done, taglist_P=tags)
    store.write_rollouts(step, records)


def write(kind: tuple[str, str], stuck: tuple[str, ...]) -> list[str]:
    """One batch of answers, the first of them none; of the columns in ``stuck`` always the last label."""
    contract, target = kind
    answers = [
        {column: VOCABULARIES[column][2 if column in stuck else number % 3] for column in TARGETS[target]}
        for number in range(BATCH * GROUP - 1)
    ]
    return ["?", *(render_answer(labels, contract, target, confidence=0.5) for labels in answers)]


def build(toy_slice, toy_model, kind, run: Path, action: str = "stop", builder=RunDatasetBuilder, **more):
    contract, target = kind
    more |= {"target": target, "contract": contract, "reward": "strong", "batch_size": BATCH, "group_size": GROUP}
    more["begun"] = BegunRun(folder=str(run), action=action)
    return make_builder(toy_slice, toy_model, builder, n_epochs=4, has_test=False, **more)


def train(builder, stuck_in: range, stuck: tuple[str, ...], n_steps: int = 13) -> int:
    """Take steps until the dataset ends the run, and return how many there were."""
    dataset, _ = asyncio.run(builder())
    dataset.watch = TrainingWatch(
        builder.begun.folder, builder.task.target, batch_size=BATCH, action=builder.begun.action, config=SMALL
    )
    kind, store = (builder.task.contract, builder.task.target), TrainingRunStore(storage_from_uri(builder.begun.folder))
    for step in range(n_steps):
        texts = write(kind, stuck if step in stuck_in else ())
        asyncio.run(roll_out(dataset.get_batch(step), store, step, texts, dataset.batches.renderer.tokenizer))
    return n_steps


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_two_windows_of_one_label_end_the_run_and_say_of_which(toy_slice, toy_model, tmp_path, kind):
    column = TARGETS[kind[1]][-1]
    with pytest.raises(CollapseError) as caught:
        train(build(toy_slice, toy_model, kind, tmp_path), range(3, 13), (column,))
    prefix = "train/novelty/" if kind[1] == "joint" else "train/"
    label = VOCABULARIES[column][2]
    assert caught.value.step == 9  # steps 3 to 5, and 6 to 8
    assert caught.value.metrics[f"{prefix}predicted_share/{label}"] == pytest.approx(7 / 8)
    assert caught.value.metrics[f"{prefix}collapse/alarm"] == 1.0
    said = str(caught.value)
    assert f"at step 9 {prefix}predicted_share/{label} 0.875 > 0.8" in said
    assert "(2 windows of 3 training steps in a row). The run was ended." in said
    assert "train/disruption/" not in said


def test_a_model_that_keeps_its_labels_or_loses_them_for_one_window_only_goes_on(toy_slice, toy_model, tmp_path):
    kind = KINDS[0]
    assert train(build(toy_slice, toy_model, kind, tmp_path / "a"), range(0), ()) == 13
    assert train(build(toy_slice, toy_model, kind, tmp_path / "b"), range(3, 6), TARGETS["disruption"]) == 13


def test_a_warned_run_goes_on_and_is_warned_once_a_window(toy_slice, toy_model, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        assert train(build(toy_slice, toy_model, KINDS[0], tmp_path, "warn"), range(13), TARGETS["disruption"]) == 13
    steps = [record.getMessage().split("at step ")[1].split()[0] for record in caplog.records]
    assert steps == ["6", "9", "12"]
    caplog.clear()
    assert train(build(toy_slice, toy_model, KINDS[0], tmp_path / "off", "off"), range(13), TARGETS["disruption"]) == 13
    assert not caplog.records


def test_a_resumed_run_is_judged_as_if_it_had_never_stopped(toy_slice, toy_model, tmp_path):
    builder = build(toy_slice, toy_model, KINDS[0], tmp_path, "off")
    train(builder, range(3, 9), TARGETS["disruption"])

    def ends(batch: int) -> bool:
        watch = TrainingWatch(str(tmp_path), "disruption", batch_size=BATCH, action="stop", config=SMALL)
        try:
            watch(batch)
        except CollapseError:
            return True
        return False

    # Steps 9 to 12 are healthy; of a run that goes on at 9 they are what was sampled before, and count no more.
    assert [batch for batch in range(13) if ends(batch)] == [9]
    assert not ends(30)  # nothing on record


def test_the_builder_has_its_batches_watched_with_and_without_opponents(toy_slice, toy_model, tmp_path):
    plain, _ = asyncio.run(build(toy_slice, toy_model, KINDS[0], tmp_path)())
    assert (plain.watch.run, plain.watch.action, plain.watch.n_batches) == (str(tmp_path), "stop", 256 // BATCH)
    met = build(toy_slice, toy_model, ("four_keys", "joint"), tmp_path, adversarial=AdversarialRules())
    dataset, _ = asyncio.run(met())
    assert dataset.watch.target == "joint"
    told = []
    dataset.watch = told.append
    dataset.get_batch(2)
    assert told == [2]
    unwatched = chz.replace(build(toy_slice, toy_model, KINDS[0], tmp_path), begun=None)
    alone, _ = asyncio.run(unwatched())
    assert alone.watch is None


def run_stuck(options, tokenizer, monkeypatch, judge) -> list[dict]:
    """Train a model of one label until that ends the run, with evaluations by another; return what was logged."""
    monkeypatch.setattr(training_watch, "CollapseConfig", lambda: SMALL)
    monkeypatch.setattr("sciscirl.lab.training.rl.CollapseAlarm", partial(CollapseAlarm, SMALL))
    monkeypatch.setattr("sciscirl.lab.evaluator.TopPCompleter", judge)

    async def loop(config):
        store = TrainingRunStore(storage_from_uri(config.log_path))
        dataset, _ = await config.dataset_builder()
        evaluator = config.evaluator_builders[0]()
        for step in range(config.max_steps):
            row = {}
            if step % 6 == 0:
                export = RolloutSummaryExportConfig(split="eval/test", iteration=step, base_name="eval_test")
                row = await evaluator(None, rollout_summary_export=export, store=store)
            groups = dataset.get_batch(step)
            texts = write(KINDS[0], TARGETS["disruption"])
            await roll_out(groups, store, step, texts, tokenizer)
            store.write_metrics(row, step=step)

    monkeypatch.setattr(training.train, "main", loop)
    more = {"batch_size": BATCH, "group_size": GROUP, "collapse": "stop"}
    ended = pytest.raises(CollapseError, match="at step 6 train/")
    with serve_models([{"model_name": options["model"]}]) as url, ended:
        asyncio.run(train_preset(TrainOptions(**options, **more, base_url=url)))
    return [json.loads(line) for line in (Path(options["log_path"]) / "metrics.jsonl").read_text().splitlines()]


def test_a_run_that_its_training_answers_end_keeps_the_evaluation_of_that_step(options, toy_renderer, monkeypatch):
    """The loop evaluates at steps 0 and 6, where two windows of three steps have shown one label."""
    told = {"assay": "disruptive", "review": "consolidating", "survey": "neutral"}

    def judge(*_, **__):  # a model that has read which word of its title tells the class of a paper
        return Scripted(toy_renderer.tokenizer, lambda prompt: say(told[max(told, key=prompt.rfind)]))

    rows = run_stuck(options, toy_renderer.tokenizer, monkeypatch, judge)
    assert {row["step"] for row in rows} == set(range(7))
    last = {name: value for row in rows if row["step"] == 6 for name, value in row.items()}
    assert (last["collapse_stop"], last["train/collapse/alarm"], last["test/collapse/alarm"]) == (1.0, 1.0, 0.0)
    assert last["test/label_match"] == 1.0
    assert last["train/predicted_share/neutral"] == pytest.approx(7 / 8)
    assert (Path(options["log_path"]) / "predictions" / "test_000006.parquet").is_file()
