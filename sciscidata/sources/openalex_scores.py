"""From the API's counts by year to the CD index: which years lie in the window of a work.

The index itself is computed where that of the graph is, from the same counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from sciscidata.cdindex import STRONG, CDConfig, add_indices
from sciscidata.sources.openalex_counts import FocalCiters, Years
from sciscidata.works import Work

#: What is counted of a work: n_i, n_j, n_k and what the indices of the family need.
_COUNTS = ("work_id", "n_i", "n_j", "n_k", "n_refs", "n_j5", "n_shared", "n_to_date", "n_ever")


@dataclass(frozen=True)
class Window:
    """Adds up what lies in the citation window of a work, by a convention."""

    cd: CDConfig

    def _inside(self, work: Work, years: Years) -> int:
        """Add up the years inside the window of a work."""
        return sum(n for year, n in years.items() if self._is_inside(work, year))

    def _to_date(self, work: Work, years: Years) -> int:
        """Add up the years up to the end of the window of a work."""
        if self.cd.window_years is None:
            return years.total()
        return sum(n for year, n in years.items() if year <= (work.publication_year or 0) + self.cd.window_years)

    def n_i_and_n_j(self, work: Work, focal: FocalCiters) -> tuple[int, int]:
        """Count the citers of a work that cite none of its references, and those that cite some."""
        citers = self._to_date if self.cd.focal_citers == "any" else self._inside
        n_j = self._inside(work, focal.citing_both)
        return citers(work, focal.citing_focal) - n_j, n_j

    def _is_inside(self, work: Work, year: int) -> bool:
        if work.publication_year is None:
            return False
        age = year - work.publication_year
        if self.cd.window_years is not None and age > self.cd.window_years:
            return False
        return age > 0 or (age == 0 and self.cd.same_year) or (age < 0 and self.cd.earlier_citers)

    def row(self, work: Work, focal: FocalCiters, of_references: Years | None) -> dict[str, int | None]:
        """Make the row of a work from who cites it and, unless that was not asked, who cites its references."""
        references = own_references(work)
        n_i, n_j = self.n_i_and_n_j(work, focal)
        n_k = None
        if of_references is not None:
            # The counts leave the focal work out; it would be among the citers of its own references.
            n_k = self._inside(work, of_references) - n_j + bool(self.cd.focal_in_n_k and references)
        shared = [n for year, n in focal.shared or () if self._is_inside(work, year)]
        return {
            "work_id": work.work_id,
            "n_i": n_i,
            "n_j": n_j,
            "n_k": n_k,
            "n_refs": len(references),
            "n_j5": None if focal.shared is None else sum(n >= STRONG for n in shared),
            "n_shared": None if focal.shared is None else sum(shared),
            "n_to_date": self._to_date(work, focal.citing_focal),
            "n_ever": focal.citing_focal.total(),
        }


def scores_of(rows: Sequence[dict[str, int | None]], cd: CDConfig) -> pl.DataFrame:
    """Make CD_SCORES, sorted by work_id, of rows that a Window made; 0 where n_i = n_j says so without n_k."""
    counts = pl.DataFrame(rows, schema=dict.fromkeys(_COUNTS, pl.Int64)).sort("work_id")
    certain = pl.col("n_k").is_null() & (pl.col("n_i") == pl.col("n_j")) & (pl.col("n_i") > 0)
    zero = pl.when(certain).then(0.0).otherwise("cd_index").alias("cd_index")
    return add_indices(counts, cd).with_columns(zero)


def own_references(work: Work) -> list[int]:
    """Return the distinct references of a work in ascending order, itself left out."""
    return sorted(set(work.references) - {work.work_id})
