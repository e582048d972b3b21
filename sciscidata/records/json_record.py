"""Read an OpenAlex record as JSON: the values that are used, of any year and shape; ``work_columns.py`` makes rows.

Only a line as a whole can be corrupt. A value of an unexpected type becomes null, so one odd value does not cost the
record.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

import msgspec

from sciscidata._kernels.strings import is_utf8
from sciscidata.errors import CorruptRecordError
from sciscidata.records.ids import MISSING, openalex_number
from sciscidata.records.read_lines import refusal_of

Json: TypeAlias = Any  # whatever a JSON field may hold

#: The paths of the texts of a work; space around the first three counts.
TEXTS: Final = (
    "updated_date", "created_date", "publication_date", "id", "doi", "title", "display_name", "language", "type",
    "primary_topic.field.display_name", "primary_location.source.id", "primary_location.source.display_name",
    "host_venue.id", "host_venue.display_name",
)  # fmt: skip
_STEPS: Final = [path.split(".") for path in TEXTS]
_OTHERS: Final = (
    "ids", "publication_year", "cited_by_count", "is_retracted", "is_xpac", "is_authors_truncated", "concepts",
    "topics", "authorships", "referenced_works",
)  # fmt: skip
_INDEX: Final = "abstract_inverted_index"
_FIELDS: Final = dict.fromkeys([*(steps[0] for steps in _STEPS), *_OTHERS], Json) | {_INDEX: msgspec.Raw}


def _only(*names: str, **fields: Any) -> Any:  # noqa: ANN401 (a type)
    """Make the type of an object of which only some fields are kept."""
    return TypedDict("_Object", dict.fromkeys(names, Json) | fields, total=False)  # pyright: ignore


_VENUE: Final = _only("id", "display_name") | None
_ANY: Final = msgspec.json.Decoder[dict[str, Json]](_only(**_FIELDS))
#: The same, with objects where they usually are. Only the used fields are made of them, in half the time.
_USUAL: Final = msgspec.json.Decoder[dict[str, Json]](
    _only(
        **_FIELDS
        | {
            "host_venue": _VENUE,
            "primary_location": _only(source=_VENUE) | None,
            "concepts": list[_only("display_name", "score", "level")] | None,
            "topics": list[_only("display_name", "field")] | None,
            "authorships": list[msgspec.Raw] | None,
        }
    )
)
_LIST = re.compile(rb"\s*\[")
_OBJECT = re.compile(rb"\s*\{")
_NEXT_OBJECT = re.compile(r"[\s,]*\{")
_BOUNDARY = re.compile(rb"(?<=\n[}\]])[ \t\r,]*\n?(?=\s*[{\[])")
_DECODER = json.JSONDecoder()
#: What only the standard library reads needs many times its size in memory.
MOST_MENDED_BYTES: Final = 64 << 20


class PlainRecord(NamedTuple):
    """The used values of a record, each of its type or none: what stands in a record of the usual form."""

    work_id: int
    texts: list[str | None]  # of TEXTS
    publication_year: int | None
    cited_by_count: int | None
    is_retracted: bool
    is_xpac: bool
    n_authors: int | None
    has_source: bool
    concepts: list[tuple[str | None, float, int]]  # name, score (NaN for none), level (-1 for none)
    topics: list[tuple[str | None, str | None]]  # name, field
    references: list[str | None]  # ids of works, and what is none
    abstract_index: str | None


def read_record(line: bytes) -> PlainRecord:
    """Read one JSON object as an OpenAlex Work, of 2021 or of today, from the API or the snapshot.

    NaN and a lone surrogate, which only Python's ``json`` accepts, become null and U+FFFD. Source:
    https://docs.openalex.org/api-entities/works/work-object
    """
    return plain_record(*_decode(line))


def plain_record(fields: dict[str, Json], index: str | None) -> PlainRecord:
    """Take the used values out of a decoded record; ``index`` is the JSON text of its abstract."""
    texts = [_text_at(fields, steps) for steps in _STEPS]
    place = TEXTS.index("id")
    work_id = openalex_number(texts[place], "W")
    if work_id is None:
        texts[place] = _text_at(fields, ("ids", "openalex"))
        work_id = openalex_number(texts[place], "W")
    if work_id is None:
        raise CorruptRecordError(f"no OpenAlex id of a work (id is {_shorten(fields.get('id'))})")
    authors = fields.get("authorships")
    return PlainRecord(
        work_id=work_id,
        texts=texts,
        publication_year=_whole_number(fields.get("publication_year"), 1, 9999),
        cited_by_count=_whole_number(fields.get("cited_by_count"), 0, 2**63 - 1),
        is_retracted=fields.get("is_retracted") is True,
        is_xpac=fields.get("is_xpac") is True,
        n_authors=len(authors)
        if isinstance(authors, list) and fields.get("is_authors_truncated") is not True
        else None,
        has_source=isinstance(_get(fields, "primary_location", "source"), dict),
        concepts=[
            (_plain(entry.get("display_name")), _score(entry.get("score")), 0 if str(entry.get("level")) == "0" else -1)
            for entry in _objects(fields.get("concepts"))
        ],
        topics=[
            (_plain(entry.get("display_name")), _text_at(entry, ("field", "display_name")))
            for entry in _objects(fields.get("topics"))
        ],
        references=_references(fields.get("referenced_works")),
        abstract_index=index,
    )


def _decode(line: bytes) -> tuple[dict[str, Json], str | None]:
    """Return the used fields of a record, and its abstract as an index."""
    if reason := refusal_of(line):
        raise CorruptRecordError(reason)
    for decoder in (_USUAL, _ANY):
        try:
            line.decode()  # msgspec does not check the text of unused fields
            fields = decoder.decode(line)
            return fields, _index_text(fields)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
    try:
        fields = _ANY.decode(strict_json(line))
        return fields, _index_text(fields)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptRecordError(f"not a JSON object: {_shorten(str(error))}") from error


def _index_text(fields: dict[str, Json]) -> str | None:
    """Return the JSON text of an inverted index, None for null; errors of UTF-8 and of msgspec pass through."""
    text = str(fields.get(_INDEX, b"null"), "utf-8")
    if text == "null":
        return None
    # The Parquet snapshot holds the index as a string, and so do files exported from it.
    return msgspec.json.decode(text, type=str) if text.startswith('"') else text


def _get(value: Json, *steps: str) -> Json:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _plain(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _text_at(value: Json, steps: Sequence[str]) -> str | None:
    for step in steps:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value if isinstance(value, str) else None


def _objects(value: Json) -> list[dict[str, Json]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _score(value: Json) -> float:
    """Return the score of a concept, which in 2023 is a number in quotes."""
    try:
        return float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _whole_number(value: Json, low: int, high: int) -> int | None:
    """Return a whole number from ``low`` to ``high``, also in quotes or with a fraction of zero; else None."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    return int(value) if value == int(value) else None


def _references(listed: Json) -> list[str | None]:
    if isinstance(listed, str):  # a list that was saved as text, or its only entry
        listed = [entry for entry in re.findall(r"""[^\s,;|\[\]"']+""", listed) if entry not in MISSING]
    return list(map(_plain, listed)) if isinstance(listed, list) else []


def read_records(piece: bytes, *, pages: bool = True) -> Iterator[PlainRecord | CorruptRecordError]:
    """Read one JSON value: a work, or with ``pages`` also a list of works, or a page of the API with ``results``."""
    error = None
    if not (pages and _LIST.match(piece)):
        try:
            yield read_record(piece)
            return
        except CorruptRecordError as reason:
            if not pages:
                yield reason
                return
            error = reason
    place = 0
    try:
        for place, entry in enumerate(split_entries(piece), 1):
            yield _result(place, bytes(entry))
    except CorruptRecordError as reason:
        values = [] if place else _values_in_a_row(piece)
        yield from (_result(number, value) for number, value in enumerate(values, 1))
        if not values:
            yield reason if place or error is None else error


def _values_in_a_row(piece: bytes) -> list[bytes]:
    """Cut a text into the JSON objects in it that have only blanks and commas between; none if it is anything else."""
    values, at = list[bytes](), 0
    try:
        text = piece.decode() if len(piece) <= MOST_MENDED_BYTES else ""
        while match := _NEXT_OBJECT.match(text, at):
            _, at = _DECODER.raw_decode(text, match.end() - 1)
            values.append(text[match.end() - 1 : at].encode())
    except (ValueError, RecursionError):
        return []
    return values if not text[at:].strip(" \t\r\n,") else []


def split_document(document: bytes) -> list[bytes]:
    """Cut a document into JSON values that are written on several lines each; none if it is not made of such."""
    if is_json(document):
        return [document]
    values = _BOUNDARY.split(document)
    return values if len(values) > 1 else []


def _result(place: int, entry: bytes) -> PlainRecord | CorruptRecordError:
    try:
        if _OBJECT.match(entry):
            return read_record(entry)
        raise CorruptRecordError("not a JSON object")
    except CorruptRecordError as error:
        return CorruptRecordError(f"result {place}: {error}")


class _Page(msgspec.Struct):
    results: list[msgspec.Raw]


def split_entries(piece: bytes) -> list[msgspec.Raw]:
    """Cut a list or a page of the API into its entries; what only Python reads is mended first."""
    is_list = _LIST.match(piece)

    def cut(text: bytes) -> list[msgspec.Raw]:
        if is_list:
            return msgspec.json.decode(text, type=list[msgspec.Raw])
        return msgspec.json.decode(text, type=_Page).results

    try:
        return cut(piece)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        text = strict_json(piece)
    try:
        return cut(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptRecordError("neither a list nor a page with results") from error


def is_json(document: bytes) -> bool:
    """Whether the whole document is JSON, perhaps after repair."""
    try:
        if is_utf8(document):
            msgspec.json.decode(document, type=msgspec.Raw)  # makes no objects
            return True
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        strict_json(document)
    except CorruptRecordError:
        return False
    return True


def strict_json(text: bytes) -> bytes:
    """Rewrite JSON that only Python's ``json`` reads: NaN and longer integers than 20 digits become null.

    Not more than 64 MB, because its objects take many times as much memory. A lone surrogate becomes U+FFFD.
    """
    if len(text) > MOST_MENDED_BYTES:
        raise CorruptRecordError(
            f"not strict JSON, and with {len(text) >> 20:,} MB too long to be read in any other way"
        )
    try:
        parsed = json.loads(text, parse_constant=lambda _: None, parse_float=_finite, parse_int=_short_int)
        strict = json.dumps(parsed, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise CorruptRecordError(f"not JSON: {_shorten(str(error))}") from error
    return re.sub("[\ud800-\udfff]", "\ufffd", strict).encode()


def _finite(digits: str) -> float | None:
    return float(digits) if math.isfinite(float(digits)) else None


def _short_int(digits: str) -> int | None:
    return int(digits) if len(digits) <= 20 else None  # longer ones fit no column; int() refuses 4,301 digits


def _shorten(value: Json) -> str:
    """Return the beginning of a value, for a message."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
