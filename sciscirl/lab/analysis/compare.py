"""Compare models on one held-out split: by how much they differ, and whether that may be chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import accumulate, combinations
from types import MappingProxyType
from typing import Annotated, Any, Final

import polars as pl
from msgspec import Meta

from sciscidata.options.checks import PositiveInt, check_fields
from sciscidata.terminal.messages import counted
from sciscirl.errors import PredictionsError
from sciscirl.metrics.bootstrap import N_PAIRED_RESAMPLES, Floats, find_intervals, percentile_interval, resample_metrics
from sciscirl.metrics.metrics import COMPARED, find_right, measure_predictions, relate_to_ceiling
from sciscirl.metrics.predictions import find_target, split_by_label

#: Settings that decide how a model is asked and paid. A pair that differs in one differs in more than the weights.
ASKED: Final = (
    "style", "prompt_sha256", "contract", "reward", "max_tokens", "max_paper_tokens", "temperature", "top_p",
    "renderer", "dtype", "hide", "answers", "prior_correction",
)  # fmt: skip
#: What runs and evaluations did before they stated it.
_UNSTATED: Final[Mapping[str, Any]] = MappingProxyType({"hide": [], "answers": "sampled", "prior_correction": ""})


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareConfig:
    """Options of a comparison.

    Attributes:
        reference: compare every other model with this one only; None: every pair.
        n_resamples: of the papers, for the intervals.
        level: of the intervals.
        seed: of the resamples.
    """

    reference: str | None = None
    n_resamples: PositiveInt = N_PAIRED_RESAMPLES
    level: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    seed: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        check_fields(self, PredictionsError)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the percentile interval of its resamples; the ends are None if no resample defines it."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two models, paper by paper."""

    left: str
    right: str
    only_left: int  # papers that only left answers right
    only_right: int  # papers that only right answers right
    p: float  # of McNemar's exact test, two-sided; 1 if no paper tells them apart
    p_holm: float  # adjusted for all pairs by Holm's procedure
    differences: Mapping[str, Estimate]  # left minus right, for each of COMPARED
    asked_otherwise: tuple[str, ...] = ()  # settings of ASKED in which the two differ


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The result of ``compare_predictions``: ``scores`` by model and metric, ``pairs``, ceiling, and the options."""

    n_papers: int
    target: str
    config: CompareConfig
    scores: Mapping[str, Mapping[str, Estimate]]
    pairs: tuple[Pair, ...]
    ceiling: Mapping[str, float] | None = None  # of the labels, as their release states it; None: not known
    related: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, dict[str, float]])  # to it, by model

    def to_json(self) -> dict[str, Any]:
        """Return all of it in JSON types, the options among the rest."""
        whole = asdict(self)
        facts = {name: whole.pop(name) for name in ("n_papers", "target")}
        return facts | whole.pop("config") | whole


def list_asked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a model was asked, from the settings of a run or evaluation; of a baseline, what it missed.

    Example:
        >>> list_asked({"learning_rate": 4e-5, "style": "plain", "temperature": 1.0, "eval_temperature": 0.0})
        {'style': 'plain', 'temperature': 0.0, 'hide': [], 'answers': 'sampled', 'prior_correction': ''}
    """
    if not settings:
        return {}
    if "baseline" in settings:
        return {"hide": settings.get("hide", [])}
    of_run = {"temperature": "eval_temperature", "top_p": "eval_top_p"} if "learning_rate" in settings else {}
    named = {name: of_run.get(name, name) for name in ASKED}
    stated = {name: settings[given] for name, given in named.items() if settings.get(given) is not None}
    return stated | {name: value for name, value in _UNSTATED.items() if name not in stated}


def compare_predictions(
    tables: Mapping[str, pl.DataFrame],
    config: CompareConfig = CompareConfig(),
    asked: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ceiling: Mapping[str, float] | None = None,
) -> Comparison:
    """Compare models that answered once to each of the same papers.

    An answer that is not valid is wrong in every figure. Intervals of scores are those of an evaluation. Intervals of
    differences come from resamples of the papers that are the same for all models. So what is due to the papers cancels
    out. The order of rows does not matter. McNemar's test is on label_match; in the joint task, on both labels being
    right.

    Args:
        tables: predictions by name of the model.
        config: the options.
        asked: by name, how each model was asked (``list_asked``); pairs that differ are marked.
        ceiling: of their labels (``relate_to_ceiling``); None: not known.

    Raises:
        PredictionsError: there are fewer than two tables, or the reference is not among them. Or they are not of the
            same papers, with the same gold labels and one answer to each.

    Source: McNemar 1947, doi:10.1007/BF02295996; Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70; paired
    bootstrap, Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.

    Example:
        >>> said = {"gold": "neutral", "confidence": 0.9, "is_json": True, "is_valid": True}
        >>> tables = {
        ...     name: pl.DataFrame([{"openalex_id": f"W{number}", "label": label, **said} for number in range(6)])
        ...     for name, label in (("early", "disruptive"), ("late", "neutral"))
        ... }
        >>> (pair,) = compare_predictions(tables).pairs
        >>> pair.differences["label_match"], pair.only_right, pair.p
        (Estimate(value=-1.0, low=-1.0, high=-1.0), 6, 0.03125)
    """
    aligned = align(tables)
    reference = config.reference
    if reference is not None and reference not in aligned:
        msg = f"CompareConfig.reference is {reference!r}, needs one of {', '.join(aligned)}."
        raise PredictionsError(msg)
    metrics = {name: measure_predictions(table) for name, table in aligned.items()}
    drawn = resample_metrics(list(aligned.values()), n_resamples=config.n_resamples, seed=config.seed)
    row_of = {name: row for row, name in enumerate(aligned)}
    right = {name: find_right(table) for name, table in aligned.items()}
    intervals = {
        name: find_intervals(table, {metric: drawn[metric][row_of[name]] for metric in drawn}, config.level)
        for name, table in aligned.items()
    }

    def score(name: str, metric: str) -> Estimate:
        return Estimate(metrics[name][metric], *intervals[name].get(metric, (None, None)))

    def difference(left: str, other: str, metric: str) -> Estimate:
        resamples = drawn[metric][row_of[left]] - drawn[metric][row_of[other]]
        return _estimate(metrics[left][metric] - metrics[other][metric], resamples, config.level)

    names = list(combinations(aligned, 2)) if reference is None else [(n, reference) for n in aligned if n != reference]
    counts = [
        (int((right[left] & ~right[other]).sum()), int((~right[left] & right[other]).sum())) for left, other in names
    ]
    p_values = [mcnemar_exact(*pair) for pair in counts]
    pairs = tuple(
        Pair(
            left=left,
            right=other,
            only_left=only_left,
            only_right=only_right,
            p=p,
            p_holm=p_holm,
            differences={metric: difference(left, other, metric) for metric in COMPARED},
            asked_otherwise=list_unlike(asked.get(left, {}), asked.get(other, {})),
        )
        for (left, other), (only_left, only_right), p, p_holm in zip(
            names, counts, p_values, adjust_holm(p_values), strict=True
        )
    )
    first = next(iter(aligned.values()))
    scores = {name: {metric: score(name, metric) for metric in COMPARED} for name in aligned}
    target = find_target(first)
    related = {name: relate_to_ceiling(metrics[name], ceiling, target) for name in aligned}
    return Comparison(
        n_papers=len(first),
        target=target,
        config=config,
        scores=scores,
        pairs=pairs,
        ceiling=ceiling,
        related=related,
    )


def list_unlike(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[str, ...]:
    """List the settings of ASKED that differ. What only one of the two states is not known to."""
    return tuple(name for name in ASKED if name in left and name in right and left[name] != right[name])


def align(tables: Mapping[str, pl.DataFrame], *, at_least: int = 2) -> dict[str, pl.DataFrame]:
    """Sort tables of predictions by paper, after checking that they are of the same papers (PredictionsError)."""
    if len(tables) < at_least:
        msg = f"there is nothing to compare {', '.join(tables) or 'with nothing'} with. Give two predictions or more."
        raise PredictionsError(msg)
    aligned: dict[str, pl.DataFrame] = {}
    for name, table in tables.items():
        if "openalex_id" not in table.columns:
            msg = f"{name} does not say which papers it is of: no column openalex_id. Use what an evaluation wrote."
            raise PredictionsError(msg)
        if n_more := len(table) - table["openalex_id"].n_unique():
            msg = (
                f"{name} has {n_more:,} more answers than papers, needs one to each. Evaluate with "
                "EvaluationConfig.group_size=1."
            )
            raise PredictionsError(msg)
        aligned[name] = table.sort("openalex_id")
    (first, reference), *others = aligned.items()
    for name, table in others:
        if find_target(table) != find_target(reference):
            msg = f"{first} is of the task {find_target(reference)}, {name} of {find_target(table)}. Compare one task."
            raise PredictionsError(msg)
        mine, theirs = set(reference["openalex_id"]), set(table["openalex_id"])
        if mine != theirs:
            msg = (
                f"{first} and {name} are not of the same papers: {len(mine - theirs):,} are only in {first}, "
                f"{len(theirs - mine):,} only in {name}. Evaluate both in one split of one release."
            )
            raise PredictionsError(msg)
        golds = zip(split_by_label(reference).values(), split_by_label(table).values(), strict=True)
        if n_other := sum(int((left["gold"] != right["gold"]).sum()) for left, right in golds):
            papers = counted(n_other, "paper")
            msg = f"{first} and {name} differ in the gold label of {papers}. Evaluate both on one release."
            raise PredictionsError(msg)
    return aligned


def mcnemar_exact(only_left: int, only_right: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: twice the smaller binomial tail, at most 1.

    The counts are papers that only one of the models answers right. Computed in whole numbers, which is exact for any
    counts. SciPy's binomtest agrees within 1e-12, and takes a second to import.

    Source: McNemar 1947, doi:10.1007/BF02295996.

    Example:
        >>> mcnemar_exact(9, 1)
        0.021484375
    """
    n = only_left + only_right
    tail, term = 0, 1
    for k in range(min(only_left, only_right) + 1):
        tail += term
        term = term * (n - k) // (k + 1)  # the next binomial coefficient
    return float(min(Fraction(1), Fraction(2 * tail, 2**n)))


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number by Holm's procedure, which bounds the chance of any false finding.

    Source: Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70.

    Example:
        >>> adjust_holm([0.01, 0.25, 0.0125])
        [0.03, 0.25, 0.03]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    steps = (min(1.0, (len(p_values) - rank) * p_values[place]) for rank, place in enumerate(order))
    adjusted = dict(zip(order, accumulate(steps, max), strict=True))
    return [adjusted[place] for place in range(len(p_values))]


def _estimate(value: float, resamples: Floats, level: float) -> Estimate:
    return Estimate(value, *(percentile_interval(resamples, level) or (None, None)))
