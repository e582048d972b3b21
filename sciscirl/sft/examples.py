"""Supervised examples: a paper's prompt and its gold answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import tinker
import torch
from tinker_cookbook.exceptions import RendererError
from tinker_cookbook.renderers import Message, Renderer
from tinker_cookbook.supervised.common import datum_from_model_input_weights
from tinker_cookbook.tokenizer_utils import Tokenizer

from sciscirl.envs.env import build_messages, read_action
from sciscirl.errors import SciSciRLError
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
    n_prompt: int  # the first so many tokens are the prompt; only the others are trained on


def gold_answer(paper: Paper, rules: TaskRules, confidence: float = 1.0) -> str:
    """Write the right answer to a paper.

    A release has only labels. So the justification and signals of four keys are the same text for every paper, and the
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


def build_example(paper: Paper, rules: TaskRules, renderer: Renderer, *, confidence: float = 1.0) -> Example:
    """Put the gold answer after the prompt that evaluations and reinforcement learning show."""
    question = build_messages(paper, rules, renderer)
    prompt = renderer.build_generation_prompt(question).to_ints()
    answer = gold_answer(paper, rules, confidence)
    try:
        tokens = renderer.build_supervised_example([*question, Message(role="assistant", content=answer)])[0].to_ints()
    except RendererError as error:
        raise _unfit(renderer) from error
    # Some renderers put thinking between the two, or mark turns differently: a model would learn that.
    if tokens[: len(prompt)] != prompt or read_action(tokens[len(prompt) :], renderer) != (answer, True):
        raise _unfit(renderer)
    return Example(openalex_id=paper.openalex_id, tokens=tuple(tokens), n_prompt=len(prompt))


@dataclass(eq=False, kw_only=True)
class GoldExamples(Sequence[Example]):
    """The examples of papers in training order, each built when used; a paper may come several times."""

    papers: Sequence[Paper]
    rules: TaskRules
    renderer: Renderer
    confidence: float

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
        return build_example(paper, self.rules, self.renderer, confidence=self.confidence)


def to_datum(example: Example) -> tinker.Datum:
    """Turn an example into Tinker's form: each example has weight 1, shared equally by its answer's tokens.

    Example:
        >>> datum = to_datum(Example(openalex_id="W1", tokens=(7, 8, 9, 10), n_prompt=2))
        >>> datum.model_input.to_ints(), datum.loss_fn_inputs["target_tokens"].tolist()
        ([7, 8, 9], [8, 9, 10])
        >>> datum.loss_fn_inputs["weights"].tolist()
        [0.0, 0.5, 0.5]
    """
    weights = torch.zeros(len(example.tokens))
    weights[example.n_prompt :] = 1
    return datum_from_model_input_weights(tinker.ModelInput.from_ints(list(example.tokens)), weights, reduction="mean")


def show_example(example: Example, tokenizer: Tokenizer) -> str:
    """Decode an example, with what is trained on between ⟦ and ⟧."""
    prompt, answer = example.tokens[: example.n_prompt], example.tokens[example.n_prompt :]
    return f"{tokenizer.decode(list(prompt))}{MARKS[0]}{tokenizer.decode(list(answer))}{MARKS[1]}"


def _unfit(renderer: Renderer) -> SciSciRLError:
    return SciSciRLError(
        f"{type(renderer).__name__} does not write exactly the gold answer behind the prompt that it samples from, so "
        "a model would learn something else. Name another: renderer=, without thinking if there is one."
    )
