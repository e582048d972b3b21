"""Rewired graphs: what every draw keeps, that all outcomes are as likely, and the index over all of them."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from math import sqrt

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from sciscidata._kernels.random import draw, stream_key
from sciscidata.disruption import _rewire_kernels as kernels
from sciscidata.disruption.closed_null_model import compute_expected_cd_index
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import score_graph
from sciscidata.disruption.null_model import NULL_CD_INDEX, Draws, compute_null_cd_index, rewire, score_nulls
from sciscidata.errors import ConfigError
from sciscidata.graph.graph import CitationGraph, build_graph
from tests import oracles
from tests.disruption.test_index import edge_lists, frames, years_of_works
from tests.real_graphs import scan_real

NULLS = ("rewired", "configuration")


def edges_of(graph: CitationGraph) -> np.ndarray:
    """(citing, cited) indices, in order."""
    citing = np.repeat(np.arange(graph.n_works), np.diff(graph.ref_offsets))
    return np.stack([citing, graph.refs], axis=1)


def class_of(graph: CitationGraph) -> np.ndarray:
    """The place of each work's year, the same for all works without a year."""
    years = np.searchsorted(graph.year_offsets, np.arange(graph.n_works), side="right") - 1
    return np.minimum(years, graph.years.size)


def assert_keeps_what_it_says(graph: CitationGraph, null: str, number: int = 0, n_threads: int = 1) -> CitationGraph:
    drawn = rewire(graph, number, null=null, seed=7, n_threads=n_threads).graph
    before, after = edges_of(graph), edges_of(drawn)
    assert (after[:, 0] != after[:, 1]).all()
    order = np.lexsort(after.T[::-1])
    assert (order == np.arange(order.size)).all()  # rows are sorted
    assert (np.diff(after, axis=0) != 0).any(axis=1).all()  # and hold nothing twice
    assert np.array_equal(np.bincount(after[:, 1], minlength=graph.n_works), np.diff(graph.citer_offsets))
    groups = class_of(graph)
    kept = [lambda e: e[:, 0], lambda e: e[:, 1]]
    if null == "rewired":  # each work's references by their year, and its citers by theirs
        kept = [lambda e: e[:, 0] * 10_000 + groups[e[:, 1]], lambda e: e[:, 1] * 10_000 + groups[e[:, 0]]]
    for key in kept:
        assert np.array_equal(np.sort(key(before)), np.sort(key(after)))
    undated = before[:, 0] >= graph.n_dated
    assert np.array_equal(before[undated], after[undated])
    return drawn


@given(years=years_of_works, edges=edge_lists)
@settings(max_examples=40)
def test_every_draw_is_simple_and_keeps_degrees_and_cells(years, edges):
    graph = build_graph(*frames(years, edges))
    for null in NULLS:
        assert_keeps_what_it_says(graph, null)


@pytest.mark.parametrize("null", NULLS)
def test_draws_of_a_real_graph_keep_it_too_whatever_the_threads(null):
    """It has cells of thousands of citations, which are mended."""
    graph = build_graph(*scan_real())
    drawn = assert_keeps_what_it_says(graph, null, n_threads=3)
    once = rewire(graph, 0, null=null, seed=7, n_threads=1)
    assert np.array_equal(once.graph.refs, drawn.refs)
    assert 0 < once.n_mended < 0.1 * graph.n_citations
    assert once.n_stuck == 0
    assert (drawn.refs != graph.refs).mean() > 0.9
    in_the_future = [np.mean(np.greater(*class_of(graph)[edges_of(each).T[::-1]])) for each in (graph, drawn)]
    print(f"citations of later years, before and after: {in_the_future}")
    assert in_the_future[1] > 0.1 if null == "configuration" else in_the_future[1] == in_the_future[0]
    others = [rewire(graph, 1, null=null, seed=7), rewire(graph, 0, null=null, seed=8)]
    assert all((other.graph.refs != drawn.refs).mean() > 0.9 for other in others)


def test_the_closed_approximation_agrees_with_draws_of_a_real_graph():
    works, citations = scan_real()
    drawn = compute_null_cd_index(works, citations, n_draws=100, seed=3).collect().sort("work_id")
    closed = compute_expected_cd_index(works, citations).collect().sort("work_id")
    assert closed["cd_index"].equals(drawn["cd_index"])
    both = drawn.with_columns(closed.select(pl.exclude("work_id", "cd_index").name.suffix("_closed")))
    assert both.filter(pl.col("null_mean").is_not_null() & pl.col("null_mean_closed").is_null()).is_empty()
    varies = both.filter((pl.col("null_std") > 0) & pl.col("z").is_not_null())
    found = varies.select(
        mean=pl.corr("null_mean", "null_mean_closed"),
        error=(pl.col("null_mean") - pl.col("null_mean_closed")).abs().mean(),
        std=(pl.col("null_std_closed") / pl.col("null_std")).median(),
        z=pl.corr("z", "z_closed", method="spearman"),
        verdict=((pl.col("z").abs() > 2) == (pl.col("z_closed").abs() > 2)).mean(),
    ).row(0, named=True)
    print(varies.height, found)
    assert found["mean"] > 0.98
    assert found["error"] < 0.007  # of which chance in 100 draws makes 0.004
    assert found["std"] == pytest.approx(0.94, abs=0.03)
    assert found["z"] > 0.94
    assert found["verdict"] > 0.92


def test_the_closed_form_says_to_draw_where_few_works_have_a_spread(caplog):
    """Of two works that may change citers, the mean is -0.25. The closed form cannot know how few they are."""
    small = frames(
        {1: 1990, 2: 1990, 3: 2000, 4: 2000, 5: 2001, 6: 2001}, [(3, 1), (4, 2), (5, 3), (5, 1), (6, 4), (6, 2)]
    )
    assert compute_expected_cd_index(*small).collect().sort("work_id")["null_mean"][2] == pytest.approx(
        0.106, abs=0.001
    )
    (said,) = caplog.messages
    assert "only 2 works" in said
    assert "compute_null_cd_index" in said
    caplog.clear()
    assert compute_expected_cd_index(*scan_real()).collect()["null_std"].gt(0).sum() > 500
    assert not [message for message in caplog.messages if "compute_null_cd_index" in message]


def test_the_bytes_of_a_draw_are_pinned():
    years = {i: 1990 + i // 20 for i in range(100)}
    edges = [(i, (i * 7 + j * j) % i) for i in range(1, 100) for j in range(min(i, 6))]
    graph = build_graph(*frames(years, edges))
    digests = [hashlib.sha256(rewire(graph, 3, null=null, seed=1).graph.refs.tobytes()).hexdigest() for null in NULLS]
    assert [digest[:16] for digest in digests] == ["879cb217ea620427", "85b4f1d0fc299f5b"]


def simple_deals(rows: list[tuple[int, list[int]]]) -> set[tuple[tuple[int, ...], ...]]:
    """All ways to deal the cited works of a cell to its rows (owner, cited works), without repeats in a row."""
    sizes = [len(cited) for _, cited in rows]
    starts = [0, *itertools.accumulate(sizes)]
    found = set()
    for order in set(itertools.permutations([work for _, cited in rows for work in cited])):
        dealt = [order[a:b] for a, b in itertools.pairwise(starts)]
        if all(len({*row}) == len(row) and owner not in row for (owner, _), row in zip(rows, dealt, strict=True)):
            found.add(tuple(tuple(sorted(row)) for row in dealt))
    return found


# "older" cites older works. In the other two, works cite their own year, but not themselves. A swap cannot always mend
# "stuck". Once (1, 1) is the row of work 2, its second 1 has no place: rows 1 and 3 must not hold it, and work 2 must
# not take the 2 of row 4.
CELLS = {
    "older": [(50, [1, 2, 3]), (51, [1]), (52, [1, 2]), (53, [4])],
    "same year": [(1, [2, 3]), (2, [1]), (3, [4, 1]), (4, [2])],
    "stuck": [(1, [2, 4, 5]), (2, [1, 3]), (3, [1]), (4, [1])],
}


@pytest.mark.parametrize("tries", [kernels.TRIES, 1], ids=["shuffled until simple", "shuffled once, then mended"])
@pytest.mark.parametrize("cell", CELLS)
def test_every_simple_outcome_of_a_cell_is_as_likely(cell, tries):
    rows = CELLS[cell]
    expected = simple_deals(rows)
    observed = np.array([work for _, cited in rows for work in cited], np.int32)
    starts = np.cumsum([0, *(len(cited) for _, cited in rows)]).astype(np.int32)
    owners = np.array([owner for owner, _ in rows], np.int32)
    row_of = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(starts))
    n_draws = 1_000 * len(expected)
    keys = draw(stream_key(0, f"test/{cell}"), np.arange(n_draws))
    counts: Counter[tuple[tuple[int, ...], ...]] = Counter()
    n_mended = n_stuck = 0
    for key in keys:
        cited = observed.copy()
        mended, stuck = kernels.deal_cell(key, observed, kernels.Cell(cited, starts, owners, row_of), tries)
        n_mended, n_stuck = n_mended + mended, n_stuck + stuck
        counts[tuple(tuple(cited[a:b].tolist()) for a, b in itertools.pairwise(starts.tolist()))] += 1
    assert counts.keys() == expected
    chi_square = sum((n - 1_000) ** 2 / 1_000 for n in counts.values())
    freedom = len(expected) - 1
    print(f"{len(expected)} outcomes, chi-square {chi_square:.1f}")
    assert abs(chi_square - freedom) < 3.5 * sqrt(2 * freedom)
    assert (n_mended > 0) == (tries == 1 or cell == "stuck")  # of which few shuffles are simple
    assert (n_stuck > 0) == (cell == "stuck")


# Work 9 has no year, and 20 no record. Cells (2000, 1990), (2000, 2000), (2002, 2000), (2002, 1990), (2002, none).
YEARS = {1: 1990, 2: 1990, 3: 2000, 4: 2000, 5: 2000, 6: 2002, 7: 2002, 8: 2002, 9: None}
EDGES = [
    (3, 1), (3, 2), (4, 1), (5, 4), (3, 5), (6, 3), (7, 3), (8, 4), (8, 5), (6, 1), (7, 2), (6, 9), (7, 20), (9, 3),
]  # fmt: skip


def all_rewirings() -> list[list[tuple[int, int]]]:
    """Every simple graph that the null model allows, by its definition."""
    cells: dict[object, dict[int, list[int]]] = {}
    for citing, cited in EDGES:
        if YEARS.get(citing) is not None:
            cells.setdefault((YEARS[citing], YEARS.get(cited)), {}).setdefault(citing, []).append(cited)
    options = [
        [
            [(owner, work) for owner, row in zip(rows, deal, strict=True) for work in row]
            for deal in simple_deals([*rows.items()])
        ]
        for rows in cells.values()
    ]
    return [[(9, 3), *itertools.chain(*parts)] for parts in itertools.product(*options)]


def test_moments_over_a_thousand_draws_agree_with_all_rewirings_enumerated():
    graphs = all_rewirings()
    config = CDConfig(same_year=True)
    values = [oracles.cd_family(YEARS, edges, config) for edges in graphs]
    n_draws = 1_000
    found = compute_null_cd_index(*frames(YEARS, EDGES), config, n_draws=n_draws, n_threads=1).collect()
    assert found.schema == NULL_CD_INDEX
    rows = {row["work_id"]: row for row in found.rows(named=True)}
    assert rows.keys() == YEARS.keys()
    observed = oracles.cd_family(YEARS, EDGES, config)
    n_partly = n_compared = 0
    for work, row in rows.items():
        if YEARS[work] is None:
            assert [*row.values()][1:] == [None] * 5
            continue
        assert row["cd_index"] == observed[work]["cd_index"]
        defined = [value[work]["cd_index"] for value in values if value[work]["cd_index"] is not None]
        share = len(defined) / len(values)
        assert abs(row["n_defined"] - share * n_draws) <= 4 * sqrt(n_draws * share * (1 - share))
        n_partly += 0 < share < 1
        if not defined:
            assert row["null_mean"] is row["null_std"] is row["z"] is None
            continue
        mean, std = np.mean(defined), np.std(defined)
        assert abs(row["null_mean"] - mean) <= 4 * std / sqrt(row["n_defined"])
        assert row["null_std"] == pytest.approx(std, rel=0.1, abs=0)
        assert (row["z"] is None) == (row["null_std"] == 0 or row["cd_index"] is None)
        if row["z"] is not None:
            assert row["z"] == pytest.approx((row["cd_index"] - row["null_mean"]) / row["null_std"])
            n_compared += 1
    print(f"{len(graphs)} graphs, {n_compared} works with z, {n_partly} at times undefined")
    assert n_compared >= 2
    assert n_partly >= 1


@pytest.mark.parametrize("null", NULLS)
def test_scores_do_not_depend_on_threads_and_hold_what_each_draw_gives(null):
    graph = build_graph(*scan_real())
    one, three = (score_nulls(graph, {"": CDConfig()}, Draws(null, 3, 5), n_threads=n)["", ""] for n in (1, 3))
    assert one.equals(three)
    assert one.select("work_id", "cd_index").equals(score_graph(graph).select("work_id", "cd_index"))
    draws = [score_graph(rewire(graph, n, null=null, seed=5).graph)["cd_index"].alias(f"{n}") for n in range(3)]
    expected = pl.DataFrame(draws).select(
        null_mean=pl.mean_horizontal(pl.all()),
        null_std=pl.concat_list(pl.all()).list.drop_nulls().list.std(ddof=0),
        n_defined=pl.sum_horizontal(pl.all().is_not_null()),
    )
    assert (
        one["n_defined"].fill_null(0).cast(pl.UInt32).equals(expected["n_defined"].cast(pl.UInt32), check_names=False)
    )
    assert (one["null_mean"] - expected["null_mean"]).abs().max() < 1e-12
    assert one["null_mean"].null_count() == expected["null_mean"].null_count()
    twice = one["n_defined"].fill_null(0) > 1
    assert (one["null_std"] - expected["null_std"]).abs().max() < 1e-9
    assert one.filter(~twice)["null_std"].null_count() == (~twice).sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"null": "shuffled"}, "null is 'shuffled', needs one of rewired, configuration"),
        ({"n_draws": 1}, "n_draws is 1, needs a whole number from 2 to 1,000,000"),
        ({"seed": 0.5}, "seed is 0.5, needs a whole number"),
        ({"n_threads": 0}, "n_threads is 0"),
        ({"config": {"window_years": 3}}, "config is"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(options, message):
    with pytest.raises(ConfigError, match=message):
        compute_null_cd_index(*frames(YEARS, EDGES), **options)


def test_a_graph_without_citations_or_years_has_no_null():
    for years, edges in (({1: 2000, 2: 2001}, []), ({1: None, 2: None}, [(2, 1)])):
        found = compute_null_cd_index(*frames(years, edges), n_draws=2).collect()
        assert found["null_mean"].null_count() == 2


def test_expected_values_are_null_where_no_work_has_a_year():
    works = pl.DataFrame({"work_id": [1, 2], "publication_year": [None, None]}, schema_overrides={"work_id": pl.Int64})
    expected = compute_expected_cd_index(works, pl.DataFrame({"citing_id": [2], "cited_id": [1]})).collect()
    assert expected.sort("work_id").rows() == [(1, None, None, None, None), (2, None, None, None, None)]


def test_expected_values_of_two_dated_works_do_not_change_with_a_third_far_away():
    years = {1: 2000, 2: 2001, 4: 2090}
    citations = pl.DataFrame({"citing_id": [1, 2, 2], "cited_id": [3, 1, 3]})
    few, more = (
        compute_expected_cd_index(
            pl.DataFrame({"work_id": ids, "publication_year": [years[one] for one in ids]}), citations
        ).collect().filter(work_id=1)
        for ids in ([1, 2], [1, 2, 4])
    )  # fmt: skip
    assert few["null_std"].null_count() == 0
    assert few.equals(more)
