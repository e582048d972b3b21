"""The CD index of every work at every age: how the verdict on it changes as later works come in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import compute_cd_index
from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame
from sciscidata.graph.graph import require_times
from sciscidata.options.checks import check_value, checked_config

_Ages = Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=9_999)], ...], msgspec.Meta(min_length=1)]


def compute_cd_trajectory(
    works: AnyFrame,
    citations: AnyFrame,
    config: CDConfig | None = None,
    *,
    ages: Iterable[int] = range(1, 11),
    last_year: int | None = None,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work by its CD index at several ages, from one pass over the citations.

    Args:
        works: WORKS, as for ``compute_cd_index``.
        citations: CITATIONS.
        config: which convention; ``CDConfig()`` when None. Its ``window_years`` is not read: the ages are the windows.
        ages: years after the focal work.
        last_year: last year of the data. Where a window ends in it or later, counts and index are null, because
            citers are still to come. None: every age is scored with what there is.
        cache_dir: as in ``compute_cd_index``.
        n_threads: as in ``compute_cd_index``.

    Returns:
        One row per work and age, unordered: work_id and age (Int32, years). For the window of that many years it has
        n_i, n_j, n_k, cd_index and, with ``config.family``, CD_FAMILY without n_refs.

    Raises:
        ConfigError: when called; as ``compute_cd_index``, or if an age is no whole number from 0, or
            ``config.windows`` is given.
        SchemaMismatchError, WorkIdError, EmptyInputError: as ``compute_cd_index``.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4], "publication_year": [1990, 2000, 2001, 2003]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [2, 3, 4, 4], "cited_id": [1, 2, 2, 1]})
        >>> found = compute_cd_trajectory(works, citations, ages=[1, 2, 3]).filter(pl.col("work_id") == 2).collect()
        >>> found.sort("age").select("age", "cd_index").rows()
        [(1, 1.0), (2, 1.0), (3, 0.0)]
    """
    config = checked_config(config, CDConfig)
    if config.windows:
        raise ConfigError("CDConfig.windows has no effect: the ages are the windows. Leave it out, and name the ages.")
    ascending = tuple(sorted(set(check_value("ages", [*ages], _Ages))))
    last_year = check_value("last_year", last_year, int | None)
    scores = compute_cd_index(
        works,
        citations,
        replace(config, window_years=ascending[-1], windows=ascending),
        cache_dir=cache_dir,
        n_threads=n_threads,
    )
    ending = f"_{ascending[0]}"
    columns = [name.removesuffix(ending) for name in scores.collect_schema() if name.endswith(ending)]
    ids = [name for name in ("work_id", "original_id") if name in scores.collect_schema()]
    by_age = {name: pl.concat_list(f"{name}_{age}" for age in ascending) for name in columns}
    listed = scores.select(*ids, age=pl.lit(pl.Series([ascending], dtype=pl.List(pl.Int32))).first(), **by_age)
    rows = listed.explode("age", *columns)
    if last_year is None:
        return rows
    times = require_times(works, config.time, stage="compute_cd_trajectory")
    year = pl.col("publication_year")
    if config.time == "publication_date":
        year = pl.coalesce(pl.col("publication_date").dt.year(), year)
    is_over = pl.col("publication_year").cast(pl.Int64) + pl.col("age") < last_year
    known = rows.join(times.select("work_id", year.alias("publication_year")), on="work_id", how="left")
    return known.with_columns(pl.when(is_over).then(pl.col(columns))).drop("publication_year")
