"""One episode in text, without tokens, server or training loop, for one's own trainer or policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tinker_cookbook.renderers import Message, get_text_content

from sciscirl.lab.adversarial.env import Opponents, play_challenge
from sciscirl.presets import Preset
from sciscirl.task.papers import Paper


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
    opponents: Opponents | None = None,
) -> PlayedEpisode:
    """Ask a policy about one paper, challenge its answer if the preset is adversarial, and score the last answer.

    The turns and the reward are those of ``LabelEnv`` and ``AdversarialEnv``. There are two differences. No tokenizer
    cuts a long paper, and an answer that was cut off has to show that in its text.

    Args:
        paper: the paper and its gold labels.
        preset: what is asked and what an answer earns. A balanced reward must be fitted (``TaskRules.fitted``).
        policy: called with the conversation so far, returns the next message; for example a MessageCompleter of the
            cookbook.
        opponents: challenger and judge; None: those of the preset.

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
    turns, reward, parts = await play_challenge(paper, preset, policy, opponents, turns, first_text)
    return PlayedEpisode(turns, reward, parts)
