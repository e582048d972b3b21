"""First-time venue pairs (Wang et al. 2017): which works join venues for the first time, and are followed in it?

A work joins two different venues if it cites works of both. A pair is new if no work of an earlier year joined it. Its
co-citation profile counts, for every other venue, the works that joined it with the venue in the years before.

Source: Wang, Veugelers & Stephan 2017, Research Policy 46(8):1416-1436, doi:10.1016/j.respol.2017.06.006. The windows
and the least cited half are those that novelpy 1.4 ascribes to the paper. docs/measures/wang.md says where scores
differ from novelpy's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import polars as pl

from sciscidata._kernels.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from sciscidata._support.parallel import map_in_order, run_all
from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame
from sciscidata.graph.graph import CitationGraph
from sciscidata.novelty import venue_pairs as pairs
from sciscidata.novelty.shapes import Cells, Groups, History
from sciscidata.options.checks import Configuration, PositiveInt, check_threads, checked_config
from sciscidata.records.last_year_of_data import find_last_year
from sciscidata.schemas import WANG_NOVELTY
from sciscidata.terminal.progress import progress_bar


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class WangConfig(Configuration):
    """What is new, what counts, and which years can tell.

    Attributes:
        past_years: years before in which no work may have joined a new pair. None: any earlier year.
        profile_years: years before that make the co-citation profiles and the citations of venues.
        reuse_years: years after in which the pair must be joined again. None: no such condition.
        min_reuses: fewest works that must join it again.
        drop_least_cited: the quantile, linearly interpolated, of the references that venues cited in the profile years
            have. Venues with fewer join no new pair. Ties are kept. With few venues it drops another share than it
            says: 0.25 drops one of three. 0.5 is novelpy's, for the paper: rare venues are easily new. 0: none.
        burn_in_years: first years of the data that are undefined, because all pairs look new there; at least past_years
            and profile_years. Ten years are few. In a synthetic corpus of 45 years, 76 % of the works then have a pair
            that counts. After 30 years, 51 % do. Compare works within a year.
        first_year: first year of which the data is complete. None: the first with a pair of venues.
        last_year: last such year; a work is undefined if its reuse window ends later. None: the last with a pair, but
            for mistaken dates in the future (``last_year_of_data.find_last_year``).
        max_references: most references of known year and venue of a work. With more it is left out of the past and
            future too. None: no limit.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or ``burn_in_years`` is too short.

    Example:
        >>> WangConfig(reuse_years=None).burn_in_years
        10
    """

    past_years: PositiveInt | None = None
    profile_years: PositiveInt = 3
    reuse_years: PositiveInt | None = 3
    min_reuses: PositiveInt = 1
    drop_least_cited: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.5
    burn_in_years: PositiveInt = 10
    first_year: Annotated[int, msgspec.Meta(ge=-(2**31))] | None = None
    last_year: Annotated[int, msgspec.Meta(ge=-(2**31))] | None = None
    max_references: Annotated[int, msgspec.Meta(ge=2)] | None = 1_000

    def _check(self) -> None:
        longest = max(self.profile_years, self.past_years or 0)
        if self.burn_in_years < longest:
            raise ConfigError(
                f"WangConfig.burn_in_years is {self.burn_in_years}, needs at least {longest}, as long as past_years "
                f"and profile_years look back. Set burn_in_years={longest}, or look back less far."
            )


def compute_wang_novelty(
    works: AnyFrame,
    citations: AnyFrame,
    config: WangConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work by the venue pairs that it makes for the first time (Wang, Veugelers & Stephan 2017).

    A pair of venues counts if it is new, later works reuse it, and both venues are cited enough. Both also need a
    co-citation profile: works of the profile years joined them with some venue. Its difficulty is 1 - cosine of the two
    profiles. Works of one year that make the same new pair all get it. They are no reuse of each other.

    Limits: a pair may be older than the data. So the share of new pairs falls as history grows (left censoring). A pair
    may be new because a venue is new or renamed. References without a venue are missing. The reuse condition looks into
    the future: the score is known only ``reuse_years`` later. Do not predict impact with it. Works with long reference
    lists and growing fields have more new pairs. Most works score 0.

    Args:
        works: WORKS; only work_id, publication_year and source_id are read.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        config: windows and conditions; ``WangConfig()`` when None.
        cache_dir: keep the graph here for later runs.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The result does not depend on it.

    Returns:
        WANG_NOVELTY, one row per work, unordered. n_new_pairs: Int64, the new pairs that count, each once.
        wang_novelty: Float64, the sum of their difficulties (each 0 .. 1); high is novel. Both are 0 for a work with
        pairs if they do not count. Both are null for a work without a year, without two different venues or with too
        many references. They are null in the first ``burn_in_years``, and in years without a pair in the profile years
        (a gap in the data). So are they where ``reuse_years`` reach beyond the last year.

    Raises:
        ConfigError, SchemaMismatchError, WorkIdError, EmptyInputError: as ``compute_cd_index``.

    Source: Wang, Veugelers & Stephan 2017, doi:10.1016/j.respol.2017.06.006.

    Example:
        In 1999 work 5 joins venues 7 and 9, and work 6 joins 8, 9 and 10. Work 7 is the first to join 7 and 8.

        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5, 6, 7, 8], "source_id": [7, 8, 9, 10] + 4 * [None],
        ...     "publication_year": 4 * [1990] + [1999, 1999, 2000, 2001]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [5, 5, 6, 6, 6, 7, 7, 8, 8],
        ...     "cited_id": [1, 3, 2, 3, 4, 1, 2, 1, 2]})
        >>> config = WangConfig(profile_years=1, reuse_years=1, drop_least_cited=0, burn_in_years=1)
        >>> compute_wang_novelty(works, citations, config).filter(pl.col("work_id") == 7).collect().row(0)
        (7, 1, 0.29289321881345254)
    """
    check_threads(n_threads)
    score = partial(_score, config=checked_config(config, WangConfig), n_threads=n_threads or pl.thread_pool_size())
    corpus = pairs.require_corpus(works, citations, "compute_wang_novelty")
    return pairs.defer_scores(score, WANG_NOVELTY, corpus, cache_dir)


def _score(graph: CitationGraph, venues: Int32Array, config: WangConfig, n_threads: int) -> pl.DataFrame:
    """Hold the pairs of the years in reach of one year's windows, and every pair that occurred so far, once."""
    from sciscidata.novelty import _per_work_kernels as kernels

    lists = pairs.references_of(graph, venues)
    years = graph.years.astype(np.int64)
    n_venues = int(venues.max(initial=-1)) + 1
    n_new, novelty = np.zeros(graph.n_dated, np.int64), np.full(graph.n_dated, np.nan)
    history = History(np.zeros(n_venues + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
    first_year, last_year = config.first_year, config.last_year
    with_pair: dict[int, int] = {}
    ends = graph.ref_offsets[graph.year_offsets]

    def read(j: int) -> _Year:
        slots = pairs.year_slots(graph, lists, j, config.max_references, np.zeros(graph.n_dated, np.bool_))
        numbers = slots.venue_numbers[slots.venues]  # of the graph, the same in all years
        groups = pairs.group(slots.offsets, numbers, n_venues, unique_venues=True)
        cells = pairs.observe(groups, same_venue_pairs=False)
        table = cells._replace(
            partners=cells.partners.copy(), observed=cells.observed.copy()
        )  # without the room for what repeats
        return _Year(table, groups, np.bincount(numbers, minlength=n_venues))

    with (
        progress_bar("first-time pairs", float(ends[-1]), unit="references") as advance,
        closing(map_in_order(read, range(years.size), n_threads, n_held=n_threads)) as ahead,
    ):
        for j, window in _windows(years, config, ahead):
            year = window[j]
            since = 0 if config.past_years is None else int(np.searchsorted(years, years[j] - config.past_years))
            is_new, history = kernels.join_history(year.table, j, since, history)
            if year.table.partners.size:
                with_pair[int(years[j])] = int(np.count_nonzero(np.diff(year.groups.offsets) > 1))
                first_year = int(years[j]) if first_year is None else first_year
            since_profile = int(np.searchsorted(years, years[j] - config.profile_years))
            past = [window[i] for i in range(since_profile, j)]  # citations of a year without a pair count too
            has_profiles = any(before.table.partners.size for before in past)
            if has_profiles and first_year is not None and years[j] - first_year >= config.burn_in_years:
                later = [window[i].table for i in sorted(window) if i > j]
                profiles, norms, wanted = _find_wanted(year.table, past, later, is_new, config)
                difficulty = _difficulties(year.table, profiles, norms, wanted, n_threads)
                rows = slice(int(graph.year_offsets[j]), int(graph.year_offsets[j + 1]))
                kernels.sum_over_works(year.groups, year.table, difficulty, n_new[rows], novelty[rows])
            advance(float(ends[j + 1] - ends[j]))
    last_year = find_last_year(with_pair) if last_year is None else last_year
    if last_year is not None:
        novelty[years[lists.year_of] + (config.reuse_years or 0) > last_year] = np.nan
    columns = {
        "n_new_pairs": pl.select(pl.when(pl.Series(~np.isnan(novelty))).then(pl.Series(n_new))).to_series(),
        "wang_novelty": novelty,
    }
    return pairs.one_row_per_work(graph, columns, WANG_NOVELTY)


@dataclass(frozen=True, eq=False)
class _Year:
    """The venue pairs of one year, how many works join each, and how often each venue is cited."""

    table: Cells
    groups: Groups
    citations: Int64Array


def _windows(years: Int64Array, config: WangConfig, ahead: Iterator[_Year]) -> Iterator[tuple[int, dict[int, _Year]]]:
    """Yield each year's place with the years in reach of it, by place; read ``n_ahead`` more years meanwhile."""
    numbered = enumerate(ahead)
    window: dict[int, _Year] = {}
    n_read = 0
    for j, year in enumerate(years.tolist()):
        first = int(np.searchsorted(years, year - config.profile_years))
        beyond = int(np.searchsorted(years, year + (config.reuse_years or 0), side="right"))
        window = {i: one for i, one in window.items() if i >= first} | dict(islice(numbered, max(0, beyond - n_read)))
        n_read = max(n_read, beyond)
        yield j, window


def _find_wanted(
    table: Cells, past: list[_Year], later: list[Cells], wanted: BoolArray, config: WangConfig
) -> tuple[Cells, Int64Array, BoolArray]:
    """Return the co-citation profiles of a year, their squared lengths, and which of the pairs ``wanted`` count."""
    from sciscidata.novelty import _per_work_kernels as kernels

    profiles = kernels.symmetric(reduce(kernels.add_tables, (year.table for year in past if year.table.partners.size)))
    cited = np.sum([year.citations for year in past], axis=0)
    counts = np.sort(cited[cited > 0])
    # A whole number reaches the interpolated quantile where it reaches the next value above: no float is compared.
    least = counts[int(np.ceil(config.drop_least_cited * (counts.size - 1)))] if counts.size else 1
    norms = kernels.squared_norms(profiles)
    kernels.drop_venues(table, (norms > 0) & (cited >= least), wanted)
    if config.reuse_years is not None:
        reuses = np.zeros(wanted.size, np.int64)
        for other in later:
            kernels.add_reuses(table, wanted, other, reuses)
        wanted &= reuses >= config.min_reuses
    return profiles, norms, wanted


def _difficulties(table: Cells, profiles: Cells, norms: Int64Array, wanted: BoolArray, n_threads: int) -> Float64Array:
    """Return the difficulty of every wanted pair of a year; NaN for the others."""
    from sciscidata.novelty import _per_work_kernels as kernels

    result = np.full(wanted.size, np.nan)

    def compare(block: tuple[int, int]) -> None:
        kernels.difficulties(table, wanted, profiles, norms, block, result)

    run_all(compare, _blocks(table.starts, wanted, 8 * n_threads), n_threads)  # rows differ in length
    return result


def _blocks(starts: Int64Array, wanted: BoolArray, n: int) -> list[tuple[int, int]]:
    """Cut the rows into about ``n`` blocks of as many wanted pairs each."""
    before = np.concatenate([[0], np.cumsum(wanted)])[starts]
    cuts = np.searchsorted(before, np.linspace(0, before[-1], n + 1)[1:-1])
    edges = np.unique(np.concatenate([[0], cuts, [starts.size - 1]]))
    return [(int(low), int(high)) for low, high in pairwise(edges)]
