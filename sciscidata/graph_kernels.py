"""Compiled loops that turn an edge list into two flat adjacency lists. Called by graph.py; nothing else.

Every kernel is a single pass over flat arrays, releases the GIL and allocates nothing that grows with the
number of edges. Ids are renumbered through an open-addressing hash table: a binary search per id costs
ten times as much.
"""

# pyright: basic
from __future__ import annotations

import numpy as np
from numba import njit

from sciscidata.compiled import kernel

EMPTY = np.int64(np.iinfo(np.int64).min)  # marks a free slot; no OpenAlex id is negative
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


@njit(inline="always")
def _mix(x):
    """Scatter the bits of a 64-bit number (the finaliser of splitmix64)."""
    z = np.uint64(x) + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


@njit(inline="always")
def _slot_of(keys, key, mask):
    """Return the slot that holds ``key``, or the free slot where it belongs."""
    slot = np.int64(_mix(key) & mask)
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + 1) & np.int64(mask)
    return slot


@kernel
def insert_all(keys, values, ids, first_value):
    """Insert ``ids`` with consecutive values; return the position of a repeated id, or -1."""
    mask = np.uint64(keys.size - 1)
    for i in range(ids.size):
        slot = _slot_of(keys, ids[i], mask)
        if keys[slot] != EMPTY:
            return i
        keys[slot] = ids[i]
        values[slot] = first_value + i
    return -1


@kernel
def renumber_pairs(keys, values, new_ids, n_new, first_new, citing, cited, start, pairs):
    """Translate edges from ``start`` on to index pairs; ids not seen before get the next free index.

    Returns (edges read, pairs written, new ids so far). It stops early when ``new_ids`` is full, so that the
    caller can grow the table and go on. Self-citations are left out.
    """
    mask = np.uint64(keys.size - 1)
    written = 0
    last_id = EMPTY
    last_index = np.int32(-1)
    for e in range(start, citing.size):
        if n_new + 2 > new_ids.size:
            return e, written, n_new
        if citing[e] == cited[e]:
            continue
        if citing[e] != last_id:
            slot = _slot_of(keys, citing[e], mask)
            if keys[slot] == EMPTY:
                keys[slot] = citing[e]
                values[slot] = first_new + n_new
                new_ids[n_new] = citing[e]
                n_new += 1
            last_id = citing[e]
            last_index = values[slot]
        slot = _slot_of(keys, cited[e], mask)
        if keys[slot] == EMPTY:
            keys[slot] = cited[e]
            values[slot] = first_new + n_new
            new_ids[n_new] = cited[e]
            n_new += 1
        pairs[written, 0] = last_index
        pairs[written, 1] = values[slot]
        written += 1
    return citing.size, written, n_new


@kernel
def relabel_tail(pairs, first, final_index):
    """Replace each provisional index ``first + i`` by ``final_index[i]``."""
    for e in range(pairs.shape[0]):
        for side in range(2):
            if pairs[e, side] >= first:
                pairs[e, side] = final_index[pairs[e, side] - first]


@kernel
def count_citing(pairs, counts):
    """Add up the references of each citing index."""
    for e in range(pairs.shape[0]):
        counts[pairs[e, 0]] += 1


@kernel
def scatter_references(pairs, low, high, cursor, refs):
    """Counting sort, second half: drop each cited index into the row of its citing index in [low, high)."""
    for e in range(pairs.shape[0]):
        citing = pairs[e, 0]
        if low <= citing < high:
            refs[cursor[citing - low]] = pairs[e, 1]
            cursor[citing - low] += 1


@kernel
def sort_rows_drop_repeats(refs, row_end, degree):
    """Sort each row in place, drop repeated references, close the gaps; return the number left.

    Rows are short (28 references on average), where insertion sort wins; long ones go to NumPy's sort.
    """
    out = 0
    begin = 0
    for row in range(row_end.size):
        end = row_end[row]
        if end - begin > 64:
            refs[begin:end] = np.sort(refs[begin:end])
        else:
            for i in range(begin + 1, end):
                value = refs[i]
                j = i - 1
                while j >= begin and refs[j] > value:
                    refs[j + 1] = refs[j]
                    j -= 1
                refs[j + 1] = value
        first = out
        for i in range(begin, end):
            if out == first or refs[i] != refs[out - 1]:
                refs[out] = refs[i]
                out += 1
        degree[row] = out - first
        begin = end
    return out


@kernel
def count_cited(refs, counts):
    """Add up the citers of each cited index."""
    for e in range(refs.size):
        counts[refs[e]] += 1


@kernel
def scatter_citers(ref_offsets, refs, low, high, cursor, citers):
    """Transpose: citing indices are visited in order, so every list of citers comes out sorted by time."""
    for citing in range(ref_offsets.size - 1):
        for e in range(ref_offsets[citing], ref_offsets[citing + 1]):
            cited = refs[e]
            if low <= cited < high:
                citers[cursor[cited - low]] = citing
                cursor[cited - low] += 1


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
