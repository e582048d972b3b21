"""Open the OpenAlex API as a source: sample and score as many works as the draw needs."""

from __future__ import annotations

import logging

from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.sampling.open_quotas import Demand
from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
from sciscidata.sources.openalex.source import describe_answers, pull_openalex
from sciscidata.sources.opened import OpenedSource, SourceRequest

logger = logging.getLogger(__name__)


def open_openalex(config: OpenAlexConfig, request: SourceRequest) -> OpenedSource:
    """Sample works of the API until the draw has what it needs. Their scores come from counts of the API."""
    cd, novelty = request.cd, request.novelty
    store = ResponseStore(request.cache_dir / "openalex")
    with store, OpenAlexClient(request.api, store) as client:
        candidates = Candidates.count(client, config, cd, request.eligibility)
        demand = Demand(request.thresholds, candidates.eligibility, request.split, cd.window_years)
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
