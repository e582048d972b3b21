"""The compiled loop that fills the reference lists of the synthetic world, for ``graph.py``.

Works are numbers in time order, and a work cites only lower numbers. All arithmetic is on integers, and every choice
is a function of (key, work, number of the choice).
"""

# pyright: basic
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import Int32Array, Int64Array
from sciscidata._kernels.compile import kernel
from sciscidata._kernels.random import below, below_skewed, draw

#: Hidden kinds, in the order of the vocabulary. They say how later works treat a work's references.
DISRUPTIVE, DEVELOPING, EVEN = 0, 1, 2

_OTHER_FIELD_PER_CENT = 12  # picks outside the citing work's field
_PREFERENTIAL_PER_CENT = 20  # picks from the references of another work, which favours much-cited works
_FOLLOWS_KIND_PER_CENT = 90  # citations that treat a work as its kind suggests; the others are random
_COPY_TRIES = 3  # candidates for the one reference that is copied along with a developing work
_TRIES_PER_REFERENCE = 4  # fresh picks per reference before a list stays short, as in the first years


class Layout(NamedTuple):
    """The properties that do not depend on citations: one entry per work in each array, sorted by (year, field)."""

    year: Int32Array  # years since the first year
    field: Int32Array  # number of the field
    kind: Int32Array  # number of the hidden kind
    n_wanted: Int64Array  # length of the reference list, if there are enough works to cite


class Picks(NamedTuple):
    """Where a fresh pick may fall. A cell is the works of one year and field."""

    cell_starts: Int64Array  # (years * fields + 1): first work of each cell
    n_fields: int
    age_ends: Int64Array  # (ages): sums of how often a reference is up to this age, in years
    field_ends: Int64Array  # (fields): sums of how often a pick has a field up to this one


@kernel
def fill_lists(key, layout, picks):
    """Fill the reference lists in time order, by fresh picks and by copied references.

    Of a work cited "with its references" one is copied; those of a work cited "alone" are barred from the list.
    """
    year, kind, n_wanted = layout.year, layout.kind, layout.n_wanted
    n = len(year)
    offsets = np.zeros(n + 1, np.int64)
    references = np.empty(n_wanted.sum(), np.int32)
    with_references = np.zeros(len(references), np.bool_)  # how each reference is cited
    listed_by = np.full(n, -1, np.int32)  # the last work that lists / bars this one
    barred_by = np.full(n, -1, np.int32)
    balance = np.zeros(n, np.int32)  # citations alone minus citations along with a reference, so far
    filled = 0
    for work in range(n):
        own_key = draw(key, work)
        counter = 0
        followed = filled
        goal = filled + n_wanted[work]
        tries = _TRIES_PER_REFERENCE * n_wanted[work]
        while filled < goal and (tries > 0 or followed < filled):
            donor, n_candidates = -1, 1
            if followed < filled:
                donor, n_candidates = references[followed], _COPY_TRIES
                followed += 1
                if not with_references[followed - 1] or offsets[donor] == offsets[donor + 1]:
                    continue
            else:
                tries -= 1
            for _ in range(n_candidates):
                if donor >= 0:
                    target = _random_reference(draw(own_key, counter), donor, offsets, references)
                else:
                    target = _fresh_pick(draw(own_key, counter), work, layout, picks, offsets, references)
                coin = below(draw(own_key, counter + 1), 200)
                counter += 2
                if target < 0 or listed_by[target] == work or barred_by[target] == work:
                    continue
                alone = _cited_alone(kind[target], balance[target], coin)
                if alone:
                    if _lists_a_reference(work, target, offsets, references, listed_by):
                        continue
                    for at in range(offsets[target], offsets[target + 1]):
                        barred_by[references[at]] = work
                references[filled] = target
                with_references[filled] = not alone
                listed_by[target] = work
                filled += 1
                break
        for at in range(offsets[work], filled):
            target = references[at]
            if kind[target] == EVEN and year[target] < year[work]:
                both = _lists_a_reference(work, target, offsets, references, listed_by)
                balance[target] += -1 if both else 1
        offsets[work + 1] = filled
    return offsets, references[:filled].copy()


@kernel
def _fresh_pick(bits, work, layout, picks, offsets, references):
    """Pick a work by age, field and rank, or a reference of that work; -1 if there is none."""
    cell_starts, n_fields, age_ends, field_ends = picks
    target_year = layout.year[work] - np.searchsorted(age_ends, below(draw(bits, 0), age_ends[-1]), side="right")
    if target_year < 0:
        return -1
    target_field = layout.field[work]
    if below(draw(bits, 1), 100) < _OTHER_FIELD_PER_CENT:
        target_field = np.searchsorted(field_ends, below(draw(bits, 2), field_ends[-1]), side="right")
    cell = target_year * n_fields + target_field
    start, end = cell_starts[cell], min(cell_starts[cell + 1], work)
    if start >= end:
        return -1
    # The square of a uniform number favours low ranks: citations fall off as rank^-1/2 in each cell.
    target = start + below_skewed(draw(bits, 3), end - start)
    if below(draw(bits, 4), 100) < _PREFERENTIAL_PER_CENT and offsets[target] < offsets[target + 1]:
        return _random_reference(draw(bits, 5), target, offsets, references)
    return target


@kernel
def _random_reference(bits, work, offsets, references):
    """Pick the later of two references, because recent references are copied more often."""
    start, end = offsets[work], offsets[work + 1]
    first = references[start + below(draw(bits, 0), end - start)]
    second = references[start + below(draw(bits, 1), end - start)]
    return np.int64(max(first, second))


@kernel
def _cited_alone(kind, balance, coin):
    """Whether a work is cited without its references; ``coin`` is 0..199."""
    if coin >= 2 * _FOLLOWS_KIND_PER_CENT or (kind == EVEN and balance == 0):
        return coin % 2 == 0
    if kind == EVEN:
        return balance < 0
    return kind == DISRUPTIVE


@kernel
def _lists_a_reference(work, target, offsets, references, listed_by):
    for at in range(offsets[target], offsets[target + 1]):  # noqa: SIM110 - numba compiles no generator in any()
        if listed_by[references[at]] == work:
            return True
    return False
