"""One GET to one answer: which endpoint, which rows, which fields, at what price."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from tests.servers.openalex.collection import Collection, short_id
from tests.servers.openalex.filters import Refused, matching
from tests.servers.openalex.groups import MAX_GROUPS, grouped
from tests.servers.openalex.paging import after, decode_cursor, encode_cursor, in_order, sort_keys, sorted_rows
from tests.servers.openalex.parameters import check_paging, check_parameters, number_of, selected

NOT_FOUND = (
    "<!doctype html>\n<html lang=en>\n<title>404 Not Found</title>\n<h1>Not Found</h1>\n<p>The requested URL was not "
    "found on the server. If you entered the URL manually please check your spelling and try again.</p>\n"
)
HTML, JSON = "text/html; charset=utf-8", "application/json"


@dataclasses.dataclass
class Answer:
    """What goes back."""

    status: int
    payload: Any
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    content_type: str = JSON

    def body(self) -> bytes:
        return self.payload.encode() if isinstance(self.payload, str) else msgspec.json.encode(self.payload)


def price(path: str, params: Sequence[tuple[str, str]]) -> int:
    """Credits of a call: a work by its id or DOI is free, a list costs 1, a search 10; group_by is never above 1."""
    parts = path.strip("/").split("/")
    if len(parts) > 1 and parts[0] in ("works", "sources"):
        first = parts[1].lower()
        # /works/https://… is not recognised as a single work, so it costs a list call
        return 0 if short_id(first) or first.partition(":")[0] in ("doi", "pmid", "pmcid", "mag", "openalex") else 1
    names = {name for name, _ in params}
    searches = any(name == "search" or name.startswith("search.") for name in names) or any(
        ".search" in value for name, value in params if name == "filter"
    )
    return 10 if searches and not names & {"group_by", "group-by"} else 1


class Api:
    """The data behind the endpoints; ``answer`` is a pure function of the request unless a sample has no seed.

    Args:
        works: as ``read_works`` gives them.
        sources: as ``read_works`` gives them.
        merged: ids of merged works and where they moved (an id, or a URL), answered with 301.
        drift: the state of the index: another one orders the same seed's sample differently.
        short_page_cursor: give a next_cursor after a short page too, as the API did until March 2026.
    """

    def __init__(
        self, works: Collection, sources: Collection, *, merged: dict[str, str], drift: str, short_page_cursor: bool
    ) -> None:
        self.collections = {"works": works, "sources": sources}
        self.merged = merged
        self.drift = drift
        self.short_page_cursor = short_page_cursor
        self._samples: dict[tuple[int, str], list[int]] = {}

    def answer(self, path: str, params: list[tuple[str, str]]) -> Answer:
        started = time.perf_counter()
        entity, _, identifier = path.strip("/").partition("/")
        try:
            if not entity:
                return Answer(200, {"version": "0.1", "documentation_url": "/docs", "msg": "Don't panic"})
            if entity not in self.collections:
                return Answer(404, NOT_FOUND, content_type=HTML)
            given = dict(reversed(params))  # the first of several wins
            check_parameters(params, given)
            collection = self.collections[entity]
            fields = selected(collection, given.get("select"))
            if identifier:
                return self._single(entity, collection, unquote(identifier), fields)
            payload = self._list(collection, given, fields)
        except Refused as refusal:
            return Answer(refusal.status, {"error": refusal.error, "message": refusal.message})
        payload["meta"]["db_response_time_ms"] = round((time.perf_counter() - started) * 1000)
        return Answer(200, payload)

    def _single(self, entity: str, collection: Collection, text: str, fields: list[str] | None) -> Answer:
        text = text.removeprefix("openalex:")
        survivor = self.merged.get(short_id(text) or "")
        if survivor is not None:
            location = survivor if "://" in survivor else f"/{entity}/{survivor}"
            return Answer(301, "", headers={"Location": location}, content_type=HTML)
        row = collection.row_of(text)
        if row is None:
            return Answer(404, NOT_FOUND, content_type=HTML)
        return Answer(200, _cut(collection.single[row], fields))

    def _list(self, collection: Collection, given: dict[str, str], fields: list[str] | None) -> dict[str, Any]:
        group_by = given.get("group_by") or given.get("group-by")
        cursor = given.get("cursor")
        page = number_of(given, "page", 1)
        per_page = number_of(given, "per-page", MAX_GROUPS if group_by else 25)
        check_paging(page, per_page, group_by=group_by, cursor=cursor)
        rows = matching(collection, given.get("filter")) & _corpus(collection, given)
        meta: dict[str, Any] = {
            "count": rows.bit_count(),
            "db_response_time_ms": 0,
            "page": None if cursor else page,
            "per_page": per_page,
        }
        if group_by:
            groups, next_cursor = grouped(collection, rows, group_by, per_page=per_page, cursor=cursor)
            if cursor:
                meta["next_cursor"] = next_cursor
            meta["groups_count"] = len(groups)
            return {"meta": meta, "group_by": groups}

        if "sample" in given:
            order = in_order(rows, self._sample_order(collection, given))
            sample = list(itertools.islice(order, max(0, int(given["sample"]))))
            meta["count"] = len(sample)
            chosen = sample[(page - 1) * per_page : page * per_page]
        else:
            keys = sort_keys(collection, given.get("sort"))
            order = in_order(rows, sorted_rows(collection, keys))
            first = (page - 1) * per_page
            if cursor and cursor != "*":
                order = after(order, decode_cursor(cursor, collection))
            chosen = list(itertools.islice(order, first, first + per_page))
            if cursor:
                more = len(chosen) == per_page or (self.short_page_cursor and chosen)
                meta["next_cursor"] = encode_cursor(collection, keys, chosen[-1]) if more else None
        meta["groups_count"] = None
        return {"meta": meta, "results": [_cut(collection.listed[row], fields) for row in chosen], "group_by": []}

    def _sample_order(self, collection: Collection, given: dict[str, str]) -> list[int]:
        if "seed" not in given:
            return random.sample(range(len(collection.ids)), len(collection.ids))
        key = (id(collection), given["seed"])
        if key not in self._samples:
            salt = f"{self.drift}:{given['seed']}:"
            drawn = [hashlib.sha256((salt + identifier).encode()).digest() for identifier in collection.ids]
            self._samples[key] = sorted(range(len(drawn)), key=drawn.__getitem__)
        return self._samples[key]


def _corpus(collection: Collection, given: dict[str, str]) -> int:
    """The core by default; the expansion (``is_xpac``) on request."""
    column = collection.columns.get("is_xpac")
    with_expansion = (given.get("include_xpac") or given.get("include-xpac") or "").lower() == "true"
    corpus = given.get("corpus", "all" if with_expansion else "core")
    return collection.everything if column is None or corpus == "all" else column.mask(corpus == "expansion")


def _cut(row: dict[str, Any], fields: list[str] | None) -> dict[str, Any]:
    if fields is None:
        return row
    return {field: row.get(field) for field in fields if field != "relevance_score"}
