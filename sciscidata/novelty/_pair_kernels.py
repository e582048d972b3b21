"""Compiled loops over the reference lists of one citing year: slots, groups, and how often venue pairs occur.

Slots, strata, groups and cells are those of ``venue_pairs.py``. ``offsets`` says which slots belong to which work.
Groups ascend by venue, with a multiplicity each. In a cell a <= b; the cells of row a lie end to end.
"""

# pyright: basic
from __future__ import annotations

import numpy as np

from sciscidata._kernels.compile import kernel
from sciscidata._kernels.random import below, draw
from sciscidata._kernels.sort import sort_range


@kernel
def collect_slots(
    first, last, ref_offsets, refs, venues, year_of, max_references, offsets, years, slot_venues, left_out
):
    """Write the slots of works ``first`` .. ``last - 1``; return how many there are.

    A work with more than ``max_references`` slots gets none, and is marked as left out.
    """
    n = 0
    offsets[0] = 0
    for work in range(first, last):
        start = n
        for e in range(ref_offsets[work], ref_offsets[work + 1]):
            cited = refs[e]
            if cited < venues.size and venues[cited] >= 0:
                years[n] = year_of[cited]
                slot_venues[n] = venues[cited]
                n += 1
        if n - start > max_references:
            n = start
            left_out[work] = True
        offsets[work - first + 1] = n
    return n


@kernel
def renumber_by_appearance(values, numbers):
    """Replace values by 0, 1, 2 .. in order of appearance; return what each number stands for.

    ``numbers`` is -1 everywhere, before and after. No result depends on the values, so that renaming venues changes no
    bit.
    """
    n = 0
    for i in range(values.size):
        if numbers[values[i]] < 0:
            numbers[values[i]] = n
            n += 1
    old = np.empty(n, values.dtype)
    for i in range(values.size):
        number = numbers[values[i]]
        old[number] = values[i]
        values[i] = number
    for number in range(n):
        numbers[old[number]] = -1
    return old


@kernel
def sorted_by(keys, n_keys):
    """Return where each key's positions begin, and all positions ordered by key, stable."""
    starts = np.zeros(n_keys + 1, np.int64)
    for key in keys:
        starts[key + 1] += 1
    for key in range(n_keys):
        starts[key + 1] += starts[key]
    cursor = starts[:-1].copy()
    order = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        order[cursor[keys[i]]] = i
        cursor[keys[i]] += 1
    return starts, order


@kernel
def shuffle_cells(key, year_numbers, starts, order, slot_venues, shuffled):
    """Permute venues inside every stratum by Fisher and Yates; draw i of a stratum is a function of its number."""
    for c in range(starts.size - 1):
        begin, n = starts[c], starts[c + 1] - starts[c]
        for i in range(n):
            shuffled[order[begin + i]] = slot_venues[order[begin + i]]
        stratum_key = draw(key, year_numbers[c])
        for i in range(n - 1, 0, -1):
            j = below(draw(stratum_key, i), i + 1)
            s, t = order[begin + i], order[begin + j]
            shuffled[s], shuffled[t] = shuffled[t], shuffled[s]


@kernel
def group_slots(offsets, slot_venues, unique):
    """Return the groups of every work: group_offsets, venues, multiplicities, and where each one's work ends."""
    n_works = offsets.size - 1
    group_offsets = np.zeros(n_works + 1, np.int64)
    venues = np.empty(slot_venues.size, np.int32)
    counts = np.empty(slot_venues.size, np.int32)
    ends = np.empty(slot_venues.size, np.int64)
    row = np.empty(slot_venues.size, slot_venues.dtype)
    n = 0
    for work in range(n_works):
        size = offsets[work + 1] - offsets[work]
        for i in range(size):
            row[i] = slot_venues[offsets[work] + i]
        sort_range(row, np.int64(0), size)
        start = n
        for i in range(size):
            if i and row[i] == row[i - 1]:
                counts[n - 1] += not unique
            else:
                venues[n] = row[i]
                counts[n] = 1
                n += 1
        ends[start:n] = n
        group_offsets[work + 1] = n
    return group_offsets, venues[:n].copy(), counts[:n].copy(), ends[:n].copy()


@kernel
def count_cells(row_starts, row_groups, venues, counts, ends, same_venue, tally, partners, observed):
    """Count venue pairs row by row, partners ascending; return where the cells of each row begin.

    ``tally`` has a place per venue, 0 before and after, wide enough for every count.
    """
    n_venues = row_starts.size - 1
    row = np.empty(n_venues + 1, np.int32)
    cell_starts = np.zeros(n_venues + 1, np.int64)
    start = 0
    for a in range(n_venues):
        n_steps = 0
        for r in range(row_starts[a], row_starts[a + 1]):
            i = row_groups[r]
            times = counts[i]
            if same_venue:
                tally[a] += times * (times - 1) // 2
            for j in range(np.uint64(i + 1), np.uint64(ends[i])):
                tally[np.uint32(venues[j])] += times * counts[j]
            n_steps += ends[i] - i
        n = np.uint64(0)
        if 8 * n_steps > n_venues:
            for b in range(np.uint64(a), np.uint64(n_venues)):  # without a branch: whether b occurs is a coin toss
                row[n] = b
                n += np.uint64(tally[b] > 0)
        else:  # a sparse row: only what was met; minus marks what is in the row already
            for r in range(row_starts[a], row_starts[a + 1]):
                for j in range(row_groups[r], ends[row_groups[r]]):
                    b = np.uint32(venues[j])
                    if tally[b] > 0:
                        row[n] = b
                        n += np.uint64(1)
                        tally[b] = -tally[b]
            sort_range(row, np.int64(0), np.int64(n))
        for cell in range(n):
            b = np.uint32(row[cell])
            partners[start + cell] = b
            observed[start + cell] = abs(tally[b])
            tally[b] = 0
        start += n
        cell_starts[a + 1] = start
    return cell_starts


@kernel
def add_shuffle(
    row_starts, row_groups, venues, counts, ends, same_venue, tally, cell_starts, partners, observed, sums, squares
):
    """Add up by how much the pair counts of one shuffle exceed those observed, and the squares of that."""
    n_venues = row_starts.size - 1
    for a in range(n_venues):
        n_steps = 0
        for r in range(row_starts[a], row_starts[a + 1]):
            i = row_groups[r]
            times = counts[i]
            if same_venue:
                tally[a] += times * (times - 1) // 2
            for j in range(i + 1, ends[i]):
                tally[np.uint32(venues[j])] += times * counts[j]
            n_steps += ends[i] - i
        for cell in range(cell_starts[a], cell_starts[a + 1]):
            excess = np.int64(tally[np.uint32(partners[cell])]) - np.int64(observed[cell])
            sums[cell] += excess
            squares[cell] += excess * excess
        if 8 * n_steps > n_venues:
            tally[a:] = 0
        else:  # a sparse row: undo it step by step
            for r in range(row_starts[a], row_starts[a + 1]):
                for j in range(row_groups[r], ends[row_groups[r]]):
                    tally[venues[j]] = 0
