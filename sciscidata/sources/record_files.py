"""Find record files, decompress them, and cut them into single OpenAlex records with their line numbers.

Compression and shape are recognised from the content and never from the name, which may be any.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from sciscidata.errors import CorruptRecordError, InputNotFoundError
from sciscidata.records.dois import CHANGED_DOIS
from sciscidata.records.json_record import PlainRecord, read_records, split_document, split_entries
from sciscidata.records.read_lines import count_lines, is_blank, split_lines, whole_lines
from sciscidata.records.work_columns import NO_ROWS, SPARE, Batch, rows_of_lines, rows_of_records
from sciscidata.storage import expand_home, hash_file, real_path
from sciscidata.storage.decompression import decompress_gzip, decompress_zstd, skip
from sciscidata.storage.paths import list_visible
from sciscidata.storage.small_files import OTHER_ENCODING, name_encoding
from sciscidata.terminal.messages import counted

_ENDS = (".jsonl", ".json", ".ndjson", ".txt", ".gz", ".zst")
_CHUNK_BYTES = 1 << 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LIST = re.compile(rb"\s*\[")
#: Works in memory together; also the row group of the written files.
BATCH_WORKS = 4_096
BATCH_BYTES = 256 << 20  # of their text; 4,096 real works have 30 MB
_BLOCK_BYTES = 8 << 20  # of lines that are read together: enough for calls to cost little
_SHORT_LINE = 128
_FEW_BYTES = 1 << 16
_MOST_DOCUMENT_BYTES = 1 << 30  # it is held whole
_LOOP_PAYS_BYTES = 32 << 20  # the loop is compiled on first use, which takes as long as reading a gigabyte without it


def find_files(patterns: Sequence[str], option: str, *, in_folders: bool = False) -> list[Path]:
    """List the files of paths and patterns, each once, in the order given; those of a pattern or folder sorted.

    With ``in_folders``, a folder stands for all files below it with one of the endings in _ENDS.
    """
    files: dict[Path, Path] = {}
    for pattern in patterns:
        found: list[Path] = []
        for match in sorted(matches_of(pattern)):
            if in_folders and match.is_dir():
                os.scandir(match).close()  # raises for a folder that may not be read; rglob does not
                below = (file for file in list_visible(match.rglob("*")) if file.name.lower().endswith(_ENDS))
                found += filter(Path.is_file, below)
                if not found:
                    raise InputNotFoundError(
                        f"{option} {pattern!r} holds no file that ends in {', '.join(_ENDS)}. List other files one by "
                        "one."
                    )
            elif match.is_file():
                found.append(match)
            elif match.is_dir():
                raise InputNotFoundError(f"{option} {pattern!r} is a folder. Name its files: '{match / '*.csv'}'.")
            else:
                raise InputNotFoundError(
                    f"{option} {pattern!r} names {match}, which is no file{' and no folder' * in_folders}. It is read "
                    "more than once: save its content in a file."
                )
        if not found:
            what = "matches no file" if glob.has_magic(pattern) else "does not exist"
            raise InputNotFoundError(f"{option} {pattern!r} {what}. Check the path; it is relative to {Path.cwd()}.")
        for file in found:
            files.setdefault(real_path(file), file)
    return [*files.values()]


def matches_of(given: str) -> list[Path]:
    """Expand an input: its existing part is a path, even with signs like ``[``; the rest is a pattern."""
    path = Path(expand_home(given))
    there = next(above for above in (path, *path.parents) if above.exists() or above == above.parent)
    if there == path:
        return [path]
    # Path.glob would list hidden files too.
    names = glob.glob(str(path.relative_to(there)), root_dir=there, recursive=True)  # noqa: PTH207
    return [there / name for name in names if (there / name).exists()]  # a link may be broken


@dataclass(slots=True)
class ReadSoFar:
    """How much of a file was read."""

    n_bytes: int = 0  # of text
    n_lines: int = 0
    n_blank: int = 0
    n_corrupt: int = 0  # of a file that was parsed before: more of them than come as problems


def read_blocks(
    path: Path, advance: Callable[[float], None] | None, least: int = 0, spare: bytes = b"", *, pages: bool = True
) -> Iterator[tuple[int, bytes, bool]]:
    r"""Cut a file into blocks of whole lines, as ``whole_lines`` does, with the number of their first line.

    With ``pages``, a file whose first line ends inside a JSON value is one block, marked as a document, without
    ``spare``. Only ``\n`` ends a line; U+2028 and U+0085 may stand inside.
    """
    number = 1
    is_before_all = pages  # only empty lines so far
    blocks = whole_lines(decompressed_chunks(path, advance), least, spare)
    for block in blocks:
        if number == 1:
            block = block.removeprefix(_BYTE_ORDER_MARK)
        if is_before_all and (at := skip(block, 0)) < len(block) - len(spare):
            is_before_all = False
            if _breaks_off(block, at):
                # Empty lines before a document are a block of their own.
                start = block.rfind(b"\n", 0, at) + 1
                if start:
                    yield number, block[: start - 1] + spare, False
                    number += block.count(b"\n", 0, start)
                document = _join_blocks(chain([block[start:]], blocks), spare)
                values = split_document(document)
                for value in values:
                    yield number, value, True
                    number += count_lines(value)
                if not values:  # the first line is a record that was cut off
                    yield number, document + spare, False
                return
        yield number, block, False
        number += count_lines(block) - len(spare[:1])


def _join_blocks(blocks: Iterable[bytes], spare: bytes) -> bytes:
    parts, size = list[bytes](), 0
    for block in blocks:
        parts.append(block.removesuffix(spare))
        size += len(block)
        if size > _MOST_DOCUMENT_BYTES:
            raise CorruptRecordError(
                f"the JSON document that begins here has more than {_MOST_DOCUMENT_BYTES >> 20:,} MB and is not read. "
                "Write one work per line: jq -c '.results[]? // .[]'"
            )
    return b"\n".join(parts)


def _pieces_of(block: bytes, number: int, *, is_document: bool) -> Iterator[tuple[int, bytes]]:
    """Cut a block into what should each be one JSON value; blank lines in a row are one piece."""
    for piece in [block] if is_document else split_lines(block):
        yield number, piece
        number += count_lines(piece) if is_blank(piece) else 1


def read_values(path: Path, advance: Callable[[float], None] | None = None) -> Iterator[tuple[int, bytes]]:
    """Cut a file into JSON values, with the number of their line; the entries of a list are values."""
    for first, block, is_document in read_blocks(path, advance):
        for number, piece in _pieces_of(block, first, is_document=is_document):
            if _LIST.match(piece):
                yield from ((number, bytes(entry)) for entry in split_entries(piece))
            elif not is_blank(piece):
                yield number, piece


def read_json_batches(
    path: Path,
    advance: Callable[[float], None] | None,
    so_far: ReadSoFar,
    *,
    include_xpac: bool = True,
    pages: bool = True,
) -> Iterator[Batch]:
    """Read the works of a file of JSON; with ``pages`` a line, or the file, may be a list or a page of the API."""
    for number, block, is_document in read_blocks(path, advance, _BLOCK_BYTES, SPARE, pages=pages):
        n_lines = count_lines(block) - (not is_document)
        n_bytes = len(block) - (0 if is_document else len(SPARE))
        so_far.n_bytes += n_bytes
        so_far.n_lines += n_lines
        is_early = pages and so_far.n_bytes < _LOOP_PAYS_BYTES
        # The loop takes memory for each line, and there may be millions of empty ones.
        if is_document or is_early or n_lines * _SHORT_LINE > max(n_bytes, _FEW_BYTES):
            batches = _read_one_by_one(block if is_document else block[:n_bytes], is_document, pages)
        else:
            batches = iter([rows_of_lines(block, n_lines, include_xpac=include_xpac, pages=pages)])
        for batch in batches:
            so_far.n_blank += batch.n_blank
            yield batch.moved(number)


def _read_one_by_one(block: bytes, is_document: bool, pages: bool) -> Iterator[Batch]:
    """Read works without the compiled loop, a few at a time."""
    n_blank = 0

    def read() -> Iterator[tuple[int, PlainRecord | CorruptRecordError]]:
        nonlocal n_blank
        for number, piece in _pieces_of(block, 0, is_document=is_document):
            if is_blank(piece):
                n_blank += count_lines(piece)
            else:
                yield from ((number, record) for record in read_records(piece, pages=pages))

    records = read()
    while held := list(islice(records, BATCH_WORKS)):
        yield rows_of_records(held)
    yield Batch(NO_ROWS, [], n_blank)


def in_batches(chunks: Iterable[Batch], so_far: ReadSoFar) -> Iterator[Batch]:
    """Yield ``BATCH_WORKS`` works at a time, or fewer where more than 256 MB of text were read for them.

    Lines that are no work come as they are found.
    """
    waiting: list[pl.DataFrame] = []
    read_before = 0
    for rows, problems, _ in chunks:
        if problems:
            yield Batch(NO_ROWS, problems)
        while rows.height:
            is_full = so_far.n_bytes - read_before > BATCH_BYTES
            n = 1 if is_full else BATCH_WORKS - sum(part.height for part in waiting)
            waiting.append(rows[:n])
            rows = rows[n:]
            if is_full or sum(part.height for part in waiting) == BATCH_WORKS:
                yield Batch(pl.concat(waiting, rechunk=True), [])
                waiting, read_before = [], so_far.n_bytes
    if waiting:
        yield Batch(pl.concat(waiting, rechunk=True), [])


class Counted(Protocol):
    """What is counted of the works of a file."""

    works: int
    duplicate_ids: int
    malformed_references: int
    missing_values: int
    changed_dois: int
    without_venue: int


def count_new(counts: Counted, rows: pl.DataFrame, seen: set[int]) -> pl.DataFrame:
    """Return the works whose id is not among the ``seen`` ones, the first of each, and count them."""
    ids = rows["work_id"].to_list()
    if len(set(ids)) < len(ids) or not seen.isdisjoint(ids):
        # A set's add returns None.
        rows = rows.filter([not (id in seen or seen.add(id)) for id in ids])
        counts.duplicate_ids += len(ids) - rows.height
    seen.update(ids)
    counts.works += rows.height
    counts.malformed_references += int(rows["malformed_references"].sum())
    counts.missing_values += int(rows["missing_values"].sum())
    counts.changed_dois += int(rows[CHANGED_DOIS].sum())
    counts.without_venue += rows["source_id"].null_count()
    return rows


def later_change(date: str | None, rows: pl.DataFrame) -> str | None:
    """Return the later one of a date and the last change of some works."""
    last_change: Any = rows["changed_on"].max()
    return max(filter(None, (date, last_change)), default=None)


def _breaks_off(block: bytes, at: int) -> bool:
    """Whether the line with the byte ``at`` ends inside a JSON value."""
    end = block.find(b"\n", at)
    last = block[max(at, end - 64) : end] if end >= 0 else block[max(at, len(block) - 64) :]
    is_open_list = block.startswith(b"[", at) and not last.rstrip().endswith(b"]")  # later lines begin with commas
    return is_open_list or last.rstrip()[-1:] in (b"{", b"[", b",", b":")


def decompressed_chunks(path: Path, advance: Callable[[float], None] | None = None) -> Iterator[bytes]:
    """Read and decompress a file of text; all bytes before a damage are yielded before the error."""
    chunks = decompressed_bytes(path, advance)
    first = next(chunks, b"")
    if encoding := name_encoding(first):
        raise CorruptRecordError(OTHER_ENCODING.format(encoding))
    yield from chain([first] * bool(first), chunks)


def decompressed_bytes(path: Path, advance: Callable[[float], None] | None = None) -> Iterator[bytes]:
    """Read and decompress a file of any bytes, as ``decompressed_chunks`` does."""
    beginning = next(raw_chunks(path), b"")[:2]
    is_gzip = beginning == b"\x1f\x8b"
    # Or one of the sixteen skippable frames of Zstandard, with which pzstd begins.
    is_zstd = beginning == b"\x28\xb5" or (beginning[1:] == b"\x2a" and beginning[0] >> 4 == 5)
    n_read = n_out = 0

    def read() -> Iterator[bytes]:
        nonlocal n_read
        for chunk in raw_chunks(path):
            n_read += 1
            if advance is not None:
                advance(len(chunk))
            yield chunk

    def read_again() -> Iterator[bytes]:
        for place, chunk in enumerate(islice(raw_chunks(path), n_read), 1):
            yield from [chunk] if place < n_read else (bytes([byte]) for byte in chunk)

    if not is_gzip and not is_zstd:
        yield from read()
        return
    try:
        for data in decompress_gzip(read(), " here") if is_gzip else decompress_zstd(read(), " here"):
            n_out += len(data)
            yield data
    except CorruptRecordError:
        # A decoder returns nothing of the chunk that holds the damage, so decode that one again, byte by byte.
        again = read_again()
        exact = decompress_gzip(again, " here") if is_gzip else decompress_zstd(again, " here", exact_from=n_out)
        for data in exact:
            yield data[max(n_out, 0) :]
            n_out -= len(data)


def raw_chunks(path: Path) -> Iterator[bytes]:
    """Read the bytes of a file, a quarter of a megabyte at a time."""
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise InputNotFoundError(
            f"cannot read {path}: {error.strerror}. Check the path and its permissions."
        ) from error


def printable_name(path: Path) -> str:
    """Return the base name of a file, with U+FFFD for bytes that are not UTF-8, for reports."""
    return os.fsencode(path.name).decode("utf-8", "replace")


def state_files(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Describe the files for a manifest: name, size and SHA-256."""
    return [{"name": printable_name(file), "bytes": file.stat().st_size, "sha256": hash_file(file)} for file in files]


def describe_read(unit: str, read: Sequence[int], there: Sequence[int], seconds: float) -> str:
    """Say how many parts were read, of how many there are, by their bytes.

    Example:
        >>> describe_read("part", [4_000_000], [4_000_000, 1_000_000_000], 3.21)
        'read 1 of 2 parts (0.0 of 1.0 GB) in 3.2 s; 1 is as before'
    """
    name, factor = ("GB", 1e9) if sum(there) >= 1e9 else ("MB", 1e6)
    n_before = len(there) - len(read)
    before = f"; {n_before:,} {'is' if n_before == 1 else 'are'} as before" if n_before else ""
    sizes = f"{sum(read) / factor:,.1f} of {sum(there) / factor:,.1f} {name}"
    return f"read {len(read):,} of {counted(len(there), unit)} ({sizes}) in {seconds:,.1f} s{before}"
