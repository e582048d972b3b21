"""One OpenAlex Work, of any year and shape, to one row of WORKS and its rows of CITATIONS.

Shared by every source of OpenAlex records. Only the line as a whole can be wrong: a field of an unexpected type
becomes null, so that no oddity of one field costs the record.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
import polars as pl

from sciscidata.errors import CorruptRecordError
from sciscidata.plain_text import clean_text
from sciscidata.schemas import CITATIONS, WORKS

#: Raised by one whenever the same record gives another row, so that nothing parsed before is reused.
PARSER_VERSION = 2

_MAX_CONCEPTS = 8
_Json: TypeAlias = Any  # whatever a JSON field may hold


class Work(msgspec.Struct, kw_only=True, gc=False):
    """One parsed record. Text is as found (``plain_text.py`` cleans it), the abstract is still an inverted index."""

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
    doi: str | None
    references: list[int]
    malformed_references: int
    changed_on: str | None  # the later of updated_date and created_date, YYYY-MM-DD


def parse_work(line: bytes) -> Work:
    """Read one JSON object as an OpenAlex Work, whether of 2021 or of today, from the API or the snapshot.

    Args:
        line: the bytes of the object, UTF-8. What only Python's ``json`` accepts (NaN, a lone surrogate) is
            accepted too: NaN is null, a lone surrogate U+FFFD.

    Raises:
        CorruptRecordError: at once; the line is not JSON, not an object, or has no OpenAlex id of a work.

    Source: https://docs.openalex.org/api-entities/works/work-object

    Example:
        >>> work = parse_work(b'{"id":"https://openalex.org/W42","title":"On Dams","publication_year":"1999",'
        ...                   b'"referenced_works":["https://openalex.org/W7","W8","S9"]}')
        >>> work.work_id, work.title, work.publication_year, work.references, work.malformed_references
        (42, 'On Dams', 1999, [7, 8], 1)
    """
    try:
        record, index = _decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        record, index = _decode_strictly(line)
    work_id = _openalex_number(record.id, "W") or _openalex_number(_get(record.ids, "openalex"), "W")
    if work_id is None:
        msg = f"no OpenAlex id of a work (id is {_shorten(record.id)})"
        raise CorruptRecordError(msg)
    source = _get(record.primary_location, "source") or record.host_venue
    references = record.referenced_works if isinstance(record.referenced_works, list) else []
    cited = [number for entry in references if (number := _openalex_number(entry, "W")) is not None]
    return Work(
        work_id=work_id,
        publication_year=_whole_number(record.publication_year, 1, 9999),
        title=_text(record.title) or _text(record.display_name),
        abstract_index=index,
        cited_by_count=_whole_number(record.cited_by_count, 0, 2**63 - 1),
        primary_field=_primary_field(record),
        concepts=_concepts(record),
        source_id=_openalex_number(_get(source, "id"), "S"),
        source_name=_text(_get(source, "display_name")),
        language=_text(record.language),
        work_type=_text(record.type),
        is_retracted=record.is_retracted is True,
        doi=_doi(record.doi),
        references=cited,
        malformed_references=len(references) - len(cited),
        changed_on=max(filter(None, map(_date, (record.updated_date, record.created_date))), default=None),
    )


def rows_from_works(works: Sequence[Work]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Turn parsed works into their two frames, in the order given.

    Returns:
        WORKS, one row per work, title and abstract as ``clean_text`` leaves them; and CITATIONS, one row per
        reference in the order of the record: self-citations, repeats and citations to later years stay.

    Example:
        >>> work = parse_work(b'{"id":"W42","title":"On <i>Dams</i>","referenced_works":["W7"],'
        ...                   b'"abstract_inverted_index":{"leak.":[1],"Dams":[0]}}')
        >>> works, citations = rows_from_works([work])
        >>> works.select("work_id", "title", "abstract").row(0), citations.row(0)
        ((42, 'On Dams', 'Dams leak.'), (42, 7))
    """
    return works_frame(works), citations_frame(works)


def works_frame(works: Sequence[Work], columns: Iterable[str] = tuple(WORKS)) -> pl.DataFrame:
    """Make the WORKS rows of ``works``, in order; only the ``columns`` asked for are decoded.

    Example:
        >>> works_frame([parse_work(b'{"id":"W42","language":"en"}')], ["work_id", "language"]).row(0)
        (42, 'en')
    """
    data: dict[str, list[Any]] = {}
    for name in columns:
        attribute = "abstract_index" if name == "abstract" else name
        data[name] = [getattr(work, attribute) for work in works]
    frame = pl.DataFrame(data, schema={name: WORKS[name] for name in data})
    if "abstract" in data:
        from sciscidata.abstracts import decode_inverted_index

        frame = frame.with_columns(decode_inverted_index("abstract"))
    return frame.with_columns(clean_text(name) for name in data if name in ("title", "abstract"))


def citations_frame(works: Sequence[Work]) -> pl.DataFrame:
    """Make the CITATIONS rows of ``works``, in order.

    Example:
        >>> citations_frame([parse_work(b'{"id":"W42","referenced_works":["W7","W42"]}')]).rows()
        [(42, 7), (42, 42)]
    """
    citing = [work.work_id for work in works for _ in work.references]
    cited = [reference for work in works for reference in work.references]
    return pl.DataFrame({"citing_id": citing, "cited_id": cited}, schema=CITATIONS)


class _Record(msgspec.Struct, gc=False):
    """The fields that are read, of whatever type; msgspec skips the others without making objects."""

    id: _Json = None
    ids: _Json = None
    doi: _Json = None
    title: _Json = None
    display_name: _Json = None
    publication_year: _Json = None
    cited_by_count: _Json = None
    primary_topic: _Json = None
    topics: _Json = None
    concepts: _Json = None
    primary_location: _Json = None
    host_venue: _Json = None
    language: _Json = None
    type: _Json = None
    is_retracted: _Json = None
    referenced_works: _Json = None
    abstract_inverted_index: msgspec.Raw = msgspec.Raw(b"null")
    updated_date: _Json = None
    created_date: _Json = None


_DECODER = msgspec.json.Decoder(_Record)


def strict_json(text: bytes) -> bytes:
    r"""Rewrite what only the standard library accepts as strict JSON.

    NaN and whole numbers of more than 20 digits become null, a lone surrogate U+FFFD.

    Raises:
        CorruptRecordError: at once; not even the standard library reads it.

    Example:
        >>> strict_json(b'{"fwci": NaN, "title": "a \\ud800"}').decode()
        '{"fwci": null, "title": "a \ufffd"}'
    """
    try:
        parsed = json.loads(text, parse_constant=lambda _: None, parse_float=_finite_float, parse_int=_short_int)
        strict = json.dumps(parsed, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        msg = f"not JSON: {_shorten(str(error))}"
        raise CorruptRecordError(msg) from error
    return re.sub("[\ud800-\udfff]", "\ufffd", strict).encode()


def _finite_float(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _short_int(digits: str) -> int | None:
    return (
        int(digits) if len(digits) <= 20 else None
    )  # longer ones fit no column, and from 4,301 digits on not even int


def _decode(line: bytes) -> tuple[_Record, str | None]:
    record = _DECODER.decode(line)
    return record, _index_text(record.abstract_inverted_index)


def _decode_strictly(line: bytes) -> tuple[_Record, str | None]:
    try:
        return _decode(strict_json(line))
    except (msgspec.MsgspecError, RecursionError) as error:
        msg = f"not a JSON object: {_shorten(str(error))}"
        raise CorruptRecordError(msg) from error


def _index_text(raw: msgspec.Raw) -> str | None:
    text = str(raw, "utf-8")
    if text == "null":
        return None
    # The Parquet snapshot holds the index as a string, and so do files exported from it.
    return msgspec.json.decode(text, type=str) if text.startswith('"') else text


def _get(value: _Json, key: str) -> _Json:
    return value.get(key) if isinstance(value, dict) else None


def _text(value: _Json) -> str | None:
    return (value.strip() or None) if isinstance(value, str) else None


def _openalex_number(value: _Json, letter: str) -> int | None:
    """Give the number of an OpenAlex id (a URL or bare, in either case), null if it is not one of ``letter``."""
    found = _OPENALEX_ID.fullmatch(value) if isinstance(value, str) else None
    return int(found[2]) if found and found[1].upper() == letter else None


# At most 18 digits: what fits into Int64 whatever the digits are.
_OPENALEX_ID = re.compile(
    r"\s*(?:https?://(?:api\.)?openalex\.org/(?:works/|sources/)?)?([WS])0*([1-9][0-9]{0,17})/?\s*", re.I
)


def _whole_number(value: _Json, low: int, high: int) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    return int(value) if value == int(value) else None


def _doi(value: _Json) -> str | None:
    text = _text(value)
    return _DOI_PREFIX.sub("", text.lower()).strip() or None if text else None


_DOI_PREFIX = re.compile(r"^(?:(?:https?://)?(?:dx\.|www\.)?doi\.org/|doi:)\s*")


def _date(value: _Json) -> str | None:
    return value[:10] if isinstance(value, str) and re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value) else None


def _entries(value: _Json) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _scored_names(concepts: list[dict[str, Any]]) -> list[str]:
    """Name the concepts, best score first; scores are numbers or, in 2023, numbers in quotes."""
    scored: list[tuple[float, str]] = []
    for concept in concepts:
        name = _text(concept.get("display_name"))
        try:
            score = float(concept.get("score") or 0)
        except (TypeError, ValueError, OverflowError):
            continue
        if name and score > 0 and math.isfinite(score):
            scored.append((-score, name))
    return [name for _, name in sorted(scored)]


def _concepts(record: _Record) -> list[str]:
    names = _scored_names(_entries(record.concepts))
    if not names:
        names = [name for topic in _entries(record.topics) if (name := _text(topic.get("display_name")))]
    return names[:_MAX_CONCEPTS]


def _primary_field(record: _Record) -> str | None:
    """Name the broadest subject: the field of the main topic, or before 2024 the top concept of level 0."""
    for topic in (record.primary_topic, *_entries(record.topics)[:1]):
        if name := _text(_get(_get(topic, "field"), "display_name")):
            return name
    broad = [concept for concept in _entries(record.concepts) if str(concept.get("level")) == "0"]
    return next(iter(_scored_names(broad)), None)


def _shorten(value: _Json) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
