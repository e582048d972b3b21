"""One OpenAlex Work, of any year and shape, to one row of WORKS and its rows of CITATIONS.

Shared by every source of OpenAlex records. Only the line as a whole can be wrong: a field of an unexpected type
becomes null, so that no oddity of one field costs the record.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from sciscidata.errors import CorruptRecordError
from sciscidata.plain_text import clean_text
from sciscidata.schemas import CITATIONS, WORKS

#: Raised by one whenever the same record gives another row, so that nothing parsed before is reused.
PARSER_VERSION = 3

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
    is_xpac: bool  # of the expansion corpus, which the API leaves out unless asked
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
        return _normalise(_PLAIN.decode(line))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _normalise(_mend(_decode_loosely(line)))


def _normalise(record: _Plain) -> Work:
    work_id = _openalex_number(record.id, "W") or _openalex_number(record.ids and record.ids.openalex, "W")
    if work_id is None:
        msg = f"no OpenAlex id of a work (id is {_shorten(record.id)})"
        raise CorruptRecordError(msg)
    source = (record.primary_location and record.primary_location.source) or record.host_venue
    references, malformed = _references(record.referenced_works)
    return Work(
        work_id=work_id,
        publication_year=_whole_number(record.publication_year, 1, 9999),
        title=_text(record.title) or _text(record.display_name),
        abstract_index=_index_text(record.abstract_inverted_index),
        cited_by_count=_whole_number(record.cited_by_count, 0, 2**63 - 1),
        primary_field=_primary_field(record),
        concepts=_concepts(record),
        source_id=_openalex_number(source.id, "S") if source else None,
        source_name=_text(source.display_name) if source else None,
        language=_text(record.language),
        work_type=_text(record.type),
        is_retracted=record.is_retracted is True,
        is_xpac=record.is_xpac is True,
        doi=_doi(record.doi),
        references=references,
        malformed_references=malformed,
        changed_on=max(filter(None, (_date(record.updated_date), _date(record.created_date))), default=None),
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
    data: dict[str, Any] = {}
    for name in columns:
        values = list(map(attrgetter("abstract_index" if name == "abstract" else name), works))
        data[name] = _list_series(values) if name == "concepts" else values
    frame = pl.DataFrame(data, schema={name: WORKS[name] for name in data})
    if "abstract" in data:
        from sciscidata.abstracts import decode_inverted_index

        frame = frame.with_columns(decode_inverted_index("abstract"))
    return frame.with_columns(clean_text(name) for name in data if name in ("title", "abstract"))


def _list_series(lists: list[list[str]]) -> pl.Series:
    """Hold lists of strings; Polars would make a Series of each of them first, which takes ten times as long."""
    ends = np.cumsum([0, *map(len, lists)])
    entries = pa.array(chain.from_iterable(lists), pa.large_string())
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), entries), dtype=WORKS["concepts"])


def citations_frame(works: Sequence[Work]) -> pl.DataFrame:
    """Make the CITATIONS rows of ``works``, in order.

    Example:
        >>> citations_frame([parse_work(b'{"id":"W42","referenced_works":["W7","W42"]}')]).rows()
        [(42, 7), (42, 42)]
    """
    lists = [work.references for work in works]
    lengths = list(map(len, lists))
    citing = np.repeat(np.array([work.work_id for work in works], np.int64), lengths)
    cited = np.fromiter(chain.from_iterable(lists), np.int64, sum(lengths))
    return pl.DataFrame({"citing_id": citing, "cited_id": cited}, schema=CITATIONS)


class _Ids(msgspec.Struct, gc=False):
    openalex: str | None = None


class _Source(msgspec.Struct, gc=False):
    id: str | None = None
    display_name: str | None = None


class _Location(msgspec.Struct, gc=False):
    source: _Source | None = None


class _Field(msgspec.Struct, gc=False):
    display_name: str | None = None


class _Topic(msgspec.Struct, gc=False):
    display_name: str | None = None
    field: _Field | None = None


class _Concept(msgspec.Struct, gc=False):
    display_name: str | None = None
    score: float | str | None = None
    level: int | str | None = None


class _Plain(msgspec.Struct, gc=False):
    """The fields that are read, in the types that nearly every record has; msgspec makes objects of nothing else.

    A record that does not fit is read loosely, and mended into this form.
    """

    id: str | None = None
    ids: _Ids | None = None
    doi: str | None = None
    title: str | None = None
    display_name: str | None = None
    publication_year: int | float | str | None = None
    cited_by_count: int | float | str | None = None
    primary_topic: _Topic | None = None
    topics: list[_Topic] | None = None
    concepts: list[_Concept] | None = None
    primary_location: _Location | None = None
    host_venue: _Source | None = None
    language: str | None = None
    type: str | None = None
    is_retracted: bool | None = None
    is_xpac: bool | None = None
    referenced_works: msgspec.Raw = msgspec.Raw(b"null")
    abstract_inverted_index: msgspec.Raw = msgspec.Raw(b"null")
    updated_date: str | None = None
    created_date: str | None = None


_PLAIN = msgspec.json.Decoder(_Plain)
# The same fields, whatever they hold.
_Loose = msgspec.defstruct(
    "_Loose",
    [
        (name, msgspec.Raw, default) if isinstance(default, msgspec.Raw) else (name, _Json, None)
        for name, default in zip(_Plain.__struct_fields__, _Plain.__struct_defaults__, strict=True)
    ],
    gc=False,
)
_LOOSE = msgspec.json.Decoder(_Loose)


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


def _decode_loosely(line: bytes) -> _Json:
    try:
        record: _Json = _LOOSE.decode(line)
        _index_text(record.abstract_inverted_index)  # text that is no UTF-8 shows only here
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        try:
            return _LOOSE.decode(strict_json(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            msg = f"not a JSON object: {_shorten(str(error))}"
            raise CorruptRecordError(msg) from error
    return record


def _mend(loose: _Json) -> _Plain:
    """Keep of each field what fits its type."""
    fields: dict[str, Any] = {name: getattr(loose, name) for name in _Plain.__struct_fields__}
    for name in ("doi", "title", "display_name", "language", "type", "updated_date", "created_date"):
        fields[name] = fields[name] if isinstance(fields[name], str) else None
    location = fields["primary_location"]
    fields |= {
        "ids": _Ids(_get(fields["ids"], "openalex")),
        "primary_location": _Location(_mend_source(_get(location, "source"))),
        "host_venue": _mend_source(fields["host_venue"]),
        "primary_topic": next(iter(_mend_topics([fields["primary_topic"]])), None),
        "topics": _mend_topics(fields["topics"]),
        "concepts": [
            _Concept(_text(_get(entry, "display_name")), _get(entry, "score"), _get(entry, "level"))
            for entry in _entries(fields["concepts"])
        ],
    }
    return _Plain(**fields)


def _mend_source(source: _Json) -> _Source | None:
    return _Source(_get(source, "id"), _get(source, "display_name")) if source and isinstance(source, dict) else None


def _mend_topics(topics: _Json) -> list[_Topic]:
    return [
        _Topic(_get(topic, "display_name"), _Field(_get(_get(topic, "field"), "display_name")))
        for topic in _entries(topics)
    ]


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
    if not isinstance(value, str):
        return None
    digits = value[len(_URL) + 1 :]
    if value.startswith(_URL + letter) and _PLAIN_NUMBER.fullmatch(digits):
        return int(digits)
    found = _OPENALEX_ID.fullmatch(value)
    return int(found[2]) if found and found[1].upper() == letter else None


def _references(raw: msgspec.Raw) -> tuple[list[int], int]:
    """Number the works of a reference list, and count the entries that are no id of a work."""
    text = bytes(raw)
    # Nearly every list is plain: its bare numbers are read at once, in a fifth of the time of one id after another.
    with suppress(msgspec.MsgspecError):
        numbers = _NUMBERS.decode(text.replace(_QUOTED_URL, b"").replace(b'"', b""))
        if len(numbers) == text.count(_QUOTED_URL) and (not numbers or (min(numbers) > 0 and max(numbers) < 10**18)):
            return numbers, 0
    listed: _Json = msgspec.json.decode(text)
    entries: list[_Json] = listed if isinstance(listed, list) else []
    numbers = [number for entry in entries if (number := _openalex_number(entry, "W")) is not None]
    return numbers, len(entries) - len(numbers)


_NUMBERS = msgspec.json.Decoder(list[int])
_QUOTED_URL = b'"https://openalex.org/W'
_URL = "https://openalex.org/"
_PLAIN_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
# At most 18 digits: what fits into Int64 whatever the digits are.
_OPENALEX_ID = re.compile(
    r"\s*(?:https?://(?:api\.)?openalex\.org/(?:works/|sources/)?)?([WS])0*([1-9][0-9]{0,17})/?\s*", re.I
)


def _whole_number(value: _Json, low: int, high: int) -> int | None:
    if type(value) is int:
        return value if low <= value <= high else None
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    return int(value) if value == int(value) else None


def _doi(value: str | None) -> str | None:
    text = _text(value)
    if text is None:
        return None
    text = text.lower()
    # The form of nearly all, and what the pattern would make of it.
    plain = text[16:] if text.startswith("https://doi.org/") else _DOI_PREFIX.sub("", text)
    return plain.strip() or None


_DOI_PREFIX = re.compile(r"^(?:(?:https?://)?(?:dx\.|www\.)?doi\.org/|doi:)\s*")


def _date(value: str | None) -> str | None:
    return value[:10] if value and _DATE.match(value) else None


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _entries(value: _Json) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _scored_names(concepts: list[_Concept]) -> list[str]:
    """Name the concepts, best score first; scores are numbers or, in 2023, numbers in quotes."""
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


def _concepts(record: _Plain) -> list[str]:
    names = _scored_names(record.concepts or [])
    if not names:
        names = [name for topic in record.topics or [] if (name := _text(topic.display_name))]
    return names[:_MAX_CONCEPTS]


def _primary_field(record: _Plain) -> str | None:
    """Name the broadest subject: the field of the main topic, or before 2024 the top concept of level 0."""
    for topic in (record.primary_topic, *(record.topics or [])[:1]):
        if topic and topic.field and (name := _text(topic.field.display_name)):
            return name
    broad = [concept for concept in record.concepts or [] if str(concept.level) == "0"]
    return next(iter(_scored_names(broad)), None)


def _shorten(value: _Json) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
