"""The compiled loop that chooses the first fields of every work."""

# pyright: basic
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import AnyArray, Float64Array
from sciscidata._kernels.compile import kernel


class Links(NamedTuple):
    """Which works have which fields, (links) each."""

    works: AnyArray  # id
    levels: AnyArray  # of the field
    scores: Float64Array  # -inf where unknown
    fields: AnyArray  # number, by name


@kernel
def first_fields(links, order, most):
    """Choose the first ``most`` fields of each work by level, then highest score, then number; a field counts once.

    ``order`` sorts the links by work. Returns the fields of all works in one row, where each work ends, and one link of
    each work.
    """
    works, fields = links.works, links.fields
    chosen = np.empty(order.size, np.int64)  # links: the best of each work so far, in order
    ends, one_of_each = np.empty(order.size, np.int64), np.empty(order.size, np.int64)
    n = n_works = first = 0
    for at in range(order.size):
        link = order[at]
        if at == 0 or works[link] != works[order[at - 1]]:
            one_of_each[n_works] = link
            n_works, first = n_works + 1, n
        same = first
        while same < n and fields[chosen[same]] != fields[link]:
            same += 1
        if same < n and _is_before(link, chosen[same], links):
            n -= 1  # the same field with a worse score makes room
            for i in range(same, n):
                chosen[i] = chosen[i + 1]
            same = n
        if same == n and n - first == most and _is_before(link, chosen[n - 1], links):
            same = n = n - 1
        if same == n and n - first < most:
            place = n
            while place > first and _is_before(link, chosen[place - 1], links):
                chosen[place] = chosen[place - 1]
                place -= 1
            chosen[place] = link
            n += 1
        ends[n_works - 1] = n
    return fields[chosen[:n]], ends[:n_works], one_of_each[:n_works]


@kernel
def _is_before(a, b, links):
    _, levels, scores, fields = links
    if levels[a] != levels[b]:
        return levels[a] < levels[b]
    if scores[a] != scores[b]:
        return scores[a] > scores[b]
    return fields[a] < fields[b]
