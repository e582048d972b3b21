"""How a group of answers is sampled, where a preset asks for more than the cookbook's way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import tinker
from tinker_cookbook.completers import TinkerTokenCompleter, TokenCompleter
from tinker_cookbook.rl.rollout_strategy import FailFast, RolloutResult, RolloutStrategy
from tinker_cookbook.rl.types import EnvGroupBuilder

from sciscirl.envs.env import LabelGroupBuilder
from sciscirl.errors import SciSciRLError


@dataclass(frozen=True)
class _Sampling(RolloutStrategy):
    """Does something around another strategy, ``inner``, which collects the answers of one group."""

    inner: RolloutStrategy = field(default_factory=FailFast)

    @property
    def catches_group_errors(self) -> bool:
        """As the inner strategy."""
        return self.inner.catches_group_errors


@dataclass(frozen=True)
class DynamicSampling(_Sampling):
    """Samples a group again, on the next of its spare papers, while its rewards are all equal.

    For the cookbook's synchronous mode, which trains on what is left without constant groups. Spare papers are of the
    same class: any next paper would favour the classes that the model is unsure about. Rollouts of papers that were
    passed over are neither trained on nor logged. Source: Yu et al. 2025 (DAPO), arXiv:2503.14476.
    """

    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult:
        """Collect the answers to a paper, or to the first of its spares whose rewards differ."""
        if not isinstance(env_group_builder, LabelGroupBuilder):
            return await self.inner.execute(env_group_builder, policy)
        spares, alone = env_group_builder.spares, replace(env_group_builder, spares=())
        result = await self.inner.execute(alone, policy)
        for paper in spares:
            rewards = {sum(step.reward for step in trajectory.transitions) for trajectory in result.trajectories}
            if len(rewards) > 1:
                break
            result = await self.inner.execute(replace(alone, paper=paper), policy)
        return result


@dataclass(frozen=True)
class NucleusSampling(_Sampling):
    """Samples from the most probable tokens that together have the share ``top_p``, then as ``inner``.

    A server may state log-probabilities of all tokens. Then the loss corrects for a policy that is not quite the one
    that sampled.
    """

    top_p: float = 1.0

    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult:
        """Collect the answers to a paper."""
        return await self.inner.execute(env_group_builder, limit_tokens(policy, self.top_p))


class _NucleusClient:
    """Samples as its client does, from the most probable tokens that together have the share ``top_p``."""

    def __init__(self, client: tinker.SamplingClient, top_p: float) -> None:
        self._client = client
        self._top_p = top_p

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._client, name)
        if name not in {"sample", "sample_async"}:
            return found

        def sample(*, sampling_params: tinker.SamplingParams, **more: Any) -> Any:  # noqa: ANN401
            return found(sampling_params=sampling_params.model_copy(update={"top_p": self._top_p}), **more)

        return sample


def limit_tokens(policy: TokenCompleter, top_p: float) -> TokenCompleter:
    """Return a completer of a Tinker server that samples with ``top_p``; 1 leaves it as it is."""
    if top_p == 1:
        return policy
    if not isinstance(policy, TinkerTokenCompleter):
        raise SciSciRLError(f"top_p is {top_p}, and a {type(policy).__name__} takes none. Leave it out.")
    client = cast("tinker.SamplingClient", _NucleusClient(policy.sampling_client, top_p))
    return replace(policy, sampling_client=client)
