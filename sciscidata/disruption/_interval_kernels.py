"""Compiled loops of the interval of the CD index, called by ``cd_interval.py`` only. See ``_label_kernels.py``."""

# pyright: basic
from __future__ import annotations

import math

import numpy as np

from sciscidata._kernels.compile import helper, kernel
from sciscidata.disruption._exact_label_kernels import EXACT_K, fill_k_below, reached
from sciscidata.disruption._label_kernels import fill

_CLOSE, _SIMPLE, _SECANTS = 2.0**-10, 256, 9  # of an end of an interval: relative error, denominators, quick steps
_RARE = 1e-10  # redraws beyond this probability do not count in an interval


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
    chance = reached(totals, k, a, b, 1.0, cut, inclusive)
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
        chance = reached(totals, k, a, b, 1.0, 0.0, True)
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
def index_ends(works, prior, tail, z, room, ends):
    """Write the lowest and the highest index of a redraw into ``ends`` (2, works); beyond each lies at most ``tail``.

    The lowest one is the highest one with n_i and n_j exchanged, turned. The search for each begins ``z`` deviations
    out of a normal distribution.
    """
    n_i, n_j, n_k, _, cell = works
    s_chance, k_below = room
    v = 0.5
    for row in range(n_i.size):
        i, j, n, c = np.int64(n_i[row]), np.int64(n_j[row]), np.int64(n_k[row]), cell[row]
        first, size = fill(float(i + j) * 0.5, v, np.int64(1), s_chance)
        first, size = _trim(first, size, s_chance, False)
        k_first, k_size = fill_k_below(n, 0.5, v, k_below)
        if n <= EXACT_K:
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
