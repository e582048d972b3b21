"""Ask the API who cites a work or its references, and turn counts by year into the CD index.

What is asked next depends on the last answer, so each work is a dialogue. Its generator yields the requests it needs
now, is sent their answers, and returns the counts. ``converse`` holds many dialogues at a time.

A work of up to 100 references costs 1 or 2 calls for its citers, and 1 for those of its references. Up to 200 citers
are listed with their references; more are counted by year, twice. Source: the API's code as of August 2026. The same
attribute twice in a filter means both, ``|`` means any of at most 100, ``!`` means not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import add_indices
from sciscidata.openalex_api.answer_checks import Answer, check_answer
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.request import works_request
from sciscidata.schemas import WORKS
from sciscidata.sources.openalex.works_of_answers import Work, dated_citers, own_references, works_frame, works_in

T = TypeVar("T")
Dialogue: TypeAlias = Generator[list[str], list[Answer], T]
Years: TypeAlias = Counter[int]  # number of works by publication year; works without one are left out

PER_PAGE = 100  # the API's limit; a page costs the same whatever its size
ANY_OF = 100  # ids in one clause of a filter, at most
_LISTED = 200  # up to this many citers are listed, on at most two pages
#: References that fit into one request line, in clauses of ANY_OF.
MOST_REFERENCES: Final = 500


@dataclass(frozen=True, slots=True)
class FocalCiters:
    """The citers of a work by year. Counted citers include references that cite both the focal work and themselves."""

    citing_focal: Years
    citing_both: Years  # those that also cite one of its references
    #: (year, number of shared references) for each citer with a year; None where citers were counted, not listed.
    shared: tuple[tuple[int, int], ...] | None


def converse(client: OpenAlexClient, dialogues: Iterable[Dialogue[T]]) -> list[T]:
    """Hold many dialogues in common rounds of requests; results in order."""
    speakers = list(dialogues)
    results: dict[int, T] = {}
    answers: dict[int, list[Answer] | None] = dict.fromkeys(range(len(speakers)))
    while answers:
        wanted: dict[int, list[str]] = {}
        for number, given in answers.items():
            try:
                wanted[number] = speakers[number].send(given)  # pyright: ignore[reportArgumentType]  # None starts it
            except StopIteration as end:
                results[number] = end.value
        requests = [request for requests in wanted.values() for request in requests]
        replies = client.fetch_all(requests, check_answer, n_listed=_LISTED)
        answers = {number: [next(replies) for _ in requests] for number, requests in wanted.items()}
        replies.close()
    return [results[number] for number in range(len(speakers))]


def ask_citers(work_id: int, references: Sequence[int], cited_by_count: int | None) -> Dialogue[FocalCiters]:
    """Count the citers of a work by year, and those that also cite a reference; ``references`` lack the work itself."""
    if (cited_by_count or 0) <= _LISTED:
        (citers,) = yield [_list_request(f"cites:W{work_id}")]
        if citers["meta"]["count"] <= _LISTED:
            return _match_citers(work_id, references, citers)
    alone = f"cites:W{work_id},openalex:!W{work_id}"
    answers = yield [_count_request(alone), *(_count_request(f"{alone},{text}") for text in _disjoint(references))]
    return FocalCiters(_years(answers[0]), _sum_years(answers[1:]), None)


def ask_reference_citers(work_id: int, references: Sequence[int]) -> Dialogue[Years]:
    """Count by year the works that cite a reference of a work, without the work itself: n_j and n_k together.

    References that cite themselves are counted; see ReferenceRecords.
    """
    return _sum_years((yield [_count_request(f"{text},openalex:!W{work_id}") for text in _disjoint(references)]))


def count_calls(n_references: int, cited_by_count: int) -> tuple[int, int]:
    """Return the number of calls of the two dialogues of a work.

    Example:
        >>> count_calls(30, 12), count_calls(130, 5_000)
        ((1, 1), (3, 2))
    """
    clauses = -(-n_references // ANY_OF)
    if cited_by_count <= _LISTED:
        return (1 if cited_by_count <= PER_PAGE else 2), clauses
    return 1 + clauses, clauses


def _match_citers(work_id: int, references: Sequence[int], citers: Answer) -> FocalCiters:
    """Compare the reference lists of listed citers with those of the focal work."""
    own = frozenset(references)
    shared: dict[int, tuple[int, int]] = {}
    for citer, year, cited in dated_citers(citers):
        if citer != work_id:
            shared[citer] = (year, len((own & cited) - {citer}))
    focal = Counter(year for year, _ in shared.values())
    both = Counter(year for year, n in shared.values() if n)
    return FocalCiters(focal, both, tuple(shared.values()))


def _chunks(references: Sequence[int]) -> list[str]:
    """Write references as clauses of at most ANY_OF ids."""
    return [
        "|".join(f"W{reference}" for reference in references[start : start + ANY_OF])
        for start in range(0, len(references), ANY_OF)
    ]


def _disjoint(references: Sequence[int]) -> list[str]:
    """Write one filter per clause of at most MOST_REFERENCES, which excludes the citers of earlier clauses."""
    chunks = _chunks(references)
    return [
        ",".join([f"cites:{chunk}", *(f"cites:!{earlier}" for earlier in chunks[:place])])
        for place, chunk in enumerate(chunks)
    ]


def _list_request(text: str, select: str = "id,publication_year,referenced_works") -> str:
    return works_request(filter=text, select=select, per_page=PER_PAGE, page=1, corpus="core")


def _count_request(text: str) -> str:
    return works_request(filter=text, group_by="publication_year:include_unknown", corpus="core")


def _years(answer: Answer) -> Years:
    """Read a count by year, without the works that have no year."""
    keys = ((str(group["key"]), group["count"]) for group in answer["group_by"])
    return Counter({int(key): count for key, count in keys if key.isdecimal()})


def _sum_years(answers: Sequence[Answer]) -> Years:
    return sum((_years(answer) for answer in answers), Counter())


#: One row per cited work: the columns of WORKS that novelty reads, and the venue's name.
REFERENCE_WORKS: Final = pl.Schema(
    {name: WORKS[name] for name in ("work_id", "publication_year", "source_id", "source_name")}
)


@dataclass
class ReferenceRecords:
    """Year and venue of cited works, requested once each, 100 per call; and the works that cite themselves.

    The API counts a reference that cites itself among the citers of the references; the citation graph does not. Few
    works cite themselves, but one can change the sign of a small index.
    """

    client: OpenAlexClient
    _asked: set[int] = field(default_factory=set[int])
    _frames: list[pl.DataFrame] = field(default_factory=list[pl.DataFrame])
    _citing_themselves: dict[int, tuple[int, frozenset[int]]] = field(
        default_factory=dict[int, tuple[int, frozenset[int]]]
    )

    def ask(self, work_ids: Iterable[int]) -> None:
        """Request the records of the works that are not known yet."""
        ids = sorted(set(work_ids) - self._asked)
        self._asked.update(ids)
        select = "id,publication_year,primary_location,referenced_works"
        requests = [_list_request(f"openalex:{chunk}", select) for chunk in _chunks(ids)]
        received = works_in(self.client.fetch_all(requests, check_answer)) if requests else []
        for work in received:
            if work.publication_year is not None and work.work_id in work.references:
                references = frozenset(work.references) - {work.work_id}
                self._citing_themselves[work.work_id] = (work.publication_year, references)
        if received:
            self._frames.append(works_frame(received).select(REFERENCE_WORKS.names()))

    def counted_in_vain(self, work_id: int, references: Sequence[int]) -> tuple[Years, Years]:
        """Count by year what the API counts only since it cites itself: what also cites the work, and all of it."""
        listed = frozenset(references)
        citing_themselves = [
            self._citing_themselves[reference] for reference in references if reference in self._citing_themselves
        ]
        in_vain = [(year, cited) for year, cited in citing_themselves if listed.isdisjoint(cited)]
        return Counter(year for year, cited in in_vain if work_id in cited), Counter(year for year, _ in in_vain)

    def works(self) -> pl.DataFrame:
        """Return REFERENCE_WORKS of the requested works that OpenAlex has, sorted by work_id."""
        known = pl.concat([REFERENCE_WORKS.to_frame(), *self._frames])
        return known.unique("work_id", keep="first", maintain_order=True).sort("work_id")


def split_citers(work: Work, focal: FocalCiters, cd: CDConfig) -> tuple[int, int]:
    """Count the citers of a work that cite its references (n_j), and the others (n_i)."""
    times = _times(work, cd)
    n_j = _within(times, focal.citing_both)
    return _within(range(times.stop) if cd.focal_citers == "any" else times, focal.citing_focal) - n_j, n_j


def count_row(work: Work, focal: FocalCiters, of_references: Years | None, cd: CDConfig) -> dict[str, int | None]:
    """Make the row of a work from its citers and, if they were requested, the citers of its references."""
    references, times = own_references(work), _times(work, cd)
    n_i, n_j = split_citers(work, focal, cd)
    n_k = None
    if of_references is not None:
        # The API's counts exclude the focal work, which cites its own references.
        n_k = _within(times, of_references) - n_j + bool(cd.focal_in_n_k and references)
    shared = [n for year, n in focal.shared or () if year in times]
    return {
        "work_id": work.work_id,
        "n_i": n_i,
        "n_j": n_j,
        "n_k": n_k,
        "n_refs": len(references),
        f"n_j{cd.di_l}": None if focal.shared is None else sum(n >= cd.di_l for n in shared),
        "n_shared": None if focal.shared is None else sum(shared),
        "n_to_date": _within(range(times.stop), focal.citing_focal),
        "n_ever": focal.citing_focal.total(),
    }


def _times(work: Work, cd: CDConfig) -> range:
    assert work.publication_year is not None  # sampled by year, and checked
    return cd.times_of_citers(work.publication_year, cd.window_years)


def _within(times: range, years: Years) -> int:
    return sum(n for year, n in years.items() if year in times)


def scores_of(rows: Sequence[dict[str, int | None]], cd: CDConfig) -> pl.DataFrame:
    """Make CD_SCORES, sorted by work_id, from rows of ``count_row``; n_i = n_j > 0 gives 0 without n_k."""
    names = ("work_id", "n_i", "n_j", "n_k", "n_refs", f"n_j{cd.di_l}", "n_shared", "n_to_date", "n_ever")
    counts = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64)).sort("work_id")
    certain = pl.col("n_k").is_null() & (pl.col("n_i") == pl.col("n_j")) & (pl.col("n_i") > 0)
    zero = pl.when(certain).then(0.0).otherwise("cd_index").alias("cd_index")
    return add_indices(counts, cd).with_columns(zero)
