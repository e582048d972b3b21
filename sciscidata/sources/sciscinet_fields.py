"""The primary field and the concepts of a work, from SciSciNet's links between papers and fields."""

from __future__ import annotations

import polars as pl

from sciscidata.schemas import WORKS

#: As many concepts as a work of any source has.
MAX_CONCEPTS = 8


def choose_fields(links: pl.LazyFrame, fields: pl.LazyFrame) -> pl.LazyFrame:
    """Order the fields of every work by one fixed rule, and take the first eight. Runs nothing.

    The rule: the lowest level first (level 0 holds the 19 broad fields), then the highest score, links without a score
    last, then the name, then the id. A field that is linked twice counts once, with its better score.

    Args:
        links: ``work_id`` Int64, ``field_id`` Int64, ``score`` Float64 or null.
        fields: ``field_id`` Int64, ``field_name`` String, ``level`` Int64; of several rows of a field, the one
            whose name comes first counts. Links to others, and to fields without a name, are left out.

    Returns:
        One row per work with a field, unordered: ``work_id``, ``primary_field`` String (the first one, whatever its
        level) and ``concepts`` List[String] (all, at most eight, in order).

    Example:
        >>> fields = {"field_id": [1, 2, 3], "field_name": ["Botany", "Biology", "Art"], "level": [1, 0, 0]}
        >>> links = {"work_id": [7, 7, 7], "field_id": [1, 2, 3], "score": [0.9, 0.4, None]}
        >>> choose_fields(pl.LazyFrame(links), pl.LazyFrame(fields)).collect().row(0)
        (7, 'Biology', ['Biology', 'Art', 'Botany'])
    """
    # The order of name and id is worked out once, for a few hundred fields, and not for every link.
    numbered = (
        fields.drop_nulls(["field_id", "field_name"])
        .sort("field_name", "field_id", "level", nulls_last=True)
        .unique("field_id", keep="first", maintain_order=True)
        .with_row_index("name_order")
        .select("field_id", "field_name", "name_order", pl.col("level").fill_null(99))
    )
    ordered = (
        links.drop_nulls(["work_id", "field_id"])
        .with_columns(pl.col("score").cast(pl.Float64).fill_nan(None))
        .join(numbered, on="field_id")
        .sort("work_id", "level", "score", "name_order", descending=[False, False, True, False], nulls_last=True)
        .unique(["work_id", "name_order"], keep="first", maintain_order=True)
    )
    names = pl.col("field_name").head(MAX_CONCEPTS)
    return (
        ordered.group_by("work_id", maintain_order=True)
        .agg(names.alias("concepts"))
        .select("work_id", pl.col("concepts").list.first().alias("primary_field"), "concepts")
        .cast({name: WORKS[name] for name in ("work_id", "primary_field", "concepts")})
    )
