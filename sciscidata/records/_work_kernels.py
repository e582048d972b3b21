"""The compiled loop behind ``work_columns.py``: bytes of reference lists in, numbers of the works out."""

# numba infers types from the calls and reads no annotation.
# pyright: basic
from __future__ import annotations

import numpy as np
from numba import njit

from sciscidata._kernels.compile import kernel

_SPACE, _QUOTE, _COMMA, _OPEN, _CLOSE, _ZERO, _NINE = 0x20, 0x22, 0x2C, 0x5B, 0x5D, 0x30, 0x39
_MOST_DIGITS = 18  # fit into Int64 whatever they are


@kernel
def read_numbers(data, starts, stops, prefix):
    """Read lists of JSON strings of ``prefix`` (a quote, and text) and a number; other lists are not plain.

    ``starts`` and ``stops`` say where in ``data`` each list lies. Returned are the numbers of all plain lists, and
    where those of each list begin, with the end. The last is which lists are plain.

    Example:
        >>> lists = np.frombuffer(b'["W7","W12"]["W1","S2"][]', np.uint8)
        >>> found = read_numbers(lists, np.array([0, 12, 23]), np.array([12, 23, 25]), np.frombuffer(b'"W', np.uint8))
        >>> [values.tolist() for values in found]
        [[7, 12], [0, 2, 2, 2], [True, False, True]]
    """
    n_rows = len(starts)
    size = 0
    for row in range(n_rows):
        size += stops[row] - starts[row]
    numbers = np.empty(size // (len(prefix) + 3) + 1, np.int64)
    ends = np.zeros(n_rows + 1, np.int64)
    is_plain = np.zeros(n_rows, np.bool_)
    for row in range(n_rows):
        used = _read_list(data, starts[row], stops[row], prefix, numbers, ends[row])
        is_plain[row] = used >= 0
        ends[row + 1] = max(used, ends[row])
    return numbers[: ends[n_rows]], ends, is_plain


@njit(forceinline=True)
def _read_list(data, at, end, prefix, numbers, used):
    """Read one list to ``numbers[used:]``; return where its numbers end, -1 if it is not plain."""
    if end - at < 2 or data[at] != _OPEN or data[end - 1] != _CLOSE:
        return -1
    at, end = at + 1, end - 1
    while at < end:
        start = at + len(prefix)
        if start >= end:
            return -1
        for i in range(len(prefix)):
            if data[at + i] != prefix[i]:
                return -1
        at, number = start, 0
        while at < end and at - start < _MOST_DIGITS and _ZERO <= data[at] <= _NINE:
            number = number * 10 + (data[at] - _ZERO)
            at += 1
        if at == start or data[start] == _ZERO or at >= end or data[at] != _QUOTE:
            return -1
        numbers[used] = number
        used += 1
        at += 1
        if at < end:
            if data[at] != _COMMA or at + 1 == end:
                return -1
            at += 2 if data[at + 1] == _SPACE else 1
    return used
