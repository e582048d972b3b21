"""How sure a label is decides how much it counts: in what is read, in rewards, and in supervised training."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinker_cookbook.rl.rollouts import do_group_rollout

from sciscidata.label_thresholds import DISRUPTION_LABELS
from sciscidata.release.read import read_release
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.lab.analysis.baselines import evaluate_baselines
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.harnesses.export import ExportConfig, export_task
from sciscirl.lab.sft.examples import make_papers_builder, to_datum
from sciscirl.lab.sft.tinker_backend import GoldDatasetBuilder
from sciscirl.lab.training.rl import make_run_builder
from sciscirl.options import TinkerSftOptions, TrainOptions, resolve_preset, resolve_run
from sciscirl.presets import describe, make_preset, recall_rules
from sciscirl.task.contracts import parse_answer
from sciscirl.task.papers import Gold, Paper, PaperView
from sciscirl.task.release import read_split
from sciscirl.task.rewards import REWARDS, score_answer
from sciscirl.task.rules import TaskRules
from tests.sciscirl.toy import RENDERER, Scripted, gold_of, make_slice, say

VIEW = PaperView("On sleep", "We sleep.", 2001, 3, "Neuroscience")
TABLES = [name for name in REWARDS if name != "partial"]
chances_of = st.tuples(*[st.floats(0.001, 1)] * 3).map(lambda given: tuple(one / math.fsum(given) for one in given))


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    return make_slice(tmp_path_factory.mktemp("counted") / "slice", n_train=60, n_test=9, has_counts=True)


@pytest.fixture(scope="module")
def papers(counted):
    return read_split(counted, "train", with_chances=True)


def make_paper(chances: tuple[float, ...], label: str = "neutral") -> Paper:
    return Paper("W1", VIEW, Gold(label, None, chances=chances))


def earn(text: str, paper: Paper, rules: TaskRules) -> float:
    answer = parse_answer(text, rules.contract)
    return score_answer(answer, paper.labels("disruption"), rules.table, rules.weigh(paper)).total


# --- what is read -------------------------------------------------------------------------------------------------


def test_papers_have_the_chances_of_their_release_and_only_where_they_are_asked_for(counted, toy_slice, papers):
    rows = {row["openalex_id"]: row for row in read_release(counted).label_confidence.iter_rows(named=True)}
    for paper in papers:
        row = rows[paper.openalex_id]
        assert paper.gold.chances == tuple(row[f"p_{label}"] for label in DISRUPTION_LABELS)
        own = {paper.gold.disruption_label: row["label_confidence"]}
        assert TaskRules(weight="confidence").weigh(paper) == own
        assert TaskRules().weigh(paper) == {}
    plain = read_split(counted, "train")
    assert plain == [replace(paper, gold=replace(paper.gold, chances=None)) for paper in papers]
    with pytest.raises(ReleaseError, match=r"W\d+ was read without the chances of its labels"):
        TaskRules(weight="chances").weigh(plain[0])
    with pytest.raises(ReleaseError, match=r"lacks n_i, n_j or n_k of 33 of 33 works, .*Or .* alike: weight=equal"):
        read_split(toy_slice, "train", with_chances=True)


def test_a_weight_without_effect_or_sense_is_refused(counted, tmp_path):
    for target in ("novelty", "joint"):
        with pytest.raises(SciSciRLError, match=f"known of disruption labels only. The task is {target}: leave weight"):
            TaskRules(target=target, weight="confidence")
    with pytest.raises(SciSciRLError, match="adversarial, and pays by its own rules: weight has no effect"):
        make_preset("mine", base="adversarial_disruption", weight="chances")
    with pytest.raises(SciSciRLError, match=r"pays -1\.0 for an unsure label and -0\.9 for a broken contract"):
        make_preset("mine", base="exp4", weight="chances", reward={"kept": -1.0, "broken": -0.9, "wrong": 0.5})
    with pytest.raises(SciSciRLError, match=r"TrainOptions\.weight is 'sure'"):
        TrainOptions(weight="sure")
    (tmp_path / "mine.toml").write_text('base = "exp4"\nweight = "chances"\n')
    with pytest.raises(SciSciRLError, match="weighs papers by chances, and other harnesses do not"):
        export_task(ExportConfig(release=counted, preset=str(tmp_path / "mine.toml"), out=tmp_path / "task"))


def test_a_run_records_the_weight_and_recalls_it():
    preset = resolve_preset(TrainOptions(preset="exp8", weight="confidence"))
    assert describe(preset)["weight"] == "confidence"
    assert recall_rules(describe(preset)) == preset.rules


# --- rewards ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("weight", ["confidence", "chances"])
def test_what_is_more_likely_right_earns_more_and_what_is_invalid_least(papers, name, weight):
    rules = TaskRules(contract="two_keys", reward=name, weight=weight).fitted(papers)
    part = rules.table.task_part
    for paper in papers:
        weights = rules.weigh(paper)
        earned = {label: earn(say(label), paper, rules) for label in DISRUPTION_LABELS}
        for one, other in permutations(DISRUPTION_LABELS, 2):
            gain = [weights.get(label, 0) * (part(label, 1) - part(label, 0)) for label in (one, other)]
            assert earned[one] - earned[other] == pytest.approx(gain[0] - gain[1], abs=1e-8)
        if weight == "confidence":
            (gold,) = weights
            assert earned[gold] > max(earned[label] for label in DISRUPTION_LABELS if label != gold)
        assert min(earned.values()) > earn("{}", paper, rules) > earn("so", paper, rules)


@given(chances_of, st.sampled_from(["soft", "strong"]))
def test_a_label_earns_its_chance(chances, name):
    rules = TaskRules(contract="two_keys", reward=name, weight="chances")
    table, paper = rules.table, make_paper(chances)
    for label, chance in zip(DISRUPTION_LABELS, chances, strict=True):
        expected = table.kept + chance * table.correct + (1 - chance) * table.wrong
        assert earn(say(label), paper, rules) == pytest.approx(expected, abs=1e-8)
    halved = make_paper(tuple(chance / 2 for chance in chances))  # labels by rank: half of the redraws have none
    assert earn(say("neutral"), halved, rules) == pytest.approx(earn(say("neutral"), paper, rules), abs=1e-8)
    sure = make_paper((0.0, 0.0, 1.0))
    assert earn(say("neutral"), sure, rules) == table.best("neutral")


@given(chances_of, chances_of, chances_of)
def test_a_forecast_is_paid_by_its_distance_from_the_chances_and_an_honest_one_earns_the_most(chances, one, other):
    rules = TaskRules(contract="probabilities", reward="strong", weight="chances")
    paper = make_paper(chances)

    def paid(forecast: tuple[float, ...]) -> float:
        answer = replace(
            parse_answer('{"disruptive": 1, "consolidating": 0, "neutral": 0}', "probabilities"),
            forecast=dict(zip(DISRUPTION_LABELS, forecast, strict=True)),
        )
        return score_answer(answer, "neutral", rules.table, rules.weigh(paper)).total

    def quadratic(forecast: tuple[float, ...]) -> float:
        return 1 - math.fsum((p - q) ** 2 for p, q in zip(forecast, chances, strict=True)) / 2

    assert paid(one) - paid(other) == pytest.approx(1.6 * (quadratic(one) - quadratic(other)), abs=1e-8)
    assert paid(chances) >= max(paid(one), paid(other)) - 1e-8
    certain = make_paper((1.0, 0.0, 0.0), "disruptive")
    equal, answer = replace(rules, weight="equal"), '{"disruptive": 0.5, "consolidating": 0.1, "neutral": 0.4}'
    assert earn(answer, certain, rules) == earn(answer, certain, equal)


@pytest.mark.parametrize("weight", ["confidence", "chances"])
def test_under_a_balanced_reward_every_constant_answer_still_earns_the_same(papers, weight):
    many = papers * 50  # class counts are whole numbers
    rules = TaskRules(contract="two_keys", reward="balanced", weight=weight).fitted(many)
    means = [math.fsum(earn(say(label), paper, rules) for paper in papers) / 60 for label in DISRUPTION_LABELS]
    assert means == pytest.approx([means[0]] * 3, abs=1e-3)
    assert len({n for _, n in rules.class_counts}) > 1


def test_training_and_evaluations_pay_by_the_weight(counted, toy_model, toy_renderer, tmp_path, papers):
    names = {"release": str(counted), "model": toy_model, "renderer": RENDERER, "log_path": str(tmp_path / "run")}
    builder = make_run_builder(resolve_run(TrainOptions(preset="exp4", weight="chances", eval_split="test", **names)))
    train, _ = asyncio.run(builder())
    group = train.get_batch(0)[0]
    answers = [say(label) for label in ("neutral", "disruptive")]
    rollouts = asyncio.run(do_group_rollout(group, Scripted(toy_renderer.tokenizer, answers)))
    chances = dict(zip(DISRUPTION_LABELS, group.paper.gold.chances, strict=True))
    assert rollouts.get_total_rewards() == pytest.approx(
        [0.05 - 0.6 + 1.6 * chances[one] for one in ("neutral", "disruptive")]
    )

    options = {"preset": "exp4", "weight": "confidence"}
    found = evaluate_baselines(EvaluationConfig(release=counted, out=tmp_path / "out", **options))["majority"]
    test = read_split(counted, "test", with_chances=True)
    right = [
        dict(zip(DISRUPTION_LABELS, paper.gold.chances, strict=True))[paper.gold.disruption_label] for paper in test
    ]
    paid = [
        sure * (1.0 if paper.gold.disruption_label == "disruptive" else -0.6)
        for sure, paper in zip(right, test, strict=True)
    ]
    assert found["reward_task"] == pytest.approx(math.fsum(paid) / 9)


# --- supervised ---------------------------------------------------------------------------------------------------


def options_of(counted, toy_model, tmp_path, **options) -> TinkerSftOptions:
    names = {"release": str(counted), "model": toy_model, "renderer": RENDERER, "log_path": str(tmp_path / "run")}
    return TinkerSftOptions(**names | {"eval_split": "test", "n_epochs": 1, "batch_size": 12} | options)


@pytest.mark.parametrize("loss_on", ["answer", "label"])
def test_a_paper_teaches_each_label_as_much_as_it_is_likely(counted, toy_model, tmp_path, loss_on):
    options = options_of(counted, toy_model, tmp_path, weight="chances", loss_on=loss_on)
    examples, run = gold_of(options), resolve_run(options)
    batches, _ = GoldDatasetBuilder(papers=make_papers_builder(run), options=options)()
    assert (len(examples), len(batches), len(batches.get_batch(0))) == (3 * 60, 5, 3 * 12)
    decode = examples.renderer.tokenizer.decode
    for place, paper in enumerate(examples.papers[:6]):
        three = examples[3 * place : 3 * place + 3]
        assert len({example.tokens[: example.n_prompt] for example in three}) == 1
        for example, label, chance in zip(three, DISRUPTION_LABELS, paper.gold.chances, strict=True):
            assert f'"disruption_label": "{label}"' in decode(example.tokens[example.n_prompt :])
            weights = to_datum(example).loss_fn_inputs["weights"].tolist()
            learned = [one for one in weights if one]
            assert sum(learned) == pytest.approx(chance * (len(example.labels) if loss_on == "label" else 1), rel=1e-5)
            assert len(learned) == len(example.learned)


def test_an_unsure_paper_counts_less_and_an_equal_one_as_before(counted, toy_model, tmp_path):
    sure, equal = (gold_of(options_of(counted, toy_model, tmp_path, weight=weight)) for weight in ("confidence", None))
    assert len(sure) == len(equal) == 60
    for example, other, paper in zip(sure[:9], equal[:9], sure.papers, strict=False):
        assert replace(example, weight=1.0) == other
        assert {paper.gold.disruption_label: example.weight} == sure.rules.weigh(paper)


@given(chances_of, st.sampled_from(DISRUPTION_LABELS))
def test_under_probabilities_a_paper_teaches_its_chances_in_writing(chances, label):
    from sciscirl.lab.sft.examples import list_answers

    rules = TaskRules(contract="probabilities", weight="chances")
    ((text, weight),) = list_answers(make_paper(chances, label), rules)
    answer = rules.parse(text)
    assert (weight, answer.is_valid) == (1.0, True)
    assert [*answer.forecast.values()] == pytest.approx(chances, abs=0.03)
    with pytest.raises(SciSciRLError, match=r"confidence is 0\.9 and has no effect"):
        list_answers(make_paper(chances, label), rules, 0.9)
