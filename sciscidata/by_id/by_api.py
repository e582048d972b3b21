"""Score listed works by the OpenAlex API: a list of them, who cites each, and who cites its references.

Every answer is stored before it is used, so a run that was stopped goes on without paying again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from sciscidata.by_id.on_disk import FACTS, Rules, ScoredIds, mark_open, with_novelty
from sciscidata.disruption.label_prior import SHIPPED
from sciscidata.errors import ConfigError
from sciscidata.explanation.by_api import ask_lists, plan_lists
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.openalex_api.request import CREDIT_USD
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.records.listed_ids import ListedIds
from sciscidata.schemas import CITATIONS
from sciscidata.sources.openalex.citer_counts import (
    ANY_OF,
    MOST_REFERENCES,
    REFERENCE_WORKS,
    FocalCiters,
    ReferenceRecords,
    Years,
    ask_citers,
    ask_reference_citers,
    converse,
    count_calls,
    count_row,
    scores_of,
)
from sciscidata.sources.openalex.estimate import describe_days
from sciscidata.sources.openalex.works_by_id import ask_last_year, ask_works
from sciscidata.sources.openalex.works_of_answers import Work, own_references, works_frame
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

_SELECT: Final = (
    "id,doi,title,publication_year,language,type,is_retracted,cited_by_count,primary_location,primary_topic,topics,"
    "concepts,referenced_works"
)
_WAVE: Final = 100  # works whose dialogues run together


def score_by_api(listed: ListedIds, rules: Rules, cache_dir: Path, api: ApiConfig) -> ScoredIds:
    """Score the listed works by counts of the API."""
    if rules.cd.window_from == "cited":
        raise ConfigError(
            "CDConfig.window_from='cited' (of compat pyscisci) needs the whole graph. Use another source, or another "
            "convention."
        )
    with ResponseStore(cache_dir / "openalex") as store, OpenAlexClient(api, store) as client:
        asked = ask_works(client, listed, _SELECT)
        last_year = ask_last_year(client)
        records = ReferenceRecords(client)
        rows: list[dict[str, int | None]] = []
        unscored: dict[int, str] = {}
        with progress_bar("score works", len(asked.works), unit="works") as advance:
            client.watch(lambda cost: advance(0, f"${cost:.4f}"))
            for start in range(0, len(asked.works), _WAVE):
                wave = asked.works[start : start + _WAVE]
                rows += _count(client, records, wave, rules, unscored)
                advance(len(wave), f"${client.cost_usd:.4f}")
            client.watch(None)
        if rules.background is not None:
            records.ask(reference for work in asked.works for reference in work.references)
        logger.info("OpenAlex: %s, $%.4f in this run", counted(client.n_calls, "call"), client.cost_usd)
    works = works_frame(asked.works)
    citations = [(work.work_id, cited) for work in asked.works for cited in own_references(work)]
    counts = works.select("work_id").join(scores_of(rows, rules.cd), on="work_id", how="left")
    scores = mark_open(counts, works, rules.cd, last_year)
    known = pl.concat([works.select(REFERENCE_WORKS.names()), records.works()])
    known = known.unique("work_id", keep="first", maintain_order=True).lazy()
    scores = with_novelty(scores, known, pl.LazyFrame(citations, CITATIONS, orient="row"), rules)
    n_references = pl.DataFrame(
        {"work_id": works["work_id"], "n_references": [len(own_references(work)) for work in asked.works]}
    )
    facts = works.select(FACTS).join(scores.drop("n_refs", strict=False), on="work_id", how="left")
    found = facts.join(n_references, on="work_id", how="left")
    return ScoredIds(found, rules.prior or SHIPPED, merged=asked.merged, unscored=unscored)


def _count(
    client: OpenAlexClient, records: ReferenceRecords, wave: Sequence[Work], rules: Rules, unscored: dict[int, str]
) -> Iterator[dict[str, int | None]]:
    """Ask who cites some works and their references, and yield the counts of each; note the works that have none."""
    some = [work for work in wave if work.publication_year is not None]
    for work in some:
        if _is_long(work):
            yield from _count_long(client, work, rules, unscored)
    some = [work for work in some if not _is_long(work)]
    references = {work.work_id: own_references(work) for work in some}
    citers = converse(
        client, [ask_citers(work.work_id, references[work.work_id], work.cited_by_count) for work in some]
    )
    of_references = converse(client, [ask_reference_citers(number, cited) for number, cited in references.items()])
    records.ask(reference for cited in references.values() for reference in cited)
    for work, focal, years in zip(some, citers, of_references, strict=True):
        both_in_vain, all_in_vain = records.counted_in_vain(work.work_id, references[work.work_id])
        if focal.shared is None:
            focal = replace(focal, citing_both=focal.citing_both - both_in_vain)
        years = years - all_in_vain
        if focal.citing_both <= focal.citing_focal and focal.citing_both <= years:
            yield count_row(work, focal, years, rules.cd)
        else:
            unscored[work.work_id] = "counts contradict"


def _is_long(work: Work) -> bool:
    """Whether a work has more references than a request can name together."""
    return len(own_references(work)) > MOST_REFERENCES


def _count_long(
    client: OpenAlexClient, work: Work, rules: Rules, unscored: dict[int, str]
) -> Iterator[dict[str, int | None]]:
    """Count who cites a work of many references from lists of all that cite it or one of them."""
    try:
        around = ask_lists(client, plan_lists(client, work), lambda _: None)
    except ConfigError:  # more works in a year than the API lists
        unscored[work.work_id] = "too many references"
        return
    years = dict(around.facts.select("work_id", "publication_year").drop_nulls().rows())
    of_work = around.links["cited_id"] == work.work_id
    citing, of_references = ({*around.links.filter(rows)["citing_id"]} for rows in (of_work, ~of_work))

    def count(works: set[int]) -> Years:
        return Counter(years[one] for one in works if one in years)

    focal = FocalCiters(count(citing), count(citing & of_references), None)
    yield count_row(work, focal, count(of_references), rules.cd)


def _plan_long(client: OpenAlexClient, work: Work) -> int:
    """Return about how many calls a work of many references takes."""
    try:
        return plan_lists(client, work).n_calls
    except ConfigError:
        return 0


def describe_cost(listed: ListedIds, cache_dir: Path, api: ApiConfig) -> list[str]:
    """Say what the calls for a list cost. A call for each hundred ids says how many citers each work has."""
    with ResponseStore(cache_dir / "openalex") as store, OpenAlexClient(api, store) as client:
        asked = ask_works(client, listed, _SELECT)
        ask_last_year(client)
        long = [_plan_long(client, work) for work in asked.works if _is_long(work)]
        look = client.n_calls, client.cost_usd
        left = client.remaining_usd
    shapes = [(len(own_references(work)), work.cited_by_count or 0) for work in asked.works]
    calls = sum(sum(count_calls(*shape)) for shape in shapes if shape[0] <= MOST_REFERENCES)
    calls += sum(long)
    n_waves = -(-len(asked.works) // _WAVE)
    references = {cited for work in asked.works if not _is_long(work) for cited in own_references(work)}
    calls += len(references) // ANY_OF + n_waves
    cost = calls * CREDIT_USD
    seconds = calls / api.rate
    return [
        f"would ask: OpenAlex, for {counted(len(asked.works), 'work')} with {len(references):,} references"
        + (f", and of {counted(len(long), 'work')} with over {MOST_REFERENCES} all that cites them" if long else ""),
        f"calls: about {calls:,}, at {api.rate:g} a second {seconds:,.0f} seconds or more; stored answers cost nothing",
        f"cost: about ${cost:.4f}; {describe_days(cost, has_key=api.api_key is not None)}"
        + ("" if left is None else f"; ${left:.2f} of today's budget are left"),
        f"this look took {counted(look[0], 'call')}, ${look[1]:.4f}; the answers are kept",
    ]
