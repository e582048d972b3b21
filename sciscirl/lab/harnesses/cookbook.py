"""The task as a benchmark of the cookbook (``tinker_cookbook.eval.benchmarks``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tinker_cookbook.eval.benchmarks import BenchmarkBuilder, BenchmarkConfig, BenchmarkResult
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.rl.types import Action, ActionExtra, Env, Metrics, StepResult

from sciscirl.envs.dataset import check_fit
from sciscirl.envs.env import LabelEnv
from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.subject import find_subject, fit_rules, read_asked
from sciscirl.lab.evaluator import AnswerSampling
from sciscirl.metrics.metrics import find_right, measure_predictions
from sciscirl.metrics.predictions import tabulate_logs
from sciscirl.task.predictions import prediction_schema

#: Among the metrics of an answer: its row of predictions. The cookbook hands nothing but metrics to ``aggregate``.
_ROW = "prediction"


class LabelBenchmark(BenchmarkBuilder):
    """Asks about the papers of a split as ``sciscirl evaluate`` does; the cookbook's ``register`` takes it.

    ``score`` is the share of right answers, not of rewards above 0: a wrong label may earn something. ``metrics`` are
    those of ``measure_predictions``. An answer that failed, by the server or in time, is wrong in ``score`` and missing
    in ``metrics``.

    Args:
        release: the folder of a release.
        preset: prompt, contract and reward; not an adversarial one.
        split: of the release.
        options: others of EvaluationConfig, such as ``target``, ``ids`` or ``max_paper_tokens``.

    Attributes:
        name: ``sciscirl_PRESET``, with ``_SPLIT`` of a split other than test.

    Raises:
        ReleaseError: the release is missing.
        SciSciRLError: an option is impossible, or the preset is adversarial.
    """

    def __init__(self, release: str | Path, preset: str = "exp4", split: str = "test", **options: Any) -> None:  # noqa: ANN401 (checked)
        own: dict[str, Any] = {"release": Path(release), "preset": preset, "split": split}
        self.asked = EvaluationConfig(**own, **options)
        subject = find_subject(self.asked)
        if subject.preset.adversarial is not None:
            raise SciSciRLError(
                f"preset {subject.preset.name} is adversarial, and the cookbook's benchmarks have no challenger. "
                "Choose another preset."
            )
        self.preset = subject.preset
        self.name = f"sciscirl_{self.preset.name}" + ("" if split == "test" else f"_{split}")

    def make_config(self, **options: Any) -> BenchmarkConfig:  # noqa: ANN401 (of the cookbook, which checks them)
        """Return the cookbook's configuration that samples as ``sciscirl evaluate`` does; ``options`` go over it."""
        sampling = AnswerSampling.of(self.preset)
        own: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        return BenchmarkConfig(**own | options)

    def make_envs(self, renderer: Renderer, config: BenchmarkConfig) -> Sequence[Env]:
        """Make an environment for each paper of the split, or for ``max_examples``, each class in its share."""
        if config.system_prompt is not None:
            raise SciSciRLError(
                f"BenchmarkConfig.system_prompt has no effect on {self.name}: its preset writes the prompt. Leave it "
                "out."
            )
        n_papers = self.asked.n_papers if config.max_examples is None else config.max_examples
        asked = replace(self.asked, n_papers=n_papers)
        papers, rules = read_asked(asked, find_subject(asked)), fit_rules(self.preset.rules, asked.release)
        check_fit(papers, rules, renderer)
        return [_BenchmarkEnv(paper, rules, renderer) for paper in papers]

    def aggregate(self, rewards: list[float], metrics_list: list[Metrics]) -> BenchmarkResult:
        """Measure all answers together, those of a run that goes on too."""
        if any("custom_graded" in metrics for metrics in metrics_list):  # by BenchmarkConfig.grade_fn
            return super().aggregate(rewards, metrics_list)
        rows = [cast("dict[str, Any]", metrics[_ROW]) for metrics in metrics_list if _ROW in metrics]
        frame = tabulate_logs(rows, prediction_schema(self.preset.rules.target))
        n_right = int(find_right(frame).sum()) if rows else 0
        return BenchmarkResult(
            name=self.name,
            score=n_right / len(rewards) if rewards else 0.0,
            num_examples=len(rewards),
            num_correct=n_right,
            metrics=dict(measure_predictions(frame)) if rows else {},
        )


class _BenchmarkEnv(LabelEnv):
    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        ended = await super().step(action, extra=extra)
        cast("dict[str, Any]", ended.metrics)[_ROW] = dict(ended.logs)
        return ended
