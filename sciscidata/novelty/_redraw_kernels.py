"""Compiled loops that put reference lists together anew and label them, called by ``label_confidence.py`` only.

Groups and entries are those of ``_per_work_kernels.py``. The z of a venue pair stays; which references a work has, and
how often, changes. A reference forms no pair with a copy of itself.
"""

# pyright: basic
from __future__ import annotations

import math

import numpy as np
from numba import njit

from sciscidata._kernels import portable_math
from sciscidata._kernels.compile import kernel
from sciscidata._kernels.random import below, draw

_MOST_EXACT = 5  # references: there are 126 lists of 5 out of 5
_DRAWS = 128
_FEWEST_TO_HALVE = 4
_HALVING = 1 << 62  # a counter that no draw has

sigmoid = njit(nogil=True)(portable_math.sigmoid)


@njit(nogil=True)
def _times(size, square, a, b, unique):
    """Return how often a pair of groups occurs, without pairs of a reference and its copy."""
    times = size[a] * size[b] if a != b else (size[a] * size[a] - square[a]) // 2
    return min(times, 1) if unique else times


@njit(nogil=True)
def _reach(pairs, place, rank, size, square, unique):
    """Move from a place in the ascending z to that of a rank. A place is an index and the number up to there."""
    _, one, other = pairs
    i, up_to = place
    while up_to <= rank:
        i += 1
        up_to += _times(size, square, one[i], other[i], unique)
    return i, up_to


@njit(nogil=True)
def _quantile(pairs, place, total, share, size, square, unique):
    """Return NumPy's linear quantile of z, each as often as it occurs, and its place."""
    z = pairs[0]
    at = (total - 1) * share
    rank = math.floor(at)
    t = at - rank
    place = _reach(pairs, place, rank, size, square, unique)
    low = z[place[0]]
    if t == 0:
        return low, place
    high = z[_reach(pairs, place, rank + 1, size, square, unique)[0]]
    gap = high - low
    return high - gap * (1 - t) if t >= 0.5 else low + gap * t, place


@njit(nogil=True)
def _label(pairs, gaps, size, square, rules):
    """Return 0, 1, 2 for novel, balanced, conventional, or -1 if too few pairs have a z; ``gaps`` are pairs without."""
    low_share, unique, min_pairs, is_uzzi, margin, tail_max, cut = rules
    total = 0
    if unique:
        for e in range(pairs[0].size):
            total += _times(size, square, pairs[1][e], pairs[2][e], unique)
    else:
        n = size.sum()
        total = (n * n - square.sum()) // 2
        for e in range(gaps[0].size):
            total -= _times(size, square, gaps[0][e], gaps[1][e], unique)
    if total < min_pairs or total == 0:
        return -1
    start = 0, _times(size, square, pairs[1][0], pairs[2][0], unique)
    low, place = _quantile(pairs, start, total, low_share, size, square, unique)
    middle, _ = _quantile(pairs, place, total, 0.5, size, square, unique)
    if not (math.isfinite(low) and math.isfinite(middle)):
        return -1
    if is_uzzi:
        is_novel, is_usual = low < tail_max, middle > cut
        return 1 if is_novel == is_usual else 0 if is_novel else 2
    excess = sigmoid(-low) - sigmoid(middle)
    return 0 if excess > margin else 2 if excess < -margin else 1


@njit(nogil=True)
def _put(group_of, repeats, size, square):
    """Count the references of each group, and the squares, from how often each reference is there."""
    size[:] = 0
    square[:] = 0
    for r in range(group_of.size):
        size[group_of[r]] += repeats[r]
        square[group_of[r]] += repeats[r] * repeats[r]


@njit(nogil=True)
def _redraw(key, group_of, pairs, gaps, rules, scratch, chances):
    """Write the chances of the labels over lists of as many references, drawn with replacement; all lists if few."""
    repeats, size, square = scratch
    n = group_of.size
    repeats = repeats[:n]
    found = np.zeros(3, np.int64)
    if n > _MOST_EXACT:
        for i in range(_DRAWS):
            repeats[:] = 0
            for t in range(n):
                repeats[below(draw(key, i * n + t), n)] += 1
            _put(group_of, repeats, size, square)
            label = _label(pairs, gaps, size, square, rules)
            if label >= 0:
                found[label] += 1
    else:
        chosen = np.zeros(n, np.int64)  # ascending: one list in each order
        while True:
            repeats[:] = 0
            ways = 1
            for t in range(n):
                repeats[chosen[t]] += 1
                ways = ways * (t + 1) // repeats[chosen[t]]
            _put(group_of, repeats, size, square)
            label = _label(pairs, gaps, size, square, rules)
            if label >= 0:
                found[label] += ways
            t = n - 1
            while t >= 0 and chosen[t] == n - 1:
                t -= 1
            if t < 0:
                break
            chosen[t:] = chosen[t] + 1
    if found.sum() == 0:  # of very few lists that have a label, the own one
        repeats[:] = 1
        _put(group_of, repeats, size, square)
        label = _label(pairs, gaps, size, square, rules)
        if label >= 0:
            found[label] = 1
    for label in range(3):
        chances[label] = found[label] / max(found.sum(), 1)


@kernel
def redraw_works(offsets, counts, starts, entries, keys, rules, n_refs, chances, half_refs, half_label, half_chance):
    """Write how likely each label of each work is, and how well half of its references predict the other half.

    ``half_label`` is the label of the second half or -1, and ``half_chance`` what the first half says about it.
    """
    for work in range(offsets.size - 1):
        begin, end = offsets[work], offsets[work + 1]
        n = 0
        for i in range(begin, end):
            n += counts[i]
        n_refs[work] = n
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
                value = entries[starts[begin + i] + j - i]
                if value == value:
                    z[m], one[m], other[m] = value, i, j
                    m += 1
                elif i != j or counts[begin + i] > 1:
                    last -= 1
                    one[last], other[last] = i, j
        if m == 0:
            continue
        order = np.argsort(z[:m], kind="mergesort")
        pairs, gaps = (z[:m][order], one[:m][order], other[:m][order]), (one[last:].copy(), other[last:].copy())
        scratch = np.empty(n, np.int64), np.empty(n_groups, np.int64), np.empty(n_groups, np.int64)
        _redraw(keys[work], group_of, pairs, gaps, rules, scratch, chances[work])
        if n < _FEWEST_TO_HALVE:
            continue
        key = draw(keys[work], _HALVING)
        for i in range(n - 1, 0, -1):
            j = below(draw(key, i), i + 1)
            group_of[i], group_of[j] = group_of[j], group_of[i]
        half = n // 2
        repeats = np.ones(half, np.int64)
        _put(group_of[:half], repeats, scratch[1], scratch[2])
        if _label(pairs, gaps, scratch[1], scratch[2], rules) < 0:
            continue
        _put(group_of[half : 2 * half], repeats, scratch[1], scratch[2])
        label = _label(pairs, gaps, scratch[1], scratch[2], rules)
        if label >= 0:
            said = np.empty(3)
            _put(group_of[:half], repeats, scratch[1], scratch[2])
            there = (scratch[1][pairs[1]] > 0) & (scratch[1][pairs[2]] > 0)
            pairs = pairs[0][there], pairs[1][there], pairs[2][there]
            _redraw(draw(key, _HALVING), group_of[:half], pairs, gaps, rules, scratch, said)
            half_refs[work], half_label[work], half_chance[work] = half, label, said[label]
