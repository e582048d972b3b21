"""A folder that holds a run: what behavior_if_log_dir_exists makes of it, and runs of before."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager

import pytest

from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.sweep_folder import check_sweep
from sciscirl.options import TrainOptions
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.logs import write_json
from sciscirl.runs.record import begin_run, plan_run

SETTINGS = {"seed": 0, "kl_reference_config": None, "stream_minibatch_config": None}


@pytest.fixture
def folder(tmp_path, toy_slice):
    """The folder of a run that has a checkpoint, judged at step 4."""
    folder = tmp_path / "run"
    (folder / "predictions").mkdir(parents=True)
    (folder / "iteration_000003").mkdir()
    with locked_folder(folder):
        begin_run(folder, toy_slice, SETTINGS, "resume")  # a folder without a run begins one
    checkpoint = {"name": "000004", "batch": 4, "state_path": "tinker://x/weights/000004"}
    (folder / "checkpoints.jsonl").write_text(json.dumps(checkpoint) + "\n", "utf-8")
    for name in ("predictions/test_000004.parquet", "iteration_000003/train.html", "metrics.jsonl"):
        (folder / name).write_text("", "utf-8")
    return folder


def list_files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_run_is_deleted_and_begun_anew_but_for_its_lock(folder, toy_slice, caplog):
    for name in ("wandb", ".adapter.tmp-0123456789abcdef"):  # of a tracker, and of a write that was killed
        (folder / name).mkdir()
    with locked_folder(folder):
        assert begin_run(folder, toy_slice, {"seed": 1}, "delete") == 0
    assert list_files(folder) == [".lock", "SHA256SUMS", "run.json"]
    assert json.loads((folder / "run.json").read_text("utf-8"))["settings"] == {"seed": 1}
    assert f"the run that was in {folder} is deleted" in caplog.text


def test_nothing_is_deleted_that_training_did_not_write(folder, toy_slice):
    for name in ("notes.txt", "another_run", "final"):
        (folder / name).mkdir()
        before = list_files(folder)
        with pytest.raises(SciSciRLError, match=rf"holds {name}, which no training wrote, so that nothing is deleted"):
            begin_run(folder, toy_slice, SETTINGS, "delete")
        assert list_files(folder) == before
        (folder / name).rmdir()
    (folder / "run.json").unlink()
    with pytest.raises(SciSciRLError, match="holds a run of something else"):
        begin_run(folder, toy_slice, SETTINGS, "delete")


def test_a_mistake_in_another_option_deletes_nothing(folder, toy_slice, options, capsys):
    before = list_files(folder)
    words = [f"{name}={value}" for name, value in (options | {"log_path": str(folder)}).items()]
    for wrong, said in (("group_size=1", "group_size is 1"), ("base_url=http://127.0.0.1:9", "no Tinker server")):
        assert main(["train", *words, wrong, "behavior_if_log_dir_exists=delete"]) == 1
        assert said in capsys.readouterr().err
    assert plan_run(folder, toy_slice, SETTINGS, "delete")["settings"] == SETTINGS  # as a dry run does
    with locked_folder(folder), pytest.raises(SciSciRLError, match="in use by another run"), locked_folder(folder):
        pass  # training locks the folder before it looks
    assert list_files(folder) == before


@contextmanager
def terminal(monkeypatch, typed: str):
    if not hasattr(os, "openpty"):
        pytest.skip("this system has no terminals to open")
    ours, theirs = os.openpty()
    with os.fdopen(theirs) as stdin, os.fdopen(ours, "w") as keyboard:
        keyboard.write(typed)
        keyboard.flush()
        monkeypatch.setattr(sys, "stdin", stdin)
        yield


def test_a_terminal_is_asked_until_it_answers(folder, toy_slice, monkeypatch, capsys):
    with terminal(monkeypatch, "what\nresume\n"):
        assert begin_run(folder, toy_slice, SETTINGS, "ask") == 4
    assert capsys.readouterr().out.count("What do you want to do? [delete, resume, exit]") == 2
    for typed in ("exit\n", "\x04"):  # Ctrl-D
        with terminal(monkeypatch, typed), pytest.raises(SystemExit) as left:
            begin_run(folder, toy_slice, SETTINGS, "ask")
        assert left.value.code == 0
    with terminal(monkeypatch, "delete\n"):
        assert begin_run(folder, toy_slice, {"seed": 2}, "ask") == 0


def test_what_is_no_terminal_is_not_asked(folder, toy_slice, monkeypatch, tmp_path):
    (tmp_path / "empty").write_text("")
    with (tmp_path / "empty").open() as file:
        for stdin in (file, None):
            monkeypatch.setattr(sys, "stdin", stdin)
            with pytest.raises(
                SciSciRLError, match=r"behavior_if_log_dir_exists=ask needs a terminal.*=resume or delete"
            ):
                begin_run(folder, toy_slice, SETTINGS, "ask")


def test_a_run_of_before_goes_on_under_the_names_of_today(folder, toy_slice, tmp_path):
    def begin_before(**settings):
        facts = json.loads((folder / "run.json").read_text("utf-8"))
        write_json(folder / "run.json", {**facts, "settings": {"seed": 0, **settings}})

    path = "tinker://a/sampler_weights/b"
    begin_before(kl_reference="base", num_minibatches=None, kl_discount=0.5)
    assert begin_run(folder, toy_slice, SETTINGS | {"kl_discount_factor": 0.5}, "resume") == 4
    begin_before(kl_reference=path, num_minibatches=2)
    now = {"kl_reference_config": {"load_checkpoint_path": path}, "stream_minibatch_config": {"num_minibatches": 2}}
    assert begin_run(folder, toy_slice, SETTINGS | now, "resume") == 4
    with pytest.raises(SciSciRLError, match=r"was begun with kl_reference_config=.*, which is missing now"):
        begin_run(folder, toy_slice, SETTINGS, "resume")
    (tmp_path / "sweep.json").write_text(json.dumps({"settings": {"seed": 0, "num_minibatches": 2}}), "utf-8")
    with pytest.raises(SciSciRLError, match=r"was begun with stream_minibatch_config=.*, which is missing now"):
        check_sweep(tmp_path, SETTINGS)
    now = {"stream_minibatch_config": ["num_minibatches:2"], "evaluators": []}
    check_sweep(tmp_path, SETTINGS | now)


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ({"resume": True}, 'To go on with a run, give behavior_if_log_dir_exists="resume"'),
        ({"resume": False}, 'To go on with a run, give behavior_if_log_dir_exists="resume"'),
        ({"keep_days": 90}, "Give ttl_seconds=...: 86400 for each day."),
        ({"kl_discount": 0.5}, "Did you mean kl_discount_factor=...?"),
        ({"num_minibatches": 2}, 'Give stream_minibatch_config="num_minibatches:4".'),
        ({"kl_reference": "base"}, 'Give kl_reference_config="load_checkpoint_path:tinker://...", or nothing for the'),
    ],
)
def test_a_former_name_answers_by_that_of_today_in_python_too(former, now):
    with pytest.raises(SciSciRLError) as told:
        TrainOptions(**former)
    assert str(told.value).startswith(f"TrainOptions has no option {next(iter(former))!r}. {now}")
