"""Compiled loops from the values of venue pairs to the works that hold them: entries, and quantiles over them.

Groups and cells are those of pair_counting_kernels.py. An entry is a pair of groups (i <= j) of one work; the entries
of group i lie end to end from ``entry_starts[i]`` on.
"""

# pyright: basic
from __future__ import annotations

import math

import numpy as np

from sciscidata.compiled import kernel


@kernel
def entry_places(group_offsets):
    """Return where the entries of each group begin, and how many there are in all."""
    starts = np.empty(group_offsets[-1], np.int64)
    n = 0
    for work in range(group_offsets.size - 1):
        for i in range(group_offsets[work], group_offsets[work + 1]):
            starts[i] = n
            n += group_offsets[work + 1] - i
    return starts, n


@kernel
def hand_out(row_starts, row_groups, venues, ends, entry_starts, cell_starts, partners, values, entries):
    """Hand the value of every cell to the entries of the works that hold it; NaN where a pair has no cell."""
    n_venues = row_starts.size - 1
    row = np.full(n_venues, np.nan)
    for a in range(n_venues):
        first, last = np.uint64(cell_starts[a]), np.uint64(cell_starts[a + 1])
        for cell in range(first, last):
            row[np.uint32(partners[cell])] = values[cell]
        for r in range(row_starts[a], row_starts[a + 1]):
            i = row_groups[r]
            entry = np.uint64(entry_starts[i])
            for j in range(np.uint64(i), np.uint64(ends[i])):
                entries[entry] = row[np.uint32(venues[j])]
                entry += np.uint64(1)
        for cell in range(first, last):
            row[np.uint32(partners[cell])] = np.nan


@kernel
def _select(values, low, high, k):
    """Reorder values[low .. high - 1] so that place k holds what it would if sorted, nothing larger before it.

    Quickselect with partitions that move every value whatever it is, because a branch here is a coin toss.
    """
    while high > low + np.uint64(1):
        first, middle, last = values[low], values[(low + high) >> np.uint64(1)], values[high - np.uint64(1)]
        pivot = max(min(first, middle), min(max(first, middle), last))
        cut = low
        for i in range(low, high):
            value = values[i]
            values[i] = values[cut]
            values[cut] = value
            cut += np.uint64(value < pivot)
        if k < cut:
            high = cut
            continue
        low = cut
        for i in range(low, high):  # what equals the pivot: pairs of one venue pair share their z
            value = values[i]
            values[i] = values[cut]
            values[cut] = value
            cut += np.uint64(value == pivot)
        if k < cut:
            return
        low = cut


@kernel
def _quantile(values, n, high, share):
    """Return NumPy's linear quantile of values[:n], whose lowest lie in values[:high] and are reordered there."""
    place = (np.int64(n) - 1) * share
    k = np.uint64(math.floor(place))
    t = place - math.floor(place)
    _select(values, np.uint64(0), high, k)
    below_it = values[k]
    if t == 0:
        return below_it
    above_it = values[k + np.uint64(1)]
    for i in range(k + np.uint64(2), high):
        above_it = min(above_it, values[i])
    gap = above_it - below_it
    return above_it - gap * (1 - t) if t >= 0.5 else below_it + gap * t


@kernel
def work_quantiles(group_offsets, counts, entry_starts, entries, n_pairs, z_p10, z_median, unique=False):
    """Write, per work, how many pairs have a z, and the 10th percentile and median of these; NaN if there is none.

    A pair of venues counts as often as references form it; once, with ``unique``.
    """
    one = np.uint64(1)
    values = np.empty(1024)
    for work in range(group_offsets.size - 1):
        begin, end = np.uint64(group_offsets[work]), np.uint64(group_offsets[work + 1])
        n_slots = 0
        for i in range(begin, end):
            n_slots += counts[i]
        if n_slots * (n_slots - 1) // 2 > values.size:
            values = np.empty(n_slots * (n_slots - 1) // 2)
        n = np.uint64(0)
        for i in range(begin, end):
            entry = np.uint64(entry_starts[i])
            for j in range(i, end):
                z = entries[entry]
                entry += one
                if z == z:
                    times = counts[i] * (counts[i] - 1) // 2 if i == j else counts[i] * counts[j]
                    times = min(times, 1) if unique else times
                    for _ in range(times):
                        values[n] = z
                        n += one
        n_pairs[work] = n
        z_median[work] = _quantile(values, n, n, 0.5) if n else np.nan
        half = (n - one) // np.uint64(2) + one  # where the median has put the lower half
        z_p10[work] = _quantile(values, n, half, 0.1) if n else np.nan
