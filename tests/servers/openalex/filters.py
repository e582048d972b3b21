"""``filter=`` to the set of rows that it matches, with OpenAlex's rules and its words for what it refuses."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from typing import Any

from tests.servers.openalex.collection import Collection, Column, bare_doi, short_id
from tests.servers.openalex.vocabulary import PAID_FILTERS, UNLISTED_FILTERS

MAX_VALUES = 100
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_COMMA_OUTSIDE_QUOTES = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')


class Refused(Exception):
    """OpenAlex answers this request with an error."""

    def __init__(self, message: str, *, error: str = "Invalid query parameters error.", status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.message = message


def not_served(what: str) -> Refused:
    """OpenAlex would answer; this server was not taught to. Never silently wrong."""
    return Refused(f"{what} is part of OpenAlex but not of this loopback server.", error="Not here", status=501)


def known_field(collection: Collection, key: str) -> str:
    """The field's canonical spelling; `-` and `_` are the same."""
    name = key.replace("-", "_")
    if name in PAID_FILTERS:
        message = f"{name} needs a plan with the daily snapshot. See https://openalex.org/pricing"
        raise Refused(message, error="Plan upgrade required", status=429)
    if name not in collection.filters and name not in UNLISTED_FILTERS:
        listed = ", ".join(collection.filters)
        message = f"{name} is not a valid field. Valid fields are underscore or hyphenated versions of: {listed}"
        raise Refused(message)
    if name not in collection.columns:
        raise not_served(f"The field {name}")
    return name


def matching(collection: Collection, text: str | None) -> int:
    """The rows that satisfy every clause; a field that is named twice has to satisfy both."""
    rows = collection.everything
    for clause in _COMMA_OUTSIDE_QUOTES.split(text) if text else ():
        key, colon, value = clause.partition(":")
        if not colon:
            message = f"Invalid query parameter in {clause}."
            raise Refused(message)
        name = known_field(collection, key)
        rows &= _clause(collection, name, value.strip('"'))
    return rows


def _clause(collection: Collection, name: str, value: str) -> int:
    column = collection.columns[name]
    if "|" in value:
        return _any_of(collection, name, value)
    if " " in value and column.kind in ("id", "doi", "cited_by"):
        rows = collection.everything
        for part in _at_most(name, value.split(" ")):
            rows &= _atom(collection, name, part)
        return rows
    return _atom(collection, name, value)


def _any_of(collection: Collection, name: str, value: str) -> int:
    parts = _at_most(name, value.split("|"))
    negated = value.startswith("!")
    rows = 0
    for part in parts:
        if part.startswith("!") and not negated:
            message = (
                "The ! operator can only be used at the beginning of an OR query, like "
                "/works?filter=concepts.id:!C144133560|C15744967, meaning NOT (C144133560 or C15744967). "
                f"Problem value: {part}"
            )
            raise Refused(message)
        rows |= _atom(collection, name, part.removeprefix("!") if negated else part)
    return collection.everything & ~rows if negated else rows


def _at_most(name: str, parts: list[str]) -> list[str]:
    if len(parts) > MAX_VALUES:
        message = (
            f"Maximum number of values exceeded for {name}. Decrease values to {MAX_VALUES} or below, or consider "
            "downloading the full dataset at https://docs.openalex.org/download-snapshot"
        )
        raise Refused(message)
    return parts


def _atom(collection: Collection, name: str, value: str) -> int:
    column = collection.columns[name]
    if column.kind in ("exists", "flag"):
        return _flag(collection, name, column, value.lower().strip())
    if value == "null":
        return collection.everything & ~column.present
    if value == "!null":
        return column.present
    if value.startswith("!"):
        return collection.everything & ~_plain(collection, name, column, value[1:])
    return _plain(collection, name, column, value)


def _flag(collection: Collection, name: str, column: Column, value: str) -> int:
    if column.kind == "flag" and value in ("null", "!null"):
        return column.present if value == "!null" else collection.everything & ~column.present
    if value not in ("true", "false"):
        wanted = "true or false, not" if column.kind == "exists" else "true, false null, or !null: not"
        message = f"Value for {name} must be {wanted} {value}."
        raise Refused(message)
    return column.mask(value == "true")


def _plain(collection: Collection, name: str, column: Column, value: str) -> int:
    if column.kind in ("id", "cited_by"):
        identifier = short_id(value)
        if identifier is None:
            message = f"'{value.replace('https://openalex.org/', '')}' is not a valid OpenAlex ID."
            raise Refused(message)
        if column.kind == "id":
            return column.mask(identifier)
        row = collection.position.get(identifier)
        return collection.mask_of_ids(collection.references[row]) if row is not None else 0
    if column.kind == "doi":
        return column.mask(bare_doi(value))
    if column.kind in ("term", "text"):
        wanted = (value.rsplit("/", 1)[-1] if column.kind == "term" else value).strip().lower()
        return _where(column, lambda held: str(held).lower() == wanted)
    if column.kind == "number":
        return _where(column, _number_test(name, value))
    return _where(column, _date_test(name, column.kind, value))


def _where(column: Column, test: Callable[[Any], bool]) -> int:
    rows = 0
    for held in column.rows:
        if test(held):
            rows |= column.mask(held)
    return rows


def _number_test(name: str, value: str) -> Callable[[Any], bool]:
    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            message = f"Value for param {name} must be a number."
            raise Refused(message) from None

    first, last = -math.inf, math.inf
    if value.startswith("<"):
        last = math.nextafter(number(value[1:]), -math.inf)
    elif value.startswith(">"):
        first = math.nextafter(number(value[1:]), math.inf)
    elif value.startswith("-"):
        last = number(value[1:])
    elif value.endswith("-"):
        first = number(value[:-1])
    else:
        low, dash, high = value.partition("-")
        first, last = number(low), number(high if dash else low)
    return lambda held: first <= held <= last


def _date_test(name: str, kind: str, value: str) -> Callable[[Any], bool]:
    sign = value[0] if value[:1] in ("<", ">") else ""
    date = value.removeprefix(sign)
    try:
        if not _DATE.fullmatch(date):
            raise ValueError
        datetime.date.fromisoformat(date)
    except ValueError:
        message = f"Value for param {name} is an invalid date. Format is yyyy-mm-dd (e.g. 2020-05-17)."
        raise Refused(message) from None
    if sign:
        return (lambda held: held < date) if sign == "<" else (lambda held: held > date)
    if kind == "from":
        return lambda held: held >= date
    if kind == "to":
        return lambda held: held <= date
    return lambda held: held == date
