"""Lazy frames of sources that are read in batches by Python code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import polars as pl


def scan_batches(
    read: Callable[[list[str]], Iterator[pl.DataFrame]],
    schema: Mapping[str, pl.DataType],
    name: str,
    *,
    read_first: Callable[[list[str]], Iterator[pl.DataFrame]] | None = None,
) -> pl.LazyFrame:
    """Make a lazy frame of batches that hold only the columns of a query.

    ``read`` is called once for each query, and yields batches with the columns that it is given. ``schema`` has all
    columns in order. The plan that Polars prints shows ``name``.
    Where a query asks for a number of first rows only, ``read_first`` takes the place of ``read``.

    Example:
        >>> def read(columns):
        ...     print("read", columns)
        ...     yield pl.DataFrame({"work_id": [7, 9], "title": ["On sleep", None]}).select(columns)
        >>> frame = scan_batches(read, {"work_id": pl.Int64(), "title": pl.String()}, "two works")
        >>> frame.select("work_id").filter(pl.col("work_id") > 7).collect().rows()
        read ['work_id']
        [(9,)]
    """
    from polars.io.plugins import register_io_source

    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        columns = with_columns if with_columns is not None else list(schema)
        conditions = predicate.meta.root_names() if predicate is not None else []
        reader = read if n_rows is None or read_first is None else read_first
        for batch in reader(list(dict.fromkeys([*columns, *conditions]))):
            frame = batch if predicate is None else batch.filter(predicate)
            frame = frame.select(columns).head(frame.height if n_rows is None else n_rows)
            n_rows = None if n_rows is None else n_rows - frame.height
            yield frame
            if n_rows == 0:
                return

    return register_io_source(batches, schema=pl.Schema(schema), explain_name=name)
