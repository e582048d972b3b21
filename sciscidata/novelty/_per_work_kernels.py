"""Compiled loops from the values of venue pairs to the works that hold them, for all three measures.

Groups, cells and entries are those of ``shapes.py``. A table is Cells of all venues. Pairs (a, b) with a <= b lie row
by row, in any order inside a row. So rows are compared through a dense array of one place per venue. All sums are of
whole numbers, except a work's difficulties, which are sorted first. So no result depends on how venues are numbered.
"""

# pyright: basic
from __future__ import annotations

import math

import numpy as np

from sciscidata._kernels.compile import helper, kernel
from sciscidata.novelty.config import LOW_QUANTILE
from sciscidata.novelty.shapes import Cells, History


@kernel
def commonness_of_cells(table, ordered):
    """Return N_ab N / (N_a N_b) of every cell; with ``ordered``, every pair counts as (a, b) and as (b, a)."""
    starts, partners, counts, _ = table
    marginals = np.zeros(starts.size - 1, np.int64)
    total = 0
    for a in range(starts.size - 1):
        for cell in range(starts[a], starts[a + 1]):
            marginals[a] += counts[cell]
            if ordered or partners[cell] != a:
                marginals[partners[cell]] += counts[cell]
            total += counts[cell]
    result = np.empty(partners.size)
    for a in range(starts.size - 1):
        for cell in range(starts[a], starts[a + 1]):
            b = partners[cell]
            joint = 2 * counts[cell] if ordered and a == b else counts[cell]
            whole = 2 * total if ordered else total
            # As floats: these products of whole numbers do not always fit into 64 bits.
            result[cell] = float(joint) * float(whole) / (float(marginals[a]) * float(marginals[b]))
    return result


@kernel
def join_history(table, place, since, history):
    """Find the cells that were not joined in a year from place ``since`` on; return them, and the new History."""
    starts, partners = table.starts, table.partners
    old_starts, old_partners, old_places = history
    n_venues = starts.size - 1
    is_new = np.empty(partners.size, np.bool_)
    new_starts = np.zeros(n_venues + 1, np.int64)
    new_partners = np.empty(old_partners.size + partners.size, np.int32)
    new_places = np.empty(new_partners.size, np.int32)
    last = np.full(n_venues, -1, np.int32)
    n = 0
    for a in range(n_venues):
        for i in range(old_starts[a], old_starts[a + 1]):
            last[old_partners[i]] = old_places[i]
            new_partners[n] = old_partners[i]
            n += 1
        for cell in range(starts[a], starts[a + 1]):
            b = partners[cell]
            is_new[cell] = last[b] < since
            if last[b] < 0:
                new_partners[n] = b
                n += 1
            last[b] = place
        for i in range(new_starts[a], n):
            new_places[i] = last[new_partners[i]]
            last[new_partners[i]] = -1
        new_starts[a + 1] = n
    # Copies, because a view would keep what is beyond it alive.
    return is_new, History(new_starts, new_partners[:n].copy(), new_places[:n].copy())


@kernel
def drop_venues(table, kept, wanted):
    """Unmark the cells of which a venue is not kept."""
    starts, partners = table.starts, table.partners
    for a in range(starts.size - 1):
        for cell in range(starts[a], starts[a + 1]):
            wanted[cell] &= kept[a] and kept[partners[cell]]


@kernel
def add_reuses(table, wanted, later, reuses):
    """Add, for the marked cells, how often the same pairs stand in another table."""
    starts, partners = table.starts, table.partners
    later_starts, later_partners, later_counts, _ = later
    dense = np.zeros(starts.size - 1, np.int64)
    for a in range(starts.size - 1):
        if not wanted[starts[a] : starts[a + 1]].any():
            continue
        for i in range(later_starts[a], later_starts[a + 1]):
            dense[later_partners[i]] = later_counts[i]
        for cell in range(starts[a], starts[a + 1]):
            if wanted[cell]:
                reuses[cell] += dense[partners[cell]]
        for i in range(later_starts[a], later_starts[a + 1]):
            dense[later_partners[i]] = 0


@kernel
def add_tables(one, other):
    """Return the table of the sums of two."""
    starts = np.zeros(one.starts.size, np.int64)
    partners = np.empty(one.partners.size + other.partners.size, np.int32)
    counts = np.empty(partners.size, np.int32)
    dense = np.zeros(starts.size - 1, np.int64)
    n = 0
    for a in range(starts.size - 1):
        for i in range(one.starts[a], one.starts[a + 1]):
            dense[one.partners[i]] = one.observed[i]
            partners[n] = one.partners[i]
            n += 1
        for i in range(other.starts[a], other.starts[a + 1]):
            if dense[other.partners[i]] == 0:
                partners[n] = other.partners[i]
                n += 1
            dense[other.partners[i]] += other.observed[i]
        for i in range(starts[a], n):
            counts[i] = dense[partners[i]]
            dense[partners[i]] = 0
        starts[a + 1] = n
    return Cells(starts, partners[:n].copy(), counts[:n].copy(), one.first)


@kernel
def symmetric(table):
    """Return the table with every pair of different venues in both of its rows."""
    starts, partners, counts, _ = table
    ends = np.zeros(starts.size, np.int64)
    for a in range(starts.size - 1):
        ends[a + 1] += starts[a + 1] - starts[a]
        for i in range(starts[a], starts[a + 1]):
            ends[partners[i] + 1] += 1
    for a in range(starts.size - 1):
        ends[a + 1] += ends[a]
    cursor = ends[:-1].copy()
    both = np.empty(ends[-1], np.int32)
    twice = np.empty(ends[-1], np.int32)
    for a in range(starts.size - 1):
        for i in range(starts[a], starts[a + 1]):
            b = partners[i]
            both[cursor[a]], twice[cursor[a]] = b, counts[i]
            both[cursor[b]], twice[cursor[b]] = a, counts[i]
            cursor[a] += 1
            cursor[b] += 1
    return Cells(ends, both, twice, table.first)


@kernel
def squared_norms(profiles):
    """Return the sum of squares of every row."""
    starts, counts = profiles.starts, profiles.observed
    result = np.zeros(starts.size - 1, np.int64)
    for a in range(starts.size - 1):
        for i in range(starts[a], starts[a + 1]):
            result[a] += np.int64(counts[i]) * counts[i]
    return result


@kernel
def difficulties(table, wanted, profiles, norms, rows, result):
    """Write 1 - cosine of the two venues' profiles for the marked cells of ``rows`` (first, end).

    ``wanted`` and ``result`` are (cells), ``norms`` are (venues): the squared lengths of the profiles.
    """
    first, last = rows
    starts, partners = table.starts, table.partners
    profile_starts, others, counts, _ = profiles
    dense = np.zeros(starts.size - 1, np.int64)
    for a in range(first, last):
        if not wanted[starts[a] : starts[a + 1]].any():
            continue
        for i in range(profile_starts[a], profile_starts[a + 1]):
            dense[others[i]] = counts[i]
        for cell in range(starts[a], starts[a + 1]):
            if wanted[cell]:
                b = partners[cell]
                product = 0
                for i in range(profile_starts[b], profile_starts[b + 1]):
                    product += dense[others[i]] * counts[i]
                cosine = float(product) / math.sqrt(float(norms[a]) * float(norms[b]))
                result[cell] = 1.0 - cosine  # not below 0: rounding keeps the order of Cauchy and Schwarz
        for i in range(profile_starts[a], profile_starts[a + 1]):
            dense[others[i]] = 0


@kernel
def sum_over_works(groups, table, difficulty, n_new, novelty):
    """Write, for works of two venues or more, how many of their pairs have a difficulty, and the sum."""
    offsets, venues, ends = groups.offsets, groups.venues, groups.ends
    row_starts, row_groups = groups.row_starts, groups.row_groups
    starts, partners = table.starts, table.partners
    n_works = offsets.size - 1
    work_of = np.empty(venues.size, np.int32)
    for work in range(n_works):
        work_of[offsets[work] : offsets[work + 1]] = work
    row = np.full(starts.size - 1, np.nan)
    places = np.zeros(n_works + 1, np.int64)
    cursor = places[:-1].copy()
    values = np.empty(0)
    for writing in (False, True):  # count, then write
        if writing:
            for work in range(n_works):
                places[work + 1] += places[work]
            cursor[:] = places[:-1]
            values = np.empty(places[-1])
        for a in range(starts.size - 1):
            some = False
            for cell in range(starts[a], starts[a + 1]):
                row[partners[cell]] = difficulty[cell]
                some |= difficulty[cell] == difficulty[cell]
            if some:
                for r in range(row_starts[a], row_starts[a + 1]):
                    i = row_groups[r]
                    work = work_of[i]
                    for j in range(i + 1, ends[i]):
                        value = row[venues[j]]
                        if value == value:
                            if writing:
                                values[cursor[work]] = value
                                cursor[work] += 1
                            else:
                                places[work + 1] += 1
            for cell in range(starts[a], starts[a + 1]):
                row[partners[cell]] = np.nan
    for work in range(n_works):
        if offsets[work + 1] - offsets[work] > 1:
            total = 0.0
            for value in np.sort(values[places[work] : places[work + 1]]):
                total += value
            n_new[work] = places[work + 1] - places[work]
            novelty[work] = total


@kernel
def hand_out(groups, cells, values, row, entries):
    """Hand the value of every cell to the entries of the works that hold it; NaN where a pair has no cell.

    ``values`` are (cells). ``row`` (venues) is NaN before and after.
    """
    row_starts, row_groups, venues, ends = groups.row_starts, groups.row_groups, groups.venues, groups.ends
    partners = cells.partners
    for at in range(cells.starts.size - 1):
        a = cells.first + at
        first, last = np.uint64(cells.starts[at]), np.uint64(cells.starts[at + 1])
        for cell in range(first, last):
            row[np.uint32(partners[cell])] = values[cell]
        for r in range(row_starts[a], row_starts[a + 1]):
            i = row_groups[r]
            entry = np.uint64(entries.starts[i])
            for j in range(np.uint64(i), np.uint64(ends[i])):
                entries.values[entry] = row[np.uint32(venues[j])]
                entry += np.uint64(1)
        for cell in range(first, last):
            row[np.uint32(partners[cell])] = np.nan


@helper
def _select(values, low, high, k):
    """Reorder values[low:high] so that place k holds what it would if sorted: quickselect without a branch to guess."""
    while high > low + np.uint64(1):
        pivot, middle, last = values[low], values[(low + high) >> np.uint64(1)], values[high - np.uint64(1)]
        if pivot > middle:
            pivot, middle = middle, pivot
        if last < middle:  # the second largest of the three
            middle = last
        if pivot < middle:
            pivot = middle
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
def work_quantiles(groups, entries, unique, written, values):
    """Write, per work, how many pairs have a value, and NumPy's linear LOW_QUANTILE and median, or NaN.

    ``values`` is scratch: as many as the most pairs of a work. ``unique``: a pair of venues counts once.
    """
    counts = groups.counts
    one = np.uint64(1)
    for work in range(groups.offsets.size - 1):
        begin, end = np.uint64(groups.offsets[work]), np.uint64(groups.offsets[work + 1])
        n = np.uint64(0)
        for i in range(begin, end):
            entry = np.uint64(entries.starts[i])
            for j in range(i, end):
                z = entries.values[entry]
                entry += one
                if z == z:
                    times = counts[i] * (counts[i] - 1) // 2 if i == j else counts[i] * counts[j]
                    times = 1 if unique and times > 1 else times
                    for _ in range(times):
                        values[n] = z
                        n += one
        written.n_pairs[work] = n
        high, share, quantile = n, 0.5, np.nan
        for turn in range(2):  # one call of _select, which would otherwise be compiled twice
            if n:
                place = (np.int64(n) - 1) * share
                k = np.uint64(math.floor(place))
                t = place - math.floor(place)
                _select(values, np.uint64(0), high, k)
                quantile = values[k]
                if t > 0:
                    above_it = values[k + one]
                    for i in range(k + np.uint64(2), high):
                        if values[i] < above_it:
                            above_it = values[i]
                    gap = above_it - quantile
                    quantile = above_it - gap * (1 - t) if t >= 0.5 else quantile + gap * t
            if turn == 0:
                written.median[work] = quantile
                high, share = (n - one) // np.uint64(2) + one, LOW_QUANTILE  # where the median has put the lower half
        written.low[work] = quantile
