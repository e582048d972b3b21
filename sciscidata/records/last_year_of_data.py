"""Which year the data reach to. Some works carry a mistaken date in the future, which must not decide it.

One rule serves every source, from the number of works of each year alone. The same input always has the same last year.
Where records say when they were last changed, no later year counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from sciscidata.terminal.messages import counted

#: The years of all works but one in so many are the data's: more cannot have mistaken dates.
_ONE_IN: Final = 10
#: One in so many of the fullest of the years before makes a later year the data's too. Mistaken dates put some works
#: into a year; a year that has only begun has more.
_OF_A_FULL_YEAR: Final = 20
#: One in two, after a gap of years without works. After a gap of more than ten years no year is the data's.
_OF_A_FULL_YEAR_AFTER_A_GAP: Final = 2
_YEARS_BEFORE: Final = 10
_A_GAP: Final = 10

_DATE: Final = re.compile(r"[0-9]{4}-")


def find_last_year(counts: Mapping[int, int], *, data_date: str | None = None) -> int | None:
    """Find the last year in which works were really published. Later years are mistaken dates, or have only begun.

    The years of the first nine tenths of the works belong to the data. So does the next year, if its works are at least
    a twentieth of the fullest of the ten years before. So does a year after a gap of up to ten years, if it has half of
    them. So one work of 2999 changes nothing, nor do a few per cent of all works. In years of at most 20 works, one
    work of the next year may move the last year by one. Years after ``data_date``, when the youngest record was changed
    (YYYY-MM-DD), do not count.
    """
    ordered = sorted((year, n) for year, n in counts.items() if n > 0)
    if data_date is not None and _DATE.match(data_date):
        ordered = [(year, n) for year, n in ordered if year <= int(data_date[:4])] or ordered
    if not ordered:
        return None
    real: list[tuple[int, int]] = []
    left = total = sum(n for _, n in ordered)
    for year, n in ordered:
        fullest = max((before for _, before in real[-_YEARS_BEFORE:]), default=0)
        gap = year - real[-1][0] if real else 0
        share = _OF_A_FULL_YEAR if gap <= 1 else _OF_A_FULL_YEAR_AFTER_A_GAP
        if left * _ONE_IN > total or (n * share >= fullest and gap <= _A_GAP):
            real.append((year, n))
        left -= n
    return real[-1][0]


def count_years(works: pl.LazyFrame | pl.DataFrame) -> dict[int, int]:
    """Count the works of every ``publication_year``; works without one are left out."""
    counts = works.lazy().select(pl.col("publication_year").drop_nulls()).group_by("publication_year").len()
    return dict(counts.collect(engine="streaming").sort("publication_year").rows())


def describe_later_works(counts: Mapping[int, int], last_year: int | None) -> dict[str, Any] | None:
    """Describe in JSON types the works dated after the data's last year; None if there are none."""
    later = {year: n for year, n in counts.items() if n and last_year is not None and year > last_year}
    if not later:
        return None
    return {"works": sum(later.values()), "first_year": min(later), "last_year": max(later)}


def remark_on_later_works(later: Mapping[str, Any] | None, last_year: int | None) -> list[str]:
    """Warn about works dated after the last year that was found; empty if there are none."""
    if not later:
        return []
    first, last = later["first_year"], later["last_year"]
    works = counted(later["works"], "work is", "works are")
    years = f"{first}" if first == last else f"{first} to {last}"
    return [
        f"{works} dated after {last_year}, the last year of the data: {years}. A mistaken date, or a year that has "
        "only begun, completes no citation window. If the dates are right, name the last year: "
        "EligibilityConfig.last_year."
    ]
