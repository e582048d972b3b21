"""How much metrics depend on where labels end: the same answers, judged by the labels of other thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import polars as pl

from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import LabelThresholds, compute_disruption_labels
from sciscidata.schemas import EXAMPLE, require_columns
from sciscirl.errors import PredictionsError
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import check_predictions, find_target

_ID: Final = "openalex_id"
#: Cut-offs on both sides of 0, by name.
CUT_OFFS: Final[Mapping[str, LabelThresholds]] = MappingProxyType(
    {f"±{cut:g}": LabelThresholds(consolidating_max=-cut, disruptive_min=cut) for cut in (0.001, 0.01, 0.1)}
)


def measure_at_thresholds(
    predictions: pl.DataFrame, papers: AnyFrame, thresholds: Mapping[str, LabelThresholds] = CUT_OFFS
) -> dict[str, dict[str, float]]:
    """Measure answers about disruption by the labels that other thresholds give the same papers.

    The model is not asked again: its answers are those to the labels it was trained for.

    Args:
        predictions: PREDICTIONS, as an evaluation wrote them.
        papers: ``openalex_id`` and ``cd_index`` of the papers, such as ``read_release(folder).test``.
        thresholds: by name; ±0.001, ±0.01 and ±0.1 when left out.

    Returns:
        By the same names, the metrics of ``measure_predictions`` without rewards, which were paid for the first label.
        They equal those of a release that was labelled so. Papers without a label are left out; ``n`` counts the rest.

    Raises:
        PredictionsError: the predictions are of another task, or a paper of theirs is missing or repeated. Or no paper
            has a label.
        SchemaMismatchError: ``cd_index`` is missing or has another type.

    Example:
        >>> said = {"label": "disruptive", "confidence": 0.9, "is_json": True, "is_valid": True}
        >>> rows = [{"openalex_id": name, "gold": "disruptive", **said} for name in ("W1", "W2")]
        >>> papers = pl.DataFrame({"openalex_id": ["W1", "W2"], "cd_index": [0.005, 0.5]})
        >>> found = measure_at_thresholds(check_predictions(rows), papers)
        >>> {name: metrics["label_match"] for name, metrics in found.items()}
        {'±0.001': 1.0, '±0.01': 0.5, '±0.1': 0.5}
    """
    answers = check_predictions(predictions).select(pl.exclude("^reward.*$"))
    if (target := find_target(answers)) != "disruption":
        raise PredictionsError(
            f"the predictions are about {target}. Give predictions about disruption, which has a CD index."
        )
    scores = require_columns(
        papers, EXAMPLE, frame_name="papers", stage="measure_at_thresholds", columns=[_ID, "cd_index"]
    ).collect()
    known = scores[_ID]
    if _ID not in answers.columns or known.is_duplicated().any() or answers.join(scores, _ID, "anti").height:
        raise PredictionsError(
            "papers lacks a paper of the predictions, or repeats one. Give the split that was evaluated."
        )
    found: dict[str, dict[str, float]] = {}
    for name, cut in thresholds.items():
        labels = compute_disruption_labels(scores, cut).select(_ID, gold="disruption_label").collect()
        judged = answers.drop("gold").join(labels, on=_ID, maintain_order="left").drop_nulls("gold")
        found[name] = measure_predictions(judged)
    return found
