"""How a group of answers is sampled, where a preset asks for more than the cookbook's way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tinker_cookbook.completers import TinkerTokenCompleter, TokenCompleter
from tinker_cookbook.rl.rollout_strategy import FailFast, RolloutResult, RolloutStrategy
from tinker_cookbook.rl.types import EnvGroupBuilder

from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluator import TopPCompleter
from sciscirl.lab.objectives.dataset import RunGroupBuilder


@dataclass(frozen=True)
class DynamicSampling(RolloutStrategy):
    """Samples a group again, on the next of its spare papers, while its rewards are all equal.

    For the cookbook's synchronous mode, which trains on what is left without constant groups. Spare papers are of the
    same class: any next paper would favour the classes that the model is unsure about. Rollouts of papers that were
    passed over are neither trained on nor logged. Source: Yu et al. 2025 (DAPO), arXiv:2503.14476.

    Attributes:
        inner: collects the answers to one paper.
        top_p: they are sampled from the most probable tokens that together have this share.
    """

    inner: RolloutStrategy = field(default_factory=FailFast)
    top_p: float = 1.0

    @property
    def catches_group_errors(self) -> bool:
        """As the inner strategy."""
        return self.inner.catches_group_errors

    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult:
        """Collect the answers to a paper, or to the first of its spares whose rewards differ."""
        policy = self._limit(policy)
        if not isinstance(env_group_builder, RunGroupBuilder):
            return await self.inner.execute(env_group_builder, policy)
        group = env_group_builder.group
        result = await self.inner.execute(group, policy)
        for paper in env_group_builder.spares:
            rewards = {sum(step.reward for step in trajectory.transitions) for trajectory in result.trajectories}
            if len(rewards) > 1:
                break
            result = await self.inner.execute(replace(group, paper=paper), policy)
        return result

    def _limit(self, policy: TokenCompleter) -> TokenCompleter:
        if self.top_p == 1:
            return policy
        if not isinstance(policy, TinkerTokenCompleter):
            raise SciSciRLError(f"top_p is {self.top_p}, and a {type(policy).__name__} takes none. Leave it out.")
        how = (policy.sampling_client, policy.max_tokens, policy.temperature, policy.context_window)
        return TopPCompleter(*how, top_p=self.top_p)
