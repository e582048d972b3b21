"""How likely each label is when works are cited anew: each work takes the cheapest loop that is exact enough for it.

A loop is compiled when it is first called. Ties are all that most works need, so they have a loop of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from sciscidata._kernels.arrays import AnyArray, Float64Array, Int64Array

if TYPE_CHECKING:
    from sciscidata.disruption._exact_label_kernels import Cuts
    from sciscidata.disruption._label_kernels import Redraw, Works

_MOST_GROUPED: Final = 200  # citers; with more, few works share a table
_ROWS_AT_ONCE: Final = 1 << 14  # that stay in a cache
_ONE_EMPTY: Final = 64  # counts; of so many, a redraw without any is too rare to tell


def write_chances(works: Works, prior: Float64Array, cuts: Cuts, chances: Float64Array, *, shrink: bool) -> None:
    """Write the chance of each work's label, of consolidating, neutral and disruptive (4, works); NaN without an index.

    Plain: three Poisson counts with the observed means. Redraws without a later work have no label and are left out.
    Where the work itself has none, they have the label of 0. ``prior`` (cells, 2) has a and b, ``shrink`` is that of
    ``label_confidence.py``.
    """
    from sciscidata.disruption import _label_kernels as kernels

    n_i, n_j, n_k, cd_index, _ = works
    redraw = kernels.Redraw(1, 0.5, 0.5, 1) if shrink else kernels.Redraw(0, 1.0, 0.0, 0)
    (_, down, _, up), to_do = chances, np.empty(n_i.size, np.uint8)
    s_chance, tops = kernels.room_for(int(n_i.max(initial=0)) + int(n_j.max(initial=0)), redraw.v), _tops(cuts)
    limits = float(tops[:, 0].min()), float(tops[:, -1].min())
    kernels.add_ties(works, prior, redraw, limits, s_chance, kernels.room_to_keep(), up, down, to_do)
    if (rows := np.flatnonzero(to_do == kernels.SERIES)).size:
        room = s_chance, np.empty((kernels.NEAR, 2, 4))
        kernels.take_series(_side_by_side(rows, works), works, prior, redraw, tops, room, up, down)
    if (rows := np.flatnonzero(to_do == kernels.SUM)).size:
        _sum_labels(rows, works, prior, redraw, cuts, up, down)
    for start in range(0, n_i.size, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        if not shrink:
            total = n_i[part].astype(np.int64) + n_j[part] + n_k[part]
            _leave_out_empty(total, cuts, up[part], down[part])
        _finish(cd_index[part], cuts, chances[:, part])


def _side_by_side(rows: Int64Array, works: Works) -> Int64Array:
    """Sort rows so that works with the same counts follow each other, as far as 63 bits tell; n_i and n_j have ten."""
    n_i, n_j, n_k = (column[rows].astype(np.int64) for column in works[:3])
    n_k >>= max(int(n_k.max(initial=0)).bit_length() - 13, 0)
    keys = (n_i << 23 | n_j << 13 | n_k) << 30 | rows
    keys.sort()  # three times as fast as to sort places
    return keys & ((1 << 30) - 1)


def chances_of_rates(rates: Float64Array, n_k: AnyArray, cuts: Cuts) -> Float64Array:
    """Return how likely a redraw with a citer is consolidating, neutral and disruptive (works, 3).

    The citers are Poisson with the ``rates`` (works, 2) of n_i and n_j, which are above 0, and so is n_k.
    """
    from sciscidata.disruption import _label_kernels as kernels

    redraw, both, sides = kernels.Redraw(0, 1.0, 0.0, 1), rates.sum(axis=1), np.empty((2, n_k.size))
    has_say = _far_totals(both + n_k) >= _tops(cuts)[:, 0].min()
    some = np.empty((2, n_k.size - np.count_nonzero(has_say)))
    kernels.sides_of_ties(rates[~has_say], redraw, kernels.room_for(both.max(initial=0), 0.0), some)
    sides[:, ~has_say] = some
    if has_say.any():
        shares = np.column_stack([both, rates])[has_say]
        sides[:, has_say] = _sum_redraws(shares, n_k[has_say].astype(np.int64), redraw, cuts)
    up, down = np.clip(sides, 0, 1)
    return np.stack([down, np.maximum(1 - up - down, 0), up], axis=1)


def _far_totals(means: Float64Array) -> Float64Array:
    """Return totals that Poisson counts with these means pass with a probability below 1e-9."""
    return means + 8 * np.sqrt(means) + 40


def _tops(cuts: Cuts) -> Int64Array:
    """Return (2, NEAR + 1): the largest total with which a difference of 1, 2, ... is disruptive, and consolidating."""
    from sciscidata.disruption._exact_label_kernels import largest_total
    from sciscidata.disruption._label_kernels import NEAR

    tops = np.zeros((2, NEAR + 1), np.int64)
    if cuts.low < 0 < cuts.high:
        for side, cut in enumerate((cuts.high, -cuts.low)):
            tops[side] = [largest_total.py_func(d, cut, cuts.inclusive) for d in range(1, NEAR + 2)]
    return tops


def _sum_labels(
    rows: Int64Array,
    works: Works,
    prior: Float64Array,
    redraw: Redraw,
    cuts: Cuts,
    up: Float64Array,
    down: Float64Array,
) -> None:
    """Write how likely disruptive and consolidating are for some works, by sums over their redraws."""
    from sciscidata.disruption import _exact_label_kernels as kernels

    is_few = (works.n_i[rows].astype(np.int64) + works.n_j[rows] <= _MOST_GROUPED) & (
        works.n_k[rows] <= kernels.EXACT_K
    )
    if not cuts.low < 0 < cuts.high:
        is_few[:] = False
    for at, is_grouped in ((rows[~is_few], False), (_side_by_side(rows[is_few], works), True)):
        n_i, n_j, n_k = (column[at] for column in works[:3])
        both, ab = n_i.astype(np.float64) + n_j, prior[works.cell[at]]
        shares = np.stack([both, n_i + ab[:, 0], n_j + ab[:, 1]], axis=1)
        up[at], down[at] = _sum_redraws(shares, n_k.astype(np.int64), redraw, cuts, is_grouped=is_grouped)


def _sum_redraws(
    shares: Float64Array, n_k: Int64Array, redraw: Redraw, cuts: Cuts, *, is_grouped: bool = False
) -> Float64Array:
    """Return how likely disruptive and consolidating are (2, works), by sums over their redraws."""
    from sciscidata.disruption import _exact_label_kernels as kernels
    from sciscidata.disruption._label_kernels import room_for

    sides, has_both = np.empty((2, n_k.size)), (shares[:, 1:] > 0).all(axis=1)
    s_chance, k_below = room_for(shares[:, 0].max(initial=0), redraw.v), room_for(kernels.EXACT_K, redraw.v)
    for at, is_one_kind in ((has_both, False), (~has_both, True)):
        if not at.any():
            continue
        found, some = np.empty((2, np.count_nonzero(at))), (shares[at], n_k[at], redraw, cuts)
        if is_one_kind:
            kernels.sum_one_kind(*some, (s_chance, k_below), found)
        elif is_grouped:
            kernels.sum_grouped(
                *some, s_chance, kernels.room_for_groups(int(shares[:, 0].max()) + s_chance.size), found
            )
        else:
            kernels.sum_all(*some, (s_chance, k_below), found)
        sides[:, at] = found
    return sides


def _leave_out_empty(total: Int64Array, cuts: Cuts, up: Float64Array, down: Float64Array) -> None:
    """Leave redraws without a later work out, where works have any."""
    low, high, inclusive = cuts
    at = np.flatnonzero((total > 0) & (total < _ONE_EMPTY))
    empty = np.array([math.exp(-n) for n in range(_ONE_EMPTY)])[total[at]]
    for side, has_zero in ((up, high < 0 or (high == 0 and inclusive)), (down, low > 0 or (low == 0 and inclusive))):
        side[at] = (side[at] - (empty if has_zero else 0.0)) / (1 - empty)


def _finish(cd_index: Float64Array, cuts: Cuts, chances: Float64Array) -> None:
    """Write the chances of neutral and of each work's own label beside those of the other two."""
    low, high, inclusive = cuts
    own, down, neutral, up = chances
    for side in (up, down):
        np.clip(side, 0, 1, out=side)
    np.subtract(1 - up, down, out=neutral)
    np.maximum(neutral, 0, out=neutral)
    is_up = cd_index >= high if inclusive else cd_index > high
    is_down = cd_index <= low if inclusive else cd_index < low
    own[:] = np.where(is_up, up, np.where(is_down, down, neutral))
