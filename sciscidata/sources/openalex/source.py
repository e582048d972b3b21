"""Works pulled from the OpenAlex API, scored by the API's own counts, no more of them than the draw needs."""

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
    """Sample candidates and score them until the demand is met or there are none left. Executes, and may cost money.

    Args:
        client: an open client; its store makes the run resumable, and offline runs possible.
        candidates: where to sample.
        cd: the convention; ``window_from="cited"`` cannot be had from counts.
        demand: what is needed; its counts are updated as scores come in.
        novelty: the null model of novelty; None, or candidates without ``venues``, leaves novelty null.
        background: a saved table of pair statistics; None takes the judged works themselves for the null model.

    Returns:
        Rows sorted by work_id. n_k is null where an index of 0 was certain without it (n_i = n_j); a candidate that
        too few works cite has no n_k and no index. With ``cd.family``, columns that need every citer's references are
        null for works with more than 200 citers.

    Raises:
        ConfigError: at once, if the convention cannot be had from counts, novelty is to be balanced and not known, or
            the background was made under another null model.
        InputNotFoundError, BackgroundError: at once, if the background cannot be read or is none.
        NotEnoughWorksError: at once, if there are fewer candidates than works wanted.
        SciSciDataError: as the client raises.
    """
    wanted = demand.split.n_train + demand.split.n_test
    if candidates.available < wanted:
        msg = (
            f"{wanted:,} works are wanted, and OpenAlex has {candidates.available:,} candidates for them. Lower "
            "n_train and n_test, widen the years, relax the filters, or raise max_candidates."
        )
        raise NotEnoughWorksError(msg)
    if cd.window_from == "cited":
        msg = (
            "window_from='cited' (compat pyscisci) needs the whole graph. Use --source records, or another convention."
        )
        raise ConfigError(msg)
    if not candidates.config.venues:
        novelty = None
    if demand.needs_novelty and novelty is None:
        msg = (
            f"balance is {demand.split.balance!r}, which needs novelty, and novelty needs the venues of references. "
            "Ask for both (--novelty, --venues), or balance disruption (--balance disruption)."
        )
        raise ConfigError(msg)
    if novelty is not None and background is not None:
        read_background(background).check_null_model(novelty)  # before anything is paid for
    if demand.needs_novelty and background is None:
        logger.warning(
            "novelty is balanced among the works of this pull alone, whose venue pairs are few: many that are common "
            "elsewhere look rare or are not told apart here. Name a saved background to do better (--background FILE)."
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
    """Sum up in JSON types the answers that a run used: the same for a resumed and for an offline run.

    Answers that were paid for and found wanting are not among them; ``client.cost_usd`` is what a run really spent.
    """
    kept = client.summary()
    return {
        "requests": kept.n_requests,
        "cost_of_answers_usd": round(kept.cost_usd, 4),
        "first_fetched_on": kept.first_fetched_on,
        "data_date": kept.last_fetched_on,
        "responses_sha256": kept.sha256,
    }
