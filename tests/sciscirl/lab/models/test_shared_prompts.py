"""Prompts that begin alike are computed once in training, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from sciscirl.lab.models.shared_prompts import share_prompts

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 4, "attn_implementation": "sdpa",
}  # fmt: skip
START = list(range(1, 31))
ROWS = [[*START, *middle, *end] for middle in ([40] * 20, [41] * 25) for end in ([7], [8, 9], [7])]


def make_model(kind="llama"):
    torch.manual_seed(0)
    make = {"llama": (LlamaForCausalLM, LlamaConfig), "qwen3": (Qwen3ForCausalLM, Qwen3Config)}[kind]
    return make[0](make[1](**SIZES)).train()


def pad(rows, *, left):
    longest = max(map(len, rows))
    gaps = [[0] * (longest - len(row)) for row in rows]
    tokens = [gap + row if left else row + gap for row, gap in zip(rows, gaps, strict=True)]
    kept = [[0] * len(gap) + [1] * len(row) if left else [1] * len(row) + [0] * len(gap)
            for row, gap in zip(rows, gaps, strict=True)]  # fmt: skip
    return torch.tensor(tokens), torch.tensor(kept)


def gradients(model, rows, *, left, dtype=None):
    tokens, kept = pad(rows, left=left)
    labels = tokens.masked_fill(kept.cumsum(1) * kept < 2, -100)  # what padding says of the first token is undefined
    positions = (kept.cumsum(1) - 1).clamp(min=0)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
        loss = model(input_ids=tokens, attention_mask=kept, position_ids=positions, labels=labels, use_cache=False).loss
    loss.backward()
    return float(loss.detach()), {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("checkpointing", [True, False])
def test_loss_and_gradient_are_those_of_every_row_alone(kind, left, checkpointing, monkeypatch):
    plain, shared = make_model(kind), make_model(kind)
    if checkpointing:
        shared.gradient_checkpointing_enable({"use_reentrant": False})
    assert share_prompts(shared)
    seen = []
    read = shared.model.layers[0].forward
    monkeypatch.setattr(
        shared.model.layers[0], "forward", lambda states, **more: seen.append(states.shape) or read(states, **more)
    )
    expected, by_name = gradients(plain, ROWS, left=left)
    loss, found = gradients(shared, ROWS, left=left)
    assert seen[0][:2] == (1, 30 + 3 * (20 + 25) + 8)
    assert loss == pytest.approx(expected, abs=1e-6)
    for name, gradient in by_name.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)


def test_sixteen_bits_on_a_processor():
    """Not bit for bit: products of 16-bit numbers are rounded."""
    plain, shared = make_model(), make_model()
    assert share_prompts(shared)
    expected, by_name = gradients(plain, ROWS, left=True)
    loss, found = gradients(shared, ROWS, left=True, dtype=torch.bfloat16)
    assert loss == pytest.approx(expected, abs=0.02)
    for name, gradient in by_name.items():
        torch.testing.assert_close(found[name], gradient, rtol=0.05, atol=0.03 * float(gradient.abs().max()))


def test_what_is_not_trained_is_read_as_before():
    plain, shared = make_model(), make_model()
    assert share_prompts(shared)
    tokens, kept = pad(ROWS, left=True)
    with torch.no_grad():
        for one in (plain.eval(), shared.eval()):
            one.found = one(input_ids=tokens, attention_mask=kept).logits
    torch.testing.assert_close(plain.found, shared.found, rtol=0, atol=0)
    apart = [[row] * 20 for row in range(3)]  # nothing in common
    assert gradients(shared.train(), apart, left=True)[0] == gradients(plain.train(), apart, left=True)[0]


def test_models_that_look_elsewhere_are_left_alone():
    windows = Gemma2ForCausalLM(Gemma2Config(**SIZES, sliding_window=8))
    assert not share_prompts(windows)
    assert windows.config._attn_implementation == "sdpa"
    config = LlamaConfig(**SIZES | {"attn_implementation": "eager"})
    assert not share_prompts(LlamaForCausalLM(config))
