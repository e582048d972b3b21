"""Compiled loops of what is known when a work appears, called by ``publication_features.py`` only.

Works are taken year by year. A work of the present year walks the earlier citers of its references once. That says how
many references it shares with each earlier work, and for each of these that one more work cites what it cites. So one
walk serves two measures: the coupling of the present work, and the CD index of every earlier one up to the present.
"""

# pyright: basic
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import AnyArray, Int32Array, Int64Array
from sciscidata._kernels.compile import helper, kernel, prefetch
from sciscidata._kernels.sort import sort_range

_AHEAD = 2  # references whose list of citers is asked for in advance


class Lists(NamedTuple):
    """Who cites whom: each list is a slice of a flat array, in order of time."""

    ref_offsets: Int64Array  # (papers + 1): where the references of each paper begin
    refs: Int32Array  # (references): cited papers
    starts: AnyArray  # (papers + 1): where the citers of each paper begin
    citers: Int32Array  # (citations): citing works with a year
    years: Int32Array  # (works with a year)


class Place(NamedTuple):
    """The works of the present year: ``low`` .. ``high - 1``. Those with a smaller index are earlier."""

    year: int
    low: int
    high: int


class Past(NamedTuple):
    """What the years before the present one say of each paper."""

    n_citers: AnyArray  # (papers)
    n_old: AnyArray  # (papers): of these, those before the last years
    n_after: AnyArray  # (works with a year): of these, those published after the paper's own year
    n_both: AnyArray  # (works with a year): of those after, those that cite a reference of it, too
    n_touching: AnyArray  # (works with a year): works after its own year that cite a reference of it


class Scratch(NamedTuple):
    """Room that one thread writes to."""

    marks: AnyArray  # (works with a year, 2): a number that says how many references are shared; new n_touching
    number: AnyArray  # (1): the highest number so far
    sorting: Int64Array  # (most references)


class Counts(NamedTuple):
    """Whole numbers for the works of a year, (works) each. A middle is twice the median: the sum of the middle two."""

    n_references_dated: Int64Array
    age_min: Int64Array
    age_max: Int64Array
    age_sum: Int64Array
    age_middle: Int64Array
    citations: Int64Array
    citations_max: Int64Array
    citations_middle: Int64Array
    recent_citations: Int64Array
    n_uncited: Int64Array
    n_with_cd: Int64Array
    n_coupled: Int64Array
    n_coupled_twice: Int64Array
    coupling_max: Int64Array
    coupling_sum: Int64Array


@helper
def _walk(begin, end, lists, n_citers, scratch, row, counts):
    """Count how many references of a work each earlier work cites, too; return the mark of a work that shares none.

    Marks of a work lie above those of all works before it, so that nothing has to be cleared between two.
    """
    _, refs, starts, citers, _ = lists
    marks, number, _ = scratch
    step = end - begin + 1
    if np.int64(number[0]) + 2 * step > np.iinfo(np.uint32).max:
        for i in range(marks.shape[0]):
            marks[i, 0] = 0
        number[0] = 0
    unmet = np.uint32(number[0])
    number[0] += step
    once = np.uint32(unmet + np.uint32(1))
    n_coupled, n_twice, n_steps, top = np.int64(0), np.int64(0), np.int64(0), unmet
    for e in range(begin, end):
        if e + _AHEAD < end:
            prefetch(citers, np.int64(starts[np.uint32(refs[e + _AHEAD])]))  # pyright: ignore[reportCallIssue]
        paper = np.uint32(refs[e])
        first = np.uint64(starts[paper])
        n = np.uint64(n_citers[paper])
        n_steps += np.int64(n)
        for i in range(first, first + n):
            citer = np.uint32(citers[i])
            met = marks[citer, 0]
            is_new = met <= unmet
            mark = np.uint32(max(met, unmet) + np.uint32(1))
            marks[citer, 0] = mark
            marks[citer, 1] += np.uint32(is_new)
            n_coupled += is_new
            n_twice += met == once
            top = max(top, mark)
    counts.n_coupled[row] = n_coupled
    counts.n_coupled_twice[row] = n_twice
    counts.coupling_max[row] = np.int64(top) - np.int64(unmet)
    counts.coupling_sum[row] = n_steps
    return unmet


@helper
def _count_citations(begin, end, refs, past, sorting, row, counts):
    """Sum up how often the references were cited before the present year."""
    n = end - begin
    total, recent, n_uncited = np.int64(0), np.int64(0), np.int64(0)
    for e in range(begin, end):
        cited = np.int64(past.n_citers[refs[e]])
        sorting[e - begin] = cited
        total += cited
        recent += cited - np.int64(past.n_old[refs[e]])
        n_uncited += cited == 0
    sort_range(sorting, 0, n)
    counts.citations[row] = total
    counts.citations_max[row] = sorting[n - 1]
    counts.citations_middle[row] = sorting[(n - 1) // 2] + sorting[n // 2]
    counts.recent_citations[row] = recent
    counts.n_uncited[row] = n_uncited


@helper
def _count_ages(begin, end, refs, years, place, row, counts):
    """Sum up the ages of references with a year up to the present one. Time is their order: they come first."""
    n, total = 0, np.int64(0)
    while begin + n < end and refs[begin + n] < place.high:
        total += place.year - years[refs[begin + n]]
        n += 1
    if n == 0:
        return
    counts.n_references_dated[row] = n
    counts.age_max[row] = place.year - years[refs[begin]]
    counts.age_min[row] = place.year - years[refs[begin + n - 1]]
    counts.age_sum[row] = total
    counts.age_middle[row] = 2 * place.year - years[refs[begin + (n - 1) // 2]] - years[refs[begin + n // 2]]


@helper
def _sum_cd(begin, end, lists, place, past, row, counts):
    """Add up the CD index that each earlier reference has by now, if a later work cites it and it has references."""
    total, n = 0.0, np.int64(0)
    for e in range(begin, end):
        paper = lists.refs[e]
        if paper >= place.low:
            break
        n_after = np.int64(past.n_after[paper])
        if n_after > 0 and lists.ref_offsets[paper + 1] > lists.ref_offsets[paper]:
            n_both = np.int64(past.n_both[paper])
            total += (n_after - 2 * n_both) / (n_after + np.int64(past.n_touching[paper]) - n_both)
            n += 1
    counts.n_with_cd[row] = n
    return total


@kernel
def describe(first, last, lists, place, past, scratch, cites_both, counts, cd_sums):
    """Describe the works ``first`` .. ``last - 1`` of the present year, each in the row of its place in that year.

    ``cites_both``, (references of the year's works): whether a work cites an earlier one and a reference of it.
    """
    ref_offsets, refs = lists.ref_offsets, lists.refs
    for focal in range(first, last):
        begin, end = ref_offsets[focal], ref_offsets[focal + 1]
        if begin == end:
            continue
        row = focal - place.low
        unmet = _walk(begin, end, lists, past.n_citers, scratch, row, counts)
        for e in range(begin, end):
            paper = refs[e]
            if paper < place.low:
                cites_both[e - ref_offsets[place.low]] = scratch.marks[paper, 0] > unmet
        _count_citations(begin, end, refs, past, scratch.sorting, row, counts)
        _count_ages(begin, end, refs, lists.years, place, row, counts)
        cd_sums[row] = _sum_cd(begin, end, lists, place, past, row, counts)


@kernel
def end_year(lists, place, past, cites_both):
    """Let the citations of the present year's works be of the past."""
    begin = lists.ref_offsets[place.low]
    for e in range(begin, lists.ref_offsets[place.high]):
        paper = lists.refs[e]
        past.n_citers[paper] += 1
        if paper < place.low:
            past.n_after[paper] += 1
            past.n_both[paper] += cites_both[e - begin]


@kernel
def take_new(n_touching, marks):
    """Add what a thread has counted to the sum, and let it begin at 0 again."""
    for i in range(n_touching.size):
        n_touching[i] += marks[i, 1]
        marks[i, 1] = 0
