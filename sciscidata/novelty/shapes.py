"""The arrays that loops over venue pairs read and write: what each one holds, and how many.

A slot is a reference whose cited work has a year and a venue. Slots of one cited year are a stratum. The distinct
venues of a work are its groups. A cell is a pair of venues that some work of the year holds.

Compiled loops are kept until their own file changes, and read fields by place: edit the loops' files, too, when you
reorder fields here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sciscidata._kernels.arrays import AnyArray, Float64Array, Int32Array, Int64Array


class References(NamedTuple):
    """What all works of a graph cite, and what is known about those with a year, the first ``venues.size``."""

    offsets: Int64Array  # (works + 1): where the references of each work begin
    refs: Int32Array  # (references): cited works
    venues: Int32Array  # (dated works): number of the venue, or -1
    year_of: AnyArray  # (dated works): place of the publication year


class Slots(NamedTuple):
    """The slots of one citing year by work, and their order by stratum; years, strata and venues have local numbers."""

    offsets: Int64Array  # (works + 1): where the slots of each work begin
    strata: AnyArray  # (slots)
    venues: Int32Array  # (slots)
    n_venues: int
    stratum_starts: Int64Array  # (strata + 1): where each stratum begins in by_stratum
    by_stratum: Int32Array  # (slots): all slots, stratum by stratum
    strata_years: Int64Array  # (strata), ascending
    venue_numbers: Int32Array  # (venues): of the graph, by local number


class Groups(NamedTuple):
    """The distinct venues of every work with their multiplicities, and the same by venue."""

    offsets: Int64Array  # (works + 1): where the groups of each work begin
    venues: Int32Array  # (groups), ascending within a work
    counts: Int32Array  # (groups): references of the work to the venue
    ends: Int64Array  # (groups): where the groups of its work end
    n_pairs: Int64Array  # (works): how many pairs the references form
    row_starts: Int64Array  # (venues + 1): where each venue begins in row_groups
    row_groups: Int32Array  # (groups): all groups, venue by venue


class Cells(NamedTuple):
    """The venue pairs of one citing year, row by row, and how often; int32, or int64 if need be."""

    starts: Int64Array  # (rows + 1): where the cells of each row begin
    partners: Int32Array  # (cells): the other venue
    observed: AnyArray  # (cells): pairs of references
    first: int = 0  # venue of the first row

    def venues(self, numbers: Int32Array) -> tuple[Int32Array, Int32Array]:
        """Return the venues of every pair under other numbers, the lower one first."""
        rows = numbers[np.repeat(self.first + np.arange(self.starts.size - 1), np.diff(self.starts))]
        partners = numbers[self.partners]
        return np.minimum(rows, partners), np.maximum(rows, partners)


class Entries(NamedTuple):
    """A value for every two groups (i <= j) of one work; those of group i lie end to end."""

    starts: Int64Array  # (groups): where the entries of each group begin
    values: Float64Array  # (entries): NaN where a pair has none


class History(NamedTuple):
    """Every venue pair that ever occurred, row by row, as in Cells."""

    starts: Int64Array  # (venues + 1)
    partners: AnyArray  # (pairs)
    places: AnyArray  # (pairs): place of the last year in which the pair occurred


class Quantiles(NamedTuple):
    """What is written for each work, (works) each."""

    n_pairs: Int64Array  # pairs with a value
    low: Float64Array  # NaN without one
    median: Float64Array
