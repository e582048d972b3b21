"""Find exact quantiles of more numbers than memory holds, by counting them.

The bits of a double, read as a whole number, have the order of the doubles. So the numbers of each group are counted by
their first bits. Then cells with a quantile are counted by some more bits, until few enough numbers are left to sort.
The order of rows does not matter. Polars' own ``quantile`` holds all numbers of a group: 24 bytes for each of 300
million works.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
_ALL_BITS: Final = 64
_FIRST_BITS: Final = 16  # sign, exponent, and four more bits
_MORE_BITS: Final = 8  # each further pass divides a cell into 256
_FEW: Final = 1 << 20  # as many numbers may be in memory
_GROUP: Final = ("group", "column")


def lower_quantile(numbers: pl.LazyFrame, share: float) -> float | None:
    """Find ``quantile(share, "lower")`` of a column without null and NaN, in memory that does not grow with rows."""
    one = counted_quantiles(numbers.select(pl.lit(0).alias("all"), pl.first().alias("number")), "all", [share])
    return one["lower"].item() if one.height else None


def counted_quantiles(rows: pl.LazyFrame, by: str, shares: Sequence[float]) -> pl.DataFrame:
    """Find quantiles of columns within groups, in memory that grows only with the number of groups.

    ``by`` is without null; of the numbers, null and NaN do not count, and minus zero is zero. The query runs twice, or
    more often where a million numbers are nearly equal. ``quantile`` is interpolated linearly between its neighbours
    ``lower`` and ``upper``. Sorted by group, column as in ``rows``, and share.
    """
    names = [name for name in rows.collect_schema().names() if name != by]
    keys = _keyed(rows, by, names)
    counts = _count(keys, 0, _FIRST_BITS)
    wanted = _ask(counts, shares)
    for known in range(_FIRST_BITS, _ALL_BITS, _MORE_BITS):
        wanted = _narrow(wanted, counts)
        cells = wanted.select(*_GROUP, "cell", "len").unique()
        if int(cells["len"].sum()) <= _FEW:
            wanted = _look_up(wanted, _within(keys, cells, known).collect(engine="streaming"))
            break
        counts = _count(_within(keys, cells, known), known, known + _MORE_BITS)
    else:
        wanted = _narrow(wanted, counts)  # to single numbers, of which there may be millions
    number, low, high = _number(pl.col("cell")), pl.col("lower"), pl.col("upper")
    between = pl.when(low == high).then(low).otherwise((pl.col("place") % 1) * (high - low) + low)
    return (
        wanted.group_by(*_GROUP, "share", "n", "place")
        .agg(lower=number.min(), upper=number.max())
        .sort(*_GROUP, "share")
        .select(
            pl.col("group").alias(by),
            pl.col("column").replace_strict(range(len(names)), names, return_dtype=pl.String),
            *("share", "n", "lower", "upper"),
            between.alias("quantile"),
        )
    )


def _keyed(rows: pl.LazyFrame, by: str, names: Sequence[str]) -> pl.LazyFrame:
    """Put the columns below one another, as whole numbers in the order of the doubles: group, column, key."""
    columns = [pl.lit(at, dtype=pl.UInt32).alias("column") for at in range(len(names))]

    def stack(batch: pl.DataFrame) -> pl.DataFrame:
        parts = [
            batch.select(pl.col(by).alias("group"), column, _key(pl.col(name)).alias("key"))
            for column, name in zip(columns, names, strict=True)
        ]
        return pl.concat(parts).drop_nulls()

    schema = {"group": rows.collect_schema()[by], "column": pl.UInt32(), "key": pl.UInt64()}
    pushed = {"predicate_pushdown": False, "projection_pushdown": False}
    return rows.select(by, *names).map_batches(stack, schema=schema, streamable=True, **pushed)


def _key(number: pl.Expr) -> pl.Expr:
    # As whole numbers, negative doubles lie above the others in reverse order: so all their bits are turned.
    bits = number.cast(pl.Float64).fill_nan(None).reinterpret(dtype=pl.UInt64)
    turned = pl.when(bits < _SIGN).then(bits ^ _SIGN).otherwise(bits ^ _ALL)
    return pl.when(number == 0).then(pl.lit(_SIGN, dtype=pl.UInt64)).otherwise(turned)


def _number(key: pl.Expr) -> pl.Expr:
    bits = pl.when(key >= _SIGN).then(key ^ _SIGN).otherwise(key ^ _ALL)
    return bits.reinterpret(dtype=pl.Float64)


def _cell(bits: int) -> pl.Expr:
    """Return the cell of a key: the least key that begins with the same bits."""
    width = 1 << (_ALL_BITS - bits)
    return pl.col("key") // width * width if bits else pl.lit(0, dtype=pl.UInt64)


def _count(keys: pl.LazyFrame, known: int, bits: int) -> pl.DataFrame:
    """Divide every cell by more bits and count the keys: group, column, cell, first, len."""
    named = keys.select(*_GROUP, _cell(known).alias("cell"), _cell(bits).alias("first"))
    counts = named.group_by(*_GROUP, "cell", "first").agg(len=pl.len().cast(pl.Int64))
    return counts.collect(engine="streaming")


def _within(keys: pl.LazyFrame, cells: pl.DataFrame, known: int) -> pl.LazyFrame:
    """Keep the keys in one of the cells."""
    named = keys.with_columns(_cell(known).alias("cell"))
    return named.join(cells.lazy(), on=[*_GROUP, "cell"], how="semi")


def _ask(counts: pl.DataFrame, shares: Sequence[float]) -> pl.DataFrame:
    """Return the rank, from 0, of each wanted number in its group; later it becomes the rank in its cell."""
    sizes = counts.group_by(_GROUP).agg(n=pl.col("len").sum())
    asked = sizes.join(pl.DataFrame({"share": shares}, schema={"share": pl.Float64}), how="cross")
    place = (pl.col("n") - 1) * pl.col("share")
    neighbours = pl.concat_list(place.floor(), place.ceil()).cast(pl.List(pl.Int64))
    ends = asked.with_columns(place=place, rank=neighbours, cell=pl.lit(0, dtype=pl.UInt64))
    return ends.explode("rank")


def _narrow(wanted: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """Replace each cell by the part of it with the wanted number; ``len`` counts the numbers there."""
    cell = [*_GROUP, "cell"]
    up_to = pl.col("len").cum_sum().over(cell).alias("up_to")
    ordered = counts.sort(*cell, "first").with_columns(up_to).sort("up_to")
    cells = (
        wanted.drop("len", strict=False)
        .sort("rank")
        .join_asof(
            ordered,
            left_on="rank",
            right_on="up_to",
            by=cell,
            strategy="forward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
    )
    rank = pl.col("rank") - (pl.col("up_to") - pl.col("len"))
    return cells.with_columns(rank=rank, cell=pl.col("first")).drop("first", "up_to")


def _look_up(wanted: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """Replace each cell by the wanted number, as a key."""
    cell = [*_GROUP, "cell"]
    ranked = keys.sort(*cell, "key").with_columns(rank=pl.int_range(pl.len()).over(cell))
    return wanted.join(ranked, on=[*cell, "rank"], how="left").with_columns(cell=pl.col("key"))
