"""Ask a model for its probability of each label, instead of an answer: one pass over a prompt, nothing sampled.

The prompt is followed by the answer of its contract up to the label. The log-probabilities of each label's tokens are
normalised over the labels.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product, takewhile
from typing import Final, NamedTuple, cast

import numpy as np
import polars as pl
import tinker
from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.exceptions import RendererError
from tinker_cookbook.renderers import Message, Renderer
from tinker_cookbook.tokenizer_utils import Tokenizer

from sciscirl.envs.env import build_messages, read_action
from sciscirl.errors import SciSciRLError
from sciscirl.metrics.metrics import Floats
from sciscirl.options import PriorCorrection
from sciscirl.task.contracts import Answer, most_probable, render_answer
from sciscirl.task.experiment import Preset
from sciscirl.task.papers import Gold, Paper, PaperView, list_labels
from sciscirl.task.predictions import make_prediction, prediction_schema
from sciscirl.task.rules import TaskRules

#: Texts without content that stand for a paper. Source: Zhao et al. 2021, arXiv:2102.09690, section 5.
_CONTENT_FREE: Final = ("N/A", "", "[MASK]")


class Ending(NamedTuple):
    """One of the answers that a prompt may have, up to its last token that counts."""

    tokens: tuple[int, ...]
    counted: tuple[int, ...]  # the places of the tokens that count


def count_shared(endings: Sequence[Ending]) -> int:
    """Count the tokens with which all endings begin: they are equally probable, so they decide nothing."""
    places = zip(*(ending.tokens for ending in endings), strict=False)
    return sum(1 for _ in takewhile(lambda place: len(set(place)) == 1, places))


async def score_on_server(
    client: tinker.SamplingClient, prompts: Sequence[Sequence[int]], endings: Sequence[Ending]
) -> list[list[float]]:
    """Return the log-probability of each ending after each prompt, without the tokens that all endings begin with.

    A request asks for the last tokens only, so that a server can take the prompt from its cache. SkyRL 0.4.0 answers
    with all tokens, which the SDK refuses; then all are asked for.
    """
    n_shared, can_cut = count_shared(endings), True

    async def read_last(tokens: tinker.ModelInput, n_last: int) -> list[float | None]:
        nonlocal can_cut
        try:
            if can_cut:
                return await client.compute_logprobs(tokens, prompt_logprobs_last_n=n_last)
        except RuntimeError as error:
            if "prompt_logprobs_last_n" not in str(error):
                raise
            can_cut = False
        return await client.compute_logprobs(tokens)

    async def ask(prompt: Sequence[int], ending: Ending) -> float:
        n_last = len(ending.tokens) - n_shared
        tokens = tinker.ModelInput.from_ints([*prompt, *ending.tokens])
        logprobs = (await read_last(tokens, n_last))[-n_last:]
        told = [logprobs[place - n_shared] for place in ending.counted if place >= n_shared]
        if len(logprobs) < n_last or None in told:
            raise SciSciRLError(
                "the server does not state the log-probabilities of a prompt. Sample instead: answers=sampled."
            )
        return sum(cast("list[float]", told))

    first = await ask(prompts[0], endings[0])  # alone, so that the others know what the server can do
    pairs = [(prompt, ending) for prompt in prompts for ending in endings][1:]
    scores = [first, *await asyncio.gather(*(ask(prompt, ending) for prompt, ending in pairs))]
    return [scores[start : start + len(endings)] for start in range(0, len(scores), len(endings))]


#: Scores endings after prompts: ``score_on_server``, or ``score_here`` of a local model.
Score = Callable[[Sequence[Sequence[int]], Sequence[Ending]], Awaitable[list[list[float]]]]


@dataclass(frozen=True, slots=True)
class LabelScoring:
    """That labels are scored, and over which papers the mean probability of each is divided out; empty: it is not.

    ``drawn`` are the labels of the release, if it has some of them only: the others get no probability.
    """

    prior_papers: tuple[Paper, ...] = ()
    drawn: tuple[str, ...] = ()

    async def ask_server(
        self, client: tinker.SamplingClient, papers: Sequence[Paper], rules: TaskRules, renderer: Renderer
    ) -> tuple[pl.DataFrame, dict[str, float]]:
        """Ask a server, as ``predict_labels``."""
        return await predict_labels(papers, rules, renderer, partial(score_on_server, client), self)

    async def ask_completer(
        self, policy: TokenCompleter, papers: Sequence[Paper], rules: TaskRules, renderer: Renderer
    ) -> tuple[pl.DataFrame, dict[str, float]]:
        """Ask a completer that has a model, as ``predict_labels`` (SciSciRLError if it only samples)."""
        score: Score | None = getattr(policy, "score_endings", None)
        if score is None:
            raise SciSciRLError(
                f"answers=logprobs takes the model, and a {type(policy).__name__} only samples. Leave it out."
            )
        return await predict_labels(papers, rules, renderer, score, self)


def make_content_free() -> list[Paper]:
    """Return records that say nothing, so answers show bias. Source: Zhao et al. 2021, arXiv:2102.09690."""
    views = [PaperView(text, text, None, None, None, (), {}) for text in _CONTENT_FREE]
    return [Paper(f"content-free {number}", view, Gold(None, None)) for number, view in enumerate(views, 1)]


def make_scoring(
    preset: Preset,
    correction: PriorCorrection | None,
    read_train: Callable[[], Sequence[Paper]],
    drawn: Sequence[str] = (),
) -> LabelScoring:
    """Return how the labels of a preset are scored (SciSciRLError: they cannot be); ``train`` calls ``read_train``."""
    if preset.adversarial is not None:
        raise SciSciRLError(
            f"preset {preset.name!r} is adversarial: its answers are challenged, not scored. Set answers=sampled."
        )
    if preset.rules.contract == "probabilities":
        raise SciSciRLError(
            "answers=logprobs scores one label, and under probabilities an answer has all. Set contract=two_keys."
        )
    papers = make_content_free() if correction == "content_free" else read_train() if correction == "train" else ()
    return LabelScoring(tuple(papers), tuple(drawn))


def make_endings(paper: Paper, rules: TaskRules, renderer: Renderer) -> dict[tuple[str, ...], Ending]:
    """Return by labels how an answer with them begins, up to the last label: what follows depends on no label alone."""
    columns = list_labels(rules.target)
    question = build_messages(paper, rules, renderer)
    endings: dict[tuple[str, ...], Ending] = {}
    for labels in product(*columns.values()):
        answer = render_answer(dict(zip(columns, labels, strict=True)), rules.contract, rules.target)
        _, tokens = place_answer(question, answer, renderer)
        counted = find_label_tokens(tokens, columns, renderer.tokenizer)
        endings[labels] = Ending(tuple(tokens[: counted[-1] + 1]), counted)
    return endings


async def predict_labels(
    papers: Sequence[Paper], rules: TaskRules, renderer: Renderer, score: Score, scoring: LabelScoring
) -> tuple[pl.DataFrame, dict[str, float]]:
    """Return a prediction for each paper, and by label the mean probability that was divided out; {} if none was.

    Label and confidence are those of the most probable label; in the joint task those of each, and the probability of
    both. The reward is that of the label alone. ``text`` has the log-probabilities before any correction. Source: Zhao
    et al. 2021, arXiv:2102.09690 (content-free inputs); Zhou et al. 2023, arXiv:2309.17249 (training inputs).
    """
    endings = make_endings(papers[0], rules, renderer)
    everyone = [*scoring.prior_papers, *papers]
    prompts = [renderer.build_generation_prompt(build_messages(paper, rules, renderer)).to_ints() for paper in everyone]
    logprobs = np.array(await score(prompts, [*endings.values()]), dtype=np.float64)
    vocabularies = list_labels(rules.target).values()
    known = [
        all(
            word in scoring.drawn or not {*words} & {*scoring.drawn}
            for word, words in zip(labels, vocabularies, strict=True)
        )
        for labels in endings
    ]
    among = np.where(known, logprobs, -np.inf)
    n_prior = len(scoring.prior_papers)
    prior = _normalise(among)[:n_prior].mean(axis=0) if n_prior else np.ones(len(endings))
    corrected = _normalise(among[n_prior:] - np.log(np.where(known, prior, 1.0)))
    rows = [
        _make_row(paper, rules, dict(zip(endings, chance, strict=True)), dict(zip(endings, raw, strict=True)))
        for paper, chance, raw in zip(papers, corrected.tolist(), logprobs[n_prior:].tolist(), strict=True)
    ]
    told = {", ".join(labels): float(chance) for labels, chance in zip(endings, prior, strict=True)} if n_prior else {}
    return pl.DataFrame(rows, schema=prediction_schema(rules.target)), told


def _normalise(logprobs: Floats) -> Floats:
    raised = np.exp(logprobs - logprobs.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _make_row(
    paper: Paper, rules: TaskRules, chances: Mapping[tuple[str, ...], float], raw: Mapping[tuple[str, ...], float]
) -> dict[str, str | float | bool | None]:
    forecast: dict[str, float] = {}
    labels: dict[str, str] = {}
    for place, (column, words) in enumerate(list_labels(rules.target).items()):
        for word in words:
            total = math.fsum(chance for said, chance in chances.items() if said[place] == word)
            forecast[word] = min(total, 1.0)
        labels[column] = most_probable(forecast, words)
    answer = Answer(
        target=rules.target, labels=labels, forecast={}, confidence=min(chances[tuple(labels.values())], 1.0),
        is_json=True, is_valid=True, tolerant_labels=labels, tolerant_confidence=None, has_think=False, problem="",
    )  # fmt: skip
    gold = paper.labels(rules.target)
    # by the label: probabilities are paid under their own contract
    reward = rules.score(answer, paper)
    text = json.dumps({", ".join(said): round(logprob, 6) for said, logprob in raw.items()})
    return make_prediction(paper.openalex_id, gold, replace(answer, forecast=forecast), reward, text)


def place_answer(question: Sequence[Message], answer: str, renderer: Renderer) -> tuple[list[int], list[int]]:
    """Return the tokens of a prompt, and of an answer behind it with its turn's end.

    SciSciRLError if the chat format writes anything else there: a model would be asked for, or would learn, that.
    """
    prompt = renderer.build_generation_prompt([*question]).to_ints()
    try:
        tokens = renderer.build_supervised_example([*question, Message(role="assistant", content=answer)])[0].to_ints()
    except RendererError as error:
        raise _unfit(renderer) from error
    # Some renderers put thinking between the two, or mark turns differently.
    if tokens[: len(prompt)] != prompt or read_action(tokens[len(prompt) :], renderer) != (answer, True):
        raise _unfit(renderer)
    return prompt, tokens[len(prompt) :]


def find_label_tokens(answer: Sequence[int], columns: Iterable[str], tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the places of the tokens that say the labels, with their closing quotes; none under ``probabilities``."""
    tokens = list(answer)
    text = str(tokenizer.decode(tokens))
    ends = [len(str(tokenizer.decode(tokens[: n + 1]))) for n in range(len(tokens))]
    starts = [0, *ends[:-1]]
    places: list[int] = []
    for column in columns:
        if said := re.search(rf'"{re.escape(column)}":\s*"((?:[^"\\]|\\.)*")', text):
            low, high = said.span(1)
            places += [n for n, (start, end) in enumerate(zip(starts, ends, strict=True)) if start < high and end > low]
    return tuple(places)


def _unfit(renderer: Renderer) -> SciSciRLError:
    return SciSciRLError(
        f"{type(renderer).__name__} does not write exactly the answer behind the prompt that it samples from. A model "
        "would learn, or be asked for, something else. Name another: renderer=, without thinking if there is one."
    )
