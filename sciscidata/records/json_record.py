"""Read an OpenAlex record as JSON: the fields that are used, of any year and shape; ``work_row.py`` makes the row."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from sciscidata.errors import CorruptRecordError
from sciscidata.storage.decompression import skip

Json: TypeAlias = Any  # whatever a JSON field may hold


class Ids(msgspec.Struct, gc=False):
    """Other identifiers."""

    openalex: str | None = None


class Source(msgspec.Struct, gc=False):
    """A journal or another venue."""

    id: str | None = None
    display_name: str | None = None


class Location(msgspec.Struct, gc=False):
    """Where a work was published."""

    source: Source | None = None


class Field(msgspec.Struct, gc=False):
    """A broad subject."""

    display_name: str | None = None


class Topic(msgspec.Struct, gc=False):
    """A subject of today."""

    display_name: str | None = None
    field: Field | None = None


class Concept(msgspec.Struct, gc=False):
    """A subject until 2024."""

    display_name: str | None = None
    score: float | str | None = None
    level: int | str | None = None


class Record(msgspec.Struct, gc=False):
    """The fields that are used, in their usual types; a record that does not fit is mended into this form."""

    id: str | None = None
    ids: Ids | None = None
    doi: str | None = None
    title: str | None = None
    display_name: str | None = None
    publication_year: int | float | str | None = None
    cited_by_count: int | float | str | None = None
    primary_topic: Topic | None = None
    topics: list[Topic] | None = None
    concepts: list[Concept] | None = None
    primary_location: Location | None = None
    host_venue: Source | None = None
    language: str | None = None
    type: str | None = None
    is_retracted: bool | None = None
    is_xpac: bool | None = None
    referenced_works: msgspec.Raw = msgspec.Raw(b"null")
    abstract_inverted_index: msgspec.Raw = msgspec.Raw(b"null")
    updated_date: str | None = None
    created_date: str | None = None
    publication_date: str | None = None


RECORDS = msgspec.json.Decoder(Record)
_MOST_MENDED_BYTES = 64 << 20
_MANY_ENTRIES = 100_000
_TINY_BYTES = 16
_LONGEST_SIGN = 16  # -Infinity, and what of a number is one sign: e+1
_CUT_OFF = "cut off"
# The same fields, of any type.
_Loose = msgspec.defstruct(
    "_Loose",
    [
        (name, msgspec.Raw, default) if isinstance(default, msgspec.Raw) else (name, Json, None)
        for name, default in zip(Record.__struct_fields__, Record.__struct_defaults__, strict=True)
    ],
    gc=False,
)
_LOOSE = msgspec.json.Decoder(_Loose)


def strict_json(text: bytes) -> bytes:
    r"""Rewrite JSON that only the standard library reads: NaN and longer integers than 20 digits become null.

    A lone surrogate becomes U+FFFD. Raises CorruptRecordError if the standard library cannot read it, or if it has more
    than 64 MB. The objects that the standard library makes take many times as much memory.

    Example:
        >>> strict_json(b'{"fwci": NaN, "title": "a \\ud800"}').decode()
        '{"fwci": null, "title": "a \ufffd"}'
    """
    if len(text) > _MOST_MENDED_BYTES:
        msg = f"not strict JSON, and with {len(text) >> 20:,} MB too long to be read in any other way"
        raise CorruptRecordError(msg)
    try:
        parsed = json.loads(text, parse_constant=lambda _: None, parse_float=_finite, parse_int=_short_int)
        strict = json.dumps(parsed, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        msg = f"not JSON: {shorten(str(error))}"
        raise CorruptRecordError(msg) from error
    return re.sub("[\ud800-\udfff]", "\ufffd", strict).encode()


def _finite(digits: str) -> float | None:
    return float(digits) if math.isfinite(float(digits)) else None


def _short_int(digits: str) -> int | None:
    return int(digits) if len(digits) <= 20 else None  # longer ones fit no column; int() refuses 4,301 digits


class TooLongToMendError(CorruptRecordError):
    """One value is not strict JSON, and too long to be read in any other way."""


class NoListError(CorruptRecordError):
    """An object is JSON, perhaps to be mended, and has no ``results``."""


def entries_one_by_one(text: bytes) -> Iterator[bytes]:
    r"""Cut a list, or the list ``results`` of an object, into its entries, which ``strict_json`` may have to mend.

    Only one entry is held as objects at a time, so memory does not grow with their number. While reading, it raises
    CorruptRecordError for what is not JSON, or has more than 100,000 entries of less than 16 bytes on average. These
    are no works. It raises TooLongToMendError for a value of more than 64 MB. At the end, it raises NoListError for
    JSON that is neither of the two.

    Example:
        >>> list(entries_one_by_one(b'{"meta": null, "results": [{"id": "W1", "fwci": NaN}, 0]}'))
        [b'{"id": "W1", "fwci": NaN}', b'0']
    """
    walk = _Walk(text)
    has_list = walk.take(b"[{") == b"["
    if has_list:
        yield from walk.entries()
    elif walk.ahead() == b"}":
        walk.take(b"}")
    else:
        sign = b","
        while sign == b",":
            key = walk.value()
            if not isinstance(key, str):
                msg = f"not JSON: {shorten(key)} where a name is expected"
                raise CorruptRecordError(msg)
            walk.take(b":")
            if key == "results" and walk.ahead() == b"[":
                has_list = True
                walk.take(b"[")
                yield from walk.entries()
            else:
                walk.value()
            sign = walk.take(b",}")
    if walk.ahead():
        msg = "not JSON: more behind its end"
        raise CorruptRecordError(msg)
    if not has_list:
        msg = "neither a list nor a page with results"
        raise NoListError(msg)


class _Walk:
    """A place in a JSON text, which moves on by one sign or value at a time."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0
        self._window, self._start = "", 0
        self._scanner = json.JSONDecoder(parse_int=_short_int)

    def ahead(self) -> bytes:
        """Return the next sign; nothing at the end."""
        self._at = skip(self._text, self._at, b" \t\r\n")
        return self._text[self._at : self._at + 1]

    def take(self, expected: bytes) -> bytes:
        """Pass over the next sign, which must be one of ``expected``."""
        sign = self.ahead()
        if not sign or sign not in expected:
            msg = f"not JSON: Expecting {' or '.join(map(chr, expected))} at byte {self._at:,}"
            raise CorruptRecordError(msg)
        self._at += 1
        return sign

    def entries(self) -> Iterator[bytes]:
        """Yield the entries of a list, from behind its bracket on."""
        n, begin = 0, self._at
        if self.ahead() == b"]":
            self._at += 1
            return
        sign = b","
        while sign == b",":
            self.ahead()
            start = self._at
            self.value()
            n += 1
            if n > _MANY_ENTRIES and self._at - begin < n * _TINY_BYTES:
                msg = (
                    f"a list of more than {_MANY_ENTRIES:,} entries, of less than {_TINY_BYTES} bytes each, and no "
                    "more of it is read. If these are works, write one a line: jq -c '.results[]? // .[]'"
                )
                raise CorruptRecordError(msg)
            yield self._text[start : self._at]
            sign = self.take(b",]")

    def value(self) -> Json:
        """Pass over a value, and return it."""
        self.ahead()
        try:
            return self._scan()
        except (ValueError, RecursionError):
            # Its end may lie behind the window. Latin-1 makes one character of each byte, so places stay the same.
            self._window = self._text[self._at : self._at + _MOST_MENDED_BYTES].decode("latin-1")
            self._start = self._at
        try:
            return self._scan()
        except (ValueError, RecursionError) as error:
            if self._is_cut(error):
                msg = (
                    f"a value that begins at byte {self._at:,} is not strict JSON, and with more than "
                    f"{_MOST_MENDED_BYTES >> 20:,} MB too long to be read in any other way. Write null for NaN in it"
                )
                raise TooLongToMendError(msg) from error
            msg = f"not JSON: {shorten(str(error))}, from byte {self._at:,} on"
            raise CorruptRecordError(msg) from error

    def _scan(self) -> Json:
        value, end = self._scanner.raw_decode(self._window, self._at - self._start)
        end += self._start
        if self._is_behind_window(end):
            raise json.JSONDecodeError(_CUT_OFF, "", 0)  # a number may go on there
        self._at = end
        return value

    def _is_behind_window(self, at: int) -> bool:
        end = self._start + len(self._window)
        return end < len(self._text) and at > end - _LONGEST_SIGN

    def _is_cut(self, error: Exception) -> bool:
        """Whether the only reason for an error may be the end of the window."""
        return isinstance(error, json.JSONDecodeError) and (
            error.msg == _CUT_OFF
            or self._is_behind_window(self._start + (len(self._window) if "Unterminated" in error.msg else error.pos))
        )


def decode_loosely(line: bytes) -> Record:
    """Read an odd record, and keep the fields that fit their types; raise CorruptRecordError for no JSON object."""
    loose = _decode_whatever(line)
    fields: dict[str, Any] = {name: getattr(loose, name) for name in Record.__struct_fields__}
    for name in (
        "doi",
        "title",
        "display_name",
        "language",
        "type",
        "updated_date",
        "created_date",
        "publication_date",
    ):
        fields[name] = fields[name] if isinstance(fields[name], str) else None
    location = fields["primary_location"]
    fields |= {
        "ids": Ids(_get(fields["ids"], "openalex")),
        "primary_location": Location(_mend_source(_get(location, "source"))),
        "host_venue": _mend_source(fields["host_venue"]),
        "primary_topic": next(iter(_mend_topics([fields["primary_topic"]])), None),
        "topics": _mend_topics(fields["topics"]),
        "concepts": [
            Concept(stripped(_get(entry, "display_name")), _get(entry, "score"), _get(entry, "level"))
            for entry in _entries(fields["concepts"])
        ],
    }
    return Record(**fields)


def _decode_whatever(line: bytes) -> Json:
    try:
        line.decode()
        record: Json = _LOOSE.decode(line)
        index_text(record.abstract_inverted_index)  # a broken string in it shows only here
        msgspec.json.decode(record.referenced_works)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        try:
            return _LOOSE.decode(strict_json(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            msg = f"not a JSON object: {shorten(str(error))}"
            raise CorruptRecordError(msg) from error
    return record


def _mend_source(source: Json) -> Source | None:
    return Source(_get(source, "id"), _get(source, "display_name")) if source and isinstance(source, dict) else None


def _mend_topics(topics: Json) -> list[Topic]:
    return [
        Topic(_get(topic, "display_name"), Field(_get(_get(topic, "field"), "display_name")))
        for topic in _entries(topics)
    ]


def index_text(raw: msgspec.Raw) -> str | None:
    """Return the JSON text of an inverted index, None for null; errors of UTF-8 and of msgspec pass through."""
    text = str(raw, "utf-8")
    if text == "null":
        return None
    # The Parquet snapshot holds the index as a string, and so do files exported from it.
    return msgspec.json.decode(text, type=str) if text.startswith('"') else text


def stripped(value: Json) -> str | None:
    """Return a text without the space around it; None where nothing is left, or for another type."""
    return (value.strip() or None) if isinstance(value, str) else None


def _get(value: Json, key: str) -> Json:
    return value.get(key) if isinstance(value, dict) else None


def _entries(value: Json) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def shorten(value: Json) -> str:
    """Return the beginning of a value, for a message."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
