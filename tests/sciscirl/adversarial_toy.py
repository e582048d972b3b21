"""Scripted episodes of challenge and answer."""

from __future__ import annotations

import asyncio
from itertools import product

from tinker_cookbook.rl.rollouts import do_group_rollout

from sciscirl.lab.adversarial.env import AdversarialGroupBuilder
from sciscirl.presets import PRESETS
from sciscirl.task.contracts import Reasons, render_answer
from sciscirl.task.papers import TARGETS, VOCABULARIES, Gold
from sciscirl.task.prompts import escape_markup
from tests.sciscirl.toy import Scripted

RULES = PRESETS["adversarial"].rules
JOINT = TARGETS["joint"]
#: Every pair of labels, by label column.
LABELS = [dict(zip(JOINT, labels, strict=True)) for labels in product(*(VOCABULARIES[column] for column in JOINT))]
GOLDS = [Gold(**labels) for labels in LABELS]


def say_both(labels, reason="It may be so.", signals=("citation record",), confidence=0.5, rules=RULES) -> str:
    return render_answer(labels, "four_keys", rules.target, confidence=confidence, reasons=Reasons(reason, signals))


def roll_out(paper, renderer, script, rules=RULES, max_tokens=10_000, **challenged):
    """Play a group of episodes by pairs of first and final texts, the first ones all different."""
    firsts, finals = iter([first for first, _ in script]), {escape_markup(first): final for first, final in script}

    def choose(prompt: str) -> str:
        turns = prompt.split("<|im_start|>assistant\n")
        return next(firsts) if len(turns) == 2 else finals[turns[1].partition("<|im_end|>")[0]]

    policy = Scripted(renderer.tokenizer, choose, max_tokens=max_tokens)
    builder = AdversarialGroupBuilder(paper, rules, renderer, len(script), **challenged)
    return asyncio.run(do_group_rollout(builder, policy)), policy
