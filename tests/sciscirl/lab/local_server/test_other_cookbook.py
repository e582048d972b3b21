"""A whole training, evaluation and supervised run with other versions of the SDK and the cookbook than those installed.

``just cookbook`` runs it, and ``test_cookbook.py`` with the same versions.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sciscirl.runs.logs import read_rows
from tests.sciscirl.lab.local_server.other_versions import PACKAGES, make_environment
from tests.sciscirl.tinker_server import TinkerServer, run_script

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PACKAGES, reason="installs other versions: just cookbook"),
]


@pytest.fixture(scope="module")
def other(tinker_server, tmp_path_factory):
    """Runs a script with those versions."""
    environment = make_environment(tinker_server, tmp_path_factory.mktemp("cookbook") / "packages")

    def run(script: str, *words: object):
        return run_script(script, *map(str, words), environment=environment)

    return run


def list_words(server: TinkerServer, run: Path) -> list[str]:
    return [
        "preset=baseline", f"release={server.release}", f"model={server.model}", f"renderer={server.renderer}",
        f"log_path={run}", "max_tokens=64", "max_paper_tokens=96", "lora_rank=8", "batch_size=4", "n_test=4",
        "eval_every=1", "save_every=1",
    ]  # fmt: skip


def check_versions(folder: Path) -> None:
    stated = json.loads((folder / "run.json").read_text("utf-8"))["versions"]
    assert set(PACKAGES) <= {f"{name}=={version}" for name, version in stated.items()}


def test_reinforcement_learning_resumes_and_is_judged(other, tinker_server, tmp_path):
    run, out = tmp_path / "run", tmp_path / "evaluation"
    words = [*list_words(tinker_server, run), "group_size=4"]
    other("train_rl.py", *words, "max_steps=2")
    other("train_rl.py", *words, "max_steps=3", "behavior_if_log_dir_exists=resume")
    rows = read_rows(run / "metrics.jsonl")
    assert [row["step"] for row in rows if "env/all/reward/total" in row] == [0, 1, 2]
    assert [row["step"] for row in rows if "dev/label_match" in row] == [0, 1, 2, 3]
    check_versions(run)
    other("evaluate.py", "--run", run, "--release", tinker_server.release, "--out", out, "--n-papers", 4)
    assert "label_match" in json.loads((out / "metrics.json").read_text("utf-8"))


def test_a_run_off_policy_trains_by_the_loss_that_its_record_names(other, tinker_server, tmp_path):
    words = [*list_words(tinker_server, tmp_path / "run"), "group_size=4", "max_steps_off_policy=1", "loss_fn=ppo"]
    other("train_rl.py", *words, "max_steps=2")
    rows = read_rows(tmp_path / "run/metrics.jsonl")
    assert [row["step"] for row in rows if "env/all/reward/total" in row] == [0, 1]
    config = json.loads((tmp_path / "run/config.json").read_text("utf-8"))
    assert config["async_config"].get("loss_fn", config["loss_fn"]) == "ppo"


def test_supervised_training(other, tinker_server, tmp_path):
    run = tmp_path / "run"
    other("train_sft.py", "--backend", "tinker", *list_words(tinker_server, run), "n_epochs=1", "max_steps=3")
    rows = read_rows(run / "metrics.jsonl")
    assert [row["step"] for row in rows if "train_mean_nll" in row] == [0, 1, 2]
    assert [row["step"] for row in rows if "dev/label_match" in row] == [0, 1, 2, 3]
    check_versions(run)
