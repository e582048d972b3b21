"""Supervised examples: a paper's prompt and its gold answer; those of a run, and its settings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import tinker
import torch
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.supervised.common import datum_from_model_input_weights

from sciscirl.envs.dataset import Epochs, LabelDatasetBuilder, check_fit
from sciscirl.envs.env import build_messages
from sciscirl.errors import SciSciRLError
from sciscirl.lab.label_scoring import find_label_tokens, place_answer
from sciscirl.lab.training.rl import name_fields
from sciscirl.options import LossOn, Run, SftOptions, list_recorded
from sciscirl.presets import describe
from sciscirl.task.contracts import most_probable, render_answer
from sciscirl.task.papers import Paper, list_labels
from sciscirl.task.rules import TaskRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One paper's prompt and its gold answer."""

    openalex_id: str
    tokens: tuple[int, ...]  # the prompt as for sampling, then the answer and the end of the turn
    n_prompt: int  # the first so many tokens are the prompt
    labels: tuple[int, ...] = ()  # the places of the tokens that say the labels
    loss_on: LossOn = "answer"
    weight: float = 1.0

    @property
    def learned(self) -> tuple[int, ...]:
        """The places of the tokens that are trained on."""
        return self.labels if self.loss_on == "label" else tuple(range(self.n_prompt, len(self.tokens)))


def gold_answer(paper: Paper, rules: TaskRules, confidence: float = 1.0) -> str:
    """Write the right answer to a paper; a release has only labels, so words and confidence are the same for all."""
    if not 0 <= confidence <= 1:
        raise SciSciRLError(f"confidence is {confidence!r}, needs a number from 0 to 1.")
    labels = paper.labels(rules.target)
    answer = render_answer(labels, rules.contract, rules.target, confidence=confidence)
    if rules.parse(answer).labels != labels:
        n_labels = max(map(len, list_labels(rules.target).values()))
        raise SciSciRLError(
            f"confidence is {confidence!r}, needs a number above 1/{n_labels}: less says another label, or none."
        )
    return answer


def write_chances(paper: Paper, rules: TaskRules) -> str:
    """Write the chances of the labels as an answer under ``probabilities``, with two digits and without a tie.

    Example:
        >>> from sciscirl.task.papers import Gold, PaperView
        >>> gold = Gold("neutral", None, chances=(0.4, 0.4, 0.2))
        >>> paper = Paper("W1", PaperView("On sleep", None, 2001, 3, None), gold)
        >>> write_chances(paper, TaskRules(contract="probabilities", weight="chances"))
        '{"disruptive": 0.42, "consolidating": 0.39, "neutral": 0.19}'
    """
    chances = rules.weigh(paper)
    written = {label: max(0, math.ceil(100 * chance) - 1) for label, chance in chances.items()}
    top = most_probable(chances, [*chances])
    written[top] += 100 - sum(written.values())
    return json.dumps({label: n / 100 for label, n in written.items()})


def list_answers(paper: Paper, rules: TaskRules, confidence: float = 1.0) -> list[tuple[str, float]]:
    """List the answers that a paper teaches, each with its weight: with ``weight=chances`` one with each label.

    Under ``probabilities`` it is then one answer that states the chances.
    """
    weights = rules.weigh(paper)
    if rules.weight == "chances" and rules.contract == "probabilities":
        if confidence != 1:
            raise SciSciRLError(
                f"confidence is {confidence!r} and has no effect: weight=chances writes the chances. Leave it out."
            )
        return [(write_chances(paper, rules), 1.0)]
    if not weights:
        return [(gold_answer(paper, rules, confidence), 1.0)]
    return [
        (gold_answer(replace(paper, gold=replace(paper.gold, disruption_label=label)), rules, confidence), weight)
        for label, weight in weights.items()
    ]


def count_answers(rules: TaskRules) -> int:
    """Return how many answers a paper teaches."""
    if rules.weight != "chances" or rules.contract == "probabilities":
        return 1
    (labels,) = list_labels(rules.target).values()  # chances are known of disruption only
    return len(labels)


@dataclass(eq=False)
class GoldExamples(Sequence[Example]):
    """The examples of papers in training order, built when used; ``n_each`` for a paper, which may come again.

    In each, a gold answer follows the prompt that evaluations and reinforcement learning show.
    """

    papers: Epochs
    rules: TaskRules
    renderer: Renderer
    confidence: float = 1.0
    loss_on: LossOn = "answer"

    def __post_init__(self) -> None:
        self.n_each = count_answers(self.rules)

    def __len__(self) -> int:
        return len(self.papers) * self.n_each

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place, number = divmod(range(len(self))[index], self.n_each)
        paper, rules, renderer = self.papers[place], self.rules, self.renderer
        answer, weight = list_answers(paper, rules, self.confidence)[number]
        prompt, tokens = place_answer(build_messages(paper, rules, renderer), answer, renderer)
        labels = find_label_tokens(tokens, list_labels(rules.target), renderer.tokenizer)
        if self.loss_on == "label" and not labels:
            raise SciSciRLError(
                "loss_on=label trains on one label, and under probabilities an answer has all. Set contract=two_keys."
            )
        n_prompt = len(prompt)
        return Example(
            openalex_id=paper.openalex_id,
            tokens=(*prompt, *tokens),
            n_prompt=n_prompt,
            labels=tuple(n_prompt + place for place in labels),
            loss_on=self.loss_on,
            weight=weight,
        )


def to_datum(example: Example) -> tinker.Datum:
    """Turn an example into Tinker's form: its weight is shared equally by its answer's tokens.

    Where the loss is on the label alone, each of its tokens has the weight. Then the loss is -weight * log p(label).

    Example:
        >>> datum = to_datum(Example(openalex_id="W1", tokens=(7, 8, 9, 10), n_prompt=2))
        >>> datum.model_input.to_ints(), datum.loss_fn_inputs["target_tokens"].tolist()
        ([7, 8, 9], [8, 9, 10])
        >>> datum.loss_fn_inputs["weights"].tolist()
        [0.0, 0.5, 0.5]
    """
    weights = torch.zeros(len(example.tokens))
    weights[list(example.learned)] = example.weight
    if example.loss_on == "answer":
        weights /= len(example.learned)
    model_input = tinker.ModelInput.from_ints(list(example.tokens))
    return datum_from_model_input_weights(model_input, weights, reduction="none")


def make_papers_builder(run: Run[SftOptions]) -> LabelDatasetBuilder:
    """Return the builder that orders the papers as reinforcement learning with the same seed does."""
    return LabelDatasetBuilder(**name_fields(run))


def make_examples(builder: LabelDatasetBuilder, options: SftOptions) -> GoldExamples:
    """Read the training split into ``batch_size`` examples for each step, in order: all epochs, or ``max_steps``."""
    papers, rules, renderer = builder.train_papers(), builder.rules(), builder.renderer()
    check_fit(papers, rules, renderer)
    n_steps = min(len(papers) // builder.order.batch_size, options.max_steps or len(papers))
    shown = papers.first(n_steps * builder.order.batch_size)
    examples = GoldExamples(shown, rules, renderer, options.confidence, options.loss_on)
    _ = examples[0]  # a renderer that does not do is said before anything is loaded
    return examples


def list_settings(run: Run[SftOptions], builder: LabelDatasetBuilder) -> dict[str, Any]:
    """List the settings that stay the same on resuming; the steps too, because the learning rate falls with them."""
    options = run.options
    chosen = list_recorded(options) | {"n_epochs": options.n_epochs, "max_steps": options.max_steps}
    chosen["answers"] = "logprobs" if options.loss_on == "label" else "sampled"
    chosen |= {"renderer": builder.renderer_name, "backend": options.backend} | builder.describe_papers()
    return describe(run.preset) | chosen
