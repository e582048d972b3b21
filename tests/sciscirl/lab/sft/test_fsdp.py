"""FSDP with four-bit weights and DoRA, on as many GPUs as there are."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.sciscirl.toy import RENDERER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(not all(map(find_spec, ("peft", "accelerate", "bitsandbytes"))), reason="no extra sft"),
]


def test_a_sharded_run_leaves_an_adapter_and_its_losses(toy_slice, primed_model, tmp_path):
    n_gpus, folder = torch.cuda.device_count(), tmp_path / "run"
    launch = f"-m accelerate.commands.launch --config_file sciscirl/lab/sft/fsdp_qdora.yaml --num_processes {n_gpus}"
    words = f"""scripts/train_sft.py --backend peft preset=exp4 style=plain release={toy_slice} model={primed_model}
        renderer={RENDERER} log_path={folder} batch_size={2 * n_gpus} micro_batch_size=2 lora_rank=8 max_tokens=32
        learning_rate=0.01 max_steps=4 save_every=4 quantize=nf4 use_dora=yes eval_split=test n_test=3"""
    command = [sys.executable, *launch.split(), *words.split()]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    losses = [row["train_mean_nll"] for row in rows if "train_mean_nll" in row]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert (folder / "adapter" / "adapter_model.safetensors").stat().st_size > 0
