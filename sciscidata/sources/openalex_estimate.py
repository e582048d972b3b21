"""What a pull from OpenAlex will take: calls, dollars, days, told before most of it is spent."""

from __future__ import annotations

import itertools
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


class Shape(NamedTuple):
    """What a candidate's record says of the calls it will take."""

    side: str
    n_references: int
    cited_by_count: int


def estimate_calls(
    demand: Demand, outcomes: Sequence[Outcome], ahead: Sequence[Shape], typical: Sequence[Shape], available: int
) -> float:
    """Expect how many calls it will take to meet the demand, if candidates go on as they began.

    Walks the candidates ahead in order, and on through candidates like those seen, until the expected works of every
    class are there or no candidates are left. Each candidate adds the share of every label that was seen so far, and
    the calls that its numbers of references and citers ask for, as long as they would be made.

    Args:
        demand: with what is already filled.
        outcomes: of the candidates judged so far; at least one.
        ahead: the candidates to come, in order.
        typical: candidates to go on with, over and over; at least one.
        available: how many candidates there are still to come in all.
    """
    missing = {cell: float(n) for cell, n in demand.still_missing.items()}
    natural = ("", "") in missing
    share = {label: sum(o.label == label for o in outcomes) / len(outcomes) for label in DISRUPTION_LABELS}
    asks: dict[frozenset[str], float] = {}
    calls = 0.0
    for shape in itertools.islice(itertools.chain(ahead, itertools.cycle(typical)), available):
        if not any(n > 0 for n in missing.values()):
            break
        cells = [("", "")] if natural else [(shape.side, label) for label in DISRUPTION_LABELS]
        is_open = [cell for cell in cells if missing[cell] > 0]
        if not is_open:
            continue
        labels = frozenset(DISRUPTION_LABELS if natural else (label for _, label in is_open))
        if labels not in asks:
            asks[labels] = sum(o.asks_references and not labels.isdisjoint(o.possible) for o in outcomes) / len(
                outcomes
            )
        first, second = count_calls(shape.n_references, shape.cited_by_count)
        # The last summand is for the references' own records.
        calls += first + asks[labels] * (second + shape.n_references / ANY_OF)
        for cell in is_open:
            missing[cell] -= sum(share.values()) if natural else share[cell[1]]
    return calls


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
