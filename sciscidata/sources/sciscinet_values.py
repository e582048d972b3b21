"""SciSciNet's published values as ours: what is undefined becomes null, and z becomes the two scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from sciscidata.labels import LabelThresholds, label_disruption
from sciscidata.novelty import sigmoid
from sciscidata.schemas import ATYPICALITY, CD_SCORES


def publish_disruption(papers: pl.LazyFrame) -> pl.LazyFrame:
    """Take ``disruption`` for the CD index where there can be one. Runs nothing.

    The rule: null where it is null or NaN, and where the paper has no reference or no citation on SciSciNet's record
    (``reference_count`` or ``citation_count`` 0 or unknown). The table holds 0.0 there, but nobody has cited the
    paper, or there is nothing that it could have displaced. A 0 of a paper that has both is a score, and stays.

    Args:
        papers: ``work_id``, ``disruption``, ``reference_count``, ``citation_count``.

    Returns:
        CD_SCORES; the counts are null, for they are not published.

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
    """Give the score of :func:`publish_disruption` as an expression, for whoever reads more of the same rows."""
    counted = (pl.col("reference_count").fill_null(0) > 0) & (pl.col("citation_count").fill_null(0) > 0)
    return pl.when(counted).then(_finite("disruption"))


def publish_atypicality(papers: pl.LazyFrame) -> pl.LazyFrame:
    """Take ``Atyp_10pct_Z`` and ``Atyp_Median_Z``, and make scores of them. Runs nothing.

    The scores are those of ``compute_atypicality``.

    Null where a value is null or not finite, and where there is no pair (``Atyp_Pairs`` 0 or unknown). Mind the sign:
    a *low* ``z_p10`` is atypical, so ``novelty_score`` falls as it rises.

    Args:
        papers: ``work_id``, ``z_p10``, ``z_median``, ``n_pairs``.

    Returns:
        ATYPICALITY.

    Example:
        >>> papers = {"work_id": [1, 2], "z_p10": [-1.0, 0.0], "z_median": [2.0, 0.0], "n_pairs": [3, 0]}
        >>> publish_atypicality(pl.LazyFrame(papers)).collect().select("z_p10", pl.col("novelty_score").round(3)).rows()
        [(-1.0, 0.731), (None, None)]
    """
    has_pairs = pl.col("n_pairs").fill_null(0) > 0
    z = (pl.when(has_pairs).then(_finite(name)).alias(name) for name in ("z_p10", "z_median"))
    return papers.select("work_id", "n_pairs", *z, *published_scores()).cast(ATYPICALITY)


def published_scores() -> list[pl.Expr]:
    """Give the two scores of :func:`publish_atypicality` as expressions."""
    has_pairs = pl.col("n_pairs").fill_null(0) > 0
    low, middle = (pl.when(has_pairs).then(_finite(name)) for name in ("z_p10", "z_median"))
    return [_sigmoid(-low).alias("novelty_score"), _sigmoid(middle).alias("conventionality_score")]


def compare_scores(
    published: pl.LazyFrame | pl.DataFrame,
    computed: pl.LazyFrame | pl.DataFrame,
    thresholds: LabelThresholds | None = None,
) -> dict[str, Any]:
    """Compare two sets of CD indices of the same works: how they rank, their signs, their labels. Executes.

    Args:
        published: ``work_id`` and ``cd_index``, for example ``SciSciNet.scores``.
        computed: the same, for example of ``compute_cd_index``.
        thresholds: ``LabelThresholds()`` when None.

    Returns:
        ``both``, ``only_published``, ``only_computed``: works with a score. Of those with both: ``spearman``,
        ``same_sign`` and ``same_label`` (shares, 0 .. 1; rounded to six places, null if there is no such work, or if
        all have one score), and ``labels``: the number of works by published and then computed label.

    Example:
        >>> published = pl.DataFrame({"work_id": [1, 2, 3], "cd_index": [0.5, -0.1, 0.0]})
        >>> computed = pl.DataFrame({"work_id": [1, 2, 3], "cd_index": [0.9, 0.2, None]})
        >>> compared = compare_scores(published, computed)
        >>> compared["both"], compared["only_published"], compared["spearman"], compared["same_sign"]
        (2, 1, 1.0, 0.5)
    """
    sides = {"published": published, "computed": computed}
    left, right = (
        label_disruption(frame.lazy(), thresholds)
        .select(
            "work_id", pl.col("cd_index").fill_nan(None).alias(name), pl.col("disruption_label").alias(f"{name}_label")
        )
        .drop_nulls(name)
        for name, frame in sides.items()
    )
    rows = left.join(right, on="work_id", how="full", coalesce=True).sort("work_id").collect(engine="streaming")
    both = rows.drop_nulls(list(sides))
    left_rank, right_rank = (both[name].rank("average").to_numpy() for name in sides)
    signs = [np.sign(both[name].to_numpy()) for name in sides]
    varied = both.height > 0 and np.ptp(left_rank) > 0 and np.ptp(right_rank) > 0
    labels = both.group_by("published_label", "computed_label").len().sort("published_label", "computed_label")
    return {
        "both": both.height,
        "only_published": rows["computed"].null_count(),
        "only_computed": rows["published"].null_count(),
        "spearman": round(float(np.corrcoef(left_rank, right_rank)[0, 1]), 6) if varied else None,
        "same_sign": round(float(np.mean(signs[0] == signs[1])), 6) if both.height else None,
        "same_label": round(float((both["published_label"] == both["computed_label"]).mean() or 0), 6)  # pyright: ignore[reportArgumentType]
        if both.height
        else None,
        "labels": [
            {"published": published, "computed": computed, "works": works}
            for published, computed, works in labels.rows()
        ],
    }


def _finite(name: str) -> pl.Expr:
    value = pl.col(name).cast(pl.Float64)
    return pl.when(value.is_finite()).then(value)


def _sigmoid(z: pl.Expr) -> pl.Expr:
    """Apply the score of ``compute_atypicality``, the same bits on every platform; null stays null."""
    return z.map_batches(
        lambda values: pl.Series(values.name, sigmoid(values.fill_null(np.nan).to_numpy())).fill_nan(None),
        return_dtype=pl.Float64(),
        is_elementwise=True,
    )
