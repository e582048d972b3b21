"""Lazy frames of sources that are read in batches by Python code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import polars as pl


def scan_batches(
    read: Callable[[list[str]], Iterator[pl.DataFrame]],
    schema: Mapping[str, pl.DataType],
    name: str,
    *,
    read_first: Callable[[list[str]], Iterator[pl.DataFrame]] | None = None,
) -> pl.LazyFrame:
    """Make a lazy frame of batches that hold only the columns of a query; ``read`` is called once for each query.

    The plan that Polars prints shows ``name``. ``read_first`` serves queries that ask for the first rows only.
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


def put_beside(facts: pl.LazyFrame, table: pl.DataFrame) -> pl.LazyFrame:
    """Put the columns of ``table`` next to works by id, row by row. A join would hold a second table of all works."""
    order = table["work_id"].arg_sort().to_numpy()
    ids = table["work_id"].to_numpy()[order]
    columns = table.drop("work_id")

    def look_up(works: pl.DataFrame) -> pl.DataFrame:
        wanted = works["work_id"].to_numpy()
        at = np.minimum(np.searchsorted(ids, wanted), max(ids.size - 1, 0))
        known = pl.Series(ids[at] == wanted) if ids.size else pl.repeat(value=False, n=works.height, eager=True)
        rows = pl.select(pl.when(known).then(pl.Series(order[at] if ids.size else at, dtype=pl.UInt32))).to_series()
        return works.hstack(columns.select(pl.all().gather(rows)))

    schema = {**facts.collect_schema(), **columns.schema}
    pushed = {"predicate_pushdown": False, "projection_pushdown": False}
    return facts.map_batches(look_up, schema=schema, streamable=True, **pushed)
