"""The tour of docs/rl/local_server.md: a real Tinker server, from a release to a judged policy, killed on the way."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from string import Template

import pytest

from sciscirl.lab.evaluation.evaluate import evaluate_predictions
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import read_predictions
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.logs import read_rows
from sciscirl.runs.record import find_commit
from tests.conftest import REPOSITORY
from tests.sciscirl.tinker_server import SECONDS_TO_RUN, Script, TinkerServer, served

pytestmark = pytest.mark.slow

#: Steps of a policy that has learned next to nothing yet.
N_UNTAUGHT = 3

#: Keeps two models and lets go of them, takes every slot, and asks in each way for one more. In a process of its own,
#: since the SDK leaves its sockets open.
CLIENT = """
import sys, tinker
from sciscirl.errors import SciSciRLError
from sciscirl.runs.server_checks import clear_errors, open_service

def train(client):
    return client.create_lora_training_client(sys.argv[1], rank=8).result()

def sample(sampler):
    return sampler.sample(tinker.ModelInput.from_ints([1]), 1, tinker.SamplingParams(max_tokens=1))

with open_service() as gone:
    kept = [train(gone) for _ in range(2)]
    state = kept[0].save_state("kept").result().path
    weights = [client.save_weights_for_sampler("kept").result().path for client in kept]
with open_service() as holder:
    held = []
    for ask in (
        lambda: held.extend(train(holder) for _ in range(20)),
        lambda: holder.create_training_client_from_state(state).result(),
        lambda: sample(holder.create_sampling_client(model_path=weights[0])).result(),
    ):
        try:
            with clear_errors():
                ask()
        except SciSciRLError as error:
            print("refused:", error)
    held = [client.save_state("still-here").result().path for client in held[:1]]
    # Asked within a tick of the server after the goodbye, when the slots are still to be freed; and both in one tick,
    # of which one at a time is loaded.
    next_one = tinker.ServiceClient()
    samplers = [next_one.create_sampling_client(model_path=path) for path in weights]
answers = [sample(sampler) for sampler in samplers * 2]
print("sampled:", *(len(answer.result().sequences) for answer in answers))
"""


def read_metrics(run: Path) -> list[dict]:
    return read_rows(run / "metrics.jsonl")


@dataclass(frozen=True)
class Tour:
    """The tour of a local server, its training killed after the first checkpoint and resumed.

    Attributes:
        home: the folder in which all of it was typed.
        run: the folder of the run.
        options: of the training.
        n_taken: steps that were taken before the kill.
        shown: what the other two commands printed.
    """

    home: Path
    run: Path
    options: dict[str, str]
    n_taken: int
    shown: list[str]


def page_commands(server: TinkerServer) -> list[list[str]]:
    """What the page of the local server says to type, as script and words, its variables filled in."""
    page = (REPOSITORY / "docs" / "rl" / "local_server.md").read_text("utf-8")
    block = re.search(r"paste the four lines.*?```bash\n(.*?)```", page, re.DOTALL)[1].replace("\\\n", "")
    lines = [shlex.split(Template(line).substitute(server.environment)) for line in block.splitlines()]
    assert {line[0] for line in lines} == {".venv/bin/python"}
    return [[line[1].removeprefix("scripts/"), *line[2:]] for line in lines]


@pytest.fixture(scope="module")
def tour(tinker_server, tmp_path_factory) -> Tour:
    home = tmp_path_factory.mktemp("tour")
    (home / "slices").mkdir()
    (home / "slices" / "small").symlink_to(tinker_server.release)
    training, *others = page_commands(tinker_server)
    training.append("eval_split=test")  # the page's release has no dev, which else would judge
    options = dict(word.split("=", 1) for word in training[1:])
    run = home / "runs" / "baseline"
    first, deadline = tinker_server.start(*training, cwd=home), time.monotonic() + SECONDS_TO_RUN
    try:
        # The step of the first checkpoint is logged after it was saved.
        while not any(row["step"] == int(options["save_every"]) - 1 for row in read_metrics(run)):
            assert first.poll() is None, first.err.read_text("utf-8")
            assert time.monotonic() < deadline, first.err.read_text("utf-8")
            time.sleep(0.1)
    finally:
        first.kill()
        first.finish()
    assert (run / "checkpoints.jsonl").exists()
    n_taken = len(read_metrics(run))
    # In processes that load everything by themselves, as a shell starts them; the other tests fork theirs.
    tinker_server.run(*training, "behavior_if_log_dir_exists=resume", cwd=home, is_fork=False)
    shown = [tinker_server.run(*words, cwd=home, is_fork=False).stdout for words in others]
    return Tour(home, run, options, n_taken, shown)


def test_a_policy_is_killed_resumes_and_its_reward_rises(tour):
    n_steps = int(tour.options["max_steps"])
    assert 0 < tour.n_taken < n_steps  # killed before the end
    rows = [row for row in read_metrics(tour.run) if "env/all/reward/total" in row]
    assert [row["step"] for row in rows] == list(range(n_steps))
    rewards = [row["env/all/reward/total"] for row in rows]
    # Half of all steps: single ones (32 answers) differ by 0.1, and a policy may forget for a while. 13 runs had 0.22
    # to 0.46.
    rise = statistics.fmean(rewards[n_steps // 2 :]) - statistics.fmean(rewards[:N_UNTAUGHT])
    assert rise > 0.05, [round(reward, 2) for reward in rewards]


def test_the_folder_of_a_run_says_what_was_run_on_what_and_holds_every_answer(tour, tinker_server):
    recorded = json.loads((tour.run / "run.json").read_text("utf-8"))
    manifest = (tinker_server.release / "manifest.json").read_bytes()
    assert recorded["release"] == {"manifest_sha256": hashlib.sha256(manifest).hexdigest()}
    assert recorded["commit"] == find_commit()
    told = {"batch_size", "group_size", "max_tokens", "lora_rank", "learning_rate", "model", "renderer"}
    assert {name: str(recorded["settings"][name]) for name in told} == {name: tour.options[name] for name in told}
    config = json.loads((tour.run / "config.json").read_text("utf-8"))
    assert config["save_every"] == int(tour.options["save_every"])

    metrics, n_steps = read_metrics(tour.run), int(tour.options["max_steps"])
    trained_on = {"reward_tie_group_rate", "reward_uniform_group_rate", "format_strict_ok", "reward/parse"}
    assert {f"env/all/{name}" for name in trained_on} <= metrics[n_steps - 1].keys()
    for step in range(n_steps):
        lines = (tour.run / f"iteration_{step:06d}" / "train_rollout_summaries.jsonl").read_text("utf-8").splitlines()
        assert len(lines) == int(tour.options["batch_size"]) * int(tour.options["group_size"])
    # Of each evaluation, metrics.jsonl says what its predictions say.
    for step in (*range(0, n_steps, int(tour.options["eval_every"])), n_steps):
        predictions = read_predictions(tour.run / "predictions" / f"test_{step:06d}.parquet")
        assert len(predictions) == 12
        row = next(row for row in metrics if row["step"] == step and "test/label_match" in row)
        for name, value in measure_predictions(predictions).items():
            assert row[f"test/{name}"] == pytest.approx(value), name
        assert {"test/macro_f1", "test/parse_ok", "test/format_strict_ok", "test/recall/neutral"} <= row.keys()


def test_the_commands_of_the_readme_judge_the_run(tour):
    by_model, from_file = tour.shown
    assert re.findall(r"^(model|majority|words) ", by_model, re.MULTILINE) == ["model", "majority", "words"]
    assert all("accuracy, %" in shown for shown in tour.shown)
    for name in ("predictions.parquet", "metrics.json", "run.json"):
        assert (tour.home / "evaluations" / "small" / "baseline" / name).is_file()
    last = read_predictions(tour.run / "predictions" / f"test_{int(tour.options['max_steps']):06d}.parquet")
    assert f"  {100 * measure_predictions(last)['label_match']:.0f} [" in from_file


def test_the_run_is_reported_and_compared_and_a_checkpoint_chosen(tour, tinker_server):
    chosen = tinker_server.run("select_checkpoint.py", "runs/baseline", cwd=tour.home).stdout
    steps = [int(step) for step in re.findall(r"^[> ]+(\d+) ", chosen, re.MULTILINE)]
    n_steps, eval_every = (int(tour.options[name]) for name in ("max_steps", "eval_every"))
    assert steps == list(range(0, n_steps + 1, eval_every)), chosen
    judged = ("runs/baseline", "evaluations/small/baseline", "evaluations/small/majority")
    compared = tinker_server.run("compare.py", *judged, "--out", "comparison", cwd=tour.home).stdout
    assert "majority" in compared
    pairs = json.loads((tour.home / "comparison" / "comparison.json").read_text("utf-8"))
    assert "majority" in json.dumps(pairs)
    tinker_server.run("report.py", *judged, "--release", "slices/small", "--out", "report.html", cwd=tour.home)
    page = (tour.home / "report.html").read_text("utf-8")
    last = measure_predictions(read_predictions(tour.run / "predictions" / f"test_{n_steps:06d}.parquet"))
    assert f"{last['label_match']:.3f}" in page
    assert page.count("<img ") == 5  # reward, equal groups and what is watched; twelve answers are not drawn


def test_greedy_answers_repeat_and_metrics_are_those_of_the_predictions(tour, tinker_server, tmp_path):
    words = ("--run", str(tour.run), "--release", str(tinker_server.release), "--temperature", "0")
    tinker_server.run("evaluate.py", *words, "--group-size", "2", "--out", str(tmp_path / "out"))
    predictions = read_predictions(tmp_path / "out" / "predictions.parquet")
    assert predictions["openalex_id"].n_unique() * 2 == len(predictions) == 24
    assert predictions["text"][::2].to_list() == predictions["text"][1::2].to_list()
    written = json.loads((tmp_path / "out" / "metrics.json").read_text("utf-8"))
    assert written == pytest.approx(evaluate_predictions(tmp_path / "out" / "predictions.parquet"))
    recorded = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))["settings"]
    assert recorded["checkpoint"].startswith("tinker://")
    assert (recorded["preset"], recorded["temperature"]) == ("baseline", 0)


@dataclass(frozen=True)
class Visit:
    """What a second server of few places, started on a copy of the first one's state, did for three clients in turn.

    Attributes:
        sweep: the folder of a sweep of three runs at once.
        sweeping: its process.
        filling: the process that took every adapter slot.
        judging: what the evaluation of the tour's run printed.
        is_up: whether the server still answers after its script was stopped.
    """

    sweep: Path
    sweeping: subprocess.CompletedProcess[str]
    filling: subprocess.CompletedProcess[str]
    judging: str
    is_up: bool


@pytest.fixture(scope="module")
def second_server(tour, tinker_server, tmp_path_factory) -> Visit:
    home = tmp_path_factory.mktemp("second")
    shutil.copytree(tinker_server.state, home / "state")
    with served(tinker_server.release, home / "state", adapters=3) as server:
        words = [
            "--preset", "exp4", "--release", server.release, "--model", server.model, "--renderer", server.renderer,
            "--seeds", "0", "1", "2", "--jobs", "3", "--lora-rank", "8", "--max-tokens", "64", "--batch-size", "2",
            "--max-paper-tokens", "96", "--group-size", "4", "--max-steps", "2", "--n-test", "4",
            "--eval-split", "test", "--out", home / "sweep",
        ]  # fmt: skip
        command = [sys.executable, "-m", "sciscirl", "sweep", *map(str, words)]
        sweeping = Script(command, environment=server.environment, is_fork=False).finish()
        client = home / "client.py"
        client.write_text(CLIENT, "utf-8")
        filling = Script([sys.executable, str(client), server.model], environment=server.environment).finish()
        words = ("--run", str(tour.run), "--release", str(server.release), "--out", str(home / "out"))
        judging = server.run("evaluate.py", *words).stdout
    return Visit(home / "sweep", sweeping, filling, judging, server.is_up)


def test_the_third_run_of_a_sweep_waits_for_the_place_of_one_that_ended(second_server):
    """Places for two runs, and three at once: sessions that ended runs left open would keep the third out for hours."""
    said = second_server.sweeping.stderr
    assert second_server.sweeping.returncode == 0, said
    assert "waits for a free place" in said
    assert "DEPRECATED" not in said
    assert len([*second_server.sweep.glob("exp4/seed_*/run.json")]) == 3


def test_a_server_that_is_full_refuses_in_one_line_whatever_needs_a_slot_and_serves_on(second_server):
    *refused, last = second_server.filling.stdout.splitlines()
    assert len(refused) == 3, second_server.filling.stderr
    assert all(line.startswith("refused: http") and "all its adapter slots are taken" in line for line in refused)
    assert last == "sampled: 1 1 1 1", second_server.filling.stderr


def test_another_server_on_the_same_state_loads_a_checkpoint_that_nobody_trains(second_server):
    assert "accuracy, %" in second_server.judging
    assert not second_server.is_up, "the server outlived its script"


def test_what_a_server_refuses_is_one_line(tour, tinker_server):
    script, *words = page_commands(tinker_server)[0]
    retired = [word for word in words if not word.startswith("model=")]
    offer = f"retired it on 2026-06-12.*Choose one that it offers: model={re.escape(tinker_server.model)}"
    with locked_folder(tour.run):
        for said, these in (("is in use by another run", words), (offer, [*retired, "log_path=another"])):
            done = tinker_server.run(script, *these, check=False, cwd=tour.home)
            assert done.returncode == 1
            *steps, error = done.stderr.splitlines()
            assert re.fullmatch(rf"error: .*{said}.*", error), done.stderr
            assert all(re.match(r"\[[123]/4\] ", step) for step in steps), done.stderr
    assert not (tour.home / "another").exists()
