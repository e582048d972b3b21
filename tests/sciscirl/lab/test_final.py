"""Checkpoints are chosen by dev or held-out papers; test judges the chosen one once, and every look is counted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.lab.analysis.baselines import evaluate_baselines
from sciscirl.lab.analysis.compare import CompareConfig
from sciscirl.lab.analysis.select_checkpoint import select_checkpoint
from sciscirl.lab.commands import compare, report
from sciscirl.lab.evaluation import evaluate
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.final import judge_finally
from sciscirl.lab.hardware_options import PeftSftOptions
from sciscirl.lab.report.comparison import compare_files
from sciscirl.lab.report.runs import read_runs
from sciscirl.lab.report.views import view_runs
from sciscirl.lab.sft.examples import list_settings, make_papers_builder
from sciscirl.lab.training.rl import make_config, make_run_builder
from sciscirl.metrics.predictions import read_predictions
from sciscirl.options import ModelCodeOptions, PluginOptions, TrainOptions, resolve_run
from sciscirl.presets import find_preset
from sciscirl.runs.checkpoints import count_test_looks
from sciscirl.runs.logs import write_json
from sciscirl.runs.record import describe_run
from sciscirl.task.release import Part, read_split
from tests.sciscirl.made_runs import make_evaluation, make_predictions, make_run
from tests.sciscirl.toy import RENDERER, Scripted, make_slice, say


@pytest.fixture(scope="module")
def dev_slice(tmp_path_factory):
    return make_slice(tmp_path_factory.mktemp("dev") / "slice", 24, 9, n_dev=6)


@pytest.fixture
def asked(toy_renderer, monkeypatch):
    """A server that says neutral to everything; what it was asked."""
    policy = Scripted(toy_renderer.tokenizer, lambda _: say("neutral"))
    weights = []

    async def ask(evaluator, subject, base_url):
        weights.append(subject.checkpoint)
        await evaluator.eval_token_completer(policy)

    monkeypatch.setattr(evaluate, "_ask_server", ask)
    monkeypatch.setattr("sciscirl.runs.server_checks.check_server", lambda *_, **__: None)
    return weights


@pytest.fixture
def run_of(tmp_path, toy_model):
    def make(release, name="run", *, best=2, preset="exp7", **settings):
        known = {"model": toy_model, "renderer": RENDERER, "learning_rate": 1e-4, **settings}
        skills = {step: 0.9 if step == best else 0.1 for step in (0, 2)}
        tables = {step: make_predictions(find_preset(preset), 30, skill=skill) for step, skill in skills.items()}
        digest = describe_run(release, {})["release"]["manifest_sha256"]
        return make_run(
            tmp_path / name, preset, evaluations=tables, settings=known, manifest_sha256=digest, sealed=True
        )

    return make


def read_settings(folder):
    return json.loads((folder / "run.json").read_text("utf-8"))["settings"]


# --- by which papers ----------------------------------------------------------------------------------------------


def test_training_is_judged_by_dev_if_there_is_one_else_the_published_presets_by_test(
    options, toy_slice, dev_slice, toy_model
):
    del options["eval_split"]
    for release, split, published in ((toy_slice, "held_out", "test"), (dev_slice, "dev", "dev")):
        common = options | {"release": str(release), "batch_size": 4}
        for name, expected in {"exp6": split, "just_rl": split, "exp4": published, "two_keys": published}.items():
            run = TrainOptions(**common | {"preset": name})
            builder = make_run_builder(resolve_run(run))
            assert builder.eval_split == expected, name
            given = make_run_builder(resolve_run(replace(run, eval_split="held_out")))
            assert (given.eval_split, given.n_held_out()) == ("held_out", 4)
        supervised = PeftSftOptions(**common)
        builder = make_papers_builder(resolve_run(supervised))
        assert builder.eval_split == split
        settings = list_settings(resolve_run(supervised), builder)
        assert (settings["eval_split"], settings.get("n_held_out")) == (split, 4 if split == "held_out" else None)


def test_a_run_that_is_judged_by_dev_never_opens_the_test_split(options, tmp_path):
    release = make_slice(tmp_path / "slice", 24, 9, n_dev=6)
    (release / "test.parquet").write_bytes(b"nobody looks")
    del options["eval_split"]
    config = make_config(
        resolve_run(TrainOptions(**options | {"release": str(release), "preset": "exp6"}, max_steps=1))
    )
    papers = config.dataset_builder.eval_papers()
    assert papers == read_split(release, "dev")
    (evaluator,) = [make() for make in config.evaluator_builders]
    assert (evaluator.name, len(evaluator.env_group_builders_P)) == ("dev", 6)


# --- the final evaluation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "more"), [("dev", {}), ("held_out", {"n_held_out": 4})])
def test_the_selected_checkpoint_is_judged_by_test_once(dev_slice, run_of, asked, split, more):
    run = run_of(dev_slice, eval_split=split, **more)
    assert select_checkpoint(run).chosen.step == 2
    assert count_test_looks(run) == 0
    (final,) = asyncio.run(judge_finally([run], dev_slice))
    (again,) = asyncio.run(judge_finally([run], dev_slice))
    assert final == again == run / "final"
    assert asked == ["tinker://x/final"]
    papers = [paper.openalex_id for paper in read_split(dev_slice, "test")]
    assert read_predictions(final / "predictions.parquet")["openalex_id"].to_list() == papers
    settings = read_settings(final)
    assert settings["selected"] == {"step": 2, "metric": "macro_f1", "split": split}
    assert (settings["split"], settings["n_test_looks"], count_test_looks(run)) == ("test", 1, 1)


def test_the_last_checkpoint_stands_beside_the_selected_one_and_each_row_says_its_step(
    dev_slice, run_of, asked, tmp_path
):
    run = run_of(dev_slice, "rl", best=0, eval_split="dev")
    facts = json.loads((run / "run.json").read_text("utf-8"))
    facts["begun_from"] = {"folder": "sft", "kind": "sft", "step": 48, "path": "tinker://sft/weights/final"}
    facts["settings"]["load_checkpoint"] = facts["begun_from"]["path"]
    write_json(run / "run.json", facts)
    for _ in range(2):  # the second time nothing is asked
        assert asyncio.run(judge_finally([run], dev_slice)) == [run / "final", run / "last"]
    assert asked == ["tinker://sft/sampler_weights/final", "tinker://x/final"]
    assert count_test_looks(run) == 2
    runs = read_runs([run])
    assert [one.name for one in runs] == ["rl", "rl, final, step 0", "rl, last, step 2"]
    table = view_runs(runs).tables[0]
    steps = [row[table.head.index("judged at step")] for row in table.rows]
    assert steps == ["2", "0 (sft, step 48), chosen by dev", "2"]


def test_an_evaluation_of_a_run_says_of_which_step_the_weights_are(dev_slice, run_of, asked, tmp_path):
    run = run_of(dev_slice, "rl", eval_split="dev")
    for step in (None, 0):
        asyncio.run(evaluate_model(EvaluationConfig(release=dev_slice, run=run, step=step, out=tmp_path / str(step))))
    table = view_runs(read_runs([tmp_path / "None", tmp_path / "0"])).tables[0]
    assert [row[table.head.index("judged at step")] for row in table.rows] == ["2", "0 (the base model)"]


def test_every_evaluation_of_a_run_on_test_counts_and_others_do_not(dev_slice, run_of, asked, tmp_path):
    run = run_of(dev_slice, eval_split="held_out", n_held_out=4)
    look = {"release": dev_slice, "run": run}
    asyncio.run(evaluate_model(EvaluationConfig(**look, out=tmp_path / "own", n_papers=3)))
    assert (read_settings(tmp_path / "own")["split"], read_settings(tmp_path / "own")["n_papers"]) == ("held_out", 3)
    evaluate_baselines(EvaluationConfig(**look, out=tmp_path / "baselines"))
    judged = read_predictions(tmp_path / "baselines" / "majority" / "predictions.parquet")["openalex_id"]
    kept = Part(dev_slice, "held_out", n_held_out=4).read("disruption")
    assert judged.to_list() == [paper.openalex_id for paper in kept]
    assert count_test_looks(run) == 0
    for number in (1, 2):
        asyncio.run(evaluate_model(EvaluationConfig(**look, split="test", out=tmp_path / f"test{number}")))
        assert count_test_looks(run) == read_settings(tmp_path / f"test{number}")["n_test_looks"] == number
    asyncio.run(judge_finally([run], dev_slice))
    assert read_settings(run / "final")["n_test_looks"] == 3


def test_what_test_has_chosen_or_another_release_has_trained_is_not_judged_finally(
    dev_slice, toy_slice, run_of, asked, tmp_path
):
    published = run_of(dev_slice, "published", preset="exp4")
    assert count_test_looks(published) == 2
    with pytest.raises(RunFolderError, match="no training run was judged by dev or held-out papers"):
        asyncio.run(judge_finally([published], dev_slice))
    run = run_of(dev_slice, eval_split="dev")
    with pytest.raises(RunFolderError, match="trained on another release than"):
        asyncio.run(judge_finally([published, run], toy_slice))
    assert not asked
    with pytest.raises(SciSciRLError, match="--final judges by a release"):
        report(
            (run,), lambda **given: evaluate_report(tmp_path, **given), ModelCodeOptions(), PluginOptions(), final=True
        )


def evaluate_report(tmp_path, **given):
    from sciscirl.lab.report.report import ReportConfig

    return ReportConfig(out=tmp_path / "report.html", **given)


def test_a_report_shows_the_final_evaluation_and_how_often_test_was_looked_at(dev_slice, run_of, asked, tmp_path):
    run, published = run_of(dev_slice, eval_split="dev"), run_of(dev_slice, "published", preset="exp4")
    config = lambda **given: evaluate_report(tmp_path, release=dev_slice, **given)  # noqa: E731
    report((run, published), config, ModelCodeOptions(), PluginOptions(), final=True)
    runs = read_runs([run, published])
    assert [(one.name, one.split, one.n_test_looks) for one in runs] == [
        ("run", "dev", 1), ("run, final, step 2", "test", None), ("published", "test", 2)
    ]  # fmt: skip
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "run, final" in page
    assert "looks at test" in page
    assert [one.name for one in read_runs([run, run / "final"])] == ["run", "final"]  # once, not twice


# --- how pairs were asked -----------------------------------------------------------------------------------------


def test_a_pair_that_was_asked_otherwise_is_marked(tmp_path, capsys):
    preset = find_preset("exp4")
    table = make_predictions(preset, 30)
    run = make_run(tmp_path / "run", evaluations={2: table}, settings={"renderer": "qwen3", "learning_rate": 1e-4})
    same = read_settings(run) | {"temperature": 0.0, "top_p": 1.0, "dtype": "float32"}
    del same["learning_rate"]
    alike = make_evaluation(tmp_path / "alike", table, same)
    unlike = make_evaluation(tmp_path / "unlike", table, same | {"style": "plain", "dtype": "bfloat16"})
    baseline = make_evaluation(tmp_path / "majority", table, {"baseline": "majority"})
    words = [str(folder) for folder in (run, alike, unlike, baseline)]
    pairs = {(pair.left, pair.right): pair for pair in compare_files(words, CompareConfig(n_resamples=20)).pairs}
    marked = {names: pair.asked_otherwise for names, pair in pairs.items() if pair.asked_otherwise}
    assert len(pairs) == 6
    assert [*marked.values()] == [("style",), ("style", "dtype")]  # the run states no number format
    assert all("unlike" in right for _, right in marked)
    compare(tuple(words), CompareConfig(n_resamples=20), PluginOptions())
    assert capsys.readouterr().out.count("style, dtype") == 3  # a line for each measure
