"""The number of an id given as text: the number that it writes, or a hash. Import late: numba loads slowly.

The hash is XXH64 with seed 0 (Yann Collet, https://github.com/Cyan4973/xxHash, ``doc/xxhash_spec.md``).
"""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from sciscidata._kernels.compile import byte_at, bytes_within, eight_at, four_at, kernel, prefetch_at
from sciscidata._kernels.strings import INLINE

_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
_64 = np.uint64(64)
_LIMIT = np.uint64(1 << 62)
_URL_BYTES = len(b"https://openalex.org/")
#: Its first eight bytes, those behind them, and the last ones.
_URL = tuple(np.uint64(int.from_bytes(part, "little")) for part in (b"https://", b"openalex", b"lex.org/"))
_ZERO = ord("0")
#: Bytes of numbers, and of several in one text.
_NUMERIC = np.zeros(256, np.bool_)
_NUMERIC[np.frombuffer(b"0123456789.eE+;| ", np.uint8)] = True
#: Bytes that may be no part of a DOI at its end.
_NOT_AT_END = np.zeros(256, np.bool_)
_NOT_AT_END[np.frombuffer(b"./,;:)]}>\"'`", np.uint8)] = True
#: Bytes of a DOI that only its case and its address can keep from the plain form.
_IN_DOI = np.zeros(256, np.bool_)
_IN_DOI[0x21:0x7F] = True
_IN_DOI[np.frombuffer(b"%&?#,;|", np.uint8)] = False
_HTTP, _S, _SLASHES, _DX_DOT, _DOI_ORG, _TEN = (
    np.frombuffer(word, np.uint8) for word in (b"http", b"s", b"://", b"dx.", b"doi.org/", b"10.")
)
_D, _O, _I = b"doi"
#: Control characters, capitals, % and &, and what is beyond ASCII or the last of it.
_odd_in_doi = bytes_within((0, 0x20), (0x41, 26), (0x25, 2), (0x7F, 0x81))
#: First bytes of blanks, lists, quotes, and what is encoded.
_ODD_AT_START = np.ones(256, np.bool_)
_ODD_AT_START[0x21:0x7F] = False
_ODD_AT_START[np.frombuffer(b"([{<\"'`%&", np.uint8)] = True
#: First two bytes, in lower case, of addresses (http, www.), DOIs (doi, dx., info:, urn:), and lists of R: c(.
#: Each at its lowest ten bits, which all differ.
_ODD_STARTS = np.zeros(1 << 10, np.int64)
for _pair in (b"ht", b"ww", b"do", b"dx", b"in", b"ur", b"c("):
    _ODD_STARTS[int.from_bytes(_pair, "big") & 0x3FF] = int.from_bytes(_pair, "big")
_MOST_DIGITS = 19  # of a number below 2^62; as many never exceed 64 bits
_AHEAD = 16  # texts whose place in memory is asked for in advance
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)  # in every byte


@register_jitable
def _rotate(x, n):
    return (x << np.uint64(n)) | (x >> (_64 - np.uint64(n)))


@register_jitable
def _between(word, low, high):
    """Mark the bytes of a word above ``low`` and below ``high``. All three must be at most 127."""
    return (_ONES * np.uint64(127 + high) - word) & (word + _ONES * np.uint64(127 - low)) & _HIGH


@register_jitable
def _folded(word, wanted):
    """Write the capitals of a word in lower case, if all bits of ``wanted`` are set, and not if none is."""
    return word | _between(word, 0x40, 0x5B) >> np.uint64(2) & wanted


@register_jitable
def _round(lane, word):
    return _rotate(lane + word * _P2, 31) * _P1


@register_jitable
def xxh64(start, end, folds):
    """Hash the bytes from ``start`` to ``end``; with all bits of ``folds`` set as if in lower case, for ASCII only."""
    at = start
    if end - start >= 32:
        a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
        while at + 32 <= end:
            a = _round(a, _folded(eight_at(at), folds))
            b = _round(b, _folded(eight_at(at + 8), folds))
            c = _round(c, _folded(eight_at(at + 16), folds))
            d = _round(d, _folded(eight_at(at + 24), folds))
            at += 32
        h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            h = (h ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        h = _P5
    h += np.uint64(end - start)
    while at + 8 <= end:
        h = _rotate(h ^ _round(np.uint64(0), _folded(eight_at(at), folds)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        h = _rotate(h ^ (_folded(four_at(at), folds) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        h = _rotate(h ^ (_folded(np.uint64(byte_at(at)), folds) * _P5), 11) * _P1
        at += 1
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@register_jitable
def _are_equal(a, b, n):
    """Whether ``n`` bytes are those from ``b`` on; the last ones first, since ids end differently.

    Fewer than eight are in their views, with zeros behind.
    """
    at = n - 8
    while at > 0:
        if eight_at(a + at) != eight_at(b + at):
            return False
        at -= 8
    return eight_at(a) == eight_at(b)


@register_jitable
def _digits_from(start, end, letter):
    """Return where the digits of an OpenAlex id begin: behind its letter, and the address before it."""
    at = start
    if end - start > _URL_BYTES and eight_at(start) == _URL[0] and eight_at(start + 8) == _URL[1]:
        at += _URL_BYTES if eight_at(start + _URL_BYTES - 8) == _URL[2] else 0
    return at + 1 if byte_at(at) == letter else start


@register_jitable
def _may_be_odd_doi(start, end):
    """Whether a byte cannot stand in a plain DOI, or there are fewer than eight bytes."""
    if end - start < 8:
        return True
    for at in range(start, end - 8, 8):
        if _odd_in_doi(at):
            return True
    return _odd_in_doi(end - 8) != 0


@register_jitable
def _may_be_odd(start, end, letter):
    """Whether a text may be a number, an id, a DOI or a list in a form that this loop does not read."""
    first, last = byte_at(start), byte_at(end - 1)
    if _ODD_AT_START[first] or last <= 0x20 or last >= 0x7F:
        return True  # a blank, perhaps
    second = byte_at(start + 1) if end > start + 1 else 0
    is_digit = 0x30 <= second <= 0x39
    low = first | 0x20
    if is_digit and (low == letter | 0x20 or (low == 0x76 and letter == 0x53)):  # V: of venues until 2022, as S
        return True
    if 0x30 <= first <= 0x39 or (first == 0x2D and is_digit):
        at = start + 1
        while at < end and _NUMERIC[byte_at(at)]:
            at += 1
        if at == end:
            return True
        is_doi = first == 0x31 and second == 0x30 and byte_at(start + 2) == 0x2E  # 10.
        return is_doi and (_NOT_AT_END[last] or _may_be_odd_doi(start, end))
    pair = low << 8 | second | 0x20
    return _ODD_STARTS[pair & 0x3FF] == pair


@register_jitable
def _number(start, end, letter, are_plain):
    first = _digits_from(start, end, letter)
    while first < end - 1 and byte_at(first) == _ZERO:
        first += 1
    value, at = np.uint64(0), first
    plain = 0 < end - first <= _MOST_DIGITS
    while plain and at < end:
        digit = byte_at(at) - _ZERO
        plain = 0 <= digit <= 9
        value = value * np.uint64(10) + np.uint64(digit)
        at += 1
    if plain and value < _LIMIT:
        return np.int64(value)
    if not are_plain and _may_be_odd(start, end, letter):
        return np.int64(-2)
    return np.int64(_LIMIT | (xxh64(start, end, np.uint64(0)) >> np.uint64(2)))


@kernel
def number_texts(views, buffers, is_null, letter, are_plain, numbers):
    """Number texts where they lie; -1 is an empty one or null, -2 one that is not plain yet, unless they ``are_plain``.

    ``views``, ``buffers`` and ``is_null`` are those of ``Views``. ``letter`` is a byte, as W.
    """
    last, last_bytes, last_number = np.int64(0), np.int64(0), np.int64(-1)
    for i in range(numbers.size):
        ahead = i + _AHEAD
        if ahead < numbers.size and views[ahead, 0] > INLINE and views[ahead, 2] < buffers.size:
            prefetch_at(buffers[views[ahead, 2]] + views[ahead, 3])
        n_bytes = np.int64(views[i, 0])
        if n_bytes == 0 or (is_null.size and is_null[i]):
            numbers[i] = -1
            continue
        start = buffers[-1] + 16 * i + 4
        if n_bytes > INLINE:
            start = buffers[views[i, 2]] + views[i, 3]
        # The citations of a work mostly stand together.
        if n_bytes != last_bytes or (start != last and not _are_equal(start, last, n_bytes)):
            last_number = _number(start, start + n_bytes, letter, are_plain)
        last, last_bytes = start, n_bytes
        numbers[i] = last_number


@register_jitable
def _skip(at, end, word):
    """Return the place behind a word, or ``at`` if another stands there."""
    if end - at < word.size:
        return at
    for i in range(word.size):
        if byte_at(at + i) != word[i]:
            return at
    return at + word.size


@register_jitable
def _doi_from(start, end):
    """Return where a DOI begins that is plain in lower case and without its address, or -1."""
    at = _skip(start, end, _HTTP)
    if at > start:
        host = _skip(_skip(_skip(at, end, _S), end, _SLASHES), end, _DX_DOT)
        at = _skip(host, end, _DOI_ORG)
        if at == host:
            return -1
    doi, at = at, _skip(at, end, _TEN)
    if at == doi or _NOT_AT_END[byte_at(end - 1)]:
        return -1
    digits = at
    while at < end and (byte_at(at) == 0x2E or 0x30 <= byte_at(at) <= 0x39):
        at += 1
    if at in (digits, end) or byte_at(at) != 0x2F:
        return -1
    # Another "doi" may end an address, of which all before is a part.
    before = before_that = 0
    while at < end:
        sign = byte_at(at) | 0x20
        if not _IN_DOI[byte_at(at)] or (sign == _I and before == _O and before_that == _D):
            return -1
        before, before_that = sign, before
        at += 1
    return doi


@kernel
def number_dois(views, buffers, numbers):
    """Number DOIs of usual forms that are not plain, in place of -2; the others are for slower means."""
    for i in range(numbers.size):
        if numbers[i] == -2 and views[i, 0] > INLINE:
            start = buffers[views[i, 2]] + views[i, 3]
            end = start + views[i, 0]
            doi = _doi_from(start, end)
            if doi >= 0:
                numbers[i] = np.int64(_LIMIT | (xxh64(doi, end, ~np.uint64(0)) >> np.uint64(2)))
