"""One OpenAlex Work, of any year and shape, to one row of WORKS and its rows of CITATIONS.

Shared by every source of OpenAlex records. Only the line as a whole can be wrong: a field of an unexpected type
becomes null, so that no oddity of one field costs the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from sciscidata.arrow_strings import is_utf8
from sciscidata.errors import CorruptRecordError
from sciscidata.plain_text import clean_text
from sciscidata.schemas import CITATIONS, WORKS
from sciscidata.work_fields import (
    bare_doi,
    concept_names,
    later_date,
    openalex_number,
    primary_field,
    reference_lists,
    source_number,
    venue_of,
    whole_number,
)
from sciscidata.work_records import RECORDS, Record, decode_loosely, index_text, shorten, stripped

#: Raised by one whenever the same record gives another row, so that nothing parsed before is reused.
PARSER_VERSION = 5


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
        line: the bytes of the object, UTF-8 in fields that are not read too (RFC 8259). What only Python's ``json``
            accepts (NaN, a lone surrogate) is accepted too: NaN is null, a lone surrogate U+FFFD.

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
        line.decode()  # msgspec looks at no text in fields that are not read
        record = RECORDS.decode(line)
        return _normalise(record, reference_lists([record.referenced_works])[0])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        record = decode_loosely(line)
        return _normalise(record, reference_lists([record.referenced_works])[0])


def parse_lines(block: bytes) -> list[Work | CorruptRecordError | None]:
    r"""Read whole lines as ``parse_work`` reads each, in two thirds of the time.

    Args:
        block: lines of UTF-8, the last one without its end.

    Returns:
        For each line its work, or why it holds none; None for a line that holds nothing.

    Example:
        >>> [work and work.work_id for work in parse_lines(b'{"id":"W42"}\n\n{"id":"W7"}')]
        [42, None, 7]
    """
    if (n_lines := _count_lines_of_records(block)) is not None and is_utf8(block):
        try:
            records = RECORDS.decode_lines(block)
            if len(records) == n_lines:
                references = reference_lists([record.referenced_works for record in records])
                return [_normalise(record, listed) for record, listed in zip(records, references, strict=True)]
        except (msgspec.MsgspecError, UnicodeError, RecursionError, CorruptRecordError):
            pass
    return [_parse_line(line) for line in block.split(b"\n")]


def _count_lines_of_records(block: bytes) -> int | None:
    """Count the lines, if all end between two records: then as many records as lines are one in each."""
    n_lines, at = 1, block.find(b"\n")  # five times as fast as bytes.count
    while at >= 0:
        if block[at - 1 : at + 2] != b"}\n{":
            return None
        n_lines, at = n_lines + 1, block.find(b"\n", at + 1)
    return n_lines


def _parse_line(line: bytes) -> Work | CorruptRecordError | None:
    try:
        return parse_work(line) if line and not line.isspace() else None
    except CorruptRecordError as error:
        return error


def _normalise(record: Record, references: tuple[list[int], int]) -> Work:
    work_id = openalex_number(record.id, "W") or openalex_number(record.ids and record.ids.openalex, "W")
    if work_id is None:
        msg = f"no OpenAlex id of a work (id is {shorten(record.id)})"
        raise CorruptRecordError(msg)
    source = venue_of(record)
    listed, malformed = references
    return Work(
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
        changed_on=later_date(record.updated_date, record.created_date),
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
