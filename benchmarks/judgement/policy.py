"""A Llama as a policy, in PyTorch alone: answers to many prompts are sampled, scored and learned in shared passes.

A row of a batch holds one prompt and several answers to it. An answer sees the prompt and itself, not the other
answers. So a prompt is computed once, whatever the number of its answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

PAD = 0  # nothing sees it


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama whose output layer is its embedding. The defaults are those of SmolLM2-135M."""

    n_layers: int = 30
    hidden: int = 576
    inner: int = 1536
    n_heads: int = 9
    n_kv: int = 3
    vocabulary: int = 49152
    theta: float = 100_000.0
    eps: float = 1e-5

    @property
    def head(self) -> int:
        return self.hidden // self.n_heads


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, hidden = shape, shape.hidden
        self.attn_norm, self.ffn_norm = nn.Parameter(torch.ones(hidden)), nn.Parameter(torch.ones(hidden))
        self.qkv = nn.Linear(hidden, (shape.n_heads + 2 * shape.n_kv) * shape.head, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, hidden, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, past: list[Tensor] | None):
        (n, length, hidden), shape = x.shape, self.shape
        mixed = self.qkv(F.rms_norm(x, (hidden,), self.attn_norm, shape.eps)).view(n, length, -1, shape.head)
        q, k, v = mixed.transpose(1, 2).split((shape.n_heads, shape.n_kv, shape.n_kv), 1)
        q, k = rotate(q, turn), rotate(k, turn)
        if past is not None:
            k, v = past_with(past, k, v)
        k, v = (t.repeat_interleave(shape.n_heads // shape.n_kv, 1) for t in (k, v))
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, hidden))
        gate, up = self.gate_up(F.rms_norm(x, (hidden,), self.ffn_norm, shape.eps)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def past_with(past: list[Tensor], k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    if past:
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
    past[:] = k, v
    return k, v


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Policy(nn.Module):
    """The transformer. ``forward`` returns hidden states; ``logits`` reads them with the tied embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.n_layers))
        self.norm = nn.Parameter(torch.ones(shape.hidden))

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor, past=None, keep: Sequence[int] = ()):
        """``keep`` names layers whose output is returned, too."""
        x = self.embedding(tokens)
        head = self.shape.head
        frequency = self.shape.theta ** (-torch.arange(0, head, 2, device=x.device) / head)
        angle = positions[:, None, :, None].float() * frequency
        kind = torch.get_autocast_dtype("cuda") if x.is_cuda and torch.is_autocast_enabled("cuda") else x.dtype
        turn = tuple(torch.cat((f(angle), f(angle)), -1).to(kind) for f in (torch.cos, torch.sin))
        kept = []
        for number, layer in enumerate(self.layers):
            if self.training and tokens.shape[0] * tokens.shape[1] > 60_000:
                x = checkpoint(layer, x, turn, mask, None, use_reentrant=False)
            else:
                x = layer(x, turn, mask, None if past is None else past[number])
            if number + 1 in keep:
                kept.append(x)
        x = F.rms_norm(x, (self.shape.hidden,), self.norm, self.shape.eps)
        return (x, kept) if keep else x

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits, always computed in float32: in bfloat16 those above 16 are multiples of 0.125, so many tie."""
        with torch.autocast(hidden.device.type, enabled=False):
            return F.linear(hidden.float(), self.embedding.weight.float())


def read_weights(path: Path) -> dict[str, Tensor]:
    return read_model(path)[1]


def read_model(path: Path) -> tuple[Shape, dict[str, Tensor]]:
    """Read sizes and weights of a Llama from a GGUF file of the kinds F32, F16, Q4_1 and Q8_0."""
    fields, tensors = read_gguf(path)
    kind = fields["general.architecture"]
    if kind != "llama" or "output.weight" in tensors:
        head = "a separate output layer" if kind == "llama" else "another architecture"
        raise SystemExit(f"{path}: {kind}, {head}; needed: a llama whose output layer is its embedding, as SmolLM2 is")
    own = {name.removeprefix("llama."): value for name, value in fields.items()}
    shape = Shape(
        n_layers=int(own["block_count"]),
        hidden=int(own["embedding_length"]),
        inner=int(own["feed_forward_length"]),
        n_heads=int(own["attention.head_count"]),
        n_kv=int(own["attention.head_count_kv"]),
        vocabulary=len(tensors["token_embd.weight"]),
        theta=float(own["rope.freq_base"]),
        eps=round(float(own["attention.layer_norm_rms_epsilon"]), 12),
    )

    def unpermute(weight: np.ndarray, n_heads: int) -> np.ndarray:
        return weight.reshape(n_heads, shape.head // 2, 2, -1).swapaxes(1, 2).reshape(-1, shape.hidden)

    state = {"embedding.weight": tensors["token_embd.weight"], "norm": tensors["output_norm.weight"]}
    for number in range(shape.n_layers):
        own = {name.split(".")[2]: array for name, array in tensors.items() if name.startswith(f"blk.{number}.")}
        qkv = [unpermute(own["attn_q"], shape.n_heads), unpermute(own["attn_k"], shape.n_kv), own["attn_v"]]
        state |= {
            f"layers.{number}.{name}": array
            for name, array in {
                "attn_norm": own["attn_norm"],
                "ffn_norm": own["ffn_norm"],
                "qkv.weight": np.concatenate(qkv),
                "out.weight": own["attn_output"],
                "gate_up.weight": np.concatenate((own["ffn_gate"], own["ffn_up"])),
                "down.weight": own["ffn_down"],
            }.items()
        }
    return shape, {name: torch.from_numpy(np.array(array, np.float32)) for name, array in state.items()}


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the fields of a GGUF file, and its tensors, dequantised.

    Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """
    data = np.memmap(path, np.uint8, "r")
    at = 8

    def take(kind: str):
        nonlocal at
        size = np.dtype(kind).itemsize
        at += size
        return data[at - size : at].view(kind)[0]

    def text() -> str:
        nonlocal at
        length = int(take("<u8"))
        at += length
        return bytes(data[at - length : at]).decode()

    kinds = ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "u1", None, None, "<u8", "<i8", "<f8"]

    def skip(kind: int):
        if kind == 8:
            return text()
        if kind == 9:
            inner, length = int(take("<u4")), int(take("<u8"))
            return [skip(inner) for _ in range(length)]
        return take(kinds[kind])

    n_tensors, n_fields = int(take("<u8")), int(take("<u8"))
    fields = {text(): skip(int(take("<u4"))) for _ in range(n_fields)}
    heads = []
    for _ in range(n_tensors):
        name = text()
        shape = [int(take("<u8")) for _ in range(int(take("<u4")))]
        heads.append((name, shape[::-1], int(take("<u4")), int(take("<u8"))))
    step = int(fields.get("general.alignment", 32))
    start = -(-at // step) * step
    tensors = {}
    for name, shape, kind, offset in heads:
        n = int(np.prod(shape))
        if kind < 2:
            array = data[start + offset : start + offset + (4 - 2 * kind) * n].view(("<f4", "<f2")[kind])
        else:
            if kind not in (3, 8):
                raise SystemExit(f"{path}: {name} is of GGUF kind {kind}; this reads F32, F16, Q4_1 and Q8_0")
            size = {3: 20, 8: 34}[kind]
            blocks = data[start + offset : start + offset + n // 32 * size].reshape(-1, size)
            scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
            if kind == 8:
                array = blocks[:, 2:].view("i1") * scale
            else:
                low, high = blocks[:, 4:] & 15, blocks[:, 4:] >> 4
                array = np.concatenate((low, high), 1) * scale + blocks[:, 2:4].copy().view("<f2").astype(np.float32)
        tensors[name] = np.asarray(array, np.float32).reshape(shape)
    return fields, tensors


class Rows:
    """Prompts, padded on the left, with the same number of answers to each, padded on the right."""

    def __init__(self, prompts: Sequence[np.ndarray], answers: Sequence[Sequence[Sequence[int]]], device) -> None:
        width = max(map(len, prompts))
        n_each, slot = len(answers[0]), max(len(one) for each in answers for one in each)
        n = len(prompts)
        tokens = np.full((n, width + n_each * slot), PAD, np.int64)
        position = np.zeros_like(tokens)
        owner = np.full_like(tokens, -1)  # -1 is padding, 0 the prompt, 1 and more an answer
        for row, (prompt, each) in enumerate(zip(prompts, answers, strict=True)):
            tokens[row, width - len(prompt) : width] = prompt
            position[row, width - len(prompt) : width] = np.arange(len(prompt))
            owner[row, width - len(prompt) : width] = 0
            for number, one in enumerate(each):
                begin = width + number * slot
                tokens[row, begin : begin + len(one)] = one
                position[row, begin : begin + len(one)] = len(prompt) + np.arange(len(one))
                owner[row, begin : begin + len(one)] = number + 1
        self.tokens, self.positions, owner = (torch.from_numpy(a).to(device) for a in (tokens, position, owner))
        order = torch.arange(tokens.shape[1], device=device)
        earlier = order[:, None] >= order[None, :]
        same = owner[:, :, None] == owner[:, None, :]
        self.mask = (earlier & (same | (owner[:, None, :] == 0)) | (order[:, None] == order[None, :]))[:, None]
        # Each answer token is predicted by the token before it; that of the first one is the prompt's last.
        starts = width + slot * torch.arange(n_each, device=device)
        before = starts[:, None] + torch.arange(slot, device=device)[None, :] - 1
        before[:, 0] = width - 1
        self.before = before
        self.targets = self.tokens[:, width:].view(n, n_each, slot)
        self.is_answer = (owner[:, width:] > 0).view(n, n_each, slot)

    def logits(self, policy: Policy) -> Tensor:
        """Return (rows, answers, slot, vocabulary)."""
        hidden = policy(self.tokens, self.positions, self.mask)
        return policy.logits(hidden[:, self.before])

    def logprobs(self, policy: Policy, temperature: float = 1.0) -> Tensor:
        """Return the log-probability of each answer token, 0 at padding: (rows, answers, slot)."""
        logits = self.logits(policy) / temperature
        own = -F.cross_entropy(logits.flatten(0, 2), self.targets.flatten(), reduction="none")
        return own.view_as(self.targets) * self.is_answer


@torch.no_grad()
def sample(
    policy: Policy, prompts: Sequence[np.ndarray], n_each: int, most: int, end: int, device, generator=None, watch=()
) -> tuple[list[list[list[int]]], Tensor | None]:
    """Sample answers at temperature 1; greedy without a generator. ``end``, or ``most`` tokens, ends an answer.

    The answers to a prompt are columns of one row, so its keys and values are held and read once. ``watch`` is (place,
    tokens): the logits of these tokens, where each answer's token at this place was chosen, are returned, too, as
    (prompts, answers, tokens). So what is read from them is what the answer was chosen by, to the bit.
    """
    policy.eval()
    rows = Rows(prompts, [[[PAD]]] * len(prompts), device)
    n, width = len(prompts), rows.tokens.shape[1] - 1
    past: list[list[Tensor]] = [[] for _ in policy.layers]
    hidden = policy(rows.tokens[:, :width], rows.positions[:, :width], rows.mask[:, :, :width, :width], past)
    logits = policy.logits(hidden[:, -1:]).expand(-1, n_each, -1)
    at = (rows.positions[:, width - 1 : width] + 1).expand(-1, n_each)
    seen = rows.mask[:, :, width - 1 : width, :width].expand(-1, -1, n_each, -1)
    own = torch.eye(n_each, dtype=torch.bool, device=device).expand(n, 1, -1, -1)
    tokens, is_done, watched = [], torch.zeros((n, n_each), dtype=torch.bool, device=device), None
    for place in range(most):
        if watch and place == watch[0]:
            watched = logits[..., list(watch[1])]
        if generator is None:
            chosen = logits.argmax(-1)
        else:
            chosen = torch.multinomial(logits.flatten(0, 1).softmax(-1), 1, generator=generator).view(n, n_each)
        chosen = torch.where(is_done, PAD, chosen)
        tokens.append(torch.where(is_done, -1, chosen))
        is_done = is_done | (chosen == end)
        if is_done.all():
            break
        seen = torch.cat((seen, own), -1)
        logits, at = policy.logits(policy(chosen, at, seen, past)), at + 1
    written = torch.stack(tokens, -1).tolist()
    return [[[token for token in one if token >= 0] for one in each] for each in written], watched
