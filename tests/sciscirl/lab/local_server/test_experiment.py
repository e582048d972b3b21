"""An open experiment on a real server: a preset file, SFT -> RL with two seeds, chosen on dev, shown in one report."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import polars as pl
import pytest
import torch
from tinker_cookbook.tokenizer_utils import get_tokenizer

from sciscirl.lab.analysis.select_checkpoint import select_checkpoint
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.models.local_model import load_base_model
from sciscirl.lab.report.runs import read_run
from sciscirl.lab.sft.examples import Example
from sciscirl.lab.studies.sweep import plan_sweep
from sciscirl.lab.studies.sweep_options import SweepOptions
from sciscirl.metrics.predictions import read_predictions
from sciscirl.runs.checkpoints import list_weights
from sciscirl.task.predictions import GROUP_SQUARE
from sciscirl.task.release import read_split
from tests.sciscirl.tinker_server import Script
from tests.sciscirl.toy import gold_of
from tests.web_pages import Page

pytestmark = pytest.mark.slow

OWN = """
base = "baseline"
batch_size = 2
group_size = 4
lora_rank = 8
max_tokens = 64
max_paper_tokens = 96
top_p = 0.95
eval_temperature = 0
loss_fn = "ppo"
loss_fn_config = { clip_low_threshold = 0.8, clip_high_threshold = 1.28 }
num_substeps = 2
kl_penalty_coef = 0.1

[reward]
base = "soft"
not_json = -1.5
wrong = 0.125

[prompt]
system = "$task $answer"
user = "$record $question"
"""
SEEDS = (0, 1)


@dataclass(frozen=True)
class Experiment:
    """A sweep over two seeds that has ended.

    Attributes:
        out: its folder.
        shown: what it printed.
        examples: those of the first step of its supervised run with seed 0.
    """

    out: Path
    shown: str
    examples: list[Example]

    def run(self, way: str, seed: int) -> Path:
        return self.out / f"own-{way}" / f"seed_{seed}"


@pytest.fixture(scope="module")
def experiment(tinker_server, tmp_path_factory) -> Experiment:
    home = tmp_path_factory.mktemp("experiment")
    preset = home / "own.toml"
    preset.write_text(OWN, "utf-8")
    options = {
        "preset": str(preset), "release": str(tinker_server.release), "model": tinker_server.model,
        "renderer": tinker_server.renderer, "out": str(home / "sweep"), "max_steps": 1, "n_test": 4,
        "sft_max_steps": 2, "sft_batch_size": 8, "sft_learning_rate": 0.01,
    }  # fmt: skip
    words = [f"{name}={value}" for name, value in options.items()]
    done = tinker_server.run("sweep.py", *words, "way=sft_rl", f"seeds={','.join(map(str, SEEDS))}")
    first = plan_sweep(SweepOptions(**options, way=("sft_rl",), seeds=SEEDS, eval_split="dev"))[0]
    examples = gold_of(first.options)[:8]
    assert not re.search(r"DEPRECATED|\d/\d|Traceback", done.stderr), done.stderr  # no bars, one line a step
    preset.unlink()  # from here on, the runs alone say how their models are asked
    return Experiment(home / "sweep", done.stdout, examples)


def read_metrics(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def read_rewards(run: Path) -> set[float]:
    lines = [line for path in run.glob("iteration_*/train_*.jsonl") for line in path.read_text("utf-8").splitlines()]
    return {step["reward"] for line in lines for step in json.loads(line)["steps"]}


def list_logprobs(model: str, tokens: list[int]) -> list[float]:
    """The log-probability of every token after the first, computed here."""
    with torch.no_grad():
        said = load_base_model(model, dtype="float32", device="cpu")(torch.tensor([tokens])).logits[0].log_softmax(-1)
    return said[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()


def test_a_preset_file_is_recorded_whole_and_its_reward_is_what_answers_earn(experiment):
    for seed in SEEDS:
        run = experiment.run("sft_rl", seed)
        settings = json.loads((run / "run.json").read_text("utf-8"))["settings"]
        assert (settings["name"], settings["style"], settings["reward"], settings["seed"]) == ("own",) * 3 + (seed,)
        assert (settings["reward_table"]["not_json"], settings["reward_table"]["wrong"]) == (-1.5, 0.125)
        assert settings["prompt"]["user"] == "$record Which label fits this paper?"
        assert read_rewards(run) <= {-1.5, -0.5, 0.125, 0.75}
        (trained,) = [row for row in read_metrics(run) if "env/all/reward/total" in row]
        assert "kl_policy_base" in trained
        assert trained["env/all/total_episodes"] == 8
        assert trained[f"env/all/{GROUP_SQUARE}"] >= trained["env/all/reward/total"] ** 2 - 1e-9


def test_training_by_reward_goes_on_from_the_supervised_run_of_its_seed(experiment, tinker_server):
    for seed in SEEDS:
        sft, rl = experiment.run("sft", seed), experiment.run("sft_rl", seed)
        facts = json.loads((rl / "run.json").read_text("utf-8"))
        begun = facts["begun_from"]
        assert (begun["folder"], begun["kind"], begun["step"]) == (f"own-sft/seed_{seed}", "sft", 2)
        assert facts["settings"]["load_checkpoint"] == begun["path"]
        # Greedy answers: before its first step, the model says what the supervised one says at its end.
        before, after, started = (
            read_predictions(path / "predictions" / f"dev_{step:06d}.parquet")["text"].to_list()
            for path, step in ((sft, 0), (sft, 2), (rl, 0))
        )
        assert started == after != before
    # The loss on the label of the first step is that of the base model.
    logged = read_metrics(experiment.run("sft", 0))
    assert read_run(experiment.run("sft", 0), "sft").usage.train == sum(row.get("num_tokens", 0) for row in logged) > 0
    said = [list_logprobs(tinker_server.model, list(example.tokens)) for example in experiment.examples]
    losses = [
        -sum(one[place - 1] for place in example.labels) for one, example in zip(said, experiment.examples, strict=True)
    ]
    assert next(row["label_nll"] for row in logged if "label_nll" in row) == pytest.approx(sum(losses) / 8, rel=0.01)


def test_a_sweep_compares_its_ways_over_seeds_on_the_same_papers_of_dev(experiment, tinker_server):
    assert "4 papers of dev, task disruption; 95 % intervals over seeds and papers" in experiment.shown
    table = pl.read_parquet(experiment.out / "sweep.parquet")
    assert table["name"].to_list()[:3] == ["own sft", "own sft_rl", "own untrained"]
    assert table["n_seeds"].to_list()[:3] == [2, 2, None]
    logged = [f"train/{name}" for name in ("reward/total", "label_match", "rollouts_per_second")]
    assert table.filter(way="sft_rl").select(logged).null_count().row(0) == (0, 0, 0)
    dev = {paper.openalex_id for paper in read_split(tinker_server.release, "dev")}
    for way, step in (("sft", 2), ("sft_rl", 1)):
        judged = read_predictions(experiment.run(way, 0) / "predictions" / f"dev_{step:06d}.parquet")["openalex_id"]
        assert judged.n_unique() == 4
        assert {*judged} <= dev


#: Prints the log-probabilities that a server gives to tokens, in a process of its own: the SDK leaves connections open.
ASK = """
import asyncio, json, sys
import tinker
from sciscirl.runs.server_checks import open_sampling

async def ask(model, checkpoint, tokens):
    async with open_sampling(model, checkpoint) as client:
        return await client.compute_logprobs(tinker.ModelInput.from_ints(json.loads(tokens)))

print(json.dumps(asyncio.run(ask(*sys.argv[1:]))))
"""


@pytest.fixture(scope="module")
def scored(experiment, tinker_server) -> list[Path]:
    """Label probabilities of the runs by reward, on papers of dev."""
    folders = []
    for seed in SEEDS:
        folders.append(experiment.out.parent / f"logprobs_{seed}")
        words = {"run": experiment.run("sft_rl", seed), "release": tinker_server.release, "out": folders[-1]} | SCORING
        tinker_server.run("evaluate.py", *(f"{name}={value}" for name, value in words.items()))
    return folders


SCORING = {"answers": "logprobs", "prior_correction": "content_free", "n_papers": 3}


def test_the_merged_model_is_the_one_that_is_served(experiment, scored, tinker_server, tmp_path):
    rl, merged = experiment.run("sft_rl", 0), tmp_path / "merged"
    done = tinker_server.run("merge_adapter.py", str(rl), "--out", str(merged), "--dtype", "float32")
    assert f"model: {merged}" in done.stdout
    card = (merged / "README.md").read_text("utf-8")
    for part in (
        "begun from | own-sft/seed_0, step 2 |",
        "run | own-sft_rl/seed_0, SHA",
        "| label_match |",
        "| step | 1 |",
    ):
        assert part in card
    assert "On papers of dev in this release." in card
    tokens = get_tokenizer(tinker_server.model).encode("Which label fits this paper? Say it in JSON.")
    words = [sys.executable, "-c", ASK, tinker_server.model, list_weights(rl)[1], json.dumps(tokens)]
    asked = Script(words, environment=tinker_server.environment).finish()
    assert asked.returncode == 0, asked.stderr
    served = json.loads(asked.stdout)[1:]
    assert list_logprobs(str(merged), tokens) == pytest.approx(served, abs=0.01)
    assert list_logprobs(tinker_server.model, tokens) != pytest.approx(served, abs=0.1)

    # So are its label probabilities.
    preset = tmp_path / "own.toml"
    preset.write_text(OWN, "utf-8")
    config = EvaluationConfig(
        release=tinker_server.release, out=tmp_path / "here", local_model=merged, preset=str(preset), split="dev",
        renderer=tinker_server.renderer, **SCORING,
    )  # fmt: skip
    asyncio.run(evaluate_model(config))
    there, here = (read_predictions(folder / "predictions.parquet") for folder in (scored[0], tmp_path / "here"))
    assert here["openalex_id"].equals(there["openalex_id"])
    for ours, theirs in zip(map(json.loads, here["forecast"]), map(json.loads, there["forecast"]), strict=True):
        assert ours == pytest.approx(theirs, abs=0.01)


def test_the_weights_that_a_run_began_with_are_judged_as_its_step_0(experiment, tinker_server, tmp_path):
    run = experiment.run("sft_rl", 1)
    words = ("--run", str(run), "--release", str(tinker_server.release), "--step", "0", "--n-papers", "4")
    tinker_server.run("evaluate.py", *words, "--out", str(tmp_path / "out"))
    answers = read_predictions(tmp_path / "out" / "predictions.parquet")
    assert answers.equals(read_predictions(run / "predictions" / "dev_000000.parquet"))  # greedy, so the same again


@pytest.fixture(scope="module")
def report(experiment, scored, tinker_server) -> Path:
    """All of it in one page, with a checkpoint of each run judged by test."""
    page = experiment.out.parent / "report.html"
    folders = map(str, (experiment.out, *scored))
    tinker_server.run("report.py", *folders, "--release", str(tinker_server.release), "--final", "--out", str(page))
    return page


def test_one_report_shows_both_seeds_the_choice_on_dev_and_one_look_at_test(experiment, scored, report, tinker_server):
    page = Page(report.read_text("utf-8"))
    head = page.row("run")
    below = page.rows[page.rows.index(head) + 1 :]
    rows = {row[0]: dict(zip(head, row, strict=True)) for row in takewhile(lambda row: row[0], below)}
    n_test = len(read_split(tinker_server.release, "test"))
    for way, last in (("sft", 2), ("sft_rl", 1)):
        for seed in SEEDS:
            chosen = select_checkpoint(experiment.run(way, seed)).chosen.step
            own, final = rows[f"own-{way}/seed_{seed}"], rows[f"own-{way}/seed_{seed}, final, step {chosen}"]
            assert (own["judged by"], own["judged at step"], own["answers"]) == ("dev", str(last), "4")
            assert (final["judged by"], final["answers"]) == ("test", str(n_test))
            assert own["looks at test"] == ("1" if chosen == last else "2")
            assert final["judged at step"].startswith(str(chosen))
            assert final["judged at step"].endswith(", chosen by dev")
            assert chosen == last or f"own-{way}/seed_{seed}, last, step {last}" in rows
    assert [rows[folder.name]["judged by"] for folder in scored] == ["dev"] * 2
    # On four papers of dev, on the three of them that were scored, and on those of test.
    assert sum(row[0] == "majority" for row in page.rows if row) == 3
    for way in ("sft", "sft_rl"):
        assert page.row(f"own-{way}")[1] == "0, 1", way
        assert any(row[0].startswith(f"own-{way}, final") and row[1] == "0, 1" for row in page.rows), way


def test_the_same_prompts_get_the_same_answers_again(tinker_server, tmp_path):
    tinker_server.run(
        "repro_sweep.py", "--release", str(tinker_server.release), "--model", tinker_server.model, "--renderer",
        tinker_server.renderer, "--n-papers", "2", "--max-tokens", "64", "--out", str(tmp_path / "repro"),
    )  # fmt: skip
    found = pl.read_parquet(tmp_path / "repro" / "sweep.parquet")
    assert found.row(0, named=True)["identical_share"] == 1
    assert all("the model is on a server, which decides" in reason for reason in found["reason"][1:])
