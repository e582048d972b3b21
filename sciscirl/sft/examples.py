"""Supervised examples: a paper's prompt and its gold answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import overload

import tinker
import torch
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.supervised.common import datum_from_model_input_weights
from tinker_cookbook.tokenizer_utils import Tokenizer

from sciscirl.envs.answer_tokens import find_label_tokens, place_answer
from sciscirl.envs.env import build_messages
from sciscirl.errors import SciSciRLError
from sciscirl.options import LossOn
from sciscirl.task.contracts import render_answer
from sciscirl.task.papers import Paper, list_labels
from sciscirl.task.rules import TaskRules

#: Marks around the tokens that are trained on, where an example is shown.
MARKS = ("⟦", "⟧")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One paper's prompt and its gold answer."""

    openalex_id: str
    tokens: tuple[int, ...]  # the prompt as for sampling, then the answer and the end of the turn
    n_prompt: int  # the first so many tokens are the prompt
    labels: tuple[int, ...] = ()  # the places of the tokens that say the labels
    loss_on: LossOn = "answer"

    @property
    def learned(self) -> tuple[int, ...]:
        """The places of the tokens that are trained on."""
        return self.labels if self.loss_on == "label" else tuple(range(self.n_prompt, len(self.tokens)))


def gold_answer(paper: Paper, rules: TaskRules, confidence: float = 1.0) -> str:
    """Write the right answer to a paper.

    A release has only labels. So the justification and signals of four keys are the same text for every paper. The
    confidence is the same number; with probabilities it is that of the right label.
    """
    if not 0 <= confidence <= 1:
        msg = f"confidence is {confidence!r}, needs a number from 0 to 1."
        raise SciSciRLError(msg)
    labels = paper.labels(rules.target)
    answer = render_answer(labels, rules.contract, rules.target, confidence=confidence)
    if rules.parse(answer).labels != labels:
        n_labels = max(map(len, list_labels(rules.target).values()))
        msg = f"confidence is {confidence!r}, needs a number above 1/{n_labels}: less says another label, or none."
        raise SciSciRLError(msg)
    return answer


def build_example(
    paper: Paper, rules: TaskRules, renderer: Renderer, *, confidence: float = 1.0, loss_on: LossOn = "answer"
) -> Example:
    """Put the gold answer after the prompt that evaluations and reinforcement learning show."""
    answer = gold_answer(paper, rules, confidence)
    prompt, tokens = place_answer(build_messages(paper, rules, renderer), answer, renderer)
    labels = find_label_tokens(tokens, list_labels(rules.target), renderer.tokenizer)
    if loss_on == "label" and not labels:
        msg = "loss_on=label trains on one label, and under probabilities an answer has all. Set contract=two_keys."
        raise SciSciRLError(msg)
    n_prompt = len(prompt)
    return Example(
        openalex_id=paper.openalex_id,
        tokens=(*prompt, *tokens),
        n_prompt=n_prompt,
        labels=tuple(n_prompt + place for place in labels),
        loss_on=loss_on,
    )


@dataclass(eq=False, kw_only=True)
class GoldExamples(Sequence[Example]):
    """The examples of papers in training order, each built when used; a paper may come several times."""

    papers: Sequence[Paper]
    rules: TaskRules
    renderer: Renderer
    confidence: float
    loss_on: LossOn = "answer"

    def __len__(self) -> int:
        return len(self.papers)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self._build(paper) for paper in self.papers[index]]
        return self._build(self.papers[index])

    def _build(self, paper: Paper) -> Example:
        return build_example(paper, self.rules, self.renderer, confidence=self.confidence, loss_on=self.loss_on)


def to_datum(example: Example) -> tinker.Datum:
    """Turn an example into Tinker's form: each example has weight 1, shared equally by its answer's tokens.

    Where the loss is on the label alone, each of its tokens has weight 1. Then the loss is -log p(label).

    Example:
        >>> datum = to_datum(Example(openalex_id="W1", tokens=(7, 8, 9, 10), n_prompt=2))
        >>> datum.model_input.to_ints(), datum.loss_fn_inputs["target_tokens"].tolist()
        ([7, 8, 9], [8, 9, 10])
        >>> datum.loss_fn_inputs["weights"].tolist()
        [0.0, 0.5, 0.5]
    """
    weights = torch.zeros(len(example.tokens))
    weights[list(example.learned)] = 1
    model_input = tinker.ModelInput.from_ints(list(example.tokens))
    return datum_from_model_input_weights(
        model_input, weights, reduction="none" if example.loss_on == "label" else "mean"
    )


def show_example(example: Example, tokenizer: Tokenizer) -> str:
    """Decode an example, with what is trained on between ⟦ and ⟧."""
    learned, shown = set(example.learned), ""
    for is_learned, places in groupby(range(len(example.tokens)), learned.__contains__):
        text = str(tokenizer.decode([example.tokens[place] for place in places]))
        shown += f"{MARKS[0]}{text}{MARKS[1]}" if is_learned else text
    return shown
