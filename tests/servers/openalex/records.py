"""OpenAlex records, of today or of 2023, to the rows and indexes that are served."""

from __future__ import annotations

import functools
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.servers.openalex.collection import OPENALEX, Collection, Column, Row, bare_doi, short_id
from tests.servers.openalex.vocabulary import SOURCE_FIELDS, SOURCE_FILTERS, TYPES_SINCE_2023, WORK_FIELDS, WORK_FILTERS

Records = str | Path | Iterable[str | Path] | Iterable[dict[str, Any]]

LISTED_AUTHORS = 100


class _Entity(msgspec.Struct):
    id: str | None = None
    display_name: str | None = None


class _Source(_Entity):
    issn_l: str | None = None
    issn: list[str] | None = None
    host_organization: str | None = None
    host_organization_name: str | None = None
    publisher: str | None = None
    type: str | None = None


class _Location(msgspec.Struct):
    source: _Source | None = None


class _Topic(msgspec.Struct):
    field: _Entity | None = None


class _Work(msgspec.Struct):
    """What the indexes need of a record."""

    id: str
    doi: str | None = None
    display_name: str | None = None
    publication_year: int | None = None
    publication_date: str | None = None
    type: str | None = None
    language: str | None = None
    cited_by_count: int | None = None
    is_retracted: bool | None = None
    is_paratext: bool | None = None
    referenced_works: list[str] | None = None
    abstract_inverted_index: msgspec.Raw = msgspec.Raw(b"null")
    primary_location: _Location | None = None
    host_venue: _Source | None = None
    locations: list[_Location | None] | None = None
    primary_topic: _Topic | None = None
    topics: list[_Topic] | None = None

    def source(self) -> _Source | None:
        if self.primary_location is not None and self.primary_location.source is not None:
            return self.primary_location.source
        return self.host_venue if self.host_venue is not None and self.host_venue.id else None

    def sources(self) -> Iterator[_Source]:
        own = self.source()
        if own is not None:
            yield own
        for location in self.locations or ():
            if location is not None and location.source is not None:
                yield location.source


_LINE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_WORK = msgspec.json.Decoder(_Work, strict=False)
_NULL = msgspec.Raw(b"null")
_GONE = frozenset({"host_venue", "alternate_host_venues", "ngrams_url", "abstract_inverted_index_v3", "grants"})


def _lines(records: Records) -> Iterator[bytes]:
    if isinstance(records, (str, Path)):
        records = [records]
    for item in records:
        if isinstance(item, dict):
            yield msgspec.json.encode(item)
            continue
        with (gzip.open if str(item).endswith(".gz") else open)(item, "rb") as file:
            yield from (line for line in file if line.strip())  # on \n only: titles hold U+2028


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _modern(row: Row, work: _Work, language: str | None) -> None:
    """Give a record of 2023 the shape that the API has now, as far as that needs no guessing."""
    for name in _GONE & row.keys():
        del row[name]
    if work.type in TYPES_SINCE_2023:
        row["type_crossref"], work.type = row["type"], TYPES_SINCE_2023[work.type]
        row["type"] = _raw(work.type)
    if work.language is None and language is not None:
        work.language = language
    row["language"] = _raw(work.language)
    row.setdefault("referenced_works", _raw([]))
    row.setdefault("referenced_works_count", _raw(len(work.referenced_works or ())))
    row.setdefault("primary_topic", _NULL)
    row.setdefault("topics", _raw([]))
    row.setdefault("is_xpac", _raw(False))
    if bytes(row.get("is_authors_truncated", _NULL)) != b"true":  # said only where true
        row.pop("is_authors_truncated", None)


def _shortened(row: Row) -> Row:
    """The row as lists serve it: at most 100 authors."""
    raw = row.get("authorships", _NULL)
    if bytes(raw).count(b'"author_position"') <= LISTED_AUTHORS:
        return row
    authors = msgspec.json.decode(raw, type=list[msgspec.Raw])
    return row | {"authorships": _raw(authors[:LISTED_AUTHORS]), "is_authors_truncated": _raw(True)}


def read_works(records: Records, *, language: str | None = None) -> tuple[Collection, Collection]:
    """Works and the sources that they name; a file is parsed once for all servers of a process.

    Args:
        records: a JSONL file (``.gz`` or not), several, or OpenAlex works as dicts.
        language: given to works whose record knows none (those of 2023); None leaves them null.
    """
    if isinstance(records, (str, Path)):
        state = Path(records).stat()
        return _read_file(str(records), language, state.st_size, state.st_mtime_ns)
    return _read(records, language)


@functools.cache
def _read_file(path: str, language: str | None, *_state: int) -> tuple[Collection, Collection]:
    return _read(path, language)


def _read(records: Records, language: str | None) -> tuple[Collection, Collection]:
    pairs = [(_LINE.decode(line), _WORK.decode(line)) for line in _lines(records)]
    pairs.sort(key=lambda pair: (-(pair[1].cited_by_count or 0), pair[1].id))
    for row, work in pairs:
        _modern(row, work, language)
    works = [work for _, work in pairs]

    ids = [short_id(work.id) or work.id for work in works]
    c = Collection([_shortened(row) for row, _ in pairs], ids, fields=WORK_FIELDS, filters=WORK_FILTERS)
    c.single = [row for row, _ in pairs]
    c.references = [[short_id(cited) or cited for cited in work.referenced_works or ()] for work in works]

    c.column("openalex", "id", ids)
    c.column("cites", "id", c.references)
    c.columns["cited_by"] = Column("cited_by")
    c.column("doi", "doi", (bare_doi(work.doi) if work.doi else None for work in works))
    c.column("publication_year", "number", (work.publication_year for work in works))
    c.column("publication_date", "date", (work.publication_date for work in works))
    c.column("cited_by_count", "number", (work.cited_by_count for work in works))
    c.column("referenced_works_count", "number", (len(references) for references in c.references))
    c.column("type", "term", (work.type for work in works))
    c.column("language", "term", (work.language for work in works))
    c.column("display_name", "text", (work.display_name for work in works))
    c.column("is_retracted", "flag", (bool(work.is_retracted) for work in works))
    c.column("is_paratext", "flag", (bool(work.is_paratext) for work in works))
    c.column("has_doi", "exists", (bool(work.doi) for work in works))
    c.column("has_references", "exists", (bool(references) for references in c.references))
    c.column("has_abstract", "exists", (bytes(work.abstract_inverted_index) not in (b"null", b"{}") for work in works))
    c.column("is_xpac", "flag", (bytes(row.get("is_xpac", _NULL)) == b"true" for row in c.single))

    sources = [work.source() for work in works]
    c.column("primary_location.source.id", "id", (short_id(s.id) if s and s.id else None for s in sources))
    c.column("primary_location.source.type", "term", (s.type if s else None for s in sources))
    c.columns["primary_location.source.id"].names = {
        short_id(s.id): s.display_name or "" for s in sources if s and s.id and short_id(s.id)
    }
    topics = [[work.primary_topic] if work.primary_topic else [] for work in works]
    for name, per_work in (("primary_topic.field.id", topics), ("topics.field.id", [w.topics or [] for w in works])):
        fields = [[t.field for t in some if t.field and t.field.id] for some in per_work]
        c.column(name, "term", ([str(f.id).rsplit("/", 1)[-1] for f in some] for some in fields))
        c.columns[name].names = {str(f.id).rsplit("/", 1)[-1]: f.display_name or "" for some in fields for f in some}

    for name in ("openalex_id", "ids.openalex"):
        c.alias(name, "openalex")
    c.alias("referenced_works", "cites")
    c.alias("from_publication_date", "publication_date", "from")
    c.alias("to_publication_date", "publication_date", "to")
    return c, _sources(works)


def _sources(works: list[_Work]) -> Collection:
    """The sources that the works name, described by the fullest mention of each."""
    known: dict[str, _Source] = {}
    counts: dict[str, int] = {}
    for work in works:
        for source in work.sources():
            identifier = short_id(source.id or "")
            if identifier and (identifier not in known or (source.type and not known[identifier].type)):
                known[identifier] = source
        own = work.source()
        if own is not None and own.id:
            counts[short_id(own.id) or ""] = counts.get(short_id(own.id) or "", 0) + 1
    ids = sorted(known, key=lambda identifier: (-counts.get(identifier, 0), identifier))
    rows = [
        {
            "id": OPENALEX + identifier,
            "issn_l": known[identifier].issn_l,
            "issn": known[identifier].issn,
            "display_name": known[identifier].display_name,
            "host_organization": known[identifier].host_organization,
            "host_organization_name": known[identifier].host_organization_name or known[identifier].publisher,
            "works_count": counts.get(identifier, 0),
            "ids": {"openalex": OPENALEX + identifier},
            "type": known[identifier].type,
        }
        for identifier in ids
    ]
    c = Collection(rows, ids, fields=SOURCE_FIELDS, filters=SOURCE_FILTERS)
    c.column("openalex", "id", ids)
    c.column("issn", "term", ([text.lower() for text in row["issn"] or ()] for row in rows))
    c.column("type", "term", (row["type"] for row in rows))
    c.column("display_name", "text", (row["display_name"] for row in rows))
    c.column("works_count", "number", (row["works_count"] for row in rows))
    for name in ("openalex_id", "ids.openalex"):
        c.alias(name, "openalex")
    return c
