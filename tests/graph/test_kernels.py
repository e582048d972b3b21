"""The compiled loops of the graph: what the frames around them cannot show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata._kernels.arrays import read_only
from sciscidata.graph._kernels import (
    add_content_hash,
    look_up,
    partition,
    scatter,
    scatter_citers,
)
from sciscidata.graph.build import _NewIds

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


def add(table: np.ndarray, known: np.ndarray, n: int) -> int:
    return look_up(table, known, known[known.size - n :], True, np.empty(0, np.int32), np.empty(256, np.int64))


@given(st.lists(ids, unique=True, max_size=600), st.lists(ids, max_size=20), st.integers(0, 600))
def test_every_id_is_found_at_its_position_and_no_other(known, strange, cut):
    known_ids = read_only(np.array(known, np.int64))
    cut = min(cut, len(known))
    table = np.full(2048, -1, np.int32)
    assert add(table, known_ids[:cut], cut) == cut
    assert add(table, known_ids, len(known) - cut) == len(known) - cut
    wanted = read_only(np.array(known[::-1] + strange, np.int64))
    found = np.empty(wanted.size, np.int32)
    n_missing = look_up(table, known_ids, wanted, False, found, np.empty(256, np.int64))
    positions = {work: i for i, work in enumerate(known)}
    assert found.tolist() == [positions.get(work, -1) for work in wanted.tolist()]
    assert n_missing == found.tolist().count(-1)


def test_a_repeated_id_is_reported_at_its_second_place():
    for n_between in (0, 1, 300):  # in the same round of look-ups, and in a later one
        repeated = read_only(np.array([5, *range(10, 10 + n_between), 5], np.int64))
        assert add(np.full(1024, -1, np.int32), repeated, repeated.size) == n_between + 1


@pytest.mark.parametrize("n_more", [0, 3_000])  # so many that the table grows
def test_ids_of_other_works_get_indices_of_their_own_but_for_those_that_only_cite_themselves(n_more):
    edges = np.array([(10, 20), (30, 40), (7, 30), (30, 50), (60, 60), (10, 50)], np.int64)
    more = np.arange(1_000, 1_000 + 2 * n_more).reshape(-1, 2)
    numbers, seen = _NewIds(100), dict[int, int]()
    for batch in (edges, more, edges[::-1]):
        citing_ids, cited_ids = batch.T.copy()
        citing = np.where(citing_ids == 7, 0, -1).astype(np.int32)  # one id is known
        cited = np.full(len(batch), -1, np.int32)
        numbers.number(citing_ids, cited_ids, citing, cited)
        for work, index in zip([*citing_ids, *cited_ids], [*citing, *cited], strict=True):
            assert seen.setdefault(int(work), int(index)) == index
    assert (seen.pop(7), seen.pop(60)) == (0, -1)
    assert sorted(seen.values()) == list(range(100, 105 + 2 * n_more))
    assert {int(numbers.ids[index - 100]) for index in seen.values()} == set(seen)


def test_edges_go_to_the_bucket_of_their_citing_index_until_one_is_full():
    citing = np.array([0, 3, 4, 9, 5, 5, 4, 8], np.int32)
    cited = np.array([1, 1, 1, 1, 5, 2, 2, 2], np.int32)
    buckets, filled = np.full((4, 2, 2), -1, np.int32), np.zeros(4, np.int64)
    # Citing and cited of each bucket. Four indices to one; those from 8 on have no record; (5, 5) cites itself.
    assert partition(citing, cited, 0, 8, 2, buckets, filled) == (6, 1)
    assert filled.tolist() == [2, 2, 0, 1]
    filled[1] = 0
    assert partition(citing, cited, 6, 8, 2, buckets, filled) == (8, -1)
    assert filled.tolist() == [2, 1, 0, 2]
    assert buckets.tolist() == [
        [[0, 3], [1, 1]], [[4, 5], [2, 2]], [[-1, -1], [-1, -1]], [[9, 8], [1, 2]]
    ]  # fmt: skip


def test_rows_may_lie_beyond_the_reach_of_32_bits(tmp_path):
    """Three references at the far end of a file of 8.6 GB that takes no room on the disk."""
    start = 2**31 + 5
    with (tmp_path / "refs").open("wb") as file:
        file.truncate(4 * (start + 3))
    refs = np.memmap(tmp_path / "refs", np.int32, mode="r+")
    refs[start:] = [0, 0, 1]
    ref_offsets = np.array([start, start, start + 1, start + 3], np.int64)
    citers = np.empty(3, np.int32)
    scatter_citers(ref_offsets, refs, 0, 3, 0, np.array([0, 2, 3], np.int64), citers)
    assert citers.tolist() == [1, 2, 2]
    cursor = np.array([start], np.int64)
    scatter(np.array([7, 6, 7], np.int32), np.array([9, 1, 8], np.int32), 7, cursor, refs)
    assert refs[start:].tolist() == [9, 8, 1]
    assert cursor.tolist() == [start + 2]
