from __future__ import annotations

import asyncio
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.metric_util import compute_trajectory_metrics
from tinker_cookbook.rl.rollouts import do_group_rollout

from sciscirl.envs.env import LabelEnv, LabelGroupBuilder
from sciscirl.errors import SciSciRLError
from sciscirl.lab.objectives.batch_term import ShareTracker
from sciscirl.lab.objectives.dataset import RunGroupBuilder
from sciscirl.lab.objectives.dynamic_sampling import DynamicSampling
from sciscirl.metrics.predictions import collect_predictions
from sciscirl.task.contracts import render_answer
from sciscirl.task.papers import TARGETS, VOCABULARIES
from sciscirl.task.predictions import GROUP_SQUARE, prediction_schema
from sciscirl.task.release import read_split
from sciscirl.task.rewards import REWARDS
from sciscirl.task.rules import TaskRules
from tests.sciscirl.toy import LABELS, Scripted, say

RULES = TaskRules(contract="two_keys", reward="strong")


@pytest.fixture(scope="module")
def papers(toy_slice):
    return read_split(toy_slice, "train", needs=TARGETS["joint"])


def roll_out(paper, renderer, answers, rules=RULES, **options):
    policy = Scripted(renderer.tokenizer, answers, **options)
    builder = LabelGroupBuilder(paper, rules, renderer, len(answers))
    return asyncio.run(do_group_rollout(builder, policy)), policy


def of_class(papers, label):
    return next(paper for paper in papers if paper.gold.disruption_label == label)


def last(group, number=0):
    return group.trajectories_G[number].transitions[-1]


def test_the_cookbook_rolls_a_group_out_and_centres_its_rewards(papers, toy_renderer):
    paper = of_class(papers, "neutral")
    group, _ = roll_out(paper, toy_renderer, [say("neutral"), say("disruptive"), "no idea", '{"confidence": 1}'])
    assert group.get_total_rewards() == [1.05, -0.55, -1.0, -0.75]
    advantages = compute_advantages([group])
    torch.testing.assert_close(advantages[0], torch.tensor([1.3625, -0.2375, -0.6875, -0.4375]))
    data, metadata = assemble_training_data([group], advantages)
    assert [row["traj_idx"] for row in metadata] == [0, 1, 2, 3]
    for datum, advantage in zip(data, advantages[0].tolist(), strict=True):
        mask, given_out = datum.loss_fn_inputs["mask"].to_torch(), datum.loss_fn_inputs["advantages"].to_torch()
        assert given_out[mask > 0].tolist() == pytest.approx([advantage] * int(mask.sum()))
        assert not given_out[mask == 0].any()  # no token of the prompt is trained on


def test_the_model_sees_the_paper_and_not_its_class(papers, toy_renderer):
    paper = papers[0]
    _, policy = roll_out(paper, toy_renderer, [say("neutral")])
    assert paper.view.title in policy.prompts[0]
    assert policy.prompts[0].endswith("<|im_start|>assistant\n")
    assert "0.5" not in policy.prompts[0].rpartition("<|im_start|>user")[2]  # the score of every disruptive one


def test_an_answer_that_was_cut_off_is_not_json_and_keeps_its_text(papers, toy_renderer):
    whole = say("neutral")
    group, _ = roll_out(of_class(papers, "neutral"), toy_renderer, [whole], max_tokens=len(whole) - 5)
    step = last(group)
    assert step.reward == -1.0
    assert step.logs["text"] == whole[:-5]
    assert step.logs["problem"] == "cut_off"
    assert step.metrics["max_tokens_reached"] == 1.0
    assert group.trajectories_G[0].stop_reason == "max_tokens"


def test_an_answer_that_was_cut_off_right_after_its_last_brace_is_invalid_all_the_same(papers, toy_renderer):
    whole = say("neutral")
    group, _ = roll_out(of_class(papers, "neutral"), toy_renderer, [whole], max_tokens=len(whole))
    step = last(group)
    assert step.reward == REWARDS["strong"].broken  # it is JSON, but nobody knows that it was to end there
    assert (step.logs["is_json"], step.logs["is_valid"]) == (True, False)
    assert "label" not in step.logs
    assert step.metrics["predicted_share/invalid"] == 1.0


def test_without_the_end_of_turn_an_answer_is_invalid_even_if_the_sampler_says_it_stopped(papers, toy_renderer):
    env = LabelEnv(of_class(papers, "neutral"), RULES, toy_renderer)
    tokens = toy_renderer.tokenizer.encode(say("neutral"), add_special_tokens=False)
    step = asyncio.run(env.step(tokens, extra={"stop_reason": "stop"}))
    assert (step.metrics["label_match"], step.metrics["stop/parse_error"]) == (0.0, 1.0)
    ended = asyncio.run(env.step([*tokens, *toy_renderer.get_stop_sequences()]))
    assert (ended.metrics["label_match"], ended.metrics["stop/completed"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("<think>hm</think>{}", -2.0),
        ("<think>\n</think>\n\n{}", -2.0),
        ('{}<tool_call>{{"name": "f", "arguments": {{}}}}</tool_call>', -1.0),
        ("{}<tool_call>", -1.0),
        ("```json\n{}\n```", -1.0),
    ],
)
def test_what_a_renderer_would_parse_away_still_breaks_the_contract(papers, toy_renderer, answer, reward):
    text = answer.format(say("neutral"))
    group, _ = roll_out(of_class(papers, "neutral"), toy_renderer, [text])
    assert group.get_total_rewards() == [reward]
    assert last(group).logs["text"] == text


@given(st.lists(st.integers(0, 258), max_size=40), st.sampled_from(["stop", "length"]))
def test_any_tokens_at_all_get_a_bounded_reward(papers, toy_renderer, tokens, stop_reason):
    env = LabelEnv(papers[0], RULES, toy_renderer)
    step = asyncio.run(env.step(tokens, extra={"stop_reason": stop_reason}))
    low, high = REWARDS["strong"].bounds
    assert low <= step.reward <= high
    assert step.episode_done
    if stop_reason == "length":
        assert step.metrics["invalid"] == 1.0


def test_every_part_of_the_reward_is_logged_and_adds_up(papers, toy_renderer):
    group, _ = roll_out(
        papers[0], toy_renderer, [say("neutral"), "<think>", "{}", say(papers[0].gold.disruption_label)]
    )
    for trajectory in group.trajectories_G:
        step = trajectory.transitions[-1]
        parts = [step.metrics[f"reward/{part}"] for part in ("parse", "contract", "task", "think")]
        assert step.reward == pytest.approx(sum(parts))
    metrics = compute_trajectory_metrics([group], [["disruption"]])
    assert {"env/all/reward/total", "env/all/reward/parse", "env/all/label_match", "env/all/parse_ok"} <= set(metrics)
    assert sum(metrics[f"env/all/predicted_share/{name}"] for name in (*LABELS, "invalid")) == pytest.approx(1)
    assert metrics["env/all/label_match"] in {0.25, 0.5}


def test_ties_within_a_group_are_logged(papers, toy_renderer):
    tied, _ = roll_out(papers[0], toy_renderer, ["no", "no", "{}"])
    assert tied.metrics_G[0]["reward_tie_group_rate"] == 1.0
    assert tied.metrics_G[0]["reward_uniform_group_rate"] == 0.0
    assert tied.metrics_G[0]["reward_tie_pair_rate"] == pytest.approx(1 / 3)
    rewards = tied.get_total_rewards()
    assert tied.metrics_G[0][GROUP_SQUARE] == pytest.approx((sum(rewards) / 3) ** 2)
    alone, _ = roll_out(papers[0], toy_renderer, ["no"])
    assert alone.metrics_G == [{}]


def test_a_joint_episode_logs_each_label_and_both(papers, toy_renderer):
    rules = TaskRules(target="joint", contract="two_keys", reward="partial")
    paper = next(paper for paper in papers if paper.labels("joint") == {
        "disruption_label": "neutral", "novelty_label": "balanced"
    })  # fmt: skip
    said = {"disruption_label": "neutral", "novelty_label": "novel"}
    answers = [render_answer(said, "two_keys", "joint", confidence=0.25), say("neutral")]
    group, _ = roll_out(paper, toy_renderer, answers, rules)
    assert group.get_total_rewards() == [0.05 + (1.0 + 0.2) / 2, -0.75]
    metrics = last(group).metrics
    assert (metrics["disruption/label_match"], metrics["novelty/label_match"], metrics["label_match"]) == (1, 0, 0.5)
    assert (metrics["both_match"], metrics["novelty/recall/balanced"]) == (0.0, 0.0)
    assert (metrics["disruption/reward/task"], metrics["novelty/reward/task"]) == (1.0, 0.2)
    assert last(group, 1).metrics["novelty/predicted_share/invalid"] == 1.0
    table = collect_predictions([group], "joint")
    assert table.schema == prediction_schema("joint")
    assert table.select("gold_disruption", "label_novelty", "confidence", "reward_task_novelty").rows() == [
        ("neutral", "novel", 0.25, 0.2),
        ("neutral", None, None, 0.0),
    ]
    assert LabelGroupBuilder(paper, rules, toy_renderer).logging_tags() == ["joint"]


def test_a_forecast_is_logged_with_its_score(papers, toy_renderer):
    rules = TaskRules(contract="probabilities", reward="strong")
    answer = '{"disruptive": 0.25, "consolidating": 0.25, "neutral": 0.5}'
    group, _ = roll_out(of_class(papers, "neutral"), toy_renderer, [answer], rules)
    step = last(group)
    assert step.metrics["forecast_brier"] == pytest.approx((0.25**2 + 0.25**2 + 0.5**2) / 2)
    assert step.reward == pytest.approx(0.05 + 1 - 1.6 * step.metrics["forecast_brier"])
    assert step.logs["forecast"] == answer
    assert (step.metrics["label_match"], step.logs["confidence"]) == (1.0, 0.5)


def test_the_batch_term_is_paid_on_top_by_what_came_before_and_is_logged(papers, toy_renderer):
    rules = TaskRules(contract="two_keys", reward="balanced_shares").fitted(papers)
    tracker = ShareTracker(rules.class_counts)
    paper = of_class(papers, "neutral")

    def ask(batch, *answers):
        builder = RunGroupBuilder(
            LabelGroupBuilder(paper, rules, toy_renderer, len(answers)), (), tracker.find_excess(batch), tracker, batch
        )
        return asyncio.run(do_group_rollout(builder, Scripted(toy_renderer.tokenizer, answers)))

    first = ask(0, say("neutral"), say("neutral"), "?")
    assert first.final_rewards_G == [0.0, 0.0, 0.0]
    second = ask(1, say("neutral"), say("disruptive"), "?")
    assert second.final_rewards_G == [pytest.approx(-0.5 * 2 / 3), pytest.approx(0.5 / 3), 0.0]
    assert [metrics["reward/batch"] for metrics in second.metrics_G] == second.final_rewards_G
    assert [metrics["batch_term_answers"] for metrics in (*first.metrics_G, *second.metrics_G)] == [0] * 3 + [2] * 3
    # It sets apart what the reward alone would not: all wrong, but one of them rarer.
    tied = ask(2, say("consolidating"), say("disruptive"))
    assert last(tied).reward == last(tied, 1).reward
    assert tied.get_total_rewards()[0] > tied.get_total_rewards()[1]
    assert tied.metrics_G[0]["reward_uniform_group_rate"] == 0.0


def test_a_constant_group_is_sampled_anew_of_a_spare_paper_until_rewards_differ(papers, toy_renderer):
    first, *spares = [paper for paper in papers if paper.gold.disruption_label == "neutral"][:4]
    policy = Scripted(
        toy_renderer.tokenizer,
        [*[say("neutral")] * 2, *[say("disruptive")] * 2, say("neutral"), say("disruptive"), *["unasked"] * 2],
    )
    builder = RunGroupBuilder(LabelGroupBuilder(first, RULES, toy_renderer, 2), tuple(spares))
    group = asyncio.run(do_group_rollout(builder, policy, strategy=DynamicSampling()))
    assert len(policy.prompts) == 6
    assert all(spares[1].view.title in prompt for prompt in policy.prompts[4:])
    assert group.get_total_rewards() == [1.05, -0.55]
    assert last(group).logs["openalex_id"] == spares[1].openalex_id
    assert group.metrics_G[0]["spares_used"] == 2


def test_spares_are_refused_by_a_loop_that_never_asks_about_them(papers, toy_renderer):
    builder = RunGroupBuilder(LabelGroupBuilder(papers[0], RULES, toy_renderer, 2), tuple(papers[1:3]))
    policy = Scripted(toy_renderer.tokenizer, [])
    with pytest.raises(SciSciRLError, match=r"rollout_error_tolerance=DynamicSampling\(\), or leave n_spares out"):
        asyncio.run(do_group_rollout(builder, policy))


def test_a_group_whose_spares_all_tie_is_left_to_be_dropped(papers, toy_renderer):
    builder = RunGroupBuilder(LabelGroupBuilder(papers[0], RULES, toy_renderer, 2), tuple(papers[1:3]))
    policy = Scripted(toy_renderer.tokenizer, ["?"] * 6)
    group = asyncio.run(do_group_rollout(builder, policy, strategy=DynamicSampling()))
    assert len(policy.prompts) == 6
    assert len(set(group.get_total_rewards())) == 1
    assert pickle.loads(pickle.dumps(DynamicSampling())) == DynamicSampling()
    assert DynamicSampling().catches_group_errors is False


def test_only_what_is_trained_on_is_counted_by_the_tracker(papers, toy_renderer):
    rules = TaskRules(contract="two_keys", reward="balanced_shares").fitted(papers)
    tracker = ShareTracker(rules.class_counts)
    excess = tracker.find_excess(0)
    builder = RunGroupBuilder(LabelGroupBuilder(papers[0], rules, toy_renderer, 2), (papers[3],), excess, tracker, 0)
    policy = Scripted(toy_renderer.tokenizer, ["?", "?", say("neutral"), "?"])
    asyncio.run(do_group_rollout(builder, policy, strategy=DynamicSampling()))
    assert tracker.count_answers(1) == 1
    assert set(tracker.find_excess(1)) == {*VOCABULARIES["disruption_label"]}
