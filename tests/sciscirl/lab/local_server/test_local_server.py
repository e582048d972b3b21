"""A Tinker server of one's own: its tiny model, its environment, starting and stopping."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscirl.errors import LocalServerError, SciSciRLError
from sciscirl.lab.local_server import server
from sciscirl.lab.local_server.environment import set_up_environment
from sciscirl.lab.local_server.server import LocalServerConfig, serve
from sciscirl.lab.local_server.tiny_model import TINY_RENDERER, TinyModelConfig, get_tiny_model, invent_answers
from sciscirl.lab.models import pip
from sciscirl.runs.folder import locked_folder
from sciscirl.task.contracts import parse_answer
from sciscirl.task.papers import VOCABULARIES
from sciscirl.task.prompts import MINI_EXAMPLES, STYLES, render_prompt
from tests.sciscirl.tinker_server import run_script

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
    assert get_tiny_model(config=TinyModelConfig(priming_steps=0, style="checklist"), cache=tmp_path) != first
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
def test_priming_shows_every_label_and_breaks_half_of_the_answers(contract):
    answers = invent_answers(contract)
    judged = [parse_answer(next(answers), contract) for _ in range(400)]
    assert {answer.label for answer in judged} - {None} == set(VOCABULARIES["disruption_label"])
    assert 160 <= sum(not answer.is_valid for answer in judged) <= 240
    assert {answer.problem for answer in judged} == {"", "not_json", "wrong_keys"}


def test_impossible_settings_of_the_tiny_model_are_refused():
    with pytest.raises(SciSciRLError, match="needs a"):
        TinyModelConfig(priming_steps=-1)


# --- the environment ----------------------------------------------------------------------------------------------


def test_the_environment_is_made_once_and_a_killed_set_up_is_begun_again(tmp_path, monkeypatch):
    commands = []

    def run(command, *_, **__):
        commands.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(pip.subprocess, "run", run)
    monkeypatch.setattr(pip, "follow", run)
    python = set_up_environment(cache=tmp_path)
    assert [command for command in commands if "--no-deps" in command]
    assert all("--require-hashes" in command for command in commands if "install" in command)
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


def test_where_there_is_no_pip_that_of_another_environment_is_asked(monkeypatch):
    commands = []

    def run(command, *_, **__):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(pip.subprocess, "run", run)
    monkeypatch.setattr(pip, "follow", run)
    monkeypatch.setattr(pip.importlib.util, "find_spec", lambda name: None)
    assert pip.run_pip("download", "tiny-model") is None
    made, asked = commands
    assert made[:4] == [sys.executable, "-P", "-m", "venv"]
    assert Path(asked[0]).is_relative_to(made[4])
    assert asked[1:5] == ["-P", "-m", "pip", "download"]


@pytest.mark.parametrize(
    ("said", "goes_on"),
    [
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", True),
        ("ERROR: ResolutionImpossible: for help visit https://pip.pypa.io", True),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", False),
    ],
)
def test_a_cpu_build_that_is_nowhere_is_done_without_and_a_wrong_one_ends_the_set_up(
    said, goes_on, tmp_path, monkeypatch
):
    commands = []

    def run(command, *_, **__):
        if "venv" in command:
            Path(command[-1]).mkdir()
        if "install" in command:
            commands.append(command)
        failed = command[-1].endswith("torch_cpu.txt")
        return subprocess.CompletedProcess(command, int(failed), said if failed else "", "")

    monkeypatch.setattr(pip.subprocess, "run", run)
    monkeypatch.setattr(pip, "follow", run)
    if goes_on:
        assert (set_up_environment(cache=tmp_path).parent.parent / "complete").exists()
        assert len(commands) == 3
    else:
        with pytest.raises(LocalServerError, match="DO NOT MATCH THE HASHES"):
            set_up_environment(cache=tmp_path)
        assert len(commands) == 1


def test_without_a_network_one_error_says_so_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_FIND_LINKS", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    with pytest.raises(LocalServerError, match=r"pip install .*needs the network once"):
        set_up_environment(cache=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


# --- starting and stopping ----------------------------------------------------------------------------------------


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


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


def test_a_server_that_never_gets_ready_is_given_up_and_stopped(tiny, tmp_path, monkeypatch):
    pid = tmp_path / "pid"
    python = stub(
        tmp_path, f"import os, pathlib, sys; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); sys.stdin.read()"
    )
    config = LocalServerConfig(model=tiny, state=tmp_path / "state", port=0, seconds_to_start=2)
    asked: list[None] = []

    def clock() -> float:
        """Two seconds are over once the process runs, however long that takes; when it is started, none is."""
        asked.append(None)
        return 3.0 if asked[1:] and pid.exists() and pid.read_text() else 0.0

    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
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
    assert re.fullmatch(r"error: .*none holds no model: .*--tiny\)\.\n", done.stderr)
