"""Who wrote which work, from every source that says it."""

from __future__ import annotations

import gzip
import json
import logging
import re
from pathlib import Path

import polars as pl
import pytest

from sciscidata import ExampleConfig, ExportsConfig, RecordsConfig, SnapshotConfig, scan_authors, scan_exports
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.sources.example.source import AUTHORS_FILE


def record(work: int, *authors: int | None, **other) -> dict:
    listed = [{"author": {"id": author and f"https://openalex.org/A{author}"}} for author in authors]
    return {"id": f"https://openalex.org/W{work}", "authorships": listed, "referenced_works": [], **other}


def pairs(source, **columns) -> list[tuple]:
    return sorted(scan_authors(source, **columns).collect().rows())


def test_authors_of_the_example_are_those_of_its_records(shared_data):
    records = RecordsConfig(inputs=(str(shared_data / "openalex" / "synergy_A.works.jsonl.gz"),))
    assert pairs(records) == pairs(ExampleConfig())
    assert AUTHORS_FILE.stat().st_size < 120_000


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
    assert "left out 1 author with no id" in caplog.text
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
        (SnapshotConfig(folder="s3://openalex"), {}, ConfigError, "a copy on this machine"),
    ],
)
def test_what_has_no_authors_is_refused_with_what_to_do(source, columns, error, message):
    with pytest.raises(error, match=message):
        scan_authors(source, **columns)


def test_records_without_authors_are_an_error_that_says_what_to_ask_for(tmp_path):
    (tmp_path / "works.jsonl").write_text(json.dumps(record(1)), "utf-8")
    with pytest.raises(EmptyInputError, match=re.escape("field authorships")):
        scan_authors(RecordsConfig(inputs=(str(tmp_path / "works.jsonl"),))).collect()
