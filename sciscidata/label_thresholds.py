"""The only thresholds of the project, for disruption and for novelty, and the labels that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Final, Literal

import msgspec
import numpy as np
import polars as pl

from sciscidata._support.quantiles import lower_quantile
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.frames import AnyFrame
from sciscidata.options.checks import Configuration, Share, check_value, checked_config
from sciscidata.schemas import ATYPICALITY, CD_SCORES, EXAMPLE, WORKS, require_columns

#: The vocabularies, in label order: the order in which class quotas hand out what does not divide evenly.
DISRUPTION_LABELS: Final = ("disruptive", "consolidating", "neutral")
NOVELTY_LABELS: Final = ("novel", "balanced", "conventional")
#: The disruption labels by rising ``cd_index``.
LABELS_BY_INDEX: Final = ("consolidating", "neutral", "disruptive")

#: Which values a label column may hold.
VOCABULARIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"disruption_label": DISRUPTION_LABELS, "novelty_label": NOVELTY_LABELS}
)

#: The cell of a work (String): its field, and the first of its five publication years.
FIELD_YEAR: Final = pl.concat_str(
    pl.col("primary_field").fill_null(""),
    (pl.col("publication_year") // 5 * 5).cast(pl.String).fill_null(""),
    separator=" ",
).alias("field_year")
#: The columns of the index, by what they end with.
_INDEX: Final = re.compile(r"cd_index((?:_(?:[0-9]+(?:d|mo)?|until[0-9]+|all))?)")
_CELL: Final = ("primary_field", "publication_year")
_FEWEST: Final = 50  # works with a citer, for a cell to have ranks

#: The most by which a difference of doubles misses that of the printed numbers, as a share of their sizes.
_ROUNDING: Final = 2.0**-50


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class LabelThresholds(Configuration):
    """Where one label ends and the next begins.

    Attributes:
        consolidating_max: highest CD index that is consolidating.
        disruptive_min: lowest CD index that is disruptive.
        inclusive: a CD index equal to a cut-off is already disruptive or consolidating. False: it is still neutral.
        novelty_margin: how far apart novelty and conventionality score must be, with the rule ``"margin"``; the margin
            itself is balanced. Numbers count as printed, so 0.5 and 0.35 differ by 0.15 exactly.
        novelty_rule: how novelty is labelled. ``"margin"``: by the distance of the two scores. ``"uzzi"``: by the two z
            as Uzzi et al. do; see compute_novelty_labels.
        uzzi_tail_max: highest z_p10 of tail novelty, itself excluded, with the rule ``"uzzi"``.
        uzzi_median_share: quantile of z_median over all scored works above which conventionality is high, with the rule
            ``"uzzi"``; 0.5 is the median.
        cells: labels by rank, in place of the first three options. By cell of field and five years ("Art 1990") they
            are four CD indices: the highest consolidating one, the lowest and the highest neutral one, and the lowest
            disruptive one. Works between them and in other cells have no label. ``LabelThresholds.fit`` finds them.
            Empty: no ranks.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or cut-offs are out of order (or equal while
            ``inclusive``, which would give one score two labels).

    Example:
        >>> LabelThresholds.preset("wide").disruptive_min
        0.1
        >>> LabelThresholds(disruptive_min=-0.5)
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: LabelThresholds.consolidating_max (-0.001) must lie below
        LabelThresholds.disruptive_min (-0.5). Swap or move them.
    """

    consolidating_max: float = -0.001
    disruptive_min: float = 0.001
    inclusive: bool = True
    novelty_margin: Annotated[float, msgspec.Meta(ge=0)] = 0.15
    novelty_rule: Literal["margin", "uzzi"] = "margin"
    uzzi_tail_max: float = 0.0
    uzzi_median_share: Share = 0.5
    cells: Mapping[str, tuple[float, float, float, float]] = field(
        default_factory=dict[str, tuple[float, float, float, float]],
        hash=False,
        repr=False,
        metadata={"python_only": True},
    )

    def _check(self) -> None:
        low, high = self.consolidating_max, self.disruptive_min
        if low > high or (low == high and self.inclusive):
            raise ConfigError(
                f"LabelThresholds.consolidating_max ({low}) must lie below LabelThresholds.disruptive_min ({high}). "
                "Swap or move them."
            )
        for cell, (low, first, last, high) in self.cells.items():
            if not low < first <= last < high:
                raise ConfigError(
                    f"LabelThresholds.cells of {cell!r} are {low}, {first}, {last} and {high}, needs each above the "
                    "one before; those of neutral may be equal. Fit them: LabelThresholds.fit(scores)."
                )

    @property
    def cell_columns(self) -> tuple[str, ...]:
        """The columns of WORKS that labels by rank need beside the score."""
        return _CELL if self.cells else ()

    @classmethod
    def fit(cls, scores: AnyFrame, share: float = 0.1) -> LabelThresholds:
        """Find the cut-offs of labels by rank: the lowest, the middle and the highest ``share`` of each cell.

        A cell is a primary field and five publication years (1990 to 1994). Only works with a citer are ranked, and
        where ``scores`` have window_complete, those whose window is over. Ties share a label, so a tenth may hold more.
        A cell with fewer than 50 such works has no cut-offs, and its works no label. Nor has one where ties let two
        shares overlap. A release keeps the cut-offs in its manifest, so further works do not move them.

        Args:
            scores: CD_SCORES of all works, with ``primary_field`` and ``publication_year``.
            share: of the works of a cell in each class, above 0 and up to 0.3.

        Raises:
            SchemaMismatchError: a column is missing or has another type.
            EmptyInputError: no cell has cut-offs.

        Example:
            >>> scores = pl.DataFrame({"n_i": 1, "n_j": 0, "cd_index": [x / 100 for x in range(100)]})
            >>> scores = scores.with_columns(primary_field=pl.lit("Art"), publication_year=1993)
            >>> LabelThresholds.fit(scores.cast({"n_i": pl.UInt32, "n_j": pl.UInt32})).cells
            {'Art 1990': (0.09, 0.45, 0.54, 0.9)}
        """
        from sciscidata.judged import WINDOW_COMPLETE, is_cited, is_judged  # readers of a release need none of it

        part = check_value("share", share, Annotated[float, msgspec.Meta(gt=0, le=0.3)])
        stage, known = "LabelThresholds.fit", pl.Schema({**CD_SCORES, **{name: WORKS[name] for name in _CELL}})
        needed = ["n_i", "n_j", "cd_index", *_CELL]
        frame = require_columns(scores, known, frame_name="CD_SCORES", stage=stage, columns=needed)
        cd = pl.col("cd_index").fill_nan(None)
        low, last = (cd.quantile(at, "lower") for at in (part, 0.5 + part / 2))
        first, high = (cd.quantile(at, "higher") for at in (0.5 - part / 2, 1 - part))
        cells = (
            frame.filter(cd.is_not_null(), is_judged() if WINDOW_COMPLETE in frame.collect_schema() else is_cited())
            .group_by(FIELD_YEAR)
            .agg(pl.len(), low=low, first=first, last=last, high=high)
            .filter(pl.col("len") >= _FEWEST, pl.col("low") < pl.col("first"), pl.col("last") < pl.col("high"))
            .filter(pl.col("first") <= pl.col("last"))
            .sort("field_year")
            .collect()
        )
        if cells.is_empty():
            raise EmptyInputError(
                f"{stage}: no cell of field and five years has {_FEWEST} works with a citer and three shares apart. "
                "Give the scores of all works, with their primary_field and publication_year."
            )
        return cls(cells={cell: tuple(cuts) for cell, _, *cuts in cells.iter_rows()})

    @classmethod
    def preset(cls, name: str) -> LabelThresholds:
        """Look up thresholds: ``"default"`` (inclusive ±0.001) or ``"wide"`` (the older, strict ±0.1).

        Raises:
            ConfigError: when called, if there is no such preset.

        Example:
            >>> LabelThresholds.preset("default") == LabelThresholds()
            True
        """
        return PRESETS[check_value("LabelThresholds.preset", name, Literal[*PRESETS])]


PRESETS: Final[Mapping[str, LabelThresholds]] = MappingProxyType(
    {
        "default": LabelThresholds(),
        "wide": LabelThresholds(consolidating_max=-0.1, disruptive_min=0.1, inclusive=False),
    }
)


def compute_labels(
    scores: AnyFrame, thresholds: LabelThresholds | None = None, *, cut: float | None = None
) -> pl.LazyFrame:
    """Add a label for each measure that the scores hold: ``disruption_label``, ``novelty_label``, or both.

    Disruption: the CD index against the two cut-offs of LabelThresholds, or those of the work's cell. Novelty, rule
    ``"margin"``: ``d = novelty_score - conventionality_score`` decides. The label is novel if d > ``novelty_margin``,
    conventional if d < -``novelty_margin``, else balanced. Numbers count as printed: 0.5 and 0.35 are balanced. Rule
    ``"uzzi"``: novel is tail novelty (z_p10 < ``uzzi_tail_max``) without high conventionality (z_median above the
    median of all rows). Conventional is the reverse; balanced is both or neither.

    Args:
        scores: CD_SCORES, ATYPICALITY, or both joined; other columns pass through. For the rule ``"uzzi"`` give all
            scored works, not a sample: the rule compares each work with all rows. For labels by rank add
            ``primary_field`` and ``publication_year``.
        thresholds: ``LabelThresholds()`` when None.
        cut: for the rule ``"uzzi"``, the z_median to compare with, if it is already known; found in ``scores`` when
            None.

    Returns:
        The rows of ``scores`` in their order. With a ``cd_index`` there is ``disruption_label`` (String: disruptive,
        consolidating, neutral), with a ``cd_index_10`` ``disruption_label_10``; by rank there is only the first. With
        novelty scores or z there is ``novelty_label`` (String: novel, balanced, conventional). A label is null where
        its score is null or NaN. Works that are not judged have labels, too: nearly all uncited ones are neutral. With
        the columns of compute_cd_index, a line of the log counts them. Another warns of an index beyond -1 to 1.

    Raises:
        SchemaMismatchError: when called, if there is no score, or a score is not Float64.

    Source: Uzzi et al. 2013, doi:10.1126/science.1240474, for the rule ``"uzzi"``; the other rule is this project's.

    Example:
        >>> row = {"cd_index": 0.5, "novelty_score": 0.1, "conventionality_score": 0.9}
        >>> compute_labels(pl.LazyFrame([row])).select("disruption_label", "novelty_label").collect().row(0)
        ('disruptive', 'conventional')
    """
    rule, stage = checked_config(thresholds, LabelThresholds, name="thresholds"), "compute_labels"
    there = require_columns(scores, {}, frame_name="scores", stage=stage).collect_schema()
    novelty = ("z_p10", "z_median") if rule.novelty_rule == "uzzi" else ("novelty_score", "conventionality_score")
    has_novelty = "novelty_score" in there or "z_p10" in there
    windows = [found[1] for name in there if (found := _INDEX.fullmatch(name))] or ([] if has_novelty else [""])
    windows = [""] if windows and rule.cells else windows  # ranks are those of one index
    indices = [f"cd_index{window}" for window in windows]
    known = EXAMPLE | CD_SCORES | ATYPICALITY | dict.fromkeys(indices, CD_SCORES["cd_index"])
    needed = [*indices, *(rule.cell_columns if indices else ()), *(novelty if has_novelty else ())]
    labelled = require_columns(scores, known, frame_name="scores", stage=stage, columns=needed)
    for window in windows:
        labelled = _label_disruption(labelled, rule, window)
    if has_novelty:
        labelled = compute_novelty_labels(labelled, rule, cut=cut)
    from sciscidata.judged import watch_labels  # readers of a release need none of it

    return watch_labels(labelled, indices, stage, is_lazy=isinstance(scores, pl.LazyFrame))


def compute_disruption_labels(scores: AnyFrame, thresholds: LabelThresholds | None = None) -> pl.LazyFrame:
    """Add ``disruption_label``, one of DISRUPTION_LABELS, from the unrounded ``cd_index``."""
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    needed, known = ["cd_index", *cut.cell_columns], pl.Schema({**EXAMPLE, **CD_SCORES})
    frame = require_columns(scores, known, frame_name="CD_SCORES", stage="compute_disruption_labels", columns=needed)
    return _label_disruption(frame, cut, "")


def _label_disruption(frame: pl.LazyFrame, cut: LabelThresholds, window: str) -> pl.LazyFrame:
    """Add the label of the window whose columns end with ``window``."""
    cd = pl.col(f"cd_index{window}").fill_nan(None)
    if cut.cells:
        low, first, last, high = (
            FIELD_YEAR.replace_strict([*cut.cells], cuts, default=None, return_dtype=pl.Float64)
            for cuts in zip(*cut.cells.values(), strict=True)
        )
        is_neutral = (first <= cd) & (cd <= last)
        label = _three_way(is_neutral, cd >= high, cd <= low, DISRUPTION_LABELS)
        return frame.with_columns(label.alias(f"disruption_label{window}"))
    if cut.inclusive:
        disruptive, consolidating = cd >= cut.disruptive_min, cd <= cut.consolidating_max
    else:
        disruptive, consolidating = cd > cut.disruptive_min, cd < cut.consolidating_max
    label = _three_way(cd.is_not_null(), disruptive, consolidating, DISRUPTION_LABELS)
    return frame.with_columns(label.alias(f"disruption_label{window}"))


def compute_novelty_labels(
    scores: AnyFrame, thresholds: LabelThresholds | None = None, *, cut: float | None = None
) -> pl.LazyFrame:
    """Add ``novelty_label``, one of NOVELTY_LABELS, from unrounded values by a rule that ``compute_labels`` states.

    By ``"margin"`` 28 to 93 % of the works of seven real graphs are conventional: pairs that occur occur often. By
    ``"uzzi"`` the works of high impact in Uzzi et al., of tail novelty and high conventionality, are balanced. Without
    ``cut``, of find_conventionality_cut, a streaming query holds all rows until it is known.
    """
    rule = checked_config(thresholds, LabelThresholds, name="thresholds")
    if rule.novelty_rule == "uzzi":
        frame = _require_z(scores, "compute_novelty_labels")
        return frame.with_columns(uzzi_label(*_uzzi_halves(rule, cut)).alias("novelty_label"))
    frame = require_columns(
        scores,
        EXAMPLE,
        frame_name="the novelty scores",
        stage="compute_novelty_labels",
        columns=["novelty_score", "conventionality_score"],
    )
    sign = pl.struct("novelty_score", "conventionality_score").map_batches(
        lambda scores: _compare_with_margin(scores, rule.novelty_margin), return_dtype=pl.Int8, is_elementwise=True
    )
    return frame.with_columns(_novelty_label(sign.is_not_null(), sign > 0, sign < 0).alias("novelty_label"))


def compute_uzzi_cells(scores: AnyFrame, thresholds: LabelThresholds | None = None) -> pl.LazyFrame:
    """Add the two halves of Uzzi's rule, ``has_tail_novelty`` and ``has_high_conventionality``; null where z is.

    Source: Uzzi et al. 2013, doi:10.1126/science.1240474, figure 3.
    """
    frame = _require_z(scores, "compute_uzzi_cells")
    tail, high = _uzzi_halves(checked_config(thresholds, LabelThresholds, name="thresholds"))
    return frame.with_columns(has_tail_novelty=tail, has_high_conventionality=high)


def uzzi_label(has_tail_novelty: pl.Expr, has_high_conventionality: pl.Expr) -> pl.Expr:
    """Return the label of Uzzi's rule as an expression; null where either half is null."""
    tail, high = has_tail_novelty, has_high_conventionality
    known = tail.is_not_null() & high.is_not_null()
    return _novelty_label(known, tail & ~high, high & ~tail)


def conventionality_cut(thresholds: LabelThresholds | None = None) -> pl.Expr:
    """Return, as an expression over all scored works, the z_median that high conventionality has to exceed."""
    # The lower of two neighbours in order: what exceeds it also exceeds any number between the two. It is a value of
    # the data, so no rounding of an interpolation can move a label.
    share = checked_config(thresholds, LabelThresholds, name="thresholds").uzzi_median_share
    # Drop the nulls: Polars adds their number to a rank before it rounds down, which may raise it.
    return pl.col("z_median").fill_nan(None).drop_nulls().quantile(share, interpolation="lower")


def find_conventionality_cut(scores: pl.LazyFrame, thresholds: LabelThresholds | None = None) -> float | None:
    """Find conventionality_cut in memory that does not grow with the works; None if no work has a z_median."""
    share = checked_config(thresholds, LabelThresholds, name="thresholds").uzzi_median_share
    return lower_quantile(scores.select("z_median"), share)


def count_labels(
    labelled: AnyFrame, column: str = "disruption_label", labels: tuple[str, ...] | None = None
) -> dict[str, int]:
    """Count the works of every class, in label order, without nulls. ``labels`` are classes beyond VOCABULARIES."""
    needed = {column: EXAMPLE.get(column, pl.String())}
    frame = require_columns(labelled, needed, frame_name="the labelled frame", stage="count_labels")
    counts = frame.group_by(column).len().collect()
    n_of = dict(zip(counts[column].to_list(), counts["len"].to_list(), strict=True))
    return {label: n_of.get(label, 0) for label in labels or VOCABULARIES[column]}


def _require_z(scores: AnyFrame, stage: str) -> pl.LazyFrame:
    columns = ["z_p10", "z_median"]
    return require_columns(scores, ATYPICALITY, frame_name="ATYPICALITY", stage=stage, columns=columns)


def _uzzi_halves(rule: LabelThresholds, cut: float | None = None) -> tuple[pl.Expr, pl.Expr]:
    """Say whether a work has tail novelty, and whether it has high conventionality; null where either z is unknown."""
    low, middle = (pl.col(name).fill_nan(None) for name in ("z_p10", "z_median"))
    known = low.is_not_null() & middle.is_not_null()
    tail, high = low < rule.uzzi_tail_max, middle > (conventionality_cut(rule) if cut is None else cut)
    return pl.when(known).then(tail), pl.when(known).then(high)


def _compare_with_margin(scores: pl.Series, margin: float) -> pl.Series:
    """Return 1, 0 or -1: how novelty less conventionality meets the margin, as printed: 0.5 - 0.35 is 0.15."""
    novelty, conventionality = (scores.struct.field(name).to_numpy() for name in scores.struct.fields)
    with np.errstate(invalid="ignore"):  # infinity minus infinity is unknown
        excess = novelty - conventionality
    sign = np.sign(excess) * (np.abs(excess) > margin)
    size = np.abs(novelty) + np.abs(conventionality) + margin
    near = np.isfinite(excess) & (np.abs(np.abs(excess) - margin) <= _ROUNDING * size)
    for row in np.flatnonzero(near):
        sign[row] = _compare_as_printed(float(novelty[row]), float(conventionality[row]), float(margin))
    return pl.Series(sign).fill_nan(None).cast(pl.Int8)


@lru_cache(1 << 16)  # scores of few digits repeat
def _compare_as_printed(novelty: float, conventionality: float, margin: float) -> int:
    excess, needed = Fraction(repr(novelty)) - Fraction(repr(conventionality)), Fraction(repr(margin))
    return (excess > needed) - (excess < -needed)


def _novelty_label(known: pl.Expr, novel: pl.Expr, conventional: pl.Expr) -> pl.Expr:
    first, middle, last = NOVELTY_LABELS
    return _three_way(known, novel, conventional, (first, last, middle))


def _three_way(known: pl.Expr, upper: pl.Expr, lower: pl.Expr, labels: tuple[str, str, str]) -> pl.Expr:
    above, below, between = labels
    return pl.when(upper).then(pl.lit(above)).when(lower).then(pl.lit(below)).when(known).then(pl.lit(between))
