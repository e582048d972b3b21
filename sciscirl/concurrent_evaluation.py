"""Judge held-out papers while training goes on, on a server that keeps sampled and trained weights apart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import tinker
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig

from sciscirl.evaluator import DisruptionEvaluator

if TYPE_CHECKING:
    from tinker_cookbook.stores.training_store import TrainingRunStore


class ConcurrentEvaluator(DisruptionEvaluator):
    """Starts an evaluation and returns; its metrics are written when it ends, in a row of its own for its step.

    One evaluation at a time: the next one first waits for the one before, and raises what went wrong with it.
    Takes what DisruptionEvaluator takes.
    """

    _running: asyncio.Task[None] | None = None

    async def __call__(
        self,
        sampling_client: tinker.SamplingClient,
        *,
        rollout_summary_export: RolloutSummaryExportConfig | None = None,
        store: TrainingRunStore | None = None,
    ) -> dict[str, float]:
        """Begin to judge a model on a Tinker server; without a step and a store for its metrics, judge it now."""
        await self.finish()
        if rollout_summary_export is None or store is None:
            return await super().__call__(sampling_client)
        self._running = asyncio.create_task(self._judge(sampling_client, rollout_summary_export, store))
        return {}

    async def finish(self) -> None:
        """Wait for the evaluation that is going on, if one is, and raise what goes wrong with it."""
        if self._running is not None:
            running, self._running = self._running, None
            await running

    async def _judge(
        self, sampling_client: tinker.SamplingClient, export: RolloutSummaryExportConfig, store: TrainingRunStore
    ) -> None:
        metrics = await super().__call__(sampling_client, rollout_summary_export=export, store=store)
        store.write_metrics(metrics, step=export.iteration)
