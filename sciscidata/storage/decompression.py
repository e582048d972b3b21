"""Decompress gzip and Zstandard in pieces of at most 4 MB, however far a hostile file expands."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

import zstandard
from isal import isal_zlib  # inflates twice as fast as zlib

from sciscidata.errors import CorruptRecordError

#: The largest piece that is handed out; ten times what a read of real records gives.
PIECE_BYTES: Final = 4 << 20
#: Input for the beginning of a member, then four times as much each time. A decoder copies what lies behind the end of
#: a member, and a file may consist of short members.
_FIRST_BYTES: Final = 4 << 10
_MOST_BYTES: Final = 1 << 20

_ZSTD_BLOCK_BYTES: Final = 128 << 10  # no block of Zstandard gives more (RFC 8878, 3.1.1.2.4)
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ERRORS: Final = (zlib.error, zstandard.ZstdError, isal_zlib.error)


class Decoder(Protocol):
    """Decodes one member or frame, like ``zlib.decompressobj``."""

    @property
    def eof(self) -> bool: ...  # noqa: D102
    @property
    def unused_data(self) -> bytes: ...  # noqa: D102
    @property
    def unconsumed_tail(self) -> bytes: ...  # noqa: D102
    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes: ...  # noqa: D102


Opener = Callable[[], Decoder]


def decompress(chunks: Iterable[bytes], opener: Opener, where: str = "") -> Iterator[bytes]:
    """Decompress members or frames that follow each other, at most 4 MB at a time.

    ``opener`` makes the decoder of one member. A CorruptRecordError says while reading that the data is damaged or cut
    off, and names a place: ``where``, for example " here".

    Example:
        >>> import gzip
        >>> bomb = gzip.compress(bytes(20_000_000))
        >>> len(bomb) < 20_000, max(map(len, decompress([bomb], open_gzip)))
        (True, 4194304)
    """
    decoder: Decoder | None = None
    size = _FIRST_BYTES
    for chunk in chunks:
        view, at = memoryview(chunk), 0
        while at < len(view):
            if decoder is None:
                at = skip(chunk, at, b"\0")  # some tools fill the last block with zeros
                if at == len(view):
                    break
                decoder, size = opener(), _FIRST_BYTES
            piece: bytes | memoryview = view[at : at + size]
            at += len(piece)
            size = min(4 * size, _MOST_BYTES)
            while True:
                try:
                    data = decoder.decompress(piece, PIECE_BYTES)
                except _ERRORS as error:  # pyright: ignore[reportGeneralTypeIssues]  # a stub says Exception
                    msg = f"the compressed data is damaged{where} ({error})"
                    raise CorruptRecordError(msg) from error
                if data:
                    yield data
                piece = decoder.unconsumed_tail
                if decoder.eof or (not piece and len(data) < PIECE_BYTES):
                    break
            if decoder.eof:
                at -= len(decoder.unused_data)
                decoder = None
    if decoder is not None:
        msg = f"the compressed file ends too early{where}: it was cut off"
        raise CorruptRecordError(msg)


def skip(block: bytes, at: int, what: bytes | None = None) -> int:
    r"""Return the first place from ``at`` on that holds another byte than ``what``; at the end, the length.

    ``what`` of None passes over space and line ends. The block is read in windows that grow, so that neither long runs
    nor many short ones are slow.

    Example:
        >>> skip(b"a\n \nb", 1), skip(b"\n\n", 0)
        (4, 2)
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


def open_gzip() -> Decoder:
    """Make a decoder of one gzip member."""
    return zlib.decompressobj(wbits=31)


def open_fast_gzip() -> Decoder:
    """Make a decoder of one gzip member that is twice as fast; its errors have other words."""
    return isal_zlib.decompressobj(wbits=31)


def open_zstd(max_window: int) -> Opener:
    """Return a function that makes decoders of Zstandard frames, each with at most ``max_window`` bytes in memory."""
    # One for all frames of a file: making one takes longer than decoding a short frame.
    context = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    return lambda: ZstdFrame(context, max_window)


class ZstdFrame:
    """A frame of Zstandard, or a skippable one, behind the interface of ``zlib.decompressobj``.

    The library returns everything that a piece of input gives, which may be 32,000 times as much. So this class follows
    the blocks of the frame (RFC 8878). It hands over only as many as can give what is asked for. A frame that needs a
    larger window than ``max_window`` raises a CorruptRecordError in ``decompress``.

    Example:
        >>> bomb = zstandard.ZstdCompressor().compress(bytes(20_000_000))
        >>> len(bomb) < 1_000, max(map(len, decompress([bomb], open_zstd(1 << 27))))
        (True, 4194304)
    """

    def __init__(self, context: zstandard.ZstdDecompressor, max_window: int) -> None:
        self.eof = False
        self.unused_data = b""
        self.unconsumed_tail = b""
        self._context = context
        self._decoder: Any = None
        self._max_window = max_window
        self._head = b""  # the beginning of a header that is not whole yet
        self._left = 0  # bytes of a block, a checksum or a skippable frame that are still to come
        self._is_skippable = False
        self._is_walked = True  # False where it is no frame: the library says what is wrong
        self._is_last = False  # whether the present block is the last
        self._has_checksum = False

    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes:
        """Return at most ``max_length`` bytes, but always the whole of one block."""
        view, at, head = memoryview(data), 0, b""
        if self._decoder is None and not self._is_skippable:
            at = self._read_frame_header(view)
            if self._decoder is None and not self._is_skippable:
                return b""
            head, self._head = self._head, b""
        if self._is_skippable:
            step = min(self._left, len(view) - at)
            self._left -= step
            self.eof = not self._left
            self.unused_data = bytes(view[at + step :])
            return b""
        end = self._walk(view, at, max(max_length // _ZSTD_BLOCK_BYTES, 1)) if self._is_walked else len(view)
        assert self._decoder is not None
        given: bytes = self._decoder.decompress(head + bytes(view[at:end]) if head else view[:end])
        self.eof = self._decoder.eof
        behind = bytes(view[end:])
        self.unused_data = self._decoder.unused_data + behind if self.eof else b""
        self.unconsumed_tail = b"" if self.eof else behind
        return given

    def _read_frame_header(self, view: memoryview) -> int:
        """Read the header, or its beginning, and return the place behind it."""
        at = 0
        while len(self._head) < (size := _frame_header_bytes(self._head)):
            taken = bytes(view[at : at + size - len(self._head)])
            if not taken:
                return at
            self._head += taken
            at += len(taken)
        self._is_skippable = _is_skippable(self._head)
        if self._is_skippable:
            self._left = int.from_bytes(self._head[4:8], "little")
            return at
        self._is_walked = self._head[:4] == _ZSTD_MAGIC
        if self._is_walked:
            self._has_checksum = bool(self._head[4] & 4)
            window = _window_bytes(self._head)
            if window > self._max_window:
                msg = (
                    f"the Zstandard data needs a window of {window / (1 << 20):,.0f} MB in memory, and the limit is "
                    f"{self._max_window >> 20:,} MB. If you trust the file, raise RecordsConfig.max_document_mb"
                )
                raise CorruptRecordError(msg)
        self._decoder = self._context.decompressobj()
        return at

    def _walk(self, view: memoryview, at: int, n_blocks: int) -> int:
        """Pass over at most ``n_blocks`` blocks; return the place to stop at."""
        while at < len(view):
            if self._left:
                step = min(self._left, len(view) - at)
                self._left -= step
                at += step
                if not self._left:
                    n_blocks -= 1
                    if not n_blocks:
                        break
            elif not self._is_last:
                at = self._read_block_header(view, at)
            elif self._has_checksum:
                self._left, self._has_checksum = 4, False
            else:
                break
        return at

    def _read_block_header(self, view: memoryview, at: int) -> int:
        taken = bytes(view[at : at + 3 - len(self._head)])
        self._head += taken
        if len(self._head) == 3:
            header = int.from_bytes(self._head, "little")
            self._head = b""
            self._is_last = bool(header & 1)
            self._left = 1 if header >> 1 & 3 == 1 else header >> 3  # one byte stands for a run of it
        return at + len(taken)


def _is_skippable(head: bytes) -> bool:
    return head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5


def _frame_header_bytes(head: bytes) -> int:
    """Return the size of a frame's header, as far as its beginning tells."""
    if len(head) < 5:
        return 5
    if _is_skippable(head):
        return 8
    if head[:4] != _ZSTD_MAGIC:
        return 5
    is_single = head[4] >> 5 & 1
    return 5 + (1 - is_single) + (0, 1, 2, 4)[head[4] & 3] + (is_single, 2, 4, 8)[head[4] >> 6]


def _window_bytes(head: bytes) -> int:
    """Return how many bytes of output a frame asks a decoder to keep."""
    kind = head[4] >> 6
    if not head[4] >> 5 & 1:
        base = 1 << 10 + (head[5] >> 3)
        return base + base // 8 * (head[5] & 7)
    size = (1, 2, 4, 8)[kind]
    return int.from_bytes(head[-size:], "little") + (256 if kind == 1 else 0)
