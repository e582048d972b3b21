"""The evaluator: judge a model on held-out papers, during training or alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import polars as pl
import tinker
from tinker_cookbook.completers import StopCondition, TinkerTokenCompleter, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.metric_util import RLTestSetEvaluator
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig, serialize_rollout_summaries
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import TrajectoryGroup
from tinker_cookbook.utils import logtree

from sciscidata.storage.sums import seal_file
from sciscirl.envs.dataset import GroupMaker, LabelDataset
from sciscirl.envs.env import LabelGroupBuilder
from sciscirl.errors import ReleaseError
from sciscirl.lab.answer_length import check_max_tokens
from sciscirl.metrics.collapse import CollapseAlarm, explain_doubt
from sciscirl.metrics.metrics import measure_predictions, relate_to_ceiling
from sciscirl.metrics.predictions import collect_predictions, read_predictions, write_predictions
from sciscirl.runs.logs import find_rollouts
from sciscirl.task.papers import Paper
from sciscirl.task.rules import TaskRules

if TYPE_CHECKING:
    from tinker_cookbook.eval.benchmark_evaluator import BenchmarkEvaluator
    from tinker_cookbook.renderers import Renderer
    from tinker_cookbook.stores.training_store import TrainingRunStore

    from sciscirl.task.experiment import Preset

_log = logging.getLogger(__name__)


class Challenge(NamedTuple):
    """How answers are challenged: what makes a group of episodes, and the columns of their predictions."""

    make_group: GroupMaker
    schema: pl.Schema


class Scoring(Protocol):
    """Asks for the probability of each label, instead of an answer; ``LabelScoring`` of the lab does.

    Both return predictions, and by label the mean probability that was divided out.
    """

    async def ask_server(
        self, client: tinker.SamplingClient, papers: Sequence[Paper], rules: TaskRules, renderer: Renderer
    ) -> tuple[pl.DataFrame, dict[str, float]]:
        """Ask a model on a Tinker server."""
        ...

    async def ask_completer(
        self, policy: TokenCompleter, papers: Sequence[Paper], rules: TaskRules, renderer: Renderer
    ) -> tuple[pl.DataFrame, dict[str, float]]:
        """Ask a model in this process."""
        ...


@dataclass
class TopPCompleter(TinkerTokenCompleter):
    """Samples from the most probable tokens that together have the share ``top_p``; the cookbook's takes all.

    A server may state log-probabilities of all tokens. Then the loss corrects for a policy that is not quite the one
    that sampled.
    """

    top_p: float = 1.0

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        """Sample one answer, of at most ``max_tokens`` and what the context window leaves."""
        n_most = min(self.max_tokens, self.max_tokens if max_tokens is None else max_tokens)
        if self.context_window is not None:
            n_most = min(n_most, self.context_window - model_input.length)
        how = tinker.SamplingParams(stop=stop, max_tokens=n_most, temperature=self.temperature, top_p=self.top_p)
        answer = await self.sampling_client.sample(prompt=model_input, num_samples=1, sampling_params=how)
        one = answer.sequences[0]
        return TokensWithLogprobs(tokens=one.tokens, maybe_logprobs=one.logprobs, stop_reason=one.stop_reason)


class AnswerSampling(NamedTuple):
    """How a judged model samples its answers."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    group_size: int = 1  # answers to each paper

    @classmethod
    def of(cls, preset: Preset) -> AnswerSampling:
        """Sample as a preset judges."""
        judging = preset.judging
        return cls(preset.max_tokens, judging.eval_temperature, judging.eval_top_p, judging.eval_group_size)


@dataclass(eq=False, repr=False)
class LabelEvaluator(RLTestSetEvaluator):
    """Asks a model about every held-out paper, and computes the published metrics and more.

    It is a subclass of the cookbook's evaluator, because the training loop passes the step only to that one. It sees
    all answers together, because a macro-F1 is not a mean over papers. ``name`` stands before metrics and names of
    files. The alarm checks every evaluation, and may end the run. With ``scoring``, the model is asked for its
    probability of each label. ``predictions`` and ``judged`` (step and metrics) are of the last evaluation, ``prior``
    what was divided out. At ``end_step`` it judges nothing: the cookbook's loop of 0.6.1 asks there, before it has
    saved the last weights. ``is_taught``: gold answers have taught the model. ``guards``
    ask weights on a server, too.
    """

    papers: Sequence[Paper]
    rules: TaskRules
    renderer: Renderer
    sampling: AnswerSampling
    _: KW_ONLY
    name: str = "test"
    folder: Path | None = None
    alarm: CollapseAlarm | None = None
    challenge: Challenge | None = None
    scoring: Scoring | None = None
    ceiling: Mapping[str, float] | None = None
    is_taught: bool = False
    guards: Sequence[BenchmarkEvaluator] = ()
    end_step: int | None = field(default=None, init=False)
    prior: dict[str, float] = field(default_factory=dict[str, float], init=False)
    predictions: pl.DataFrame | None = field(default=None, init=False)
    judged: tuple[int | None, dict[str, float]] = field(default_factory=lambda: (None, {}), init=False)

    def __post_init__(self) -> None:
        if not self.papers:
            raise ReleaseError(
                f"there is no paper in the {self.name} split to judge a model by. Build a release with n_test > 0."
            )
        if self.scoring is None:
            check_max_tokens(self.sampling.max_tokens, self.rules, self.renderer)
        dataset = LabelDataset(
            self.papers,
            self.rules,
            self.renderer,
            batch_size=len(self.papers),
            group_size=self.sampling.group_size,
            keep_rest=True,
            make_group=LabelGroupBuilder if self.challenge is None else self.challenge.make_group,
        )
        super().__init__(dataset, self.sampling.max_tokens, name=self.name)

    async def __call__(
        self,
        sampling_client: tinker.SamplingClient,
        *,
        rollout_summary_export: RolloutSummaryExportConfig | None = None,
        store: TrainingRunStore | None = None,
    ) -> dict[str, float]:
        """Judge a model on a Tinker server; see ``eval_token_completer``."""
        export = rollout_summary_export
        if export is not None and export.iteration == self.end_step:
            return {}
        if self.scoring is not None and self.find_kept(export) is None:
            predictions, prior = await self.scoring.ask_server(sampling_client, self.papers, self.rules, self.renderer)
            metrics = self._conclude(predictions, prior, export)
        else:
            policy = TopPCompleter(sampling_client, *self.sampling[:2], top_p=self.sampling.top_p)
            metrics = await self.eval_token_completer(policy, rollout_summary_export=export, store=store)
        if self.guards:
            from sciscirl.lab.guards import ask_guards  # few runs have any

            place = None
            if export is not None and self.folder is not None:
                place = find_rollouts(self.folder.parent, export.iteration).parent
            metrics |= await ask_guards(self.guards, sampling_client, place)
        return metrics

    async def eval_token_completer(
        self,
        policy: TokenCompleter,
        *,
        rollout_summary_export: RolloutSummaryExportConfig | None = None,
        store: TrainingRunStore | None = None,
    ) -> dict[str, float]:
        """Judge any completer of tokens; an error of the server is raised, not counted as a wrong answer.

        A resumed run does not ask the weights that it goes on from again: what they answered is kept.
        If the alarm ends the run (CollapseError), predictions and rollouts are written by then.
        """
        if (kept := self.find_kept(rollout_summary_export)) is not None:
            return self._conclude(kept, {}, rollout_summary_export)
        if self.scoring is not None:
            predictions, prior = await self.scoring.ask_completer(policy, self.papers, self.rules, self.renderer)
            return self._conclude(predictions, prior, rollout_summary_export)
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
        schema = None if self.challenge is None else self.challenge.schema
        return self._conclude(collect_predictions(groups, self.rules.target, schema=schema), {}, rollout_summary_export)

    def find_kept(self, export: RolloutSummaryExportConfig | None) -> pl.DataFrame | None:
        """Return what these weights answered before the run was stopped; ``begin_run`` removes answers of others."""
        path = None if export is None else self._locate(export)
        return read_predictions(path) if path is not None and path.is_file() else None

    def _locate(self, export: RolloutSummaryExportConfig | None) -> Path | None:
        step = "" if export is None else f"_{export.iteration:06d}"
        return None if self.folder is None else self.folder / f"{self.name}{step}.parquet"

    def _conclude(
        self, predictions: pl.DataFrame, prior: dict[str, float], export: RolloutSummaryExportConfig | None
    ) -> dict[str, float]:
        """Write predictions down, measure them and sound the alarm."""
        self.predictions, self.prior = predictions, prior
        step = export.iteration if export is not None else None
        if (path := self._locate(export)) is not None:
            write_predictions(self.predictions, path)
        measured = measure_predictions(self.predictions)
        measured |= relate_to_ceiling(measured, self.ceiling, self.rules.target)
        if (doubt := explain_doubt(measured, self.rules.contract, is_taught=self.is_taught)) is not None:
            _log.warning("%s%s", "" if step is None else f"step {step}: ", doubt)
        metrics = {f"{self.name}/{name}": value for name, value in measured.items()}
        metrics |= self.alarm(metrics, step) if self.alarm is not None else {}
        self.judged = step, metrics
        return metrics

    def name_export(self, step: int) -> RolloutSummaryExportConfig:
        """Name the file of the answers that are given before a step."""
        return RolloutSummaryExportConfig(split=f"eval/{self.name}", iteration=step, base_name=f"eval_{self.name}")

    async def _roll_out(self, policy: TokenCompleter, number: int) -> TrajectoryGroup:
        with logtree.optional_enable_logging(enable=number < self.num_groups_to_log):
            return await do_group_rollout(self.env_group_builders_P[number], policy, strategy=self.strategy)
