"""The lines that a run shows while it trains, and at its end."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from contextvars import ContextVar

import pytest
from tinker_cookbook.utils import ml_log

from sciscirl.cli.commands import show_run
from sciscirl.errors import SciSciRLError
from sciscirl.lab.training import console
from sciscirl.lab.training.console import follow_run
from sciscirl.lab.training.step_watch import list_alarms
from sciscirl.options import TinkerSftOptions, resolve_run
from sciscirl.presets import find_preset
from sciscirl.runs import trackers
from tests.sciscirl.made_runs import make_predictions, make_run

MODEL = "Qwen/Qwen3-8B"
STEP = {
    "env/all/reward/total": 0.41, "env/all/format_strict_ok": 0.98, "env/all/label_match": 0.4,
    "env/all/reward_tie_group_rate": 0.75, "env/all/reward_uniform_group_rate": 0.25,
    "env/all/total_ob_tokens": 1_000_000, "env/all/total_ac_tokens": 0,
    "time/total": 2.5, "progress/done_frac": 0.5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(console, "_POLL_SECONDS", 0.02)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in before:
            handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def write(folder, *rows, mode="a"):
    with (folder / "metrics.jsonl").open(mode, encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def test_each_step_is_one_line_with_the_dollars_so_far(tmp_path, capsys):
    with follow_run(tmp_path, MODEL):
        write(tmp_path, {"step": 0, "test/label_match": 0.3, "test/macro_f1": 0.2, "test/format_strict_ok": 1.0} | STEP)
        write(tmp_path, {"step": 1, **STEP, "progress/done_frac": 1.0})
        with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"step": 2, "env/all/rew')  # half a line is no line yet
    assert capsys.readouterr().err.splitlines() == [
        "evaluated before step 0: match 0.300, macro-F1 0.200, valid 100%",
        "step 0 of 2: reward 0.410, valid 98%, match 0.400, ties 75%, all equal 25%, 2.5 s, $0.64 so far",
        "step 1 of 2: reward 0.410, valid 98%, match 0.400, ties 75%, all equal 25%, 2.5 s, $1.27 so far",
    ]


def test_a_resumed_run_counts_what_it_has_cost_and_shows_no_step_twice(tmp_path, capsys):
    write(tmp_path, {"step": 0, **STEP})
    rollouts = tmp_path / "iteration_000001" / "eval_test_rollout_summaries.jsonl"
    rollouts.parent.mkdir()
    rollouts.write_text(json.dumps({"steps": [{"ob_len": 1_000_000, "ac_len": 0}]}) + "\n", "utf-8")
    with follow_run(tmp_path, MODEL):
        write(tmp_path, {"step": 1, "test/label_match": 0.3}, {"step": 1, **STEP})
    judged, taken = capsys.readouterr().err.splitlines()
    assert judged == "evaluated before step 1: match 0.300"
    assert taken.endswith(f"${(2 * (0.195 + 0.44) + 0.195):.2f} so far")


def test_a_silent_run_says_that_it_lives(tmp_path, capsys, monkeypatch):
    assert console.SILENCE_SECONDS <= 30
    monkeypatch.setattr(console, "SILENCE_SECONDS", 0.1)
    said = ""

    def wait_for(text: str) -> None:
        nonlocal said
        end = time.monotonic() + 60
        while text not in said and time.monotonic() < end:
            time.sleep(0.01)
            said += capsys.readouterr().err

    with follow_run(tmp_path, MODEL):
        wait_for("before the first step has ended")
        write(tmp_path, {"step": 3, **STEP})
        wait_for("after step 3\n")
    assert re.match(r"running for \d+ s, before the first step has ended", said)
    assert any(line.endswith("after step 3") for line in said.splitlines())


def test_what_the_cookbook_logs_is_in_the_file_and_not_on_the_console(tmp_path, capsys):
    own = ml_log.configure_logging_module
    with follow_run(tmp_path, MODEL):
        logger = ml_log.setup_logging(log_dir=str(tmp_path), config={"a": 1})
        logger.log_metrics(STEP, step=0)
        logging.getLogger("tinker_cookbook").warning("careful")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert sorted(shown.err.splitlines()) == [
        "WARNING: careful",
        "step 0 of 2: reward 0.410, valid 98%, match 0.400, ties 75%, all equal 25%, 2.5 s, $0.64 so far",
    ]
    kept = (tmp_path / "logs.log").read_text("utf-8")
    assert all(said in kept for said in ("careful", "env/all/reward/total", "step 0 of 2: reward 0.410"))
    assert ml_log.configure_logging_module is own
    assert not logging.getLogger(console.__name__).handlers


def test_the_last_line_has_the_metrics_and_the_next_command(tmp_path, capsys):
    table = make_predictions(find_preset("exp4"), 60, skill=0.8, broken=0.0)
    folder = make_run(tmp_path / "my run", evaluations={0: table, 4: table})
    show_run(folder, "slices/small")
    first, last = capsys.readouterr().out.splitlines()
    assert first == f"run: {folder}"
    assert last.startswith("step 4, 60 answers: label_match 0.")
    assert last.endswith(f"; next: sciscirl report '{folder}' --release slices/small --out 'my run.html'")
    lost = make_predictions(find_preset("exp4"), 12, broken=1.0, skill=0.0).with_columns(is_json=False)
    folder = make_run(tmp_path / "lost", evaluations={4: lost.filter(~lost["is_valid"])})
    show_run(folder, "slices/small")
    assert "answers were JSON; does the model know the contract two_keys?" in capsys.readouterr().out
    show_run(make_run(tmp_path / "none", evaluations={}), "slices/small")
    assert "not evaluated; next: sciscirl report" in capsys.readouterr().out


@pytest.mark.parametrize(("split", "words"), [("dev", " --final"), ("held_out", " --final"), ("test", "")])
def test_test_judges_next_where_it_has_not_chosen(tmp_path, capsys, split, words):
    folder = make_run(tmp_path / "run", evaluations={}, settings={"eval_split": split})
    show_run(folder, "slices/small")
    assert capsys.readouterr().out.endswith(f" --out run.html{words}\n")


SIGNS = {
    "KL": {"optim/kl_sample_train_v1": -0.5, "optim/kl_sample_train_v2": 0.02},
    "gradient": {"skyrl.ai/grad_norm": 40.0},
    "NaN": {"optim/loss": math.nan},
    "floor": {"env/all/at_floor": 0.95},
}


def test_what_is_wrong_in_a_step_is_warned_of_once_for_as_long_as_it_lasts(tmp_path, caplog):
    healthy = {"optim/kl_sample_train_v2": 0.001, "skyrl.ai/grad_norm": 3.0, "optim/loss": 0.1, "env/all/at_floor": 0.2}
    rows = [{"step": step, **STEP, **healthy} for step in range(6)]
    broken = [rows[0] | {"step": step} | {name: value for sign in SIGNS.values() for name, value in sign.items()}
              for step in (6, 7)]  # fmt: skip
    with follow_run(tmp_path, MODEL):
        write(tmp_path, *rows)
        write(tmp_path, *broken)
    said = sorted(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert said == [
        "step 6: 95 % of the answers earn the least reward: little is learned from them",
        "step 6: KL(sampler, trainer) 0.02 > 0.01: sampled and trained probabilities differ",
        "step 6: gradient norm 40 is more than 10 times the usual 3",
        "step 6: optim/loss is nan",
    ]
    assert list_alarms(rows) == ()
    assert {*list_alarms([*rows, *broken])} == {f"{one.partition(': ')[2]} (step 6, and 1 more)" for one in said}


def test_every_row_goes_to_the_trackers_that_are_installed_and_one_that_fails_ends_nothing(
    tmp_path, monkeypatch, caplog
):
    """As trackio does: it knows its run only in the context in which the run was begun."""
    sent, begun = [], ContextVar("begun", default=None)

    class Tracker:
        def __init__(self, project, config, log_dir, name):
            begun.set((project, config["reward"], name))

        def log_metrics(self, metrics, step):
            if step == 3:
                raise OSError("gone")
            sent.append((begun.get(), step, metrics))

        def close(self):
            sent.append("closed")

    monkeypatch.setattr(trackers, "_list_installed", lambda: ["TrackioLogger"])
    monkeypatch.setattr(ml_log, "TrackioLogger", Tracker)
    for steps, ends in (((1, 2), ["closed"]), ((3, 4), [])):
        sent.clear()
        folder = make_run(tmp_path / str(steps) / "seed_0", evaluations={}, n_steps=1)
        with follow_run(folder, MODEL, "mine"):
            write(folder, *({"step": step, **STEP} for step in steps))
        run = ("mine", "strong", f"{steps}/seed_0")
        assert sent == [*((run, step, STEP) for step in steps if ends), *ends]
    assert "Tracker fails (gone); metrics.jsonl goes on." in caplog.text
    monkeypatch.setattr(trackers, "_list_installed", lambda: [])
    with pytest.raises(SciSciRLError, match="neither trackio nor wandb is installed"):
        resolve_run(TinkerSftOptions(wandb_project="mine"))
