"""Ask a model on a Tinker server, with a seed, and so many requests at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import tinker
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs

_log = logging.getLogger(__name__)


@dataclass
class SeededCompleter(TokenCompleter):
    """The cookbook's ``TinkerTokenCompleter`` with a seed, which that one has no room for."""

    client: tinker.SamplingClient
    max_tokens: int
    temperature: float
    seed: int

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        """Sample one answer to a prompt."""
        parameters = tinker.SamplingParams(
            max_tokens=min(self.max_tokens, max_tokens or self.max_tokens),
            seed=self.seed,
            stop=stop,
            temperature=self.temperature,
        )
        response = await self.client.sample(model_input, num_samples=1, sampling_params=parameters)
        (sequence,) = response.sequences
        return TokensWithLogprobs(
            tokens=sequence.tokens, maybe_logprobs=sequence.logprobs, stop_reason=sequence.stop_reason
        )


@dataclass
class ServerRunner:
    """A client and how many requests it may have open at a time."""

    client: tinker.SamplingClient
    batch_size: int
    max_tokens: int
    seed: int

    def completer(self, temperature: float) -> TokenCompleter:
        """Return what samples; 0 is greedy."""
        return SeededCompleter(self.client, self.max_tokens, temperature, self.seed)

    async def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]] | None:
        """Return the log-probability of each token of an answer after its prompt; None if the server has none."""
        inputs = [tinker.ModelInput.from_ints(prompt + answer) for prompt, answer in pairs]
        try:
            found = await asyncio.gather(*(self.client.compute_logprobs(one) for one in inputs))
        except (tinker.RequestFailedError, tinker.APIStatusError) as error:
            _log.warning("the server computes no log-probabilities: %s", " ".join(str(error).split())[:200])
            return None
        scores = [row[len(row) - len(answer) :] for row, (_, answer) in zip(found, pairs, strict=True)]
        if any(value is None for row in scores for value in row):
            return None
        return [[float(value or 0.0) for value in row] for row in scores]
