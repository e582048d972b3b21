"""Parse one part of a snapshot, of either edition, in batches of works and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sciscidata.errors import CorruptRecordError
from sciscidata.records.abstracts import decode_inverted_index
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
from sciscidata.records.work_columns import (
    LEAVES,
    ROWS,
    SPARE,
    Problem,
    leaves_of_frame,
    merge_rows,
    rows_of_leaves,
    rows_of_lines,
)
from sciscidata.sources.record_files import raw_chunks
from sciscidata.sources.snapshot.layout import Part
from sciscidata.storage.decompression import decompress_gzip

Advance = Callable[[float], None]
#: Works in memory together; also the row group of the written files.
BATCH_WORKS = 4_096
_BATCH_BYTES = 256 << 20  # of their text; 4,096 real works have 30 MB
_TEXT_BYTES = 64 << 20  # of rows that are converted to JSON together, which needs several times as much memory
_BLOCK_BYTES = 8 << 20  # of lines that are read together: enough for calls to cost little
_SHORT_LINE = 128
_FEW_BYTES = 1 << 16

# As paths of Parquet leaves, without the levels that only Parquet has.
_LEAVES = {path.replace(".[]", "") for path in LEAVES}
# A JSON record may lack any field, but a table without these columns would make them null for all works.
_NEEDED = {"id", "publication_year", "referenced_works"}
_NO_ROWS = pl.Schema({"row": pl.Int64(), **ROWS}).to_frame()
_INDEX = "abstract_inverted_index"
_LEVELS = {"list", "element", "item", "array", "bag", "array_element"}


class Batch(NamedTuple):
    """Works, and lines that are none, in the order of the file."""

    rows: pl.DataFrame  # ROWS, and ``row``, the number of the line
    problems: list[Problem]  # by number of the line

    def __len__(self) -> int:
        return self.rows.height + len(self.problems)


def read_batches(
    part: Part, advance: Advance | None = None, limits: ReadLimits = DEFAULT_LIMITS, *, include_xpac: bool = True
) -> Iterator[Batch]:
    """Read one part in order, ``BATCH_WORKS`` records at a time, or fewer where they are large.

    Both editions give the same works. ``advance`` gets the bytes of the file as they are read. Without
    ``include_xpac``, works of the expansion corpus may lack their abstracts. A CorruptRecordError, whose message is
    only the reason, comes while reading. The file is damaged or cut off, or the gap without a work is too long.
    """
    gap = Gap(limits)
    read = _read_jsonl if part.edition == "jsonl" else _read_parquet
    waiting: list[Batch] = []
    read_before = 0
    for chunk in read(Path(part.path), advance, limits, gap, include_xpac):
        rest = chunk
        while len(rest):
            is_full = gap.n_read - read_before > _BATCH_BYTES
            taken, rest = _split(rest, 1 if is_full else BATCH_WORKS - sum(map(len, waiting)))
            waiting.append(taken)
            if is_full or sum(map(len, waiting)) == BATCH_WORKS:
                yield _join(waiting)
                waiting, read_before = [], gap.n_read
    if waiting:
        yield _join(waiting)


def _split(batch: Batch, n: int) -> tuple[Batch, Batch]:
    """Cut a batch behind ``n`` records, or at its end."""
    rows, problems = batch
    if len(batch) <= n:
        n_rows, n_problems = rows.height, len(problems)
    elif not problems:
        n_rows, n_problems = n, 0
    else:
        numbers = rows["row"].to_numpy(), np.array([number for number, _ in problems])
        cut = np.sort(np.concatenate(numbers))[n]
        n_rows, n_problems = (int(np.searchsorted(found, cut)) for found in numbers)
    return Batch(rows[:n_rows], problems[:n_problems]), Batch(rows[n_rows:], problems[n_problems:])


def _join(batches: list[Batch]) -> Batch:
    return Batch(
        pl.concat([batch.rows for batch in batches], rechunk=True),
        [entry for batch in batches for entry in batch.problems],
    )


def _read_jsonl(
    path: Path, advance: Advance | None, limits: ReadLimits, gap: Gap, include_xpac: bool
) -> Iterator[Batch]:
    number = 1
    for block in line_blocks(path, advance, limits, gap, SPARE):
        if isinstance(block, CorruptRecordError):
            yield Batch(_NO_ROWS, [(number, block)])
            number += 1
            gap.add(0, 1)
            continue
        n_bytes, n_lines = len(block) - len(SPARE), count_lines(block) - 1
        gap.n_read += n_bytes
        has_work = False
        if n_lines * _SHORT_LINE > max(n_bytes, _FEW_BYTES):
            batches = _read_short_lines(block[:n_bytes])
        else:
            batches = iter([rows_of_lines(block, n_lines, include_xpac=include_xpac)])
        for rows, problems in batches:
            batch = Batch(
                rows.with_columns(pl.col("row") + number), [(place + number, error) for place, error in problems]
            )
            yield batch
            _count_gap(gap, batch)
            has_work = has_work or rows.height > 0
        if not has_work:
            gap.add(n_bytes)
        number += n_lines


def _read_short_lines(block: bytes) -> Iterator[tuple[pl.DataFrame, list[Problem]]]:
    """Read lines too short for records, of which there may be millions, a few at a time."""
    number = 0
    lines: dict[int, bytes] = {}
    for piece in split_lines(block):
        if is_blank(piece):
            number += count_lines(piece)
            continue
        lines[number] = piece
        number += 1
        if len(lines) == BATCH_WORKS:
            yield merge_rows(None, lines)
            lines = {}
    yield merge_rows(None, lines)


def _count_gap(gap: Gap, batch: Batch, sizes: dict[int, int] | None = None) -> None:
    """Count what lies between two works: lines, or if ``sizes`` are given the bytes of rows."""
    numbers = [number for number, _ in batch.problems]
    n_works = 0
    for number, n_before in zip(numbers, np.searchsorted(batch.rows["row"].to_numpy(), numbers).tolist(), strict=True):
        if n_before > n_works:
            gap.clear()
        n_works = n_before
        gap.add(*((0, 1) if sizes is None else (sizes[number], 0)))
    if batch.rows.height > n_works:
        gap.clear()


def line_blocks(
    path: Path,
    advance: Advance | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    gap: Gap | None = None,
    spare: bytes = b"",
) -> Iterator[bytes | CorruptRecordError]:
    """Read a gzip or plain file in blocks of whole lines, without the last line's end, with ``spare``.

    For a line that is too long it yields a CorruptRecordError; ``gap`` counts its bytes. A damaged file raises one.
    """

    def read() -> Iterator[bytes]:
        for chunk in raw_chunks(path):
            if advance is not None:
                advance(len(chunk))
            yield chunk

    pieces = decompress_gzip(read()) if path.suffix == ".gz" else read()
    return whole_lines(pieces, limits, gap or Gap(limits), _BLOCK_BYTES, spare)


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
                        yield Batch(_NO_ROWS, [(number, too_long(limits, "record"))])
                        gap.add(n_bytes)
                    else:
                        plain = pa.schema([field.with_type(_plain_type(field.type)) for field in rows.schema])
                        frame: Any = pl.from_arrow(pa.Table.from_batches([rows]).cast(plain))
                        yield from _rows_of_frame(frame, number, limits, gap, include_xpac, n_bytes)
                    number += len(rows)
                if advance is not None:
                    advance(size * len(batch) / max(metadata.num_rows, 1))
    except (pa.ArrowException, OSError) as error:
        msg = f"the Parquet file is damaged ({str(error).splitlines()[0]})"
        raise CorruptRecordError(msg) from error


def _rows_of_frame(
    frame: pl.DataFrame, number: int, limits: ReadLimits, gap: Gap, include_xpac: bool, n_bytes: int
) -> Iterator[Batch]:
    rows: pl.DataFrame | None = None
    odd = frame.with_row_index("row")
    if n_bytes <= limits.line_bytes and (leaves := leaves_of_frame(frame)) is not None:
        rows = rows_of_leaves(leaves)
        odd = odd.filter(rows["work_id"].is_null())
        if _INDEX in frame.columns:
            wanted = pl.lit(include_xpac) | ~rows["is_xpac"]
            rows = rows.with_columns(
                frame.select(pl.when(wanted).then(decode_inverted_index(_INDEX)).alias("abstract")).to_series()
            )
    odd_rows = odd.drop_in_place("row").to_list()
    indexes: list[str | None] = [None] * len(odd_rows)
    if _INDEX in odd.columns:
        # Kept apart from the JSON, where it would be escaped and unescaped for nothing.
        indexes = odd.drop_in_place(_INDEX).to_list()
    lines = dict(zip(odd_rows, odd.write_ndjson().encode().splitlines() if odd_rows else [], strict=True))
    sizes = {place: len(lines[place]) + len(index or "") for place, index in zip(odd_rows, indexes, strict=True)}
    found, problems = merge_rows(rows, lines, dict(zip(odd_rows, indexes, strict=True)))
    long = [place for place, n in sizes.items() if n > limits.line_bytes]
    if long:
        found = found.filter(~pl.col("row").is_in(long))
        problems = [(place, error) for place, error in problems if place not in long]
        problems = sorted([*problems, *((place, too_long(limits, "record")) for place in long)], key=itemgetter(0))
    batch = Batch(found.with_columns(pl.col("row") + number), [(place + number, error) for place, error in problems])
    yield batch
    _count_gap(gap, batch, {place + number: n for place, n in sizes.items()})


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
    budget = _TEXT_BYTES if has_other else _BATCH_BYTES
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
        msg = f"the Parquet file has no column {', '.join(missing)}"
        raise CorruptRecordError(msg)
    return [path for path, leaf in leaves.items() if leaf in _LEAVES]
