"""A run that an error ends while held-out papers are judged: which evaluation is lost, and how to have it."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import shlex
from pathlib import Path
from typing import Any

import pytest
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig

from sciscirl.cli.commands import evaluate
from sciscirl.cli.flags import make_parser, read_words
from sciscirl.errors import CollapseError, SciSciRLError
from sciscirl.evaluation import evaluator as evaluation
from sciscirl.evaluation.evaluate import EvaluationConfig, find_subject
from sciscirl.evaluation.evaluator import LabelEvaluator
from sciscirl.options import TrainOptions
from sciscirl.presets import PRESETS
from sciscirl.rl import train as training
from sciscirl.rl.train import train_preset
from sciscirl.runs.folder import open_store
from sciscirl.task.papers import read_split

STEP = 5


@pytest.fixture
def end_run(options, monkeypatch, caplog):
    """Run a loop that judges before step 5, and then keeps checkpoints and does what it is told."""

    def end_run(judge, do, kept=(), **more) -> list[str]:
        async def loop(config):
            evaluator, store = config.evaluator_builders[0](), open_store(config.log_path)
            evaluator.eval_token_completer = judge
            export = RolloutSummaryExportConfig(split="eval/test", iteration=STEP, base_name="eval_test")

            async def evaluate():
                return await evaluator(None, rollout_summary_export=export, store=store)

            assert await evaluate() == {}
            for record in kept:
                store.write_checkpoint(record)
            for _ in range(3):  # it gets on, as far as it does
                await asyncio.sleep(0)
            await do(evaluate)

        monkeypatch.setattr(training, "check_server", lambda *_: None)
        monkeypatch.setattr(training.train, "main", loop)
        with caplog.at_level(logging.WARNING, logger="sciscirl"):
            asyncio.run(train_preset(TrainOptions(**options, eval_concurrently=True, **more)))

    return end_run


async def never(*_, **__):
    await asyncio.Event().wait()


async def fail(*_, **__):
    raise RuntimeError("the sampler\nis gone")


async def raise_error(_):
    raise SciSciRLError("the disk is full")


def checkpoint(step, **more):
    return {"name": f"{step:06d}", "batch": step, "state_path": f"tinker://x/weights/{step}", **more}


SAMPLED = checkpoint(STEP, sampler_path="tinker://x/sampler_weights/5")


@pytest.mark.parametrize("judge", [never, fail])
def test_an_evaluation_that_the_end_of_a_run_leaves_behind_is_named_and_so_is_how_to_have_it(
    end_run, caplog, judge, options, tmp_path
):
    with pytest.raises(SciSciRLError, match="the disk is full"):
        end_run(judge, raise_error, [SAMPLED, checkpoint(8)])
    (line,) = caplog.messages
    what = "was under way" if judge is never else "failed (RuntimeError: the sampler is gone)"
    assert line.startswith(f"the evaluation of step 5 {what}. When the run is done: sciscirl evaluate --run ")
    words = [*shlex.split(line.partition("sciscirl evaluate ")[2]), "--release", options["release"]]
    config = EvaluationConfig(**read_words(make_parser(evaluate, "evaluate"), evaluate, words))
    assert find_subject(config).checkpoint == "tinker://x/sampler_weights/5"


def test_an_evaluation_that_is_waited_for_is_named_where_a_run_is_interrupted(end_run, caplog):
    async def wait_until_interrupted(evaluate):
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
        await evaluate()

    with pytest.raises(asyncio.CancelledError):
        end_run(never, wait_until_interrupted)
    (line,) = caplog.messages
    assert line.startswith("the evaluation of step 5 was under way.")


def test_an_evaluation_that_has_ended_is_not_called_lost(end_run, caplog, options):
    async def judge(*_, **__):
        return {"test/label_match": 0.5}

    with pytest.raises(SciSciRLError, match="the disk is full"):
        end_run(judge, raise_error)
    assert caplog.messages == []
    assert read_rows(options) == [{"step": STEP, "test/label_match": 0.5}]


def test_a_collapse_that_nobody_has_heard_of_yet_is_said_and_its_evaluation_written_down(end_run, caplog, options):
    async def judge(*_, **__):
        raise CollapseError("the model has collapsed", metrics={"test/label_match": 0.25}, step=STEP)

    with pytest.raises(SciSciRLError, match="the disk is full"):
        end_run(judge, raise_error)
    assert caplog.messages == ["the model has collapsed"]
    assert read_rows(options) == [{"step": STEP, "test/label_match": 0.25}]


def read_rows(options) -> list[dict]:
    return [json.loads(line) for line in Path(options["log_path"], "metrics.jsonl").read_text("utf-8").splitlines()]


def test_a_step_is_one_of_a_run_whose_weights_of_it_were_kept(end_run, options, tmp_path):
    with pytest.raises(SciSciRLError, match="the disk is full"):
        end_run(never, raise_error, [SAMPLED, checkpoint(8)])
    more = {"release": Path(options["release"]), "out": tmp_path / "out"}
    with pytest.raises(SciSciRLError, match=r"kept no weights at step 8\. It did at 5: choose one"):
        find_subject(EvaluationConfig(run=Path(options["log_path"]), step=8, **more))
    with pytest.raises(SciSciRLError, match=r"step is 5, but no run is given\. Set run=\.\.\. too"):
        EvaluationConfig(model="a/b", step=5, **more)


def test_a_disk_that_takes_no_more_rows_does_not_hide_what_ended_the_run(end_run, caplog, monkeypatch):
    async def judge(*_, **__):
        raise CollapseError("the model has collapsed", metrics={"test/label_match": 0.25}, step=STEP)

    def refuse(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(evaluation, "open_store", refuse)
    with pytest.raises(SciSciRLError, match="the disk is full"):
        end_run(judge, raise_error)
    assert caplog.messages == ["the model has collapsed"]


def test_the_last_weights_are_judged_when_they_are_saved_and_not_before(toy_slice, toy_renderer, tmp_path):
    """The loop of the cookbook 0.6.1 asks for an evaluation at its end, where a collapse would lose the weights."""
    evaluator = LabelEvaluator(read_split(toy_slice, "test"), PRESETS["exp4"].rules, toy_renderer, max_tokens=64)
    evaluator.end_step = 4
    export = RolloutSummaryExportConfig(split="eval/test", iteration=4, base_name="eval_test")
    nobody: Any = None  # who asked it would fail
    asked = evaluator(nobody, rollout_summary_export=export, store=open_store(tmp_path))
    assert asyncio.run(asked) == {}
    assert evaluator.predictions is None
