"""Parse one part of a snapshot, of either edition, in batches of works and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sciscidata.errors import CorruptRecordError
from sciscidata.records.abstracts import decode_inverted_index
from sciscidata.records.json_record import PlainRecord, read_records
from sciscidata.records.read_lines import DEFAULT_LIMITS, Gap, ReadLimits, too_long
from sciscidata.records.work_columns import (
    LEAVES,
    NO_ROWS,
    Batch,
    leaves_of_frame,
    merge_rows,
    rows_of_leaves,
    rows_of_records,
)
from sciscidata.sources.record_files import BATCH_BYTES, BATCH_WORKS, count_gap, in_batches, read_json_batches
from sciscidata.sources.snapshot.layout import Part

Advance = Callable[[float], None]
_TEXT_BYTES = 64 << 20  # of rows that are converted to JSON together, which needs several times as much memory

# As paths of Parquet leaves, without the levels that only Parquet has.
_LEAVES = {path.replace(".[]", "") for path in LEAVES}
# A JSON record may lack any field, but a table without these columns would make them null for all works.
_NEEDED = {"id", "publication_year", "referenced_works"}
_INDEX = "abstract_inverted_index"
_LEVELS = {"list", "element", "item", "array", "bag", "array_element"}


def read_batches(
    part: Part, advance: Advance | None = None, limits: ReadLimits = DEFAULT_LIMITS, *, include_xpac: bool = True
) -> Iterator[Batch]:
    """Read one part in order, ``BATCH_WORKS`` records at a time, or fewer where they are large.

    Both editions give the same works. ``advance`` gets the bytes of the file as they are read. Without
    ``include_xpac``, works of the expansion corpus may lack their abstracts. A CorruptRecordError, whose message is
    only the reason, comes while reading. The file is damaged or cut off, or the gap without a work is too long.
    """
    gap, path = Gap(limits), Path(part.path)
    if part.edition == "jsonl":
        chunks = read_json_batches(path, advance, limits, gap, include_xpac=include_xpac, pages=False)
    else:
        chunks = _read_parquet(path, advance, limits, gap, include_xpac)
    return in_batches(chunks, gap)


def _read_parquet(
    path: Path, advance: Advance | None, limits: ReadLimits, gap: Gap, include_xpac: bool
) -> Iterator[Batch]:
    """Read the needed columns; odd records become JSON lines, so that both editions have one parser for them."""
    number = 1
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
            # A batch of two groups would have two dictionaries, which Arrow does not read inside lists.
            groups = range(metadata.num_row_groups)
            batches = (file.iter_batches(n_rows, [group], columns, use_threads=False) for group in groups)
            for batch in chain.from_iterable(batches):
                for rows, n_bytes in _bounded(batch):
                    gap.n_read += n_bytes
                    if len(rows) == 1 and n_bytes > limits.line_bytes:
                        yield Batch(NO_ROWS, [(number, too_long(limits, "record"))])
                        gap.add(n_bytes)
                    else:
                        plain = pa.schema([field.with_type(_plain_type(field.type)) for field in rows.schema])
                        frame: Any = pl.from_arrow(pa.Table.from_batches([rows]).cast(plain))
                        yield from _rows_of_frame(frame, number, limits, gap, include_xpac, n_bytes)
                    number += len(rows)
                if advance is not None:
                    advance(size * len(batch) / max(metadata.num_rows, 1))
    except (pa.ArrowException, OSError) as error:
        raise CorruptRecordError(f"the Parquet file is damaged ({str(error).splitlines()[0]})") from error


def _rows_of_frame(
    frame: pl.DataFrame, number: int, limits: ReadLimits, gap: Gap, include_xpac: bool, n_bytes: int
) -> Iterator[Batch]:
    rows: pl.DataFrame | None = None
    is_odd = np.ones(frame.height, np.bool_)
    if n_bytes <= limits.line_bytes and (leaves := leaves_of_frame(frame)) is not None:
        rows = rows_of_leaves(leaves)
        is_odd = rows["work_id"].is_null().to_numpy()
        if _INDEX in frame.columns:
            wanted = pl.lit(include_xpac) | ~rows["is_xpac"]
            rows = rows.with_columns(
                frame.select(pl.when(wanted).then(decode_inverted_index(_INDEX)).alias("abstract")).to_series()
            )
    odd = frame.filter(is_odd)
    indexes: list[str | None] = [None] * odd.height
    if _INDEX in odd.columns:
        # Kept apart from the JSON, where it would be escaped and unescaped for nothing.
        indexes = odd.drop_in_place(_INDEX).to_list()
    lines = odd.write_ndjson().encode().splitlines() if odd.height else []
    sizes: dict[int, int] = {}

    def read() -> Iterator[tuple[int, PlainRecord | CorruptRecordError]]:
        for place, line, index in zip(np.flatnonzero(is_odd).tolist(), lines, indexes, strict=True):
            sizes[place + number] = size = len(line) + len(index or "")
            (record,) = read_records(line, pages=False)
            if size > limits.line_bytes:
                yield place, too_long(limits, "record")
            else:
                yield place, record if isinstance(record, CorruptRecordError) else record._replace(abstract_index=index)

    batch = rows_of_records(read())
    if rows is not None:
        batch = merge_rows(rows, is_odd, batch)
    batch = batch.moved(number)
    yield batch
    count_gap(gap, batch, sizes)


def _plan(metadata: Any, columns: list[str]) -> tuple[list[str], int]:  # noqa: ANN401
    """Choose the columns to read as dictionaries, and the number of rows per batch.

    A dictionary holds a repeated text once, and so do the sizes in the footer. Without a dictionary, every value may be
    as long as the footer's size of the whole column.
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
    budget = _TEXT_BYTES if has_other else BATCH_BYTES
    return repeating, max(1, min(BATCH_WORKS, budget // max(most, 1)))


def _bounded(rows: Any) -> Iterator[tuple[Any, int]]:  # noqa: ANN401
    """Halve rows until their text is small enough to convert to JSON together; give its bytes, too."""
    n_bytes = _text_bytes(rows)
    if len(rows) <= 1 or n_bytes <= _TEXT_BYTES:
        yield rows, n_bytes
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
        raise CorruptRecordError(f"the Parquet file has no column {', '.join(missing)}")
    return [path for path, leaf in leaves.items() if leaf in _LEAVES]
