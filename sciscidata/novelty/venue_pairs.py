"""The venue pairs in the reference lists of one citing year, and what measures over them share: see ``shapes.py``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray, BoolArray, Float64Array, Int32Array, Int64Array
from sciscidata._support.parallel import map_in_order, run_all
from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame
from sciscidata.graph.edges import watched
from sciscidata.graph.graph import CitationGraph, build_graph
from sciscidata.novelty.shapes import Cells, Entries, Groups, Quantiles, References, Slots
from sciscidata.records.ids import with_original_ids
from sciscidata.schemas import CITATIONS, WORKS, require_columns
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

_NAME_VENUES: Final = "Name their column: from_tables(..., venue=...), or set source_id."
_ROWS_AT_ONCE: Final = 1 << 20
_PAIRS_AT_ONCE: Final = 1 << 26
_LARGE_YEAR: Final = 1 << 24  # references of a year that is scored alone, so that memory holds its pairs


def venue_numbers(graph: CitationGraph, works: pl.LazyFrame) -> Int32Array:
    """Number the venues of a graph's dated works 0, 1, 2 .., in the order of their ids; -1 where there is none.

    A ConfigError says that ``works`` holds a work with a venue and a year that is not in the graph.
    """
    numbers = np.full(graph.n_dated, -1, np.int32)
    ids, provisional = np.empty(0, np.int64), np.empty(0, np.int32)  # venues ascending, and their order of appearance
    rows = works.select("publication_year", "work_id", "source_id").drop_nulls(["publication_year", "source_id"])
    # A frame of all works with their ranks, sorted, would take twenty times the memory of the numbers.
    for batch in rows.collect_batches(chunk_size=_ROWS_AT_ONCE, maintain_order=False):
        venues = batch["source_id"].to_numpy()
        new = np.setdiff1d(venues, ids)
        at = np.searchsorted(ids, new)
        provisional = np.insert(provisional, at, np.arange(ids.size, ids.size + new.size, dtype=np.int32))
        ids = np.insert(ids, at, new)
        work_ids = batch["work_id"].to_numpy()
        indices = graph.find(work_ids, batch["publication_year"])
        if (indices >= graph.n_dated).any() or not np.array_equal(graph.work_ids[indices], work_ids):
            raise ConfigError(
                "works holds a dated work that is not in the graph. Name the WORKS that the graph was built from."
            )
        numbers[indices] = provisional[np.searchsorted(ids, venues)]
    final = np.full(ids.size + 1, -1, np.int32)  # its last entry is that of -1
    final[provisional] = np.arange(ids.size, dtype=np.int32)
    for start in range(0, numbers.size, _ROWS_AT_ONCE):
        part = numbers[start : start + _ROWS_AT_ONCE]
        part[:] = final[part]
    return numbers


def venue_ids(works: pl.LazyFrame) -> Int64Array:
    """Return the source_id of every number that venue_numbers gives for the same works, ascending."""
    dated = works.drop_nulls("publication_year")
    return dated.select(pl.col("source_id").drop_nulls().unique().sort()).collect()["source_id"].to_numpy()


def references_of(graph: CitationGraph, venues: Int32Array) -> References:
    """Return what the works of a graph cite, with the venue and year of each dated work."""
    year_of = np.repeat(np.arange(graph.years.size, dtype=np.int32), np.diff(graph.year_offsets))
    return References(graph.ref_offsets, graph.refs, venues, year_of)


def first_left_out(venues: Int32Array, *, needed: bool) -> BoolArray:
    """Say of each dated work whether it is left out from the first: where a venue is needed, one without."""
    return venues < 0 if needed else np.zeros(venues.size, np.bool_)


def year_slots(
    graph: CitationGraph, lists: References, j: int, max_references: int | None, left_out: BoolArray
) -> Slots:
    """Collect the slots of the j-th year without works in ``left_out``; mark there those beyond ``max_references``."""
    from sciscidata.novelty import _pair_kernels as kernels

    first, last = int(graph.year_offsets[j]), int(graph.year_offsets[j + 1])
    n_references = int(graph.ref_offsets[last] - graph.ref_offsets[first])
    offsets = np.empty(last - first + 1, np.int64)
    cited, venues_of_slots = np.empty((2, n_references), np.int32)
    limit = n_references if max_references is None else max_references
    is_out = left_out[first:last].copy()
    n = kernels.collect_slots((first, last), lists, limit, (offsets, cited, venues_of_slots), left_out)
    cited, venues_of_slots = cited[:n], venues_of_slots[:n]
    if is_out.any():
        offsets, kept = of_works(offsets, ~is_out)
        cited, venues_of_slots = cited[kept], venues_of_slots[kept]
    slots = lay_out(offsets, cited, venues_of_slots)
    return slots._replace(strata_years=graph.years[slots.strata_years].astype(np.int64))


def of_works(offsets: Int64Array, wanted: BoolArray) -> tuple[Int64Array, BoolArray]:
    """Keep the slots of wanted works only; return the new offsets, and which slots stay."""
    lengths = np.diff(offsets)
    return np.concatenate([[0], np.cumsum(lengths * wanted)]), np.repeat(wanted, lengths)


def lay_out(offsets: Int64Array, cited_years: AnyArray, venues: Int32Array) -> Slots:
    """Number strata by time and venues by appearance, and order the slots by stratum; no cited year is below 0."""
    is_cited = np.bincount(cited_years) > 0
    strata_years = np.flatnonzero(is_cited)
    strata = (np.cumsum(is_cited, dtype=np.int32) - np.int32(1))[cited_years]
    appeared = np.full(int(venues.max(initial=-1)) + 1, venues.size)
    np.minimum.at(appeared, venues, np.arange(venues.size))
    numbers = np.argsort(appeared, kind="stable")[: np.count_nonzero(appeared < venues.size)].astype(np.int32)
    number = np.empty(appeared.size, np.int32)
    number[numbers] = np.arange(numbers.size, dtype=np.int32)
    starts, order = _sorted_by(strata, strata_years.size)
    return Slots(offsets, strata, number[venues], numbers.size, starts, order, strata_years, numbers)


def _sorted_by(keys: Int32Array, n_keys: int) -> tuple[Int64Array, Int32Array]:
    """Return where each key's positions begin, and all positions ordered by key, stable."""
    from sciscidata.graph import _kernels as kernels

    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n_keys))])
    order = np.empty(keys.size, np.int32)
    kernels.scatter(keys, np.arange(keys.size, dtype=np.int32), 0, starts[:-1].copy(), order)
    return starts, order


def group(offsets: Int64Array, venues: Int32Array, n_venues: int, *, unique_venues: bool = False) -> Groups:
    """Put the slots of each work together by venue; with ``unique_venues`` every multiplicity is 1."""
    from sciscidata.graph import _kernels as kernels

    venues, counts, sizes = venues.copy(), np.empty(venues.size, np.int32), np.empty(offsets.size - 1, np.int64)
    n = kernels.sort_rows_drop_repeats(venues, offsets[1:], sizes, counts)
    venues, counts = venues[:n].copy(), counts[:n].copy()
    if unique_venues:
        counts[:] = 1
    group_offsets = np.concatenate([[0], np.cumsum(sizes)])
    ends, n_pairs = np.repeat(group_offsets[1:], sizes), pairs_per_work(group_offsets, counts)
    return Groups(group_offsets, venues, counts, ends, n_pairs, *_sorted_by(venues, n_venues))


def groups_of(groups: Groups, first: int, last: int) -> Groups:
    """Return the groups of the works ``first`` .. ``last - 1``."""
    if last - first == groups.offsets.size - 1:
        return groups
    begin, end = int(groups.offsets[first]), int(groups.offsets[last])
    venues, offsets = groups.venues[begin:end], groups.offsets[first : last + 1] - begin
    of_groups = venues, groups.counts[begin:end], groups.ends[begin:end] - begin
    return Groups(offsets, *of_groups, groups.n_pairs[first:last], *_sorted_by(venues, groups.row_starts.size - 1))


def tally_for(groups: Groups) -> AnyArray:
    """Return a zero per venue, to count pairs with: int32, which is faster, where all pairs of all works fit.

    Example:
        >>> def one_work(n_references):
        ...     return group(np.array([0, n_references]), np.zeros(n_references, np.int32), 1)
        >>> tally_for(one_work(65_536)).dtype, tally_for(one_work(65_537)).dtype
        (dtype('int32'), dtype('int64'))
    """
    most = int(groups.n_pairs.sum())
    return np.zeros(groups.row_starts.size - 1, np.int32 if most < 2**31 else np.int64)


def observe(groups: Groups, *, same_venue_pairs: bool = True, rows: tuple[int, int] | None = None) -> Cells:
    """Count the venue pairs of ``rows`` (first, end; None: all): a venue's multiplicity times its partner's."""
    from sciscidata.novelty import _pair_kernels as kernels

    tally = tally_for(groups)
    first, last = rows or (0, tally.size)
    of_rows = groups.row_groups[slice(*groups.row_starts[[first, last]])]
    n_entries = int((groups.ends[of_rows] - of_rows).sum())
    # Memory that is not written is not taken.
    starts, partners = np.empty(last - first + 1, np.int64), np.empty(n_entries, np.int32)
    cells = Cells(starts, partners, np.empty(n_entries, tally.dtype), first)
    n = kernels.count_cells(groups, same_venue_pairs, tally, np.empty(tally.size + 1, np.int32), cells)
    return cells._replace(partners=partners[:n], observed=cells.observed[:n])


def parts_of(n_entries: AnyArray) -> list[tuple[int, int]]:
    """Cut rows or works into parts of so many pairs that these fit into memory; return first and end of each.

    Example:
        >>> parts_of(np.array([3, 4])), parts_of(np.array([2**26, 1, 2**26, 2**27, 5]))
        ([(0, 2)], [(0, 1), (1, 2), (2, 3), (3, 5)])
    """
    number = np.maximum(np.cumsum(n_entries, dtype=np.int64) - 1, 0) // _PAIRS_AT_ONCE
    cuts = np.flatnonzero(np.diff(number, prepend=-1, append=-1))
    return list(pairwise(cuts.tolist()))


def parts_of_rows(groups: Groups) -> list[tuple[int, int]]:
    """Cut the rows of a year's cells into parts for ``observe``."""
    n_entries = groups.ends[groups.row_groups] - groups.row_groups
    return parts_of(np.diff(np.concatenate([[0], np.cumsum(n_entries)])[groups.row_starts]))


def with_rows_of(cells: Cells, groups: Groups) -> Groups:
    """Return the groups, by venue without those of venues whose row has no cell, if that saves work."""
    needed = np.diff(cells.starts) > 0
    if 2 * np.count_nonzero(needed) > needed.size:
        return groups
    starts, kept = of_works(groups.row_starts, needed)
    return groups._replace(row_starts=starts, row_groups=groups.row_groups[kept])


def pairs_per_work(
    offsets: Int64Array, counts: AnyArray, *, same_venue_pairs: bool = True, unique_pairs: bool = False
) -> Int64Array:
    """Return how many pairs the references of each work form, whether they have a z or not."""

    def total(values: AnyArray) -> Int64Array:
        return np.diff(np.concatenate([[0], np.cumsum(values, dtype=np.int64)])[offsets])

    counts = counts.astype(np.int64)
    same = np.minimum(counts - 1, 1) if unique_pairs else counts * (counts - 1) // 2
    times = np.ones_like(counts) if unique_pairs else counts
    across = (total(times) ** 2 - total(times * times)) // 2
    return across + total(same) if same_venue_pairs else across


class VenueCorpus(NamedTuple):
    """The two frames that venue pairs are made from, checked, and the function that asked for them."""

    works: pl.LazyFrame
    citations: pl.LazyFrame
    stage: str


def require_corpus(works: AnyFrame, citations: AnyFrame, stage: str) -> VenueCorpus:
    """Check the columns of both frames that venue pairs are made from."""
    read = ("work_id", "publication_year", "source_id")
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=stage)
    return VenueCorpus(require_columns(works, WORKS, frame_name="WORKS", stage=stage, columns=read), citations, stage)


def defer_scores(
    score: Callable[[CitationGraph, Int32Array], AnyFrame],
    schema: pl.Schema,
    corpus: VenueCorpus,
    cache_dir: str | Path | None,
) -> pl.LazyFrame:
    """At collect, build the graph, number its venues, and score both."""
    works, citations, stage = corpus

    def collect() -> pl.DataFrame:
        graph = build_graph(works, citations, cache_dir=cache_dir)
        venues = venue_numbers(graph, works)
        scores = score(graph, venues)
        if venues.size and (venues < 0).all():
            logger.warning("%s: no work has a venue and a year, so all scores are null. %s", stage, _NAME_VENUES)
            return scores
        return watched(scores, graph, stage)

    return with_original_ids(pl.defer(collect, schema=schema), works)


def is_large(graph: CitationGraph, j: int) -> bool:
    """Say whether the pairs of the j-th year take so much memory that it is better scored alone."""
    first, last = graph.ref_offsets[graph.year_offsets[j : j + 2]]
    return bool(last - first > _LARGE_YEAR)


def score_years(
    graph: CitationGraph,
    score: Callable[[int], None],
    name: str,
    n_threads: int | None,
    *,
    large_alone: bool = False,
) -> None:
    """Call ``score`` with the place of every citing year, in threads, the years with most references first.

    With ``large_alone``, ``score`` uses all threads for a large year, which then has the memory for itself.
    """
    ends = graph.ref_offsets[graph.year_offsets]
    largest_first = np.argsort(ends[:-1] - ends[1:], kind="stable").tolist()
    alone = [j for j in largest_first if large_alone and is_large(graph, j)]

    def done(j: int) -> float:
        score(j)
        return float(ends[j + 1] - ends[j])

    n_threads = n_threads or pl.thread_pool_size()
    with (
        progress_bar(name, float(ends[-1]), unit="references") as advance,
        closing(map_in_order(done, alone, 1)) as large,
        closing(map_in_order(done, largest_first[len(alone) :], n_threads, n_held=len(largest_first))) as others,
    ):
        for n_references in chain(large, others):
            advance(n_references)


def entry_starts(ends: Int64Array) -> tuple[Int64Array, int]:
    """Return where the entries of each group begin, one for each group of its work from it on, and their number."""
    sizes = ends - np.arange(ends.size)
    return np.cumsum(sizes) - sizes, int(sizes.sum())


def hand_out(groups: Groups, valued: Sequence[tuple[Cells, Float64Array]]) -> Entries:
    """Return the value of each pair of groups, NaN where a pair has no cell."""
    from sciscidata.novelty import _per_work_kernels as kernels

    starts, n_entries = entry_starts(groups.ends)
    entries = Entries(starts, np.empty(n_entries))
    row = np.full(groups.row_starts.size - 1, np.nan)
    for cells, values in valued:
        kernels.hand_out(groups, cells, values, row, entries)
    return entries


def write_quantiles(
    groups: Groups,
    valued: Sequence[tuple[Cells, Float64Array]],
    results: Sequence[AnyArray],
    *,
    unique_pairs: bool = False,
    n_threads: int = 1,
) -> None:
    """Hand the value of every cell to the works that hold it; write their number, low quantile and median per work."""
    from sciscidata.novelty import _per_work_kernels as kernels

    def write(works: tuple[int, int]) -> None:
        some = groups_of(groups, *works)
        written = Quantiles(*(column[slice(*works)] for column in results))
        kernels.work_quantiles(some, hand_out(some, valued), unique_pairs, written, np.empty(most))

    most = int(groups.n_pairs.max(initial=1))
    sizes = np.diff(groups.offsets)
    run_all(write, parts_of(sizes * (sizes + 1) // 2), n_threads)


def one_row_per_work(graph: CitationGraph, columns: Mapping[str, Any], schema: pl.Schema) -> pl.DataFrame:
    """Lay out one value per dated work, NaN as null, and null for the works of WORKS without a year."""
    n = graph.n_dated
    rows = pl.DataFrame({"work_id": graph.work_ids[:n], **columns}).fill_nan(None)
    undated = pl.DataFrame({"work_id": graph.work_ids[n : graph.n_known]})
    return pl.concat([rows, undated], how="diagonal").select(schema.names()).cast(schema)
