"""Convert SciSciNet's published disruption and z to CD_SCORES and ATYPICALITY."""

from __future__ import annotations

import polars as pl

from sciscidata.novelty.atypicality import Score, rescore
from sciscidata.schemas import ATYPICALITY, CD_SCORES


def publish_disruption(papers: pl.LazyFrame) -> pl.LazyFrame:
    """Use ``disruption`` as the CD index: null where it is not in -1 .. 1, or a paper has no reference or no citation.

    The table holds 0.0 for such papers, but their index is undefined. The original needs a citation and drops papers
    without references (Lin et al. 2023, doi:10.1038/s41597-023-02198-9, notebook of the disruption score).
    """
    counts = (pl.lit(None).alias(name) for name in ("n_i", "n_j", "n_k"))
    return papers.select("work_id", *counts, published_cd().alias("cd_index")).cast(CD_SCORES)


def published_cd() -> pl.Expr:
    """Return the score of :func:`publish_disruption` as an expression."""
    counted = (pl.col("reference_count").fill_null(0) > 0) & (pl.col("citation_count").fill_null(0) > 0)
    value = pl.col("disruption").cast(pl.Float64)
    return pl.when(counted & value.is_between(-1, 1)).then(value)


def publish_atypicality(papers: pl.LazyFrame, score: Score = "sigmoid") -> pl.LazyFrame:
    """Make ATYPICALITY from published z-scores (a low ``z_p10`` is novel); null if not finite, or without pairs."""
    return rescore(papers.with_columns(published_z()), score).select(ATYPICALITY.names()).cast(ATYPICALITY)


def published_z() -> list[pl.Expr]:
    """Return the two z of :func:`publish_atypicality` as expressions."""
    has_pairs = pl.col("n_pairs").fill_null(0) > 0
    values = [pl.col(name).cast(pl.Float64) for name in ("z_p10", "z_median")]
    return [pl.when(has_pairs & value.is_finite()).then(value) for value in values]
