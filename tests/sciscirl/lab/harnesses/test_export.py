"""The task as other harnesses get it: nothing leaks, scores are ours, and the real tools run it (just harnesses)."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sciscidata.errors import ReleaseExistsError
from sciscirl.cli.main import main
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.lab.harnesses.export import FACTS, ExportConfig, Score, export_task, read_rules, score
from sciscirl.presets import PRESETS
from sciscirl.task.contracts import render_answer
from sciscirl.task.papers import CONTEXT
from sciscirl.task.release import read_split
from tests.conftest import REPOSITORY
from tests.sciscirl.papers import write_slice
from tests.servers.serving import Handler, Server

N_TEST = 9
#: The tools are those of this day, with all that they need.
NEWEST = "2026-11-20"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_slice(tmp_path_factory.mktemp("harnesses") / "slice", [{} for _ in range(21)], n_test=N_TEST)


@pytest.fixture(scope="module")
def exported(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_task(ExportConfig(release=release, out=tmp_path_factory.mktemp("tasks") / "exp4"))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_prompts_labels_and_scores_are_those_of_training(release: Path, exported: Path, tmp_path: Path) -> None:
    rules, papers = PRESETS["exp4"].rules, read_split(release, "test")
    rows = rows_of(exported / "sciscirl_exp4" / "test.jsonl")
    assert [row["messages"] for row in rows] == [rules.render(paper.view) for paper in papers]
    assert [row["labels"] for row in rows] == [paper.labels("disruption") for paper in papers]
    assert {*rows[0]} == {"id", "messages", "labels", "target"}
    assert "cd_index" not in (exported / "sciscirl_exp4" / "test.jsonl").read_text()
    again = read_rules(exported / "sciscirl_exp4")
    assert again == rules
    for row in rows:
        gold = render_answer(row["labels"], "two_keys")
        assert score(gold, row["labels"], again) == Score(1.05, 1.0, 1.0)
        assert score(f"Sure: {gold}", row["labels"], again) == Score(-1.0, 0.0, 0.0)
        for end in ("length", "max_tokens", "model_length", "content_filter"):  # of OpenAI's API, and of Inspect
            assert score(gold, row["labels"], again, end) == Score(-0.75, 0.0, 0.0)
        assert score(gold, row["labels"], again, "stop") == score(gold, row["labels"], again, "unknown")
    # A balanced reward needs the training classes, which the folder has: no release is needed to score.
    for preset, target in (("exp6", "joint"), ("novelty", None)):
        config = ExportConfig(release=release, out=tmp_path / preset, preset=preset, target=target, n_papers=6)
        folder = export_task(config) / f"sciscirl_{preset}"
        labels = rows_of(folder / "train.jsonl")[0]["labels"]
        fitted = read_rules(folder)
        best = score(render_answer(labels, fitted.contract, fitted.target), labels, fitted)
        assert best.correct == 1.0 > 0.0 > score("{", labels, fitted).reward


def test_an_exported_prompt_shows_what_papers_built_on_if_it_is_asked_to(
    release: Path, context_slice: Path, tmp_path: Path
) -> None:
    words = ["export-task", "--show", "references", "at_publication"]
    assert main([*words, "--release", str(context_slice), "--out", str(tmp_path / "shown")]) == 0
    rules = read_rules(tmp_path / "shown" / "sciscirl_exp4")
    assert rules == replace(PRESETS["exp4"].rules, show=CONTEXT)
    rows = rows_of(tmp_path / "shown" / "sciscirl_exp4" / "test.jsonl")
    assert [row["messages"] for row in rows] == [rules.render(one.view) for one in read_split(context_slice, "test")]
    assert "34 references, 30 with a year" in rows[1]["messages"][1]["content"]
    with pytest.raises(ReleaseError, match=r"sciscidata build \.\.\. --context"):
        export_task(ExportConfig(release=release, out=tmp_path / "none", show=CONTEXT))
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_exported_is_refused(
    release: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ReleaseExistsError, match="already exists"):
        export_task(ExportConfig(release=release, out=exported))
    with pytest.raises(SciSciRLError, match="adversarial"):
        export_task(ExportConfig(release=release, out=tmp_path / "a", preset="adversarial"))
    (tmp_path / FACTS).write_text("{}")
    with pytest.raises(SciSciRLError, match=r"task\.json cannot be read"):
        read_rules(tmp_path)
    assert main(["export-task", "--release", str(release), "--out", str(tmp_path / "b"), "--n-papers", "3"]) == 0
    assert "README.md" in capsys.readouterr().out
    assert len(rows_of(tmp_path / "b" / "sciscirl_exp4" / "test.jsonl")) == 3


PLUGIN = """
import sciscirl
sciscirl.register_reward("timid", base="strong", wrong=-0.1)
sciscirl.register_prompt("brief", system="$task $answer", user="$title")
sciscirl.register_preset("mild", base="exp4", reward="timid", style="brief")
def near(answer, paper):
    return 1.0 if answer.labels == paper.labels("disruption") else -0.5 * abs(paper.gold.scores["cd_index"])
sciscirl.register_reward("near", function=near)
sciscirl.register_preset("scored", base="exp4", reward="near")
"""


def test_what_a_plugin_adds_is_exported_unless_it_is_code_that_sees_scores(
    release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    words = ["export-task", "--release", str(release), "--plugin", str(plugin), "--preset"]
    assert main([*words, "mild", "--out", str(tmp_path / "mild")]) == 0
    folder = tmp_path / "mild" / "sciscirl_mild"
    (row, *_), program = rows_of(folder / "test.jsonl"), "from sciscirl.lab.harnesses.export import *; import sys, json"
    program += (
        "; text, labels = json.loads(sys.argv[2]); print(score(text, labels, read_rules(Path(sys.argv[1]))).reward)"
    )
    wrong = next(label for label in ("neutral", "disruptive") if label not in row["target"])
    said = json.dumps([render_answer(wrong, "two_keys"), row["labels"]])
    # Another process, which has not run the plugin, pays the same.
    command = [sys.executable, "-c", program, str(folder), said]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert float(done.stdout) == -0.05
    assert row["messages"][1]["content"].startswith('"')  # the title alone

    capsys.readouterr()
    assert main([*words, "scored", "--out", str(tmp_path / "scored")]) == 1
    assert re.search(r"reward 'near' is the function near.*sciscirl evaluate", capsys.readouterr().err)
    assert not (tmp_path / "scored").exists()


def answer_to(question: str) -> tuple[str, str]:
    """Say neutral to every question, and why the answer ended: some keep no contract, some are cut off when whole."""
    kind = hashlib.sha256(question.strip().encode()).digest()[0] % 3
    text = "It is neutral." if kind == 0 else '{"disruption_label": "neutral", "confidence": 0.6}'
    return text, "length" if kind == 1 else "stop"


class ChatServer(Server):
    """A model behind OpenAI's chat API: the same answer to the same question, and sometimes no JSON."""

    def __init__(self) -> None:
        super().__init__(ChatHandler)
        self.url += "/v1"
        self.asked: list[dict[str, Any]] = []  # whole requests


class ChatHandler(Handler):
    server: ChatServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.body())
        self.server.asked.append(body)
        text, end = answer_to(body["messages"][-1]["content"])
        reply = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "usage": usage}
        whole["choices"] = [{"index": 0, "message": reply, "finish_reason": end}]
        self.send(200, whole, {"Content-Type": "application/json"})


def expected(exported: Path) -> dict[str, float]:
    """The means that a harness has to find: each answer follows from its question."""
    folder = exported / "sciscirl_exp4"
    rows, rules = rows_of(folder / "test.jsonl"), read_rules(folder)
    answers = [answer_to(row["messages"][-1]["content"]) for row in rows]
    assert {end for _, end in answers} == {"stop", "length"}
    found = [score(text, row["labels"], rules, end)._asdict() for (text, end), row in zip(answers, rows, strict=True)]
    means = {name: math.fsum(one[name] for one in found) / len(found) for name in Score._fields}
    assert 0 < means["correct"] < means["valid"] < 1
    return means


@pytest.fixture
def model() -> Generator[ChatServer]:
    with ChatServer() as server:
        yield server


def words_of(tool: str, exported: Path, model: str = "model") -> list[str]:
    """Read what the exported README says to type."""
    (line,) = [line for line in (exported / "README.md").read_text().splitlines() if line.startswith(f"- {tool}: ")]
    return shlex.split(re.findall("`(.*?)`", line)[-1].replace("MODEL", model))


def check_requests(model: ChatServer, release: Path) -> None:
    """Check that each paper was asked about once, exactly as an evaluation of the preset asks."""
    preset = PRESETS["exp4"]
    messages = [preset.rules.render(paper.view) for paper in read_split(release, "test")]
    assert sorted(map(json.dumps, messages)) == sorted(json.dumps(body["messages"]) for body in model.asked)
    sampling = {"max_tokens": 64, "temperature": preset.judging.eval_temperature, "top_p": preset.judging.eval_top_p}
    assert preset.max_tokens == 64
    for body in model.asked:
        assert {name: body.get(name) for name in sampling} == sampling
        assert not body.keys() & {"tools", "functions", "n", "response_format", "logit_bias"}
        assert not body.get("stop")


def test_the_page_says_to_type_what_the_export_says(exported: Path) -> None:
    page = (REPOSITORY / "docs" / "rl" / "harnesses.md").read_text("utf-8")
    for tool in ("Inspect",):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| [{tool}]")]
        assert shlex.join(words_of(tool, exported, "MODEL")) in row


def run(command: str, *words: object, needs: Sequence[str], cwd: Path) -> None:
    """Run a tool of ``needs[0]`` in an environment that uv makes and keeps.

    Without SCISCI_HARNESSES, only in CI, and only the tool that starts quickly.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    is_wanted = "SCISCI_HARNESSES" in os.environ or ("CI" in os.environ and command == "inspect")
    if not is_wanted or uv is None:
        pytest.skip("the tool needs packages of its own, and uv to fetch them: just harnesses")
    packages = ["--from", needs[0], *(f"--with={need}" for need in needs[1:]), f"--with-editable={REPOSITORY}"]
    options = ["--python", sys.executable, "--exclude-newer", NEWEST, *packages]
    done = subprocess.run(
        [uv, "tool", "run", *options, command, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(cwd), "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_inspect_runs_the_task_with_our_reward(
    release: Path, exported: Path, model: ChatServer, tmp_path: Path
) -> None:
    words = words_of("Inspect", exported, "openai/gpt-4o")  # it takes an unknown name for a model without temperature
    options = ["-M", "responses_api=false", "--model-base-url", model.url]
    logs = ["--log-dir", tmp_path, "--log-format", "json", "--display", "plain"]
    needs = ["inspect-ai==0.3.285", "openai>=3.4"]
    run(*words, *options, *logs, needs=needs, cwd=exported)
    (log,) = tmp_path.glob("*.json")
    results = json.loads(log.read_text())["results"]["scores"]
    found = {one["name"]: one["metrics"]["mean"]["value"] for one in results}
    assert found == pytest.approx(expected(exported))
    check_requests(model, release)


def test_the_files_of_the_tools_can_be_read_without_them(exported: Path) -> None:
    for path in exported.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
    texts = [path.read_text() for path in exported.rglob("*") if path.suffix in (".py", ".yaml", ".toml", ".md")]
    assert not re.findall("@[A-Z]+@", "".join(texts))
