"""The page that adds a model to the ladder, typed with a tiny model; and a model on an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import gc
import json
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import replace

import pytest

import sciscidata as ssd
from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import SciSciRLError
from sciscirl.lab.analysis.baselines import BASELINES
from sciscirl.lab.analysis.compare import CompareConfig
from sciscirl.lab.evaluation.chat_server import ANSWERS_FILE
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.report.comparison import compare_files
from sciscirl.lab.report.layout import show_estimate
from sciscirl.metrics.predictions import read_predictions
from tests.conftest import REPOSITORY
from tests.docs.test_examples import blocks_of
from tests.sciscirl.toy import LABELS, make_slice, say
from tests.servers.serving import Handler, Server

PAGE = REPOSITORY / "docs/rl/benchmark.md"
NOTE = REPOSITORY / "benchmarks/notes/benchmark.md"
WORDS = dict(zip(("assay", "review", "survey"), LABELS, strict=True))
#: Shows each command instead of running it, its words in quotes.
SHOW = 'sciscirl() { printf "%q " "$@"; echo; }\n'


def test_the_recipe_gives_the_ladder_and_a_second_time_repeats_nothing(random_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_slice(tmp_path / "slices/example", ceiling={"accuracy": 0.9, "macro_f1": 0.9, "works": 9})
    typed = [block.code for block in blocks_of(PAGE) if block.language == "bash"]
    model, ladder = (next(code for code in typed if name in code) for name in ("ASK=", "MODELS="))
    local = "\n".join(model.splitlines()[:4]).replace("smollm2", str(random_model))

    def list_commands() -> list[list[str]]:
        typed = subprocess.run(
            ["bash", "-ec", SHOW + local + "\n" + ladder], capture_output=True, text=True, check=True
        )
        return [shlex.split(line) for line in typed.stdout.splitlines()]

    for name, *words in list_commands()[:-2]:
        PROGRAM.call(name, words, set())
    commands = list_commands()
    assert [name for name, *_ in commands] == ["sft", "compare", "report"]
    before = (tmp_path / "benchmark/training/metrics.jsonl").read_bytes()
    capsys.readouterr()
    for name, *words in commands:
        PROGRAM.call(name, words, set())
    assert (tmp_path / "benchmark/training/metrics.jsonl").read_bytes() == before
    scores = json.loads((tmp_path / "benchmark/comparison/comparison.json").read_text("utf-8"))["scores"]
    models = ["zero_shot", "logprobs", "sft", "sft_logprobs"]
    assert [*scores] == [*sorted(BASELINES), *models]
    files = [str(tmp_path / f"benchmark/comparison/results/{name}.result.json") for name in models]
    again = compare_files(files, CompareConfig())
    assert again.scores["sft"]["label_match"].value == scores["sft"]["label_match"]["value"]
    assert again.saw["sft"] == "title, abstract, field"
    assert scores["majority"]["label_match"]["value"] == pytest.approx(1 / 3)
    assert scores["words"]["label_match"]["value"] == 1.0  # titles tell the label
    assert all(0 <= one["label_match"]["low"] <= one["label_match"]["value"] for one in scores.values())
    assert "ceiling/label_match 0.900" in capsys.readouterr().out
    assert "0.9" in (tmp_path / "benchmark/benchmark.html").read_text("utf-8")


def test_the_table_of_the_note_is_what_its_own_result_files_say():
    compared = compare_files([str(REPOSITORY / "benchmarks/ladder")], CompareConfig(reference="at_publication"))
    differences = {pair.left: show_estimate(pair.differences["label_match"], signed=True) for pair in compared.pairs}
    rows = {
        name: [show_estimate(scores["label_match"]), differences.get(name, ""), compared.saw[name]]
        for name, scores in compared.scores.items()
    }
    text = NOTE.read_text("utf-8")
    table = text[text.index("| | label_match") :].partition("\n\n")[0].splitlines()[2:]
    shown = {name: cells for name, *cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in table)}
    assert shown == {name: rows[name] for name in shown}
    assert {*rows} - {*shown} == {"prior_random"}


@contextmanager
def chat_server(answer):
    """Serve ``/v1/chat/completions``: ``answer`` makes status and choice of what was asked."""
    asked = []

    class Asked(Handler):
        def do_POST(self):
            body = json.loads(self.body())
            asked.append((self.path, self.headers["Authorization"], body))
            status, choice = answer(body["messages"][1]["content"])
            self.send(status, {"choices": [choice]} if status == 200 else {"error": "no such model"})

    with Server(Asked) as server:
        yield f"{server.url}/v1", asked


def test_a_chat_server_is_asked_once_for_each_answer_even_if_it_fails_on_the_way(toy_slice, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    is_down = True

    def answer(question):
        word = next(word for word in WORDS if word in question)
        if word == "survey":
            return (404, None) if is_down else (200, {"message": {"content": None}})
        cut = {"finish_reason": "length"} if word == "review" else {"finish_reason": "stop"}
        return 200, {"message": {"content": say(WORDS[word])}, **cut}

    with chat_server(answer) as (url, asked):
        config = EvaluationConfig(
            release=toy_slice, out=tmp_path / "chat", chat_url=url, model="mine", preset="exp4", hide=("abstract",)
        )
        with pytest.raises(
            SciSciRLError, match=r"gave no answer \(HTTP 404: .*no such model.*only for what is missing"
        ):
            asyncio.run(evaluate_model(config))
        kept = [json.loads(line) for line in (config.out / ANSWERS_FILE).read_text("utf-8").splitlines() if line]
        is_down, n_before = False, len(asked)
        with (config.out / ANSWERS_FILE).open("a") as file:
            file.write('\n{"key": "cut o')
        metrics = asyncio.run(evaluate_model(config))
    questions = [body["messages"][1]["content"] for _, _, body in asked]
    answered = [question for question in questions if "survey" not in question]
    assert len(answered) == len(set(answered)) == 6  # none is asked twice
    assert len(kept) == sum(question in answered for question in questions[:n_before])
    assert sum("survey" in question for question in questions[n_before:]) == 3  # these were refused
    predictions = read_predictions(config.out / "predictions.parquet")
    assert dict(predictions.group_by("gold").agg("label").iter_rows())["disruptive"] == ["disruptive"] * 3
    assert metrics["label_match"] == pytest.approx(1 / 3)  # cut off or empty is wrong
    assert metrics["invalid"] == pytest.approx(2 / 3)
    path, key, body = asked[-1]
    assert (path, key) == ("/v1/chat/completions", "Bearer sk-mine")
    assert (body["model"], body["max_tokens"], body["temperature"], body["top_p"]) == ("mine", 64, 1.0, 1.0)
    said = json.dumps([one["messages"] for _, _, one in asked])
    assert "A survey of thing" in said
    assert not any(hidden in said for hidden in ("We present", "cd_index", "0.5"))
    assert "sk-mine" not in "".join(file.read_text("utf-8") for file in config.out.glob("*.json*"))


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(toy_slice, small_disk):
    disk = small_disk(64)
    long = " " * 20_000  # white space around the object is allowed
    config = EvaluationConfig(release=toy_slice, out=disk / "chat", model="mine", preset="exp4", chat_url="x")
    with chat_server(lambda _: (200, {"message": {"content": say("neutral") + long}})) as (url, asked):
        config = replace(config, chat_url=url)
        with pytest.raises(ssd.SciSciDataError, match=r"No space left on device.*The same command goes on"):
            asyncio.run(evaluate_model(config))
        n_asked = len(asked)
        assert n_asked >= 3
        small_disk(1024, grow=True)
        assert asyncio.run(evaluate_model(config))["label_match"] == pytest.approx(1 / 3)
        assert n_asked < len(asked) < 18  # of 9 papers, those with a kept answer are not asked about again


def test_wherever_a_full_disk_cuts_a_result_short_the_same_command_is_possible(toy_slice, small_disk):
    disk = small_disk(64)
    config = EvaluationConfig(release=toy_slice, out=disk / "chat", model="mine", preset="exp4", chat_url="x")
    filler, reasons = disk / "filler", set()
    with chat_server(lambda _: (200, {"message": {"content": say("neutral")}})) as (url, _):
        for n_free in range(2, 11):  # pages of 4 KiB
            one = replace(config, chat_url=url, out=disk / f"chat{n_free}")
            filler.write_bytes(bytes(4096 * (16 - n_free)))
            try:
                asyncio.run(evaluate_model(one))
            except ssd.SciSciDataError as error:
                reasons.add(str(error).partition(": No space left on device")[0].rpartition("/")[2])
                filler.unlink()
                del error
                gc.collect()  # pyarrow's writer holds the file
                asyncio.run(evaluate_model(one))
            assert len(read_predictions(one.out / "predictions.parquet")) == 9
            shutil.rmtree(one.out)
    assert {"predictions.parquet", "run.json"} <= reasons


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"chat_url needs the name of the model"),
        ({"model": "mine", "answers": "logprobs"}, r"answers has no effect: chat_url=... only sends messages"),
        ({"model": "mine", "max_paper_tokens": 5}, r"max_paper_tokens has no effect"),
        ({"model": "mine", "preset": "adversarial"}, r"is adversarial, and chat_url=... asks once"),
        ({"model": "mine", "chat_url": "http://gpu.example/v1"}, r"chat_url is http://gpu.example: the key would"),
    ],
)
def test_what_a_chat_server_cannot_do_is_refused(given, said, toy_slice, tmp_path):
    options = {"release": toy_slice, "out": tmp_path / "chat", "chat_url": "http://127.0.0.1:1/v1"} | given
    with pytest.raises((SciSciRLError, ssd.SciSciDataError), match=said):
        asyncio.run(evaluate_model(EvaluationConfig(**options)))
    assert not (tmp_path / "chat").exists()
