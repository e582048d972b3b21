"""Dynamic sampling: another paper of the same class for a group whose rewards are all equal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.rl.rollout_strategy import FailFast, RolloutResult, RolloutStrategy
from tinker_cookbook.rl.types import EnvGroupBuilder

from sciscirl.envs.env import LabelGroupBuilder


@dataclass(frozen=True)
class DynamicSampling(RolloutStrategy):
    """Samples a group again, on the next of its spare papers, while its rewards are all equal.

    The cookbook drops constant groups (``remove_constant_reward_groups``). Its asynchronous mode waits for others; its
    synchronous mode trains on what is left, and this strategy fills the batch there. Spare papers are of the same
    class, so the classes keep their shares: taking any next paper would favour the classes that the model is unsure
    about. If the last spare ties too, the cookbook drops the group. Rollouts of papers that were passed over are
    neither trained on nor logged. ``inner`` collects the answers of one group.

    Source: dynamic sampling, Yu et al. 2025 (DAPO), arXiv:2503.14476.
    """

    inner: RolloutStrategy = field(default_factory=FailFast)

    @property
    def catches_group_errors(self) -> bool:
        """As the inner strategy."""
        return self.inner.catches_group_errors

    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult:
        """Collect the answers to a paper, or to the first of its spares whose rewards differ."""
        result = await self.inner.execute(env_group_builder, policy)
        if not isinstance(env_group_builder, LabelGroupBuilder):
            return result
        for paper in env_group_builder.spares:
            rewards = {sum(step.reward for step in trajectory.transitions) for trajectory in result.trajectories}
            if len(rewards) > 1:
                break
            result = await self.inner.execute(replace(env_group_builder, paper=paper), policy)
        return result
