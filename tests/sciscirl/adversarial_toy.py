"""Scripted episodes of challenge and answer, and challengers that remember what they were shown."""

from __future__ import annotations

import asyncio
from itertools import product

from tinker_cookbook.completers import MessageCompleter
from tinker_cookbook.renderers import Message, get_text_content
from tinker_cookbook.rl.rollouts import do_group_rollout

from sciscirl.lab.adversarial.env import AdversarialGroupBuilder, Opponents
from sciscirl.presets import PRESETS
from sciscirl.task.contracts import render_answer
from sciscirl.task.papers import TARGETS, VOCABULARIES, Gold
from sciscirl.task.prompts import escape_markup
from tests.sciscirl.toy import Scripted

RULES = PRESETS["adversarial"].rules
JOINT = TARGETS["joint"]
#: Every pair of labels, by label column.
LABELS = [dict(zip(JOINT, labels, strict=True)) for labels in product(*(VOCABULARIES[column] for column in JOINT))]
GOLDS = [Gold(**labels) for labels in LABELS]


class Recording(MessageCompleter):
    """Says what another completer says, or always the same, and keeps what it was asked."""

    def __init__(self, speaker: MessageCompleter | str) -> None:
        self.speaker = speaker
        self.asked: list[list[Message]] = []

    async def __call__(self, messages: list[Message]) -> Message:
        self.asked.append(messages)
        if isinstance(self.speaker, str):
            return Message(role="assistant", content=self.speaker)
        return await self.speaker(messages)

    @property
    def text(self) -> str:
        return "\n".join(get_text_content(message) for messages in self.asked for message in messages)


def say_both(labels, reason="It may be so.", signals=("citation record",), confidence=0.5, rules=RULES) -> str:
    return render_answer(
        labels, "four_keys", rules.target, confidence=confidence, justification=reason, signals=signals
    )


def roll_out(paper, renderer, script, opponents=None, rules=RULES, **options):
    """Play a group of episodes by pairs of first and final texts, the first ones all different."""
    firsts, finals = iter([first for first, _ in script]), {escape_markup(first): final for first, final in script}

    def choose(prompt: str) -> str:
        turns = prompt.split("<|im_start|>assistant\n")
        return next(firsts) if len(turns) == 2 else finals[turns[1].partition("<|im_end|>")[0]]

    policy = Scripted(renderer.tokenizer, choose, **options)
    builder = AdversarialGroupBuilder(paper, rules, renderer, len(script), opponents=opponents or Opponents())
    return asyncio.run(do_group_rollout(builder, policy)), policy
