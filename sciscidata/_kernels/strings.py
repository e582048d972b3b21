"""Hand strings from Polars to compiled loops and back: their bytes in one run, and where each begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc


def string_buffers(strings: pl.Series) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of a String Series, where each string begins, and the end of the last one.

    Example:
        >>> data, offsets = string_buffers(pl.Series(["On", None, "dams"]))
        >>> data[offsets[0] : offsets[-1]].tobytes(), offsets.tolist()
        (b'Ondams', [0, 2, 2, 6])
    """
    # The oldest Arrow layout is one run of bytes with 64-bit offsets.
    array: Any = strings.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    if array.null_count:  # a null may stand over the text that was there before
        # Not by Polars: its threads may be waiting for the one that calls.
        array = pc.fill_null(array, "")
    _, offsets, data = array.buffers()
    # Absent when every row is null.
    return np.frombuffer(data or b"", np.uint8), np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)


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
