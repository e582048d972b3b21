"""A short name of a model works in every command that takes a model, and a dry run fetches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sciscidata.options import commands
from sciscidata.options.commands import list_options
from sciscirl.cli.commands import PROGRAM
from sciscirl.cli.main import main
from sciscirl.lab.models import fetch_model as fetching

TAKES_A_MODEL = {
    name: {option.name for option in list_options(command)} & {"model", "local_model"}
    for name, command in PROGRAM.commands.items()
}
NEEDED = {"release": "slice", "out": "out", "backend": "tinker"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The cache folder of a user; what would be fetched into it is made by hand."""
    monkeypatch.setattr(fetching.platformdirs, "user_cache_path", lambda _: tmp_path)
    monkeypatch.setattr(fetching, "cached_folder", lambda target, make: target)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "option"),
    [(command, option) for command, options in TAKES_A_MODEL.items() for option in sorted(options)],
)
def test_a_short_name_is_a_folder_in_every_command_that_takes_a_model(home, monkeypatch, command, option):
    called = []
    monkeypatch.setattr(commands, "call", lambda _, values, __: called.append(values))
    named = {option.name for option in list_options(PROGRAM.commands[command])}
    words = [f"--{name}={value}" for name, value in NEEDED.items() if name in named]
    PROGRAM.call(command, [*words, f"--{option.replace('_', '-')}=smollm2"], set())
    assert Path(called[0][option]).parent == home
    assert Path(called[0][option]).name.startswith("SmolLM2-135M-Instruct")
    if "dry_run" in named:
        PROGRAM.call(command, [*words, f"--{option}=smollm2", "--dry-run"], set())
        assert called[1][option] == "smollm2"  # nothing is fetched


def test_no_other_name_and_no_folder_is_changed(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("Qwen/Qwen3-8B", "smolm2", "/models/mine"):
        assert fetching.find_model(name) == name
    Path("smollm2").mkdir()
    assert fetching.find_model("smollm2") == "smollm2"


def test_a_dry_run_with_a_short_name_shows_the_prompt(home, toy_slice, capsys):
    words = ["preset=exp4", f"release={toy_slice}", "model=smollm2", "dry_run=yes", "eval_split=test", "batch_size=4"]
    assert main(["train", *words]) == 0
    out = capsys.readouterr().out
    assert "estimates: the tokenizer of smollm2 is not here yet" in out
    assert out.count("<|im_start|>assistant") == 3


@pytest.mark.parametrize(
    ("model", "first", "named"),
    [
        ("smollm2", "# draw", "--model smollm2"),
        (
            "Qwen/Qwen3-0.6B",
            '# bring the model onto this machine\neval "$(sciscirl model Qwen/Qwen3-0.6B)"',
            '"$MODEL"',
        ),
    ],
)
def test_the_demonstration_prints_commands_that_can_be_typed(home, tmp_path, capsys, model, first, named):
    assert main(["demo", "--dry-run", "--model", model, "--out", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    assert out.startswith(first)
    assert named in out
    assert f"--local-model {named.removeprefix('--model ')}" in out


def test_the_demonstration_refuses_a_wrong_name_before_it_is_run(home, tmp_path, capsys):
    assert main(["demo", "--dry-run", "--model", "smolm2", "--out", str(tmp_path / "demo")]) == 1
    assert "there is no smolm2. Give smollm2" in capsys.readouterr().err
