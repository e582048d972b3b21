"""The test split as a benchmark in the cookbook's registry, like gsm8k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tinker_cookbook.eval.benchmarks import BenchmarkBuilder, BenchmarkConfig, BenchmarkResult, Metrics, register
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.rl.types import Env
from tinker_cookbook.utils.misc_utils import dict_mean

from sciscirl.envs.env import LabelEnv
from sciscirl.evaluation.evaluate import fit_rules
from sciscirl.task.papers import SplitName, read_part
from sciscirl.task.rules import TaskRules

BENCHMARK: Final = "sciscirl_disruption"


@dataclass
class DisruptionBenchmark(BenchmarkBuilder):
    """One environment for each paper of a split, as ``name`` in the cookbook's registry; its score is label_match.

    The cookbook's runner counts an answer as wrong if the server failed: publish results of ``LabelEvaluator``.
    """

    release: str
    rules: TaskRules
    split: SplitName = "test"
    name: str = BENCHMARK

    def make_envs(self, renderer: Renderer, config: BenchmarkConfig) -> Sequence[Env]:
        """Make the environments, for ``config.max_examples`` papers, each class in its share."""
        asked: dict[str, Any] = {"target": self.rules.target, "with_chances": self.rules.is_weighed}
        papers = read_part(self.release, self.split, n_papers=config.max_examples, **asked)
        rules = fit_rules(self.rules, Path(self.release))
        return [LabelEnv(paper, rules, renderer) for paper in papers]

    def aggregate(self, rewards: list[float], metrics_list: list[Metrics]) -> BenchmarkResult:
        """Count right answers by label: some reward tables pay wrong answers 0, or right ones less."""
        n_right = sum(metrics.get("label_match", 0.0) > 0 for metrics in metrics_list)
        return BenchmarkResult(
            name=self.name,
            score=n_right / len(rewards) if rewards else 0.0,
            num_examples=len(rewards),
            num_correct=n_right,
            metrics=dict(dict_mean(metrics_list)),
        )


def register_benchmark(release: str, rules: TaskRules, split: SplitName = "test") -> DisruptionBenchmark:
    """Enter the benchmark as ``sciscirl_TASK`` into the cookbook's registry; a later call replaces it."""
    benchmark = DisruptionBenchmark(release, rules, split, f"sciscirl_{rules.target}")
    register(benchmark)
    return benchmark
