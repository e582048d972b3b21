"""Match papers into pairs that differ in their label, and hardly in field, year and citations.

Each paper is in one pair at most, so pairs are independent. Which of a pair is the more disruptive one? The base rate
is one half, whatever the shares of the labels.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, cast

from sciscirl.errors import ReleaseError
from sciscirl.task.papers import Gold, PairView, Paper, PaperView

#: The papers of a pair were published at most so many years apart.
YEARS_APART: Final = 2
#: Neither has more than so many times the citations of the other, each counted with one more.
CITATION_FACTOR: Final = 2


class Candidate(NamedTuple):
    """What is matched of a paper."""

    name: str
    rank: int  # of its label
    field: str
    year: int
    citations: int


def pair_papers(papers: Sequence[Paper], where: str = "these papers") -> list[Paper]:
    """Make pairs of papers; the label of a pair is the letter of the more disruptive one. ReleaseError: there are none.

    A paper without field, year, citations or label is in no pair.
    """
    by_id = {paper.openalex_id: paper for paper in papers}
    ranks = {label: rank for rank, label in enumerate(("consolidating", "neutral", "disruptive"))}
    candidates: list[Candidate] = []
    for name, paper in by_id.items():
        view, rank = cast("PaperView", paper.view), ranks.get(paper.gold.disruption_label or "")
        field, year, citations = view.primary_field, view.publication_year, view.cited_by_count
        if rank is not None and field is not None and year is not None and citations is not None:
            candidates.append(Candidate(name, rank, field, year, citations))
    rank_of = {one.name: one.rank for one in candidates}
    pairs = [
        Paper(
            f"{first}+{second}",
            PairView(cast("PaperView", by_id[first].view), cast("PaperView", by_id[second].view)),
            Gold(None, None, "A" if rank_of[first] > rank_of[second] else "B"),
        )
        for first, second in match_pairs(candidates)
    ]
    if not pairs:
        raise ReleaseError(
            f"no two papers of {where} make a pair: the same field, at most {YEARS_APART} years apart, citations "
            f"within a factor of {CITATION_FACTOR}, another label. Build a larger release."
        )
    return pairs


def match_pairs(candidates: Iterable[Candidate]) -> list[tuple[str, str]]:
    """Return pairs of names, as they are shown: in every other pair the one with the lower rank comes first.

    Candidates come in the order of SHA-256 of their names. Each takes the next one that matches and is free.

    Example:
        >>> sleep = [Candidate(f"W{n}", n % 2, "Medicine", 2000 + n, 10) for n in range(4)]
        >>> match_pairs([*sleep, Candidate("W9", 0, "Physics", 2000, 10), Candidate("W8", 1, "Medicine", 2000, 90)])
        [('W3', 'W2'), ('W0', 'W1')]
    """
    free: dict[tuple[str, int], dict[Candidate, None]] = defaultdict(dict)  # in order
    ordered = sorted(candidates, key=lambda one: _hash(one.name))
    for one in ordered:
        free[one.field, one.year][one] = None
    places = {one: place for place, one in enumerate(ordered)}
    pairs: list[tuple[Candidate, Candidate]] = []
    for one in ordered:
        if one not in free[one.field, one.year]:
            continue
        near = [free.get((one.field, one.year + apart), {}) for apart in range(-YEARS_APART, YEARS_APART + 1)]
        firsts = [next((other for other in cell if _match(one, other)), None) for cell in near]
        found = min((other for other in firsts if other is not None), key=places.__getitem__, default=None)
        del free[one.field, one.year][one]
        if found is not None:
            del free[found.field, found.year][found]
            pairs.append((one, found) if one.rank < found.rank else (found, one))
    pairs.sort(key=lambda pair: _hash(f"{pair[0].name}+{pair[1].name}"))
    return [(low.name, high.name) if number % 2 else (high.name, low.name) for number, (low, high) in enumerate(pairs)]


def _match(one: Candidate, other: Candidate) -> bool:
    few, many = sorted((one.citations, other.citations))
    return one.rank != other.rank and many + 1 <= CITATION_FACTOR * (few + 1)


def _hash(name: str) -> bytes:
    return hashlib.sha256(f"pairs:{name}".encode()).digest()
