"""What a source says of itself before it is read, for ``build --dry-run``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata.label_thresholds import LabelThresholds

#: Citations within all of science that a work of real records has.
REFERENCES_PER_WORK: Final = 11


class ToRead(NamedTuple):
    """What a build would read, found without reading it.

    Attributes:
        name: what there is, in words.
        works: how many, if that is known.
        citations: of these works.
        parsed_bytes: bytes of text to parse, compressed.
        columns: WORKS whose columns are read in seconds, to count chosen fields and venues.
        shares: share of each disruption label in works like these, and which works show that. None: of real works.
        describe_classes: says in a line which classes there are, where the source knows. None: ``shares`` give them.
        time: how long reading takes, in words. None: that follows from the numbers.
    """

    name: str
    works: int | None = None
    citations: int | None = None
    parsed_bytes: float = 0
    columns: pl.LazyFrame | None = None
    shares: tuple[Mapping[str, float], str] | None = None
    describe_classes: Callable[[LabelThresholds], str] | None = None
    time: str | None = None


class ToAsk(NamedTuple):
    """What a build would ask of an API, and what this look has cost."""

    per_year: Mapping[int, int]
    calls: float
    cost_usd: float
    days: str
    asked_calls: int
    asked_usd: float
    left_usd: float | None


def name_only(config: Any, _: object) -> ToRead:  # noqa: ANN401 (any source)
    """Name a source that says nothing else of itself."""
    return ToRead(f"a source of the kind {type(config).__name__}")
