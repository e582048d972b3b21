"""Compiled loops of the closed null model, called by ``closed_null_model.py`` only.

References of a work lie in the order of time, so those of one year, a cell, lie side by side. Works without a year, and
those known only as references, are one more year at the end.
"""

# pyright: basic
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import Float64Array, Int32Array, Int64Array
from sciscidata._kernels.compile import helper, kernel

_NEVER = -80.0  # e to this adds nothing to a sum of about 1


class Lists(NamedTuple):
    """How many references each work of a year has in each cell, work by work."""

    starts: Int64Array  # (works + 1): where each work begins
    cells: Int32Array  # ascending within a work
    counts: Int32Array


class Grid(NamedTuple):
    """Points at which transforms are known, evenly spaced in the logarithm, and those over which is integrated."""

    first: float  # logarithm
    step: float  # of the logarithm
    s: Float64Array  # of the integral
    s_step: float  # of its logarithm


@kernel
def list_cells(offsets, refs, ends):
    """Return the Lists of the works that ``offsets`` lie around; cell c ends before work ``ends[c]``."""
    n = offsets.size - 1
    starts = np.zeros(n + 1, np.int64)
    cells, counts = np.empty(offsets[n] - offsets[0], np.int32), np.empty(offsets[n] - offsets[0], np.int32)
    at = 0
    for work in range(n):
        c, last = 0, -1
        for e in range(offsets[work], offsets[work + 1]):
            while refs[e] >= ends[c]:
                c += 1
            if c != last:
                cells[at], counts[at] = c, 0
                at += 1
                last = c
            counts[at - 1] += 1
        starts[work + 1] = at
    return starts, cells[:at].copy(), counts[:at].copy()


@kernel
def count_citers(refs, later, column, is_over):
    """Count citations of one year in a column of ``later`` (works, years of a window), or take all of them out."""
    for e in range(refs.size):
        later[refs[e], column] = 0 if is_over else later[refs[e], column] + 1


@kernel
def add_cited(refs, lists, later, in_window, per_year):
    """Write how often each cited work is cited in the window, and add it up for each cell and year of the window."""
    e = 0
    for i in range(lists.cells.size):
        c = lists.cells[i]
        for _ in range(lists.counts[i]):
            total = 0
            for column in range(later.shape[1]):
                times = later[refs[e], column]
                per_year[c, column] += times
                total += times
            in_window[e] = total
            e += 1


@kernel
def add_histogram(lists, in_window, places, histogram):
    """Count the citations of each cell by the place of what ``add_cited`` wrote."""
    e = 0
    for i in range(lists.cells.size):
        for _ in range(lists.counts[i]):
            histogram[lists.cells[i], places[in_window[e]]] += 1
            e += 1


@kernel
def add_mixtures(weights, table, mixtures):
    """Add the rows of ``table`` (places, points) to ``mixtures`` (cells, points), each as often as it occurs there."""
    for c in range(weights.shape[0]):
        for place in range(table.shape[0]):
            weight = weights[c, place]
            if weight > 0:
                for point in range(table.shape[1]):
                    mixtures[c, point] += weight * table[place, point]


@kernel
def add_pairs(lists, cell, pairs):
    """Count pairs of references of the same work, one of them in ``cell``, by the cell of the other one."""
    for work in range(lists.starts.size - 1):
        begin, end = lists.starts[work], lists.starts[work + 1]
        here = begin
        while here < end and lists.cells[here] < cell:
            here += 1
        if here < end and lists.cells[here] == cell:
            n = lists.counts[here]
            for i in range(begin, end):
                pairs[lists.cells[i]] += n * (lists.counts[i] - (i == here))


@helper
def _interpolate(values, place):
    """Return the value between two points of a grid, at its ends those of the ends."""
    at = int(place)
    if at >= values.size - 1:
        return values[values.size - 1]
    return values[at] + (values[at + 1] - values[at]) * (place - at)


@kernel
def expect_works(lists, citers, log_phi, totals, shares, grid, moments):
    """Write mean and standard deviation (2, works) of the index, or leave them where there is none.

    ``citers`` (works, years of the window) are those of each work. A reference in a cell has ``totals`` (cells)
    citations, the logarithm ``log_phi`` (cells, points) of their transform, and is shared by a citer of each year
    ``shares`` (cells, years of the window) times.
    """
    s, n_years = grid.s, citers.shape[1]
    transform = np.empty(log_phi.shape[1])
    log_s, per_point = np.log(s), grid.s_step * s
    for work in range(lists.starts.size - 1):
        begin, end = lists.starts[work], lists.starts[work + 1]
        n = 0
        for column in range(n_years):
            n += citers[work, column]
        total, shared = 0.0, 0.0
        for i in range(begin, end):
            c, k = lists.cells[i], lists.counts[i]
            total += k * totals[c]
            for column in range(n_years):
                shared += citers[work, column] * k * shares[c, column]
        if begin == end or n + total == 0:
            continue
        if n == 0:
            moments[0, work], moments[1, work] = 0, 0
            continue
        transform[:] = 0
        for i in range(begin, end):
            c, k = lists.cells[i], lists.counts[i]
            for point in range(transform.size):
                transform[point] += k * log_phi[c, point]
        rho = shared / (n * total) if total > 0 else 0.0
        mean, square, spread = 0.0, 0.0, 0.0
        for j in range(s.size):
            low = _interpolate(transform, (log_s[j] - grid.first) / grid.step)
            if low - s[j] * n < _NEVER:  # both fall with s
                break
            p0 = math.exp(low - s[j] * n)
            p1, p2 = p0, p0
            if rho > 0:
                p1 = math.exp(_interpolate(transform, (math.log(s[j] + rho) - grid.first) / grid.step) - s[j] * n)
                p2 = math.exp(_interpolate(transform, (math.log(s[j] + 2 * rho) - grid.first) / grid.step) - s[j] * n)
            mean += per_point[j] * (2 * p1 - p0)
            square += per_point[j] * s[j] * (4 * p2 - 4 * p1 + p0)
            spread += per_point[j] * s[j] * (p1 - p2)
        mean *= n
        square = n * (n * square + 4 * spread)
        moments[0, work], moments[1, work] = mean, math.sqrt(max(square - mean * mean, 0.0))
