"""What works of a corpus look like before their own citers are seen: the prior of label confidence, as an object."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata._kernels.arrays import AnyArray, Float64Array, Int64Array
from sciscidata._support.prior import Prior
from sciscidata.errors import ConfigError, NotEnoughWorksError
from sciscidata.frames import AnyFrame
from sciscidata.judged import n_citers
from sciscidata.options.checks import show_value
from sciscidata.records.ids import require_one_row_per_work
from sciscidata.schemas import CD_SCORES, SCORES_KEY, require_columns

logger = logging.getLogger(__name__)

COUNTS: Final = ("n_i", "n_j", "n_k", "cd_index")
FEWEST_WORKS: Final = 100  # of a class, else it takes the prior of all; of a frame, else it takes the shipped one
MOST_CITERS: Final = 8  # of works from which a prior is estimated: those that need one
_DIGITS: Final = 10 ** np.arange(10)
_N_CLASSES: Final = _DIGITS.size + 1
#: Eight corpora and samples of them have differences up to 0.7 and means from -0.4 on, a synthetic world -1.0. Six of
#: eight balanced draws are beyond these. `python benchmarks/label_prior.py` prints them.
_MOST_UNEQUAL, _MOST_TIES, _SURE = 0.8, 1.5, 5.0
_CLOSE, _ROUNDS, _RIDGE = 1e-4, 50, 2.0**-10
_REMEDY: Final = "Give prior=find_label_prior(all scores)"


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelPrior(Prior):
    """The beta prior of the share of n_i among the citers of a work, by the digits of its n_k.

    ``a`` and ``b`` have 11 numbers above 0 each: for n_k of 0, of one digit, ... of ten. A work is expected to have
    a / (a + b) of its citers in n_i, and its own citers count beside a + b others. ``works`` is the number of works
    behind it, those with one to eight citers.

    Example:
        >>> prior = LabelPrior(a=(0.5,) * 11, b=(1.5,) * 11, works=2_000)
        >>> LabelPrior.from_json(prior.to_json()) == prior
        True
    """

    made_by: ClassVar[str] = "find_label_prior"
    a: tuple[float, ...]
    b: tuple[float, ...]
    works: int

    def __post_init__(self) -> None:
        """Refuse what no prior can be."""
        for name, numbers in (("a", self.a), ("b", self.b)):
            if len(numbers) != _N_CLASSES or not all(0 < x < math.inf for x in numbers):
                raise ConfigError(
                    f"LabelPrior.{name} is {show_value(numbers)}, needs {_N_CLASSES} numbers above 0. "
                    "Make it with find_label_prior."
                )

    @classmethod
    def of_file(cls, path: str | Path) -> Self:
        """Read the prior that a file of ``sciscidata cd`` holds of all its works; a ConfigError if there is none."""
        try:
            stated: Any = json.loads((pq.read_metadata(path).metadata or {})[SCORES_KEY])["label_prior"]
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise ConfigError(
                f"{path} holds no prior: it is no file of `sciscidata cd`, or one of few works, of a shard, or of an "
                "older version. Make it with find_label_prior(scores)."
            ) from error
        return cls.from_stated(stated)

    def of_classes(self) -> Float64Array:
        """Return a and b as rows (classes, 2), for kernels."""
        return np.array([self.a, self.b]).T.copy()


#: Estimated in November 2026 from 42,159 works with one to eight citers: all of cit-HepTh, handball, the example of the
#: package and five fields of the Web of Science. `python benchmarks/label_prior.py` makes it.
SHIPPED: Final = LabelPrior(
    a=(0.726, 0.698, 0.587, 0.540, *(0.361,) * 7), b=(0.420, 0.927, 1.523, 2.199, *(3.929,) * 7), works=42_159
)


def find_label_prior(scores: AnyFrame) -> LabelPrior:
    """Estimate what works of a corpus look like: the prior that ``compute_label_confidence`` shrinks small counts to.

    For each number of digits of n_k, it is the beta distribution that makes n_i among the citers of all works with one
    to eight citers most likely. Numbers of digits with fewer than 100 such works take that of all.

    Args:
        scores: CD_SCORES of all works of a corpus; work_id may be missing. A fair sample will do, and works chosen by
            their number of citers. Works chosen by index or label will not.

    Returns:
        A LabelPrior. Keep it with the scores (``to_json``), and give it wherever a part of them is judged.

    Raises:
        SchemaMismatchError: if a column is missing or has another type.
        NotEnoughWorksError: if fewer than 100 works have an index and one to eight citers.
        WorkIdError: if a work is there twice in a DataFrame. A LazyFrame is not looked at, since it would run twice.

    Source: this project's. See docs/measures/label_confidence.md.

    Example:
        >>> from sciscidata import compute_cd_index, compute_label_confidence, scan_example
        >>> scores = compute_cd_index(*scan_example()[:2]).drop_nulls("cd_index").sort("work_id").collect()
        >>> prior, one = find_label_prior(scores), scores.filter(pl.col("n_i") == 1).head(1)
        >>> compute_label_confidence(one, prior=prior).select(pl.col("label_confidence").round(3)).collect().item()
        0.107
    """
    frame = require_columns(scores, CD_SCORES, frame_name="CD_SCORES", stage="find_label_prior", columns=COUNTS)
    if not isinstance(scores, pl.LazyFrame):
        require_one_row_per_work(frame, "find_label_prior")
    counts = count_citers(frame)
    works = n_works(counts)
    if works < FEWEST_WORKS:
        raise NotEnoughWorksError(
            f"find_label_prior needs {FEWEST_WORKS} works with an index and one to {MOST_CITERS} citers, found {works}."
            " Give the scores of all works, or leave the prior out: the shipped one is taken."
        )
    return fit_prior(counts)


class PriorCounter:
    """Counts the works of scores that pass by, for the prior of all."""

    def __init__(self) -> None:
        self._counts = np.zeros((_N_CLASSES, 3, MOST_CITERS), np.int64)

    def watch(self, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Give the same batches, and count their works."""
        for rows in batches:
            self._counts += count_citers(rows)
            yield rows

    def stated(self) -> dict[str, Any]:
        """Return ``label_prior`` in JSON types; nothing if too few works passed by."""
        return {"label_prior": fit_prior(self._counts).stated()} if n_works(self._counts) >= FEWEST_WORKS else {}


def choose_prior(rows: AnyFrame, *, is_draw: bool = False) -> LabelPrior:
    """Return the prior of all works if ``rows`` can be these, else the shipped one, with a warning."""
    pairs = count_pairs(rows)
    counts = _count_tails(pairs)
    works = n_works(counts)
    if works < FEWEST_WORKS:
        why = f"are too few to say how sure a label is (one to {MOST_CITERS} citers: {works:,}, needs {FEWEST_WORKS})"
    elif is_draw:
        why = "have a split, so they are a draw, which has too many of rare labels"
    elif has_one_side(rows):
        why = "all have the same sign of the CD index, so they are chosen by it"
    elif is_chosen_by_side(pairs):
        why = "have too many or too few of a label for what their citers say, so they are chosen by it"
    else:
        return fit_prior(counts)
    height = rows.lazy().select(pl.len()).collect().item()
    if height:
        logger.warning(
            "these %s rows %s: the prior is taken from the shipped one, of other works, so confidence is off by up to "
            "0.06 on average, and by more for single labels. %s",
            *(f"{height:,}", why, _REMEDY),
        )
    return SHIPPED


def has_one_side(rows: AnyFrame) -> bool:
    """Whether no work has more n_i than n_j, or none has fewer."""
    i, j = pl.col("n_i"), pl.col("n_j")
    known = rows.lazy().filter(pl.col("cd_index").is_not_null())
    return not all(known.select(up=(i > j).any(), down=(i < j).any()).collect().row(0))


def find_sides(pairs: Int64Array) -> tuple[float, float, float, float]:
    """Find how much more works with n_i above n_j, and below, are there beside ties than the shares of citers tell.

    A choice by label changes how many works a side has, and not how they lie on it. So each number of digits has a beta
    prior, and each side a factor; all are those that make ``pairs`` most likely, by scoring.

    Returns the logarithms: above minus below, their mean, and the standard error of each.
    """
    classes = [one for one in pairs if one.sum() - one[0, 0] >= FEWEST_WORKS] or [pairs.sum(axis=0)]
    n, i = np.array([(n, i) for n in range(1, MOST_CITERS + 1) for i in range(n + 1)]).T
    same_n = (n[:, None] == n).astype(np.float64)  # (cells, cells)
    sides = np.array([2 * i > n, 2 * i < n], np.float64).T
    ways = np.log([float(math.comb(*cell)) for cell in zip(n.tolist(), i.tolist(), strict=True)])
    beta, spread, steps = np.zeros(2 * len(classes) + 2), np.eye(0), np.arange(MOST_CITERS)
    for _ in range(_ROUNDS):  # ten will do, unless a prior has no bound
        slope, spread = -_RIDGE * beta, np.eye(beta.size) * _RIDGE  # keeps what no work tells near 0
        for at, of_class in enumerate(classes):
            log, change = ways + sides @ beta[-2:], np.zeros((n.size, beta.size))
            change[:, -2:] = sides
            for place, drawn in ((2 * at, i), (2 * at + 1, n - i)):
                terms = math.exp(beta[place]) + steps
                log += np.append(0, np.log(terms).cumsum())[drawn]
                change[:, place] = np.append(0, (terms[0] / terms).cumsum())[drawn]
            chance = np.exp(log)
            chance /= same_n @ chance
            change -= same_n @ (chance[:, None] * change)
            works = of_class[i, n - i]
            slope += works @ change
            spread += (change.T * (same_n @ works * chance)) @ change
        step = np.linalg.solve(spread, slope)
        beta += step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < _CLOSE:
            break
    (up, down), ((a, b), (_, c)) = beta[-2:], np.linalg.inv(spread)[-2:, -2:]
    return up - down, (up + down) / 2, math.sqrt(a + c - 2 * b), math.sqrt(a + c + 2 * b) / 2


def is_chosen_by_side(pairs: Int64Array) -> bool:
    """Whether works with n_i above n_j, below or equal are too many for all works of a corpus. See ``find_sides``."""
    sums = np.add.outer(np.arange(MOST_CITERS + 1), np.arange(MOST_CITERS + 1))
    could_tie = pairs[:, (sums % 2 == 0) & (sums > 0)].sum()
    if could_tie >= FEWEST_WORKS and not np.trace(pairs[:, 1:, 1:], axis1=1, axis2=2).sum():
        return True
    difference, mean, *errors = find_sides(pairs)
    return (abs(difference) > max(_MOST_UNEQUAL, _SURE * errors[0])) or (-mean > max(_MOST_TIES, _SURE * errors[1]))


def count_citers(rows: AnyFrame) -> Int64Array:
    """Count works by class, kind and citers (classes, 3, 8): with more than 0, 1, ... of n_i, n_j, and of both."""
    return _count_tails(count_pairs(rows))


def count_pairs(rows: AnyFrame) -> Int64Array:
    """Count works with up to eight citers by class, n_i and n_j (classes, 9, 9)."""
    digits = pl.sum_horizontal(pl.col("n_k") >= int(least) for least in _DIGITS)
    few = rows.lazy().filter(pl.col("cd_index").is_not_null(), n_citers() <= MOST_CITERS)
    table = few.group_by(digits.alias("digits"), "n_i", "n_j").agg(works=pl.len()).collect()
    cell, n_i, n_j, works = (table[name].to_numpy().astype(np.int64) for name in table.columns)
    pairs = np.zeros((_N_CLASSES, MOST_CITERS + 1, MOST_CITERS + 1), np.int64)
    np.add.at(pairs, (cell, n_i, n_j), works)
    return pairs


def _count_tails(pairs: Int64Array) -> Int64Array:
    n = np.arange(MOST_CITERS + 1)
    both = np.array([pairs[:, n[: s + 1], s - n[: s + 1]].sum(axis=1) for s in n]).T
    exactly = np.stack([pairs.sum(axis=2), pairs.sum(axis=1), both], axis=1)
    return np.ascontiguousarray(exactly[:, :, :0:-1].cumsum(axis=2)[:, :, ::-1])


def n_works(counts: Int64Array) -> int:
    """Return how many works have a citer."""
    return int(counts[:, 2, 0].sum())


def fit_prior(counts: Int64Array) -> LabelPrior:
    """Return the prior that makes counts most likely. Sums run in a fixed order: the bits are the same everywhere."""
    from sciscidata.disruption import _label_kernels as kernels

    works, whole = n_works(counts), counts.sum(axis=0)
    prior = np.empty((_N_CLASSES, 2))
    few = counts[:, 2, :1, None] < FEWEST_WORKS
    kernels.fit_shares(np.where(few, whole, counts), prior)
    return LabelPrior(a=tuple(prior[:, 0].tolist()), b=tuple(prior[:, 1].tolist()), works=works)


def classes_of(n_k: AnyArray) -> Int64Array:
    """Return the class of every work: how many digits n_k has, and 0 for 0."""
    return np.searchsorted(_DIGITS, n_k, side="right")
