"""Training in two processes on a CPU (gloo): the run of one process, and one folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if not all(map(find_spec, ("peft", "trl"))):  # to import them takes seconds, and other workers need not
    pytest.skip("no extra local", allow_module_level=True)

import torch
from safetensors.torch import load_file

from sciscirl.errors import SciSciRLError
from sciscirl.lab import grpo
from sciscirl.lab.grpo import train_locally
from sciscirl.lab.hardware_options import LocalTrainOptions, PeftSftOptions
from sciscirl.lab.models.processes import settle_processes
from sciscirl.lab.sft import peft_backend
from sciscirl.lab.sft.checkpoints import recover_checkpoint
from sciscirl.lab.sft.peft_backend import train_with_peft
from sciscirl.options import resolve_run
from tests.sciscirl.toy import RENDERER

N_STEPS = 2
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
#: Starts each run twice in two processes of accelerate's own launcher, forked so that they share what is imported.
#: Between the two, what the first wrote after its first checkpoint goes.
LAUNCH = """
import gc, json, os, shutil, sys
from pathlib import Path
import torch
from accelerate import debug_launcher
import peft, sciscirl.lab.grpo
from sciscirl.cli.main import main

def work(*words):
    os.environ["RANK"] = str(torch.distributed.get_rank())
    sys.exit(main(words))

gc.freeze()  # each training collects garbage at its end
for run, words in json.loads(sys.argv[1]).items():
    debug_launcher(work, words, num_processes=2)
    shutil.copytree(run, run + "_whole")
    shutil.rmtree(Path(run, "checkpoints", "checkpoint-2"))
    shutil.rmtree(Path(run, "adapter"))
    debug_launcher(work, [*words, "behavior_if_log_dir_exists=resume"], num_processes=2)
"""


def options_of(toy_slice, model, folder, **more) -> dict:
    return {
        "preset": "exp4", "style": "plain", "release": str(toy_slice), "model": str(model), "renderer": RENDERER,
        "log_path": str(folder), "n_train": 4, "n_test": 3, "eval_split": "test", "max_steps": N_STEPS,
        "batch_size": 4, "lora_rank": 2, "micro_batch_size": 2, "learning_rate": 0.01,
        "max_tokens": 24, "eval_temperature": 0.0, "save_every": 1, "eval_every": N_STEPS, "quantize": "none",
        "dtype": "float32",
    } | more  # fmt: skip


def read_rows(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def read_adapter(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "adapter" / "adapter_model.safetensors")


def is_compared(metric: str) -> bool:
    """Seconds differ, and TRL's entropy is a mean of its passes' means, in which other answers stand together."""
    return not metric.startswith("time/") and metric != "optim/entropy"


def test_two_processes_train_as_one_does_and_go_on_to_the_same_weights(toy_slice, primed_model, tmp_path):
    sft = options_of(toy_slice, primed_model, tmp_path / "sft", n_epochs=N_STEPS)
    rl = options_of(toy_slice, primed_model, tmp_path / "rl", n_epochs=N_STEPS, group_size=4)
    ways = {"sft": ["sft", "--backend", "peft"], "rl": ["train", "--backend", "local"]}
    runs = {
        options["log_path"]: [*ways[name], *(f"{option}={value}" for option, value in options.items())]
        for name, options in (("sft", sft), ("rl", rl))
    }
    command = [sys.executable, "-c", LAUNCH, json.dumps(runs)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    spoken = re.findall(r"^step 1(?: of 2)?: (?:loss|reward)", done.stderr, re.MULTILINE)
    assert (done.stdout.count("run: "), len(spoken)) == (4, 4), done.stderr  # one process speaks in each run
    train_with_peft(resolve_run(PeftSftOptions(**sft | {"log_path": str(tmp_path / "sft_one")})))
    train_locally(resolve_run(LocalTrainOptions(**rl | {"log_path": str(tmp_path / "rl_one")})))
    for name, measured in (
        ("sft", ("train_mean_nll", "label_nll", "grad_norm")),
        ("rl", ("optim/loss", "optim/kl_sample_train_v1")),
    ):
        again, whole, one = (tmp_path / f"{name}{which}" for which in ("", "_whole", "_one"))
        rows, others = read_rows(whole), read_rows(one)
        assert {row["step"] for row in rows} == {*range(N_STEPS + 1)}
        assert all(any(metric in row for row in rows) for metric in measured)
        for row, other in zip(rows, others, strict=True):
            assert row.keys() == other.keys()
            for metric in filter(is_compared, row):
                assert row[metric] == pytest.approx(other[metric], rel=1e-3, abs=1e-5), metric
        for tensor, weight in read_adapter(one).items():
            torch.testing.assert_close(read_adapter(whole)[tensor], weight, atol=1e-4, rtol=1e-3)
        # Each process keeps the state of its own generator, and a checkpoint is whole with all of them.
        assert {"rng_state_0.pth", "rng_state_1.pth"} <= recover_checkpoint(whole).extra["sha256"].keys()
        assert all(torch.equal(weight, read_adapter(whole)[tensor]) for tensor, weight in read_adapter(again).items())
    with pytest.raises(SciSciRLError, match="begun with n_processes=2, not n_processes=1"):
        train_with_peft(resolve_run(PeftSftOptions(**sft, behavior_if_log_dir_exists="resume")))


def test_a_batch_that_processes_cannot_share_is_refused(toy_slice, primed_model, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(peft_backend, "settle_processes", lambda: None)
    monkeypatch.setattr(grpo, "settle_processes", lambda: None)
    options = options_of(toy_slice, primed_model, tmp_path, micro_batch_size=4)
    with pytest.raises(SciSciRLError, match=r"batch_size is 4, .* micro_batch_size, 4, times 2 processes"):
        peft_backend.check_run(resolve_run(PeftSftOptions(**options)))
    for more, said in (
        ({"batch_size": 3}, "batch_size is 3, needs a multiple of 2 processes"),
        ({"reward": "balanced_shares"}, "pays by what all answers of a step say, and 2 processes were started"),
        ({"micro_batch_size": 16}, "micro_batch_size is 16, needs a divisor of 8: 2 papers"),
    ):
        with pytest.raises(SciSciRLError, match=said):
            grpo.refuse_options(
                resolve_run(LocalTrainOptions(**options_of(toy_slice, primed_model, tmp_path, group_size=4, **more)))
            )


def test_shared_out_weights_are_refused_where_answers_are_sampled(toy_slice, primed_model, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(SciSciRLError, match="Leave --use_fsdp out"):
        grpo.refuse_options(resolve_run(LocalTrainOptions(**options_of(toy_slice, primed_model, tmp_path))))


def test_several_gpus_in_one_process_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with pytest.raises(SciSciRLError, match=r"3 GPUs are visible to one process.*accelerate launch --num_processes 3"):
        settle_processes()
