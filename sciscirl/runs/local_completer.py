"""Ask a model in this process through the cookbook's ``TokenCompleter``, which every evaluator takes."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import tinker
import torch
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.tokenizer_utils import Tokenizer


def pad_left(rows: Sequence[Sequence[int]], device: torch.device | None = None) -> tuple[torch.Tensor, ...]:
    """Return tokens, mask and positions, (rows, longest): what is sampled next is in the last place of every row."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[0] * (longest - len(row)) + [*row] for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return tokens, mask, (mask.cumsum(1) - 1).clamp(min=0)


@dataclass(slots=True, kw_only=True)
class _Request:
    prompt: list[int]
    stop: StopCondition
    n_tokens: int
    key: str
    answer: asyncio.Future[TokensWithLogprobs]


@dataclass(eq=False)
class LocalCompleter(TokenCompleter):
    """Answers with a model in this process; requests made at the same time share a batch.

    Sampling depends on seed, prompt and place alone, not on the order of requests or a library's generator. Other
    hardware or batches add numbers in another order, which can still tip a tie.
    """

    model: Any  # PreTrainedModel or PeftModel, asked in the mode in which it is
    tokenizer: Tokenizer  # for stop conditions that are text
    _: KW_ONLY
    max_tokens: int  # of an answer
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0  # of the most probable tokens, those that together have this share; the last one counts too
    seed: int = 0
    batch_size: int = 16  # prompts in one pass

    def __post_init__(self) -> None:
        self._asked: Counter[tuple[int, ...]] = Counter()
        self._waiting: list[_Request] = []
        self._worker: asyncio.Task[None] | None = None

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        """Complete a prompt: tokens with the one that stopped it, and their log-probabilities at temperature 1."""
        prompt = model_input.to_ints()
        copy = self._asked[tuple(prompt)]  # several answers to one prompt differ
        self._asked[tuple(prompt)] += 1
        request = _Request(
            prompt=prompt,
            stop=stop,
            n_tokens=min(self.max_tokens, max_tokens or self.max_tokens),
            key=f"{self.seed}:{copy}:{hashlib.sha256(repr(prompt).encode()).hexdigest()}",
            answer=asyncio.get_running_loop().create_future(),
        )
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await request.answer

    async def _work(self) -> None:
        await asyncio.sleep(0)  # let the others ask first
        while self._waiting:
            batch, self._waiting = self._waiting[: self.batch_size], self._waiting[self.batch_size :]
            try:
                answers = self._complete(batch)
            except Exception as error:
                for request in (*batch, *self._waiting):
                    request.answer.set_exception(error)
                self._waiting = []
                return
            for request, answer in zip(batch, answers, strict=True):
                request.answer.set_result(answer)
            await asyncio.sleep(0)

    @torch.no_grad()
    def _complete(self, batch: Sequence[_Request]) -> list[TokensWithLogprobs]:
        answers = [TokensWithLogprobs(tokens=[], maybe_logprobs=[], stop_reason="length") for _ in batch]
        tokens, mask, positions = pad_left([request.prompt for request in batch], self.model.device)
        cache = None
        is_open = [True] * len(batch)
        for place in range(max(request.n_tokens for request in batch)):
            output = self.model(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            scores, cache = output.logits[:, -1].float().log_softmax(dim=-1), output.past_key_values
            chosen = self._choose(scores, [f"{request.key}:{place}" for request in batch])
            logprobs = scores.gather(1, chosen[:, None])[:, 0].tolist()
            for row, (request, answer) in enumerate(zip(batch, answers, strict=True)):
                if not is_open[row]:
                    continue
                answer.tokens.append(int(chosen[row]))
                answer.logprobs.append(logprobs[row])
                if self._is_stopped(answer.tokens, request.stop):
                    answer.stop_reason = "stop"
                is_open[row] = answer.stop_reason == "length" and len(answer.tokens) < request.n_tokens
            if not any(is_open):
                break
            tokens, positions = chosen[:, None], positions[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(tokens)], dim=1)
        return answers

    def _choose(self, scores: torch.Tensor, keys: Sequence[str]) -> torch.Tensor:
        if self.temperature == 0:
            return scores.argmax(dim=-1)
        shares = (scores.double() / self.temperature).softmax(dim=-1)
        if self.top_p < 1:
            sorted_, order = shares.sort(dim=-1, descending=True, stable=True)
            sorted_[sorted_.cumsum(dim=-1) - sorted_ >= self.top_p] = 0
            shares = torch.zeros_like(shares).scatter(-1, order, sorted_)
        mass = shares.cumsum(dim=-1)
        draws = [int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64 for key in keys]
        targets = torch.tensor(draws, dtype=mass.dtype, device=mass.device)[:, None] * mass[:, -1:]
        return torch.searchsorted(mass, targets, right=True)[:, 0].clamp(max=mass.shape[-1] - 1)

    def _is_stopped(self, tokens: list[int], stop: StopCondition) -> bool:
        texts = [end for end in stop if isinstance(end, str)]
        return tokens[-1] in stop or (bool(texts) and any(end in str(self.tokenizer.decode(tokens)) for end in texts))
