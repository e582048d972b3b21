"""Who wrote which work, from every source that says it."""

from __future__ import annotations

import gzip
import json
import logging
import re
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from sciscidata import (
    CorpusConfig,
    ExampleConfig,
    ExportsConfig,
    RecordsConfig,
    SciSciNetConfig,
    SnapshotConfig,
    SyntheticConfig,
    TablesConfig,
    ingest,
    scan_authors,
    scan_corpus,
    scan_exports,
    verify,
)
from sciscidata.corpus.folder import open_corpus_graph
from sciscidata.errors import (
    ConfigError,
    EmptyInputError,
    ReleaseExistsError,
    SchemaMismatchError,
    StorageError,
    VerificationError,
)
from sciscidata.sources.example.source import AUTHORS_FILE


def record(work: int, *authors: int | None, **other) -> dict:
    listed = [{"author": {"id": author and f"https://openalex.org/A{author}"}} for author in authors]
    return {"id": f"https://openalex.org/W{work}", "authorships": listed, "referenced_works": [], **other}


def pairs(source, **columns) -> list[tuple]:
    return sorted(scan_authors(source, **columns).select("work_id", "author_id").drop_nulls().collect().rows())


def test_authors_of_the_example_are_those_of_its_records(shared_data):
    records = RecordsConfig(inputs=(str(shared_data / "openalex" / "synergy_A.works.jsonl.gz"),))
    assert pairs(records) == pairs(ExampleConfig())
    assert AUTHORS_FILE.stat().st_size < 190_000


def test_records_of_every_shape_give_numbers_and_the_first_of_a_work_counts(tmp_path, caplog):
    lines = [
        json.dumps(record(1, 7, 8, 7)),
        "",
        "{broken",
        json.dumps({"results": [record(2, 7), record(1, 9)]}),
        json.dumps([record(3, None, 5)]),
        json.dumps(record(4, is_authors_truncated=True) | {"authorships": None}),
        json.dumps({"ids": {"openalex": "W5"}, "authorships": [{"author": {"id": "A6"}, "x": float("nan")}]}),
    ]
    (tmp_path / "works.jsonl").write_text("\n".join(lines), "utf-8")
    with caplog.at_level(logging.INFO):
        found = pairs(RecordsConfig(inputs=(str(tmp_path),)))
    assert found == [(1, 7), (1, 8), (2, 7), (3, 5), (5, 6)]
    assert "author_id is null of 1 author with no id" in caplog.text
    assert "1 work has only the first 100 authors" in caplog.text


def test_a_snapshot_of_either_edition_gives_the_same(tmp_path):
    records = [record(1, 7, 8), record(2), record(3, 7)]
    for edition in ("jsonl", "parquet"):
        part = tmp_path / edition / "data" / edition / "works" / "updated_date=2026-01-01"
        part.mkdir(parents=True)
        if edition == "jsonl":
            (part / "part_0000.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
        else:
            years = [one | {"publication_year": 2000} for one in records]
            pl.DataFrame(years, infer_schema_length=None).write_parquet(part / "part_0000.parquet")
        config = SnapshotConfig(folder=str(tmp_path / edition), allow_missing_manifest=True)
        assert pairs(config) == [(1, 7), (1, 8), (3, 7)]


def test_exports_give_names_by_surname_and_initials_or_the_ids_of_scopus(tmp_path):
    text = "PT J\nAU {}\nTI T\nPY 1990\nCR POE E, 1990, MAPS, V7, P1\nUT WOS:{}\nER\n\n"
    plain = tmp_path / "savedrecs.txt"
    plain.write_text(text.format("Poe, EA\n   Müller, J-P", "A") + text.format("POE, Edgar Allan\n   [Anonymous]", "B"))
    by_wos = dict(
        scan_exports(ExportsConfig(files=(str(plain),))).works.select("work_id", "original_id").collect().rows()
    )
    found = [(by_wos[work], author) for work, author in pairs(ExportsConfig(files=(str(plain),)))]
    assert sorted(found) == [("WOS:A", "muller jp"), ("WOS:A", "poe ea"), ("WOS:B", "poe ea")]
    table = tmp_path / "scopus.csv"
    pl.DataFrame(
        {"Authors": ["Poe E.A."], "Author(s) ID": ["57190000; 57191111"], "Title": ["T"], "Year": ["1990"],
         "Source title": ["MAPS"], "References": ["Poe, E. (1990) Dams, Maps"], "EID": ["2-s2.0-1"]}
    ).write_csv(table)  # fmt: skip
    assert [author for _, author in pairs(ExportsConfig(files=(str(table),)))] == ["57190000", "57191111"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["A1|A2", "A1"], [(1, "A1"), (1, "A2"), (2, "A1")]),
        (["Poe, E; Woolf, V", None], [(1, "Poe, E"), (1, "Woolf, V")]),
        (["Poe, E", "NA"], [(1, "Poe, E")]),
        (["['A1', 'A2']", "[]"], [(1, "A1"), (1, "A2")]),
        ([[5, 6], []], [(1, 5), (1, 6)]),
        ([5, 6], [(1, 5), (2, 6)]),
        ([5.0, None], [(1, 5)]),
    ],
)
def test_a_table_may_have_authors_one_a_row_in_lists_or_in_text(values, expected):
    table = pl.DataFrame({"paper": [1, 2], "by": values})
    assert pairs(table, id="paper", authors="by") == expected
    assert pairs(table.to_pandas(), id="paper", authors="by") == expected


def test_a_separator_of_ones_own_parts_authors():
    assert pairs(pl.DataFrame({"id": [1], "by": ["A1,A2"]}), id="id", authors="by", separator=",") == [
        (1, "A1"),
        (1, "A2"),
    ]


@pytest.mark.parametrize(
    ("source", "columns", "error", "message"),
    [
        (Path("works.jsonl"), {}, ConfigError, "RecordsConfig"),
        (pl.DataFrame({"id": [1], "by": ["A1"]}), {}, ConfigError, "id and authors must name"),
        (pl.DataFrame({"id": [1], "by": ["A1"]}), {"id": "id", "authors": "who"}, SchemaMismatchError, "'who'.*id, by"),
        (ExampleConfig(), {"id": "id"}, ConfigError, "Leave them out"),
        (SnapshotConfig(folder="s3://openalex"), {}, ConfigError, "a copy on this machine.*keep_authors=True"),
        (TablesConfig(works=("w.csv",), citations=("c.csv",)), {}, ConfigError, "TablesConfig.authors names no column"),
    ],
)
def test_what_has_no_authors_is_refused_with_what_to_do(source, columns, error, message):
    with pytest.raises(error, match=message):
        scan_authors(source, **columns)


@pytest.mark.parametrize("listed", [False, True])
def test_long_whole_numbers_of_authors_come_back(tmp_path, listed):
    ids = pl.Series("by", [3, 2**62 + 1, 2**64 - 1], dtype=pl.UInt64)
    works = pl.DataFrame([pl.Series("id", [1, 2, 3]), pl.Series("year", [1990, 1991, 1992]), ids])
    works = works.with_columns(pl.concat_list("by")) if listed else works
    works.write_parquet(tmp_path / "works.parquet")
    (tmp_path / "cites.csv").write_text("citing_id,cited_id\n2,1\n")
    files = {"works": (str(tmp_path / "works.parquet"),), "citations": (str(tmp_path / "cites.csv"),)}
    table = scan_authors(TablesConfig(**files, id="id", year="year", authors="by")).collect()
    assert table.rows() == [(1, "3"), (2, str(2**62 + 1)), (3, str(2**64 - 1))]


def test_records_without_authors_are_an_error_that_says_what_to_ask_for(tmp_path):
    (tmp_path / "works.jsonl").write_text(json.dumps(record(1)), "utf-8")
    with pytest.raises(EmptyInputError, match=re.escape("field authorships")):
        scan_authors(RecordsConfig(inputs=(str(tmp_path / "works.jsonl"),))).collect()


def files_of(corpus: Path) -> dict[str, bytes]:
    paths = [path for path in corpus.rglob("*.parquet") if "cache" not in path.parts]
    return {str(path.relative_to(corpus)): path.read_bytes() for path in paths}


def write_snapshot(folder: Path, edition: str, parts: dict[str, list[dict]]) -> SnapshotConfig:
    for name, records in parts.items():
        place = folder / "data" / edition / "works" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if edition == "jsonl":
            place.with_suffix(".gz").write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
        else:
            years = [one | {"publication_year": 2000} for one in records]
            pl.DataFrame(years, infer_schema_length=None).write_parquet(place.with_suffix(".parquet"))
    return SnapshotConfig(folder=str(folder), allow_missing_manifest=True, n_workers=1)


def sources(folder: Path) -> dict[str, object]:
    """One source of each kind that says who wrote a work."""
    text = "PT J\nAU Poe, EA\n   Woolf, V\nTI T\nPY 1990\nCR POE E, 1990, MAPS, V7, P1\nUT WOS:{}\nER\n\n"
    (folder / "savedrecs.txt").write_text(text.format("A") + text.format("B"))
    (folder / "works.jsonl").write_text(json.dumps(record(2, 7, 8)) + "\n" + json.dumps(record(1, 9)), "utf-8")
    (folder / "papers.csv").write_text("paper,year,by\nP1,1990,A1;A2\nP2,2000,A1\nP3,2001,NA\n")
    (folder / "cites.csv").write_text("citing_id,cited_id\nP2,P1\n")
    tables = {"works": (str(folder / "papers.csv"),), "citations": (str(folder / "cites.csv"),)}
    parts = {"updated_date=2026-01-01/part_0000": [record(1, 7, 8), record(2)],
             "updated_date=2026-01-02/part_0000": [record(3, 7, 7), record(4, 5)]}  # fmt: skip
    return {
        "example": ExampleConfig(),
        "records": RecordsConfig(inputs=(str(folder / "works.jsonl"),)),
        "exports": ExportsConfig(files=(str(folder / "savedrecs.txt"),)),
        "tables": TablesConfig(**tables, id="paper", year="year", authors="by"),
        "jsonl": write_snapshot(folder / "lines", "jsonl", parts),
        "parquet": write_snapshot(folder / "columns", "parquet", parts),
    }


@pytest.mark.parametrize("kind", ["example", "records", "exports", "tables", "jsonl", "parquet"])
def test_a_corpus_keeps_the_authors_of_its_source_beside_the_same_files(tmp_path, kind):
    source = sources(tmp_path)[kind]
    with_authors, without = tmp_path / "with", tmp_path / "without"
    ingest(source, with_authors, cache_dir=tmp_path / "cache", keep_authors=True)
    corpus = CorpusConfig(folder=str(with_authors))
    assert pairs(corpus) == pairs(source) != []
    assert scan_corpus(with_authors).provenance["authors"] == scan_authors(source).collect().height
    is_of_parts = kind in ("jsonl", "parquet")  # a snapshot is scanned from its newest part on
    scanned = scan_authors(source).collect()
    assert_frame_equal(scan_authors(corpus).collect(), scanned, check_row_order=not is_of_parts)
    assert verify(with_authors)
    (first,) = scan_authors(corpus).select("author_id").head(1).collect().rows()
    assert first in scan_authors(corpus).select("author_id").collect().rows()
    if kind != "tables":
        ingest(source, without, cache_dir=tmp_path / "cache")
        kept = {name: text for name, text in files_of(with_authors).items() if not name.startswith("authors")}
        assert kept == files_of(without)
        with pytest.raises(ConfigError, match=r"holds no authors.*keep_authors=True"):
            scan_authors(CorpusConfig(folder=str(without)))


def test_a_corpus_of_records_gets_authors_only_if_it_may_be_replaced(tmp_path):
    source, out = sources(tmp_path)["records"], tmp_path / "corpus"
    ingest(source, out, cache_dir=tmp_path)
    with pytest.raises(ReleaseExistsError, match="overwrite=True"):
        ingest(source, out, cache_dir=tmp_path, keep_authors=True)
    ingest(source, out, cache_dir=tmp_path, keep_authors=True, overwrite=True)
    assert pairs(CorpusConfig(folder=str(out))) == [(1, 9), (2, 7), (2, 8)]


def test_a_snapshot_reads_only_parts_again_that_lack_authors(tmp_path, monkeypatch):
    first, second = "updated_date=2026-01-01/part_0000", "updated_date=2026-01-02/part_0000"
    parts = {first: [record(1, 7, 8), record(2, 5)]}
    source, out = write_snapshot(tmp_path / "snapshot", "jsonl", parts), tmp_path / "corpus"
    ingest(source, out, cache_dir=tmp_path, keep_authors=True)
    (old,) = (out / "authors").iterdir()
    before = old.stat().st_mtime_ns
    write_snapshot(tmp_path / "snapshot", "jsonl", {second: [record(2, 6), record(3, 5, None)]})
    ingest(source, out, cache_dir=tmp_path, keep_authors=True)
    assert old.stat().st_mtime_ns == before
    # Work 2 is in both parts, and its newer copy counts.
    assert pairs(CorpusConfig(folder=str(out))) == [(1, 7), (1, 8), (2, 6), (3, 5)]
    ingest(source, out, cache_dir=tmp_path)
    assert not old.exists()
    with pytest.raises(ConfigError, match="holds no authors"):
        scan_authors(CorpusConfig(folder=str(out)))
    ingest(source, out, cache_dir=tmp_path, keep_authors=True)
    assert pairs(CorpusConfig(folder=str(out))) == [(1, 7), (1, 8), (2, 6), (3, 5)]


def test_a_damaged_file_of_authors_is_named_and_made_again(tmp_path):
    source, out = sources(tmp_path)["jsonl"], tmp_path / "corpus"
    ingest(source, out, cache_dir=tmp_path, keep_authors=True)
    whole = pairs(CorpusConfig(folder=str(out)))
    (file, *_) = sorted((out / "authors").iterdir())
    text = file.read_bytes()
    file.write_bytes(text[:40] + bytes([text[40] ^ 1]) + text[41:])
    with pytest.raises(VerificationError, match=file.name):
        verify(out)
    with pytest.raises(StorageError, match=file.name):
        pairs(CorpusConfig(folder=str(out)))
    assert scan_corpus(out).works.collect().height == 4  # which reads no authors
    ingest(source, out, cache_dir=tmp_path, keep_authors=True)
    assert (file.read_bytes(), pairs(CorpusConfig(folder=str(out)))) == (text, whole)


def test_the_graph_of_a_corpus_serves_it_with_authors_too(tmp_path):
    source = sources(tmp_path)["tables"]
    folders = []
    for kept in (source, TablesConfig(works=source.works, citations=source.citations, id="paper", year="year")):
        ingest(kept, tmp_path / str(len(folders)), cache_dir=tmp_path)
        open_corpus_graph(tmp_path / str(len(folders)), cache_dir=tmp_path / "graphs")
        folders.append(sorted(path.name for path in (tmp_path / "graphs").glob("graph-*")))
    assert folders[0] == folders[1]


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (SyntheticConfig(n_works=100), ConfigError, "SyntheticConfig says of no work who wrote it"),
        (SciSciNetConfig(folder="."), ConfigError, "a table of their own.*paperauthoraffiliation"),
        (TablesConfig(works=("w.csv",), citations=("c.csv",)), ConfigError, "TablesConfig.authors names no column"),
    ],
)
def test_authors_that_no_source_says_cannot_be_kept(tmp_path, source, error, message):
    with pytest.raises(error, match=message):
        ingest(source, tmp_path / "corpus", cache_dir=tmp_path, keep_authors=True)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("edition", ["jsonl", "parquet"])
def test_a_source_that_names_no_author_cannot_keep_any(tmp_path, edition):
    parts = {"updated_date=2026-01-01/part_0000": [record(1, None), record(2)]}
    source = write_snapshot(tmp_path / "snapshot", edition, parts)
    with pytest.raises(EmptyInputError, match="without keep_authors"):
        ingest(source, tmp_path / "corpus", cache_dir=tmp_path, keep_authors=True)
