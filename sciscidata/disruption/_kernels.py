"""Compiled loops of the CD index, called by ``counts.py`` only.

For one focal year, ``window[p]`` holds the citers of paper p in the window, as a slice of the flat list. Two facts make
this fast. Index order is time order, so the window is one range of indices [base, base + span). Its stamps stay in the
processor's cache. The wait for memory at the head of each reference's list is hidden. The lists of the next focal paper
are asked for while those of the present one are read.
"""

# pyright: basic
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import AnyArray, Int32Array, Int64Array
from sciscidata._kernels.compile import helper, kernel, prefetch

_OF_A_LINE = 16  # citers in a cache line
_LINES_ASKED_FOR = 4


class Lists(NamedTuple):
    """Who cites whom: each list is a slice of a flat array, in order of time."""

    ref_offsets: Int64Array  # (papers + 1): where the references of each paper begin
    refs: Int32Array  # (references): cited papers
    citers: AnyArray  # (citations): the citers of all papers, end to end
    window: AnyArray  # (papers, 2): where a paper's citers in the window begin and end in citers


class Place(NamedTuple):
    """Which papers may be citers in the window: ``base`` .. ``base + span - 1``."""

    base: int
    span: int
    omit_focal: bool  # the focal paper itself is none


class Scratch(NamedTuple):
    """Room that one thread writes to."""

    slices: AnyArray  # (2, most references, 2): those of ``window`` of this focal paper's references, and of the next
    stamps: AnyArray  # (papers of a part): zeros at first, then the number of the last focal paper that saw each citer
    highest: int  # the largest such number
    found: AnyArray  # (papers of a part + 1): citers with a new stamp; unused with one window


class Shared(NamedTuple):
    """What is counted for the family, (papers, windows) each."""

    n_strong: AnyArray  # citers of the focal paper that share at least so many references with it
    n_shared: Int64Array  # shared references, summed over its citers


@kernel
def slide(lists, side, first, last, low, high):
    """Move one end of the slices of the papers ``low`` .. ``high - 1`` over the citers ``first`` .. ``last - 1``.

    Lists are sorted by time: a slice moves by one for each work that cites its paper, without a search per paper.
    """
    ref_offsets, refs, _, window = lists
    start, span = np.uint32(low), np.uint32(high - low)
    for e in range(np.uint64(ref_offsets[first]), np.uint64(ref_offsets[last])):
        paper = np.uint32(refs[e])  # unsigned numbers need no check for negative indices: three times as fast
        if np.uint32(paper - start) < span:
            window[paper, side] += 1


@kernel
def slices_by_own_age(window, citer_offsets, citers, lows, highs):
    """Set each slice to the citers whose index lies in [lows[p], highs[p]), the paper's own window."""
    for p in range(lows.size):
        begin, end = citer_offsets[p], citer_offsets[p + 1]
        window[p, 0] = begin + np.searchsorted(citers[begin:end], lows[p])
        window[p, 1] = begin + np.searchsorted(citers[begin:end], highs[p])


@helper
def _gather(focal, last, lists, slices):
    """Collect the non-empty slices of the references of ``focal``; return how many there are."""
    ref_offsets, refs, citers, window = lists
    if focal + 1 < last:
        for e in range(ref_offsets[focal + 1], ref_offsets[focal + 2]):
            prefetch(window, 2 * np.int64(refs[e]))  # pyright: ignore[reportCallIssue]
    n = 0
    if focal < last:
        for e in range(ref_offsets[focal], ref_offsets[focal + 1]):
            paper = np.uint32(refs[e])
            begin, end = window[paper, 0], window[paper, 1]
            if end > begin:
                for line in range(_LINES_ASKED_FOR):  # the processor asks for the rest
                    prefetch(citers, np.int64(min(begin + line * _OF_A_LINE, end - 1)))  # pyright: ignore[reportCallIssue]
                slices[n, 0] = begin
                slices[n, 1] = end
                n += 1
    return n


@helper
def _add_citers_of_references(found, n_found, start, size, ends, row):
    """Add to ``row[w, 2]`` how many of the indices ``start + found[i]``, below ``start + size``, lie in window w."""
    for w in range(ends.size):
        limit = np.uint32(min(max(ends[w] - start, 0), size))
        n = np.uint32(n_found)
        if limit < size:
            n = np.uint32(0)
            for i in range(np.uint64(n_found)):  # eight in one instruction, unlike a search for the window of each
                n = np.uint32(n + np.uint32(found[i] < limit))
        row[w, 2] += n


@helper
def _finish_windows(citers, begin, end, ends, row):
    """Make n_i, n_j, n_k of windows from citers that also cite a reference, new in each, and citers of references."""
    e = np.uint64(begin)
    n_j = np.uint64(0)
    for w in range(ends.size):
        while e < end and citers[e] < ends[w]:
            e += np.uint64(1)
        n_j += np.uint64(row[w, 1])
        row[w, 0] = e - np.uint64(begin) - n_j
        row[w, 1] = n_j
        row[w, 2] -= n_j


@kernel
def count_citers(first, last, lists, place, ends, scratch, counts):
    """Write n_i, n_j, n_k of the focal papers ``first`` .. ``last - 1`` into ``counts`` (last - first, windows, 3).

    Every in-window citer of a reference is stamped with a number of the focal paper. New stamps counted are n_j + n_k;
    the focal paper's own citers then fall into stamped, n_j, and unstamped, n_i. With several windows (``ends``,
    ascending, of citers), the lists are walked once. New stamps are noted in ``found``, and counted there for each
    window. None exceeds the present one, and "less" takes an instruction less than "not equal". A window wider than
    ``stamps`` is taken in parts, each with its own number. Lists are sorted, so the next part begins where this one
    stopped. ``ends`` is None for one window: an argument by itself, since numba leaves out what cannot run only then.
    """
    citers, window = lists.citers, lists.window
    base, span, omit_focal = place
    slices, stamps, highest, found = scratch
    whole = span <= stamps.size
    number = np.int64(0)
    now = 0
    n_slices = _gather(first, last, lists, slices[0])
    for focal in range(first, last):
        n_next = _gather(focal + 1, last, lists, slices[1 - now])
        n_found = np.uint32(0)
        n_j = np.uint32(0)
        own, end = np.uint64(window[focal, 0]), np.uint64(window[focal, 1])
        n_citers = np.uint32(end - own)
        w = 0
        low = base
        while low < base + span:
            start, size = (
                np.uint32(low),
                np.uint32(base + span - low if base + span - low < stamps.size else stamps.size),
            )
            if number == highest:
                for i in range(stamps.size):
                    stamps[i] = 0
                number = np.int64(0)
            number += 1
            stamp = stamps.dtype.type(number)
            if omit_focal and low <= focal < low + size:
                stamps[focal - low] = stamp
            n_left = 0
            if ends is not None:
                n_found = np.uint32(0)
            for s in range(n_slices):
                e, stop = np.uint64(slices[now, s, 0]), np.uint64(slices[now, s, 1])
                if whole:  # the same loop without a test for the end of the part: a quarter faster
                    for i in range(e, stop):
                        citer = np.uint32(np.uint32(citers[i]) - start)
                        if ends is not None:
                            found[n_found] = citer
                        n_found = np.uint32(n_found + np.uint32(stamps[citer] < stamp))
                        stamps[citer] = stamp
                    continue
                while e < stop:
                    citer = np.uint32(np.uint32(citers[e]) - start)
                    if citer >= size:
                        break
                    if ends is not None:
                        found[n_found] = citer
                    n_found = np.uint32(n_found + np.uint32(stamps[citer] < stamp))
                    stamps[citer] = stamp
                    e += np.uint64(1)
                if e < stop:
                    slices[now, n_left, 0] = e
                    slices[now, n_left, 1] = stop
                    n_left += 1
            n_slices = n_left
            if ends is not None:
                _add_citers_of_references(found, n_found, low, size, ends, counts[focal - first])
            while own < end:
                citer = np.uint32(np.uint32(citers[own]) - start)
                if citer >= size:
                    break
                if ends is None:
                    n_j += np.uint32(stamps[citer] == stamp)
                else:
                    while low + citer >= ends[w]:
                        w += 1
                    counts[focal - first, w, 1] += np.uint32(stamps[citer] == stamp)
                own += np.uint64(1)
            if n_slices == 0:
                break
            low += stamps.size
        if ends is None:
            counts[focal - first, 0, 0] = n_citers - n_j
            counts[focal - first, 0, 1] = n_j
            counts[focal - first, 0, 2] = n_found - n_j
        else:
            _finish_windows(citers, end - n_citers, end, ends, counts[focal - first])
        n_slices = n_next
        now = 1 - now


@kernel
def count_shared(first, last, lists, place, ends, strong, limit, slices, counts, shared):
    """Count as count_citers does, and also how many references each citer shares with the focal paper.

    A stamp is the focal paper's base number plus the references met so far. Base numbers lie so far apart that no list
    reaches the next one. Stamps are cleared before they would pass ``limit``. ``slices`` is that of ``Scratch``.
    """
    citers, window = lists.citers, lists.window
    base, span, omit_focal = place
    n_strong, n_shared = shared
    stamps = np.zeros(span, np.uint32)
    found = np.empty(span + 1, np.uint32)
    start = np.uint32(base)
    step = slices.shape[1] + 1
    zero = np.int64(0)
    now = 0
    n_slices = _gather(first, last, lists, slices[0])
    for focal in range(first, last):
        n_next = _gather(focal + 1, last, lists, slices[1 - now])
        if zero + 2 * step > limit:
            stamps[:] = 0
            zero = np.int64(0)
        zero += step
        unmet = np.uint32(zero)
        if omit_focal:
            stamps[focal - base] = unmet
        n_stamped = np.uint32(0)
        for s in range(n_slices):
            for e in range(np.uint64(slices[now, s, 0]), np.uint64(slices[now, s, 1])):
                citer = np.uint32(np.uint32(citers[e]) - start)
                met = stamps[citer]
                found[np.uint32(n_stamped)] = citer
                n_stamped += np.uint32(met < unmet)
                stamps[citer] = max(met, unmet) + np.uint32(1)
        row = focal - first
        _add_citers_of_references(found, n_stamped, base, span, ends, counts[row])
        begin, end = np.uint64(window[focal, 0]), np.uint64(window[focal, 1])
        w = 0
        for e in range(begin, end):
            citer = np.uint32(np.uint32(citers[e]) - start)
            while base + citer >= ends[w]:
                w += 1
            met = stamps[citer]
            if met > unmet:
                counts[row, w, 1] += np.uint32(1)
                n_shared[row, w] += np.int64(met - unmet)
                n_strong[row, w] += np.uint32(met - unmet >= strong)
        for w in range(1, ends.size):
            n_shared[row, w] += n_shared[row, w - 1]
            n_strong[row, w] += n_strong[row, w - 1]
        _finish_windows(citers, begin, end, ends, counts[row])
        n_slices = n_next
        now = 1 - now
