"""Compiled loops that turn an edge list into two flat adjacency lists.

Each is one pass over flat arrays, releases the GIL and allocates nothing that grows with the number of edges. Ids are
renumbered through an open-addressing hash table of positions in the array of ids. Its cost is the wait for memory, so
many look-ups run at the same time.
"""

# pyright: basic
from __future__ import annotations

import numpy as np

from sciscidata._kernels.compile import kernel, prefetch
from sciscidata._kernels.random import WEYL, mix64
from sciscidata._kernels.sort import sort_range

_FREE = np.uint32(0xFFFFFFFF)
_HALF = np.uint64(32)
_AHEAD = np.uint64(64)  # citations whose place in memory is asked for in advance


@kernel
def look_up(table, ids, wanted, adds, positions, hashes):
    """Write the position in ``ids`` of each wanted id to ``found``, or -1. Return how many have none.

    ``table`` (a power of two) holds positions, all ones where it is free. The bits above a position are of the id's
    hash. So nearly every other id is passed without a look at ``ids``. If it ``adds``, ``wanted``, the end of ``ids``,
    goes into the table; it stops at an id that is there already. ``hashes`` is scratch, one per parallel look-up.
    """
    mask = np.uint64(table.size - 1)
    tag_bits = np.uint64(_FREE) ^ mask
    n_missing = 0
    for begin in range(0, wanted.size, hashes.size):
        end = min(begin + hashes.size, wanted.size)
        for i in range(begin, end):
            h = mix64(np.uint64(wanted[i]) + WEYL)  # pyright: ignore[reportArgumentType]
            hashes[i - begin] = h
            prefetch(table, np.int64(h & mask))  # pyright: ignore[reportCallIssue]
        for i in range(begin, end if not adds else begin):
            h = hashes[i - begin]
            slot = h & mask
            while table[slot] != _FREE and (np.uint64(table[slot]) ^ (h >> _HALF)) & tag_bits:
                slot = (slot + np.uint64(1)) & mask
            prefetch(ids, np.int64(np.uint64(table[slot]) & mask))  # pyright: ignore[reportCallIssue]
            hashes[i - begin] = (h & ~mask) | slot
        for i in range(begin, end):
            slot = hashes[i - begin] & mask
            tag = (hashes[i - begin] >> _HALF) & tag_bits
            position = np.uint64(table[slot]) ^ tag
            while table[slot] != _FREE and (position & tag_bits or ids[position] != wanted[i]):
                slot = (slot + np.uint64(1)) & mask
                position = np.uint64(table[slot]) ^ tag
            is_missing = table[slot] == _FREE
            if not adds:
                positions[i] = -1 if is_missing else np.int64(position)  # pyright: ignore[reportArgumentType]
            elif is_missing:
                table[slot] = tag | np.uint64(ids.size - wanted.size + i)
            else:
                return n_missing
            n_missing += is_missing
    return n_missing


@kernel
def partition(citing, cited, start, first_new, shift, buckets, filled):
    """Put edges from ``start`` on into buckets (n, 2, capacity) of 2^shift citing indices; the last has all new ones.

    Works that cite themselves are left out. Returns (edges read, the bucket that is full or -1).
    """
    last = buckets.shape[0] - 1
    for e in range(start, citing.size):
        if citing[e] != cited[e]:
            bucket = citing[e] >> shift if citing[e] < first_new else last
            place = filled[bucket]
            if place == buckets.shape[2]:
                return e, bucket
            buckets[bucket, 0, place] = citing[e]
            buckets[bucket, 1, place] = cited[e]
            filled[bucket] = place + 1
    return citing.size, -1


@kernel
def scatter(keys, values, low, cursor, rows):
    """Put each value into the row of its key: the second half of a counting sort."""
    for e in range(keys.size):
        row = keys[e] - low
        if 0 <= row < cursor.size:
            rows[cursor[row]] = values[e]
            cursor[row] += 1


@kernel
def sort_rows_drop_repeats(values, row_end, degree, times):
    """Sort each row in place, drop repeats (counted in ``times``, if not empty), close gaps; return the number left."""
    out = 0
    begin = np.int64(0)
    for row in range(row_end.size):
        end = row_end[row]
        sort_range(values, begin, end)
        first = out
        for i in range(begin, end):
            if out == first or values[i] != values[out - 1]:
                values[out] = values[i]
                out += 1
                if times.size:
                    times[out - 1] = 0
            if times.size:
                times[out - 1] += 1
        degree[row] = out - first
        begin = end
    return out


@kernel
def count(indices, low, counts):
    """Add up how often each index from ``low`` on occurs, as far as ``counts`` reaches."""
    start, size = np.uint32(low), np.uint32(counts.size)
    for e in range(indices.size):
        row = np.uint32(np.uint32(indices[e]) - start)  # below ``low`` wraps around to a large number
        if row < size:
            counts[row] += 1


@kernel
def scatter_citers(ref_offsets, refs, first, last, low, cursor, citers):
    """Transpose the references of ``first`` .. ``last - 1`` to the works from ``low`` on, each list sorted by time.

    ``cursor[p - low]`` is where the next citer of work p belongs; ``cursor`` says how many works there are.
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
        h = mix64(np.uint64(second[i]) + WEYL)  # pyright: ignore[reportArgumentType]
        h = mix64((np.uint64(first[i]) ^ h) + WEYL)
        a += h
        b += mix64(h + WEYL)
    lanes[0] += a
    lanes[1] += b
