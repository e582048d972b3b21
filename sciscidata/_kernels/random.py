"""Random numbers without a generator: each is a function of (seed, stream, counter) alone.

The generator of a library may change between versions, and its draws depend on their order. Here order, threads and
chunks change nothing, and integers give the same bits on every platform.

Functions marked ``register_jitable`` work on NumPy uint64 arrays and, in numba kernels, on scalars. Import this module
where it is used, not at the top of a module that ``import sciscidata`` loads. numba is slow to import.

Source of the mixer: the finaliser of SplitMix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195).
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from sciscidata._kernels.arrays import Int64Array, UInt64Array

WEYL = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)

# NumPy's stubs take np.int64(array) and np.uint64(array) for scalars; numba has no .astype() on a scalar. Hence the
# pyright exceptions below.


def stream_key(seed: int, stream: str) -> np.uint64:
    """Return the key of one named stream: streams of one seed, and seeds of one stream, are unrelated."""
    digest = hashlib.sha256(f"{seed}:{stream}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


@register_jitable
def mix64(z: UInt64Array) -> UInt64Array:
    """Scramble 64 bits reversibly: each input bit flips each output bit about half the time."""
    z = (z ^ (z >> _30)) * _MULTIPLIER_1
    z = (z ^ (z >> _27)) * _MULTIPLIER_2
    return z ^ (z >> _31)


@register_jitable
def draw(key: np.uint64 | UInt64Array, counter: int | npt.NDArray[np.integer[Any]]) -> UInt64Array:
    """Return number ``counter`` of the stream ``key``: 64 uniform bits, of the shape to which both broadcast.

    A draw is a key, too: ``draw(draw(key, work), 3)`` is the fourth number of a work. Counters are 0 to 2^63 - 1;
    outside a kernel an array, which NumPy multiplies modulo 2^64 without a warning.

    Example:
        >>> [hex(bits) for bits in draw(stream_key(0, "demo"), np.arange(2))]
        ['0x2202dbc25a720ed1', '0x64430d11b19f0ddb']
    """
    # After one round, all streams would follow one Weyl sequence from different places, and could meet. The second
    # round mixes the key in again, so that each stream is another function.
    return mix64(mix64(key + np.uint64(counter) * WEYL) ^ key)  # pyright: ignore[reportArgumentType]


@register_jitable
def below(bits: UInt64Array, n: int | Int64Array) -> Int64Array:
    """Turn 64 uniform bits into an int64 in 0..n-1 (1 <= n <= 2^32), with a bias up to n / 2^32."""
    return np.int64(((bits >> _32) * np.uint64(n)) >> _32)  # pyright: ignore[reportReturnType]


@register_jitable
def below_evenly(bits: UInt64Array, n: int | Int64Array) -> Int64Array:
    """Do as ``below``, with a bias of n / 2^64 at most: for an ``n`` of hundreds of millions."""
    low = ((bits & _LOW_HALF) * np.uint64(n)) >> _32
    return np.int64(((bits >> _32) * np.uint64(n) + low) >> _32)  # pyright: ignore[reportReturnType]


@register_jitable
def below_skewed(bits: UInt64Array, n: int | Int64Array) -> Int64Array:
    """Turn 64 uniform bits u into floor(n u^2), an int64 in 0..n-1: rank r is drawn in proportion to r^-1/2."""
    uniform = bits >> _32
    return np.int64((((uniform * uniform) >> _32) * np.uint64(n)) >> _32)  # pyright: ignore[reportReturnType]


def scatter(key: np.uint64, values: Int64Array, bits: int) -> Int64Array:
    """Permute 0..2^bits-1 (``bits`` 2 to 62) by a keyed bijection: values stay distinct, and lose their order."""
    mask = np.uint64((1 << bits) - 1)
    half = np.uint64((bits + 1) // 2)
    x = values.astype(np.uint64)
    # Adding, multiplying by an odd number, and xoring the upper half into the lower are all reversible mod 2^bits.
    for step in draw(key, np.arange(4)):
        x = ((x ^ step) * (step >> _31 | np.uint64(1))) & mask
        x ^= x >> half
    return x.astype(np.int64)
