"""What OpenAlex knows of the cited works themselves: year and venue, and which of them cite themselves.

A reference that cites itself is counted by the API among the citers of the references; the graph has no such
citation. Few works do, but one of them can turn a small index around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import polars as pl

from sciscidata.openalex.client import OpenAlexClient
from sciscidata.openalex.request import works_request
from sciscidata.schemas import WORKS
from sciscidata.sources.openalex_counts import ANY_OF, PER_PAGE, Years, check_answer, works_of
from sciscidata.works import Work, works_frame

#: What is known of a cited work: the columns of WORKS that novelty reads, and the venue's name.
REFERENCE_WORKS: Final = pl.Schema(
    {name: WORKS[name] for name in ("work_id", "publication_year", "source_id", "source_name")}
)


class _SelfCiter(NamedTuple):
    publication_year: int
    references: frozenset[int]


@dataclass
class ReferenceRecords:
    """Records of cited works, asked for 100 a call and once each."""

    client: OpenAlexClient
    _asked: set[int] = field(default_factory=set[int])
    _frames: list[pl.DataFrame] = field(default_factory=list[pl.DataFrame])
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
        found: list[Work] = []
        for answer in self.client.fetch_all(requests, check_answer):
            for work in works_of(answer):
                found.append(work)
                if work.publication_year is not None and work.work_id in work.references:
                    references = frozenset(work.references) - {work.work_id}
                    self._self_citers[work.work_id] = _SelfCiter(work.publication_year, references)
        if found:
            self._frames.append(works_frame(found, REFERENCE_WORKS))

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

    def works(self) -> pl.DataFrame:
        """Return REFERENCE_WORKS: year and venue of every cited work that was asked for, sorted by work_id.

        Works that OpenAlex does not have are left out.
        """
        known = pl.concat([REFERENCE_WORKS.to_frame(), *self._frames])
        return known.unique("work_id", keep="first", maintain_order=True).sort("work_id")
