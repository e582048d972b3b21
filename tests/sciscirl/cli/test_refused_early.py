"""What a run cannot do is said before it begins, by its dry run, too."""

from __future__ import annotations

import json
import re

import pytest

from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.answer_length import check_max_tokens
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.harnesses.export import ExportConfig, export_task
from sciscirl.lab.studies.sweep_options import SweepOptions
from sciscirl.options import SftOptions, TrainOptions
from sciscirl.presets import PRESETS, make_preset
from sciscirl.task.rules import find_shortest_answers
from tests.sciscirl.tinker_stub import serve_models

TRAINING = ("train", "train --backend local", "sft --backend tinker", "sft --backend peft")
TWO_KEYS = len('{"disruption_label":"neutral","confidence":1}') + 1  # a token of the toy is a letter; one more ends


@pytest.fixture
def run(options, capsys):
    def call(command: str, **more: object) -> tuple[int, str, str]:
        said = {**options, "batch_size": 4, "max_steps": 1, **more}
        status = main([*command.split(), *(f"{name}={value}" for name, value in said.items() if value is not None)])
        return status, *capsys.readouterr()

    return call


# --- max_tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dry_run", ["yes", "no"])
@pytest.mark.parametrize("command", TRAINING)
def test_training_refuses_a_limit_under_which_no_valid_answer_fits(run, options, tmp_path, command, dry_run):
    with serve_models([{"model_name": options["model"]}]) as url:
        server = {} if "local" in command or "peft" in command else {"base_url": url}
        status, _, err = run(command, max_tokens=5, dry_run=dry_run, **server)
        assert status == 1
        assert f"max_tokens is 5, needs at least {TWO_KEYS}: so many tokens has the shortest valid answer under" in err
        assert f"counted by the tokenizer of {options['model']}" in err
        if dry_run == "yes":
            assert run(command, max_tokens=TWO_KEYS - 1, dry_run="yes", **server)[0] == 1
            assert run(command, max_tokens=TWO_KEYS, dry_run="yes", **server)[0] == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["evaluate", "sweep repro"])
def test_judging_refuses_it_too(run, random_model, tmp_path, command):
    own = dict.fromkeys(("log_path", "eval_split", "batch_size", "max_steps", "model"))
    status, _, err = run(command, **own, max_tokens=5, local_model=random_model, out=tmp_path / "out")
    assert status == 1
    assert re.search(rf"is 5, needs at least [1-9]\d: .* counted by the tokenizer of {random_model}", err)
    assert not (tmp_path / "out" / "metrics.json").exists()


@pytest.mark.parametrize("dry_run", ["yes", "no"])
def test_a_sweep_refuses_it_too(run, tmp_path, dry_run):
    own = dict.fromkeys(("log_path", "eval_split"))
    status, _, err = run("sweep", **own, max_tokens=5, out=tmp_path / "out", dry_run=dry_run)
    assert status == 1
    assert "is 5, needs at least 11" in err
    assert not (tmp_path / "out").exists()


def test_label_probabilities_need_no_answer(run, options, tmp_path, primed_model):
    own = dict.fromkeys(("log_path", "eval_split", "batch_size", "max_steps", "model", "renderer"))
    words = {"local_model": primed_model, "answers": "logprobs", "out": tmp_path / "out", "n_papers": 3}
    assert run("evaluate", **own, **words)[0] == 0


def test_an_exported_task_refuses_it_without_a_tokenizer(options, tmp_path, monkeypatch):
    (tmp_path / "short.toml").write_text('base = "exp4"\nmax_tokens = 5\n', "utf-8")
    config = ExportConfig(release=options["release"], preset=str(tmp_path / "short.toml"), out=tmp_path / "task")
    with pytest.raises(SciSciRLError, match="max_tokens is 5, needs at least 11"):
        export_task(config)
    assert not (tmp_path / "task").exists()


@pytest.mark.parametrize("name", PRESETS)
def test_the_shortest_answers_are_valid_and_fit_under_the_limit_of_each_preset(name):
    rules = PRESETS[name].rules
    assert all(rules.parse(answer).is_valid for answer in find_shortest_answers(rules))
    check_max_tokens(PRESETS[name].max_tokens, rules)


# --- a folder that holds a run ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", TRAINING)
def test_a_dry_run_into_a_folder_with_a_run_says_what_the_run_would_say(run, options, tmp_path, command):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("{}\n", "utf-8")
    status, _, err = run(command, dry_run="yes")
    assert (status, "holds a run of something else" in err) == (1, True)
    (folder / "run.json").write_text(json.dumps({"settings": {"seed": 5}, "release": {}}), "utf-8")
    status, _, err = run(command, dry_run="yes")
    assert (status, f"{folder} holds a run. Go on with it: --behavior-if-log-dir-exists resume" in err) == (1, True)
    status, _, err = run(command, dry_run="yes", behavior_if_log_dir_exists="resume")
    assert (status, "was begun with" in err or "was begun without" in err) == (1, True)
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.jsonl", "run.json"]
    status, _, err = run(command, dry_run="yes", log_path=options["release"])
    assert (status, "is a release, which nothing is added to" in err) == (1, True)


def test_a_dry_run_of_a_sweep_into_another_sweep_says_so(options, tmp_path, capsys):
    (tmp_path / "sweep").mkdir()
    told = {"settings": {"preset": "exp5"}}
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(told), "utf-8")
    words = ["preset=exp4", f"release={options['release']}", f"out={tmp_path / 'sweep'}", "dry_run=yes"]
    assert main(["sweep", *words]) == 1
    assert "was begun" in capsys.readouterr().err


# --- numbers and names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        *((kind, "temperature", value) for kind in (TrainOptions, SweepOptions) for value in (50, 2.1, 0)),
        *((kind, "eval_temperature", value) for kind in (TrainOptions, SftOptions, SweepOptions) for value in (50, -1)),
        *((kind, "learning_rate", value) for kind in (TrainOptions, SftOptions, SweepOptions) for value in (0, -1, 2)),
        (SweepOptions, "sft_learning_rate", 50),
        (lambda **given: EvaluationConfig(release="slice", **given), "temperature", 50),
        (lambda **given: make_preset("mine", **given), "temperature", 50),
        (lambda **given: make_preset("mine", **given), "eval_temperature", 50),
        (lambda **given: make_preset("mine", **given), "learning_rate", 50),
    ],
)
def test_numbers_that_no_run_can_use_are_refused(make, name, value):
    with pytest.raises(SciSciRLError, match=rf"{name} is {re.escape(str(value))}.*, needs a number"):
        make(**{name: value})


@pytest.mark.parametrize("command", TRAINING)
@pytest.mark.parametrize(
    ("typed", "meant"),
    [("lr=1e-5", "--learning-rate"), ("bs=4", "--batch-size"), ("lora=4", "--lora-"), ("--n-trian=4", "--n-train")],
)
def test_an_abbreviation_is_read_by_its_initials_or_its_beginning(command, typed, meant, capsys):
    with pytest.raises(SystemExit):
        main([*command.split(), typed])
    assert f"Did you mean {meant}" in capsys.readouterr().err
