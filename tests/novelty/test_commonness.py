"""Commonness against plain dictionaries, what independence gives, and a logarithm that is the same everywhere."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from decimal import Decimal, localcontext

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata._kernels.portable_math import natural_log
from sciscidata._kernels.random import below, draw, stream_key
from sciscidata.novelty._per_work_kernels import commonness_of_cells
from sciscidata.novelty.commonness import CommonnessConfig, compute_commonness
from sciscidata.novelty.shapes import Cells
from sciscidata.novelty.venue_pairs import group, observe
from sciscidata.schemas import COMMONNESS
from tests.novelty import oracle
from tests.novelty.test_atypicality import corpora, disguised, frames

DEFAULT = CommonnessConfig()


def scored(records, edges, config=DEFAULT, **how) -> pl.DataFrame:
    return compute_commonness(*frames(records, edges), config, **how).sort("work_id").collect()


def commonness_of(works: dict[int, list[int]], ordered: bool, unique: bool, same: bool) -> dict[int, tuple]:
    """Return work -> (n_pairs, 10th percentile, median) for the works of one year that have a pair."""
    pairs = {}
    for work, venues in works.items():
        held = sorted(set(venues)) if unique else sorted(venues)
        pairs[work] = [(a, b) for a, b in itertools.combinations(held, 2) if same or a != b]
    joint, single = Counter(), Counter()
    for a, b in itertools.chain.from_iterable(pairs.values()):
        ends = [(a, b), (b, a)] if ordered else [(a, b)]
        for end in ends:
            joint[end] += 1
        for venue in (a, b) if ordered else {a, b}:
            single[venue] += 1
    total = joint.total()
    values = {(a, b): float(n) * float(total) / (float(single[a]) * float(single[b])) for (a, b), n in joint.items()}
    result = {}
    for work, held in pairs.items():
        if held:
            row = [values[pair] for pair in held]
            result[work] = (len(row), float(np.quantile(row, 0.1)), float(np.quantile(row, 0.5)))
    return result


@given(
    corpora(), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 4), st.none() | st.integers(2, 9),
    st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=60)
def test_every_count_and_quantile_equals_plain_loops_whatever_names_order_and_threads(
    corpus, ordered, unique, same, min_pairs, limit, random
):
    records, edges = corpus
    expected = {}
    for works in oracle.venue_lists(records, edges, limit).values():
        expected |= commonness_of(works, ordered, unique, same)
    left_out = {
        work
        for works in oracle.venue_lists(records, edges).values()
        for work, venues in works.items()
        if limit is not None and len(venues) > limit
    }
    config = CommonnessConfig(
        counting="ordered" if ordered else "unordered",
        unique_venues=unique,
        same_venue_pairs=same,
        min_pairs=min_pairs,
        max_references=limit,
    )
    for work, n_pairs, p10, median, novelty in scored(
        *disguised(corpus, random), config, n_threads=random.choice([1, 3])
    ).rows():
        if records[work][0] is None or work in left_out:
            assert (n_pairs, p10, median, novelty) == (None, None, None, None)
        elif work not in expected or expected[work][0] < min_pairs:
            assert (n_pairs, p10, median, novelty) == (expected.get(work, (0,))[0], None, None, None)
        else:
            assert (n_pairs, p10, median) == expected[work]
            assert novelty == pytest.approx(-math.log(p10), rel=1e-15, abs=1e-300)


def independent_corpus(n_venues: int, n_works: int, length: int):
    """Every work cites works of venues that are drawn one by one, whatever the others."""
    drawn = below(draw(stream_key(0, "test/commonness"), np.arange(n_works * length)), n_venues).tolist()
    n = n_works * length
    records = {i: (1990, venue) for i, venue in enumerate(drawn)} | {n + i: (2000, None) for i in range(n_works)}
    return records, [(n + i // length, i) for i in range(n)]


@pytest.mark.parametrize(("counting", "same", "level"), [("ordered", True, 1), ("unordered", False, 0.5 * 20 / 19)])
def test_venues_that_are_cited_independently_have_the_commonness_the_head_of_the_module_says(counting, same, level):
    records, edges = independent_corpus(20, 2_000, 20)
    config = CommonnessConfig(counting=counting, same_venue_pairs=same)
    rows = scored(records, edges, config).drop_nulls("commonness_p10")
    assert rows.height == 2_000
    assert rows["commonness_median"].mean() == pytest.approx(level, rel=0.01)
    assert rows["commonness_p10"].mean() == pytest.approx(level, rel=0.05)


def test_as_published_two_venues_have_about_a_half_and_a_venue_with_itself_about_a_quarter():
    records, edges = independent_corpus(20, 2_000, 20)
    own = [work for work, (_, venue) in records.items() if venue == 7][:2]
    records[10**9] = (2000, None)
    edges += [(10**9, work) for work in own]
    rows = scored(records, edges).drop_nulls("commonness_p10")
    assert rows["commonness_median"].mean() == pytest.approx(0.5, abs=0.05)
    assert rows.row(-1)[1] == 1
    assert rows.row(-1)[2] == pytest.approx(1 / (2 - 1 / 20) ** 2, rel=0.1)
    assert scored(records, edges, CommonnessConfig(counting="ordered")).row(-1)[2] == pytest.approx(1, rel=0.1)


def test_a_year_that_comes_twice_with_other_works_changes_no_work_of_the_first():
    records, edges = independent_corpus(5, 40, 6)
    expected = scored(records, edges)
    later = {10**6 + work: (2001, None) for work, (year, _) in records.items() if year == 2000}
    more = [(10**6 + citing, cited) for citing, cited in edges]
    rows = scored(records | later, edges + more)
    assert rows.filter(pl.col("work_id") < 10**6).equals(expected)
    twin = rows.filter(pl.col("work_id") >= 10**6).with_columns(pl.col("work_id") - 10**6)
    assert twin.equals(expected.filter(pl.col("work_id").is_in(twin["work_id"].implode())))


def test_counts_beyond_two_to_the_31_are_right():
    counts = np.array([2 * 10**9, 3 * 10**9, 10**9])  # (0, 0), (0, 1), (1, 1)
    cells = Cells(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), counts)
    total, ends = 6.0, (5.0, 4.0)
    expected = [2 * total / 25, 3 * total / (ends[0] * ends[1]), total / 16]
    assert commonness_of_cells(cells, False).tolist() == pytest.approx(expected, rel=1e-15)
    n_works, length = 4_500, 1_000
    groups = group(np.arange(n_works + 1) * length, np.zeros(n_works * length, np.int32), 1)
    cells = observe(groups)
    assert cells.observed.tolist() == [n_works * 499_500]
    assert commonness_of_cells(cells, False).tolist() == [1.0]


def test_the_bits_of_the_scores_are_pinned():
    rows = scored(*independent_corpus(30, 100, 12)).fill_null(-99)
    columns = b"".join(column.to_numpy().tobytes() for column in rows)
    assert hashlib.sha256(columns).hexdigest()[:16] == "36b93acaa60e0fff"


@given(st.floats(1e-300, 1e300) | st.floats(0.5, 2.0) | st.integers(1, 2**53).map(float))
def test_the_logarithm_is_within_one_unit_of_the_last_place(x):
    with localcontext(prec=60):
        exact = Decimal(x).ln()
        error = abs(Decimal(float(natural_log(np.array([x]))[0])) - exact)
        assert error <= Decimal(math.ulp(float(exact)))


def test_the_logarithm_of_nothing_is_nothing():
    assert np.isnan(natural_log(np.array([np.nan, 1.0]))).tolist() == [True, False]


def test_a_work_without_references_has_no_pair():
    works, citations = frames({1: (2000, 1)}, [])
    assert compute_commonness(works, citations).collect_schema() == COMMONNESS
    assert compute_commonness(works, citations).collect().row(0) == (1, 0, None, None, None)
