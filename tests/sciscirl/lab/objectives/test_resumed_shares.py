"""A run that goes on pays for what was said too often exactly as if it had never been stopped."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import chz
import pytest
from tinker_cookbook.rl.rollout_logging import serialize_rollout_summaries
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.stores.storage import storage_from_uri
from tinker_cookbook.stores.training_store import TrainingRunStore

from sciscirl.lab.objectives.batch_term import ShareTracker
from sciscirl.lab.objectives.dataset import BegunRun, RunDatasetBuilder
from sciscirl.lab.training.rl import train_preset
from sciscirl.options import TrainOptions
from sciscirl.runs.record import begin_run
from sciscirl.task.contracts import render_answer
from sciscirl.task.papers import TARGETS, VOCABULARIES
from tests.sciscirl.toy import RENDERER, Scripted, make_builder

KINDS = [("two_keys", "disruption"), ("probabilities", "disruption"), ("two_keys", "joint"), ("probabilities", "joint")]
N_STEPS = 6


def answer(contract: str, target: str, number: int) -> str:
    """Every fifth is none; the others say each label in turn, the first of a vocabulary more often than others."""
    if number % 5 == 4:
        return "no idea"
    labels = {column: VOCABULARIES[column][number % 4 % 3] for column in TARGETS[target]}
    return render_answer(labels, contract, target, confidence=0.5 + number % 7 / 20)


def step(dataset, store: TrainingRunStore, batch: int, kind: tuple[str, str]) -> None:
    """Roll a batch out and write it down, as the cookbook's loop does."""
    builders = dataset.get_batch(batch)
    texts = iter([answer(*kind, number + 3 * batch) for number in range(2 * len(builders))])
    policy = Scripted(dataset.batches.renderer.tokenizer, texts)
    groups = [asyncio.run(do_group_rollout(builder, policy)) for builder in builders]
    tags = [builder.logging_tags() for builder in builders]
    records = serialize_rollout_summaries(split="train", iteration=batch, trajectory_groups_P=groups, taglist_P=tags)
    store.write_rollouts(batch, records)


def builder_of(toy_slice, toy_model, kind, **options) -> RunDatasetBuilder:
    contract, target = kind
    options |= {"target": target, "contract": contract, "reward": "balanced_shares", "batch_size": 4}
    return make_builder(toy_slice, toy_model, RunDatasetBuilder, n_epochs=2, has_test=False, **options)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("window", [9, 1000])
def test_a_resumed_run_reads_answers_of_earlier_steps_back_and_no_others(
    toy_slice, toy_model, tmp_path, kind, window, monkeypatch
):
    monkeypatch.setattr("sciscirl.lab.objectives.dataset.ShareTracker", partial(ShareTracker, window=window))
    builder = builder_of(toy_slice, toy_model, kind)
    dataset, _ = asyncio.run(builder())
    store = TrainingRunStore(storage_from_uri(str(tmp_path)))
    for batch in range(N_STEPS):
        step(dataset, store, batch, kind)
    for first in (0, 1, 3, N_STEPS):
        resumed, _ = asyncio.run(chz.replace(builder, begun=BegunRun(folder=str(tmp_path), first_step=first))())
        assert resumed.tracker.count_answers(first) == dataset.tracker.count_answers(first)
        assert resumed.tracker.find_excess(first) == dataset.tracker.find_excess(first)
        # A step that is to be taken again has said nothing yet.
        assert resumed.tracker.find_excess(first + 1) == resumed.tracker.find_excess(first)
    assert any(resumed.tracker.find_excess(N_STEPS).values())


def test_a_folder_without_rollouts_is_nothing_to_remember(toy_slice, toy_model, tmp_path):
    builder = builder_of(toy_slice, toy_model, KINDS[0], begun=BegunRun(folder=str(tmp_path), first_step=3))
    dataset, _ = asyncio.run(builder())
    assert dataset.tracker.count_answers(3) == 0


def test_a_run_that_is_resumed_hands_its_folder_and_step_to_the_batches(toy_slice, toy_model, tmp_path, monkeypatch):
    options = TrainOptions(
        preset="exp6", release=str(toy_slice), model=toy_model, renderer=RENDERER, log_path=str(tmp_path / "run"),
        behavior_if_log_dir_exists="resume", eval_split="test",
    )  # fmt: skip
    seen = []

    async def main(config):
        seen.append((config.dataset_builder.begun.folder, config.dataset_builder.begun.first_step))

    def begin(folder: Path, *words, **more) -> int:
        begin_run(folder, *words, **more)
        return 7

    monkeypatch.setattr("sciscirl.lab.training.rl.check_server", lambda *_: None)
    monkeypatch.setattr("sciscirl.lab.training.rl.begin_run", begin)
    monkeypatch.setattr("sciscirl.lab.training.rl.train.main", main)
    asyncio.run(train_preset(options))
    assert seen == [(str(tmp_path / "run"), 7)]
