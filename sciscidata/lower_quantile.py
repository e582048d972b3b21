"""The quantile of more numbers than memory holds: they are counted, not kept."""

from __future__ import annotations

from typing import Final

import polars as pl

_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
_BITS: Final = 16  # told apart by one pass over the numbers: 65,536 counts
_FEW: Final = 1 << 20  # so many numbers may lie in memory


def lower_quantile(numbers: pl.LazyFrame, share: float) -> float | None:
    """Find ``drop_nulls().quantile(share, interpolation="lower")``, in memory that does not grow with rows. Executes.

    The bits of a double, read as a whole number, have the order of the doubles. So numbers are counted by their first
    16 bits, then those that share these with the one wanted by the next 16, until few are left to be sorted.

    Args:
        numbers: one column, Float64, unordered; null and NaN do not count. Run twice, or up to four times if a
            million numbers lie so close together, or are one.
        share: 0 to 1.

    Returns:
        One of the numbers: where the quantile lies between two, the lower one. None if there is none.

    Example:
        >>> lower_quantile(pl.LazyFrame({"z": [3.0, None, -1.0, 2.0, float("nan"), 8.0]}), 0.5)
        2.0
    """
    bits = pl.first().fill_nan(None).reinterpret(dtype=pl.UInt64)
    # Negative numbers are ordered from zero downwards, and lie above the others: all their bits are turned.
    key = pl.when(bits < _SIGN).then(bits ^ _SIGN).otherwise(bits ^ _ALL).alias("key")
    keys = numbers.select(key).drop_nulls()
    first, rank = 0, -1  # of those left: the least there can be; and which is wanted, once it is known
    for shift in range(64 - _BITS, -1, -_BITS):
        prefix = pl.col("key") // (1 << shift)
        counts = keys.group_by(prefix.alias("prefix")).len().collect(engine="streaming").sort("prefix")
        if rank < 0:
            n_numbers = int(counts["len"].sum())
            if not n_numbers:
                return None
            rank = int((n_numbers - 1) * share)
        up_to = counts["len"].cum_sum()
        at = int(up_to.search_sorted(rank, side="right"))
        rank -= int(up_to[at] - counts["len"][at])
        first = int(counts["prefix"][at]) << shift
        keys = keys.filter(pl.col("key").is_between(first, first + (1 << shift) - 1))
        if counts["len"][at] <= _FEW:
            first = int(keys.collect(engine="streaming")["key"].sort()[rank])
            break
    bits = first ^ (_SIGN if first >= _SIGN else _ALL)
    return float(pl.Series([bits], dtype=pl.UInt64).reinterpret(dtype=pl.Float64)[0]) + 0.0  # of the two zeros, one
