"""An episode in text is the episode that training plays in tokens."""

from __future__ import annotations

import asyncio

import pytest

from sciscirl import play_episode
from sciscirl.envs.env import LabelGroupBuilder
from sciscirl.presets import PRESETS
from sciscirl.task.release import read_split
from tests.sciscirl.adversarial_toy import roll_out, say_both
from tests.sciscirl.toy import Scripted, say

PAPER = {"disruption_label": "disruptive", "novelty_label": "novel"}
RIGHT = say_both(PAPER)
OTHER = say_both({**PAPER, "disruption_label": "neutral"}, reason="Rather more like <b>é</b> others.")


def speaker(*texts):
    said = iter(texts)

    async def policy(messages):
        return {"role": "assistant", "content": next(said)}

    return policy


@pytest.mark.parametrize("script", [(RIGHT, RIGHT), (RIGHT, OTHER), (OTHER, RIGHT), ("no", RIGHT), (RIGHT, "no")])
def test_a_challenged_episode_has_the_turns_and_the_reward_of_training(toy_slice, toy_renderer, script):
    paper = next(p for p in read_split(toy_slice, "train") if p.labels("joint") == PAPER)
    played = asyncio.run(play_episode(paper, PRESETS["adversarial"], speaker(*script)))
    group, policy = roll_out(paper, toy_renderer, [script])
    (trained,) = group.trajectories_G
    asked = toy_renderer.build_generation_prompt(played.turns[:-1]).to_ints()
    assert toy_renderer.tokenizer.decode(asked) == policy.prompts[-1]
    assert played.reward == sum(step.reward for step in trained.transitions)
    logged = trained.transitions[-1].metrics
    assert played.parts == {part: logged[f"reward/{part}"] for part in ("correctness", "reasoning", "adaptation")}


@pytest.mark.parametrize("text", [say("disruptive"), say("neutral"), "no", "<think>"])
def test_an_episode_of_one_answer_has_the_reward_of_training(toy_slice, toy_renderer, text):
    from tinker_cookbook.rl.rollouts import do_group_rollout

    paper, rules = read_split(toy_slice, "train")[0], PRESETS["exp5"].rules
    played = asyncio.run(play_episode(paper, PRESETS["exp5"], speaker(text)))
    policy = Scripted(toy_renderer.tokenizer, [text])
    group = asyncio.run(do_group_rollout(LabelGroupBuilder(paper, rules, toy_renderer), policy))
    (step,) = group.trajectories_G[0].transitions
    assert played.reward == step.reward
    assert {f"reward/{part}": value for part, value in played.parts.items()}.items() <= step.metrics.items()
    assert played.turns[-1] == {"role": "assistant", "content": text}
