"""Novelty by distances of references: against plain loops over the titles of real works."""

from __future__ import annotations

import math
import zlib
from itertools import combinations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sciscidata as ssd
from sciscidata.errors import ConfigError, SchemaMismatchError, WorkIdError
from sciscidata.indicators import compute_shibayama_novelty
from sciscidata.novelty import reference_distances

CITATIONS = {"citing_id": pl.Int64, "cited_id": pl.Int64}


def frames(vectors, edges) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    works = pl.LazyFrame(
        {"work_id": list(vectors), "vector": list(vectors.values())},
        schema={"work_id": pl.Int64, "vector": pl.List(pl.Float64)},
    )
    return works, pl.LazyFrame(edges, schema=CITATIONS, orient="row")


def percentile(values: list[float], q: float) -> float:
    """As NumPy interpolates: linearly between the two nearest."""
    values, place = sorted(values), q / 100 * (len(values) - 1)
    low, high = values[math.floor(place)], values[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def distances(vectors: dict[int, list[float] | None], edges) -> dict[int, list[float]]:
    """The distance of every two references of each work that have a vector with a direction."""

    def distance(a: list[float], b: list[float]) -> float:
        return 1 - math.fsum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    usable = {work: vector for work, vector in vectors.items() if vector and any(vector)}
    references: dict[int, set[int]] = {work: set() for work in vectors}
    for citing, cited in edges:
        if citing in references and citing != cited and cited in usable:
            references[citing].add(cited)
    return {
        work: [distance(usable[a], usable[b]) for a, b in combinations(refs, 2)] for work, refs in references.items()
    }


def assert_equals_plain_loops(vectors, edges, percentiles=(0, 10, 50, 99.5, 100)) -> int:
    expected = distances(vectors, edges)
    rows = compute_shibayama_novelty(*frames(vectors, edges), percentiles=percentiles).collect().rows()
    assert {row[0] for row in rows} == set(vectors)
    for work, n_pairs, *scores in rows:
        found = expected[work]
        assert n_pairs == len(found)
        if found:
            want = [math.fsum(found) / len(found), *(percentile(found, q) for q in percentiles)]
            assert scores == pytest.approx(want, abs=1e-14)
        else:
            assert scores == [None] * len(scores)
    return sum(map(bool, expected.values()))


@st.composite
def corpora(draw):
    numbers = st.lists(st.integers(-3, 3), min_size=3, max_size=3)
    vectors = {work: draw(st.none() | numbers) for work in range(draw(st.integers(1, 12)))}
    ids = st.sampled_from([*vectors, 10**12])
    return vectors, draw(st.lists(st.tuples(ids, ids), max_size=60))


@given(corpora())
@settings(max_examples=50)
def test_every_pair_and_percentile_equals_plain_loops(corpus):
    assert_equals_plain_loops(*corpus)


@pytest.fixture(scope="module")
def titles():
    """Real works: how often words of each title fall into 16 boxes, and references between them."""
    works, citations, _ = ssd.scan_example()
    vectors: dict[int, list[float] | None] = {}
    for work, title in works.select("work_id", "title").collect().rows():
        vectors[work] = None if title is None else [0.0] * 16
        for word in (title or "").lower().split():
            vectors[work][zlib.crc32(word.encode()) % 16] += 1
    return vectors, citations.filter(pl.col("cited_id").is_in(list(vectors))).collect().rows()


def test_scores_of_real_titles_equal_plain_loops(titles):
    assert assert_equals_plain_loops(*titles) > 1_500


def test_order_of_rows_and_repeats_and_size_of_blocks_change_no_bit(titles, monkeypatch):
    works, citations = frames(*titles)
    expected = compute_shibayama_novelty(works, citations).collect().sort("work_id")
    monkeypatch.setattr(reference_distances, "_NUMBERS_AT_ONCE", 1)
    turned = pl.concat([citations.reverse(), citations.head(50)])
    assert compute_shibayama_novelty(works.reverse(), turned).collect().sort("work_id").equals(expected)


def test_float32_vectors_of_an_array_column_are_scored_in_double_precision():
    vectors = {1: [0.5, 1.5], 2: [2.0, -0.25], 3: [1.0, 1.0]}
    works, citations = frames(vectors | {4: None}, [(4, 1), (4, 2), (4, 3)])
    expected = compute_shibayama_novelty(works, citations).collect()
    narrow = works.with_columns(pl.col("vector").cast(pl.Array(pl.Float32, 2)))
    assert compute_shibayama_novelty(narrow, citations).collect().equals(expected)


def test_a_work_with_too_many_references_is_not_scored():
    vectors = {work: [1.0, work] for work in range(5)}
    edges = [(0, 1), (0, 2), (0, 3), (4, 1), (4, 2)]
    found = compute_shibayama_novelty(*frames(vectors, edges), percentiles=[100], max_references=2).collect()
    assert found.select("work_id", "distance_n_pairs").rows() == [(0, None), (1, 0), (2, 0), (3, 0), (4, 1)]
    assert found["distance_p100"].is_null().to_list() == [True, True, True, True, False]


def test_wrong_arguments_are_one_clear_error():
    works, citations = frames({1: [1.0]}, [])
    with pytest.raises(ConfigError, match=r"percentiles is \[101\], needs a list of at least one number from 0 to 100"):
        compute_shibayama_novelty(works, citations, percentiles=[101])
    with pytest.raises(ConfigError, match="max_references is 1, needs a whole number from 2, or None"):
        compute_shibayama_novelty(works, citations, max_references=1)
    with pytest.raises(SchemaMismatchError, match="lacks column 'title_vector'"):
        compute_shibayama_novelty(works, citations, vector="title_vector")
    with pytest.raises(WorkIdError, match="work_id 1 occurs more than once in WORKS"):
        compute_shibayama_novelty(pl.concat([works, works]), citations).collect()
    with pytest.raises(WorkIdError, match="1 row without a work_id"):
        compute_shibayama_novelty(works.with_columns(work_id=pl.lit(None, pl.Int64)), citations).collect()


def test_no_works_have_no_novelty():
    works = pl.DataFrame(schema={"work_id": pl.Int64, "vector": pl.List(pl.Float64)})
    scores = compute_shibayama_novelty(works, pl.DataFrame({"citing_id": [1], "cited_id": [2]})).collect()
    assert scores.height == 0
    assert scores.columns[:3] == ["work_id", "distance_n_pairs", "distance_mean"]
