"""What the chance in who cites a work does to groups of works: to means, standardised differences and regressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array, Int64Array
from sciscidata.disruption.cd_interval import find_means
from sciscidata.disruption.label_prior import COUNTS, FEWEST_WORKS, LabelPrior, choose_prior
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.frames import AnyFrame
from sciscidata.judged import choose_works
from sciscidata.options.checks import check_value
from sciscidata.records.ids import UNITS, require_one_row_per_work
from sciscidata.schemas import CD_SCORES, require_columns

_STAGE: Final = "find_noise_effect"
_Z: Final = NormalDist().inv_cdf(0.975)
_SPLITS, _NOTHING = 5, 1e-12
_FEW: Final = np.arange(2, 9)  # n_k of works that say how much of it is missing
_Part = Annotated[float, msgspec.Meta(ge=0, lt=1)]
_Error = Annotated[float, msgspec.Meta(ge=0)]


class Corrected(NamedTuple):
    """A slope without the effect of noise, its standard error, and the ends of its 95 % interval."""

    slope: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseEffect:
    """How much of the spread of the CD index is chance, and what that does to figures of groups.

    ``variance`` is that of the index over ``works``, within groups if any; ``noise_variance`` is the part that other
    citers at the same rates would redraw. ``reliability`` is the rest as a share, 0 to 1: the correlation of the index
    with that of a redraw. ``standard_error`` is that of the reliability, from the number of works alone.

    - The mean of a group stays right, and so does a difference of means. Their usual errors already hold the noise:
      without it they would be ``sqrt(reliability)`` times as large.
    - A difference in standard deviations (Cohen's d) is too small: ``correct_difference``.
    - A regression with the index as outcome has right slopes with wider errors. Its R2 is ``reliability`` times
      what it would be.
    - With the index as predictor, its slope is too small: ``correct_slope``.
    """

    works: int
    variance: float
    noise_variance: float
    reliability: float
    standard_error: float

    def correct_difference(self, difference: float) -> float:
        """Return a difference in standard deviations without the noise in these deviations."""
        return difference / math.sqrt(self.reliability)

    def correct_slope(self, slope: float, standard_error: float, *, explained: float = 0.0) -> Corrected:
        """Return the slope of the index as predictor without its attenuation.

        Args:
            slope: from a regression on ``cd_index`` of these works.
            standard_error: that of the slope.
            explained: R2 of the index on the other predictors. The variance that these explain is no
                noise, so the noise is a larger part of the rest.

        Raises:
            ConfigError: if the other predictors explain as much as there is without the noise, or the error is below 0.
        """
        explained = check_value("explained", explained, _Part)
        error_of_slope = standard_error.item() if isinstance(standard_error, np.generic) else standard_error
        standard_error = check_value("standard_error", error_of_slope, _Error)
        left = (self.reliability - explained) / (1 - explained)
        error = self.standard_error / (1 - explained)
        if left <= 2 * error:
            raise ConfigError(
                f"explained is {explained:g}, needs to be well below the reliability of {self.reliability:.2f}: beside "
                "the other predictors the index is little but noise. Leave some of them out, or take works with more "
                "citers."
            )
        right = slope / left
        whole = math.hypot(standard_error / left, right * error / left)
        return Corrected(right, whole, right - _Z * whole, right + _Z * whole)


def find_noise_effect(
    scores: AnyFrame, *, by: str | Sequence[str] = (), prior: LabelPrior | None = None
) -> NoiseEffect:
    """Find how much of the spread of the CD index among works is chance, and what to do about it in a regression.

    Who cites a work next is a draw, so an index is its expectation plus noise, the more the fewer citers there are. The
    redraw of ``compute_cd_interval`` says what other citers would give; here works with few n_k are expected to have
    more. How the index and the mean of the redraw vary together is how an index and another one would, so reliability
    is their covariance by the variance. Random halves of the citers then say by how much that is off, among works with
    a citer in both, and it is multiplied by that. On four real graphs it was off by at most 0.09.

    Args:
        scores: CD_SCORES; work_id may be missing. Works without an index or a citer are left out, and those whose
            ``window_complete`` is false.
        by: columns of groups that are compared or controlled for; variances are then those within groups.
        prior: as in ``compute_label_confidence``.

    Returns:
        A NoiseEffect.

    Raises:
        SchemaMismatchError: if a column is missing or has another type.
        ConfigError: if ``by`` names no column.
        EmptyInputError: if fewer than three works are left, or their indices are all alike.
        WorkIdError: if a work is there twice.

    Source: reliability and attenuation are those of Spearman 1904, doi:10.2307/1412159. See
    benchmarks/notes/label_confidence.md for simulations with known slopes.

    Example:
        >>> from sciscidata import compute_cd_index, scan_example
        >>> effect = find_noise_effect(compute_cd_index(*scan_example()[:2]))
        >>> round(effect.reliability, 2)
        0.64
        >>> [round(x, 2) for x in effect.correct_slope(0.5, 0.1)]
        [0.78, 0.18, 0.42, 1.14]
    """
    groups = [by] if isinstance(by, str) else list(by)
    frame = require_columns(scores, CD_SCORES, frame_name="CD_SCORES", stage=_STAGE, columns=COUNTS)
    there = frame.collect_schema()
    if lacks := [name for name in groups if name not in there]:
        raise ConfigError(f"by names {lacks[0]!r}, needs columns of scores: {', '.join(there)}.")
    is_judged = choose_works(there.names(), "cd_index", "judged").counts
    assert is_judged is not None  # n_i and n_j are there
    known = is_judged & pl.col("cd_index").is_not_nan()
    ids = [name for name in UNITS if name in there and name not in groups]
    rows = frame.select(*COUNTS, *groups, *ids, is_known=known).collect()
    require_one_row_per_work(rows, _STAGE)
    prior = prior or choose_prior(rows, is_draw="split" in there)
    rows = rows.filter("is_known").sort(*COUNTS, *groups)  # the halves do not depend on the order
    cell = rows.select(pl.struct(groups).rank("dense") if groups else pl.repeat(1, pl.len())).to_series().to_numpy()
    counts = rows.select(COUNTS[:3]).to_numpy().astype(np.int64)
    index, shrunk = rows["cd_index"].to_numpy(), _predict(counts, prior)
    (x, y), freedom = _center(np.stack([index, shrunk]), cell)
    squares, product = x * x, x * y
    if freedom < 2 or not squares.sum() > _NOTHING:
        raise EmptyInputError(
            f"{_STAGE}: {x.size:,} works with an index and a citer have no spread that can be judged. Give the scores "
            "of more works."
        )
    reliability, influence = _divide(product, squares)
    expected, seen = np.zeros(x.size), np.zeros(x.size)
    random = np.random.Generator(np.random.Philox(0))
    for _ in range(_SPLITS):
        one = random.binomial(counts, 0.5)
        other = counts - one
        both = (one[:, :2].sum(axis=1) > 0) & (other[:, :2].sum(axis=1) > 0)
        halves = [(half[:, 0] - half[:, 1])[both] / half.sum(axis=1)[both] for half in (one, other)]
        (first, second, whole, mean), _ = _center(np.stack([*halves, index[both], shrunk[both]]), cell[both])
        expected[both] += whole * mean
        seen[both] += first * second
    if np.count_nonzero(expected) >= FEWEST_WORKS and min(expected.sum(), seen.sum()) > _NOTHING:
        factor, of_factor = _divide(seen, expected)
        reliability, influence = reliability * factor, influence * factor + of_factor * reliability
    reliability, variance = min(max(reliability, 0.0), 1.0), float(squares.sum() / freedom)
    return NoiseEffect(
        works=x.size,
        variance=variance,
        noise_variance=(1 - reliability) * variance,
        reliability=reliability,
        standard_error=float(np.sqrt((influence**2).sum())),
    )


def _predict(counts: Int64Array, prior: LabelPrior) -> Float64Array:
    """Return the mean index of other citers, by counts (works, 3).

    A redraw keeps n_k at 0 where it is 0, so the index stays large. Other citers would bring ``more`` n_k on average.
    By Robbins, n_k of k is expected to become (k + 1) N(k + 1) / N(k), where N(k) works have k. If that is k and a
    constant, the sums up to m leave m N(m) for the constant.
    """
    n_works, m = np.bincount(np.minimum(counts[:, 2], _FEW.size + 2), minlength=_FEW.size + 3), _FEW
    below = n_works.cumsum()[m - 1].sum()
    more = float((m * n_works[m]).sum() / below) if below else 0.0
    columns = dict(zip(COUNTS[:3], counts.T.astype(np.float64), strict=True))
    return find_means(pl.DataFrame(columns).with_columns(pl.col("n_k") + more), prior)


def _center(values: Float64Array, cell: Int64Array) -> tuple[Float64Array, int]:
    """Return values less the mean of their cell, and how many of them are free."""
    _, place, size = np.unique(cell, return_inverse=True, return_counts=True)
    means = np.stack([np.bincount(place, row, size.size) / size for row in values])
    return values - means[:, place], place.size - size.size


def _divide(above: Float64Array, below: Float64Array) -> tuple[float, Float64Array]:
    """Return the ratio of two sums over works, and by how much each work moves it."""
    ratio = float(above.sum() / below.sum())
    return ratio, (above - ratio * below) / below.sum()
