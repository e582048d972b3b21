"""The works of one snapshot part, in either edition, in batches: memory does not grow with the part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib  # inflates twice as fast as zlib

from sciscidata.errors import CorruptRecordError
from sciscidata.sources.record_files import raw_chunks
from sciscidata.sources.snapshot_layout import Part
from sciscidata.works import Work, parse_lines, parse_work

Advance = Callable[[float], None]
#: A work, or the number of a line and the reason why there is none.
Read = Work | tuple[int, CorruptRecordError]

#: Works that are in memory at once; also a row group of what is written.
BATCH_WORKS = 4_096

# What works.py reads, as paths of Parquet leaves without the levels that only Parquet has.
_LEAVES = {
    "id", "doi", "title", "display_name", "publication_year", "cited_by_count", "language", "type", "is_retracted",
    "is_xpac", "referenced_works", "abstract_inverted_index", "updated_date", "created_date",
    "primary_topic.display_name", "primary_topic.field.display_name",
    "topics.display_name", "topics.field.display_name",
    "concepts.display_name", "concepts.score", "concepts.level",
    "primary_location.source.id", "primary_location.source.display_name", "host_venue.id", "host_venue.display_name",
}  # fmt: skip
# A record of JSON may lack any field. The columns of a table are the same for all: without these, all would be null.
_NEEDED = {"id", "publication_year", "referenced_works"}
_LEVELS = {"list", "element", "item", "array", "bag", "array_element"}


def read_batches(part: Part, advance: Advance | None = None) -> Iterator[list[Read]]:
    """Read one part in order, ``BATCH_WORKS`` records at a time.

    Args:
        part: of either edition: both give the same works for the same records.
        advance: told the bytes of the file as they are read.

    Raises:
        CorruptRecordError: while reading; the file is damaged or cut off. Its message is the reason alone.
        InputNotFoundError: while reading; the file cannot be read.

    Example:
        >>> import gzip
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     path = Path(home, "part_0000.gz")
        ...     _ = path.write_bytes(gzip.compress(b'{"id":"W1","is_xpac":true}'))
        ...     part = Part("updated_date=2026-06-01/part_0000.gz", str(path), "jsonl")
        ...     [[(work.work_id, work.is_xpac) for work in batch] for batch in read_batches(part)]
        [[(1, True)]]
    """
    path = Path(part.path)
    works = _read_jsonl(path, advance) if part.edition == "jsonl" else _read_parquet(path, advance)
    while batch := list(islice(works, BATCH_WORKS)):
        yield batch


def _read_jsonl(path: Path, advance: Advance | None) -> Iterator[Read]:
    works = chain.from_iterable(parse_lines(block) for block in line_blocks(path, advance))
    for number, work in enumerate(works, 1):
        if work is not None:
            yield (number, work) if isinstance(work, CorruptRecordError) else work


def _parse(line: bytes, number: int) -> Read:
    try:
        return parse_work(line)
    except CorruptRecordError as error:
        return number, error


def line_blocks(path: Path, advance: Advance | None = None) -> Iterator[bytes]:
    r"""Read a gzip file (or a plain one) decompressed, in blocks of whole lines without the last line's end.

    Raises:
        CorruptRecordError: while reading; the file is damaged or cut off.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     path = Path(home, "lines")
        ...     _ = path.write_bytes(b"1\n2\n3")
        ...     list(line_blocks(path))
        [b'1\n2', b'3']
    """
    rest: list[bytes] = []
    for data in _decompressed(path, advance):
        head, end, tail = data.rpartition(b"\n")
        if end:
            yield b"".join((*rest, head))
            rest = [tail] if tail else []
        else:
            rest.append(data)
    if rest:
        yield b"".join(rest)


def _decompressed(path: Path, advance: Advance | None) -> Iterator[bytes]:
    decoder: Any = None
    is_plain = path.suffix != ".gz"
    for chunk in raw_chunks(path):
        if advance is not None:
            advance(len(chunk))
        if is_plain:
            yield chunk
            continue
        left = chunk
        # Members may follow each other, and zeros fill up the last block.
        while left := left if decoder else left.lstrip(b"\0"):
            decoder = decoder or isal_zlib.decompressobj(wbits=31)
            try:
                yield decoder.decompress(left)
            except isal_zlib.error as error:  # pyright: ignore[reportGeneralTypeIssues]  # its stub says Exception
                msg = f"the compressed data is damaged ({error})"
                raise CorruptRecordError(msg) from error
            if not decoder.eof:
                break
            left, decoder = decoder.unused_data, None
    if decoder is not None:
        msg = "the compressed file ends too early: it was cut off"
        raise CorruptRecordError(msg)


def _read_parquet(path: Path, advance: Advance | None) -> Iterator[Read]:
    """Make JSON lines of the few fields that are read, so that both editions pass through one parser."""
    number = 0
    size = path.stat().st_size
    try:
        # Where a writer has left checksums, they are the only thing to tell that a bit has changed.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            rows = max(file.metadata.num_rows, 1)
            # Hive folders are no columns here: updated_date is a folder and a column of the file.
            for batch in file.iter_batches(BATCH_WORKS, columns=_projection(file)):
                frame: Any = pl.from_arrow(batch)
                indexes: list[str | None] = [None] * len(frame)
                if "abstract_inverted_index" in frame.columns:
                    # Kept apart: as a string inside JSON it would be escaped and unescaped for nothing.
                    indexes = frame.drop_in_place("abstract_inverted_index").to_list()
                for line, index in zip(frame.write_ndjson().encode().splitlines(), indexes, strict=True):
                    number += 1
                    work = _parse(line, number)
                    if isinstance(work, Work):
                        work.abstract_index = index
                    yield work
                if advance is not None:
                    advance(size * len(frame) / rows)
    except (pa.ArrowException, OSError) as error:
        msg = f"the Parquet file is damaged ({str(error).splitlines()[0]})"
        raise CorruptRecordError(msg) from error


def _projection(file: pq.ParquetFile) -> list[str]:
    paths = [file.schema.column(place).path for place in range(len(file.schema))]
    leaves = {path: ".".join(level for level in path.split(".") if level not in _LEVELS) for path in paths}
    if missing := sorted(_NEEDED - set(leaves.values())):
        msg = f"the Parquet file has no column {', '.join(missing)}"
        raise CorruptRecordError(msg)
    return [path for path, leaf in leaves.items() if leaf in _LEAVES]
