"""A Python file that registers presets, rewards and prompts before a command looks them up."""

from __future__ import annotations

import hashlib
import json

import pytest

from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.options import TrainOptions, resolve_preset
from sciscirl.runs.record import describe_run

MINE = """\
import sciscirl

sciscirl.register_reward("milder", base="strong", wrong=-0.25)
sciscirl.register_preset("from_plugin", base="exp4", reward="milder")
"""


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE, "utf-8")
    return file


def test_a_preset_of_a_plugin_is_found_and_its_file_is_on_record(plugin, toy_slice, capsys):
    assert "plugins" not in describe_run(toy_slice, {})
    assert main(["presets", f"plugin={plugin}"]) == 0
    assert "from_plugin" in capsys.readouterr().out
    options = TrainOptions(plugin=str(plugin), preset="from_plugin")  # a second time: it is not run again
    assert resolve_preset(options).rules.table.wrong == -0.25
    sha256 = hashlib.sha256(plugin.read_bytes()).hexdigest()
    assert describe_run(toy_slice, {})["plugins"] == [{"name": "mine.py", "sha256": sha256}]


def test_every_command_that_takes_a_preset_takes_a_plugin(plugin, toy_slice, toy_model, tmp_path, capsys):
    common = [f"plugin={plugin}", "preset=from_plugin", f"release={toy_slice}", f"model={toy_model}", "batch_size=4"]
    common += ["renderer=qwen3_instruct", "eval_split=test", f"log_path={tmp_path / 'run'}", "--dry-run"]
    assert main(["train", *common, "max_steps=1"]) == 0
    settings = json.loads(capsys.readouterr().out.partition("\n--- settings ---")[2])
    assert settings["dataset_builder"]["task"]["reward"] == "milder"
    assert main(["sft", "--backend", "tinker", *common]) == 0
    assert EvaluationConfig(release=toy_slice, plugin=str(plugin), preset="from_plugin").preset == "from_plugin"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import sciscirl\n\nsciscirl.register_preset('x', bsae='exp4')",
            r"in line 3 \(SciSciRLError: a preset has no",
        ),
        ("x = 1\nx =", r"in line 2 \(SyntaxError"),
        ("raise SystemExit(3)", r"in line 1 \(SystemExit: 3\)"),
        ("def fail():\n    nope\n\n\nfail()", r"in line 2 \(NameError"),
    ],
)
def test_a_plugin_that_fails_is_one_line_with_its_place(tmp_path, text, said):
    file = tmp_path / "broken.py"
    file.write_text(text, "utf-8")
    with pytest.raises(SciSciRLError, match=rf"broken\.py failed {said}.*Mend the file, or leave plugin out"):
        TrainOptions(plugin=str(file))


def test_a_plugin_that_is_not_there_is_an_error_of_the_command(tmp_path, capsys):
    assert main(["presets", "--plugin", str(tmp_path / "none.py")]) == 1
    assert "none.py cannot be read: No such file or directory. Check the path." in capsys.readouterr().err
