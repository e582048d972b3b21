"""Rows that can be served and filtered: one inverted index per ``filter=`` field.

A set of rows is one Python int, a bit per row: AND, OR, NOT and counting are single operations, and because rows
are numbered in OpenAlex's default order, reading the bits upwards gives the answer in that order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]

OPENALEX = "https://openalex.org/"
#: Masks are kept for values that many rows share; a reference that two rows cite is cheaper to set anew.
KEEP_MASK_OF = 64

_OPENALEX_ID = re.compile(r"(?:https?://(?:api\.)?openalex\.org/(?:[a-z]+/)?)?([a-z]\d+)", re.IGNORECASE)


def short_id(text: str) -> str | None:
    """``W123`` of a bare, lower-case or URL id; None for anything else."""
    match = _OPENALEX_ID.fullmatch(text.strip())
    return match[1].upper() if match else None


def bare_doi(text: str) -> str:
    return re.sub(r"^(https?://(dx\.)?doi\.org/|doi:)", "", text.strip().lower())


class Column:
    """One ``filter=`` field: which rows hold which value.

    ``kind`` says how a value is written: id, cited_by, doi, number, term (the last part of a URL is enough), text,
    flag, exists (a flag that is never unknown), date, from, to.
    ``values`` keeps the single value of each row for ``sort=``; None where a row may hold several.
    """

    def __init__(self, kind: str, *, values: list[Any] | None = None) -> None:
        self.kind = kind
        self.values = values
        self.rows: dict[Any, list[int]] = {}
        self.present = 0
        self.names: dict[Any, str] = {}  # display names of the groups
        self._masks: dict[Any, int] = {}

    def add(self, row: int, value: Any) -> None:
        if value is not None:
            self.rows.setdefault(value, []).append(row)
            self.present |= 1 << row

    def mask(self, value: Any) -> int:
        if value in self._masks:
            return self._masks[value]
        rows = self.rows.get(value, ())
        mask = 0
        for row in rows:
            mask |= 1 << row
        if len(rows) > KEEP_MASK_OF:
            self._masks[value] = mask
        return mask


class Collection:
    """All rows of one kind, numbered in default order: most cited first, then by id."""

    def __init__(self, rows: list[Row], ids: list[str], *, fields: list[str], filters: list[str]) -> None:
        self.listed = rows  # as lists serve them
        self.single = list(rows)  # as single calls serve them: every author
        self.ids = ids
        self.position = {identifier: row for row, identifier in enumerate(ids)}
        self.fields = fields
        self.filters = filters
        self.columns: dict[str, Column] = {}
        self.everything = (1 << len(rows)) - 1
        self.references: list[list[str]] = []

    def column(self, name: str, kind: str, values: Iterable[Any]) -> None:
        """Index one field, ``values`` being one value or list of values per row."""
        values = list(values)
        several = any(isinstance(value, (list, tuple, set)) for value in values)
        column = Column(kind, values=None if several else values)
        for row, value in enumerate(values):
            for one in dict.fromkeys(value) if several else (value,):
                column.add(row, one)
        self.columns[name] = column

    def alias(self, name: str, of: str, kind: str | None = None) -> None:
        column = self.columns[of]
        if kind is not None:
            column = Column(kind, values=column.values)
            column.rows, column.present = self.columns[of].rows, self.columns[of].present
        self.columns[name] = column

    def row_of(self, text: str) -> int | None:
        """The row of an id or a DOI, however it is written."""
        identifier = short_id(text)
        if identifier is not None:
            return self.position.get(identifier)
        dois = self.columns["doi"].rows if "doi" in self.columns else {}
        return next(iter(dois.get(bare_doi(text), ())), None)

    def mask_of_ids(self, identifiers: Iterable[str]) -> int:
        mask = 0
        for identifier in identifiers:
            row = self.position.get(identifier)
            if row is not None:
                mask |= 1 << row
        return mask
