"""How sure a disruption label is: the probability that the same work, cited anew, gets it again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray, Float64Array, Int64Array
from sciscidata._support.parallel import run_all
from sciscidata._support.validate import check_value, checked_config
from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.schemas import CD_SCORES, require_columns

_STAGE = "compute_label_confidence"
_COLUMNS: Final = ("label_confidence", "p_consolidating", "p_neutral", "p_disruptive")
_FEWEST_WORKS = 500  # with a citer: a smaller cell takes the prior of a wider one
_MOST_CITERS = 64  # of works from which a prior is estimated; the few others say most about themselves
_ROWS_AT_ONCE = 1 << 17
_DIGITS: Final = 10 ** np.arange(10)


def compute_label_confidence(
    scores: AnyFrame, thresholds: LabelThresholds | None = None, *, shrink: bool = True, by: Sequence[str] = ()
) -> pl.LazyFrame:
    """Add the probability that a work gets its disruption label again if it is cited anew, and that of each label.

    By default a redraw has as many citers as one sample says about another: s is negative binomial with mean n_i + n_j
    and twice that variance, at least 1, and so is n_k, which may be 0. How many of the s are of n_i is beta-binomial:
    the work's own n_i and n_j, and a beta prior. The prior is estimated from all works whose n_k has as many digits.

    Without ``shrink``, n_i, n_j and n_k are independent Poisson counts whose means are the observed ones. This takes
    what was observed for the truth, so it is too sure of small counts. Redraws without a later work have no label and
    are left out.

    Args:
        scores: CD_SCORES; work_id may be missing, and other columns pass through. Give all scored works, not a sample:
            the prior is estimated from them. Counts of another window: rename its columns.
        thresholds: ``LabelThresholds()`` when None.
        shrink: whether small counts shrink towards those of all works.
        by: columns within whose values the prior is estimated, such as ``["primary_field", "publication_year"]``.
            Groups of fewer than 500 works with a citer take the prior of all.

    Returns:
        The rows of ``scores`` in their order. ``label_confidence`` (Float64, 0 to 1) is the probability of the work's
        own label, ``p_consolidating``, ``p_neutral`` and ``p_disruptive`` (Float64) that of each; they add up to 1.
        All are null where ``cd_index`` is null or NaN. Off by less than 1e-9 if n_k is at most 4,096, else by less than
        1e-6.

    Raises:
        SchemaMismatchError: when called, if a column is missing or has another type.
        ConfigError: when called, if ``thresholds`` are none.

    Memory: all rows, since the prior is that of all.

    Source: this project's. See docs/measures/label_confidence.md for what it predicts.

    Example:
        >>> scores = pl.LazyFrame({"n_i": [0, 0], "n_j": [1, 12], "n_k": [30, 30], "cd_index": [-1 / 31, -12 / 42]},
        ...     schema_overrides={name: pl.UInt32 for name in ("n_i", "n_j", "n_k")})
        >>> compute_label_confidence(scores, shrink=False).select(pl.col("^label.*|p_.*$").round(3)).collect().rows()
        [(0.632, 0.632, 0.368, 0.0), (1.0, 1.0, 0.0, 0.0)]
    """
    counts = ["n_i", "n_j", "n_k", "cd_index"]
    frame = require_columns(scores, CD_SCORES, frame_name="CD_SCORES", stage=_STAGE, columns=counts)
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    columns = check_value("by", list(by), list[str])
    there = frame.collect_schema()
    require_columns(
        frame, there | {name: there.get(name, pl.String()) for name in columns}, frame_name="scores", stage=_STAGE
    )
    result = pl.Struct(dict.fromkeys(_COLUMNS, pl.Float64))

    def score(rows: pl.Series) -> pl.Series:
        return _score(rows.struct.unnest(), cut, shrink, columns).to_struct(rows.name)

    chances = pl.struct(*dict.fromkeys([*counts, *columns])).map_batches(score, return_dtype=result)
    return frame.drop(_COLUMNS, strict=False).with_columns(chances.struct.unnest())


def _score(rows: pl.DataFrame, cut: LabelThresholds, shrink: bool, by: list[str]) -> pl.DataFrame:
    from sciscidata.disruption import _label_kernels as kernels

    n_i, n_j, n_k = (rows[name].fill_null(0).to_numpy() for name in ("n_i", "n_j", "n_k"))
    cd_index = rows["cd_index"].fill_null(float("nan")).to_numpy()
    cell, prior = np.zeros(rows.height, np.int64), np.zeros((1, 2))
    if shrink:
        cell, prior = _estimate_prior(rows, n_i, n_j, n_k, by)
    found = np.empty((len(_COLUMNS), rows.height))

    def work(span: tuple[int, int]) -> None:
        part = slice(*span)
        cuts = cut.consolidating_max, cut.disruptive_min, cut.inclusive
        given = n_i[part], n_j[part], n_k[part], cd_index[part], cell[part]
        kernels.label_chances(*given, prior, shrink, *cuts, found[:, part])

    run_all(work, pairwise([*range(0, rows.height, _ROWS_AT_ONCE), rows.height]), pl.thread_pool_size())
    return pl.DataFrame(dict(zip(_COLUMNS, found, strict=True))).fill_nan(None)


def _estimate_prior(
    rows: pl.DataFrame, n_i: AnyArray, n_j: AnyArray, n_k: AnyArray, by: list[str]
) -> tuple[Int64Array, Float64Array]:
    """Return the cell of every work, and a and b of the beta prior of every cell."""
    from sciscidata.disruption import _label_kernels as kernels

    digits = np.searchsorted(_DIGITS, n_k, side="right")
    is_known = rows["cd_index"].is_not_null().to_numpy()
    cell = digits
    if by:
        groups = rows.select(pl.col(by).name.prefix("by_")).with_columns(
            digits=digits, cited=is_known & (n_i + n_j > 0)
        )
        names = [name for name in groups.columns if name != "cited"]
        large = groups.group_by(names).agg(pl.col("cited").sum()).filter(pl.col("cited") >= _FEWEST_WORKS)
        numbered = large.drop("cited").with_row_index("cell", offset=_DIGITS.size + 1)
        joined = groups.join(numbered, on=names, how="left", nulls_equal=True, maintain_order="left")
        cell = joined.select(pl.coalesce("cell", "digits").cast(pl.Int64)).to_series().to_numpy()
        wider = numbered["digits"].to_numpy()
    else:
        wider = np.empty(0, np.int64)
    counts = np.zeros((_DIGITS.size + 1 + wider.size, 3, _MOST_CITERS), np.int64)
    kernels.count_shares(n_i, n_j, np.where(is_known, cell, -1), counts)
    small = counts[: _DIGITS.size + 1]
    np.add.at(small, wider, counts[_DIGITS.size + 1 :])
    small[small[:, 2, 0] < _FEWEST_WORKS] = small.sum(axis=0)
    prior = np.empty((len(counts), 2))
    kernels.fit_shares(counts, prior)
    return cell, prior
