"""The compact graph: layout, independence of order and memory, and the cache."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.disruption.index import CDConfig, compute_cd_index
from sciscidata.errors import InputNotFoundError, WorkIdError
from sciscidata.graph import build as graph_build
from sciscidata.graph import graph as graph_module
from sciscidata.graph._kernels import scatter, scatter_citers
from sciscidata.graph.graph import CitationGraph, build_graph, read_graph

BIG = 2**33
ids = st.integers(1, 12).map(lambda i: i * (BIG // 5))  # some above 2^32
years_of_works = st.dictionaries(ids, st.none() | st.integers(1990, 1995), min_size=1)
edge_lists = st.lists(st.tuples(ids, ids), max_size=60)


def frames(years, edges):
    works = pl.LazyFrame(
        {"work_id": list(years), "publication_year": list(years.values())},
        schema={"work_id": pl.Int64, "publication_year": pl.Int32},
    )
    return works, pl.LazyFrame(edges, schema={"citing_id": pl.Int64, "cited_id": pl.Int64}, orient="row")


def assert_same(one: CitationGraph, two: CitationGraph) -> None:
    for field in dataclasses.fields(CitationGraph):
        if field.name in ("n_rows", "n_citing_themselves"):  # counted only where the rows are hashed
            continue
        a, b = getattr(one, field.name), getattr(two, field.name)
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.array_equal(a, b), field.name


def assert_holds(graph: CitationGraph, years, edges) -> None:
    """Compare with the same graph as plain sets."""
    clean = {(a, b) for a, b in edges if a != b}
    ids_ = graph.work_ids.tolist()
    assert sorted(ids_) == sorted({*years, *(i for edge in clean for i in edge)})
    dated = ids_[: graph.n_dated]
    assert dated == sorted((w for w in years if years[w] is not None), key=lambda w: (years[w], w))
    assert ids_[graph.n_dated : graph.n_known] == sorted(w for w in years if years[w] is None)
    assert ids_[graph.n_known :] == sorted(ids_[graph.n_known :])
    for j, year in enumerate(graph.years.tolist()):
        assert {years[w] for w in ids_[graph.year_offsets[j] : graph.year_offsets[j + 1]]} == {year}
    references, citing = set(), set()
    starts, citers = graph.citers_among(range(graph.n_works), n_threads=2)
    assert np.array_equal(starts, graph.citer_offsets)
    for i, work in enumerate(ids_):
        row = graph.refs[graph.ref_offsets[i] : graph.ref_offsets[i + 1]].tolist()
        column = citers[starts[i] : starts[i + 1]].tolist()
        assert row == sorted(set(row))
        assert column == sorted(set(column))
        references |= {(work, ids_[x]) for x in row}
        citing |= {(ids_[x], work) for x in column}
    assert references == citing == clean
    assert graph.n_citations == len(clean)


@given(years_of_works, edge_lists)
@settings(max_examples=60)
def test_both_directions_hold_exactly_the_distinct_citations_in_time_order(years, edges):
    assert_holds(build_graph(*frames(years, edges)), years, edges)


@pytest.mark.parametrize("n_first", [0, 1])
def test_any_number_of_works_without_a_record_finds_room(n_first):
    """The room for new ids grows twice; each citation needs one place or two, from an even or an odd one on."""
    edges = [(1, 10 + i) for i in range(n_first)]
    edges += [(BIG + 2 * i, BIG + 2 * i + 1) for i in range(5_000)] + [(BIG + i, 1) for i in range(0, 10_000, 7)]
    years = {1: 2000, 2: None}
    assert_holds(build_graph(*frames(years, edges)), years, edges)


@given(years_of_works, edge_lists, st.randoms())
@settings(max_examples=40)
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
    return works, pl.LazyFrame(pairs, schema={"citing_id": pl.Int64, "cited_id": pl.Int64})


def test_building_out_of_core_gives_the_same_arrays(dense, tmp_path, monkeypatch):
    in_memory = build_graph(*dense)
    monkeypatch.setattr(graph_module, "_MOST_EDGES", 1 << 16)
    spilled = build_graph(*dense)  # five blocks, arrays in files that are gone already
    assert isinstance(spilled.refs.base, np.memmap)
    assert_same(in_memory, spilled)
    assert_same(in_memory, build_graph(*dense, cache_dir=tmp_path))


def test_the_cache_is_found_again_by_content_and_not_by_row_order(dense, tmp_path):
    works, citations = dense
    first = build_graph(works, citations, cache_dir=tmp_path)
    (folder,) = tmp_path.iterdir()
    written = folder.stat().st_mtime_ns
    again = build_graph(works.reverse(), citations.reverse(), cache_dir=tmp_path)
    assert_same(first, again)
    assert [folder] == list(tmp_path.iterdir())
    assert folder.stat().st_mtime_ns == written
    build_graph(works, citations.head(299_999), cache_dir=tmp_path)
    build_graph(works.with_columns(pl.col("publication_year") + 1), citations, cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_graph_that_an_earlier_version_has_kept_is_found_again(tmp_path):
    years = {30: 2001, 10: 2000, 20: 2001, 5: None, 2**40: 1999}
    build_graph(*frames(years, [(20, 10), (30, 10), (30, 99), (5, 2**40)]), cache_dir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["graph-19bf1372a5b44ecb8bd44027b2b715f8"]


def test_two_scores_of_one_graph_are_collected_together(dense, tmp_path):
    configs = (CDConfig(), CDConfig(window_years=10))
    together = pl.collect_all([compute_cd_index(*dense, config, cache_dir=tmp_path) for config in configs])
    for frame, config in zip(together, configs, strict=True):
        assert frame.equals(compute_cd_index(*dense, config).collect())


def test_works_need_an_id_each_and_no_id_is_the_reserved_one():
    reserved = -(2**63)
    works, citations = frames({1: 2000, 2: 2001}, [(2, 1)])
    for ids_, problem in (([1, 1], "occurs more than once"), ([1, None], "without a work_id"), ([1, reserved], "-2")):
        with pytest.raises(WorkIdError, match=problem):
            build_graph(works.with_columns(work_id=pl.Series(ids_, dtype=pl.Int64)), citations)
    far_apart = pl.LazyFrame({"work_id": [*range(1_000), 0]}).with_columns(publication_year=pl.lit(2000, pl.Int32))
    with pytest.raises(WorkIdError, match="occurs more than once"):
        build_graph(far_apart, citations)
    for edge in ((reserved, 1), (1, reserved)):
        with pytest.raises(WorkIdError, match=r"(citing|cited)_id is -2\^63"):
            build_graph(works, frames({}, [edge])[1])
    assert build_graph(works, frames({}, [(reserved + 1, 1)])[1]).n_citations == 1


KILLED_BUILD = """
import os, signal, sys
import polars as pl
from pathlib import Path
from sciscidata.graph import graph
graph._MOST_EDGES = 1 << 16
home, left = Path(sys.argv[1]), int(sys.argv[2])
def watch(event, given):
    global left
    if event in ("open", "os.rename", "os.mkdir", "shutil.rmtree") and "cache" in str(given[0]):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
frames = pl.scan_parquet(home / "c.parquet"), pl.scan_parquet(home / "w.parquet")
graph.build_graph(*frames, cache_dir=home / "cache")
"""


def killed(home, n_steps: int) -> bool:
    """Build a graph from the frames in ``home``; say whether it was killed before its step ``n_steps`` on the disk."""
    done = subprocess.run([sys.executable, "-c", KILLED_BUILD, str(home), str(n_steps)], check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


def test_a_build_killed_at_any_step_leaves_no_graph_and_the_next_one_makes_the_same(dense, tmp_path):
    for frame, name in zip(dense, ("c.parquet", "w.parquet"), strict=True):
        frame.sink_parquet(tmp_path / name)
    build_graph(*dense, cache_dir=tmp_path / "whole")
    (whole,) = (tmp_path / "whole").iterdir()
    cache = tmp_path / "cache"
    cache.mkdir()
    for n_steps in range(1, 100, 9):
        if not killed(tmp_path, n_steps):
            break
        assert all(path.name.startswith(".") for path in cache.iterdir())
        build_graph(*dense, cache_dir=cache)
        (made,) = cache.iterdir()
        for file in (*whole.iterdir(), *made.iterdir()):
            assert (whole / file.name).read_bytes() == (made / file.name).read_bytes()
        shutil.rmtree(made)
    assert n_steps > 20  # steps were counted at all


@pytest.mark.parametrize("stage", ["_sorted_references", "_citer_offsets"])
def test_an_interrupted_build_does_not_repeat_the_stages_it_has_finished(dense, tmp_path, monkeypatch, stage):
    def interrupt(*_):
        raise KeyboardInterrupt

    def repeat(*_):
        raise AssertionError("begins anew")

    monkeypatch.setattr(graph_build, stage, interrupt)
    with pytest.raises(KeyboardInterrupt):
        build_graph(*dense, cache_dir=tmp_path)
    monkeypatch.undo()
    assert [path.suffix for path in tmp_path.iterdir()] == [".unfinished"]
    stages = ["spool_edges", "_sorted_references", "_citer_offsets"]
    for finished in stages[: stages.index(stage)]:
        monkeypatch.setattr(graph_build, finished, repeat)
    resumed = build_graph(*dense, cache_dir=tmp_path)
    monkeypatch.undo()
    assert_same(build_graph(*dense), resumed)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_neither_threads_nor_buckets_change_an_array(dense, monkeypatch, n_threads):
    whole = build_graph(*dense)
    monkeypatch.setattr(graph_build, "_MIN_BUCKET_WORKS", 64)
    monkeypatch.setattr(graph_build, "_CHUNK_EDGES", 100)
    assert_same(whole, build_graph(*dense, n_threads=n_threads))
    monkeypatch.setattr(graph_module, "_MOST_EDGES", 1 << 16)
    assert_same(whole, build_graph(*dense, n_threads=n_threads))


def test_a_graph_is_opened_from_its_folder_and_from_no_other(dense, tmp_path):
    built = build_graph(*dense, cache_dir=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert_same(built, read_graph(folder))
    (folder / "citers.bin").write_bytes(b"0123")  # earlier versions kept the citers, too
    lines = [*(folder / "SHA256SUMS").read_text().splitlines(), f"{hashlib.sha256(b'0123').hexdigest()}  citers.bin"]
    (folder / "SHA256SUMS").write_text("".join(f"{line}\n" for line in sorted(lines, key=lambda line: line[66:])))
    assert_same(built, read_graph(folder))
    with pytest.raises(InputNotFoundError, match=r"no citation graph in .*graph.json is missing"):
        read_graph(tmp_path)
    facts = folder / "graph.json"
    facts.write_text(facts.read_text().replace('"format_version": 1', '"format_version": 0'))
    with pytest.raises(InputNotFoundError, match="format 0, needs 1"):
        read_graph(folder)


def test_nulls_among_citations_are_dropped():
    works, citations = frames({1: 2000, 2: 2001}, [(2, 1)])
    nulls = pl.LazyFrame({"citing_id": [None, 2], "cited_id": [1, None]}, schema=citations.collect_schema())
    assert_same(build_graph(works, citations), build_graph(works, pl.concat([citations, nulls])))


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
