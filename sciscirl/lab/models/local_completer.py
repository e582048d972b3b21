"""Ask a model in this process through the cookbook's ``TokenCompleter``, which every evaluator takes."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, cast

import tinker
import torch
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.tokenizer_utils import Tokenizer
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, LinearAttentionCacheLayerMixin

from sciscirl.lab.label_scoring import Ending, count_shared

if TYPE_CHECKING:
    from sciscirl.lab.evaluator import LabelEvaluator


@dataclass(slots=True, kw_only=True)
class _Request:
    prompt: list[int]
    stop: StopCondition
    n_tokens: int
    key: str
    answer: asyncio.Future[TokensWithLogprobs]


@dataclass(eq=False)
class LocalCompleter(TokenCompleter):
    """Answers with a model in this process; requests made at the same time share a batch of similar lengths.

    What all prompts begin with is read once, and so is a prompt with several answers: on a CPU, ``generate`` of
    Transformers takes six times as long. The weights may change between rounds of requests. Sampling depends on seed,
    prompt and place alone; other hardware or batches can still tip a tie.
    """

    model: Any  # PreTrainedModel or PeftModel, asked in the mode in which it is
    tokenizer: Tokenizer  # for stop conditions that are text
    _: KW_ONLY
    max_tokens: int  # of an answer
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0  # of the most probable tokens, those that together have this share; the last one counts too
    seed: int = 0
    batch_size: int = 32  # answers in one pass, at most

    def __post_init__(self) -> None:
        self._asked: Counter[tuple[int, ...]] = Counter()
        self._waiting: list[_Request] = []
        self._worker: asyncio.Task[None] | None = None
        # Whether every layer keeps all keys and values. Windows and states of other kinds are left as they are.
        config = getattr(self.model, "config", None)
        layers = [] if config is None else DynamicCache(config=config).layers
        self._is_plain = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)

    @classmethod
    def of_evaluator(cls, evaluator: LabelEvaluator, model: Any, *, seed: int, batch_size: int = 32) -> LocalCompleter:  # noqa: ANN401
        """Return what answers as an evaluator asks."""
        return cls(
            model,
            evaluator.renderer.tokenizer,
            max_tokens=evaluator.sampling.max_tokens,
            temperature=evaluator.sampling.temperature,
            top_p=evaluator.sampling.top_p,
            seed=seed,
            batch_size=batch_size,
        )

    async def score_endings(self, prompts: Sequence[Sequence[int]], endings: Sequence[Ending]) -> list[list[float]]:
        """Return what ``score_here`` returns: the log-probability of each ending after each prompt."""
        return score_here(self.model, prompts, endings, batch_size=self.batch_size)

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
            # Equal prompts side by side, and little padding. What is asked meanwhile waits for the next round.
            asked = sorted(self._waiting, key=lambda request: (len(request.prompt), request.prompt))
            self._waiting = []
            try:
                begin = self._read_beginning([request.prompt for request in asked])
                for start in range(0, len(asked), self.batch_size):
                    batch = asked[start : start + self.batch_size]
                    answers = self._complete(batch, begin)
                    for request, answer in zip(batch, answers, strict=True):
                        request.answer.set_result(answer)
                    await asyncio.sleep(0)
            except Exception as error:
                for request in (*asked, *self._waiting):
                    if not request.answer.done():
                        request.answer.set_exception(error)
                self._waiting = []
                return

    @torch.no_grad()
    def _read_beginning(self, prompts: Sequence[list[int]]) -> tuple[int, Cache | None]:
        """Read what all prompts begin with, once; return its length and the cache. 0 if that saves nothing."""
        # At least one token of each prompt is read alone: its scores are needed.
        whole = [prompts[0][:-1], *prompts]
        n_shared = next(
            (place for place, tokens in enumerate(zip(*whole, strict=False)) if len({*tokens}) > 1), len(whole[0])
        )
        if not self._is_plain or not n_shared or prompts[0] == prompts[-1]:
            return 0, None
        tokens = torch.tensor([whole[0][:n_shared]], device=self.model.device)
        cache = self.model(input_ids=tokens, use_cache=True, logits_to_keep=1).past_key_values
        return n_shared, cache

    def _read(
        self, prompts: Sequence[list[int]], begin: tuple[int, Cache | None]
    ) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """Read sorted prompts, each once: their cache, scores of the next token and mask, a row for each."""
        is_new = [not self._is_plain or n == 0 or prompt != prompts[n - 1] for n, prompt in enumerate(prompts)]
        distinct = [prompt for prompt, new in zip(prompts, is_new, strict=True) if new]
        n_begin, cache = begin
        tokens, mask, positions = pad_left([prompt[n_begin:] for prompt in distinct], self.model.device)
        if cache is not None:
            cache = copy.deepcopy(cache)
            cache.batch_repeat_interleave(len(distinct))
            mask = torch.cat([mask.new_ones((len(distinct), n_begin)), mask], dim=1)
        output = self.model(
            input_ids=tokens, attention_mask=mask, position_ids=positions + n_begin, past_key_values=cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        cache, scores = output.past_key_values, output.logits[:, -1]
        if len(distinct) < len(prompts):
            rows = torch.tensor(is_new, device=mask.device).cumsum(0) - 1
            cache.batch_select_indices(rows)
            scores, mask = scores[rows], mask[rows]
        return cache, scores, mask

    @torch.no_grad()
    def _complete(self, batch: Sequence[_Request], begin: tuple[int, Cache | None]) -> list[TokensWithLogprobs]:
        answers = [TokensWithLogprobs(tokens=[], maybe_logprobs=[], stop_reason="length") for _ in batch]
        n_most = max(request.n_tokens for request in batch)
        cache, scores, mask = self._read([request.prompt for request in batch], begin)
        positions = mask.sum(dim=1, keepdim=True) - 1
        open_ = [*range(len(batch))]  # answers without an end, in the order of the rows
        for place in range(n_most):
            logprobs = scores.float().log_softmax(dim=-1)
            chosen = self._choose(logprobs, [f"{batch[number].key}:{place}" for number in open_])
            drawn = zip(open_, chosen.tolist(), logprobs.gather(1, chosen[:, None])[:, 0].tolist(), strict=True)
            for number, token, logprob in drawn:
                request, answer = batch[number], answers[number]
                if answer.stop_reason == "stop" or len(answer.tokens) == request.n_tokens:
                    continue  # a row that goes on only with its batch
                answer.tokens.append(token)
                answer.logprobs.append(logprob)
                if self._is_stopped(answer.tokens, request.stop):
                    answer.stop_reason = "stop"
            kept = [
                row
                for row, number in enumerate(open_)
                if answers[number].stop_reason == "length" and len(answers[number].tokens) < batch[number].n_tokens
            ]
            if not kept:
                break
            if 2 * len(kept) <= len(open_):  # fewer rows are faster, and copying the cache is not free
                rows = torch.tensor(kept, device=self.model.device)
                cache.batch_select_indices(rows)
                chosen, mask, positions = chosen[rows], mask[rows], positions[rows]
                open_ = [open_[row] for row in kept]
            mask = torch.cat([mask, mask.new_ones((len(open_), 1))], dim=1)
            positions = positions + 1
            output = self.model(
                input_ids=chosen[:, None],
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache, scores = output.past_key_values, output.logits[:, -1]
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

    Each prompt is read once, with linear attention once for each ending. No ending begins another; what all begin with
    is left out.
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
