"""Author self-citations, and the CD index without them, against plain sets."""

from __future__ import annotations

import dataclasses
import logging

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata import ExampleConfig, compute_cd_index, scan_authors, scan_example
from sciscidata.errors import SchemaMismatchError
from sciscidata.indicators import compute_independent_cd_index, find_self_citations
from tests import oracles
from tests.disruption.test_index import configs, edge_lists, frames, until, windows, years_of_works

pairs_of_works = st.lists(st.tuples(st.integers(1, 18), st.integers(1, 6)), max_size=30)


def authors_frame(pairs: list[tuple[int, int]]) -> pl.LazyFrame:
    return pl.LazyFrame(pairs, schema={"work_id": pl.Int64, "author_id": pl.Int64}, orient="row")


def authors_of(pairs: list[tuple[int, int]]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for work, author in pairs:
        found.setdefault(work, set()).add(author)
    return found


def without_own_works(focal, years, edges, pairs, config, window):
    """Score ``focal`` as if the later works that share an author with it cited nothing."""
    by = authors_of(pairs)
    own = {work for work, authors in by.items() if work != focal and authors & by.get(focal, set())}
    return oracles.cd_family(years, [(a, b) for a, b in edges if a not in own], config, window)[focal]


@given(years_of_works, edge_lists, pairs_of_works, configs(), st.lists(windows | until, unique=True, max_size=3))
@settings(max_examples=80)
def test_the_index_without_them_is_that_of_a_world_in_which_own_later_works_cite_nothing(
    years, edges, pairs, config, further
):
    further = tuple(one for one in further if isinstance(one, int) or config.window_from == "focal")
    config = dataclasses.replace(config, windows=further)
    works, citations = frames(years, edges)
    found = compute_independent_cd_index(works, citations, authors_frame(pairs), config, n_threads=1).collect()
    usual = compute_cd_index(works, citations, config).collect()
    shared = [name for name in usual.columns if name in found.columns]
    assert found.select(shared).sort("work_id").equals(usual.select(shared).sort("work_id"))
    by = authors_of(pairs)
    for row in found.rows(named=True):
        for ending, window in config.all_windows.items():
            ours = {
                name: row[f"independent_{name}{ending}"]
                for name in ("n_i", "n_j", "n_k", "cd_index", "n_shared", "mcd_index", "di_nok_index", "dependence")
            }
            if years[row["work_id"]] is None or row["work_id"] not in by:
                assert set(ours.values()) | {row[f"n_self_citers{ending}"]} == {None}
                continue
            want = without_own_works(row["work_id"], years, edges, pairs, config, window)
            assert ours == {name: want[name] for name in ours}
            before, after = (
                sum(row[name + ending] for name in names)
                for names in (("n_i", "n_j"), ("independent_n_i", "independent_n_j"))
            )
            assert row[f"n_self_citers{ending}"] == before - after


@given(edge_lists, pairs_of_works)
def test_a_self_citation_joins_two_works_that_share_an_author(edges, pairs):
    _, citations = frames({1: None}, edges)
    by = authors_of(pairs)
    expected = {
        (a, b, len(by.get(a, set()) & by.get(b, set())))
        for a, b in edges
        if a != b and by.get(a, set()) & by.get(b, set())
    }
    assert {*find_self_citations(citations, authors_frame(pairs)).collect().rows()} == expected
    texts = authors_frame(pairs).with_columns(pl.col("author_id").cast(pl.String))
    assert {*find_self_citations(citations, texts).collect().rows()} == expected


def test_an_own_citer_leaves_the_index_and_does_not_move_into_another_group():
    """Deleting its citation would make it one of those that cite the references alone."""
    works, citations = frames({1: 1990, 2: 2000, 3: 2001, 4: 2002}, [(2, 1), (3, 1), (3, 2), (4, 2)])
    authors = authors_frame([(2, 7), (3, 7), (4, 8)])
    row = compute_independent_cd_index(works, citations, authors).filter(work_id=2).collect().row(0, named=True)
    assert (row["cd_index"], row["independent_cd_index"], row["n_self_citers"]) == (0.0, 1.0, 1)
    own = find_self_citations(citations, authors).select("citing_id", "cited_id")
    deleted = citations.join(own, on=["citing_id", "cited_id"], how="anti")
    assert compute_cd_index(works, deleted).filter(work_id=2).collect()["cd_index"].item() == 0.5


def test_the_example_has_1_177_self_citations_and_the_log_says_what_they_concern(caplog):
    works, citations, _ = scan_example()
    authors = scan_authors(ExampleConfig())
    assert find_self_citations(citations, authors).select(pl.len()).collect().item() == 1_177
    with caplog.at_level(logging.INFO):
        scores = compute_independent_cd_index(works, citations, authors).collect()
    n = scores.filter(pl.col("n_self_citers") > 0).height
    assert f"{n:,} works are cited by works that share an author" in caplog.text
    assert "no author is known: 49 works" in caplog.text


def test_authors_of_other_works_and_odd_columns_are_said(caplog):
    works, citations = frames({1: 1990, 2: 2000}, [(2, 1)])
    compute_independent_cd_index(works, citations, authors_frame([(77, 1)])).collect()
    assert "the same ids" in caplog.text
    with pytest.raises(SchemaMismatchError, match=r"'author_id'.*scan_authors"):
        find_self_citations(citations, pl.DataFrame({"work_id": [1]}))
    with pytest.raises(SchemaMismatchError, match=r"List.*takes lists apart"):
        find_self_citations(citations, pl.DataFrame({"work_id": [1], "author_id": [[1]]}))
    with pytest.raises(SchemaMismatchError, match="'work_id' is String"):
        find_self_citations(citations, pl.DataFrame({"work_id": ["P1"], "author_id": [1]}))


@pytest.mark.parametrize("as_frame", [pl.DataFrame, pl.DataFrame.lazy, pl.DataFrame.to_pandas])
def test_swapped_authors_and_citations_are_told_the_order_of_this_function(as_frame):
    citations = as_frame(pl.DataFrame({"citing_id": [2], "cited_id": [1]}))
    authors = as_frame(pl.DataFrame({"work_id": [1, 2], "author_id": [7, 7]}))
    assert find_self_citations(citations, authors).collect().rows() == [(2, 1, 1)]
    with pytest.raises(SchemaMismatchError, match=r"citations first, then authors: find_self_citations\(") as error:
        find_self_citations(authors, citations)
    assert "works" not in str(error.value)
