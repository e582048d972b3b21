"""Hand strings from Polars to compiled loops and back: their bytes in one run, and where each begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from sciscidata._kernels.arrays import read_only

INLINE: Final = 12  # bytes of a text that its view holds
_MUCH: Final = 0.4


def string_buffers(strings: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of a String Series, where each string begins, and the end of the last one.

    A string array of Arrow is not copied.

    Example:
        >>> data, offsets = string_buffers(pl.Series(["On", None, "dams"]))
        >>> data[offsets[0] : offsets[-1]].tobytes(), offsets.tolist()
        (b'Ondams', [0, 2, 2, 6])
    """
    array: Any = strings
    if isinstance(strings, pl.Series):
        # The oldest Arrow layout is one run of bytes with 64-bit offsets.
        array = strings.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    data, offsets = _buffers(array)
    if array.null_count and (np.diff(offsets)[array.is_null().to_numpy(zero_copy_only=False)] > 0).any():
        # A null stands over the text that was there before. Polars' threads may be waiting for the one that calls.
        data, offsets = _buffers(pc.fill_null(array, ""))
    return data, offsets


class Views(NamedTuple):
    """Texts where they lie: one of more than 12 bytes begins at the address ``buffers[view[2]] + view[3]``.

    Attributes:
        views: uint32 (n, 4), Arrow's views: the number of bytes first. Up to 12 bytes are in the view behind it.
        buffers: int64, the address of each buffer; at the end, that of ``views``.
        is_null: bool (n), or empty where there are none; the view of a null means nothing.
        owner: what holds the memory; keep it as long as the rest.
    """

    views: npt.NDArray[np.uint32]
    buffers: npt.NDArray[np.int64]
    is_null: npt.NDArray[np.bool_]
    owner: object


def view_texts(strings: pl.Series) -> Iterator[Views]:
    """Hand every chunk of a String Series to a loop, without a copy of anything.

    Example:
        >>> views = next(view_texts(pl.Series(["On", None, "a dam of the Rhone"])))
        >>> views.views[:, 0].tolist()[::2], views.is_null.tolist()
        ([2, 18], [False, True, False])
    """
    for chunk in strings.get_chunks():
        array: Any = chunk.to_arrow(compat_level=pl.CompatLevel.newest())
        _, views, *texts = array.buffers()
        first = 16 * array.offset
        rows = np.frombuffer(views, np.uint32, 4 * len(array), first).reshape(-1, 4)
        buffers = np.array([*(text.address for text in texts), views.address + first], np.int64)
        is_null = chunk.is_null().to_numpy() if array.null_count else np.empty(0, np.bool_)
        yield Views(read_only(rows), read_only(buffers), read_only(is_null), array)


def text_series(name: str, data: bytes, views: npt.NDArray[np.uint32], is_null: npt.NDArray[np.bool_]) -> pl.Series:
    """Make a String Series of Arrow's views (n, 4) of ``data``, which it holds where the texts are much of it."""
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    n_bytes = views[:, 0]
    n_outside = n_bytes[n_bytes > INLINE].sum()
    buffers = [valid, pa.py_buffer(views.copy()), *([pa.py_buffer(data)] if n_outside else [])]
    array: Any = pa.Array.from_buffers(pa.string_view(), len(views), buffers)
    if 0 < n_outside < _MUCH * len(data):
        array = array.cast(pa.large_string())  # a row that is kept would hold the text of all columns
    return pl.Series(name, array)


def is_text(kind: Any) -> bool:
    """Whether ``string_buffers`` reads Arrow arrays of a type."""
    return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _buffers(array: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    if array.type != pa.large_string():
        array = array.cast(pa.large_string())  # of a string array only the offsets
    _, offsets, data = array.buffers()
    # Data are absent when every row is null.
    parts = np.frombuffer(data or b"", np.uint8), np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    for part in parts:
        part.flags.writeable = False  # else the loops would be compiled twice
    return parts


def replace_rows(strings: pl.Series, rows: npt.NDArray[np.int64], others: pl.Series) -> pl.Series:
    """Replace some rows by ``others``; unlike ``Series.scatter``, this copies no text."""
    places = np.arange(len(strings), dtype=np.uint32)
    places[rows] = np.arange(len(strings), len(strings) + len(others), dtype=np.uint32)
    return pl.concat([strings, others]).gather(places)


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8, without copying them; beyond ASCII eight times as fast as ``bytes.decode``."""
    ends = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(data)]).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True
