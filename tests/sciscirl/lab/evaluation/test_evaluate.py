from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinker_cookbook.eval.evaluators import SamplingClientEvaluator

from sciscidata.errors import SciSciDataError
from sciscirl.errors import PromptError, ReleaseError, SciSciRLError
from sciscirl.lab.analysis.baselines import (
    BASELINES,
    evaluate_baselines,
    run_baseline,
)
from sciscirl.lab.analysis.compare import CompareConfig
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model, evaluate_predictions
from sciscirl.lab.evaluation.results import measure, render_metrics, render_results, save_evaluation
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.evaluator import AnswerSampling, LabelEvaluator, TopPCompleter
from sciscirl.lab.report.comparison import compare_files, render_comparison
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import read_predictions, write_predictions
from sciscirl.runs.logs import open_store
from sciscirl.task.contracts import render_answer
from sciscirl.task.experiment import HISTORICAL_MODEL
from sciscirl.task.papers import TARGETS, VOCABULARIES, Gold, Paper, PaperView
from sciscirl.task.predictions import PREDICTIONS
from sciscirl.task.release import read_split
from sciscirl.task.rules import TaskRules
from tests.sciscirl.tinker_stub import KEY, serve_models
from tests.sciscirl.toy import LABELS, RENDERER, Scripted, make_slice, say

RULES = TaskRules(contract="two_keys", reward="strong")
VIEW = PaperView("On sleep", "We sleep.", 2001, 3, "Neuroscience")
WORDS = {"assay": "disruptive", "review": "consolidating", "survey": "neutral"}


@pytest.fixture(scope="module")
def test_papers(toy_slice):
    return read_split(toy_slice, "test")


def oracle(prompt: str) -> str:
    record = prompt.rpartition('{"title"')[2]
    return next(label for word, label in WORDS.items() if f"A {word} of" in record)


def judge(papers, renderer, choose, **options):
    evaluator = LabelEvaluator(papers, RULES, renderer, AnswerSampling(200), **options)
    metrics = asyncio.run(evaluator.eval_token_completer(Scripted(renderer.tokenizer, choose)))
    return evaluator, metrics


def test_who_knows_the_classes_is_right_everywhere(test_papers, toy_renderer):
    evaluator, metrics = judge(test_papers, toy_renderer, lambda prompt: say(oracle(prompt), 1.0))
    assert isinstance(evaluator, SamplingClientEvaluator)
    assert (metrics["test/label_match"], metrics["test/macro_f1"], metrics["test/mcc"]) == (1.0, 1.0, 1.0)
    assert (metrics["test/brier"], metrics["test/reward"]) == (0.0, pytest.approx(1.05))


def test_predictions_are_in_the_order_of_the_papers_whoever_answers_first(test_papers, toy_renderer):
    class Reversed(Scripted):
        async def __call__(self, model_input, stop, *, max_tokens=None):
            await asyncio.sleep(0.05 / (1 + len(self.prompts)))
            return await super().__call__(model_input, stop, max_tokens=max_tokens)

    evaluator = LabelEvaluator(test_papers, RULES, toy_renderer, AnswerSampling(200))
    policy = Reversed(toy_renderer.tokenizer, lambda prompt: say(oracle(prompt)))
    asyncio.run(evaluator.eval_token_completer(policy))
    assert evaluator.predictions["openalex_id"].to_list() == [paper.openalex_id for paper in test_papers]
    assert evaluator.predictions["gold"].to_list() == evaluator.predictions["label"].to_list()
    assert evaluator.predictions.schema == PREDICTIONS


def test_an_invalid_answer_is_a_miss_and_is_written_down(test_papers, toy_renderer, tmp_path):
    _, metrics = judge(
        test_papers,
        toy_renderer,
        lambda prompt: "?" if oracle(prompt) == "neutral" else say(oracle(prompt)),
        folder=tmp_path,
    )
    assert metrics["test/label_match"] == pytest.approx(2 / 3)
    assert (metrics["test/recall/neutral"], metrics["test/invalid"]) == (0.0, pytest.approx(1 / 3))
    written = read_predictions(tmp_path / "test.parquet")
    assert written.filter(gold="neutral").select("label", "text", "problem").unique().rows() == [
        (None, "?", "not_json")
    ]


def test_a_resumed_run_never_asks_the_same_weights_again(test_papers, toy_renderer, tmp_path):
    """On a server each answer costs money, and would be another one."""

    def fail(_):
        raise ConnectionError("asked")

    def judge_step(step, answer):
        evaluator = LabelEvaluator(
            test_papers, RULES, toy_renderer, AnswerSampling(200), folder=tmp_path / "predictions"
        )
        policy = Scripted(toy_renderer.tokenizer, answer)
        store, export = open_store(tmp_path), evaluator.name_export(step)
        return asyncio.run(evaluator.eval_token_completer(policy, rollout_summary_export=export, store=store))

    first = judge_step(4, lambda prompt: say(oracle(prompt)))
    assert judge_step(4, fail) == first
    with pytest.raises(ConnectionError):
        judge_step(6, fail)


def test_an_error_of_the_server_is_raised_and_not_counted_as_wrong(test_papers, toy_renderer):
    def fail(_):
        raise ConnectionError("server gone")

    with pytest.raises(ConnectionError, match="server gone"):
        judge(test_papers, toy_renderer, fail)


def test_a_joint_task_is_judged_label_by_label_and_as_a_whole(toy_slice, toy_renderer, tmp_path):
    rules = TaskRules(target="joint", contract="two_keys", reward="partial")
    papers = read_split(toy_slice, "test", needs=TARGETS["joint"])
    evaluator = LabelEvaluator(papers, rules, toy_renderer, AnswerSampling(300), folder=tmp_path)

    def choose(prompt: str) -> str:  # knows disruption, and says that everything is balanced
        return render_answer(
            {"disruption_label": oracle(prompt), "novelty_label": "balanced"}, "two_keys", "joint", confidence=0.5
        )

    metrics = asyncio.run(evaluator.eval_token_completer(Scripted(toy_renderer.tokenizer, choose)))
    assert metrics["test/disruption/label_match"] == 1.0
    assert metrics["test/novelty/label_match"] == metrics["test/both_match"] == pytest.approx(1 / 3)
    assert metrics["test/label_match"] == pytest.approx(2 / 3)
    assert metrics["test/min_class_recall"] == metrics["test/novelty/min_class_recall"] == 0.0
    assert metrics["test/reward"] == pytest.approx((1.05 + 0.05 + (1 + 2 * 0.2) / 3) / 2)
    again = evaluate_predictions(tmp_path / "test.parquet")
    assert {name: again[name.removeprefix("test/")] for name in metrics} == metrics
    assert {"novelty/label_match/low", "macro_f1/high", "disruption/recall/neutral/low"} <= set(again)
    assert "novelty/recall/novel" in render_metrics({"run": again})


def test_the_evaluators_temperature_reaches_the_sampler(test_papers, toy_renderer, monkeypatch):
    seen = []

    async def record(self, model_input, stop, *, max_tokens=None):
        seen.append((self.temperature, self.max_tokens))
        return await Scripted(toy_renderer.tokenizer, ["no"])(model_input, stop)

    monkeypatch.setattr(TopPCompleter, "__call__", record)
    evaluator = LabelEvaluator(test_papers[:1], RULES, toy_renderer, AnswerSampling(70, 0.25))
    asyncio.run(evaluator(None))
    assert seen == [(0.25, 70)]


def say_verdicts(name, train, test, target="disruption", seed=0):
    """What a baseline says of each paper: its label, and its forecast."""
    rules = TaskRules(target=target, contract="probabilities", reward="strong")
    frame = run_baseline(name, train, test, rules=rules, seed=seed).predictions
    return [(label, json.loads(chances)) for label, chances in frame.select("label", "forecast").iter_rows()]


def make_papers(labels, first=1):
    return [Paper(f"W{first + place}", VIEW, Gold(label, None)) for place, label in enumerate(labels)]


@given(st.lists(st.sampled_from(LABELS), min_size=1, max_size=30), st.integers(0, 5))
def test_the_majority_baseline_says_the_commonest_label_of_training(labels, n_test):
    verdicts = say_verdicts("majority", make_papers(labels), make_papers(["neutral"] * n_test))
    assert len(verdicts) == n_test
    for label, forecast in verdicts:
        assert labels.count(label) == max(labels.count(other) for other in LABELS)
        assert forecast == {other: labels.count(other) / len(labels) for other in LABELS}


def test_the_random_baseline_keeps_the_proportions_and_its_seed():
    train = make_papers(["disruptive"] * 1 + ["neutral"] * 3)
    test = make_papers(["neutral"] * 4000, first=100)
    verdicts = say_verdicts("prior_random", train, test)
    assert verdicts == say_verdicts("prior_random", train, test) != say_verdicts("prior_random", train, test, seed=1)
    assert verdicts[7:] == say_verdicts("prior_random", train, test[7:])
    said = [label for label, _ in verdicts]
    assert said.count("consolidating") == 0
    assert said.count("disruptive") / 4000 == pytest.approx(0.25, abs=0.03)


@pytest.fixture(scope="module")
def larger_slice(tmp_path_factory):
    return make_slice(tmp_path_factory.mktemp("larger") / "slice", n_train=180, n_test=18)


@pytest.mark.parametrize("column", VOCABULARIES)
def test_the_classifier_learns_what_the_words_tell_and_never_sees_the_gold_of_a_test_paper(larger_slice, column):
    train, test = read_split(larger_slice, "train"), read_split(larger_slice, "test")
    target = column.removesuffix("_label")
    verdicts = say_verdicts("words", train, test, target)
    assert [label for label, _ in verdicts] == [getattr(paper.gold, column) for paper in test]
    blind = [Paper(paper.openalex_id, paper.view, Gold("neutral", "balanced")) for paper in test]
    assert say_verdicts("words", train, blind, target) == verdicts
    for label, forecast in verdicts:
        assert tuple(forecast) == VOCABULARIES[column]
        assert sum(forecast.values()) == pytest.approx(1)
        assert 1 / 3 < forecast[label] == max(forecast.values())


def test_the_classifier_lives_with_unknown_values_and_classes(toy_slice):
    train = [paper for paper in read_split(toy_slice, "train") if paper.gold.disruption_label != "consolidating"]
    empty = Paper("W9", PaperView(None, None, None, None, None), Gold("neutral", None))
    ((label, forecast),) = say_verdicts("words_at_publication", [*train, empty], [empty])
    assert label in LABELS
    assert forecast["consolidating"] == 0.0
    assert 1 / 2 <= forecast[label] <= 1


def test_a_baseline_judges_each_label_of_a_joint_task_and_says_probabilities_where_they_are_asked_for(larger_slice):
    train, test = (read_split(larger_slice, split, needs=TARGETS["joint"]) for split in ("train", "test"))
    rules = TaskRules(target="joint", contract="probabilities", reward="balanced")
    frame = run_baseline("words", train, test, rules=rules).predictions
    metrics = measure_predictions(frame)
    assert (metrics["label_match"], metrics["both_match"], metrics["novelty/macro_f1"]) == (1.0, 1.0, 1.0)
    assert 0 < metrics["forecast_brier"] < 1 / 3
    hard = run_baseline("words", train, test, rules=replace(rules, contract="two_keys")).predictions
    assert measure_predictions(hard)["reward"] == pytest.approx(1.05, abs=0.05)  # the training split is nearly balanced
    assert measure_predictions(hard)["forecast_brier"] == metrics["forecast_brier"]  # stated, but not paid for
    assert hard["confidence"].equals(frame["confidence"])
    novelty = run_baseline("words", train, test, rules=TaskRules(target="novelty")).predictions
    assert novelty["gold"].equals(frame["gold_novelty"].rename("gold"))


def test_trees_learn_what_year_citations_and_field_tell_and_repeat_themselves():
    def make(first, last):
        papers = []
        for number in range(first, last):
            year, field = 1990 + number % 20, ("Chemistry", "Medicine", None)[number % 3]
            label = LABELS[0] if year < 2000 else LABELS[1 + (field == "Medicine")]
            papers.append(Paper(f"W{number}", PaperView(None, None, year, number % 7, field), Gold(label, None)))
        return papers

    train, test = make(0, 400), make(400, 460)
    verdicts = say_verdicts("later_counts", train, test)
    assert [label for label, _ in verdicts] == [paper.gold.disruption_label for paper in test]
    assert all(sum(forecast.values()) == pytest.approx(1) and tuple(forecast) == LABELS for _, forecast in verdicts)
    assert say_verdicts("later_counts", train, test) == verdicts
    worded = [replace(paper, view=replace(paper.view, title="On disruption")) for paper in test]
    assert say_verdicts("later_counts", train, worded) == verdicts
    with pytest.raises(SciSciRLError, match="one class only"):
        run_baseline("later_counts", make_papers(["neutral"] * 4), test)


def test_a_slice_that_nothing_can_be_learnt_from_is_said(test_papers):
    with pytest.raises(SciSciRLError, match="no training papers"):
        run_baseline("majority", [], test_papers)
    wordless = [Paper(f"W{n}", PaperView(None, None, 2001, n, None), Gold(LABELS[n], None)) for n in range(3)]
    with pytest.raises(SciSciRLError, match="neither title nor abstract is known"):
        run_baseline("words", wordless, test_papers)
    alone = [replace(paper, view=replace(paper.view, title="", abstract="a")) for paper in wordless]
    for train in (alone, make_papers(["neutral"] * 4)):  # a word of one letter; one class
        with pytest.raises(SciSciRLError, match="cannot be learnt from"):
            run_baseline("words", train, test_papers)


def test_baselines_are_judged_as_a_model_would_be(toy_slice, tmp_path):
    config = EvaluationConfig(release=toy_slice, out=tmp_path / "out", preset="exp5")
    results = evaluate_baselines(config)
    assert set(results) == set(BASELINES)
    # Of three equally common classes the majority baseline says the first: published, Exp5 ended at this macro-F1.
    assert results["majority"]["macro_f1"] == pytest.approx(0.5 / 3)
    assert results["majority"]["reward"] == pytest.approx((3.05 - 0.55 - 0.55) / 3)
    for name, metrics in results.items():
        folder = config.out / name
        assert json.loads((folder / "metrics.json").read_text("utf-8")) == metrics
        assert measure_predictions(read_predictions(folder / "predictions.parquet"))["n"] == 9
        record = json.loads((folder / "run.json").read_text("utf-8"))
        assert record["settings"]["baseline"] == name
        assert len(record["release"]["manifest_sha256"]) == 64
    assert evaluate_baselines(config) == results
    with pytest.raises(
        SciSciRLError, match=r"majority holds this baseline of .* other settings\. Choose another folder"
    ):
        evaluate_baselines(replace(config, preset="exp8"))


def test_baselines_write_nothing_where_a_file_of_somebody_else_is_in_the_way(toy_slice, tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "metrics.json").write_text("mine")
    with pytest.raises(SciSciDataError, match=r"metrics\.json already exists"):
        evaluate_baselines(EvaluationConfig(release=toy_slice, out=tmp_path, preset="exp5"))
    assert {path.name for path in tmp_path.rglob("*")} - {".lock"} == {"words", "metrics.json"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"run": "runs/exp4"}, "exp4"), ({"run": "runs/exp4", "step": 50}, "exp4-step50"),
        ({"model": "a/b-8B"}, "b-8B"),
        ({"model": "a/b-8B", "preset": "exp5"}, "b-8B-exp5"), ({"local_model": "models/mine"}, "mine"),
        ({"checkpoint": "tinker://1f/sampler_weights/000050", "model": "a/b"}, "1f-sampler_weights-000050"),
    ],
)  # fmt: skip
def test_each_evaluation_of_a_release_has_a_folder_of_its_own(options, name):
    paths = {key: Path(value) if key in {"run", "local_model"} else value for key, value in options.items()}
    config = EvaluationConfig(release=Path("slices/small"), **paths)
    assert config.out == Path("evaluations/small") / name
    assert config.baselines_out == Path("evaluations/small")
    given = replace(config, out=Path("mine"))
    assert (given.out, given.baselines_out) == (Path("mine"), Path("mine"))


def test_every_result_says_how_far_it_has_come_from_chance_to_the_ceiling(toy_slice, toy_renderer, tmp_path):
    ceiling = {"accuracy": 0.8, "macro_f1": 0.7, "works": 900}
    release = make_slice(tmp_path / "slice", ceiling=ceiling)
    results = evaluate_baselines(EvaluationConfig(release=release, out=tmp_path / "out"))
    majority = results["majority"]
    assert (majority["ceiling/label_match"], majority["way_to_ceiling/label_match"]) == (0.8, 0.0)
    way = (majority["macro_f1"] - 1 / 3) / (0.7 - 1 / 3)
    assert majority["way_to_ceiling/macro_f1"] == pytest.approx(way)
    low = (majority["macro_f1/low"] - 1 / 3) / (0.7 - 1 / 3)
    assert majority["way_to_ceiling/macro_f1/low"] == pytest.approx(low)
    folder = tmp_path / "out" / "majority"
    assert json.loads((folder / "metrics.json").read_text("utf-8")) == majority
    assert evaluate_predictions(folder / "predictions.parquet") == majority
    shown = next(
        line for line in render_metrics({"": majority}).splitlines() if line.startswith("way_to_ceiling/macro")
    )
    assert shown.split()[1:3] == [f"{way:.4f}", f"[{low:.4f},"]

    compared = compare_files([str(tmp_path / "out")], CompareConfig(n_resamples=20))
    assert compared.to_json()["ceiling"] == ceiling
    assert compared.related["majority"]["way_to_ceiling/macro_f1"] == pytest.approx(way)
    text = render_comparison(compared)
    assert "; ceiling/label_match 0.800; ceiling/macro_f1 0.700\n" in text
    assert re.search(rf"  {way:.3f} +no paper\n", text)

    papers = read_split(release, "test", target="joint")
    rules = TaskRules(target="joint", contract="two_keys", reward="partial")
    evaluator = LabelEvaluator(papers, rules, toy_renderer, AnswerSampling(300), ceiling=ceiling)
    metrics = asyncio.run(evaluator.eval_token_completer(Scripted(toy_renderer.tokenizer, lambda _: "?")))
    assert metrics["test/disruption/way_to_ceiling/label_match"] == pytest.approx(-1 / 3 / (0.8 - 1 / 3))
    assert not [name for name in metrics if "ceiling" in name and "disruption" not in name]

    unknown = evaluate_baselines(EvaluationConfig(release=toy_slice, out=tmp_path / "unknown"))
    assert not [name for name in unknown["majority"] if "ceiling" in name]
    assert json.loads((tmp_path / "unknown" / "majority" / "run.json").read_text("utf-8"))["ceiling"] is None
    assert compare_files([str(tmp_path / "unknown")], CompareConfig(n_resamples=20)).to_json()["ceiling"] is None


def test_the_same_answers_once_more_make_no_interval_narrower(toy_slice, tmp_path):
    frame = run_baseline("majority", read_split(toy_slice, "train"), read_split(toy_slice, "test")).predictions
    config = EvaluationConfig(release=toy_slice, out=tmp_path)
    once, twice = (save_evaluation(table, config, {}) for table in (frame, pl.concat([frame, frame])))
    assert (once["n"], twice["n"]) == (9.0, 18.0)
    for name in ("label_match", "macro_f1", "min_class_recall"):
        for end in ("low", "high"):
            assert once[f"{name}/{end}"] == twice[f"{name}/{end}"]


@pytest.fixture
def asking(toy_slice, toy_model, tmp_path, monkeypatch):
    """Evaluates a base model on the toy slice, on a server that offers that model only."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    with serve_models([{"model_name": toy_model}]) as url:
        known = {"release": toy_slice, "out": tmp_path / "out", "model": toy_model, "renderer": RENDERER}
        yield lambda **options: asyncio.run(evaluate_model(EvaluationConfig(**known | {"base_url": url} | options)))
    assert {path.name for path in (tmp_path / "out").glob("*")} <= {".lock"}


def test_what_a_server_refuses_an_evaluation_is_said_in_one_line(asking, monkeypatch):
    with pytest.raises(SciSciRLError, match=r"retired it on 2026-06-12.*model=/"):
        asking(model=HISTORICAL_MODEL)
    with pytest.raises(SciSciRLError, match=r"no Tinker server answers at http://127\.0\.0\.1:9 "):
        asking(base_url="http://127.0.0.1:9")
    monkeypatch.setenv("TINKER_API_KEY", "tml-wrong")
    with pytest.raises(SciSciRLError, match=r"refuses the key \(401\).* TINKER_API_KEY"):
        asking()


def test_a_slice_that_was_altered_is_not_judged_on(asking, tmp_path):
    folder = make_slice(tmp_path / "slice", 18, 3)
    path = folder / "test.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ReleaseError, match=r"test\.parquet is damaged"):
        asking(release=folder)


def test_a_paper_that_does_not_fit_is_found_before_anything_is_asked(asking, tmp_path):
    folder = make_slice(tmp_path / "slice", 18, 9, long_title="test: 8", n_words=500)
    with pytest.raises(PromptError, match=r"^max_paper_tokens=1024 is too few: "):
        asking(release=folder)


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "exp99"}, {"group_size": 0}, {"n_papers": 0}, {"max_tokens": -1}, {"temperature": -0.1},
        {"run": "r", "model": "a/b"}, {"run": "r", "checkpoint": "tinker://x"},
    ],
)  # fmt: skip
def test_impossible_evaluations_are_refused(tmp_path, options):
    with pytest.raises(SciSciRLError):
        EvaluationConfig(release=tmp_path, out=tmp_path, **options)


def test_a_run_says_itself_what_it_was(tmp_path, toy_slice):
    from sciscirl.presets import PRESETS, describe
    from sciscirl.runs.record import begin_run

    config = EvaluationConfig(release=toy_slice, out=tmp_path, run=tmp_path / "run")
    with pytest.raises(SciSciRLError, match="does not exist"):
        find_subject(config)
    config.run.mkdir()
    settings = describe(PRESETS["exp5"]) | {"renderer": "llama3", "max_tokens": 33, "max_paper_tokens": 99}
    begin_run(config.run, toy_slice, settings, behavior="raise")
    with pytest.raises(SciSciRLError, match="no checkpoint"):
        find_subject(config)
    lines = [{"name": name, "batch": 1, "sampler_path": f"tinker://x/{name}"} for name in ("000001", "final")]
    (config.run / "checkpoints.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    subject = find_subject(config)
    assert (subject.checkpoint, subject.renderer_name) == ("tinker://x/final", "llama3")
    assert (subject.preset.name, subject.preset.max_tokens, subject.preset.rules.max_paper_tokens) == ("exp5", 33, 99)
    greedy = find_subject(replace(config, temperature=0.0))
    assert (subject.preset.judging.eval_temperature, greedy.preset.judging.eval_temperature) == (1.0, 0.0)


def test_the_table_has_a_column_for_each_result_and_a_dash_for_what_is_undefined():
    text = render_metrics({"a": {"label_match": 0.5, "n": 1200}, "b": {"mcc": 0.1}})
    assert [line.split() for line in text.splitlines()] == [
        ["a", "b"],
        ["n", "1,200", "-"],
        ["label_match", "0.5000", "-"],
        ["mcc", "-", "0.1000"],
    ]


def make_metrics(n, share, low, high, **more):
    golds = {"confusion/neutral/neutral": n / 2, "confusion/disruptive/invalid": n / 2}
    ends = {"label_match/low": low, "label_match/high": high}
    return {"n": float(n), "label_match": share, "invalid": 0.5, **ends, **golds, **more}


def test_the_short_table_says_what_a_guess_gets_and_which_rows_surely_differ():
    way = {"ceiling/label_match": 0.82, "way_to_ceiling/label_match": 0.5}
    good, bad = make_metrics(2_000, 0.661, 0.64, 0.68, **way), make_metrics(2_000, 0.4, 0.38, 0.42, **way)
    lines = render_results(
        {"a": good, "b": bad, "c": make_metrics(2_000, 0.5, 0.47, 0.53)}, {"a": "title"}
    ).splitlines()
    assert lines[0] == (
        "2,000 answers (1,000 disruptive, 1,000 neutral). A guess, always the commonest, gets 50.0 % right; "
        "the best possible model about 82 %."
    )
    assert [line.split() for line in lines[3:6]] == [
        ["a", "66.1", "[64.0,", "68.0]", "50.0", "50.0", "title"],
        ["b", "40.0", "[38.0,", "42.0]", "50.0", "50.0"],
        ["c", "50.0", "[47.0,", "53.0]", "-", "50.0"],
    ]
    assert lines[-1] == "With 2,000 answers, surely better than a guess: a; surely worse: b."
    alone = render_results({"a": make_metrics(30, 0.5, 0.33, 0.67)}).splitlines()
    assert "best possible" not in alone[0]
    assert "of the way" not in alone[2]
    assert alone[-1] == "With 30 answers, no row differs surely from a guess."
    assert render_results({"a": make_metrics(28, 1.0, 0.9, 1.0)}).endswith("\n28 answers are too few to tell.")


def test_the_short_table_has_a_part_for_each_of_two_labels(toy_slice, toy_renderer):
    papers = read_split(toy_slice, "test", target="joint")
    rules = TaskRules(target="joint", contract="two_keys", reward="partial")
    evaluator = LabelEvaluator(papers, rules, toy_renderer, AnswerSampling(300))
    asyncio.run(evaluator.eval_token_completer(Scripted(toy_renderer.tokenizer, lambda _: "?")))
    shown = render_results({"model": measure(evaluator.predictions)})
    assert shown.startswith("disruption, ")
    assert "\n\nnovelty, " in shown
    assert shown.count("invalid, %") == 2


def test_the_script_recomputes_metrics_from_a_file_and_refuses_in_one_line(toy_slice, tmp_path, script_here):
    frame = run_baseline("majority", read_split(toy_slice, "train"), read_split(toy_slice, "test")).predictions
    write_predictions(frame, tmp_path / "p.parquet")
    done = script_here("evaluate.py", "--from-predictions", str(tmp_path / "p.parquet"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "  33 [" in done.stdout
    assert "label_match" not in done.stdout
    done = script_here("evaluate.py", "--from-predictions", str(tmp_path / "p.parquet"), "--verbose")
    assert "0.3333 [" in done.stdout
    refused = script_here("evaluate.py", "--release", str(toy_slice))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: nothing to do.")
    assert refused.stderr.count("\n") == 1
