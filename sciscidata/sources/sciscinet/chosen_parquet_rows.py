"""``read_rows``: read chosen rows of a large Parquet file, and only the pages that hold them.

A column is stored in pages of about a megabyte. The page index, or else the header of each page, gives its position and
number of rows. The pages with wanted rows are copied into a small Parquet file in memory, which pyarrow decodes. No
library does this: pyarrow and Polars decode whole row groups.

The footer and the headers are written in Thrift's compact protocol. A struct is a dict from field number to (type,
value), and a list is (type of the elements, values). Unknown fields pass through unchanged. The numbers of the fields
in use have names below, from parquet.thrift.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

Struct: TypeAlias = dict[int, tuple[int, Any]]

# Types of Thrift.
TRUE, FALSE, _BYTE, _I16, I32, I64, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
_WHOLE: Final = (_I16, I32, I64)


class _File:  # FileMetaData, the footer
    VERSION, SCHEMA, N_ROWS, ROW_GROUPS, _, CREATED_BY = range(1, 7)


class _Element:  # SchemaElement
    TYPE, _, REPETITION, NAME, N_CHILDREN = range(1, 6)


class _Group:  # RowGroup
    COLUMNS, N_BYTES, N_ROWS = range(1, 4)


class _Chunk:  # ColumnChunk
    _, FILE_OFFSET, COLUMN, INDEX_AT, INDEX_LENGTH = range(1, 6)


class _Column:  # ColumnMetaData
    TYPE, ENCODINGS, PATH, CODEC, N_VALUES, N_PLAIN_BYTES, N_BYTES, _, DATA_AT, _, DICTIONARY_AT = range(1, 12)


class _Index:  # OffsetIndex, and PageLocation
    PAGES = 1
    PAGE_AT, PAGE_BYTES, PAGE_FIRST_ROW = range(1, 4)


class _Header:  # PageHeader, and the number of values in the header of either kind of data page
    KIND, _, N_BYTES, _, DATA_V1, _, _, DATA_V2 = range(1, 9)
    N_VALUES = 1


_DATA_PAGES: Final = {0: _Header.DATA_V1, 3: _Header.DATA_V2}  # kinds of page, and the field with the kind's own header
_DICTIONARY: Final = 2  # a kind of page
_REPEATED: Final = 2  # a repetition

MAGIC: Final = b"PAR1"
_HEADER_BYTES: Final = 256
_LONGEST_HEADER: Final = 1 << 24
_TOGETHER_BYTES: Final = 1 << 25  # compressed bytes of pages that are decoded together
#: Errors that a damaged footer or header may cause.
_DAMAGE: Final = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


def parse_struct(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """Parse the struct that begins at byte ``at``; return it and the position behind it.

    A ValueError means another protocol, an IndexError that ``data`` ends too early.

    Example:
        >>> parse_struct(write_struct({1: (I32, -7), 4: (BINARY, b"id"), 30: (LIST, (I64, [1, 300]))}))
        ({1: (5, -7), 4: (8, b'id'), 30: (9, (6, [1, 300]))}, 13)
    """
    fields: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, at = _read_whole(data, at)
        if kind in (TRUE, FALSE):  # the value of a field is in its type
            fields[number] = (kind, kind == TRUE)
        else:
            value, at = _read(data, at, kind)
            fields[number] = (kind, value)
    return fields, at + 1


def write_struct(fields: Mapping[int, tuple[int, Any]]) -> bytes:
    """Write a struct as ``parse_struct`` reads it, with fields in the order of their numbers."""
    out, last = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        step = number - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _whole(number)
        last = number
        if kind not in (TRUE, FALSE):
            out += _write(kind, value)
    return bytes(out) + b"\0"


def _read(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _WHOLE:
        return _read_whole(data, at)
    if kind in (BINARY, _DOUBLE):
        length, at = _read_varint(data, at) if kind == BINARY else (8, at)
        if at + length > len(data):
            raise IndexError(at + length)
        return data[at : at + length], at + length
    if kind == STRUCT:
        return parse_struct(data, at)
    if kind in (TRUE, FALSE, _BYTE):
        return data[at], at + 1
    if kind in (LIST, _SET):
        inner, length = data[at] & 15, data[at] >> 4
        at += 1
        if length == 15:
            length, at = _read_varint(data, at)
        values: list[Any] = []
        for _ in range(length):
            value, at = _read(data, at, inner)
            values.append(value)
        return (inner, values), at
    msg = "Parquet has no maps in its structs" if kind == _MAP else f"no type {kind} in Thrift's compact protocol"
    raise ValueError(msg)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _read_whole(data: bytes, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _write(kind: int, value: Any) -> bytes:  # noqa: ANN401 (kind gives its type)
    if kind == BINARY:
        return _varint(len(value)) + value
    if kind in (LIST, _SET):
        inner, values = value
        head = bytes([min(len(values), 15) << 4 | inner]) + (_varint(len(values)) if len(values) >= 15 else b"")
        return head + b"".join(_write(inner, one) for one in values)
    if kind == _DOUBLE:
        return value
    writers: dict[int, Callable[[Any], bytes]] = {STRUCT: write_struct} | dict.fromkeys(_WHOLE, _whole)
    return writers[kind](value) if kind in writers else struct.pack("B", value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def _whole(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


@dataclass(frozen=True)
class _Page:
    start: int
    size: int
    first_row: int


def read_rows(path: str | Path, columns: Sequence[str], rows: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Read chosen rows and columns of a local Parquet file; pages without a chosen row are not read.

    ``rows`` are positions in the file from 0, ascending, without repeats. A file that is damaged, encrypted, or not
    Parquet is a pyarrow.ArrowInvalid, a nested column a pyarrow.ArrowNotImplementedError.

    Source: the Parquet format, https://parquet.apache.org/docs/file-format/.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     pq.write_table(pa.table({"n": range(1_000), "text": list("abcde") * 200}), f"{home}/t.parquet")
        ...     read_rows(f"{home}/t.parquet", ["text", "n"], np.array([3, 998])).rows()
        [('d', 3), ('d', 998)]
    """
    with Path(path).open("rb", buffering=0) as file:
        try:
            return _read_rows(file, columns, rows)
        except _DAMAGE as error:
            if isinstance(error, pa.ArrowException):
                raise
            msg = f"{path}: its footer or the header of a page cannot be read ({error!r})"
            raise pa.ArrowInvalid(msg) from error


def _read_rows(file: io.FileIO, columns: Sequence[str], rows: npt.NDArray[np.int64]) -> pl.DataFrame:
    footer = _read_footer(file)
    there = dict(_columns(footer))
    if any(_n_children(there[name][1]) or there[name][1][_Element.REPETITION][1] == _REPEATED for name in columns):
        msg = "a column is nested"
        raise pa.ArrowNotImplementedError(msg)
    groups: list[Struct] = footer[_File.ROW_GROUPS][1][1]
    if sum(group[_Group.N_ROWS][1] for group in groups) != footer[_File.N_ROWS][1]:
        msg = "its groups have other numbers of rows than the file"
        raise ValueError(msg)
    found: list[pl.DataFrame] = []
    first = 0
    for group in groups:
        n_rows = group[_Group.N_ROWS][1]
        low, high = np.searchsorted(rows, (first, first + n_rows))
        if low < high:
            inside = rows[low:high] - first
            values: dict[str, pl.Series] = {}
            for name in columns:
                at, element = there[name]
                chunk = group[_Group.COLUMNS][1][1][at]
                values[name] = _read_column(file, footer, element, chunk, n_rows, inside)
            found.append(pl.DataFrame(values))
        first += n_rows
    return pl.concat(found) if found else pl.read_parquet(file.name, columns=list(columns), n_rows=0, glob=False)


def _read_footer(file: io.FileIO) -> Struct:
    end = file.seek(0, os.SEEK_END)
    tail = _read_at(file, max(end - 8, 0), 8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > end - 12:
        msg = "it does not end like Parquet"
        raise ValueError(msg)
    footer = parse_struct(_read_at(file, end - 8 - length, length))[0]
    pq.read_metadata(file.name)  # refuses damaged footers that this loose parser reads as fewer rows
    return footer


def _columns(footer: Struct) -> Iterator[tuple[str, tuple[int, Struct]]]:
    """Yield each column's name with the number of chunks before its first one, and its entry in the schema."""
    elements: list[Struct] = footer[_File.SCHEMA][1][1]
    at, n_chunks = 1, 0
    while at < len(elements):
        first, column = n_chunks, elements[at]
        n_open = 1  # the children of a column follow it, depth first; only leaves have chunks
        while n_open > 0:
            n_children = _n_children(elements[at])
            n_chunks += n_children == 0
            n_open += n_children - 1
            at += 1
        yield column[_Element.NAME][1].decode(), (first, column)


def _n_children(element: Struct) -> int:
    return element.get(_Element.N_CHILDREN, (I32, 0))[1]


def _read_column(
    file: io.FileIO, footer: Struct, element: Struct, chunk: Struct, n_rows: int, rows: npt.NDArray[np.int64]
) -> pl.Series:
    """Read chosen rows of one column of one row group."""
    column = chunk[_Chunk.COLUMN][1]
    found = (column[_Column.TYPE], column[_Column.PATH][1][1], column[_Column.N_VALUES][1])
    if found != (element[_Element.TYPE], [element[_Element.NAME][1]], n_rows):
        msg = "a chunk belongs to another column, or has another number of rows"
        raise ValueError(msg)
    dictionary, pages = _find_pages(file, chunk, n_rows)
    firsts = np.array([page.first_row for page in pages])
    wanted, positions = np.unique(np.searchsorted(firsts, rows, side="right") - 1, return_inverse=True)
    parts: list[pl.Series] = []
    sizes = np.cumsum([pages[number].size for number in wanted])
    for turn in np.unique(sizes // _TOGETHER_BYTES):
        some = np.flatnonzero(sizes // _TOGETHER_BYTES == turn)
        chosen = [pages[number] for number in wanted[some]]
        ends = np.append(firsts[1:], n_rows)[wanted[some]]
        lengths = ends - firsts[wanted[some]]
        here = (positions >= some[0]) & (positions <= some[-1])
        page = positions[here] - some[0]
        before = np.cumsum(lengths) - lengths
        taken = before[page] + rows[here] - firsts[wanted[positions[here]]]
        parts.append(_decode(file, footer, element, column, dictionary, chosen, int(lengths.sum()), taken))
    return pl.concat(parts)


def _find_pages(file: io.FileIO, chunk: Struct, n_rows: int) -> tuple[_Page | None, list[_Page]]:
    """Find the dictionary of a column chunk, if it has one, and its pages of data."""
    column = chunk[_Chunk.COLUMN][1]
    first_data = column[_Column.DATA_AT][1]
    start = column.get(_Column.DICTIONARY_AT, (I64, 0))[1] or first_data  # some writers put 0 for none
    if _Chunk.INDEX_AT in chunk and _Chunk.INDEX_LENGTH in chunk:
        index = parse_struct(_read_at(file, chunk[_Chunk.INDEX_AT][1], chunk[_Chunk.INDEX_LENGTH][1]))[0]
        fields = (_Index.PAGE_AT, _Index.PAGE_BYTES, _Index.PAGE_FIRST_ROW)
        pages = [_Page(*(page[field][1] for field in fields)) for page in index[_Index.PAGES][1][1]]
        dictionary = _Page(start, pages[0].start - start, 0) if start < pages[0].start else None
        return dictionary, pages
    at, end, row = min(start, first_data), min(start, first_data) + column[_Column.N_BYTES][1], 0
    dictionary, pages, length = None, [], 0
    while at < end and row < n_rows:
        header, length = _read_header(file, at, length + _HEADER_BYTES)  # about as long as the last one
        kind, size = header[_Header.KIND][1], length + header[_Header.N_BYTES][1]
        if kind == _DICTIONARY:
            dictionary = _Page(at, size, 0)
        elif kind in _DATA_PAGES:
            pages.append(_Page(at, size, row))
            row += header[_DATA_PAGES[kind]][1][_Header.N_VALUES][1]
        at += size
    if row != n_rows:
        msg = f"pages of {row} rows in a group of {n_rows}"
        raise ValueError(msg)
    return dictionary, pages


def _read_header(file: io.FileIO, at: int, length: int) -> tuple[Struct, int]:
    """Read the header of a page; it is long if it holds the smallest and largest text of the page."""
    while True:
        data = _read_at(file, at, length)
        try:
            return parse_struct(data)
        except IndexError:
            if len(data) < length or length > _LONGEST_HEADER:
                raise
            length *= 4


def _decode(
    file: io.FileIO,
    footer: Struct,
    element: Struct,
    column: Struct,
    dictionary: _Page | None,
    pages: list[_Page],
    n_rows: int,
    taken: npt.NDArray[np.int64],
) -> pl.Series:
    """Write pages of one column into a file in memory, let pyarrow decode it, and take the chosen rows."""
    needed = [*([] if dictionary is None else [dictionary]), *pages]
    body = b"".join(_read_at(file, page.start, page.size) for page in needed)
    meta = {number: column[number] for number in (_Column.TYPE, _Column.ENCODINGS, _Column.PATH, _Column.CODEC)}
    meta |= {
        _Column.N_VALUES: (I64, n_rows),
        _Column.N_PLAIN_BYTES: (I64, column[_Column.N_PLAIN_BYTES][1]),
        _Column.N_BYTES: (I64, len(body)),
        _Column.DATA_AT: (I64, len(MAGIC) + (0 if dictionary is None else dictionary.size)),
    }
    if dictionary is not None:
        meta[_Column.DICTIONARY_AT] = (I64, len(MAGIC))
    chunk = {_Chunk.FILE_OFFSET: (I64, len(MAGIC)), _Chunk.COLUMN: (STRUCT, meta)}
    group = {
        _Group.COLUMNS: (LIST, (STRUCT, [chunk])),
        _Group.N_BYTES: (I64, column[_Column.N_PLAIN_BYTES][1]),
        _Group.N_ROWS: (I64, n_rows),
    }
    root = {_Element.NAME: (BINARY, b"schema"), _Element.N_CHILDREN: (I32, 1)}
    # The writer stays on record, because pyarrow corrects the faults of some writers.
    new: Struct = {number: footer[number] for number in (_File.VERSION, _File.CREATED_BY) if number in footer}
    new |= {
        _File.SCHEMA: (LIST, (STRUCT, [root, element])),
        _File.N_ROWS: (I64, n_rows),
        _File.ROW_GROUPS: (LIST, (STRUCT, [group])),
    }
    written = write_struct(new)
    small = b"".join([MAGIC, body, written, len(written).to_bytes(4, "little"), MAGIC])
    with pq.ParquetFile(pa.BufferReader(small), page_checksum_verification=True) as read:
        values: Any = read.read(use_threads=False)
    if len(values) != n_rows:
        msg = f"{len(values)} values in pages of {n_rows}"
        raise ValueError(msg)
    # Arrow copies the rows that it takes; Polars would keep whole pages in memory.
    return pl.DataFrame(pl.from_arrow(values.take(pa.array(taken)))).to_series()


def _read_at(file: io.FileIO, at: int, length: int) -> bytes:
    """Read bytes, but no more than the file holds: a damaged footer may ask for more than the memory."""
    length = min(length, file.seek(0, os.SEEK_END) - at)
    file.seek(at)
    parts: list[bytes] = []
    while length > 0 and (part := file.read(length)):  # one call gives no more than 2 GB
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
