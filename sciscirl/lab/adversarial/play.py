"""The second half of an episode in text: the challenge and the last answer (``envs/play.py``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from tinker_cookbook.renderers import Message, get_text_content

from sciscirl.lab.adversarial.env import Opponents, continue_conversation, make_opponents
from sciscirl.lab.adversarial.opponents import Seen, ask_challenger, ask_judge
from sciscirl.lab.adversarial.rewards import Episode, judge_by_rubric, score_episode
from sciscirl.presets import Preset
from sciscirl.task.papers import Paper, PaperView, TargetName
from sciscirl.task.prompts import escape_markup


async def play_challenge(
    paper: Paper,
    preset: Preset,
    policy: Callable[[list[Message]], Awaitable[Message]],
    opponents: Opponents | None,
    turns: list[Message],
    first_text: str,
) -> tuple[list[Message], float, dict[str, float]]:
    """Challenge a first answer and score the last one: all turns, the reward and its parts."""
    if preset.adversarial is None:
        msg = "a preset whose answers are challenged has adversarial rules"
        raise AssertionError(msg)
    rules, gold = preset.rules, paper.labels(preset.rules.target)
    first = rules.parse(first_text)
    if opponents is None:
        opponents = make_opponents(preset.adversarial, preset.model, None)
    challenge, view = "", cast("PaperView", rules.see(paper.view))  # no pairs, as no own label
    if first.is_valid:
        seen = Seen(view, first_text, cast("TargetName", rules.target))
        challenge = await ask_challenger(opponents.challenger, seen)
    turns = continue_conversation(turns, escape_markup(first_text), challenge, rules)
    final_text = get_text_content(await policy(turns))
    episode = Episode(
        view=view,
        first=first,
        first_text=first_text,
        challenge=challenge,
        final=rules.parse(final_text),
        final_text=final_text,
    )
    n_steps: int | None = judge_by_rubric(episode).n_steps
    if opponents.judge is not None and episode.final.is_valid:
        n_steps = await ask_judge(opponents.judge, episode)
    reward = score_episode(episode, gold, opponents.rules, n_steps or 0)
    turns = [*turns, Message(role="assistant", content=final_text)]
    parts = {name: getattr(reward, name) for name in ("correctness", "reasoning", "adaptation")}
    return turns, reward.total, parts
