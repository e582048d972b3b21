"""Draws of works whose texts are read late, without a source."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from sciscidata.eligibility import EligibilityConfig
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.demand import Demand
from sciscidata.sampling.draw import Drawn, draw
from sciscidata.schemas import WORKS
from sciscidata.sources.kinds import Facts, Scored, Texts


def demand_of(split: SplitConfig, eligibility: EligibilityConfig | None = None) -> Demand:
    return Demand(LabelThresholds(), eligibility or EligibilityConfig(), split, 5)


def draw_late(
    structure: pl.DataFrame,
    read: Callable[[pl.Series], pl.DataFrame],
    demand: Demand,
    names: pl.LazyFrame | None = None,
) -> Drawn:
    """Draw of STRUCTURE; ``read`` reads texts of ids."""
    texts = Texts(pl.LazyFrame(schema=WORKS), read, names=names)
    return draw(Scored(structure.lazy(), Facts({}, structure.lazy()), texts), demand)
