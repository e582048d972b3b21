"""Estimate the calls, dollars and days of a pull from OpenAlex, and log them before most is spent."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from sciscidata.label_thresholds import NOVELTY_LABELS
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.request import CREDIT_USD
from sciscidata.sampling.open_quotas import Cell, Demand
from sciscidata.sources.openalex.citer_counts import ANY_OF, count_calls

logger = logging.getLogger(__name__)

FREE_KEY_USD_PER_DAY = 1.0


class Outcome(NamedTuple):
    """The result for one candidate."""

    cell: Cell | None  # None if it cannot be drawn
    possible: frozenset[Cell]  # before the citers of its references were counted
    asks_references: bool  # these citers had to be counted
    weight: float = 1.0  # share of all outcomes


#: Disruption label, labels possible before n_k is known, whether n_k is requested, share per thousand. From a corpus of
#: 1.97M works (247,090 disruptive, 583,215 consolidating, 1,142,492 neutral; half of the neutral ones are assumed to
#: be decided by n_i = n_j).
_DISRUPTION: Final = (
    ("disruptive", ("disruptive", "neutral"), True, 125),
    ("consolidating", ("consolidating", "neutral"), True, 296),
    ("neutral", ("neutral",), False, 290),
    ("neutral", ("consolidating", "neutral"), True, 289),
)

#: Shares of novel, balanced and conventional works by rule, from Uzzi et al. 2013 (works of the 1990s). "uzzi" uses
#: their four cells. "margin" follows the signs of z where z is large: 41 % have z_p10 < 0, and 3 % have z_median < 0.
_NOVELTY: Final = {"margin": (0.03, 0.38, 0.59), "uzzi": (0.26, 0.30, 0.44)}


def published_outcomes(demand: Demand) -> list[Outcome]:
    """Return outcomes with the published shares of other corpora, for use before a candidate is judged."""
    novelty = zip(NOVELTY_LABELS, _NOVELTY[demand.thresholds.novelty_rule], strict=True)
    outcomes: list[Outcome] = []
    for (novel, share), (label, possible, asks, weight) in itertools.product(novelty, _DISRUPTION):
        labels = {"disruption_label": label, "novelty_label": novel}
        cell = tuple(labels[column] for column in demand.columns)
        outcomes.append(Outcome(cell, demand.cells_with(possible), asks, weight * share))
    return outcomes


class Shape(NamedTuple):
    """The numbers in a candidate's record that decide its calls."""

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
    """Estimate the calls until the demand is met, if further candidates resemble the earlier ones.

    It walks through the candidates ahead, then through typical ones, until every cell has its expected works or the
    ``available`` candidates end. Each candidate adds the observed share of every open cell, and the calls that it would
    need. ``outcomes`` (at least one) are those of the judged candidates. With ``every_record``, for novelty, the
    references' records of every judged work are requested; otherwise only where their citers are counted.
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
    """Log the estimate, and warn if it exceeds the limit, where the client will stop."""
    cost = client.cost_usd + calls * CREDIT_USD
    text = "estimate: about %s more calls, $%.2f in all; a free key allows that in %.1f days"
    logger.info(text, f"{calls:,.0f}", cost, cost / FREE_KEY_USD_PER_DAY)
    limit = client.config.max_cost_usd
    if limit is not None and cost > limit:
        text = "this is more than ApiConfig.max_cost_usd=%g: the run will stop there, and the same command continues it"
        logger.warning(text, limit)
