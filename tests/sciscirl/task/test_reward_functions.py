"""A reward that is a function of the answer and the paper, which may see the label and the scores."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import pickle

import pytest

from sciscirl import make_builder
from sciscirl.errors import RewardError, SciSciRLError
from sciscirl.presets import describe, make_preset, recall_preset
from sciscirl.task.papers import SCORES
from sciscirl.task.release import read_split
from sciscirl.task.rewards import REWARDS, register_reward
from sciscirl.task.rules import TaskRules
from tests.sciscirl.toy import LABELS, RENDERER, Scripted, say

RANGE = {"wrong": -0.6, "correct": 1.0}


def by_distance(answer, paper):
    """A wrong label costs more, the further the CD index is from 0."""
    return 1.0 if answer.label == paper.gold.disruption_label else -0.6 * abs(paper.gold.scores["cd_index"])


def test_a_function_says_what_a_valid_answer_earns_and_the_table_the_rest(toy_slice):
    register_reward("by_distance", function=by_distance, **RANGE)
    rules = TaskRules(contract="two_keys", reward="by_distance")
    papers = {paper.gold.disruption_label: paper for paper in read_split(toy_slice, "train")}
    assert all({*paper.gold.scores} == {*SCORES} for paper in papers.values())
    assert rules.fitted(papers.values()) == rules
    earned = {label: rules.score(rules.parse(say("neutral")), paper).total for label, paper in papers.items()}
    assert earned == {"disruptive": -0.25, "consolidating": -0.25, "neutral": 1.05}
    assert rules.score(rules.parse("neutral"), papers["neutral"]).total == -1.0
    assert "0.5" not in str(rules.render(papers["disruptive"].view))  # no prompt shows a score
    joint = TaskRules(target="joint", contract="two_keys", reward="by_distance")
    both = joint.score(
        joint.parse(json.dumps({**papers["neutral"].labels("joint"), "confidence": 1})), papers["neutral"]
    )
    assert (both.total, both.tasks) == (1.05, {"disruption_label": 1.0, "novelty_label": 1.0})


def test_training_pays_it_and_its_groups_pickle(toy_slice, toy_model, toy_renderer):
    register_reward("by_distance", function=by_distance, **RANGE)
    options = {"eval_split": "test", "batch_size": 6, "renderer": RENDERER, "reward": "by_distance"}
    builder = make_builder("exp4", str(toy_slice), toy_model, **options)
    train, _ = asyncio.run(builder())
    group = pickle.loads(pickle.dumps(train.get_batch(0)[0]))
    (env, _), policy = asyncio.run(group.make_envs()), Scripted(toy_renderer.tokenizer, [say(LABELS[0])])
    said = asyncio.run(policy(*asyncio.run(env.initial_observation())))
    step = asyncio.run(env.step(said.tokens))
    assert step.reward == group.rules.score(env.answer, env.paper).total


def test_a_run_records_a_function_by_the_hash_of_its_source():
    register_reward("by_distance", function=by_distance, **RANGE)
    preset = make_preset("mine", base="exp4", reward="by_distance")
    stated = json.loads(json.dumps(describe(preset)))
    digest = hashlib.sha256(inspect.getsource(by_distance).encode()).hexdigest()
    assert stated["reward_table"]["function"] == {"name": "by_distance", "sha256": digest}
    assert recall_preset(stated).rules == preset.rules
    stated["reward_table"]["function"]["sha256"] = "0" * 64
    with pytest.raises(SciSciRLError, match=r"'by_distance' is the function by_distance .* not registered here"):
        recall_preset(stated)


def brier(answer, paper):
    """Honest about confidence, but a wrong label with confidence 0 earns as much as the right one with 1."""
    return 1 - (answer.confidence - (answer.label == paper.gold.disruption_label)) ** 2


def test_a_function_that_also_pays_for_honest_confidence_is_taken(toy_slice):
    """Source: RLCR, Damani et al. 2025, arXiv:2507.16806."""
    register_reward("rlcr", base="strong", function=lambda answer, paper: brier(answer, paper) - 1 + (
        answer.label == paper.gold.disruption_label), not_json=-3.0, broken=-2.0, wrong=-1.0, correct=1.0)  # fmt: skip
    rules = TaskRules(contract="two_keys", reward="rlcr")
    assert rules.fitted(read_split(toy_slice, "train")) == rules


def test_a_function_that_pays_a_wrong_answer_as_much_is_refused_before_a_run(toy_slice):
    papers = read_split(toy_slice, "train")
    for name, function, said in (
        ("flat", lambda answer, paper: 0.5, "'flat' pays 0.55 for .* and 0.55 for the right answer to W"),
        ("brier", brier, r"'brier' pays 1.05 for \w+, confidence 0, and 0.05 for the .* \(1.05 at best\)"),
        ("sly", lambda answer, paper: 0.9 * (answer.confidence == 0) + 0.1 * brier(answer, paper), "'sly' pays 1.05"),
        ("wild", lambda answer, paper: 2.0, r"'wild' returned 2.0 for W\d+, needs a number from -0.6 to 1.0"),
        ("lost", lambda answer, paper: float("nan"), "'lost' returned nan"),
        ("mute", lambda answer, paper: None, "'mute' returned None"),
        (
            "typo",
            lambda answer, paper: paper.gold.scores["cd"],
            r"'typo' failed on W\d+ .*KeyError: 'cd'.*are cd_index, ",
        ),
        ("few", lambda answer: 0.5, r"'few' failed on W\d+ .*takes 1 positional argument but 2"),
    ):
        register_reward(name, function=function, **RANGE)
        with pytest.raises(RewardError, match=said):
            TaskRules(contract="two_keys", reward=name).fitted(papers)


def test_what_a_function_makes_meaningless_is_refused():
    for numbers, said in (
        ({"wrong": 1.0, "correct": 0.5}, "rising values"),
        ({"wrong": -0.9}, "rising values"),  # below a broken contract
        ({"class_weights": {"neutral": 2}}, "is a function, which alone says"),
    ):
        with pytest.raises(RewardError, match=said):
            register_reward("odd", function=by_distance, **numbers)
    with pytest.raises(RewardError, match="whose source cannot be read"):
        register_reward("built_in", function=max)
    register_reward("by_distance", function=by_distance, **RANGE)
    with pytest.raises(SciSciRLError, match="weight is 'confidence' and has no effect"):
        TaskRules(contract="two_keys", reward="by_distance", weight="confidence")
    assert REWARDS["by_distance"].bounds == (-2.0, 1.05)
