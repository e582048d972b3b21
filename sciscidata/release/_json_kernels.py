"""The loops behind ``json_lines.py``: Arrow buffers in, the bytes of canonical JSON lines out.

Imported on first use, since numba takes a while to load; compiled once per machine and kept on disk.
"""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

import json

import numpy as np
from numba import njit

from sciscidata._kernels.compile import kernel
from sciscidata._kernels.llvm import WIDTH, copy, copy_wide, plain_bytes_without_line_ends

_NULL = np.frombuffer(b"null", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_QUOTE, _BACKSLASH, _COMMA, _OPEN, _CLOSE = 0x22, 0x5C, 0x2C, 0x5B, 0x5D

#: Bytes that one byte of text may become, and what every value needs beside its text.
LONGEST_ESCAPE, AROUND = 6, 4

# The letter that follows the backslash; zero where that is \u00XX.
_LETTERS = np.zeros(256, np.uint8)
# Lead bytes of characters among which are line ends need a second look.
_IS_PLAIN = np.ones(256, np.bool_)
_IS_PLAIN[[0xC2, 0xE2]] = False
for _byte in (*range(0x20), _QUOTE, _BACKSLASH):
    _escaped = json.dumps(chr(_byte))[1:-1]
    _IS_PLAIN[_byte] = False
    _LETTERS[_byte] = 0 if len(_escaped) == LONGEST_ESCAPE else ord(_escaped[1])


@kernel
def quote_strings(data, offsets, is_null, out, ends):
    r"""Write every string as JSON writes it, null as ``null``, one after the other, and where each value ends.

    Args:
        data: the strings, one after the other, UTF-8.
        offsets: where each begins, and where the last one ends.
        is_null: of each.
        out: has room for the worst case: see LONGEST_ESCAPE and AROUND, and WIDTH more.
        ends: one more than there are strings; the first is 0.

    Returns:
        How much of ``out`` is filled.

    Example:
        >>> text, out, ends = np.frombuffer('a"bé\n'.encode(), np.uint8), np.empty(80, np.uint8), np.empty(5, np.int64)
        >>> used = quote_strings(text, np.array([0, 3, 5, 6, 6]), np.array([False, False, False, True]), out, ends)
        >>> out[:used].tobytes().decode(), ends.tolist()
        ('"a\\"b""é""\\n"null', [0, 6, 10, 14, 18])
    """
    at = ends[0] = 0
    for row in range(len(offsets) - 1):
        at = _quote(data, offsets[row], offsets[row + 1], is_null[row], out, at)
        ends[row + 1] = at
    return at


@kernel
def quote_lists(data, offsets, value_is_null, list_offsets, is_null, out, ends):
    """Write lists of strings, as ``quote_strings`` writes strings.

    Args:
        data: the strings of all lists, as there.
        offsets: of the strings.
        value_is_null: of each string.
        list_offsets: the string with which each list begins, and that behind the last list.
        is_null: of each list.
        out: as there, with room for AROUND more bytes of each list and one of each string.
        ends: where each list ends.

    Example:
        >>> text, out, ends = np.frombuffer(b"ab", np.uint8), np.empty(80, np.uint8), np.empty(4, np.int64)
        >>> values = text, np.array([0, 1, 2]), np.array([False, False])
        >>> used = quote_lists(*values, np.array([0, 2, 2, 2]), np.array([False, False, True]), out, ends)
        >>> out[:used].tobytes(), ends.tolist()
        (b'["a","b"][]null', [0, 9, 11, 15])
    """
    at = ends[0] = 0
    for row in range(len(list_offsets) - 1):
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
                at = _quote(data, offsets[value], offsets[value + 1], value_is_null[value], out, at)
            out[at] = _CLOSE
            at += 1
        ends[row + 1] = at
    return at


@njit(forceinline=True)
def _quote(data, start, end, is_null, out, at):
    if is_null:
        out[at : at + 4] = _NULL
        return at + 4
    out[at] = _QUOTE
    at = _escape(data, start, end, out, at + 1)
    out[at] = _QUOTE
    return at + 1


@kernel
def _escape(data, start, end, out, at):
    while start < end:
        if start + WIDTH <= end:
            plain = plain_bytes_without_line_ends(data, start)
            copy_wide(data, start, out, at)  # what is not plain is written over
        else:
            plain = 0
            while start + plain < end and _IS_PLAIN[data[start + plain]]:
                out[at + plain] = data[start + plain]
                plain += 1
        start += plain
        at += plain
        if start < end and not _IS_PLAIN[data[start]]:
            byte = data[start]
            size, code = _line_end(data, start)
            start += size
            if code < 0:  # another character with this lead byte
                out[at] = byte
                at += 1
                continue
            out[at] = _BACKSLASH
            if _LETTERS[byte] != 0:
                out[at + 1] = _LETTERS[byte]
                at += 2
            else:
                out[at + 1] = 0x75  # u
                for digit in range(4):
                    out[at + 2 + digit] = _HEX[code >> (12 - 4 * digit) & 15]
                at += LONGEST_ESCAPE
    return at


@njit(forceinline=True)
def _line_end(data, at):
    """Give the size and the code of the character to escape that is here; code -1 if it is another one."""
    byte = data[at]
    if byte == 0xC2:
        return (2, 0x85) if data[at + 1] == 0x85 else (1, -1)
    if byte == 0xE2:
        is_one = data[at + 1] == 0x80 and (data[at + 2] == 0xA8 or data[at + 2] == 0xA9)
        return (3, 0x2000 + (data[at + 2] & 0x3F)) if is_one else (1, -1)
    return 1, int(byte)


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
    out = np.empty(size + WIDTH, np.uint8)
    at = 0
    for row in range(n_rows):
        for column in range(n_columns + 1):
            length = key_ends[column + 1] - key_ends[column]
            copy(keys, key_ends[column], length, out, at)
            at += length
            if column < n_columns:
                length = ends[column, row + 1] - ends[column, row]
                copy(data, data_starts[column] + ends[column, row], length, out, at)
                at += length
    return out[:size]
