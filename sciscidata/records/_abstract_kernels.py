"""The compiled loop behind ``abstracts.py``: bytes of inverted indexes in, bytes of text out."""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

import numpy as np
from numba import njit

from sciscidata._kernels.compile import WIDTH, copy, kernel, plain_bytes

NULL, TEXT, IRREGULAR = 0, 1, 2

#: A shorter index was never cut off: 32,760 bytes shrink at most to a third when escapes go.
LONG_INDEX_BYTES = 10_000
#: Behind the first missing word of a whole index, at most one in so many is missing.
MOST_MISSING = 5
LEAST_WORDS = 20  # a shorter beginning is not worth keeping
_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
_ZERO, _NINE, _SPACE = 0x30, 0x39, 0x20

_ESCAPES = np.zeros(256, np.uint8)  # zero: not an escape
_ESCAPES[list(b'"\\/nrtbf')] = list(b'"\\/\n\r\t\b\f')


@kernel
def decode_rows(data, starts, ends):
    """Decode every row into one run of text: its bytes, where each text begins, and a status per row.

    Irregular rows are left to the exact path. They have no plain index, two words at one position, or positions or
    texts longer than the row. Or they are long, have a blank word and miss others.
    """
    n_rows = len(starts)
    longest = total = 0
    for row in range(n_rows):
        longest = max(longest, ends[row] - starts[row])
        total += ends[row] - starts[row]
    slot_start = np.empty(longest + 1, np.int64)
    slot_length = np.zeros(longest + 1, np.int64)  # zero: no word here
    unescaped = np.empty(longest + 1, np.uint8)
    out = np.empty(total + WIDTH, np.uint8)
    out_offsets = np.empty(n_rows + 1, np.int64)
    status = np.zeros(n_rows, np.uint8)
    used = 0
    out_offsets[0] = 0
    for row in range(n_rows):
        size_of_index = ends[row] - starts[row]
        status[row], last_slot, size, has_blank = _place_words(
            data, starts[row], ends[row], slot_start, slot_length, unescaped
        )
        last_kept = last_slot
        if status[row] == TEXT and size_of_index >= LONG_INDEX_BYTES:
            last_kept = _before_the_cut(slot_length, last_slot)
            if last_kept < last_slot and last_kept + 1 < LEAST_WORDS:
                status[row] = NULL
            if has_blank and _first_gap(slot_length, last_slot) <= last_slot:
                status[row] = IRREGULAR
        if status[row] == TEXT and size > size_of_index:
            status[row] = IRREGULAR
        if status[row] == TEXT:
            used = _read_out(data, unescaped, slot_start, slot_length, last_kept, out, used)
        for slot in range(last_slot + 1):
            slot_length[slot] = 0
        out_offsets[row + 1] = used
    return out[:used], out_offsets, status


@kernel
def _first_gap(slot_length, last_slot):
    gap = 0
    while gap <= last_slot and slot_length[gap] != 0:
        gap += 1
    return gap


@kernel
def _before_the_cut(slot_length, last_slot):
    """Return the last slot of a long text: that before the first gap if so many words are missing behind it."""
    gap = _first_gap(slot_length, last_slot)
    missing = 0
    for slot in range(gap, last_slot + 1):
        missing += slot_length[slot] == 0
    return last_slot if missing * MOST_MISSING <= last_slot + 1 - gap else gap - 1


@njit(forceinline=True)
def _read_out(data, unescaped, slot_start, slot_length, last_slot, out, used):
    """Write the words in the slots' order, one space between them; return where the text ends."""
    for slot in range(last_slot + 1):
        length = slot_length[slot]
        if length == 0:
            continue
        start = slot_start[slot]
        if start >= 0:
            copy(data, start, length, out, used)
        else:
            copy(unescaped, -start - 1, length, out, used)
        used += length
        out[used] = _SPACE
        used += 1
    return used - 1


@kernel
def _place_words(data, at, end, slot_start, slot_length, unescaped):
    """Parse one row into the slots; return its status, last slot, the size of its text, and if a word is blank."""
    limit = end - at
    last_slot = -1
    size = 0
    has_blank = False
    scratch = 0
    at = _skip_spaces(data, at, end)
    if at >= end:
        return NULL, last_slot, size, has_blank
    if data[at] != _OPEN_OBJECT:
        return IRREGULAR, last_slot, size, has_blank
    at = _skip_spaces(data, at + 1, end)
    more = not (at < end and data[at] == _CLOSE_OBJECT)
    while more:
        if at >= end or data[at] != _QUOTE:
            return IRREGULAR, last_slot, size, has_blank
        at += 1
        start = at
        at = _string_end(data, at, end)
        length = at - start
        if at < end and data[at] == _BACKSLASH:
            at, length = unescape(data, start, end, unescaped, scratch)
            start = -scratch - 1
            scratch += max(length, 0)
        if length < 0 or at >= end or data[at] != _QUOTE:
            return IRREGULAR, last_slot, size, has_blank
        if (start >= 0 and _is_blank(data, start, length)) or (start < 0 and _is_blank(unescaped, -start - 1, length)):
            length = 0
            has_blank = True
        at = _skip_spaces(data, at + 1, end)
        if at >= end or data[at] != _COLON:
            return IRREGULAR, last_slot, size, has_blank
        at = _skip_spaces(data, at + 1, end)
        if at >= end or data[at] != _OPEN_LIST:
            return IRREGULAR, last_slot, size, has_blank
        at = _skip_spaces(data, at + 1, end)
        more = not (at < end and data[at] == _CLOSE_LIST)
        while more:
            first_digit = at
            position = 0
            while at < end and _ZERO <= data[at] <= _NINE:
                position = position * 10 + (data[at] - _ZERO)
                at += 1
            digits = at - first_digit
            if digits == 0 or digits > 9 or position >= limit or (digits > 1 and data[first_digit] == _ZERO):
                return IRREGULAR, last_slot, size, has_blank
            if length > 0:
                if slot_length[position] != 0:
                    return IRREGULAR, last_slot, size, has_blank
                slot_start[position] = start
                slot_length[position] = length
                last_slot = max(last_slot, position)
                size += length + 1
            at = _skip_spaces(data, at, end)
            more = at < end and data[at] == _COMMA
            if more:
                at = _skip_spaces(data, at + 1, end)
        if at >= end or data[at] != _CLOSE_LIST:
            return IRREGULAR, last_slot, size, has_blank
        at = _skip_spaces(data, at + 1, end)
        more = at < end and data[at] == _COMMA
        if more:
            at = _skip_spaces(data, at + 1, end)
    if at >= end or data[at] != _CLOSE_OBJECT or _skip_spaces(data, at + 1, end) != end:
        return IRREGULAR, last_slot, size, has_blank
    return (TEXT if last_slot >= 0 else NULL), last_slot, size, has_blank


@njit(forceinline=True)
def _string_end(data, at, end):
    """Find the first quote, backslash or control character at or after ``at``; ``end`` if there is none."""
    step = WIDTH
    while step == WIDTH and at + WIDTH <= len(data):
        step = plain_bytes(data, at)
        at += step
    while at < end and data[at] != _QUOTE and data[at] != _BACKSLASH and data[at] >= _SPACE:
        at += 1
    return min(at, end)


@njit(forceinline=True)
def _skip_spaces(data, at, end):
    while at < end and data[at] <= _SPACE and (data[at] == 0x20 or data[at] in (0x0A, 0x0D, 0x09)):
        at += 1
    return at


@kernel
def unescape(data, at, end, out, out_at):
    """Copy a JSON string's text to ``out``; return the place of its closing quote and its length, or -1."""
    out_start = out_at
    while at < end and data[at] != _QUOTE:
        byte = data[at]
        if byte < _SPACE:
            return at, -1
        at += 1
        if byte != _BACKSLASH:
            out[out_at] = byte
            out_at += 1
            continue
        if at >= end:
            return at, -1
        byte = data[at]
        at += 1
        if byte != 0x75:  # u
            plain = _ESCAPES[byte]
            if plain == 0:
                return at, -1
            out[out_at] = plain
            out_at += 1
            continue
        code = hex4(data, at, end)
        if code < 0:
            return at, -1
        at += 4
        if 0xD800 <= code < 0xDC00 and at + 6 <= end and data[at] == _BACKSLASH and data[at + 1] == 0x75:
            low = hex4(data, at + 2, end)
            if 0xDC00 <= low < 0xE000:
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                at += 6
        if 0xD800 <= code < 0xE000:
            code = 0xFFFD
        out_at = _write_utf8(code, out, out_at)
    return at, out_at - out_start


@kernel
def hex4(data, at, end):
    if at + 4 > end:
        return -1
    code = 0
    for i in range(at, at + 4):
        byte = data[i]
        if _ZERO <= byte <= _NINE:
            digit = byte - 0x30
        elif 0x61 <= byte <= 0x66:
            digit = byte - 0x57
        elif 0x41 <= byte <= 0x46:
            digit = byte - 0x37
        else:
            return -1
        code = code * 16 + digit
    return code


@kernel
def _write_utf8(code, out, at):
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | (code >> 6)
        out[at + 1] = 0x80 | (code & 0x3F)
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | (code >> 12)
        out[at + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[at + 2] = 0x80 | (code & 0x3F)
        return at + 3
    out[at] = 0xF0 | (code >> 18)
    out[at + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[at + 3] = 0x80 | (code & 0x3F)
    return at + 4


@njit(forceinline=True)
def _is_blank(data, at, length):
    """Whether a UTF-8 word is nothing but what ``str.isspace`` calls whitespace."""
    end = at + length
    while at < end:
        byte = data[at]
        if byte == 0x20 or 0x09 <= byte <= 0x0D or 0x1C <= byte <= 0x1F:
            at += 1
        elif byte == 0xC2 and (data[at + 1] == 0x85 or data[at + 1] == 0xA0):
            at += 2
        elif byte < 0xE1 or byte > 0xE3:
            return False
        else:
            code = (byte & 0x0F) << 12 | (data[at + 1] & 0x3F) << 6 | (data[at + 2] & 0x3F)
            if not (
                0x2000 <= code <= 0x200A
                or code == 0x2028
                or code == 0x2029
                or code == 0x202F
                or code == 0x205F
                or code == 0x3000
                or code == 0x1680
            ):
                return False
            at += 3
    return True
