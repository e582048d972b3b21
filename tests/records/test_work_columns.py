"""Records read together, by the compiled loop, are those that are read one by one; so are those of Parquet."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from benchmarks.make_snapshot import arrow_table, export_record, synthetic_records
from sciscidata.errors import CorruptRecordError
from sciscidata.records.json_record import read_records
from sciscidata.records.work_columns import SPARE, rows_of_lines, rows_of_records
from sciscidata.sources import record_files
from sciscidata.sources.snapshot import reading
from sciscidata.sources.snapshot.layout import Part
from tests.conftest import example_lines
from tests.records.test_work import LINES, json_values, some_records

URL = "https://openalex.org/"
LISTED = {"display_name": "Dams", "score": 0.5, "level": 0}
ODD = [
    b'{"id":"W1","title":"a","title":"b"}', b'{"id":"W1","\\u0074itle":"escaped"}', b'{"id":"W1","x":[1,]}',
    b'{"id":"W1","x":01}', b'{"id":"W1","x":"\x01"}', b'{"id":"W1","x":"\\x"}', b'{"id":"W1","x":tru}',
    b'{"id":"W1","title":"\\ud83d\\ude00 \\u001c"}', b'{"id":"W1","x":"\\ud83d"}', b'{"id":"W1"},', b'{"id":"W1"}}',
    b'{"id":"W1","publication_year":-5,"cited_by_count":1e3}', b'{"id":"W1","publication_year":10000}',
    b'{"id":"W1","doi":"DOI: 10.1/\xc3\x9c"}', b'{"id":"W1","doi":"https://doi.org/10.1/\xc4\xb0 "}',
    b'{"id" : "W1" , "title" : " \xe2\x80\x83 x\xc2\xa0" }', b'{"id":"W1","x":' + b"[" * 40 + b"]" * 40 + b"}",
    b'[{"id":"W2"},3]', b'{"results":[{"id":"W2"},{"id":"W3"}]}', b'{"results":[]}',
    b'{"id":"W1","abstract_inverted_index":"{\\"a\\":[0]}"}', b'{"id":"W1","abstract_inverted_index":{"\\"":[0]}}',
    *(
        json.dumps({"id": f"{URL}W{number}"} | fields).encode()
        for number, fields in enumerate(
            [
                {"concepts": [LISTED | {"score": score, "display_name": f"c{score}"} for score in (0.5, "0.25", 1, 0)]},
                {"concepts": [LISTED | {"display_name": name} for name in ("b", "a", " a", "", None, "Ü", "ab")] * 2},
                {"concepts": [LISTED | {"score": 0.1 + n / 1e17} for n in range(9)]},
                {"concepts": [LISTED | {"level": level} for level in ("0", 0.0, None, -0)]},
                {"concepts": [LISTED | {"score": 1e-7}, LISTED | {"score": 10**400}, None]},
                {"topics": [{"display_name": "T", "field": {"display_name": " "}}, {"display_name": "U"}]},
                {"topics": [None, {"field": {"display_name": "F"}}], "primary_topic": {"field": None}},
                {"primary_location": {"source": {"id": None}}, "host_venue": {"id": "V2", "display_name": "then"}},
                {"primary_location": {"source": None}, "host_venue": {"display_name": "then"}},
                {"primary_location": {"source": {"display_name": "now"}}, "host_venue": {"display_name": "then"}},
                {"updated_date": " 2024-01-01", "created_date": "2023-02-03T04"},
                {"id": None, "ids": {"openalex": "W8"}},
                {"authorships": [{"author": {"id": "A1"}}, None, 7, "Poe", [[{}]]], "is_authors_truncated": False},
                {"authorships": [{}, {}], "is_authors_truncated": True},
                {"authorships": [], "is_authors_truncated": 1},
                {"authorships": {"author": {}}},
            ],
            20,
        )
    ),
]  # fmt: skip


def check(lines):
    for pages in (False, True):
        rows, problems, n_blank = rows_of_lines(b"\n".join(lines) + SPARE, len(lines), pages=pages)
        full = [(place, line) for place, line in enumerate(lines) if line.strip()]
        expected = rows_of_records(
            (place, record) for place, line in full for record in read_records(line, pages=pages)
        )
        assert_frame_equal(rows, expected.rows)
        assert [(place, str(error)) for place, error in problems] == [
            (place, str(error)) for place, error in expected.problems
        ]
        assert n_blank == len(lines) - len(full)


@settings(max_examples=25)
@given(st.lists(st.sampled_from([*LINES, *ODD]), min_size=1, max_size=12))
def test_odd_lines_are_read_as_each_alone(lines):
    check(lines)


@pytest.mark.parametrize(
    "block",
    [
        b'{"id":"W1"} {"id":"W2"}\n',  # as many records as lines, but not one in each
        b'{"id":\n"W1"} {"id":"W2"}',
        b'{"id":"W1","concepts":[{},\n{}]} {"id":"W2"}',
        b'{"id":"W1"}\r\n{"id":"W2"}\r\n',
        b'{"id":"W1"} \n\t{"id":"W2"}',
    ],
)
def test_a_line_holds_one_record_or_none_whatever_lies_beside_it(block):
    check(block.split(b"\n"))


def test_real_records_are_read_as_each_alone():
    check(example_lines()[:300])
    loose = [json.dumps(json.loads(line)) for line in example_lines()[:20]]
    check([line.encode() for line in loose])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_changed_records_are_read_as_each_alone(data):
    lines = []
    for record in some_records():
        names = data.draw(st.lists(st.sampled_from(sorted(record)), max_size=3))
        changed = record | {name: data.draw(json_values) for name in names}
        line = bytearray(json.dumps(changed, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "replace"))
        for place in data.draw(st.lists(st.integers(0, len(line) - 1), max_size=2)):
            line[place : place + data.draw(st.integers(0, 2))] = data.draw(
                st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b",", b"{", b"]", b"0", b" "])
            )
        lines += bytes(line).split(b"\n")
    check(lines)


def test_columns_of_parquet_are_read_as_their_rows_would_be(tmp_path, monkeypatch):
    records = [*map(export_record, synthetic_records(240))]
    records[3] |= {"id": "A1", "referenced_works": [f"{URL}W7", None, "S2", "w8", ""]}
    records[4] |= {"id": "w5", "referenced_works": None, "concepts": None, "primary_location": None}
    records[5] |= {"id": None, "doi": "doi:10.1/X", "title": " \x1c ", "publication_year": 0}
    records[6] |= {"authorships": None}
    records[7] |= {"authorships": [None, {"author_position": None}]}
    sizes = [len(record["authorships"] or ()) or None for record in records]
    half = len(records) // 2
    records[half:] = [record | {"topics": [None, *record["topics"]]} for record in records[half:]]
    path = tmp_path / "updated_date=2026-06-01" / "part_0000.parquet"
    path.parent.mkdir()
    pq.write_table(arrow_table(records), path, row_group_size=half)
    part = Part("updated_date=2026-06-01/part_0000.parquet", str(path), "parquet")
    monkeypatch.setattr(reading, "BATCH_WORKS", half)  # a topic that is null makes the second half unusual
    fast = list(reading.read_batches(part))
    monkeypatch.setattr(reading, "leaves_of_batch", lambda batch: None)
    for found, expected in zip(fast, reading.read_batches(part), strict=True):
        assert_frame_equal(found.rows, expected.rows)
        assert [(place, str(error)) for place, error in found.problems] == [
            (place, str(error)) for place, error in expected.problems
        ]
    assert sum(len(batch.problems) for batch in fast) == 2
    assert [n for batch in fast for n in batch.rows["n_authors"]] == sizes[:3] + sizes[4:5] + sizes[6:]


def test_abstracts_that_are_no_text_in_parquet_are_one_clear_error(tmp_path):
    table = arrow_table([*map(export_record, synthetic_records(3))])
    place = table.schema.get_field_index("abstract_inverted_index")
    path = tmp_path / "part_0000.parquet"
    pq.write_table(table.set_column(place, "abstract_inverted_index", [[1, 2, 3]]), path)
    part = Part("updated_date=2026-06-01/part_0000.parquet", str(path), "parquet")
    with pytest.raises(CorruptRecordError, match="abstract_inverted_index of the Parquet file has type int64, needs"):
        list(reading.read_batches(part))


def test_parquet_is_read_the_same_with_any_row_groups(tmp_path, monkeypatch):
    table = arrow_table([export_record(json.loads(line)) for line in example_lines()[:240]])
    monkeypatch.setattr(record_files, "BATCH_WORKS", 100)
    found = []
    for size in (len(table), 70, 100, 1):
        part = Part("updated_date=2026-06-01/part_0000.parquet", str(tmp_path / f"{size}.parquet"), "parquet")
        pq.write_table(table, part.path, row_group_size=size)
        found.append(list(reading.read_batches(part)))
    for others in found[1:]:
        for batch, other in zip(found[0], others, strict=True):
            assert_frame_equal(batch.rows, other.rows)
