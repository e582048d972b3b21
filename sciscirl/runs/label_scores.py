"""Score endings of a prompt: how probable a model finds each of some answers, by its log-probabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple, cast

import tinker
import torch

from sciscirl.errors import SciSciRLError


class Ending(NamedTuple):
    """One of the answers that a prompt may have, up to its last token that counts."""

    tokens: tuple[int, ...]
    counted: tuple[int, ...]  # the places of the tokens that count


def count_shared(endings: Sequence[Ending]) -> int:
    """Count the tokens with which all endings begin: they are equally probable, so they decide nothing."""
    places = zip(*(ending.tokens for ending in endings), strict=False)
    return sum(1 for _ in takewhile(lambda place: len(set(place)) == 1, places))


@torch.no_grad()
def score_here(
    model: Any,  # noqa: ANN401
    prompts: Sequence[Sequence[int]],
    endings: Sequence[Ending],
    *,
    batch_size: int = 8,
) -> list[list[float]]:
    """Return the log-probability of each ending after each prompt, summed over the tokens that count.

    Each prompt is read once; the endings share its cache. Models with linear attention read it once for each ending.

    Args:
        model: a PreTrainedModel or PeftModel, asked in the mode in which it is.
        prompts: tokens.
        endings: they differ, and none begins another.
        batch_size: prompts in one pass.

    Returns:
        For each prompt a number for each ending, without the tokens that all endings begin with.
    """
    from transformers.cache_utils import LinearAttentionCacheLayerMixin  # takes seconds, and a server needs none

    from sciscirl.runs.local_completer import pad_left

    n_shared, n_endings = count_shared(endings), len(endings)
    rests = [ending.tokens[n_shared:] for ending in endings]
    width = max(map(len, rests))
    device = model.device
    said = torch.tensor([[*rest, *[0] * (width - len(rest))] for rest in rests], device=device)
    counts = torch.tensor([[n_shared + n in ending.counted for n in range(width)] for ending in endings], device=device)
    scores: list[list[float]] = []
    for start in range(0, len(prompts), batch_size):
        rows = [[*prompt, *endings[0].tokens[:n_shared]] for prompt in prompts[start : start + batch_size]]
        tokens, mask, positions = pad_left(rows, device)
        output = model(input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
        logprobs = output.logits[:, -1].float().log_softmax(dim=-1)[:, said[:, 0]][:, :, None]
        if width > 1:
            each = torch.arange(len(rows), device=device).repeat_interleave(n_endings)
            mask = torch.cat([mask, torch.ones_like(mask[:, :1]).expand(-1, width - 1)], dim=1)
            inputs = said[:, :-1].repeat(len(rows), 1)
            places = (positions[:, -1:] + torch.arange(1, width, device=device))[each]
            cache = output.past_key_values
            if any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in cache.layers):
                # Such layers go on from a cache by one token only: with more they forget the prompt.
                cache, inputs = None, torch.cat([tokens[each], inputs], dim=1)
                places = torch.cat([positions[each], places], dim=1)
            else:
                cache.reorder_cache(each)
            later = model(
                input_ids=inputs,
                attention_mask=mask[each],
                position_ids=places,
                past_key_values=cache,
                use_cache=cache is not None,
                logits_to_keep=width - 1,
            ).logits.float()
            later = later.log_softmax(dim=-1).gather(2, said[:, 1:].repeat(len(rows), 1)[:, :, None])[:, :, 0]
            logprobs = torch.cat([logprobs, later.reshape(len(rows), n_endings, -1)], dim=2)
        scores += cast("list[list[float]]", logprobs.double().where(counts, 0.0).sum(dim=2).tolist())
    return scores


async def score_on_server(
    client: tinker.SamplingClient, prompts: Sequence[Sequence[int]], endings: Sequence[Ending]
) -> list[list[float]]:
    """Return what ``score_here`` returns, from a Tinker server: one request for each prompt and ending.

    A request asks for the last tokens only, so that a server can take the prompt from its cache. SkyRL 0.4.0 answers
    with all tokens, which the SDK refuses; a server that does so is asked for all of them.
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
            msg = "the server does not state the log-probabilities of a prompt. Sample instead: answers=sampled."
            raise SciSciRLError(msg)
        return sum(cast("list[float]", told))

    first = await ask(prompts[0], endings[0])  # alone, so that the others know what the server can do
    pairs = [(prompt, ending) for prompt in prompts for ending in endings][1:]
    scores = [first, *await asyncio.gather(*(ask(prompt, ending) for prompt, ending in pairs))]
    return [scores[start : start + len(endings)] for start in range(0, len(scores), len(endings))]
