"""The task as other harnesses get it: nothing leaks, scores are ours, and the real tools run it (just harnesses)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
import yaml

import sciscirl
from sciscidata.errors import ReleaseExistsError
from sciscirl.cli.main import main
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.harnesses.export import FACTS, ExportConfig, Score, Tool, export_task, read_rules, score
from sciscirl.presets import PRESETS
from sciscirl.task.contracts import render_answer
from sciscirl.task.papers import CONTEXT
from sciscirl.task.release import read_split
from tests.conftest import REPOSITORY
from tests.sciscirl.made_runs import make_run
from tests.sciscirl.papers import write_slice
from tests.servers.serving import Handler, Server

N_TEST = 9
#: Titles that tools might take for a template, an end of a line, or markup.
TITLES = ("{{ 7 * 7 }} {% raw %} {0} @NAME@", "a\u2028b\x85c  ", '--prompt="x" \\n ‘é’ 𝒳', "<b>${HOME}</b>")
TOOLS: dict[Tool, str] = {"inspect": "Inspect", "verifiers": "verifiers", "lm-eval": "lm-evaluation-harness"}
#: The tools are those of this day, with all that they need.
NEWEST = "2026-11-20"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{} for _ in range(21 - len(TITLES))] + [{"title": title} for title in TITLES]
    return write_slice(tmp_path_factory.mktemp("harnesses") / "slice", rows, n_test=N_TEST)


@pytest.fixture(scope="module")
def tasks(release: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Tool, Path]:
    folder = tmp_path_factory.mktemp("tasks")
    return {tool: export_task(ExportConfig(release=release, out=folder / tool, to=tool)) for tool in TOOLS}


@pytest.fixture(scope="module")
def exported(tasks: dict[Tool, Path]) -> Path:
    return tasks["inspect"]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def test_prompts_labels_and_scores_are_those_of_training(release: Path, exported: Path, tmp_path: Path) -> None:
    rules, papers = PRESETS["exp4"].rules, read_split(release, "test")
    rows = rows_of(exported / "sciscirl_exp4" / "test.jsonl")
    assert [row["messages"] for row in rows] == [rules.render(paper.view) for paper in papers]
    assert [row["labels"] for row in rows] == [paper.labels("disruption") for paper in papers]
    assert {*rows[0]} == {"id", "messages", "labels", "target"}
    assert "cd_index" not in (exported / "sciscirl_exp4" / "test.jsonl").read_text()
    again = read_rules(exported / "sciscirl_exp4")
    assert again == rules == sciscirl.read_rules(str(exported))
    assert sciscirl.read_rules(make_run(tmp_path / "run", "exp6", evaluations={})) == PRESETS["exp6"].rules
    with pytest.raises(SciSciRLError, match=r"is not the folder of a run"):
        sciscirl.read_rules(tmp_path)
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

    (tmp_path / "Größe (2).toml").write_text('base = "exp4"\n', "utf-8")
    config = ExportConfig(
        release=release, preset=str(tmp_path / "Größe (2).toml"), out=tmp_path / "named", to="verifiers"
    )
    assert 'name = "sciscirl-gr-e-2"' in (export_task(config) / "pyproject.toml").read_text()

    capsys.readouterr()
    assert main([*words, "scored", "--out", str(tmp_path / "scored")]) == 1
    assert re.search(r"reward 'near' is the function near.*sciscirl evaluate", capsys.readouterr().err)
    assert not (tmp_path / "scored").exists()


def answer_to(question: str) -> tuple[str, str]:
    """Say neutral to every question, and why the answer ended: some keep no contract, some are cut off when whole."""
    kind = hashlib.sha256(question.strip().encode()).digest()[1] % 3
    text = "It is neutral." if kind == 0 else '\n{"disruption_label": "neutral", "confidence": 0.6} '
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


@pytest.fixture
def model() -> Generator[ChatServer]:
    with ChatServer() as server:
        yield server


class Ours(NamedTuple):
    """What ``evaluate --chat-url`` asks, and what each paper earns."""

    asked: list[dict[str, Any]]
    rewards: dict[str, float]


@pytest.fixture(scope="module")
def ours(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Ours:
    folder = tmp_path_factory.mktemp("ours") / "evaluation"
    with ChatServer() as server:
        config = EvaluationConfig(release=release, out=folder, preset="exp4", model="model", chat_url=server.url)
        asyncio.run(evaluate_model(config))
    rows = pl.read_parquet(folder / "predictions.parquet")
    assert {"", "cut_off", "not_json"} == {*rows["problem"]}
    return Ours(server.asked, dict(zip(rows["openalex_id"], rows["reward"], strict=True)))


def words_of(tool: Tool, exported: Path, model: str = "MODEL", url: str = "URL") -> list[str]:
    """Read what the exported README says to type."""
    text = (exported / "README.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(f"- {TOOLS[tool]}: ")]
    return shlex.split(re.findall("`(.*?)`", line)[-1].replace("MODEL", model).replace("URL", url))


def check_requests(asked: list[dict[str, Any]], ours: Ours) -> None:
    """Check that a tool asks as ``evaluate --chat-url``, word for word, and about each paper once."""
    names = {"messages", "max_tokens", "temperature", "top_p"}
    assert all(body.keys() - {"model"} == names for body in ours.asked)
    # A seed and an empty list change no answer of this kind, and a stream brings the same text.
    assert {name for body in asked for name in body} <= {*names, "model", "seed", "stop", "stream"}
    assert not any(body.get("stop") or body.get("stream") for body in asked)
    sent = [sorted(json.dumps([body[name] for name in sorted(names)]) for body in one) for one in (asked, ours.asked)]
    assert sent[0] == sent[1]


def check_source(results: Path, folder: Path) -> None:
    """Check that the results name the release and the prompt."""
    facts, text = json.loads((folder / "sciscirl_exp4" / FACTS).read_text()), results.read_text()
    assert facts["release"]["manifest_sha256"] in text
    assert facts["rules"]["prompt_sha256"] in text


def test_the_page_says_to_type_what_the_export_says(tasks: dict[Tool, Path]) -> None:
    page = (REPOSITORY / "docs" / "rl" / "harnesses.md").read_text("utf-8")
    for tool, folder in tasks.items():
        assert f"\n{shlex.join(words_of(tool, folder))}\n" in page.replace("\\\n  ", "")


def run(command: str, *words: object, needs: Sequence[str | Path], cwd: Path) -> str:
    """Run a command of ``needs[0]`` in an environment that uv makes and keeps, with this package without its extras.

    Without SCISCI_HARNESSES, only in CI, and only the tool that starts quickly.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    is_wanted = "SCISCI_HARNESSES" in os.environ or ("CI" in os.environ and command == "inspect")
    if not is_wanted or uv is None:
        pytest.skip("the tool needs packages of its own, and uv to fetch them: just harnesses")
    packages = ["--from", needs[0], *(f"--with={need}" for need in needs[1:]), "--with-editable", REPOSITORY]
    options = ["--python", sys.executable, "--exclude-newer", NEWEST, *packages]
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env = {**ours, "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(cwd / "cache")}
    done = subprocess.run(
        [uv, "tool", "run", *map(str, options), command, *map(str, words)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_what_an_export_calls_loads_neither_torch_nor_tinker() -> None:
    program = "import sys, sciscirl.lab.harnesses.export; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert not {"torch", "tinker", "tinker_cookbook", "transformers"} & {*done.stdout.split()}


@pytest.mark.slow
def test_an_export_is_written_and_judged_where_torch_and_tinker_are_not_installed(
    release: Path, tmp_path: Path
) -> None:
    words = ("export-task", "--release", release, "--out", tmp_path / "task", "--to", "verifiers")
    run("sciscirl", *words, needs=[REPOSITORY], cwd=tmp_path)
    program = """
import sys
from importlib.util import find_spec
from pathlib import Path
from sciscirl.lab.harnesses.export import read_rules, score, score_parts
assert not any(map(find_spec, ("torch", "tinker", "tinker_cookbook", "transformers")))
text, labels = '{"disruption_label": "neutral", "confidence": 0.6}', {"disruption_label": "neutral"}
rules = read_rules(Path(sys.argv[1]))
print(score(text, labels, rules).reward, score_parts(text, labels, rules, "length")["contract"])
"""
    said = run("python", "-c", program, tmp_path / "task" / "sciscirl_exp4", needs=[REPOSITORY], cwd=tmp_path)
    assert said == "1.05 -0.75\n"


@pytest.mark.slow
def test_inspect_asks_and_pays_as_we_do(tasks: dict[Tool, Path], ours: Ours, model: ChatServer, tmp_path: Path) -> None:
    # It takes an unknown name for a model without temperature.
    words = words_of("inspect", tasks["inspect"], "openai/gpt-4o")
    options = ["-M", "responses_api=false", "--model-base-url", model.url]
    logs = ["--log-dir", tmp_path, "--log-format", "json", "--display", "plain"]
    run(*words, *options, *logs, needs=["inspect-ai==0.3.285", "openai>=3.4"], cwd=tasks["inspect"])
    (log,) = tmp_path.glob("*.json")
    samples = json.loads(log.read_text())["samples"]
    check_source(log, tasks["inspect"])
    assert {one["id"]: one["scores"]["contract"]["value"]["reward"] for one in samples} == ours.rewards
    check_requests(model.asked, ours)


@pytest.mark.slow
def test_verifiers_asks_and_pays_as_we_do(
    tasks: dict[Tool, Path], ours: Ours, model: ChatServer, tmp_path: Path
) -> None:
    folder, needs = tasks["verifiers"], ["verifiers==0.4.0", tasks["verifiers"]]
    program = "import sciscirl_exp4 as task; print(len(list(task.load_environment(split='train').taskset)))"
    assert run("python", "-c", program, needs=needs, cwd=tmp_path) == "12\n"
    options = ["--output-dir", tmp_path / "runs", "--no-rich"]
    shutil.copy(folder / "eval.toml", tmp_path)
    run(*words_of("verifiers", folder, "model", model.url), *options, needs=needs, cwd=tmp_path)
    (file,) = tmp_path.rglob("traces.jsonl")
    check_source(file, folder)
    traces = [trace for row in rows_of(file) for trace in row["traces"]]
    rewards = {one["task"]["data"]["id"]: one["rewards"]["reward"]["score"] for one in traces}
    assert rewards == ours.rewards
    for one in traces:
        metrics = one["metrics"]
        assert metrics.keys() == {"correct", "valid", "parse", "contract", "task", "think"}
        parts = sum(metrics[name] for name in ("parse", "contract", "task", "think"))
        assert parts == pytest.approx(one["rewards"]["reward"]["score"])
    check_requests(model.asked, ours)


@pytest.mark.slow
def test_lm_evaluation_harness_asks_and_pays_as_we_do(
    tasks: dict[Tool, Path], ours: Ours, model: ChatServer, tmp_path: Path
) -> None:
    words = words_of("lm-eval", tasks["lm-eval"], "model", model.url)
    options = ["--log_samples", "--output_path", tmp_path]
    run(*words, *options, needs=["lm-eval[api]==0.4.13"], cwd=tasks["lm-eval"])
    (results,), (file,) = tmp_path.rglob("results_*.json"), tmp_path.rglob("samples_*.jsonl")
    check_source(results, tasks["lm-eval"])
    assert {row["doc"]["id"]: row["reward"] for row in rows_of(file)} == ours.rewards
    check_requests(model.asked, ours)


def test_the_files_of_the_tools_can_be_read_without_them(tasks: dict[Tool, Path]) -> None:
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))
    facts = yaml.load((tasks["lm-eval"] / "sciscirl_exp4_test.yaml").read_text(), loader)
    assert (facts["task"], facts["test_split"]) == ("sciscirl_exp4_test", "test")
    assert tomllib.loads((tasks["verifiers"] / "pyproject.toml").read_text())["project"]["name"] == "sciscirl-exp4"
    for folder in tasks.values():
        told = json.loads((folder / "sciscirl_exp4" / FACTS).read_text())
        texts = {
            path: path.read_text() for path in folder.rglob("*") if path.suffix in (".py", ".yaml", ".toml", ".md")
        }
        for path in [path for path in texts if path.suffix == ".py"]:
            compile(texts[path], str(path), "exec")
        assert not re.findall("@[A-Z]+@", "".join(texts.values()))
        for words in (
            f"seed {told['release']['seed']}",
            told["release"]["manifest_sha256"],
            told["rules"]["prompt_sha256"],
        ):
            assert words in texts[folder / "README.md"]
