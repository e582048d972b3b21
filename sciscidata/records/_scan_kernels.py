"""The compiled loops behind ``work_columns.py``: bytes of JSON lines in, the places of the used values out."""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from sciscidata._kernels.compile import WIDTH, WORD, bytes_below, bytes_equal, copy, kernel, plain_bytes, trailing_zeros
from sciscidata.records._abstract_kernels import hex4, unescape

#: Kinds of JSON values, as bits. WHOLE is a number of at most 18 digits without a sign.
TEXT, WHOLE, NUMBER, BOOLEAN, OBJECT, LIST, NULL = 1, 2, 4, 8, 16, 32, 64

_QUOTE, _BACKSLASH, _COMMA, _COLON, _DOT, _MINUS, _PLUS = 0x22, 0x5C, 0x2C, 0x3A, 0x2E, 0x2D, 0x2B
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
_ZERO, _NINE, _SPACE, _LINE_END = 0x30, 0x39, 0x20, 0x0A
MOST_QUOTES = 1 << 20  # of a line
_MOST_DEPTH = 32
_MOST_DIGITS = 18  # fit into Int64 whatever they are
_MOST_NUMBER = 40
_SIMPLE = np.zeros(256, np.bool_)
_EVEN = np.uint64(0x5555555555555555)
_SIMPLE[list(b'"\\/nrtbf')] = True


class Places(NamedTuple):
    """Where values begin and end in the bytes; (0, 0) if null or missing."""

    spans: Any  # (leaves outside of lists, rows, 2)
    items: Any  # (leaves inside, entries, 2): one entry after the other, whatever its row
    used: Any  # (lists): entries noted so far


class Line(NamedTuple):
    """What is known of a line before it is walked."""

    quotes: Any  # places of its quotes that no backslash escapes, then its end twice
    has_escape: bool
    stack: Any  # (depth, 3), scratch: node, begin and keys seen of each open object or list


@kernel
def scan_lines(data, n_rows, n_items, tree):
    """Walk JSON objects, one a line, and note where the values of the tree's leaves stand.

    ``data`` has 64 more bytes behind its last line end. A row is odd, and not noted, if its line is not strict JSON. It
    is odd, too, with a value that the tree does not allow, a key twice, or an escaped surrogate. Returned are where
    lines begin, with the end, and odd rows. Then begin and end of each leaf of a row, (0, 0) if null or missing, and
    the same by entry of lists. Last, for each list, where the entries of each row begin.
    """
    n_leaves, n_item_leaves, n_lists = tree.counts
    lines = np.zeros(n_rows + 1, np.int64)
    is_odd = np.zeros(n_rows, np.bool_)
    spans = np.zeros((n_leaves, n_rows, 2), np.int32)
    # Not cleared: a block has room for many more entries than it holds.
    items = np.empty((n_item_leaves, n_items, 2), np.int32)
    firsts = np.zeros((n_lists, n_rows + 1), np.int64)
    stack = np.empty((_MOST_DEPTH, 3), np.int64)
    used = np.zeros(n_lists, np.int64)
    quotes = np.empty(min(len(data), MOST_QUOTES) + 4, np.int64)
    places = Places(spans, items, used)
    at = 0
    for row in range(n_rows):
        lines[row] = at
        end, n, has_escape = _find_quotes(data, at, quotes)
        if end >= 0:
            quotes[n] = quotes[n + 1] = end  # where no quote is
            end = _scan_line(data, at, row, tree, Line(quotes, has_escape, stack), places)
        if end < 0:
            is_odd[row] = True
            for leaf in range(n_leaves):
                spans[leaf, row, 0] = spans[leaf, row, 1] = 0
            for inside in range(n_lists):
                used[inside] = firsts[inside, row]
            end = at
            while data[end] != _LINE_END:
                end += 1
        for inside in range(n_lists):
            firsts[inside, row + 1] = used[inside]
        at = end + 1
    lines[n_rows] = at
    return lines, is_odd, spans, items, firsts


@kernel
def _find_quotes(data, at, quotes):
    """List the quotes of a line that no backslash escapes, and odd places. Return its end, -1 if there is no room.

    Odd are control characters, and backslashes that begin no escape, or that of a surrogate.
    """
    n, is_escaped, one, has_escape = 0, np.uint64(0), np.uint64(1), False
    while True:
        ends = bytes_below(data, at, _SPACE)
        found = bytes_equal(data, at, _QUOTE)
        escapes = bytes_equal(data, at, _BACKSLASH)
        if escapes | is_escaped:
            has_escape = True
            # Of backslashes in a row, every second one is escaped by the one before (Langdale and Lemire 2019).
            escapes &= ~is_escaped
            behind = escapes << one | is_escaped
            starts = escapes & ~_EVEN & ~behind
            runs = starts + escapes
            is_escaped = np.uint64(runs < starts)
            escaped = (_EVEN ^ runs << one) & behind
            found &= ~escaped
            while escaped:
                place = at + trailing_zeros(escaped)
                escaped &= escaped - one
                if not _is_escape(data, place):
                    ends |= one << np.uint64(place - at)
        found |= ends
        while found:
            place = at + trailing_zeros(found)
            found &= found - one
            if data[place] == _LINE_END:
                return place, n, has_escape
            if n + 2 > len(quotes):
                return -1, n, has_escape
            quotes[n] = place
            n += 1
        at += WORD


@kernel
def _is_escape(data, at):
    """Whether the character behind a backslash makes it an escape, and not of a surrogate."""
    if data[at] != 0x75:  # u
        return _SIMPLE[data[at]]
    code = hex4(data, at + 1, len(data))
    return 0 <= code < 0xD800 or code >= 0xE000


@kernel
def _scan_line(data, at, row, tree, line, places):
    """Walk one line; return the place of its end, or -1 if it is odd."""
    quotes, has_escape, stack = line
    spans, items, used = places
    depth, node, seen, quote = 0, 0, 0, 0
    while True:
        # A value begins here.
        start, byte, is_open = at, data[at], False
        if byte == _QUOTE:
            kind = TEXT
            at = quotes[quote + 1] + 1
            quote += 2
            if data[at - 1] != _QUOTE or quotes[quote - 2] != start:
                return -1
        elif byte in (_OPEN_OBJECT, _OPEN_LIST):
            kind = OBJECT if byte == _OPEN_OBJECT else LIST
            if node < 0 or tree.is_whole[node]:
                at, quote = _unused_end(data, at, quotes, quote)
            else:
                if depth == _MOST_DEPTH:
                    return -1
                at = _skip_space(data, at + 1)
                is_open = data[at] != byte + 2  # the closing bracket
                at += not is_open
        elif byte == _MINUS or _ZERO <= byte <= _NINE:
            at, kind = _number_end(data, at)
        else:
            at, kind = _literal_end(data, at)
        if at <= 0 or (node >= 0 and not tree.allowed[node] & kind):
            return -1
        if is_open:
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = node, start, seen
            depth, seen = depth + 1, 0
        # What ends here: the value, and perhaps the objects and lists around it.
        while not is_open:
            if node >= 0 and tree.leaf[node] >= 0 and kind != NULL:
                is_text = kind == TEXT
                if is_text and tree.is_score[node]:
                    end, _ = _number_end(data, start + 1)
                    if end != at - 1 or data[start + 1] == _MINUS:
                        return -1
                inside = tree.list_of[node]
                if inside < 0:
                    spans[tree.leaf[node], row, 0], spans[tree.leaf[node], row, 1] = start + is_text, at - is_text
                else:
                    place = used[inside] - 1
                    items[tree.leaf[node], place, 0], items[tree.leaf[node], place, 1] = start + is_text, at - is_text
            at = _skip_space(data, at)
            if depth == 0:
                return at if kind == OBJECT and data[at] == _LINE_END else -1
            node, start = stack[depth - 1, 0], stack[depth - 1, 1]
            if data[at] == _COMMA:
                at = _skip_space(data, at + 1)
                is_open = True
            elif data[at] == data[start] + 2:
                kind = OBJECT if data[start] == _OPEN_OBJECT else LIST
                depth -= 1
                seen = stack[depth, 2]
                at += 1
            else:
                return -1
        # An entry of the innermost object or list begins here.
        parent = stack[depth - 1, 0]
        node = -1
        if data[stack[depth - 1, 1]] == _OPEN_LIST:
            node = tree.entry[parent]
            inside = tree.list_of[node]
            if used[inside] == items.shape[1]:
                return -1
            for leaf in range(len(items)):
                if tree.list_of_leaf[leaf] == inside:
                    items[leaf, used[inside], 0] = items[leaf, used[inside], 1] = 0
            used[inside] += 1
            continue
        if data[at] != _QUOTE:
            return -1
        key = at + 1
        at = quotes[quote + 1]
        quote += 2
        if data[at] != _QUOTE or quotes[quote - 2] != key - 1:
            return -1
        length = at - key
        found = tree.child[parent, (data[key] + 3 * data[at - 1] + 3 * length) & 255]
        if found >= 0 and tree.key_length[found] == length and _is_key(data, key, length, tree, found):
            node = found
            if seen >> node & 1:
                return -1
            seen |= 1 << node
        elif found < 0 and has_escape and _has_escape(data, key, at):
            return -1
        at = _skip_space(data, at + 1)
        if data[at] != _COLON:
            return -1
        at = _skip_space(data, at + 1)


@njit(forceinline=True)
def _unused_end(data, at, quotes, quote):
    """Return the place behind an object or list that is not used, or -1 if it is odd."""
    depth, objects, one = 0, np.uint64(0), np.uint64(1)  # a bit for each open bracket, the innermost is the lowest
    while True:
        # A value begins here.
        byte, is_open = data[at], False
        if byte == _QUOTE:
            start, at = at, quotes[quote + 1] + 1
            quote += 2
            if data[at - 1] != _QUOTE or quotes[quote - 2] != start:
                return -1, quote
        elif byte in (_OPEN_OBJECT, _OPEN_LIST):
            at = _skip_space(data, at + 1)
            if byte == _OPEN_LIST:
                at, quote = _plain_list_end(data, at, quotes, quote)
            is_open = data[at] != byte + 2  # the closing bracket
            if is_open:
                depth, objects = depth + 1, objects << one | np.uint64(byte == _OPEN_OBJECT)
            else:
                at += 1
        elif byte == _MINUS or _ZERO <= byte <= _NINE:
            at, _ = _number_end(data, at)
        else:
            at, _ = _literal_end(data, at)
        if at < 0 or depth > _MOST_DEPTH:
            return -1, quote
        # What ends here: the value, and perhaps the objects and lists around it.
        while not is_open:
            if depth == 0:
                return at, quote
            at = _skip_space(data, at)
            if data[at] == _COMMA:
                at = _skip_space(data, at + 1)
                is_open = True
            elif data[at] == (_CLOSE_OBJECT if objects & one else _CLOSE_LIST):
                depth, objects = depth - 1, objects >> one
                at += 1
            else:
                return -1, quote
        while objects & one:
            start, at = at, quotes[quote + 1]
            quote += 2
            if data[start] != _QUOTE or data[at] != _QUOTE or quotes[quote - 2] != start:
                return -1, quote
            if _are_whole_numbers(data, at + 1, quotes[quote]):
                at = quotes[quote]
                continue
            at = _skip_space(data, at + 1)
            if data[at] != _COLON:
                return -1, quote
            at = _skip_space(data, at + 1)
            break


@njit(forceinline=True)
def _are_whole_numbers(data, at, end):
    """Whether a colon, a list of small whole numbers and a comma stand here; no branch depends on what they are."""
    n, one = np.uint64(end - at), np.uint64(1)
    if n < 5 or n > 22 or data[at] != _COLON or data[at + 1] != _OPEN_LIST or data[end - 2] != _CLOSE_LIST:
        return False
    inside = (one << (n - np.uint64(2))) - np.uint64(4)
    zeros, commas = bytes_equal(data, at, _ZERO), bytes_equal(data, at, _COMMA)
    digits = bytes_below(data, at, _NINE + 1) & ~bytes_below(data, at, _ZERO) & inside
    starts = (commas << one | np.uint64(4)) & inside
    odd = (inside & ~(digits | commas)) | (starts & ~digits) | (starts & zeros & digits >> one)
    return odd == 0 and data[end - 1] == _COMMA and data[end - 3] != _COMMA


@njit(forceinline=True)
def _plain_list_end(data, begin, quotes, first_quote):
    """Pass over a list of texts only, or of small whole numbers; at any other list, return to its beginning."""
    at, quote = begin, first_quote
    while True:
        if data[at] == _QUOTE:
            if quotes[quote] != at:
                return begin, first_quote
            at = quotes[quote + 1]
            quote += 2
            if data[at] != _QUOTE:
                return begin, first_quote
            at += 1
        else:
            first = at
            while _ZERO <= data[at] <= _NINE:
                at += 1
            if at == first or at - first > _MOST_DIGITS or (data[first] == _ZERO and at - first > 1):
                return begin, first_quote
        at = _skip_space(data, at)
        if data[at] != _COMMA:
            break
        at = _skip_space(data, at + 1)
    if data[at] != _CLOSE_LIST:
        return begin, first_quote
    return at, quote


@njit(forceinline=True)
def _is_key(data, at, length, tree, node):
    first = tree.key_start[node]
    same = 0
    while same < length and data[at + same] == tree.keys[first + same]:
        same += 1
    return same == length


@njit(forceinline=True)
def _skip_space(data, at):
    while data[at] == _SPACE or data[at] == 0x09 or data[at] == 0x0D:
        at += 1
    return at


@njit(forceinline=True)
def _plain_end(data, at):
    """Find the first quote, backslash or control character; behind the last line is one."""
    step = WIDTH
    while step == WIDTH:
        step = plain_bytes(data, at)
        at += step
    return at


@njit(forceinline=True)
def _has_escape(data, at, end):
    return _plain_end(data, at) < end


@njit(forceinline=True)
def _digits_end(data, at):
    while _ZERO <= data[at] <= _NINE:
        at += 1
    return at


@kernel
def _number_end(data, at):
    """Return the place behind a number, and its kind; -1 if it is none, or has more than 40 characters."""
    start = at
    kind = WHOLE
    if data[at] == _MINUS:
        kind = NUMBER
        at += 1
    first, at = at, _digits_end(data, at)
    if at == first or (data[first] == _ZERO and at > first + 1):
        return -1, kind
    if at - first > _MOST_DIGITS:
        kind = NUMBER
    if data[at] == _DOT:
        kind = NUMBER
        at += 1
        first, at = at, _digits_end(data, at)
        if at == first:
            return -1, kind
    if data[at] | 0x20 == 0x65:  # e
        kind = NUMBER
        at += 1
        if data[at] == _PLUS or data[at] == _MINUS:
            at += 1
        first, at = at, _digits_end(data, at)
        if at == first:
            return -1, kind
    return (at if at - start <= _MOST_NUMBER else -1), kind


@kernel
def _literal_end(data, at):
    """Return the place behind null, true or false, and its kind; -1 for anything else."""
    if data[at] == 0x6E and data[at + 1] == 0x75 and data[at + 2] == 0x6C and data[at + 3] == 0x6C:
        return at + 4, NULL
    if data[at] == 0x74 and data[at + 1] == 0x72 and data[at + 2] == 0x75 and data[at + 3] == 0x65:
        return at + 4, BOOLEAN
    if (
        data[at] == 0x66
        and data[at + 1] == 0x61
        and data[at + 2] == 0x6C
        and data[at + 3] == 0x73
        and data[at + 4] == 0x65
    ):
        return at + 5, BOOLEAN
    return -1, NULL


@kernel
def take_texts(data, spans):
    """Copy JSON texts, unescaped, into one run; return it, and where each begins, with the end."""
    size = 0
    for i in range(len(spans)):
        size += spans[i, 1] - spans[i, 0]
    out = np.empty(size + WIDTH, np.uint8)
    offsets = np.zeros(len(spans) + 1, np.int64)
    at = 0
    for i in range(len(spans)):
        start, end = spans[i, 0], spans[i, 1]
        if start < end:
            if _has_escape(data, start, end):
                _, length = unescape(data, start, end, out, at)
                at += length
            else:
                copy(data, start, end - start, out, at)
                at += end - start
        offsets[i + 1] = at
    return out[:at], offsets


@kernel
def read_whole(data, spans):
    """Read whole numbers; -1 where there is none."""
    numbers = np.empty(len(spans), np.int64)
    for i in range(len(spans)):
        numbers[i] = -1
        if spans[i, 0] < spans[i, 1]:
            number = 0
            for at in range(spans[i, 0], spans[i, 1]):
                number = number * 10 + (data[at] - _ZERO)
            numbers[i] = number
    return numbers
