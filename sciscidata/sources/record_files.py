"""From files to single OpenAlex records: which files, which compression, which of the usual shapes, which line.

Everything is told from the content, nothing from the name, because record files travel under any name.
"""

from __future__ import annotations

import glob
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from sciscidata.errors import CorruptRecordError, InputNotFoundError
from sciscidata.storage import expand_home, real_path
from sciscidata.work_records import strict_json
from sciscidata.works import Work, parse_work

_SUFFIXES = (".jsonl", ".json", ".ndjson", ".txt")
_COMPRESSED = (".gz", ".zst")
_CHUNK_BYTES = 1 << 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def find_record_files(inputs: tuple[str, ...]) -> list[Path]:
    """List the files that the inputs name: in the order given, folders and patterns sorted by path.

    A folder stands for all files below it that are named ``.jsonl``, ``.json``, ``.ndjson`` or ``.txt``, with
    or without ``.gz`` or ``.zst``, or just ``.gz`` or ``.zst``. A file named twice is listed once.

    Raises:
        InputNotFoundError: at once; an input does not exist, matches no file, or is a pipe or a device.
        PermissionError: at once; a folder may not be read.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     for name in ("b.jsonl.gz", "a.jsonl", "readme.md"):
        ...         Path(home, name).touch()
        ...     [file.name for file in find_record_files((home,))]
        ['a.jsonl', 'b.jsonl.gz']
    """
    files: dict[Path, Path] = {}
    for given in inputs:
        matches = _matches_of(given)
        if not matches:
            what = "matches no file" if glob.has_magic(given) else "does not exist"
            msg = f"records input {given!r} {what}. Check the path; it is read from {Path.cwd()}."
            raise InputNotFoundError(msg)
        found = [file for match in sorted(matches) for file in _files_of(match)]
        if not found:
            names = ", ".join((*_SUFFIXES, *_COMPRESSED))
            msg = f"records input {given!r} holds no file named {names}. Name other files one by one."
            raise InputNotFoundError(msg)
        for file in found:
            files.setdefault(real_path(file), file)
    return list(files.values())


def _matches_of(given: str) -> list[Path]:
    """List what an input names: as far as it exists a path, whatever signs are in it, and only from there a pattern."""
    path = Path(expand_home(given))
    there = next(above for above in (path, *path.parents) if above.exists() or above == above.parent)
    if there == path:
        return [path]
    # Path.glob would list hidden files too.
    names = glob.glob(str(path.relative_to(there)), root_dir=there, recursive=True)  # noqa: PTH207
    return [there / name for name in names if (there / name).exists()]  # links may lead nowhere


def _files_of(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        msg = (
            f"records input {str(path)!r} is neither a file nor a folder. It is read more than once: "
            "write what it gives into a file first."
        )
        raise InputNotFoundError(msg)
    os.scandir(path).close()  # of a folder that may not be read, rglob says nothing
    return sorted(file for file in path.rglob("*") if file.is_file() and _is_record_name(file.name))


def _is_record_name(name: str) -> bool:
    return name.lower().endswith((*_SUFFIXES, *_COMPRESSED)) and not name.startswith(".")


def read_pieces(path: Path, advance: Callable[[float], None] | None = None) -> Iterator[tuple[int, bytes]]:
    r"""Cut a file into pieces that should each be one JSON value, with the number of their first line.

    A piece is a line (ended by ``\n`` alone: U+2028 and U+0085 may stand inside), or the whole file if its first
    line breaks off inside a value, as in pretty-printed JSON. Lines are read in bounded memory; such a document
    is held in memory whole.

    Args:
        path: plain, gzip or Zstandard, with or without a byte order mark.
        advance: told the number of bytes of the file after each read.

    Raises:
        CorruptRecordError: while reading, where a compressed file is damaged or ends too early: after the last
            whole line that could be decompressed. Its message is the reason alone.
        InputNotFoundError: the file cannot be opened or read.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     file = Path(home, "works.jsonl")
        ...     _ = file.write_bytes(b'{"id":"W1"}\n{"id":"W2"}\n')
        ...     list(read_pieces(file))
        [(1, b'{"id":"W1"}'), (2, b'{"id":"W2"}')]
    """
    lines = enumerate(_lines(_chunks(path, advance)), 1)
    for number, line in lines:
        if not line.strip():
            yield number, line
            continue
        if line.rstrip()[-1:] not in (b"{", b"[", b",", b":"):
            yield number, line
            break
        rest = [line, *(later for _, later in lines)]
        document = b"\n".join(rest)
        # The first line may also be a record that was cut off; then the other lines stand for themselves.
        yield from [(number, document)] if _is_json(document) else enumerate(rest, number)
    yield from lines


def works_of(piece: bytes) -> Iterator[Work | CorruptRecordError]:
    """Read the works of one JSON value: a work, a list of works, or a page of the API with ``results``.

    Yields:
        In order, a Work or the reason why there is none.

    Example:
        >>> [work.work_id for work in works_of(b'{"meta":{"count":2},"results":[{"id":"W1"},{"id":"W2"}]}')]
        [1, 2]
    """
    try:
        yield parse_work(piece)
    except CorruptRecordError as error:
        entries = _entries(piece)
        if entries is None:
            yield error
            return
        for place, entry in enumerate(entries, 1):
            try:
                yield parse_work(bytes(entry))
            except CorruptRecordError as entry_error:
                yield CorruptRecordError(f"result {place}: {entry_error}")


class _Page(msgspec.Struct):
    results: list[msgspec.Raw]


def _entries(piece: bytes) -> list[msgspec.Raw] | None:
    is_list = piece.lstrip()[:1] == b"["
    for text in (lambda: piece, lambda: strict_json(piece)):
        try:
            return (
                msgspec.json.decode(text(), type=list[msgspec.Raw])
                if is_list
                else msgspec.json.decode(text(), type=_Page).results
            )
        except (msgspec.MsgspecError, UnicodeError, RecursionError, CorruptRecordError):
            continue
    return None


def _is_json(document: bytes) -> bool:
    try:
        strict_json(document)
    except CorruptRecordError:
        return False
    return True


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    is_first = True
    for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        if not whole:
            parts.append(chunk)
            continue
        whole[0] = b"".join((*parts, whole[0]))
        if is_first:
            whole[0] = whole[0].removeprefix(_BYTE_ORDER_MARK)
            is_first = False
        yield from whole
        parts = [last]
    if rest := b"".join(parts):
        yield rest.removeprefix(_BYTE_ORDER_MARK) if is_first else rest


def _chunks(path: Path, advance: Callable[[float], None] | None) -> Iterator[bytes]:
    """Read a file in its decompressed form; whatever lies before a damage comes out first."""
    opener = _OPENERS.get(next(raw_chunks(path), b"")[:2])
    n_read = n_out = 0

    def read() -> Iterator[bytes]:
        nonlocal n_read
        for chunk in raw_chunks(path):
            n_read += 1
            if advance is not None:
                advance(len(chunk))
            yield chunk

    if opener is None:
        yield from read()
        return
    try:
        for data in _decompress(read(), opener):
            n_out += len(data)
            yield data
    except CorruptRecordError:
        # A decoder keeps what it made of the very chunk that holds the damage: that one again, byte by byte.
        for data in _decompress(_last_in_bytes(raw_chunks(path), n_read), opener):
            yield data[max(n_out, 0) :]
            n_out -= len(data)


def _decompress(chunks: Iterable[bytes], opener: Callable[[], Any]) -> Iterator[bytes]:
    """Decompress; gzip members and Zstandard frames may follow each other."""
    decoder: Any = None
    for chunk in chunks:
        rest = chunk
        while rest := rest if decoder else rest.lstrip(b"\0"):  # some tools fill the last block with zeros
            decoder = decoder or opener()
            try:
                yield decoder.decompress(rest)
            except (zlib.error, zstandard.ZstdError) as error:
                msg = f"the compressed data is damaged here ({error})"
                raise CorruptRecordError(msg) from error
            if not decoder.eof:
                break
            rest, decoder = decoder.unused_data, None
    if decoder is not None:
        msg = "the compressed file ends too early here: it was cut off"
        raise CorruptRecordError(msg)


def _last_in_bytes(chunks: Iterable[bytes], n: int) -> Iterator[bytes]:
    for place, chunk in enumerate(islice(chunks, n), 1):
        yield from [chunk] if place < n else (bytes([byte]) for byte in chunk)


def raw_chunks(path: Path) -> Iterator[bytes]:
    """Read a file as it is, a quarter of a megabyte at a time.

    Raises:
        InputNotFoundError: while reading; the file cannot be opened or read.

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
    """Give the base name of a file, with U+FFFD for bytes that are no UTF-8, which no report could hold.

    Example:
        >>> printable_name(Path("data", "works.jsonl"))
        'works.jsonl'
    """
    return os.fsencode(path.name).decode("utf-8", "replace")


def _open_gzip() -> Any:  # noqa: ANN401
    return zlib.decompressobj(wbits=31)


def _open_zstd() -> Any:  # noqa: ANN401
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()  # what ``zstd --ultra --long=31`` makes


# By the first two bytes. The sixteen are skippable frames of Zstandard, with which pzstd begins.
_OPENERS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": _open_gzip,
    b"\x28\xb5": _open_zstd,
    **{bytes((first, 0x2A)): _open_zstd for first in range(0x50, 0x60)},
}
