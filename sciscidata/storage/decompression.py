"""Decompress gzip and Zstandard in pieces of at most 4 MB, however far a hostile file expands."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from isal import isal_zlib  # inflates twice as fast as zlib

from sciscidata.errors import CorruptRecordError, SciSciDataError

#: The largest piece that is handed out; ten times what a read of real records gives.
PIECE_BYTES: Final = 4 << 20
#: Input for the beginning of a member, then four times as much each time. A decoder copies what lies behind the end of
#: a member, and a file may consist of short members.
_FIRST_BYTES: Final = 4 << 10
_MOST_BYTES: Final = 1 << 20


def decompress_gzip(chunks: Iterable[bytes], where: str = "") -> Iterator[bytes]:
    """Decompress members of gzip that follow each other, at most 4 MB at a time; ``where`` is for errors."""
    decoder: Any = None  # of one member
    size = _FIRST_BYTES
    for chunk in chunks:
        view, at = memoryview(chunk), 0
        while at < len(view):
            if decoder is None:
                at = skip(chunk, at, b"\0")  # some tools fill the last block with zeros
                if at == len(view):
                    break
                decoder, size = isal_zlib.decompressobj(wbits=31), _FIRST_BYTES
            piece: bytes | memoryview = view[at : at + size]
            at += len(piece)
            size = min(4 * size, _MOST_BYTES)
            while True:
                try:
                    data = decoder.decompress(piece, PIECE_BYTES)
                except isal_zlib.error as error:  # pyright: ignore[reportGeneralTypeIssues]  # a stub says Exception
                    raise CorruptRecordError(f"the compressed data is damaged{where} ({error})") from error
                if data:
                    yield data
                piece = decoder.unconsumed_tail
                if decoder.eof or (not piece and len(data) < PIECE_BYTES):
                    break
            if decoder.eof:
                at -= len(decoder.unused_data)
                decoder = None
    if decoder is not None:
        raise CorruptRecordError(f"the compressed file ends too early{where}: it was cut off")


def skip(block: bytes, at: int, what: bytes | None = None) -> int:
    """Return the first place from ``at`` on with another byte than ``what`` (None: blanks); at the end, the length.

    The block is read in windows that grow, so that neither long runs nor many short ones are slow.
    """
    size = 64
    while at < len(block):
        window = block[at : at + size]
        # A window of one repeated byte, such as line ends, is compared ten times as fast.
        if window[1:] == window[:-1]:
            if window[:1].lstrip(what):
                break
            at += len(window)
        else:
            kept = window.lstrip(what)
            at += len(window) - len(kept)
            if kept:
                break
        size = min(8 * size, _MOST_BYTES)
    return at


class Chunks(io.RawIOBase):
    """A file of the chunks that it is made of."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._rest = iter(chunks), b""

    def readable(self) -> bool:
        """Return True: pyarrow asks."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` bytes of one chunk."""
        piece = self._rest or next(self._chunks, b"")
        self._rest = piece[size:]
        return piece[:size]


def decompress_zstd(chunks: Iterable[bytes], where: str = "", *, exact_from: int | None = None) -> Iterator[bytes]:
    """Decompress frames of Zstandard like members of gzip; from ``exact_from`` on in single bytes, up to a damage."""
    n_given = 0
    with pa.CompressedInputStream(pa.PythonFile(Chunks(chunks), "r"), "zstd") as stream:
        while True:
            left = PIECE_BYTES if exact_from is None else min(exact_from - n_given, PIECE_BYTES)
            try:
                piece = stream.read(max(left, 1))
            except SciSciDataError:  # the chunks cannot be read
                raise
            except OSError as error:
                raise CorruptRecordError(_explain_zstd(str(error), where)) from error
            if not piece:
                return
            n_given += len(piece)
            yield piece


def _explain_zstd(reason: str, where: str) -> str:
    if "Truncated" in reason:
        return f"the compressed file ends too early{where}: it was cut off"
    if "too much memory" in reason:
        return (
            f"the Zstandard data needs a window of more than 128 MB in memory{where}. If you trust the file, pack it "
            "anew: zstd -d --long=31, and then zstd"
        )
    return f"the compressed data is damaged{where} ({reason.rpartition(': ')[2]})"
