"""Find record files, decompress them, and cut them into single OpenAlex records with their line numbers.

Compression and shape are recognised from the content and never from the name, which may be any.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from sciscidata._kernels.strings import is_utf8
from sciscidata.errors import CorruptRecordError, InputNotFoundError
from sciscidata.records.json_record import NoListError, TooLongToMendError, entries_one_by_one
from sciscidata.records.read_lines import (
    DEFAULT_LIMITS,
    Gap,
    ReadLimits,
    count_lines,
    is_blank,
    split_lines,
    whole_lines,
)
from sciscidata.records.work_row import Work, parse_work
from sciscidata.storage import expand_home, hash_file, real_path
from sciscidata.storage.decompression import decompress, decompress_zstd, open_gzip, skip
from sciscidata.storage.small_files import OTHER_ENCODING, name_encoding

T = TypeVar("T")

_SUFFIXES = (".jsonl", ".json", ".ndjson", ".txt")
_COMPRESSED = (".gz", ".zst")
_CHUNK_BYTES = 1 << 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LIST = re.compile(rb"\s*\[")
_OBJECT = re.compile(rb"\s*\{")
_FEW_BYTES = 2 << 20
_HANDLE_BYTES = 64  # memory of an entry in addition to its text


def find_record_files(inputs: tuple[str, ...]) -> list[Path]:
    """List the files of the inputs in the order given; those of a folder or pattern are sorted by path.

    A folder stands for all files below it that end in ``.jsonl``, ``.json``, ``.ndjson``, ``.txt``, ``.gz`` or
    ``.zst``. Each file is listed once. An InputNotFoundError means that an input does not exist, matches no file, or is
    a pipe or a device. A PermissionError means that a folder may not be read.
    """
    files: dict[Path, Path] = {}
    for pattern in inputs:
        matches = matches_of(pattern)
        if not matches:
            what = "matches no file" if glob.has_magic(pattern) else "does not exist"
            msg = f"records input {pattern!r} {what}. Check the path; it is relative to {Path.cwd()}."
            raise InputNotFoundError(msg)
        matched = [file for match in sorted(matches) for file in _files_of(match)]
        if not matched:
            names = ", ".join((*_SUFFIXES, *_COMPRESSED))
            msg = f"records input {pattern!r} holds no file that ends in {names}. List other files one by one."
            raise InputNotFoundError(msg)
        for file in matched:
            files.setdefault(real_path(file), file)
    return list(files.values())


def find_files(patterns: Sequence[str], option: str) -> list[Path]:
    """List the files of paths and patterns, each once; those of a pattern sorted.

    An InputNotFoundError names the ``option``: one does not exist, a pattern matches nothing, or it is no file.
    """
    files: dict[Path, Path] = {}
    for pattern in patterns:
        matches = sorted(matches_of(pattern))
        wrong = next((match for match in matches if not match.is_file()), None)
        if wrong is not None or not matches:
            what = f"names {wrong}, which is no file" if wrong is not None else "matches no file"
            msg = f"{option} {pattern!r} {what}. Check the path; it is relative to {Path.cwd()}."
            raise InputNotFoundError(msg)
        files |= {real_path(match): match for match in matches}
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


def _files_of(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        msg = (
            f"records input {str(path)!r} is neither a file nor a folder. It is read more than once, so save its "
            "content in a file first."
        )
        raise InputNotFoundError(msg)
    os.scandir(path).close()  # raises for a folder that may not be read; rglob does not
    ends = (*_SUFFIXES, *_COMPRESSED)
    visible = (file for file in path.rglob("*") if not file.name.startswith("."))
    return sorted(file for file in visible if file.name.lower().endswith(ends) and file.is_file())


def read_pieces(
    path: Path,
    advance: Callable[[float], None] | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    gap: Gap | None = None,
) -> Iterator[tuple[int, bytes | CorruptRecordError]]:
    r"""Cut a file into pieces that should each be one JSON value, with the number of their first line.

    A piece is a line, or the whole file if its first line ends inside a value, as in pretty-printed JSON. Only ``\n``
    ends a line; U+2028 and U+0085 may stand inside. Consecutive empty lines are one piece. Lines are read in bounded
    memory; a pretty-printed document is held whole.

    The file is plain, gzip or Zstandard, with or without a byte order mark. ``advance`` gets the number of its bytes
    after each read. A line that is too long gives a CorruptRecordError as its piece. ``gap`` counts what holds no work;
    the caller clears it at each work. A CorruptRecordError is raised where a document or the gap is too long. A damaged
    or cut compressed file raises it after its last whole line. Its message is only the reason.
    """
    number = 1
    is_before_all = True  # only empty lines so far
    blocks = whole_lines(decompressed_chunks(path, advance), limits, gap or Gap(limits))
    while (block := next(blocks, None)) is not None:
        if isinstance(block, CorruptRecordError):
            yield number, block
            number, is_before_all = number + 1, False
            continue
        if number == 1:
            block = block.removeprefix(_BYTE_ORDER_MARK)
        if is_before_all and (at := skip(block, 0)) < len(block):
            is_before_all = False
            if _breaks_off(block, at):
                # Empty lines before a document are a piece of their own.
                start = block.rfind(b"\n", 0, at) + 1
                if start:
                    yield number, block[: start - 1]
                    number += block.count(b"\n", 0, start)
                held, is_document = _take_document(block[start:], blocks, limits)
                if is_document:
                    yield number, held[0]
                    return
                blocks = chain(held, blocks)
                continue
        for piece in split_lines(block):
            yield number, piece
            number += count_lines(piece) if is_blank(piece) else 1


def read_values(
    path: Path, advance: Callable[[float], None] | None = None
) -> Iterator[tuple[int, bytes | CorruptRecordError]]:
    """Cut a file into JSON values, as ``read_pieces`` does, without blank lines; the entries of a list are values."""
    for number, piece in read_pieces(path, advance):
        if isinstance(piece, CorruptRecordError) or not _LIST.match(piece):
            if isinstance(piece, CorruptRecordError) or not is_blank(piece):
                yield number, piece
        else:
            yield from ((number, bytes(entry)) for entry in _entries(piece))


def _breaks_off(block: bytes, at: int) -> bool:
    """Whether the line with the byte ``at`` ends inside a JSON value."""
    end = block.find(b"\n", at)
    last = block[max(at, end - 64) : end] if end >= 0 else block[max(at, len(block) - 64) :]
    return last.rstrip()[-1:] in (b"{", b"[", b",", b":")


def _take_document(
    first: bytes, blocks: Iterator[bytes | CorruptRecordError], limits: ReadLimits
) -> tuple[list[Any], bool]:
    """Collect a whole document, and return whether it is one; if not, the blocks read so far. It may be too large."""
    blocks_read: list[bytes | CorruptRecordError] = [first]
    size = len(first)
    for block in blocks:
        blocks_read.append(block)
        if isinstance(block, CorruptRecordError):  # as lines, it is one of them
            return blocks_read, False
        size += 1 + len(block)
        if size > limits.document_bytes:
            # Or the first line is a record that was cut off; then the second line is a record.
            second = first.lstrip().split(b"\n", 2)[1:2] or blocks_read[1:2]
            if isinstance(second[0], bytes) and second[0].lstrip()[:1] == b"{" and _is_json(second[0]):
                return blocks_read, False
            msg = (
                f"the JSON document that begins here has more than {limits.max_document_mb:,} MB and is not read. If "
                "you trust it, raise RecordsConfig.max_document_mb, or write one work per line: "
                "jq -c '.results[]? // .[]'"
            )
            raise CorruptRecordError(msg)
    document = b"\n".join(cast("list[bytes]", blocks_read))
    # Or the first line is a record that was cut off; then the other lines are records.
    return [document], _is_json(document)


def works_of(piece: bytes) -> Iterator[Work | CorruptRecordError]:
    """Parse one JSON value: a work, a list of works, or a page of the API with ``results``.

    Example:
        >>> [work.work_id for work in works_of(b'{"meta":{"count":2},"results":[{"id":"W1"},{"id":"W2"}]}')]
        [1, 2]
    """
    try:
        if not _LIST.match(piece):
            yield parse_work(piece)
            return
        error = None
    except CorruptRecordError as reason:
        error = reason
    place = 0
    try:
        for place, entry in enumerate(_entries(piece), 1):
            yield _result(place, bytes(entry))
    except CorruptRecordError as reason:
        yield reason if place or error is None else error


def _result(place: int, entry: bytes) -> Work | CorruptRecordError:
    try:
        if _OBJECT.match(entry):
            return parse_work(entry)
        msg = "not a JSON object"
        raise CorruptRecordError(msg)
    except CorruptRecordError as error:
        return CorruptRecordError(f"result {place}: {error}")


class _Page(msgspec.Struct):
    results: list[msgspec.Raw]


def _entries(piece: bytes) -> Iterable[bytes | msgspec.Raw]:
    """Cut a list or a page into entries: together if that needs no more memory than their text."""
    is_list = _LIST.match(piece)
    try:
        if len(piece) <= _FEW_BYTES or _has_large_entries(piece):
            return (
                msgspec.json.decode(piece, type=list[msgspec.Raw])
                if is_list
                else msgspec.json.decode(piece, type=_Page).results
            )
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    if not _is_strict_json(piece):  # a list that was cut off must yield no entry
        for _ in entries_one_by_one(piece):
            pass
    return entries_one_by_one(piece)


def _has_large_entries(piece: bytes) -> bool:
    """Whether entries of a list or a page are large on average; decodes no content. It raises if one is no object."""
    n_left = len(piece) // _HANDLE_BYTES

    class Entry(msgspec.Struct, gc=False):
        def __post_init__(self) -> None:
            nonlocal n_left
            n_left -= 1
            if n_left < 0:
                raise ValueError

    entries = list[Entry]
    page = msgspec.defstruct("Page", [("results", entries)])
    msgspec.json.decode(piece, type=entries if _LIST.match(piece) else page)
    return True


def _is_strict_json(document: bytes) -> bool:
    try:
        if is_utf8(document):
            msgspec.json.decode(document, type=msgspec.Raw)  # makes no objects
            return True
    except (msgspec.MsgspecError, RecursionError):
        pass
    return False


def _is_json(document: bytes) -> bool:
    """Whether the whole document is JSON, perhaps after repair; raises if a part is too large to repair."""
    if _is_strict_json(document):
        return True
    try:
        for _ in entries_one_by_one(document):
            pass
    except TooLongToMendError:
        raise
    except NoListError:
        return True
    except CorruptRecordError:
        return False
    return True


def decompressed_chunks(path: Path, advance: Callable[[float], None] | None = None) -> Iterator[bytes]:
    """Read and decompress a file of text; all bytes before a damage are yielded before the error."""
    chunks = _decompressed(path, advance)
    first = next(chunks, b"")
    if encoding := name_encoding(first):
        raise CorruptRecordError(OTHER_ENCODING.format(encoding))
    yield from chain([first] * bool(first), chunks)


def _decompressed(path: Path, advance: Callable[[float], None] | None) -> Iterator[bytes]:
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
        for data in decompress(read(), open_gzip, " here") if is_gzip else decompress_zstd(read(), " here"):
            n_out += len(data)
            yield data
    except CorruptRecordError:
        # A decoder returns nothing of the chunk that holds the damage, so decode that one again, byte by byte.
        again = read_again()
        exact = decompress(again, open_gzip, " here") if is_gzip else decompress_zstd(again, " here", exact_from=n_out)
        for data in exact:
            yield data[max(n_out, 0) :]
            n_out -= len(data)


def in_batches(items: Iterable[T], size: int, most_bytes: int, n_read: Callable[[], int]) -> Iterator[list[T]]:
    """Yield ``size`` items at a time, or fewer where ``n_read`` has grown by more than ``most_bytes`` of text."""
    batch: list[T] = []
    read_before = n_read()
    for item in items:
        batch.append(item)
        if len(batch) == size or n_read() - read_before > most_bytes:
            yield batch
            batch, read_before = [], n_read()
    if batch:
        yield batch


def raw_chunks(path: Path) -> Iterator[bytes]:
    """Read the bytes of a file, a quarter of a megabyte at a time.

    Example:
        >>> list(raw_chunks(Path("no", "such.jsonl")))
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: cannot read no/such.jsonl: No such file or directory. Check the path
        and its permissions.
    """
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}. Check the path and its permissions."
        raise InputNotFoundError(msg) from error


def printable_name(path: Path) -> str:
    """Return the base name of a file, with U+FFFD for bytes that are not UTF-8, for reports.

    Example:
        >>> printable_name(Path("data", "works.jsonl"))
        'works.jsonl'
    """
    return os.fsencode(path.name).decode("utf-8", "replace")


def state_files(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Describe the files for a manifest: name, size and SHA-256."""
    return [{"name": printable_name(file), "bytes": file.stat().st_size, "sha256": hash_file(file)} for file in files]
