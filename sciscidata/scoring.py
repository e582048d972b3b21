"""Disruption and novelty of the same works side by side, and the labels that follow from both."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sciscidata.labels import LabelThresholds, label_disruption, label_novelty
from sciscidata.novelty.atypicality import compute_atypicality
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.schemas import ATYPICALITY, require_columns


def add_novelty(
    scores: pl.LazyFrame | pl.DataFrame,
    citations: pl.LazyFrame,
    works: pl.LazyFrame,
    config: NoveltyConfig | None,
    *,
    background: str | Path | None = None,
    cache_dir: str | Path | None = None,
    concentrations: dict[int, float] | None = None,
) -> pl.LazyFrame:
    """Join ATYPICALITY onto the scores of works. Runs nothing until collected.

    Args:
        scores: one row per work, with work_id Int64; other columns pass through.
        citations: CITATIONS; whole reference lists of the works that make up the null model.
        works: WORKS; year and venue of these works and of their references.
        config: the null model; None leaves novelty out.
        background: a saved table of pair statistics to take the null model from, instead of these works.
        cache_dir: keep the graph here for later runs.
        concentrations: filled at collect, if given; as in score_atypicality.

    Returns:
        The rows of ``scores``, in their order, and the columns of ATYPICALITY; null where a work is not scored, and
        throughout when ``config`` is None.

    Raises:
        SchemaMismatchError: at once, if a frame lacks a column or holds it in another dtype.
        ConfigError: at once, if ``config`` is neither a NoveltyConfig nor None.
        SciSciDataError: at collect, as compute_atypicality raises.

    Example:
        >>> edges = pl.LazyFrame({"citing_id": [1], "cited_id": [2]})
        >>> add_novelty(pl.LazyFrame({"work_id": [1]}), edges, pl.LazyFrame(), None).collect()["z_p10"].to_list()
        [None]
    """
    names = [name for name in ATYPICALITY if name != "work_id"]
    scored = require_columns(scores, ATYPICALITY, frame_name="scores", stage="add_novelty", columns=["work_id"])
    scored = scored.drop(names, strict=False)
    if config is None:
        return scored.with_columns(pl.lit(None, dtype=ATYPICALITY[name]).alias(name) for name in names)
    atypicality = compute_atypicality(
        citations, works, config, background=background, cache_dir=cache_dir, concentrations=concentrations
    )

    def join() -> pl.DataFrame:
        # One after the other: the second finds the graph that the first has built and left in the cache.
        left = scored.collect()
        return left.join(atypicality.collect(), on="work_id", how="left", maintain_order="left")

    schema = {**scored.collect_schema(), **{name: ATYPICALITY[name] for name in names}}
    return pl.defer(join, schema=schema)


def label_scores(
    scores: pl.LazyFrame | pl.DataFrame, thresholds: LabelThresholds | None = None, *, cut: float | None = None
) -> pl.LazyFrame:
    """Add both labels; of the novelty rule that compares works, the works compared are all rows. Runs nothing.

    Args:
        scores: CD_SCORES with the columns of ATYPICALITY, as add_novelty returns them.
        thresholds: ``LabelThresholds()`` when None.
        cut: what that rule compares them with, where it is known already; as in label_novelty.

    Returns:
        The rows of ``scores``, in their order, with ``disruption_label`` and ``novelty_label``.

    Raises:
        SchemaMismatchError: at once, if a score is missing or mistyped.

    Example:
        >>> row = {"cd_index": 0.5, "novelty_score": 0.1, "conventionality_score": 0.9}
        >>> label_scores(pl.LazyFrame([row])).select("disruption_label", "novelty_label").collect().row(0)
        ('disruptive', 'conventional')
    """
    return label_novelty(label_disruption(scores, thresholds), thresholds, cut=cut)
