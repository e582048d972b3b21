"""Sweeps: the runs that are planned, and the loop over them in this process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from tinker_cookbook.rl.metric_util import compute_trajectory_metrics
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig
from tinker_cookbook.rl.rollouts import do_group_rollout

import sciscirl.lab.sft.tinker_backend as sft_train
import sciscirl.lab.training.rl as rl_train
from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.analysis.baselines import BASELINES
from sciscirl.lab.report.layout import show_estimate
from sciscirl.lab.report.report import ReportConfig, make_sections
from sciscirl.lab.report.runs import find_repeated, read_runs
from sciscirl.lab.studies import sweep
from sciscirl.lab.studies.sweep import plan_sweep, read_vary, run_sweep
from sciscirl.lab.studies.sweep_options import SweepOptions
from sciscirl.lab.training.rl import train_preset
from sciscirl.metrics.own_metrics import register_metric
from sciscirl.metrics.predictions import read_predictions
from sciscirl.options import TinkerSftOptions, TrainOptions
from sciscirl.runs.logs import open_store
from tests.forks import load
from tests.sciscirl.made_runs import make_run
from tests.sciscirl.toy import LABELS, Scripted, make_slice, say

WORDS = dict(zip(LABELS, ("assay", "review", "survey"), strict=True))


def test_every_run_has_its_folder_and_seed_and_all_other_options_are_shared():
    runs = plan_sweep(SweepOptions(preset="exp4,exp6", seeds=(0, 3), learning_rate=3e-4, out="here"))
    assert [(run.name, run.seed, run.folder.as_posix()) for run in runs] == [
        ("exp4", 0, "here/exp4/seed_0"), ("exp6", 0, "here/exp6/seed_0"),
        ("exp4", 3, "here/exp4/seed_3"), ("exp6", 3, "here/exp6/seed_3"),
    ]  # fmt: skip
    assert {(type(run.options), run.options.learning_rate, run.options.behavior_if_log_dir_exists) for run in runs} == {
        (TrainOptions, 3e-4, "resume")
    }
    assert all(run.options.seed == run.seed and run.options.preset == run.name for run in runs)


def test_every_group_size_has_the_same_answers_in_a_step():
    runs = plan_sweep(SweepOptions(preset="exp4", vary=("group_size:4", "8", "16"), rollouts_per_step=64))
    assert [(run.options.group_size, run.options.batch_size) for run in runs] == [(4, 16), (8, 8), (16, 4)]
    assert runs[0].folder.as_posix() == "runs/sweep/exp4-group_size-4/seed_0"


def test_training_by_reward_begins_from_the_supervised_run_of_the_same_seed():
    more = {"sft_learning_rate": 3e-4, "sft_n_epochs": 1, "learning_rate": 1e-5, "max_steps": 7}
    runs = plan_sweep(SweepOptions(preset="exp4", way=("rl", "sft_rl"), seeds=(0, 1), vary=("group_size:2,4",), **more))
    names = ["exp4 group_size=2 rl", "exp4 sft", "exp4 group_size=2 sft_rl", "exp4 group_size=4 rl",
             "exp4 group_size=4 sft_rl"]  # fmt: skip
    assert [run.name for run in runs] == names * 2
    sft = runs[1]
    assert isinstance(sft.options, TinkerSftOptions)
    assert (sft.options.learning_rate, sft.options.n_epochs, sft.options.max_steps) == (3e-4, 1, None)
    for run in runs:
        start = "runs/sweep/exp4-sft/seed_" + str(run.seed) if run.way == "sft_rl" else None
        assert getattr(run.options, "load_checkpoint", None) == start
        assert run.begins_from is None or run.begins_from.as_posix() == start


def test_values_of_every_kind_can_be_varied():
    words = ["interleave:true,false", "loss_fn:ppo", "learning_rate:1e-5,4e-5", "class_weights:disruptive:2"]
    assert read_vary(words) == {
        "interleave": {"true": True, "false": False}, "loss_fn": {"ppo": "ppo"},
        "learning_rate": {"1e-5": 1e-5, "4e-5": 4e-5}, "class_weights": {"disruptive:2": ("disruptive:2",)},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seed": 1}, "seed cannot be set: the sweep decides"),
        ({"seeds": ()}, "seeds is"),
        ({"seeds": (1, 1)}, "seeds is 1, 1, needs each once"),
        ({"preset": "exp4,two_keys"}, "preset is exp4, exp4, needs each once"),
        ({"preset": "exp4,joint"}, "exp4 is of the task disruption, joint of joint"),
        ({"vary": ("sizes:4",)}, "vary begins with 'sizes:4', which is no option"),
        ({"vary": ("group_sizes:4",)}, "Did you mean group_size"),
        ({"vary": ("preset:exp4,exp6",)}, "vary begins with 'preset:exp4', which has an option of its own"),
        ({"vary": ("release:a,b",)}, "vary begins with 'release:a', which is the same for all runs"),
        ({"vary": ("group_size:x",)}, "vary gives group_size the value 'x', needs a whole number from 1"),
        ({"vary": ("group_size:4,8",), "rollouts_per_step": 12}, "rollouts_per_step is 12 with group_size 8"),
        ({"rollouts_per_step": 12, "batch_size": 6}, "and no batch_size"),
        ({"sft_n_epochs": 1}, "sft_n_epochs has no effect with way=rl: it is of supervised runs"),
        ({"way": ("sft",), "learning_rate": 1.0}, "learning_rate has no effect .* Supervised runs read sft_learning"),
        ({"way": ("sft",), "vary": ("group_size:4,8",)}, "group_size has no effect with way=sft"),
        ({"way": ("sft_rl",), "load_checkpoint": "runs/x"}, "load_checkpoint cannot be set with way=sft_rl"),
    ],
)  # fmt: skip
def test_what_a_sweep_cannot_do_is_refused_before_anything_runs(wrong, said):
    with pytest.raises(SciSciRLError, match=said):
        plan_sweep(SweepOptions(**{"preset": "exp4"} | wrong))


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return make_slice(tmp_path_factory.mktemp("sweep") / "slice", n_dev=12)


def answer(prompt: str, knows: float, key: str) -> str:
    """Know the label of a share of the papers, which the key decides with the paper; else say neutral."""
    title = prompt[max(prompt.rfind(f"A {word} of thing ") for word in WORDS.values()) :].splitlines()[0]
    digest = hashlib.sha256(f"{key} {title}".encode()).digest()
    label = next(label for label, word in WORDS.items() if word in title)
    return say(label if digest[0] < 256 * knows else "neutral")


@pytest.fixture
def cookbook(monkeypatch, toy_renderer, options):
    """Both loops of the cookbook with a model in this process that knows more after each way to train.

    What is left of them: batches, rollouts, metrics, checkpoints. ``calls`` are the runs, and ``fails`` those that are
    to fail, by folder.
    """
    calls, fails, skills = [], {}, {"rl": 0.5, "sft": 0.6, "sft_rl": 0.9}
    tokenizer = toy_renderer.tokenizer

    def name_of(folder: str) -> str:
        return "/".join(folder.split("/")[-2:])

    def finish(folder, n_steps, knows):
        path = f"tinker://m/sampler_weights/{knows}-{name_of(folder).replace('/', '-')}"
        line = {"name": "final", "batch": n_steps, "state_path": path.replace("sampler_", ""), "sampler_path": path}
        Path(folder, "checkpoints.jsonl").write_text(json.dumps(line) + "\n", "utf-8")

    async def begin(config):
        name = name_of(config.log_path)
        calls.append(name)
        evaluator = config.evaluator_builders[0]()
        if error := fails.get(name):
            raise error
        return evaluator

    async def train_by_reward(config):
        evaluator = await begin(config)
        dataset, _ = await config.dataset_builder()
        store = open_store(config.log_path)
        export = RolloutSummaryExportConfig(split="eval/dev", iteration=0, base_name="eval_dev")
        store.write_metrics(await evaluator("m/0.1-base", rollout_summary_export=export, store=store), step=0)
        for step in range(config.max_steps):
            groups = dataset.get_batch(step)
            place = iter(range(10_000))
            model = Scripted(tokenizer, lambda prompt: answer(prompt, 0.5, f"{step} {next(place)}"))  # noqa: B023
            done = [await do_group_rollout(group, model) for group in groups]
            row = compute_trajectory_metrics(done, [group.logging_tags() for group in groups])
            store.write_metrics({**row, "progress/batch": step, "time/total": 2.0, "time/sampling": 0.5}, step=step)
        finish(config.log_path, config.max_steps, skills["rl" if config.load_checkpoint_path is None else "sft_rl"])

    async def train_on_gold(config):
        await begin(config)
        dataset, _ = config.dataset_builder()
        store = open_store(config.log_path)
        for step in range(len(dataset)):
            store.write_metrics({"progress": 0.5, "epoch": 0, "train_mean_nll": 1.0}, step=step)
        finish(config.log_path, len(dataset), skills["sft"])

    def judge(client, *_, **__):
        knows, _, key = client.rpartition("/")[2].partition("-")
        return Scripted(tokenizer, lambda prompt: answer(prompt, float(knows), key))

    @contextmanager
    def service(_):
        async def create(model_path):
            return model_path

        yield SimpleNamespace(create_sampling_client=create)

    for module, loop in ((rl_train, train_by_reward), (sft_train, train_on_gold)):
        monkeypatch.setattr(module, "check_server", lambda *_, **__: None)
        monkeypatch.setattr(module.train, "main", loop)
    monkeypatch.setattr(sweep, "check_server", lambda *_, **__: None)
    monkeypatch.setattr(rl_train, "open_service", service)
    monkeypatch.setattr("sciscirl.lab.evaluator.TopPCompleter", judge)
    shared = {"model": options["model"], "renderer": options["renderer"], "preset": "exp4", "max_steps": 2,
              "batch_size": 3, "group_size": 2, "base_url": "http://127.0.0.1:9"}  # fmt: skip
    return SimpleNamespace(calls=calls, fails=fails, options=shared, name_of=name_of)


def test_three_ways_are_trained_once_compared_and_shown_in_a_report(cookbook, release, tmp_path, capsys):
    def cost(predictions):
        return 2 * sum(row["label"] != row["gold"] for row in predictions) / len(predictions)

    register_metric("cost", cost, bounds=(0, 2), higher_is_better=False)
    out = tmp_path / "sweep"
    options = SweepOptions(
        **cookbook.options, release=str(release), out=str(out), way=("rl", "sft", "sft_rl"), seeds=(0, 1),
        sft_batch_size=3, sft_n_epochs=1,
    )  # fmt: skip
    cookbook.fails["exp4-sft/seed_1"] = SciSciRLError("the server is down")
    result = asyncio.run(run_sweep(options))
    assert result.n_missing == 2
    assert result.problems["exp4 sft, seed 1"] == "the server is down"
    assert "has not ended" in result.problems["exp4 sft_rl, seed 1"]
    cookbook.fails.clear()
    cookbook.calls.clear()

    result = asyncio.run(run_sweep(options))
    assert cookbook.calls == ["exp4-sft/seed_1", "exp4-sft_rl/seed_1"]  # finished runs are kept
    assert (result.n_missing, result.problems, result.split) == (0, {}, "dev")
    started = json.loads((out / "exp4-sft_rl/seed_1/run.json").read_text("utf-8"))["begun_from"]
    assert (started["folder"], started["kind"], started["step"]) == ("exp4-sft/seed_1", "sft", 8)
    run = out / "exp4-rl/seed_0"
    assert [one["name"] for one in json.loads((run / "run.json").read_text("utf-8"))["metrics"]] == ["cost"]
    assert '"dev/cost"' in (run / "metrics.jsonl").read_text("utf-8")
    table = pl.read_parquet(out / "sweep.parquet")
    assert table.equals(result.table)
    assert table["name"].to_list()[:4] == ["exp4 rl", "exp4 sft", "exp4 sft_rl", "exp4 untrained"]
    assert table["n_seeds"].to_list()[:4] == [2, 2, 2, None]
    assert table["way"].to_list() == ["rl", "sft", "sft_rl", "untrained", *["baseline"] * len(BASELINES)]
    before = read_predictions(out / "exp4-rl" / "seed_0" / "predictions" / "dev_000000.parquet")
    assert table["label_match"][3] == (before["gold"] == before["label"]).mean()
    for name in ("rl", "sft", "sft_rl"):
        row = table.row(by_predicate=pl.col("way") == name, named=True)
        scores = []
        for seed in (0, 1):
            (last,) = sorted((out / f"exp4-{name}" / f"seed_{seed}" / "predictions").glob("*"))[-1:]
            answers = read_predictions(last)
            scores.append((answers["gold"] == answers["label"]).mean())
        assert row["label_match"] == pytest.approx(sum(scores) / 2)
        assert row["label_match_low"] <= row["label_match"] <= row["label_match_high"]
        ends = [row[f"cost{end}"] for end in ("_low", "", "_high")]  # a metric of one's own, over seeds
        assert ends == sorted(ends)
        assert ends[1] == pytest.approx(2 - 2 * row["label_match"])
        assert (row["n_seeds"], row["n_papers"]) == (2, 12)
        assert (row["train/reward/total"] is None) == (name == "sft")
        if name != "sft":
            assert row["train/rollouts_per_second"] == 3.0  # six in two seconds
            logged = [
                json.loads(line)["env/all/reward_tie_pair_rate"]
                for seed in (0, 1)
                for line in (out / f"exp4-{name}/seed_{seed}/metrics.jsonl").read_text("utf-8").splitlines()
                if "env/all/reward_tie_pair_rate" in line
            ]
            assert row["train/reward_tie_pair_rate"] == pytest.approx(sum(logged) / 4)
    assert table["label_match"][2] > table["label_match"][0]

    runs = read_runs([out])
    assert [(one.name, [*one.runs]) for one in find_repeated(runs)] == [
        ("exp4-rl", [0, 1]), ("exp4-sft", [0, 1]), ("exp4-sft_rl", [0, 1])
    ]  # fmt: skip
    sections = {one.id: one for one in make_sections(runs, ReportConfig(runs=(out,), release=release, n_examples=0))}
    models, baselines, own, changed, pairs = sections["answer"].tables
    assert changed.caption.startswith("What training changed")
    assert own.head[1] == "cost (less is better)"
    assert own.rows[0][:2] == ["exp4-rl", show_estimate(result.comparison.scores["exp4 rl"]["cost"])]
    assert [row[0] for row in models.rows] == [f"exp4-{way}" for way in ("rl", "sft", "sft_rl")]
    assert [row[0] for row in baselines.rows] == table["name"].to_list()[4:]
    said = {re.search(r"exp4-\w+", line)[0]: line for line in sections["answer"].headline}
    starts = {name: re.search(r"against (.*?) \(", line)[1] for name, line in said.items()}
    assert starts["exp4-sft_rl"] == "where it began, exp4-sft/seed_0, step 8"
    assert starts["exp4-rl"] == "itself before training"
    assert starts["exp4-sft"] == "exp4-rl before training"  # supervised runs have no step 0
    assert models.rows[0][2].startswith(f"{table['label_match'][0]:.3f} [")
    assert len(pairs.rows) == 12
    assert any(one.alt.startswith("Mean reward over steps: exp4-rl from ") for one in sections["curves"].pictures)

    words = [f"{name}={value}" for name, value in cookbook.options.items()]
    words += [f"release={release}", f"out={out}", "way=rl,sft,sft_rl", "sft_batch_size=3", "sft_n_epochs=1"]
    cookbook.calls.clear()
    assert main(["sweep", *words, "seeds=0,1", "dry_run=yes"]) == 0
    assert "exp4 sft_rl  1" in capsys.readouterr().out
    elsewhere = [f"out={tmp_path / 'more'}" if word.startswith("out=") else word for word in words]
    assert main(["sweep", *elsewhere, "evaluators=gsm8k:7", "dry_run=yes"]) == 0  # which it does not load
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cost: no list price known")]
    assert [line.rpartition(" ")[2] for line in told] == ["rl", "sft", "sft_rl"]
    assert not (tmp_path / "more").exists()
    assert main(["sweep", *words, "seeds=0"]) == 0  # fewer seeds, and none is trained again
    printed = capsys.readouterr().out
    assert cookbook.calls == []
    assert "12 papers of dev, task disruption; 95 % intervals over papers only, as there is one seed" in printed
    assert printed.endswith(f"next: sciscirl report {out} --release {release} --out sweep.html --final\n")
    assert main(["sweep", *words, "seeds=0", "learning_rate=1"]) == 1
    assert "was begun without --learning-rate 1.0. Go on with" in capsys.readouterr().err


def test_a_run_that_has_ended_is_left_as_it_is_however_often_it_is_resumed(cookbook, release, tmp_path, caplog):
    options = TrainOptions(
        **cookbook.options,
        release=str(release),
        eval_split="dev",
        log_path=str(tmp_path / "run"),
        behavior_if_log_dir_exists="resume",
    )
    asyncio.run(train_preset(options))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with caplog.at_level("INFO", logger="sciscirl"):
        asyncio.run(train_preset(options))
    assert "run has ended after 2 of 2 steps: nothing is left to do" in caplog.text
    assert len(cookbook.calls) == 1
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_run_that_fails_does_not_stop_the_others_and_is_said(cookbook, release, tmp_path, capsys):
    words = [f"{name}={value}" for name, value in cookbook.options.items() if name != "preset"]
    words += [f"release={release}", f"out={tmp_path / 'sweep'}", "preset=exp4,exp2"]
    cookbook.fails["exp4/seed_0"] = ZeroDivisionError("a defect")
    assert main(["sweep", *words]) == 1
    printed = capsys.readouterr()
    assert "exp4, seed 0: ZeroDivisionError: a defect" in printed.out
    assert "exp2" in printed.out
    assert printed.err.splitlines()[-1] == (
        "error: 1 of 2 runs not ended; see above. The same command goes on with them."
    )
    cookbook.fails["exp2/seed_0"] = cookbook.fails["exp4/seed_0"]
    with pytest.raises(SciSciRLError, match=r"no run of the sweep has ended\. ZeroDivisionError: a defect"):
        asyncio.run(run_sweep(SweepOptions(**cookbook.options, release=str(release), out=str(tmp_path / "other"))))


def test_a_sweep_without_a_key_says_so_before_the_first_run_and_writes_nothing(options, release, tmp_path, monkeypatch):
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tinker.auth.tinker_has_credentials", lambda: False)
    shared = {"model": options["model"], "renderer": options["renderer"], "batch_size": 3}
    with pytest.raises(SciSciRLError, match=r"^TINKER_API_KEY is not set"):
        asyncio.run(run_sweep(SweepOptions(preset="exp4", release=str(release), out=str(tmp_path / "out"), **shared)))
    assert not (tmp_path / "out").exists()


LOOPS = """
import os, signal, time
from pathlib import Path
from sciscirl.errors import SciSciRLError
from sciscirl.lab.studies import sweep

async def train(run):
    folder = Path(getattr(run, "log_path", None) or run.options.log_path)
    folder.mkdir(parents=True)
    (folder / "begun").write_text(str(os.getpid()))
    end = time.monotonic() + 300
    while len(begun := [*folder.parents[1].glob("*/*/begun")]) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    is_after = (folder.parents[1] / "exp4-sft" / "seed_0" / "ended").exists()
    (folder / "ended").write_text(f"{len({path.read_text() for path in begun})} processes, {is_after}")
    if folder.parent.name == "exp4-sft_rl":
        os.kill(os.getpid(), signal.SIGKILL)
    raise SciSciRLError((folder / "ended").read_text())

sweep.train_preset = sweep.train_on_tinker = train
sweep.is_over = lambda folder: folder.parent.name == "exp4-sft" and (folder / "ended").exists()
"""


@pytest.fixture
def origin() -> None:
    """What processes of a sweep are forked from, with what other tests need of it."""
    load()


@pytest.mark.usefixtures("origin")
@pytest.mark.parametrize(("is_local", "words"), [(False, ["one", "two"]), (True, ["one"])])
def test_the_process_of_a_run_has_the_variables_of_now(monkeypatch, is_local, words):
    """A fork's origin has those of the first sweep; a run on this machine has a new process."""
    said = []
    for word in words:
        monkeypatch.setenv("A_WORD", word)
        with sweep._open_process(SimpleNamespace(is_local=is_local)) as pool:
            said.append(pool.submit(os.getenv, "A_WORD").result())
    assert said == words


@pytest.mark.usefixtures("origin")
def test_runs_at_once_have_processes_of_their_own_and_wait_for_the_run_that_they_begin_from(tmp_path, monkeypatch):
    """A plugin, which each process loads, stands for both loops: the first two runs wait for each other."""
    for name in ("train_preset", "train_on_tinker", "is_over"):
        monkeypatch.setattr(sweep, name, getattr(sweep, name))
    (tmp_path / "loops.py").write_text(LOOPS, "utf-8")
    options = {"plugin": str(tmp_path / "loops.py"), "out": str(tmp_path / "out")}
    runs = plan_sweep(SweepOptions(preset="exp4", way=("rl", "sft_rl"), **options))
    problems = asyncio.run(sweep._train_all(runs, 2))
    assert problems["exp4 sft, seed 0"] == "2 processes, False"
    assert int(problems["exp4 rl, seed 0"].split()[0]) >= 2  # the third may begin before this one looks
    assert (tmp_path / "out" / "exp4-sft_rl" / "seed_0" / "ended").read_text() == "3 processes, True"
    assert problems["exp4 sft_rl, seed 0"].startswith("its process was killed")


FULL = """
import time
from pathlib import Path
from sciscirl.errors import FullServerError
from sciscirl.lab.studies import sweep

async def train(options):
    folder = Path(options.log_path)
    home = folder.parents[1]
    try:
        (home / "place").mkdir(parents=True)  # the only one
    except FileExistsError:
        (folder / "refused").mkdir(parents=True, exist_ok=True)
        raise FullServerError("all its adapter slots are taken") from None
    end = time.monotonic() + 120
    while not [*home.glob("*/*/refused")] and time.monotonic() < end:
        time.sleep(0.05)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ended").touch()
    (home / "place").rmdir()

sweep.train_preset = train
sweep.is_over = lambda folder: (folder / "ended").exists()
"""


@pytest.mark.usefixtures("origin")
@pytest.mark.parametrize("is_ever_free", [True, False])
def test_a_run_waits_for_a_free_place_on_the_server_and_not_for_ever(tmp_path, monkeypatch, caplog, is_ever_free):
    for name in ("train_preset", "is_over"):
        monkeypatch.setattr(sweep, name, getattr(sweep, name))
    monkeypatch.setattr(sweep, "_PAUSE_S", 0.1)
    monkeypatch.setattr(sweep, "_PATIENCE_S", 0.5)
    (tmp_path / "full.py").write_text(FULL, "utf-8")
    out = tmp_path / "out"
    if not is_ever_free:
        (out / "place").mkdir(parents=True)  # another user's
    runs = plan_sweep(SweepOptions(preset="exp4", seeds=(0, 1), plugin=str(tmp_path / "full.py"), out=str(out)))
    problems = asyncio.run(sweep._train_all(runs, 2))
    waits = [one.message for one in caplog.records if "waits for a free place" in one.message]
    if is_ever_free:
        assert problems == {}
        assert len([*out.glob("*/*/ended")]) == 2
        (said,) = waits
        assert said.endswith("waits for a free place: all its adapter slots are taken")
    else:
        assert problems == dict.fromkeys(("exp4, seed 0", "exp4, seed 1"), "all its adapter slots are taken")
        assert len(waits) == 2


def test_a_run_that_its_collapse_has_ended_is_over(tmp_path):
    folder = tmp_path / "exp4" / "seed_0"
    make_run(folder, finished=False, evaluations={})
    assert not sweep.is_over(folder)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 4, "collapse_stop": 1.0}) + "\n")
    assert sweep.is_over(folder)


def test_runs_that_would_be_judged_by_unlike_papers_are_refused(toy_slice, tmp_path):
    options = SweepOptions(preset="exp4", vary=("batch_size:2,6",), release=str(toy_slice), out=str(tmp_path / "out"))
    with pytest.raises(SciSciRLError, match=r"batch_size=2 3, exp4 batch_size=6 6\. Lower the largest batch_size to 2"):
        asyncio.run(run_sweep(options))
    assert not (tmp_path / "out").exists()
