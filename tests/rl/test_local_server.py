"""A Tinker server of one's own: its parts, and in one slow test the whole way from a slice to an evaluated policy."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscirl.contracts import parse_answer
from sciscirl.errors import LocalServerError, SciSciRLError
from sciscirl.local_server import environment
from sciscirl.local_server.environment import set_up_environment
from sciscirl.local_server.server import LocalServerConfig, serve
from sciscirl.local_server.tiny_model import TINY_RENDERER, TinyModelConfig, get_tiny_model, invent_answers
from sciscirl.mini_examples import MINI_EXAMPLES
from sciscirl.prompts import STYLES, render_prompt
from sciscirl.task import VOCABULARIES
from tests.conftest import REPOSITORY

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
    from filelock import FileLock

    config = LocalServerConfig(model=tiny, state=tmp_path, port=0)
    in_use = pytest.raises(LocalServerError, match="in use by another server")
    with FileLock(tmp_path / "lock"), in_use, serve(config, Path("never-started")):
        pass


def test_the_script_says_a_mistake_in_one_line(tmp_path):
    done = run_script("serve_local_tinker.py", "--model", str(tmp_path / "none"), env=os.environ, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"error: .*none holds no model: .*--tiny\.\n", done.stderr)


# --- the whole way ------------------------------------------------------------------------------------------------


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def command(script: str, *words: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "scripts" / script), *words]


def run_script(script: str, *words: str, env, check: bool = True):
    done = subprocess.run(command(script, *words), capture_output=True, text=True, env={**env}, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@contextmanager
def served(slice_folder: Path, state: Path):
    """Run the script as a user would, and read from what it prints how to reach the server."""
    words = ("--tiny", "--slice", str(slice_folder), "--style", "checklist", "--max-lora-rank", "8", "--port", "0")
    process = subprocess.Popen(
        command("serve_local_tinker.py", *words, "--state", str(state)), stdout=subprocess.PIPE, text=True
    )
    try:
        printed = ""
        while "stop with Ctrl-C" not in printed:
            line = process.stdout.readline()
            assert line, f"the server's script ended: {process.wait()}"
            printed += line
        env = dict(re.findall(r"export (\w+)=(.*)", printed))
        yield (
            {**os.environ, **env, "HF_HUB_OFFLINE": "1", "TINKER_TELEMETRY": "0"},
            re.search("model=(.*) r", printed)[1],
        )
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        process.wait(60)
    host, port = re.search("http://(.*):(.*)", env["TINKER_BASE_URL"]).groups()
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0, "the server outlived its script"


@pytest.fixture(scope="module")
def grown_slice(tmp_path_factory) -> Path:
    import sciscidata as ssd

    folder = tmp_path_factory.mktemp("grown") / "slice"
    split = ssd.SplitConfig(n_train=96, n_test=12)
    ssd.build(ssd.BuildConfig(source=ssd.SyntheticConfig(n_works=5_000), out=folder, split=split))
    return folder


def read_metrics(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("SCISCIRL_SERVER") != "1", reason="SCISCIRL_SERVER=1 sets up and runs a server, for minutes"
)
def test_a_policy_trains_is_killed_resumes_and_is_evaluated_on_a_real_server(grown_slice, tmp_path):
    run, state = tmp_path / "run", tmp_path / "state"
    n_steps, save_every = 14, 4
    with served(grown_slice, state) as (env, model):
        words = [
            "preset=exp4", f"release={grown_slice}", f"model={model}", f"renderer={TINY_RENDERER}", f"log_path={run}",
            "batch_size=8", "group_size=4", "max_tokens=32", "lora_rank=8", "max_paper_tokens=96",
            "learning_rate=0.001", f"save_every={save_every}", "eval_every=1000", f"max_steps={n_steps}",
        ]  # fmt: skip
        with (tmp_path / "first.log").open("w") as log:
            first = subprocess.Popen(command("train_rl.py", *words), env=env, stdout=log, stderr=log)
            while not (run / "checkpoints.jsonl").exists():
                assert first.poll() is None, (tmp_path / "first.log").read_text()
                time.sleep(0.1)
            first.kill()
            first.wait()
        assert len(read_metrics(run)) < n_steps
        run_script("train_rl.py", *words, "resume=True", env=env)

    rows = [row for row in read_metrics(run) if "env/all/reward/total" in row]
    assert [row["step"] for row in rows] == list(range(n_steps))
    rewards = [row["env/all/reward/total"] for row in rows]
    assert statistics.fmean(rewards[-3:]) > statistics.fmean(rewards[:3]) + 0.1, rewards
    final = read_metrics(run)[-1]
    for name in ("label_match", "parse_ok", "format_strict_ok", "macro_f1"):
        assert 0 <= final[f"test/{name}"] <= 1
    assert {"env/all/reward_tie_group_rate", "env/all/reward_uniform_group_rate"} <= rows[-1].keys()

    # Another server on the same folder knows the checkpoint still, and loads it though nobody trains the model.
    with served(grown_slice, state) as (env, _):
        out = tmp_path / "evaluation"
        words = ["--run", str(run), "--release", str(grown_slice), "--out", str(out), "--renderer", TINY_RENDERER]
        done = run_script("evaluate.py", *words, "--preset", "exp4", "--max-tokens", "32", env=env)
    assert "label_match" in done.stdout
    assert list(out.rglob("*.parquet"))
