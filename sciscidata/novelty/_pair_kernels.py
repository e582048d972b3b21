"""Compiled loops over the reference lists of one citing year: slots, groups, and how often venue pairs occur.

Slots, strata, groups and cells are those of ``shapes.py``. ``offsets`` says which slots belong to which work.
Groups ascend by venue, with a multiplicity each. In a cell a <= b; the cells of row a lie end to end.
"""

# pyright: basic
from __future__ import annotations

import numpy as np

from sciscidata._kernels.compile import kernel
from sciscidata._kernels.random import below, draw
from sciscidata._kernels.sort import sort_range


@kernel
def collect_slots(works, lists, max_references, slots, left_out):
    """Write the slots of the works from the first on, before the last; return how many slots there are.

    ``slots`` are offsets (works + 1), places of years and venues (references each). A work with more than
    ``max_references`` is marked in ``left_out`` (dated works).
    """
    first, last = works
    offsets, years, slot_venues = slots
    n = 0
    offsets[0] = 0
    for work in range(first, last):
        start = n
        for e in range(lists.offsets[work], lists.offsets[work + 1]):
            cited = lists.refs[e]
            if cited < lists.venues.size and lists.venues[cited] >= 0:
                years[n] = lists.year_of[cited]
                slot_venues[n] = lists.venues[cited]
                n += 1
        if n - start > max_references:
            n = start
            left_out[work] = True
        offsets[work - first + 1] = n
    return n


@kernel
def shuffle_cells(key, year_numbers, slots, shuffled):
    """Permute venues inside every stratum by Fisher and Yates; draw i of a stratum is a function of its number.

    ``year_numbers`` (strata) are these numbers, ``shuffled`` (slots) are the new venues.
    """
    starts, order = slots.stratum_starts, slots.by_stratum
    for c in range(starts.size - 1):
        begin, n = starts[c], starts[c + 1] - starts[c]
        for i in range(n):
            shuffled[order[begin + i]] = slots.venues[order[begin + i]]
        stratum_key = draw(key, year_numbers[c])
        for i in range(n - 1, 0, -1):
            j = below(draw(stratum_key, i), i + 1)
            s, t = order[begin + i], order[begin + j]
            shuffled[s], shuffled[t] = shuffled[t], shuffled[s]


@kernel
def count_cells(groups, same_venue, tally, row, cells):
    """Count venue pairs row by row, partners ascending; write them to ``cells``, and return how many there are.

    ``tally`` (venues) is 0 before and after, ``row`` (venues + 1) is scratch: the partners of a row.
    """
    row_starts, row_groups, venues = groups.row_starts, groups.row_groups, groups.venues
    counts, ends = groups.counts, groups.ends
    n_venues = tally.size
    cells.starts[0] = start = 0
    for at in range(cells.starts.size - 1):
        a = cells.first + at
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
            cells.partners[start + cell] = b
            cells.observed[start + cell] = abs(tally[b])
            tally[b] = 0
        start += n
        cells.starts[at + 1] = start
    return start


@kernel
def add_shuffle(groups, cells, same_venue, tally, totals):
    """Add up by how much the pair counts of one shuffle exceed those observed, and the squares of that.

    ``tally`` (venues) is 0 before and after. ``totals`` are both sums, (cells) each.
    """
    row_starts, row_groups, venues = groups.row_starts, groups.row_groups, groups.venues
    counts, ends = groups.counts, groups.ends
    sums, squares = totals
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
        for cell in range(cells.starts[a], cells.starts[a + 1]):
            excess = np.int64(tally[np.uint32(cells.partners[cell])]) - np.int64(cells.observed[cell])
            sums[cell] += excess
            squares[cell] += excess * excess
        if 8 * n_steps > n_venues:
            tally[a:] = 0
        else:  # a sparse row: undo it step by step
            for r in range(row_starts[a], row_starts[a + 1]):
                for j in range(row_groups[r], ends[row_groups[r]]):
                    tally[venues[j]] = 0
