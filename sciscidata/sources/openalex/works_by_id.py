"""Ask the API for listed works: a hundred a call, and alone for those that a list does not give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import polars as pl

from sciscidata.errors import ApiError
from sciscidata.openalex_api.answer_checks import check_answer
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.request import MAX_REQUEST_BYTES, works_request
from sciscidata.records.ids import openalex_number
from sciscidata.records.last_year_of_data import find_last_year
from sciscidata.records.listed_ids import ListedIds
from sciscidata.sources.openalex.citer_counts import ANY_OF, PER_PAGE
from sciscidata.sources.openalex.works_of_answers import Work, works_in

#: Signs that mean something in a filter: a DOI with one of them is asked for alone.
_OF_FILTERS: Final = frozenset(',|!+:"')
_ROOM: Final = 1_000  # bytes of a request line for all but the ids
_MOST_MOVES: Final = 3


class Asked(NamedTuple):
    """The works that the API has for a list, each once by number, and those that were merged into them."""

    works: list[Work]
    merged: dict[int, int]


def ask_works(client: OpenAlexClient, listed: ListedIds, select: str) -> Asked:
    """Ask for the listed works; ``select`` names the parts of a record that come back."""
    numbers = listed.rows.filter(pl.col("kind") == "OpenAlex")["work_id"].unique().sort().to_list()
    dois = listed.rows["doi"].drop_nulls().unique().sort().to_list()
    alone = [doi for doi in dois if not _OF_FILTERS.isdisjoint(doi)]
    in_lists = [doi for doi in dois if _OF_FILTERS.isdisjoint(doi)]
    requests = [*_lists("openalex", [f"W{n}" for n in numbers], select), *_lists("doi", in_lists, select)]
    works = {work.work_id: work for work in works_in(client.fetch_all(requests, check_answer, n_listed=2 * ANY_OF))}
    merged: dict[int, int] = {}
    for number in [number for number in numbers if number not in works]:
        if (work := _ask_one(client, f"W{number}", select)) is not None:
            works[work.work_id], merged[number] = work, work.work_id
    for doi in alone:
        if (work := _ask_one(client, f"doi:{quote(doi, safe='')}", select)) is not None:
            works[work.work_id] = work
    return Asked([works[number] for number in sorted(works)], {old: new for old, new in merged.items() if old != new})


def ask_last_year(client: OpenAlexClient) -> int | None:
    """Find the last year of all works of OpenAlex, by one call."""
    groups = client.fetch(works_request(group_by="publication_year:include_unknown", corpus="core"), check_answer)
    counts = {int(one["key"]): int(one["count"]) for one in groups["group_by"] if str(one["key"]).isdecimal()}
    return find_last_year(counts)


def _lists(name: str, values: Sequence[str], select: str) -> Iterator[str]:
    """Make requests for works by their ids; a request line holds fewer long DOIs."""
    while values:
        n = min(len(values), ANY_OF)
        while n > 1 and len(quote("|".join(values[:n]), safe="")) > MAX_REQUEST_BYTES - _ROOM:
            n -= 10 if n > 10 else 1
        text = f"{name}:{'|'.join(values[:n])}"
        yield works_request(filter=text, select=select, per_page=PER_PAGE, page=1, corpus="core")
        values = values[n:]


def _ask_one(client: OpenAlexClient, name: str, select: str) -> Work | None:
    """Ask for one work, which is free; None if OpenAlex has none. One that was merged leads to the other."""
    for _ in range(_MOST_MOVES):
        try:
            record = client.fetch(f"/works/{name}?select={quote(select, safe='')}")
        except ApiError as error:
            number = openalex_number(error.moved_to, "W")
            if number is None and error.status not in (404, 410):
                raise
            if number is None:
                return None
            name = f"W{number}"
        else:
            return works_in([{"results": [record]}])[0]
    return None
