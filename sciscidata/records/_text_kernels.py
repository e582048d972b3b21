"""The compiled loops of ``plain_text.py`` and ``ids.py``: texts that may need cleaning, and numbers of addresses."""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

import numpy as np
from numba import njit

from sciscidata._kernels.compile import WORD, bytes_below, bytes_equal, eight_at, kernel, trailing_zeros

_SPACE, _DELETE, _AND, _LESS = 0x20, 0x7F, 0x26, 0x3C
#: First bytes of the spaces and control characters beyond ASCII.
_LATIN, _OGHAM, _GENERAL, _IDEOGRAPHIC = 0xC2, 0xE1, 0xE2, 0xE3
_LONGEST_ENTITY = 33  # with its semicolon
PREFIX = len("https://openalex.org/W")
_ALL, _ZEROS = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0x3030303030303030)
_ABOVE_NINE, _TOP_BITS = np.uint64(0x4646464646464646), np.uint64(0x8080808080808080)


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


@kernel
def number_addresses(data, offsets, prefix):
    """Return the numbers of texts that are an address of OpenAlex: 22 bytes, then 1 to 16 digits. Of others, -1."""
    n = len(offsets) - 1
    numbers = np.full(n, -1, np.int64)
    address, wanted = np.int64(data.ctypes.data), np.int64(prefix.ctypes.data)
    first, second, third = eight_at(wanted), eight_at(wanted + 8), eight_at(wanted + PREFIX - 8)
    for row in range(n):
        start, end = offsets[row], offsets[row + 1]
        n_digits = end - start - PREFIX
        if not 0 < n_digits <= 16:
            continue
        differing = (eight_at(address + start) ^ first) | (eight_at(address + start + 8) ^ second)
        differing |= eight_at(address + start + PREFIX - 8) ^ third
        low, is_odd = _read_digits(address + end, min(n_digits, 8))
        high = 0
        if n_digits > 8:
            high, is_too = _read_digits(address + end - 8, n_digits - 8)
            is_odd |= is_too
        number = high * 100_000_000 + low
        if differing == 0 and not is_odd and number > 0:
            numbers[row] = number
    return numbers


@njit(forceinline=True)
def _read_digits(end, n):
    """Read the 1 to 8 digits that end at an address, and tell if one is no digit. Eight bytes before it may be read."""
    is_digit = _ALL << np.uint64(64 - 8 * n)
    word = (eight_at(end - 8) & is_digit) | (_ZEROS & ~is_digit)
    is_odd = ((word + _ABOVE_NINE) | (word - _ZEROS)) & _TOP_BITS != 0
    word -= _ZEROS
    word = word * np.uint64(10) + (word >> np.uint64(8))  # pairs of digits, then all four pairs
    pairs = np.uint64(0x000000FF000000FF)
    left = (word & pairs) * np.uint64(0x000F424000000064)
    right = ((word >> np.uint64(16)) & pairs) * np.uint64(0x0000271000000001)
    return np.int64((left + right) >> np.uint64(32)), is_odd
