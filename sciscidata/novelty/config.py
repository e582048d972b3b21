"""The options of atypicality: null model, which pairs count, how z becomes a score. Known conventions in ``COMPAT``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_type_hints

import numpy as np

from sciscidata._support.short_repr import short_repr
from sciscidata._support.validate import conventional_options, is_whole
from sciscidata.errors import ConfigError

_MAX_SHUFFLES = 10_000  # n times a sum of squares stays below 2^63
_MAX_INT64 = np.iinfo(np.int64).max
_LIMITS = {"n_shuffles": (2, _MAX_SHUFFLES), "min_pairs": (1, _MAX_INT64), "max_references": (2, _MAX_INT64)}


#: The quantile over a work's pairs behind ``z_p10`` and ``commonness_p10``, whose names say 10. Thresholds of labels
#: stand in ``sciscidata/labels.py``.
LOW_QUANTILE: Final = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class NoveltyConfig:
    """The null model, which pairs count, and how z becomes a score.

    Attributes:
        null: ``"analytic"``: mean and variance of the null model in closed form, without any chance. ``"permutation"``:
            from ``n_shuffles`` seeded shuffles, as the literature does it; population standard deviation.
        n_shuffles: how many; 2 .. 10,000.
        seed: any whole number; the analytic null does not read it.
        unique_venues: count a venue once per work, however many references lead there, in the null model too; needs
            ``"permutation"``, because only the plain count has a closed form.
        same_venue_pairs: two references to one venue are a pair.
        unique_pairs: a venue pair gives a work one z, however many of its references form it; the counts that z is
            made of are not changed.
        undefined_pairs: a pair whose count cannot vary under the null model has no z. ``"drop"``: it is left out.
            ``"void"``: the works that hold it are undefined. ``"infinite"``: z is infinite where the count observed
            is another one than all shuffles gave, a work is undefined if one of its pairs is neither, and an infinite
            quantile is null; needs ``"permutation"``, because rounding would decide in the closed form.
        min_pairs: a work with fewer defined pairs is undefined.
        max_references: a work with more references of known year and venue is left out, of the null model too:
            the pairs of a bibliography grow with its square. None: no limit.
        venue_required: a work without a venue of its own is left out, of the null model too.
        years: first and last citing year, both included; works of other years are not looked at. None: all.
        score: ``"sigmoid"``: of z, clipped at ±8. ``"rank"``: among the scored works of the same year, 0 .. 1.

    Raises:
        ConfigError: on construction, if a value is not one of those named here, or two options contradict each other.

    Example:
        >>> NoveltyConfig(null="permutation", seed=7).n_shuffles
        10
        >>> NoveltyConfig.compat("sciscinet_v1", seed=7).unique_pairs
        True
    """

    null: Literal["analytic", "permutation"] = "analytic"
    n_shuffles: int = 10
    seed: int = 0
    unique_venues: bool = False
    same_venue_pairs: bool = True
    unique_pairs: bool = False
    undefined_pairs: Literal["drop", "void", "infinite"] = "drop"
    min_pairs: int = 1
    max_references: int | None = 1_000
    venue_required: bool = False
    years: tuple[int, int] | None = None
    score: Literal["sigmoid", "rank"] = "sigmoid"

    __repr__ = short_repr

    def __post_init__(self) -> None:
        problem = ""
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if not (is_whole(value) and low <= value <= high) and not (name == "max_references" and value is None):
                problem = f"{name} must be a whole number from {low} to {high:,}, got {value!r}."
        if not is_whole(self.seed):
            problem = f"seed must be a whole number, got {self.seed!r}."
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, type(allowed[0])) or value not in allowed:  # 1 equals True
                problem = f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}."
        if self.years is not None and not _is_span(self.years):
            problem = f"years must be (first, last), two whole numbers in this order, or None; got {self.years!r}."
        if not problem and self.null == "analytic":
            if self.unique_venues:
                problem = "unique_venues=True has no closed form; set null='permutation' too."
            elif self.undefined_pairs == "infinite":
                problem = "undefined_pairs='infinite' needs counts without rounding; set null='permutation' too."
        if problem:
            msg = f"NoveltyConfig: {problem}"
            raise ConfigError(msg)

    @classmethod
    def compat(cls, name: str, **changes: Any) -> NoveltyConfig:  # noqa: ANN401
        """Return the convention of another implementation, so that its published numbers can be reproduced.

        Its shuffles are drawn by other random numbers, so that values agree within the spread of shuffles only.

        Args:
            name: a key of ``COMPAT``.
            **changes: options to set differently, for example ``seed=1`` or ``n_shuffles=100``.

        Raises:
            ConfigError: immediately, if there is no such convention or option, and as NoveltyConfig.
        """
        return cls(**conventional_options(cls, COMPAT, name, changes))

    def null_model(self) -> dict[str, Any]:
        """Return the options that decide mean and standard deviation of a pair, and those only.

        Example:
            >>> NoveltyConfig(n_shuffles=50, min_pairs=3).null_model()["null"]  # n_shuffles is not read
            'analytic'
            >>> NoveltyConfig(min_pairs=3).null_model() == NoveltyConfig(seed=5).null_model()
            True
        """
        names = ["null", "same_venue_pairs", "max_references", "venue_required"]
        if self.null == "permutation":
            names += ["n_shuffles", "seed", "unique_venues"]
        return {name: getattr(self, name) for name in names}


def _is_span(years: Any) -> bool:  # noqa: ANN401
    whole = isinstance(years, tuple) and [is_whole(year) for year in years] == [True, True]
    return whole and years[0] <= years[1]


#: The values of every option that has but a few; a bool has no arguments.
_CHOICES = {
    name: get_args(hint) or (False, True)
    for name, hint in get_type_hints(NoveltyConfig).items()
    if name not in {*_LIMITS, "seed", "years"}
}

#: How other implementations differ from the default. All of them deal the venues of the cited works anew inside
#: (citing year, cited year), count every two references of a work, those to one venue included, take the population
#: standard deviation, and NumPy's linear quantiles 0.1 and 0.5. They differ in this:
#:
#: ===============  ========  ===============================  ====================  ====================  ============
#: preset           shuffles  quantiles of a work over         a pair without        works with more       citing works
#:                                                             spread                references            without venue
#: ===============  ========  ===============================  ====================  ====================  ============
#: sciscinet_v1     10        its distinct venue pairs         left out              than 1,000 left out   left out
#: pyscisci         10        every two references             ±inf; 0 / 0 voids     kept                  left out
#: novelpy          20        every two of 3 references or     voids the work        kept                  kept
#:                            more
#: (the default)    none      every two references             left out              than 1,000 left out   kept
#: ===============  ========  ===============================  ====================  ====================  ============
#:
#: What no option reproduces: SciSciNet counts journals only (set source_id of other works to null), and the works of
#: more than 1,000 references, which it does not count, still take part in its shuffles. pySciSci and novelpy count a
#: repeated reference twice and keep self-citations, and their diagonal is n², which gives the same z. novelpy also
#: counts references without a year in what is observed, though not in its shuffles: give all of them years. Where
#: two neighbours of a quantile are finite and infinite, pySciSci may report NaN by a quirk of numpy.percentile.
#: Checked against pyscisci 0.92 on 28,804 references between works of real journals: all 42,474 counts agree, and
#: given its z all 2,968 quantiles 0.1 and 2,919 medians that it finds finite, and no others. sciscinet_v1 follows its
#: notebook and is not compared with a published value: that needs the reference lists of all MAG works of a year.
#: There is no preset of Uzzi et al. 2013 itself: what we could read of it leaves open whether a pair that a work holds
#: several times counts several times in its quantiles.
COMPAT: dict[str, dict[str, Any]] = {
    # Lin et al. 2023, notebook MAG-Atyp-Comb of kellogg-cssi/SciSciNet; columns Atyp_10pct_Z, Atyp_Median_Z.
    "sciscinet_v1": {"null": "permutation", "n_shuffles": 10, "unique_pairs": True, "venue_required": True},
    # novelty_conventionality of pyscisci 0.92.
    "pyscisci": {
        "null": "permutation",
        "n_shuffles": 10,
        "undefined_pairs": "infinite",
        "max_references": None,
        "venue_required": True,
    },
    # Uzzi2013 of novelpy 1.4. Three references have three pairs, two have one.
    "novelpy": {
        "null": "permutation",
        "n_shuffles": 20,
        "undefined_pairs": "void",
        "min_pairs": 2,
        "max_references": None,
    },
}
