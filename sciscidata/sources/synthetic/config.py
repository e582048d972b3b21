"""SyntheticConfig: the size and shape of a synthetic world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from sciscidata.errors import ConfigError
from sciscidata.options.checks import Configuration, Share


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class SyntheticConfig(Configuration):
    """Size and shape of a synthetic world.

    Another size with the same seed gives another world: works do not keep their ids or their references.

    Attributes:
        n_works: number of works in the synthetic world.
        seed: seed of the synthetic world.
        first_year: earliest publication year.
        last_year: latest publication year, at most 999 years later.
        growth_per_year: growth of each year over the one before; 0.045 is 4.5 %.
        mean_references: mean length of the reference lists that are not empty (log-normal, all within the world). The
            mean over all works is somewhat lower, because the first years find little to cite.
        no_references_share: share of works whose reference list is not on record.
        disruptive_share: share of works of the disruptive kind.
        developing_share: share of works of the developing kind; the rest is even-handed.
        text_signal: share of sentences that surely speak in the voice of the work's kind, in steps of 0.01; the others
            speak in any of the three voices. 0: the text says nothing about the kind.

    Raises:
        ConfigError: on construction, if a value is out of its range.

    Example:
        >>> SyntheticConfig(n_works=0)
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: SyntheticConfig.n_works is 0, needs a whole number from 1 to 2,147,483,647.
    """

    n_works: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 100_000
    seed: int = 0
    first_year: Annotated[int, msgspec.Meta(ge=1_000, le=9_999)] = 1980
    last_year: int = 2024
    growth_per_year: Annotated[float, msgspec.Meta(ge=-0.5, le=1)] = 0.045
    mean_references: Annotated[float, msgspec.Meta(ge=1, le=1_000)] = 12.0
    no_references_share: Share = 0.06
    disruptive_share: Share = 0.3
    developing_share: Share = 0.3
    text_signal: Share = 0.5

    def _check(self) -> None:
        first, most = self.first_year, 1 - self.disruptive_share
        if not first <= self.last_year <= first + 999:
            raise ConfigError(
                f"SyntheticConfig.last_year is {self.last_year}, needs a whole number from {first} to {first + 999}."
            )
        if self.developing_share > most + 1e-12:  # 1 - 0.9 is a little less than 0.1
            raise ConfigError(
                f"SyntheticConfig.developing_share is {self.developing_share}, needs a number from 0 to {most:g}, what "
                "SyntheticConfig.disruptive_share leaves."
            )
