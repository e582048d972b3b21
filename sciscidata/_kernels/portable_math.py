"""sigmoid and natural_log with the same bits on every platform, unlike exp and log of the C library.

They use only additions, multiplications and divisions, which IEEE 754 defines to the last bit.
"""

from __future__ import annotations

import numpy as np

from sciscidata._kernels.arrays import Float64Array

_Z_LIMIT = 8.0  # beyond, the sigmoid is practically 0 or 1
_LN2_HIGH = 6.93147180369123816490e-01  # its last 32 bits are zero, so whole multiples of it are exact
_LN2_LOW = 1.90821492927058770002e-10
_EXP_TERMS = 14  # 0.347^14 / 14! is below 2^-59
_LOG_TERMS = 11  # s^2 is at most 0.0295, and 0.0295^11 / 25 below 2^-59


def sigmoid(z: Float64Array) -> Float64Array:
    """Return 1 / (1 + exp(-z)), z clipped at ±8. exp(-z) = 2^k exp(r), |r| <= 0.35, by its Taylor polynomial.

    Numba compiles it for single numbers, too.
    """
    x = -np.minimum(np.maximum(z, -_Z_LIMIT), _Z_LIMIT)
    k = np.rint(x / (_LN2_HIGH + _LN2_LOW))
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    value = 1.0
    for n in range(_EXP_TERMS, 0, -1):
        value = 1 + value * r / n
    return 1 / (1 + value * np.ldexp(1.0, np.int32(np.nan_to_num(k))))


def natural_log(x: Float64Array) -> Float64Array:
    """Return ln x of normal numbers above 0, within one unit of the last place; NaN stays NaN.

    ``x = 2^k (1 + f)`` with 1 + f between 1/sqrt 2 and sqrt 2. ``ln (1 + f) = 2 artanh s = 2 (s + s^3 / 3 + ...)`` with
    ``s = f / (2 + f)``, arranged so that f, which is exact, is the last and largest term. The argument reduction is
    that of fdlibm, e_log.c (Sun Microsystems 1993).
    """
    mantissa, k = np.frexp(x)
    low = mantissa < np.sqrt(0.5)
    f = np.where(low, 2 * mantissa, mantissa) - 1
    k = (k - low).astype(np.float64)
    s = f / (2 + f)
    square = s * s
    series = np.zeros_like(s)
    for n in range(_LOG_TERMS, 0, -1):
        series = square * (2 / (2 * n + 1) + series)
    half_square = 0.5 * f * f
    return k * _LN2_HIGH - ((half_square - (s * (half_square + series) + k * _LN2_LOW)) - f)
