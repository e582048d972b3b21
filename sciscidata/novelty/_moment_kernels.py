"""Compiled loops of the closed form of atypicality: mean and standard deviation of every venue pair's count.

Slots and cells are those of ``shapes.py``. ``shares`` (venues, strata) says which part of the slots of
each stratum a venue holds. Sums of floats depend on nothing but the order of strata, which is that of time.
"""

# pyright: basic
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import AnyArray, BoolArray, Float64Array, Int64Array
from sciscidata._kernels.compile import kernel

_ROUNDING = 1e-12  # of what a difference is taken from: no more than this is nothing
_CANCELLED = 1e-9  # of a variance: no more than this is left to a shortcut
TILE_BYTES = 2**18  # a part of the smallest second-level cache


class Strata(NamedTuple):
    """What the formulas need of the strata c, d, e of a year; k_c slots of a work are in c."""

    sizes: Float64Array  # (strata): slots
    two: Float64Array  # (strata, strata): sum over works of k_c k_d
    three: Float64Array  # (strata, strata, strata): sum over works of k_c k_d k_e
    expected: Float64Array  # (strata, strata): pairs of slots of one work, for the mean
    weights: Float64Array  # (strata, strata): V, for the variance
    within: Float64Array  # (strata, 2): ordered pairs inside c, and the squared norm of their centred matrix


class Sums(NamedTuple):
    """Sums over strata for some venues, (venues, strata) each, to add to."""

    means: Float64Array  # of shares and expected
    joint: Float64Array  # of spreads x (1 - x) and weights
    parts: Float64Array  # of the spread of the partners of a slot that holds another venue
    own_parts: Float64Array  # the same for a slot that holds the venue itself


class Shortcut(NamedTuple):
    """Tables from which mean and variance of a pair (a, b) follow, a by rows and b by partners."""

    of_partner: Float64Array  # (venues, strata, 4): factors of b in each stratum
    of_row: Float64Array  # (places, 4): factors of a in those that it has
    support: AnyArray  # (places): these strata, venue by venue
    begins: Int64Array  # (venues + 1): where the places of each venue begin
    shares: Float64Array  # (venues, strata)
    parts: Float64Array  # (venues, strata): see Sums
    sizes: Float64Array  # (strata): slots
    is_sure: BoolArray  # (venues): a pair cannot fill a stratum
    total: float  # sum of the weights


@kernel
def moments_of_cells(cells, tables, tile, cursor, mean_out, deviation_out):
    """Write mean and standard deviation of every cell's count, a != b; NaN where it cannot vary.

    The deviation is 0 where the shortcuts cancel it, and negative where it may be rounding only. The count surely
    varies if a linear part is positive whatever a and b have to do with each other. That of a stratum is a quadratic
    form in the two venues' u - mean u. It is positive definite unless the two fill the stratum, or one of them is not
    there. Then only the other one's ``parts`` count.

    Partners must ascend in each row. Venues are visited tile by tile, to stay in cache. ``cursor`` (rows) is the next
    cell of each row: the first. Formulas: docs/measures/atypicality_method.md.
    """
    cell_starts, partners, _, first = cells
    of_partner, of_row, support, begins, shares, parts, sizes, is_sure, total = tables
    n_venues, n_strata = parts.shape
    for tile_end in range(first + tile, n_venues + tile, tile):
        for a in range(first, min(tile_end, first + cursor.size)):
            row_parts, row_begin, row_end = parts[a], np.uint64(begins[a]), np.uint64(begins[a + 1])
            cell = np.uint64(cursor[a - first])
            end = np.uint64(cell_starts[a - first + 1])
            while cell < end and partners[cell] < tile_end:
                b = np.uint32(partners[cell])
                mean = 0.0
                positive = 0.0
                shared = 0.0
                double = 0.0
                partner = of_partner[b]
                for i in range(row_begin, row_end):
                    c = support[i]
                    mean += of_row[i, 0] * partner[c, 0]
                    positive += of_row[i, 1] * partner[c, 1]
                    shared += of_row[i, 2] * partner[c, 2]
                    double += of_row[i, 3] * partner[c, 3]
                for i in range(np.uint64(begins[b]), np.uint64(begins[b + np.uint32(1)])):
                    positive += of_row[i, 1] * row_parts[support[i]]
                variance = positive - 2 * shared
                if total > 0:
                    variance += double * double / total
                mean_out[cell] = mean
                if variance > _CANCELLED * positive:
                    varies = shared > 0 and is_sure[a]
                    c = 0
                    while not varies and c < n_strata:
                        x_a, x_b = shares[a, c], shares[b, c]
                        some = (x_a > 0 and parts[b, c] > 0) or (x_b > 0 and row_parts[c] > 0)
                        varies = some and (x_a + x_b) * sizes[c] < sizes[c] - 0.5
                        c += 1
                    deviation_out[cell] = math.sqrt(variance) if varies else -math.sqrt(variance)
                else:
                    deviation_out[cell] = 0.0 if positive > 0 else np.nan
                cell += np.uint64(1)
            cursor[a - first] = cell


@kernel
def settle_doubts(cells, strata, shares, parts, deviation):
    """Replace every deviation that is not positive by the exact one; NaN where a count cannot vary."""
    cell_starts, partners, _, first = cells
    sizes, two, three, _, weights, within = strata
    for at in range(cell_starts.size - 1):
        a = first + at
        for cell in range(cell_starts[at], cell_starts[at + 1]):
            if deviation[cell] > 0 or deviation[cell] != deviation[cell]:
                continue
            b = partners[cell]
            x_a, x_b, parts_a, parts_b = shares[a], shares[b], parts[a], parts[b]
            variance = 0.0
            for c in range(sizes.size):
                size, product = sizes[c], x_a[c] * x_b[c]
                spread_a, spread_b = x_a[c] * (1 - x_a[c]), x_b[c] * (1 - x_b[c])
                alone = spread_a * parts_b[c] + spread_b * parts_a[c]
                if alone > 0:
                    covariance = 0.0
                    inside = size / (size - 2) if size > 2 else 0.0  # the partner is drawn from what is left
                    for d in range(sizes.size if product > 0 else 0):
                        u_a = x_a[d] * (inside if d == c else 1.0)
                        for e in range(sizes.size if u_a > 0 else 0):
                            u_b = x_b[e] * (inside if e == c else 1.0)
                            covariance += u_a * u_b * (three[c, d, e] - two[c, d] * two[c, e] / size)
                    linear = alone - 2 * product * covariance * size / (size - 1)
                    if linear > _CANCELLED * alone:
                        variance += linear
                for d in range(sizes.size):
                    if d != c:
                        variance += weights[c, d] * (spread_a * x_b[d] * (1 - x_b[d]) + product * x_a[d] * x_b[d])
                if size > 3:
                    m_a, m_b = math.floor(x_a[c] * size + 0.5), math.floor(x_b[c] * size + 0.5)
                    # Whole numbers up to here: exactly 0 where two venues fill a stratum and one of them has one slot.
                    square = m_a * m_b * ((size - 1) * (size - 2 - m_a - m_b) + 2 * m_a * m_b)
                    variance += within[c, 1] * square / ((size - 1) * (size - 2) * size * (size - 3))
            deviation[cell] = math.sqrt(variance) if variance > 0 else np.nan


@kernel
def add_co_occurrence(offsets, strata, k, met, two, three):
    """Add sums over works of k_c k_d and k_c k_d k_e, c >= d >= e only, of their numbers of slots k per stratum.

    ``k`` (strata) is 0 before and after, ``met`` (strata) is scratch: the strata of one work.
    """
    for work in range(offsets.size - 1):
        n = 0
        for s in range(offsets[work], offsets[work + 1]):
            c = strata[s]
            if k[c] == 0:
                i = n
                while i > 0 and met[i - 1] > c:  # ascending
                    met[i] = met[i - 1]
                    i -= 1
                met[i] = c
                n += 1
            k[c] += 1
        for i in range(n):
            c = np.uint64(met[i])
            for j in range(i + 1):
                d = np.uint64(met[j])
                product = k[c] * k[d]
                two[c, d] += product
                for m in range(j + 1):
                    e = np.uint64(met[m])
                    three[c, d, e] += product * k[e]
        for i in range(n):
            k[met[i]] = 0


@kernel
def add_sums_over_strata(shares, strata, sums, scratch, support):
    """Add means = shares @ ``expected`` and joint = (x (1 - x)) @ ``weights``, in the order of the strata.

    A linear algebra library promises no order. Also write n / (n - 1) times the sum of (u - mean u)^2 over the slots of
    a stratum. This u is the expected number of partners of a venue, for a slot that holds another one (``parts``) or
    itself (``own_parts``). Inside the slot's own stratum the share m / n becomes m / (n - 2), or (m - 1) / (n - 2).

    ``scratch`` (2, strata) and ``support`` (strata) are of one venue.
    """
    sizes, two, three, expected, weights, _ = strata
    means, joint, parts, own_parts = sums
    n_venues, n_strata = shares.shape
    for v in range(n_venues):
        n = 0
        for c in range(n_strata):
            scratch[0, c] = scratch[1, c] = 0.0  # the quadratic and the linear sum
            if shares[v, c] > 0:
                support[n] = c
                n += 1
        for i in range(n):
            of = support[i]
            x = shares[v, of]
            spread = x * (1 - x)
            for c in range(n_strata):
                means[v, c] += x * expected[of, c]
                joint[v, c] += spread * weights[of, c]
                scratch[1, c] += x * two[of, c]
            for j in range(i + 1):
                factor = x * shares[v, support[j]] * (1 if i == j else 2)
                for c in range(n_strata):
                    scratch[0, c] += factor * three[of, support[j], c]
        for c in range(n_strata):
            size, total, linear, x = sizes[c], scratch[0, c], scratch[1, c], shares[v, c]
            if size < 2:
                continue
            plain = total - linear * linear / size
            covariance = 0.0
            if x > 0 and size > 2:
                for i in range(n):
                    covariance += shares[v, support[i]] * three[support[i], c, c]
                covariance -= linear * two[c, c] / size
            for own in range(2):
                spread = plain
                if x > 0 and size > 2:
                    shift = (x * size - own) / (size - 2) - x
                    variance = three[c, c, c] - two[c, c] * two[c, c] / size
                    spread += 2 * shift * covariance + shift * shift * variance
                if spread > _ROUNDING * total:
                    if own:
                        own_parts[v, c] = spread * size / (size - 1)
                    else:
                        parts[v, c] = spread * size / (size - 1)
