"""Compare two sets of scores of the same works: CD indices, or z."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import LabelThresholds, compute_disruption_labels


def compare_scores(
    published: AnyFrame,
    computed: AnyFrame,
    thresholds: LabelThresholds | None = None,
) -> dict[str, Any]:
    """Compare two sets of CD indices (``work_id``, ``cd_index``) of the same works: ranks, signs and labels.

    Shares are of works with both scores, 0 .. 1, six places; null if there are none, or all have one score.
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
