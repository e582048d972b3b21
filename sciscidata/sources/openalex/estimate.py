"""How many calls a pull takes: published shares of classes, and bounds that follow from the works seen so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Final, NamedTuple

from sciscidata.intervals import wilson_interval

_FREE_KEY_USD_PER_DAY: Final = 1.0
_KEYLESS_USD_PER_DAY: Final = 0.1
#: Disruption label, labels possible before n_k is known, whether n_k is requested, share. From a corpus of 1.97M works
#: (247,090 disruptive, 583,215 consolidating, 1,142,492 neutral). Half of the neutral ones are assumed to be decided by
#: n_i = n_j.
DISRUPTION: Final = (
    ("disruptive", ("disruptive", "neutral"), True, 0.125),
    ("consolidating", ("consolidating", "neutral"), True, 0.296),
    ("neutral", ("neutral",), False, 0.290),
    ("neutral", ("consolidating", "neutral"), True, 0.289),
)
#: Shares of novel, balanced and conventional works by rule, from Uzzi et al. 2013 (works of the 1990s). "uzzi" uses
#: their four cells. "margin" follows the signs of z where z is large. 41 % have z_p10 < 0, and 3 % have z_median < 0.
NOVELTY: Final = {"margin": (0.03, 0.38, 0.59), "uzzi": (0.26, 0.30, 0.44)}
_SIGMAS: Final = 3.0  # of all bounds: one in several hundred does not hold


class Calls(NamedTuple):
    """How many calls are ahead. The bounds hold for any classes; ``about`` trusts the shares that it goes by."""

    at_least: float
    about: float
    at_most: float


def bound_share(n: int, n_seen: int) -> tuple[float, float]:
    """Bound the share of a class, of which ``n`` among ``n_seen`` works were seen (Wilson's interval).

    Example:
        >>> [round(bound, 2) for bound in bound_share(20, 100)]
        [0.11, 0.34]
        >>> bound_share(0, 0)
        (0.0, 1.0)
    """
    low, high = wilson_interval(n / n_seen, n_seen, _SIGMAS) if n_seen else (0.0, 1.0)
    return float(low), float(high)


def bound_candidates(n_wanted: int, n: int, n_seen: int) -> tuple[float, float]:
    """Bound how many candidates it takes to find so many works of a class, by those seen so far.

    Example:
        >>> [round(bound) for bound in bound_candidates(30, 20, 100)]
        [51, 481]
        >>> bound_candidates(30, 0, 0)
        (30, inf)
    """
    low, high = bound_share(n, n_seen)
    spread = math.sqrt(_SIGMAS**2 + 4 * n_wanted)  # a Poisson count, three standard deviations from its mean
    fewest, most = ((spread - _SIGMAS) / 2) ** 2 / high, ((spread + _SIGMAS) / 2) ** 2
    return max(n_wanted, fewest), most / low if low else math.inf


def highest_mean(values: Sequence[float]) -> float:
    """Return the upper bound of a mean, from a sample."""
    spread = stdev(values) if len(values) > 1 else max(values)
    return fmean(values) + _SIGMAS * spread / math.sqrt(len(values))


def describe_days(cost_usd: float, *, has_key: bool) -> str:
    """Say in how many days the daily budget allows a cost, with the key at hand or without one.

    Example:
        >>> describe_days(0.25, has_key=True)
        'a free key, with $1.00 a day, allows that in 1 day'
        >>> describe_days(0.25, has_key=False)
        'without a key, at $0.10 a day, that takes 3 days; a free key, with $1.00 a day, allows that in 1 day'
    """
    days = {per_day: max(1, math.ceil(cost_usd / per_day)) for per_day in (_FREE_KEY_USD_PER_DAY, _KEYLESS_USD_PER_DAY)}
    free, keyless = (f"{n:,} day{'s' * (n > 1)}" for n in days.values())
    with_key = f"a free key, with ${_FREE_KEY_USD_PER_DAY:.2f} a day, allows that in {free}"
    return (
        with_key
        if has_key
        else f"without a key, at ${_KEYLESS_USD_PER_DAY:.2f} a day, that takes {keyless}; {with_key}"
    )


def published_shares() -> dict[str, float]:
    """Return the share of each disruption label in the corpus that the estimate goes by."""
    shares: dict[str, float] = {}
    for label, _, _, share in DISRUPTION:
        shares[label] = round(shares.get(label, 0.0) + share, 3)
    return shares
