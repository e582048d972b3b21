"""Rows by their position out of Parquet files of every make, and how little of a file is read for them."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.sources.sciscinet import chosen_parquet_rows as parquet_pages
from sciscidata.sources.sciscinet.chosen_parquet_rows import (
    BINARY,
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    parse_struct,
    read_rows,
    write_struct,
)

N_ROWS = 20_000
_rng = np.random.default_rng(0)
TABLE = pa.table(
    {
        "id": [f"W{number}" for number in _rng.integers(0, 10**9, N_ROWS)],
        "text": [None if at % 7 == 0 else "x" * int(k) + str(at) for at, k in enumerate(_rng.integers(0, 300, N_ROWS))],
        "number": _rng.random(N_ROWS),
        "language": _rng.choice(["en", "de"], N_ROWS),
        "flag": _rng.random(N_ROWS) < 0.5,
        "nothing": pa.array([None] * N_ROWS, pa.string()),
    }
)
ROWS = pl.DataFrame(pl.from_arrow(TABLE))

COMPRESSIONS = ("none", "snappy", "zstd", "gzip")
MAKES = [
    *itertools.product(COMPRESSIONS, ["1.0", "2.0"], [True, False], [True, False], [None]),
    ("zstd", "1.0", False, True, {"text": "DELTA_LENGTH_BYTE_ARRAY", "id": "DELTA_BYTE_ARRAY"}),
]


@pytest.mark.parametrize(("compression", "version", "dictionary", "index", "encoding"), MAKES)
def test_chosen_rows_equal_those_of_the_whole_file_for_every_writer(
    tmp_path, compression, version, dictionary, index, encoding
):
    pq.write_table(
        TABLE,
        tmp_path / "t.parquet",
        compression=compression,
        data_page_version=version,
        use_dictionary=dictionary,
        write_page_index=index,
        column_encoding=encoding,
        row_group_size=7_000,
        data_page_size=20_000,
    )
    rows = np.sort(np.random.default_rng(1).choice(N_ROWS, 40, replace=False))
    assert read_rows(tmp_path / "t.parquet", ROWS.columns, rows).equals(ROWS[rows])


@pytest.fixture(scope="module")
def written_by_polars(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("polars") / "t.parquet"
    ROWS.write_parquet(path, row_group_size=9_000, data_page_size=20_000)
    return path


@given(rows=st.sets(st.integers(0, N_ROWS - 1), max_size=30))
def test_any_set_of_rows_is_found_in_a_file_of_polars(written_by_polars, rows):
    wanted = np.array(sorted(rows), np.int64)
    assert read_rows(written_by_polars, ["text", "id"], wanted).equals(ROWS.select("text", "id")[wanted])


def test_pages_are_decoded_a_few_at_a_time(tmp_path, monkeypatch):
    pq.write_table(TABLE, tmp_path / "t.parquet", data_page_size=10_000, use_dictionary=False)
    monkeypatch.setattr(parquet_pages, "_TOGETHER_BYTES", 30_000)
    every = np.arange(N_ROWS)
    assert read_rows(tmp_path / "t.parquet", ROWS.columns, every).equals(ROWS)


def test_real_tables_of_duckdb_are_read(shared_data):
    path = shared_data / "sciscinet" / "dartmouth_papers.parquet"
    whole = pl.read_parquet(path)
    rows = np.sort(np.random.default_rng(2).choice(whole.height, 50, replace=False))
    assert read_rows(path, whole.columns, rows).equals(whole[rows])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes by /proc")
@pytest.mark.parametrize("index", [True, False])
def test_one_row_costs_a_page_and_not_its_column(tmp_path, index):
    draw = random.Random(0)
    texts = pa.table({"text": [draw.randbytes(1_000).hex() for _ in range(20_000)]})  # 40 MB in pages of two
    path = tmp_path / "t.parquet"
    pq.write_table(texts, path, use_dictionary=False, compression="none", write_page_index=index)

    def n_read() -> int:
        return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["rchar"])

    read_rows(path, ["text"], np.array([0]))  # what is imported late is read too
    before = n_read()
    found = read_rows(path, ["text"], np.array([12_345]))
    assert n_read() - before < 2_300_000 < path.stat().st_size / 17
    assert found["text"].to_list() == texts["text"].slice(12_345, 1).to_pylist()
    held: Any = found.to_arrow(compat_level=pl.CompatLevel.newest())
    assert held["text"].combine_chunks().get_total_buffer_size() < 10_000  # not the page that it was on


def test_a_long_header_is_read_to_its_end(tmp_path):
    # A header of Arrow's holds the smallest and the largest text of its page where there is no index.
    table = pa.table({"text": [letter * 900 for letter in "abcdef"]})
    pq.write_table(table, tmp_path / "t.parquet", use_dictionary=False)
    assert read_rows(tmp_path / "t.parquet", ["text"], np.array([4]))["text"][0] == "e" * 900


def test_what_cannot_be_read_says_so(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(pa.ArrowInvalid, match=r"t\.parquet: its footer .*does not end like Parquet"):
        read_rows(path, ["text"], np.array([0]))
    pq.write_table(pa.table({"text": ["a"], "list": [[1, 2]]}), path)
    with pytest.raises(pa.ArrowNotImplementedError, match="nested"):
        read_rows(path, ["text", "list"], np.array([0]))
    with pytest.raises(FileNotFoundError):
        read_rows(tmp_path / "none.parquet", ["text"], np.array([0]))


def test_nested_columns_lie_beside_those_that_are_read(tmp_path):
    one = {"authors": [{"name": "A", "works": [1, 2]}, {"name": None, "works": []}], "place": {"x": {"y": 1}, "z": "q"}}
    rows = [{"a": at, **one, "text": f"On {at}", "tags": {"k": "v"}, "b": -at} for at in range(40)]
    struct = pa.struct([("name", pa.string()), ("works", pa.list_(pa.int64()))])
    schema = pa.schema(
        [
            *(("a", pa.int64()), ("authors", pa.list_(struct))),
            ("place", pa.struct([("x", pa.struct([("y", pa.int8())])), ("z", pa.string())])),
            *(("text", pa.string()), ("tags", pa.map_(pa.string(), pa.string())), ("b", pa.int64())),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "t.parquet", row_group_size=30)
    found = read_rows(tmp_path / "t.parquet", ["b", "text", "a"], np.array([7, 33]))
    assert found.rows() == [(-7, "On 7", 7), (-33, "On 33", 33)]


@pytest.mark.parametrize("index", [True, False])
def test_damage_anywhere_in_a_footer_is_an_error_of_arrow_or_changes_no_row(tmp_path, index):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE.slice(0, 300), path, write_page_index=index, row_group_size=200)
    columns, rows = ["id", "text", "number"], np.array([0, 250])
    whole, expected = path.read_bytes(), read_rows(path, columns, rows)
    rng, footer = np.random.default_rng(3), len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[int(rng.integers(footer, len(whole)))] = int(rng.integers(256))
        path.write_bytes(damaged)
        try:
            assert read_rows(path, columns, rows).equals(expected)
            pq.read_metadata(path)  # no less strict than whoever reads all of it
        except (pa.ArrowException, OSError, pl.exceptions.ComputeError):
            refused += 1
            with pytest.raises((pa.ArrowException, OSError)):
                read_rows(path, columns, rows)
    assert 25 < refused < 295


@pytest.mark.parametrize(
    "change",
    [
        lambda footer: footer[4][1][1].pop(),  # a group of rows
        lambda footer: footer[4][1][1][0][1][1][1].reverse(),  # its chunks
        lambda footer: footer[4][1][1][0][1][1][1][1][3][1].update({5: (6, 199)}),  # the number of values in one
        lambda footer: footer[4][1][1][0][1][1][1][1][3][1].update({1: (5, 1)}),  # its type
        lambda footer: footer.update({3: (6, 301)}),  # the number of rows
    ],
)
def test_a_footer_that_contradicts_itself_is_refused(tmp_path, change):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE.slice(0, 300), path, row_group_size=200)
    whole = path.read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    footer, _ = parse_struct(whole[start:-8])
    change(footer)
    changed = write_struct(footer)
    path.write_bytes(whole[:start] + changed + len(changed).to_bytes(4, "little") + b"PAR1")
    with pytest.raises((pa.ArrowException, OSError)):
        read_rows(path, ["id", "text", "number"], np.array([0, 150]))


def test_a_page_with_a_wrong_checksum_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    draw = random.Random(0)
    table = pa.table({"text": [draw.randbytes(50).hex() for _ in range(400)]})
    pq.write_table(table, path, use_dictionary=False, compression="none", write_page_checksum=True)
    whole = bytearray(path.read_bytes())
    at = whole.index(table["text"][7].as_py().encode())
    whole[at] = ord("x")
    path.write_bytes(whole)
    with pytest.raises((pa.ArrowException, OSError), match="CRC"):
        read_rows(path, ["text"], np.array([7]))


def test_a_length_beyond_the_file_asks_for_no_memory(tmp_path):
    path = tmp_path / "t.bin"
    path.write_bytes(b"12345")
    with path.open("rb", buffering=0) as file:
        assert parquet_pages._read_at(file, 3, 1 << 60) == b"45"
        assert parquet_pages._read_at(file, 9, 4) == parquet_pages._read_at(file, 2, -4) == b""


def test_no_rows_are_an_empty_frame_with_its_columns(tmp_path):
    ROWS.write_parquet(tmp_path / "t.parquet")
    found = read_rows(tmp_path / "t.parquet", ["number", "id"], np.empty(0, np.int64))
    assert (found.columns, found.height) == (["number", "id"], 0)


values = st.deferred(
    lambda: st.one_of(
        st.tuples(st.just(I32), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just(I64), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(BINARY), st.binary(max_size=200)),
        st.sampled_from([(TRUE, True), (FALSE, False)]),
        st.tuples(st.just(STRUCT), structs),
        st.tuples(st.just(LIST), st.tuples(st.just(I64), st.lists(st.integers(0, 9), max_size=20))),
        st.tuples(st.just(LIST), st.tuples(st.just(STRUCT), st.lists(structs, max_size=3))),
    )
)
structs = st.dictionaries(st.integers(1, 300), values, max_size=4)


@given(structs)
def test_a_struct_is_read_back_as_it_was_written(fields):
    written = write_struct(fields)
    assert parse_struct(written + b"and more") == (fields, len(written))
    for end in range(len(written)):
        with pytest.raises(IndexError):
            parse_struct(written[:end])
