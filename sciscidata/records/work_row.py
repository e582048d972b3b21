"""Turn one OpenAlex record into one row of WORKS and its rows of CITATIONS.

Every source of OpenAlex records uses this. Only a line as a whole can be corrupt. A field of an unexpected type becomes
null, so one odd field does not cost the record.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from sciscidata.errors import CorruptRecordError
from sciscidata.records.ids import MISSING, bare_doi, openalex_number
from sciscidata.records.json_record import (
    RECORDS,
    Concept,
    Json,
    Record,
    Source,
    decode_loosely,
    index_text,
    shorten,
    stripped,
)
from sciscidata.records.plain_text import clean_text
from sciscidata.schemas import CITATIONS, DATES, WORKS

#: Raised by one whenever the same record gives another row, so that rows parsed before are not used again.
PARSER_VERSION = 6
MAX_CONCEPTS = 8
#: Words that are no value of these columns; DOIs are in lower case.
MISSING_OF = dict.fromkeys(("title", "source_name", "language", "work_type"), frozenset(MISSING)) | {
    "doi": frozenset(map(str.lower, MISSING))
}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Work(msgspec.Struct, kw_only=True, gc=False):
    """One parsed record; its text is not cleaned yet, and the abstract is still an inverted index."""

    work_id: int
    publication_year: int | None
    title: str | None
    abstract_index: str | None
    cited_by_count: int | None
    primary_field: str | None
    concepts: list[str]
    source_id: int | None
    source_name: str | None
    language: str | None
    work_type: str | None
    is_retracted: bool
    is_xpac: bool  # in the expansion corpus, which the API leaves out by default
    doi: str | None
    references: list[int]
    malformed_references: int
    missing_values: int  # words such as NA, which are null now
    changed_on: str | None  # the later of updated_date and created_date, YYYY-MM-DD
    publication_date: str | None  # YYYY-MM-DD


def parse_work(line: bytes) -> Work:
    """Read one JSON object as an OpenAlex Work, of 2021 or of today, from the API or the snapshot.

    ``line`` is the object, all of it UTF-8 (RFC 8259). NaN and a lone surrogate, which only Python's ``json`` accepts,
    become null and U+FFFD. Raises CorruptRecordError if it is not JSON, not an object, or has no OpenAlex id of a work.

    Source: https://docs.openalex.org/api-entities/works/work-object

    Example:
        >>> work = parse_work(b'{"id":"https://openalex.org/W42","title":"On Dams","publication_year":"1999",'
        ...                   b'"referenced_works":["https://openalex.org/W7","W8","S9"]}')
        >>> work.work_id, work.title, work.publication_year, work.references, work.malformed_references
        (42, 'On Dams', 1999, [7, 8], 1)
    """
    try:
        line.decode()  # msgspec does not check the text of unused fields
        return _normalise(RECORDS.decode(line))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _normalise(decode_loosely(line))


def _normalise(record: Record) -> Work:
    work_id = openalex_number(record.id, "W") or openalex_number(record.ids and record.ids.openalex, "W")
    if work_id is None:
        msg = f"no OpenAlex id of a work (id is {shorten(record.id)})"
        raise CorruptRecordError(msg)
    source = venue_of(record)
    listed, malformed = _references(record.referenced_works)
    work = Work(
        work_id=work_id,
        publication_year=whole_number(record.publication_year, 1, 9999),
        title=stripped(record.title) or stripped(record.display_name),
        abstract_index=index_text(record.abstract_inverted_index),
        cited_by_count=whole_number(record.cited_by_count, 0, 2**63 - 1),
        primary_field=primary_field(record),
        concepts=concept_names(record),
        source_id=source_number(source),
        source_name=stripped(source.display_name) if source else None,
        language=stripped(record.language),
        work_type=stripped(record.type),
        is_retracted=record.is_retracted is True,
        is_xpac=record.is_xpac is True,
        doi=bare_doi(record.doi),
        references=listed,
        malformed_references=malformed,
        missing_values=0,
        changed_on=later_date(record.updated_date, record.created_date),
        publication_date=_date(record.publication_date),
    )
    for name, words in MISSING_OF.items():
        if getattr(work, name) in words:
            setattr(work, name, None)
            work.missing_values += 1
    return work


def rows_from_works(works: Sequence[Work]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Turn parsed works into WORKS, a row per work with clean title and abstract, and CITATIONS, in the same order.

    References come in the order of the record: self-citations, repeats and citations to later years stay.

    Example:
        >>> work = parse_work(b'{"id":"W42","title":"On <i>Dams</i>","referenced_works":["W7"],'
        ...                   b'"abstract_inverted_index":{"leak.":[1],"Dams":[0]}}')
        >>> works, citations = rows_from_works([work])
        >>> works.select("work_id", "title", "abstract").row(0), citations.row(0)
        ((42, 'On Dams', 'Dams leak.'), (42, 7))
    """
    return works_frame(works), citations_frame(works)


def works_frame(works: Sequence[Work], columns: Iterable[str] = tuple(WORKS)) -> pl.DataFrame:
    """Make the WORKS rows of ``works``, in order; only the wanted ``columns`` are decoded."""
    return decode_texts(raw_works_frame(works, columns))


def raw_works_frame(works: Sequence[Work], columns: Iterable[str] = tuple(WORKS)) -> pl.DataFrame:
    """Make the rows with texts as they were read, each abstract an inverted index; decode_texts finishes them.

    ``columns`` may name DATES too; a day that no calendar has is null.
    """
    data: dict[str, Any] = {}
    for name in columns:
        values = list(map(attrgetter("abstract_index" if name == "abstract" else name), works))
        data[name] = _list_series(values) if name == "concepts" else values
    frame = pl.DataFrame(data, schema={name: WORKS.get(name, pl.String()) for name in data})
    return frame.with_columns(pl.col(name).str.to_date("%Y-%m-%d", strict=False) for name in DATES if name in data)


def decode_texts(frame: pl.DataFrame) -> pl.DataFrame:
    """Decode abstracts and clean texts, as far as the frame has such columns."""
    if "abstract" in frame.columns:
        from sciscidata.records.abstracts import decode_inverted_index

        frame = frame.with_columns(decode_inverted_index("abstract"))
    return frame.with_columns(clean_text(name) for name in ("title", "abstract") if name in frame.columns)


def _list_series(lists: list[list[str]]) -> pl.Series:
    """Make a Series of lists of strings.

    Polars would make a Series of each list, which takes ten times as long.
    """
    ends = np.cumsum([0, *map(len, lists)])
    entries = pa.array(chain.from_iterable(lists), pa.large_string())
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), entries), dtype=WORKS["concepts"])


def citations_frame(works: Sequence[Work]) -> pl.DataFrame:
    """Make the CITATIONS rows of ``works``, in order."""
    lists = [work.references for work in works]
    lengths = list(map(len, lists))
    citing = np.repeat(np.array([work.work_id for work in works], np.int64), lengths)
    cited = np.fromiter(chain.from_iterable(lists), np.int64, sum(lengths))
    return pl.DataFrame({"citing_id": citing, "cited_id": cited}, schema=CITATIONS)


def source_number(source: Source | None) -> int | None:
    """Return the number of a venue, from the id of a source, or of a venue until 2022: they are the same.

    Example:
        >>> [source_number(Source(f"https://openalex.org/{id}")) for id in ("S137773608", "V137773608", "I137773608")]
        [137773608, 137773608, None]
    """
    if source is None:
        return None
    number = openalex_number(source.id, "S")
    return openalex_number(source.id, "V") if number is None else number


def venue_of(record: Record) -> Source | None:
    """Return where a work was published: its primary location, or in records until 2023 its host venue.

    The one with an id counts; if neither has one, the primary location, which may have a name.

    Example:
        >>> venue_of(Record(host_venue=Source("https://openalex.org/V42", "Dams"))).display_name
        'Dams'
    """
    source, older = record.primary_location and record.primary_location.source, record.host_venue
    return source if source and (source_number(source) is not None or source_number(older) is None) else older


def _references(raw: msgspec.Raw) -> tuple[list[int], int]:
    """Return the numbers of the works in a reference list, and how many entries are no id of a work."""
    listed: Json = msgspec.json.decode(raw)
    if isinstance(listed, str):  # a list that was saved as text, or its only entry
        listed = [entry for entry in re.findall(r"""[^\s,;|\[\]"']+""", listed) if entry not in MISSING]
    entries: list[Json] = listed if isinstance(listed, list) else []
    numbers = [number for entry in entries if (number := openalex_number(entry, "W")) is not None]
    return numbers, len(entries) - len(numbers)


def whole_number(value: Json, low: int, high: int) -> int | None:
    """Return a whole number from ``low`` to ``high``, also in quotes or with a fraction of zero; else None."""
    if type(value) is int:
        return value if low <= value <= high else None
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    return int(value) if value == int(value) else None


def later_date(one: str | None, other: str | None) -> str | None:
    """Return the later of two dates, without the time of day."""
    one, other = _date(one), _date(other)
    return max(one, other) if one and other else one or other


@lru_cache(1 << 12)
def _date(value: str | None) -> str | None:
    return value[:10] if value and _DATE.match(value) else None


def _scored_names(concepts: list[Concept]) -> list[str]:
    """Return the names of concepts, best score first; scores are numbers or, in 2023, numbers in quotes."""
    scored: list[tuple[float, str]] = []
    for concept in concepts:
        name, score = concept.display_name, concept.score
        if type(score) is not float:
            try:
                score = float(score or 0)
            except (TypeError, ValueError, OverflowError):
                continue
        if name and 0 < score < math.inf and (name := name.strip()):
            scored.append((-score, name))
    scored.sort()
    return [name for _, name in scored]


def concept_names(record: Record) -> list[str]:
    """Return the names of at most eight concepts, or of the topics where a work has no concept."""
    names = _scored_names(record.concepts or [])
    if not names:
        names = [name for topic in record.topics or [] if (name := stripped(topic.display_name))]
    return names[:MAX_CONCEPTS]


def primary_field(record: Record) -> str | None:
    """Return the broadest subject: the field of the main topic, or before 2024 the top concept of level 0."""
    for topic in (record.primary_topic, *(record.topics or [])[:1]):
        if topic and topic.field and (name := stripped(topic.field.display_name)):
            return name
    broad = [concept for concept in record.concepts or [] if str(concept.level) == "0"]
    return next(iter(_scored_names(broad)), None)
