"""The ``sciscirl`` command: what it prints, what it refuses, and that its options are those of Python."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from sciscirl.cli.commands import COMMANDS, SHOWN
from sciscirl.cli.flags import UsageError, list_options, name_flags, read_words, render_help
from sciscirl.cli.main import main, run
from sciscirl.errors import SciSciRLError
from sciscirl.options import PeftSftOptions, TinkerSftOptions, TrainOptions
from sciscirl.presets import PRESETS
from tests.conftest import REPOSITORY

SCRIPTS = {
    "train_rl": "train", "train_sft": "sft", "evaluate": "evaluate", "compare": "compare", "report": "report",
    "select_checkpoint": "select", "serve_local_tinker": "serve", "merge_adapter": "merge",
    "repro_sweep": "sweep repro", "group_size_sweep": "sweep group-sizes",
}  # fmt: skip
HEAVY = "{'torch', 'tinker', 'tinker_cookbook', 'transformers', 'matplotlib', 'polars'}"


def test_help_names_every_command_in_a_line_and_loads_nothing_heavy():
    program = (
        f"import sys; from sciscirl.cli.main import main; main(['--help']); sys.exit(bool({HEAVY} & {{*sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = [line[2:19].strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert listed == [*COMMANDS, "completion"]
    assert max(map(len, done.stdout.splitlines())) <= 120


@pytest.mark.parametrize("name", COMMANDS)
def test_the_full_help_explains_every_option_and_the_short_one_says_how_many_more_there_are(name):
    command, shown = COMMANDS[name], SHOWN.get(name, "").split()
    options = list_options(command)
    full, short = render_help(command, f"sciscirl {name}"), render_help(command, f"sciscirl {name}", shown)
    assert all(option.flag in full and option.text for option in options)
    assert {*shown} <= {option.name for option in options}
    assert all((option.flag in short) == (option.name in shown) for option in options if shown)
    assert name == "presets" or f"    sciscirl {name} " in short  # an example
    assert len(shown) <= 13
    assert not shown or f"{len(options) - len(shown)} more options: sciscirl {name} --help-all" in short


@pytest.mark.parametrize("kind", [TrainOptions, TinkerSftOptions, PeftSftOptions])
def test_every_option_of_python_has_a_flag_with_its_default(kind):
    options = {option.name: option for option in list_options(COMMANDS["train" if kind is TrainOptions else "sft"])}
    for field in fields(kind):
        assert options[field.name].default == field.default, field.name


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_the_help_can_be_read(name):
    for line in (COMMANDS[name].__doc__ or "").splitlines():
        if line.strip().startswith("sciscirl "):
            assert read_words(COMMANDS[name], line.split()[1 + len(name.split()) :])


def test_the_ways_to_write_an_option_mean_the_same():
    words = ["--preset", "exp4", "--max-steps=7", "interleave=no", "--dry-run", "seed=1", "--no-resume"]
    values = read_words(COMMANDS["train"], words)
    assert values == {
        "preset": "exp4", "max_steps": 7, "interleave": False, "dry_run": True, "seed": 1, "resume": False
    }  # fmt: skip
    sweep = COMMANDS["sweep group-sizes"]
    for words in (["--sizes", "4", "8", "out=x"], ["sizes=4,8", "--out=x"], ["--sizes=4,8", "--out", "x"]):
        assert read_words(sweep, words) == {"sizes": (4, 8), "out": "x"}
    assert read_words(COMMANDS["compare"], ["a=runs/a", "b", "level=0.9"]) == {
        "predictions": ["a=runs/a", "b"], "level": 0.9
    }  # fmt: skip
    assert read_words(COMMANDS["report"], ["a", "--title", "seed=3", "b"]) == {
        "runs": [Path("a"), Path("b")], "title": "seed=3"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trian", "no command 'trian'. Did you mean train?"),
        ("sweep repo", "no command 'sweep repo'. Did you mean sweep repro?"),
        ("train --max-step 4", "no option --max-step. Did you mean --max-steps? See sciscirl train --help."),
        ("train max_stps=4", "no option --max-stps. Did you mean --max-steps?"),
        ("train --max-steps x", "--max-steps is 'x', needs a whole number from 1. See sciscirl train --help."),
        ("train dry_run=maybe", "--dry-run is 'maybe', needs True or False."),
        ("train stray", "no option takes 'stray'."),
        ("train --preset", "--preset needs a value."),
        ("train --preset --dry-run", "--preset needs a value."),
        ("evaluate --split tset", "--split is 'tset', needs one of train, test."),
        ("sft --backend x", "--backend is 'x', needs one of tinker, peft."),
        ("sft --backend tinker --quantize nf4", "--backend tinker has no option --quantize."),
        ("compare a b levl=0.9", "no option --levl. Did you mean --level?"),
        ("merge a", "--out is missing. See sciscirl merge --help."),
        ("select", "RUN is missing. See sciscirl select --help."),
        ("serve", "serve needs one of --tiny and --model."),
        ("completion fish", "completion needs one of bash, zsh, tcsh."),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_was_meant(words, said, capsys):
    with pytest.raises(UsageError):
        run(words.split())
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"error: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train preset=exp44", f"no preset 'exp44'. Did you mean exp4? Presets are {', '.join(PRESETS)}."),
        ("train --max-steps 0", "--max-steps is 0, needs a whole number from 1."),
        ("train --keep-days 9999", "--keep-days is 9999, needs a whole number from 1 to 3650."),
        ("evaluate --release a --run b --model c", "--run names the model. Leave it out, or leave out --model and "),
        ("sweep group-sizes --log-path x", "--log-path cannot be set: the sweep decides. Set --sizes, --rollouts-per"),
    ],
)
def test_a_refused_value_is_named_as_it_was_typed(words, said, capsys):
    assert main(words.split()) == 1
    assert capsys.readouterr().err.startswith(f"error: {said}")


def test_python_names_become_flags_and_paths_stay():
    options = list_options(COMMANDS["train"])
    for message, expected in (
        ("TrainOptions.max_steps is 0.", "--max-steps is 0."),
        ("Go on: resume=True collapse=warn.", "Go on: --resume --collapse warn."),
        ("Set eval_concurrently=False.", "Set --no-eval-concurrently."),
        ("choose model=Qwen/Qwen3-8B, or", "choose --model Qwen/Qwen3-8B, or"),
        ("runs/max_steps/x and 'max_steps' stay, as the model does", None),
    ):
        assert name_flags(message, options) == (expected or message)


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_shell_completes_commands_and_options(shell, capsys):
    pytest.importorskip("shtab")
    run(["completion", shell])
    script = capsys.readouterr().out
    assert all(word in script for word in ("group-sizes", "max-steps", "from-predictions"))


def test_every_script_is_a_command_and_helps_without_the_extras(tmp_path):
    program = (
        "import runpy, sys; sys.modules['chz'] = sys.modules['tinker'] = None; "
        "sys.argv = [sys.argv[1], '--help']; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    scripts = {path.stem for path in (REPOSITORY / "scripts").glob("*.py")}
    assert scripts == {*SCRIPTS, "build_slice", "install", "lock"}
    for name, command in SCRIPTS.items():
        script = REPOSITORY / "scripts" / f"{name}.py"
        assert ", ".join(f'"{word}"' for word in command.split()) in script.read_text("utf-8")
    script = REPOSITORY / "scripts" / "train_rl.py"
    done = subprocess.run([sys.executable, "-c", program, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--preset" in done.stdout


def test_a_package_that_is_not_installed_is_named_with_the_remedy(monkeypatch, capsys):
    def load():
        import no_such_package  # noqa: F401

    monkeypatch.setattr("sciscirl.cli.main.COMMANDS", {"presets": load})
    assert main(["presets"]) == 1
    assert capsys.readouterr().err.startswith("error: no_such_package is not installed. Install it: python3 scripts/")


def test_a_command_on_a_closed_home_is_refused_as_everywhere(monkeypatch):
    with pytest.raises(SciSciRLError, match="no such home"):
        run(["select", "~nobody-of-this-name/run"])
