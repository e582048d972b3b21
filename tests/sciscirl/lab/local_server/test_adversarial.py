"""The adversarial task on a real Tinker server: trained, judged, and challenged by a model of that server."""

from __future__ import annotations

import json

import pytest

from sciscirl.lab.adversarial.metrics import adversarial_schema
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import read_predictions

pytestmark = pytest.mark.slow

SMALL = {
    "batch_size": 4, "group_size": 4, "max_tokens": 64, "max_paper_tokens": 96, "lora_rank": 8, "max_steps": 2,
    "n_test": 4,
    "eval_split": "test",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tinker_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adversarial") / "run"
    tinker_server.run(
        "train_rl.py", "preset=adversarial_disruption", f"release={tinker_server.release}",
        f"model={tinker_server.model}", f"renderer={tinker_server.renderer}", f"log_path={folder}",
        *(f"{name}={value}" for name, value in SMALL.items()),
    )  # fmt: skip
    return folder


def test_a_short_run_logs_every_part_and_every_flip_and_keeps_both_turns(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    trained = [row for row in rows if "env/all/reward/total" in row]
    assert [row["step"] for row in trained] == [0, 1]
    for row in trained:
        parts = [row[f"env/all/reward/{part}"] for part in ("correctness", "reasoning", "adaptation")]
        assert row["env/all/reward/total"] == pytest.approx(sum(parts))
        flips = [
            row[f"env/all/flip/{name}"] for name in ("right_to_wrong", "wrong_to_right", "kept_right", "kept_wrong")
        ]
        assert sum(flips) == pytest.approx(1)
        assert 1 <= row["env/all/turns_per_episode"] <= 2
    lines = [
        json.loads(line)
        for step in (0, 1)
        for line in (run / f"iteration_{step:06d}" / "train_rollout_summaries.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(lines) == 2 * SMALL["batch_size"] * SMALL["group_size"]
    challenged = [line["steps"] for line in lines if line["steps"][-1]["logs"].get("challenge")]
    assert challenged, "the tiny model gave no readable first answer"
    for first, final in challenged:
        assert final["logs"]["first_text"] == first["logs"]["text"]
        assert f"rather than {final['logs']['first_label']}:" in first["logs"]["challenge"]
    settings = json.loads((run / "run.json").read_text("utf-8"))["settings"]
    assert settings["adversarial"]["challenger"] == "rules"


def test_the_evaluations_of_a_run_say_what_their_predictions_say(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    for step in (0, SMALL["max_steps"]):
        predictions = read_predictions(run / "predictions" / f"test_{step:06d}.parquet")
        assert predictions.schema == adversarial_schema("disruption")
        assert len(predictions) == SMALL["n_test"]
        row = next(row for row in rows if row["step"] == step and "test/flip/kept_right" in row)
        for name, value in measure_predictions(predictions).items():
            assert row[f"test/{name}"] == pytest.approx(value), name


def test_a_model_of_the_server_challenges_and_judges_in_an_evaluation(run, tinker_server, tmp_path):
    done = tinker_server.run(
        "evaluate.py", "--run", str(run), "--challenger", tinker_server.model, "--judge", tinker_server.model,
        "--release", str(tinker_server.release), "--n-papers", "6", "--group-size", "4", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert "flip/kept_wrong" in done.stdout
    predictions = read_predictions(tmp_path / "out" / "predictions.parquet")
    assert len(predictions) == 24  # of which the tiny model gets about every second one right in form
    challenges = predictions["challenge"].drop_nulls().to_list()
    assert len(challenges) == predictions["first_is_valid"].sum() > 0
    assert not any("rather than" in challenge for challenge in challenges)  # not the challenger by rules
    assert predictions["reward_reasoning"].is_between(0, 0.3).all()


def test_a_challenger_that_the_server_does_not_offer_is_one_line(tinker_server, tmp_path):
    done = tinker_server.run(
        "train_rl.py", "preset=adversarial_disruption", "challenger=Qwen/Qwen3-8B", f"release={tinker_server.release}",
        f"model={tinker_server.model}", f"renderer={tinker_server.renderer}", f"log_path={tmp_path / 'run'}",
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "does not offer 'Qwen/Qwen3-8B'" in done.stderr
    assert "Traceback" not in done.stderr
