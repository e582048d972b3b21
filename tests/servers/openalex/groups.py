"""``group_by=``: how many of the matching rows hold each value."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.servers.openalex.collection import OPENALEX, Collection
from tests.servers.openalex.filters import Refused, known_field, not_served
from tests.servers.openalex.vocabulary import LANGUAGES

MAX_GROUPS = 200
#: Keys of these fields are URLs: the folder after https://openalex.org/.
_KEY_FOLDERS = {
    "type": "types/",
    "language": "languages/",
    "primary_topic.field.id": "fields/",
    "topics.field.id": "fields/",
    "primary_location.source.id": "",
}

Group = dict[str, Any]


def grouped(
    collection: Collection, rows: int, text: str, *, per_page: int, cursor: str | None
) -> tuple[list[Group], str | None]:
    """The groups of one page, and the cursor of the next.

    Without a cursor the largest groups come first and works without a value only on request; with one, groups come
    by key, works without a value never, and only an empty page ends the walk.
    """
    key, colon, option = text.partition(":")
    if "," in key:
        raise not_served("group_by with several fields")
    if colon and option != "include_unknown":
        message = "The only valid filter for a group_by param is 'include_unknown', which shows the unknown group."
        raise Refused(message)
    name = known_field(collection, key)
    column = collection.columns[name]
    if column.kind in ("date", "from", "to"):
        message = "Cannot group by date, number, or search fields."
        raise Refused(message)
    if name in ("cites", "referenced_works"):
        message = "Group by referenced_works is not supported at this time."
        raise Refused(message)
    if column.kind in ("id", "cited_by", "doi") and name not in _KEY_FOLDERS:
        message = f"Cannot group by {name}."
        raise Refused(message)
    if column.kind in ("exists", "flag") and cursor:
        message = "Cannot use cursor pagination when grouping fields that return true or false."
        raise Refused(message)

    counts = {value: (column.mask(value) & rows).bit_count() for value in column.rows}
    if column.kind == "exists":
        counts = {True: 0, False: 0} | counts  # both are always told
    counts = {value: count for value, count in counts.items() if count or column.kind == "exists"}
    if cursor:
        return _by_key(collection, name, counts, per_page, cursor)
    groups = [_group(collection, name, value, count) for value, count in counts.items()]
    unknown = (rows & ~column.present).bit_count()
    if option and unknown:
        groups.append({"key": "-111" if column.kind == "number" else "unknown", "key_display_name": "unknown"})
        groups[-1]["count"] = unknown
    groups.sort(key=lambda group: (-group["count"], group["key"]))
    return groups[:per_page], None


def _by_key(
    collection: Collection, name: str, counts: dict[Any, int], per_page: int, cursor: str
) -> tuple[list[Group], str | None]:
    values = sorted(counts)
    if cursor != "*":
        try:
            last = json.loads(base64.b64decode(cursor, validate=True))
            last = type(values[0])(last) if values else last
        except (ValueError, TypeError):
            message = "Invalid cursor value"
            raise Refused(message, error="Pagination error.") from None
        values = [value for value in values if value > last]
    page = values[:per_page]
    after = base64.b64encode(json.dumps(str(page[-1])).encode()).decode() if page else None
    return [_group(collection, name, value, counts[value]) for value in page], after


def _group(collection: Collection, name: str, value: Any, count: int) -> Group:
    column = collection.columns[name]
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    key, label = shown, column.names.get(value, shown)
    if isinstance(value, bool):
        # a flag's bucket is keyed 1 or 0, a has_… one by its word
        key, label = (str(int(value)) if column.kind == "flag" else shown), shown
    if name in _KEY_FOLDERS:
        key = OPENALEX + _KEY_FOLDERS[name] + shown
    if name == "language":
        label = LANGUAGES.get(shown, shown)
    return {"key": key, "key_display_name": label, "count": count}
