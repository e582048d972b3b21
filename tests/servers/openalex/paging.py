"""Rows in the order asked for, and cursors into it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

from tests.servers.openalex.collection import OPENALEX, Collection, short_id
from tests.servers.openalex.filters import Refused, known_field, not_served


def in_order(rows: int, order: Sequence[int]) -> Iterator[int]:
    """The rows of a set, in an order; default order without looking at those outside the set."""
    bits = bin(rows)[:1:-1]
    if isinstance(order, range):
        row = bits.find("1")
        while row >= 0:
            yield row
            row = bits.find("1", row + 1)
    else:
        yield from (row for row in order if row < len(bits) and bits[row] == "1")


SortKeys = list[tuple[str, bool]]


def sort_keys(collection: Collection, text: str | None) -> SortKeys:
    """Field and whether descending."""
    keys: SortKeys = []
    for part in text.split(",") if text else ():
        key, _, direction = part.partition(":")
        if key == "relevance_score":
            message = (
                "Must include a search query (such as ?search=example or /filter=display_name.search:example) "
                "in order to sort by relevance_score."
            )
            raise Refused(message)
        name = known_field(collection, key)
        if collection.columns[name].values is None:
            raise not_served(f"Sorting by {name}")
        if direction in ("", "asc", "desc"):  # another word is ignored, as OpenAlex does
            keys.append((name, direction == "desc"))
    return keys


def sorted_rows(collection: Collection, keys: SortKeys) -> Sequence[int]:
    """All rows in the order asked for: works without the value last, equal ones in default order."""
    if not keys:
        return range(len(collection.ids))
    order = list(range(len(collection.ids)))
    for name, descending in reversed(keys):
        values = collection.columns[name].values or []
        known = [row for row in order if values[row] is not None]
        known.sort(key=values.__getitem__, reverse=descending)  # stable in both directions
        order = known + [row for row in order if values[row] is None]
    return order


def encode_cursor(collection: Collection, keys: SortKeys, row: int) -> str:
    """A cursor as OpenAlex writes it: the sort values of the last row and its id."""
    values = [
        (collection.columns[name].values or [])[row]
        for name, _ in keys or [("cited_by_count", True)]
        if name in collection.columns
    ]
    cursor = str([*values, OPENALEX + collection.ids[row]])
    return base64.b64encode(json.dumps(cursor).encode()).decode()


def decode_cursor(cursor: str, collection: Collection) -> int:
    if cursor.lower() in ("null", "none"):
        message = "Cursor is null. Likely reached end of results."
        raise Refused(message, error="Pagination error.")
    try:
        text = json.loads(base64.b64decode(cursor, validate=True))
        identifier = short_id(text.rpartition("'")[0].rpartition("'")[2])
        return collection.position[identifier or ""]
    except (ValueError, AttributeError, KeyError):
        message = "Invalid cursor value"
        raise Refused(message, error="Pagination error.") from None


def after(order: Iterator[int], last: int) -> Iterator[int]:
    for row in order:
        if row == last:
            break
    return order
