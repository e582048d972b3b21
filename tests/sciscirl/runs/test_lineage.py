"""A run that starts from another: which weights it takes, what it refuses, and what it records."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from sciscirl.errors import SciSciRLError
from sciscirl.lab.report.runs import read_run
from sciscirl.lab.report.views import view_runs
from sciscirl.lab.training.rl import list_settings, make_config, make_run_builder
from sciscirl.options import TrainOptions, resolve_run
from sciscirl.presets import describe, find_preset
from sciscirl.runs.lineage import find_start, render_start, warn_of_other_release
from sciscirl.runs.logs import write_json
from sciscirl.runs.record import Course, begin_run
from tests.sciscirl.toy import make_slice

PRESET = find_preset("exp4")
#: As the cookbook's supervised loop leaves them: it counts batches from 0 again at the end of our one epoch.
CHECKPOINTS = [
    {"name": "000020", "batch": 20, "epoch": 0, "state_path": "tinker://m/weights/000020"},
    {
        "name": "final",
        "batch": 0,
        "epoch": 1,
        "state_path": "tinker://m/weights/final",
        "sampler_path": "tinker://m/s/f",
    },
]


@pytest.fixture
def supervised(tmp_path, toy_slice):
    folder = tmp_path / "sft-tinker-exp4"
    folder.mkdir()
    begin_run(folder, toy_slice, describe(PRESET) | {"backend": "tinker"}, behavior="raise")
    (folder / "metrics.jsonl").write_text(
        "".join(f"{json.dumps({'step': step, 'epoch': 0, 'num_tokens': 5, 'progress': 0.1})}\n" for step in range(40))
    )
    keep(folder, CHECKPOINTS)
    return folder


def keep(folder, checkpoints):
    (folder / "checkpoints.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in checkpoints), "utf-8")


def edit(folder, **settings):
    facts = json.loads((folder / "run.json").read_text("utf-8"))
    facts["settings"] |= settings
    write_json(folder / "run.json", facts)


def test_the_folder_of_a_run_is_its_last_state_with_step_and_hash(supervised, toy_slice, tmp_path, caplog):
    start = find_start(str(supervised), tmp_path / "rl", PRESET)
    assert start == {
        "path": "tinker://m/weights/final",
        "folder": "sft-tinker-exp4",
        "kind": "sft",
        "run_sha256": hashlib.sha256((supervised / "run.json").read_bytes()).hexdigest(),
        "step": 40,
        "manifest_sha256": hashlib.sha256((toy_slice / "manifest.json").read_bytes()).hexdigest(),
    }
    keep(supervised, CHECKPOINTS[:1])  # a run that was killed after its first checkpoint
    earlier = find_start(str(supervised), tmp_path / "rl", PRESET)
    assert (earlier["path"], earlier["step"]) == ("tinker://m/weights/000020", 20)
    assert not caplog.text
    edit(supervised, style="plain", contract="four_keys")
    find_start(str(supervised), tmp_path / "rl", PRESET)
    asked = "trained with style=plain contract=four_keys, and this run asks with style=checklist contract=two_keys."
    assert [asked in message for message in caplog.messages] == [True]


def settings_of(options):
    run = resolve_run(options)
    return list_settings(run, make_run_builder(run))


def test_training_starts_there_and_the_record_and_report_say_so(options, supervised, toy_slice, tmp_path):
    edit(supervised, model=options["model"])
    given = TrainOptions(**options, load_checkpoint=str(supervised))
    config = make_config(resolve_run(given))
    assert config.load_checkpoint_path == "tinker://m/weights/final"
    preset = replace(PRESET, model=options["model"])
    start = find_start(given.load_checkpoint, tmp_path / "run", preset)
    first, second = tmp_path / "rl", tmp_path / "rl-2"
    for folder in (first, second):
        folder.mkdir()
    begin_run(first, toy_slice, settings_of(given), behavior="raise", course=Course(begun_from=start))
    recorded = json.loads((first / "run.json").read_text("utf-8"))
    assert recorded["begun_from"] == start
    assert recorded["settings"]["load_checkpoint"] == "tinker://m/weights/final"
    # The folder may be gone by then: the path that it stood for resumes the run as well.
    again = TrainOptions(**options, load_checkpoint="tinker://m/weights/final")
    begin_run(first, toy_slice, settings_of(again), behavior="resume")
    other = TrainOptions(**options)
    with pytest.raises(
        SciSciRLError, match="was begun with load_checkpoint='tinker://m/weights/final', which is missing"
    ):
        begin_run(first, toy_slice, settings_of(other), behavior="resume")

    keep(first, [{"name": "000050", "batch": 50, "state_path": "tinker://n/weights/000050"}])
    next_start = find_start(str(first), second, preset)
    begin_run(second, toy_slice, recorded["settings"], behavior="raise", course=Course(begun_from=next_start))
    shown = [row for table in view_runs([read_run(first, "rl"), read_run(second, "rl-2")]).tables for row in table.rows]
    said = next(list(row[1:]) for row in shown if row[0] == "begun from")
    assert said == ["sft-tinker-exp4, step 40", "rl, step 50, itself from sft-tinker-exp4, step 40"]
    assert not any(row[0] == "load_checkpoint" for row in shown)


def test_a_path_of_weights_is_taken_as_it_is(tmp_path):
    path = "tinker://run:train:0/weights/000040"
    assert find_start(path, tmp_path, PRESET) == {"path": path}
    assert render_start({"path": path}) == path
    assert render_start(None) is None


def test_weights_that_can_only_be_sampled_from_are_refused_with_the_path_beside_them(tmp_path):
    with pytest.raises(SciSciRLError, match=r"only samples\. Give the state_path .* 'tinker://run/weights/000040'"):
        find_start("tinker://run/sampler_weights/000040", tmp_path, PRESET)


def test_the_adapter_of_a_peft_run_has_to_be_merged_and_served(supervised, tmp_path):
    edit(supervised, backend="peft")
    with pytest.raises(SciSciRLError, match=r"a run of PEFT.*sciscirl merge .* --out MERGED.*serve --model MERGED"):
        find_start(str(supervised), tmp_path / "rl", PRESET)


@pytest.mark.parametrize("rows", [[], [{"name": "000020", "batch": 20, "sampler_path": "tinker://m/s/000020"}]])
def test_a_run_without_a_state_says_what_to_do(supervised, tmp_path, rows):
    keep(supervised, rows)
    with pytest.raises(SciSciRLError, match=r"has no checkpoint to train on .* Wait for one, resume that run, or give"):
        find_start(str(supervised), tmp_path / "rl", PRESET)


def test_a_run_cannot_start_from_itself_or_from_a_damaged_one(supervised, tmp_path):
    with pytest.raises(SciSciRLError, match=r"the run itself\. Go on with it: behavior_if_log_dir_exists=resume"):
        find_start(str(supervised), supervised, PRESET)
    whole = json.loads((supervised / "run.json").read_text("utf-8"))
    for damaged in ([], *({**whole, "begun_from": start} for start in (-1, "x", [1], {"path": 7}))):
        write_json(supervised / "run.json", damaged)
        with pytest.raises(SciSciRLError, match=r"run\.json is damaged"):
            find_start(str(supervised), tmp_path / "rl", PRESET)


@pytest.mark.parametrize(("name", "value"), [("model", "Qwen/Other"), ("lora_rank", 7)])
def test_weights_of_another_model_or_rank_are_refused(supervised, tmp_path, name, value):
    edit(supervised, **{name: value})
    with pytest.raises(SciSciRLError, match=rf"^{name} is .*were trained with .* Set {name}={value}\."):
        find_start(str(supervised), tmp_path / "rl", PRESET)


def test_another_release_is_a_warning_because_its_papers_may_be_held_out_here(supervised, toy_slice, tmp_path, caplog):
    start = find_start(str(supervised), tmp_path / "rl", PRESET)
    warn_of_other_release(start["manifest_sha256"], toy_slice, "sft-tinker-exp4")
    warn_of_other_release(None, toy_slice, None)
    assert not caplog.records
    warn_of_other_release(start["manifest_sha256"], make_slice(tmp_path / "other", n_train=12), "sft-tinker-exp4")
    assert "sft-tinker-exp4 was trained on another release" in caplog.text
