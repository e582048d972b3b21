"""Sweeps on one's own hardware: both of its loops train in this process here; ``test_sweep.py`` has real ones."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.grpo import NOT_HERE, train_locally
from sciscirl.lab.hardware_options import LocalTrainOptions, PeftSftOptions
from sciscirl.lab.sft.peft_backend import Recorder
from sciscirl.lab.studies import sweep
from sciscirl.lab.studies.sweep import plan_sweep, run_sweep
from sciscirl.lab.studies.sweep_options import LocalSweepOptions
from sciscirl.options import resolve_run
from tests.sciscirl.toy import RENDERER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
]

#: Without options of reinforcement learning.
ONLY_SFT = {"way": ("sft",), "batch_size": None, "group_size": None, "max_steps": 250, "learning_rate": None}


@pytest.fixture
def options(toy_slice, primed_model, tmp_path, monkeypatch) -> LocalSweepOptions:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(sweep, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    return LocalSweepOptions(
        preset="exp4", way=("rl", "sft_rl"), style="plain", release=str(toy_slice), model=str(primed_model),
        renderer=RENDERER, eval_split="test", n_test=3, out=str(tmp_path / "sweep"), batch_size=3, group_size=2,
        max_steps=2, learning_rate=0.02, sft_batch_size=3, sft_max_steps=1, lora_rank=2, max_tokens=24,
        eval_temperature=0.0, save_every=1, quantize="none", dtype="float32", use_dora=False, micro_batch_size=3,
    )  # fmt: skip


def test_a_run_that_fails_stops_no_other_and_goes_on_to_the_very_same_weights(options, tmp_path, monkeypatch, caplog):
    log = Recorder.on_log

    def log_and_fail(self, args, state, control, **more):
        log(self, args, state, control, **more)
        if state.global_step == 2 and self.folder.parent.name == "exp4-rl":
            raise ZeroDivisionError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "on_log", log_and_fail)
        result = asyncio.run(run_sweep(options))
    assert result.problems == {"exp4 rl, seed 0": "ZeroDivisionError: a defect"}
    assert result.n_missing == 1
    assert result.table["name"].to_list()[:3] == ["exp4 sft", "exp4 sft_rl", "exp4 untrained"]

    caplog.clear()
    with caplog.at_level(logging.INFO, logger="sciscirl.lab.studies.sweep"):
        result = asyncio.run(run_sweep(options))
    assert [line.rpartition(": ")[2] for line in caplog.messages if line.startswith("run ")] == [
        "run 1 of 3, exp4 rl, seed 0", "has ended before", "has ended before"
    ]  # fmt: skip
    assert (result.problems, result.n_missing, result.split) == ({}, 0, "test")
    table = result.table
    assert table["way"].to_list()[:4] == ["rl", "sft", "sft_rl", "untrained"]
    assert "words" in table["name"].to_list()
    assert table["train/reward/total"].is_null().to_list()[:3] == [False, True, False]

    first = plan_sweep(options)[0]
    alone = replace(first.options, log_path=str(tmp_path / "alone"))
    train_locally(resolve_run(alone))
    for name in ("adapter/adapter_model.safetensors", "predictions/test_000002.parquet"):
        assert (first.folder / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    with pytest.raises(SciSciRLError, match=r"was begun with backend='local', not backend='tinker'"):
        sweep.render_plan(sweep.SweepOptions(release=options.release, eval_split="test", out=options.out))


def test_each_way_is_trained_by_the_options_of_this_machine(options):
    rl, sft, sft_rl = plan_sweep(replace(options, jobs=2))
    assert [type(run.options) for run in (rl, sft, sft_rl)] == [LocalTrainOptions, PeftSftOptions, LocalTrainOptions]
    assert (sft.options.micro_batch_size, sft.options.quantize, sft.options.max_steps) == (3, "none", 1)
    assert sft_rl.options.load_checkpoint == str(sft.folder)
    runs = plan_sweep(replace(options, **ONLY_SFT, vary=("use_dora:yes,no",)))
    assert [run.name for run in runs] == ["exp4 use_dora=yes", "exp4 use_dora=no"]
    assert [run.options.use_dora for run in runs] == [True, False]
    assert plan_sweep(replace(options, batch_size=None, rollouts_per_step=8))[0].options.batch_size == 4


def test_a_sweep_wants_one_gpu_and_no_other_process(options, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SciSciRLError, match=r"a sweep trains on one GPU\..*CUDA_VISIBLE_DEVICES=0 sciscirl sweep"):
        sweep.render_plan(options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"base_url": "http://127.0.0.1:9"}, "base_url has no effect with backend=local"),
        (ONLY_SFT | {"base_url": "http://127.0.0.1:9"}, "base_url has no effect with backend=local"),
        ({"num_substeps": 2}, r"num_substeps is 2, which backend=local cannot do"),
        ({"kl_penalty_coef": 0.1}, r"kl_penalty_coef is 0\.1, which backend=local cannot do"),
        ({"preset": "adversarial", "max_tokens": 64}, "preset adversarial challenges answers"),
        ({"micro_batch_size": 4}, "micro_batch_size is 4, needs a divisor of 6"),
        ({"micro_batch_size": 6}, "batch_size is 3, needs a multiple of micro_batch_size, 6"),
        ({"model": "/nowhere"}, "the tokenizer of '/nowhere' could not be loaded"),
    ],
)
def test_what_this_machine_cannot_train_is_refused_before_anything_is(options, tmp_path, given, said):
    assert "base_url" in NOT_HERE
    with pytest.raises(SciSciRLError, match=said):
        asyncio.run(run_sweep(replace(options, **given)))
    assert not (tmp_path / "sweep").exists()


def test_the_command_lists_runs_and_steps_and_knows_each_backends_options(options, capsys):
    names = ("preset", "style", "release", "model", "renderer", "eval_split", "n_test", "out", "batch_size")
    words = [*(f"{name}={getattr(options, name)}" for name in names), "way=rl,sft", "--dry-run"]
    assert main(["sweep", "--backend", "local", "quantize=none", *words]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in shown[1:3]] == ["rl", "sft"]
    assert [line.partition(" of ")[0] for line in shown[4:]] == ["steps: 250", "steps: 4"]
    assert main(["sweep", "quantize=none", *words]) == 1
    assert "--backend tinker has no option --quantize" in capsys.readouterr().err
