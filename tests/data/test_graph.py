"""The compact graph: layout, independence of order and memory, and the cache."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.errors import SchemaMismatchError
from sciscidata.graph import CitationGraph, build_graph

BIG = 2**33
ids = st.integers(1, 12).map(lambda i: i * (BIG // 5))  # some above 2^32
years_of_works = st.dictionaries(ids, st.none() | st.integers(1990, 1995), min_size=1)
edge_lists = st.lists(st.tuples(ids, ids), max_size=60)


def frames(years, edges):
    works = pl.LazyFrame(
        {"work_id": list(years), "publication_year": list(years.values())},
        schema={"work_id": pl.Int64, "publication_year": pl.Int32},
    )
    return pl.LazyFrame(edges, schema={"citing_id": pl.Int64, "cited_id": pl.Int64}, orient="row"), works


def assert_same(one: CitationGraph, two: CitationGraph) -> None:
    for field in dataclasses.fields(CitationGraph):
        a, b = getattr(one, field.name), getattr(two, field.name)
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.array_equal(a, b), field.name


@given(years_of_works, edge_lists)
def test_both_directions_hold_exactly_the_distinct_citations_in_time_order(years, edges):
    graph = build_graph(*frames(years, edges))
    clean = {(a, b) for a, b in edges if a != b}
    ids_ = graph.work_ids.tolist()
    assert sorted(ids_) == sorted({*years, *(i for edge in clean for i in edge)})
    dated = ids_[: graph.n_dated]
    assert dated == sorted((w for w in years if years[w] is not None), key=lambda w: (years[w], w))
    assert ids_[graph.n_dated : graph.n_known] == sorted(w for w in years if years[w] is None)
    assert ids_[graph.n_known :] == sorted(ids_[graph.n_known :])
    for j, year in enumerate(graph.years.tolist()):
        assert {years[w] for w in ids_[graph.year_offsets[j] : graph.year_offsets[j + 1]]} == {year}
    references, citers = set(), set()
    for i, work in enumerate(ids_):
        row = graph.refs[graph.ref_offsets[i] : graph.ref_offsets[i + 1]].tolist()
        column = graph.citers[graph.citer_offsets[i] : graph.citer_offsets[i + 1]].tolist()
        assert row == sorted(set(row))
        assert column == sorted(set(column))
        references |= {(work, ids_[x]) for x in row}
        citers |= {(ids_[x], work) for x in column}
    assert references == citers == clean
    assert graph.n_citations == len(clean)


@given(years_of_works, edge_lists, st.randoms())
def test_row_order_and_repeats_do_not_change_the_graph(years, edges, random):
    shuffled = edges * 2
    random.shuffle(shuffled)
    assert_same(build_graph(*frames(years, edges)), build_graph(*frames(dict(reversed(years.items())), shuffled)))


@pytest.fixture(scope="module")
def dense() -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """300,000 citations among 40,000 works, half of them without a record, in no order."""
    rng = np.random.Generator(np.random.PCG64(1))
    works = pl.LazyFrame({"work_id": np.arange(20_000) * 7, "publication_year": rng.integers(1950, 2020, 20_000)})
    works = works.cast({"publication_year": pl.Int32})
    pairs = rng.integers(0, 40_000, (300_000, 2)) * 7
    return pl.LazyFrame(pairs, schema={"citing_id": pl.Int64, "cited_id": pl.Int64}), works


def test_building_out_of_core_gives_the_same_arrays(dense, tmp_path):
    in_memory = build_graph(*dense)
    spilled = build_graph(*dense, memory_limit_mb=1)  # five blocks, arrays in files that are gone already
    assert isinstance(spilled.refs, np.memmap)
    assert_same(in_memory, spilled)
    assert_same(in_memory, build_graph(*dense, memory_limit_mb=1, cache_dir=tmp_path))


def test_the_cache_is_found_again_by_content_and_not_by_row_order(dense, tmp_path):
    citations, works = dense
    first = build_graph(citations, works, cache_dir=tmp_path)
    (folder,) = tmp_path.iterdir()
    written = folder.stat().st_mtime_ns
    again = build_graph(citations.reverse(), works.reverse(), cache_dir=tmp_path)
    assert_same(first, again)
    assert [folder] == list(tmp_path.iterdir())
    assert folder.stat().st_mtime_ns == written
    build_graph(citations.head(299_999), works, cache_dir=tmp_path)
    build_graph(citations, works.with_columns(pl.col("publication_year") + 1), cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_killed_build_leaves_no_graph_behind_and_the_next_one_cleans_up(dense, tmp_path):
    citations, works = dense
    citations.sink_parquet(tmp_path / "c.parquet")
    works.sink_parquet(tmp_path / "w.parquet")
    program = """
import os, signal, sys
import polars as pl
from pathlib import Path
from sciscidata import graph
home = Path(sys.argv[1])
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
graph._citers_by_time = die
graph.build_graph(pl.scan_parquet(home / "c.parquet"), pl.scan_parquet(home / "w.parquet"), cache_dir=home / "cache")
"""
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, env=dict(os.environ))
    assert killed.returncode == -9
    left = list((tmp_path / "cache").iterdir())
    assert left
    assert all(path.name.startswith(".") for path in left)
    assert_same(build_graph(*dense), build_graph(*dense, cache_dir=tmp_path / "cache"))
    assert [path.name[:6] for path in (tmp_path / "cache").iterdir()] == ["graph-"]


def test_nulls_among_citations_are_dropped():
    citations, works = frames({1: 2000, 2: 2001}, [(2, 1)])
    nulls = pl.LazyFrame({"citing_id": [None, 2], "cited_id": [1, None]}, schema=citations.collect_schema())
    assert_same(build_graph(citations, works), build_graph(pl.concat([citations, nulls]), works))


def test_eager_frames_are_refused_nowhere_and_other_things_are():
    citations, works = frames({1: 2000, 2: 2001}, [(2, 1)])
    assert build_graph(citations.collect(), works.collect()).n_citations == 1
    with pytest.raises(SchemaMismatchError, match="must be a polars LazyFrame or DataFrame, got dict"):
        build_graph({}, works)
