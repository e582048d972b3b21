"""Cut lines of text into fields where they lie, 64 bytes at a time: the plain case, which nearly every line is.

Import late: numba loads slowly.
"""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from sciscidata._kernels.compile import (
    WORD,
    byte_at,
    bytes_below,
    bytes_equal,
    eight_at,
    four_at,
    kernel,
    trailing_zeros,
)
from sciscidata._kernels.strings import INLINE

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LINE_END, _RETURN, _BLANK, _QUOTE, _ASCII = 0x0A, 0x0D, 0x20, 0x22, 0x80


@register_jitable
def _is_blank(byte):
    return byte == _BLANK or 0x09 <= byte <= _RETURN


class Lines(NamedTuple):
    """Text to cut.

    Attributes:
        data: uint8, whole lines, each with its end, and behind ``end`` zeros: one ``WORD``.
        address: that of ``data``.
        end: where the last line ends.
        delimiter: a byte.
        n_quotes: double quotes in the text; 0 where they are bytes like others.
    """

    data: npt.NDArray[np.uint8]
    address: int
    end: int
    delimiter: int
    n_quotes: int


@register_jitable
def _first_bytes(word, n):
    """Return the first ``n`` bytes of eight, and zeros."""
    return word & ~(_ALL << np.uint64(8 * n)) if n < 8 else word


@kernel
def cut_fields(lines, wanted, views, is_null):
    """Write Arrow's views of the fields wanted, without blanks around; return the rows, or -1 if a line is not plain.

    Args:
        lines: ``Lines``.
        wanted: int64, for each field of a line the place of its views, or -1.
        views: uint32 (n, rows, 4).
        is_null: bool (n, rows): the fields without a byte.

    A line is plain if it is ASCII, has a field for each of ``wanted``, and no carriage return but before its end.
    Quotes stand only around whole fields. A field in quotes has no other quote, delimiter or line end in it. Lines
    without a byte are left out.
    """
    data, address, delimiter, n_quotes = lines.data, lines.address, lines.delimiter, lines.n_quotes
    row, field, start, n_quoted = 0, 0, np.int64(0), 0
    for base in range(0, lines.end, WORD):
        if ~bytes_below(data, base, _ASCII):
            return -1
        returns = bytes_equal(data, base, _RETURN)
        while returns:
            if byte_at(address + base + trailing_zeros(returns) + 1) != _LINE_END:
                return -1
            returns &= returns - np.uint64(1)
        stops = bytes_equal(data, base, _LINE_END) | bytes_equal(data, base, delimiter)
        while stops:
            at = base + trailing_zeros(stops)
            stops &= stops - np.uint64(1)
            is_last = byte_at(address + at) == _LINE_END
            stop = at - 1 if is_last and at > start and byte_at(address + at - 1) == _RETURN else at
            if is_last and field == 0 and stop == start:
                start = at + 1
                continue
            if field == wanted.size:
                return -1
            if n_quotes and stop > start and byte_at(address + start) == _QUOTE:
                if stop - start == 1 or byte_at(address + stop - 1) != _QUOTE:
                    return -1
                start, stop, n_quoted = start + 1, stop - 1, n_quoted + 1
            place = wanted[field]
            if place >= 0:
                is_null[place, row] = stop == start
                while stop > start and _is_blank(byte_at(address + start)):
                    start += 1
                while stop > start and _is_blank(byte_at(address + stop - 1)):
                    stop -= 1
                n_bytes = stop - start
                first = _first_bytes(eight_at(address + start), n_bytes)
                views[place, row, 0] = n_bytes
                views[place, row, 1] = first
                if n_bytes > INLINE:
                    views[place, row, 2], views[place, row, 3] = 0, start
                else:
                    views[place, row, 2] = first >> np.uint64(32)
                    views[place, row, 3] = _first_bytes(four_at(address + start + 8), n_bytes - 8) if n_bytes > 8 else 0
            start = at + 1
            field += 1
            if is_last:
                if field != wanted.size:
                    return -1
                row, field = row + 1, 0
    return row if 2 * n_quoted == n_quotes else -1
