"""Compiled loops of label confidence and of intervals, called by ``label_*.py`` and ``cd_interval.py`` only.

A redraw has s citers. Each next one is of n_i with probability (a + g x) / (a + b + g s), where x of the s before are.
This urn gives the binomial (g = 0) and the beta-binomial distribution (g = 1). The totals s and n_k have p(s + 1) /
p(s) = (u + v s) / (s + 1): Poisson (v = 0) or negative binomial. So every step costs a few multiplications.
"""

# pyright: basic
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import AnyArray, Float64Array, Int64Array
from sciscidata._kernels.compile import helper, kernel
from sciscidata._kernels.random import WEYL

_NEGLIGIBLE = 1e-14  # of the mode: what lies beyond changes no probability by 1e-11
_DEVIATIONS = 9.0  # as far out, in standard deviations
_CERTAIN = 6.5  # standard deviations, beyond which the series says 0 or 1
_FEWEST = 64  # values on each side of the mode; a geometric tail of ratio 1/2 ends before
_EXACT_K = 4_096.0  # a larger mean of n_k takes an Edgeworth series, off by less than 1e-6
_SERIES_K = 256  # from here on, s + n_k takes the series where only differences up to _NEAR can be neutral
_NEAR, _MANY = 6, 1_024
_KEPT_BITS = 14
_KEPT = 1 << _KEPT_BITS
_WIDE = 2.0**-9  # cut-offs from here on: works that share n_i and n_j share a table
_MOST_GROUPED = 100  # citers; with more, few works share a table
_N_EXACT, _LARGEST_K = 4_097, 5_120  # means of n_k that are computed, and beyond every n_k of their redraws
_GRID, _WIDTH = 128, 24.0  # values, and standard deviations that they span, of a rate
_CLOSE, _SIMPLE, _SECANTS = 2.0**-10, 256, 9  # of an end of an interval: relative error, denominators, quick steps
_RARE = 1e-10  # redraws beyond this probability do not count in an interval
_MOST_STEPS, _STILL, _LARGEST_PRIOR = 2_000, 1e-6, 1e3


class Works(NamedTuple):
    """What is known of each work, (works) each."""

    n_i: AnyArray
    n_j: AnyArray
    n_k: AnyArray
    cd_index: Float64Array  # NaN where undefined
    cell: Int64Array  # row of the prior


class Cuts(NamedTuple):
    """The cut-offs of the CD index: consolidating up to ``low``, disruptive from ``high`` on."""

    low: float
    high: float
    inclusive: bool  # the cut-offs belong to these labels


class Scratch(NamedTuple):
    """Room for the distributions of one work."""

    s_chance: Float64Array  # probability of each total s
    k_below: Float64Array  # probability of at most each n_k
    tops: Int64Array  # (2, _NEAR + 2): largest total with which a difference is disruptive, and consolidating


class Grouped(NamedTuple):
    """What works that follow each other need once, where a difference of 1 may be neutral."""

    spread: Float64Array  # (2, 2, _LARGEST_K): see _spread, of disruptive and of consolidating
    lasts: Int64Array  # (2): the last places of these that are not 0
    places: Int64Array  # (_N_EXACT, 3): of each mean n_k, where its probabilities begin, the first n_k, how many
    all_below: Float64Array  # of at most each n_k


class Kept(NamedTuple):
    """What works that share n_i, n_j and cell need once."""

    keys: Int64Array  # (_KEPT): n_i, n_j and cell of a slot, or -1
    chances: Float64Array  # (_KEPT, 2): of disruptive, and of consolidating
    moments: Float64Array  # (2 _NEAR _KEPT, 4): see _moments
    group: Grouped


@helper
def _reach(mean, v):
    """Return how many values on each side of the mode count."""
    return np.int64(_DEVIATIONS * math.sqrt(mean / (1 - v))) + _FEWEST


@helper
def _fill(u, v, least, chance):
    """Write the probabilities of the values from ``least`` on; return the first value, and how many there are."""
    mode = max(np.int64(math.ceil((u - 1) / (1 - v))), least)
    reach = _reach(u / (1 - v), v)
    first = max(mode - reach, least)
    begin = end = mode - first
    chance[end] = 1.0
    while begin > 0 and chance[begin] > _NEGLIGIBLE:
        value = first + begin - 1
        chance[begin - 1] = chance[begin] * (value + 1) / (u + v * value)
        begin -= 1
    while end < mode - first + reach and chance[end] > _NEGLIGIBLE:
        value = first + end
        chance[end + 1] = chance[end] * (u + v * value) / (value + 1)
        end += 1
    size = end + 1 - begin
    total = 0.0
    for at in range(begin, end + 1):
        total += chance[at]
    for at in range(size):
        chance[at] = chance[begin + at] / total
    return first + begin, size


@helper
def _fill_k_below(n, scale, v, k_below):
    """Write the probability of at most each n_k, unless the series gives it; return the first n_k, and how many."""
    if n > _EXACT_K:
        size = 2 * _reach(float(n), v)
        return n - size // 2, size
    first, size = _fill(n * scale, v, np.int64(0), k_below)
    for at in range(1, size):
        k_below[at] += k_below[at - 1]
    return first, size


@helper
def _series_below(most, mean, variance, third, fourth):
    """Return the probability of at most ``most`` from four cumulants, by an Edgeworth series for whole numbers."""
    z = (most + 0.5 - mean) / math.sqrt(variance)
    if abs(z) > _CERTAIN:
        return 1.0 if z > 0 else 0.0
    z2, skew = z * z, third / (variance * math.sqrt(variance))
    terms = skew / 6 * (z2 - 1) + z * (
        fourth / (variance * variance) / 24 * (z2 - 3)
        + skew * skew / 72 * (z2 * z2 - 10 * z2 + 15)
        - 1 / (24 * variance)
    )
    return 0.5 * math.erfc(-z / math.sqrt(2.0)) - terms * math.exp(-z2 / 2) / math.sqrt(2 * math.pi)


@helper
def _n_k_below(most, mean, v):
    """Return the probability of at most ``most`` of n_k by the series."""
    w = 1 / (1 - v)
    return _series_below(most, mean, mean * w, mean * (1 + v) * w * w, mean * (1 + 4 * v + v * v) * w * w * w)


@helper
def _reaches(d, n, cut, inclusive):
    return d / n > cut or (inclusive and d / n == cut)


@helper
def _largest_total(d, cut, inclusive):
    """Return the largest total n for which d / n, as a double, reaches the cut-off; d and cut-off are above 0."""
    if d >= cut * 2.0**60:
        return np.int64(1) << 60
    n = np.int64(d / cut)
    while _reaches(d, n + 1, cut, inclusive):
        n += 1
    while n > 0 and not _reaches(d, n, cut, inclusive):
        n -= 1
    return n


@helper
def _least_difference(n, cut, inclusive):
    """Return the smallest d for which d / n, as a double, reaches the cut-off, which is 0 to 1."""
    d = np.int64(n * cut)
    while d > 0 and _reaches(d - 1, max(n, 1), cut, inclusive):
        d -= 1
    while not _reaches(d, max(n, 1), cut, inclusive):
        d += 1
    return d


@helper
def _urn_of(s, x, a, b, g):
    """Return the probability that x of the first s drawn are of n_i."""
    chance = math.lgamma(s + 1) - math.lgamma(x + 1) - math.lgamma(s - x + 1)
    if g == 0:
        chance += x * math.log(a / (a + b)) + (s - x) * math.log(b / (a + b))
    else:
        chance += math.lgamma(a + x) - math.lgamma(a) + math.lgamma(b + s - x) - math.lgamma(b)
        chance -= math.lgamma(a + b + s) - math.lgamma(a + b)
    return math.exp(chance)


@helper
def _urn(s, x, a, b, g):
    """Return the probabilities that x, and that at least x, of the first s drawn are of n_i."""
    chance = now = _urn_of(s, x, a, b, g)
    others = 0.0
    if x * (a + b) < s * a:
        while x > 0 and now > _NEGLIGIBLE * others:
            now *= x / (s - x + 1) * (b + g * (s - x)) / (a + g * (x - 1))
            others += now
            x -= 1
        return chance, 1 - others
    while x < s and now > _NEGLIGIBLE * others:
        now *= (s - x) / (x + 1) * (a + g * x) / (b + g * (s - x - 1))
        others += now
        x += 1
    return chance, chance + others


@helper
def _reached(totals, k, a, b, g, cut, inclusive):
    """Return the probability that (n_i - n_j) / (n_i + n_j + n_k) reaches a cut-off of 0 or more; 0 / 0 counts as 0."""
    first, size, chance = totals
    k_first, k_size, k_below, k_mean, v = k
    if cut > 1:
        return 0.0
    found = 0.0
    x, here, from_here = np.int64(0), 0.0, 0.0
    # From the difference ``sure`` on every n_k will do, and below ``least`` none; they grow with s.
    least = sure = np.int64(0 if inclusive else 1)
    least_until = sure_until = np.int64(1) << 60
    if cut > 0:
        least = _least_difference(first + k_first, cut, inclusive) - 1
        sure = _least_difference(first + k_first + k_size - 1, cut, inclusive) - 1
        least_until = sure_until = np.int64(-1)
    for s in range(first, first + size):
        while s + k_first > least_until:
            least += 1
            least_until = _largest_total(least, cut, inclusive)
        while s + k_first + k_size - 1 > sure_until:
            sure += 1
            sure_until = _largest_total(sure, cut, inclusive)
        lowest, wanted = (s + least + 1) // 2, (s + sure + 1) // 2
        at = min(wanted, s)
        if here > 0:
            step = (b + g * (s - 1 - x)) / (a + b + g * (s - 1)) / (s - x)
            from_here += here * x * step
            here *= s * step
            while x < at:
                from_here -= here
                here *= (s - x) / (x + 1) * (a + g * x) / (b + g * (s - x - 1))
                x += 1
        if here <= 0:
            x = at
            here, from_here = _urn(s, x, a, b, g)
        part = from_here if wanted <= s else 0.0
        now, at = here, x
        while at >= lowest:
            if at < wanted:
                most = _largest_total(2 * at - s, cut, inclusive) - s
                below = 0.0
                if k_mean > _EXACT_K:
                    below = _n_k_below(most, k_mean, v)
                elif most >= k_first:
                    below = k_below[min(most - k_first, k_size - 1)]
                part += now * below
            now *= at / (s - at + 1) * (b + g * (s - at)) / (a + g * (at - 1))
            at -= 1
        found += chance[s - first] * part
    return found


@helper
def _reached_by_all_of_one(totals, k, is_i, cut, inclusive):
    """Return the same where every citer is of n_i, or none is."""
    first, size, chance = totals
    k_first, k_size, k_below, k_mean, v = k
    found = chance[0] if first == 0 and cut == 0 and inclusive else 0.0
    for s in range(max(first, 1), first + size if is_i and cut <= 1 else 0):
        most = (_largest_total(s, cut, inclusive) if cut > 0 else np.int64(1) << 60) - s
        below = 1.0
        if k_mean > _EXACT_K:
            below = _n_k_below(min(most, k_first + k_size), k_mean, v)
        elif most < k_first + k_size - 1:
            below = k_below[most - k_first] if most >= k_first else 0.0
        found += chance[s - first] * below
    return found


@kernel
def fit_shares(counts, prior):
    """Write the a and b of the beta-binomial distribution that makes the counts of each cell most likely.

    A work of one citer of each kind is added, so that no share is 0. Source: Minka 2000, "Estimating a Dirichlet
    distribution", the fixed point for a Polya distribution.
    """
    for cell in range(counts.shape[0]):
        a = b = 0.5
        for _ in range(_MOST_STEPS):
            for_a, for_b, whole = 1 / a, 1 / b, 2 / (a + b)
            for m in range(counts.shape[2]):
                if counts[cell, 2, m] == 0:
                    break
                for_a += counts[cell, 0, m] / (a + m)
                for_b += counts[cell, 1, m] / (b + m)
                whole += counts[cell, 2, m] / (a + b + m)
            for_a, for_b = for_a / whole, for_b / whole
            a, b = a * for_a, b * for_b
            if max(abs(for_a - 1), abs(for_b - 1)) < _STILL or max(a, b) > _LARGEST_PRIOR:
                break
        prior[cell, 0], prior[cell, 1] = a, b


@helper
def _sides_of_a_tie(totals, a, b, g):
    """Return the probabilities of n_i > n_j and of n_i < n_j.

    One more citer changes the side only from or to a tie. Half of the ways to a tie come from each side.
    """
    first, size, chance = totals
    up = found = ties = 0.0
    tie = 1.0
    for s in range(first + size if a + b > 0 else 0):
        if s >= first:
            found += chance[s - first] * up
            ties += chance[s - first] * (tie if s % 2 == 0 else 0.0)
        m = s // 2
        if s % 2 == 0:
            up += tie * (a + g * m) / (a + b + g * s)
        else:
            tie *= 2 * s / (m + 1.0) * ((a + g * m) / (a + b + g * (s - 1))) * ((b + g * m) / (a + b + g * s))
            up -= tie / 2
    return found, 1 - found - ties if a + b > 0 else 0.0


@helper
def _chances(u, a, b, n, form, cuts, s_chance, k_below, has_say):
    """Return the probabilities of disruptive and of consolidating; ``has_say``: n_k has."""
    low, high, inclusive = cuts
    g, scale, v, least = form
    first, size = _fill(u * scale, v, least, s_chance)
    totals = first, size, s_chance
    if not has_say:
        return _sides_of_a_tie(totals, a, b, g)
    k_first, k_size = _fill_k_below(n, scale, v, k_below)
    k = k_first, k_size, k_below, float(n), v
    up = down = 0.0
    for side in range(2):
        is_up = side == 0
        cut, x, y = (high, a, b) if is_up else (-low, b, a)
        # Of a cut-off below 0, the probability of not reaching it on the other side.
        is_turned = cut < 0
        includes = inclusive != is_turned
        if is_turned:
            cut, x, y = -cut, y, x
        if x == 0 or y == 0:
            found = _reached_by_all_of_one(totals, k, x > 0, cut, includes)
        else:
            found = _reached(totals, k, x, y, g, cut, includes)
        if is_turned:
            found = 1 - found
        if is_up:
            up = found
        else:
            down = found
    return up, down


@helper
def _spread(totals, a, b, g, cut, inclusive, spread):
    """Write the probability that n_k of 0, 1, ... is the largest one with which the index reaches the cut-off above 0.

    What is larger than all n_k goes into the last place. Then each place gets the sum from there on into the second
    row. Return the largest n_k with a probability.
    """
    first, size, chance = totals
    last = np.int64(-1)
    for at in range(_LARGEST_K):
        spread[0, at] = 0.0
    for s in range(max(first, 1), first + size):
        lowest = s // 2 + 1
        begin = min(max(np.int64(s * (a / (a + b))), lowest), s)
        peak = chance[s - first] * _urn_of(s, begin, a, b, g)
        for way in range(2):
            x, now = begin, peak
            if way == 1:
                now *= x / (s - x + 1) * (b + g * (s - x)) / (a + g * (x - 1))
                x -= 1
            while lowest <= x <= s and now > _NEGLIGIBLE:
                most = _largest_total(2 * x - s, cut, inclusive) - s
                if most >= 0:
                    most = min(most, _LARGEST_K - 1)
                    spread[0, most] += now
                    last = max(last, most)
                if way == 1:
                    now *= x / (s - x + 1) * (b + g * (s - x)) / (a + g * (x - 1))
                    x -= 1
                else:
                    now *= (s - x) / (x + 1) * (a + g * x) / (b + g * (s - x - 1))
                    x += 1
    from_here = 0.0
    for at in range(last, -1, -1):
        from_here += spread[0, at]
        spread[1, at] = from_here
    return last


@helper
def _wide_chances(u, a, b, n, form, cuts, s_chance, group, is_new):
    """Return what ``_chances`` does; works that share n_i, n_j and cell share ``group``, and those that share n_k."""
    low, high, inclusive = cuts
    spread, lasts, places, all_below = group
    g, scale, v, least = form
    if is_new:
        first, size = _fill(u * scale, v, least, s_chance)
        totals = first, size, s_chance
        lasts[0] = _spread(totals, a, b, g, high, inclusive, spread[0])
        lasts[1] = _spread(totals, b, a, g, -low, inclusive, spread[1])
    k_first = k_size = np.int64(0)
    if n - _reach(float(n), v) - 3 <= max(lasts[0], lasts[1]):
        if places[n, 2] == 0:
            places[n, 1], places[n, 2] = _fill_k_below(n, scale, v, all_below[places[n, 0] :])
        k_first, k_size = places[n, 1], places[n, 2]
        k_below = all_below[places[n, 0] :]
    up = down = 0.0
    for side in range(2 if k_size else 0):
        found, end = 0.0, min(k_first + k_size, lasts[side] + 1)
        for at in range(k_first, end):
            found += spread[side, 0, at] * k_below[at - k_first]
        if lasts[side] >= k_first + k_size:
            found += spread[side, 1, k_first + k_size]
        if side == 0:
            up = found
        else:
            down = found
    return up, down


@kernel
def is_wide(low, high):
    """Whether works that share n_i and n_j share a table: a difference of 1 may be neutral."""
    return low <= -_WIDE and high >= _WIDE


@helper
def _fill_tops(cuts, tops):
    """Write the largest total for which a difference of 1, 2, ... still is disruptive, and consolidating; else 0."""
    low, high, inclusive = cuts
    for side in range(2 if low < 0 < high else 0):
        for d in range(1, _NEAR + 2):
            tops[side, d] = _largest_total(d, -low if side else high, inclusive)


@helper
def _far_total(mean, v):
    """Return a total that a redraw with this mean passes with a probability below 1e-9."""
    return mean + 8 * math.sqrt(mean / (1 - v)) + 40


@helper
def _moments(u, a, b, d, form, s_chance, kept, row):
    """Write the probability that n_i - n_j is d, and mean, variance and third cumulant of s where it is."""
    g, scale, v, least = form
    first, size = _fill(u * scale, v, least, s_chance)
    here = 1.0 if a + b > 0 else 0.0
    for x in range(d if a + b > 0 else 0):
        here *= (a + g * x) / (a + b + g * x)
    x, y, s = d, np.int64(0), d
    n = one = two = three = 0.0
    while s < first + size and here > 0:
        if s >= first:
            weight, gap = here * s_chance[s - first], s - u
            n += weight
            one += weight * gap
            two += weight * gap * gap
            three += weight * gap * gap * gap
        here *= (s + 2.0) * (s + 1) * (a + g * x) * (b + g * y)
        here /= (x + 1.0) * (y + 1) * (a + b + g * s) * (a + b + g * (s + 1))
        x, y, s = x + 1, y + 1, s + 2
    kept[row, 0] = n
    if n > 0:
        mean, square = one / n, two / n
        kept[row, 1] = u + mean
        kept[row, 2] = max(square - mean * mean, 0.0)
        kept[row, 3] = three / n - 3 * mean * square + 2 * mean**3


@kernel
def label_chances(works, prior, is_shrunk, cuts, scratch, shared, chances):
    """Write into ``chances`` (4, works) the probability of each work's label, of consolidating, neutral and disruptive.

    Plain: three Poisson counts with the observed means. Redraws without a later work have no label and are left out.
    Where the work itself has none, they have the label of 0. ``prior`` (cells, 2) has a and b, ``is_shrunk`` is that of
    ``label_confidence.py``.
    """
    n_i, n_j, n_k, cd_index, cell = works
    low, high, inclusive = cuts
    s_chance, k_below, tops = scratch
    keys, kept, moments, group = shared
    form = (1, 0.5, 0.5, 1) if is_shrunk else (0, 1.0, 0.0, 0)
    v = form[2]
    _fill_tops(cuts, tops)
    has_groups = is_wide(low, high)
    last = np.int64(-1), np.int64(-1), np.int64(-1), np.int64(-1)
    of_last = 0.0, 0.0
    narrow, nearly = min(tops[0, 1], tops[1, 1]), min(tops[0, _NEAR + 1], tops[1, _NEAR + 1])
    zero_is_up, zero_is_down = high < 0 or (high == 0 and inclusive), low > 0 or (low == 0 and inclusive)
    for row in range(n_i.size):
        if np.isnan(cd_index[row]):
            for kind in range(4):
                chances[kind, row] = np.nan
            continue
        i, j, n, c = np.int64(n_i[row]), np.int64(n_j[row]), np.int64(n_k[row]), np.int64(cell[row])
        total, u = i + j + n, float(i + j)
        far = _far_total(float(total), v)
        a, b = i + prior[c, 0], j + prior[c, 1]
        is_grouped = has_groups and a > 0 and b > 0 and n < _N_EXACT and i + j <= _MOST_GROUPED
        is_shared = i < _MANY and j < _MANY and c < 1 << 40 and (far < narrow or (far < nearly and n >= _SERIES_K))
        is_shared = is_shared and not is_grouped
        key = (c << 20) | (i << 10) | j
        slot = np.int64((np.uint64(key) * WEYL) >> np.uint64(64 - _KEPT_BITS))
        if is_grouped:
            is_new = last[:3] != (i, j, c)
            if is_new or last[3] != n:
                of_last = _wide_chances(u, a, b, n, form, cuts, s_chance, group, is_new)
                last = i, j, c, n
            up, down = of_last
        elif is_shared and keys[slot] == key:
            up, down = kept[slot, 0], kept[slot, 1]
        else:
            up, down = _chances(u, a, b, n, form, cuts, s_chance, k_below, not is_shared)
            if is_shared:  # most works share n_i and n_j with many others
                keys[slot], kept[slot, 0], kept[slot, 1] = key, up, down
                for at in range(2 * _NEAR * slot, 2 * _NEAR * (slot + 1)):
                    moments[at, 0] = np.nan
        if is_shared and far >= narrow:  # less the redraws whose total makes n_i > n_j, or n_i < n_j, neutral
            w, far = 1 / (1 - v), _far_total(float(n) + u, v)
            third, fourth = n * (1 + v) * w * w, n * (1 + 4 * v + v * v) * w * w * w
            for at in range(2 * _NEAR):
                is_up, d, place = at < _NEAR, at % _NEAR + 1, 2 * _NEAR * slot + at
                most = tops[0 if is_up else 1, d]
                if far <= most:
                    continue
                if np.isnan(moments[place, 0]):
                    _moments(u, a if is_up else b, b if is_up else a, d, form, s_chance, moments, place)
                if moments[place, 0] > 0:
                    mean, variance = moments[place, 1] + n, moments[place, 2] + n * w
                    less = moments[place, 0] * (
                        1 - _series_below(most, mean, variance, moments[place, 3] + third, fourth)
                    )
                    if is_up:
                        up -= less
                    else:
                        down -= less
        if not is_shrunk and 0 < total < _FEWEST:
            empty = math.exp(-total)
            up = (up - (empty if zero_is_up else 0.0)) / (1 - empty)
            down = (down - (empty if zero_is_down else 0.0)) / (1 - empty)
        up, down = min(max(up, 0.0), 1.0), min(max(down, 0.0), 1.0)
        chances[1, row], chances[2, row], chances[3, row] = down, max(1 - up - down, 0.0), up
        label = 2
        if cd_index[row] > high or (inclusive and cd_index[row] == high):
            label = 3
        elif cd_index[row] < low or (inclusive and cd_index[row] == low):
            label = 1
        chances[0, row] = chances[label, row]


def scratch_of(most, v):
    """Return the arrays that probabilities of up to ``most`` citers need as scratch."""
    s_chance, k_below = (
        np.empty(2 * int(_DEVIATIONS * math.sqrt(n / (1 - v))) + 2 * _FEWEST + 4) for n in (most, _EXACT_K)
    )
    return Scratch(s_chance, k_below, np.zeros((2, _NEAR + 2), np.int64))


def scratch_of_labels():
    """Return the arrays that keep what works share."""
    places = np.zeros((_N_EXACT, 3), np.int64)
    room = 2 * (_DEVIATIONS * np.sqrt(2.0 * np.arange(_N_EXACT))).astype(np.int64) + 2 * _FEWEST + 4
    places[1:, 0] = np.cumsum(room)[:-1]
    kept = np.full(_KEPT, -1, np.int64), np.empty((_KEPT, 2)), np.empty((2 * _NEAR * _KEPT, 4))
    group = np.empty((2, 2, _LARGEST_K)), np.empty(2, np.int64), places, np.empty(room.sum())
    return Kept(*kept, Grouped(*group))


@helper
def _quantile(below, wanted):
    """Return the place in a running sum at which it reaches the wanted part of the whole."""
    wanted *= below[-1]
    at, high = 0, below.size - 1
    while at < high:
        middle = (at + high) // 2
        if below[middle] < wanted:
            at = middle + 1
        else:
            high = middle
    before = below[at - 1] if at else 0.0
    return at - 0.5 + (wanted - before) / (below[at] - before)


@kernel
def chances_by_rate(rates, n_k, cuts, scratch, chances):
    """Write how likely a redraw with a citer is consolidating, neutral and disruptive into ``chances`` (works, 3).

    The citers are Poisson with the ``rates`` (works, 2) of n_i and n_j, which are above 0, and so is n_k.
    """
    form = np.int64(0), 1.0, 0.0, np.int64(1)
    s_chance, k_below, tops = scratch
    _fill_tops(cuts, tops)
    narrow = min(tops[0, 1], tops[1, 1])
    for row in range(n_k.size):
        a, b, n = rates[row, 0], rates[row, 1], np.int64(n_k[row])
        has_say = _far_total(a + b + n, 0.0) >= narrow
        up, down = _chances(a + b, a, b, n, form, cuts, s_chance, k_below, has_say)
        up, down = min(max(up, 0.0), 1.0), min(max(down, 0.0), 1.0)
        chances[row, 0], chances[row, 1], chances[row, 2] = down, max(1 - up - down, 0.0), up


@kernel
def spread_rates(n_i, n_j, cell, prior, rates):
    """Write rates of n_i and n_j that the counts of a work with a citer leave possible into ``rates`` (works, m, 2).

    The sum is gamma with shape n_i + n_j and rate 1, the share of n_i beta. Both are cut into m parts of equal
    probability, m a power of 2. Reversed bits pair them, so nothing is drawn.
    """
    share_below, sum_below = np.empty(_GRID), np.empty(_GRID)
    m = rates.shape[1]
    for row in range(n_i.size):
        a, b = n_i[row] + prior[cell[row], 0], n_j[row] + prior[cell[row], 1]
        total = float(n_i[row]) + float(n_j[row])
        # The logarithms of odds and of sum: there, both are smooth and have one peak.
        middle, top = math.log(a / b), math.log(total)
        width, height = _WIDTH * math.sqrt(1 / a + 1 / b), _WIDTH / math.sqrt(total)
        peak = a * math.log(a / (a + b)) + b * math.log(b / (a + b))
        for x in range(_GRID):
            odds = middle + width * ((x + 0.5) / _GRID - 0.5)
            size = top + height * ((x + 0.5) / _GRID - 0.5)
            fall = math.log1p(math.exp(-abs(odds)))
            share_below[x] = math.exp(a * (min(odds, 0.0) - fall) - b * (max(odds, 0.0) + fall) - peak)
            sum_below[x] = math.exp(total * (size - top) - (math.exp(size) - total))
            if x:
                share_below[x] += share_below[x - 1]
                sum_below[x] += sum_below[x - 1]
        for place in range(m):
            other, rest, bit = 0, place, m >> 1
            while bit:
                other += bit * (rest & 1)
                rest >>= 1
                bit >>= 1
            odds = middle + width * ((_quantile(share_below, (place + 0.5) / m) + 0.5) / _GRID - 0.5)
            size = top + height * ((_quantile(sum_below, (other + 0.5) / m) + 0.5) / _GRID - 0.5)
            share = 1 / (1 + math.exp(-odds))
            rates[row, place, 0] = math.exp(size) * share
            rates[row, place, 1] = math.exp(size) * (1 - share)


@helper
def _trim(first, size, chance, is_sum):
    """Take rare values at both ends away, of probabilities or of their running sum; return first value and size."""
    begin, end = 0, size
    if is_sum:
        while chance[begin] < _RARE:
            begin += 1
        while end - begin > 1 and chance[end - 2] > 1 - _RARE:
            end -= 1
    else:
        while chance[begin] < _RARE:
            begin += 1
        while chance[end - 1] < _RARE:
            end -= 1
    for at in range(begin, end):
        chance[at - begin] = chance[at]
    return first + begin, end - begin


@helper
def _compare(totals, k, a, b, cut, inclusive, tail, turned):
    """Say whether the end lies at ``cut`` or beyond, and give a gap that falls with the cut and is 0 at the end.

    ``turned``: the end is the largest m with P(-C >= m) >= 1 - tail, else the least m with P(C > m) <= tail.
    """
    chance = _reached(totals, k, a, b, 1.0, cut, inclusive)
    if turned:
        return 1 - chance <= tail, math.log(tail / max(1 - chance, _RARE))
    return chance > tail, math.log(max(chance, _RARE) / tail)


@helper
def _find_end(totals, k, x, y, guess, tail, largest):
    """Return the least h with P(C > h) <= tail, where the share of n_i has the weights ``x`` and ``y``.

    It is 0, 1 or -1, or its size lies in a bracket. The first cut is ``guess``; then secants on the logarithm of the
    probability close the bracket. Its outer side is kept, or a simple fraction in it that has the property: indices of
    few works are such fractions.
    """
    a, b, turned = x, y, False
    is_below, f_low = _compare(totals, k, a, b, 0.0, False, tail, turned)
    if not is_below:
        chance = _reached(totals, k, a, b, 1.0, 0.0, True)
        if chance > tail:
            return 0.0
        a, b, turned, f_low = y, x, True, math.log(tail / max(chance, _RARE))
    is_below, f_high = _compare(totals, k, a, b, 1.0, True, tail, turned)
    if is_below:
        return -1.0 if turned else 1.0
    if not turned:
        f_high = math.log(_RARE / tail)
    low, high, moved, cut, step = 0.5 / largest, 1.0, 0, guess, 0
    narrow = 0.5 / (float(largest) * largest)  # no two indices are nearer
    while high - low > max(_CLOSE * low, narrow):
        near = guess if step == 0 else cut * (1.1 if moved == 1 else 0.9)
        if step < 2 and low < near < high:
            cut = near
        elif step < _SECANTS:
            share = f_low / (f_low - f_high) if f_low > f_high else 0.5
            cut = low + (high - low) * min(max(share, 0.02), 0.98)
        else:
            cut = math.sqrt(low * high)
        is_below, gap = _compare(totals, k, a, b, cut, turned, tail, turned)
        if is_below:
            if moved == 1:
                f_high *= 0.5
            low, f_low, moved = cut, gap, 1
        else:
            if moved == -1:
                f_low *= 0.5
            high, f_high, moved = cut, gap, -1
        step += 1
    end = low if turned else high
    for m in range(1, min(largest, _SIMPLE) + 1):
        cut = math.ceil(low * m) / m if turned else math.floor(high * m) / m
        if low <= cut <= high:
            if cut != end and _compare(totals, k, a, b, cut, turned, tail, turned)[0] == turned:
                end = cut
            break
    return -end if turned else end


@kernel
def index_ends(works, prior, tail, z, scratch, ends):
    """Write the lowest and the highest index of a redraw into ``ends`` (2, works); beyond each lies at most ``tail``.

    The lowest one is the highest one with n_i and n_j exchanged, turned. The search for each begins ``z`` deviations
    out of a normal distribution.
    """
    n_i, n_j, n_k, _, cell = works
    s_chance, k_below, _ = scratch
    v = 0.5
    for row in range(n_i.size):
        i, j, n, c = np.int64(n_i[row]), np.int64(n_j[row]), np.int64(n_k[row]), cell[row]
        first, size = _fill(float(i + j) * 0.5, v, np.int64(1), s_chance)
        first, size = _trim(first, size, s_chance, False)
        k_first, k_size = _fill_k_below(n, 0.5, v, k_below)
        if n <= _EXACT_K:
            k_first, k_size = _trim(k_first, k_size, k_below, True)
        totals, k = (first, size, s_chance), (k_first, k_size, k_below, float(n), v)
        largest = first + size + k_first + k_size
        of_i, of_j, s = i + prior[c, 0], j + prior[c, 1], max(i + j, 1.0)
        for side in range(2):
            x, y = (of_j, of_i) if side == 0 else (of_i, of_j)
            share = x / (x + y)
            spread = 4 * s * share * (1 - share) * (x + y + s) / (x + y + 1) + 2 * s * (2 * share - 1) ** 2
            guess = abs((2 * share - 1) * s + z * math.sqrt(spread)) / (s + n)
            end = _find_end(totals, k, x, y, guess, tail, largest)
            ends[side, row] = 0.0 - end if side == 0 else end  # no -0.0
