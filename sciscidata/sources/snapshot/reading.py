"""Parse one part of a snapshot, of either edition, in batches of works and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sciscidata.errors import CorruptRecordError
from sciscidata.records.read_lines import (
    DEFAULT_LIMITS,
    Gap,
    ReadLimits,
    count_lines,
    is_blank,
    split_lines,
    too_long,
    whole_lines,
)
from sciscidata.records.work_row import Work, parse_lines, parse_work
from sciscidata.sources.record_files import in_batches, raw_chunks
from sciscidata.sources.snapshot.layout import Part
from sciscidata.storage.decompression import decompress, open_fast_gzip

Advance = Callable[[float], None]
#: A work, or the number of a line and its error.
Read = Work | tuple[int, CorruptRecordError]

#: Works in memory together; also the row group of the written files.
BATCH_WORKS = 4_096
_BATCH_BYTES = 256 << 20  # of their text; 4,096 real works have 30 MB
_TEXT_BYTES = 64 << 20  # of rows that are converted to JSON together, which needs several times as much memory
_SHORT_LINE = 64
_LOOKED_AT = 4_096
_FEW_BYTES = 1 << 16

# The fields that parse_work reads, as paths of Parquet leaves without the levels that only Parquet has.
_LEAVES = {
    "id", "doi", "title", "display_name", "publication_year", "cited_by_count", "language", "type", "is_retracted",
    "is_xpac", "referenced_works", "abstract_inverted_index", "updated_date", "created_date",
    "primary_topic.display_name", "primary_topic.field.display_name",
    "topics.display_name", "topics.field.display_name",
    "concepts.display_name", "concepts.score", "concepts.level",
    "primary_location.source.id", "primary_location.source.display_name", "host_venue.id", "host_venue.display_name",
}  # fmt: skip
# A JSON record may lack any field, but a table without these columns would make them null for all works.
_NEEDED = {"id", "publication_year", "referenced_works"}
_LEVELS = {"list", "element", "item", "array", "bag", "array_element"}


def read_batches(
    part: Part, advance: Advance | None = None, limits: ReadLimits = DEFAULT_LIMITS
) -> Iterator[list[Read]]:
    """Read one part in order, ``BATCH_WORKS`` records at a time, or fewer where they are large.

    Both editions give the same works. ``advance`` gets the bytes of the file as they are read. While reading, a
    CorruptRecordError (its message is only the reason) means that the file is damaged or cut off, or that the gap
    without a work is too long.
    """
    gap = Gap(limits)
    read = _read_jsonl if part.edition == "jsonl" else _read_parquet
    works = read(Path(part.path), advance, limits, gap)
    return in_batches(works, BATCH_WORKS, _BATCH_BYTES, lambda: gap.n_read)


def _read_jsonl(path: Path, advance: Advance | None, limits: ReadLimits, gap: Gap) -> Iterator[Read]:
    number = 0
    is_dense = False  # lines too short for records were met: from now on empty lines are skipped together
    for block in line_blocks(path, advance, limits, gap):
        if isinstance(block, CorruptRecordError):
            number += 1
            yield number, block
            gap.add(0, 1)
            continue
        gap.n_read += len(block)
        has_work = False
        is_dense = is_dense or _looks_dense(block)
        pieces = split_lines(block) if is_dense else (block,)
        for piece in pieces:
            if is_dense and is_blank(piece):
                number += count_lines(piece)
                continue
            works = parse_lines(piece)
            is_dense = is_dense or len(works) * _SHORT_LINE > max(len(block), _FEW_BYTES)
            for work in works:
                number += 1
                if isinstance(work, CorruptRecordError):
                    yield number, work
                    gap.add(0, 1)
                elif work is not None:
                    has_work = True
                    gap.clear()
                    yield work
        if not has_work:
            gap.add(len(block))


def _looks_dense(block: bytes) -> bool:
    """Whether lines at three places are too short for records; counting all lines takes a tenth of the parsing time."""
    starts = (0, len(block) // 2, max(len(block) - _LOOKED_AT, 0))
    return any(block.count(b"\n", at, at + _LOOKED_AT) * _SHORT_LINE > _LOOKED_AT for at in starts)


def line_blocks(
    path: Path, advance: Advance | None = None, limits: ReadLimits = DEFAULT_LIMITS, gap: Gap | None = None
) -> Iterator[bytes | CorruptRecordError]:
    """Read a gzip or plain file in blocks of whole lines, without the end of the last line.

    For a line that is too long it yields a CorruptRecordError; ``gap`` counts its bytes. A damaged file raises one.
    """

    def read() -> Iterator[bytes]:
        for chunk in raw_chunks(path):
            if advance is not None:
                advance(len(chunk))
            yield chunk

    pieces = decompress(read(), open_fast_gzip) if path.suffix == ".gz" else read()
    return whole_lines(pieces, limits, gap or Gap(limits))


def _read_parquet(path: Path, advance: Advance | None, limits: ReadLimits, gap: Gap) -> Iterator[Read]:
    """Convert the needed columns to JSON lines, so that both editions use one parser."""
    number = 0
    size = path.stat().st_size
    try:
        metadata = pq.read_metadata(path)
        columns = _projection(metadata.schema)
        repeating, n_rows = _plan(metadata, columns)
        # Only checksums, if the writer left them, show that a bit has changed.
        with pq.ParquetFile(
            path, metadata=metadata, read_dictionary=repeating, page_checksum_verification=True
        ) as file:
            # updated_date is a column of the file, so the folder of that name must not become one.
            for batch in file.iter_batches(n_rows, columns=columns):
                for rows in _bounded(batch):
                    n_bytes = _text_bytes(rows) if len(rows) == 1 else 0
                    if n_bytes > limits.line_bytes:
                        number += 1
                        yield number, too_long(limits, "record")
                        gap.add(n_bytes)
                        continue
                    plain = pa.schema([field.with_type(_plain_type(field.type)) for field in rows.schema])
                    frame: Any = pl.from_arrow(pa.Table.from_batches([rows]).cast(plain))
                    indexes: list[str | None] = [None] * len(frame)
                    if "abstract_inverted_index" in frame.columns:
                        # Kept apart from the JSON, where it would be escaped and unescaped for nothing.
                        indexes = frame.drop_in_place("abstract_inverted_index").to_list()
                    for line, index in zip(frame.write_ndjson().encode().splitlines(), indexes, strict=True):
                        number += 1
                        n_bytes = len(line) + len(index or "")
                        gap.n_read += n_bytes
                        try:
                            if n_bytes > limits.line_bytes:
                                raise too_long(limits, "record")
                            work = parse_work(line)
                        except CorruptRecordError as error:
                            yield number, error
                            gap.add(n_bytes)
                            continue
                        work.abstract_index = index
                        gap.clear()
                        yield work
                if advance is not None:
                    advance(size * len(batch) / max(metadata.num_rows, 1))
    except (pa.ArrowException, OSError) as error:
        msg = f"the Parquet file is damaged ({str(error).splitlines()[0]})"
        raise CorruptRecordError(msg) from error


def _plan(metadata: Any, columns: list[str]) -> tuple[list[str], int]:  # noqa: ANN401
    """Choose the columns to read as dictionaries, and the number of rows per batch.

    A dictionary holds a repeated text once, and so do the sizes in the footer. In a column that cannot be read as a
    dictionary, every value may be as long as the footer's size of the whole column.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    places = [place for place in range(len(metadata.schema)) if metadata.schema.column(place).path in columns]
    repeating: list[str] = []
    has_other = False
    largest = [group.total_byte_size for group in groups]
    for place in places:
        column = metadata.schema.column(place)
        chunks = [group.column(place) for group in groups]
        is_text = column.physical_type == "BYTE_ARRAY"
        if is_text and not any(name.startswith("DELTA") for chunk in chunks for name in chunk.encodings):
            repeating.append(column.path)
        elif is_text or column.physical_type == "FIXED_LEN_BYTE_ARRAY":
            has_other = True
            for number, chunk in enumerate(chunks):
                largest[number] += chunk.num_values * (chunk.total_uncompressed_size if is_text else column.length)
    most = max((size // max(group.num_rows, 1) for size, group in zip(largest, groups, strict=True)), default=0)
    budget = _TEXT_BYTES if has_other else _BATCH_BYTES
    return repeating, max(1, min(BATCH_WORKS, budget // max(most, 1)))


def _bounded(rows: Any) -> Iterator[Any]:  # noqa: ANN401
    """Halve rows until their text is small enough to convert to JSON together."""
    if len(rows) <= 1 or _text_bytes(rows) <= _TEXT_BYTES:
        yield rows
        return
    half = len(rows) // 2
    yield from _bounded(rows.slice(0, half))
    yield from _bounded(rows.slice(half))


def _text_bytes(values: Any) -> int:  # noqa: ANN401
    """Count the bytes of all texts, with repeats."""
    if isinstance(values, pa.RecordBatch):
        return sum(map(_text_bytes, values.columns))
    if pa.types.is_struct(values.type):
        return sum(map(_text_bytes, values.flatten()))
    if hasattr(values, "flatten") and pa.types.is_nested(values.type):
        return _text_bytes(values.flatten())
    if not isinstance(values, pa.DictionaryArray):
        return values.nbytes
    lengths = pc.call_function("binary_length", [values.dictionary])
    return values.indices.nbytes + (pc.call_function("sum", [lengths.take(values.indices)]).as_py() or 0)


def _plain_type(kind: Any) -> Any:  # noqa: ANN401
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


def _projection(schema: Any) -> list[str]:  # noqa: ANN401
    paths = [schema.column(place).path for place in range(len(schema))]
    leaves = {path: ".".join(level for level in path.split(".") if level not in _LEVELS) for path in paths}
    if missing := sorted(_NEEDED - set(leaves.values())):
        msg = f"the Parquet file has no column {', '.join(missing)}"
        raise CorruptRecordError(msg)
    return [path for path, leaf in leaves.items() if leaf in _LEAVES]
