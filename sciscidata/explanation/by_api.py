"""Cut a work and what is around it out of OpenAlex, by its API: its references, and all that cites it or one of them.

Lists of citers cost a call for each hundred. What they take is counted first, by a call for each hundred references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from sciscidata.errors import ConfigError, WorkIdError
from sciscidata.explanation.neighbourhood import Neighbourhood, cut_from_frames
from sciscidata.openalex_api.answer_checks import check_answer
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.openalex_api.request import CREDIT_USD, works_request
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.schemas import CITATIONS
from sciscidata.sources.id_files import read_ids
from sciscidata.sources.openalex.citer_counts import ANY_OF, PER_PAGE
from sciscidata.sources.openalex.estimate import describe_days
from sciscidata.sources.openalex.works_by_id import ask_last_year, ask_works
from sciscidata.sources.openalex.works_of_answers import Work, own_references, works_frame, works_in
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import progress_bar

_SELECT: Final = "id,doi,title,publication_year,cited_by_count,primary_location,primary_topic,referenced_works"
_OF_CITERS: Final = "id,doi,title,publication_year,referenced_works"
_MOST_LISTED: Final = 10_000  # works of one list that the API gives


class Plan(NamedTuple):
    """A work, the lists of works that have a part in its index, and how long these are together."""

    work: Work
    lists: list[str]
    n_listed: int

    @property
    def n_calls(self) -> int:
        """About how many calls the lists take."""
        return self.n_listed // PER_PAGE + len(self.lists)


def cut_from_api(work: object, cache_dir: Path, api: ApiConfig) -> Neighbourhood:
    """Ask for a work and what is around it. Every answer is stored, so asking again costs nothing."""
    with ResponseStore(cache_dir / "openalex") as store, OpenAlexClient(api, store) as client:
        plan = plan_lists(client, _find(client, work))
        last_year = ask_last_year(client)
        with progress_bar("ask who cites", plan.n_listed, unit="works") as advance:
            client.watch(lambda cost: advance(0, f"${cost:.4f}"))
            around = ask_lists(client, plan, lambda n: advance(n, f"${client.cost_usd:.4f}"))
            client.watch(None)
    return around._replace(last_year=last_year)


def describe_cost(work: object, cache_dir: Path, api: ApiConfig) -> list[str]:
    """Say what asking for a work costs. To know it, a call for each hundred references is made."""
    with ResponseStore(cache_dir / "openalex") as store, OpenAlexClient(api, store) as client:
        plan = plan_lists(client, _find(client, work))
        ask_last_year(client)
        looked, cost, left = client.n_calls, client.cost_usd, client.remaining_usd
    price = plan.n_calls * CREDIT_USD
    n_references = len(own_references(plan.work))
    return [
        f"would ask: OpenAlex, for W{plan.work.work_id}: {counted(n_references, 'reference')}, and about "
        f"{counted(plan.n_listed, 'work')} that it cites, or that cite one of them",
        f"calls: about {plan.n_calls:,}, at {api.rate:g} a second {plan.n_calls / api.rate:,.0f} seconds or more; "
        "stored answers cost nothing",
        f"cost: about ${price:.4f}; {describe_days(price, has_key=api.api_key is not None)}"
        + ("" if left is None else f"; ${left:.2f} of today's budget are left"),
        f"this look took {counted(looked, 'call')}, ${cost:.4f}; the answers are kept",
    ]


def _find(client: OpenAlexClient, name: object) -> Work:
    """Ask for the work that a name means."""
    if isinstance(name, bool) or not (isinstance(name, str) or hasattr(name, "__index__")):
        raise ConfigError(f"work is {name!r}, needs an OpenAlex id or address, or a DOI: 'W2741809807', '10.1234/abc'.")
    works = ask_works(client, read_ids([name]), _SELECT).works
    if not works:
        raise WorkIdError(f"explain: OpenAlex has no work {name!r}. Name it by its OpenAlex id, or its DOI.")
    return works[0]


def plan_lists(client: OpenAlexClient, work: Work) -> Plan:
    """Count what cites a work or a reference of it, and split that into lists that the API gives whole."""
    references = own_references(work)
    chunks = [references[start : start + ANY_OF] for start in range(0, len(references), ANY_OF)]
    any_of = ["|".join(f"W{number}" for number in chunk) for chunk in chunks]
    citing = [f"cites:W{work.work_id}", *(f"cites:{numbers}" for numbers in any_of)]
    counts = [works_request(filter=text, group_by="publication_year:include_unknown", corpus="core") for text in citing]
    lists, n_listed = [_list(f"openalex:{numbers}", _SELECT) for numbers in any_of], len(references)
    for text, answer in zip(citing, client.fetch_all(counts, check_answer), strict=True):
        groups = {str(one["key"]): int(one["count"]) for one in answer["group_by"]}
        lists += [_list(text + years, _OF_CITERS) for years in _split(groups)]
        n_listed += sum(groups.values())
    return Plan(work, lists, n_listed)


def ask_lists(client: OpenAlexClient, plan: Plan, advance: Callable[[int], None]) -> Neighbourhood:
    """Ask for the lists, and cut out the work and what is around it; the last year of the data is not known."""
    near = {plan.work.work_id: plan.work}
    for answer in client.fetch_all(plan.lists, check_answer, n_listed=_MOST_LISTED):
        found = works_in([answer])
        near |= {one.work_id: one for one in found if one.work_id not in near}
        advance(len(found))
    targets = {plan.work.work_id, *own_references(plan.work)}
    links = [(one.work_id, cited) for one in near.values() for cited in targets.intersection(one.references)]
    citations = pl.DataFrame(links, CITATIONS, orient="row")
    around = cut_from_frames(plan.work.work_id, works_frame(near.values()).lazy(), citations.lazy())
    return around._replace(last_year=None)


def _split(counts: dict[str, int]) -> Iterator[str]:
    """Split works by year into filters for few enough works; one that takes all has no year.

    Example:
        >>> [*_split({"1990": 6_000, "1991": 5_000, "1992": 100, "unknown": 3})]
        [',publication_year:1990-1990', ',publication_year:1991-1992']
        >>> [*_split({"1990": 1})], [*_split({})]
        ([''], [])
    """
    if sum(counts.values()) <= _MOST_LISTED:
        yield from [""] * bool(counts)
        return
    years = sorted((int(year), n) for year, n in counts.items() if year.isdecimal())
    first, size = years[0][0], 0
    for place, (year, n) in enumerate(years):
        if n > _MOST_LISTED:
            raise ConfigError(
                f"a reference is cited by so many works that {n:,} of {year} cite it or another one, and the API lists "
                f"{_MOST_LISTED:,} at most. Explain the work in a corpus."
            )
        if size + n > _MOST_LISTED:
            yield f",publication_year:{first}-{years[place - 1][0]}"
            first, size = year, 0
        size += n
    yield f",publication_year:{first}-{years[-1][0]}"


def _list(text: str, select: str) -> str:
    return works_request(filter=text, select=select, per_page=PER_PAGE, page=1, corpus="core")
