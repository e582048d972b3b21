"""One episode in text, without tokens, server or training loop, for one's own trainer or policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from tinker_cookbook.renderers import Message, get_text_content

from sciscirl.lab.adversarial.challenger import object_by_rules
from sciscirl.lab.adversarial.env import Challenger, continue_conversation
from sciscirl.lab.adversarial.rewards import PARTS, Episode, score_episode
from sciscirl.task.experiment import Preset
from sciscirl.task.papers import Paper, PaperView
from sciscirl.task.prompts import escape_markup


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """All turns of an episode, its reward, and the parts that add up to it."""

    turns: list[Message]
    reward: float
    parts: dict[str, float]


async def play_episode(
    paper: Paper,
    preset: Preset,
    policy: Callable[[list[Message]], Awaitable[Message]],
    challenger: Challenger = object_by_rules,
) -> PlayedEpisode:
    """Ask a policy about one paper, challenge its answer if the preset is adversarial, and score the last answer.

    The turns and the reward are those of ``LabelEnv`` and ``AdversarialEnv``. There are two differences. No tokenizer
    cuts a long paper, and an answer that was cut off has to show that in its text.

    Args:
        paper: the paper and its gold labels.
        preset: what is asked and what an answer earns. A balanced reward must be fitted (``TaskRules.fitted``).
        policy: called with the conversation so far, returns the next message; for example a MessageCompleter of the
            cookbook.
        challenger: of an adversarial preset: writes the objection, from the paper as it was shown and the labels.

    Raises:
        ReleaseError: the paper has no label that the preset asks for.
        RewardError: the reward is balanced, and was not fitted.

    Example:
        >>> import asyncio
        >>> from sciscirl.presets import find_preset
        >>> from sciscirl.task.papers import Gold, PaperView
        >>> paper = Paper("W1", PaperView("On sleep", "Mice forget.", 2001, 3, None), Gold("neutral", None))
        >>> async def policy(messages):
        ...     return {"role": "assistant", "content": '{"disruption_label": "neutral", "confidence": 0.8}'}
        >>> asyncio.run(play_episode(paper, find_preset("exp4"), policy)).parts
        {'parse': 0.0, 'contract': 0.05, 'task': 1.0, 'think': 0.0}
    """
    rules = preset.rules
    turns = [Message(role=turn["role"], content=turn["content"]) for turn in rules.render(rules.see(paper.view))]
    first_text = get_text_content(await policy(turns))
    if preset.adversarial is None:
        named = rules.score(rules.parse(first_text), paper).named()
        turns.append(Message(role="assistant", content=first_text))
        return PlayedEpisode(turns, named.pop("total"), named)
    view, first = cast("PaperView", rules.see(paper.view)), rules.parse(first_text)
    challenge = challenger(view, first.labels) if first.is_valid else ""
    turns = continue_conversation(turns, escape_markup(first_text), challenge, rules)
    final_text = get_text_content(await policy(turns))
    episode = Episode(
        view=view, first=first, first_text=first_text, challenge=challenge, final=rules.parse(final_text),
        final_text=final_text,
    )  # fmt: skip
    earned = score_episode(episode, paper.labels(rules.target), preset.adversarial)
    turns.append(Message(role="assistant", content=final_text))
    return PlayedEpisode(turns, earned.total, {name: getattr(earned, name) for name in PARTS})
