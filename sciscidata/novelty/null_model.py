"""The null model of atypicality, in closed form and by shuffles.

Within every cell (citing year, cited year) the venues are dealt to the slots anew. Each work keeps its references and
their ages, and each venue its citations. benchmarks/notes/atypicality.md derives the closed form, in the symbols that
are used here. The mean is exact. In the variance, two terms are a bound and a product in place of sums over four
shares. In sum over the pairs of nine years in ten, the result lies within 1 % of 2,000 shuffles. It does not where a
few venues dominate (see venue_concentration). Where they cancel all the rest, or nothing else shows that the count can
vary, the exact sum is taken. A variance of zero leaves z undefined.

Source: Uzzi, Mukherjee, Stringer & Jones 2013, doi:10.1126/science.1240474.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import groupby, pairwise, permutations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sciscidata._kernels.arrays import Float64Array, Int32Array, Int64Array
from sciscidata._support.parallel import run_all
from sciscidata.novelty.shapes import Cells, Slots
from sciscidata.novelty.venue_pairs import group, tally_for, with_rows_of

if TYPE_CHECKING:
    from sciscidata.novelty._moment_kernels import Strata, Sums
    from sciscidata.novelty.config import NoveltyConfig

Moments: TypeAlias = Callable[[Cells], tuple[Float64Array, Float64Array]]

_ROUNDING = 1e-12  # of what a difference is taken from: no more than this is nothing
_NUMBERS_AT_ONCE = 2**18  # in a table of venues and strata, so that many of them fit into a cache
_YEAR_ZERO = 2**31  # years may be negative, counters not

#: From this concentration on, the closed form's variances may be off by over 2 % in sum over a year. Labels are not:
#: in five real sets, fewer differed from those of 300 shuffles (0 to 5 %) than between two times 300 shuffles, in such
#: years and in all others. So it is said, and no warning.
DOMINATED = 0.2
_LISTED = 12


def pair_moments(slots: Slots, year: int, config: NoveltyConfig, n_threads: int = 1) -> Moments:
    """Return a function from cells to mean and standard deviation of their counts; NaN where a count cannot vary.

    Cells may come in parts of their rows with ``null="analytic"``.
    """
    if config.null == "analytic":
        return analytic_moments(slots, n_threads)
    return partial(permutation_moments, slots, year=year, config=config)


def venue_concentration(slots: Slots) -> float:
    """Return the chance that two slots of one stratum hold the same venue: 0 many or no such slots, 1 a single one."""
    same, n_slots = 0.0, 0
    for first, last in pairwise(slots.stratum_starts.tolist()):
        if last - first > 1:
            n_each = np.bincount(slots.venues[slots.by_stratum[first:last]]).astype(np.int64)
            same += int((n_each * (n_each - 1)).sum()) / (last - first - 1)
            n_slots += last - first
    return same / n_slots if n_slots else 0.0


def remark_on_concentration(concentrations: Mapping[int, float] | Mapping[str, float]) -> list[str]:
    """Name the years in which few venues dominate, where the closed form is less exact; empty if there are none."""
    years = sorted(int(year) for year, share in concentrations.items() if share >= DOMINATED)
    if not years:
        return []
    spans = [[year for _, year in span] for _, span in groupby(enumerate(years), key=lambda at: at[1] - at[0])]
    listed = ", ".join(f"{span[0]}-{span[-1]}" if span[1:] else str(span[0]) for span in spans[:_LISTED])
    listed += ", ..." * (len(spans) > _LISTED)
    return [
        f"few venues dominate the references of {len(years)} of {len(concentrations)} years ({listed}): the z of a "
        "single venue pair is less exact there. In five real sets labels agreed with those of shuffles as often as in "
        "other years. To compare: NoveltyConfig.null='permutation', NoveltyConfig.n_shuffles=1000."
    ]


def permutation_moments(
    slots: Slots, cells: Cells, year: int, config: NoveltyConfig
) -> tuple[Float64Array, Float64Array]:
    """Count the cells' pairs in every shuffle; sums and squares are whole numbers, so they are exact.

    Squares may pass 2^63 and wrap. The difference below undoes it, while n times a deviation < 2^31.5.
    """
    from sciscidata.novelty import _pair_kernels as kernels

    sums, squares = np.zeros((2, cells.observed.size), np.int64)
    for n in range(config.n_shuffles):
        dealt = shuffled(slots, year, config.seed, n)
        groups = group(slots.offsets, dealt, slots.n_venues, unique_venues=config.unique_venues)
        tally = tally_for(groups)
        kernels.add_shuffle(with_rows_of(cells, groups), cells, config.same_venue_pairs, tally, (sums, squares))
    n = config.n_shuffles
    spread = n * squares - sums * sums
    mean = (n * cells.observed.astype(np.int64) + sums) / n
    return mean, np.where(spread > 0, np.sqrt(spread) / n, np.nan)


def shuffled(slots: Slots, year: int, seed: int, n: int) -> Int32Array:
    """Return the venues of all slots after shuffle ``n``, a function of (seed, n, citing year, cited year)."""
    from sciscidata._kernels.random import draw, stream_key
    from sciscidata.novelty import _pair_kernels as kernels

    per_shuffle = draw(stream_key(seed, "novelty/shuffle"), np.array([n]))
    key = draw(per_shuffle, np.array([year + _YEAR_ZERO]))[0]
    dealt = np.empty_like(slots.venues)
    kernels.shuffle_cells(key, slots.strata_years + _YEAR_ZERO, slots, dealt)
    return dealt


def analytic_moments(slots: Slots, n_threads: int = 1) -> Moments:
    """Return a function from cells to mean and standard deviation of their counts; NaN where a count cannot vary."""
    from sciscidata.novelty import _moment_kernels as kernels

    starts = slots.stratum_starts
    size = np.diff(starts).astype(np.float64)
    n, n_venues = size.size, slots.n_venues
    two, three = np.zeros((n, n)), np.zeros((n, n, n))
    kernels.add_co_occurrence(slots.offsets, slots.strata, np.zeros(n), np.empty(n, np.int32), two, three)
    two = np.maximum(two, two.T)  # whole numbers in one corner, zeros elsewhere
    three = reduce(np.maximum, (three.transpose(order) for order in permutations(range(3))))
    in_strata = np.bincount(slots.venues.astype(np.int64) * n + slots.strata, minlength=n_venues * n)
    shares = in_strata.reshape(n_venues, n) / size
    del in_strata
    own = np.diag(two) - size  # ordered pairs of slots of one work within a stratum
    pairs = two - np.diag(size)
    expected = pairs.copy()
    np.fill_diagonal(expected, own * size / np.maximum(size - 1, 1))
    weights, within = _quadratic_weights(pairs, two, three, size)
    strata = kernels.Strata(size, two, three, expected, weights, np.stack([own, within], axis=1))
    # Sums by cumsum and bincount go from the first to the last, on every machine.
    margin = weights.cumsum(axis=1)[:, -1]
    n_holders = np.count_nonzero(shares, axis=0)
    begins = np.concatenate([[0], np.cumsum(np.count_nonzero(shares, axis=1))])
    parts, of_partner = np.zeros((n_venues, n)), np.empty((n_venues, n, 4))
    of_row, support = np.empty((begins[-1], 4)), np.empty(begins[-1], np.uint32)  # of the strata that a venue has
    of_one, is_sure = np.empty((2, n_venues)), np.empty(n_venues, bool)

    def fill(first: int) -> None:
        """Fill the tables of some venues."""
        rows = slice(first, min(first + step, n_venues))
        x, table = shares[rows], of_partner[rows]
        zeros: Float64Array = np.zeros((3, *x.shape))
        means, joint, own_parts = zeros
        sums = kernels.Sums(means, joint, parts[rows], own_parts)
        kernels.add_sums_over_strata(x, strata, sums, np.empty((2, n)), np.empty(n, np.int64))
        table[:, :, 0], table[:, :, 1] = means, parts[rows] + joint
        table[:, :, 2], table[:, :, 3] = x * np.sqrt(parts[rows]), x * np.sqrt(margin)
        there = np.nonzero(x)
        places = slice(begins[rows.start], begins[rows.stop])
        support[places] = there[1]
        of_row[places] = table[there]
        of_row[places, 0] = some = x[there]
        of_row[places, 1] = some * (1 - some)
        of_one[:, rows] = _moments_of_one(there, x, strata, sums)
        # Three or more venues hold each of its strata, so no pair fills one.
        is_sure[rows] = np.bincount(there[0], n_holders[there[1]] <= 2, minlength=means.shape[0]) == 0

    step = max(1, _NUMBERS_AT_ONCE // n)
    run_all(fill, range(0, n_venues, step), n_threads)
    total = margin.cumsum()[-1]
    tables = kernels.Shortcut(of_partner, of_row, support, begins, shares, parts, size, is_sure, total)

    def moments(cells: Cells) -> tuple[Float64Array, Float64Array]:
        mean, deviation = np.empty((2, cells.observed.size))
        cursor, tile = cells.starts[:-1].copy(), max(1, kernels.TILE_BYTES // (32 * n))
        if tile * cells.partners.size < 3 * cursor.size * n_venues:  # so few cells a row that fetching it costs more
            tile *= 4
        kernels.moments_of_cells(cells, tables, tile, cursor, mean, deviation)
        firsts = cells.starts[:-1][np.diff(cells.starts) > 0]  # partners ascend, so that of a venue itself comes first
        venues = cells.first + np.flatnonzero(np.diff(cells.starts))
        is_own = cells.partners[firsts] == venues
        mean[firsts[is_own]], deviation[firsts[is_own]] = of_one[:, venues[is_own]]
        if (deviation <= 0).any():  # rare, so this loop is seldom compiled
            kernels.settle_doubts(cells, strata, shares, parts, deviation)
        return mean, deviation

    return moments


def _moments_of_one(
    there: tuple[Int64Array, ...], shares: Float64Array, strata: Strata, sums: Sums
) -> tuple[Float64Array, Float64Array]:
    """Return mean and deviation of how often two slots of one work hold the same venue, from the venue's strata.

    ``there`` are venues, ascending, and strata of each share above 0.
    """
    venues, of = there
    x, size, (own, squared) = shares[there], strata.sizes[of], strata.within[of].T
    own_weights = np.diag(strata.weights)[of]
    means, joint, own_parts = sums.means[there], sums.joint[there], sums.own_parts[there]
    variance = x * (1 - x)
    m = np.floor(x * size + 0.5)
    inside = np.where(size > 1, m * (m - 1) / (size * np.maximum(size - 1, 1)), 0)
    # means holds W' with n / (n - 1) on the diagonal, right for a != b: replace that part.
    terms = 0.5 * (x * means + own * (inside - x * x * size / np.maximum(size - 1, 1)))
    mean: Any = np.bincount(venues, terms)  # floats, whatever its annotation says
    others = joint - own_weights * variance
    # The squared norm of the centred matrix [both hold the venue], divided by n (n - 3).
    n = np.maximum(size, 4)
    square = m * (m - 1) * (1 - 2 * (m - 1) / (n - 2) + m * (m - 1) / ((n - 1) * (n - 2))) / (n * (n - 3))
    square = np.where((size < 4) | (size - m < 2), 0, square)  # the factor of m - 1 is exact as it is
    terms = [
        own_parts * variance,
        np.where(others > _ROUNDING * joint, 0.5 * variance * others, 0),
        0.5 * squared * square,
    ]
    positive = np.bincount(np.repeat(venues, 3), np.stack(terms, axis=1).ravel())
    return mean, np.where(positive > 0, np.sqrt(np.maximum(positive, 0)), np.nan)


def _quadratic_weights(
    pairs: Float64Array, two: Float64Array, three: Float64Array, size: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return V, and for its diagonal the plain squared norms of the centred matrices [slots in one work]."""
    mixed = np.einsum("cdd->cd", three)  # sum over works of k_c k_d^2
    across = pairs - mixed / size - mixed.T / size[:, None] + pairs * pairs / np.outer(size, size)
    across[across < 1e-12 * pairs] = 0  # nothing but rounding
    factor = np.where(size > 1, size / np.maximum(size - 1, 1), 0)
    weights = across * np.outer(factor, factor)
    own = np.diag(pairs)
    row_squares = np.diag(mixed) - 2 * np.diag(two) + size  # sum over slots of (k - 1)^2
    within = own - 2 * row_squares / np.maximum(size - 2, 1) + own * own / np.maximum((size - 1) * (size - 2), 1)
    within = np.where((size > 3) & (within > 1e-12 * own), within, 0)
    np.fill_diagonal(weights, within * size / np.maximum(size - 3, 1))
    return weights, within
