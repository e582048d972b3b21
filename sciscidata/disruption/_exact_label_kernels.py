"""Compiled loops that sum over all redraws of a work, called by ``label_chances.py`` only. See ``_label_kernels.py``.

They take works as ``shares`` (works, 3), which are u, a and b, and their n_k. They write how likely each one is
disruptive and consolidating into ``sides`` (2, works).
"""

# pyright: basic
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import Float64Array, Int64Array
from sciscidata._kernels.compile import helper, kernel
from sciscidata.disruption._label_kernels import DEVIATIONS, FEWEST, NEGLIGIBLE, fill, reach, series_below

EXACT_K = 4_096  # a larger mean of n_k takes an Edgeworth series, off by less than 1e-6
_LARGEST_K = 5_120  # beyond every n_k of the redraws of EXACT_K


class Cuts(NamedTuple):
    """The cut-offs of the CD index: consolidating up to ``low``, disruptive from ``high`` on."""

    low: float
    high: float
    inclusive: bool  # the cut-offs belong to these labels


class Grouped(NamedTuple):
    """What works need once that share u, a and b, or n_k."""

    spread: Float64Array  # (2, 2, _LARGEST_K): see _spread, of disruptive and of consolidating
    lasts: Int64Array  # (2): the last places of these that are not 0
    largest: Int64Array  # (2, s): the largest total for a difference
    places: Int64Array  # (EXACT_K + 1, 3): of each mean n_k, where its probabilities begin, the first n_k, how many
    all_below: Float64Array  # of at most each n_k


@helper
def largest_total(d, cut, inclusive):
    """Return the largest total n for which d / n, as a double, reaches the cut-off; d and cut-off are above 0."""
    if d >= cut * 2.0**60:
        return np.int64(1) << 60
    n = np.int64(d / cut)
    while d / (n + 1) > cut or (inclusive and d / (n + 1) == cut):
        n += 1
    while n > 0 and not (d / n > cut or (inclusive and d / n == cut)):
        n -= 1
    return n


@helper
def fill_k_below(n, scale, v, k_below):
    """Write the probability of at most each n_k, unless the series gives it; return the first n_k, and how many."""
    if n > EXACT_K:
        size = 2 * reach(float(n), v)
        return n - size // 2, size
    first, size = fill(n * scale, v, np.int64(0), k_below)
    for at in range(1, size):
        k_below[at] += k_below[at - 1]
    return first, size


@helper
def n_k_below(most, mean, v):
    """Return the probability of at most ``most`` of n_k by the series."""
    w = 1 / (1 - v)
    return series_below(most, mean, mean * w, mean * (1 + v) * w * w, mean * (1 + 4 * v + v * v) * w * w * w)


@helper
def _least_difference(n, cut, inclusive):
    """Return the smallest d for which d / n, as a double, reaches the cut-off, which is 0 to 1."""
    d = np.int64(n * cut)
    n = n if n > 0 else 1
    while d > 0 and ((d - 1) / n > cut or (inclusive and (d - 1) / n == cut)):
        d -= 1
    while not (d / n > cut or (inclusive and d / n == cut)):
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
        while x > 0 and now > NEGLIGIBLE * others:
            now *= x / (s - x + 1) * (b + g * (s - x)) / (a + g * (x - 1))
            others += now
            x -= 1
        return chance, 1 - others
    while x < s and now > NEGLIGIBLE * others:
        now *= (s - x) / (x + 1) * (a + g * x) / (b + g * (s - x - 1))
        others += now
        x += 1
    return chance, chance + others


@helper
def reached(totals, k, a, b, g, cut, inclusive):
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
            least_until = largest_total(least, cut, inclusive)
        while s + k_first + k_size - 1 > sure_until:
            sure += 1
            sure_until = largest_total(sure, cut, inclusive)
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
                most = largest_total(2 * at - s, cut, inclusive) - s
                below = 0.0
                if k_mean > EXACT_K:
                    below = n_k_below(most, k_mean, v)
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
        most = (largest_total(s, cut, inclusive) if cut > 0 else np.int64(1) << 60) - s
        below = 1.0
        if k_mean > EXACT_K:
            below = n_k_below(min(most, k_first + k_size), k_mean, v)
        elif most < k_first + k_size - 1:
            below = k_below[most - k_first] if most >= k_first else 0.0
        found += chance[s - first] * below
    return found


@helper
def _turn(side, a, b, cuts):
    """Return cut-off and shares of a side; of a cut-off below 0, those of not reaching it on the other side."""
    low, high, inclusive = cuts
    cut, x, y = (high, a, b) if side == 0 else (-low, b, a)
    if cut < 0:
        return -cut, y, x, not inclusive, True
    return cut, x, y, inclusive, False


@kernel
def sum_all(shares, n_k, redraw, cuts, room, sides):
    """Sum over the redraws of works with citers of both kinds: a and b are above 0."""
    g, scale, v, least = redraw
    s_chance, k_below = room
    for row in range(n_k.size):
        n, a, b = n_k[row], shares[row, 1], shares[row, 2]
        first, size = fill(shares[row, 0] * scale, v, least, s_chance)
        k_first, k_size = fill_k_below(n, scale, v, k_below)
        totals, k = (first, size, s_chance), (k_first, k_size, k_below, float(n), v)
        for side in range(2):
            cut, x, y, includes, is_turned = _turn(side, a, b, cuts)
            found = reached(totals, k, x, y, g, cut, includes)
            sides[side, row] = 1 - found if is_turned else found


@kernel
def sum_one_kind(shares, n_k, redraw, cuts, room, sides):
    """Sum over the redraws of works with citers of one kind, or none: a or b is 0."""
    _, scale, v, least = redraw
    s_chance, k_below = room
    for row in range(n_k.size):
        n, a, b = n_k[row], shares[row, 1], shares[row, 2]
        first, size = fill(shares[row, 0] * scale, v, least, s_chance)
        k_first, k_size = fill_k_below(n, scale, v, k_below)
        totals, k = (first, size, s_chance), (k_first, k_size, k_below, float(n), v)
        for side in range(2):
            cut, x, _, includes, is_turned = _turn(side, a, b, cuts)
            found = _reached_by_all_of_one(totals, k, x > 0, cut, includes)
            sides[side, row] = 1 - found if is_turned else found


@helper
def _spread(totals, a, b, g, largest, spread):
    """Write the probability that n_k of 0, 1, ... is the largest one with which the index reaches the cut-off above 0.

    ``largest`` are the largest totals for differences of 0, 1, ... What is larger than all n_k goes into the last
    place. Then each place gets the sum from there on into the second row. Return the largest n_k with a probability.
    """
    first, size, chance = totals
    last = np.int64(-1)
    for at in range(_LARGEST_K):
        spread[0, at] = 0.0
    start = first if first > 0 else 1
    middle = start // 2 + 1
    here = _urn_of(start, middle, a, b, g)
    for s in range(start, first + size):
        if s > start:  # the same number of n_i, of one citer more
            here *= s / (s - middle) * (b + g * (s - 1 - middle)) / (a + b + g * (s - 1))
        lowest = s // 2 + 1
        while middle < s and (middle < lowest or middle + 1 <= s * (a / (a + b))):
            here *= (s - middle) / (middle + 1) * (a + g * middle) / (b + g * (s - middle - 1))
            middle += 1
        peak = chance[s - first] * here
        for way in range(2):
            x, now = middle, peak
            if way == 1:
                now *= x / (s - x + 1) * (b + g * (s - x)) / (a + g * (x - 1))
                x -= 1
            while lowest <= x <= s and now > NEGLIGIBLE:
                most = largest[2 * x - s] - s
                if most >= 0:
                    most = most if most < _LARGEST_K else _LARGEST_K - 1
                    spread[0, most] += now
                    last = last if most < last else most
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


@kernel
def sum_grouped(shares, n_k, redraw, cuts, s_chance, grouped, sides):
    """Do what ``sum_all`` does, quickly where neighbours share u, a and b: low is below 0, high above, n_k <= EXACT_K.

    Which n_k a redraw may have, and still reach a cut-off, does not depend on the mean of n_k. So one table of these
    serves all works that share the rest.
    """
    low, high, inclusive = cuts
    g, scale, v, least = redraw
    spread, lasts, largest, places, all_below = grouped
    for d in range(1, largest.shape[1]):
        largest[0, d], largest[1, d] = largest_total(d, high, inclusive), largest_total(d, -low, inclusive)
    u = a = b = np.nan
    for row in range(n_k.size):
        n = n_k[row]
        if shares[row, 0] != u or shares[row, 1] != a or shares[row, 2] != b:
            u, a, b = shares[row, 0], shares[row, 1], shares[row, 2]
            first, size = fill(u * scale, v, least, s_chance)
            totals = first, size, s_chance
            lasts[0] = _spread(totals, a, b, g, largest[0], spread[0])
            lasts[1] = _spread(totals, b, a, g, largest[1], spread[1])
        elif n == n_k[row - 1]:
            sides[0, row], sides[1, row] = sides[0, row - 1], sides[1, row - 1]
            continue
        begin = places[n, 0]
        if places[n, 2] == 0:
            places[n, 1], places[n, 2] = fill_k_below(n, scale, v, all_below[begin:])
        k_first, k_end = places[n, 1], places[n, 1] + places[n, 2]
        for side in range(2):
            found = 0.0
            end = k_end if k_end <= lasts[side] else lasts[side] + 1
            for most in range(k_first, end):
                found += spread[side, 0, most] * all_below[begin + most - k_first]
            if lasts[side] >= k_end:
                found += spread[side, 1, k_end]
            sides[side, row] = found


def room_for_groups(most):
    """Return room for what works share whose redraws have up to ``most`` citers: untouched until it is needed."""
    places = np.zeros((EXACT_K + 1, 3), np.int64)
    sizes = 2 * (DEVIATIONS * np.sqrt(2.0 * np.arange(EXACT_K + 1))).astype(np.int64) + 2 * FEWEST + 4
    places[1:, 0] = np.cumsum(sizes)[:-1]
    lasts, largest = np.empty(2, np.int64), np.empty((2, most + 1), np.int64)
    return Grouped(np.empty((2, 2, _LARGEST_K)), lasts, largest, places, np.empty(sizes.sum()))
