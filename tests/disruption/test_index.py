"""The CD index against PyPI cdindex's values on real graphs, and against plain sets on random ones."""

from __future__ import annotations

import dataclasses
import re
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sciscidata.disruption import counts as cd_counts
from sciscidata.disruption.config import COMPAT, CDConfig
from sciscidata.disruption.index import cache_cd_index, compute_cd_index, score_graph, shard_range
from sciscidata.errors import ConfigError, EmptyInputError, WorkIdError
from sciscidata.graph import year_files
from sciscidata.graph.graph import CitationGraph, build_graph
from sciscidata.schemas import CD_FAMILY, CD_SCORES
from tests import oracles
from tests.real_graphs import read_reference

COUNTS = ["n_i", "n_j", "n_k"]


def frames(years: dict[int, int | None], edges: list[tuple[int, int]]) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    works = pl.LazyFrame(
        {"work_id": list(years), "publication_year": list(years.values())},
        schema={"work_id": pl.Int64, "publication_year": pl.Int32},
    )
    citations = pl.LazyFrame(edges, schema={"citing_id": pl.Int64, "cited_id": pl.Int64}, orient="row")
    return works, citations


@pytest.mark.parametrize(("name", "n_defined"), [("example", 3_137), ("handball", 15_815), ("hepth", 25_835)])
def test_every_count_equals_pypi_cdindex_on_real_graphs(name, n_defined):
    works, citations, expected = read_reference(name)
    ours = compute_cd_index(works, citations, CDConfig.compat("cdindex")).collect()
    both = ours.join(expected, on="work_id", suffix="_expected", validate="1:1")
    assert both.height == expected.height
    for count in COUNTS:
        assert (both[count] == both[f"{count}_expected"].cast(pl.UInt32)).all()
    assert both["cd5"].count() == both["cd_index"].count() == n_defined
    assert both["cd_index"].eq_missing(both["cd5"]).all()


# A small id range and few years make repeats, works that cite themselves, same-year and backward edges common; ids
# above the range of ``years`` are works without a record.
ids = st.integers(1, 14)
years_of_works = st.dictionaries(ids, st.none() | st.integers(1998, 2006), min_size=1)
edge_lists = st.lists(st.tuples(st.integers(1, 18), st.integers(1, 18)), max_size=90)
windows = st.none() | st.integers(1, 6)


@st.composite
def configs(draw) -> CDConfig:
    same_year = draw(st.booleans())
    window = draw(windows)
    window_from = draw(st.sampled_from(["focal", "cited"])) if same_year and window else "focal"
    return CDConfig(
        window_years=window,
        same_year=same_year,
        earlier_citers=same_year and draw(st.booleans()),
        focal_in_n_k=same_year and draw(st.booleans()),
        window_from=window_from,
        focal_citers=draw(st.sampled_from(["window", "any"])) if window_from == "focal" else "window",
        zero_references=draw(st.sampled_from(["null", "keep"])),
        uncited=draw(st.sampled_from(["keep", "null", "null_if_never"])),
        undefined=draw(st.sampled_from(["null", "zero"])),
        family=True,
    )


def of_window(scores: pl.DataFrame, window: int | str | None) -> pl.DataFrame:
    """The columns of one window, under the names that a run of its own gives them."""
    ending = f"_{'all' if window is None else window}"
    columns = {name.removesuffix(ending): name for name in scores.columns if name.endswith(ending)}
    shared = {name: name for name in ("work_id", "n_refs") if name in scores.columns}
    found = scores.select(pl.col(name).alias(alone) for alone, name in (shared | columns).items())
    return found.select(name for name in [*CD_SCORES, *CD_FAMILY, "window_complete"] if name in found.columns)


def assert_equals_oracle(times, edges, config, given=None):
    """Compare what ``config`` scores, and each of its further windows, with plain sets; ``given``: other frames."""
    given = given or frames(times, edges)
    scores = compute_cd_index(*given, config, n_threads=1).collect()
    plain = compute_cd_index(*given, dataclasses.replace(config, family=False), n_threads=1).collect()
    assert plain.equals(scores.select(plain.columns))
    alone = scores.select(
        name for name in scores.columns if not re.search(r"_(\d+(d|mo)?|until\d+|all)$|^window_", name)
    )
    for window, found in [(-1, alone), *((window, of_window(scores, window)) for window in config.windows)]:
        found = found.drop("window_complete", strict=False)
        expected = oracles.cd_family(times, edges, config, window)
        assert set(found["work_id"]) == set(times)
        for row in found.rows(named=True):
            want = expected[row.pop("work_id")]
            if want is None:
                assert all(value is None for name, value in row.items() if name != "n_refs")
            else:
                assert row == want


until = st.integers(1997, 2007).map("until{}".format)


@given(years_of_works, edge_lists, configs(), st.lists(windows | until, unique=True, max_size=4))
@example({9: 1998, 14: 1998}, [(9, 14)], CDConfig(window_years=None, focal_citers="any", family=True), ["until1997"])
@settings(max_examples=80)
def test_every_option_and_window_agrees_with_plain_sets(years, edges, config, further):
    is_fixed = [window is None or isinstance(window, str) for window in further]
    further = tuple(
        one for one, fixed in zip(further, is_fixed, strict=True) if not fixed or config.window_from == "focal"
    )
    assert_equals_oracle(years, edges, dataclasses.replace(config, windows=further))


@pytest.mark.parametrize("name", COMPAT)
@given(years=years_of_works, edges=edge_lists)
@settings(max_examples=30)
def test_every_compat_preset_agrees_with_plain_sets(name, years, edges):
    assert_equals_oracle(years, edges, CDConfig.compat(name, family=True))


@given(years_of_works, edge_lists, configs(), st.randoms())
@settings(max_examples=40)
def test_order_and_repeats_of_rows_change_nothing(years, edges, config, random):
    shuffled = edges * 2
    random.shuffle(shuffled)
    one = compute_cd_index(*frames(years, edges), config).sort("work_id").collect()
    two = compute_cd_index(*frames(dict(reversed(years.items())), shuffled), config).sort("work_id").collect()
    assert one.equals(two)


@given(years_of_works, edge_lists)
@settings(max_examples=40)
def test_one_more_citer_of_the_focal_work_alone_never_lowers_its_index(years, edges):
    focal = min(years)
    years = years | {focal: 2000, 99: 2003}
    before, after = (
        compute_cd_index(*frames(years, e), CDConfig.compat("cdindex")).filter(work_id=focal).collect()["cd_index"][0]
        for e in (edges, [*edges, (99, focal)])
    )
    assert after is not None
    assert before is None or after >= before


def test_stamps_survive_many_focal_works_and_long_reference_lists():
    """More than 255 works in a year wrap the byte stamps; a work with 600 references tests the counted ones."""
    years: dict[int, int | None] = {1000 + i: 2000 for i in range(700)} | dict.fromkeys(range(600), 1990)
    years |= {5000 + i: 2001 + i % 5 for i in range(40)}
    edges = [(1000 + i, j) for i in range(700) for j in range(i % 7)] + [(1699, j) for j in range(600)]
    edges += [(5000 + i, 1000 + (i * 17) % 700) for i in range(40)] + [(5000 + i, 3 * i) for i in range(40)]
    edges += [(5000, j) for j in range(600)] + [(5000, 1699)]
    assert_equals_oracle(years, edges, CDConfig(family=True))


def shares(n_shared: int) -> tuple[dict[int, int | None], list[tuple[int, int]]]:
    """Focal work 100 with ten references, of which its one citer, 200, cites ``n_shared``."""
    years: dict[int, int | None] = dict.fromkeys(range(10), 1990) | {100: 2000, 200: 2001}
    return years, [(100, i) for i in range(10)] + [(200, 100)] + [(200, i) for i in range(n_shared)]


@pytest.mark.parametrize(("n_shared", "n_j5"), [(0, 0), (1, 0), (4, 0), (5, 1), (6, 1)])
def test_di5_counts_a_citer_from_exactly_five_shared_references_on(n_shared, n_j5):
    config = CDConfig(family=True)
    row = compute_cd_index(*frames(*shares(n_shared)), config).filter(work_id=100).collect().row(0, named=True)
    assert (row["n_i"], row["n_j"], row["n_j5"], row["n_shared"]) == (n_shared == 0, n_shared > 0, n_j5, n_shared)
    assert row["di5_index"] == (1.0 if n_shared == 0 else -1.0 if n_j5 else None)


@pytest.mark.parametrize("last_stamp", [1, 40, 100])
def test_the_family_is_the_same_however_often_the_stamps_run_out(monkeypatch, last_stamp):
    """The real limit, 2^32, takes millions of works of one year to reach."""
    years: dict[int, int | None] = dict.fromkeys(range(10), 1990) | {100 + i: 2000 for i in range(60)}
    years |= {200 + i: 2001 for i in range(30)}
    edges = [(100 + i, (i + j) % 10) for i in range(60) for j in range(i % 9)]
    edges += [(200 + i, j) for i in range(30) for j in (*range(i % 10), 100 + i, 159 - i)]
    monkeypatch.setattr("sciscidata.disruption.counts._LAST_STAMP", last_stamp)
    assert_equals_oracle(years, edges, CDConfig(family=True))


def test_a_window_may_reach_past_every_year_of_its_type():
    years: dict[int, int | None] = {1: 2**31 - 3, 2: 2**31 - 2, 3: 2**31 - 1, 4: -(2**31)}
    assert_equals_oracle(years, [(2, 1), (3, 2), (3, 1), (3, 4), (4, 2)], CDConfig(window_years=9_999, family=True))


def test_no_config_means_the_default_one():
    works, citations = frames({1: 1990, 2: 2000, 3: 2001}, [(2, 1), (3, 2)])
    graph = build_graph(works, citations)
    assert score_graph(graph, None).equals(score_graph(graph, CDConfig()))
    assert compute_cd_index(works, citations, None).collect_schema() == CD_SCORES | {"window_complete": pl.Boolean()}


def test_repeated_and_missing_work_ids_and_empty_works_are_refused():
    works, citations = frames({1: 2000}, [(1, 2)])
    with pytest.raises(WorkIdError, match="work_id 1 occurs more than once"):
        compute_cd_index(pl.concat([works, works]), citations).collect()
    with pytest.raises(WorkIdError, match="1 row without a work_id"):
        compute_cd_index(works.with_columns(work_id=pl.lit(None, pl.Int64)), citations).collect()
    with pytest.raises(EmptyInputError, match="WORKS has no row"):
        compute_cd_index(works.clear(), citations).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_years": -1}, "window_years"),
        ({"window_years": 10_000}, "window_years is 10000, needs a whole number from 0 to 9999, or None"),
        ({"window_years": 0}, "holds no year"),
        ({"earlier_citers": True}, "same_year"),
        ({"focal_in_n_k": True}, "same_year"),
        ({"window_from": "cited"}, "same_year"),
        ({"window_from": "cited", "same_year": True, "focal_citers": "any"}, "focal_citers='any' has no effect"),
        ({"zero_references": "nan"}, "zero_references is 'nan', needs one of null, keep"),
    ],
)
def test_impossible_and_contradictory_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        CDConfig(**options)


def test_an_unknown_convention_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"CDConfig.compat is 'cd', needs one of cdindex, wu_wang_evans"):
        CDConfig.compat("cd")
    with pytest.raises(ConfigError, match=re.escape("CDConfig.compat is {'a': 1}, needs one of")):
        CDConfig.compat({"a": 1})


def test_a_misspelt_change_of_a_convention_lists_the_options():
    with pytest.raises(ConfigError, match=r"CDConfig has no option 'windw_years'. Did you mean window_years"):
        CDConfig(windw_years=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigError, match=r"CDConfig has no option 'windw_years'. Did you mean window_years"):
        CDConfig.compat("cdindex", windw_years=3)
    with pytest.raises(ConfigError, match=r"CDConfig has no option 'span'. It has window_years, same_year"):
        CDConfig.compat("cdindex", span=3)


def test_the_published_toy_graph_of_cdindex():
    """README of PyPI cdindex, focal work 4Z, five years: CD = 1/6 and mCD = 5/6."""
    years = dict(enumerate([1992, 1992, 1993, 1993, 1995, 1997, 1998, 1999, 1999, 1998, 1997]))
    edges = [(4, 0), (4, 1), (4, 2), (4, 3), (5, 2), (6, 2), *((citer, 4) for citer in range(6, 11)), (9, 1), (9, 3)]
    config = dataclasses.replace(CDConfig.compat("cdindex"), family=True)
    row = compute_cd_index(*frames(years, edges), config).filter(work_id=4).collect().row(0, named=True)
    assert row["cd_index"] == pytest.approx(1 / 6)
    assert row["mcd_index"] == pytest.approx(5 / 6)


@pytest.fixture(scope="module")
def citing_graph() -> CitationGraph:
    """3,000 works of twelve years and 300 without one, 20,000 citations in any direction."""
    rng = np.random.Generator(np.random.PCG64(3))
    years = rng.integers(1990, 2002, 3_300)
    works = pl.LazyFrame({"work_id": np.arange(3_300), "publication_year": years}).cast({"publication_year": pl.Int32})
    works = works.with_columns(pl.when(pl.col("work_id") < 3_000).then("publication_year"))
    edges = pl.LazyFrame(rng.integers(0, 3_500, (20_000, 2)), schema={"citing_id": pl.Int64, "cited_id": pl.Int64})
    return build_graph(works, edges)


@pytest.mark.parametrize("config", [CDConfig(), CDConfig.compat("novelpy", family=True), CDConfig.compat("pyscisci")])
@given(cuts=st.lists(st.integers(0, 3_300), max_size=5))
@settings(max_examples=15)
def test_scores_of_any_ranges_of_works_are_those_of_the_whole(citing_graph, config, cuts):
    edges = [0, *sorted(cuts), 3_300]
    parts = [score_graph(citing_graph, config, focal=range(a, b)) for a, b in pairwise(edges)]
    assert pl.concat(parts).equals(score_graph(citing_graph, config))


@pytest.mark.parametrize("part", [1, 7, 100, 1_000])
@pytest.mark.parametrize("name", COMPAT)
def test_windows_too_wide_for_the_cache_are_counted_part_by_part(citing_graph, monkeypatch, name, part):
    whole = score_graph(citing_graph, CDConfig.compat(name))
    monkeypatch.setattr("sciscidata.disruption.counts._WIDE_WINDOW", 50)
    monkeypatch.setattr("sciscidata.disruption.counts._PART", part)
    assert score_graph(citing_graph, CDConfig.compat(name)).equals(whole)


@pytest.mark.parametrize("focal", [range(-1, 5), range(5, 2), range(0, 3_301), range(0, 10, 2), (0, 10), 7])
def test_what_is_no_range_of_works_is_refused(citing_graph, focal):
    with pytest.raises(ConfigError, match=r"focal is .* needs a range of indices without gaps, from 0 to 3,300"):
        score_graph(citing_graph, focal=focal)


@pytest.mark.parametrize("n_shards", [1, 2, 7, 5_000])
def test_shards_are_all_works_once_with_about_as_many_references_each(citing_graph, n_shards):
    shards = [shard_range(citing_graph, i, n_shards) for i in range(n_shards)]
    assert shards[0].start == 0
    assert shards[-1].stop == citing_graph.n_known
    assert all(a.stop == b.start for a, b in pairwise(shards))
    offsets = citing_graph.ref_offsets
    sizes = [int(offsets[shard.stop] - offsets[shard.start]) for shard in shards]
    longest = int(np.diff(offsets).max())
    assert max(sizes) <= sum(sizes) / n_shards + longest


@pytest.mark.parametrize(("shard", "n_shards"), [(2, 2), (-1, 2), (0, 0), (True, 2), (0, 1.5)])
def test_a_shard_that_is_none_is_refused(citing_graph, shard, n_shards):
    with pytest.raises(ConfigError, match="from 0 to n_shards - 1"):
        shard_range(citing_graph, shard, n_shards)


def test_offsets_may_lie_beyond_the_reach_of_32_bits(citing_graph, tmp_path):
    """The references lie at the far end of a file of 17 GB that takes no room on the disk."""
    start = 2**32 + 3
    with (tmp_path / "refs").open("wb") as file:
        file.truncate(4 * start)
        file.seek(0, 2)
        citing_graph.refs.tofile(file)
    far = np.memmap(tmp_path / "refs", np.int32, mode="r")
    moved = dataclasses.replace(citing_graph, refs=far, ref_offsets=citing_graph.ref_offsets + start)
    for config in (CDConfig(), CDConfig.compat("novelpy", family=True), CDConfig.compat("pyscisci")):
        assert score_graph(moved, config).equals(score_graph(citing_graph, config))
    assert shard_range(moved, 1, 3) == shard_range(citing_graph, 1, 3)


@pytest.mark.parametrize(
    "config",
    [CDConfig(), CDConfig(windows=(1, None)),
     *(CDConfig.compat(name, family=True) for name in ("novelpy", "pyscisci", "sciscinet_v1_cd5"))],
)  # fmt: skip
def test_scores_are_the_same_if_memory_holds_the_citers_of_a_few_years_only(citing_graph, monkeypatch, config):
    whole = score_graph(citing_graph, config)
    monkeypatch.setattr(cd_counts, "_MOST_HELD", citing_graph.n_citations // 10)
    assert score_graph(citing_graph, config, n_threads=2).equals(whole)


@pytest.mark.parametrize("config", [None, CDConfig.compat("sciscinet_v1_cd5", family=True)])
def test_scores_in_files_are_those_in_memory_and_their_bytes_do_not_depend_on_threads(citing_graph, tmp_path, config):
    one, three = (cache_cd_index(citing_graph, tmp_path / str(n), config, engine=n) for n in (1, 3))
    assert pl.scan_parquet(one / "*.parquet").collect().equals(score_graph(citing_graph, config))
    assert one.name == three.name
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in three.iterdir())
    for path in one.iterdir():
        assert path.read_bytes() == (three / path.name).read_bytes()


def test_another_graph_or_convention_has_a_folder_of_its_own_and_the_same_one_is_used_again(citing_graph, tmp_path):
    first = cache_cd_index(citing_graph, tmp_path)
    written = first.stat().st_mtime_ns
    assert cache_cd_index(citing_graph, str(tmp_path), CDConfig()) == first
    assert first.stat().st_mtime_ns == written
    assert cache_cd_index(citing_graph, tmp_path, CDConfig(window_years=10)) != first
    works, citations = frames({1: 1990, 2: 2000, 3: 2001}, [(2, 1), (3, 2)])
    graph = build_graph(works, citations)
    shifted = build_graph(works.with_columns(pl.col("publication_year") + 1), citations)
    assert cache_cd_index(graph, tmp_path) != cache_cd_index(shifted, tmp_path)


@pytest.mark.parametrize("n_written", [0, 1, 5, 12])
def test_an_interrupted_run_goes_on_after_the_last_year_it_has_written(citing_graph, tmp_path, monkeypatch, n_written):
    whole = cache_cd_index(citing_graph, tmp_path / "whole")
    left = n_written
    write = year_files.write_parquet

    def stop(*given, **options):
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        write(*given, **options)

    monkeypatch.setattr(year_files, "write_parquet", stop)
    with pytest.raises(KeyboardInterrupt):
        cache_cd_index(citing_graph, tmp_path / "scores")
    monkeypatch.undo()
    counted: list[range] = []
    count = cd_counts.Counter.count

    def note(self, focal):
        counted.append(focal)
        return count(self, focal)

    monkeypatch.setattr(cd_counts.Counter, "count", note)
    resumed = cache_cd_index(citing_graph, tmp_path / "scores")
    assert len(counted) == max(12 - n_written, 0)
    assert [path.name for path in (tmp_path / "scores").iterdir()] == [whole.name]
    for path in whole.iterdir():
        assert path.read_bytes() == (resumed / path.name).read_bytes()


def test_works_that_all_lack_a_year_have_files_too(tmp_path):
    graph = build_graph(*frames({1: None, 2: None}, [(2, 1)]))
    folder = cache_cd_index(graph, tmp_path)
    assert pl.read_parquet(folder / "*.parquet").rows() == [(work, *[None] * 5) for work in (1, 2)]
