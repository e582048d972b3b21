"""WORKS out of the tables of SciSciNet: what each table adds to a paper, and which of them a query needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import polars as pl

from sciscidata.schemas import WORKS
from sciscidata.sources.sciscinet_fields import choose_fields
from sciscidata.sources.sciscinet_tables import Table
from sciscidata.sources.sciscinet_texts import plain_texts

#: Which table holds a column of WORKS; the others are in the table of papers.
TABLE_OF: Final[Mapping[str, str]] = {
    "title": "texts",
    "abstract": "texts",
    "language": "texts",
    "primary_field": "paper_fields",
    "concepts": "paper_fields",
    "source_id": "paper_sources",
    "source_name": "paper_sources",
}


def join_works(tables: Mapping[str, Table], columns: Iterable[str]) -> pl.LazyFrame:
    """Join to the papers the tables that hold ``columns``, and no other. Runs nothing.

    Args:
        tables: by the names of LAYOUTS; ``papers`` at least.
        columns: of WORKS.

    Returns:
        These columns, one row per paper, unordered; null where a table is absent, but ``is_retracted`` false and
        ``concepts`` empty.

    Example:
        >>> papers = pl.LazyFrame({"paperid": ["W7", None], "year": [1999, 2001]})
        >>> columns = {"work_id": ("paperid", "id"), "publication_year": ("year", "year")}
        >>> tables = {"papers": Table("papers", "papers.parquet", papers, columns)}
        >>> join_works(tables, ["work_id", "publication_year", "concepts", "doi"]).collect().rows()
        [(7, 1999, [], None)]
    """
    wanted = list(columns)
    own = [name for name in WORKS if name in wanted and name not in TABLE_OF and name != "work_id"]
    frame = tables["papers"].scan("work_id", *own).drop_nulls("work_id")
    for name in dict.fromkeys(TABLE_OF[column] for column in wanted if column in TABLE_OF):
        if name in tables:
            frame = frame.join(_side(tables, name, wanted), on="work_id", how="left")
    known = set(frame.collect_schema())
    frame = frame.with_columns(pl.lit(None).alias(name) for name in wanted if name not in known)
    frame = frame.select(pl.col(name).cast(WORKS[name]) for name in wanted)
    if "is_retracted" in wanted:
        frame = frame.with_columns(pl.col("is_retracted").fill_null(value=False))
    if "concepts" in wanted:
        frame = frame.with_columns(pl.col("concepts").fill_null(pl.lit([], dtype=WORKS["concepts"])))
    return frame


def text_batches(table: Table, size: int) -> Iterator[pl.DataFrame]:
    """Read the table of texts in its order, some rows at a time, its texts made plain. Executes.

    Returns:
        ``work_id``, which may be null, and ``title``, ``abstract`` and ``language`` as far as the table has them.
    """
    schema = {name: WORKS[name] for name in WORKS if name in table.columns}
    for batch in table.batches(size, *schema):
        yield batch.with_columns(_plain(table, schema)).cast(pl.Schema(schema))


def _side(tables: Mapping[str, Table], name: str, wanted: list[str]) -> pl.LazyFrame:
    """Give what one table beside the papers adds to WORKS, one row per work."""
    table = tables[name]
    if name == "texts":
        held = [column for column in ("title", "abstract", "language") if column in wanted]
        return table.scan("work_id", *held).with_columns(_plain(table, held))
    if name == "paper_fields":
        return choose_fields(table.scan("work_id", "field_id", "score"), tables["fields"].scan())
    # Of several sources of a work, the one with the lowest id: their order in the file is no one's promise.
    linked = table.scan("work_id", "source_id").drop_nulls().group_by("work_id").agg(pl.col("source_id").min())
    if "source_name" not in wanted or "sources" not in tables:
        return linked
    named = tables["sources"].scan("source_id", "source_name").drop_nulls("source_id")
    names = named.group_by("source_id").agg(pl.col("source_name").min())
    return linked.join(names, on="source_id", how="left")


def _plain(table: Table, columns: Iterable[str]) -> list[pl.Expr]:
    return [
        plain_texts(column, inverted=column == "abstract")
        for column in ("title", "abstract")
        if column in columns and column in table.columns
    ]
