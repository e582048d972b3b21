"""Further members of the disruption family: originality, inverse dependence, and DI_l without n_k."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import compute_cd_index
from sciscidata.frames import AnyFrame
from sciscidata.options.checks import checked_config


def compute_cd_variants(
    works: AnyFrame,
    citations: AnyFrame,
    config: CDConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work by the disruption family and by variants that follow from the same counts.

    Args:
        works: WORKS, as for ``compute_cd_index``.
        citations: CITATIONS.
        config: which convention; ``CDConfig(family=True)`` when None. The family is always added.
        cache_dir: as in ``compute_cd_index``.
        n_threads: as in ``compute_cd_index``.

    Returns:
        One row per work, unordered: CD_SCORES, CD_FAMILY, and three columns, all Float64.
        orig_base: 1 - n_shared / ((n_i + n_j) n_refs), the share of missing links of citers to references; 0 .. 1.
        inverse_dependence: 1 + the largest dependence of all works - dependence; from 1, high is disruptive. It depends
        on which works are in ``works``.
        di5_nok_index: (n_i - n_j5) / (n_i + n_j5); -1 .. 1. With ``config.di_l`` of 3 it is di3_nok_index.
        They are null where dependence is: without citers in the window or, by default, without references. orig_base is
        null without references in any convention. With ``config.windows`` each window has its own: orig_base_10.

    Raises:
        ConfigError, SchemaMismatchError, WorkIdError, EmptyInputError: as ``compute_cd_index``.

    Source: Shibayama & Wang 2020, doi:10.1007/s11192-019-03263-0 (orig_base); Bornmann et al. 2020,
    doi:10.1162/qss_a_00068 (inverse dependence, DI_5 without n_k). The formulas are those of CrossDI (Xu et al. 2025,
    doi:10.1016/j.joi.2025.101685).

    Example:
        Citers 3 and 4 could cite two references each, and cite one of these four.

        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5], "publication_year": [1990, 2000, 2001, 2002, 1991]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [2, 2, 3, 4, 4], "cited_id": [1, 5, 2, 2, 1]})
        >>> columns = ("dependence", "inverse_dependence", "orig_base", "di5_nok_index")
        >>> scores = compute_cd_variants(works, citations).filter(pl.col("work_id") == 2)
        >>> scores.select(columns).collect().row(0)
        (0.5, 1.0, 0.75, 1.0)
    """
    config = replace(checked_config(config, CDConfig, "window_years=10"), family=True)
    scores = compute_cd_index(works, citations, config, cache_dir=cache_dir, n_threads=n_threads)
    return scores.with_columns(
        **{
            name + window: made
            for window in config.all_windows
            for name, made in _variants(window, config.di_l).items()
        }
    )


def _variants(window: str, least: int) -> dict[str, pl.Expr]:
    """Make the variants of the window whose columns end with ``window``."""
    counts = (f"{name}{window}" for name in ("n_i", "n_j", f"n_j{least}", "n_shared"))
    n_i, n_j, n_jl, n_shared = (pl.col(name).cast(pl.Int64) for name in counts)
    dependence = pl.col(f"dependence{window}")
    links, strong = (n_i + n_j) * pl.col("n_refs").cast(pl.Int64), n_i + n_jl
    return {
        "orig_base": pl.when(dependence.is_not_null() & (links > 0)).then(1 - n_shared / links),
        "inverse_dependence": 1 + (dependence.max() - dependence),
        f"di{least}_nok_index": pl.when(dependence.is_not_null() & (strong > 0)).then((n_i - n_jl) / strong),
    }
