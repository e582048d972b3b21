"""Windows by exact dates: against plain sets, against PyPI cdindex on HepTh, and from tables and corpora."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata import from_tables
from sciscidata.corpus.folder import open_corpus_graph, scan_corpus
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import cache_cd_index, compute_cd_index, score_graph
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.graph.graph import build_graph, content_hash, read_graph
from sciscidata.schemas import WORKS
from sciscidata.sources.records import RecordsConfig, scan_records
from sciscidata.sources.tables.source import TablesConfig
from sciscidata.stages import ingest, write_cd_index
from tests.disruption.test_index import assert_equals_oracle, configs, edge_lists
from tests.real_graphs import scan_real

BY_DAY = "publication_date"
Dated = dict[int, tuple[int | None, date | None]]


def dated_frames(works: Dated, edges: list[tuple[int, int]]) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    rows = [(work, *times) for work, times in works.items()]
    schema = {"work_id": pl.Int64, "publication_year": pl.Int32, "publication_date": pl.Date}
    ends = {"citing_id": pl.Int64, "cited_id": pl.Int64}
    return pl.LazyFrame(rows, schema=schema, orient="row"), pl.LazyFrame(edges, schema=ends, orient="row")


def day_of(year: int | None, day: date | None) -> date | None:
    """The rule for works with a year only: the middle of the year."""
    return day or (None if year is None else date(year, 7, 1))


# Few days, many of them at the ends of months, so that ties and windows that end on the day are common.
days = st.sampled_from([date(2000, 2, 29), date(2001, 2, 28), date(2001, 3, 1), date(2000, 7, 1), date(2000, 1, 31)])
days |= st.dates(date(1999, 12, 1), date(2003, 3, 1))
dated_works = st.dictionaries(
    st.integers(1, 14), st.tuples(st.none() | st.integers(1999, 2003), st.none() | days), min_size=1
)
windows = st.lists(
    st.sampled_from([1, 2, None, "1d", "29d", "365d", "1mo", "12mo", "30mo", "until2000", "until2001"]),
    unique=True,
    max_size=4,
)


@given(dated_works, edge_lists, configs(), windows)
@settings(max_examples=60)
def test_windows_of_days_months_and_years_agree_with_plain_sets(works, edges, config, chosen):
    fixed = (None, "until2000", "until2001")
    chosen = tuple(w for w in chosen if w not in fixed or config.window_from == "focal")
    config = replace(config, time=BY_DAY, windows=chosen)
    times = {work: day_of(*given) for work, given in works.items()}
    assert_equals_oracle(times, edges, config, dated_frames(works, edges))


@given(dated_works, edge_lists, configs())
@settings(max_examples=40)
def test_years_of_a_graph_by_dates_give_what_a_graph_by_years_gives(works, edges, config):
    """Index order is by day, so the works of a year are still neighbours."""
    by_year = {work: (day_of(*given).year if day_of(*given) else None, given[1]) for work, given in works.items()}
    frames = dated_frames(by_year, edges)
    one, two = (build_graph(*frames), build_graph(*frames, time=BY_DAY))
    assert one.years.tolist() == two.years.tolist()
    assert score_graph(one, config).sort("work_id").equals(score_graph(two, config).sort("work_id"))


def test_a_citer_of_the_same_day_counts_only_with_same_year_and_the_anniversary_is_inside():
    works: Dated = {1: (None, date(1990, 1, 1)), 2: (None, date(2000, 3, 5))}
    works |= {3: (None, date(2000, 3, 5)), 4: (None, date(2005, 3, 5)), 5: (None, date(2005, 3, 6))}
    frames = dated_frames(works, [(2, 1), (3, 2), (4, 2), (5, 2)])
    for same, n in ((False, 1), (True, 2)):
        scores = compute_cd_index(*frames, CDConfig(time=BY_DAY, same_year=same)).filter(work_id=2).collect()
        assert scores["n_i"].item() == n


def test_a_work_with_a_year_only_counts_as_of_the_first_of_july():
    works: Dated = {1: (1990, None), 2: (2000, None), 3: (None, date(2000, 7, 1)), 4: (None, date(2000, 7, 2))}
    works |= {5: (2005, None), 6: (None, date(2005, 7, 2)), 7: (None, None)}
    frames = dated_frames(works, [(2, 1), *((citer, 2) for citer in (3, 4, 5, 6, 7))])
    scores = compute_cd_index(*frames, CDConfig(time=BY_DAY)).filter(work_id=2).collect()
    assert scores["n_i"].item() == 2  # works 4 and 5


def describe(index: pl.Series) -> tuple[int, int, int, float]:
    """Defined values, positive and negative ones, and a sum that depends on which work has which value."""
    weights = pl.Series(np.arange(len(index)) % 1_009)
    return index.count(), (index > 0).sum(), (index < 0).sum(), round((index * weights).sum(), 6)


# What PyPI cdindex 1.0.20 gave in November 2026 for every work of both graphs, with the same time stamps: months on
# HepTh, with 60 and 12 as its time delta; days on the generated graph, with 1,825 and 90.
def test_hepth_by_month_has_the_values_of_pypi_cdindex(shared_data):
    config = CDConfig.compat("cdindex", time=BY_DAY, windows=("60mo", "12mo"))
    works, citations = scan_real("hepth")
    nodes = pl.read_parquet(shared_data / "graph_hepth" / "nodes.parquet")
    month = nodes.select(pl.date("year", "month", 1)).to_series()
    works = works.with_columns(publication_year=pl.lit(None, pl.Int32), publication_date=month)
    scores = compute_cd_index(works, citations, config).sort("work_id").collect()
    assert scores["cd_index"].eq_missing(scores["cd_index_60mo"]).all()
    assert describe(scores["cd_index_60mo"]) == (26_804, 5_277, 16_466, 892_634.179056)
    assert describe(scores["cd_index_12mo"]) == (25_155, 3_198, 14_911, 166_303.3178)


def test_a_generated_graph_by_day_has_the_values_of_pypi_cdindex():
    rng = np.random.Generator(np.random.PCG64(11))
    days = pl.Series(rng.integers(7_305, 14_610, 4_000)).cast(pl.Int32).cast(pl.Date)
    ends = {"citing_id": pl.Int64, "cited_id": pl.Int64}
    edges = pl.LazyFrame(rng.integers(0, 4_000, (40_000, 2)), schema=ends)
    works = pl.LazyFrame({"work_id": np.arange(4_000), "publication_date": days, "publication_year": days.dt.year()})
    config = CDConfig.compat("cdindex", time=BY_DAY, windows=("1825d", "90d"))
    scores = compute_cd_index(works, edges, config).sort("work_id").collect()
    assert describe(scores["cd_index_1825d"]) == (3_957, 3_301, 29, 191_018.492329)
    assert describe(scores["cd_index_90d"]) == (2_859, 466, 14, 135_985.088095)


def test_a_cached_graph_has_its_days_and_another_name_than_one_by_years(tmp_path):
    first = date(1990, 1, 1)
    works: Dated = {i: (None, first + timedelta(days=37 * i % 1_000)) for i in range(300)} | {900: (1995, None)}
    frames = dated_frames(works, [(i, (7 * i + 3) % 301) for i in range(300)])
    graph = build_graph(*frames, time=BY_DAY)
    kept = build_graph(*frames, time=BY_DAY, cache_dir=tmp_path)
    (folder,) = tmp_path.glob("graph-*")
    assert content_hash(graph) == content_hash(kept) == content_hash(read_graph(folder))
    build_graph(*frames, cache_dir=tmp_path)
    assert len(list(tmp_path.glob("graph-*"))) == 2
    config = CDConfig(time=BY_DAY, windows=("100d",))
    scores = pl.scan_parquet(cache_cd_index(kept, tmp_path, config) / "*.parquet").collect()
    assert scores.equals(score_graph(graph, config, n_threads=1))
    shares = [score_graph(graph, config, focal=range(*cut), n_threads=2) for cut in ((0, 150), (150, 301))]
    assert pl.concat(shares).equals(scores)


def test_works_without_dates_and_graphs_by_years_are_refused():
    works, citations = dated_frames({1: (2000, None), 2: (2001, None)}, [(2, 1)])
    config = CDConfig(time=BY_DAY)
    with pytest.raises(SchemaMismatchError, match=r"compute_cd_index: WORKS lacks column 'publication_date' \(Date\)"):
        compute_cd_index(works.drop("publication_date"), citations, config)
    with pytest.raises(SchemaMismatchError, match="column 'publication_date' is String, needs Date"):
        compute_cd_index(works.cast({"publication_date": pl.String}), citations, config)
    with pytest.raises(ConfigError, match=re.escape("build_graph(works, citations, time='publication_date')")):
        score_graph(build_graph(works, citations), config)
    with pytest.raises(ConfigError, match="time is 'month', needs one of publication_year, publication_date"):
        build_graph(works, citations, time="month")


PATENTS = pl.DataFrame(
    {"patent_id": ["P1", "P2", "P3", "P4"], "patent_date": ["1990-05-01", "2000-01-04", "2002-01-04", "2002-01-05"]}
)
CITES = pl.DataFrame({"patent_id": ["P2", "P3", "P4"], "citation_patent_id": ["P1", "P2", "P2"]})


def test_grant_dates_of_patents_are_read_from_tables_and_kept_by_a_corpus(tmp_path):
    roles = {"id": "patent_id", "date": "patent_date", "citing": "patent_id", "cited": "citation_patent_id"}
    works, citations, _ = from_tables(PATENTS, CITES, **roles)
    config = CDConfig(time=BY_DAY, window_years=2, windows=("24mo", "732d"))
    found = compute_cd_index(works, citations, config).filter(original_id="P2").collect()
    assert found.select("n_i", "n_i_24mo", "n_i_732d").row(0) == (1, 1, 2)
    PATENTS.write_csv(tmp_path / "patents.tsv", separator="\t")
    CITES.write_csv(tmp_path / "cites.tsv", separator="\t")
    files = TablesConfig(
        works=(str(tmp_path / "patents.tsv"),), citations=(str(tmp_path / "cites.tsv"),), preset="patentsview"
    )
    corpus = ingest(files, tmp_path / "corpus", cache_dir=tmp_path)
    assert corpus.works.select("publication_date", "title").collect().height == 4
    scores = write_cd_index(tmp_path / "corpus", tmp_path / "cd.parquet", config, cache_dir=tmp_path / "cache")
    assert (
        pl.read_parquet(scores)
        .sort("work_id")
        .equals(compute_cd_index(works, citations, config).sort("work_id").collect())
    )
    graphs = [
        open_corpus_graph(tmp_path / "corpus", cache_dir=tmp_path / "cache", time=time)
        for time in (BY_DAY, "publication_year")
    ]
    assert [graph.days is None for graph in graphs] == [False, True]
    assert scan_corpus(tmp_path / "corpus").works.collect_schema()["publication_date"] == pl.Date()


RECORDS = [
    {"id": "W1", "publication_year": 1990, "publication_date": "1990-02-03"},
    {"id": "W2", "publication_year": 2000, "publication_date": "2000-03-05", "referenced_works": ["W1"]},
    {"id": "W3", "publication_year": 2005, "publication_date": "2005-03-05", "referenced_works": ["W2"]},
    {"id": "W4", "publication_year": 2005, "publication_date": "2005-03-06", "referenced_works": ["W2"]},
    {"id": "W5", "publication_year": 2005, "publication_date": "2005-02-30", "referenced_works": ["W2"]},
    {"id": "W6", "publication_year": 2001, "publication_date": 20010101, "referenced_works": ["W2"]},
]


def test_records_bring_their_dates_if_asked_for(tmp_path):
    (tmp_path / "works.jsonl").write_text("\n".join(map(json.dumps, RECORDS)))
    inputs = (str(tmp_path / "works.jsonl"),)
    config = CDConfig(time=BY_DAY)
    plain = scan_records(RecordsConfig(inputs=inputs))
    assert plain.works.collect_schema() == WORKS
    scanned, pulled = scan_records(RecordsConfig(inputs=inputs, dates=True)), RecordsConfig(inputs=inputs, dates=True)
    corpus = ingest(pulled, tmp_path / "corpus", cache_dir=tmp_path)
    days = [date(1990, 2, 3), date(2000, 3, 5), date(2005, 3, 5), date(2005, 3, 6), None, None]
    for works, citations, _ in (scanned, corpus):
        assert works.sort("work_id").collect()["publication_date"].to_list() == days
        scores = compute_cd_index(works, citations, config).filter(work_id=2).collect()
        assert scores["n_i"].item() == 2  # works 3 and 6; work 5 counts as of July
    ingest(RecordsConfig(inputs=inputs), tmp_path / "plain", cache_dir=tmp_path)
    assert scan_corpus(tmp_path / "plain").works.collect_schema() == WORKS
