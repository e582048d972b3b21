"""What a work needs to be drawn, as a person states it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from sciscidata.errors import ConfigError

_MAX_COUNT: Final = 2**32 - 1  # of the counts' own type
_LAST_YEAR: Final = 9_999


@dataclass(frozen=True, kw_only=True, slots=True)
class EligibilityConfig:
    """What a work needs to be drawn; a filter that is switched off removes nothing and counts 0.

    Attributes:
        require_title: remove works without a title (or a blank one).
        require_abstract: remove works without an abstract (or a blank one).
        exclude_retracted: remove retracted works.
        min_references: least number of distinct references on record.
        min_citations: least number of citing works inside the window (n_i + n_j).
        languages: OpenAlex language codes to keep; empty for any.
        keep_unknown_language: keep works whose language is unknown (records fetched before mid-2023 carry
            none); read only when ``languages`` is not empty.
        work_types: OpenAlex types to keep, an unknown type is not one; empty for any.
        min_year: first publication year to keep, None for any.
        max_year: last publication year to keep, None for any.
        complete_window: keep only works whose citation window ends before ``last_year``, because a database's
            last year is rarely complete.
        last_year: the data's last year; None finds it in the numbers of works of each year, in spite of mistaken dates
            in the future (``last_year.find_last_year``).

    Raises:
        ConfigError: on construction, if a value has the wrong type, a minimum is negative, a year lies beyond
            -9999 to 9999, or the years are out of order.

    Example:
        >>> EligibilityConfig(min_year=2000, max_year=1990)
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: min_year (2000) lies after max_year (1990). Swap them.
    """

    require_title: bool = True
    require_abstract: bool = True
    exclude_retracted: bool = True
    min_references: int = 1
    min_citations: int = 1
    languages: tuple[str, ...] = ("en",)
    keep_unknown_language: bool = True
    work_types: tuple[str, ...] = ()
    min_year: int | None = None
    max_year: int | None = None
    complete_window: bool = True
    last_year: int | None = None

    def __post_init__(self) -> None:
        for name in (
            "require_title",
            "require_abstract",
            "exclude_retracted",
            "keep_unknown_language",
            "complete_window",
        ):
            if not isinstance(getattr(self, name), bool):
                msg = f"{name} is {getattr(self, name)!r}, needs true or false."
                raise ConfigError(msg)
        for name in ("min_references", "min_citations"):
            _check_range(name, getattr(self, name), 0, _MAX_COUNT)
        for name in ("min_year", "max_year", "last_year"):
            if getattr(self, name) is not None:
                _check_range(name, getattr(self, name), -_LAST_YEAR, _LAST_YEAR)
        for name in ("languages", "work_types"):
            object.__setattr__(self, name, _words(name, getattr(self, name)))
        if self.min_year is not None and self.max_year is not None and self.min_year > self.max_year:
            msg = f"min_year ({self.min_year}) lies after max_year ({self.max_year}). Swap them."
            raise ConfigError(msg)


def check_window(window_years: object) -> None:
    """Refuse a citation window that is none.

    Raises:
        ConfigError: at once; it is neither None nor a whole number from 0 to 9999.
    """
    if window_years is not None:
        _check_range("window_years", window_years, 0, _LAST_YEAR)


def _check_range(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        msg = f"{name} is {value!r}, needs a whole number from {low} to {high}."
        raise ConfigError(msg)


def _words(name: str, values: object) -> tuple[str, ...]:
    # Not any sequence: a lone string would pass as a list of letters.
    words = tuple(cast("Sequence[object]", values)) if isinstance(values, (tuple, list)) else (None,)
    checked = tuple(word for word in words if isinstance(word, str) and word)
    if len(checked) != len(words):
        msg = f"{name} is {values!r}, needs a list of words, for example ('en',); empty for any."
        raise ConfigError(msg)
    return checked
