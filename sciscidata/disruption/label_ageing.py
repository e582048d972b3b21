"""How a disruption label ages: the chance that it is the label of a later window, too, from older works of a corpus."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array, Int64Array
from sciscidata.disruption.label_confidence import compute_label_confidence
from sciscidata.disruption.label_prior import COUNTS, LabelPrior, choose_prior
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.judged import WINDOW_COMPLETE, is_judged, n_citers
from sciscidata.label_thresholds import LABELS_BY_INDEX, LabelThresholds, compute_disruption_labels
from sciscidata.options.checks import PositiveInt, check_value, checked_config
from sciscidata.schemas import CD_SCORES, WORKS, require_columns
from sciscidata.terminal.messages import counted

logger = logging.getLogger(__name__)

FEWEST_WORKS: Final = 30  # of a label, for its chances to be known
_BANDS: Final = 5  # of label confidence, equally wide
_WEIGHT: Final = 10  # works that the shares of a label count as, in each of its bands
_COLUMNS: Final = ("p_later_same", *(f"p_later_{label}" for label in LABELS_BY_INDEX))
_PLACE: Final = {label: place for place, label in enumerate(LABELS_BY_INDEX)}


class AgeingError(NamedTuple):
    """How well chances from the older half of the works hold for the later half, whose later labels are known.

    Attributes:
        works: later works.
        predicted: mean chance that the later label is the same, 0 to 1.
        observed: share of works whose later label is the same.
        calibration_error: how far predicted and observed are apart in ten bins of the chance, the mean over works.
        by_chance: what the calibration error would be on average if every chance were right.
        brier: mean square of the chance minus what came, 0 to 1.
        brier_of_base_rate: the same if every work had the share of the older works as its chance.
        sharpness: standard deviation of the chances.
    """

    works: int
    predicted: float
    observed: float
    calibration_error: float
    by_chance: float
    brier: float
    brier_of_base_rate: float
    sharpness: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelAgeing:
    """What became of the labels of older works in a later window, as ``find_label_ageing`` counts it.

    ``works`` published in ``first_year`` to ``last_year`` are counted (None: no work). ``errors`` has an AgeingError
    for ``"all"`` labels and for each; labels with fewer than 30 older works have none. ``counts`` are works by label,
    fifth of ``label_confidence`` and later label; labels are in the order consolidating, neutral, disruptive.
    ``thresholds``, ``window``, ``later`` and ``prior`` are those of the labels.
    """

    works: int
    first_year: int | None
    last_year: int | None
    errors: Mapping[str, AgeingError]
    counts: tuple[tuple[tuple[int, ...], ...], ...] = field(repr=False)
    thresholds: LabelThresholds = field(repr=False)
    window: str
    later: str
    prior: LabelPrior = field(repr=False)

    @property
    def chances(self) -> pl.DataFrame:
        """The fitted table: a row for each label and each fifth of its confidence.

        It has label (String), least_confidence (Float64, 0 to 0.8), works (Int64), and the columns of
        ``compute_later_label`` (Float64), null for labels with fewer than 30 works.
        """
        counts = np.array(self.counts)
        label = np.repeat(np.arange(len(LABELS_BY_INDEX)), _BANDS)
        chances = fit_chances(counts).reshape(label.size, -1)
        own = chances[np.arange(label.size), label]
        facts = {
            "label": [LABELS_BY_INDEX[place] for place in label],
            "least_confidence": np.tile(np.arange(_BANDS) / _BANDS, len(LABELS_BY_INDEX)),
            "works": counts.sum(axis=2).ravel(),
        }
        return pl.DataFrame(facts | dict(zip(_COLUMNS, (own, *chances.T), strict=True))).fill_nan(None)


def find_label_ageing(
    scores: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    window: str = "",
    later: str = "_10",
    years: PositiveInt | None = 10,
    prior: LabelPrior | None = None,
) -> LabelAgeing:
    """Find how often labels of older works are those of a later window, by label and by how sure the label was.

    ``label_confidence`` is that of other citers of the same years. It does not say what later years do to a label: the
    first citers stay, and later ones differ from them. This takes what became of older works of the same corpus. Works
    of each label are counted by fifth of ``label_confidence`` and by later label. In each fifth, the shares of the
    whole label count as 10 more works.

    Only judged works whose later window is over are counted, those of the last ten such years. For the error, all of
    these works are split by year into an older and a later half. Chances from the last ten years of the older half are
    compared with what came of the later half.

    Args:
        scores: what ``compute_cd_index`` returns for all works of a corpus with ``CDConfig(windows=(10,))``, joined
            with ``publication_year``.
        thresholds: those of both labels; ``LabelThresholds()`` when None. No ranks.
        window: how the columns of the known window end. "": that of ``CDConfig.window_years``.
        later: how those of the later window end. Its label is that of the whole window, from publication on.
        years: how many years are counted at most, since works of other times may age in another way. None: all.
        prior: as in ``compute_label_confidence``.

    Returns:
        A LabelAgeing for ``compute_later_label``. Labels with fewer than 30 works have no chances, and those with fewer
        in the older half no error; the log warns once of both. The same bits for any order of rows.

    Raises:
        SchemaMismatchError: if a column is missing or has another type.
        ConfigError: if ``later`` is no longer window, or the labels are by rank.

    Source: this project's. See docs/measures/label_ageing.md for its error on real graphs.

    Example:
        >>> from sciscidata import CDConfig, compute_cd_index, scan_example
        >>> works, citations, _ = scan_example()
        >>> scores = compute_cd_index(works, citations, CDConfig(windows=(10,))).join(
        ...     works.select("work_id", "publication_year"), on="work_id").collect()
        >>> ageing = find_label_ageing(scores)
        >>> ageing.works, round(ageing.errors["all"].predicted, 2), round(ageing.errors["all"].observed, 2)
        (469, 0.98, 0.94)
    """
    stage = "find_label_ageing"
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    if cut.cells:
        raise ConfigError(f"{stage}: ranks are those of one window. Give thresholds without LabelThresholds.cells.")
    check_value("prior", prior, LabelPrior | None)
    window, later = check_value("window", window, str), check_value("later", later, str)
    check_value("years", years, PositiveInt | None)
    known = pl.Schema({**_schema(window), **_schema(later), "publication_year": WORKS["publication_year"]})
    _require_windows(to_lazy(scores, "CD_SCORES", stage).collect_schema(), {"window": window, "later": later})
    frame = require_columns(scores, known, frame_name="CD_SCORES", stage=stage)
    every = frame.select(*known).collect()
    prior = prior or choose_prior(_rename(every, window), is_draw="split" in frame.collect_schema())
    rows = every.filter(is_judged(window), WINDOW_COMPLETE + later)  # a window without end is never over
    fewer = rows.filter(n_citers(later) < n_citers(window)).height
    if window == later or fewer:
        got = f": {counted(fewer, 'work')} had more citers in that" if fewer else ", which is the same"
        raise ConfigError(
            f"{stage}: later is {later!r}, needs a longer window than {window!r}{got}. Score both, "
            "CDConfig(window_years=5, windows=(10,)), and give later='_10'."
        )
    of_later = compute_disruption_labels(_rename(rows, later), cut).select(later=_place("disruption_label"))
    found = pl.concat([_find_cells(_rename(rows, window), cut, prior), of_later.collect()], how="horizontal")
    first_year, by_year = _count_by_year(found.with_columns(year=rows["publication_year"]).drop_nulls())
    end = first_year + len(by_year)
    half = _halve(by_year.sum(axis=(1, 2, 3)))
    kept = slice(None) if years is None else slice(-years, None)
    last_years, older = by_year[kept], by_year[:half][kept].sum(axis=0)
    counts = last_years.sum(axis=0)
    _warn_of_few(counts.sum(axis=(1, 2)), older.sum(axis=(1, 2)), later, is_tested=half < len(by_year))
    return LabelAgeing(
        works=int(counts.sum()),
        first_year=end - len(last_years) if len(last_years) else None,
        last_year=end - 1 if len(last_years) else None,
        errors=judge_chances(older, by_year[half:].sum(axis=0)),
        counts=tuple(tuple(map(tuple, of_label)) for of_label in counts.tolist()),
        thresholds=cut,
        window=window,
        later=later,
        prior=prior,
    )


def compute_later_label(scores: AnyFrame, ageing: LabelAgeing) -> pl.LazyFrame:
    """Add the chance that the label of a work is that of a later window, too, and the chance of each later label.

    Args:
        scores: what ``compute_cd_index`` returns; other columns pass through. Columns of the later window are not read.
        ageing: what ``find_label_ageing`` found for all works of the corpus.

    Returns:
        The rows of ``scores`` in their order, with ``p_later_same``, ``p_later_consolidating``, ``p_later_neutral`` and
        ``p_later_disruptive`` (Float64, 0 to 1); the last three add up to 1. They are null for works that are not
        judged, and for labels with fewer than 30 works in ``ageing``. They do not depend on the other rows.

    Raises:
        SchemaMismatchError: when called, if a column is missing or has another type.
        ConfigError: when called, if ``ageing`` is none.

    Memory: all rows.

    Source: this project's. See docs/measures/label_ageing.md.

    Example:
        >>> from sciscidata import CDConfig, compute_cd_index, scan_example
        >>> works, citations, _ = scan_example()
        >>> scores = compute_cd_index(works, citations, CDConfig(windows=(10,))).join(
        ...     works.select("work_id", "publication_year"), on="work_id").collect()
        >>> chances = compute_later_label(scores, find_label_ageing(scores))
        >>> young = chances.filter(~pl.col("window_complete_10")).drop_nulls("p_later_same")
        >>> young.select(pl.len(), pl.col("p_later_same").mean().round(2)).collect().row(0)
        (378, 0.96)
    """
    check_value("ageing", ageing, LabelAgeing)
    needed = _schema(ageing.window)
    frame = require_columns(scores, needed, frame_name="CD_SCORES", stage="compute_later_label")
    chances = fit_chances(np.array(ageing.counts))

    def find(series: pl.Series) -> pl.Series:
        rows = series.struct.unnest()
        cells = _find_cells(_rename(rows, ageing.window), ageing.thresholds, ageing.prior)
        is_known = rows.select(is_judged(ageing.window)).to_series() & cells["band"].is_not_null()
        label, band = cells.filter(is_known).to_numpy().T
        columns = np.full((len(_COLUMNS), rows.height), np.nan)
        columns[:, is_known.to_numpy()] = [chances[label, band, label], *chances[label, band].T]
        return pl.DataFrame(dict(zip(_COLUMNS, columns, strict=True))).fill_nan(None).to_struct(series.name)

    result, whole = pl.Struct(dict.fromkeys(_COLUMNS, pl.Float64)), _COLUMNS[0]
    found = pl.struct(*needed).map_batches(find, return_dtype=result).alias(whole)
    return frame.drop(_COLUMNS, strict=False).with_columns(found).unnest(whole)


def fit_chances(counts: Int64Array) -> Float64Array:
    """Return the chances of later labels from counts of works (label, band, later label); NaN for a label of few."""
    of_label = counts.sum(axis=1, keepdims=True)
    works = of_label.sum(axis=2, keepdims=True)
    shares = (of_label + 1 / len(_PLACE)) / (works + 1)  # never 0
    chances = (counts + _WEIGHT * shares) / (counts.sum(axis=2, keepdims=True) + _WEIGHT)
    return np.where(works >= FEWEST_WORKS, chances, np.nan)


def judge_chances(older: Int64Array, newer: Int64Array) -> dict[str, AgeingError]:
    """Return the errors of chances from older works on newer ones, of all labels that have chances, and of each."""
    at = np.arange(len(_PLACE))
    chance = fit_chances(older)[at, :, at]
    works, same = newer.sum(axis=2), newer[at, :, at]
    of_label, kept = older.sum(axis=(1, 2)), older[at, :, at].sum(axis=1)
    groups = {"all": at} | {label: at[[place]] for label, place in _PLACE.items()}
    errors: dict[str, AgeingError] = {}
    for name, labels in groups.items():
        some = labels[(of_label[labels] >= FEWEST_WORKS) & (works[labels].sum(axis=1) > 0)]
        if some.size:
            base = kept[some].sum() / of_label[some].sum()
            errors[name] = _judge(chance[some].ravel(), works[some].ravel(), same[some].ravel(), float(base))
    return errors


def _judge(chance: Float64Array, works: Int64Array, same: Int64Array, base: float) -> AgeingError:
    n = int(works.sum())
    predicted, observed = float(works @ chance) / n, float(same.sum()) / n
    bins = np.minimum((chance * 10).astype(np.int64), 9)
    gaps = np.abs(np.bincount(bins, works * chance - same))
    spread = np.sqrt(np.bincount(bins, works * chance * (1 - chance)))  # a normal sum is off by sqrt(2 / pi) of it

    def brier(p: Float64Array) -> float:
        return float(same @ (1 - p) ** 2 + (works - same) @ p**2) / n

    return AgeingError(
        works=n,
        predicted=predicted,
        observed=observed,
        calibration_error=float(gaps.sum()) / n,
        by_chance=math.sqrt(2 / math.pi) * float(spread.sum()) / n,
        brier=brier(chance),
        brier_of_base_rate=brier(np.full(chance.size, base)),
        sharpness=math.sqrt(float(works @ (chance - predicted) ** 2) / n),
    )


def _schema(window: str) -> pl.Schema:
    """Return the columns of a window that are read."""
    return pl.Schema({f"{name}{window}": CD_SCORES[name] for name in COUNTS} | {WINDOW_COMPLETE + window: pl.Boolean()})


def _require_windows(there: Collection[str], windows: Mapping[str, str]) -> None:
    """Raise SchemaMismatchError if a further window was not scored, with what to do instead of a list of columns."""
    scored = [name.removeprefix("n_i") for name in there if re.fullmatch(r"n_i(_\w+)?", name)]
    for option, window in windows.items():
        lacks = next((name for name in _schema(window) if name not in there), None)
        if lacks is None or not window:
            continue
        bare = window.removeprefix("_")
        if f"_{bare}" in scored:
            remedy = f"It begins with an underscore: {option}='_{bare}'."
        else:
            length = bare if bare.isdecimal() else "None" if bare == "all" else repr(bare)
            remedy = f"Score it, too: compute_cd_index(works, citations, CDConfig(windows=({length},)))"
            remedy += "." if window != bare else f", and give {option}='_{bare}', with an underscore."
        raise SchemaMismatchError(
            f"find_label_ageing: {option} is {window!r}, and CD_SCORES lacks column {lacks!r}; its windows are "
            f"{', '.join(map(repr, scored)) or 'none'}. {remedy}"
        )


def _rename(rows: pl.DataFrame, window: str) -> pl.DataFrame:
    return rows.select(pl.col(f"{name}{window}").alias(name) for name in COUNTS)


def _place(column: str) -> pl.Expr:
    return pl.col(column).replace_strict(_PLACE, default=None, return_dtype=pl.Int64)


def _find_cells(counts: pl.DataFrame, thresholds: LabelThresholds, prior: LabelPrior) -> pl.DataFrame:
    """Return the label and the fifth of its confidence of every row (Int64); null without an index."""
    sure = compute_label_confidence(compute_disruption_labels(counts, thresholds), thresholds, prior=prior)
    band = (pl.col("label_confidence") * _BANDS).floor().cast(pl.Int64).clip(0, _BANDS - 1)
    return sure.select(label=_place("disruption_label"), band=band).collect()


def _count_by_year(cells: pl.DataFrame) -> tuple[int, Int64Array]:
    """Return the first year, and counts of it and the years that follow (years, label, band, later label)."""
    year, *places = (cells[name].to_numpy() for name in ("year", "label", "band", "later"))
    if not year.size:
        return 0, np.zeros((0, len(_PLACE), _BANDS, len(_PLACE)), np.int64)
    first = int(year.min())
    counts = np.zeros((int(year.max()) - first + 1, len(_PLACE), _BANDS, len(_PLACE)), np.int64)
    np.add.at(counts, (year - first, *places), 1)
    return first, counts


def _halve(works: Int64Array) -> int:
    """Return how many of the first years hold as near to half of the works as can be, and leave a year."""
    return int(np.abs(2 * works[:-1].cumsum() - works.sum()).argmin()) + 1 if works.size > 1 else works.size


def _warn_of_few(works: Int64Array, older: Int64Array, later: str, *, is_tested: bool) -> None:
    few = [
        f"{label} has {works[place]:,} and {older[place]:,}"
        for label, place in _PLACE.items()
        if works[place] < FEWEST_WORKS or older[place] < FEWEST_WORKS
    ]
    if few or not is_tested:
        logger.warning(
            "find_label_ageing: a label needs %d judged works whose window %r is over for its chances, and %d in the "
            "older half of the years for its error%s. What is not known is null. Give works of more years, or a "
            "shorter window: CDConfig(windows=(8,)) and later='_8'.",
            *(FEWEST_WORKS, later, FEWEST_WORKS),
            f". Here {', '.join(few)}" if few else ", and all of them are of one year",
        )
