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

from sciscidata._kernels import portable_math
from sciscidata._kernels.arrays import AnyArray, Float64Array, Int64Array
from sciscidata._kernels.compile import kernel
from sciscidata._kernels.random import below, draw
from sciscidata.novelty.config import LOW_QUANTILE

_MOST_EXACT = 5  # references: there are 126 lists of 5 out of 5
_DRAWS = 128
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
    """The pairs of groups of one work that have a z, by ascending z."""

    z: Float64Array
    one: Int64Array  # group
    other: Int64Array  # group, the same or a later one


class List(NamedTuple):
    """One list of references, drawn from those of a work."""

    repeats: Int64Array  # (references): how often each is there
    size: Int64Array  # (groups): how many references
    square: Int64Array  # (groups): sum of the squared repeats


@njit(nogil=True)
def _times(drawn, a, b, unique):
    """Return how often a pair of groups occurs, without pairs of a reference and its copy."""
    size, square = drawn.size, drawn.square
    times = size[a] * size[b] if a != b else (size[a] * size[a] - square[a]) // 2
    return min(times, 1) if unique else times


@njit(nogil=True)
def _reach(pairs, place, rank, drawn, unique):
    """Move from a place in the ascending z to that of a rank. A place is an index and the number up to there."""
    i, up_to = place
    while up_to <= rank:
        i += 1
        up_to += _times(drawn, pairs.one[i], pairs.other[i], unique)
    return i, up_to


@njit(nogil=True)
def _quantile(pairs, place, at, drawn, unique):
    """Return z at a rank, a float: NumPy's linear quantile, each z as often as it occurs; and its place."""
    z = pairs.z
    rank = math.floor(at)
    t = at - rank
    place = _reach(pairs, place, rank, drawn, unique)
    low = z[place[0]]
    if t == 0:
        return low, place
    high = z[_reach(pairs, place, rank + 1, drawn, unique)[0]]
    gap = high - low
    return high - gap * (1 - t) if t >= 0.5 else low + gap * t, place


@njit(nogil=True)
def _label(pairs, gaps, drawn, rules):
    """Return 0, 1, 2 for novel, balanced, conventional, or -1 if too few pairs have a z; ``gaps`` are pairs without."""
    unique, min_pairs, is_uzzi, margin, tail_max, cut = rules
    total = 0
    if unique:
        for e in range(pairs.z.size):
            total += _times(drawn, pairs.one[e], pairs.other[e], unique)
    else:
        n = drawn.size.sum()
        total = (n * n - drawn.square.sum()) // 2
        for e in range(gaps[0].size):
            total -= _times(drawn, gaps[0][e], gaps[1][e], unique)
    if total < min_pairs or total == 0:
        return -1
    start = 0, _times(drawn, pairs.one[0], pairs.other[0], unique)
    low, place = _quantile(pairs, start, (total - 1) * LOW_QUANTILE, drawn, unique)
    middle, _ = _quantile(pairs, place, (total - 1) * 0.5, drawn, unique)
    if not (math.isfinite(low) and math.isfinite(middle)):
        return -1
    if is_uzzi:
        is_novel, is_usual = low < tail_max, middle > cut
        return 1 if is_novel == is_usual else 0 if is_novel else 2
    excess = sigmoid(-low) - sigmoid(middle)
    return 0 if excess > margin else 2 if excess < -margin else 1


@njit(nogil=True)
def _put(group_of, drawn):
    """Count the references of each group, and the squares, from how often each reference is there."""
    repeats, size, square = drawn
    size[:] = 0
    square[:] = 0
    for r in range(group_of.size):
        size[group_of[r]] += repeats[r]
        square[group_of[r]] += repeats[r] * repeats[r]


@njit(nogil=True)
def _redraw(key, group_of, pairs, gaps, rules, drawn, chances):
    """Write the chances of the labels over lists of as many references, drawn with replacement; all lists if few."""
    n = group_of.size
    repeats = drawn.repeats[:n]
    times = np.zeros(3, np.int64)
    if n > _MOST_EXACT:
        for i in range(_DRAWS):
            repeats[:] = 0
            for t in range(n):
                repeats[below(draw(key, i * n + t), n)] += 1
            _put(group_of, drawn)
            label = _label(pairs, gaps, drawn, rules)
            if label >= 0:
                times[label] += 1
    else:
        chosen = np.zeros(n, np.int64)  # ascending: one list in each order
        while True:
            repeats[:] = 0
            ways = 1
            for t in range(n):
                repeats[chosen[t]] += 1
                ways = ways * (t + 1) // repeats[chosen[t]]
            _put(group_of, drawn)
            label = _label(pairs, gaps, drawn, rules)
            if label >= 0:
                times[label] += ways
            t = n - 1
            while t >= 0 and chosen[t] == n - 1:
                t -= 1
            if t < 0:
                break
            chosen[t:] = chosen[t] + 1
    if times.sum() == 0:  # of very few lists that have a label, the own one
        repeats[:] = 1
        _put(group_of, drawn)
        label = _label(pairs, gaps, drawn, rules)
        if label >= 0:
            times[label] = 1
    for label in range(3):
        chances[label] = times[label] / max(times.sum(), 1)


@kernel
def redraw_works(groups, entries, keys, rules, redrawn):
    """Write how likely each label of each work is, and how well half of its references predict the other half.

    ``keys`` (works) are the streams of random numbers.
    """
    offsets, counts = groups.offsets, groups.counts
    for work in range(offsets.size - 1):
        begin, end = offsets[work], offsets[work + 1]
        n = 0
        for i in range(begin, end):
            n += counts[i]
        redrawn.n_refs[work] = n
        n_groups = end - begin
        if n < 2:
            continue
        group_of = np.empty(n, np.int64)
        r = 0
        for i in range(begin, end):
            group_of[r : r + counts[i]] = i - begin
            r += counts[i]
        n_entries = n_groups * (n_groups + 1) // 2
        z, one, other = np.empty(n_entries), np.empty(n_entries, np.int64), np.empty(n_entries, np.int64)
        m, last = 0, n_entries  # pairs with a z from the front, those without from the back
        for i in range(n_groups):
            for j in range(i, n_groups):
                value = entries.values[entries.starts[begin + i] + j - i]
                if value == value:
                    z[m], one[m], other[m] = value, i, j
                    m += 1
                elif i != j or counts[begin + i] > 1:
                    last -= 1
                    one[last], other[last] = i, j
        if m == 0:
            continue
        order = np.argsort(z[:m], kind="mergesort")
        pairs, gaps = Pairs(z[:m][order], one[:m][order], other[:m][order]), (one[last:].copy(), other[last:].copy())
        drawn = List(np.empty(n, np.int64), np.empty(n_groups, np.int64), np.empty(n_groups, np.int64))
        _redraw(keys[work], group_of, pairs, gaps, rules, drawn, redrawn.chances[work])
        if n < _FEWEST_TO_HALVE:
            continue
        key = draw(keys[work], _HALVING)
        for i in range(n - 1, 0, -1):
            j = below(draw(key, i), i + 1)
            group_of[i], group_of[j] = group_of[j], group_of[i]
        half = n // 2
        drawn.repeats[:half] = 1
        _put(group_of[:half], drawn)
        if _label(pairs, gaps, drawn, rules) < 0:
            continue
        _put(group_of[half : 2 * half], drawn)
        label = _label(pairs, gaps, drawn, rules)
        if label >= 0:
            said = np.empty(3)
            _put(group_of[:half], drawn)
            there = (drawn.size[pairs.one] > 0) & (drawn.size[pairs.other] > 0)
            pairs = Pairs(pairs.z[there], pairs.one[there], pairs.other[there])
            _redraw(draw(key, _HALVING), group_of[:half], pairs, gaps, rules, drawn, said)
            redrawn.half_refs[work], redrawn.half_label[work] = half, label
            redrawn.half_chance[work] = said[label]
