"""Compiled loops over the works of authors, called by ``self_citations.py`` only."""

# pyright: basic
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import Int32Array, Int64Array
from sciscidata._kernels.compile import helper, kernel


class References(NamedTuple):
    """The references of each paper, ascending."""

    offsets: Int64Array  # (papers + 1)
    refs: Int32Array


class Authors(NamedTuple):
    """Who wrote what, both ways. Index order is time order, so the works of an author ascend in time."""

    offsets: Int64Array  # (papers + 1): where the authors of each paper begin
    authors: Int32Array
    work_offsets: Int64Array  # (authors + 1): where the works of each author begin
    works: Int32Array


class Reach(NamedTuple):
    """Which works are looked at, ``begin`` .. ``stop - 1``; citers in the window have at least ``low``."""

    begin: int
    stop: int
    low: int
    strong: int  # shared references from which a citer counts as strong
    by_age: bool  # each cited paper has its own window


@helper
def _meet(citer, focal, references, ages, by_age):
    """Say whether a work cites the focal paper, ever and in the window, and how many of its references it shares."""
    offsets, refs = references
    a, a_end = offsets[focal], offsets[focal + 1]
    is_ever = False
    is_inside = False
    met = 0
    for b in range(offsets[citer], offsets[citer + 1]):
        paper = refs[b]
        counts = not by_age or ages[0, paper] <= citer < ages[1, paper]
        if paper == focal:
            is_ever = True
            is_inside = counts
        while a < a_end and refs[a] < paper:
            a += 1
        if a < a_end and refs[a] == paper and counts:
            met += 1
    return is_ever, is_inside, met


@kernel
def count_own_citers(first, last, references, authors, reach, ends, ages, counts):
    """Count the citers of ``first`` .. ``last - 1`` that share an author with them, into ``counts``.

    ``counts`` (last - first, windows, 7) gets n_i, n_j, n_k, strong citers, shared references, citers up to the
    window's end, and citers at any time. ``ends`` are those of the windows, ``ages`` (windows, 2, papers) the own
    windows of cited papers.
    """
    offsets, listed, work_offsets, works = authors
    begin, stop, low, strong, by_age = reach
    stamps = np.zeros(max(stop - begin, 1), np.uint32)
    for focal in range(first, last):
        row = focal - first
        number = np.uint32(row + 1)
        for a in range(offsets[focal], offsets[focal + 1]):
            who = listed[a]
            at, end = work_offsets[who], work_offsets[who + 1]
            while at < end:  # the first work of this author from ``begin`` on
                middle = (at + end) // 2
                if works[middle] < begin:
                    at = middle + 1
                else:
                    end = middle
            for e in range(at, work_offsets[who + 1]):
                citer = works[e]
                if citer >= stop:
                    break
                if citer == focal or stamps[citer - begin] == number:
                    continue
                stamps[citer - begin] = number
                for w in range(ends.size):
                    is_ever, is_inside, met = _meet(citer, focal, references, ages[w], by_age)
                    counts[row, w, 6] += is_ever
                    if not by_age:
                        counts[row, w, 5] += is_ever and citer < ends[w]
                        if not low <= citer < ends[w]:
                            continue
                    elif is_inside:
                        counts[row, w, 5] += 1
                    if is_inside and met:
                        counts[row, w, 1] += 1
                        counts[row, w, 3] += met >= strong
                        counts[row, w, 4] += met
                    elif is_inside:
                        counts[row, w, 0] += 1
                    elif met:
                        counts[row, w, 2] += 1
