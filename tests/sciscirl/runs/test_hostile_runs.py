"""Folders of runs that somebody else made: names that lead elsewhere, links, and JSON that is none of ours."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sciscidata.errors import SciSciDataError, UnsafeNameError
from sciscidata.storage import small_files
from sciscirl.envs import model_folder
from sciscirl.envs.model_folder import find_broken
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.report.comparison import _columns
from sciscirl.lab.report.figures import Series, plot_lines
from sciscirl.lab.report.judged_files import _find_facts
from sciscirl.lab.report.report import ReportConfig, write_report
from sciscirl.lab.report.runs import read_run
from sciscirl.lab.sft.checkpoints import find_damage, recover_checkpoint
from sciscirl.lab.sweep_folder import begin_sweep
from sciscirl.presets import find_preset
from sciscirl.runs import logs as run_logs
from sciscirl.runs.checkpoints import find_checkpoint, is_judged, list_weights, read_checkpoints
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.logs import keep_rows, read_rows
from sciscirl.runs.record import begin_run
from tests.sciscirl.made_runs import make_predictions, make_run

DEEP = "[" * 100_000
ODD = (["a"], {"a": 1}, True, 1.5, float("nan"), 10**400, "")
ELSEWHERE = ("../../outside", "/etc", "checkpoints/../../outside", "a\x1b[2J", "", ".", "C:\\x")


@pytest.fixture(scope="module")
def judged():
    return make_predictions(find_preset("exp4"), 9)


@pytest.fixture
def run(tmp_path, judged):
    return make_run(tmp_path / "runs" / "run", evaluations={0: judged})


def spoil(run: Path, where: str | None, key: str, value: object) -> None:
    facts = json.loads((run / "run.json").read_text("utf-8"))
    (facts if where is None else facts[where])[key] = value
    (run / "run.json").write_text(json.dumps(facts), "utf-8")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_checkpoint_that_lies_outside_the_run_is_refused_and_nothing_is_touched(run, name, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "adapter_config.json").write_text("{}")
    (run / "checkpoints.jsonl").write_text(json.dumps({"name": "000001", "batch": 1, "state_path": name}) + "\n")
    for read in (list_weights, recover_checkpoint):
        with pytest.raises(UnsafeNameError, match=r"checkpoints\.jsonl names"):
            read(run)
    assert [path.name for path in outside.iterdir()] == ["adapter_config.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_a_checkpoint_behind_a_link_out_of_the_run_is_refused(run, tmp_path):
    (tmp_path / "outside").mkdir()
    (run / "checkpoints").symlink_to(tmp_path / "outside")
    record = {"name": "000001", "batch": 1, "state_path": "checkpoints/checkpoint-1"}
    (run / "checkpoints.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(UnsafeNameError, match="a link leads out of"):
        list_weights(run)


def test_the_files_of_a_checkpoint_lie_in_its_folder(tmp_path):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(UnsafeNameError, match=r"names '\.\./secret'"):
        find_damage(tmp_path / "checkpoint", {"../secret": "00"})
    assert find_damage(tmp_path / "checkpoint", ["secret"]) == "the SHA-256 of its files are not readable"


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "adapter", "checkpoints/checkpoint-1", "predictions"])
def test_nothing_is_written_through_a_link_out_of_a_folder(name, tmp_path):
    (tmp_path / "outside").mkdir()
    folder = tmp_path / "run"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(tmp_path / "outside" / "gone")
    with pytest.raises(SciSciRLError, match="is a link that leads out of"), locked_folder(folder):
        pass
    (folder / name).unlink()
    (folder / name).symlink_to(folder)  # one that stays inside
    with locked_folder(folder):
        pass
    assert not list((tmp_path / "outside").iterdir())


def _refusal(read: Callable[[], object]) -> str:
    try:
        read()
    except SciSciDataError as error:
        return str(error)
    return ""


def test_settings_of_another_kind_are_one_line_and_no_traceback(run, judged, tmp_path):
    with_facts = json.loads((run / "run.json").read_text("utf-8"))
    whole = (run / "run.json").read_text("utf-8")
    evaluate = EvaluationConfig(release=tmp_path, out=tmp_path / "out", run=run)
    n_refused = 0
    for where in (None, "settings"):
        for place, key in enumerate(with_facts if where is None else with_facts[where]):
            for value in (ODD * 2)[place % len(ODD) :][:3]:
                spoil(run, where, key, value)
                for read in (lambda: read_run(run, "run").labels, lambda: find_subject(evaluate)):
                    said = _refusal(read)
                    assert "\n" not in said
                    n_refused += said != ""
                (run / "run.json").write_text(whole, "utf-8")
    assert n_refused > 20
    spoil(run, "settings", "name", ["exp4"])
    with pytest.raises(RunFolderError, match=r"is damaged: Expected `str.*settings\.name"):
        write_report(ReportConfig(runs=(run,), out=tmp_path / "r.html"))


@pytest.mark.parametrize("text", [DEEP, DEEP + "]" * 100_000, '{"a":' * 100_000, '"\\ud800"', "5", "[1]", "NaN"])
def test_deep_nesting_and_other_json_is_left_out_or_one_line(run, text, tmp_path):
    n_rows = len(read_rows(run / "metrics.jsonl"))
    for name in ("metrics.jsonl", "checkpoints.jsonl"):
        with (run / name).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    assert len(read_rows(run / "metrics.jsonl")) == n_rows
    assert read_run(run, "run").n_steps == 4
    assert find_checkpoint(run, "sampler_path").name == "final"
    (run / "run.json").write_text(text, "utf-8")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"run\.json"):
        read_run(run, "run")
    with pytest.raises(SciSciRLError, match=r"does not describe a training run|run\.json is damaged"):
        find_subject(EvaluationConfig(release=tmp_path, out=tmp_path / "out", run=run))
    with pytest.raises(SciSciRLError, match="is damaged"):
        begin_run(run, tmp_path, {}, behavior="resume")


@pytest.mark.parametrize("name", ["$\\frac$", "{0}{}", "[bold]", "%s", "{{ x }}", "_hidden", "a\nb", "\x1b]52;c;x\x07"])
def test_a_run_may_have_any_name_in_pictures_and_tables(name):
    line = Series(steps=[0, 1], values=[0.5, 1.0])
    assert plot_lines({name: line, "b": line}, title=name)[1:4] == b"PNG"
    assert len(_columns([["", "label_match"], [name, "0.5"]])) == 2
    assert "\x1b" not in "".join(_columns([[name]]))


def put(path: Path, kind: str) -> None:
    """Replace a file by what has no end, or no end that one would wait for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)  # a hole, which takes no room


def told(read: Callable[[], object]) -> str:
    """Give the reason why nothing is read, as the system gives it."""
    with pytest.raises(OSError, match=r"pipe or a device|more than") as caught:
        read()
    return str(caught.value.strerror)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with a name there")
@pytest.mark.parametrize("kind", ["pipe", "zero", "hole"])
def test_what_is_no_file_or_has_no_end_is_not_read(run, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(run_logs, "LOG_BYTES", 1 << 20)
    for module in (small_files.read_whole, small_files.read_json):
        monkeypatch.setattr(module, "__defaults__", (1 << 20,))
    summaries = "iteration_000000/eval_test_rollout_summaries.jsonl"
    for name in ("metrics.jsonl", "checkpoints.jsonl", summaries):
        put(run / name, kind)
    found = read_run(run, "run")
    assert [problem.split(": it ")[0] for problem in found.problems] == ["metrics.jsonl", summaries]
    assert not found.is_finished
    for read in (
        lambda: read_checkpoints(run),
        lambda: is_judged(run, 1),
        lambda: keep_rows(run / "checkpoints.jsonl", bool),
        lambda: keep_rows(run / "metrics.jsonl", bool),
    ):
        assert told(read)
    put(run / "run.json", kind)
    assert _find_facts(run / "predictions.parquet") == {}
    evaluate = EvaluationConfig(release=tmp_path, out=tmp_path / "out", run=run)
    for read in (lambda: read_run(run, "run"), lambda: find_subject(evaluate)):
        with pytest.raises(SciSciRLError):
            read()
    put(run / "sweep.json", kind)
    with pytest.raises(SciSciRLError, match="is not the folder of a sweep"):
        begin_sweep(run, {"settings": {}})


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with a name there")
def test_pipes_in_models_adapters_and_checkpoints_are_named(tmp_path):
    put(tmp_path / "model.safetensors", "pipe")
    (tmp_path / "config.json").write_text("{}")
    assert find_broken(tmp_path) == "model.safetensors"
    assert find_damage(tmp_path, {"model.safetensors": "00"}) == "model.safetensors is a pipe or a device"
    assert told(lambda: model_folder.read_facts(tmp_path / "model.safetensors"))
