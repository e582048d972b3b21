"""Cut text of any size into lines, in bounded memory: no line may be too long, empty ones are passed in bulk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from sciscidata.errors import CorruptRecordError
from sciscidata.storage.decompression import skip

_FEW_BYTES: Final = 4_096
_SHORT: Final = 64
_LINE_END: Final = ord("\n")
#: A file of ten megabytes can expand to gigabytes on one line. The longest real records, with thousands of authors,
#: have tens of MB.
MOST_LINE_BYTES: Final = 256 << 20

_TOO_LONG: Final = b"the line has more than "


def refusal_of(line: bytes) -> str:
    """Return the reason why a line was left out by ``whole_lines``, or "" for any other line."""
    return line.decode() if len(line) < _SHORT and re.fullmatch(_TOO_LONG + rb"[0-9]+ MB", line) else ""


def whole_lines(pieces: Iterable[bytes], least: int = 0, spare: bytes = b"") -> Iterator[bytes]:
    """Cut text into blocks of ``least`` bytes of whole lines, without the last end; ``spare`` is put behind each.

    In place of a line that is too long stands one that says so (``refusal_of``). A CorruptRecordError of ``pieces``
    comes behind the last whole line.
    """
    parts: list[bytes] = []
    n_held = n_open = 0  # bytes: of all parts, and behind their last line end
    is_too_long = False
    try:
        for data in pieces:
            if is_too_long:
                end = data.find(b"\n")
                if end < 0:
                    continue
                data, is_too_long = data[end:], False
            end = data.rfind(b"\n")
            if end >= 0 and n_held + len(data) >= least:
                yield b"".join((*parts, memoryview(data)[:end], spare))
                data, end = data[end + 1 :], -1
                parts, n_held, n_open = [], 0, 0
            if data:
                parts.append(data)
            n_held += len(data)
            n_open = len(data) + (n_open if end < 0 else -end - 1)
            if n_open > MOST_LINE_BYTES:
                while parts and n_open >= len(parts[-1]):
                    n_open -= len(parts.pop())
                parts[-1:] = [parts[-1][: len(parts[-1]) - n_open]] if parts else []
                parts.append(b"%b%d MB" % (_TOO_LONG, MOST_LINE_BYTES >> 20))
                n_held, n_open, is_too_long = sum(map(len, parts)), len(parts[-1]), True
    except CorruptRecordError:
        if n_open < n_held:
            yield b"".join(parts)[: n_held - n_open - 1] + spare
        raise
    if parts:
        yield b"".join(parts).removesuffix(b"\n") + spare


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
