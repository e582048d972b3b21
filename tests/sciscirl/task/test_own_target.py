"""An own label of a release is asked for, answered, rewarded, measured and reported like the others."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import pickle
import random
from pathlib import Path
from statistics import fmean

import pytest
from sklearn.metrics import f1_score
from tinker_cookbook.rl.data_processing import compute_advantages
from tinker_cookbook.rl.rollouts import do_group_rollout

from sciscidata import BuildConfig, OwnLabel, SplitConfig, SyntheticConfig, build
from sciscidata.cli.main import main as build_command
from sciscirl.cli.main import main as train_command
from sciscirl.envs.env import LabelGroupBuilder
from sciscirl.errors import PredictionsError, ReleaseError, SciSciRLError
from sciscirl.lab.analysis.baselines import evaluate_baselines
from sciscirl.lab.dry_run import describe_server_training
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_predictions
from sciscirl.lab.evaluation.results import render_metrics, save_evaluation
from sciscirl.lab.hardware_options import PeftSftOptions
from sciscirl.lab.harnesses.export import Score, read_rules, score
from sciscirl.lab.objectives.batch_term import ShareTracker
from sciscirl.lab.report.report import ReportConfig, write_report
from sciscirl.lab.report.runs import read_run
from sciscirl.lab.report.views import view_classes
from sciscirl.lab.sft.examples import gold_answer
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import collect_predictions, find_target
from sciscirl.options import TrainOptions, resolve_preset, resolve_run
from sciscirl.presets import PRESETS, describe, recall_rules
from sciscirl.runs.record import read_facts
from sciscirl.task.contracts import CONTRACTS, contract_keys, parse_answer, render_answer
from sciscirl.task.papers import OwnTarget, list_labels
from sciscirl.task.predictions import make_prediction
from sciscirl.task.prompts import STYLES, render_prompt
from sciscirl.task.release import read_split
from sciscirl.task.rewards import score_answer
from sciscirl.task.rules import TaskRules
from sciscirl.task.targets import choose_target, read_own_target
from tests.sciscirl.lab.evaluation.test_benchmark import chat_server
from tests.sciscirl.toy import Scripted

LABELS = {
    # "neutral" is a label of disruption too: a table must not take one for the other.
    "two": OwnLabel(
        name="impact_label",
        classes=("neutral", "Top"),
        sql="CASE WHEN cited_by_count >= 10 THEN 'Top' ELSE 'neutral' END",
        meanings={"Top": "cited ten times at least"},
        question="Is it cited ten times?",
    ),
    "five": OwnLabel(
        name="age_label",
        classes=("oldest", "older", "old", "young", "youngest"),
        sql="CASE WHEN publication_year < 1990 THEN 'oldest' WHEN publication_year < 1998 THEN 'older' WHEN "
        "publication_year < 2005 THEN 'old' WHEN publication_year < 2012 THEN 'young' ELSE 'youngest' END",
        hidden=("publication_year",),
    ),
}


@pytest.fixture(scope="module")
def slices(tmp_path_factory):
    home = tmp_path_factory.mktemp("own")
    split = SplitConfig(n_train=40, n_test=20, balance="label")
    return {
        name: build(
            BuildConfig(
                source=SyntheticConfig(n_works=4_000), out=home / name, cache_dir=home / "c", label=label, split=split
            )
        ).folder
        for name, label in LABELS.items()
    }


@pytest.fixture(params=[*LABELS])
def release(request, slices):
    return slices[request.param]


@pytest.fixture
def target(release):
    return choose_target("label", release)


def test_an_own_label_is_named_in_three_ways_and_any_other_name_is_refused(release, target, toy_slice):
    column, labels = next(iter(list_labels(target).items()))
    assert isinstance(target, OwnTarget)
    assert choose_target(column, release) == choose_target(column.removesuffix("_label"), release) == target
    assert pickle.loads(pickle.dumps(target)).label.classes == labels
    assert choose_target("novelty", release) == "novelty"
    with pytest.raises(ReleaseError, match=r"has disruption, novelty, joint, pairs, "):
        choose_target("impactful", release)
    with pytest.raises(ReleaseError, match=r"has disruption, novelty, joint, pairs\. Choose"):
        choose_target("label", toy_slice)


def test_a_label_that_a_run_recalls_hides_what_its_release_hides(release, target):
    # Baselines beside a run in a report saw the columns that the label follows from.
    recalled = read_own_target(json.loads(target.to_json()))
    assert read_split(release, "test", target=recalled) == read_split(release, "test", target=target)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_prompt_shows_neither_label_nor_score_nor_what_the_label_follows_from(release, target, style, contract):
    first, *others = read_split(release, "train", target=target)
    system, user = render_prompt(first.view, style, contract, target)
    record = json.loads(user["content"].splitlines()[1])
    assert set(record) == {"title", "abstract", "publication_year", "cited_by_count", "primary_field"}
    assert all(record[name] is None for name in target.label.hidden)
    assert all(render_prompt(paper.view, style, contract, target)[0] == system for paper in others)
    for word in target.label.classes:
        assert word in system["content"]
    assert (target.label.question or "") in system["content"]
    if style != "plain":
        assert all(meaning in system["content"] for meaning in target.label.meanings.values())
    assert "three" not in system["content"]
    assert "third" not in system["content"]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_class_can_be_answered_and_nothing_else(target, contract):
    ((column, labels),) = list_labels(target).items()
    for label in labels:
        answer = parse_answer(render_answer(label, contract, target, confidence=0.8), contract, target)
        assert (answer.labels, answer.problem) == ({column: label}, "")
        assert answer.tolerant_labels == {column: label}
    if contract == "probabilities":
        assert contract_keys(contract, target) == labels
        even = json.dumps(dict.fromkeys(labels, 1 / len(labels)))
        assert parse_answer(even, contract, target).problem == "tie"
    else:
        text = render_answer(labels[0], contract, target).replace(labels[0], "novel")
        assert parse_answer(text, contract, target).problem == "bad_label"


@pytest.mark.parametrize("contract", ["two_keys", "probabilities"])
def test_a_balanced_reward_pays_every_constant_answer_the_same(release, target, contract):
    papers = read_split(release, "train", target=target)[:-3]  # no longer balanced
    rules = TaskRules(target=target, contract=contract, reward="balanced").fitted(papers)
    ((column, labels),) = list_labels(target).items()
    means = []
    for label in labels:
        answer = rules.parse(render_answer(label, contract, target))
        scores = [score_answer(answer, paper.labels(target), rules.table).total for paper in papers]
        means.append(fmean(scores))
        own = [paper for paper in papers if paper.gold.of(column) == label]
        assert score_answer(answer, label, rules.table).total == rules.table.best(label)
        assert len(own) > 0
    assert means == pytest.approx([0.05 + 1 / len(labels)] * len(labels))


def test_rewards_that_name_other_labels_and_challenges_are_refused(target):
    for reward in ("partial", "disruptive_x3"):
        with pytest.raises(SciSciRLError, match="by name, and the task is the own label"):
            TaskRules(target=target, reward=reward)
    from dataclasses import replace

    adversarial = PRESETS["adversarial"]
    with pytest.raises(SciSciRLError, match=r"is not adversarial|another reward"):
        replace(adversarial, rules=replace(adversarial.rules, target=target, reward="strong"))


def test_shares_of_an_own_label_are_counted_among_its_own_classes(target):
    labels = target.label.classes
    tracker = pickle.loads(pickle.dumps(ShareTracker([(label, 1) for label in labels], 10, target)))
    for _ in range(4):
        tracker.record(0, parse_answer(render_answer(labels[0], "two_keys", target), "two_keys", target))
    excess = tracker.find_excess(1)
    assert excess == pytest.approx({label: (label == labels[0]) - 1 / len(labels) for label in labels})


@pytest.mark.parametrize("contract", ["two_keys", "probabilities"])
def test_made_answers_are_measured_over_all_classes_from_the_file_alone(release, target, contract, tmp_path):
    papers, made = read_split(release, "test", target=target), random.Random(0)
    ((column, labels),) = list_labels(target).items()
    rules = TaskRules(target=target, contract=contract, reward="soft")
    rows, golds, said = [], [], []
    for paper in papers:
        label = made.choice([*labels, "broken"])
        text = "no idea" if label == "broken" else render_answer(label, contract, target, confidence=0.7)
        answer, gold = rules.parse(text), paper.labels(target)
        rows.append(make_prediction(paper.openalex_id, gold, answer, score_answer(answer, gold, rules.table), text))
        golds.append(gold[column])
        said.append("invalid" if label == "broken" else label)
    metrics = measure_predictions(rows)
    assert metrics["macro_f1"] == pytest.approx(f1_score(golds, said, labels=[*labels], average="macro"))
    assert metrics["label_match"] == fmean(gold == label for gold, label in zip(golds, said, strict=True))
    assert {name for name in metrics if name.startswith("recall/")} == {f"recall/{label}" for label in labels}
    if contract == "probabilities":
        rest = 0.3 / (len(labels) - 1)
        right = (0.3**2 + (len(labels) - 1) * rest**2) / 2
        wrong = (0.7**2 + (1 - rest) ** 2 + (len(labels) - 2) * rest**2) / 2
        losses = [
            1.0 if label == "invalid" else right if label == gold else wrong
            for gold, label in zip(golds, said, strict=True)
        ]
        assert metrics["forecast_brier"] == pytest.approx(fmean(losses), abs=1e-3)
    import polars as pl

    from sciscirl.task.predictions import prediction_schema

    table = pl.DataFrame(rows, schema=prediction_schema(target))
    config = EvaluationConfig(release=release, out=tmp_path / "e", preset="exp7", target="label")
    save_evaluation(table, config, {"preset": "exp7", "split": "test"})
    again = evaluate_predictions(tmp_path / "e" / "predictions.parquet")
    assert again["macro_f1"] == metrics["macro_f1"]
    assert again["macro_f1/low"] <= again["macro_f1"] <= again["macro_f1/high"]
    assert f"recall/{labels[-1]}" in render_metrics({"made": again})
    found = find_target(table)
    assert isinstance(found, OwnTarget)
    assert found.label.classes == labels
    with pytest.raises(PredictionsError, match="does not name one own label"):
        measure_predictions(table.with_columns(task=pl.lit("{}")))


def test_baselines_judge_and_a_report_shows_every_class(release, target, tmp_path):
    config = EvaluationConfig(release=release, out=tmp_path / "e", preset="exp8", target=target.label.name)
    judged = evaluate_baselines(config)
    n = len(target.label.classes)
    assert judged["majority"]["label_match"] == pytest.approx(1 / n)
    assert judged["majority"]["forecast_brier"] == pytest.approx((n - 1) / (2 * n))
    runs = tuple(tmp_path / "e" / name for name in judged)
    for folder in runs:
        (folder / "predictions.parquet").rename(folder / "gone.parquet")
        lost = read_run(folder, folder.name)
        assert lost.labels == {str(target): target.label.classes}
        (folder / "gone.parquet").rename(folder / "predictions.parquet")
    page = write_report(ReportConfig(runs=runs, out=tmp_path / "report.html")).read_text("utf-8")
    assert f"<title>Baselines on {target.label.name}</title>" in page
    section = view_classes([dataclasses.replace(read_run(runs[0], "model"), kind="evaluation")])
    assert section.tables[0].caption == f"Classes of {target} at the last evaluation"
    assert [*section.tables[0].head][1 : n + 1] == [f"recall {label}" for label in target.label.classes]


@pytest.mark.parametrize("preset", ["exp4", "exp7", "exp8"])
def test_one_training_step_rewards_and_centres_the_answers(release, target, toy_renderer, preset):
    papers = read_split(release, "train", target=target)
    from dataclasses import replace

    rules = replace(PRESETS[preset].rules, target=target).fitted(papers)
    paper, labels = papers[0], target.label.classes
    gold = paper.labels(target)[target.label.name]
    other = next(label for label in labels if label != gold)
    answers = [render_answer(label, rules.contract, target) for label in (gold, other)]
    policy = Scripted(toy_renderer.tokenizer, [*answers, "no idea"])
    group = asyncio.run(do_group_rollout(LabelGroupBuilder(paper, rules, toy_renderer, 3), policy))
    rewards = group.get_total_rewards()
    wrong = rules.table.kept + rules.table.task_part(gold, 0.0)
    assert rewards == pytest.approx([rules.table.best(gold), wrong, -1.0])
    advantages = compute_advantages([group])[0].tolist()
    assert advantages == pytest.approx([reward - fmean(rewards) for reward in rewards], abs=1e-6)
    assert math.fsum(advantages) == pytest.approx(0, abs=1e-6)
    metrics = group.trajectories_G[1].transitions[-1].metrics
    assert metrics[f"predicted_share/{other}"] == 1.0
    table = collect_predictions([group], target)
    assert measure_predictions(table)[f"confusion/{gold}/{other}"] == 1.0


def test_a_dry_run_and_supervised_examples_ask_for_the_own_label(release, target, options):
    changed = options | {"preset": "exp7", "target": "label", "release": str(release)}
    text = describe_server_training(resolve_run(TrainOptions(**changed, max_steps=1, batch_size=2)))
    assert f'"{target.label.classes[0]}" or' in text or f'"{target.label.classes[0]}", ' in text
    assert '"target": ' in text
    facts = describe(resolve_preset(TrainOptions(**changed)))
    assert facts["own_label"] == {"name": target.label.name, "classes": [*target.label.classes]}
    assert json.loads(json.dumps(facts))["target"] == str(target)
    preset = resolve_run(PeftSftOptions(preset="exp4", target="label", release=str(release), model="a/b")).preset
    paper = read_split(release, "train", target=target)[0]
    assert json.loads(gold_answer(paper, preset.rules))[target.label.name] == paper.gold.of(target.label.name)


MOODS = ("bad", "fair", "good")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A release of nothing but texts and their labels."""
    home = tmp_path_factory.mktemp("texts")
    lines = [f'"A {("dull", "decent", "fine")[n % 3]} film, {n}.",{MOODS[n % 3]}' for n in range(120)]
    (home / "in.csv").write_text("\n".join(["text,label", *lines]))
    own = ["--label", "label", "--label-name", "mood_label", "--cache-dir", str(home / "cache")]
    sizes = ["--n-train", "54", "--n-test", "18", "--out", str(home / "slice")]
    assert build_command(["build", "--labelled", str(home / "in.csv"), *own, *sizes]) == 0
    assert build_command(["verify", str(home / "slice")]) == 0
    return home / "slice"


def test_a_dry_run_on_texts_says_what_a_prompt_shows_and_why_there_are_no_trees(texts, toy_model, capsys):
    words = ["--release", str(texts), "--target", "mood", "--model", toy_model, "--renderer", "role_colon", "--dry-run"]
    assert train_command(["train", *words, "--preset", "exp4"]) == 0
    printed = capsys.readouterr().out
    assert '- mood_label: "bad", "fair" or "good"' in printed
    assert "film, " in printed
    assert "its record (abstract)," in printed
    assert "null there: title, year of publication, citations so far, main field." in printed
    assert "The baseline at_publication was left out: neither year, field nor references are known\n" in printed
    assert "of held_out, training papers that are kept out" in printed
    with pytest.raises(SciSciRLError, match="hide names every field"):
        resolve_preset(TrainOptions(release=str(texts), target="mood", hide=("abstract",)))


def test_texts_are_judged_compared_reported_and_exported_by_typed_commands(
    texts, tmp_path, monkeypatch, capsys, caplog
):
    monkeypatch.chdir(tmp_path)

    def answer(question):
        mood = MOODS[[word in question for word in ("dull", "decent", "fine")].index(True)]
        return 200, {"message": {"content": json.dumps({"mood_label": mood, "confidence": 0.8})}}

    task = ["--release", str(texts), "--target", "label", "--preset", "exp4"]
    with chat_server(answer) as (url, _):
        assert train_command(["evaluate", *task, "--model", "mine", "--chat-url", url, "--baselines"]) == 0
    assert (
        caplog.messages.count(
            "at_publication, words_at_publication: left out, neither year, field nor references are known."
        )
        == 1
    )
    assert "later_counts: left out, later citations are not known, or hidden." in caplog.messages
    assert "--context" not in caplog.text
    rows = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in rows[3:7]] == ["model", "majority", "prior_random", "words"]
    assert "of the way" not in rows[2]  # no ceiling of own labels is known
    evaluation, beside = Path("evaluations/slice/mine-exp4"), {"majority", "prior_random", "words"}
    assert {one.name for one in evaluation.parent.iterdir() if one.is_dir()} == {"mine-exp4", *beside}
    assert recall_rules(read_facts(evaluation)["settings"]).target.label.classes == MOODS

    compared = ["compare", str(evaluation), "--release", str(texts), "--out", "comparison"]
    assert train_command(compared) == 0
    scores = json.loads(Path("comparison/comparison.json").read_text("utf-8"))["scores"]
    assert {*scores} == {"mine-exp4", *beside}
    assert (scores["mine-exp4"]["label_match"]["value"], scores["words"]["label_match"]["value"]) == (1, 1)
    assert train_command(["report", str(evaluation), "--release", str(texts), "--out", "report.html"]) == 0
    assert "no baseline stands beside" not in caplog.text
    assert "prior_" in Path("report.html").read_text("utf-8")

    assert train_command(["export-task", *task, "--out", "exported"]) == 0
    folder = Path("exported/sciscirl_exp4").absolute()
    row = json.loads((folder / "test.jsonl").read_text("utf-8").splitlines()[0])
    gold = render_answer(row["labels"], "two_keys", read_rules(folder).target)
    assert score(gold, row["labels"], read_rules(folder)) == Score(1.05, 1.0, 1.0)
    assert "(abstract)" in row["messages"][0]["content"]


def test_a_release_of_an_own_label_names_it_where_another_is_asked_for(texts):
    with pytest.raises(ReleaseError, match=r"54 of 54 rows have no disruption_label.*: target=mood"):
        read_split(texts, "train")
