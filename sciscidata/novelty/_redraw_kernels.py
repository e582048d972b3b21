"""Compiled loops that put reference lists together anew and label them, called by ``label_confidence.py`` only.

Groups and entries are those of ``shapes.py``. The z of a venue pair stays; which references a work has, and
how often, changes. A reference forms no pair with a copy of itself.
"""

# pyright: basic
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from sciscidata._kernels import lanes, portable_math
from sciscidata._kernels.arrays import AnyArray, Float64Array, Int32Array
from sciscidata._kernels.compile import helper, kernel
from sciscidata._kernels.random import below, draw
from sciscidata.novelty.config import LOW_QUANTILE

_MOST_EXACT = 5  # references: there are 126 lists of 5 out of 5
_DRAWS = lanes.WIDTH
_AT_ONCE = 8  # lists whose random numbers are drawn together
_TYPICAL = 3.0  # a z; half of the bins are for less
_MOST_NARROW = 1 << 15  # references, whose square fits into 32 bits
_POINTS = 32  # of the sigmoid's table, from z to z + 1
_SIGMOID = 1 / (1 + np.exp(-np.arange(-8 * _POINTS, 8 * _POINTS + 2) / _POINTS))
_CLOSE = 1e-4  # an excess so near the margin is found to the last bit
_FEWEST_TO_HALVE = 4
_HALVING = 1 << 62  # a counter that no draw has

sigmoid = njit(nogil=True)(portable_math.sigmoid)


class Rules(NamedTuple):
    """What makes a label of the pairs of a work."""

    unique: bool  # a pair of venues counts once
    min_pairs: int  # with a z; else there is no label
    is_uzzi: bool  # else the difference of both scores against the margin
    margin: float
    tail_max: float  # z below which the low quantile is novel
    cut: float  # z above which the median is conventional


class Redrawn(NamedTuple):
    """What is written for each work, (works) each."""

    n_refs: AnyArray
    chances: Float64Array  # (works, 3): of novel, balanced, conventional
    half_refs: AnyArray  # references of a half, 0 where it has no label
    half_label: AnyArray  # of the second half, or -1
    half_chance: Float64Array  # what the first half says about that label


class Pairs(NamedTuple):
    """The pairs of groups of one work. Each occurs as often as the product of two rows of ``Lists.rows`` says."""

    z: Float64Array  # ascending
    score: Float64Array  # 1 / (1 + exp(-z)), off by _CLOSE at most
    one: Int32Array  # row
    other: Int32Array  # row
    gap_one: Int32Array  # the same of pairs without a z
    gap_other: Int32Array


class Lists(NamedTuple):
    """Lists of references side by side, 128 at most, all put together from the references of one work."""

    repeats: AnyArray  # (references, lists): how often each is there
    rows: AnyArray  # (2 groups + 1, lists): references of each group, pairs inside each group, ones
    total: AnyArray  # (lists): pairs with a z
    limits: AnyArray  # (4, lists): ranks of the low quantile and of the median, each with the next one
    found: AnyArray  # (4, lists): places of the pairs of these ranks
    labels: AnyArray  # (lists)


def make_lists(most: int) -> Lists:
    """Return room for lists of up to ``most`` references."""
    kind = np.int32 if most < _MOST_NARROW else np.int64
    shapes = (most, lanes.WIDTH), (2 * most + 1, lanes.WIDTH), (4, lanes.WIDTH), (4, lanes.WIDTH)
    repeats, rows, limits, found = (np.empty(shape, kind) for shape in shapes)
    return Lists(repeats, rows, np.empty(lanes.WIDTH, kind), limits, found, np.empty(lanes.WIDTH, np.int8))


@helper
def _by_margin(excess, margin):
    """Return 0, 1, 2 for novel, balanced, conventional."""
    return (excess <= margin) + (excess < -margin)


@helper
def _score(z):
    """Return 1 / (1 + exp(-z)), z clipped at ±8, off by _CLOSE at most."""
    place = (min(max(z, -8.0), 8.0) + 8) * _POINTS
    at = np.int64(place)
    return _SIGMOID[at] + (_SIGMOID[at + 1] - _SIGMOID[at]) * (place - at)


@helper
def _label_of(low, middle, rules):
    """Return the label of two quantiles, which rises with both. -1 if one is infinite."""
    if not (math.isfinite(low) and math.isfinite(middle)):
        return -1
    if rules.is_uzzi:
        is_novel, is_usual = low < rules.tail_max, middle > rules.cut
        return 1 if is_novel == is_usual else 0 if is_novel else 2
    excess = 1 - _score(low) - _score(middle)
    if abs(abs(excess) - rules.margin) < 2 * _CLOSE:
        excess = sigmoid(-low) - sigmoid(middle)
    return _by_margin(excess, rules.margin)


@helper
def _between(z, at, here, above):
    """Return z at a rank, a float: NumPy's linear quantile. z of the rank below it lies ``here``, then ``above``."""
    t = at - math.floor(at)
    low = z[here]
    if t == 0:
        return low
    high = z[above]
    gap = high - low
    return high - gap * (1 - t) if t >= 0.5 else low + gap * t


@helper
def _add_products(rows, one, other, sign, n_lists, total):
    """Add ``sign`` times as many pairs as each list has of these."""
    for e in range(one.size):
        for i in range(n_lists):
            total[i] += sign * rows[one[e], i] * rows[other[e], i]


@helper
def _put(n_lists, n, group_of, counts, pairs, unique, lists):
    """Count references, pairs inside a group, and pairs with a z of lists of n; ``counts`` are those of the work."""
    repeats, rows, total, n_groups = lists.repeats, lists.rows, lists.total, counts.size
    for i in range(n_lists):
        rows[2 * n_groups, i] = 1
        total[i] = n * n
    for a in range(n_groups):
        for i in range(n_lists):
            rows[a, i] = 0
        if counts[a] > 1:
            for i in range(n_lists):
                rows[n_groups + a, i] = 0
    for r in range(group_of.size):
        a = group_of[r]
        for i in range(n_lists):
            rows[a, i] += repeats[r, i]
        for i in range(n_lists):
            total[i] -= repeats[r, i] * repeats[r, i]
        if counts[a] > 1:
            for i in range(n_lists):
                rows[n_groups + a, i] += repeats[r, i] * repeats[r, i]
    for a in range(n_groups):
        if counts[a] > 1:
            for i in range(n_lists):
                rows[n_groups + a, i] = (rows[a, i] * rows[a, i] - rows[n_groups + a, i]) >> 1
    for i in range(n_lists):
        total[i] = 0 if unique else total[i] >> 1
    if unique:
        for a in range(n_groups):
            for i in range(n_lists):
                rows[a, i] = min(rows[a, i], 1)
            if counts[a] > 1:
                for i in range(n_lists):
                    rows[n_groups + a, i] = min(rows[n_groups + a, i], 1)
        _add_products(rows, pairs.one, pairs.other, 1, n_lists, total)
    else:
        _add_products(rows, pairs.gap_one, pairs.gap_other, -1, n_lists, total)


@helper
def _label(n_lists, n, group_of, counts, pairs, rules, lists):
    """Write the label of lists of n references, -1 where too few pairs have a z."""
    total, limits, found, z = lists.total, lists.limits, lists.found, pairs.z
    _put(n_lists, n, group_of, counts, pairs, rules.unique, lists)
    for i in range(lanes.WIDTH):
        last = total[i] - 1 if i < n_lists and total[i] >= rules.min_pairs else -1
        limits[0, i], limits[2, i] = math.floor(last * LOW_QUANTILE), math.floor(last * 0.5)
        limits[1, i], limits[3, i] = min(limits[0, i] + 1, last), min(limits[2, i] + 1, last)
    for at in range(0, n_lists, lanes.BYTES // limits.itemsize):
        lanes.walk(lists.rows, pairs.one, pairs.other, at, limits, found)  # pyright: ignore[reportCallIssue]
    score, slack = pairs.score, 2 * _CLOSE
    if rules.is_uzzi or not (math.isfinite(z[0]) and math.isfinite(z[z.size - 1])):
        slack = 9.0  # no bound says anything
    for i in range(n_lists):
        label = -1
        if limits[0, i] >= 0:
            most = 1 + slack - score[found[0, i]] - score[found[2, i]]  # bounds of the excess
            least = 1 - slack - score[found[1, i]] - score[found[3, i]]
            label = _by_margin(most, rules.margin)
            if label != _by_margin(least, rules.margin):
                last = total[i] - 1
                low = _between(z, last * LOW_QUANTILE, found[0, i], found[1, i])
                label = _label_of(low, _between(z, last * 0.5, found[2, i], found[3, i]), rules)
        lists.labels[i] = label


@helper
def _deal(key, n, lists):
    """Draw 128 lists of n references from n with replacement."""
    repeats = lists.repeats
    for r in range(n):
        for i in range(_DRAWS):
            repeats[r, i] = 0
    drawn = np.empty(_AT_ONCE * n, np.int32)
    for first in range(0, _DRAWS, _AT_ONCE):
        for t in range(_AT_ONCE * n):
            drawn[t] = below(draw(key, first * n + t), n)
        t = 0
        for i in range(first, first + _AT_ONCE):
            for _ in range(n):
                repeats[drawn[t], i] += 1
                t += 1


@helper
def _list_all(n, lists, ways):
    """Put together all lists of n references from n, each order once; return their number, and write its orders."""
    chosen = np.zeros(n, np.int64)  # ascending
    i = 0
    while True:
        for r in range(n):
            lists.repeats[r, i] = 0
        ways[i] = 1
        for t in range(n):
            lists.repeats[chosen[t], i] += 1
            ways[i] = ways[i] * (t + 1) // lists.repeats[chosen[t], i]
        i += 1
        t = n - 1
        while t >= 0 and chosen[t] == n - 1:
            t -= 1
        if t < 0:
            return i
        one_more = chosen[t] + 1
        for later in range(t, n):
            chosen[later] = one_more


@helper
def _redraw(key, group_of, counts, pairs, own, rules, lists, chances):
    """Write the chances of the labels over lists of as many references, drawn with replacement; all lists if few.

    ``own`` is the label of the list itself, or -1.
    """
    n, z = group_of.size, pairs.z
    times, ways = np.zeros(3, np.int64), np.ones(_DRAWS, np.int64)
    is_sure = _label_of(z[0], z[0], rules) == own == _label_of(z[z.size - 1], z[z.size - 1], rules)
    if not is_sure:
        n_lists = _DRAWS
        if n > _MOST_EXACT:
            _deal(key, n, lists)
        else:
            n_lists = _list_all(n, lists, ways)
        _label(n_lists, n, group_of, counts, pairs, rules, lists)
        for i in range(n_lists):
            if lists.labels[i] >= 0:
                times[lists.labels[i]] += ways[i]
    total = times[0] + times[1] + times[2]
    if total == 0 and own >= 0:  # no list can have another label, or no other list has one
        times[own] = total = 1
    for label in range(3):
        chances[label] = times[label] / max(total, 1)


@helper
def _sorted(pairs):
    """Return the Pairs by ascending z: into narrow bins of about equal numbers, then by insertion."""
    z, _, one, other, gap_one, gap_other = pairs
    n = z.size
    scaled, bins = np.empty(n), np.zeros(2 * n + 2, np.int64)
    least, most = 1.0, -1.0
    for e in range(n):
        value = min(max(z[e], -1e9), 1e9)  # or an infinite one would have no place
        scaled[e] = value / (_TYPICAL + abs(value))
        least, most = min(least, scaled[e]), max(most, scaled[e])
    scale = 2 * n / (most - least) if most > least else 0.0
    for e in range(n):
        bins[np.int64((scaled[e] - least) * scale) + 1] += 1
    for b in range(2 * n + 1):
        bins[b + 1] += bins[b]
    new_z, new_one, new_other = np.empty(n), np.empty(n, np.int32), np.empty(n, np.int32)
    for e in range(n):
        b = np.int64((scaled[e] - least) * scale)
        at = bins[b]
        bins[b] += 1
        new_z[at], new_one[at], new_other[at] = z[e], one[e], other[e]
    for e in range(1, n):
        value, a, b = new_z[e], new_one[e], new_other[e]
        at = e
        while at > 0 and new_z[at - 1] > value:
            new_z[at], new_one[at], new_other[at] = new_z[at - 1], new_one[at - 1], new_other[at - 1]
            at -= 1
        new_z[at], new_one[at], new_other[at] = value, a, b
    for e in range(n):
        scaled[e] = _score(new_z[e])
    return Pairs(new_z, scaled, new_one, new_other, gap_one, gap_other)


@helper
def _pairs_of(work, groups, entries):
    """Return the Pairs of a work, without those of a reference and its copy."""
    begin, end = groups.offsets[work], groups.offsets[work + 1]
    n_groups = end - begin
    n = n_groups * (n_groups + 1) // 2
    z, one, other = np.empty(n), np.empty(n, np.int32), np.empty(n, np.int32)
    m, last = 0, n  # pairs with a z from the front, those without from the back
    for i in range(n_groups):
        entry = entries.starts[begin + i]
        for j in range(i, n_groups):
            value = entries.values[entry]
            entry += 1
            if i == j and groups.counts[begin + i] == 1:
                continue
            if value == value:
                at = m
                m += 1
            else:
                last -= 1
                at = last
            z[at] = value
            one[at], other[at] = (i, j) if i != j else (n_groups + i, 2 * n_groups)
    return _sorted(Pairs(z[:m], z[:m], one[:m], other[:m], one[last:], other[last:]))


@helper
def _times(one, other, counts, unique):
    """Return how often the pair of two rows occurs in a list; ``counts`` are its references by group."""
    n_groups = counts.size
    if one >= n_groups:
        n = counts[one - n_groups]
        times = n * (n - 1) // 2
    else:
        times = counts[one] * counts[other]
    return min(times, 1) if unique else times


@helper
def _keep(one, other, counts, z, score):
    """Move the pairs that occur in a list to the front; return their number. ``z`` and ``score`` may be empty."""
    m = 0
    for e in range(one.size):
        times = _times(one[e], other[e], counts, False)
        one[m], other[m] = one[e], other[e]
        if z.size > 0:
            z[m], score[m] = z[e], score[e]
        m += times > 0
    return m


@helper
def _look_at(pairs, counts, rules):
    """Return how many pairs of a list have a z, their quantiles and its label; ``counts`` are references by group."""
    last = -1
    for e in range(pairs.z.size):
        last += _times(pairs.one[e], pairs.other[e], counts, rules.unique)
    if last < 0:
        return 0, np.nan, np.nan, -1
    low, middle = 0.0, 0.0
    for turn in range(2):
        at = last * (0.5 if turn else LOW_QUANTILE)
        rank = math.floor(at)
        here, up_to = -1, 0
        while up_to <= rank:
            here += 1
            up_to += _times(pairs.one[here], pairs.other[here], counts, rules.unique)
        above = here
        while up_to <= min(rank + 1, last):
            above += 1
            up_to += _times(pairs.one[above], pairs.other[above], counts, rules.unique)
        low, middle = middle, _between(pairs.z, at, here, above)
    label = _label_of(low, middle, rules) if last + 1 >= rules.min_pairs else -1
    return last + 1, low, middle, label


@helper
def _redraw_work(work, key, counts, pairs, rules, lists, written, redrawn):
    """Do what ``redraw_works`` says for one work."""
    n = redrawn.n_refs[work]
    written.n_pairs[work], written.low[work], written.median[work], own = _look_at(pairs, counts, rules)
    group_of = np.empty(n, np.int64)
    r = 0
    for a in range(counts.size):
        for _ in range(counts[a]):
            group_of[r] = a
            r += 1
    _redraw(key, group_of, counts, pairs, own, rules, lists, redrawn.chances[work])
    if n < _FEWEST_TO_HALVE:
        return
    key = draw(key, _HALVING)
    for i in range(n - 1, 0, -1):
        j = below(draw(key, i), i + 1)
        group_of[i], group_of[j] = group_of[j], group_of[i]
    half = n // 2
    first, second = np.zeros((2, counts.size), counts.dtype)
    for r in range(half):
        first[group_of[r]] += 1
        second[group_of[half + r]] += 1
    _, _, _, own = _look_at(pairs, first, rules)
    _, _, _, other = _look_at(pairs, second, rules)
    if own < 0 or other < 0:
        return
    z, score, one, another, gap_one, gap_other = pairs
    m, k = _keep(one, another, first, z, score), _keep(gap_one, gap_other, first, z[:0], score)
    pairs = Pairs(z[:m], score[:m], one[:m], another[:m], gap_one[:k], gap_other[:k])
    said = np.empty(3)
    _redraw(draw(key, _HALVING), group_of[:half], first, pairs, own, rules, lists, said)
    redrawn.half_refs[work], redrawn.half_label[work], redrawn.half_chance[work] = half, other, said[other]


@kernel
def redraw_works(groups, entries, keys, rules, lists, written, redrawn):
    """Write how likely each label of a work is, how well half of its references predict the other half, and quantiles.

    The quantiles are those of ``work_quantiles``. ``keys`` (works) are the streams of random numbers.
    ``redrawn.n_refs`` are the references of each work.
    """
    for work in range(groups.offsets.size - 1):
        if redrawn.n_refs[work] > 1:
            pairs = _pairs_of(work, groups, entries)
            if pairs.z.size > 0:
                counts = groups.counts[groups.offsets[work] : groups.offsets[work + 1]]
                _redraw_work(work, keys[work], counts, pairs, rules, lists, written, redrawn)
