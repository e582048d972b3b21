"""Open the OpenAlex API as a source: sample and score as many works as the draw needs."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.request import CREDIT_USD
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.sampling.open_quotas import Demand
from sciscidata.sources.dry_run import ToAsk
from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
from sciscidata.sources.openalex.source import describe_answers, describe_days, estimate_pull, pull_openalex
from sciscidata.sources.opened import OpenedSource, SourceRequest

logger = logging.getLogger(__name__)


def open_openalex(config: OpenAlexConfig, request: SourceRequest) -> OpenedSource:
    """Sample works of the API until the draw has what it needs. Their scores come from counts of the API."""
    cd, novelty = request.cd, request.novelty
    with _count_candidates(config, request) as (client, candidates, demand):
        pulled = pull_openalex(client, candidates, cd, demand, novelty, background=request.background)
        logger.info("OpenAlex: %s calls, $%.4f in this run", f"{client.n_calls:,}", client.cost_usd)
        provenance = pulled.provenance | describe_answers(client)
    works = pulled.works.lazy()
    return OpenedSource(
        works=works,
        citations=pulled.citations.lazy(),
        provenance=provenance,
        eligibility=candidates.eligibility,
        is_sample=True,
        scores=pulled.scores.lazy(),
        checked=works,
    )


def measure_openalex(config: OpenAlexConfig, request: SourceRequest) -> ToAsk:
    """Ask how many candidates there are and what some look like, and estimate the rest."""
    with _count_candidates(config, request) as (client, candidates, demand):
        calls = estimate_pull(client, candidates, request.cd, demand, request.novelty)
        cost, has_key = calls * CREDIT_USD, request.api.api_key is not None
        look = client.n_calls, client.cost_usd, client.remaining_usd
    return ToAsk(candidates.per_year, calls, cost, describe_days(cost, has_key=has_key), *look)


@contextmanager
def _count_candidates(
    config: OpenAlexConfig, request: SourceRequest
) -> Generator[tuple[OpenAlexClient, Candidates, Demand]]:
    store = ResponseStore(request.cache_dir / "openalex")
    with store, OpenAlexClient(request.api, store) as client:
        candidates = Candidates.count(client, config, request.cd, request.eligibility)
        split, window = request.split, request.cd.window_years
        yield client, candidates, Demand(request.thresholds, candidates.eligibility, split, window)
