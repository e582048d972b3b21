"""Convert SciSciNet's published disruption and z to CD_SCORES and ATYPICALITY, and compare them with computed ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import LabelThresholds, compute_disruption_labels
from sciscidata.novelty.atypicality import Score, rescore
from sciscidata.schemas import ATYPICALITY, CD_SCORES


def publish_disruption(papers: pl.LazyFrame) -> pl.LazyFrame:
    """Use ``disruption`` as the CD index where it is defined.

    It is null where ``disruption`` is null, NaN or outside -1 .. 1, and where the paper has no reference or no citation
    (``reference_count`` or ``citation_count`` 0 or unknown). The table holds 0.0 for such papers, but their index is
    undefined. A 0 of a paper with both is a score. The counts of CD_SCORES are null, because they are not published.

    Source: the original needs a citation and drops papers without references (Lin et al. 2023,
    doi:10.1038/s41597-023-02198-9, notebook of the disruption score).

    Example:
        >>> papers = {"work_id": [1, 2, 3], "disruption": [0.0, 0.0, -0.5], "reference_count": [7, 7, 9],
        ...     "citation_count": [0, 4, 2]}
        >>> publish_disruption(pl.LazyFrame(papers)).collect()["cd_index"].to_list()
        [None, 0.0, -0.5]
    """
    counts = (pl.lit(None).alias(name) for name in ("n_i", "n_j", "n_k"))
    return papers.select("work_id", *counts, published_cd().alias("cd_index")).cast(CD_SCORES)


def published_cd() -> pl.Expr:
    """Return the score of :func:`publish_disruption` as an expression."""
    counted = (pl.col("reference_count").fill_null(0) > 0) & (pl.col("citation_count").fill_null(0) > 0)
    value = pl.col("disruption").cast(pl.Float64)
    return pl.when(counted & value.is_between(-1, 1)).then(value)


def publish_atypicality(papers: pl.LazyFrame, score: Score = "sigmoid") -> pl.LazyFrame:
    """Make ATYPICALITY from ``Atyp_10pct_Z`` and ``Atyp_Median_Z``; a ``"rank"`` needs ``publication_year``.

    Null where a value is null or not finite, and where there is no pair (``Atyp_Pairs`` 0 or unknown). A *low*
    ``z_p10`` is atypical, so ``novelty_score`` falls as it rises.
    """
    return rescore(papers.with_columns(published_z()), score).select(ATYPICALITY.names()).cast(ATYPICALITY)


def published_z() -> list[pl.Expr]:
    """Return the two z of :func:`publish_atypicality` as expressions."""
    has_pairs = pl.col("n_pairs").fill_null(0) > 0
    values = [pl.col(name).cast(pl.Float64) for name in ("z_p10", "z_median")]
    return [pl.when(has_pairs & value.is_finite()).then(value) for value in values]


def compare_scores(
    published: AnyFrame,
    computed: AnyFrame,
    thresholds: LabelThresholds | None = None,
) -> dict[str, Any]:
    """Compare two sets of CD indices (``work_id``, ``cd_index``) of the same works: ranks, signs and labels.

    ``both``, ``only_published``, ``only_computed`` count works with a score. Of those with both, ``spearman``,
    ``same_sign`` and ``same_label`` are shares, 0 .. 1, rounded to six places. They are null if no work has both, or
    all have one score. ``labels`` counts works by published and then computed label.
    """
    sides = {"published": published, "computed": computed}
    rows = _joined(
        compute_disruption_labels(frame, thresholds)
        .select(
            "work_id", pl.col("cd_index").fill_nan(None).alias(name), pl.col("disruption_label").alias(f"{name}_label")
        )
        .drop_nulls(name)
        for name, frame in sides.items()
    )
    both = rows.drop_nulls(list(sides))
    labels = both.group_by("published_label", "computed_label").len().sort("published_label", "computed_label")
    same: Any = (both["published_label"] == both["computed_label"]).mean()
    return {
        **_agreement(rows),
        "same_label": round(same or 0.0, 6) if both.height else None,
        "labels": [dict(zip(("published", "computed", "works"), row, strict=True)) for row in labels.rows()],
    }


def compare_z(published: pl.LazyFrame, computed: pl.DataFrame, name: str) -> dict[str, Any]:
    """Compare a published z (column ``name``) with a computed one, by ranks and signs as ``compare_scores`` does."""
    sides = {"published": published, "computed": computed.lazy()}
    chosen = (frame.select("work_id", pl.col(name).alias(side)).drop_nulls() for side, frame in sides.items())
    return _agreement(_joined(chosen))


def _joined(sides: Iterable[pl.LazyFrame]) -> pl.DataFrame:
    left, right = sides
    return left.join(right, on="work_id", how="full", coalesce=True).sort("work_id").collect(engine="streaming")


def _agreement(rows: pl.DataFrame) -> dict[str, Any]:
    """Count the works with both numbers, and compare their ranks and signs."""
    both = rows.drop_nulls(["published", "computed"])
    left_rank, right_rank = (both[name].rank("average").to_numpy() for name in ("published", "computed"))
    signs = [np.sign(both[name].to_numpy()) for name in ("published", "computed")]
    varied = both.height > 0 and np.ptp(left_rank) > 0 and np.ptp(right_rank) > 0
    return {
        "both": both.height,
        "only_published": rows["computed"].null_count(),
        "only_computed": rows["published"].null_count(),
        "spearman": round(float(np.corrcoef(left_rank, right_rank)[0, 1]), 6) if varied else None,
        "same_sign": round(float(np.mean(signs[0] == signs[1])), 6) if both.height else None,
    }
