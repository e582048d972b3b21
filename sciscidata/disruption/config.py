"""The citation window and every other convention of a CD index; known conventions by name in ``COMPAT``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from sciscidata.errors import ConfigError
from sciscidata.options.checks import Conventional, PositiveInt

WindowYears = Annotated[int, msgspec.Meta(ge=0, le=9_999)] | None
#: Years, or text: ``"90d"`` are days, ``"18mo"`` months, ``"until2017"`` ends with a calendar year for all works.
Window = (
    Annotated[int, msgspec.Meta(ge=0, le=9_999)]
    | Annotated[str, msgspec.Meta(pattern="^([0-9]{1,6}(d|mo)|until[0-9]{4})$")]
    | None
)
_NEEDED = (
    "a list of windows: years from 0 to 9999, days ('90d'), months ('18mo'), a last year ('until2017'), or None for no "
    "end"
)
#: Options of later versions: a configuration without them is stated as it always was.
_ADDED = ("windows", "time", "di_l")
_EVER = 1 << 40  # beyond any year or day


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class CDConfig(Conventional):
    """Which citers count, and what an undefined index is. The defaults are those of Funk & Owen-Smith.

    Attributes:
        window_years: years after the focal work in which citers count, 0 to 9,999. None: without end.
        same_year: count citers of the focal work's own year too.
        earlier_citers: count older works that cite the references too; needs same_year.
        focal_in_n_k: count the focal work in n_k, because it cites all its references; needs same_year.
        window_from: where the window starts. ``"focal"``: the focal work's year. ``"cited"``: the year of the cited
            paper; each citation is judged by its own age, 0 .. window_years (pySciSci).
        focal_citers: which citers count in n_i. ``"window"``: works inside the window. ``"any"``: also works that cite
            the focal work before its window begins, whatever else they cite (novelpy).
        zero_references: score of a work without references on record. ``"null"``: undefined, because its record is
            incomplete and it would score 1. ``"keep"``: computed as for any other work.
        uncited: score of a work without citers in the window. ``"keep"``: computed (0, if a work in the window cites
            its references). ``"null"``: undefined. ``"null_if_never"``: undefined if no work cites it at any time,
            with a year or without.
        undefined: what an undefined index becomes. ``"zero"``: as novelpy has it.
        family: add the columns of CD_FAMILY: DI_5, mCD, dependence and others.
        di_l: the l of DI_l: how many references a citer shares at least, to count in n_j5. It names the columns: with 3
            they are n_j3 and di3_index. Needs family.
        windows: further windows, counted in the same pass. Years (``10``), or by dates months (``"18mo"``) and days
            (``"90d"``); ``"until2017"``: all years up to the end of 2017, as in CD_2017; None, on a command line
            ``all``: without end. Each adds its columns, such as cd_index_10 and n_i_10. Empty: none.
        time: what windows are measured by. ``"publication_date"``: by day. Works with a year only count as of 1 July;
            citers of the same day are treated as those of the same year.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or two options contradict each other.

    Example:
        >>> CDConfig(window_years=10).window_years
        10
        >>> CDConfig.compat("sciscinet_v1_d").focal_in_n_k
        True
    """

    window_years: WindowYears = 5
    same_year: bool = False
    earlier_citers: bool = False
    focal_in_n_k: bool = False
    window_from: Literal["focal", "cited"] = "focal"
    focal_citers: Literal["window", "any"] = "window"
    zero_references: Literal["null", "keep"] = "null"
    uncited: Literal["keep", "null", "null_if_never"] = "keep"
    undefined: Literal["null", "zero"] = "null"
    family: bool = False
    di_l: PositiveInt = 5
    windows: Annotated[tuple[Window, ...], msgspec.Meta(title="WINDOW", description=_NEEDED)] = ()
    time: Literal["publication_year", "publication_date"] = "publication_year"

    def _check(self) -> None:
        problem = ""
        twice = next((window for i, window in enumerate(self.windows) if window in self.windows[:i]), "")
        in_days = next((one for one in self.windows if isinstance(one, str) and last_year_in(one) is None), "")
        until = next((window for window in self.windows if last_year_in(window) is not None), "")
        empty = next(
            (one for one in self.windows if one is not None and last_year_in(one) is None and not length(one)[0]), ""
        )
        if self.window_years == 0 and not self.same_year:
            problem = "CDConfig.window_years=0 holds no year. Set CDConfig.same_year=True, or widen the window."
        elif self.di_l != 5 and not self.family:
            problem = "CDConfig.di_l has no effect without the family. Set CDConfig.family=True too."
        elif twice != "":
            problem = f"CDConfig.windows holds {twice!r} twice, needs each window once. Leave one out."
        elif empty != "" and not self.same_year:
            problem = (
                f"CDConfig.windows holds {empty!r}, in which no later work appears. Set CDConfig.same_year=True too."
            )
        elif in_days and self.time == "publication_year":
            problem = (
                f"CDConfig.windows holds {in_days!r}, and years have no days or months. Set "
                "CDConfig.time='publication_date', or give whole years."
            )
        elif self.earlier_citers and not self.same_year:
            problem = "CDConfig.earlier_citers=True includes the focal year. Set CDConfig.same_year=True too."
        elif self.focal_in_n_k and not self.same_year:
            problem = (
                "CDConfig.focal_in_n_k=True has no effect without the focal year. Set CDConfig.same_year=True too."
            )
        elif self.window_from == "cited" and (None in self.all_windows.values() or not self.same_year):
            problem = (
                "CDConfig.window_from='cited' needs CDConfig.window_years, no window without end, and "
                "CDConfig.same_year=True, because ages run from 0."
            )
        elif self.window_from == "cited" and until:
            problem = (
                f"CDConfig.windows holds {until!r}, which ends at once for all citations, and with "
                "CDConfig.window_from='cited' each has its own window. Leave one out."
            )
        elif self.window_from == "cited" and self.focal_citers == "any":
            problem = (
                "CDConfig.focal_citers='any' has no effect where each citation has its own window. Set "
                "CDConfig.window_from='focal' too."
            )
        if problem:
            raise ConfigError(problem)

    @property
    def all_windows(self) -> dict[str, Window]:
        """Every window by what the names of its columns end with: "" for ``window_years``, then those of ``windows``.

        Example:
            >>> CDConfig(windows=(10, None)).all_windows
            {'': 5, '_10': 10, '_all': None}
        """
        return {"": self.window_years} | {f"_{'all' if one is None else one}": one for one in self.windows}

    def times_of_citers(self, time: int, window: Window) -> range:
        """Return the years (with ``time`` by date: the days since 1970) in which citers of a work of ``time`` count.

        Example:
            >>> CDConfig().times_of_citers(2000, 5)
            range(2001, 2006)
        """
        first = -_EVER if self.earlier_citers and self.window_from == "focal" else time + (not self.same_year)
        if window is None:
            return range(first, _EVER)
        if (year := last_year_in(window)) is not None:
            stop = self._after(year)
            return range(first, max(first, stop if time < stop else first))
        if self.time == "publication_year":
            assert isinstance(window, int)  # _check has refused others
            return range(first, time + window + 1)
        n, unit = length(window)
        return range(first, (time + n if unit == "d" else _add_months(time, n)) + 1)

    def first_open_time(self, window: Window, last_year: int | None) -> int | None:
        """Return the first year (with ``time`` by date: the first day) whose window is not over before ``last_year``.

        None if the window has no end, or the last year is not known.

        Example:
            >>> CDConfig().first_open_time(5, 2024)
            2019
        """
        if window is None or last_year is None:
            return None
        if (year := last_year_in(window)) is not None:  # over for all works that are out by then, or for none
            return self._after(year) if year < last_year else -_EVER
        if self.time == "publication_year":
            assert isinstance(window, int)  # _check has refused others
            return first_open_window(window, last_year)
        n, unit = length(window)
        new_year = _new_year(last_year)
        return new_year - n if unit == "d" else _add_months(new_year, -n)

    def is_too_late(self, time: int, window: Window) -> bool:
        """Say whether a work of ``time`` came out after the calendar year with which the window ends: nothing counts.

        Example:
            >>> CDConfig().is_too_late(2018, "until2017"), CDConfig().is_too_late(2018, 5)
            (True, False)
        """
        year = last_year_in(window)
        return year is not None and time >= self._after(year)

    def _after(self, year: int) -> int:
        """Return the first time after a year."""
        return year + 1 if self.time == "publication_year" else _new_year(year + 1)

    def stated(self) -> dict[str, Any]:
        """Return the options as a manifest states them: all, but those of ``_ADDED`` only where they are set."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in _ADDED or getattr(self, field.name) != field.default
        }


def first_open_window(window_years: int | None, last_year: int | None) -> int | None:
    """Return the first publication year whose window was not over before the last year of the data.

    None if a window has no end or the last year is unknown.

    Example:
        >>> first_open_window(5, 2024), CDConfig().times_of_citers(2019, 5)[-1]
        (2019, 2024)
    """
    return None if window_years is None or last_year is None else last_year - window_years


def last_year_in(window: Window) -> int | None:
    """Return the calendar year with which a window ends for all works; None for any other window.

    Example:
        >>> last_year_in("until2017"), last_year_in("90d")
        (2017, None)
    """
    return int(window[5:]) if isinstance(window, str) and window.startswith("until") else None


def _new_year(year: int) -> int:
    """Return the first day of a year, in days since 1970."""
    return int(np.datetime64(year - 1970, "Y").astype("M8[D]").astype(np.int64))


def length(window: int | str) -> tuple[int, str]:
    """Take a window apart: how many days (``"d"``) or months (``"mo"``); a year has twelve.

    Example:
        >>> length(5), length("90d")
        ((60, 'mo'), (90, 'd'))
    """
    if isinstance(window, int):
        return 12 * window, "mo"
    unit = "mo" if window.endswith("mo") else "d"
    return int(window.removesuffix(unit)), unit


def _add_months(day: int, n: int) -> int:
    """Return the same day ``n`` months later, in days since 1970; the last one of a month that is shorter."""
    date = np.datetime64(day, "D")
    month = date.astype("M8[M]")
    first, following = ((month + np.timedelta64(n + i, "M")).astype("M8[D]") for i in (0, 1))
    return int(min(first + (date - month.astype("M8[D]")), following - np.timedelta64(1, "D")).astype(np.int64))


#: How other implementations differ from the default. Two things are the same in all of them here. A work or citer
#: without a year never counts; the originals assume that every work has one. A work that cites itself
#: does not count among its citers. In the originals it does.
#: tests/disruption/test_conventions.py has the originals' own values where a set is empty or a window ends.
COMPAT: dict[str, dict[str, Any]] = {
    # PyPI cdindex and fast-cdindex, at year resolution; the C code of Funk & Owen-Smith 2017.
    "cdindex": {"window_years": 5, "zero_references": "keep"},
    # D of Wu, Wang & Evans 2019: all later citers, works without references left out.
    "wu_wang_evans": {"window_years": None},
    # SciSciNet v1 (Lin et al. 2023), column D: no bound on time at all, the focal work in n_k, cited works only.
    "sciscinet_v1_d": {
        "window_years": None,
        "same_year": True,
        "earlier_citers": True,
        "focal_in_n_k": True,
        "uncited": "null",
    },
    # SciSciNet v1, column CD5: citers of year 0 .. 5, the focal work in n_k. Scored are the works that anything cites
    # at any time. One cited too late, or too early, has 0.
    "sciscinet_v1_cd5": {"window_years": 5, "same_year": True, "focal_in_n_k": True, "uncited": "null_if_never"},
    # novelpy: from the focal year on, but older citers of the focal work count in n_i; undefined is 0. Its DI5
    # and DeIn also count the references that older citers share; n_j5 and n_shared do not.
    "novelpy": {
        "window_years": None,
        "same_year": True,
        "focal_citers": "any",
        "zero_references": "keep",
        "undefined": "zero",
    },
    # pySciSci, disruption_index(cite_window=[0, 5]): each citation is judged by its own age.
    "pyscisci": {
        "window_years": 5,
        "same_year": True,
        "earlier_citers": True,
        "focal_in_n_k": True,
        "window_from": "cited",
        "uncited": "null",
    },
    # CrossDI (Xu et al. 2025): everybody up to the end of the window; works without references are kept.
    "crossdi": {"window_years": 5, "same_year": True, "earlier_citers": True, "zero_references": "keep"},
}
CDConfig.conventions = COMPAT
