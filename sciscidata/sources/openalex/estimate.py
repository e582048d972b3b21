"""What a pull from OpenAlex will take: calls, dollars, days, told before most of it is spent."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from sciscidata.labels import NOVELTY_LABELS
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.request import CREDIT_USD
from sciscidata.sampling.demand import Cell, Demand
from sciscidata.sources.openalex.citer_counts import ANY_OF, count_calls

logger = logging.getLogger(__name__)

FREE_KEY_USD_PER_DAY = 1.0


class Outcome(NamedTuple):
    """What became of a candidate.

    ``cell`` is None where it cannot be drawn; ``possible`` holds the cells it could get before the citers of its
    references were counted, which ``asks_references`` says they had to be. ``weight`` is its share of many.
    """

    cell: Cell | None
    possible: frozenset[Cell]
    asks_references: bool
    weight: float = 1.0


#: Disruption label, those possible before n_k is known, and whether n_k is asked, per thousand: the natural shares of a
#: corpus of 1.97M works (247,090 disruptive, 583,215 consolidating, 1,142,492 neutral, half of these taken to be
#: decided by n_i = n_j).
_DISRUPTION: Final = (
    ("disruptive", ("disruptive", "neutral"), True, 125),
    ("consolidating", ("consolidating", "neutral"), True, 296),
    ("neutral", ("neutral",), False, 290),
    ("neutral", ("consolidating", "neutral"), True, 289),
)

#: Shares of the novel, balanced and conventional by rule, from Uzzi et al. 2013 (works of the 1990s): by their four
#: cells; and for the margin, whose labels hang on the signs of z where z is large, from 41 % with a z_p10 below 0 and
#: 3 % with such a z_median.
_NOVELTY: Final = {"margin": (0.03, 0.38, 0.59), "uzzi": (0.26, 0.30, 0.44)}


def published_outcomes(demand: Demand) -> list[Outcome]:
    """Expect of the candidates, before anything is known of them, what is published of other corpora."""
    novelty = zip(NOVELTY_LABELS, _NOVELTY[demand.thresholds.novelty_rule], strict=True)
    outcomes: list[Outcome] = []
    for (novel, share), (label, possible, asks, weight) in itertools.product(novelty, _DISRUPTION):
        labels = {"disruption_label": label, "novelty_label": novel}
        cell = tuple(labels[column] for column in demand.columns)
        outcomes.append(Outcome(cell, demand.cells_with(possible), asks, weight * share))
    return outcomes


class Shape(NamedTuple):
    """What a candidate's record says of the calls it will take."""

    split: str
    n_references: int
    cited_by_count: int


def estimate_calls(
    demand: Demand,
    outcomes: Sequence[Outcome],
    ahead: Sequence[Shape],
    typical: Sequence[Shape],
    available: int,
    *,
    every_record: bool,
) -> float:
    """Expect how many calls it will take to meet the demand, if candidates go on as they began.

    Walks the candidates ahead in order, and on through candidates like those seen, until the expected works of every
    cell are there or no candidates are left. Each candidate adds the share of every cell that was seen so far, and
    the calls that its numbers of references and citers ask for, as long as they would be made.

    Args:
        demand: with what is already filled.
        outcomes: of the candidates judged so far; at least one.
        ahead: the candidates to come, in order.
        typical: candidates to go on with, over and over; at least one.
        available: how many candidates there are still to come in all.
        every_record: whether the references' own records are asked for of every judged work, for novelty, or only
            where their citers are counted.
    """
    missing = {place: float(n) for place, n in demand.still_missing.items()}
    natural = ("", ()) in missing
    weight = sum(o.weight for o in outcomes)
    share = {cell: sum(o.weight for o in outcomes if o.cell == cell) / weight for cell in demand.cells}
    asks: dict[frozenset[Cell], tuple[float, float]] = {}
    calls = 0.0
    for shape in itertools.islice(itertools.chain(ahead, itertools.cycle(typical)), available):
        if not any(n > 0 for n in missing.values()):
            break
        places = [("", ())] if natural else [(shape.split, cell) for cell in demand.cells]
        is_open = [place for place in places if missing[place] > 0]
        if not is_open:
            continue
        cells = frozenset(demand.cells if natural else (cell for _, cell in is_open))
        if cells not in asks:
            wanted = [o for o in outcomes if not o.asks_references or not cells.isdisjoint(o.possible)]
            counted = sum(o.weight for o in wanted if o.asks_references) / weight
            asks[cells] = counted, (sum(o.weight for o in wanted) / weight if every_record else counted)
        counted, recorded = asks[cells]
        first, second = count_calls(shape.n_references, shape.cited_by_count)
        calls += first + counted * second + recorded * shape.n_references / ANY_OF
        for place in is_open:
            missing[place] -= sum(share.values()) if natural else share[place[1]]
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
