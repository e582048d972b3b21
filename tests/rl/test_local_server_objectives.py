"""Each way beyond the published runs, a few steps on a real server: its terms are logged, its answers judged."""

from __future__ import annotations

import json

import pytest

from sciscirl.predictions import find_target, prediction_schema, read_predictions

pytestmark = pytest.mark.slow

LOGGED = {
    "exp6": {"reward/batch", "batch_term_answers"},
    "exp9": {"refills", "reward_uniform_group_rate"},
    "joint_balanced": {"novelty/reward/task", "disruption/label_match", "label_match", "both_match"},
}


@pytest.fixture(scope="module")
def joint_slice(tmp_path_factory):
    """Works that have both labels, which the slice of the server does not ask for."""
    import sciscidata as ssd

    folder = tmp_path_factory.mktemp("joint") / "slice"
    split = ssd.SplitConfig(n_train=18, n_test=9, balance="joint")
    ssd.build(ssd.BuildConfig(source=ssd.SyntheticConfig(n_works=5_000), out=folder, split=split))
    return folder


@pytest.mark.parametrize("name", LOGGED)
def test_a_preset_trains_and_logs_its_terms(name, tinker_server, joint_slice, tmp_path):
    run = tmp_path / "run"
    options = {
        "preset": name, "release": joint_slice, "model": tinker_server.model, "log_path": run,
        "renderer": tinker_server.renderer, "max_steps": 2, "batch_size": 3, "group_size": 2, "lora_rank": 8,
        "max_tokens": 40, "eval_every": 10, "n_test": 4,
    }  # fmt: skip
    tinker_server.run("train_rl.py", *(f"{key}={value}" for key, value in options.items()))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    trained = [row for row in rows if "env/all/reward/total" in row]
    assert [row["step"] for row in trained] == [0, 1]
    assert {f"env/all/{metric}" for metric in LOGGED[name]} <= set(trained[0])
    predictions = read_predictions(run / "predictions" / "test_000002.parquet")
    assert len(predictions) == 4
    assert predictions.schema == prediction_schema(find_target(predictions))
    assert (find_target(predictions) == "joint") == (name == "joint_balanced")
