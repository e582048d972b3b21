"""What novelty labels works of a corpus have before their own references are redrawn: the prior of their confidence."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np

from sciscidata._kernels.arrays import Float64Array, Int64Array
from sciscidata._support.prior import Prior
from sciscidata.errors import ConfigError
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.options.checks import show_value

logger = logging.getLogger(__name__)

FEWEST_WORKS: Final = 100  # a smaller class takes the shares of all, fewer works of all the shipped prior
_LARGEST: Final = np.array([2, 5, 10, 30])  # numbers of references that end a class
_N_CLASSES: Final = _LARGEST.size + 1
_STEPS: Final = 40  # which halve the interval of the weight


@dataclass(frozen=True, kw_only=True, slots=True)
class NoveltyPrior(Prior):
    """The shares of the novelty labels by number of references, and how much the own list of a work counts beside them.

    ``shares`` has five rows, for up to 2, 5, 10, 30 and more references with a venue: the shares of novel, balanced and
    conventional works. A list of ten references counts ``of_ten`` (0 to 1), and one of n counts n^2 / (n^2 + a).
    ``works`` is the number of labelled works behind it. ``conventionality_cut`` is the median z_median of all works, by
    which Uzzi's rule labels; None by the margin rule.
    """

    made_by: ClassVar[str] = "find_novelty_prior"
    of_ten: float
    shares: tuple[tuple[float, float, float], ...]
    works: int
    conventionality_cut: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no prior can be."""
        rows = [(sum(row), min(row)) for row in self.shares if len(row) == 3]
        if len(rows) != _N_CLASSES or not all(abs(total - 1) < 1e-6 and least >= 0 for total, least in rows):
            raise ConfigError(
                f"NoveltyPrior.shares is {show_value(self.shares)}, needs {_N_CLASSES} rows of three shares that sum "
                "to 1. Make it with find_novelty_prior."
            )
        if not 0 <= self.of_ten <= 1:
            raise ConfigError(f"NoveltyPrior.of_ten is {self.of_ten!r}, needs 0 to 1. Make it with find_novelty_prior.")

    def mix(self, chances: Float64Array, sizes: Int64Array) -> Float64Array:
        """Mix the chances of redrawn lists of some sizes with the shares."""
        weight = weigh(sizes, self.of_ten)[:, None]
        return weight * chances + (1 - weight) * np.array(self.shares)[np.searchsorted(_LARGEST, sizes)]


class Halves(NamedTuple):
    """One half of each list: its size, the label of the other half, and how likely its redraws have that."""

    sizes: Int64Array
    label: Int64Array
    said: Float64Array


#: By rule. Estimated in November 2026: the mean of those of handball, the example of the package and five fields of the
#: Web of Science. `python benchmarks/label_prior.py` makes them.
SHIPPED: Final = {
    "margin": NoveltyPrior(
        of_ten=0.622,
        shares=(
            (0.089, 0.073, 0.838),
            (0.081, 0.127, 0.792),
            (0.057, 0.134, 0.809),
            (0.033, 0.126, 0.841),
            (0.057, 0.113, 0.83),
        ),
        works=38675,
    ),
    "uzzi": NoveltyPrior(
        of_ten=0.677,
        shares=(
            (0.117, 0.423, 0.46),
            (0.229, 0.355, 0.416),
            (0.259, 0.303, 0.438),
            (0.218, 0.271, 0.511),
            (0.201, 0.299, 0.5),
        ),
        works=38675,
        conventionality_cut=4.05,
    ),
}


def choose_novelty_prior(
    prior: NoveltyPrior | None, rule: LabelThresholds, own: Int64Array, sizes: Int64Array, halves: Halves
) -> NoveltyPrior:
    """Return the prior that is given, else that of all works, or with a warning the shipped one if these are few."""
    if prior is not None:
        return prior
    known = own >= 0
    works = np.count_nonzero(known)
    if works >= FEWEST_WORKS:
        return fit_novelty_prior(own[known], sizes[known], halves, None)
    if works:
        logger.warning(
            "these %d works with a novelty label are too few to say how sure it is (needs %d): the prior is taken from "
            "the shipped one, of other works. Give prior=find_novelty_prior(all works, all citations)",
            works,
            FEWEST_WORKS,
        )
    return SHIPPED[rule.novelty_rule]


def fit_novelty_prior(own: Int64Array, sizes: Int64Array, halves: Halves, cut: float | None) -> NoveltyPrior:
    """Return the prior that labels of lists of some sizes, and of their halves, say."""
    of_halves = _shares(halves.label, halves.sizes)[np.searchsorted(_LARGEST, halves.sizes), halves.label]
    shares = tuple((novel, balanced, usual) for novel, balanced, usual in _shares(own, sizes).tolist())
    of_ten = find_weight(halves.said, of_halves, halves.sizes)
    return NoveltyPrior(of_ten=of_ten, shares=shares, works=own.size, conventionality_cut=cut)


def _shares(labels: Int64Array, sizes: Int64Array) -> Float64Array:
    """Return the shares of the labels by number of references."""
    kind = np.searchsorted(_LARGEST, sizes)
    shares = np.empty((_N_CLASSES, 3))
    for k in range(_N_CLASSES):
        some = labels[kind == k] if np.count_nonzero(kind == k) >= FEWEST_WORKS else labels
        shares[k] = np.bincount(some, minlength=3) / max(some.size, 1)
    return shares


def weigh(sizes: Int64Array, of_ten: float) -> Float64Array:
    """Return n^2 / (n^2 + a): pairs grow with the square. ``of_ten`` is the weight of ten references."""
    pairs = sizes.astype(np.float64) ** 2 * of_ten
    return pairs / (pairs + 100 * (1 - of_ten))


def find_weight(said: Float64Array, share: Float64Array, sizes: Int64Array) -> float:
    """Return the weight of ten references that makes labels most likely, with the chances ``said`` and ``share``."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        of_ten = (low + high) / 2
        weight = weigh(sizes, of_ten)
        slope = (said - share) / np.maximum(weight * said + (1 - weight) * share, 1e-12) * weight * (1 - weight)
        # A sum from the first to the last has the same bits on every machine.
        if np.bincount(np.zeros(slope.size, np.int64), slope, 1)[0] > 0:
            low = of_ten
        else:
            high = of_ten
    return low
