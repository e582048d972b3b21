"""Own tables in memory: any library of frames, any ids, any years; the results carry the ids that were given."""

from __future__ import annotations

import logging
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import sciscidata as ssd
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError, WorkIdError
from sciscidata.records.ids import number_ids, without_missing
from sciscidata.schemas import CITATIONS, WORKS
from sciscidata.sources.tables.source import TablesConfig, ingest_tables

WORKS_TABLE = {"pid": ["P1", "P2", "P3", "P4"], "year": [1990, 2000, 2001, 2003], "court": ["a", "a", "b", None]}
CITES = {"from": ["P2", "P3", "P4", "P4"], "to": ["P1", "P2", "P2", "P1"]}
NAMES = {"id": "pid", "year": "year", "venue": "court", "citing": "from", "cited": "to"}


class Capsule:
    """A frame of a library that nobody has heard of."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def narwhals_frame(data):
    return pytest.importorskip("narwhals").from_native(pl.DataFrame(data))


def duckdb_relation(data):
    return pytest.importorskip("duckdb").from_arrow(pa.table(data))


LIBRARIES = {
    "polars": pl.DataFrame,
    "polars lazy": pl.LazyFrame,
    "pandas": pd.DataFrame,
    "pandas with the ids as index": lambda data: pd.DataFrame(data).set_index(next(iter(data))),
    "pandas of objects": lambda data: pd.DataFrame(data, dtype=object),
    "arrow": pa.table,
    "capsule": lambda data: Capsule(pa.table(data)),
    "narwhals": narwhals_frame,
    "duckdb": duckdb_relation,
}


@pytest.mark.parametrize("make", LIBRARIES.values(), ids=LIBRARIES)
def test_a_frame_of_any_library_gives_the_same_corpus(make):
    corpus = ssd.from_tables(make(WORKS_TABLE), make(CITES), **NAMES)
    expected = ssd.from_tables(pl.DataFrame(WORKS_TABLE), pl.DataFrame(CITES), **NAMES)
    assert_frame_equal(corpus.works.collect(), expected.works.collect())
    assert_frame_equal(corpus.citations.collect(), expected.citations.collect())


@pytest.mark.parametrize("library", ["polars", "pandas", "arrow"])
def test_a_column_without_a_name_is_left_out(library):
    table = pl.DataFrame({"": [0, 1], "work_id": [1, 2], "publication_year": [1990, 2000], "refs": [None, "1"]})
    frame = {"polars": table, "pandas": table.to_pandas(), "arrow": table.to_arrow()}[library]
    works, citations, facts = ssd.from_tables(frame, references="refs")
    assert works.collect()["work_id"].to_list() == [1, 2]
    assert citations.collect().rows() == [(2, 1)]
    assert "date" not in facts["columns"]


def test_works_have_the_columns_of_works_and_the_id_that_was_given():
    works, citations, facts = ssd.from_tables(pl.DataFrame(WORKS_TABLE), pl.DataFrame(CITES), **NAMES)
    schema = works.collect_schema()
    assert schema.names()[:2] == ["work_id", "original_id"]
    assert {name: dtype for name, dtype in schema.items() if name != "original_id"} == dict(WORKS)
    assert citations.collect_schema() == CITATIONS
    rows = works.collect()
    assert rows["work_id"].is_sorted()
    assert sorted(rows["original_id"]) == ["P1", "P2", "P3", "P4"]
    assert rows["concepts"].to_list() == [[]] * 4
    assert rows["is_retracted"].to_list() == [False] * 4
    assert rows.filter(original_id="P3")["source_name"].item() == "b"
    assert rows["source_id"].null_count() == 1
    assert facts["works"], facts["citations"] == (4, 4)
    assert repr(ssd.from_tables(pl.DataFrame(WORKS_TABLE), pl.DataFrame(CITES), **NAMES)) == (
        "Corpus(tables: 4 works, 4 citations)"
    )


def test_every_measure_returns_the_original_ids():
    works, citations, _ = ssd.from_tables(pd.DataFrame(WORKS_TABLE), pd.DataFrame(CITES), **NAMES)
    for measure in (
        ssd.compute_cd_index, ssd.compute_atypicality, ssd.compute_commonness, ssd.compute_wang_novelty,
    ):  # fmt: skip
        lazy = measure(works, citations)
        scores = lazy.collect()
        assert scores.columns[:2] == ["work_id", "original_id"], measure.__name__
        assert scores.schema == lazy.collect_schema(), measure.__name__
        assert sorted(scores["original_id"]) == WORKS_TABLE["pid"], measure.__name__
    labels = ssd.compute_labels(ssd.compute_cd_index(works, citations)).collect()
    assert labels.columns[:2] == ["work_id", "original_id"]
    drawn = ssd.draw_split(labels.with_columns(disruption_label=pl.lit("neutral")), ssd.SplitConfig(
        n_train=2, n_test=1, balance="none"
    ))  # fmt: skip
    assert drawn["original_id"].is_in(WORKS_TABLE["pid"]).all()


@pytest.mark.parametrize("form", ["P{}", "{}"])
def test_scores_under_ids_of_text_are_those_under_numbers(form):
    works, citations, _ = ssd.scan_example()
    known = ssd.compute_cd_index(works, citations).collect()
    nodes = works.select("work_id", "publication_year").collect().to_pandas()
    nodes["publication_year"] = nodes["publication_year"].astype("float64")  # as pandas has years, once one is missing
    nodes, edges = (
        nodes.assign(work_id=nodes["work_id"].map(form.format)),
        citations.collect().to_pandas().map(form.format),
    )
    corpus = ssd.from_tables(nodes, edges)
    ours = ssd.compute_cd_index(corpus.works, corpus.citations).collect()
    expected = dict(zip(known["work_id"].cast(pl.String).map_elements(form.format), known["cd_index"], strict=True))
    assert dict(ours.select("original_id", "cd_index").iter_rows()) == expected


@pytest.mark.parametrize(
    ("years", "expected"),
    [
        ([2001, None], [2001, None]),
        ([2001.0, float("nan")], [2001, None]),
        (["2001", ""], [2001, None]),
        (["2001-05-06", " 1999.0 "], [2001, 1999]),
        ([date(2001, 5, 6), None], [2001, None]),
        (np.array(["2001-05-06", "NaT"], "datetime64[ns]"), [2001, None]),
    ],
)
def test_years_may_be_numbers_text_or_dates(years, expected, caplog):
    table = pl.DataFrame({"work_id": [1, 2], "publication_year": years})
    works, _, facts = ssd.from_tables(table, pl.DataFrame({"citing_id": [1], "cited_id": [2]}))
    assert works.collect()["publication_year"].to_list() == expected
    assert facts["without_year"] == expected.count(None)
    assert facts["impossible_years"] == 0
    assert not caplog.records


@pytest.mark.parametrize("year", [20001, 0, -5, "05/06/2001", "15.03.1991", 2001.5, 9999, "n.d."])
def test_an_impossible_year_is_null_and_counted_with_one_warning(year, caplog):
    table = pl.DataFrame({"work_id": ["a", "b", "c"], "publication_year": [year, None, type(year)(2001)]})
    with caplog.at_level(logging.WARNING):
        works, _, facts = ssd.from_tables(table, pl.DataFrame({"citing_id": ["a", None], "cited_id": ["b", "b"]}))
    assert works.collect().sort("original_id")["publication_year"].to_list() == [None, None, 2001]
    assert facts["impossible_years"], facts["without_year"] == (1, 2)
    assert facts["citations_without_id"] == 1
    remedy = "; write years as 2001 or 2001-05-09" if isinstance(year, str) else ""
    assert [record.message for record in caplog.records] == [
        f"from_tables: 1 work has a year that is not from 1000 to 2100 (now null; for example {year!r} in column "
        f"'publication_year'{remedy}); 1 citation lacks one of its ids (left out)"
    ]


def test_a_date_gives_the_year_where_there_is_none():
    table = pl.DataFrame({"id": [1, 2], "y": [1999, None], "day": ["2001-01-01", "2002-01-01"]})
    nothing = pl.DataFrame(schema=CITATIONS)
    both = ssd.from_tables(table, nothing, id="id", year="y", date="day").works.collect()
    assert both["publication_year"].to_list() == [1999, 2002]
    assert ssd.from_tables(table, nothing, id="id", date="day").works.collect()["publication_year"].to_list() == [
        2001, 2002,
    ]  # fmt: skip


@pytest.mark.parametrize("references", [[["a", "b"], [], None], ["a|b", "", None], ["a; b", None, None]])
def test_references_may_be_a_column_of_works(references):
    table = pl.DataFrame({"work_id": ["x", "a", "b"], "publication_year": 2000, "refs": references})
    works, citations, facts = ssd.from_tables(table, references="refs")
    names = dict(works.select("work_id", "original_id").collect().iter_rows())
    assert sorted(tuple(map(names.get, row)) for row in citations.collect().rows()) == [("x", "a"), ("x", "b")]
    assert facts["citations"] == 2


def test_a_doi_with_a_semicolon_stays_whole_beside_a_bar():
    dois = ["10.1/16<1661::AID>3.0.CO;2-2", "10.1/b"]
    table = pl.DataFrame({"work_id": ["x", *dois], "publication_year": 2000, "refs": ["|".join(dois), None, None]})
    works, citations, _ = ssd.from_tables(table, references="refs")
    assert set(citations.collect()["cited_id"]) < set(works.collect()["work_id"])


MISTAKES = {
    "no such column": (
        {"id": "pdi"},
        SchemaMismatchError,
        r"no column 'pdi'; it has pid, year, court.*Did you mean pid\?.*ids: id=",
    ),
    "defaults": ({"id": None}, SchemaMismatchError, r"no column 'work_id'; it has pid.*Name the column of ids: id="),
    "other case": ({"year": "Year"}, SchemaMismatchError, r"no column 'Year'.*Did you mean year\?"),
    "no such citation column": (
        {"citing": "frm"},
        SchemaMismatchError,
        r"citations has no column 'frm'.*Did you mean from\?",
    ),
    "no year": (
        {"year": "court", "venue": None},
        SchemaMismatchError,
        r"no work has a year from 1000 to 2100, for example '",
    ),
    "one column twice": ({"venue": "year"}, ConfigError, r"year and venue are both 'year'"),
    "both ends": ({"cited": "from"}, ConfigError, r"citing and cited are both 'from'"),
    "years": ({"year": "flag", "venue": None}, SchemaMismatchError, r"'flag' is Boolean, needs years"),
    "citations twice": ({"references": "court"}, ConfigError, "are both given"),
}


@pytest.mark.parametrize(("changes", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_columns_gets_one_clear_error(changes, error, message):
    table = pl.DataFrame({**WORKS_TABLE, "flag": [True] * 4})
    with pytest.raises(error, match=message):
        ssd.from_tables(table if "flag" in str(changes) else table.drop("flag"), pl.DataFrame(CITES), **NAMES | changes)


def test_null_repeated_and_clashing_ids_are_refused_by_name():
    cites = pl.DataFrame(schema={"citing_id": pl.String, "cited_id": pl.String})
    for ids, message in (
        (["a", None], "1 work has no id"),
        (["a", ""], "1 work has no id"),
        (["a", "a"], "1 id occurs more than once, for example 'a'"),
        (["W7", "7"], "'(W7|7)' and '(W7|7)' have one number, 7"),
    ):
        with pytest.raises(WorkIdError, match=message):
            ssd.from_tables(pl.DataFrame({"work_id": ids, "publication_year": 2000}), cites)
    with pytest.raises(EmptyInputError, match="no row"):
        ssd.from_tables(pl.DataFrame({"work_id": [], "publication_year": []}), cites)


def test_what_is_no_frame_is_refused():
    with pytest.raises(SchemaMismatchError, match=r"works is of type str.*--works FILE"):
        ssd.from_tables("works.csv", pl.DataFrame(CITES))
    mixed = pd.DataFrame({"work_id": [1, "b"], "publication_year": [2000, 2001]})
    with pytest.raises(SchemaMismatchError, match=r"several types.*astype"):
        ssd.from_tables(mixed, pl.DataFrame(CITES), citing="from", cited="to")
    with pytest.raises(ConfigError, match="are both missing"):
        ssd.from_tables(pl.DataFrame(WORKS_TABLE), id="pid", year="year")


def test_columns_with_names_of_works_are_kept(tmp_path):
    table = pl.DataFrame(
        {"work_id": [1, 2], "publication_year": 2000, "doi": ["https://doi.org/10.1/AB", None],
         "is_retracted": ["TRUE", None], "cited_by_count": ["5", None], "language": "en", "n_authors": [3.0, None]}
    )  # fmt: skip
    rows = ssd.from_tables(table, pl.DataFrame(schema=CITATIONS)).works.collect()
    assert rows.select("doi", "is_retracted", "cited_by_count", "language", "n_authors").rows() == [
        ("10.1/ab", True, 5, "en", 3), (None, False, None, "en", None),
    ]  # fmt: skip
    (tmp_path / "w.csv").write_text("work_id,publication_year,n_authors,is_retracted\n1,2000,5.0,yes\n2,2001,,0\n")
    (tmp_path / "c.csv").write_text("citing_id,cited_id\n2,1\n")
    files = TablesConfig(works=(str(tmp_path / "w.csv"),), citations=(str(tmp_path / "c.csv"),))
    read = ingest_tables(files, tmp_path / "corpus").works.select("n_authors", "is_retracted").collect()
    assert read.rows() == [(5, True), (None, False)]
    for cells, message in (("1.5,0", r"'n_authors' holds '1.5', needs whole numbers"), ("1,maybe", "true, false, yes")):
        (tmp_path / "w.csv").write_text(f"work_id,publication_year,n_authors,is_retracted\n1,2000,{cells}\n")
        with pytest.raises(SchemaMismatchError, match=message):
            ingest_tables(files, tmp_path / "failed")
        assert not (tmp_path / "failed").exists()


def test_further_columns_are_kept_on_request_as_they_are():
    table = pl.DataFrame(
        {"pid": ["b", "a", "c"], "year": [2000, 2001, 2002], "court": ["x", "NA", None], "size": [1.5, 2, 3]}
    )
    names = {"id": "pid", "year": "year", "citing": "from", "cited": "to"}
    cites = pl.DataFrame({"from": ["a", "c"], "to": ["b", "a"]})
    for frame in (table, table.to_pandas()):
        works = ssd.from_tables(frame, cites, **names, keep=["court", "size"]).works.collect()
        assert works.columns[-2:] == ["court", "size"]
        assert works.sort("original_id").select("original_id", "court", "size").rows() == [
            ("a", "NA", 2.0), ("b", "x", 1.5), ("c", None, 3.0),
        ]  # fmt: skip
        assert works.drop("court", "size").equals(ssd.from_tables(frame, cites, **names).works.collect())
    scores = ssd.compute_cd_index(works, cites.head(0).rename({"from": "citing_id", "to": "cited_id"}).cast(pl.Int64))
    assert scores.collect_schema().names()[:2] == ["work_id", "original_id"]
    with pytest.raises(SchemaMismatchError, match="lacks column 'courts', which keep names"):
        ssd.from_tables(table, cites, **names, keep=["courts"])
    with pytest.raises(ConfigError, match="needs a list of columns"):
        ssd.from_tables(table, cites, **names, keep="court")
    with pytest.raises(ConfigError, match="keep holds 'title', and WORKS has a column of that name"):
        ssd.from_tables(table.rename({"court": "title"}), cites, **names, keep=["title"])


def test_columns_of_two_measures_of_pairs_stand_side_by_side():
    works, citations, _ = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=500))
    both = ssd.compute_atypicality(works, citations).join(ssd.compute_commonness(works, citations), on="work_id")
    assert {"n_pairs", "commonness_n_pairs"} <= {*both.collect_schema()}
    assert not [name for name in both.collect_schema() if name.endswith("_right")]


LONG = [2**62 + 2, 2**62 + 1, 9_000_000_000_000_000_001, 2**63 - 1, 12]


def _cited_in_turn(ids: list[int], dtype: pl.DataType) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Works of which each cites the two before."""
    number = pl.Series("pid", ids, dtype=dtype)
    works = pl.DataFrame([number, pl.Series("year", range(2_000, 2_000 + len(ids)))])
    pairs = [(later, earlier) for later in range(1, len(ids)) for earlier in range(max(later - 2, 0), later)]
    return works, pl.DataFrame({"from": number[[one for one, _ in pairs]], "to": number[[two for _, two in pairs]]})


@pytest.mark.parametrize("as_frame", [pl.DataFrame, pl.DataFrame.lazy, pl.DataFrame.to_pandas, pl.DataFrame.to_arrow])
@pytest.mark.parametrize(
    ("ids", "dtype"),
    [(LONG, pl.Int64()), (LONG, pl.UInt64()), ([-5, 7, 2**62, 4], pl.Int64()), ([2**64 - 1, *LONG], pl.UInt64())],
)
def test_long_whole_numbers_come_back_as_they_are_and_join(as_frame, ids, dtype):
    works, cites = _cited_in_turn(ids, dtype)
    names = {"id": "pid", "year": "year", "citing": "from", "cited": "to"}
    corpus = ssd.from_tables(as_frame(works), as_frame(cites), **names)
    rows = corpus.works.collect()
    assert {*rows["original_id"].cast(pl.String)} == {*map(str, ids)}
    as_text = [table.with_columns(pl.all().exclude("year").cast(pl.String)) for table in (works, cites)]
    by_text = ssd.from_tables(*as_text, **names)  # text was right before
    assert_frame_equal(rows.with_columns(pl.col("original_id").cast(pl.String)), by_text.works.collect())
    assert_frame_equal(corpus.citations.collect(), by_text.citations.collect(), check_row_order=False)
    scores = ssd.compute_cd_index(corpus.works, corpus.citations).collect()
    assert scores["cd_index"].count() > 1
    mine = works.with_columns(pl.col("pid").cast(rows["original_id"].dtype))
    assert scores.join(mine, left_on="original_id", right_on="pid").height == len(ids)


def test_numbering_leaves_the_ids_of_its_caller_alone():
    ids, words = pl.Series([5, 2**62 + 9, None]), pl.Series(["NA", "b"])
    number_ids(ids)
    without_missing(words)
    assert ids.to_list() == [5, 2**62 + 9, None]
    assert words.to_list() == ["NA", "b"]


def test_a_column_doi_is_read_in_any_case_and_unused_columns_are_listed(tmp_path, caplog):
    works = pl.DataFrame(WORKS_TABLE).with_columns(
        DOI=pl.Series(["https://doi.org/10.1/A", "10.1/b", None, None]), team=1
    )
    with caplog.at_level(logging.INFO):
        corpus = ssd.from_tables(works, pl.DataFrame(CITES), **NAMES)
    assert "from_tables: columns of works that are not used: team" in caplog.messages
    dois = dict(corpus.works.select("original_id", "doi").collect().iter_rows())
    assert dois == {"P1": "10.1/a", "P2": "10.1/b", "P3": None, "P4": None}
    kept = ssd.from_tables(works, pl.DataFrame(CITES), **NAMES, keep=["DOI"]).works.collect()
    assert (kept["doi"].count(), kept["DOI"].count()) == (2, 2)
    both = ssd.from_tables(works.with_columns(doi=pl.lit("10.2/x")), pl.DataFrame(CITES), **NAMES)
    assert {*both.works.collect()["doi"]} == {"10.2/x"}
    works.write_csv(tmp_path / "w.csv")
    pl.DataFrame(CITES).write_csv(tmp_path / "c.csv")
    config = TablesConfig(works=(str(tmp_path / "w.csv"),), citations=(str(tmp_path / "c.csv"),), **NAMES)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        on_disk = ingest_tables(config, tmp_path / "corpus")
    assert dict(on_disk.works.select("original_id", "doi").collect().iter_rows()) == dois
    assert caplog.messages.count("tables: columns of works that are not used: team") == 1


def test_swapped_files_are_named_and_a_work_without_id_names_its_table(tmp_path):
    files = [str(tmp_path / name) for name in ("w.csv", "c.csv")]
    pl.DataFrame(WORKS_TABLE).write_csv(files[0])
    pl.DataFrame(CITES).write_csv(files[1])
    swapped = TablesConfig(works=(files[1],), citations=(files[0],), **NAMES)
    with pytest.raises(SchemaMismatchError, match=r"TablesConfig.works names .*c.csv, .*Swap the two"):
        ingest_tables(swapped, tmp_path / "corpus")
    without = pl.DataFrame(WORKS_TABLE).with_columns(pid=pl.Series([None, "P2", "P3", "P4"]))
    with pytest.raises(WorkIdError, match=r"^from_tables: works: 1 work has no id"):
        ssd.from_tables(without, pl.DataFrame(CITES), **NAMES)
