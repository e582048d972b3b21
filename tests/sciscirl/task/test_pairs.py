"""Pairs of papers: matched, independent, in balanced order, and a task like others."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscirl.envs.env import LabelEnv, build_messages
from sciscirl.errors import PromptError, ReleaseError, SciSciRLError
from sciscirl.lab.analysis.baselines import evaluate_baselines, run_baseline
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_predictions
from sciscirl.lab.evaluator import AnswerSampling, LabelEvaluator
from sciscirl.lab.report.report import ReportConfig, write_report
from sciscirl.metrics.predictions import find_target
from sciscirl.options import TrainOptions, resolve_preset
from sciscirl.presets import describe, find_preset, make_preset, recall_preset
from sciscirl.task.contracts import CONTRACTS
from sciscirl.task.pairs import CITATION_FACTOR, YEARS_APART, Candidate, match_pairs, pair_papers
from sciscirl.task.papers import PAIRS, PairView
from sciscirl.task.prompts import STYLES, PromptTemplate, cap_view, render_record
from sciscirl.task.release import Part, read_split
from sciscirl.task.rules import TaskRules
from sciscirl.task.targets import choose_target
from tests.sciscirl.papers import write_slice
from tests.sciscirl.toy import Scripted, make_builder, make_slice

WORDS = {"assay": 2, "survey": 1, "review": 0}  # of the toy release, by how disruptive their papers are
RULES = TaskRules(target=PAIRS, contract="two_keys", reward="strong")
candidates = st.lists(
    st.builds(
        Candidate,
        name=st.integers(1, 10**6).map("W{}".format),
        rank=st.integers(0, 2),
        field=st.sampled_from("ab"),
        year=st.integers(2000, 2006),
        citations=st.integers(0, 12),
    ),
    max_size=40,
    unique_by=lambda one: one.name,
)


@given(candidates, st.randoms())
def test_pairs_match_share_no_paper_and_depend_on_no_order(found, random):
    pairs = match_pairs(found)
    by_name = {one.name: one for one in found}
    names = [name for pair in pairs for name in pair]
    assert len(set(names)) == len(names)
    for one, other in (tuple(map(by_name.__getitem__, pair)) for pair in pairs):
        assert one.field == other.field
        assert one.rank != other.rank
        assert abs(one.year - other.year) <= YEARS_APART
        assert max(one.citations, other.citations) + 1 <= CITATION_FACTOR * (min(one.citations, other.citations) + 1)
    first_is_higher = sum(by_name[one].rank > by_name[other].rank for one, other in pairs)
    assert abs(2 * first_is_higher - len(pairs)) <= 1
    shuffled = [*found]
    random.shuffle(shuffled)
    assert match_pairs(shuffled) == pairs


@given(candidates)
def test_no_two_papers_that_match_are_left_over(found):
    paired = {name for pair in match_pairs(found) for name in pair}
    left = [one for one in found if one.name not in paired]
    for place, one in enumerate(left):
        for other in left[place + 1 :]:
            assert match_pairs([one, other]) == []


@pytest.fixture(scope="module")
def pair_slice(tmp_path_factory):
    return make_slice(tmp_path_factory.mktemp("pairs") / "slice", n_train=240, n_test=60)


@pytest.fixture(scope="module")
def pairs(pair_slice):
    return Part(pair_slice, "test").read(PAIRS)


def find_rank(title: str) -> int:
    return next(rank for word, rank in WORDS.items() if word in title)


def test_the_letter_is_that_of_the_more_disruptive_paper_of_the_split(pair_slice, pairs):
    ids = {paper.openalex_id: paper for paper in read_split(pair_slice, "test")}
    assert len(pairs) > 10
    for pair in pairs:
        first, second = pair.openalex_id.split("+")
        assert pair.view == PairView(ids[first].view, ids[second].view)
        ranks = [find_rank(view.title) for view in (pair.view.A, pair.view.B)]
        assert pair.labels(PAIRS) == {"choice_label": "A" if ranks[0] > ranks[1] else "B"}
        assert (pair.gold.disruption_label, pair.gold.novelty_label) == (None, None)
    counts = Counter(pair.gold.own_label for pair in pairs)
    assert abs(counts["A"] - counts["B"]) <= 1
    held = Part(pair_slice, "held_out", n_held_out=60).read(PAIRS)
    trained = Part(pair_slice, "train", n_held_out=60).read(PAIRS)
    seen = [name for pair in (*held, *trained) for name in pair.openalex_id.split("+")]
    assert held
    assert len(set(seen)) == len(seen)
    assert len(Part(pair_slice, "test", n_papers=4).read(PAIRS)) == 4


def test_a_release_without_pairs_is_an_error_and_what_is_unknown_is_in_no_pair(tmp_path):
    rows = [{"publication_year": 1900 + 10 * number} for number in range(6)]
    with pytest.raises(ReleaseError, match=r"no two papers of train in .* make a pair"):
        Part(write_slice(tmp_path / "far", rows), "train").read(PAIRS)
    rows = [{"primary_field": None}, {"publication_year": None}, {"cited_by_count": None}, {}, {}, {}]
    papers = read_split(write_slice(tmp_path / "near", rows), "train")
    assert sum(len(pair.openalex_id.split("+")) for pair in pair_papers(papers)) == 2


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_prompt_shows_two_records_by_letter_and_nothing_of_the_answer(pairs, style, contract):
    rules = TaskRules(target=PAIRS, style=style, contract=contract, hide=("cited_by_count",))
    system, user = rules.render(pairs[0].view)
    record = json.loads(user["content"].splitlines()[1])
    assert set(record) == {"A", "B"}
    for letter, view in (("A", pairs[0].view.A), ("B", pairs[0].view.B)):
        assert record[letter]["title"] == view.title
        assert record[letter]["cited_by_count"] is None
    assert {rules.render(pair.view)[0]["content"] for pair in pairs} == {system["content"]}
    text = system["content"] + user["content"]
    assert not [word for word in ("consolidating", "neutral", "researcher has defined", "cd_index") if word in text]
    assert "A or B" in system["content"]
    assert rules.prompt.render(rules.see(pairs[0].view), contract, PAIRS) == [system, user]


def test_each_paper_of_a_pair_has_half_of_the_cap(pairs):
    view = pairs[0].view
    capped = cap_view(view, 300, len)
    assert len(render_record(view)) > 300 >= len(render_record(capped))
    assert (capped.A.title, capped.B.title) == (view.A.title, view.B.title)
    with pytest.raises(PromptError) as refused:
        cap_view(view, 60, len)
    least = int(str(refused.value).rpartition("=")[2].rstrip("."))
    assert len(render_record(cap_view(view, least, len))) <= least
    with pytest.raises(PromptError):
        cap_view(view, least - 2, len)  # half of it each


def test_prompts_of_ones_own_show_both_papers_or_are_refused(pairs):
    whole = TaskRules(target=PAIRS, style="own", own_prompt=PromptTemplate(name="own", system="$task", user="$record"))
    assert pairs[0].view.B.title in whole.render(pairs[0].view)[1]["content"]
    with pytest.raises(PromptError, match=r"a pair has two of each\. Show \$record"):
        TaskRules(target=PAIRS, style="own", own_prompt=PromptTemplate(name="own", system="$task", user="$title"))


def test_a_right_choice_earns_the_most_and_answers_are_judged(pairs, toy_renderer):
    env = LabelEnv(pairs[0], RULES, toy_renderer)
    right = pairs[0].gold.own_label

    def step(text):
        tokens = toy_renderer.tokenizer.encode(f"{text}<|im_end|>")
        return asyncio.run(LabelEnv(pairs[0], RULES, toy_renderer).step(tokens))

    assert "A or B" in str(env.prompt)
    answers = {letter: f'{{"choice_label": "{letter}", "confidence": 0.8}}' for letter in "AB"}
    assert step(answers[right]).reward == pytest.approx(1.05)
    assert step(answers["B" if right == "A" else "A"]).reward == pytest.approx(-0.55)
    assert step('{"choice_label": "C", "confidence": 0.8}').metrics["format_strict_ok"] == 0

    def know(prompt: str) -> str:
        record = json.loads(prompt[prompt.index('{"A": {"title"') :].splitlines()[0])
        return answers["A" if find_rank(record["A"]["title"]) > find_rank(record["B"]["title"]) else "B"]

    evaluator = LabelEvaluator(pairs, RULES, toy_renderer, AnswerSampling(99))
    metrics = asyncio.run(evaluator.eval_token_completer(Scripted(toy_renderer.tokenizer, know)))
    assert (metrics["test/label_match"], metrics["test/recall/A"], metrics["test/n"]) == (1, 1, len(pairs))
    assert find_target(evaluator.predictions) == PAIRS


def test_baselines_judge_pairs_by_differences_and_a_report_shows_them(pair_slice, pairs, tmp_path):
    config = EvaluationConfig(release=pair_slice, out=tmp_path / "out", target="pairs", preset="exp4")
    results = evaluate_baselines(config)
    assert results["words"]["label_match"] > 0.9
    assert results["majority"]["label_match"] == pytest.approx(0.5, abs=1 / len(pairs))
    # Wilson's interval of as many papers as there are pairs: each pair is one draw.
    low, high = (results["majority"][f"label_match/{end}"] for end in ("low", "high"))
    assert high - low == pytest.approx(2 * 1.96 * (0.25 / (len(pairs) + 1.96**2)) ** 0.5, rel=0.01)
    folder = tmp_path / "out" / "words"
    assert evaluate_predictions(folder / "predictions.parquet") == results["words"]
    write_report(ReportConfig(runs=(folder,), release=pair_slice, out=tmp_path / "report.html"))
    assert "Baselines on pairs" in (tmp_path / "report.html").read_text("utf-8")
    # Turned round, a pair gets the other answer: there is no intercept and no order.
    turned = [type(pair)(pair.openalex_id, PairView(pair.view.B, pair.view.A), pair.gold) for pair in pairs]
    train = Part(pair_slice, "train").read(PAIRS)
    said, other = (run_baseline("words", train, asked, rules=RULES).predictions for asked in (pairs, turned))
    assert [{"A": "B", "B": "A"}[label] for label in said["label"]] == other["label"].to_list()


def test_pairs_are_a_preset_an_option_and_part_of_a_record(pair_slice, toy_model, toy_renderer, tmp_path):
    preset = find_preset("pairs")
    assert resolve_preset(TrainOptions(preset="exp6", target="pairs", release=str(pair_slice))).rules.target == PAIRS
    assert make_preset("own", base="exp4", target="pairs").rules.target is PAIRS
    assert recall_preset(json.loads(json.dumps(describe(preset)))) == preset
    assert pickle.loads(pickle.dumps(preset)) == preset
    assert isinstance(choose_target("pairs", "no-such-release"), type(PAIRS))
    with pytest.raises(SciSciRLError, match="disruption or novelty by name"):
        TaskRules(target=PAIRS, reward="disruptive_x3", contract="two_keys")
    builder = make_builder(
        pair_slice, toy_model, target=PAIRS, contract="two_keys", max_paper_tokens=2048, batch_size=4
    )
    train, _ = asyncio.run(builder())
    batch = train.get_batch(0)
    assert len(batch) == 4
    assert all(isinstance(group.paper.view, PairView) for group in batch)
    assert "A or B" in str(build_messages(batch[0].paper, batch[0].rules, toy_renderer))
