"""Compare models on the same held-out papers: by how much they differ, and whether that may be chance.

A model may be one evaluation, or a recipe that was repeated with several seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, combinations
from statistics import NormalDist, fmean, stdev
from types import MappingProxyType
from typing import Annotated, Any, Final

import numpy as np
import polars as pl
from msgspec import Meta

from sciscidata.options.checks import check_fields
from sciscidata.terminal.messages import counted
from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.seen import list_seen, say_known
from sciscirl.lab.evaluation.bootstrap import (
    Cells,
    Floats,
    Resampled,
    count_cells,
    draw_below,
    find_intervals,
    measure_cells,
    percentile_interval,
    resample_metrics,
)
from sciscirl.metrics.metrics import COMPARED, Counts, find_right, measure_predictions, relate_to_ceiling
from sciscirl.metrics.own_metrics import METRICS, describe_metrics
from sciscirl.metrics.predictions import find_target, split_by_label
from sciscirl.presets import UNSTATED

#: Settings that decide how a model is asked and paid. A pair that differs in one differs in more than the weights.
ASKED: Final = (
    "style", "prompt_sha256", "contract", "reward", "max_tokens", "max_paper_tokens", "temperature", "top_p",
    "renderer", "dtype", "hide", "show", "as_of", "answers", "prior_correction",
)  # fmt: skip
#: What runs and evaluations did before they stated it.
_UNSTATED: Final[Mapping[str, Any]] = MappingProxyType({**UNSTATED, "answers": "sampled", "prior_correction": ""})


#: The metrics of each model.
MEASURED: Final = (*COMPARED, "balanced_accuracy", "invalid")
_SWAPS_STREAM: Final = 1 << 193  # counter of Philox from which swaps are drawn; papers are drawn from 0 on
_BLOCK: Final = 500  # permutations at a time
_ROUNDING: Final = 1e-9
#: The share of comparisons that should show a difference.
POWER: Final = 0.8
#: Predictions of each seed.
Seeds = Mapping[int, pl.DataFrame]


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Resampled):
    """Options of a comparison.

    Attributes:
        reference: compare every other model with this one only; None: every pair.
        level: of the intervals.
        seed: of the resamples.
    """

    reference: str | None = None
    level: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    seed: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        check_fields(self, PredictionsError)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval; the ends are None if no resample defines it."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two models on the same papers: left minus right."""

    left: str
    right: str
    seeds: tuple[int, ...]  # that both have, for the test
    differences: Mapping[str, Estimate]  # for each of COMPARED, and each own metric that both have
    p: Mapping[str, float | None]  # two-sided; None without a common seed, and of own metrics
    p_holm: Mapping[str, float | None]  # adjusted for the number of pairs
    only_left: int | None  # papers that left answers right and right does not; None with several seeds or answers
    only_right: int | None
    detectable: Mapping[
        str, float | None
    ]  # the least true difference that POWER of such comparisons show; None: unknown
    asked_otherwise: tuple[str, ...] = ()  # settings of ASKED in which the two differ


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The result of ``compare_predictions``: ``scores`` by model and metric, ``pairs``, and the options."""

    n_papers: int
    target: str
    config: CompareConfig
    names: tuple[str, ...]  # that are compared; other scores stand beside
    seeds: Mapping[str, tuple[int, ...]]  # of each score; (0,) of one evaluation
    scores: Mapping[str, Mapping[str, Estimate]]
    by_seed: Mapping[str, Mapping[str, tuple[float, ...]]]  # in the order of seeds
    pairs: tuple[Pair, ...]
    ceiling: Mapping[str, float] | None  # of the labels, as their release states it; None: not known
    related: Mapping[str, Mapping[str, float]]  # to it, by model
    saw: Mapping[str, str]  # what each knew of a paper, in words
    headline: str = ""  # whether training helped, where evaluations before and after it are named
    changes: Mapping[str, str] = field(default_factory=dict[str, str])  # what it changed, in words, by topic

    def to_json(self) -> dict[str, Any]:
        """Return all of it in JSON types, the options among the rest, and what own metrics are."""
        whole = asdict(self)
        facts = {name: whole.pop(name) for name in ("n_papers", "target")}
        return facts | whole.pop("config") | whole | ({"metrics": own} if (own := describe_metrics()) else {})


def list_asked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a model was asked, from the settings of a run or evaluation; of a baseline, what it saw."""
    if not settings:
        return {}
    if isinstance(settings.get("saw"), str):  # another's result says it in words
        return {"saw": settings["saw"]}
    if "baseline" in settings:
        missed = {name: settings.get(name, _UNSTATED[name]) for name in UNSTATED}
        return missed | {"baseline": settings["baseline"], "saw": list_seen(settings)}
    of_run = {"temperature": "eval_temperature", "top_p": "eval_top_p"} if "learning_rate" in settings else {}
    named = {name: of_run.get(name, name) for name in ASKED}
    stated = {name: settings[setting] for name, setting in named.items() if settings.get(setting) is not None}
    return stated | {name: value for name, value in _UNSTATED.items() if name not in stated}


def compare_predictions(
    models: Mapping[str, pl.DataFrame | Seeds],
    config: CompareConfig = CompareConfig(),
    asked: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ceiling: Mapping[str, float] | None = None,
    beside: Mapping[str, pl.DataFrame] = MappingProxyType({}),
) -> Comparison:
    """Compare models that answered to each of the same papers, once or several times.

    An answer that is not valid is wrong in every figure. The order of rows does not matter. Intervals come from
    resamples of the papers that are the same for all models, so that what is due to the papers cancels out of
    differences. A paper is drawn with all its answers, so intervals also cover what other draws would have answered.

    A recipe that was repeated has a table for each seed. Its score is the mean over the seeds. Student's t says
    how far it may be off because of them, with one degree of freedom fewer than there are seeds. That is added
    in squares to what resamples of the papers say. Differences are taken seed by seed where both have the same seeds.

    p is of a test that permutes papers: it swaps the answers of both to a paper, of all seeds together. It asks how
    often the mean over the seeds then differs by as much as it does. For label_match of one label and one seed that is
    McNemar's test, which is computed exactly. It is about these trained models on papers like these; only the interval
    is also about other seeds. Holm's procedure adjusts p for the number of pairs. Metrics of ``register_metric`` have
    intervals and no p.

    Args:
        models: predictions by name of the model, or by name and seed.
        config: the options; with ``reference`` the pairs are those with it.
        asked: by name, how each model was asked, and what a baseline saw (``list_asked``); pairs that differ are
            marked.
        ceiling: of their labels (``relate_to_ceiling``); None: not known.
        beside: predictions to score on the same papers, such as baselines, which are no part of a pair.

    Raises:
        PredictionsError: there is nothing to compare, or the reference is not among the models. Or they are not of the
            same papers, with the same gold labels and equally many answers to each.

    Source: resampling of papers with their answers, Davison & Hinkley 1997, Bootstrap Methods and their Application,
    section 3.8; Student 1908, doi:10.2307/2331554; McNemar 1947, doi:10.1007/BF02295996;
    permutation test, Good 2005, Permutation, Parametric and Bootstrap Tests of Hypotheses, chapter 3; p with one added,
    Phipson & Smyth 2010, doi:10.2202/1544-6115.1585; Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70.

    Example:
        >>> said = {"gold": "neutral", "confidence": 0.9, "is_json": True, "is_valid": True}
        >>> tables = {
        ...     name: pl.DataFrame([{"openalex_id": f"W{number}", "label": label, **said} for number in range(6)])
        ...     for name, label in (("early", "disruptive"), ("late", "neutral"))
        ... }
        >>> (pair,) = compare_predictions(tables).pairs
        >>> pair.differences["label_match"], pair.only_right, pair.p["label_match"]
        (Estimate(value=-1.0, low=-1.0, high=-1.0), 6, 0.03125)
    """
    ways: dict[str, Seeds] = {name: {0: one} if isinstance(one, pl.DataFrame) else one for name, one in models.items()}
    if config.reference is not None and config.reference not in ways:
        raise PredictionsError(f"CompareConfig.reference is {config.reference!r}, needs one of {', '.join(ways)}.")
    if not models or (len({*models, *beside}) < 2 and isinstance(next(iter(models.values())), pl.DataFrame)):
        raise PredictionsError(
            f"there is nothing to compare {', '.join(models) or 'with nothing'} with. Give two predictions or more."
        )
    if empty := [name for name, seeds in ways.items() if not seeds]:
        raise PredictionsError(f"{empty[0]} has no predictions. Leave it out, or evaluate a run of it.")
    every: dict[str, Seeds] = {**ways, **{name: {0: table} for name, table in beside.items()}}
    labelled = {
        (name, seed): name if isinstance(models.get(name, table), pl.DataFrame) else f"{name}, seed {seed}"
        for name, seeds in every.items()
        for seed, table in seeds.items()
    }
    aligned = align({label: every[name][seed] for (name, seed), label in labelled.items()})
    tables = {name: {seed: aligned[labelled[name, seed]] for seed in seeds} for name, seeds in every.items()}
    drawn = resample_metrics(list(aligned.values()), n_resamples=config.n_resamples, seed=config.seed)
    drawn["invalid"] = 1 - drawn["format_strict_ok"]
    row_of = {label: row for row, label in enumerate(aligned)}
    measured = {name: [measure_predictions(table) for table in seeds.values()] for name, seeds in tables.items()}
    by_seed = {
        name: {
            metric: tuple(one[metric] for one in seeds)
            for metric in (*MEASURED, *METRICS)
            if all(metric in one for one in seeds)  # an own one may be undefined
        }
        for name, seeds in measured.items()
    }
    scores = {name: {metric: fmean(values) for metric, values in metrics.items()} for name, metrics in by_seed.items()}

    def resample(name: str, metric: str) -> Floats:
        return drawn[metric][[row_of[labelled[name, seed]] for seed in every[name]]].mean(axis=0)

    def find_ends(name: str) -> Mapping[str, tuple[float, float]]:
        if len(every[name]) > 1:
            intervals = {
                metric: _widen(percentile_interval(resample(name, metric), config.level), values, config.level)
                for metric, values in by_seed[name].items()
            }
            return {
                metric: (max(lowest, ends[0]), min(highest, ends[1]))
                for metric, ends in intervals.items()
                for lowest, highest in [_find_bounds(metric)]
                if ends is not None and ends[0] < ends[1]
            }
        ((seed, table),) = tables[name].items()
        row = row_of[labelled[name, seed]]
        intervals = find_intervals(table, {metric: values[row] for metric, values in drawn.items()}, config.level)
        low, high = intervals["format_strict_ok"]
        return intervals | {"invalid": (1 - high, 1 - low)}

    def list_repeated(left: str, right: str, metric: str) -> list[list[float]]:
        """List what seeds vary: the differences seed by seed, or the values of each side."""
        one, other = (dict(zip(every[name], by_seed[name][metric], strict=True)) for name in (left, right))
        if one.keys() == other.keys():
            return [[one[seed] - other[seed] for seed in one]]
        return [[*one.values()], [*other.values()]]

    def difference(left: str, right: str, metric: str) -> Estimate:
        value = scores[left][metric] - scores[right][metric]
        ends = percentile_interval(resample(left, metric) - resample(right, metric), config.level)
        repeated = list_repeated(left, right, metric)
        for values in repeated:
            ends = _widen(ends, values, config.level, None if len(repeated) == 1 else value)
        lowest, highest = _find_bounds(metric)
        reach = highest - lowest
        low, high = (None, None) if ends is None else (max(-reach, ends[0]), min(reach, ends[1]))
        return Estimate(value, low, high)

    def detect(left: str, right: str, metric: str) -> float | None:
        apart = resample(left, metric) - resample(right, metric)
        return find_detectable(apart, list_repeated(left, right, metric), config.level)

    ends = {name: find_ends(name) for name in every}
    names = list(combinations(ways, 2))
    if config.reference is not None:
        names = [(name, config.reference) for name in ways if name != config.reference]
    first = next(iter(aligned.values()))
    target = find_target(first)
    counts = [_count_alone(tables[left], tables[right]) for left, right in names]
    p_values = [_permute(tables[left], tables[right], config) for left, right in names]
    for p, (only_left, only_right) in zip(p_values, counts, strict=True):
        if only_left is not None and only_right is not None and len(split_by_label(first)) == 1:
            p["label_match"] = mcnemar_exact(only_left, only_right)
    adjusted = {metric: _adjust([p[metric] for p in p_values]) for metric in COMPARED}
    means = {
        name: {key: fmean(one[key] for one in seeds) for key in seeds[0] if all(key in one for one in seeds)}
        for name, seeds in measured.items()
    }
    return Comparison(
        n_papers=first["openalex_id"].n_unique(),
        target=str(target),
        config=config,
        names=tuple(ways),
        seeds={name: tuple(seeds) for name, seeds in every.items()},
        scores={
            name: {metric: Estimate(value, *ends[name].get(metric, (None, None))) for metric, value in own.items()}
            for name, own in scores.items()
        },
        by_seed=by_seed,
        pairs=tuple(
            Pair(
                left=left,
                right=right,
                seeds=tuple(seed for seed in ways[left] if seed in ways[right]),
                differences={
                    metric: difference(left, right, metric)
                    for metric in (*COMPARED, *METRICS)
                    if metric in scores[left] and metric in scores[right]
                },
                p=dict.fromkeys(METRICS) | p_values[row],
                p_holm=dict.fromkeys(METRICS) | {metric: adjusted[metric][row] for metric in COMPARED},
                only_left=counts[row][0],
                only_right=counts[row][1],
                detectable={metric: detect(left, right, metric) for metric in COMPARED},
                asked_otherwise=list_unlike(asked.get(left, {}), asked.get(right, {})),
            )
            for row, (left, right) in enumerate(names)
        ),
        ceiling=ceiling,
        related={name: relate_to_ceiling(metrics, ceiling, target) for name, metrics in means.items()},
        saw={name: said for name in every if (said := say_known(asked.get(name, {})))},
    )


def _find_bounds(metric: str) -> tuple[float, float]:
    return METRICS[metric].bounds if metric in METRICS else (0.0, 1.0)


def _widen(
    ends: tuple[float, float] | None, by_seed: Sequence[float], level: float, middle: float | None = None
) -> tuple[float, float] | None:
    """Widen an interval over papers by how far the mean of these seeds may be off (Student's t). One seed tells not."""
    if ends is None or len(by_seed) < 2 or not (apart := stdev(by_seed)):
        return ends
    from scipy.special import stdtrit

    middle = fmean(by_seed) if middle is None else middle
    off = float(stdtrit(len(by_seed) - 1, (1 + level) / 2)) * apart / math.sqrt(len(by_seed))
    low, high = (max(0.0, reach) for reach in (middle - ends[0], ends[1] - middle))
    return middle - math.hypot(low, off), middle + math.hypot(high, off)


def find_detectable(apart: Floats, repeated: Sequence[Sequence[float]], level: float) -> float | None:
    """Return the least true difference that a share POWER of tests at ``1 - level``, two-sided, would find.

    That is the sum of both quantiles times the standard error. That over papers is the deviation of ``apart``, the
    resampled differences. Each list of ``repeated`` values adds that over its seeds, in squares, by Student's t. None
    if all resamples agree: they say nothing about other papers.

    Source: Lehmann & Romano 2005, Testing Statistical Hypotheses, section 3.3.
    """
    defined = apart[~np.isnan(apart)]
    spread = float(defined.std()) if len(defined) else 0.0
    if spread <= _ROUNDING:
        return None
    tails = ((1 + level) / 2, POWER)
    least = sum(map(NormalDist().inv_cdf, tails)) * spread
    for values in repeated:
        if len(values) > 1 and (deviation := stdev(values)):
            from scipy.special import stdtrit

            off = sum(float(stdtrit(len(values) - 1, tail)) for tail in tails)
            least = math.hypot(least, off * deviation / math.sqrt(len(values)))
    return least


def _count_alone(left: Seeds, right: Seeds) -> tuple[int | None, int | None]:
    """Count the papers that only one of two evaluations answers right."""
    if len(left) > 1 or left.keys() != right.keys():
        return None, None
    tables = [next(iter(side.values())) for side in (left, right)]
    if any(count_answers(table) > 1 for table in tables):
        return None, None
    one, other = map(find_right, tables)
    return int((one & ~other).sum()), int((~one & other).sum())


def _adjust(p_values: Sequence[float | None]) -> list[float | None]:
    known = iter(adjust_holm([p for p in p_values if p is not None]))
    return [None if p is None else next(known) for p in p_values]


def _permute(left: Seeds, right: Seeds, config: CompareConfig) -> dict[str, float | None]:
    """Return p of each of COMPARED: papers change sides, each with the answers of all seeds that both have."""
    pairs = [count_alike(left[seed], right[seed]) for seed in left if seed in right]
    if not pairs:
        return dict.fromkeys(COMPARED)
    n_papers = len(next(iter(pairs[0][0].values())).counts)
    stream = np.random.Philox(key=config.seed, counter=_SWAPS_STREAM)
    observed = _differ(pairs, np.zeros((1, n_papers), dtype=np.int64))
    n_as_far: dict[str, int] = dict.fromkeys(COMPARED, 0)
    for start in range(0, config.n_resamples, _BLOCK):
        size = min(_BLOCK, config.n_resamples - start)
        swaps = draw_below(stream, 2, size * n_papers).reshape(size, n_papers)
        for metric, values in _differ(pairs, swaps).items():
            n_as_far[metric] += int((np.abs(values) >= abs(observed[metric][0]) - _ROUNDING).sum())
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


def count_alike(left: pl.DataFrame, right: pl.DataFrame) -> tuple[dict[str, Cells], dict[str, Cells]]:
    """Count the answers of two evaluations of the same papers as if both had asked equally often."""
    most = math.lcm(len(left), len(right))
    one, other = (
        {name: Cells(cells.counts * (most // len(table)), cells.labels) for name, cells in count_cells(table).items()}
        for table in (left, right)
    )
    return one, other


def count_answers(table: pl.DataFrame) -> int:
    """Return how many answers to each paper there are, at most."""
    return int(table.group_by("openalex_id").len()["len"].max())  # pyright: ignore[reportArgumentType] (no null)


def list_unlike(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[str, ...]:
    """List the settings of ASKED that differ. What only one of the two states is not known to."""
    return tuple(name for name in ASKED if name in left and name in right and left[name] != right[name])


def align(tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Sort tables of predictions by paper, after checking that they are of the same papers (PredictionsError)."""
    aligned: dict[str, pl.DataFrame] = {}
    for name, table in tables.items():
        if "openalex_id" not in table.columns or table["openalex_id"].has_nulls():
            raise PredictionsError(
                f"{name} does not say which papers it is of: it needs a column openalex_id without nulls. Use what an "
                "evaluation wrote."
            )
        if (most := count_answers(table)) * table["openalex_id"].n_unique() != len(table):
            raise PredictionsError(
                f"{name} has {most} answers to some papers and fewer to others, needs equally many. Use what one "
                "evaluation wrote."
            )
        aligned[name] = table.sort("openalex_id", maintain_order=True)
    (first, reference), *others = aligned.items()
    for name, table in others:
        if find_target(table) != find_target(reference):
            raise PredictionsError(
                f"{first} is of the task {find_target(reference)}, {name} of {find_target(table)}. Compare one task."
            )
        mine, theirs = set(reference["openalex_id"]), set(table["openalex_id"])
        if mine != theirs:
            raise PredictionsError(
                f"{first} and {name} are not of the same papers: {len(mine - theirs):,} are only in {first}, "
                f"{len(theirs - mine):,} only in {name}. Evaluate both in one split of one release."
            )
        once = (one.unique("openalex_id", keep="first", maintain_order=True) for one in (reference, table))
        golds = zip(*(split_by_label(one).values() for one in once), strict=True)
        if n_other := sum(int((left["gold"] != right["gold"]).sum()) for left, right in golds):
            papers = counted(n_other, "paper")
            raise PredictionsError(
                f"{first} and {name} differ in the gold label of {papers}. Evaluate both on one release."
            )
    return aligned


def mcnemar_exact(only_left: int, only_right: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: twice the smaller binomial tail, at most 1.

    SciPy's binomtest takes a second to import. Source: McNemar 1947, doi:10.1007/BF02295996.
    """
    n = only_left + only_right
    tail, term = 0, 1
    for k in range(min(only_left, only_right) + 1):
        tail += term
        term = term * (n - k) // (k + 1)  # the next binomial coefficient
    return min(1.0, 2 * tail / 2**n)  # of whole numbers, so rounded once


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number by Holm's procedure, which bounds the chance of any false finding.

    Source: Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    steps = (min(1.0, (len(p_values) - rank) * p_values[place]) for rank, place in enumerate(order))
    adjusted = dict(zip(order, accumulate(steps, max), strict=True))
    return [adjusted[place] for place in range(len(p_values))]
