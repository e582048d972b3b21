"""The compiled loop that looks for the citers of a few works among all citations; imported late, as all kernels."""

# numba infers types from the calls and reads no annotation.
# pyright: basic
from __future__ import annotations

import numpy as np

from sciscidata._kernels.compile import kernel


@kernel
def find_citations(refs, first, targets, is_likely, places, which, n_found):
    """Note where ``refs`` leads to one of ``targets``, ascending, and to which; return how many are noted.

    ``is_likely`` (a power of two, uint8) has a 1 at the last bits of every target. It stays in the fastest cache, so
    that a citation of anything else takes less than a nanosecond. ``places`` and ``which`` hold all that may come;
    place 0 is ``refs[0]``, number ``first`` of all citations.
    """
    mask = np.uint32(is_likely.size - 1)
    for e in range(refs.size):
        cited = np.uint32(refs[e])
        if is_likely[cited & mask]:
            low, high = 0, targets.size
            while low < high:
                middle = (low + high) // 2
                if np.uint32(targets[middle]) < cited:
                    low = middle + 1
                else:
                    high = middle
            if low < targets.size and np.uint32(targets[low]) == cited and n_found < places.size:
                places[n_found] = first + e
                which[n_found] = low
                n_found += 1
    return n_found
