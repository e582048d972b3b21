"""Disruption and novelty of the same works side by side, and the labels that follow from both."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sciscidata.labels import LabelThresholds, compute_disruption_labels, compute_novelty_labels
from sciscidata.novelty.atypicality import compute_atypicality
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.schemas import ATYPICALITY, require_columns


def join_atypicality(
    scores: pl.LazyFrame | pl.DataFrame,
    works: pl.LazyFrame,
    citations: pl.LazyFrame,
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
        >>> join_atypicality(pl.LazyFrame({"work_id": [1]}), pl.LazyFrame(), edges, None).collect()["z_p10"].to_list()
        [None]
    """
    names = [name for name in ATYPICALITY if name != "work_id"]
    scored = require_columns(scores, ATYPICALITY, frame_name="scores", stage="join_atypicality", columns=["work_id"])
    scored = scored.drop(names, strict=False)
    if config is None:
        return scored.with_columns(pl.lit(None, dtype=ATYPICALITY[name]).alias(name) for name in names)
    atypicality = compute_atypicality(
        works, citations, config, background=background, cache_dir=cache_dir, concentrations=concentrations
    )

    def join() -> pl.DataFrame:
        # One after the other: the second finds the graph that the first has built and left in the cache.
        left = scored.collect()
        return left.join(atypicality.collect(), on="work_id", how="left", maintain_order="left")

    schema = {**scored.collect_schema(), **{name: ATYPICALITY[name] for name in names}}
    return pl.defer(join, schema=schema)


def compute_labels(
    scores: pl.LazyFrame | pl.DataFrame, thresholds: LabelThresholds | None = None, *, cut: float | None = None
) -> pl.LazyFrame:
    """Add a label for each measure that the scores hold. Runs nothing.

    The novelty rule ``"uzzi"`` compares each work with all rows given: give all scored works, not a sample.

    Args:
        scores: CD_SCORES, ATYPICALITY, or both joined; further columns pass through.
        thresholds: ``LabelThresholds()`` when None.
        cut: what that rule compares them with, where it is known already; as in compute_novelty_labels.

    Returns:
        The rows of ``scores``, in their order, with ``disruption_label`` where they have a ``cd_index`` and
        ``novelty_label`` where they have novelty scores or z-scores. A label is null where its score is undefined.

    Raises:
        SchemaMismatchError: at once, if no score is there, or one is mistyped.

    Example:
        >>> row = {"cd_index": 0.5, "novelty_score": 0.1, "conventionality_score": 0.9}
        >>> compute_labels(pl.LazyFrame([row])).select("disruption_label", "novelty_label").collect().row(0)
        ('disruptive', 'conventional')
    """
    is_frame = isinstance(scores, pl.LazyFrame | pl.DataFrame)  # pyright: ignore[reportUnnecessaryIsInstance]
    columns = scores.lazy().collect_schema().names() if is_frame else []
    if "novelty_score" not in columns and "z_p10" not in columns:
        return compute_disruption_labels(scores, thresholds)
    labelled = compute_disruption_labels(scores, thresholds) if "cd_index" in columns else scores
    return compute_novelty_labels(labelled, thresholds, cut=cut)
