"""How probable a model in this process finds each of some answers: one pass over a prompt, nothing sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from sciscirl.lab.label_scoring.endings import Ending, count_shared


def pad_left(rows: Sequence[Sequence[int]], device: torch.device | None = None) -> tuple[torch.Tensor, ...]:
    """Return tokens, mask and positions, (rows, longest): what is sampled next is in the last place of every row."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[0] * (longest - len(row)) + [*row] for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return tokens, mask, (mask.cumsum(1) - 1).clamp(min=0)


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
