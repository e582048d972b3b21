"""How many disruption labels of an early window are those of all years, by citers and by references."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import msgspec
import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import compute_cd_index
from sciscidata.errors import EmptyInputError
from sciscidata.frames import AnyFrame
from sciscidata.judged import WINDOW_COMPLETE, is_cited
from sciscidata.label_thresholds import LabelThresholds, compute_disruption_labels
from sciscidata.options.checks import PositiveInt, check_value, checked_config
from sciscidata.schemas import WORKS, require_columns

_Ages = Annotated[tuple[PositiveInt, ...], msgspec.Meta(min_length=1)]
_CITERS: Final = {0: "0", 2: "1-2", 5: "3-5", 10: "6-10", 30: "11-30", None: "31+"}
_REFERENCES: Final = {0: "0", 4: "1-4", 9: "5-9", 29: "10-29", None: "30+"}
GROUPS: Final = (
    "all",
    *(f"{group} citers" for group in _CITERS.values()),
    *(f"{group} references" for group in _REFERENCES.values()),
)
LABEL_STABILITY: Final = pl.Schema(
    {"age": pl.Int32(), "group": pl.String(), "works": pl.Int64(), "share_same": pl.Float64()}
)


def find_label_stability(
    works: AnyFrame,
    citations: AnyFrame,
    config: CDConfig | None = None,
    thresholds: LabelThresholds | None = None,
    *,
    ages: Iterable[int] = (3, 5, 10),
    last_year: int | None = None,
    cache_dir: str | Path | None = None,
) -> pl.DataFrame:
    """Find which share of works have, some years after publication, the disruption label of all years.

    At each age it counts works that are cited at some time and whose window of that many years is over in the data. So
    later ages have fewer works, and older ones.

    Args:
        works: WORKS, as for ``compute_cd_index``.
        citations: CITATIONS.
        config: which convention; ``CDConfig()`` when None. Its windows are not read.
        thresholds: ``LabelThresholds()`` when None.
        ages: years after publication.
        last_year: last year of the data; when None, it is found, as for window_complete of ``compute_cd_index``.
        cache_dir: as in ``compute_cd_index``.

    Returns:
        By age and group, in this order: age (Int32, years), group (String: ``"all"``, then by citers at that age, then
        by references on record, such as ``"3-5 citers"``), works (Int64), share_same (Float64, 0 to 1). Groups without
        a work are left out.

    Raises:
        ConfigError, SchemaMismatchError, WorkIdError: as ``compute_cd_index``.
        EmptyInputError: if no work has a year, or no window ends in time.

    Source: the question is that of Chen, Bornmann & Bu 2026, arXiv:2504.07828.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5], "publication_year": [1990, 2000, 2001, 2003, 2009]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [2, 3, 4, 4], "cited_id": [1, 2, 2, 1]})
        >>> find_label_stability(works, citations, ages=[1, 3]).filter(pl.col("group") == "all").rows()
        [(1, 'all', 1, 0.0), (3, 'all', 1, 1.0)]
    """
    stage = "find_label_stability"
    years = require_columns(works, WORKS, frame_name="WORKS", stage=stage, columns=["work_id", "publication_year"])
    years = years.select("work_id", "publication_year")
    ages = sorted(set(check_value("ages", tuple(ages), _Ages)))
    last_year = check_value("last_year", last_year, int | None)
    config = replace(checked_config(config, CDConfig), window_years=None, windows=tuple(ages), family=True)
    scores = compute_cd_index(works, citations, config, cache_dir=cache_dir)
    counted = scores.join(years, on="work_id").filter(is_cited()).collect()
    final = _label(counted, thresholds, "")
    parts: list[pl.DataFrame] = []
    for age in ages:
        citers = pl.col(f"n_i_{age}").cast(pl.Int64) + pl.col(f"n_j_{age}")
        references = pl.col("n_refs").cast(pl.Int64)
        is_over = pl.col(f"{WINDOW_COMPLETE}_{age}")
        if last_year is not None:
            is_over = pl.col("publication_year").cast(pl.Int64) + age < last_year
        early = counted.with_columns(is_same=_label(counted, thresholds, f"_{age}") == final).filter(is_over)
        of_work = pl.concat_list(
            pl.lit("all"),
            _bin(citers, _CITERS) + " citers",
            _bin(references, _REFERENCES) + " references",
        )
        grouped = early.drop_nulls("is_same").select("is_same", group=of_work).explode("group").group_by("group")
        share = grouped.agg(works=pl.len().cast(pl.Int64), share_same=pl.col("is_same").mean())
        parts.append(share.select(pl.lit(age, pl.Int32).alias("age"), *LABEL_STABILITY.names()[1:]))
    shares = pl.concat(parts)
    if shares.is_empty():
        raise EmptyInputError(
            f"{stage}: no window of {ages[0]} years ends before the last year of the data"
            f"{'' if last_year is None else f' ({last_year})'}. "
            "Give smaller ages, or data of more years."
        )
    return shares.sort("age", pl.col("group").cast(pl.Enum(GROUPS)))


def _label(counted: pl.DataFrame, thresholds: LabelThresholds | None, ending: str) -> pl.Series:
    scores = counted.select(cd_index=f"cd_index{ending}")
    return compute_disruption_labels(scores, thresholds).collect()["disruption_label"]


def _bin(number: pl.Expr, names: dict[int | None, str]) -> pl.Expr:
    """Name the first of the ranges, given by their last numbers, that a number does not exceed."""
    *ends, last = names
    name = pl.lit(names[last])
    for end in reversed(ends):
        name = pl.when(number <= end).then(pl.lit(names[end])).otherwise(name)
    return name
