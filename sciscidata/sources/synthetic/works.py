"""The rows of WORKS for a synthetic world: ids, venues, text, and the oddities that real records have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata._kernels.arrays import BoolArray, Int64Array
from sciscidata._kernels.random import UInt64Array, below, draw, scatter, stream_key
from sciscidata.schemas import WORKS
from sciscidata.sources.synthetic.config import SyntheticConfig
from sciscidata.sources.synthetic.graph import lay_out, pick_references
from sciscidata.sources.synthetic.text import ABSTRACT, TITLE, write_texts
from sciscidata.sources.synthetic.words import TOPICS, VENUES

#: Works in a million with each oddity, independently of one another.
ODDITIES_PER_MILLION: dict[str, int] = {
    "null title": 4_000,
    "null abstract": 30_000,
    "null year": 3_000,
    "retracted": 3_000,
    "repeated title": 3_000,  # the title of an earlier work of the same field and kind
    "repeated doi": 2_000,  # the DOI of an earlier work: one DOI under two ids
    "null doi": 40_000,
    "null venue": 20_000,
    "null field": 5_000,
    "no concepts": 10_000,
}

_Choices = tuple[tuple[str | None, int], ...]
_LANGUAGES: _Choices = (
    ("en", 950_000), ("es", 10_000), ("de", 8_000), ("pt", 8_000), ("fr", 8_000), ("zh", 6_000), (None, 10_000),
)  # fmt: skip
_WORK_TYPES: _Choices = (
    ("article", 860_000), ("book-chapter", 60_000), ("review", 40_000), ("preprint", 35_000), (None, 5_000),
)  # fmt: skip


def work_ids(n_works: int, seed: int) -> Int64Array:
    """Return the id of every work: distinct, in 1..2^33 (OpenAlex has passed 2^32), unordered."""
    return 1 + scatter(stream_key(seed, "synthetic/work-id"), np.arange(n_works), 33)


class WorkWriter:
    """Writes the rows of any range of works; a row does not depend on the range."""

    def __init__(self, config: SyntheticConfig) -> None:
        self._layout = lay_out(config)
        self._seed = config.seed
        self._first_year = config.first_year
        self._signal_per_cent = round(config.text_signal * 100)
        self._ids = work_ids(config.n_works, config.seed)
        self._venue_ends = _venue_ends(config.n_works)

    def rows(self, start: int, end: int, columns: Iterable[str]) -> pl.DataFrame:
        """Return some columns of works ``start`` to ``end`` (exclusive), in WORKS dtypes."""
        works = np.arange(start, end)
        writers: dict[str, Callable[[Int64Array], pl.Series]] = {
            "work_id": lambda w: pl.Series(self._ids[w]),
            "publication_year": lambda w: self._unless("null year", w, self._first_year + self._layout.year[w]),
            "title": lambda w: self._unless("null title", w, self._text(TITLE, self._or_earlier("repeated title", w))),
            "abstract": lambda w: self._unless("null abstract", w, self._text(ABSTRACT, w)),
            "cited_by_count": lambda w: pl.Series(self._citation_counts[w]),
            "primary_field": lambda w: self._unless(
                "null field", w, pl.Series(list(TOPICS)).gather(self._layout.field[w])
            ),
            "concepts": self._concepts,
            "source_id": lambda w: self._unless(
                "null venue", w, 1 + scatter(stream_key(self._seed, "synthetic/venue-id"), self._venues(w), 32)
            ),
            "source_name": lambda w: self._unless("null venue", w, self._venue_names(w)),
            "language": lambda w: _choose(_LANGUAGES, self._bits("language", w)),
            "work_type": lambda w: _choose(_WORK_TYPES, self._bits("work-type", w)),
            "is_retracted": lambda w: pl.Series(self._has("retracted", w)),
            "doi": self._dois,
            "n_authors": lambda w: pl.repeat(None, len(w), eager=True),
        }
        return pl.DataFrame({name: writers[name](works).cast(WORKS[name]) for name in columns}, height=len(works))

    def _bits(self, stream: str, works: Int64Array) -> UInt64Array:
        return draw(stream_key(self._seed, f"synthetic/{stream}"), works)

    def _has(self, oddity: str, works: Int64Array) -> BoolArray:
        return below(self._bits(oddity, works), 1_000_000) < ODDITIES_PER_MILLION[oddity]

    def _unless(self, oddity: str, works: Int64Array, values: pl.Series | npt.NDArray[np.integer[Any]]) -> pl.Series:
        series = pl.Series(values)
        return series.set(pl.Series(self._has(oddity, works)), None)

    def _or_earlier(self, oddity: str, works: Int64Array) -> Int64Array:
        """Replace each work that has the oddity by a random earlier work."""
        earlier = below(self._bits(f"{oddity}/which", works), np.maximum(works, 1))
        return np.where(self._has(oddity, works), earlier, works)

    @cached_property
    def _citation_counts(self) -> Int64Array:
        references = pick_references(self._layout, self._seed).references
        return np.bincount(references, minlength=len(self._ids))

    def _text(self, sentences: range, works: Int64Array) -> pl.Series:
        fields, kinds = self._layout.field[works], self._layout.kind[works]
        return write_texts(sentences, self._bits("text", works), fields, kinds, self._signal_per_cent)

    def _concepts(self, works: Int64Array) -> pl.Series:
        """Up to three different topics of the work's field."""
        topics = [topic.capitalize() for names in TOPICS.values() for topic in names]
        per_field = len(topics) // len(TOPICS)
        first, step, length = draw(self._bits("concepts", works)[:, None], np.arange(3)).T
        hops = np.arange(3) * (1 + below(step, per_field // 2 - 1))[:, None]  # 0, s, 2s: distinct for s < half
        numbers = (below(first, per_field)[:, None] + hops) % per_field + self._layout.field[works, None] * per_field
        lengths = np.where(self._has("no concepts", works), 0, 1 + below(length, 3))
        lists = pl.lit(pl.Series(topics).gather(numbers.ravel()).reshape(numbers.shape)).arr.to_list()
        return pl.select(lists.list.head(pl.lit(pl.Series(lengths)))).to_series()

    def _venues(self, works: Int64Array) -> Int64Array:
        """Choose the number of each work's venue; ranks within a field have weights of about 1 / (rank + 3)."""
        field = self._layout.field[works].astype(np.int64)
        ends = self._venue_ends
        point = below(self._bits("venue", works), ends[-1])
        return field * len(ends) + np.searchsorted(ends, point, side="right")

    def _venue_names(self, works: Int64Array) -> pl.Series:
        numbers, place = np.unique(self._venues(works), return_inverse=True)
        return pl.Series([_venue_name(*divmod(int(n), len(self._venue_ends))) for n in numbers]).gather(place)

    def _dois(self, works: Int64Array) -> pl.Series:
        ids = pl.Series("id", self._ids[self._or_earlier("repeated doi", works)])
        # 10.5555 is Crossref's prefix for examples, so no real DOI can occur.
        return self._unless("null doi", works, pl.select(pl.format("10.5555/synthetic.{}", ids)).to_series())


def _choose(choices: _Choices, bits: UInt64Array) -> pl.Series:
    ends = np.cumsum([weight for _, weight in choices])
    picked = np.searchsorted(ends, below(bits, int(ends[-1])), side="right")
    return pl.Series([value for value, _ in choices]).gather(picked)


def _venue_ends(n_works: int) -> Int64Array:
    """Return the cumulative weights of a field's venues: 8 sqrt(n) venues in the world, at least 4 per field."""
    ranks = np.arange(max(4, 8 * math.isqrt(n_works) // len(TOPICS)))
    return np.cumsum((1 << 20) // (ranks + 3))


def _venue_name(field: int, rank: int) -> str:
    names = list(TOPICS.values())[field]
    series, place = divmod(rank, len(names) * len(VENUES))
    # Diagonally over forms and topics, so that neighbouring ranks differ in both.
    form, topic = VENUES[(place + place // len(names)) % len(VENUES)], names[place % len(names)].title()
    return form.format(topic) + (f", Series {series + 1}" if series else "")
