"""Score endings of a prompt: how probable a model finds each of some answers, by its log-probabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple, cast

import tinker

from sciscirl.errors import SciSciRLError


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
