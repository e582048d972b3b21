"""Columns of vectors: checked, as matrices, and at length 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray, Float64Array
from sciscidata.errors import SchemaMismatchError


def require_vectors(works: pl.LazyFrame, *columns: str, stage: str) -> pl.LazyFrame:
    """Return ``work_id`` and columns of vectors, Array or List of numbers; Float32 stays, all others become Float64.

    Example:
        >>> require_vectors(pl.LazyFrame({"work_id": [1], "past": ["0.5 1"]}), "past", stage="demo")
        Traceback (most recent call last):
        ...
        sciscidata.errors.SchemaMismatchError: demo: WORKS column 'past' is String, needs Array or List of numbers. Name
        another column, or turn the text into numbers.
    """
    schema = works.collect_schema()
    for column in columns:
        if column not in schema:
            raise SchemaMismatchError(
                f"{stage}: WORKS lacks column {column!r} (vectors); it has {', '.join(schema)}. Add it, for example "
                "with .join(vectors, on='work_id', how='left')."
            )
        inner = _inner(schema[column])
        if inner is None or not inner.is_numeric():
            raise SchemaMismatchError(
                f"{stage}: WORKS column {column!r} is {schema[column]}, needs Array or List of numbers. "
                "Name another column, or turn the text into numbers."
            )
    kinds = {column: pl.Float32() if _inner(schema[column]) == pl.Float32() else pl.Float64() for column in columns}
    return works.select("work_id", *(pl.col(column).cast(pl.List(kind)) for column, kind in kinds.items()))


def _inner(dtype: pl.DataType) -> Any:  # noqa: ANN401
    return dtype.inner if isinstance(dtype, pl.List | pl.Array) else None


def matrix_of(vectors: pl.Series, *, stage: str) -> AnyArray:
    """Return lists of numbers as a matrix. A missing or empty list is a row of NaN, a missing number is NaN."""
    sizes = vectors.list.len().fill_null(0)
    lengths = sizes.filter(sizes > 0).unique().sort().to_list()
    if len(lengths) > 1:
        raise SchemaMismatchError(
            f"{stage}: vectors in {vectors.name!r} have {lengths[0]:,} and {lengths[-1]:,} numbers, needs one length. "
            "Use vectors of one model."
        )
    numbers = vectors.filter(sizes > 0).explode().to_numpy()
    matrix = np.full((len(vectors), lengths[0] if lengths else 1), np.nan, numbers.dtype)
    if lengths:
        matrix[(sizes > 0).to_numpy()] = numbers.reshape(-1, lengths[0])
    return matrix


def to_length_1(matrix: AnyArray) -> Float64Array:
    """Scale every row to length 1. A row without direction (all 0, or a number missing or infinite) becomes NaN."""
    rows = matrix.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        rows /= np.abs(rows).max(axis=-1, keepdims=True)  # so that no square overflows or vanishes
        rows /= np.sqrt(np.einsum("...i,...i->...", rows, rows))[..., None]
    rows[np.isnan(rows).any(axis=-1)] = np.nan
    return rows
