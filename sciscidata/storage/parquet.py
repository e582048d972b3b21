"""Parquet with checksums: one per page when written, one per row group and footer when read in parts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

import polars as pl
import pyarrow.parquet as pq
from isal import isal_zlib  # its CRC-32 is five times as fast as zlib's

#: The options with which this package writes Parquet.
CHECKED: Final[dict[str, Any]] = {"compression": "zstd", "write_page_checksum": True}
#: Rows per group of each kind of file. A group is the least that a query reads: large where files are read by column.
ROWS_PER_GROUP: Final = MappingProxyType(
    {
        "works": 4_096,
        "texts": 4_096,
        "citations": 65_536,
        "authors": 65_536,
        "release": 65_536,
        "scores": 1 << 18,
        "background": 1 << 20,
    }
)
_MAGIC: Final = b"PAR1"
_TAIL: Final = 8  # length of the footer, and the four letters at the end
_BLOCK: Final = 1 << 22


class ChecksumError(Exception):
    """A part of a Parquet file differs from its checksum."""


def to_arrow(rows: pl.DataFrame) -> Any:  # noqa: ANN401 (pyarrow has no types)
    """Return a frame as a table of pyarrow, in types that older readers know, too."""
    return rows.to_arrow(compat_level=pl.CompatLevel.oldest())


def write_parquet(rows: pl.DataFrame, path: Path | IO[bytes], **options: Any) -> None:  # noqa: ANN401 (pyarrow's own)
    """Write a frame to a path or an open file, with a checksum on every page and options of ``pyarrow`` over ours."""
    pq.write_table(to_arrow(rows), path, **CHECKED | options)


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read a whole file, or some of its columns, and compare every page with its checksum."""
    with path.open("rb") as file, pq.ParquetFile(file, page_checksum_verification=True) as read:
        rows: Any = pl.from_arrow(read.read(columns=columns, use_threads=False))
    return rows


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet does, encrypted too."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) in (_MAGIC, b"PARE")


def sum_groups(file: IO[bytes]) -> list[str]:
    """Return a CRC-32 (8 hex digits) for each row group of an open file, and one for its footer at the end."""
    bounds = _bounds(file, pq.read_metadata(file))
    return [_sum(file, start, end) for start, end in pairwise([*bounds, file.seek(0, 2)])]


class CheckedGroups:
    """The row groups of an open Parquet file, each compared with its checksum before it is decoded."""

    def __init__(self, file: Any, read: pq.ParquetFile, sums: Sequence[str]) -> None:  # noqa: ANN401
        self._file, self._read, self._sums = file, read, sums
        self._bounds = _bounds(file, read.metadata)

    def read(self, group: int, columns: list[str]) -> pl.DataFrame:
        """Read some columns of one row group; raise ChecksumError if it is damaged."""
        start, end = self._bounds[group], self._bounds[group + 1]
        if _sum(self._file, start, end) != self._sums[group]:
            raise ChecksumError(f"row group {group} differs from its checksum")
        rows: Any = pl.from_arrow(self._read.read_row_group(group, columns=columns))
        return rows


@contextmanager
def open_groups(path: Path, sums: Sequence[str]) -> Generator[CheckedGroups]:
    """Open a Parquet file to read it by row group, each compared with its checksum of ``sum_groups``."""
    with path.open("rb") as file:
        # Compared before it is parsed: a damaged footer may claim anything.
        footer = _footer_start(file)
        if not sums or _sum(file, footer, path.stat().st_size) != sums[-1]:
            raise ChecksumError("the footer differs from its checksum")
        with pq.ParquetFile(file, page_checksum_verification=True) as read:
            if len(sums) != read.metadata.num_row_groups + 1:
                raise ChecksumError(f"{len(sums)} checksums for {read.metadata.num_row_groups} row groups")
            yield CheckedGroups(file, read, sums)


def _footer_start(file: Any) -> int:  # noqa: ANN401
    size: int = file.seek(0, 2)
    file.seek(max(size - _TAIL, 0))
    length = int.from_bytes(file.read(_TAIL)[:4], "little")
    return max(size - _TAIL - length, 0)


def _bounds(file: Any, metadata: Any) -> list[int]:  # noqa: ANN401
    """Return where each row group begins, and the footer at the end."""
    ends: list[int] = []
    for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
        columns = [group.column(i) for i in range(group.num_columns)]
        starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
        ends.append(max(start + column.total_compressed_size for start, column in zip(starts, columns, strict=True)))
    return [*[0, *ends][: len(ends)], _footer_start(file)]


def _sum(file: Any, start: int, end: int) -> str:  # noqa: ANN401
    value = 0
    file.seek(start)
    left = end - start
    while left > 0 and (block := file.read(min(left, _BLOCK))):
        value = isal_zlib.crc32(block, value)
        left -= len(block)
    return f"{value:08x}"
