"""Compiled loops of label confidence, called by ``label_*.py`` only.

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

NEGLIGIBLE = 1e-14  # of the mode: what lies beyond changes no probability by 1e-11
DEVIATIONS = 9.0  # as far out, in standard deviations
FEWEST = 64  # values on each side of the mode; a geometric tail of ratio 1/2 ends before
NEAR = 6  # differences of n_i and n_j that the series takes
_CERTAIN = 6.5  # standard deviations, beyond which the series says 0 or 1
_SERIES_K = 256  # from here on, s + n_k takes the series where only differences up to NEAR can be neutral
_MANY = 1_024
_KEPT_BITS = 16
_KEPT = 1 << _KEPT_BITS
_MOST_STEPS, _STILL, _LARGEST_PRIOR = 2_000, 1e-6, 1e3
_GRID, _WIDTH = 128, 24.0  # values, and standard deviations that they span, of a rate
SERIES, SUM = 1, 2  # what ``add_ties`` leaves to do


class Works(NamedTuple):
    """What is known of each work, (works) each."""

    n_i: AnyArray
    n_j: AnyArray
    n_k: AnyArray
    cd_index: Float64Array  # NaN where undefined
    cell: Int64Array  # row of the prior


class Redraw(NamedTuple):
    """How a work is cited anew, see above: s begins at ``least``, and its mean u is ``scale`` times the citers."""

    g: int
    scale: float
    v: float
    least: int


class Kept(NamedTuple):
    """What works that share n_i, n_j and cell need once."""

    keys: Int64Array  # (_KEPT): n_i, n_j and cell of a slot, or -1
    values: Float64Array  # (_KEPT, 2): how likely n_i > n_j is, and n_i < n_j


@helper
def reach(mean, v):
    """Return how many values on each side of the mode count."""
    return np.int64(DEVIATIONS * math.sqrt(mean / (1 - v))) + FEWEST


@helper
def fill(u, v, least, chance):
    """Write the probabilities of the values from ``least`` on; return the first value, and how many there are."""
    mode = np.int64(math.ceil((u - 1) / (1 - v)))
    mode = mode if mode > least else least
    most = reach(u / (1 - v), v)
    first = mode - most if mode - most > least else least
    begin = end = mode - first
    chance[end] = 1.0
    while begin > 0 and chance[begin] > NEGLIGIBLE:
        value = first + begin - 1
        chance[begin - 1] = chance[begin] * (value + 1) / (u + v * value)
        begin -= 1
    while end < mode - first + most and chance[end] > NEGLIGIBLE:
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
def series_below(most, mean, variance, third, fourth):
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
def sides_of_a_tie(totals, a, b, g):
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
def far_total(mean, v):
    """Return a total that a redraw with this mean passes with a probability below 1e-9."""
    return mean + 8 * math.sqrt(mean / (1 - v)) + 40


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


@kernel
def add_ties(works, prior, redraw, limits, s_chance, kept, up, down, to_do):
    """Write how likely each work is disruptive, and consolidating, where only a tie is neutral.

    ``limits`` are the totals below which only a tie is, and below which only differences up to NEAR are. ``to_do`` says
    which works need more: the series goes on from what is written here, a sum takes its place. ``prior`` (cells, 2) has
    a and b.
    """
    n_i, n_j, n_k, cd_index, cell = works
    g, scale, v, least = redraw
    narrow, nearly = limits
    keys, values = kept
    for row in range(n_i.size):
        up[row] = down[row] = np.nan
        to_do[row] = 0
        if cd_index[row] != cd_index[row]:
            continue
        i, j, n, c = np.int64(n_i[row]), np.int64(n_j[row]), np.int64(n_k[row]), cell[row]
        far = far_total(float(i + j + n), v)
        if i >= _MANY or j >= _MANY or far >= (nearly if n >= _SERIES_K else narrow):
            to_do[row] = SUM
            continue
        if far >= narrow:
            to_do[row] = SERIES
        key = (c << 20) | (i << 10) | j
        slot = (np.uint64(key) * WEYL) >> np.uint64(64 - _KEPT_BITS)
        if keys[slot] != key:  # most works share n_i and n_j with many others
            first, size = fill(float(i + j) * scale, v, least, s_chance)
            totals = first, size, s_chance
            keys[slot] = key
            values[slot, 0], values[slot, 1] = sides_of_a_tie(totals, i + prior[c, 0], j + prior[c, 1], g)
        up[row], down[row] = values[slot, 0], values[slot, 1]


@helper
def _moments(totals, u, a, b, d, g, up, down):
    """Write the probability that n_i - n_j is d into ``up``, then mean, variance and third cumulant of s where it is.

    The same for n_j - n_i into ``down``: two sums that wait for one division each take as long as one.
    """
    first, size, s_chance = totals
    x, y, s = d, np.int64(0), d
    one = other = 1.0 if a + b > 0 else 0.0
    for at in range(d if a + b > 0 else 0):
        one *= (a + g * at) / (a + b + g * at)
        other *= (b + g * at) / (a + b + g * at)
    up[:] = 0.0
    down[:] = 0.0
    while s < first + size and (one > 0 or other > 0):
        if s >= first:
            gap = s - u
            weight, of_other = one * s_chance[s - first], other * s_chance[s - first]
            for power in range(4):
                up[power] += weight
                down[power] += of_other
                weight *= gap
                of_other *= gap
        ways, whole = (s + 2.0) * (s + 1), a + b
        less = (x + 1.0) * (y + 1) * (whole + g * s) * (whole + g * (s + 1))
        one = one * (ways * (a + g * x) * (b + g * y)) / less
        other = other * (ways * (b + g * x) * (a + g * y)) / less
        x, y, s = x + 1, y + 1, s + 2
    for turn in range(2):
        kept = down if turn else up
        n = kept[0]
        if n > 0:
            mean, square, cube = kept[1] / n, kept[2] / n, kept[3] / n
            variance = square - mean * mean
            kept[1], kept[2] = u + mean, variance if variance > 0 else 0.0
            kept[3] = cube - 3 * mean * square + 2 * mean**3


@kernel
def take_series(rows, works, prior, redraw, tops, room, up, down):
    """Take redraws away whose total makes n_i > n_j, or n_i < n_j, neutral, where NEAR differences can be.

    ``rows`` are those of the works; equal ones share what they need where they follow each other. ``tops`` (2, NEAR)
    are the largest totals with which a difference of 1, 2, ... is disruptive, and consolidating.
    """
    n_i, n_j, n_k, _, cell = works
    g, scale, v, least = redraw
    s_chance, moments = room
    w = 1 / (1 - v)
    last = i = j = n = c = known = first = size = np.int64(-1)
    for place in range(rows.size):
        row = rows[place]
        if n_i[row] != i or n_j[row] != j or cell[row] != c:
            i, j, c, known = np.int64(n_i[row]), np.int64(n_j[row]), cell[row], np.int64(0)
            first, size = fill(float(i + j) * scale, v, least, s_chance)
        elif n_k[row] == n:
            up[row], down[row] = up[last], down[last]
            continue
        n, last = np.int64(n_k[row]), row
        u = float(i + j)
        far = far_total(float(n) + u, v)
        third, fourth = n * (1 + v) * w * w, n * (1 + 4 * v + v * v) * w * w * w
        for d in range(NEAR):
            if far <= tops[0, d] and far <= tops[1, d]:
                break
            if d == known:
                totals = first, size, s_chance
                _moments(totals, u, i + prior[c, 0], j + prior[c, 1], d + 1, g, moments[d, 0], moments[d, 1])
                known += 1
            for side in range(2):
                of_side = moments[d, side]
                chance, mean, variance, skew = of_side[0], of_side[1], of_side[2], of_side[3]
                if chance > 0 and far > tops[side, d]:
                    below = series_below(tops[side, d], mean + n, variance + n * w, skew + third, fourth)
                    if side:
                        down[row] -= chance * (1 - below)
                    else:
                        up[row] -= chance * (1 - below)


def room_for(most, v):
    """Return room for the probabilities of a count with the mean ``most``."""
    return np.empty(2 * int(DEVIATIONS * math.sqrt(most / (1 - v))) + 2 * FEWEST + 4)


def room_to_keep():
    """Return room for what works share."""
    return Kept(np.full(_KEPT, -1, np.int64), np.empty((_KEPT, 2)))


@kernel
def sides_of_ties(rates, redraw, s_chance, sides):
    """Write how likely n_i > n_j and n_i < n_j are for works of ``rates`` (works, 2) into ``sides`` (2, works)."""
    g, scale, v, least = redraw
    for row in range(rates.shape[0]):
        a, b = rates[row, 0], rates[row, 1]
        first, size = fill((a + b) * scale, v, least, s_chance)
        totals = first, size, s_chance
        sides[0, row], sides[1, row] = sides_of_a_tie(totals, a, b, g)


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
