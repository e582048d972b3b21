"""Several models on one held-out split: what sets them apart, and what may be chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from sciscirl.errors import PredictionsError
from sciscirl.metrics.bootstrap import Floats, percentile_interval, resample_metrics
from sciscirl.metrics.metrics import compute_metrics, find_right
from sciscirl.metrics.predictions import find_target, split_by_label
from sciscirl.task.rules import check_positive

#: What is compared, each the better the larger; as ``compute_metrics`` names it.
COMPARED: Final = ("label_match", "macro_f1", "min_class_recall")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareConfig:
    """How to compare.

    Attributes:
        reference: compare each of the others with this one only; None: every pair.
        n_resamples: of the papers.
        level: share of resamples inside an interval.
        seed: of the resamples.

    Raises:
        PredictionsError: on construction, if a number is out of its range.
    """

    reference: str | None = None
    n_resamples: int = 2000
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(n_resamples=self.n_resamples)
        if not 0 < self.level < 1 or self.seed < 0:
            msg = f"level is {self.level}, seed {self.seed}: needs a share between 0 and 1, 0 or more."
            raise PredictionsError(msg)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the percentile interval of its resamples; the ends are None where no resample defines it."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two models, paper by paper.

    Attributes:
        left: the name of one.
        right: of the other.
        differences: left minus right, of each of COMPARED that both have.
        only_left: papers that left alone has right.
        only_right: papers that right alone has right.
        p: of McNemar's exact test, two-sided: how likely two counts at least as unlike as these are if neither model is
            better. 1 where no paper tells them apart.
        p_holm: the same, adjusted for all pairs by Holm's procedure.
    """

    left: str
    right: str
    differences: Mapping[str, Estimate]
    only_left: int
    only_right: int
    p: float
    p_holm: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What ``compare_predictions`` found: ``scores`` by model and metric, ``pairs``, and how it was found."""

    n_papers: int
    target: str
    scores: Mapping[str, Mapping[str, Estimate]]
    pairs: tuple[Pair, ...]
    config: CompareConfig

    def to_json(self) -> dict[str, Any]:
        """Return all of it in JSON types."""
        return {
            "n_papers": self.n_papers,
            "target": self.target,
            **asdict(self.config),
            "scores": {
                name: {metric: asdict(score) for metric, score in scores.items()}
                for name, scores in self.scores.items()
            },
            "pairs": [
                {
                    **{
                        name: getattr(pair, name)
                        for name in ("left", "right", "only_left", "only_right", "p", "p_holm")
                    },
                    "differences": {metric: asdict(one) for metric, one in pair.differences.items()},
                }
                for pair in self.pairs
            ],
        }


def compare_predictions(tables: Mapping[str, pl.DataFrame], config: CompareConfig = CompareConfig()) -> Comparison:
    """Compare models that answered once to each of the same papers.

    An answer that is not valid is wrong, in every figure. Intervals come from resamples of the papers that are the same
    for all models, so that what papers have in common cancels out of a difference. The order of rows does not matter.
    McNemar's test is on label_match; on both labels being right where a task has two.

    Args:
        tables: predictions by name of the model.
        config: how.

    Raises:
        PredictionsError: if there are fewer than two tables, the reference is none of them, or they are not of the same
            papers, with the same gold labels and one answer to each.

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
    if config.reference is not None and config.reference not in aligned:
        msg = f"the reference {config.reference!r} is none of {', '.join(aligned)}."
        raise PredictionsError(msg)
    metrics = {name: compute_metrics(table) for name, table in aligned.items()}
    drawn = resample_metrics(list(aligned.values()), n_resamples=config.n_resamples, seed=config.seed)
    row_of = {name: row for row, name in enumerate(aligned)}
    right = {name: find_right(table) for name, table in aligned.items()}

    def score(name: str, metric: str) -> Estimate:
        return _estimate(metrics[name][metric], drawn[metric][row_of[name]], config.level)

    def difference(left: str, other: str, metric: str) -> Estimate:
        resamples = drawn[metric][row_of[left]] - drawn[metric][row_of[other]]
        return _estimate(metrics[left][metric] - metrics[other][metric], resamples, config.level)

    pairs = [pair for pair in combinations(aligned, 2) if config.reference is None or config.reference in pair]
    if config.reference is not None:
        pairs = [(other if first == config.reference else first, config.reference) for first, other in pairs]
    discordant = [
        (int((right[left] & ~right[other]).sum()), int((~right[left] & right[other]).sum())) for left, other in pairs
    ]
    p_values = [mcnemar_exact(*counts) for counts in discordant]
    first = next(iter(aligned.values()))
    return Comparison(
        n_papers=len(first),
        target=find_target(first),
        scores=MappingProxyType({name: {metric: score(name, metric) for metric in COMPARED} for name in aligned}),
        pairs=tuple(
            Pair(
                left=left,
                right=other,
                differences=MappingProxyType({metric: difference(left, other, metric) for metric in COMPARED}),
                only_left=counts[0],
                only_right=counts[1],
                p=p,
                p_holm=adjusted,
            )
            for (left, other), counts, p, adjusted in zip(
                pairs, discordant, p_values, adjust_holm(p_values), strict=True
            )
        ),
        config=config,
    )


def align(tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Sort tables of predictions by paper, after checking that they are of the same ones.

    Raises:
        PredictionsError: as ``compare_predictions``.
    """
    if len(tables) < 2:
        msg = f"there is nothing to compare {', '.join(tables) or 'with nothing'} with. Give two predictions or more."
        raise PredictionsError(msg)
    aligned: dict[str, pl.DataFrame] = {}
    for name, table in tables.items():
        if "openalex_id" not in table.columns:
            msg = f"{name} does not say which papers it is of: no column openalex_id. Use what an evaluation wrote."
            raise PredictionsError(msg)
        if n_more := len(table) - table["openalex_id"].n_unique():
            msg = f"{name} has {n_more:,} more answers than papers, needs one to each. Evaluate with --group-size 1."
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
                f"{len(theirs - mine):,} only in {name}. Evaluate both in one split of one slice."
            )
            raise PredictionsError(msg)
        if n_other := _count_other_gold(reference, table):
            msg = f"{first} and {name} differ in the gold label of {n_other:,} papers. Evaluate both on one slice."
            raise PredictionsError(msg)
    return aligned


def _count_other_gold(one: pl.DataFrame, other: pl.DataFrame) -> int:
    pairs = zip(split_by_label(one).values(), split_by_label(other).values(), strict=True)
    return sum(int((left["gold"] != right["gold"]).sum()) for left, right in pairs)


def mcnemar_exact(only_left: int, only_right: int) -> float:
    """Return the two-sided p-value of McNemar's exact test, computed in whole numbers.

    Args:
        only_left: papers that one model has right and the other has not.
        only_right: the other way round.

    Returns:
        Twice the smaller tail of the binomial distribution with p = 1/2, at most 1; 1 where both are 0.

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
    """Adjust p-values for their number, so that the chance of any false finding stays below a level.

    Source: Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70.

    Example:
        >>> adjust_holm([0.01, 0.25, 0.0125])
        [0.03, 0.25, 0.03]
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _estimate(value: float, resamples: Floats, level: float) -> Estimate:
    return Estimate(value, *(percentile_interval(resamples, level) or (None, None)))
