"""Intervals of shares and of means, at 95 % unless asked otherwise."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
_Z: Final = NormalDist().inv_cdf(0.975)


def wilson_interval(share: npt.ArrayLike, n: npt.ArrayLike, z: float = _Z) -> tuple[Float64Array, Float64Array]:
    """Return the ends of the interval of a share of ``n``; NaN where ``n`` is 0. ``z``: its half width, in deviations.

    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    share, n = np.asarray(share, np.float64), np.asarray(n, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale, middle = 1 + z * z / n, share + z * z / (2 * n)
        reach = z * np.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
        low, high = (middle - reach) / scale, (middle + reach) / scale
    # A share of 0 or 1 ends there to the last bit.
    return np.where((share == 0) & (n > 0), 0.0, low), np.where((share == 1) & (n > 0), 1.0, high)


def mean_interval(
    mean: Float64Array, squares: Float64Array, n: Float64Array, n_works: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return the ends of Student's interval of a mean of ``n`` rows; NaN below two works.

    ``squares``: the sum over works of the square of what they differ by, all their rows together.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        half = student(n_works - 1.0) * np.sqrt(squares * n_works / (n_works - 1)) / n
    return mean - half, mean + half


def student(freedom: npt.NDArray[Any]) -> Float64Array:
    """The 97.5 % quantile of Student's t, within 0.2 %, exact for freedom 1 and 2. Abramowitz & Stegun 1964, 26.7.5."""
    z, v = _Z, np.where(freedom > 2, freedom, np.nan)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    series = z + sum(term / v**power for power, term in enumerate(terms, 1))
    exact = np.select([freedom == 1, freedom == 2], [np.tan(0.475 * np.pi), 0.95 * np.sqrt(2 / (1 - 0.95**2))], np.nan)
    return np.where(freedom > 2, series, exact)
