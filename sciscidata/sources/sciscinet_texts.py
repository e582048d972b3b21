"""Titles and abstracts as SciSciNet holds them, to plain text, fast: nearly every text needs no cleaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from sciscidata.abstracts import decode_inverted_indexes
from sciscidata.plain_text import clean_text


def plain_texts(column: str, *, inverted: bool) -> pl.Expr:
    """Make plain text of a column of titles, or of inverted indexes: what ``clean_text`` makes, in a third of its time.

    Of indexes that are cut off or broken it keeps what ``decode_inverted_index`` does: of a short one nothing.

    Args:
        column: its name; String.
        inverted: the column holds inverted indexes, as JSON text.

    Example:
        >>> frame = pl.DataFrame({"abstract": ['{"<i>Dams</i>":[0],"leak.":[1]}', '{"Dams":[0],"le']})
        >>> frame.select(plain_texts("abstract", inverted=True))["abstract"].to_list()
        ['Dams leak.', None]
    """

    def make(texts: pl.Series) -> pl.Series:
        return _clean(decode_inverted_indexes(texts) if inverted else texts)

    return pl.col(column).map_batches(make, return_dtype=pl.String(), is_elementwise=True)


def _clean(texts: pl.Series) -> pl.Series:
    from sciscidata.plain_text_kernels import find_unclean  # numba takes a while to import

    texts = texts.cast(pl.String).rechunk()
    array: Any = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offset_buffer, byte_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(array) + 1, array.offset * 8)
    unclean = find_unclean(np.frombuffer(byte_buffer or b"", np.uint8), offsets)
    rows = np.flatnonzero(unclean & texts.is_not_null().to_numpy())
    if not rows.size:
        return texts
    cleaned = texts.gather(rows).to_frame("text").select(clean_text("text"))["text"]
    return texts.scatter(rows, cleaned)
