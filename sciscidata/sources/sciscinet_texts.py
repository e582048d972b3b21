"""Titles and abstracts as SciSciNet holds them, to plain text."""

from __future__ import annotations

import polars as pl

from sciscidata.abstracts import decode_inverted_index
from sciscidata.plain_text import clean_text


def plain_texts(column: str, *, inverted: bool) -> pl.Expr:
    """Make plain text of a column of titles, or of inverted indexes: what ``clean_text`` makes.

    Of indexes that are cut off or broken it keeps what ``decode_inverted_index`` does: of a short one nothing.

    Args:
        column: its name; String.
        inverted: the column holds inverted indexes, as JSON text.

    Example:
        >>> frame = pl.DataFrame({"abstract": ['{"<i>Dams</i>":[0],"leak.":[1]}', '{"Dams":[0],"le']})
        >>> frame.select(plain_texts("abstract", inverted=True))["abstract"].to_list()
        ['Dams leak.', None]
    """
    text = pl.col(column)
    return clean_text(decode_inverted_index(text) if inverted else text)
