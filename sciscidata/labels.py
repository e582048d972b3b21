"""The only thresholds in the project: scores in, the labels that a model has to predict out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import polars as pl

from sciscidata.errors import ConfigError
from sciscidata.schemas import CD_SCORES, EXAMPLE, require_columns

#: The vocabularies, in label order: the order in which class quotas hand out what does not divide evenly.
DISRUPTION_LABELS: Final = ("disruptive", "consolidating", "neutral")
NOVELTY_LABELS: Final = ("novel", "balanced", "conventional")

#: Which values a label column may hold.
VOCABULARIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"disruption_label": DISRUPTION_LABELS, "novelty_label": NOVELTY_LABELS}
)


def _finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        msg = f"{name} is {value!r}, needs a finite number."
        raise ConfigError(msg)
    return float(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelThresholds:
    """Where one label ends and the next begins.

    With ``inclusive`` a CD index equal to a cut-off is already disruptive or consolidating; without, it is
    still neutral. The novelty margin itself is always balanced.

    Raises:
        ConfigError: on construction, if a value is not a finite number, the two cut-offs are out of order
            (or equal while ``inclusive``, which would give one score two labels), or the margin is negative.

    Example:
        >>> LabelThresholds.preset("wide")
        LabelThresholds(consolidating_max=-0.1, disruptive_min=0.1, inclusive=False, novelty_margin=0.15)
        >>> LabelThresholds(disruptive_min=-0.5)
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: consolidating_max (-0.001) must lie below disruptive_min (-0.5). Swap
        or move them.
    """

    consolidating_max: float = -0.001
    disruptive_min: float = 0.001
    inclusive: bool = True
    novelty_margin: float = 0.15

    def __post_init__(self) -> None:
        if not isinstance(self.inclusive, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"inclusive is {self.inclusive!r}, needs true or false."
            raise ConfigError(msg)
        for name in ("consolidating_max", "disruptive_min", "novelty_margin"):
            object.__setattr__(self, name, _finite(name, getattr(self, name)))
        low, high = self.consolidating_max, self.disruptive_min
        if low > high or (low == high and self.inclusive):
            msg = f"consolidating_max ({low}) must lie below disruptive_min ({high}). Swap or move them."
            raise ConfigError(msg)
        if self.novelty_margin < 0:
            msg = f"novelty_margin is {self.novelty_margin}, needs 0 or more: it is a distance."
            raise ConfigError(msg)

    @classmethod
    def preset(cls, name: str) -> LabelThresholds:
        """Look up thresholds: ``"default"`` (inclusive ±0.001) or ``"wide"`` (the older, strict ±0.1).

        Raises:
            ConfigError: at once, if there is no such preset.

        Example:
            >>> LabelThresholds.preset("default") == LabelThresholds()
            True
        """
        if name not in tuple(PRESETS):  # compared, not hashed: anything may come from a file
            msg = f"no thresholds named {name!r}. Use one of: {', '.join(PRESETS)}."
            raise ConfigError(msg)
        return PRESETS[name]


PRESETS: Final[Mapping[str, LabelThresholds]] = MappingProxyType(
    {
        "default": LabelThresholds(),
        "wide": LabelThresholds(consolidating_max=-0.1, disruptive_min=0.1, inclusive=False),
    }
)


def label_disruption(scores: pl.LazyFrame | pl.DataFrame, thresholds: LabelThresholds | None = None) -> pl.LazyFrame:
    """Add ``disruption_label``, one of DISRUPTION_LABELS, from the unrounded CD index. Runs nothing.

    Args:
        scores: CD_SCORES, or any frame with its ``cd_index``; other columns pass through.
        thresholds: ``LabelThresholds()`` when None.

    Returns:
        The rows of ``scores``, in their order, with ``disruption_label`` String added or replaced; null where
        the score is null or NaN.

    Raises:
        SchemaMismatchError: at once, if ``cd_index`` is missing or not Float64.

    Example:
        >>> scores = pl.LazyFrame({"cd_index": [0.001, 0.0, -0.02, None]})
        >>> label_disruption(scores).collect()["disruption_label"].to_list()
        ['disruptive', 'neutral', 'consolidating', None]
    """
    frame = require_columns(scores, CD_SCORES, frame_name="CD_SCORES", stage="label_disruption", columns=["cd_index"])
    cut = thresholds or LabelThresholds()
    cd = pl.col("cd_index").fill_nan(None)
    if cut.inclusive:
        disruptive, consolidating = cd >= cut.disruptive_min, cd <= cut.consolidating_max
    else:
        disruptive, consolidating = cd > cut.disruptive_min, cd < cut.consolidating_max
    return frame.with_columns(_three_way(cd, disruptive, consolidating, DISRUPTION_LABELS, "disruption_label"))


def label_novelty(scores: pl.LazyFrame | pl.DataFrame, thresholds: LabelThresholds | None = None) -> pl.LazyFrame:
    """Add ``novelty_label``, one of NOVELTY_LABELS. Runs nothing.

    With d = novelty_score - conventionality_score: novel if d > ``novelty_margin``, conventional if
    d < -``novelty_margin``, else balanced.

    Args:
        scores: any frame with the two scores, Float64; other columns pass through.
        thresholds: ``LabelThresholds()`` when None.

    Returns:
        The rows of ``scores``, in their order, with ``novelty_label`` String added or replaced; null where
        either score is null or NaN.

    Raises:
        SchemaMismatchError: at once, if a score is missing or not Float64.

    Example:
        >>> scores = {"novelty_score": [0.9, 0.5, 0.1], "conventionality_score": [0.1, 0.5, 0.9]}
        >>> label_novelty(pl.LazyFrame(scores)).collect()["novelty_label"].to_list()
        ['novel', 'balanced', 'conventional']
    """
    frame = require_columns(
        scores,
        EXAMPLE,
        frame_name="the novelty scores",
        stage="label_novelty",
        columns=["novelty_score", "conventionality_score"],
    )
    margin = (thresholds or LabelThresholds()).novelty_margin
    excess = (pl.col("novelty_score") - pl.col("conventionality_score")).fill_nan(None)
    novel, conventional = excess > margin, excess < -margin
    first, middle, last = NOVELTY_LABELS
    return frame.with_columns(_three_way(excess, novel, conventional, (first, last, middle), "novelty_label"))


def count_labels(labelled: pl.LazyFrame | pl.DataFrame, column: str = "disruption_label") -> dict[str, int]:
    """Count the works of every class, in label order; classes without a work count 0. Runs the frame.

    Args:
        labelled: a frame with ``column``; nulls are not counted.
        column: ``"disruption_label"`` or ``"novelty_label"``.

    Raises:
        SchemaMismatchError: at once, if ``column`` is missing or not String.

    Example:
        >>> count_labels(pl.DataFrame({"disruption_label": ["neutral", "neutral", None, "disruptive"]}))
        {'disruptive': 1, 'consolidating': 0, 'neutral': 2}
    """
    frame = require_columns(labelled, EXAMPLE, frame_name="the labelled frame", stage="count_labels", columns=[column])
    counts = frame.group_by(column).len().collect()
    found = dict(zip(counts[column].to_list(), counts["len"].to_list(), strict=True))
    return {label: found.get(label, 0) for label in VOCABULARIES[column]}


def _three_way(score: pl.Expr, upper: pl.Expr, lower: pl.Expr, labels: tuple[str, str, str], name: str) -> pl.Expr:
    above, below, between = labels
    return (
        pl.when(upper)
        .then(pl.lit(above))
        .when(lower)
        .then(pl.lit(below))
        .when(score.is_not_null())
        .then(pl.lit(between))
        .alias(name)
    )
