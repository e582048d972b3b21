"""A preset file with prompt, reward, loss and KL penalty of its own: two steps on a real server, then judged."""

from __future__ import annotations

import json

import pytest

from sciscirl.metrics.predictions import read_predictions
from sciscirl.report.runs import read_run

pytestmark = pytest.mark.slow

OWN = """
base = "baseline"
batch_size = 2
lora_rank = 8
max_tokens = 48
max_paper_tokens = 96
top_p = 0.95
eval_temperature = 0
loss_fn = "ppo"
loss_fn_config = { clip_low_threshold = 0.8, clip_high_threshold = 1.28 }
num_substeps = 2
kl_penalty_coef = 0.1

[reward]
base = "soft"
not_json = -1.5
wrong = 0.125

[prompt]
system = "$task $answer"
user = "$record $question"
"""


def test_a_preset_file_trains_two_steps_is_recorded_whole_and_judged_as_trained(tinker_server, tmp_path):
    preset, run, out = tmp_path / "own.toml", tmp_path / "run", tmp_path / "judged"
    preset.write_text(OWN, "utf-8")
    options = {
        "preset": preset, "release": tinker_server.release, "model": tinker_server.model,
        "renderer": tinker_server.renderer, "log_path": run, "max_steps": 2, "n_test": 3, "eval_every": 10,
    }  # fmt: skip
    tinker_server.run("train_rl.py", *(f"{name}={value}" for name, value in options.items()))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    trained = [row for row in rows if "env/all/reward/total" in row]
    assert [row["step"] for row in trained] == [0, 1]
    assert all("kl_policy_base" in row for row in trained)
    settings = json.loads((run / "run.json").read_text("utf-8"))["settings"]
    assert (settings["name"], settings["style"], settings["reward"]) == ("own", "own", "own")
    assert (settings["reward_table"]["not_json"], settings["reward_table"]["wrong"]) == (-1.5, 0.125)
    assert settings["prompt"]["user"] == "$record Which label fits this paper?"
    rewards = {step["reward"] for step in read_steps(run)}
    assert rewards <= {-1.5, -0.5, 0.125, 0.75}

    # The file is gone: the run alone says how its model is asked.
    preset.unlink()
    words = ("--run", str(run), "--release", str(tinker_server.release), "--out", str(out), "--n-papers", "3")
    tinker_server.run("evaluate.py", *words)
    judged = json.loads((out / "run.json").read_text("utf-8"))["settings"]
    assert {name: judged[name] for name in ("preset", "style", "reward", "temperature", "prompt_sha256")} == {
        "preset": "own", "style": "own", "reward": "own", "temperature": 0.0, "prompt_sha256": settings["prompt_sha256"]
    }  # fmt: skip
    (last,) = (run / "predictions").glob("held_out_000002.parquet")
    assert read_predictions(out / "predictions.parquet").equals(read_predictions(last))  # greedy, so the same again
    assert read_run(run, "own").settings["reward"] == "own"


def read_steps(run) -> list[dict]:
    lines = [
        line
        for path in sorted(run.glob("iteration_*/train_rollout_summaries.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    return [step for line in lines for step in json.loads(line)["steps"]]
