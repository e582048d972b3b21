"""Counter-based random numbers: pinned, the same in Python, NumPy and numba, and as uniform as they claim."""

import hashlib

import numpy as np
import pytest
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


@given(words, st.integers(1, 2**32))
def test_below_and_below_skewed_stay_in_range(bits, n):
    assert 0 <= below(as_array(bits), n)[0] < n
    assert 0 <= below_skewed(as_array(bits), n)[0] < n


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


@pytest.mark.parametrize("stream", ["a", "b", "c"])
def test_each_bit_is_set_half_the_time_and_neighbours_are_unrelated(stream):
    bits = draw(stream_key(7, stream), np.arange(100_000))
    shares = [((bits >> np.uint64(i)) & np.uint64(1)).mean() for i in range(64)]
    assert np.abs(np.array(shares) - 0.5).max() < 0.008  # 5 standard deviations
    high = (bits >> np.uint64(32)).astype(np.float64)
    assert abs(np.corrcoef(high[1:], high[:-1])[0, 1]) < 0.016


def test_streams_and_sub_streams_share_no_number():
    keys = [stream_key(seed, stream) for seed in (0, 1) for stream in ("a", "b")]
    keys += list(draw(keys[0], np.arange(4)))
    drawn = np.concatenate([draw(key, np.arange(10_000)) for key in keys])
    assert len(np.unique(drawn)) == len(drawn)


def test_below_is_even_over_its_range():
    counts = np.bincount(below(draw(stream_key(0, "even"), np.arange(60_000)), 6))
    assert np.abs(counts - 10_000).max() < 460  # 5 standard deviations
