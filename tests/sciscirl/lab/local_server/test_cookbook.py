"""The cookbook's benchmarks on a real server: our task among them, and theirs beside our evaluations."""

from __future__ import annotations

import json
import re
import sys

import pytest
from tinker_cookbook.eval.benchmarks import load_trajectories

from sciscirl.metrics.predictions import read_predictions
from sciscirl.runs.logs import read_rows
from tests.sciscirl.lab.local_server.other_versions import make_environment
from tests.sciscirl.tinker_server import Script

pytestmark = pytest.mark.slow

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
#: As google/IFEval has them.
QUESTIONS = [
    {"key": 1, "prompt": "Say something.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
    {
        "key": 2, "prompt": "Say a word.", "instruction_id_list": ["length_constraints:number_words"],
        "kwargs": [{"num_words": 900, "relation": "at least"}],
    },
    {"key": 3, "prompt": "Never asked.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
]  # fmt: skip


#: Runs in its own process: the SDK leaves sockets open, and pytest would report them in other tests.
PROGRAM_OF_A_USER = """
import asyncio, json, os
from pathlib import Path
from tinker_cookbook.eval.benchmarks import load_trajectories, register, run_benchmarks
from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import SciSciRLError
from sciscirl import EvaluationConfig, TrainOptions, evaluate_model, train_preset
from sciscirl.envs.tokenizer import make_renderer
from sciscirl.lab import guards
from sciscirl.lab.harnesses.cookbook import LabelBenchmark
from sciscirl.runs.server_checks import open_sampling

sizes = {"max_tokens": 64, "max_paper_tokens": 96}
model, chat, release = (os.environ[name] for name in ("MODEL", "RENDERER", "RELEASE"))
asked = {"release": Path(release), "preset": "baseline", "split": "dev", "temperature": 0.0, **sizes}
benchmark = register(LabelBenchmark(**asked))

async def compare():
    renderer, config = make_renderer(model, chat), benchmark.make_config(save_dir=".")
    async with open_sampling(model) as client:
        for time in ("first", "again"):  # which asks nothing
            yield time, (await run_benchmarks([benchmark.name], client, renderer, config))[benchmark.name]
    known = {"model": model, "renderer": chat, "out": Path("evaluation")}
    yield "evaluate", await evaluate_model(EvaluationConfig(**known, **asked))

def refuse(command, *words):
    try:
        PROGRAM.call(command, [f"release={release}", "model=meta-llama/Llama-3.1-8B-Instruct", *words], set())
    except SciSciRLError as error:
        return str(error)

refused = {
    "train": refuse("train"), "sft": refuse("sft", "--backend", "tinker"), "evaluate": refuse("evaluate"),
    "sweep": refuse("sweep", "seeds=0", "out=sweep"),
}

async def show():
    said = {name: vars(one) if name != "evaluate" else one async for name, one in compare()}
    kept = load_trajectories(".", benchmark.name)
    answers = [(one.example_id, one.reward, one.logs["text"]) for one in kept]
    print(json.dumps({"name": benchmark.name, "answers": answers, "refused": refused, **said}))

asyncio.run(show())
guards.MAX_TOKENS = 64
options = {"preset": "baseline", "release": release, "model": model, "renderer": chat, "log_path": "run", **sizes}
small = {"max_steps": 1, "batch_size": 4, "group_size": 2, "lora_rank": 8, "n_test": 4}
asyncio.run(train_preset(TrainOptions(**options, **small, evaluators=("ifeval:2",))))
"""


@pytest.fixture(scope="module")
def visit(tinker_server, tmp_path_factory):
    """What the program of a user said, in the folder in which it ran."""
    home = tmp_path_factory.mktemp("cookbook")
    data = home / "google/IFEval"
    data.mkdir(parents=True)
    (data / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in QUESTIONS), "utf-8")
    environment = make_environment(tinker_server, home / "packages") | {"RELEASE": str(tinker_server.release)}
    done = Script([sys.executable, "-c", PROGRAM_OF_A_USER], environment=environment, cwd=home).finish()
    assert done.returncode == 0, done.stderr
    return home, done


def test_the_cookbook_runs_the_task_with_the_answers_rewards_and_metrics_of_evaluate(visit):
    home, done = visit
    said = json.loads(done.stdout)
    assert said["name"] == "sciscirl_baseline_dev"
    rows = read_predictions(home / "evaluation/predictions.parquet")
    ours = zip(rows["openalex_id"], rows["reward"], rows["text"], strict=True)
    assert sorted(map(tuple, said["answers"])) == sorted(ours)
    for time in ("first", "again"):
        assert (said[time]["num_examples"], said[time]["num_errors"]) == (len(rows), 0)
        assert said[time]["score"] == said["evaluate"]["label_match"]
        both = said[time]["metrics"].keys() & said["evaluate"].keys()
        assert {name: said[time]["metrics"][name] for name in both} == {name: said["evaluate"][name] for name in both}
        assert {"macro_f1", "reward", "brier", "confusion/neutral/invalid"} <= both


def test_a_benchmark_of_the_cookbook_guards_a_run(visit):
    home, done = visit
    judged = {row["step"]: row for row in read_rows(home / "run/metrics.jsonl") if "eval/ifeval/score" in row}
    assert [*judged] == [0, 1]
    for row in judged.values():
        assert (row["eval/ifeval/num_examples"], row["eval/ifeval/num_errors"]) == (2, 0)
        assert row["eval/ifeval/score"] <= 0.5  # 64 tokens hold no 900 words
        assert "dev/label_match" in row
    asked = load_trajectories(str(home / "run/iteration_000001"), "ifeval")
    assert sorted(one.example_id for one in asked) == ["ifeval_1", "ifeval_2"]
    assert f"ifeval {judged[1]['eval/ifeval/score']:.3f}" in done.stderr


def test_a_retired_model_is_refused_with_what_there_is_and_nothing_is_written(visit, tinker_server):
    home, done = visit
    offer = rf"http\S+ does not offer '{LLAMA}' \(Tinker retired it on 2026-06-12\)\. Choose one that it offers: "
    refused = json.loads(done.stdout)["refused"]
    assert [*refused] == ["train", "sft", "evaluate", "sweep"]
    for said in refused.values():
        assert re.fullmatch(offer + rf"model={tinker_server.model}", said)
    assert not {"runs", "evaluations", "sweep"} & {path.name for path in home.iterdir()}
