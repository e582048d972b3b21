"""Compiled loops of the closed form of atypicality: mean and standard deviation of every venue pair's count.

Cells are those of pair_counting_kernels.py, the sums that go in those of novelty_sum_kernels.py.
"""

# pyright: basic
from __future__ import annotations

import math

import numpy as np

from sciscidata.compiled import kernel

_ROUNDING = 1e-12  # of what a difference is taken from: no more than this is nothing
_CANCELLED = 1e-9  # of a variance: no more than this is left to a shortcut
_TILE_BYTES = 2**18  # a part of the smallest second-level cache


@kernel
def _both_hold(size, m):
    """Return the chance that two slots of a stratum both hold a venue that ``m`` of its ``size`` slots hold."""
    return m * (m - 1) / (size * (size - 1)) if size > 1 else 0.0


@kernel
def _centred_square(size, m):
    """Return the squared norm of the centred matrix [both hold the venue], divided by n (n - 3)."""
    if size < 4 or size - m < 2:  # the factor of m - 1 is exact as it is
        return 0.0
    square = m * (m - 1) * (1 - 2 * (m - 1) / (size - 2) + m * (m - 1) / ((size - 1) * (size - 2)))
    return square / (size * (size - 3))


@kernel
def _same_venue(sizes, x, means, joint, weights, own_parts, within):
    """Return mean and variance of how often two slots of one work both hold the venue with shares ``x``."""
    mean = 0.0
    positive = 0.0
    for c in range(sizes.size):
        if x[c] > 0:
            size = sizes[c]
            variance = x[c] * (1 - x[c])
            m = math.floor(x[c] * size + 0.5)
            inside = _both_hold(size, m)
            # means holds W' with n / (n - 1) on the diagonal, right for a != b: replace that part.
            mean += 0.5 * (x[c] * means[c] + within[c, 0] * (inside - x[c] * x[c] * size / max(size - 1, 1)))
            positive += own_parts[c] * variance
            other_strata = joint[c] - weights[c, c] * variance
            if other_strata > _ROUNDING * joint[c]:
                positive += 0.5 * variance * other_strata
            positive += 0.5 * within[c, 1] * _centred_square(size, m)
    return mean, positive


@kernel
def _surely_varies(sizes, x_a, x_b, parts_b):
    """Say whether a linear part is positive whatever a and b have to do with each other.

    That of a stratum is a quadratic form in the two venues' u - mean u; it is positive definite unless the two fill
    the stratum, or one of them is not there, where only the other one's ``parts`` count.
    """
    for c in range(sizes.size):
        if x_a[c] > 0 and parts_b[c] > 0 and (x_a[c] + x_b[c]) * sizes[c] < sizes[c] - 0.5:
            return True
    return False


@kernel
def _exact_variance(sizes, x_a, x_b, two, three, weights, parts_a, parts_b, within):
    """Return the variance of how often two venues meet, a != b, by no shortcut; 0 where the count cannot vary."""
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
    return variance


@kernel
def moments_of_cells(
    cell_starts, partners, shares, sizes, means, joint, weights, parts, own_parts, within, mean_out, deviation_out
):
    """Write mean and standard deviation of every cell's count; NaN where it cannot vary. Formulas: docs/novelty.md.

    Where the shortcuts leave nothing of it the deviation is 0, and negative where it might be something of nothing:
    settle_doubts has to follow.

    means = shares @ W', joint = (x (1 - x)) @ V with V = ``weights``; ``parts`` and ``own_parts`` are linear_parts
    for a != b and a = b; ``within`` holds, per stratum, W_cc and the squared norm of the centred matrix.
    Partners must ascend in each row: venues b are visited tile by tile, so that what is read of them stays in cache.
    """
    n_venues, n_strata = shares.shape
    margin = np.zeros(n_strata)
    total = 0.0
    for c in range(n_strata):
        for d in range(n_strata):
            margin[c] += weights[c, d]
        total += margin[c]
    of_partner = np.empty((n_venues, n_strata, 4))
    of_row = np.empty((n_venues, n_strata, 4))
    support = np.empty((n_venues, n_strata), np.uint32)
    lengths = np.zeros(n_venues, np.uint64)
    n_holders = (shares > 0).sum(axis=0)
    among_others = np.empty(n_venues, np.bool_)  # wherever it is held, two more are: no pair fills such a stratum
    for v in range(n_venues):
        n = 0
        for c in range(n_strata):
            x = shares[v, c]
            root = x * math.sqrt(parts[v, c])
            across = x * math.sqrt(margin[c])
            of_partner[v, c] = means[v, c], parts[v, c] + joint[v, c], root, across
            if x > 0:
                support[v, n] = c
                of_row[v, n] = x, x * (1 - x), root, across
                n += 1
        lengths[v] = n
        among_others[v] = (n_holders[support[v, :n]] > 2).all()
    tile = max(1, _TILE_BYTES // (32 * n_strata))
    cursor = cell_starts[:-1].copy()
    for tile_end in range(tile, n_venues + tile, tile):
        for a in range(min(tile_end, n_venues)):
            row, row_support, row_parts = of_row[a], support[a], parts[a]
            cell = np.uint64(cursor[a])
            end = np.uint64(cell_starts[a + 1])
            while cell < end and partners[cell] < tile_end:
                b = np.uint32(partners[cell])
                if a == b:
                    mean, variance = _same_venue(sizes, shares[a], means[a], joint[a], weights, own_parts[a], within)
                    mean_out[cell] = mean
                    deviation_out[cell] = math.sqrt(variance) if variance > 0 else np.nan
                    cell += np.uint64(1)
                    continue
                mean = 0.0
                positive = 0.0
                shared = 0.0
                double = 0.0
                partner, partner_row, partner_support = of_partner[b], of_row[b], support[b]
                for i in range(lengths[a]):
                    c = row_support[i]
                    mean += row[i, 0] * partner[c, 0]
                    positive += row[i, 1] * partner[c, 1]
                    shared += row[i, 2] * partner[c, 2]
                    double += row[i, 3] * partner[c, 3]
                for i in range(lengths[b]):
                    positive += partner_row[i, 1] * row_parts[partner_support[i]]
                variance = positive - 2 * shared
                if total > 0:
                    variance += double * double / total
                mean_out[cell] = mean
                if variance > _CANCELLED * positive:
                    sure = shared > 0 and among_others[a]
                    deviation_out[cell] = math.sqrt(variance) if sure else -math.sqrt(variance)
                else:
                    deviation_out[cell] = 0.0 if positive > 0 else np.nan
                cell += np.uint64(1)
            cursor[a] = cell


@kernel
def settle_doubts(cell_starts, partners, shares, sizes, two, three, weights, parts, within, deviation):
    """Replace every deviation that is not positive: by its opposite if the count surely varies, else by the exact one.

    Apart from moments_of_cells, whose loop is slower with this in it.
    """
    for a in range(shares.shape[0]):
        for cell in range(cell_starts[a], cell_starts[a + 1]):
            if deviation[cell] <= 0:
                b = partners[cell]
                if deviation[cell] < 0 and (
                    _surely_varies(sizes, shares[a], shares[b], parts[b])
                    or _surely_varies(sizes, shares[b], shares[a], parts[a])
                ):
                    deviation[cell] = -deviation[cell]
                else:
                    given = (sizes, shares[a], shares[b], two, three, weights, parts[a], parts[b], within)
                    variance = _exact_variance(*given)
                    deviation[cell] = math.sqrt(variance) if variance > 0 else np.nan
