"""The compiled loop behind ``plain_text.py``: which texts may need cleaning, 64 bytes at a time."""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

import numpy as np
from numba import njit

from sciscidata._kernels.compile import WORD, bytes_below, bytes_equal, kernel, trailing_zeros

_SPACE, _DELETE, _AND, _LESS = 0x20, 0x7F, 0x26, 0x3C
#: First bytes of the spaces and control characters beyond ASCII.
_LATIN, _OGHAM, _GENERAL, _IDEOGRAPHIC = 0xC2, 0xE1, 0xE2, 0xE3
_LONGEST_ENTITY = 33  # with its semicolon


@kernel
def find_unclean(data, offsets):
    """Tell for every text whether ``clean_text`` may change it: it has markup, an entity, or odd whitespace.

    True for an empty text. True for some that stay as they are, too.
    """
    n = len(offsets) - 1
    is_unclean = np.empty(n, np.bool_)
    for row in range(n):
        is_unclean[row] = _is_unclean(data, offsets[row], offsets[row + 1])
    return is_unclean


@njit(forceinline=True)
def _is_unclean(data, start, end):
    if end == start or data[start] == _SPACE or data[end - 1] == _SPACE:
        return True
    at = start
    follows_space = np.uint64(0)  # whether the byte before is a space
    while at < end:
        if at + WORD <= len(data):
            spaces = bytes_equal(data, at, _SPACE)
            special = bytes_below(data, at, _SPACE) | bytes_equal(data, at, _DELETE)
            special |= spaces & (spaces << np.uint64(1) | follows_space)
            special |= bytes_equal(data, at, _AND) | bytes_equal(data, at, _LESS) | bytes_equal(data, at, _LATIN)
            special |= bytes_equal(data, at, _OGHAM) | bytes_equal(data, at, _GENERAL)
            special |= bytes_equal(data, at, _IDEOGRAPHIC)
            follows_space = spaces >> np.uint64(WORD - 1)
            while special != 0:
                place = at + trailing_zeros(special)
                if place >= end:
                    break
                if _is_odd(data, place, end):
                    return True
                special &= special - np.uint64(1)
            at += WORD
        else:
            is_double = data[at] == _SPACE and (follows_space != 0)
            follows_space = np.uint64(data[at] == _SPACE)
            if is_double or (data[at] != _SPACE and _is_odd(data, at, end)):
                return True
            at += 1
    return False


@njit(forceinline=True)
def _is_odd(data, at, end):
    """Whether a byte begins a tag, an entity, a control character or a space other than a single one."""
    byte = data[at]
    if byte <= _SPACE or byte == _DELETE:
        return True
    second = data[at + 1] if at + 1 < end else np.uint8(0)
    if byte == _LESS:
        return second >= 0x80 or _is_letter(second) or second == 0x2F or second == 0x21  # / !
    if byte == _AND:
        return second == 0x23 or (_is_letter(second) and _ends_entity(data, at + 2, min(end, at + _LONGEST_ENTITY + 1)))
    if byte == _LATIN:
        return second <= 0xA0
    third = data[at + 2] if at + 2 < end else np.uint8(0)
    if byte == _OGHAM:
        return second == 0x9A and third == 0x80
    if byte == _GENERAL:
        is_space = third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF
        return (second == 0x80 and is_space) or (second == 0x81 and third == 0x9F)
    return byte == _IDEOGRAPHIC and second == 0x80 and third == 0x80


@njit(forceinline=True)
def _is_letter(byte):
    low = byte | 0x20
    return 0x61 <= low <= 0x7A


@njit(forceinline=True)
def _ends_entity(data, at, end):
    """Whether letters and digits from a place on end in a semicolon."""
    while at < end and (_is_letter(data[at]) or 0x30 <= data[at] <= 0x39):
        at += 1
    return at < end and data[at] == 0x3B
