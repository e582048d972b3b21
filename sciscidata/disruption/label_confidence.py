"""How sure a disruption label is: the probability that the same work, cited anew, gets it again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array, Int64Array, read_only
from sciscidata._support.parallel import run_all
from sciscidata.disruption.label_chances import chances_of_rates, write_chances
from sciscidata.disruption.label_prior import COUNTS, LabelPrior, choose_prior, classes_of, count_citers, fit_prior
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.frames import AnyFrame
from sciscidata.judged import WINDOW_COMPLETE, Population, choose_population, is_cited
from sciscidata.label_thresholds import FIELD_YEAR, LABELS_BY_INDEX, LabelThresholds, compute_disruption_labels
from sciscidata.options.checks import check_value, checked_config
from sciscidata.options.did_you_mean import refuse_gone
from sciscidata.schemas import CD_SCORES, EXAMPLE, require_columns

_PAIRS = 16
_COLUMNS: Final = ("label_confidence", *(f"p_{label}" for label in LABELS_BY_INDEX))
_ROWS_AT_ONCE = 1 << 17
_ROWS_SEARCHED = 2_000
_STARTS = 128
_ROOT = 1.1347241384015194  # of x^6 = x + 1

_Rule = tuple[float, Float64Array, Float64Array]  # expected macro-F1, factors and handicaps of the classes


_refuse_by = refuse_gone(by="There is one prior, that of all works. For a prior within groups, call it for each group.")


@_refuse_by
def compute_label_confidence(
    scores: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    prior: LabelPrior | None = None,
    shrink: bool = True,
) -> pl.LazyFrame:
    """Add the probability that a work gets its disruption label again if it is cited anew, and that of each label.

    By default a redraw has as many citers as one sample says about another: s is negative binomial with mean n_i + n_j
    and twice that variance, at least 1, and so is n_k, which may be 0. How many of the s are of n_i is beta-binomial:
    the work's own n_i and n_j, and a beta prior, that of all works whose n_k has as many digits. Give it as ``prior``,
    or give all works. Rows that cannot be all works take the one that comes with the package, and the log says so:
    fewer than 100 works with one to eight citers, rows with a ``split``, all indices on one side of 0, or far too many
    or too few works of one label.

    Without ``shrink``, n_i, n_j and n_k are independent Poisson counts whose means are the observed ones. This takes
    what was observed for the truth, so it is too sure of small counts. Redraws without a later work have no label and
    are left out. What later years do to a label is another question: ``indicators.find_label_ageing``.

    Args:
        scores: CD_SCORES; work_id may be missing, and other columns pass through. Labels by rank also need
            ``primary_field`` and ``publication_year``. Counts of another window: rename its columns.
        thresholds: ``LabelThresholds()`` when None.
        prior: what ``indicators.find_label_prior`` found for all works. A work then has the same confidence alone as
            among others, to the last bit. None: estimated from ``scores``.
        shrink: whether small counts shrink towards those of all works.

    Returns:
        The rows of ``scores`` in their order. ``label_confidence`` (Float64, 0 to 1) is the probability of the work's
        own label, ``p_consolidating``, ``p_neutral`` and ``p_disruptive`` (Float64) that of each; they add up to 1.
        All are null where ``cd_index`` is null or NaN. For labels by rank they add up to the probability of any label,
        and are null in cells without cut-offs. Off by less than 1e-9 where n_k is below 256 or has no say in the label,
        else by less than 1e-5.

    Raises:
        SchemaMismatchError: when called, if a column is missing or has another type.
        ConfigError: when called, if ``thresholds`` are none, ``prior`` is none, or ``shrink=False`` has a prior.

    Memory: all rows.

    Source: this project's. See docs/measures/label_confidence_evidence.md for what it predicts.

    Example:
        >>> scores = pl.LazyFrame({"n_i": [0, 0], "n_j": [1, 12], "n_k": [30, 30], "cd_index": [-1 / 31, -12 / 42]},
        ...     schema_overrides={name: pl.UInt32 for name in ("n_i", "n_j", "n_k")})
        >>> compute_label_confidence(scores, shrink=False).select(pl.col("^label.*|p_.*$").round(3)).collect().rows()
        [(0.632, 0.632, 0.368, 0.0), (1.0, 1.0, 0.0, 0.0)]
    """
    stage = "compute_label_confidence"
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    check_value("prior", prior, LabelPrior | None)
    if prior is not None and not shrink:
        raise ConfigError("shrink=False takes counts as they are, without a prior. Leave out one of both.")
    known, needed = pl.Schema({**EXAMPLE, **CD_SCORES}), [*COUNTS, *cut.cell_columns]
    frame = require_columns(scores, known, frame_name="CD_SCORES", stage=stage, columns=needed)
    result = pl.Struct(dict.fromkeys(_COLUMNS, pl.Float64))
    is_draw = "split" in frame.collect_schema()

    def score(series: pl.Series) -> pl.Series:
        rows = series.struct.unnest()
        known = prior or (choose_prior(rows, is_draw=is_draw) if shrink else None)
        return _score(rows, cut, known).to_struct(series.name)

    chances = pl.struct(needed).map_batches(score, return_dtype=result)
    whole = _COLUMNS[0]  # unnest one column: fields taken one by one would score all rows for each
    return frame.drop(_COLUMNS, strict=False).with_columns(chances.alias(whole)).unnest(whole)


class LabelCeiling(NamedTuple):
    """The most that a predictor of labels can reach, 0 to 1, as ``find_label_ceiling`` finds it in ``works``."""

    accuracy: float
    macro_f1: float
    works: int


@_refuse_by
def find_label_ceiling(
    scores: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    shares: Mapping[str, float] | None = None,
    prior: LabelPrior | None = None,
    population: Population = "judged",
) -> LabelCeiling:
    """Find the highest expected accuracy and macro-F1 of any predictor of disruption labels, however good.

    A label is a draw: of two works that are cited at the same rates, one may be disruptive and one neutral. The best
    predictor knows both rates of each work, of n_i and of n_j, and still errs. Rates are not known. So each work counts
    with 16 pairs of rates that its counts leave possible, by the same prior as in ``compute_label_confidence``; their
    labels come from Poisson counts with at least one citer, and n_k as observed for a rate.

    The highest accuracy is that of the likeliest label of each pair of rates. The highest macro-F1 is searched: the
    best predictor gives each label a factor and a handicap. Both are those of expectations: a set of n works scatters
    around them by about 0.5 / sqrt(n). In worlds of 20,000 works they were right to 0.02 where shares of n_i are like
    those of real works, and to 0.06 in any (eight families of worlds).

    Args:
        scores: CD_SCORES of all works that may be drawn. Works without an index or a citer are left out, and with
            ``window_complete``, as ``compute_cd_index`` has it, those whose window is not over.
        thresholds: ``LabelThresholds()`` when None.
        shares: the share of each label among the works to be predicted, if they are drawn by label:
            ``{"disruptive": 1 / 3, ...}`` for a balanced release. None: as in ``scores``.
        prior: what ``indicators.find_label_prior`` found for all works. None: estimated from ``scores``.
        population: ``"all"`` counts open windows, too.

    Raises:
        SchemaMismatchError: if a column is missing or has another type.
        EmptyInputError: if no work has an index and a citer.
        ConfigError: if ``shares`` do not sum to 1, or name another label, or one that no work has; or the labels are by
            rank.

    Source: this project's.

    Example:
        >>> scores = pl.DataFrame({"n_i": [0, 1, 9], "n_j": [40, 2, 0], "n_k": [9, 9, 9], "cd_index": [-.8, -.1, .5]},
        ...     schema_overrides={name: pl.UInt32 for name in ("n_i", "n_j", "n_k")})
        >>> 0.5 < find_label_ceiling(scores).accuracy < 1
        True
    """
    if shares is not None:
        shares = check_shares(shares)
    check_value("prior", prior, LabelPrior | None)
    return redraw_labels(scores, thresholds, prior=prior, population=population).find_ceiling(shares)


def check_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Return shares of labels; a ConfigError says what they sum to if that is not 1."""
    found = check_value("shares", dict(shares), dict[str, float])
    if abs(sum(found.values()) - 1) > 0.01:
        raise ConfigError(f"shares holds {found}, needs shares that sum to 1: these sum to {sum(found.values()):g}.")
    return found


class Redraws(NamedTuple):
    """How likely each label is for works that are cited anew, at 16 pairs of rates that their counts leave possible.

    ``chances`` are (works, 16, 3) in label order. ``counts`` has all works of each label, of which these may be a part.
    """

    labels: pl.Series
    chances: Float64Array
    counts: dict[str, int]

    def find_confidence(self) -> Float64Array:
        """Return how likely each work gets its own label again, the mean over its rates."""
        places = self.labels.replace_strict({label: at for at, label in enumerate(LABELS_BY_INDEX)}).to_numpy()
        return self.chances[np.arange(places.size), :, places].mean(axis=1)

    def find_ceiling(self, shares: Mapping[str, float] | None = None) -> LabelCeiling:
        """Find the ceiling for works drawn by ``shares``, as in ``find_label_ceiling``."""
        there = dict(self.labels.value_counts().iter_rows())
        stands_for = {label: self.counts[label] / n for label, n in there.items()}
        works = self.labels.replace_strict(stands_for, return_dtype=pl.Float64).to_numpy()
        weights = np.ones(3)
        if shares is not None:
            weights = _weigh(self.counts, shares)
        weighed = self.chances * (works[:, None, None] * weights)
        return LabelCeiling(*best_expected(weighed.reshape(-1, 3)), sum(self.counts.values()))


def redraw_labels(
    scores: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    most: int | None = None,
    prior: LabelPrior | None = None,
    population: Population = "judged",
) -> Redraws:
    """Spread works over 16 pairs of rates each, at most the first ``most`` of a label. See ``find_label_ceiling``."""
    from sciscidata.disruption._exact_label_kernels import Cuts
    from sciscidata.disruption._label_kernels import spread_rates

    stage = "find_label_ceiling"
    frame = require_columns(scores, CD_SCORES, frame_name="CD_SCORES", stage=stage, columns=COUNTS)
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    if cut.cells:
        raise ConfigError(
            f"{stage}: the ceiling of labels by rank is not known. Give thresholds without LabelThresholds.cells."
        )
    if WINDOW_COMPLETE in frame.collect_schema():
        frame, _ = choose_population(frame, "cd_index", population, stage)
    labelled = compute_disruption_labels(frame.filter(is_cited()), cut)
    rows = labelled.drop_nulls("disruption_label").select("disruption_label", *COUNTS).collect()
    if rows.is_empty():
        over = (
            ", and its window is over" if population == "judged" and WINDOW_COMPLETE in frame.collect_schema() else ""
        )
        raise EmptyInputError(
            f"{stage}: no work has a CD index and a citer in the window{over}. Give all scored works."
        )
    n_i, n_j, n_k = (rows[name].to_numpy() for name in ("n_i", "n_j", "n_k"))
    cell, ab = classes_of(n_k), (prior or fit_prior(count_citers(rows))).of_classes()
    counts = dict(rows["disruption_label"].value_counts().iter_rows())
    at = rows.select(pl.arg_sort_by(*COUNTS)).to_series()  # sums and searches do not depend on the order
    if most is not None:
        is_first = rows.select(pl.int_range(pl.len()).over("disruption_label") < most).to_series()
        at = at.filter(is_first[at])
    rows, at = rows[at], at.to_numpy()
    n_i, n_j, n_k, cell = n_i[at], n_j[at], n_k[at], cell[at]
    chances = np.empty((rows.height, _PAIRS, 3))
    cuts = Cuts(float(cut.consolidating_max), float(cut.disruptive_min), cut.inclusive)

    def work(span: tuple[int, int]) -> None:
        part = slice(*span)
        rates = np.empty((span[1] - span[0], _PAIRS, 2))
        spread_rates(n_i[part], n_j[part], cell[part], ab, rates)
        found = chances_of_rates(rates.reshape(-1, 2), np.repeat(n_k[part], _PAIRS), cuts)
        chances[part] = found.reshape(chances[part].shape)

    run_all(work, pairwise([*range(0, rows.height, 1 << 12), rows.height]), pl.thread_pool_size())
    return Redraws(rows["disruption_label"], chances, counts)


def best_expected(chances: Float64Array) -> tuple[float, float]:
    """Find the highest expected accuracy (exact) and macro-F1 for rows of three class probabilities, of any sum."""
    return float(chances.max(axis=1).sum() / chances.sum()), find_best_rule(chances)[0]


def find_best_rule(chances: Float64Array) -> _Rule:
    """Find the rule with the highest expected macro-F1 for rows of three class probabilities.

    A rule says the class with the largest ``factor * chance - handicap * (sum of chances)``. The best one for any
    function of the table of labels and predictions has this form. Its factors and handicaps are the slopes of the
    function there. So each step takes the slopes at the last one, and macro-F1 climbs. There are several peaks: 128
    evenly spread tables are tried on a part of the rows, and the best of them climb. In 36 random worlds the result was
    at most 0.0006 below the best of 500 random starts. Source of the spread: Roberts 2018, "The unreasonable
    effectiveness of quasirandom sequences".
    """
    every = np.ascontiguousarray(chances.T)
    step = -(-len(chances) // _ROWS_SEARCHED)
    part = np.ascontiguousarray(every[:, :: step | 1 if step > 1 else 1])  # odd, since each work has 16 rows
    spread = (0.5 + np.outer(np.arange(1.0, _STARTS + 1), _ROOT ** -np.arange(1.0, 6))) % 1
    shares = np.diff(np.sort(spread[:, :2], axis=1), axis=1, prepend=0, append=1)
    sizes = part.sum() * shares + part.sum(axis=1)
    starts = [(2 / size, f1 / size) for size, f1 in zip(sizes, spread[:, 2:], strict=True)]
    starts.sort(key=lambda start: _judge(part, *start)[0])
    peaks = sorted((_climb(part, *start) for start in starts[-_STARTS // 8 :]), key=itemgetter(0))
    return max((_climb(every, *peak[1:]) for peak in peaks[-2:]), key=itemgetter(0))


def _judge(chances: Float64Array, factor: Float64Array, handicap: Float64Array) -> _Rule:
    """Return the expected macro-F1 of a rule, and its slopes; ``chances`` are (classes, rows)."""
    total, actual = chances.sum(axis=0), chances.sum(axis=1)
    said = (chances * factor[:, None] - handicap[:, None] * total).argmax(axis=0)
    right = np.bincount(said, chances[said, np.arange(said.size)], actual.size)
    size = np.maximum(np.bincount(said, total, actual.size) + actual, 1e-300)
    f1 = 2 * right / size
    return float(f1[actual > 0].mean()), 2 / size, f1 / size


def _climb(chances: Float64Array, factor: Float64Array, handicap: Float64Array) -> _Rule:
    best = (-1.0, factor, handicap)
    while True:
        macro_f1, *slopes = _judge(chances, factor, handicap)
        if not macro_f1 > best[0]:
            return best
        best = (macro_f1, factor, handicap)
        factor, handicap = slopes


def _weigh(counts: Mapping[str, int], shares: Mapping[str, float]) -> Float64Array:
    """Return by how much more often a work of each label is drawn than it occurs, in the order of the chances."""
    unknown = [label for label, share in shares.items() if share and label not in counts]
    if unknown or not sum(shares.values()) > 0:
        raise ConfigError(
            f"shares holds {dict(shares)}, needs shares of labels that a work has: {', '.join(sorted(counts))}."
        )
    return np.array([shares.get(label, 0) / counts.get(label, 1) for label in LABELS_BY_INDEX])


def _score(rows: pl.DataFrame, cut: LabelThresholds, prior: LabelPrior | None) -> pl.DataFrame:
    """Return the chances of every row; those of plain counts without a prior."""
    from sciscidata.disruption._exact_label_kernels import Cuts
    from sciscidata.disruption._label_kernels import Works

    n_i, n_j, n_k = (rows[name].fill_null(0).to_numpy() for name in ("n_i", "n_j", "n_k"))
    cd_index = rows["cd_index"].fill_null(float("nan")).to_numpy()
    shrink = prior is not None
    cell, ab = (classes_of(n_k), prior.of_classes()) if prior else (np.zeros(rows.height, np.int64), np.zeros((1, 2)))
    columns = np.full((len(_COLUMNS), rows.height), np.nan) if cut.cells else np.empty((len(_COLUMNS), rows.height))

    def find(at: slice | Int64Array, cuts: tuple[float, float, bool], into: Float64Array) -> None:
        one, both, other = (read_only(column[at]) for column in (n_i, n_j, n_k))
        works = Works(one, both, other, read_only(cd_index[at]), read_only(cell[at]))
        low, high, inclusive = cuts
        write_chances(works, ab, Cuts(float(low), float(high), inclusive), into, shrink=shrink)

    def work(span: tuple[int, int]) -> None:
        part = slice(*span)
        find(part, (cut.consolidating_max, cut.disruptive_min, cut.inclusive), columns[:, part])

    def work_by_rank(of_cell: tuple[str, list[int]]) -> None:
        at = np.array(of_cell[1])
        low, first, last, high = cut.cells[of_cell[0]]
        ends, middle = np.empty((2, len(_COLUMNS), at.size))
        find(at, (low, high, True), ends)
        find(at, (first, last, False), middle)
        cd, chances = cd_index[at], [ends[1], middle[2], ends[3]]
        own = np.select([cd <= low, (first <= cd) & (cd <= last), cd >= high], chances, np.nan)
        columns[:, at] = [own, *chances]

    n_threads = pl.thread_pool_size()
    if cut.cells:
        rows_of = rows.select(FIELD_YEAR, at=pl.int_range(pl.len())).group_by("field_year").agg("at")
        known = [(name, at) for name, at in rows_of.iter_rows() if name in cut.cells]
        run_all(work_by_rank, known, n_threads)
    else:
        step = max(_ROWS_AT_ONCE, -(-rows.height // n_threads))  # in one piece, works share most of what is computed
        run_all(work, pairwise([*range(0, rows.height, step), rows.height]), n_threads)
    return pl.DataFrame(dict(zip(_COLUMNS, columns, strict=True))).fill_nan(None)
