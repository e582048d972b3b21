"""WORKS out of the tables of SciSciNet: what each table adds to a paper, and which of them a query needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from sciscidata.records.abstracts import decode_inverted_index
from sciscidata.records.plain_text import clean_text
from sciscidata.schemas import WORKS
from sciscidata.sources.sciscinet.tables import Table

# ---------- Titles and abstracts as SciSciNet holds them, to plain text.


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


# ---------- The primary field and the concepts of a work, from SciSciNet's links between papers and fields.


#: As many concepts as a work of any source has.
MAX_CONCEPTS: Final = 8
_NO_LEVEL: Final = 99


def choose_fields(links: pl.LazyFrame, fields: pl.LazyFrame) -> pl.LazyFrame:
    """Order the fields of every work by one fixed rule, and take the first eight. Runs nothing.

    The rule: the lowest level first (level 0 holds the 19 broad fields), then the highest score, links without a score
    last, then the name, then the id. A field that is linked twice counts once, with its better score.

    Args:
        links: ``work_id`` Int64, ``field_id`` Int64, ``score`` Float64 or null.
        fields: ``field_id`` Int64, ``field_name`` String, ``level`` Int64; of several rows of a field, the one
            whose name comes first counts. Links to others, and to fields without a name, are left out.

    Returns:
        One row per work with a field, unordered: ``work_id``, ``primary_field`` String (the first one, whatever its
        level) and ``concepts`` List[String] (all, at most eight, in order).

    Example:
        >>> fields = {"field_id": [1, 2, 3], "field_name": ["Botany", "Biology", "Art"], "level": [1, 0, 0]}
        >>> links = {"work_id": [7, 7, 7], "field_id": [1, 2, 3], "score": [0.9, 0.4, None]}
        >>> choose_fields(pl.LazyFrame(links), pl.LazyFrame(fields)).collect().row(0)
        (7, 'Biology', ['Biology', 'Art', 'Botany'])
    """
    schema = {name: WORKS[name] for name in ("work_id", "primary_field", "concepts")}

    def run() -> pl.DataFrame:
        from sciscidata.sources.sciscinet._field_kernels import first_fields  # numba takes a while to import

        # The order of name and id is worked out once, for a few hundred fields, and not for every link.
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
            .select("work_id", "field", "level", pl.col("score").cast(pl.Float64).fill_nan(None).fill_null(-math.inf))
            .collect(engine="streaming")
            .rechunk()  # or the loop is compiled once more, for arrays that may be written
        )
        works, field, level, score = (linked[name].to_numpy() for name in linked.columns)
        chosen, ends, links_of_works = first_fields(
            works, np.argsort(works, kind="stable"), level, score, field, MAX_CONCEPTS
        )
        names: Any = numbered["field_name"].gather(chosen).to_arrow(compat_level=pl.CompatLevel.oldest())
        lists = pa.LargeListArray.from_arrays(pa.array(np.append(0, ends)), names)
        concepts = pl.Series("concepts", lists, dtype=schema["concepts"])
        primary = concepts.list.first().alias("primary_field")
        return pl.DataFrame([pl.Series("work_id", works[links_of_works]), primary, concepts], schema=schema)

    return pl.defer(run, schema=schema)


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
