"""What OpenAlex knows of the cited works themselves: their venues, and which of them cite themselves.

A reference that cites itself is counted by the API among the citers of the references; the graph has no such
citation. Few works do, but one of them can turn a small index around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from sciscidata.openalex.client import OpenAlexClient
from sciscidata.openalex.request import works_request
from sciscidata.schemas import WORKS
from sciscidata.sources.openalex_counts import ANY_OF, PER_PAGE, Years, check_answer, works_of


class _SelfCiter(NamedTuple):
    publication_year: int
    references: frozenset[int]


@dataclass
class ReferenceRecords:
    """Records of cited works, asked for 100 a call and once each."""

    client: OpenAlexClient
    _asked: set[int] = field(default_factory=set[int])
    _venues: dict[int, tuple[int | None, str | None]] = field(default_factory=dict[int, tuple[int | None, str | None]])
    _self_citers: dict[int, _SelfCiter] = field(default_factory=dict[int, _SelfCiter])

    def ask(self, work_ids: Iterable[int]) -> None:
        """Ask for the records of cited works that were not asked for before."""
        ids = sorted(set(work_ids) - self._asked)
        self._asked.update(ids)
        requests = [
            works_request(
                filter="openalex:" + "|".join(f"W{work_id}" for work_id in ids[start : start + ANY_OF]),
                select="id,publication_year,primary_location,referenced_works",
                per_page=PER_PAGE,
                page=1,
                corpus="core",
            )
            for start in range(0, len(ids), ANY_OF)
        ]
        for answer in self.client.fetch_all(requests, check_answer):
            for work in works_of(answer):
                self._venues[work.work_id] = (work.source_id, work.source_name)
                if work.publication_year is not None and work.work_id in work.references:
                    references = frozenset(work.references) - {work.work_id}
                    self._self_citers[work.work_id] = _SelfCiter(work.publication_year, references)

    def counted_in_vain(self, work_id: int, references: Sequence[int]) -> tuple[Years, Years]:
        """Count by year the references that are among the API's citers only because they cite themselves.

        Returns:
            Those that cite the focal work, and so are counted as citing both; and all of them. Only references
            that were asked for are known.
        """
        own = frozenset(references)
        found = [self._self_citers[reference] for reference in references if reference in self._self_citers]
        in_vain = [citer for citer in found if own.isdisjoint(citer.references)]
        both = Counter(citer.publication_year for citer in in_vain if work_id in citer.references)
        return both, Counter(citer.publication_year for citer in in_vain)

    def venues(self, work_ids: Iterable[int]) -> pl.DataFrame:
        """Return the venues of cited works: work_id, source_id and source_name as in WORKS, sorted by work_id.

        Works that OpenAlex does not have, or that were not asked for, are left out.
        """
        known = sorted(work_id for work_id in set(work_ids) if work_id in self._venues)
        rows = [(work_id, *self._venues[work_id]) for work_id in known]
        names = ("work_id", "source_id", "source_name")
        return pl.DataFrame(rows, schema={name: WORKS[name] for name in names}, orient="row")
