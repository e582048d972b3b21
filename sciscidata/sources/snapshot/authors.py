"""Read who wrote the works of a part of a snapshot, or of a file of records, and where they work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.errors import CorruptRecordError
from sciscidata.records.authors_table import AUTHORS
from sciscidata.records.ids import openalex_number, openalex_numbers
from sciscidata.records.json_record import split_entries, strict_json
from sciscidata.sources.record_files import BATCH_WORKS, read_values
from sciscidata.sources.snapshot.layout import Part

#: Levels of a list in Parquet, which differ between writers.
_LEVELS: Final = {"list", "element", "item", "array", "bag", "array_element"}
_PLACE: Final = pl.Struct({"id": pl.String(), "ror": pl.String(), "country_code": pl.String()})
#: An authorship as a record has it, as far as it is read.
_AUTHORSHIP: Final = pl.Struct(
    {
        "author": pl.Struct({"id": pl.String(), "display_name": pl.String(), "orcid": pl.String()}),
        "author_position": pl.String(),
        "is_corresponding": pl.Boolean(),
        "raw_author_name": pl.String(),
        "institutions": pl.List(_PLACE),
        "countries": pl.List(pl.String()),
    }
)
#: What each column needs of a record in Parquet; every column needs the ids of works and authors.
_PATHS: Final[dict[str, tuple[str, ...]]] = {
    "work_id": ("id", "authorships.author.id"),
    "author_position": ("authorships.author_position",),
    "is_corresponding": ("authorships.is_corresponding",),
    "author_name": ("authorships.raw_author_name", "authorships.author.display_name"),
    "orcid": ("authorships.author.orcid",),
    **dict.fromkeys(
        ("institution_ids", "rors", "country_codes"),
        (*(f"authorships.institutions.{name}" for name in ("id", "ror", "country_code")), "authorships.countries"),
    ),
}
_XPAC: Final = "is_xpac"
_LISTS: Final = {"institution_ids": "id", "rors": "ror", "country_codes": "country_code"}


def read_authors(
    part: Part, seen: set[int], columns: Collection[str], *, include_xpac: bool = True
) -> Iterator[tuple[pl.DataFrame, list[int]]]:
    """Read columns of AUTHORS, and list works with their first 100 authors only.

    If a work is there twice, the first counts; ``seen`` has the works of files before, and takes these. After all
    that can be read of a damaged file, a CorruptRecordError says so.
    """
    columns = [name for name in AUTHORS if name in {"work_id", "author_id", *columns}]
    read = _read_parquet if part.edition == "parquet" else _read_json
    return read(part, seen, columns, include_xpac)


class _Author(msgspec.Struct, frozen=True):
    id: Any = None


class _Authorship(msgspec.Struct, frozen=True):
    author: _Author | None = None


class _Record(msgspec.Struct, frozen=True):
    """What is read of a work; ``results`` is there if it is a page of the API."""

    id: Any = None
    ids: dict[str, Any] | None = None
    authorships: Sequence[_Authorship] | None = None
    is_authors_truncated: Any = None
    is_xpac: Any = None
    results: msgspec.Raw = msgspec.Raw()


class _WholeAuthor(_Author, frozen=True):
    display_name: Any = None
    orcid: Any = None


class _WholeAuthorship(_Authorship, frozen=True):
    author: _WholeAuthor | None = None
    author_position: Any = None
    is_corresponding: Any = None
    raw_author_name: Any = None
    institutions: Any = None
    countries: Any = None


class _WholeRecord(_Record, frozen=True):
    authorships: Sequence[_WholeAuthorship] | None = None


_IDS_ONLY: Final = msgspec.json.Decoder(_Record)  # half the time
_WHOLE: Final = msgspec.json.Decoder(_WholeRecord)


def _read_json(
    part: Part, seen: set[int], columns: list[str], include_xpac: bool
) -> Iterator[tuple[pl.DataFrame, list[int]]]:
    """Read the authors of a file of JSON. What is no work was reported when works were read."""
    is_whole = not {"work_id", "author_id", "author_number"}.issuperset(columns)
    works: list[int] = []
    authors: list[dict[str, Any]] = []
    numbers: list[int] = []
    cut: list[int] = []
    damage: CorruptRecordError | None = None

    def taken() -> tuple[pl.DataFrame, list[int]]:
        rows = pl.DataFrame(
            {"work_id": works, "author_number": numbers, "authorship": authors},
            {"work_id": pl.Int64(), "author_number": pl.Int32(), "authorship": _AUTHORSHIP},
        )
        return _name(rows, columns), cut

    try:
        for _, piece in read_values(Path(part.path)):
            for record in _records_of(piece, _WHOLE if is_whole else _IDS_ONLY):
                work = openalex_number(record.id, "W") or openalex_number((record.ids or {}).get("openalex"), "W")
                if work is None or work in seen or (record.is_xpac is True and not include_xpac):
                    continue
                seen.add(work)
                if record.is_authors_truncated is True:
                    cut.append(work)
                for number, one in enumerate(record.authorships or (), 1):
                    works.append(work)
                    numbers.append(number)
                    authors.append(_plain(one))
            if len(works) >= 16 * BATCH_WORKS:
                yield taken()
                works, authors, numbers, cut = [], [], [], []
    except CorruptRecordError as error:
        damage = error
    yield taken()
    if damage is not None:
        raise damage


def _plain(one: _Authorship) -> dict[str, Any]:
    """Return an authorship of JSON in the form of Parquet; null where a value has another type than it should."""
    author = one.author
    if not isinstance(one, _WholeAuthorship):
        return {"author": {"id": _text(author.id) if author else None}}
    whole = one.author
    return {
        "author": whole and {name: _text(getattr(whole, name)) for name in ("id", "display_name", "orcid")},
        "author_position": _text(one.author_position),
        "is_corresponding": one.is_corresponding if isinstance(one.is_corresponding, bool) else None,
        "raw_author_name": _text(one.raw_author_name),
        "institutions": [
            {name: _text(place.get(name)) for name in ("id", "ror", "country_code")}
            for place in _entries(one.institutions)
            if isinstance(place, dict)
        ],
        "countries": [code for code in _entries(one.countries) if isinstance(code, str)],
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _entries(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _records_of(piece: bytes, decoder: msgspec.json.Decoder[Any]) -> Iterable[_Record]:
    for text in (bytes, strict_json):
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError, CorruptRecordError):
            record = decoder.decode(text(piece))
            if record.id is None and bytes(record.results):
                return [one for entry in split_entries(piece) for one in _records_of(bytes(entry), decoder)]
            return [record]
    return []


def _read_parquet(
    part: Part, seen: set[int], columns: list[str], include_xpac: bool
) -> Iterator[tuple[pl.DataFrame, list[int]]]:
    wanted = {path for name in columns for path in _PATHS.get(name, ())} | (set() if include_xpac else {_XPAC})
    try:
        with pq.ParquetFile(part.path, page_checksum_verification=True) as file:
            schema = file.schema
            paths = [schema.column(place).path for place in range(len(schema))]
            plain = {path: ".".join(level for level in path.split(".") if level not in _LEVELS) for path in paths}
            if not {*_PATHS["work_id"]} <= {*plain.values()}:
                return
            needed = [path for path, name in plain.items() if name in wanted]
            for batch in file.iter_batches(BATCH_WORKS, columns=needed):
                records = pl.DataFrame(batch).with_columns(work_id=pl.Series(openalex_numbers(batch["id"], "W")))
                records = records.filter(pl.col("work_id") >= 0)
                if _XPAC in records.columns:
                    records = records.filter(~pl.col(_XPAC).fill_null(value=False))
                is_new = [not (work in seen or seen.add(work)) for work in records["work_id"]]  # a set's add is None
                yield _name(_authorships(records.filter(is_new)), columns), []
    except (pa.ArrowException, OSError) as error:
        raise CorruptRecordError(f"the Parquet file is damaged ({str(error).splitlines()[0]})") from error


def _authorships(records: pl.DataFrame) -> pl.DataFrame:
    rows = records.select(
        "work_id",
        author_number=pl.int_ranges(1, pl.col("authorships").list.len() + 1, dtype=pl.Int32()),
        authorship=pl.col("authorships"),
    )
    rows = rows.filter(pl.col("author_number").list.len() > 0)
    rows = rows.explode("author_number", "authorship").drop_nulls("authorship")
    # Without any author, a column has no type; of older parts it lacks fields.
    return rows.with_columns(pl.col("authorship").cast(_AUTHORSHIP))


def _name(rows: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Make columns of AUTHORS of authorships. An author whom a work lists twice has one row, with all institutions."""
    parts = rows.unnest("authorship").unnest("author")
    numbers = pl.Series(openalex_numbers(parts["id"], "A"))
    parts = parts.with_row_index("row").with_columns(
        author_id=pl.select(pl.when(numbers >= 0).then(numbers)).to_series()
    )
    person = pl.coalesce("author_id", -1 - pl.col("row").cast(pl.Int64))  # without an id, everyone is another one
    parts = parts.with_columns(first=pl.col("row").first().over("work_id", person))
    names = (pl.when(pl.col(name) != "").then(name) for name in ("raw_author_name", "display_name"))
    listed = parts.filter(pl.col("row") == pl.col("first")).with_columns(author_name=pl.coalesce(*names))
    if not _LISTS.keys().isdisjoint(columns):
        listed = listed.join(_places(parts), on="first", how="left", maintain_order="left")
        listed = listed.with_columns(pl.col(*_LISTS).fill_null([]))
    return listed.select(columns).cast({name: AUTHORS[name] for name in columns})


def _places(parts: pl.DataFrame) -> pl.DataFrame:
    """List the institutions of every author, and after them countries that belong to none of these institutions."""
    institutions = (
        parts.select("first", place="institutions").explode("place").unnest("place").select("first", *_LISTS.values())
    )
    institutions = institutions.filter(pl.any_horizontal(pl.col(*_LISTS.values()).is_not_null()))
    countries = parts.select("first", country_code="countries").explode("country_code").drop_nulls()
    countries = countries.join(institutions, on=["first", "country_code"], how="anti", maintain_order="left")
    all_places = pl.concat([institutions, countries], how="diagonal").unique(maintain_order=True)
    numbers = pl.Series(openalex_numbers(all_places["id"], "I"))
    all_places = all_places.with_columns(id=pl.select(pl.when(numbers >= 0).then(numbers)).to_series())
    return all_places.group_by("first", maintain_order=True).agg(pl.col(old).alias(new) for new, old in _LISTS.items())
