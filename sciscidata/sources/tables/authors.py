"""Take the authors of works from a column of a table: one a row, lists, or text with a separator."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sciscidata.records.dois import BLANKS
from sciscidata.records.ids import MISSING, number_ids, plain_ids, without_missing
from sciscidata.sources.tables.columns import split_references


def find_separator(authors: pl.Series) -> str | None:
    """Return what parts authors in text: | or ;, whichever it has first in this order."""
    is_text = authors.dtype == pl.String()
    return next((sign for sign in "|;" if is_text and authors.str.contains(sign, literal=True).any()), None)


def author_rows(rows: pl.DataFrame, separator: str | None = None, missing: Sequence[str] = MISSING) -> pl.DataFrame:
    """Return each pair of ``work_id``, numbered, and ``author_id`` once, sorted; text is parted where it can be."""
    listed, _ = without_missing(rows["author_id"], missing)
    if listed.dtype == pl.String():
        separator = separator or find_separator(listed)
        is_list = listed.str.contains(r"^\s*[\[{]").any()
        listed = split_references(listed) if is_list else listed.str.split(separator) if separator else listed
    rows = rows.with_columns(listed.alias("author_id"))
    if isinstance(listed.dtype, pl.List):
        rows = rows.explode("author_id")
    if not (rows["author_id"].dtype == pl.String() or rows["author_id"].dtype.is_integer()):
        rows = rows.with_columns(plain_ids(rows["author_id"]))
    if rows["author_id"].dtype == pl.String():
        author = pl.col("author_id").str.strip_chars(BLANKS)
        rows = rows.with_columns(pl.when(~author.is_in(["", *missing])).then(author))
    rows = rows.with_columns(number_ids(rows["work_id"]).alias("work_id"))
    return rows.drop_nulls().unique().sort("work_id", "author_id")
