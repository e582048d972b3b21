"""Compiled loops that deal the citations of a graph anew; called by ``null_model.py`` only.

A cell holds citations that may change places. Its cited works, ``cited``, lie row after row. Row r are the references
of work ``owners[r]`` in this cell, from ``starts[r]`` to ``starts[r + 1]``. ``row_of`` names the row of each place. A
dealt cell is simple: no row holds a work twice, or its own work. Each row is sorted, so that one set of citations has
one form.

A cell is shuffled whole. A small one is shuffled until it is simple, so each simple outcome is as likely as any other.
In a large one that chance is too low. Each citation that is in the way changes places with a random one. Unless these
are very few, random pairs then change places, once per citation, wherever both rows stay simple. This chain of swaps
keeps the even distribution, and takes away what the repairs have left of their own.
"""

# pyright: basic
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import AnyArray, Int32Array, Int64Array
from sciscidata._kernels.compile import helper, kernel, prefetch
from sciscidata._kernels.random import below, below_evenly, draw
from sciscidata._kernels.sort import sort_range

SMALL = 512  # citations of a cell that is shuffled until it is simple
TRIES = 100
_REACH = 64  # swaps whose memory is asked for together
_PARTNERS = 200  # drawn at random before all are tried in turn
_MIX_FROM = 1_000  # one repair in so many citations moves a mean by less than 0.1 % of its standard deviation
_MANY_SWAPS = 100  # per citation, more than enough to forget where they began: Milo et al. 2003, cond-mat/0312028


class Cell(NamedTuple):
    """Citations that may change places, row by row: a row has the references of one work in this cell."""

    cited: Int32Array  # (citations)
    starts: AnyArray  # (rows + 1): where each row begins
    owners: Int32Array  # (rows): the citing work
    row_of: AnyArray  # (citations)


@helper
def _shuffle(key, begin, cited):
    """Permute ``cited`` evenly (Fisher & Yates) by the numbers of ``key`` from ``begin`` on."""
    partners = np.empty(_REACH, np.int64)
    i = cited.size - 1
    while i > 0:
        n = min(i, _REACH)
        for k in range(n):
            partners[k] = below_evenly(draw(key, begin + i - k), i - k + 1)
            prefetch(cited, partners[k])  # pyright: ignore[reportCallIssue]
        for k in range(n):
            here = cited[i - k]
            cited[i - k] = cited[partners[k]]
            cited[partners[k]] = here
        i -= n


@helper
def _sort_rows(cell):
    """Sort each row; return how many citations repeat the one before them, or lead back to their own work."""
    cited, starts, owners, _ = cell
    n_wrong = 0
    for row in range(owners.size):
        begin, end = starts[row], starts[row + 1]
        sort_range(cited, begin, end)
        n_wrong += _count_wrong(cited, begin, end, owners[row])
    return n_wrong


@helper
def _count_wrong(cited, begin, end, owner):
    """Count the repeats in a sorted row, and whether its work is in it."""
    n_wrong = 0
    for i in range(begin, end):
        n_wrong += cited[i] == owner or (i > begin and cited[i] == cited[i - 1])
    return n_wrong


@helper
def _holds(cited, begin, end, value):
    while begin < end and cited[begin] != value:
        begin += 1
    return begin < end


@helper
def _swap(cell, a, b):
    """Let two citations change places if both rows then hold the newcomer once, and not as their own work."""
    cited, starts, owners, row_of = cell
    row_a, row_b = row_of[a], row_of[b]
    x, y = cited[a], cited[b]
    if row_a == row_b or x == y or y == owners[row_a] or x == owners[row_b]:
        return False
    if _holds(cited, starts[row_a], starts[row_a + 1], y) or _holds(cited, starts[row_b], starts[row_b + 1], x):
        return False
    cited[a], cited[b] = y, x
    return True


@helper
def _swap_with_any(key, number, cell, a):
    """Give a citation another place, drawn at random; return the next random number, or -1 if no place is free."""
    n = cell.cited.size
    for _ in range(_PARTNERS):
        number += 1
        if _swap(cell, a, below_evenly(draw(key, number), n)):
            return number
    number += 1
    first = below_evenly(draw(key, number), n)
    for b in range(first, first + n):
        if _swap(cell, a, b % n):
            return number
    return -1


@helper
def _mend(key, cell, n_wrong):
    """Swap every repeat, and every citation of a work by itself, of sorted rows away; say whether that was possible."""
    cited, starts, owners, _ = cell
    wrong_rows = np.empty(n_wrong, np.int64)
    n = 0
    for row in range(owners.size):
        if _count_wrong(cited, starts[row], starts[row + 1], owners[row]):
            wrong_rows[n] = row
            n += 1
    number = 0
    for row in wrong_rows[:n]:
        for a in range(starts[row], starts[row + 1]):
            if cited[a] == owners[row] or _holds(cited, starts[row], a, cited[a]):
                number = _swap_with_any(key, number, cell, a)
                if number < 0:
                    return False
    return True


@helper
def _mix(key, cell, n_swaps):
    """Try to swap random pairs; an impossible swap counts as a step that stays, which keeps the chain even."""
    n = cell.cited.size
    for k in range(n_swaps):
        bits = draw(key, k)  # half of them for each place: the chance of a pair may depend on its places
        _swap(cell, below(bits, n), below(bits << np.uint64(32), n))


@kernel
def deal_cell(key, observed, cell, tries):
    """Deal one cell by up to ``tries`` shuffles; return how many citations were swapped away, and whether it is stuck.

    If no swap was possible for one, all swaps begin from ``observed``.
    """
    cited, owners = cell.cited, cell.owners
    n = cited.size
    if owners.size < 2:
        return 0, 0
    shuffling, mending, mixing = draw(key, 0), draw(key, 1), draw(key, 2)
    n_wrong = 0
    for attempt in range(tries):
        _shuffle(shuffling, attempt * n, cited)
        n_wrong = _sort_rows(cell)
        if n_wrong == 0:
            return 0, 0
    is_mended = _mend(mending, cell, n_wrong)
    if not is_mended:
        cited[:] = observed
    if not is_mended or n <= SMALL:
        _mix(mixing, cell, _MANY_SWAPS * n)
    elif n_wrong * _MIX_FROM > n:
        _mix(mixing, cell, n)
    _sort_rows(cell)
    return n_wrong, 0 if is_mended else 1


class Classes(NamedTuple):
    """The cited works that may change places, (classes) each: those of one year, and those without a year."""

    ends: Int64Array  # first work behind each class
    numbers: Int64Array  # by which random numbers know it


@kernel
def deal_year(key, first, last, classes, ref_offsets, refs, dealt_refs):
    """Deal the references of the works ``first`` .. ``last - 1`` within each class of cited works, into dealt_refs.

    Rows of ``refs`` are sorted, so a row's references to one class lie together.
    """
    ends, numbers = classes
    n_classes = ends.size
    begin = ref_offsets[first]
    slots = np.zeros(n_classes + 1, np.int64)
    rows = np.zeros(n_classes + 1, np.int64)
    for row in range(first, last):
        c = 0
        latest = -1
        for e in range(ref_offsets[row], ref_offsets[row + 1]):
            c = _class_of(refs[e], ends, c)
            slots[c + 1] += 1
            rows[c + 1] += c != latest
            latest = c
    slots = np.cumsum(slots)
    rows = np.cumsum(rows)
    observed = np.empty(ref_offsets[last] - begin, np.int32)
    owners = np.empty(rows[-1], np.int32)
    starts = np.empty(rows[-1] + n_classes, np.int32)  # with the end of the last row of each class
    row_of = np.empty(observed.size, np.int32)
    slot = slots.copy()
    place = rows.copy()
    for row in range(first, last):
        c = 0
        latest = -1
        for e in range(ref_offsets[row], ref_offsets[row + 1]):
            c = _class_of(refs[e], ends, c)
            if c != latest:
                starts[place[c] + c] = slot[c] - slots[c]
                owners[place[c]] = row
                place[c] += 1
                latest = c
            observed[slot[c]] = refs[e]
            row_of[slot[c]] = place[c] - 1 - rows[c]
            slot[c] += 1
    cited = observed.copy()
    n_mended = 0
    n_stuck = 0
    for c in range(n_classes):
        a, b = slots[c], slots[c + 1]
        starts[rows[c + 1] + c] = b - a
        mended, stuck = deal_cell(
            draw(key, numbers[c]),
            observed[a:b],
            Cell(
                cited[a:b],
                starts[rows[c] + c : rows[c + 1] + c + 1],
                owners[rows[c] : rows[c + 1]],
                row_of[a:b],
            ),
            TRIES if b - a <= SMALL else 1,
        )
        n_mended += mended
        n_stuck += stuck
    slot[:] = slots
    for row in range(first, last):
        c = 0
        for e in range(ref_offsets[row], ref_offsets[row + 1]):
            c = _class_of(refs[e], ends, c)
            dealt_refs[e] = cited[slot[c]]
            slot[c] += 1
    return n_mended, n_stuck


@helper
def _class_of(work, ends, c):
    """Find the class of a work, at ``c`` or later."""
    while work >= ends[c]:
        c += 1
    return c


@kernel
def add_draw(values, means, squares, counts):
    """Add the values of one draw, NaN where undefined, to running moments: equal values have exactly no variance.

    Source: Welford 1962, doi:10.1080/00401706.1962.10490022.
    """
    for i in range(values.size):
        value = values[i]
        if value == value:
            counts[i] += 1
            off = value - means[i]
            means[i] += off / counts[i]
            squares[i] += off * (value - means[i])
