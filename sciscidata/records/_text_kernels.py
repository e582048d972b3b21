"""The compiled loop behind ``plain_text.py``: which texts may hold what a plain text does not."""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

import numpy as np
from numba import njit

from sciscidata._kernels.compile import WORD, bytes_below, bytes_equal, kernel, trailing_zeros

_SPACE = 0x20


@kernel
def may_be_unclean(data, offsets, markup):
    """Say which texts may be unclean: all that are, and the last few, behind which 64 bytes cannot be read.

    Unclean are control characters, other spaces than a single one between words, and with ``markup`` ``&`` and ``<``.
    """
    found = np.zeros(len(offsets) - 1, np.bool_)
    for row in range(len(found)):
        start, end = offsets[row], offsets[row + 1]
        if end + WORD > len(data) or start == end or data[start] == _SPACE or data[end - 1] == _SPACE:
            found[row] = True
            continue
        one, before, at = np.uint64(1), np.uint64(0), start
        while at < end and not found[row]:
            spaces = bytes_equal(data, at, _SPACE)
            odd = bytes_below(data, at, _SPACE) | bytes_equal(data, at, 0x7F) | (spaces & (spaces << one | before))
            if markup:
                odd |= bytes_equal(data, at, 0x26) | bytes_equal(data, at, 0x3C)
            leads = bytes_equal(data, at, 0xC2) | bytes_equal(data, at, 0xE1)
            leads |= bytes_equal(data, at, 0xE2) | bytes_equal(data, at, 0xE3)
            before = spaces >> np.uint64(WORD - 1)
            found[row] = odd != 0 and at + trailing_zeros(odd) < end
            while leads and not found[row]:
                place = at + trailing_zeros(leads)
                leads &= leads - one
                found[row] = place < end and _is_wide_space(data, place)
            at += WORD
    return found


@njit(forceinline=True)
def _is_wide_space(data, at):
    """Whether a character of UTF-8 may be a space or a control character: it begins with C2, E1, E2 or E3."""
    lead, second, third = data[at], data[at + 1], data[at + 2]
    if lead == 0xC2:
        return second <= 0xA0
    if lead == 0xE2:
        return (second == 0x80 and (third <= 0x8A or 0xA8 <= third <= 0xAF)) or second == 0x81
    return (second == 0x9A and lead == 0xE1) or (second == 0x80 and lead == 0xE3)
