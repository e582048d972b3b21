"""Folders that the cookbook's own loops write, without our launch script: reported and evaluated as ours are."""

from __future__ import annotations

import asyncio
import json

import chz
import pytest
from tinker_cookbook.rl import train
from tinker_cookbook.rl.metric_util import RLTestSetEvaluator
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig
from tinker_cookbook.supervised import train as supervised
from tinker_cookbook.utils.ml_log import JsonLogger

from sciscirl import make_builder
from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.report.report import ReportConfig, write_report
from sciscirl.lab.report.runs import read_run
from sciscirl.lab.sft.tinker_backend import GoldDatasetBuilder
from sciscirl.options import TinkerSftOptions
from sciscirl.runs.checkpoints import find_step, read_checkpoints
from sciscirl.task.release import read_split
from tests.sciscirl.toy import RENDERER, Scripted, say
from tests.web_pages import Page

TITLES = {"assay": "disruptive", "review": "consolidating", "survey": "neutral"}


def know(prompt: str) -> str:
    record = json.loads([line for line in prompt.splitlines() if line.startswith('{"title"')][-1])
    return say(next(label for word, label in TITLES.items() if word in record["title"]))


@pytest.fixture
def builder(toy_slice, toy_model):
    more = {"renderer": RENDERER, "max_steps": 2, "batch_size": 3, "hide": ("cited_by_count",), "eval_split": "test"}
    made = make_builder("exp4", str(toy_slice), toy_model, **more)
    return chz.replace(made, has_test=True)


@pytest.fixture
def trained(builder, toy_renderer, tmp_path):
    """What is left of ``rl.train.main``: its configuration, an evaluation before each of some steps, and the steps."""
    config = train.Config(
        learning_rate=1e-5, dataset_builder=builder, model_name=builder.model_name, recipe_name="mine", max_tokens=200,
        log_path=str(tmp_path / "plain"),
    )  # fmt: skip
    logger = JsonLogger(config.log_path)
    logger.log_hparams(config)
    _, test = asyncio.run(builder())
    evaluator = RLTestSetEvaluator(test, config.max_tokens)
    for step, answer in ((0, lambda _: say("neutral")), (1, know)):
        export = RolloutSummaryExportConfig(split="eval/test", iteration=step, base_name="eval_test")
        model = Scripted(toy_renderer.tokenizer, answer)
        asked = evaluator.eval_token_completer(model, rollout_summary_export=export, store=logger.store)
        row = {"env/all/reward/total": 0.1, "optim/kl_sample_train_v2": 0.5 * step, "time/total": 1.0}
        logger.log_metrics(asyncio.run(asked) | row, step=step)
    line = {"name": "final", "batch": 2, "state_path": "tinker://x/weights/f", "sampler_path": "tinker://x/sampler/f"}
    (tmp_path / "plain" / "checkpoints.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    return tmp_path / "plain"


def test_a_report_says_whether_a_run_of_the_cookbooks_own_loop_helped(trained, toy_slice, tmp_path):
    PROGRAM.act(["report", str(trained), "--release", str(toy_slice), "--out", str(tmp_path / "r.html")])
    page = Page((tmp_path / "r.html").read_text("utf-8"))
    n_papers = len(read_split(toy_slice, "test"))
    # That loop samples its evaluations at temperature 1.
    assert "Whether training helped plain is open: a paper has one answer, drawn by chance" in page.text
    assert "macro-F1 1.000" in page.text
    assert "against itself before training (0.167)" in page.text
    assert f"the same {n_papers} papers of test, task disruption." in page.text
    assert f"{n_papers} papers are too few to tell. Prompts withheld: cited_by_count." in page.text
    assert "KL(sampler, trainer) 0.5 > 0.01: sampled and trained probabilities differ (step 1)" in page.text


def test_an_evaluation_asks_as_the_run_was_asked(trained, builder, toy_slice, tmp_path):
    subject = find_subject(EvaluationConfig(run=trained, release=toy_slice, out=tmp_path / "out"))
    assert subject.checkpoint == "tinker://x/sampler/f"
    assert subject.preset.rules == builder.rules()
    assert (subject.preset.model, subject.preset.max_tokens, subject.renderer_name) == (
        builder.model_name, 200, RENDERER
    )  # fmt: skip
    assert subject.eval_split == "test"


def test_a_folder_is_read_whether_or_not_its_builder_has_parts(trained, toy_slice, tmp_path):
    config = EvaluationConfig(run=trained, release=toy_slice, out=tmp_path / "out")
    subject, file = find_subject(config), trained / "config.json"
    written = json.loads(file.read_text("utf-8"))
    builder = written["dataset_builder"]
    for part in ("task", "order", "choice"):
        builder |= builder.pop(part)
    file.write_text(json.dumps(written), "utf-8")
    assert find_subject(config) == subject


def test_supervised_folders_are_read_with_the_steps_of_all_epochs(builder, tmp_path):
    gold = GoldDatasetBuilder(papers=builder, options=TinkerSftOptions(release=builder.release))
    config = supervised.Config(
        log_path=str(tmp_path / "sft"), model_name=builder.model_name, recipe_name="mine", dataset_builder=gold,
        learning_rate=1e-4,
    )  # fmt: skip
    logger = JsonLogger(config.log_path)
    logger.log_hparams(config)
    for step in range(6):
        logger.log_metrics({"epoch": step // 3, "train_mean_nll": 1.0, "num_tokens": 9, "progress": 0.5}, step=step)
    lines = [{"name": "1", "epoch": 1, "batch": 2, "sampler_path": "tinker://x/sampler/1"}]
    lines += [{"name": "final", "epoch": 2, "batch": 0, "sampler_path": "tinker://x/sampler/f"}]
    (tmp_path / "sft" / "checkpoints.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")
    run = read_run(tmp_path / "sft", "sft")
    assert (run.kind, run.n_steps, run.is_finished, run.usage.train) == ("sft", 6, True, 54)
    assert [find_step(tmp_path / "sft", record) for record in read_checkpoints(tmp_path / "sft")] == [5, 6]


def test_a_run_of_another_environment_is_named_and_left_out(tmp_path):
    config = {"dataset_builder": {"batch_size": 4}, "model_name": "meta-llama/Llama-3.2-1B", "learning_rate": 1e-4}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(RunFolderError, match=r"is a run of the cookbook on another environment\. Leave this run out\."):
        write_report(ReportConfig(runs=(tmp_path,), out=tmp_path / "r.html"))
    with pytest.raises(SciSciRLError, match=r"cookbook on another environment, .* Leave EvaluationConfig\.run out"):
        find_subject(EvaluationConfig(run=tmp_path, release=tmp_path, out=tmp_path / "out"))


@pytest.mark.parametrize(
    ("change", "said"), [({"release": "/gone"}, "its release is None"), ({"task": {"style": 3}}, "style is 3")]
)
def test_a_damaged_folder_of_the_cookbook_is_named_by_its_own_file(trained, toy_slice, tmp_path, change, said):
    config = json.loads((trained / "config.json").read_text("utf-8"))
    config["dataset_builder"] |= change
    (trained / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(SciSciRLError, match=rf"plain/config\.json does not describe a training run \(.*{said}"):
        find_subject(EvaluationConfig(run=trained, release=toy_slice, out=tmp_path / "out"))
    file = tmp_path / "plain" / "metrics.jsonl"
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl is not the folder of a run"):
        find_subject(EvaluationConfig(run=file, release=toy_slice, out=tmp_path / "out"))


def test_a_configuration_of_something_else_is_no_run(tmp_path):
    broken = {"dataset_builder": {"target": {"label": 3}}, "model_name": "a/b", "learning_rate": 1e-4}
    (tmp_path / "config.json").write_text(json.dumps(broken), "utf-8")
    with pytest.raises(RunFolderError, match=r"no config\.json of the cookbook"):
        read_run(tmp_path, "x")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    with pytest.raises(RunFolderError, match=r"has no run\.json, and no config\.json of the cookbook"):
        read_run(tmp_path, "x")
    with pytest.raises(RunFolderError, match=r"gone does not exist\. Check the path\."):
        read_run(tmp_path / "gone", "x")
