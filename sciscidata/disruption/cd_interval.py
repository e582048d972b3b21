"""How sure the CD index itself is: the interval in which it lies if the same work is cited anew, and its mean there."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist
from typing import Annotated, Final

import msgspec
import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array, read_only
from sciscidata._support.parallel import run_all
from sciscidata.disruption.label_prior import COUNTS, LabelPrior, choose_prior, classes_of
from sciscidata.frames import AnyFrame
from sciscidata.options.checks import check_value
from sciscidata.schemas import CD_SCORES, require_columns

_COLUMNS: Final = ("cd_low", "cd_high", "cd_shrunk")
_AT_ONCE: Final = 1 << 12  # works; they come sorted, and those at the end have many citers
_Level = Annotated[float, msgspec.Meta(gt=0, lt=1)]


def compute_cd_interval(scores: AnyFrame, *, level: float = 0.95, prior: LabelPrior | None = None) -> pl.LazyFrame:
    """Add the interval in which the CD index of a work lies if it is cited anew, and its mean there.

    The redraw is that of ``compute_label_confidence``: as many citers as one sample says about another, at least one,
    a beta-binomial share of n_i, and n_k. So it is not the interval of a hidden true index, which is narrower: it holds
    what another sample of citers would give. Redraws without a citer do not count, since they have no index, or one of
    0 for lack of citers. A work without a citer is taken to get its first ones.

    Args:
        scores: CD_SCORES; work_id may be missing, and other columns pass through. Counts of another window: rename its
            columns.
        level: the part of all redraws that the interval holds, 0 to 1.
        prior: as in ``compute_label_confidence``.

    Returns:
        The rows of ``scores`` in their order, with ``cd_low``, ``cd_high`` and ``cd_shrunk`` (Float64, -1 to 1). At
        most (1 - level) / 2 of the redraws lie below ``cd_low``, and as many above ``cd_high``. Both are indices of a
        redraw, or further out by at most 0.1 % of their size. ``cd_shrunk`` is the mean of the redraw, which the
        prior draws towards what is usual. All are null where ``cd_index`` is null or NaN.

    Raises:
        SchemaMismatchError: when called, if a column is missing or has another type.
        ConfigError: when called, if ``level`` is not between 0 and 1, or ``prior`` is none.

    Memory: all rows. Works with equal counts are computed once.

    Source: this project's. See benchmarks/notes/label_confidence.md for how often the index of other citers lies in it.

    Example:
        >>> from sciscidata import compute_cd_index, scan_example
        >>> scores = compute_cd_index(*scan_example()[:2]).drop_nulls("cd_index")
        >>> sure = compute_cd_interval(scores, level=0.8).filter(pl.col("n_j") == 5).sort("work_id").head(1)
        >>> sure.select("n_i", "n_j", "n_k", pl.col("^cd_.*$").round(3)).collect().row(0)
        (0, 5, 133, -0.036, -0.059, -0.007, -0.031)
    """
    stage = "compute_cd_interval"
    level = check_value("level", level, _Level)
    check_value("prior", prior, LabelPrior | None)
    frame = require_columns(scores, CD_SCORES, frame_name="CD_SCORES", stage=stage, columns=COUNTS)
    is_draw = "split" in frame.collect_schema()

    def find(series: pl.Series) -> pl.Series:
        rows = series.struct.unnest()
        known = prior or choose_prior(rows, is_draw=is_draw)
        return _find_intervals(rows, level, known).to_struct(series.name)

    result, whole = pl.Struct(dict.fromkeys(_COLUMNS, pl.Float64)), _COLUMNS[0]
    found = pl.struct(COUNTS).map_batches(find, return_dtype=result).alias(whole)
    return frame.drop(_COLUMNS, strict=False).with_columns(found).unnest(whole)


def _find_intervals(rows: pl.DataFrame, level: float, prior: LabelPrior) -> pl.DataFrame:
    """Return the ends and the mean of every row."""
    from sciscidata.disruption import _interval_kernels as kernels
    from sciscidata.disruption._exact_label_kernels import EXACT_K
    from sciscidata.disruption._label_kernels import Works, room_for

    counts = ["n_i", "n_j", "n_k"]
    is_known = pl.col("cd_index").is_not_nan()  # null stays null
    works = rows.filter(is_known).select(counts).unique().sort(counts)
    n_i, n_j, n_k = (works[name].to_numpy() for name in counts)
    cell, ab, ends = classes_of(n_k), prior.of_classes(), np.empty((2, works.height))

    tail = (1 - level) / 2
    z = NormalDist().inv_cdf(1 - tail)

    def work(span: tuple[int, int]) -> None:
        part = slice(*span)
        most = int((n_i[part].astype(np.int64) + n_j[part]).max(initial=0))
        one, both, other = (read_only(column[part]) for column in (n_i, n_j, n_k))
        some = Works(one, both, other, read_only(np.empty(0)), read_only(cell[part]))
        kernels.index_ends(some, ab, tail, z, (room_for(most, 0.5), room_for(EXACT_K, 0.5)), ends[:, part])

    run_all(work, pairwise([*range(0, works.height, _AT_ONCE), works.height]), pl.thread_pool_size())
    shrunk = find_means(works, prior)
    found = works.with_columns(pl.Series(name, x) for name, x in zip(_COLUMNS, (*ends, shrunk), strict=True))
    joined = rows.join(found, on=counts, how="left", maintain_order="left")
    return joined.select(pl.when(is_known).then(pl.col(name)).alias(name) for name in _COLUMNS)


def find_means(works: pl.DataFrame, prior: LabelPrior) -> Float64Array:
    """Return the mean index of redraws with a citer, by n_i, n_j and n_k.

    It is the mean of s / (s + k), times the difference of the shares of n_i and n_j. Of the generating functions
    (2 - t)^-n of s and (2 - t)^-k, the first is the integral of n (2 - t)^(-n - k - 1) over t from 0 to 1, by the
    chance of a citer.
    """
    n_i, n_j, n_k = (works[name].to_numpy().astype(np.float64) for name in ("n_i", "n_j", "n_k"))
    of_class = prior.of_classes()[classes_of(n_k)]
    a, b = n_i + of_class[:, 0], n_j + of_class[:, 1]
    n, log = n_i + n_j, math.log(2)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_citers = np.where(n > 0, n / -np.expm1(-n * log), 1 / log)
        of_all = np.where(n + n_k > 0, -np.expm1(-(n + n_k) * log) / (n + n_k), log)
    return (a - b) / (a + b) * of_citers * of_all
