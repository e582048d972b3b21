"""Compiled loops that turn an edge list into two flat adjacency lists.

Each is one pass over flat arrays, releases the GIL and allocates nothing that grows with the number of edges. Ids are
renumbered through an open-addressing hash table of positions in the array of ids. Its cost is the wait for memory, so
many look-ups run at the same time.
"""

# pyright: basic
from __future__ import annotations

import numpy as np
from numba import njit

from sciscidata._kernels.compile import kernel, prefetch
from sciscidata._kernels.random import WEYL, mix64
from sciscidata._kernels.sort import sort_range

_FREE = np.int32(-1)
_AHEAD = np.uint64(64)  # citations whose place in memory is asked for in advance
_AT_ONCE = 256  # simultaneous look-ups: their cache lines fit the first-level cache


@njit(inline="always")
def _mix(x):
    """Scatter the bits of a 64-bit number (splitmix64)."""
    return mix64(np.uint64(x) + WEYL)  # pyright: ignore[reportArgumentType]


@njit(inline="always")
def _slot_of(table, ids, wanted, slot):
    """Return the slot that holds ``wanted``, or the free slot where it belongs, from its first ``slot`` on."""
    while table[slot] != _FREE and ids[table[slot]] != wanted:
        slot = (slot + 1) & np.int64(table.size - 1)
    return slot


@kernel
def insert_all(table, ids):
    """Fill a free ``table`` (a power of two) with the positions of ``ids``.

    Return the one of a repeated id, or -1.
    """
    mask = np.uint64(table.size - 1)
    for begin in range(0, ids.size, _AT_ONCE):
        end = min(begin + _AT_ONCE, ids.size)
        for i in range(begin, end):
            prefetch(table, np.int64(_mix(ids[i]) & mask))  # pyright: ignore[reportCallIssue]
        for i in range(begin, end):
            slot = _slot_of(table, ids, ids[i], np.int64(_mix(ids[i]) & mask))
            if table[slot] != _FREE:
                return i
            table[slot] = i
    return -1


@kernel
def find_all(table, ids, wanted, found):
    """Write the position of each wanted id to ``found``, -1 where there is none; return how many are missing."""
    mask = np.uint64(table.size - 1)
    slots = np.empty(_AT_ONCE, np.int64)
    n_missing = 0
    for begin in range(0, wanted.size, _AT_ONCE):
        n = min(_AT_ONCE, wanted.size - begin)
        for i in range(n):
            slots[i] = np.int64(_mix(wanted[begin + i]) & mask)
            prefetch(table, slots[i])  # pyright: ignore[reportCallIssue]
        for i in range(n):
            if table[slots[i]] != _FREE:
                prefetch(ids, np.int64(table[slots[i]]))  # pyright: ignore[reportCallIssue]
        for i in range(n):
            position = table[_slot_of(table, ids, wanted[begin + i], slots[i])]
            found[begin + i] = position
            n_missing += position == _FREE
    return n_missing


@kernel
def number_new(table, new_ids, n_new, first, citing_ids, cited_ids, start, citing, cited):
    """Give ids that were not found the next free indices from ``first`` on; return (edges read, new ids so far).

    It stops when ``new_ids`` is full, to let the caller grow the table. An id that only cites itself stays unknown.
    """
    mask = np.uint64(table.size - 1)
    for e in range(start, citing.size):
        if citing_ids[e] == cited_ids[e] or (citing[e] >= 0 and cited[e] >= 0):
            continue
        if n_new + 2 > new_ids.size:
            return e, n_new
        for side in range(2):
            wanted, indices = (cited_ids[e], cited) if side else (citing_ids[e], citing)
            if indices[e] < 0:
                slot = _slot_of(table, new_ids, wanted, np.int64(_mix(wanted) & mask))
                if table[slot] == _FREE:
                    table[slot] = n_new
                    new_ids[n_new] = wanted
                    n_new += 1
                indices[e] = first + table[slot]
    return citing.size, n_new


@kernel
def partition(citing, cited, start, first_new, shift, buckets, filled):
    """Put each edge into the bucket of its citing index, from edge ``start`` on; self-citations are left out.

    ``buckets`` is (n, capacity, 2), ``filled`` (n) how many edges each holds. A bucket holds 2^shift citing indices,
    the last one all from ``first_new`` on. Returns (edges read, the bucket that is full or -1).
    """
    last = buckets.shape[0] - 1
    for e in range(start, citing.size):
        if citing[e] != cited[e]:
            bucket = citing[e] >> shift if citing[e] < first_new else last
            place = filled[bucket]
            if place == buckets.shape[1]:
                return e, bucket
            buckets[bucket, place, 0] = citing[e]
            buckets[bucket, place, 1] = cited[e]
            filled[bucket] = place + 1
    return citing.size, -1


@kernel
def relabel_tail(pairs, first, final_index):
    """Replace each provisional index ``first + i`` by ``final_index[i]``."""
    for e in range(pairs.shape[0]):
        for side in range(2):
            if pairs[e, side] >= first:
                pairs[e, side] = final_index[pairs[e, side] - first]


@kernel
def count_rows(pairs, low, counts):
    """Add up the references of each citing index from ``low`` on, as far as ``counts`` reaches."""
    for e in range(pairs.shape[0]):
        row = pairs[e, 0] - low
        if 0 <= row < counts.size:
            counts[row] += 1


@kernel
def scatter_references(pairs, low, cursor, refs):
    """Put each cited index into the row of its citing index: the second half of a counting sort."""
    for e in range(pairs.shape[0]):
        row = pairs[e, 0] - low
        if 0 <= row < cursor.size:
            refs[cursor[row]] = pairs[e, 1]
            cursor[row] += 1


@kernel
def sort_rows_drop_repeats(refs, row_end, degree):
    """Sort each row in place, drop repeats, close the gaps; return the number left."""
    out = 0
    begin = np.int64(0)
    for row in range(row_end.size):
        end = row_end[row]
        sort_range(refs, begin, end)
        first = out
        for i in range(begin, end):
            if out == first or refs[i] != refs[out - 1]:
                refs[out] = refs[i]
                out += 1
        degree[row] = out - first
        begin = end
    return out


@kernel
def count_citers(refs, low, counts):
    """Add up the citers of each cited index from ``low`` on, as far as ``counts`` reaches."""
    start, size = np.uint32(low), np.uint32(counts.size)
    for e in range(refs.size):
        row = np.uint32(np.uint32(refs[e]) - start)  # below ``low`` wraps around to a large number
        if row < size:
            counts[row] += 1


@kernel
def scatter_citers(ref_offsets, refs, first, last, low, cursor, citers):
    """Transpose the references of ``first`` .. ``last - 1``, as far as they go to the works from ``low`` on.

    ``cursor[p - low]`` is where the next citer of work p belongs; ``cursor`` says how many works there are. Citing
    indices are visited in order, so every list of citers is sorted by time.
    """
    start, size = np.uint32(low), np.uint32(cursor.size)
    end = np.uint64(ref_offsets[last])
    for citing in range(first, last):
        for e in range(np.uint64(ref_offsets[citing]), np.uint64(ref_offsets[citing + 1])):
            if e + _AHEAD < end:
                later = np.uint32(np.uint32(refs[e + _AHEAD]) - start)
                if later < size:
                    prefetch(cursor, np.int64(later))  # pyright: ignore[reportCallIssue]
            row = np.uint32(np.uint32(refs[e]) - start)
            if row < size:
                citers[np.uint64(cursor[row])] = citing
                cursor[row] += 1


@kernel
def add_content_hash(first, second, lanes):
    """Add the hash of each pair to two 64-bit lanes: the sum does not depend on the order of rows."""
    a = np.uint64(0)
    b = np.uint64(0)
    for i in range(first.size):
        h = _mix(np.uint64(first[i]) ^ _mix(np.uint64(second[i])))
        a += h
        b += _mix(h)
    lanes[0] += a
    lanes[1] += b
