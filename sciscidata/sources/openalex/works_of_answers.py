"""Read the works in answers of the API: a decoded record becomes a row, like that of every other source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import polars as pl

from sciscidata.openalex_api.answer_checks import Answer
from sciscidata.records.ids import openalex_number
from sciscidata.records.json_record import PlainRecord, plain_record
from sciscidata.records.work_columns import rows_of_records, works_of
from sciscidata.schemas import WORKS


class Work(NamedTuple):
    """A work of an answer: what its counts need, and its row."""

    work_id: int
    publication_year: int | None
    cited_by_count: int | None
    references: list[int]
    row: tuple[Any, ...]  # of WORKS


def works_in(answers: Iterable[Answer]) -> list[Work]:
    """Read the works of lists, like every other source."""
    rows = rows_of_records((0, record) for record in _records_in(answers)).rows
    facts = (rows[name].to_list() for name in ("work_id", "publication_year", "cited_by_count", "references"))
    return list(map(Work, *facts, works_of(rows).rows()))


def _records_in(answers: Iterable[Answer]) -> Iterator[PlainRecord]:
    for answer in answers:
        for record in answer["results"]:
            index = record.get("abstract_inverted_index")
            if index is not None and not isinstance(index, str):  # abstracts are read from text, for all sources
                index = msgspec.json.encode(index).decode()
            yield plain_record(record, index)


def dated_citers(citers: Answer) -> Iterator[tuple[int, int, set[int]]]:
    """Read the citers that have a year: number, year and references. Making rows of a few takes longer."""
    for record in _records_in([citers]):
        if record.publication_year is not None:
            references = (openalex_number(cited, "W") for cited in record.references)
            yield record.work_id, record.publication_year, {number for number in references if number is not None}


def works_frame(works: Iterable[Work]) -> pl.DataFrame:
    """Make WORKS of works."""
    return pl.DataFrame([work.row for work in works], schema=WORKS, orient="row")


def own_references(work: Work) -> list[int]:
    """Return the distinct references of a work in ascending order, itself left out."""
    return sorted(set(work.references) - {work.work_id})
