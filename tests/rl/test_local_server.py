"""A Tinker server of one's own: its parts, and in one slow test the whole way from a slice to an evaluated policy."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscirl.contracts import parse_answer
from sciscirl.errors import LocalServerError, SciSciRLError
from sciscirl.evaluate import evaluate_predictions
from sciscirl.folder_lock import locked_folder
from sciscirl.local_server import environment
from sciscirl.local_server.environment import set_up_environment
from sciscirl.local_server.server import LocalServerConfig, serve
from sciscirl.local_server.tiny_model import TINY_RENDERER, TinyModelConfig, get_tiny_model, invent_answers
from sciscirl.metrics import compute_metrics
from sciscirl.mini_examples import MINI_EXAMPLES
from sciscirl.predictions import read_predictions
from sciscirl.prompts import STYLES, render_prompt
from sciscirl.run_folder import find_commit
from sciscirl.task import VOCABULARIES
from tests.conftest import REPOSITORY
from tests.rl.tinker_server import command, run_script, served

VIEW = MINI_EXAMPLES[0].view


# --- the tiny model -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return get_tiny_model(config=TinyModelConfig(priming_steps=5), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def tokenizer(tiny):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny)


def test_a_tiny_model_is_made_once_and_again_when_anything_about_it_changes(tmp_path):
    random = TinyModelConfig(priming_steps=0)
    first = get_tiny_model(config=random, cache=tmp_path)
    made = (first / "model.safetensors").stat().st_mtime_ns
    assert get_tiny_model(config=random, cache=tmp_path) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == made
    assert get_tiny_model(config=TinyModelConfig(priming_steps=0, seed=1), cache=tmp_path) != first
    assert get_tiny_model([VIEW], random, cache=tmp_path) != first


def test_the_same_seed_gives_the_same_weights(tmp_path):
    config = TinyModelConfig(priming_steps=2)
    one, two = (get_tiny_model(config=config, cache=tmp_path / name) for name in "ab")
    assert one.name == two.name
    for name in ("model.safetensors", "tokenizer.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


@pytest.mark.parametrize("style", STYLES)
def test_the_chat_template_writes_prompts_as_the_cookbooks_renderer_does(tokenizer, style):
    from tinker_cookbook.renderers import get_renderer

    messages = render_prompt(VIEW, style, "two_keys")
    renderer = get_renderer(TINY_RENDERER, tokenizer)
    by_template = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert renderer.build_generation_prompt(messages).to_ints() == tokenizer.encode(by_template)
    assert renderer.get_stop_sequences() == [tokenizer.eos_token_id]


@given(st.text())
def test_the_tokenizer_loses_nothing(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text), clean_up_tokenization_spaces=False) == text


def test_an_answer_takes_few_tokens(tokenizer):
    answer = '{"disruption_label": "consolidating", "confidence": 0.7}'
    assert 10 <= len(tokenizer.encode(answer)) <= 30  # within max_tokens, and not one token for the whole of it


@pytest.mark.parametrize("contract", ["two_keys", "four_keys"])
def test_priming_shows_every_label_and_breaks_the_share_of_answers_that_was_asked_for(contract):
    answers = invent_answers(TinyModelConfig(broken_share=0.25, contract=contract))
    judged = [parse_answer(next(answers), contract) for _ in range(400)]
    assert {answer.label for answer in judged} - {None} == set(VOCABULARIES["disruption_label"])
    assert 60 <= sum(not answer.is_valid for answer in judged) <= 140
    assert {answer.problem for answer in judged} == {"", "not_json", "wrong_keys"}


def test_nothing_is_broken_where_nothing_was_asked_to_be():
    answers = invent_answers(TinyModelConfig(broken_share=0.0))
    assert all(parse_answer(next(answers), "two_keys").is_valid for _ in range(100))


@pytest.mark.parametrize("wrong", [{"broken_share": -0.1}, {"broken_share": 1.1}, {"priming_steps": -1}])
def test_impossible_settings_of_the_tiny_model_are_refused(wrong):
    with pytest.raises(SciSciRLError, match="needs a"):
        TinyModelConfig(**wrong)


# --- the environment ----------------------------------------------------------------------------------------------


def test_the_environment_is_made_once_and_a_killed_set_up_is_begun_again(tmp_path, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(environment.subprocess, "run", run)
    python = set_up_environment(cache=tmp_path)
    assert [command for command in commands if "--no-deps" in command]
    folder, n_commands = python.parent.parent, len(commands)
    assert set_up_environment(cache=tmp_path) == python
    assert len(commands) == n_commands
    (folder / "complete").unlink()
    (folder / "half").touch()
    assert set_up_environment(cache=tmp_path) == python
    assert len(commands) == 2 * n_commands
    assert not (folder / "half").exists()
    assert set_up_environment(cuda=True, cache=tmp_path) != python
    assert any("jax[cuda13]" in word for command in commands for word in command)


def test_without_a_network_one_error_says_so_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_FIND_LINKS", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    with pytest.raises(LocalServerError, match=r"pip install .*needs the network once"):
        set_up_environment(cache=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_every_pin_is_exact():
    lines = (REPOSITORY / "sciscirl/local_server/requirements.txt").read_text("utf-8").splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9a-z.]+", line) for line in lines if not line.startswith("#"))


def test_client_and_server_speak_the_same_version():
    pins = (REPOSITORY / "sciscirl/local_server/requirements.txt").read_text("utf-8")
    constraints = (REPOSITORY / "constraints.txt").read_text("utf-8")
    for package in ("tinker", "torch"):
        pinned = re.search(rf"^{package}==(.*)$", constraints, re.MULTILINE)
        assert pinned is not None
        assert f"\n{package}=={pinned[1]}\n" in pins


# --- starting and stopping ----------------------------------------------------------------------------------------


def stub(folder: Path, program: str) -> Path:
    """An interpreter that runs this and nothing else."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{program}\n", "utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("wrong", [{"port": -1}, {"port": 65536}, {"max_lora_rank": 0}, {"seconds_to_start": 0}])
def test_impossible_settings_of_the_server_are_refused(tiny, tmp_path, wrong):
    with pytest.raises(LocalServerError, match=rf"{next(iter(wrong))} is .*needs a"):
        LocalServerConfig(model=tiny, state=tmp_path, **wrong)


def test_a_port_in_use_is_named(tiny, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = LocalServerConfig(model=tiny, state=tmp_path, port=port)
        with (
            pytest.raises(LocalServerError, match=f"port {port} of 127.0.0.1 cannot be used"),
            serve(config, Path("x")),
        ):
            pass


def test_a_server_that_ends_while_loading_is_quoted(tiny, tmp_path):
    python = stub(tmp_path, "import sys; print('Traceback:\\n  ...\\nValueError: no such architecture'); sys.exit(3)")
    config = LocalServerConfig(model=tiny, state=tmp_path / "state", port=0)
    said = r"ended while loading .*ValueError: no such architecture\. All it said: .*server\.log"
    with pytest.raises(LocalServerError, match=said), serve(config, python):
        pass


def test_a_server_that_never_gets_ready_is_given_up_and_stopped(tiny, tmp_path):
    pid = tmp_path / "pid"
    python = stub(
        tmp_path, f"import os, pathlib, sys; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); sys.stdin.read()"
    )
    config = LocalServerConfig(model=tiny, state=tmp_path / "state", port=0, seconds_to_start=2)
    with pytest.raises(LocalServerError, match=r"not loaded .* in 2 s"), serve(config, python):
        pass
    assert not is_alive(int(pid.read_text()))


def test_two_servers_do_not_share_a_state_folder(tiny, tmp_path):
    config = LocalServerConfig(model=tiny, state=tmp_path, port=0)
    in_use = pytest.raises(LocalServerError, match="in use by another server")
    with locked_folder(tmp_path), in_use, serve(config, Path("never-started")):
        pass


def test_the_script_says_a_mistake_in_one_line(tmp_path):
    done = run_script("serve_local_tinker.py", "--model", str(tmp_path / "none"), check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"error: .*none holds no model: .*--tiny\.\n", done.stderr)


# --- the whole way ------------------------------------------------------------------------------------------------

N_STEPS, SAVE_EVERY, EVAL_EVERY, N_COMPARED = 14, 4, 7, 4


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def read_metrics(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def training_words(server, run: Path) -> list[str]:
    return [
        "preset=baseline", f"release={server.slice}", f"model={server.model}", f"renderer={server.renderer}",
        f"log_path={run}", "batch_size=4", "group_size=8", "max_tokens=64", "lora_rank=8", "max_paper_tokens=96",
        "learning_rate=0.002", f"save_every={SAVE_EVERY}", f"eval_every={EVAL_EVERY}", f"max_steps={N_STEPS}",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tinker_server, tmp_path_factory) -> tuple[Path, int]:
    """The folder of a run that was killed after its first checkpoint and resumed; and how many steps it had taken."""
    folder = tmp_path_factory.mktemp("trained")
    run, words = folder / "run", training_words(tinker_server, folder / "run")
    with (folder / "first.log").open("w") as log:
        first = subprocess.Popen(command("train_rl.py", *words), env=tinker_server.environment, stdout=log, stderr=log)
        while not (run / "checkpoints.jsonl").exists():
            assert first.poll() is None, (folder / "first.log").read_text()
            time.sleep(0.1)
        first.kill()
        first.wait()
    n_taken = len(read_metrics(run))
    tinker_server.run("train_rl.py", *words, "resume=True")
    return run, n_taken


@pytest.mark.slow
def test_a_policy_is_killed_resumes_and_its_reward_rises(trained, record_property):
    run, n_taken = trained
    assert n_taken < N_STEPS  # the kill came before the end
    rows = [row for row in read_metrics(run) if "env/all/reward/total" in row]
    assert [row["step"] for row in rows] == list(range(N_STEPS))
    rewards = [row["env/all/reward/total"] for row in rows]
    rise = statistics.fmean(rewards[-N_COMPARED:]) - statistics.fmean(rewards[:N_COMPARED])
    record_property("rise of the reward", rise)
    assert rise > 0.1, rewards


@pytest.mark.slow
def test_the_folder_of_a_run_says_what_was_run_on_what_and_holds_every_answer(trained, tinker_server):
    run, _ = trained
    recorded = json.loads((run / "run.json").read_text("utf-8"))
    manifest = (tinker_server.slice / "manifest.json").read_bytes()
    assert recorded["release"] == {"manifest_sha256": hashlib.sha256(manifest).hexdigest()}
    assert recorded["commit"] == find_commit()
    told = {"name": "baseline", "batch_size": 4, "group_size": 8, "max_tokens": 64, "learning_rate": 0.002, "seed": 0}
    assert told.items() <= recorded["settings"].items()
    assert json.loads((run / "config.json").read_text("utf-8"))["max_steps"] == N_STEPS

    metrics = read_metrics(run)
    trained_on = {"reward_tie_group_rate", "reward_uniform_group_rate", "format_strict_ok", "reward/parse"}
    assert {f"env/all/{name}" for name in trained_on} <= metrics[N_STEPS - 1].keys()
    for step in range(N_STEPS):  # rollouts
        lines = (run / f"iteration_{step:06d}" / "train_rollout_summaries.jsonl").read_text("utf-8").splitlines()
        assert len(lines) == 4 * 8
    for step in (0, EVAL_EVERY, N_STEPS):  # metrics.jsonl says of each evaluation what its predictions say
        predictions = read_predictions(run / "predictions" / f"test_{step:06d}.parquet")
        assert len(predictions) == 12
        row = next(row for row in metrics if row["step"] == step and "test/label_match" in row)
        for name, value in compute_metrics(predictions).items():
            assert row[f"test/{name}"] == pytest.approx(value), name
        assert {"test/macro_f1", "test/parse_ok", "test/format_strict_ok", "test/recall/neutral"} <= row.keys()


@pytest.mark.slow
def test_a_run_is_evaluated_and_its_metrics_are_those_of_its_predictions(trained, tinker_server, tmp_path):
    words = ("--run", str(trained[0]), "--release", str(tinker_server.slice), "--temperature", "0")
    done = tinker_server.run("evaluate.py", *words, "--group-size", "2", "--out", str(tmp_path / "out"))
    assert "label_match" in done.stdout
    predictions = read_predictions(tmp_path / "out" / "predictions.parquet")
    assert predictions["openalex_id"].n_unique() * 2 == len(predictions) == 24
    assert predictions["text"][::2].to_list() == predictions["text"][1::2].to_list()  # greedy: both answers are one
    written = json.loads((tmp_path / "out" / "metrics.json").read_text("utf-8"))
    assert written == pytest.approx(evaluate_predictions(tmp_path / "out" / "predictions.parquet"))
    recorded = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))["settings"]
    assert recorded["checkpoint"].startswith("tinker://")
    assert (recorded["preset"], recorded["temperature"]) == ("baseline", 0)


@pytest.mark.slow
def test_another_server_on_the_same_state_loads_a_checkpoint_that_nobody_trains(trained, tinker_server, tmp_path):
    shutil.copytree(tinker_server.state, tmp_path / "state")
    with served(tinker_server.slice, tmp_path / "state") as server:
        words = ("--run", str(trained[0]), "--release", str(server.slice), "--out", str(tmp_path / "out"))
        assert "label_match" in server.run("evaluate.py", *words).stdout
    assert not server.is_up, "the server outlived its script"


@pytest.mark.slow
def test_what_a_server_refuses_is_one_line(trained, tinker_server):
    run, _ = trained
    words = training_words(tinker_server, run)
    retired = [word for word in words if not word.startswith(("model=", "log_path="))] + [f"log_path={run}-2"]
    with locked_folder(run):
        for script_words, said in (
            (words, "is in use by another run"),
            (retired, f"retired it on 2026-06-12.*Choose one that it offers: model={re.escape(tinker_server.model)}"),
        ):
            done = tinker_server.run("train_rl.py", *script_words, check=False)
            assert done.returncode == 1
            assert re.fullmatch(rf"error: .*{said}.*\n", done.stderr), done.stderr
    assert not Path(f"{run}-2").exists()
