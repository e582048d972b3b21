"""What a pull from OpenAlex will take: calls, dollars, days, told before most of it is spent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from sciscidata.demand import Demand
from sciscidata.labels import DISRUPTION_LABELS
from sciscidata.openalex.client import OpenAlexClient
from sciscidata.openalex.request import CREDIT_USD
from sciscidata.sources.openalex_counts import ANY_OF, count_calls

logger = logging.getLogger(__name__)

FREE_KEY_USD_PER_DAY = 1.0


class Outcome(NamedTuple):
    """What became of a candidate.

    ``label`` is None where it cannot be drawn; ``possible`` holds the labels it could get before the citers of its
    references were counted, which ``asks_references`` says they had to be.
    """

    label: str | None
    possible: frozenset[str]
    asks_references: bool


#: Before anything is known: the natural shares of a corpus of 1.97M works, per thousand (247,090 disruptive, 583,215
#: consolidating, 1,142,492 neutral, half of these taken to be decided by n_i = n_j).
PUBLISHED: Sequence[Outcome] = (
    *[Outcome("disruptive", frozenset(("disruptive", "neutral")), asks_references=True)] * 125,
    *[Outcome("consolidating", frozenset(("consolidating", "neutral")), asks_references=True)] * 296,
    *[Outcome("neutral", frozenset(("neutral",)), asks_references=False)] * 290,
    *[Outcome("neutral", frozenset(("consolidating", "neutral")), asks_references=True)] * 289,
)


def estimate_calls(demand: Demand, outcomes: Sequence[Outcome], ahead: Sequence[tuple[str, int, int]]) -> float:
    """Expect how many calls it will take to meet the demand, if candidates go on as they began.

    Walks the candidates ahead in order; each adds the share of every label that was seen so far to its side, and the
    calls that its numbers of references and citers ask for, as long as they would be made. When the list ends before
    the demand is met, the rest is expected to cost what the list did per work.

    Args:
        demand: with what is already filled.
        outcomes: of the candidates scored so far; at least one.
        ahead: (side, number of references, cited_by_count) of the candidates to come, in order.
    """
    missing = {
        (side, label): float(demand.missing(side, label)) for side in demand.split.sizes for label in DISRUPTION_LABELS
    }
    share = {label: sum(o.label == label for o in outcomes) / len(outcomes) for label in DISRUPTION_LABELS}
    calls = 0.0
    for side, n_references, cited_by_count in ahead:
        open_labels = {label for label in DISRUPTION_LABELS if missing[side, label] > 0}
        if not open_labels:
            continue
        first, second = count_calls(n_references, cited_by_count)
        asks = sum(o.asks_references and not open_labels.isdisjoint(o.possible) for o in outcomes) / len(outcomes)
        calls += first + asks * (second + n_references / ANY_OF)  # the last for the references' own records
        for label in open_labels:
            missing[side, label] -= share[label]
    wanted = sum(demand.missing(side, label) for side in demand.split.sizes for label in DISRUPTION_LABELS)
    left = sum(max(0.0, n) for n in missing.values())
    met = wanted - left
    return calls * (wanted / met if met > 0 else 1.0)


def say_estimate(client: OpenAlexClient, calls: float) -> None:
    """Log what is still to come, and whether that is more than the user allows; the client stops at the limit."""
    cost = client.cost_usd + calls * CREDIT_USD
    logger.info(
        "estimate: about %s more calls, $%.2f in all; a free key allows that in %.1f days",
        f"{calls:,.0f}",
        cost,
        cost / FREE_KEY_USD_PER_DAY,
    )
    limit = client.config.max_cost_usd
    if limit is not None and cost > limit:
        logger.warning(
            "that is more than --max-cost-usd %g: this run will stop there, and the same command goes on later", limit
        )
