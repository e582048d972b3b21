"""Which year the data reach to: some works carry a mistaken date in the future, and must not decide it.

One rule for every source, of the number of works of each year alone, so that the same input has the same last year for
ever. Where records say when they were last changed, no later year counts: what is not out yet cannot be on record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

#: The years of all works but one in so many are the data's: more cannot have mistaken dates.
_ONE_IN: Final = 10
#: One in so many of the fullest of the years before makes a later year the data's too. Mistaken dates put some works
#: into a year; a year that has only begun has more.
_OF_A_FULL_YEAR: Final = 20
#: One in two, where years without any work lie between; and never after more such years than ten.
_OF_A_FULL_YEAR_AFTER_A_GAP: Final = 2
_YEARS_BEFORE: Final = 10
_A_GAP: Final = 10

_DATE: Final = re.compile(r"[0-9]{4}-")


def find_last_year(counts: Mapping[int, int], *, data_date: str | None = None) -> int | None:
    """Find the last year that works were really published in; later ones have mistaken dates, or have only begun.

    The years in which the first nine tenths of the works were published are the data's. The next year is too, if it has
    at least a twentieth of the works of the fullest of the ten years before it; a year up to ten years on, if it has
    half of them. So one work of 2999 changes nothing, neither among millions nor among ten, and nor do some per cent of
    all works. Where no year has more than 20 works, one work of the next year may move the last year by one; of fewer
    works than ten the latest year is the last: their number tells nothing.

    Args:
        counts: how many works each year has.
        data_date: when the youngest record was changed, YYYY-MM-DD; later years do not count. None if that is unknown.

    Returns:
        None if no work has a year.

    Example:
        >>> find_last_year({2000: 40, 2001: 60, 2002: 50, 2003: 20, 2004: 1, 2050: 1})
        2003
        >>> find_last_year({2001: 1, 2024: 1}), find_last_year({2001: 1, 2050: 1}, data_date="2024-05-06")
        (2024, 2001)
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
    """Count the works of every year; those without one are left out. Executes.

    Args:
        works: ``publication_year``; further columns are not read.

    Example:
        >>> count_years(pl.DataFrame({"publication_year": [2001, None, 2000, 2001]}))
        {2000: 1, 2001: 2}
    """
    counts = works.lazy().select(pl.col("publication_year").drop_nulls()).group_by("publication_year").len()
    return dict(counts.collect(engine="streaming").sort("publication_year").rows())


def describe_later_works(counts: Mapping[int, int], last_year: int | None) -> dict[str, Any] | None:
    """Say in JSON types how many works are dated after the data's last year, and from when to when; None if no work is.

    Example:
        >>> describe_later_works({2003: 20, 2004: 1, 2050: 1}, 2003)
        {'works': 2, 'first_year': 2004, 'last_year': 2050}
    """
    later = {year: n for year, n in counts.items() if n and last_year is not None and year > last_year}
    if not later:
        return None
    return {"works": sum(later.values()), "first_year": min(later), "last_year": max(later)}


def remark_on_later_works(later: Mapping[str, Any] | None, last_year: int | None) -> list[str]:
    """Say that works are dated after the last year that was found; nothing if no work is.

    Example:
        >>> later = {"works": 2, "first_year": 2004, "last_year": 2050}
        >>> print(*remark_on_later_works(later, 2003))
        2 works are dated after 2003, the last year of the data: 2004 to 2050. A mistaken date, or a year that has only
        begun, completes no citation window. If the dates are right, name the last year (EligibilityConfig.last_year,
        --last-year).
    """
    if not later:
        return []
    first, last = later["first_year"], later["last_year"]
    works = "1 work is" if later["works"] == 1 else f"{later['works']:,} works are"
    years = f"{first}" if first == last else f"{first} to {last}"
    return [
        f"{works} dated after {last_year}, the last year of the data: {years}. A mistaken date, or a year that has "
        "only begun, completes no citation window. If the dates are right, name the last year "
        "(EligibilityConfig.last_year, --last-year)."
    ]
