"""The primary field and the concepts of a work, from SciSciNet's links between papers and fields."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from sciscidata.schemas import WORKS

#: As many concepts as a work of any source has.
MAX_CONCEPTS: Final = 8
_NO_LEVEL: Final = 99


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
    schema = {name: WORKS[name] for name in ("work_id", "primary_field", "concepts")}

    def run() -> pl.DataFrame:
        from sciscidata.sources.sciscinet_field_kernels import first_fields  # numba takes a while to import

        # The order of name and id is worked out once, for a few hundred fields, and not for every link.
        numbered = (
            fields.drop_nulls(["field_id", "field_name"])
            .sort("field_name", "field_id", "level", nulls_last=True)
            .unique("field_id", keep="first", maintain_order=True)
            .with_row_index("field")
            .with_columns(pl.col("level").fill_null(_NO_LEVEL))
            .collect()
        )
        linked = (
            links.drop_nulls(["work_id", "field_id"])
            .join(numbered.lazy().select("field_id", "field", "level"), on="field_id")
            .select("work_id", "field", "level", pl.col("score").cast(pl.Float64).fill_nan(None).fill_null(-math.inf))
            .collect(engine="streaming")
            .rechunk()  # or the loop is compiled once more, for arrays that may be written
        )
        works, field, level, score = (linked[name].to_numpy() for name in linked.columns)
        chosen, ends, links_of_works = first_fields(
            works, np.argsort(works, kind="stable"), level, score, field, MAX_CONCEPTS
        )
        names: Any = numbered["field_name"].gather(chosen).to_arrow(compat_level=pl.CompatLevel.oldest())
        lists = pa.LargeListArray.from_arrays(pa.array(np.append(0, ends)), names)
        concepts = pl.Series("concepts", lists, dtype=schema["concepts"])
        primary = concepts.list.first().alias("primary_field")
        return pl.DataFrame([pl.Series("work_id", works[links_of_works]), primary, concepts], schema=schema)

    return pl.defer(run, schema=schema)
