"""Bridges between communities: against plain loops over pairs, on random graphs and a real one."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import combinations, product

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.errors import ConfigError, SchemaMismatchError, WorkIdError
from sciscidata.indicators import compute_foster_novelty, find_communities
from sciscidata.novelty.communities import _venue_links, _work_links
from tests.real_graphs import scan_real

CITATIONS = {"citing_id": pl.Int64, "cited_id": pl.Int64}


def frames(given: dict[int, int | None], edges, column: str = "community") -> tuple[pl.LazyFrame, pl.LazyFrame]:
    works = pl.LazyFrame(
        {"work_id": list(given), column: list(given.values())}, schema={"work_id": pl.Int64, column: pl.Int64}
    )
    return works, pl.LazyFrame(edges, schema=CITATIONS, orient="row")


def references_of(given, edges) -> dict[int, list[int]]:
    """The distinct references of each work that are works with a community (or venue)."""
    found: dict[int, set[int]] = {work: set() for work in given}
    for citing, cited in edges:
        if citing != cited and citing in given and given.get(cited) is not None:
            found[citing].add(cited)
    return {work: sorted(references) for work, references in found.items()}


@st.composite
def corpora(draw):
    given = {work: draw(st.none() | st.integers(-1, 3)) for work in range(draw(st.integers(1, 12)))}
    ids = st.sampled_from([*given, 10**12])
    return given, draw(st.lists(st.tuples(ids, ids), max_size=60))


def assert_equals_plain_loops(given, edges) -> None:
    found = {work: rest for work, *rest in compute_foster_novelty(*frames(given, edges)).collect().rows()}
    assert set(found) == set(given)
    for work, references in references_of(given, edges).items():
        pairs = [given[a] != given[b] for a, b in combinations(references, 2)]
        assert found[work] == [len(pairs), sum(pairs) / len(pairs) if pairs else None]


@given(corpora())
@settings(max_examples=60)
def test_every_share_equals_plain_loops(corpus):
    assert_equals_plain_loops(*corpus)


def test_communities_may_be_text_or_a_category():
    works, citations = frames({1: 5, 2: 5, 3: 6, 4: None}, [(4, 1), (4, 2), (4, 3)])
    expected = compute_foster_novelty(works, citations).collect().sort("work_id")
    for dtype in (pl.String, pl.Categorical, pl.UInt8):
        again = works.select("work_id", topic=pl.col("community").cast(pl.String).cast(dtype))
        assert compute_foster_novelty(again, citations, community="topic").collect().sort("work_id").equals(expected)


@given(corpora())
@settings(max_examples=40)
def test_links_between_works_and_between_venues_equal_plain_loops(corpus):
    given, edges = corpus
    works, citations = frames(given, edges, "node")
    linked = {(min(a, b), max(a, b), 1) for a, b in edges if a != b and {a, b} <= given.keys()}
    assert _work_links(works.collect(), citations).rows() == sorted(linked)
    together: Counter[tuple[int, int]] = Counter()
    for references in references_of(given, edges).values():
        together.update(
            tuple(sorted((given[a], given[b]))) for a, b in combinations(references, 2) if given[a] != given[b]
        )
    assert _venue_links(works.collect(), citations).rows() == sorted((*pair, n) for pair, n in together.items())


def two_groups() -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Works 10 .. 14 cite each other, so do 20 .. 25; one citation joins both; work 30 stands alone."""
    groups = [range(10, 15), range(20, 26)]
    edges = [(a, b) for group in groups for a, b in product(group, group)] + [(10, 20), (30, 99)]
    works, citations = frames(
        {**{work: 1 + work // 20 for group in groups for work in group}, 30: None}, edges, "source_id"
    )
    return works, citations


@pytest.mark.parametrize("method", ["louvain", "leiden", "infomap"])
def test_two_groups_that_hardly_cite_each_other_are_two_communities_the_larger_first(method):
    pytest.importorskip("igraph")
    works, citations = two_groups()
    found = find_communities(works, citations, of="works", method=method)
    assert found.rows() == [*((n, 1) for n in range(10, 15)), *((n, 0) for n in range(20, 26)), (30, None)]
    assert found.schema == {"work_id": pl.Int64, "community": pl.Int32}
    assert find_communities(works.reverse(), citations.reverse(), of="works", method=method).equals(found)


def test_venues_that_are_cited_together_are_one_community_and_every_seed_gives_the_same_bytes_again():
    igraph = pytest.importorskip("igraph")
    works, citations = scan_real()
    found = find_communities(works, citations, seed=3)
    assert find_communities(works.reverse(), citations.reverse(), seed=3).equals(found)
    links = _venue_links(works.select("work_id", node="source_id").collect(), citations)
    joined = works.collect().join(found, on="work_id").unique("source_id")
    venue_of = dict(joined.drop_nulls("community").select("source_id", "community").rows())
    assert joined.filter(pl.col("community").is_null())["source_id"].is_in(links["a"].to_list()).any() is False
    graph = igraph.Graph.TupleList(links.select("a", "b", "weight").rows(), weights=True)
    modularity = graph.modularity([venue_of[name] for name in graph.vs["name"]], weights="weight")
    best = graph.community_multilevel(weights="weight").modularity
    assert modularity == pytest.approx(best, abs=0.01)


@pytest.mark.parametrize("of", ["works", "venues"])
def test_without_citations_no_work_has_a_community(of):
    pytest.importorskip("igraph")
    works, citations = two_groups()
    found = find_communities(works, citations.head(0), of=of)
    assert (found.height, found["community"].null_count(), found.schema["community"]) == (12, 12, pl.Int32)


def test_without_igraph_the_error_names_the_package_and_the_way_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(ConfigError, match=r'needs the package igraph, .* pip install "\.\[communities\]" .*\. Or give'):
        find_communities(*two_groups())


def test_wrong_arguments_are_one_clear_error():
    works, citations = frames({1: 5}, [])
    with pytest.raises(SchemaMismatchError, match=r"lacks column 'topic' .* it has work_id, community. Add it: "):
        compute_foster_novelty(works, citations, community="topic")
    with pytest.raises(SchemaMismatchError, match="'community' is Float64, needs whole numbers, text or an Enum"):
        compute_foster_novelty(works.with_columns(community=0.5), citations)
    with pytest.raises(WorkIdError, match="work_id 1 occurs more than once"):
        compute_foster_novelty(pl.concat([works, works]), citations).collect()
    with pytest.raises(ConfigError, match="method is 'walktrap', needs one of louvain, leiden, infomap"):
        find_communities(works, citations, method="walktrap")
