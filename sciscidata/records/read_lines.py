"""Cut text of any size into lines, in bounded memory: too long lines are named, empty ones passed in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from sciscidata.errors import CorruptRecordError
from sciscidata.storage.decompression import skip

_MB: Final = 1 << 20
_FEW_BYTES: Final = 4_096
_LINE_END: Final = ord("\n")


class ReadLimits(NamedTuple):
    """How much of a file may be in memory. A longer line is corrupt, a longer JSON document ends the file.

    The longest real records, with thousands of authors, have tens of MB (1,048,576 bytes).
    """

    max_line_mb: int = 256
    max_document_mb: int = 1_024

    @property
    def line_bytes(self) -> int:
        """The longest line."""
        return self.max_line_mb * _MB

    @property
    def document_bytes(self) -> int:
        """The longest document."""
        return self.max_document_mb * _MB


DEFAULT_LIMITS: Final = ReadLimits()


def whole_lines(
    pieces: Iterable[bytes], limits: ReadLimits, least: int = 0, spare: bytes = b""
) -> Iterator[bytes | CorruptRecordError]:
    """Cut text into blocks of ``least`` bytes of whole lines, without the last end; an error stands for a long line.

    ``spare`` is put behind each block. A CorruptRecordError of ``pieces`` comes behind the last whole line.
    """
    parts: list[bytes] = []
    n_held = n_open = 0  # bytes: of all parts, and behind their last line end
    is_over = False
    damage: CorruptRecordError | None = None

    def whole_pieces() -> Iterator[bytes]:
        nonlocal damage
        try:
            yield from pieces
        except CorruptRecordError as error:
            damage = error

    for data in whole_pieces():
        end = data.rfind(b"\n")
        if is_over and end < 0:
            continue
        if is_over:
            yield too_long(limits)
            start = data.find(b"\n") + 1
            data, end, is_over = data[start:], end - start, False
        if end >= 0 and n_held + len(data) >= least:
            yield from _checked([*parts, memoryview(data)[:end]], limits, spare)
            data, end = data[end + 1 :], -1
            parts, n_held, n_open = [], 0, 0
        if data:
            parts.append(data)
        n_held += len(data)
        n_open = len(data) + (n_open if end < 0 else -end - 1)
        if n_open > limits.line_bytes:
            if n_open < n_held:
                yield from _checked([b"".join(parts)[: n_held - n_open - 1]], limits, spare)
            parts, n_held, n_open, is_over = [], 0, 0, True
    if damage and n_open < n_held:
        yield from _checked([b"".join(parts)[: n_held - n_open - 1]], limits, spare)
    if damage:
        raise damage
    if is_over:
        yield too_long(limits)
    elif parts:
        yield from _checked([b"".join(parts).removesuffix(b"\n")], limits, spare)


def _checked(
    parts: Sequence[bytes | memoryview], limits: ReadLimits, spare: bytes
) -> Iterator[bytes | CorruptRecordError]:
    """Join the parts of a block; look for lines that are too long, where there may be one."""
    most = limits.line_bytes
    if sum(map(len, parts)) <= most:
        yield b"".join((*parts, spare))
        return
    block = b"".join(parts)
    start = at = 0  # beginnings: of the part not yet handed out, and of a line
    while len(block) - at > most:
        last = block.rfind(b"\n", at, at + most + 1)
        if last >= 0:  # all lines up to there are shorter
            at = last + 1
            continue
        end = block.find(b"\n", at + most)
        if start < at:
            yield block[start : at - 1] + spare
        yield too_long(limits)
        start = at = (len(block) if end < 0 else end) + 1
    if start <= len(block):
        yield block[start:] + spare


def too_long(limits: ReadLimits) -> CorruptRecordError:
    """Say why a line is not read."""
    return CorruptRecordError(
        f"the line has more than {limits.max_line_mb:,} MB and is not read. If you trust it, raise "
        "RecordsConfig.max_line_mb (of a snapshot: SnapshotConfig.max_line_mb)"
    )


def split_lines(block: bytes) -> Iterator[bytes]:
    """Give the lines of a block one by one, and blank lines in a row together."""
    at, size = 0, len(block)
    while at <= size:
        end = block.find(b"\n", at)
        end = size if end < 0 else end
        line = block[at:end]
        if line and not line.isspace():  # of most lines the first byte says so
            yield line
            at = end + 1
            continue
        first = skip(block, end)
        start = size + 1 if first == size else block.rfind(b"\n", at, first) + 1
        yield block[at : start - 1]
        at = start


def is_blank(piece: bytes) -> bool:
    """Whether a piece of ``split_lines`` is blank lines."""
    return not piece[:1].strip() and skip(piece, 0) == len(piece)


def count_lines(piece: bytes) -> int:
    """Count the lines of a piece that ``split_lines`` has given."""
    if len(piece) < _FEW_BYTES:
        return 1 + piece.count(b"\n")
    return 1 + int(np.count_nonzero(np.frombuffer(piece, np.uint8) == _LINE_END))  # a third of the time
