"""Find parts of a snapshot whose fields cannot be right: emptied, shifted, or in each other's place.

In the snapshot of late March 2026 the fields of whole parts were scrambled (ourresearch/openalex-official, issue 8).
Such records parse, and give wrong scores in silence. Each part is measured while it is written, and judged afterwards.
One field permuted among the works of a part leaves every share as it is, and is not found.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

import polars as pl

from sciscidata.terminal.shares import percent

_FEWEST_WORKS: Final = 1_000  # of fewer works every share may be anything
_SPREAD: Final = 5.0  # standard deviations of a share beyond its limit that chance is given
_MOST_LANGUAGES: Final = 1_000  # different ones that are counted; there are some sixty
_FIRST_YEAR: Final = 1400
_MODERN: Final = 1990
_LANGUAGE: Final = r"^[a-z]{2,3}(-[a-z]{2,4})?$"
_TYPE: Final = r"^[a-z]{4,15}(-[a-z]{2,15}){0,3}$"


class _Expected(NamedTuple):
    """A share that every part keeps to: ``having`` divided by ``of`` lies from ``low`` to ``high``."""

    what: str
    having: str
    of: str
    low: float = 0.0
    high: float = 1.0


#: Wide enough for a part of one publisher, one repository or one kind of work. Beside each limit are the shares of the
#: records of the tests: 248 of 2025 and 2026, and 4,381 of 2023. Those of 2023 have no language. Types and languages
#: may be missing, as in exports of chosen fields.
_EXPECTED: Final = (
    _Expected("with a title", "titles", "works", low=0.25),  # 99, 99.7 %; of 27 grants of 2023 41 %
    _Expected("titles that no neighbour has", "distinct_titles", "titles", low=0.25),  # 98, 99 %
    _Expected("with a year", "years", "works", low=0.5),  # 100, 100 %
    _Expected("years from 1400 to two after that of the part", "possible_years", "years", low=0.95),  # 100, 100 %
    _Expected("years since 1990", "modern_years", "years", low=0.2),  # 98, 99 %; works of all fields about 80 %
    _Expected("types that look like one", "possible_types", "types", low=0.95),  # 100, 100 %
    _Expected("languages that look like one", "possible_languages", "languages", low=0.95),  # 100 %
    _Expected("in the most common language", "top_language", "languages", high=0.998),  # 99 % of a search in English
    _Expected("DOIs that begin with 10.", "possible_dois", "dois", low=0.95),  # 100, 100 %
    _Expected("with references", "citing_works", "works", low=0.01),  # 66, 84 %
    _Expected("references that name a work", "references", "listed_references", low=0.95),  # 100, 100 %
)


def _counts(part_year: int) -> dict[str, pl.Expr]:
    year, language = pl.col("publication_year"), pl.col("language")
    return {
        "works": pl.len(),
        "titles": pl.count("title"),
        "years": year.count(),
        "types": pl.count("work_type"),
        "languages": language.count(),
        "dois": pl.count("doi"),
        "distinct_titles": pl.col("title").drop_nulls().n_unique(),
        "possible_years": year.is_between(_FIRST_YEAR, part_year + 2).sum(),  # works may be dated ahead
        "modern_years": (year >= _MODERN).sum(),
        "possible_types": pl.col("work_type").str.contains(_TYPE).sum(),
        "possible_languages": language.str.contains(_LANGUAGE).sum(),
        "possible_dois": pl.col("doi").str.starts_with("10.").sum(),
    }


class Tally:
    """What is counted of one part, batch by batch."""

    def __init__(self, part_year: int) -> None:
        self._of_works = _counts(part_year)
        self._counts: Counter[str] = Counter()
        self._languages: Counter[str] = Counter()

    def add(self, works: pl.DataFrame, citations: pl.DataFrame, malformed_references: int) -> None:
        """Count a batch: ``works`` are WORKS, ``citations`` their CITATIONS."""
        self._counts.update(works.select(**self._of_works).row(0, named=True))
        self._counts["citing_works"] += citations["citing_id"].n_unique()
        self._counts["references"] += citations.height
        self._counts["listed_references"] += citations.height + malformed_references
        language = works["language"]
        for name, count in language.filter(language.str.contains(_LANGUAGE)).value_counts().iter_rows():
            if name in self._languages or len(self._languages) < _MOST_LANGUAGES:
                self._languages[name] += count

    def counts(self) -> dict[str, int]:
        """Return the counts of all batches, for the receipt."""
        return {**self._counts, "top_language": max(self._languages.values(), default=0)}


def find_implausible(counts: Mapping[str, int]) -> str | None:
    """Say which shares of a part are far off, got and expected; None if plausible, or of few works."""
    if counts.get("works", 0) < _FEWEST_WORKS:
        return None
    wrong: list[str] = []
    for share in _EXPECTED:
        n = counts.get(share.of, 0)
        if not n:
            continue
        got = counts.get(share.having, 0) / n
        limit = min(max(got, share.low), share.high)
        # Of few values a share differs from the expected one by chance; the normal approximation is enough for that.
        if abs(got - limit) > _SPREAD * math.sqrt(limit * (1 - limit) / n):
            bound = f"{percent(share.low)} or more" if got < share.low else f"{percent(share.high, 1)} or less"
            wrong.append(f"{share.what} {percent(got, 1)} of {n:,}, expected {bound}")
    return "; ".join(wrong) or None
