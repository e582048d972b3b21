from __future__ import annotations

import asyncio
import json

import polars as pl
import pytest

from sciscirl.errors import CollapseError, SciSciRLError
from sciscirl.options import GroupSizeOptions, TrainOptions
from sciscirl.runs.folder import read_judgement
from sciscirl.studies import group_sizes
from sciscirl.studies.group_sizes import plan_runs, plot_group_sizes, read_steps, run_group_sizes, summarize

TIES = {
    "reward_tie_group_rate": 0.5, "reward_uniform_group_rate": 0.25, "reward_tie_pair_rate": 0.4,
    "reward_unique_fraction_mean": 0.75,
}  # fmt: skip


def step_row(step, *, reward=0.1, right=0.3, total=12.0, evaluation=0.0, sampling=4.0, n=8):
    row = {f"env/all/{name}": value for name, value in TIES.items()}
    row |= {"env/all/reward/total": reward, "env/all/label_match": right, "env/all/total_episodes": n}
    row |= {"step": step, "time/total": total, "time/sampling": sampling}
    return row | ({"time/run_evaluations_parallel": evaluation} if evaluation else {})


def write_run(folder, *rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def test_every_size_has_the_same_rollouts_and_all_other_options_are_shared():
    runs = plan_runs(GroupSizeOptions(preset="exp4", learning_rate=3e-4, sizes=(4, 8, 16), rollouts_per_step=64))
    assert {(run.group_size * run.batch_size) for run in runs.values()} == {64}
    assert {(type(run), run.preset, run.learning_rate, run.resume) for run in runs.values()} == {
        (TrainOptions, "exp4", 3e-4, True)
    }
    assert len({run.log_path for run in runs.values()}) == 3


@pytest.mark.parametrize(
    "wrong",
    [{"sizes": (1, 4)}, {"sizes": ()}, {"sizes": (4, 4)}, {"sizes": (3,), "rollouts_per_step": 8}, {"group_size": 4},
     {"log_path": "runs/x"}, {"batch_size": 8}, {"resume": True}],
)  # fmt: skip
def test_what_the_sweep_cannot_do_is_refused_before_anything_runs(wrong):
    with pytest.raises(SciSciRLError, match=r"sizes="):
        plan_runs(GroupSizeOptions(**wrong))


def test_the_time_of_evaluations_is_not_that_of_training(tmp_path):
    test = {"step": 2, "test/label_match": 0.4, "test/macro_f1": 0.35}
    write_run(tmp_path, step_row(0, total=12.0, evaluation=8.0), step_row(1, total=4.0, sampling=2.0), test)
    steps = read_steps(tmp_path, 4)
    assert steps["step"].to_list() == [0, 1]
    assert steps["rollouts_per_second"].to_list() == [2.0, 2.0]
    assert steps["sampled_per_second"].to_list() == [2.0, 4.0]
    assert steps.select(list(TIES)).row(0) == tuple(TIES.values())
    (row,) = summarize(steps, {4: read_judgement(test)}).to_dicts()
    assert (row["papers_per_step"], row["steps"], row["eval_label_match"], row["eval_macro_f1"]) == (2, 2, 0.4, 0.35)


def test_the_line_that_a_killed_run_was_writing_is_no_step(tmp_path):
    write_run(tmp_path, step_row(0))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(step_row(1))[:40])
    assert read_steps(tmp_path, 4)["step"].to_list() == [0]


def test_an_early_step_counts_for_the_means_and_not_for_the_speed():
    rows = [{"group_size": 4, "step": n, "rollouts": 8, "mean_reward": float(n), "rollouts_per_second": speed}
            for n, speed in enumerate((0.1, 5.0, 5.0))]  # fmt: skip
    steps = pl.DataFrame(rows, schema=group_sizes.STEPS)
    (row,) = summarize(steps, {4: {}}).to_dicts()
    assert (row["mean_reward"], row["rollouts_per_second"], row["eval_macro_f1"]) == (1.0, 5.0, None)
    assert row["reward_tie_group_rate"] is None  # not logged is not 0


def test_a_sweep_goes_on_where_it_stopped_and_trains_nothing_twice(tmp_path, monkeypatch):
    trained = []

    async def train(options):
        trained.append(options.group_size)
        final = {"step": options.max_steps, "test/label_match": 0.5, "test/macro_f1": 0.4}
        write_run(tmp_path / f"group_{options.group_size:03d}", step_row(0), final)

    monkeypatch.setattr(group_sizes, "train_preset", train)
    options = GroupSizeOptions(sizes=(2, 4), rollouts_per_step=8, max_steps=1, out=str(tmp_path))
    write_run(tmp_path / "group_002", step_row(0), {"step": 0, "test/label_match": 0.5})  # stopped before its end
    table = asyncio.run(run_group_sizes(options))
    assert trained == [2, 4]
    assert asyncio.run(run_group_sizes(options)).equals(table)
    assert trained == [2, 4]
    assert pl.read_parquet(tmp_path / "group_sizes.parquet").equals(table)
    assert (tmp_path / "group_sizes.png").read_bytes().startswith(b"\x89PNG")


def test_a_size_whose_run_its_collapse_has_ended_does_not_keep_the_others_from_being_trained(
    tmp_path, monkeypatch, caplog
):
    async def train(options):
        write_run(tmp_path / f"group_{options.group_size:03d}", step_row(0), {"step": 1, "test/label_match": 0.5})
        if options.group_size == 2:
            raise CollapseError("the model has collapsed", metrics={}, step=1)

    monkeypatch.setattr(group_sizes, "train_preset", train)
    options = GroupSizeOptions(sizes=(2, 4), rollouts_per_step=8, max_steps=1, out=str(tmp_path))
    assert asyncio.run(run_group_sizes(options))["group_size"].to_list() == [2, 4]
    assert "group size 2: the model has collapsed" in caplog.text


def test_a_picture_of_what_was_not_logged_is_drawn_without_it(tmp_path):
    steps = pl.DataFrame([{"group_size": 4, "step": 0, "rollouts": 8}], schema=group_sizes.STEPS)
    plot_group_sizes(steps, summarize(steps, {4: {}}), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_both_sweeps_run_against_a_real_server(tinker_server, tmp_path):
    common = (f"release={tinker_server.release}", f"model={tinker_server.model}", f"renderer={tinker_server.renderer}")
    done = tinker_server.run(
        "group_size_sweep.py", *common, "sizes=2,4", "rollouts_per_step=8", "max_steps=1", "n_test=2", "lora_rank=8",
        "max_tokens=64", "max_paper_tokens=96", f"out={tmp_path / 'groups'}",
    )  # fmt: skip
    assert "reward_tie_pair_rate" in done.stdout
    table = pl.read_parquet(tmp_path / "groups" / "group_sizes.parquet")
    assert table["group_size"].to_list() == [2, 4]
    assert table["papers_per_step"].to_list() == [4, 2]
    assert (
        table.select(*TIES, "mean_reward", "correct_rate", "rollouts_per_second", "eval_macro_f1").null_count().row(0)
        == (0,) * 8
    )

    tinker_server.run(
        "repro_sweep.py", "--release", str(tinker_server.release), "--model", tinker_server.model, "--renderer",
        tinker_server.renderer, "--n-papers", "2", "--max-tokens", "8", "--batch-sizes", "1", "2", "--n-repeats", "1",
        "--out", str(tmp_path / "sweep"),
    )  # fmt: skip
    found = pl.read_parquet(tmp_path / "sweep" / "sweep.parquet")
    assert found["status"].unique().to_list() == ["measured"]
    assert found["logprob_difference_max"].null_count() == 0
    repeat = found.filter(axis="repeat")
    assert repeat["identical_share"].to_list() == [1.0, 1.0]  # greedy, and sampled with the same seed
