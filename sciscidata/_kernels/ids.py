"""The number of an id given as text: the number that it writes, or a hash. Import late: numba loads slowly.

The hash is XXH64 with seed 0 (Yann Collet, https://github.com/Cyan4973/xxHash, ``doc/xxhash_spec.md``).
"""

# numba infers types from the calls and reads no annotation.
# pyright: basic
from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from sciscidata._kernels.compile import kernel

_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
_64 = np.uint64(64)
_LIMIT = np.uint64(1 << 62)
_URL = np.frombuffer(b"https://openalex.org/", np.uint8)
_ZERO, _NINE = np.uint64(ord("0")), np.uint64(9)
#: Bytes of numbers, and of several in one text.
_NUMERIC = np.zeros(256, np.bool_)
_NUMERIC[np.frombuffer(b"0123456789.eE+;| ", np.uint8)] = True
#: Bytes that no DOI of the plain form has, and those that may be no part of one at its end.
_NOT_IN_DOI, _NOT_AT_END = np.zeros(256, np.bool_), np.zeros(256, np.bool_)
_NOT_IN_DOI[[*range(0x20), *range(0x41, 0x5B), *range(0x7F, 256), *b"%&"]] = True
_NOT_AT_END[np.frombuffer(b"./,;:)]}>\"'`", np.uint8)] = True
#: First two bytes, in lower case, of addresses (http, www.), DOIs (doi, dx., info:, urn:), and lists of R: c(.
_ODD_STARTS = tuple(int.from_bytes(pair, "big") for pair in (b"ht", b"ww", b"do", b"dx", b"in", b"ur", b"c("))
_MOST_DIGITS = 19  # of a number below 2^62; as many never exceed 64 bits


@register_jitable
def _rotate(x, n):
    return (x << np.uint64(n)) | (x >> (_64 - np.uint64(n)))


@register_jitable
def _byte(data, at):
    return np.uint64(data[np.uint64(at)])  # an unsigned place is not tested for being below zero


@register_jitable
def _read4(data, at):
    low = _byte(data, at) | _byte(data, at + 1) << np.uint64(8)
    return low | _byte(data, at + 2) << np.uint64(16) | _byte(data, at + 3) << np.uint64(24)


@register_jitable
def _read8(data, at):
    return _read4(data, at) | _read4(data, at + 4) << np.uint64(32)


@register_jitable
def _round(lane, word):
    return _rotate(lane + word * _P2, 31) * _P1


@register_jitable
def xxh64(data, start, end):
    """Hash the bytes from ``start`` to ``end``."""
    at = start
    if end - start >= 32:
        a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
        while at + 32 <= end:
            a = _round(a, _read8(data, at))
            b = _round(b, _read8(data, at + 8))
            c = _round(c, _read8(data, at + 16))
            d = _round(d, _read8(data, at + 24))
            at += 32
        h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            h = (h ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        h = _P5
    h += np.uint64(end - start)
    while at + 8 <= end:
        h = _rotate(h ^ _round(np.uint64(0), _read8(data, at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        h = _rotate(h ^ (_read4(data, at) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        h = _rotate(h ^ (_byte(data, at) * _P5), 11) * _P1
        at += 1
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@register_jitable
def _digits_from(data, start, end, letter):
    """Return where the digits of an OpenAlex id begin: behind its letter, and the address before it."""
    at = start
    if end - start > _URL.size and data[start] == _URL[0]:
        for i in range(_URL.size):
            if data[start + i] != _URL[i]:
                return start
        at += _URL.size
        return at + 1 if data[at] == letter else start
    return at + 1 if end > at and data[at] == letter else at


@register_jitable
def _may_be_odd(data, start, end, letter):
    """Whether a text may be a number, an id, a DOI or a list in a form that this loop does not read."""
    first, last = data[start], data[end - 1]
    if first <= 0x20 or first >= 0x7F or last <= 0x20 or last >= 0x7F:
        return True  # a blank, perhaps
    if first in (0x28, 0x5B, 0x7B, 0x3C, 0x22, 0x27, 0x60, 0x25, 0x26):  # ( [ { < " ' ` % &
        return True
    second = data[start + 1] if end > start + 1 else np.uint8(0)
    is_digit = 0x30 <= second <= 0x39
    low = first | 0x20
    if is_digit and (low == letter | 0x20 or (low == 0x76 and letter == 0x53)):  # V: of venues until 2022, as S
        return True
    if 0x30 <= first <= 0x39 or (first == 0x2D and is_digit):
        is_numeric, is_bare = True, not _NOT_AT_END[last]
        for at in range(start + 1, end):
            is_numeric &= _NUMERIC[data[at]]
            is_bare &= not _NOT_IN_DOI[data[at]]
        is_doi = first == 0x31 and second == 0x30 and end > start + 2 and data[start + 2] == 0x2E  # 10.
        return is_numeric or (is_doi and not is_bare)
    return np.int64(low) << 8 | np.int64(second | 0x20) in _ODD_STARTS


@kernel
def number_texts(data, offsets, letter, are_plain):
    """Number texts like ``number_ids``; -1 is an empty one, -2 one that is not plain yet, unless they ``are_plain``."""
    numbers = np.empty(offsets.size - 1, np.int64)
    for i in range(numbers.size):
        start, end = offsets[i], offsets[i + 1]
        if start == end:
            numbers[i] = -1
            continue
        first = _digits_from(data, start, end, letter)
        while first < end - 1 and _byte(data, first) == _ZERO:
            first += 1
        n_digits = end - first
        value = np.uint64(0)
        plain = 0 < n_digits <= _MOST_DIGITS
        at = first
        while plain and at < end:
            digit = _byte(data, at) - _ZERO
            plain = digit <= _NINE
            value = value * np.uint64(10) + digit
            at += 1
        if plain and value < _LIMIT:
            numbers[i] = np.int64(value)
        elif not are_plain and _may_be_odd(data, start, end, letter):
            numbers[i] = -2
        else:
            numbers[i] = np.int64(_LIMIT | (xxh64(data, start, end) >> np.uint64(2)))
    return numbers
