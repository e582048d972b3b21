"""Read who wrote the works of a part of a snapshot, or of a file of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl
import pyarrow.parquet as pq

from sciscidata.errors import CorruptRecordError
from sciscidata.records.ids import openalex_number, openalex_numbers
from sciscidata.records.json_record import split_entries, strict_json
from sciscidata.schemas import AUTHORS
from sciscidata.sources.record_files import BATCH_WORKS, read_values
from sciscidata.sources.snapshot.layout import Part

#: Levels of a list in Parquet, which differ between writers.
_LEVELS: Final = {"list", "element", "item", "array", "bag", "array_element"}
_PATHS: Final = ("id", "authorships.author.id")


def read_authors(part: Part, seen: set[int]) -> Iterator[tuple[pl.DataFrame, int]]:
    """Read pairs of AUTHORS, -1 for an author without id, and count works with their first 100 authors only.

    Of a work that JSON has twice, the first counts; ``seen`` has the works of files before, and takes these.
    """
    return _read_parquet(part) if part.edition == "parquet" else pairs_of(list_written(Path(part.path)), seen)


class _Author(msgspec.Struct):
    id: Any = None


class _Authorship(msgspec.Struct):
    author: _Author | None = None


class _Record(msgspec.Struct):
    """What is read of a work; ``results`` is there if it is a page of the API."""

    id: Any = None
    ids: dict[str, Any] | None = None
    authorships: list[_Authorship] | None = None
    is_authors_truncated: Any = None
    results: msgspec.Raw = msgspec.Raw()


_DECODER: Final = msgspec.json.Decoder(_Record)


class Written(NamedTuple):
    """The authors of one work: -1 for one without id. ``value`` numbers the JSON values of the file."""

    value: int
    work_id: int
    author_ids: list[int]
    is_cut: bool  # only the first 100 are there


def list_written(path: Path) -> Iterator[Written]:
    """List the works of a file of JSON with their authors. What is no work was reported when works were read."""
    with suppress(CorruptRecordError):
        for value, (_, piece) in enumerate(read_values(path)):
            for record in _records_of(piece):
                work = openalex_number(record.id, "W") or openalex_number((record.ids or {}).get("openalex"), "W")
                if work is not None:
                    found = (openalex_number(one.author.id, "A") if one.author else None
                             for one in record.authorships or ())  # fmt: skip
                    authors = [-1 if author is None else author for author in found]
                    yield Written(value, work, authors, record.is_authors_truncated is True)


def pairs_of(written: Iterable[Written], seen: set[int]) -> Iterator[tuple[pl.DataFrame, int]]:
    """Make pairs of works, as ``read_authors`` does, in batches that end with a JSON value."""
    works: list[int] = []
    authors: list[int] = []
    n_cut = value = 0

    def taken() -> tuple[pl.DataFrame, int]:
        return pl.DataFrame({"work_id": works, "author_id": authors}, AUTHORS), n_cut

    for one in written:
        if one.value != value and len(works) >= 16 * BATCH_WORKS:
            yield taken()
            works, authors, n_cut = [], [], 0
        value = one.value
        if one.work_id not in seen:
            seen.add(one.work_id)
            n_cut += one.is_cut
            works += [one.work_id] * len(one.author_ids)
            authors += one.author_ids
    yield taken()


def _records_of(piece: bytes) -> Iterable[_Record]:
    for text in (bytes, strict_json):
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError, CorruptRecordError):
            record = _DECODER.decode(text(piece))
            if record.id is None and bytes(record.results):
                return [one for entry in split_entries(piece) for one in _records_of(bytes(entry))]
            return [record]
    return []


def _read_parquet(part: Part) -> Iterator[tuple[pl.DataFrame, int]]:
    with pq.ParquetFile(part.path) as file:
        schema = file.schema
        paths = [schema.column(place).path for place in range(len(schema))]
        plain = {path: ".".join(level for level in path.split(".") if level not in _LEVELS) for path in paths}
        columns = [path for path, name in plain.items() if name in _PATHS]
        if len(columns) < len(_PATHS):
            return
        for batch in file.iter_batches(BATCH_WORKS, columns=columns):
            rows = pl.DataFrame(batch).select("id", pl.col("authorships")).explode("authorships").drop_nulls()
            author = pl.col("authorships").struct.field("author").struct.field("id")
            rows = rows.select("id", author=author.cast(pl.String))  # without any author, the column has no type
            pairs = {"work_id": openalex_numbers(rows["id"], "W"), "author_id": openalex_numbers(rows["author"], "A")}
            yield pl.DataFrame(pairs).filter(pl.col("work_id") >= 0), 0
