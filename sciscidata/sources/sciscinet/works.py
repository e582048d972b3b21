"""Join the tables of SciSciNet to WORKS: plain texts, primary field and concepts, and venue of each paper."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from sciscidata._kernels.arrays import read_only
from sciscidata.records.abstracts import decode_inverted_index
from sciscidata.records.plain_text import clean_text
from sciscidata.schemas import WORKS
from sciscidata.sources.sciscinet.tables import Table

#: The number of concepts of a work, in every source.
MAX_CONCEPTS: Final = 8
_NO_LEVEL: Final = 99
#: The table of a column of WORKS; the other columns are in the table of papers.
TABLE_OF: Final[Mapping[str, str]] = {
    **dict.fromkeys(("title", "abstract", "language"), "texts"),
    **dict.fromkeys(("primary_field", "concepts"), "paper_fields"),
    **dict.fromkeys(("source_id", "source_name"), "paper_sources"),
}


def plain_texts(column: str, *, inverted: bool) -> pl.Expr:
    """Make plain text of a column of titles or of inverted indexes (JSON text); a damaged short index gives null."""
    text = pl.col(column)
    return clean_text(decode_inverted_index(text) if inverted else text)


def choose_fields(links: pl.LazyFrame, fields: pl.LazyFrame) -> pl.LazyFrame:
    """Make the WORKS columns ``work_id``, ``primary_field`` and ``concepts``: one row per work with a field, unordered.

    The concepts are a work's first eight fields: lowest level (0 has the 19 broad ones), highest score, name, id. The
    primary field is the first. If a field has several rows, the first name counts.
    """
    schema = {name: WORKS[name] for name in ("work_id", "primary_field", "concepts")}

    def run() -> pl.DataFrame:
        from sciscidata.sources.sciscinet._field_kernels import Links, first_fields  # numba takes a while to import

        # The order by name and id is computed once for the few hundred fields, not for every link.
        numbered = (
            fields.drop_nulls(["field_id", "field_name"])
            .sort("field_name", "field_id", "level", nulls_last=True)
            .unique("field_id", keep="first", maintain_order=True)
            .with_row_index("field")
            .with_columns(pl.col("level").fill_null(_NO_LEVEL))
            .collect()
        )
        linked = (
            links.drop_nulls(["work_id", "field_id"])
            .join(numbered.lazy().select("field_id", "field", "level"), on="field_id")
            .select("work_id", "level", pl.col("score").cast(pl.Float64).fill_nan(None).fill_null(-math.inf), "field")
            .collect(engine="streaming")
        )
        arrays = Links(*(read_only(column.to_numpy()) for column in linked))
        chosen, ends, links_of_works = first_fields(arrays, np.argsort(arrays.works, kind="stable"), MAX_CONCEPTS)
        names: Any = numbered["field_name"].gather(chosen).to_arrow(compat_level=pl.CompatLevel.oldest())
        lists = pa.LargeListArray.from_arrays(pa.array(np.append(0, ends)), names)
        concepts = pl.Series("concepts", lists, dtype=schema["concepts"])
        primary = concepts.list.first().alias("primary_field")
        return pl.DataFrame([pl.Series("work_id", arrays.works[links_of_works]), primary, concepts], schema=schema)

    return pl.defer(run, schema=schema)


def join_works(tables: Mapping[str, Table], columns: Iterable[str]) -> pl.LazyFrame:
    """Return columns of WORKS, unordered; without their table null, ``is_retracted`` false, ``concepts`` empty."""
    wanted = list(columns)
    own = [name for name in WORKS if name in wanted and name not in TABLE_OF and name != "work_id"]
    frame = tables["papers"].scan("work_id", *own).drop_nulls("work_id")
    for name in dict.fromkeys(TABLE_OF[column] for column in wanted if column in TABLE_OF):
        if name in tables:
            frame = frame.join(_added_columns(tables, name, wanted), on="work_id", how="left")
    known = set(frame.collect_schema())
    frame = frame.with_columns(pl.lit(None).alias(name) for name in wanted if name not in known)
    frame = frame.select(pl.col(name).cast(WORKS[name]) for name in wanted)
    if "n_authors" in wanted:  # 0 stands for unknown
        frame = frame.with_columns(pl.when(pl.col("n_authors") > 0).then("n_authors"))
    if "is_retracted" in wanted:
        frame = frame.with_columns(pl.col("is_retracted").fill_null(value=False))
    if "concepts" in wanted:
        frame = frame.with_columns(pl.col("concepts").fill_null(pl.lit([], dtype=WORKS["concepts"])))
    return frame


def text_batches(table: Table, size: int) -> Iterator[pl.DataFrame]:
    """Read the table of texts in its order, as plain text: the columns that it has; ``work_id`` may be null."""
    schema = {name: WORKS[name] for name in WORKS if name in table.columns}
    for batch in table.batches(size, *schema):
        yield batch.with_columns(_plain(table, schema)).cast(pl.Schema(schema))


def _added_columns(tables: Mapping[str, Table], name: str, wanted: list[str]) -> pl.LazyFrame:
    """Return the columns that one table adds to WORKS, one row per work."""
    table = tables[name]
    if name == "texts":
        held = [column for column in ("title", "abstract", "language") if column in wanted]
        return table.scan("work_id", *held).with_columns(_plain(table, held))
    if name == "paper_fields":
        return choose_fields(table.scan("work_id", "field_id", "score"), tables["fields"].scan())
    # Of several sources of a work, the one with the lowest id, because their order in the file may change.
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
