"""Evaluate while training goes on, on a server that keeps sampled and trained weights apart."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import tinker
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig

from sciscirl.errors import CollapseError
from sciscirl.evaluation.evaluator import LabelEvaluator
from sciscirl.runs.folder import find_checkpoint, list_weights, open_store

if TYPE_CHECKING:
    from tinker_cookbook.stores.training_store import TrainingRunStore

_log = logging.getLogger(__name__)


class ConcurrentEvaluator(LabelEvaluator):
    """Evaluates while training goes on. A further call waits for the last one first, and raises its error."""

    _running: tuple[int, asyncio.Task[None]] | None = None

    async def __call__(
        self,
        sampling_client: tinker.SamplingClient,
        *,
        rollout_summary_export: RolloutSummaryExportConfig | None = None,
        store: TrainingRunStore | None = None,
    ) -> dict[str, float]:
        """Begin to judge a model; without a step and a store for its metrics, judge it now."""
        await self.finish()
        if rollout_summary_export is None or store is None:
            return await super().__call__(sampling_client)
        if self.is_left_out(rollout_summary_export):
            return {}
        judging = asyncio.create_task(self._judge(sampling_client, rollout_summary_export, store))
        self._running = rollout_summary_export.iteration, judging
        return {}

    async def finish(self) -> None:
        """Wait for the running evaluation, if any, and raise its error."""
        if self._running is not None:
            _, judging = self._running
            await asyncio.wait([judging])  # if interrupted here, leave() can still end it
            try:
                judging.result()
            except CollapseError:
                self._running = None  # a collapse is a result, not a failure
                raise
            self._running = None

    async def leave(self) -> tuple[int, BaseException] | None:
        """Cancel the running evaluation, as the run has ended; return its step and error, if any."""
        if self._running is None:
            return None
        (step, judging), self._running = self._running, None
        judging.cancel()
        (error,) = await asyncio.gather(judging, return_exceptions=True)
        return None if error is None else (step, error)

    async def _judge(
        self, sampling_client: tinker.SamplingClient, export: RolloutSummaryExportConfig, store: TrainingRunStore
    ) -> None:
        metrics = await super().__call__(sampling_client, rollout_summary_export=export, store=store)
        store.write_metrics(metrics, step=export.iteration)


@asynccontextmanager
async def none_lost_unsaid(evaluator: LabelEvaluator, folder: Path, options: Sequence[str]) -> AsyncGenerator[None]:
    """If an error ends a run, say which evaluation is lost, and how to repeat it with ``sciscirl evaluate``.

    It does not wait for the evaluation. That may need the server or disk that failed, and Ctrl-C must end the run. A
    collapse that was found but not yet reported is written down.
    """
    try:
        yield
    except BaseException:
        lost = await evaluator.leave()
        if lost is not None:
            step, error = lost
            # The folder itself may have failed; that error is raised then, not one from here.
            if isinstance(error, CollapseError):
                _log.warning("%s", error)
                with suppress(OSError):
                    open_store(folder).write_metrics(error.metrics, step=step)
            else:
                what = "was under way" if isinstance(error, asyncio.CancelledError) else f"failed ({_tell(error)})"
                remedy = ""
                with suppress(OSError):
                    remedy = _find_remedy(folder, step, options)
                _log.warning("the evaluation of step %s %s. %s", step, what, remedy)
        raise


def _find_remedy(folder: Path, step: int, options: Sequence[str]) -> str:
    last = find_checkpoint(folder)
    if last is None or (last.batch or 0) <= step:
        return "It is made anew where the run goes on: resume=True."
    if step not in list_weights(folder):
        return f"No weights of that step were kept (save_every), so that {folder} will do without it."
    out = folder.with_name(f"{folder.name}-step-{step:06d}")
    words = ("--run", str(folder), "--step", str(step), *options, "--out", str(out))
    return f"To have it: {shlex.join(('sciscirl', 'evaluate', *words))}"


def _tell(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
