"""Fine-tuning in two processes on a CPU (gloo): the run of one process, and one folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if not all(map(find_spec, ("peft", "accelerate"))):  # to import them takes seconds, and other workers need not
    pytest.skip("no extra sft", allow_module_level=True)

import torch
from safetensors.torch import load_file
from transformers import TrainingArguments

from sciscirl.errors import SciSciRLError
from sciscirl.lab.hardware_options import PeftSftOptions
from sciscirl.lab.models.processes import settle_processes
from sciscirl.lab.sft.checkpoints import recover_checkpoint
from sciscirl.lab.sft.peft_backend import make_arguments, train_with_peft
from sciscirl.options import resolve_run
from tests.sciscirl.toy import RENDERER

N_STEPS = 2
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
#: Twice two processes of accelerate's own launcher, forked so that they share what is imported. Between the two runs,
#: what the first wrote after its first checkpoint goes.
LAUNCH = """
import os, shutil, sys
from pathlib import Path
import torch
from accelerate import debug_launcher
import peft, sciscirl.lab.sft.peft_backend
from sciscirl.cli.main import main

def work(*words):
    os.environ["RANK"] = str(torch.distributed.get_rank())
    sys.exit(main(words))

run, *words = sys.argv[1:]
debug_launcher(work, words, num_processes=2)
shutil.copytree(run, run + "_whole")
shutil.rmtree(Path(run, "checkpoints", "checkpoint-2"))
shutil.rmtree(Path(run, "adapter"))
debug_launcher(work, [*words, "resume=True"], num_processes=2)
"""


def options_of(toy_slice, model, folder, **more) -> dict:
    return {
        "preset": "exp4", "style": "plain", "release": str(toy_slice), "model": str(model), "renderer": RENDERER,
        "log_path": str(folder), "n_train": 4, "n_test": 3, "eval_split": "test",
        "n_epochs": N_STEPS, "batch_size": 4, "lora_rank": 2, "micro_batch_size": 2, "learning_rate": 0.01,
        "max_tokens": 32, "eval_temperature": 0.0, "save_every": 1, "eval_every": N_STEPS, "quantize": "none",
        "dtype": "float32",
    } | more  # fmt: skip


def read_rows(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def read_adapter(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "adapter" / "adapter_model.safetensors")


def test_two_processes_train_as_one_does_and_go_on_to_the_same_weights(toy_slice, primed_model, tmp_path):
    one, two, whole = (tmp_path / name for name in ("one", "two", "two_whole"))
    train_with_peft(resolve_run(PeftSftOptions(**options_of(toy_slice, primed_model, one))))
    options = options_of(toy_slice, primed_model, two)
    words = ["sft", "--backend", "peft", *(f"{name}={value}" for name, value in options.items())]
    command = [sys.executable, "-c", LAUNCH, str(two), *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("run: "), done.stderr.count("step 1: loss")) == (2, 2)  # one process speaks in each run
    rows, others = read_rows(whole), read_rows(one)
    assert [row["step"] for row in rows] == [0, 0, 1, N_STEPS]
    assert {"train_mean_nll", "label_nll", "grad_norm"} <= rows[1].keys()
    for row, other in zip(rows, others, strict=True):
        assert row == pytest.approx(other, rel=1e-4)
    for name, weight in read_adapter(one).items():
        torch.testing.assert_close(read_adapter(whole)[name], weight, atol=1e-4, rtol=1e-3)
    # Each process keeps the state of its own generator, and a checkpoint is whole with all of them.
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= recover_checkpoint(whole).extra["sha256"].keys()
    assert read_rows(two) == rows
    assert all(torch.equal(weight, read_adapter(whole)[name]) for name, weight in read_adapter(two).items())
    with pytest.raises(SciSciRLError, match="begun with n_processes=2, not n_processes=1"):
        train_with_peft(resolve_run(PeftSftOptions(**options, resume=True)))


def test_a_batch_that_processes_cannot_share_is_refused(toy_slice, primed_model, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    options = options_of(toy_slice, primed_model, tmp_path, micro_batch_size=4)
    with pytest.raises(SciSciRLError, match=r"batch_size is 4, .* micro_batch_size, 4, times 2 processes"):
        make_arguments(resolve_run(PeftSftOptions(**options)), 1)


def test_several_gpus_in_one_process_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with pytest.raises(SciSciRLError, match=r"3 GPUs are visible to one process.*accelerate launch --num_processes 3"):
        settle_processes()
