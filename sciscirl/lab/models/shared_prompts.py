"""Train on prompts that begin alike without computing their beginning again for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

#: Fewer tokens than these are not worth an attention of their own.
_LEAST_SHARED: Final = 16
#: The attention that can do so, as Transformers names it.
SHARED: Final = "sdpa_shared_prompts"


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens that stand together: those before them are in other spans, from the first to the last."""

    start: int
    end: int
    before: tuple[tuple[int, int], ...] = ()  # start and end of each


@dataclass(eq=False)
class PromptTree:
    """Rows of tokens put into one, where what rows have in common at their beginning stands once.

    Attributes:
        tokens: all of them.
        positions: how many tokens of its row are before each.
        spans: tokens with the same rows, in order.
        places: for each row, where its tokens are.

    Example:
        >>> tree = grow_tree([[1, 2, 3, 4], [1, 2, 5]], least=1)
        >>> tree.tokens, tree.positions, tree.places
        ([1, 2, 3, 4, 5], [0, 1, 2, 3, 2], [[0, 1, 2, 3], [0, 1, 4]])
        >>> [(span.start, span.end, span.before) for span in tree.spans]
        [(0, 2, ()), (2, 4, ((0, 2),)), (4, 5, ((0, 2),))]
    """

    tokens: list[int]
    positions: list[int]
    spans: list[Span]
    places: list[list[int]]
    n_read: int = 0  # layers that have used it


def grow_tree(rows: Sequence[Sequence[int]], least: int = _LEAST_SHARED) -> PromptTree:
    """Put rows together. A beginning is shared if it goes on for ``least`` tokens after what more rows share."""
    tree = PromptTree([], [], [], [[] for _ in rows])

    def add(members: Sequence[int], depth: int, end: int, before: tuple[tuple[int, int], ...]) -> None:
        start = len(tree.tokens)
        tree.tokens.extend(rows[members[0]][depth:end])
        tree.positions.extend(range(depth, end))
        for member in members:
            tree.places[member].extend(range(start, len(tree.tokens)))
        here = (start, len(tree.tokens))
        tree.spans.append(Span(*here, before))
        before = (*before, here)
        rest = [member for member in members if len(rows[member]) > end]
        for group in _group(rows, rest, end, least):
            add(group, end, _count_alike([rows[member] for member in group]), before)

    members = sorted(range(len(rows)), key=lambda row: (*rows[row],))
    for group in _group(rows, members, 0, least):
        add(group, 0, _count_alike([rows[member] for member in group]), ())
    return tree


def _group(rows: Sequence[Sequence[int]], members: Sequence[int], depth: int, least: int) -> Iterator[list[int]]:
    """Group sorted rows that go on alike for ``least`` tokens or more."""
    group: list[int] = []
    for member in members:
        if group and _count_alike([rows[group[0]], rows[member]]) < depth + least:
            yield group
            group = []
        group.append(member)
    if group:
        yield group


def _count_alike(rows: Sequence[Sequence[int]]) -> int:
    first, last = rows[0], rows[-1]  # rows are sorted: what these two share, all do
    return next(
        (place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )


class _Attend(torch.autograd.Function):
    """Attention by plain products, (heads, tokens, size), for 16-bit numbers on a CPU.

    There PyTorch's own backward pass takes three times as long: it does not use the processor's units for products.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        n_heads, length, size = query.shape
        scaled = (query * scale).reshape(len(key), -1, size)  # heads that share their keys stand below each other
        scores = scaled @ key.transpose(1, 2)
        own = scores.view(n_heads, length, -1)[:, :, key.shape[1] - length :]
        own.masked_fill_(own.new_ones(length, length, dtype=torch.bool).triu(1), -torch.inf)
        shares = scores.softmax(dim=-1)
        ctx.save_for_backward(scaled, key, value, shares)
        ctx.scale = scale
        return (shares @ value).view(n_heads, length, size)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        scaled, key, value, shares = ctx.saved_tensors
        grad = grads[0].reshape(scaled.shape)
        of_scores = torch.ops.aten._softmax_backward_data(grad @ value.transpose(1, 2), shares, -1, shares.dtype)
        of_query = (of_scores @ key).mul_(ctx.scale).view(grads[0].shape)
        return of_query, of_scores.transpose(1, 2) @ scaled, shares.transpose(1, 2) @ grad, None


def _attend_span(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Attend to all keys before the last queries, and causally to those of the queries; one row."""
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return _Attend.apply(query[0], key[0], value[0], scale)[None]  # pyright: ignore[reportOptionalSubscript]
    length, width = query.shape[2], key.shape[2]
    is_first = length == width
    mask = None if is_first else torch.ones(length, width, dtype=torch.bool, device=query.device).tril(width - length)
    keys, values = (repeat_kv(states, query.shape[1] // key.shape[1]) for states in (key, value))
    return torch.nn.functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, scale=scale, is_causal=is_first
    )


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    prompt_tree: PromptTree | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, None]:
    """Attend as Transformers' ``sdpa``; in a tree, to the spans before and to the own one."""
    if prompt_tree is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    prompt_tree.n_read += 1
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    # Split at once: the gradient of each part by itself would be as long as the whole.
    lengths = [span.end - span.start for span in prompt_tree.spans]
    queries, keys, values = (states.split(lengths, dim=2) for states in (query, key, value))
    numbers = {span.start: number for number, span in enumerate(prompt_tree.spans)}
    parts: list[torch.Tensor] = []
    for number, span in enumerate(prompt_tree.spans):
        read = [*(numbers[start] for start, _ in span.before), number]
        seen, said = (torch.cat([states[one] for one in read], dim=2) for states in (keys, values))
        parts.append(_attend_span(queries[number], seen, said, scale))
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(SHARED, _attend)
AttentionMaskInterface.register(SHARED, sdpa_mask)


def share_prompts(model: Any) -> bool:  # noqa: ANN401 (PreTrainedModel or PeftModel)
    """Have a model compute shared beginnings of a batch once while it trains; return whether it can.

    Outputs and gradients stay what they are, but for rounding. The time of a step falls with the tokens: eight answers
    to one paper read it once. Models with windows, states of other kinds, dropout in attention, or a kernel of one's
    own train as they did.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    config, decoder = base.config, base.base_model
    is_plain = all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
    if not is_plain or config._attn_implementation != "sdpa" or getattr(config, "attention_dropout", 0.0):
        return False
    base.set_attn_implementation(SHARED)
    read = decoder.forward

    def forward(
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        is_asked = decoder.training and torch.is_grad_enabled() and options.get("past_key_values") is None
        if not is_asked or input_ids is None or len(input_ids) == 1:
            return read(input_ids, attention_mask, **options)
        kept = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        tree = grow_tree([row[mask.bool()].tolist() for row, mask in zip(input_ids, kept, strict=True)])
        if 10 * len(tree.tokens) > 9 * int(kept.sum()):
            return read(input_ids, attention_mask, **options)
        device = input_ids.device
        options |= {"position_ids": torch.tensor([tree.positions], device=device), "prompt_tree": tree}
        output = read(torch.tensor([tree.tokens], device=device), None, **options)
        places = torch.zeros_like(input_ids)
        places[kept.bool()] = torch.tensor([place for row in tree.places for place in row], device=device)
        output.last_hidden_state = output.last_hidden_state[0][places]
        return output

    if not _hands_trees_on(decoder, base.device):
        base.set_attn_implementation("sdpa")
        return False
    decoder.forward = forward
    # A part of a longer tensor would have PyTorch copy the weights of the last layer for every row.
    base.get_output_embeddings().register_forward_pre_hook(_lay_out)
    return True


def _lay_out(module: torch.nn.Module, states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(one.contiguous() for one in states)


@torch.no_grad()
def _hands_trees_on(decoder: Any, device: torch.device) -> bool:  # noqa: ANN401
    """Tell whether every layer gets what the model is called with."""
    tree = grow_tree([[0, 0], [0, 1]], least=1)
    tokens, positions = (torch.tensor([values], device=device) for values in (tree.tokens, tree.positions))
    try:
        decoder(tokens, position_ids=positions, prompt_tree=tree, use_cache=False)
    except TypeError:  # an option that it does not know
        return False
    return tree.n_read == decoder.config.num_hidden_layers
