"""Read files of tables in batches: CSV, TSV, JSON, Parquet and Arrow, recognised by their content; compressed, too."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv

from sciscidata._kernels.arrays import read_only
from sciscidata._kernels.strings import text_series
from sciscidata.errors import CorruptRecordError, EmptyInputError
from sciscidata.records.read_lines import count_lines, is_blank, refusal_of, split_lines, whole_lines
from sciscidata.sources.record_files import decompressed_chunks, read_values
from sciscidata.storage.decompression import Chunks
from sciscidata.storage.parquet import is_parquet

_BLOCK_BYTES: Final = 8 << 20
#: Whole lines that are cut into fields at once; then what stands behind them, and how they end.
_LINES_BYTES: Final = 4 << 20
_SPARE: Final = bytes(64)
_LINE_END: Final = b"\n" + _SPARE
_HEAD_BYTES: Final = 1 << 20
_ROWS: Final = 1 << 15
_FIRST_BYTES: Final = 4 << 10
_PACKED: Final = {b"PK\x03\x04": "ZIP", b"\xfd7zXZ\0": "XZ", b"BZh": "bzip2", b"7z\xbc\xaf": "7z", b"Rar!": "RAR"}
#: How a workbook before Excel 2007 begins, and names of what is in later ones.
_OLD_WORKBOOK, _WORKBOOK = b"\xd0\xcf\x11\xe0", (b"xl/", b"opendocument.spreadsheet")
#: How an Arrow IPC file (Feather) and a stream begin.
_ARROW_FILE, _ARROW_STREAM = b"ARROW1\0\0", b"\xff\xff\xff\xff"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_REMEDY: Final = "Mend or remove it, or get the file again."
#: What Polars raises where a file is damaged; a thread of it may panic.
_DAMAGED: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
#: What Polars says of a damaged Parquet file, in the words of a user.
_PLAIN: Final = {
    "Encryption error": "it is encrypted, and no key is known here: save it without encryption",
    "must end with PAR1": "it begins as Parquet does and ends otherwise: it was cut off",
    "File out of specification": "it is damaged inside, and no longer Parquet",
    "ARROW:schema": "it is damaged inside, and no longer Parquet",
    "out-of-spec": "it is damaged inside, and no longer Parquet",
    "straddling object": "a row is longer than 8 MB, or quotes that begin in a field do not end",
}
#: Lines before the names of columns: empty ones, comments, and what a spreadsheet may write into the first one.
_BEFORE_NAMES: Final = re.compile(r'\s*$|#|"?sep=.?"?[,;\t]*\s*$', re.I)
#: The row behind the last one.
_END: Final = "\u2404"
#: How texts begin that are no table: pages, documents, and what stands for a large file in Git.
_NO_TABLE: Final = re.compile(rb"\s*(?:<[!?A-Za-z]|%PDF-|version https://git-lfs)")
#: Bytes that a text does not have: the control characters but tabs, line ends, form feeds and escapes.
_BINARY: Final = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
Advance = Callable[[float], None]


class TableFile:
    """One file: its columns, and batches of some of them.

    The first bytes tell the kind: Parquet, Arrow IPC (Feather), JSON (a list, or an object per line) or text. The
    delimiter of a text is the most frequent one of its first row. Lines with # at its beginning are comments. If the
    first row is all numbers, the last comment has the names (SNAP). Columns without a name, such as the index of
    pandas, are left out. Without ``quotes``, a quote between tabs counts only if the beginning of the file shows quoted
    fields. Else it mostly belongs to a title, and would hide rows.
    """

    def __init__(self, path: Path, *, quotes: bool | None = None) -> None:
        self.path, self._quotes = path, quotes
        self._delimiter, self._n_before = ",", 0  # lines before the first row of data
        self.is_json = False  # then a row need not have every column
        self._schema: dict[str, pl.DataType] = {}
        if is_parquet(path):
            self._read = self._read_parquet
            with self._naming_file():
                self._schema = dict(pl.scan_parquet(path, glob=False, hive_partitioning=False).collect_schema())
        elif _begins_with(path, _ARROW_FILE, _ARROW_STREAM):
            self._read = self._read_arrow
            with self._naming_file():
                self._schema = dict(next(_arrow_batches(path)).schema)
        if self._schema:
            self.columns = [name for name in self._schema if name]
            return
        with self._naming_file():
            head = _head(path)
        refuse_packed(path, head)
        self.is_json = head.lstrip()[:1] in (b"{", b"[")
        if self.is_json:
            lines = [line for line in head.splitlines() if _bare(line)]
            self._read, names = self._read_json, _json_names(lines)
            self._is_by_line = bool(_json_names(lines[:1]))
            if not self._is_by_line:
                with self._naming_file():
                    names = _json_names(row for _, row in islice(self._values(lambda _: None), _ROWS))
        elif found := _BINARY.search(head, 0, _FIRST_BYTES):
            raise CorruptRecordError(
                f"{path} is no table: it begins with {head[:16].decode('latin-1')!a}, and byte {found.start():,} is "
                f"{found[0][0]}, which is in no text. CSV, TSV, JSON, Parquet and Arrow are read."
            )
        elif _NO_TABLE.match(head):
            raise CorruptRecordError(
                f"{path} is no table: it begins with {head.strip()[:40].decode('utf-8', 'replace')!a}. CSV, TSV, JSON, "
                "Parquet and Arrow are read."
            )
        else:
            self._read = self._read_text
            self._names = names = self._text_names(head.decode("utf-8", "replace").splitlines())
        self.columns = [name for name in names if name]

    def dtype_of(self, column: str) -> pl.DataType:
        """Return the type of a column in batches, unless it holds lists."""
        return self._schema.get(column, pl.String())

    def read(self, columns: Sequence[str], advance: Advance = lambda _: None) -> Iterator[pl.DataFrame]:
        """Yield batches of some columns; all but those of Parquet are text. ``a.b`` is a field of a JSON object."""
        with self._naming_file():
            yield from self._read(list(dict.fromkeys(columns)), advance)

    @contextmanager
    def _naming_file(self) -> Generator[None]:
        try:
            yield
        except (CorruptRecordError, *_DAMAGED) as error:
            text = next((mended for found, mended in _PLAIN.items() if found in str(error)), str(error).rstrip("."))
            whole = text if str(self.path) in text else f"{self.path}: {text}. {_REMEDY}"
            raise CorruptRecordError(whole) from error

    def _text_names(self, lines: list[str]) -> list[str]:
        comments = next((n for n, line in enumerate(lines) if not _BEFORE_NAMES.match(line)), None)
        if comments is None:
            raise EmptyInputError(f"{self.path} holds no row. Check the file.")
        first = lines[comments]
        self._delimiter, self._n_before = max(",\t;", key=first.count), comments + 1
        if self._quotes is None:
            self._quotes = self._delimiter != "\t" or _looks_quoted(lines[comments:])
        names = self._split(first)
        stated = self._split(lines[comments - 1].lstrip("# ")) if comments else []
        if len(stated) == len(names) and all(word.strip().isdecimal() for word in names):
            self._n_before = comments
            return stated
        return names

    def _split(self, line: str) -> list[str]:
        style = csv.QUOTE_MINIMAL if self._quotes else csv.QUOTE_NONE
        return [name.strip() for name in next(csv.reader([line], delimiter=self._delimiter, quoting=style), [])]

    def _read_text(self, columns: list[str], advance: Advance) -> Iterator[pl.DataFrame]:
        """Cut plain blocks into fields here. Arrow parses others, and the first one: a small file compiles nothing."""
        blocks, n_rows = _line_blocks(decompressed_chunks(self.path, advance)), 0
        for place, block in enumerate(blocks):
            n_quotes = block.count(b'"') if self._quotes and b'"' in block else 0  # the search alone is fast
            rows = self._cut(block, columns, n_quotes) if place and block.endswith(_LINE_END) else None
            if rows is not None:
                n_rows += rows.height
                yield rows
                continue
            # What is in quotes may reach into the next block.
            parsed = [block] if block.endswith(_LINE_END) and not n_quotes else chain([block], blocks)
            texts = (piece.removesuffix(_SPARE) for piece in parsed)
            for rows in self._parse(texts, columns, *((0, self._n_before + n_rows) if place else (self._n_before, 0))):
                n_rows += rows.height
                yield rows

    def _cut(self, block: bytes, columns: list[str], n_quotes: int) -> pl.DataFrame | None:
        """Return the rows of a block, or None if a line of it is not plain."""
        from sciscidata._kernels.delimited import Lines, cut_fields  # numba takes a while to import

        data = np.frombuffer(block, np.uint8)
        shape = (len(columns), len(block) // len(self._names) + 1)  # at most; only pages with rows take memory
        wanted = np.full(len(self._names), -1)
        for place, name in enumerate(columns):
            wanted[self._names.index(name)] = place  # the first of a name, as Arrow takes
        views, is_null = np.empty((*shape, 4), np.uint32), np.empty(shape, np.bool_)
        lines = Lines(data, data.ctypes.data, len(block) - len(_SPARE), ord(self._delimiter), n_quotes)
        n = cut_fields(lines, read_only(wanted), views, is_null)
        if n < 0:
            return None
        named = enumerate(columns)
        return pl.DataFrame([text_series(name, block, views[at, :n], is_null[at, :n]) for at, name in named])

    def _parse(
        self, chunks: Iterable[bytes], columns: list[str], n_skipped: int, n_before: int
    ) -> Iterator[pl.DataFrame]:
        """Let Arrow parse lines but the first ``n_skipped``; ``n_before`` stand before all of them."""
        found: list[str] = []
        end = f"\n{self._delimiter.join([_END] * len(self._names))}\n".encode()  # inside of quotes, it is no row
        open_quote = "quotes that begin in a field do not end, and would hide the rows behind"
        remedy = (
            f"{_REMEDY} If the file has {'no ' * bool(self._quotes)}fields in quotes, set TablesConfig.quotes="
            f"{not self._quotes}."
        )

        def refuse(row: Any) -> str:  # noqa: ANN401 (pyarrow's InvalidRow)
            at = "" if row.number is None else f"row {row.number + n_before:,}: "
            text = row.text if len(row.text) <= 100 else f"{row.text[:100]}..."
            what = f"{row.actual_columns} fields, the first row has {row.expected_columns} ({text!r})"
            what = open_quote if row.text.endswith(end.decode().strip()) else what
            found.append(f"{self.path}: {at}{what}. {remedy}")
            return "error"

        options = {
            "read_options": pa_csv.ReadOptions(
                block_size=_BLOCK_BYTES, skip_rows=n_skipped, column_names=self._names, use_threads=False
            ),
            "parse_options": pa_csv.ParseOptions(
                delimiter=self._delimiter,
                quote_char=self._quotes and '"',
                newlines_in_values=self._quotes,
                invalid_row_handler=refuse,
            ),
            "convert_options": pa_csv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.large_string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        }
        stream = pa.PythonFile(Chunks(chain(chunks, [end])), "r")
        last: Any = None
        try:
            for batch in pa_csv.open_csv(stream, **options):
                if last is not None:
                    yield last
                rows: Any = pl.from_arrow(batch)
                last = rows.select(pl.all().str.strip_chars())  # as the names of columns
            if last is not None and last.tail(1).row(0) != (_END,) * last.width:
                found.append(f"{self.path}: {open_quote}. {remedy}")
                raise pa.ArrowInvalid(open_quote)
            if last is not None:
                yield last.head(-1)
        except pa.ArrowInvalid as error:
            is_names_alone = "Could not skip initial" in str(error) and self.path.stat().st_size < _BLOCK_BYTES
            if "Empty CSV" in str(error) or is_names_alone:
                return
            if "invalid UTF8" in str(error):
                column = re.search(r"CSV column #(\d+)", str(error))
                where = f"column {self._names[int(column[1])]!r} holds" if column else "it holds"
                found.append(f"{self.path}: {where} text that is no UTF-8. Save the file as UTF-8.")
            raise CorruptRecordError(*found[:1] or (str(error).rstrip("."),)) from error

    def _read_json(self, columns: list[str], advance: Advance) -> Iterator[pl.DataFrame]:
        """Read one object on a line; or any other list, as files of records, which is held."""
        keys = [*dict.fromkeys(name.partition(".")[0] for name in columns)]
        names = {f"f{place}": key for place, key in enumerate(keys)}
        struct = msgspec.defstruct("Row", [(field, Any, None) for field in names], rename=names, gc=False)
        decoder = msgspec.json.Decoder(struct)
        pieces = self._numbered_blocks(advance) if self._is_by_line else self._values(advance)
        rows = (row for number, piece in pieces for row in self._decode(piece, number, decoder))
        while batch := list(islice(rows, _ROWS)):
            yield pl.DataFrame([_column(batch, name, keys) for name in columns])

    def _values(self, advance: Advance) -> Iterator[tuple[int, bytes]]:
        try:
            for number, value in read_values(self.path, advance):
                yield number, value.replace(b"\n", b" ")  # it is one row, and a line end is a blank in JSON
        except CorruptRecordError as error:
            raise CorruptRecordError(
                f"{str(error).partition(' Write one work')[0].rstrip('.')}. Write one object per line: jq -c '.[]'"
            ) from error

    def _numbered_blocks(self, advance: Advance) -> Iterator[tuple[int, bytes]]:
        number = 1
        for block in whole_lines(decompressed_chunks(self.path, advance)):
            yield number, block.removeprefix(_BYTE_ORDER_MARK) if number == 1 else block
            number += 1 + block.count(b"\n")

    def _decode(self, block: bytes, number: int, decoder: Any) -> list[Any]:  # noqa: ANN401
        """Decode whole lines: together, or where something stands between them or is damaged, one by one."""
        try:
            return decoder.decode_lines(block)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
        rows: list[Any] = []
        for line in split_lines(block):
            n_lines = count_lines(line) if is_blank(line) else 1
            if bare := _bare(line):
                try:
                    rows.append(decoder.decode(bare))
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    raise CorruptRecordError(
                        f"{self.path}, line {number:,}: {refusal_of(bare) or error}. {_REMEDY} A row is one JSON "
                        "object on one line."
                    ) from error
            number += n_lines
        return rows

    def _read_parquet(self, columns: list[str], advance: Advance) -> Iterator[pl.DataFrame]:
        rows = pl.scan_parquet(self.path, glob=False, hive_partitioning=False).select(columns)
        yield from rows.collect_batches(maintain_order=True)
        advance(self.path.stat().st_size)

    def _read_arrow(self, columns: list[str], advance: Advance) -> Iterator[pl.DataFrame]:
        yield from _arrow_batches(self.path, columns)
        advance(self.path.stat().st_size)


def _line_blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut text into blocks of whole lines, ``_SPARE`` behind each; only the last or a very long one lacks its end."""
    parts, size = list[bytes | memoryview](), 0
    for chunk in chunks:
        size += len(chunk)
        end = len(chunk) if size > _BLOCK_BYTES else chunk.rfind(b"\n") + 1
        if size < _LINES_BYTES or not end:
            parts.append(chunk)
            continue
        yield b"".join((*parts, memoryview(chunk)[:end], _SPARE))
        parts, size = [chunk[end:]], len(chunk) - end
    if size:
        yield b"".join((*parts, _SPARE))


def refuse_packed(path: Path, head: bytes) -> None:
    """Raise CorruptRecordError if a file begins as a workbook or an archive does."""
    if head.startswith(_OLD_WORKBOOK) or (head.startswith(b"PK") and any(part in head for part in _WORKBOOK)):
        raise CorruptRecordError(f"{path} is a workbook. Save its sheet as 'CSV UTF-8', and name that file.")
    if kind := next((kind for start, kind in _PACKED.items() if head.startswith(start)), None):
        raise CorruptRecordError(
            f"{path} is packed as {kind}. Unpack it, and name the file inside; gzip and Zstandard are read."
        )


def _arrow_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
    """Read an Arrow IPC file (Feather) or stream in batches, of None all named columns; the first has no row."""
    try:
        with pa.memory_map(str(path)) as source:
            if _begins_with(path, _ARROW_STREAM):
                reader: Any = pa.ipc.open_stream(source)
                batches = iter(reader)
            else:
                reader = pa.ipc.open_file(source)
                batches = map(reader.get_batch, range(reader.num_record_batches))
            columns = [name for name in reader.schema.names if name] if columns is None else columns
            fields = pa.schema([reader.schema.field(name).remove_metadata() for name in columns])
            no_rows = pa.record_batch([pa.nulls(0, field.type) for field in reader.schema], schema=reader.schema)
            for batch in chain([no_rows], batches):
                # Polars panics where damaged bytes are no text, in names and metadata too.
                batch.validate(full=True)
                yield pl.DataFrame(pa.Table.from_batches([batch.select(columns)]).cast(fields))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise CorruptRecordError(str(error).rstrip(".")) from error


def _begins_with(path: Path, *magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(8).startswith(magic)


def _head(path: Path) -> bytes:
    """Read the first bytes of a file, decompressed, up to the end of a line."""
    parts, size = list[bytes](), 0
    for chunk in decompressed_chunks(path):
        parts.append(chunk)
        size += len(chunk)
        if size >= _HEAD_BYTES:
            break
    head = b"".join(parts).removeprefix(_BYTE_ORDER_MARK)
    return head if size < _HEAD_BYTES else head[: head.rfind(b"\n") + 1 or None]


def _json_names(lines: Iterable[bytes]) -> list[str]:
    """List the keys of the first objects, those of objects in them as ``a.b``."""
    names: dict[str, None] = {}
    for line in lines:
        try:
            row = msgspec.json.decode(_bare(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        for key, value in row.items() if isinstance(row, dict) else ():
            inner = [f"{key}.{name}" for name in value] if isinstance(value, dict) else []
            names |= dict.fromkeys([key, *inner])
    return [*names]


def _looks_quoted(lines: Sequence[str]) -> bool:
    """Whether fields between tabs are in quotes: the first one, or every field that begins with a quote."""
    begun = [field for line in lines for field in line.split("\t") if field.startswith('"')]
    return lines[0].startswith('"') or (bool(begun) and all(len(field) > 1 and field[-1] == '"' for field in begun))


def _bare(line: bytes) -> bytes:
    """Return the object on a line, without the brackets and commas of a list around it."""
    return line.lstrip(b" \t[,").rstrip(b" \t\r\n],")


def _column(rows: Sequence[Any], name: str, keys: Sequence[str]) -> pl.Series:
    """Take one column of decoded rows as text, or as lists of text; ``a.b`` is in the object a."""
    key, *steps = name.split(".")
    values: list[Any] = [getattr(row, f"f{keys.index(key)}") for row in rows]
    for step in steps:
        values = [value.get(step) if isinstance(value, dict) else None for value in values]
    is_list = isinstance(next((value for value in values if value is not None), None), list)
    texts = [
        None if value is None else [*map(_text, value)] if is_list and isinstance(value, list) else _text(value)
        for value in values
    ]
    return pl.Series(name, pa.array(texts, pa.large_list(pa.large_string()) if is_list else pa.large_string()))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) or value is None else str(value)
