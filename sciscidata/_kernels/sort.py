"""Sort a part of an array in place. NumPy's own sort costs a second of compiling wherever a compiled loop calls it."""

# pyright: basic
from __future__ import annotations

from sciscidata._kernels.compile import helper

_SHORT = 64  # up to here, one pass of insertion is fastest


@helper
def sort_range(values, begin, end):
    """Sort ``values[begin:end]``, numbers without NaN, by Shell's method with Knuth's gaps: by insertion if short."""
    gap = 1
    while end - begin > _SHORT and gap < (end - begin) // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(begin + gap, end):
            value = values[i]
            j = i - gap
            while j >= begin and values[j] > value:
                values[j + gap] = values[j]
                j -= gap
            values[j + gap] = value
        gap //= 3
