"""Both measures together: atypicality joined to the CD index, and the labels that follow from the scores."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import LabelThresholds, compute_disruption_labels, compute_novelty_labels
from sciscidata.novelty.atypicality import compute_atypicality
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.options.checks import checked_config
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.schemas import ATYPICALITY, CD_SCORES, require_columns


def join_atypicality(
    scores: AnyFrame,
    works: AnyFrame,
    citations: AnyFrame,
    config: NoveltyConfig | None,
    *,
    background: str | Path | None = None,
    cache_dir: str | Path | None = None,
    concentrations: dict[int, float] | None = None,
) -> pl.LazyFrame:
    """Join ATYPICALITY to the scores of works; null if ``config`` is None, and where a work has no score.

    Lazy; other columns of ``scores`` and the order of its rows stay. Arguments and errors: see ``compute_atypicality``.

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
        right = atypicality.collect().drop(ORIGINAL_ID, strict=False)  # the scores have it
        return left.join(right, on="work_id", how="left", maintain_order="left")

    schema = {**scored.collect_schema(), **{name: ATYPICALITY[name] for name in names}}
    return pl.defer(join, schema=schema)


def compute_labels(
    scores: AnyFrame, thresholds: LabelThresholds | None = None, *, cut: float | None = None
) -> pl.LazyFrame:
    """Add a label for each measure that the scores hold: ``disruption_label``, ``novelty_label``, or both.

    Disruption: the CD index against the two cut-offs of LabelThresholds. Novelty, rule ``"margin"``, with
    d = novelty_score - conventionality_score: novel if d > ``novelty_margin``, conventional if d < -``novelty_margin``,
    else balanced. Numbers count as printed: 0.5 and 0.35 are balanced. Rule ``"uzzi"``: novel is tail novelty
    (z_p10 < ``uzzi_tail_max``) without high conventionality (z_median above the median of all rows); conventional is
    the reverse; balanced is both or neither.

    Args:
        scores: CD_SCORES, ATYPICALITY, or both joined; other columns pass through. For the rule ``"uzzi"`` give all
            scored works, not a sample: the rule compares each work with all rows.
        thresholds: ``LabelThresholds()`` when None.
        cut: for the rule ``"uzzi"``, the z_median to compare with, if it is already known; found in ``scores`` when
            None.

    Returns:
        The rows of ``scores`` in their order. ``disruption_label`` (String: disruptive, consolidating, neutral) if
        there is a ``cd_index``, ``novelty_label`` (String: novel, balanced, conventional) if there are novelty scores
        or z. A label is null where its score is null or NaN.

    Raises:
        SchemaMismatchError: when called, if there is no score, or a score is not Float64.

    Source: Uzzi et al. 2013, doi:10.1126/science.1240474, for the rule ``"uzzi"``; the other rule is this project's.

    Example:
        >>> row = {"cd_index": 0.5, "novelty_score": 0.1, "conventionality_score": 0.9}
        >>> compute_labels(pl.LazyFrame([row])).select("disruption_label", "novelty_label").collect().row(0)
        ('disruptive', 'conventional')
    """
    rule = checked_config(thresholds, LabelThresholds, name="thresholds")
    there = require_columns(scores, {}, frame_name="scores", stage="compute_labels").collect_schema()
    novelty = ("z_p10", "z_median") if rule.novelty_rule == "uzzi" else ("novelty_score", "conventionality_score")
    has_novelty = "novelty_score" in there or "z_p10" in there
    needed = [*(["cd_index"] if "cd_index" in there or not has_novelty else []), *(novelty if has_novelty else ())]
    known = CD_SCORES | ATYPICALITY
    labelled = require_columns(scores, known, frame_name="scores", stage="compute_labels", columns=needed)
    if "cd_index" in needed:
        labelled = compute_disruption_labels(labelled, rule)
    return compute_novelty_labels(labelled, rule, cut=cut) if has_novelty else labelled
