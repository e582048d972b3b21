"""SmolLM2 as a policy, in PyTorch alone: answers to many prompts are sampled, scored and learned in shared passes.

A row of a batch holds one prompt and several answers to it. An answer sees the prompt and itself, not the other
answers. So a prompt is computed once, whatever the number of its answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

N_LAYERS, HIDDEN, INNER, N_HEADS, N_KV, HEAD, VOCABULARY = 30, 576, 1536, 9, 3, 64, 49152
THETA, EPS = 100_000.0, 1e-5
PAD = END = 2  # <|im_end|>


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.Parameter(torch.ones(HIDDEN)), nn.Parameter(torch.ones(HIDDEN))
        self.qkv = nn.Linear(HIDDEN, (N_HEADS + 2 * N_KV) * HEAD, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, past: list[Tensor] | None):
        n, length, _ = x.shape
        mixed = self.qkv(F.rms_norm(x, (HIDDEN,), self.attn_norm, EPS)).view(n, length, -1, HEAD).transpose(1, 2)
        q, k, v = mixed.split((N_HEADS, N_KV, N_KV), 1)
        q, k = rotate(q, turn), rotate(k, turn)
        if past is not None:
            k, v = past_with(past, k, v)
        k, v = (t.repeat_interleave(N_HEADS // N_KV, 1) for t in (k, v))
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, HIDDEN))
        gate, up = self.gate_up(F.rms_norm(x, (HIDDEN,), self.ffn_norm, EPS)).chunk(2, -1)
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

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(N_LAYERS))
        self.norm = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor, past=None, keep: Sequence[int] = ()):
        """``keep`` names layers whose output is returned, too."""
        x = self.embedding(tokens)
        frequency = THETA ** (-torch.arange(0, HEAD, 2, device=x.device) / HEAD)
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
        x = F.rms_norm(x, (HIDDEN,), self.norm, EPS)
        return (x, kept) if keep else x

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding.weight).float()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights from a GGUF file of the kinds Q4_1, Q8_0 and F32."""
    tensors = read_gguf(path)

    def unpermute(weight: np.ndarray, n_heads: int) -> np.ndarray:
        return weight.reshape(n_heads, HEAD // 2, 2, HIDDEN).swapaxes(1, 2).reshape(-1, HIDDEN)

    state = {"embedding.weight": tensors["token_embd.weight"], "norm": tensors["output_norm.weight"]}
    for number in range(N_LAYERS):
        own = {name.split(".")[2]: array for name, array in tensors.items() if name.startswith(f"blk.{number}.")}
        qkv = [unpermute(own["attn_q"], N_HEADS), unpermute(own["attn_k"], N_KV), own["attn_v"]]
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
    return {name: torch.from_numpy(np.array(array, np.float32)) for name, array in state.items()}


def read_gguf(path: Path) -> dict[str, np.ndarray]:
    """Dequantise every tensor of a GGUF file.

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
        if kind == 0:
            array = data[start + offset : start + offset + 4 * n].view("<f4")
        else:
            size = {3: 20, 8: 34}[kind]
            blocks = data[start + offset : start + offset + n // 32 * size].reshape(-1, size)
            scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
            if kind == 8:
                array = blocks[:, 2:].view("i1") * scale
            else:
                low, high = blocks[:, 4:] & 15, blocks[:, 4:] >> 4
                array = np.concatenate((low, high), 1) * scale + blocks[:, 2:4].copy().view("<f2").astype(np.float32)
        tensors[name] = np.asarray(array, np.float32).reshape(shape)
    return tensors


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
    policy: Policy, prompts: Sequence[np.ndarray], n_each: int, most: int, device, generator=None
) -> list[list[list[int]]]:
    """Sample answers at temperature 1; greedy without a generator. An answer ends with END or after ``most`` tokens.

    The answers to a prompt are columns of one row, so its keys and values are held and read once.
    """
    policy.eval()
    rows = Rows(prompts, [[[PAD]]] * len(prompts), device)
    n, width = len(prompts), rows.tokens.shape[1] - 1
    past: list[list[Tensor]] = [[] for _ in range(N_LAYERS)]
    hidden = policy(rows.tokens[:, :width], rows.positions[:, :width], rows.mask[:, :, :width, :width], past)
    logits = policy.logits(hidden[:, -1:]).expand(-1, n_each, -1)
    at = (rows.positions[:, width - 1 : width] + 1).expand(-1, n_each)
    seen = rows.mask[:, :, width - 1 : width, :width].expand(-1, -1, n_each, -1)
    own = torch.eye(n_each, dtype=torch.bool, device=device).expand(n, 1, -1, -1)
    tokens, is_done = [], torch.zeros((n, n_each), dtype=torch.bool, device=device)
    for _ in range(most):
        if generator is None:
            chosen = logits.argmax(-1)
        else:
            chosen = torch.multinomial(logits.flatten(0, 1).softmax(-1), 1, generator=generator).view(n, n_each)
        chosen = torch.where(is_done, PAD, chosen)
        tokens.append(torch.where(is_done, -1, chosen))
        is_done = is_done | (chosen == END)
        if is_done.all():
            break
        seen = torch.cat((seen, own), -1)
        logits, at = policy.logits(policy(chosen, at, seen, past)), at + 1
    written = torch.stack(tokens, -1).tolist()
    return [[[token for token in one if token >= 0] for one in each] for each in written]
