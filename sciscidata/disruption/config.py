"""The citation window and every other convention of a CD index; known conventions by name in ``COMPAT``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from sciscidata._support.short_repr import short_repr
from sciscidata._support.validate import conventional_options, is_whole
from sciscidata.errors import ConfigError

_MAX_WINDOW = 9_999  # years; None has no end


@dataclass(frozen=True, kw_only=True, slots=True)
class CDConfig:
    """Which citers count, and what an undefined index is. The defaults are Funk & Owen-Smith's.

    Attributes:
        window_years: a citer counts up to this many years (0 .. 9,999) after the focal work; None: without end.
        same_year: count citers of the focal work's own year too.
        earlier_citers: count works that cite the references but are older than the focal work; needs same_year.
        focal_in_n_k: count the focal work itself, which cites all its references, in n_k; needs same_year.
        window_from: ``"focal"``: the window runs from the focal work's year. ``"cited"``: each citation is
            judged by its own age, 0 .. window_years from the year of the paper it cites (pySciSci).
        focal_citers: ``"window"``: only works inside the window count in n_i. ``"any"``: so do works that cite the
            focal work before its window begins, whatever else they cite (novelpy).
        zero_references: a work without a reference on record gets ``"null"`` (its record is incomplete, and it
            would score 1), or is scored like any other: ``"keep"``.
        uncited: a work without a citer in the window is scored (0, if a work in the window cites its references):
            ``"keep"``; or is undefined: ``"null"``; or is undefined only if no work cites it at any time, with a year
            or without: ``"null_if_never"``.
        undefined: what an undefined cd_index becomes: ``"null"``, or ``"zero"`` as novelpy has it.
        family: add the columns of CD_FAMILY.

    Raises:
        ConfigError: on construction, if a value is not one of those named here, or two options contradict each other.

    Example:
        >>> CDConfig(window_years=10).window_years
        10
        >>> CDConfig.compat("sciscinet_v1_d").focal_in_n_k
        True
    """

    window_years: int | None = 5
    same_year: bool = False
    earlier_citers: bool = False
    focal_in_n_k: bool = False
    window_from: Literal["focal", "cited"] = "focal"
    focal_citers: Literal["window", "any"] = "window"
    zero_references: Literal["null", "keep"] = "null"
    uncited: Literal["keep", "null", "null_if_never"] = "keep"
    undefined: Literal["null", "zero"] = "null"
    family: bool = False

    __repr__ = short_repr

    def __post_init__(self) -> None:
        problem = ""
        if self.window_years is not None and not (
            is_whole(self.window_years) and 0 <= self.window_years <= _MAX_WINDOW
        ):
            problem = f"window_years must be None or a whole number from 0 to {_MAX_WINDOW}, got {self.window_years!r}."
        elif self.window_years == 0 and not self.same_year:
            problem = "window_years=0 holds no year at all; set same_year=True, or widen the window."
        elif self.earlier_citers and not self.same_year:
            problem = "earlier_citers=True includes the focal year; set same_year=True too."
        elif self.focal_in_n_k and not self.same_year:
            problem = "focal_in_n_k=True has no effect without the focal year; set same_year=True too."
        elif self.window_from == "cited" and (self.window_years is None or not self.same_year):
            problem = "window_from='cited' needs window_years and same_year=True: ages run from 0."
        elif self.window_from == "cited" and self.focal_citers == "any":
            problem = "focal_citers='any' has no effect on windows of their own; set window_from='focal' too."
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, type(allowed[0])) or value not in allowed:  # 1 equals True
                problem = f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}."
        if problem:
            msg = f"CDConfig: {problem}"
            raise ConfigError(msg)

    @classmethod
    def compat(cls, name: str, **changes: Any) -> CDConfig:  # noqa: ANN401
        """Return the convention of another implementation, so that its published numbers can be reproduced.

        Args:
            name: a key of ``COMPAT``.
            **changes: options to set differently, for example ``family=True`` or ``window_years=10``.

        Raises:
            ConfigError: immediately, if there is no such convention or option, and as CDConfig.
        """
        return cls(**conventional_options(cls, COMPAT, name, changes))


#: The values of every option that has but a few; a bool has no arguments.
_CHOICES = {
    name: get_args(hint) or (False, True) for name, hint in get_type_hints(CDConfig).items() if name != "window_years"
}

#: How other implementations differ from the default. Two things are the same in all of them here: a work or citer
#: without a year never counts (the originals assume that every work has one), and self-citations are ignored (in the
#: originals a work that cites itself is among its own citers). tests/disruption/test_conventions.py has the originals'
#: own values where a set is empty or a window ends.
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
    # at any time, so that one cited too late, or too early, has 0.
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
