"""Which venue pairs are new, which of them count, and which years can tell."""

from __future__ import annotations

from dataclasses import dataclass

from sciscidata.errors import ConfigError
from sciscidata.venue_pair_scores import check_whole_numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstTimePairsConfig:
    """What is new, what counts, and which years can tell.

    Attributes:
        past_years: a pair is new if no work joined it in so many years before. None: in any earlier year.
        profile_years: the co-citation profiles, and the citations of venues, are those of so many years before.
        reuse_years: the pair must be joined again in so many years after. None: no such condition.
        min_reuses: by at least so many works.
        drop_least_cited: this share of the venues cited in the profile years, those with the fewest references, joins
            no new pair; ties at the cut are kept. 0.5 is novelpy's, for the paper: rare venues are easily new. 0: none.
        burn_in_years: the data's first years are undefined, for there all pairs look new; at least past_years and
            profile_years. Ten years are little: in a synthetic corpus of 45 years, 76 % of the works have a pair that
            counts after ten years of history, 51 % after 30. Compare works within a year.
        first_year: the first year of which the data is complete. None: the first with a pair of venues.
        last_year: the last such year; a work is undefined if its reuse window ends later. None: the
            last with a pair, but for mistaken dates in the future (``last_year.find_last_year``).
        max_references: a work with more references of known year and venue is left out, of the past and future too.
            None: no limit.

    Raises:
        ConfigError: on construction, if a value is not one of those named here.

    Example:
        >>> FirstTimePairsConfig(reuse_years=None).burn_in_years
        10
    """

    past_years: int | None = None
    profile_years: int = 3
    reuse_years: int | None = 3
    min_reuses: int = 1
    drop_least_cited: float = 0.5
    burn_in_years: int = 10
    first_year: int | None = None
    last_year: int | None = None
    max_references: int | None = 1_000

    def __post_init__(self) -> None:
        optional = {"past_years": (1, True), "reuse_years": (1, True), "max_references": (2, True)}
        span = {"first_year": (-(2**31), True), "last_year": (-(2**31), True)}
        needed = {"profile_years": (1, False), "min_reuses": (1, False), "burn_in_years": (1, False)}
        check_whole_numbers(self, optional | needed | span)
        problem = ""
        share = self.drop_least_cited
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            problem = f"drop_least_cited must be a number from 0, below 1, got {share!r}."
        longest = max(self.profile_years, self.past_years or 0)
        if self.burn_in_years < longest:
            problem = (
                f"burn_in_years is {self.burn_in_years}, needs at least {longest}, as long as past_years and "
                f"profile_years look back. Set burn_in_years={longest}, or look back less far."
            )
        if problem:
            msg = f"FirstTimePairsConfig: {problem}"
            raise ConfigError(msg)
