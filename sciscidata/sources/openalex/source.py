"""pull_openalex: sample and score works of the OpenAlex API until the draw has what it needs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sciscidata._support.progress import progress_bar
from sciscidata.disruption.index import CDConfig
from sciscidata.errors import ConfigError, NotEnoughWorksError
from sciscidata.novelty.background import read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.sampling.demand import Demand
from sciscidata.sources.openalex.candidates import Candidates
from sciscidata.sources.openalex.pull import Pull, Pulled

logger = logging.getLogger(__name__)


def pull_openalex(
    client: OpenAlexClient,
    candidates: Candidates,
    cd: CDConfig,
    demand: Demand,
    novelty: NoveltyConfig | None = None,
    *,
    background: Path | None = None,
) -> Pulled:
    """Sample candidates and score them until the demand is met or no candidates are left. This may cost money.

    Args:
        client: an open client; its store makes the run resumable, and offline runs possible.
        candidates: where to sample.
        cd: the convention; ``window_from="cited"`` is impossible with counts.
        demand: what is needed; its counts are updated as scores come in.
        novelty: the null model of novelty; None, or candidates without ``venues``, leaves novelty null.
        background: a saved table of pair statistics; None builds the null model from the judged works.

    Returns:
        Rows sorted by work_id. n_k is null where the index is certainly 0 without it (n_i = n_j). A candidate with too
        few citers has no n_k and no index. With ``cd.family``, columns that need every citer's references are null for
        works with more than 200 citers.

    Raises:
        ConfigError: before the first call; the convention is impossible with counts, novelty is needed and not
            known, or the background has another null model.
        InputNotFoundError, BackgroundError: before the first call; the background cannot be read.
        NotEnoughWorksError: before the first call; there are fewer candidates than works wanted.
        SciSciDataError: as the client raises.
    """
    wanted = demand.split.n_train + demand.split.n_test
    if candidates.available < wanted:
        msg = (
            f"{wanted:,} works are wanted, and OpenAlex has {candidates.available:,} candidates. Lower "
            "SplitConfig.n_train and SplitConfig.n_test, widen the years, relax the filters, or raise "
            "OpenAlexConfig.max_candidates."
        )
        raise NotEnoughWorksError(msg)
    if cd.window_from == "cited":
        msg = (
            "CDConfig.window_from='cited' (of compat pyscisci) needs the whole graph. Use another source, or another "
            "convention."
        )
        raise ConfigError(msg)
    if not candidates.config.venues:
        novelty = None
    if demand.needs_novelty and novelty is None:
        msg = (
            f"SplitConfig.balance is {demand.split.balance!r}, which needs novelty, and novelty needs the venues of "
            "references. Set both (BuildConfig.novelty, OpenAlexConfig.venues=True), or use "
            "SplitConfig.balance='disruption'."
        )
        raise ConfigError(msg)
    if novelty is not None and background is not None:
        read_background(background).check_null_model(novelty)  # before anything is paid for
    if demand.needs_novelty and background is None:
        logger.warning(
            "Novelty is computed from the works of this pull alone, which have few venue pairs: many common pairs look "
            "rare, or equal. Give a saved background for better labels (BuildConfig.background)."
        )
    pull = Pull(client, candidates, cd, demand, novelty, background)
    shown = 0
    with progress_bar("score candidates", wanted, unit="works filled") as advance:
        client.watch(lambda cost: advance(0, f"${cost:.4f}"))
        for _ in pull.waves():
            advance(demand.filled - shown, f"${client.cost_usd:.4f}")
            shown = demand.filled
        client.watch(None)
    return pull.result()


def describe_answers(client: OpenAlexClient) -> dict[str, Any]:
    """Sum up the answers that a run used, in JSON types; equal for a resumed and for an offline run.

    Paid answers that failed their check are not included; ``client.cost_usd`` is the real cost of a run.
    """
    kept = client.summary()
    return {
        "requests": kept.n_requests,
        "cost_of_answers_usd": round(kept.cost_usd, 4),
        "first_fetched_on": kept.first_fetched_on,
        "data_date": kept.last_fetched_on,
        "responses_sha256": kept.sha256,
    }
