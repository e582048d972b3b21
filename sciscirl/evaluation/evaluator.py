"""The evaluator: judge a model on held-out papers, during training or alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import polars as pl
import tinker
from tinker_cookbook.completers import TinkerTokenCompleter, TokenCompleter
from tinker_cookbook.rl.metric_util import RLTestSetEvaluator
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig, serialize_rollout_summaries
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import TrajectoryGroup
from tinker_cookbook.utils import logtree

from sciscidata.storage.sums import seal_file
from sciscirl.envs.dataset import LabelDataset, LabelDatasetBuilder, check_fit
from sciscirl.envs.env import LabelGroupBuilder
from sciscirl.errors import ReleaseError
from sciscirl.lab_parts import load_part
from sciscirl.metrics.collapse import CollapseAlarm, explain_doubt
from sciscirl.metrics.metrics import measure_predictions, relate_to_ceiling
from sciscirl.metrics.predictions import collect_predictions, prediction_schema, write_predictions
from sciscirl.presets import Preset
from sciscirl.runs.folder import find_rollouts
from sciscirl.runs.nucleus import limit_tokens
from sciscirl.task.papers import Paper, Target, open_release
from sciscirl.task.rules import TaskRules, check_max_tokens

if TYPE_CHECKING:
    from tinker_cookbook.renderers import Renderer
    from tinker_cookbook.stores.training_store import TrainingRunStore

_log = logging.getLogger(__name__)


#: Predictions, and by label the mean probability that was divided out.
_Scored = tuple[pl.DataFrame, dict[str, float]]


class LabelScoring(Protocol):
    """Asks a model for its probability of each label; the lab has it (``make_scoring``)."""

    prior_papers: tuple[Paper, ...]

    async def ask_server(
        self, client: tinker.SamplingClient, papers: Sequence[Paper], rules: TaskRules, renderer: Renderer
    ) -> _Scored:
        """Ask a server."""
        ...

    async def ask_completer(
        self, policy: TokenCompleter, papers: Sequence[Paper], rules: TaskRules, renderer: Renderer
    ) -> _Scored:
        """Ask a completer of tokens that has a model."""
        ...


class LabelEvaluator(RLTestSetEvaluator):
    """Asks a model about every held-out paper, and computes the published metrics and more.

    It is a subclass of the cookbook's evaluator, because the training loop passes the step only to that one. It adds a
    temperature (0 is greedy) and top_p, and writes all answers down. It sees them together, because a macro-F1 is not a
    mean over papers.

    ``name`` stands before every metric, and in the names of the files in ``folder``. The alarm checks every evaluation,
    adds metrics, and may end the run. Without opponents the answers are not challenged. With ``scoring``, the model is
    asked for its probability of each label, and writes nothing. With the ceiling of the labels, metrics say how far
    they have come. ``predictions`` has one row for each answer of the last
    evaluation. ``judged`` has step and metrics of the last one that did not end the run, ``prior`` what was divided
    out. At ``end_step`` it judges nothing. The cookbook's loop of 0.6.1 asks there, before it has saved the last
    weights; the run judges them when they are saved. ``is_taught`` says that gold answers have taught the model.
    ReleaseError if there is no paper, SciSciRLError if no valid answer fits into ``max_tokens``.
    """

    def __init__(
        self,
        papers: Sequence[Paper],
        rules: TaskRules,
        renderer: Renderer,
        *,
        max_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        group_size: int = 1,
        name: str = "test",
        folder: Path | None = None,
        alarm: CollapseAlarm | None = None,
        opponents: Any = None,  # noqa: ANN401 (Opponents of the adversarial task)
        scoring: LabelScoring | None = None,
        ceiling: Mapping[str, float] | None = None,
    ) -> None:
        if not papers:
            msg = f"there is no paper in the {name} split to judge a model by. Build a release with n_test > 0."
            raise ReleaseError(msg)
        if scoring is None:
            check_max_tokens(max_tokens, rules, renderer)
        make = (
            LabelGroupBuilder
            if opponents is None
            else partial(load_part("AdversarialGroupBuilder"), opponents=opponents)
        )
        dataset = LabelDataset(
            papers,
            rules,
            renderer,
            batch_size=len(papers),
            group_size=group_size,
            keep_rest=True,
            make_group=make,
        )
        super().__init__(dataset, max_tokens, name=name)
        self.renderer = renderer
        self.target: Target = rules.target
        self.contract = rules.contract
        make_schema = prediction_schema if opponents is None else load_part("adversarial_schema")
        self.schema: pl.Schema = make_schema(rules.target)
        self.temperature = temperature
        self.top_p = top_p
        self.folder = folder
        self.alarm = alarm
        self.papers = papers
        self.rules = rules
        self.scoring = scoring
        self.ceiling = ceiling
        self.prior: dict[str, float] = {}
        self.predictions: pl.DataFrame | None = None
        self.judged: tuple[int | None, dict[str, float]] = (None, {})
        self.end_step: int | None = None
        self.is_taught = False

    async def __call__(
        self,
        sampling_client: tinker.SamplingClient,
        *,
        rollout_summary_export: RolloutSummaryExportConfig | None = None,
        store: TrainingRunStore | None = None,
    ) -> dict[str, float]:
        """Judge a model on a Tinker server; see ``eval_token_completer``."""
        if self.is_left_out(rollout_summary_export):
            return {}
        if self.scoring is not None:
            asked = self.scoring.ask_server(sampling_client, self.papers, self.rules, self.renderer)
            return await self._conclude_scoring(asked, rollout_summary_export)
        policy = TinkerTokenCompleter(sampling_client, max_tokens=self.max_tokens, temperature=self.temperature)
        policy = limit_tokens(policy, self.top_p)
        return await self.eval_token_completer(policy, rollout_summary_export=rollout_summary_export, store=store)

    def is_left_out(self, export: RolloutSummaryExportConfig | None) -> bool:
        """Say whether this is the step at which nothing is judged."""
        return export is not None and export.iteration == self.end_step

    async def eval_token_completer(
        self,
        policy: TokenCompleter,
        *,
        rollout_summary_export: RolloutSummaryExportConfig | None = None,
        store: TrainingRunStore | None = None,
    ) -> dict[str, float]:
        """Judge any completer of tokens. An error of the server is raised, not counted as a wrong answer.

        Returns the metrics of ``measure_predictions``, each after the name of this evaluator and a slash. CollapseError
        if the alarm ends the run; predictions and rollouts are written by then.
        """
        if self.scoring is not None:
            asked = self.scoring.ask_completer(policy, self.papers, self.rules, self.renderer)
            return await self._conclude_scoring(asked, rollout_summary_export)
        groups = await asyncio.gather(
            *(self._roll_out(policy, number) for number in range(len(self.env_group_builders_P)))
        )
        if rollout_summary_export is not None and store is not None:
            records = serialize_rollout_summaries(
                split=rollout_summary_export.split,
                iteration=rollout_summary_export.iteration,
                trajectory_groups_P=groups,
                taglist_P=[builder.logging_tags() for builder in self.env_group_builders_P],
            )
            step, name = rollout_summary_export.iteration, rollout_summary_export.base_name
            store.write_rollouts(step, records, base_name=name)
            if self.folder is not None and (file := find_rollouts(self.folder.parent, step, name)).is_file():
                seal_file(file)
        return self._conclude(collect_predictions(groups, self.target, schema=self.schema), rollout_summary_export)

    async def _conclude_scoring(
        self, asked: Awaitable[_Scored], rollout_summary_export: RolloutSummaryExportConfig | None
    ) -> dict[str, float]:
        predictions, self.prior = await asked
        return self._conclude(predictions, rollout_summary_export)

    def _conclude(
        self, predictions: pl.DataFrame, rollout_summary_export: RolloutSummaryExportConfig | None
    ) -> dict[str, float]:
        """Write predictions down, measure them and sound the alarm."""
        self.predictions = predictions
        step = rollout_summary_export.iteration if rollout_summary_export is not None else None
        if self.folder is not None:
            file = f"{self.name}.parquet" if step is None else f"{self.name}_{step:06d}.parquet"
            write_predictions(self.predictions, self.folder / file)
        measured = measure_predictions(self.predictions)
        measured |= relate_to_ceiling(measured, self.ceiling, self.target)
        if (doubt := explain_doubt(measured, self.contract, is_taught=self.is_taught)) is not None:
            _log.warning("%s%s", "" if step is None else f"step {step}: ", doubt)
        metrics = {f"{self.name}/{name}": value for name, value in measured.items()}
        metrics |= self.alarm(metrics, step) if self.alarm is not None else {}
        self.judged = step, metrics
        return metrics

    async def finish(self) -> None:
        """Wait for a running evaluation. There is none here: see ConcurrentEvaluator."""

    async def leave(self) -> tuple[int, BaseException] | None:
        """End a running evaluation. There is none here: see ConcurrentEvaluator."""

    async def _roll_out(self, policy: TokenCompleter, number: int) -> TrajectoryGroup:
        with logtree.optional_enable_logging(enable=number < self.num_groups_to_log):
            return await do_group_rollout(self.env_group_builders_P[number], policy, strategy=self.strategy)


Evaluator = TypeVar("Evaluator", bound=LabelEvaluator)


def build_evaluator(
    builder: LabelDatasetBuilder,
    preset: Preset,
    folder: Path,
    *,
    alarm: CollapseAlarm | None = None,
    scoring: LabelScoring | None = None,
    kind: type[Evaluator] = LabelEvaluator,
) -> Evaluator:
    """Build the evaluator of a run in ``folder`` (PromptError if a paper does not fit)."""
    papers, rules, renderer = builder.eval_papers(), builder.rules(), builder.renderer()
    check_fit(papers, rules, renderer)
    return kind(
        papers,
        rules,
        renderer,
        max_tokens=preset.max_tokens,
        temperature=preset.eval_temperature,
        top_p=preset.eval_top_p,
        group_size=preset.eval_group_size,
        name=builder.eval_split,
        folder=folder / "predictions",
        alarm=alarm,
        scoring=scoring,
        opponents=builder.opponents(),
        ceiling=open_release(builder.release).manifest.get("ceiling"),
    )
