"""Compiled loops of the closed form of atypicality: mean and standard deviation of every venue pair's count.

``offsets`` and strata are those of ``_pair_kernels.py``. ``shares`` (venues, strata) says which part of the slots of
each stratum a venue holds. Sums of floats depend on nothing but the order of strata, which is that of time.
"""

# pyright: basic
from __future__ import annotations

import math

import numpy as np

from sciscidata._kernels.compile import helper, kernel
from sciscidata._kernels.sort import sort_range

_ROUNDING = 1e-12  # of what a difference is taken from: no more than this is nothing
_CANCELLED = 1e-9  # of a variance: no more than this is left to a shortcut
_TILE_BYTES = 2**18  # a part of the smallest second-level cache


@helper
def _both_hold(size, m):
    """Return the chance that two slots of a stratum both hold a venue that ``m`` of its ``size`` slots hold."""
    return m * (m - 1) / (size * (size - 1)) if size > 1 else 0.0


@helper
def _centred_square(size, m):
    """Return the squared norm of the centred matrix [both hold the venue], divided by n (n - 3)."""
    if size < 4 or size - m < 2:  # the factor of m - 1 is exact as it is
        return 0.0
    square = m * (m - 1) * (1 - 2 * (m - 1) / (size - 2) + m * (m - 1) / ((size - 1) * (size - 2)))
    return square / (size * (size - 3))


@helper
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


@helper
def _surely_varies(sizes, x_a, x_b, parts_b):
    """Say whether a linear part is positive whatever a and b have to do with each other.

    That of a stratum is a quadratic form in the two venues' u - mean u. It is positive definite unless the two fill the
    stratum, or one of them is not there. Then only the other one's ``parts`` count.
    """
    for c in range(sizes.size):
        if x_a[c] > 0 and parts_b[c] > 0 and (x_a[c] + x_b[c]) * sizes[c] < sizes[c] - 0.5:
            return True
    return False


@helper
def _exact_variance(sizes, x_a, x_b, two, three, weights, parts_a, parts_b, within):
    """Return the variance of how often two venues meet, a != b, by no shortcut.

    It is 0 where the count cannot vary.
    """
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
    """Write mean and standard deviation of every cell's count; NaN where it cannot vary.

    The deviation is 0 where the shortcuts cancel it, and negative where it may be rounding only. Call settle_doubts
    next. Formulas: docs/measures/atypicality.md.

    means = shares @ W', joint = (x (1 - x)) @ V with V = ``weights``. ``parts`` and ``own_parts`` are linear_parts for
    a != b and a = b. ``within`` holds, per stratum, W_cc and the squared norm of the centred matrix. Partners must
    ascend in each row. Venues b are visited tile by tile, so what is read of them stays in cache.
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
    n_holders = np.zeros(n_strata, np.int64)
    among_others = np.empty(n_venues, np.bool_)  # wherever it is held, two more are: no pair fills such a stratum
    for v in range(n_venues):
        n = 0
        for c in range(n_strata):
            x = shares[v, c]
            root = x * math.sqrt(parts[v, c])
            across = x * math.sqrt(margin[c])
            of_partner[v, c, 0], of_partner[v, c, 1] = means[v, c], parts[v, c] + joint[v, c]
            of_partner[v, c, 2], of_partner[v, c, 3] = root, across
            if x > 0:
                n_holders[c] += 1
                support[v, n] = c
                of_row[v, n, 0], of_row[v, n, 1] = x, x * (1 - x)
                of_row[v, n, 2], of_row[v, n, 3] = root, across
                n += 1
        lengths[v] = n
    for v in range(n_venues):
        among_others[v] = True
        for i in range(lengths[v]):
            among_others[v] &= n_holders[support[v, i]] > 2
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
    """Replace every deviation that is not positive: by its opposite if the count surely varies, else the exact one."""
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


@kernel
def co_occurrence(offsets, strata, n_strata):
    """Return sums over works of k_c k_d and of k_c k_d k_e.

    k_c is a work's number of slots in stratum c.
    """
    two = np.zeros((n_strata, n_strata))
    three = np.zeros((n_strata, n_strata, n_strata))
    k = np.zeros(n_strata)
    met = np.empty(n_strata, np.int64)
    for work in range(offsets.size - 1):
        n = 0
        for s in range(offsets[work], offsets[work + 1]):
            if k[strata[s]] == 0:
                met[n] = strata[s]
                n += 1
            k[strata[s]] += 1
        sort_range(met, np.int64(0), np.int64(n))
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
    for c in range(n_strata):
        for d in range(c + 1):
            two[d, c] = two[c, d]
            for e in range(d + 1):
                value = three[c, d, e]
                three[c, e, d] = value
                three[d, c, e] = value
                three[d, e, c] = value
                three[e, c, d] = value
                three[e, d, c] = value
    return two, three


@kernel
def venue_shares(starts, order, slot_venues, n_venues):
    """Return each venue's share of the slots of each stratum, (venues, strata)."""
    n_strata = starts.size - 1
    shares = np.zeros((n_venues, n_strata))
    for c in range(n_strata):
        for i in range(starts[c], starts[c + 1]):
            shares[slot_venues[order[i]], c] += 1
        for v in range(n_venues):
            shares[v, c] /= starts[c + 1] - starts[c]
    return shares


@kernel
def times_matrix(values, matrix):
    """Return values @ matrix, always summed in the same order, which a linear algebra library does not promise."""
    result = np.zeros(values.shape)
    for v in range(values.shape[0]):
        for c in range(matrix.shape[0]):
            if values[v, c] != 0:
                for d in range(matrix.shape[1]):
                    result[v, d] += values[v, c] * matrix[c, d]
    return result


@kernel
def linear_parts(shares, sizes, two, three, own):
    """Return S (venues, strata): n / (n - 1) times the sum of (u - mean u)^2 over the slots of a stratum.

    u is the expected number of partners of venue v for a slot, given that it holds the other venue of the pair. ``own``
    says that this other venue is v itself. Inside the slot's own stratum the partner is drawn from what is left. This
    changes the share m / n into m / (n - 2), or (m - 1) / (n - 2).
    """
    n_venues, n_strata = shares.shape
    result = np.zeros((n_venues, n_strata))
    quadratic = np.empty(n_strata)
    linear = np.empty(n_strata)
    support = np.empty(n_strata, np.int64)
    for v in range(n_venues):
        n = 0
        for c in range(n_strata):
            if shares[v, c] > 0:
                support[n] = c
                n += 1
        for c in range(n_strata):
            quadratic[c] = linear[c] = 0
        for i in range(n):
            x = shares[v, support[i]]
            for c in range(n_strata):
                linear[c] += x * two[support[i], c]
            for j in range(i + 1):
                factor = x * shares[v, support[j]] * (1 if i == j else 2)
                row = three[support[i], support[j]]
                for c in range(n_strata):
                    quadratic[c] += factor * row[c]
        for c in range(n_strata):
            size = sizes[c]
            if size < 2:
                continue
            spread = quadratic[c] - linear[c] * linear[c] / size
            total = quadratic[c]
            x = shares[v, c]
            if x > 0 and size > 2:
                shift = (x * size - own) / (size - 2) - x
                covariance = 0.0
                for i in range(n):
                    covariance += shares[v, support[i]] * three[support[i], c, c]
                covariance -= linear[c] * two[c, c] / size
                variance = three[c, c, c] - two[c, c] * two[c, c] / size
                spread += 2 * shift * covariance + shift * shift * variance
            if spread > _ROUNDING * total:
                result[v, c] = spread * size / (size - 1)
    return result
