"""A release of two labels: what a model is asked, how its labels are scored, and what a balanced reward does."""

from __future__ import annotations

import asyncio
import json
import pickle
from copy import deepcopy

import numpy as np
import pytest

import sciscidata as ssd
from sciscirl.errors import ReleaseError
from sciscirl.lab.analysis.baselines import run_baseline
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.harnesses.export import ExportConfig, export_task, read_rules
from sciscirl.lab.label_scoring import LabelScoring, predict_labels
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.options import TrainOptions, resolve_preset
from sciscirl.presets import PRESETS, describe_rules, recall_rules
from sciscirl.task.papers import NarrowTarget, list_labels
from sciscirl.task.release import read_split
from sciscirl.task.rules import TaskRules
from sciscirl.task.targets import narrow_target

TWO = ("disruptive", "consolidating")


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    home = tmp_path_factory.mktemp("two")
    split = ssd.SplitConfig(n_train=60, n_test=20, labels=TWO)
    source = ssd.SyntheticConfig(n_works=3_000)
    config = ssd.BuildConfig(source=source, out=home / "two", split=split, novelty=None, cache_dir=home / "cache")
    return ssd.build(config)


def test_the_ceiling_is_that_of_two_labels_and_papers_have_no_other(release):
    assert 0.5 < release.manifest["ceiling"]["accuracy"] < 1
    assert release.manifest["split"]["labels"] == list(TWO)
    papers = read_split(release.folder, "test")
    assert {paper.gold.disruption_label for paper in papers} == set(TWO)


def test_a_third_label_gets_no_probability_where_labels_are_scored(release, toy_renderer):
    papers, train = (read_split(release.folder, split)[:6] for split in ("test", "train"))

    async def score(prompts, endings):
        return [[-3.0, -2.0, -0.1][: len(endings)] for _ in prompts]  # neutral is by far the most probable

    for prior in ((), tuple(train)):
        scoring = LabelScoring(prior, TWO)
        table, told = asyncio.run(predict_labels(papers, TaskRules(), toy_renderer, score, scoring))
        assert set(table["label"]) <= set(TWO)
        assert np.isfinite(table["confidence"].to_numpy()).all()
        assert told.get("neutral", 0) == 0
    every, _ = asyncio.run(predict_labels(papers, TaskRules(), toy_renderer, score, LabelScoring()))
    assert set(every["label"]) == {"neutral"}


@pytest.mark.parametrize("contract", ["four_keys", "two_keys", "probabilities"])
@pytest.mark.parametrize("style", ["plain", "ontology", "checklist"])
def test_the_prompt_names_the_labels_of_the_release_and_no_other(release, style, contract):
    paper = read_split(release.folder, "test")[0]
    full = TaskRules(style=style, contract=contract)
    rules = TaskRules(style=style, contract=contract, target=narrow_target("disruption", release.folder))
    text, full_text = (json.dumps(one.render(paper.view)) for one in (rules, full))
    assert "neutral" in full_text
    assert "neutral" not in text.replace(json.dumps(paper.view.abstract), "")
    assert "third" not in text
    assert "three" not in text.lower().split("examples")[0]
    assert "disruptive" in text
    assert "consolidating" in text
    if style == "checklist":
        assert "one half" in text
        assert text.count("A pocket assay") == text.count("Revisiting the ladder") == 1


def test_a_third_label_is_no_answer_and_every_record_recalls_two(release, toy_slice, tmp_path):
    rules = resolve_preset(TrainOptions(preset="exp6", release=str(release.folder))).rules
    assert list_labels(rules.target) == {"disruption_label": TWO}
    assert rules.target == "disruption"
    answer = '{"disruption_label": "neutral", "confidence": 0.5}'
    two_keys = TaskRules(target=rules.target, contract="two_keys")
    assert two_keys.parse(answer).problem == "bad_label"
    assert TaskRules(contract="two_keys").parse(answer).is_valid
    described = json.loads(json.dumps(describe_rules(rules)))
    copies = (pickle.loads(pickle.dumps(rules)), deepcopy(rules), recall_rules(described))
    assert all(list_labels(one.target) == list_labels(rules.target) for one in copies)
    assert copies[2].prompt == rules.prompt
    # An older record, and another release, ask for three.
    del described["labels"]
    assert list_labels(recall_rules(described).target) == list_labels("disruption")
    assert narrow_target("disruption", toy_slice) == "disruption"
    for target, folder in (("disruption", toy_slice), ("novelty", release.folder), ("joint", release.folder)):
        assert not isinstance(narrow_target(target, folder), NarrowTarget)
    subject = find_subject(EvaluationConfig(release=release.folder, model="x/y", preset="exp4"))
    assert list_labels(subject.preset.rules.target) == list_labels(rules.target)
    out = export_task(ExportConfig(to="inspect", release=release.folder, out=tmp_path / "task", preset="exp4"))
    exported = read_rules(next(out.glob("*/*.jsonl")).parent)
    assert list_labels(exported.target) == list_labels(rules.target)
    with pytest.raises(ReleaseError, match="--only-label disruptive consolidating"):
        read_split(toy_slice, "test", target=rules.target)


def test_a_challenger_knows_three_labels(release):
    name = next(name for name, preset in PRESETS.items() if preset.adversarial is not None)
    rules = resolve_preset(TrainOptions(preset=name, target="disruption", release=str(release.folder))).rules
    assert list_labels(rules.target) == list_labels("disruption")


def test_scores_and_rewards_of_two_labels_are_measured_as_those_of_three(release):
    train, test = (read_split(release.folder, split) for split in ("train", "test"))
    target = narrow_target("disruption", release.folder)
    full, narrow = (
        measure_predictions(run_baseline("words", train, test, rules=TaskRules(target=one)).predictions)
        for one in ("disruption", target)
    )
    for name in ("label_match", "macro_f1", "forecast_brier", "brier"):
        assert narrow[name] == pytest.approx(full[name], abs=1e-9)
    balanced = TaskRules(target=target, reward="balanced").fitted(train)
    assert dict(balanced.class_counts).keys() == {*TWO}
