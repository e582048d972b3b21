"""The venue pairs in the reference lists of one citing year: slots, groups, and the cells that occur.

A slot is a reference whose cited work has a year and a venue; slots of one cited year are a stratum. The distinct
venues of a work are its groups; a cell is a pair of venues that some work of the year holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sciscidata.graph import CitationGraph

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of one citing year by work, and their order by stratum; years, strata and venues have local numbers."""

    offsets: npt.NDArray[np.int64]
    strata: npt.NDArray[Any]
    venues: Int32Array
    n_venues: int
    stratum_starts: npt.NDArray[np.int64]
    by_stratum: npt.NDArray[np.int64]
    strata_years: npt.NDArray[np.int64]
    venue_numbers: Int32Array  # of the graph, by local number


@dataclass(frozen=True, eq=False)
class Groups:
    """The distinct venues of every work with their multiplicities, and the same by venue."""

    offsets: npt.NDArray[np.int64]
    venues: Int32Array
    counts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    by_venue: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Cells:
    """The venue pairs that occur in one citing year, row by row, and how often."""

    starts: npt.NDArray[np.int64]
    partners: Int32Array
    observed: Int32Array


def year_slots(
    graph: CitationGraph,
    venues: Int32Array,
    year_of: Int32Array,
    j: int,
    max_references: int | None,
    left_out: npt.NDArray[np.bool_],
) -> Slots:
    """Collect the slots of the works of the j-th year; mark in ``left_out`` which works have too many.

    Args:
        graph: the citation graph.
        venues: int32 (graph.n_dated), a number per venue, -1 where there is none.
        year_of: int32 (graph.n_dated), the place of each work's year in ``graph.years``.
        j: the place of the citing year in ``graph.years``.
        max_references: a work with more slots gets none.
        left_out: bool (graph.n_dated), written.
    """
    from sciscidata import novelty_kernels as kernels

    first, last = int(graph.year_offsets[j]), int(graph.year_offsets[j + 1])
    n_references = int(graph.ref_offsets[last] - graph.ref_offsets[first])
    offsets = np.empty(last - first + 1, np.int64)
    cited, held = np.empty((2, n_references), np.int32)
    limit = n_references if max_references is None else max_references
    given = (first, last, graph.ref_offsets, graph.refs, venues, year_of, limit)
    n = kernels.collect_slots(*given, offsets, cited, held, left_out)
    return lay_out(offsets, graph.years[cited[:n]].astype(np.int64), held[:n])


def lay_out(offsets: npt.NDArray[np.int64], cited_years: npt.NDArray[np.int64], venues: Int32Array) -> Slots:
    """Number strata by time and venues by appearance, and order the slots by stratum."""
    from sciscidata import novelty_kernels as kernels

    strata_years, strata = np.unique(cited_years, return_inverse=True)
    local = venues.copy()
    numbers = kernels.renumber_by_appearance(local, np.full(int(venues.max(initial=-1)) + 1, -1, np.int32))
    starts, order = kernels.sorted_by(strata, strata_years.size)
    return Slots(offsets, strata, local, numbers.size, starts, order, strata_years, numbers)


def group(offsets: npt.NDArray[np.int64], venues: Int32Array, n_venues: int, *, unique_venues: bool = False) -> Groups:
    """Put the slots of each work together by venue; with ``unique_venues`` every multiplicity is 1."""
    from sciscidata import novelty_kernels as kernels

    group_offsets, venues, counts, ends = kernels.group_slots(offsets, venues, unique_venues)
    return Groups(group_offsets, venues, counts, ends, kernels.sorted_by(venues, n_venues))


def observe(groups: Groups, *, same_venue_pairs: bool = True) -> Cells:
    """Count the venue pairs that occur: work by work, a venue's multiplicity times its partner's."""
    from sciscidata import novelty_kernels as kernels

    _, n_entries = kernels.entry_places(groups.offsets)
    partners, observed = np.empty((2, n_entries), np.int32)  # memory that is not written is not taken
    given = (*groups.by_venue, groups.venues, groups.counts, groups.ends, same_venue_pairs)
    starts = kernels.count_cells(*given, partners, observed)
    return Cells(starts, partners[: starts[-1]], observed[: starts[-1]])
