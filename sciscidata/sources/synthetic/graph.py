"""The structure of the synthetic world: years, fields, hidden kinds and citations.

Works are numbered 0..n-1 by (year, field, rank), and a work cites only lower numbers: index order is time order.
Every choice compares integers from a counter-based generator, so the world is the same on every machine.
"""

from __future__ import annotations

import itertools
import logging
import operator
from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import Int32Array, Int64Array
from sciscidata._kernels.random import below, draw, stream_key
from sciscidata.sources.synthetic._kernels import DEVELOPING, DISRUPTIVE, EVEN, Layout, Picks, fill_lists
from sciscidata.sources.synthetic.config import SyntheticConfig
from sciscidata.sources.synthetic.words import FIELD_WEIGHTS

_log = logging.getLogger(__name__)


#: Reference-list lengths at 64 equal steps of a log-normal distribution, scaled to a mean of 1,024. Sigma is 0.8, the
#: ends are at 0.2 % and 99.93 %. Pinned, because exp() may differ in its last bit between platforms.
_LENGTHS = np.array([
    73, 130, 164, 191, 214, 235, 254, 273, 291, 308, 325, 342, 359, 376, 392, 409, 426, 442, 459, 476, 494, 511,
    529, 547, 566, 585, 604, 624, 644, 664, 686, 708, 730, 753, 777, 802, 828, 855, 883, 912, 942, 974, 1007,
    1042, 1079, 1119, 1160, 1205, 1252, 1303, 1359, 1419, 1484, 1557, 1638, 1729, 1832, 1953, 2095, 2270, 2491,
    2790, 3240, 4090, 9403
], dtype=np.int64)  # fmt: skip

#: How often a reference is 0, 1, 2, ... years old when picked, per 10,000. Copied references are older.
_AGES = np.array([
    569, 1539, 1539, 1282, 1014, 791, 617, 484, 382, 304, 245, 198, 161, 133, 110, 91, 76, 64, 54, 46, 40, 34,
    29, 25, 22, 19, 17, 15, 13, 11, 10, 9, 8, 7, 6, 6, 5, 4, 4, 4, 3, 3, 3, 2, 2
], dtype=np.int64)  # fmt: skip


class ReferenceLists(NamedTuple):
    """Work w cites ``references[offsets[w]:offsets[w + 1]]``: lower numbers, unordered."""

    offsets: Int64Array
    references: Int32Array


def lay_out(config: SyntheticConfig) -> Layout:
    """Choose year, field, hidden kind and length of the reference list of every work."""
    works = np.arange(config.n_works)
    n_years = config.last_year - config.first_year + 1
    year = _years(config.n_works, n_years, config.growth_per_year)
    field = _fields(year, n_years, config.seed)

    disruptive, developing = (_of_million(share) for share in (config.disruptive_share, config.developing_share))
    fate = below(draw(stream_key(config.seed, "synthetic/kind"), works), 1_000_000)
    kind = np.where(fate < disruptive, DISRUPTIVE, np.where(fate < disruptive + developing, DEVELOPING, EVEN))

    n_wanted = _list_lengths(works, config.mean_references, config.seed)
    fate = below(draw(stream_key(config.seed, "synthetic/no-references"), works), 1_000_000)
    n_wanted[fate < _of_million(config.no_references_share)] = 0
    return Layout(year, field, kind.astype(np.int32), n_wanted)


def pick_references(layout: Layout, seed: int) -> ReferenceLists:
    """Choose the references of every work, in time order; lists of the first years stay short."""
    n_fields = len(FIELD_WEIGHTS)
    cells = layout.year.astype(np.int64) * n_fields + layout.field
    cell_starts = np.searchsorted(cells, np.arange((layout.year[-1] + 1) * n_fields + 1))
    ends = np.cumsum(_AGES), np.cumsum(np.array(FIELD_WEIGHTS, np.int64))
    key = stream_key(seed, "synthetic/references")
    offsets, references = fill_lists(key, layout, Picks(cell_starts, n_fields, *ends))
    _log.debug("grew a synthetic world of %d works and %d citations", len(layout.year), len(references))
    return ReferenceLists(offsets, references)


def _of_million(share: float) -> int:
    return round(share * 1_000_000)


def _years(n_works: int, n_years: int, growth: float) -> Int32Array:
    # Neither pow() nor sum(): the first may differ in its last bit between platforms, the second between Pythons.
    volumes = itertools.accumulate(itertools.repeat(1.0 + growth, n_years - 1), operator.mul, initial=1.0)
    so_far = list(itertools.accumulate(volumes))
    ends = [int(volume / so_far[-1] * n_works) for volume in so_far]
    return np.repeat(np.arange(n_years, dtype=np.int32), np.diff([0, *ends]))


def _fields(year: Int32Array, n_years: int, seed: int) -> Int32Array:
    """Distribute each year's works over the fields in proportion, ascending, with a random start for the rounding."""
    weights = np.array(FIELD_WEIGHTS, np.int64)
    size = np.bincount(year, minlength=n_years)
    place = np.arange(len(year)) - (np.cumsum(size) - size)[year]
    start = below(draw(stream_key(seed, "synthetic/field"), np.arange(n_years)), 2**32)
    point = ((place << 32) + start[year]) // size[year]  # of 2^32
    edges = (np.cumsum(weights) << 32) // weights.sum()
    return np.searchsorted(edges, point, side="right").astype(np.int32)


def _list_lengths(works: Int64Array, mean: float, seed: int) -> Int64Array:
    """Draw list lengths >= 1 by inverting the pinned distribution, linear between its knots."""
    point = below(draw(stream_key(seed, "synthetic/list-length"), works), 64 << 16)
    knot, part = point >> 16, point & 0xFFFF
    relative = _LENGTHS[knot] + (((_LENGTHS[knot + 1] - _LENGTHS[knot]) * part) >> 16)  # mean 1,024
    return np.maximum(1, (relative * round(mean * 1024) + (1 << 19)) >> 20)
