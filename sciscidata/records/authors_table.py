"""The table of who wrote which work, and where they work."""

from __future__ import annotations

import polars as pl

#: One row per work and author of OpenAlex. Other sources say ``work_id`` and ``author_id`` only, which may be text.
AUTHORS = pl.Schema(
    {
        "work_id": pl.Int64(),
        "author_id": pl.Int64(),  # the number after A; null where OpenAlex has no id
        "author_number": pl.Int32(),  # the first author of a work is 1
        "author_position": pl.String(),  # first, middle, last
        "is_corresponding": pl.Boolean(),
        "author_name": pl.String(),
        "orcid": pl.String(),
        "institution_ids": pl.List(pl.Int64()),  # the numbers after I
        "rors": pl.List(pl.String()),
        "country_codes": pl.List(pl.String()),
    }
)
