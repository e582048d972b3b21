"""The loop behind ``clean_texts``: which texts are plain already, as nearly all are.

Imported on first use, since numba takes a while to load; compiled once per machine and kept on disk.
"""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

import numpy as np

from sciscidata._kernels.compile import kernel
from sciscidata._kernels.llvm import WIDTH, spaces_and_oddities

# 1: a space; 2: what only the regular expressions can judge; 3: lead bytes of characters among which are odd spaces.
_KINDS = np.zeros(256, np.uint8)
_KINDS[:0x20] = 2
_KINDS[[0x26, 0x3C, 0x7F]] = 2  # & < DEL
_KINDS[0x20] = 1
_KINDS[[0xC2, 0xE1, 0xE2, 0xE3]] = 3


@kernel
def find_unclean(data, offsets):
    """Mark the texts that ``clean_text`` might change: markup, entities, control characters, any odd space.

    Example:
        >>> texts = np.frombuffer("a b".encode() + "a  b".encode() + "5–6".encode() + "5\u00a06".encode(), np.uint8)
        >>> find_unclean(texts, np.array([0, 3, 7, 12, 16])).tolist()
        [False, True, False, True]
    """
    n_rows = len(offsets) - 1
    unclean = np.zeros(n_rows, np.bool_)
    for row in range(n_rows):
        at, end = offsets[row], offsets[row + 1]
        after_space = True  # none at the start
        while at < end and not unclean[row]:
            if at + WIDTH <= end:
                found = spaces_and_oddities(data, at)
                if found >> WIDTH == 0:
                    # None may follow another, be it that before these bytes.
                    unclean[row] = found & (found << 1 | after_space) != 0
                    after_space = found >> (WIDTH - 1) != 0
                    at += WIDTH
                    continue
            stop = min(at + WIDTH, end)
            while at < stop:
                kind = _KINDS[data[at]]
                if kind == 0:
                    after_space = False
                elif kind == 1 and not after_space:
                    after_space = True
                elif kind == 3 and not _is_odd_space(data, at):
                    after_space = False
                else:
                    unclean[row] = True
                    break
                at += 1
        unclean[row] |= after_space  # at the end, or nothing at all
    return unclean


@kernel
def _is_odd_space(data, i):
    """Whether a character of UTF-8 is whitespace or a control character, or may be one."""
    first, second = data[i], data[i + 1]
    if first == 0xC2:
        return second <= 0xA0
    if first == 0xE1:
        return second == 0x9A
    if first == 0xE3:
        return second == 0x80
    if second == 0x80:
        third = data[i + 2]
        return third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF
    return second == 0x81
