"""Another paper for a group that taught nothing: dynamic sampling, class by class."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.rl.rollout_strategy import FailFast, RolloutResult, RolloutStrategy
from tinker_cookbook.rl.types import EnvGroupBuilder

from sciscirl.envs.env import LabelGroupBuilder


@dataclass(frozen=True)
class DynamicSampling(RolloutStrategy):
    """Samples a group anew, of the next of its spare papers, for as long as its rewards are all equal.

    The cookbook drops constant groups (``remove_constant_reward_groups``), and in its asynchronous mode waits for
    others to fill the batch; its synchronous mode trains on what is left. This fills the batch there, and since
    spare papers are of the class of the first, leaves the classes as they were: to take whatever prompt comes next
    would favour the classes that the model is unsure about. A group whose last spare ties too is left to the cookbook
    to drop. What was sampled of a paper that was passed over is not trained on, and not logged.

    Args:
        inner: how the answers of one group are collected.

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
