"""The compiled loops of the graph: what the frames around them cannot show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.graph_kernels import EMPTY, add_content_hash, renumber_pairs

MASK = 2**64 - 1


def splitmix64(x: int) -> int:
    """The published generator's first number for seed ``x``, in Python's own integers."""
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def lanes_of(*batches: list[tuple[int, int]]) -> list[int]:
    lanes = np.zeros(2, np.uint64)
    for pairs in batches:
        first, second = np.array(pairs, np.int64).reshape(-1, 2).T
        add_content_hash(np.ascontiguousarray(first), np.ascontiguousarray(second), lanes)
    return lanes.tolist()


ids = st.integers(-(2**63), 2**63 - 1)
edge_lists = st.lists(st.tuples(ids, ids), max_size=20)


def test_the_hash_rests_on_the_published_numbers_of_splitmix64():
    assert splitmix64(0) == 0xE220A8397B1DCDAF


@given(edge_lists, st.integers(0, 20))
def test_both_lanes_of_the_content_hash_are_sums_over_the_edges(edges, cut):
    hashes = [splitmix64((citing ^ splitmix64(cited & MASK)) & MASK) for citing, cited in edges]
    expected = [sum(hashes) & MASK, sum(map(splitmix64, hashes)) & MASK]
    assert lanes_of(edges) == lanes_of(edges[cut:], edges[:cut]) == expected


@pytest.mark.parametrize("room", [2, 3, 4, 5])
def test_renumbering_stops_before_new_ids_overflow_and_goes_on_where_it_stopped(room):
    edges = np.array([(10, 20), (30, 40), (30, 50), (60, 60), (10, 50)], np.int64)
    keys, values = np.full(32, EMPTY, np.int64), np.empty(32, np.int32)
    memory = np.full(16, -1, np.int64)  # what lies behind ``new_ids`` is not its to write
    pairs = np.full((len(edges), 2), -1, np.int32)
    start = n_new = 0
    found: list[tuple[int, ...]] = []
    while start < len(edges):
        new_ids = memory[:room]
        start, written, n_new = renumber_pairs(
            keys, values, new_ids, n_new, 0, edges[:, 0].copy(), edges[:, 1].copy(), start, pairs
        )
        assert n_new <= room
        assert (memory[room:] == -1).all()
        found += map(tuple, pairs[:written].tolist())
        room += 2
    assert memory[:n_new].tolist() == [10, 20, 30, 40, 50]
    assert found == [(0, 1), (2, 3), (2, 4), (0, 4)]
