"""Compiled loops of the closed form of atypicality: the sums over works and slots that its moments are made of.

``offsets`` and strata are those of pair_counting_kernels.py. ``shares`` (venues, strata) says which part of the slots
of each stratum a venue holds. No sum of floats depends on anything but the order of strata, which is that of time.
"""

# pyright: basic
from __future__ import annotations

import numpy as np

from sciscidata.compiled import kernel

_ROUNDING = 1e-12  # of what a difference is taken from: no more than this is nothing


@kernel
def co_occurrence(offsets, strata, n_strata):
    """Return sums over works of k_c k_d and of k_c k_d k_e, where k_c is a work's number of slots in stratum c."""
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
        row = np.sort(met[:n])
        for i in range(n):
            c = np.uint64(row[i])
            for j in range(i + 1):
                d = np.uint64(row[j])
                product = k[c] * k[d]
                two[c, d] += product
                for m in range(j + 1):
                    e = np.uint64(row[m])
                    three[c, d, e] += product * k[e]
        for i in range(n):
            k[row[i]] = 0
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
    """Return S (venues, strata): n / (n - 1) times the sum over the slots of a stratum of (u - mean u)^2.

    u is the expected number of partners of venue v for a slot, given that it holds the other venue of the pair;
    ``own`` says that this other venue is v itself. Inside the slot's own stratum the partner is drawn from what
    is left, which changes the share m / n into m / (n - 2), or (m - 1) / (n - 2).
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
        quadratic[:] = 0
        linear[:] = 0
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
