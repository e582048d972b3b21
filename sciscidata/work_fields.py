"""What single fields of an OpenAlex Work say; null for whatever does not fit."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from sciscidata.work_records import Concept, Json, Record, Source, stripped

_MAX_CONCEPTS = 8


def openalex_number(value: Json, letter: Literal["W", "S", "V"]) -> int | None:
    """Give the number of an OpenAlex id (a URL or bare, in either case), null if it is not one of ``letter``."""
    if not isinstance(value, str):
        return None
    digits = value[22:]
    # The form of nearly all, and what the pattern would make of it.
    if (
        value[:22] == _URLS[letter]
        and len(digits) <= 18
        and digits.isdecimal()
        and digits.isascii()
        and digits[0] != "0"
    ):
        return int(digits)
    found = _OPENALEX_ID.fullmatch(value)
    return int(found[2]) if found and found[1].upper() == letter else None


def source_number(source: Source | None) -> int | None:
    """Give the number of a venue: of today's id of a source, or of that of a venue until 2022, which is the same.

    Example:
        >>> [source_number(Source(f"https://openalex.org/{id}")) for id in ("S137773608", "V137773608", "I137773608")]
        [137773608, 137773608, None]
    """
    if source is None:
        return None
    number = openalex_number(source.id, "S")
    return openalex_number(source.id, "V") if number is None else number


def venue_of(record: Record) -> Source | None:
    """Say where a work was published: at its primary location, or in records until 2023 its host venue.

    The one that has an id; of two without, the primary location's, which has a name perhaps.

    Example:
        >>> venue_of(Record(host_venue=Source("https://openalex.org/V42", "Dams"))).display_name
        'Dams'
    """
    source, older = record.primary_location and record.primary_location.source, record.host_venue
    return source if source and (source_number(source) is not None or source_number(older) is None) else older


def reference_lists(raws: Sequence[msgspec.Raw]) -> list[tuple[list[int], int]]:
    """Number the works of many reference lists at once, and count the entries of each that are no id of a work.

    Raises:
        msgspec.MsgspecError: one is not strict JSON.

    Example:
        >>> reference_lists([msgspec.Raw(b'["https://openalex.org/W7"]'), msgspec.Raw(b'["W8","S9"]')])
        [([7], 0), ([8], 1)]
    """
    from sciscidata.work_kernels import read_numbers  # numba takes a while to import

    text = np.frombuffer(b"".join(raws) or b" ", np.uint8)
    offsets = np.cumsum([0, *map(len, raws)])
    numbers, ends, is_plain = (found.tolist() for found in read_numbers(text, offsets, _QUOTED_URL))
    return [
        (numbers[first:end], 0) if plain else _references(raw)
        for first, end, plain, raw in zip(ends, ends[1:], is_plain, raws, strict=False)
    ]


def _references(raw: msgspec.Raw) -> tuple[list[int], int]:
    listed: Json = msgspec.json.decode(raw)
    entries: list[Json] = listed if isinstance(listed, list) else []
    numbers = [number for entry in entries if (number := openalex_number(entry, "W")) is not None]
    return numbers, len(entries) - len(numbers)


_QUOTED_URL = np.frombuffer(b'"https://openalex.org/W', np.uint8)
_URLS = {letter: f"https://openalex.org/{letter}" for letter in "WSV"}
# At most 18 digits: what fits into Int64 whatever the digits are.
_OPENALEX_ID = re.compile(
    r"\s*(?:https?://(?:api\.)?openalex\.org/(?:works/|sources/|venues/)?)?([WSV])0*([1-9][0-9]{0,17})/?\s*", re.I
)


def whole_number(value: Json, low: int, high: int) -> int | None:
    """Give a whole number from ``low`` to ``high``, which may stand in quotes or have a fraction of zero."""
    if type(value) is int:
        return value if low <= value <= high else None
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    return int(value) if value == int(value) else None


def bare_doi(value: str | None) -> str | None:
    """Give a DOI in lower case, without what stands before it."""
    text = stripped(value)
    if text is None:
        return None
    text = text.lower()
    # The form of nearly all, and what the pattern would make of it.
    plain = text[16:] if text.startswith("https://doi.org/") else _DOI_PREFIX.sub("", text)
    return plain.strip() or None


_DOI_PREFIX = re.compile(r"^(?:(?:https?://)?(?:dx\.|www\.)?doi\.org/|doi:)\s*")


def later_date(one: str | None, other: str | None) -> str | None:
    """Give the later of two dates, without their times."""
    one, other = _date(one), _date(other)
    return max(one, other) if one and other else one or other


@lru_cache(1 << 12)
def _date(value: str | None) -> str | None:
    return value[:10] if value and _DATE.match(value) else None


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _scored_names(concepts: list[Concept]) -> list[str]:
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


def concept_names(record: Record) -> list[str]:
    """Name the concepts of a work, or where it has none its topics, at most eight."""
    names = _scored_names(record.concepts or [])
    if not names:
        names = [name for topic in record.topics or [] if (name := stripped(topic.display_name))]
    return names[:_MAX_CONCEPTS]


def primary_field(record: Record) -> str | None:
    """Name the broadest subject: the field of the main topic, or before 2024 the top concept of level 0."""
    for topic in (record.primary_topic, *(record.topics or [])[:1]):
        if topic and topic.field and (name := stripped(topic.field.display_name)):
            return name
    broad = [concept for concept in record.concepts or [] if str(concept.level) == "0"]
    return next(iter(_scored_names(broad)), None)
