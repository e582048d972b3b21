"""Compare ways to train that were repeated with several seeds: means, intervals over seeds and papers, paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import polars as pl

from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.compare import CompareConfig, Estimate, adjust_holm, align, list_unlike
from sciscirl.metrics.bootstrap import (
    Cells,
    Floats,
    count_cells,
    draw_below,
    find_intervals,
    measure_cells,
    percentile_interval,
    resample_metrics,
)
from sciscirl.metrics.metrics import COMPARED, Counts, measure_predictions
from sciscirl.metrics.predictions import find_target

#: The metrics of each way to train.
MEASURED: Final = (*COMPARED, "balanced_accuracy", "invalid")
_SEEDS_STREAM: Final = 1 << 192  # counter of Philox from which seeds are drawn; papers are drawn from 0 on
_BLOCK: Final = 500  # permutations at a time
_ROUNDING: Final = 1e-9
#: Predictions of each seed.
Seeds = Mapping[int, pl.DataFrame]


@dataclass(frozen=True, kw_only=True, slots=True)
class SeededPair:
    """Two ways to train, on the same papers: left minus right."""

    left: str
    right: str
    seeds: tuple[int, ...]  # that both have, for the test
    differences: Mapping[str, Estimate]  # for each of COMPARED
    p: Mapping[str, float | None]  # of the permutation test; None without a common seed
    p_holm: Mapping[str, float | None]  # adjusted for the number of pairs
    asked_otherwise: tuple[str, ...] = ()  # settings of compare.ASKED in which the two differ


@dataclass(frozen=True, kw_only=True, slots=True)
class SeededComparison:
    """The result of ``compare_seeds``: ``scores`` by way and metric, ``pairs``, and the options."""

    n_papers: int
    target: str
    config: CompareConfig
    ways: tuple[str, ...]  # the names that are compared; other scores stand beside
    seeds: Mapping[str, tuple[int, ...]]  # of each score; (0,) of what stands beside
    scores: Mapping[str, Mapping[str, Estimate]]
    by_seed: Mapping[str, Mapping[str, tuple[float, ...]]]  # in the order of seeds
    pairs: tuple[SeededPair, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it in JSON types."""
        return asdict(self)


def compare_seeds(
    ways: Mapping[str, Seeds],
    config: CompareConfig = CompareConfig(),  # noqa: B008 (frozen)
    asked: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    beside: Mapping[str, pl.DataFrame] = MappingProxyType({}),
) -> SeededComparison:
    """Compare ways to train, each repeated with one seed or more, on the same papers.

    A score is the mean over the seeds. Its interval is from a hierarchical bootstrap. A resample draws as many seeds as
    there are, then papers, both with replacement. All ways share the draws, so that what is due to the papers cancels
    out of their differences. With one seed, intervals are those of one evaluation: they are over papers only. Few seeds
    make an interval too narrow. A resample of three seeds varies by two thirds of what three new ones would.

    The test permutes papers: it swaps the answers of both ways to a paper, of all seeds together. It asks how often the
    mean over the seeds then differs by as much as it does. It is about these trained models on papers like these; only
    the interval is also about other seeds. Holm's procedure adjusts p for the number of pairs.

    Args:
        ways: predictions by name of the way and by seed; one answer to each paper.
        config: the options; with ``reference`` the pairs are those with it.
        asked: by way, how its models were asked (``list_asked``); pairs that differ are marked.
        beside: predictions to score on the same papers, such as baselines, which are no part of a pair.

    Raises:
        PredictionsError: as ``compare.align``; or the reference is not among the ways, or a way has no seed.

    Source: resampling of crossed factors, Owen 2007, doi:10.1214/07-AOAS122; permutation test, Good 2005, Permutation,
    Parametric and Bootstrap Tests of Hypotheses, chapter 3; p with one added, Phipson & Smyth 2010,
    doi:10.2202/1544-6115.1585; Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70.

    Example:
        >>> said = {"gold": "neutral", "confidence": 0.9, "is_json": True, "is_valid": True}
        >>> def answer(label: str) -> pl.DataFrame:
        ...     return pl.DataFrame([{"openalex_id": f"W{number}", "label": label, **said} for number in range(8)])
        >>> ways = {"plain": {0: answer("disruptive"), 1: answer("neutral")}, "better": {0: answer("neutral")}}
        >>> found = compare_seeds(ways)
        >>> found.scores["plain"]["label_match"], found.pairs[0].seeds, round(found.pairs[0].p["label_match"], 2)
        (Estimate(value=0.5, low=0.0, high=1.0), (0,), 0.01)
    """
    if config.reference is not None and config.reference not in ways:
        msg = f"CompareConfig.reference is {config.reference!r}, needs one of {', '.join(ways)}."
        raise PredictionsError(msg)
    if empty := [name for name, seeds in ways.items() if not seeds]:
        msg = f"{empty[0]} has no predictions. Leave it out, or evaluate a run of it."
        raise PredictionsError(msg)
    every = {**ways, **{name: {0: table} for name, table in beside.items()}}
    named = {(name, seed): f"{name}, seed {seed}" for name, seeds in every.items() for seed in seeds}
    aligned = align({label: every[name][seed] for (name, seed), label in named.items()}, at_least=1)
    tables = {name: {seed: aligned[named[name, seed]] for seed in seeds} for name, seeds in every.items()}
    drawn = resample_metrics(list(aligned.values()), n_resamples=config.n_resamples, seed=config.seed)
    drawn["invalid"] = 1 - drawn["format_strict_ok"]
    row_of = {label: row for row, label in enumerate(aligned)}
    most = max(map(len, every.values()))
    stream = np.random.Philox(key=config.seed, counter=_SEEDS_STREAM)
    # The upper bits decide, so every way makes its own choice of the same draws.
    draws = stream.random_raw(config.n_resamples * most).reshape(config.n_resamples, most)
    measured = {name: [measure_predictions(table) for table in seeds.values()] for name, seeds in tables.items()}
    by_seed = {
        name: {metric: tuple(one[metric] for one in seeds) for metric in MEASURED} for name, seeds in measured.items()
    }
    scores = {name: {metric: fmean(values) for metric, values in metrics.items()} for name, metrics in by_seed.items()}

    def resample(name: str, metric: str) -> Floats:
        rows = [row_of[named[name, seed]] for seed in every[name]]
        chosen = ((draws[:, : len(rows)] >> np.uint64(32)) * np.uint64(len(rows)) >> np.uint64(32)).astype(np.int64)
        return drawn[metric][rows].T[np.arange(config.n_resamples)[:, None], chosen].mean(axis=1)

    def find_ends(name: str) -> Mapping[str, tuple[float, float]]:
        if len(every[name]) > 1:
            found = {metric: percentile_interval(resample(name, metric), config.level) for metric in MEASURED}
            return {metric: ends for metric, ends in found.items() if ends is not None and ends[0] < ends[1]}
        (table,) = tables[name].values()
        (seed,) = every[name]
        row = row_of[named[name, seed]]
        found = find_intervals(table, {metric: values[row] for metric, values in drawn.items()}, config.level)
        low, high = found["format_strict_ok"]
        return found | {"invalid": (1 - high, 1 - low)}

    ends = {name: find_ends(name) for name in every}
    names = list(combinations(ways, 2))
    if config.reference is not None:
        names = [(name, config.reference) for name in ways if name != config.reference]
    p_values = [_permute(tables[left], tables[right], config) for left, right in names]
    adjusted = {metric: _adjust([p[metric] for p in p_values]) for metric in COMPARED}

    def difference(left: str, right: str, metric: str) -> Estimate:
        ends = percentile_interval(resample(left, metric) - resample(right, metric), config.level)
        return Estimate(scores[left][metric] - scores[right][metric], *(ends or (None, None)))

    first = next(iter(aligned.values()))
    return SeededComparison(
        n_papers=len(first),
        target=str(find_target(first)),
        config=config,
        ways=tuple(ways),
        seeds={name: tuple(seeds) for name, seeds in every.items()},
        scores={
            name: {metric: Estimate(value, *ends[name].get(metric, (None, None))) for metric, value in found.items()}
            for name, found in scores.items()
        },
        by_seed=by_seed,
        pairs=tuple(
            SeededPair(
                left=left,
                right=right,
                seeds=tuple(seed for seed in ways[left] if seed in ways[right]),
                differences={metric: difference(left, right, metric) for metric in COMPARED},
                p=p_values[row],
                p_holm={metric: adjusted[metric][row] for metric in COMPARED},
                asked_otherwise=list_unlike(asked.get(left, {}), asked.get(right, {})),
            )
            for row, (left, right) in enumerate(names)
        ),
    )


def _adjust(p_values: Sequence[float | None]) -> list[float | None]:
    known = iter(adjust_holm([p for p in p_values if p is not None]))
    return [None if p is None else next(known) for p in p_values]


def _permute(left: Seeds, right: Seeds, config: CompareConfig) -> dict[str, float | None]:
    """Return p of each of COMPARED: papers change sides, each with the answers of all seeds that both have."""
    pairs = [(count_cells(left[seed]), count_cells(right[seed])) for seed in left if seed in right]
    if not pairs:
        return dict.fromkeys(COMPARED)
    n_papers = len(next(iter(pairs[0][0].values())).counts)
    stream = np.random.Philox(key=config.seed, counter=2 * _SEEDS_STREAM)
    found = _differ(pairs, np.zeros((1, n_papers), dtype=np.int64))
    n_as_far: dict[str, int] = dict.fromkeys(COMPARED, 0)
    for start in range(0, config.n_resamples, _BLOCK):
        size = min(_BLOCK, config.n_resamples - start)
        swaps = draw_below(stream, 2, size * n_papers).reshape(size, n_papers)
        for metric, values in _differ(pairs, swaps).items():
            n_as_far[metric] += int((np.abs(values) >= abs(found[metric][0]) - _ROUNDING).sum())
    # One more, the papers as they are: without it, p could be 0.
    return {metric: (1 + n) / (1 + config.n_resamples) for metric, n in n_as_far.items()}


def _differ(pairs: Sequence[tuple[Mapping[str, Cells], Mapping[str, Cells]]], swaps: Counts) -> dict[str, Floats]:
    """Return the mean over seeds of left minus right, for each row of ``swaps``: which papers change sides."""
    differences: list[dict[str, Floats]] = []
    for left, right in pairs:
        moved = {name: swaps @ (right[name].counts - left[name].counts) for name in left}
        sides = [
            measure_cells(
                {name: Cells(one.counts.sum(axis=0) + sign * moved[name], one.labels) for name, one in side.items()}
            )
            for side, sign in ((left, 1), (right, -1))
        ]
        differences.append({metric: sides[0][metric] - sides[1][metric] for metric in COMPARED})
    return {metric: np.mean([one[metric] for one in differences], axis=0) for metric in COMPARED}
