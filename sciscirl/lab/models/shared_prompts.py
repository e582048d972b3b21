"""Train on rows that begin alike without computing their beginning again for each."""

from __future__ import annotations

from typing import Any, Final

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

#: Fewer tokens than these are not worth a mask of their own.
_LEAST_SHARED: Final = 16


def share_prompts(model: Any) -> bool:  # noqa: ANN401 (PreTrainedModel or PeftModel)
    """Have a model compute what all rows of a batch begin with once while it trains; return whether it can.

    The rows stand in one, and a mask lets every rest see the beginning and itself. Outputs and gradients stay, but for
    rounding. Models with windows, other states or other attention than ``sdpa`` train as they did.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    config, decoder = base.config, base.base_model
    is_plain = all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
    if not is_plain or config._attn_implementation != "sdpa":
        return False
    read = decoder.forward

    def forward(
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        is_asked = decoder.training and torch.is_grad_enabled() and options.get("past_key_values") is None
        if not is_asked or input_ids is None or len(input_ids) == 1:
            return read(input_ids, attention_mask, **options)
        kept = (torch.ones_like(input_ids) if attention_mask is None else attention_mask).bool()
        rows = [row[mask] for row, mask in zip(input_ids, kept, strict=True)]
        n_shared = _count_shared(rows)
        if n_shared < _LEAST_SHARED:
            return read(input_ids, attention_mask, **options)
        rests = [row[n_shared:] for row in rows]
        lengths = torch.tensor([n_shared, *map(len, rests)], device=input_ids.device)
        owner = torch.arange(len(lengths), device=input_ids.device).repeat_interleave(lengths)  # 0: of all
        places = torch.arange(len(owner), device=input_ids.device)
        seen = ((owner[:, None] == owner) | (owner == 0)) & (places[:, None] >= places)
        starts = lengths.cumsum(0) - lengths
        positions = places - starts[owner] + n_shared * (owner > 0)
        options |= {"position_ids": positions[None]}
        output = read(torch.cat([rows[0][:n_shared], *rests])[None], seen[None, None], **options)
        found = torch.zeros_like(input_ids)
        found[kept] = torch.cat([torch.cat([places[:n_shared], places[owner == n]]) for n in range(1, len(lengths))])
        output.last_hidden_state = output.last_hidden_state[0][found]
        return output

    decoder.forward = forward
    # A part of a longer tensor would have PyTorch copy the weights of the last layer for every row.
    base.get_output_embeddings().register_forward_pre_hook(_lay_out)
    return True


def _lay_out(module: torch.nn.Module, states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(one.contiguous() for one in states)


def _count_shared(rows: list[torch.Tensor]) -> int:
    """Count the tokens that all rows begin with. Leave at least one token of each row."""
    least = min(map(len, rows)) - 1
    alike = torch.stack([row[:least] == rows[0][:least] for row in rows]).all(dim=0)
    return int(alike.long().cumprod(dim=0).sum())
