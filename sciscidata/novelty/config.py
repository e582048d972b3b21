"""The options of atypicality: null model, which pairs count, how z becomes a score. Known conventions in ``COMPAT``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

from sciscidata.errors import ConfigError
from sciscidata.options.checks import Conventional

#: The quantile over a work's pairs behind ``z_p10`` and ``commonness_p10``, whose names say 10. Thresholds of labels
#: stand in ``sciscidata/label_thresholds.py``.
LOW_QUANTILE: Final = 0.1


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class NoveltyConfig(Conventional):
    """The null model, which pairs count, and how z becomes a score.

    Attributes:
        null: where mean and variance of a pair come from. ``"analytic"``: a closed form, without chance.
            ``"permutation"``: ``n_shuffles`` seeded shuffles, as in the literature; population standard deviation.
        n_shuffles: number of shuffles, 2 to 10,000; read with ``null="permutation"``.
        seed: seed of the shuffles; read with ``null="permutation"``.
        unique_venues: count a venue once per work, however many references lead there. The null model does so too, and
            needs ``"permutation"``, because only the plain count has a closed form.
        same_venue_pairs: two references to one venue are a pair.
        unique_pairs: a venue pair gives a work one z, however many of its references form it. The counts behind z do
            not change.
        undefined_pairs: what a pair does whose count cannot vary under the null model, so that it has no z. ``"drop"``:
            it is left out. ``"void"``: its works are undefined. ``"infinite"``: z is infinite where the count observed
            differs from that of all shuffles. A work is undefined if one of its pairs is neither, and an infinite
            quantile is null. It needs ``"permutation"``, because rounding would decide in the closed form.
        min_pairs: fewest defined pairs of a work; with fewer it is undefined.
        max_references: most references of known year and venue of a work. With more it is left out of the null model
            too, because pairs grow with the square. None: no limit.
        venue_required: leave out works without a venue of their own, in the null model too.
        years: first and last citing year, both included; works of other years are not read. None: all.
        score: how z becomes a score from 0 to 1. ``"sigmoid"``: of z, clipped at ±8. ``"rank"``: among the scored works
            of the same year.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or two options contradict each other.

    Example:
        >>> NoveltyConfig(null="permutation", seed=7).n_shuffles
        10
        >>> NoveltyConfig.compat("sciscinet_v1", seed=7).unique_pairs
        True
    """

    null: Literal["analytic", "permutation"] = "analytic"
    n_shuffles: Annotated[int, msgspec.Meta(ge=2, le=10_000)] = 10  # n times a sum of squares stays below 2^63
    seed: int = 0
    unique_venues: bool = False
    same_venue_pairs: bool = True
    unique_pairs: bool = False
    undefined_pairs: Literal["drop", "void", "infinite"] = "drop"
    min_pairs: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = 1
    max_references: Annotated[int, msgspec.Meta(ge=2, le=2**63 - 1)] | None = 1_000
    venue_required: bool = False
    years: tuple[int, int] | None = None
    score: Literal["sigmoid", "rank"] = "sigmoid"

    def _check(self) -> None:
        problem = ""
        if self.years is not None and self.years[0] > self.years[1]:
            problem = f"NoveltyConfig.years is {self.years}, needs the first year before the last. Swap them."
        elif self.null == "analytic" and self.unique_venues:
            problem = "NoveltyConfig.unique_venues=True has no closed form. Set NoveltyConfig.null='permutation' too."
        elif self.null == "analytic" and self.undefined_pairs == "infinite":
            problem = (
                "NoveltyConfig.undefined_pairs='infinite' needs counts without rounding. Set "
                "NoveltyConfig.null='permutation' too."
            )
        if problem:
            raise ConfigError(problem)

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


#: How other implementations differ from the default; docs/measures/atypicality_method.md compares them. Our shuffles
#: are drawn by other random numbers, so values agree within the spread of shuffles only.
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
NoveltyConfig.conventions = COMPAT
