"""A few rows out of a large Parquet file: only the pages are read that hold one of them.

A column lies in pages, of a megabyte or two where the writer had no other wish. Where each page is, and how many rows
it has, stands in the page index, or else in the header of every page: these are read, and what lies between is passed
over. The pages wanted are put into a small Parquet file in memory, which pyarrow then reads like any other: decoding is
left to it.
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

# ---------- Thrift's compact protocol, as far as the footer and the page headers of Parquet use it: bytes to structs and back.
#
# A struct is a dict from field number to (type, value), a list is (type of the elements, values); nothing is named, so
# what a newer writer adds passes through.


Struct: TypeAlias = dict[int, tuple[int, Any]]

TRUE: Final = 1
FALSE: Final = 2
I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12

_BYTE: Final = 3
_WHOLE: Final = (4, I32, I64)
_DOUBLE: Final = 7
_MAP: Final = 11


def parse_struct(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """Parse the struct that begins at a byte; give it and the byte after it.

    Raises:
        ValueError: no such protocol. An IndexError means that ``data`` ends too early.

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
    """Write a struct as ``parse_struct`` reads it, its fields in the order of their numbers."""
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
    if kind == BINARY:
        length, at = _read_varint(data, at)
        if at + length > len(data):
            raise IndexError(at + length)
        return data[at : at + length], at + length
    if kind == STRUCT:
        return parse_struct(data, at)
    if kind in (TRUE, FALSE, _BYTE):
        return data[at], at + 1
    if kind == _DOUBLE:
        if at + 8 > len(data):
            raise IndexError(at + 8)
        return data[at : at + 8], at + 8
    if kind in (LIST, LIST + 1):  # a set is written as a list is
        return _read_list(data, at)
    if kind == _MAP:
        msg = "Parquet has no maps in its structs"
        raise ValueError(msg)
    msg = f"no type {kind} in Thrift's compact protocol"
    raise ValueError(msg)


def _read_list(data: bytes, at: int) -> tuple[tuple[int, list[Any]], int]:
    kind, length = data[at] & 15, data[at] >> 4
    at += 1
    if length == 15:
        length, at = _read_varint(data, at)
    values: list[Any] = []
    for _ in range(length):
        value, at = _read(data, at, kind)
        values.append(value)
    return (kind, values), at


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


def _write(kind: int, value: Any) -> bytes:  # noqa: ANN401 (its type is in kind)
    if kind == BINARY:
        return _varint(len(value)) + value
    if kind in (LIST, LIST + 1):
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


MAGIC: Final = b"PAR1"
_HEADER_BYTES: Final = 256
_LONGEST_HEADER: Final = 1 << 24
_AT_ONCE: Final = 1 << 25  # bytes of pages, compressed, that are decoded together
_DATA_PAGES: Final = {0: 5, 3: 8}  # types of page, and the field of the header that says how many values there are
_DICTIONARY: Final = 2  # as a type of page
_REPEATED: Final = 2  # as a column's repetition
#: What a footer or a header raises that is other than it should be.
_DAMAGE: Final = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class _Page:
    start: int
    size: int
    first_row: int


def read_rows(path: str | Path, columns: Sequence[str], rows: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Read some rows of some columns of a Parquet file on this machine, and no pages without any of them. Executes.

    Args:
        path: the file.
        columns: names of columns; of one value per row each.
        rows: int64, ascending, without repeats: positions in the file, from 0.

    Returns:
        The columns, one row for each of ``rows``, in their order.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowInvalid: it is damaged, encrypted, or no Parquet.
        pyarrow.ArrowNotImplementedError: one of ``columns`` is nested.

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
    if any(_is_nested(there[name][1]) for name in columns):
        msg = "a column is nested"
        raise pa.ArrowNotImplementedError(msg)
    if sum(group[3][1] for group in footer[4][1][1]) != footer[3][1]:
        msg = "its groups have other numbers of rows than the file"
        raise ValueError(msg)
    found: list[pl.DataFrame] = []
    first = 0
    for group in footer[4][1][1]:
        n_rows = group[3][1]
        low, high = np.searchsorted(rows, (first, first + n_rows))
        if low < high:
            inside = rows[low:high] - first
            values: dict[str, pl.Series] = {}
            for name in columns:
                at, element = there[name]
                values[name] = _read_column(file, footer, element, group[1][1][1][at], n_rows, inside)
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
    pq.read_metadata(file.name)  # refuses what a reading as loose as ours takes for fewer rows
    return footer


def _columns(footer: Struct) -> Iterator[tuple[str, tuple[int, Struct]]]:
    """Give the columns by name: how many chunks lie before those of each, and what the schema says of it."""
    elements: list[Struct] = footer[2][1][1]
    at, n_chunks = 1, 0
    while at < len(elements):
        first, column = n_chunks, elements[at]
        n_open = 1  # what is below a column follows it, depth first; only its leaves have chunks
        while n_open > 0:
            n_children = _n_children(elements[at])
            n_chunks += n_children == 0
            n_open += n_children - 1
            at += 1
        yield column[4][1].decode(), (first, column)


def _is_nested(element: Struct) -> bool:
    return _n_children(element) > 0 or element[3][1] == _REPEATED


def _n_children(element: Struct) -> int:
    return element.get(5, (I32, 0))[1]


def _read_column(
    file: io.FileIO, footer: Struct, element: Struct, chunk: Struct, n_rows: int, rows: npt.NDArray[np.int64]
) -> pl.Series:
    """Read some rows of one column of one row group."""
    column = chunk[3][1]
    if (column[1], column[3][1][1], column[5][1]) != (element[1], [element[4][1]], n_rows):
        msg = "a chunk is of another column than its place says, or of another number of rows"
        raise ValueError(msg)
    dictionary, pages = _find_pages(file, chunk, n_rows)
    firsts = np.array([page.first_row for page in pages])
    wanted, positions = np.unique(np.searchsorted(firsts, rows, side="right") - 1, return_inverse=True)
    parts: list[pl.Series] = []
    sizes = np.cumsum([pages[number].size for number in wanted])
    for turn in np.unique(sizes // _AT_ONCE):
        some = np.flatnonzero(sizes // _AT_ONCE == turn)
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
    column = chunk[3][1]
    first_data = column[9][1]
    start = column.get(11, (I64, 0))[1] or first_data  # some writers put 0 for none
    if 4 in chunk and 5 in chunk:
        index = parse_struct(_read_at(file, chunk[4][1], chunk[5][1]))[0]
        pages = [_Page(page[1][1], page[2][1], page[3][1]) for page in index[1][1][1]]
        dictionary = _Page(start, pages[0].start - start, 0) if start < pages[0].start else None
        return dictionary, pages
    at, end, row = min(start, first_data), min(start, first_data) + column[7][1], 0
    dictionary, pages, length = None, [], 0
    while at < end and row < n_rows:
        header, length = _read_header(file, at, length + _HEADER_BYTES)  # about as long as the last one
        kind, size = header[1][1], length + header[3][1]
        if kind == _DICTIONARY:
            dictionary = _Page(at, size, 0)
        elif kind in _DATA_PAGES:
            pages.append(_Page(at, size, row))
            row += header[_DATA_PAGES[kind]][1][1][1]
        at += size
    if row != n_rows:
        msg = f"pages of {row} rows in a group of {n_rows}"
        raise ValueError(msg)
    return dictionary, pages


def _read_header(file: io.FileIO, at: int, length: int) -> tuple[Struct, int]:
    """Read the header of a page; it may hold the first and the last of its texts, in alphabetical order."""
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
    """Let pyarrow decode pages of one column, as a file that holds nothing else, and take some of their rows."""
    needed = [*([] if dictionary is None else [dictionary]), *pages]
    body = b"".join(_read_at(file, page.start, page.size) for page in needed)
    meta = {number: column[number] for number in (1, 2, 3, 4)}
    meta |= {5: (I64, n_rows), 6: (I64, column[6][1]), 7: (I64, len(body))}
    data_at = len(MAGIC) + (0 if dictionary is None else dictionary.size)
    meta |= {9: (I64, data_at)} | ({} if dictionary is None else {11: (I64, len(MAGIC))})
    group = {
        1: (LIST, (STRUCT, [{2: (I64, len(MAGIC)), 3: (STRUCT, meta)}])),
        2: (I64, column[6][1]),
        3: (I64, n_rows),
    }
    root = {4: (BINARY, b"schema"), 5: (I32, 1)}
    facts: Struct = {number: footer[number] for number in (1, 6) if number in footer}  # who wrote it: some had faults
    facts |= {2: (LIST, (STRUCT, [root, element])), 3: (I64, n_rows), 4: (LIST, (STRUCT, [group]))}
    written = write_struct(facts)
    small = b"".join([MAGIC, body, written, len(written).to_bytes(4, "little"), MAGIC])
    with pq.ParquetFile(pa.BufferReader(small), page_checksum_verification=True) as read:
        values: Any = read.read(use_threads=False)
    if len(values) != n_rows:
        msg = f"{len(values)} values in pages of {n_rows}"
        raise ValueError(msg)
    # Arrow copies what it takes; Polars would keep whole pages for the sake of one text.
    return pl.DataFrame(pl.from_arrow(values.take(pa.array(taken)))).to_series()


def _read_at(file: io.FileIO, at: int, length: int) -> bytes:
    """Read bytes, as many as there are: room for what a damaged footer asks for might not be there."""
    length = min(length, file.seek(0, os.SEEK_END) - at)
    file.seek(at)
    parts: list[bytes] = []
    while length > 0 and (part := file.read(length)):  # one call gives no more than 2 GB
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
