"""Counter-based random numbers: pinned, the same in Python, NumPy and numba, and as uniform as they claim."""

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from sciscidata._kernels.random import below, below_skewed, draw, scatter, stream_key

MASK = 2**64 - 1
words = st.integers(0, MASK)
counters = st.integers(0, 2**63 - 1)


def oracle_mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def oracle_draw(key, counter):
    return oracle_mix(oracle_mix((key + counter * 0x9E3779B97F4A7C15) & MASK) ^ key)


@njit
def compiled(key, counter, n):
    bits = draw(key, counter)
    return bits, below(bits, n), below_skewed(bits, n)


def as_array(*values):
    return np.array(values, dtype=np.uint64)


PINNED = ["0x83ec686c1600460a", "0x5c52bd4054e958c9", "0x57f7af6c0a8e597b", "0x371a0ae3dfcc7858"]


def test_the_numbers_are_pinned():
    assert stream_key(0, "pinned") == int.from_bytes(hashlib.sha256(b"0:pinned").digest()[:8], "little")
    assert [hex(bits) for bits in draw(np.uint64(1), np.array([0, 1, 2, 2**62]))] == PINNED


@given(words, counters, st.integers(1, 2**32))
def test_python_numpy_and_numba_agree(key, counter, n):
    bits = oracle_draw(key, counter)
    expected = (bits, ((bits >> 32) * n) >> 32, (((bits >> 32) ** 2 >> 32) * n) >> 32)
    vector = draw(as_array(key), np.array([counter]))
    assert (vector[0], below(vector, n)[0], below_skewed(vector, n)[0]) == expected
    assert compiled(np.uint64(key), counter, n) == expected


@given(words, st.integers(2, 12))
def test_scatter_is_a_permutation_for_every_key(key, bits):
    values = np.arange(2**bits)
    assert np.array_equal(np.sort(scatter(np.uint64(key), values, bits)), values)


def test_scatter_keeps_distinct_values_distinct_in_a_large_domain():
    scattered = scatter(stream_key(1, "scatter"), np.arange(200_000), 33)
    assert len(np.unique(scattered)) == 200_000
    assert scattered.min() >= 0
    assert scattered.max() < 2**33
    assert abs(np.corrcoef(scattered, np.arange(200_000))[0, 1]) < 0.01
