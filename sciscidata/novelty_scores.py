"""From z to two scores between 0 and 1: by a sigmoid, or by rank within the year."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from sciscidata.portable_math import sigmoid


def add_scores(rows: pl.DataFrame, score: Literal["sigmoid", "rank"]) -> pl.DataFrame:
    """Add novelty_score, high where z_p10 is low, and conventionality_score, high where z_median is; null stays null.

    Args:
        rows: publication_year, and z_p10 and z_median, Float64, null where undefined.
        score: as in NoveltyConfig.

    Example:
        >>> rows = pl.DataFrame({"publication_year": [2000, 2000], "z_p10": [-9.0, 1.0], "z_median": [0.0, None]},
        ...     schema_overrides={"z_median": pl.Float64})
        >>> add_scores(rows, "sigmoid").select("novelty_score", "conventionality_score").rows()
        [(0.9996646498695336, 0.5), (0.2689414213699951, None)]
        >>> add_scores(rows, "rank").select("novelty_score", "conventionality_score").rows()
        [(0.75, 0.5), (0.25, None)]
    """
    if score == "rank":

        def rank(z: pl.Expr) -> pl.Expr:
            return ((z.rank("average") - 0.5) / z.count()).over("publication_year")

        return rows.with_columns(novelty_score=rank(-pl.col("z_p10")), conventionality_score=rank(pl.col("z_median")))
    for name, z in {"novelty_score": -rows["z_p10"], "conventionality_score": rows["z_median"]}.items():
        values = sigmoid(z.fill_null(np.nan).to_numpy())
        rows = rows.with_columns(pl.Series(name, values).fill_nan(None))
    return rows
