"""The loops behind ``labelled.py``: Arrow buffers in, the bytes of canonical JSON lines out.

Imported on first use, since numba takes a while to load; compiled once per machine and kept on disk.
"""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

import json

import numpy as np

from sciscidata.abstract_kernels import _WIDTH, _copy_wide, _plain_bytes
from sciscidata.compiled import kernel

_NULL = np.frombuffer(b"null", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_QUOTE, _BACKSLASH, _COMMA, _OPEN, _CLOSE = 0x22, 0x5C, 0x2C, 0x5B, 0x5D
_LONGEST_ESCAPE = 6

# The letter that follows the backslash; zero where that is \u00XX.
_LETTERS = np.zeros(256, np.uint8)
_IS_PLAIN = np.ones(256, np.bool_)
for _byte in (*range(0x20), _QUOTE, _BACKSLASH):
    _escaped = json.dumps(chr(_byte))[1:-1]
    _IS_PLAIN[_byte] = False
    _LETTERS[_byte] = 0 if len(_escaped) == _LONGEST_ESCAPE else ord(_escaped[1])


@kernel
def quote_strings(data, offsets, is_null):
    r"""Write every string as JSON writes it, null as ``null``: one run of bytes, and where each value ends.

    Example:
        >>> text = np.frombuffer('a"bé\n'.encode(), np.uint8)
        >>> out, ends = quote_strings(text, np.array([0, 3, 5, 6, 6]), np.array([False, False, False, True]))
        >>> out.tobytes().decode(), ends.tolist()
        ('"a\\"b""é""\\n"null', [0, 6, 10, 14, 18])
    """
    n_rows = len(offsets) - 1
    # Room for the worst case costs nothing: memory that is never touched is never given.
    out = np.empty((offsets[n_rows] - offsets[0]) * _LONGEST_ESCAPE + 4 * n_rows + 16, np.uint8)
    ends = np.empty(n_rows + 1, np.int64)
    ends[0] = 0
    at = 0
    for row in range(n_rows):
        if is_null[row]:
            out[at : at + 4] = _NULL
            at += 4
        else:
            out[at] = _QUOTE
            at = _escape(data, offsets[row], offsets[row + 1], out, at + 1)
            out[at] = _QUOTE
            at += 1
        ends[row + 1] = at
    return out[:at], ends


@kernel
def _escape(data, start, end, out, at):
    while start < end:
        if start + _WIDTH <= end:
            plain = _plain_bytes(data, start)
            _copy_wide(data, start, out, at)  # what is not plain is written over
        else:
            plain = 0
            while start + plain < end and _IS_PLAIN[data[start + plain]]:
                out[at + plain] = data[start + plain]
                plain += 1
        start += plain
        at += plain
        if start < end and not _IS_PLAIN[data[start]]:
            byte = data[start]
            start += 1
            out[at] = _BACKSLASH
            if _LETTERS[byte] != 0:
                out[at + 1] = _LETTERS[byte]
                at += 2
            else:
                out[at + 1] = 0x75  # u
                out[at + 2] = out[at + 3] = 0x30
                out[at + 4], out[at + 5] = _HEX[byte >> 4], _HEX[byte & 15]
                at += _LONGEST_ESCAPE
    return at


@kernel
def join_lists(data, ends, list_offsets, is_null):
    """Write lists of values that are JSON already.

    Example:
        >>> values = np.frombuffer(b'"a""b"', np.uint8)
        >>> out, ends = join_lists(values, np.array([0, 3, 6]), np.array([0, 2, 2, 2]), np.array([False, False, True]))
        >>> out.tobytes(), ends.tolist()
        (b'["a","b"][]null', [0, 9, 11, 15])
    """
    n_rows = len(list_offsets) - 1
    first, last = list_offsets[0], list_offsets[n_rows]
    out = np.empty(ends[last] - ends[first] + (last - first) + 4 * n_rows, np.uint8)
    out_ends = np.empty(n_rows + 1, np.int64)
    out_ends[0] = 0
    at = 0
    for row in range(n_rows):
        if is_null[row]:
            out[at : at + 4] = _NULL
            at += 4
        else:
            out[at] = _OPEN
            at += 1
            for value in range(list_offsets[row], list_offsets[row + 1]):
                if value > list_offsets[row]:
                    out[at] = _COMMA
                    at += 1
                size = ends[value + 1] - ends[value]
                out[at : at + size] = data[ends[value] : ends[value + 1]]
                at += size
            out[at] = _CLOSE
            at += 1
        out_ends[row + 1] = at
    return out[:at], out_ends


@kernel
def weave_lines(keys, key_ends, data, data_starts, ends):
    r"""Put the values of all columns into lines: key, value, key, value, and a closing end.

    Args:
        keys: the text before each column's value, and last the text after the last one.
        key_ends: where each of these ends; one more than there are texts.
        data: the values of all columns, one column after the other.
        data_starts: where each column starts in ``data``.
        ends: (columns, rows + 1): where each value ends, from its column's start.

    Example:
        >>> keys, values = np.frombuffer(b'{"a":,"b":}\n', np.uint8), np.frombuffer(b"13null4", np.uint8)
        >>> ends = np.array([[0, 1, 2], [0, 4, 5]])
        >>> weave_lines(keys, np.array([0, 5, 10, 12]), values, np.array([0, 2]), ends).tobytes()
        b'{"a":1,"b":null}\n{"a":3,"b":4}\n'
    """
    n_columns, n_rows = ends.shape[0], ends.shape[1] - 1
    size = len(keys) * n_rows
    for column in range(n_columns):
        size += ends[column, n_rows]
    out = np.empty(size, np.uint8)
    at = 0
    for row in range(n_rows):
        for column in range(n_columns + 1):
            for i in range(key_ends[column], key_ends[column + 1]):
                out[at] = keys[i]
                at += 1
            if column < n_columns:
                start = data_starts[column] + ends[column, row]
                length = ends[column, row + 1] - ends[column, row]
                out[at : at + length] = data[start : start + length]
                at += length
    return out
