"""Works pulled from the OpenAlex API, scored by the API's own counts, no more of them than the draw needs.

Candidates are sampled by publication year and taken in the order of their split keys, so that those scored first are
those that the draw would take. A candidate is not paid for any further once its score cannot change the draw: its side
is full, nobody cites it inside the window, or every label that it may still get is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import polars as pl

from sciscidata.cdindex import STRONG, CDConfig, add_indices
from sciscidata.demand import Demand
from sciscidata.eligibility import join_candidates, mark_ineligible
from sciscidata.errors import ConfigError, NotEnoughWorksError
from sciscidata.labels import DISRUPTION_LABELS
from sciscidata.openalex.client import OpenAlexClient
from sciscidata.progress import progress_bar
from sciscidata.schemas import CD_SCORES, CITATIONS, WORKS
from sciscidata.sources.openalex_candidates import Candidates
from sciscidata.sources.openalex_counts import (
    ANY_OF,
    FocalCiters,
    Years,
    ask_citers,
    ask_reference_citers,
    converse,
)
from sciscidata.sources.openalex_estimate import PUBLISHED, Outcome, Shape, estimate_calls, say_estimate
from sciscidata.sources.openalex_references import ReferenceRecords
from sciscidata.splits import split_keys
from sciscidata.works import Work, rows_from_works

_WAVE = 100  # candidates scored before the draw is looked at again
_IDLE_ROUNDS = 20  # samples in a row that bring nothing new: what is left is too rare to be met


class Pulled(NamedTuple):
    """What a pull brings.

    WORKS and CITATIONS of the candidates that were judged, their CD_SCORES, what the manifest says of it, and the
    records of their references, as far as they were asked for.
    """

    works: pl.DataFrame
    citations: pl.DataFrame
    scores: pl.DataFrame
    provenance: dict[str, Any]
    references: ReferenceRecords


def pull_openalex(client: OpenAlexClient, candidates: Candidates, cd: CDConfig, demand: Demand) -> Pulled:
    """Sample candidates and score them until the demand is met or there are none left. Executes, and may cost money.

    Args:
        client: an open client; its store makes the run resumable, and offline runs possible.
        candidates: where to sample.
        cd: the convention; ``window_from="cited"`` cannot be had from counts.
        demand: what is needed; its counts are updated as scores come in.

    Returns:
        Rows sorted by work_id. n_k is null where an index of 0 was certain without it (n_i = n_j); a candidate that
        too few works cite has no n_k and no index. With ``cd.family``, columns that need every citer's references are
        null for works with more than 200 citers.

    Raises:
        ConfigError: the convention cannot be had from counts.
        NotEnoughWorksError: at once, if there are fewer candidates than works wanted.
        SciSciDataError: as the client raises.
    """
    wanted = demand.split.n_train + demand.split.n_test
    if candidates.available < wanted:
        msg = (
            f"{wanted:,} works are wanted, and OpenAlex has {candidates.available:,} candidates for them. Lower "
            "n_train and n_test, widen the years, relax the filters, or raise max_candidates."
        )
        raise NotEnoughWorksError(msg)
    if cd.window_from == "cited":
        msg = (
            "window_from='cited' (compat pyscisci) needs the whole graph. Use --source records, or another convention."
        )
        raise ConfigError(msg)
    pull = _Pull(client, candidates, cd, demand)
    shown = 0
    with progress_bar("score candidates", wanted, unit="works filled") as advance:
        client.watch(lambda cost: advance(0, f"${cost:.4f}"))
        for _ in pull.waves():
            advance(demand.filled - shown, f"${client.cost_usd:.4f}")
            shown = demand.filled
        client.watch(None)
    return pull.result()


@dataclass
class _Pull:
    """One run: the candidates seen, what was found out about each, and what is left to ask."""

    client: OpenAlexClient
    candidates: Candidates
    cd: CDConfig
    demand: Demand
    frames: list[tuple[pl.DataFrame, pl.DataFrame]] = field(default_factory=list[tuple[pl.DataFrame, pl.DataFrame]])
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    closed: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    shapes: list[Shape] = field(default_factory=list[Shape])
    passed_over: dict[str, int] = field(default_factory=dict[str, int])
    rounds: int = 0
    estimated_at: int = 0

    def __post_init__(self) -> None:
        self.config, self.eligibility = self.candidates.config, self.candidates.eligibility
        self.records = ReferenceRecords(self.client)

    def waves(self) -> Iterator[None]:
        """Score candidates, a wave at a time, the lowest split keys of each round first."""
        seen: set[int] = set()
        idle = 0  # rounds in a row that brought nothing new
        for round_ in count():
            room = min(self.config.candidates_per_round, self.candidates.available - len(seen))
            if room <= 0 or idle == _IDLE_ROUNDS or self.demand.is_met:
                return
            fresh = [work for work in self.candidates.sample(round_, room) if work.work_id not in seen]
            queue = self._in_order(fresh)[:room]
            seen.update(work.work_id for _, work in queue)
            idle = 0 if queue else idle + 1
            self.rounds += 1
            queue = self._fit(queue)
            self.shapes += [_shape(side, work) for side, work in queue]
            if queue and not self.rows:
                self._estimate(queue, self.candidates.available - len(seen))
            while queue and not self.demand.is_met:
                wave, queue = self._next_wave(queue)
                self._score(wave)
                if len(self.rows) >= 2 * self.estimated_at and not self.demand.is_met:
                    self._estimate(queue, self.candidates.available - len(seen))
                yield

    def _in_order(self, works: Iterable[Work]) -> list[tuple[str, Work]]:
        """Sort candidates by split key, each with the side that it would be on."""
        unique = {work.work_id: work for work in works}
        ids = pl.Series("work_id", list(unique), pl.Int64)
        keyed = pl.DataFrame({"work_id": ids, "key": split_keys(ids, self.demand.split.seed)})
        keyed = keyed.with_columns(self.demand.sides(ids).alias("side")).sort("key", "work_id")
        return [(side, unique[work_id]) for work_id, _, side in keyed.rows()]

    def _fit(self, queue: list[tuple[str, Work]]) -> list[tuple[str, Work]]:
        """Leave out what its own record makes ineligible: a blank title, say, which no filter of the API knows."""
        works, citations = rows_from_works([work for _, work in queue])
        scores = works.select("work_id").join(CD_SCORES.to_frame(), on="work_id", how="left")
        own = replace(self.eligibility, min_citations=0)
        marked = mark_ineligible(join_candidates(works, scores, citations), own, window_years=self.cd.window_years)
        fit = set(marked.filter(removed_by="undefined_score").collect()["work_id"].to_list())
        for _ in range(len(queue) - len(fit)):
            self._pass_over("unfit_record")
        return [(side, work) for side, work in queue if work.work_id in fit]

    def _next_wave(self, queue: list[tuple[str, Work]]) -> tuple[list[tuple[str, Work]], list[tuple[str, Work]]]:
        """Take the next candidates whose side still needs some."""
        is_open = {side for side, labels in self.demand.open_classes.items() if labels}
        wave: list[tuple[str, Work]] = []
        for place, (side, work) in enumerate(queue):
            if len(wave) == _WAVE:
                return wave, queue[place:]
            if side in is_open:
                wave.append((side, work))
            else:
                self._pass_over("side_full")
        return wave, []

    def _score(self, wave: Sequence[tuple[str, Work]]) -> None:
        """Ask for the citers of each work, then for those of its references where the draw needs the answer."""
        citers = self._citers([work for _, work in wave])
        undecided: list[Work] = []
        for side, work in wave:
            focal = citers[work.work_id]
            if focal is None:
                continue
            n_i, n_j = self._n_i_and_n_j(work, focal)
            if n_i + n_j < self.eligibility.min_citations or n_i == n_j > 0:
                continue
            if self.demand.possible_labels(n_i, n_j) & self.demand.open_classes[side]:
                undecided.append(work)
            else:
                self._pass_over("label_full")
                self.closed.append(self.demand.possible_labels(n_i, n_j))
                citers[work.work_id] = None
        of_references = self._citers_of_references(undecided, citers)
        judged: list[Work] = []
        for _, work in wave:
            focal, years = citers[work.work_id], of_references.get(work.work_id)
            if focal is not None:
                judged.append(work)
                self.rows.append(self._row(work, focal, years))
        self.frames.append(rows_from_works(judged))
        self.demand.update(*self.tables(texts=False))

    def _citers(self, works: Sequence[Work]) -> dict[int, FocalCiters | None]:
        """Ask who cites each work; None for one that is passed over."""
        dialogues = [ask_citers(work.work_id, _own_references(work), work.cited_by_count) for work in works]
        answers = dict(zip((work.work_id for work in works), converse(self.client, dialogues), strict=True))
        counted = [work for work in works if (focal := answers[work.work_id]) and focal.shared is None]
        self.records.ask(reference for work in counted for reference in work.references)
        for work in counted:
            focal = answers[work.work_id]
            assert focal is not None  # by the choice above
            both_in_vain, _ = self.records.counted_in_vain(work.work_id, _own_references(work))
            answers[work.work_id] = replace(focal, citing_both=focal.citing_both - both_in_vain)
        for work_id, focal in answers.items():
            if focal is None or not focal.citing_both <= focal.citing_focal:
                self._pass_over("too_many_citers" if focal is None else "inconsistent_counts")
                answers[work_id] = None
        return answers

    def _citers_of_references(self, works: Sequence[Work], citers: dict[int, FocalCiters | None]) -> dict[int, Years]:
        """Ask who cites the references of each work; one whose answers contradict each other is passed over."""
        dialogues = [ask_reference_citers(work.work_id, _own_references(work)) for work in works]
        answers = converse(self.client, dialogues)
        self.records.ask(reference for work in works for reference in work.references)
        found: dict[int, Years] = {}
        for work, years in zip(works, answers, strict=True):
            focal = citers[work.work_id]
            if years is not None:
                _, all_in_vain = self.records.counted_in_vain(work.work_id, _own_references(work))
                found[work.work_id] = years - all_in_vain
            if years is None or (focal and not focal.citing_both <= found[work.work_id]):
                self._pass_over("too_many_citers" if years is None else "inconsistent_counts")
                citers[work.work_id] = None
        return found

    def _inside(self, work: Work, years: Years) -> int:
        """Add up the years inside the window of a work."""
        return sum(n for year, n in years.items() if self._is_inside(work, year))

    def _to_date(self, work: Work, years: Years) -> int:
        """Add up the years up to the end of the window of a work."""
        if self.cd.window_years is None:
            return years.total()
        return sum(n for year, n in years.items() if year <= (work.publication_year or 0) + self.cd.window_years)

    def _n_i_and_n_j(self, work: Work, focal: FocalCiters) -> tuple[int, int]:
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

    def _row(self, work: Work, focal: FocalCiters, of_references: Years | None) -> dict[str, Any]:
        references = _own_references(work)
        n_i, n_j = self._n_i_and_n_j(work, focal)
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
        }

    def tables(self, *, texts: bool = True) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Make WORKS, CITATIONS and CD_SCORES of all works judged so far; without texts, abstracts are cut short."""
        abstract = pl.col("abstract") if texts else pl.col("abstract").str.head(1)
        works = pl.concat([WORKS.to_frame(), *(works.with_columns(abstract) for works, _ in self.frames)])
        citations = pl.concat([CITATIONS.to_frame(), *(citations for _, citations in self.frames)])
        names = ("work_id", "n_i", "n_j", "n_k", "n_refs", "n_j5", "n_shared", "n_to_date")
        counts = pl.DataFrame(self.rows, schema=dict.fromkeys(names, pl.Int64)).sort("work_id")
        certain = pl.col("n_k").is_null() & (pl.col("n_i") == pl.col("n_j")) & (pl.col("n_i") > 0)
        zero = pl.when(certain).then(0.0).otherwise("cd_index").alias("cd_index")
        scores = add_indices(counts, self.cd).with_columns(zero)
        return works.sort("work_id"), citations.sort("citing_id", "cited_id"), scores

    def _pass_over(self, reason: str) -> None:
        self.passed_over[reason] = self.passed_over.get(reason, 0) + 1

    def _estimate(self, queue: Sequence[tuple[str, Work]], n_later: int) -> None:
        """Say what the rest will take, first from published shares, then from what was found so far."""
        outcomes = [self._outcome(row) for row in self.rows]
        outcomes += [Outcome(label=None, possible=possible, asks_references=True) for possible in self.closed]
        ahead = [_shape(side, work) for side, work in queue]
        calls = estimate_calls(self.demand, outcomes or PUBLISHED, ahead, self.shapes, len(ahead) + n_later)
        if self.config.venues:
            # Of the classes, only the neutral one holds works whose references were not asked for yet.
            mean = sum(shape.n_references for shape in self.shapes) / len(self.shapes)
            neutral = (self.demand.split.n_train + self.demand.split.n_test) / len(DISRUPTION_LABELS)
            calls += neutral * mean / ANY_OF
        say_estimate(self.client, calls)
        self.estimated_at = max(len(self.rows), _WAVE // 2)

    def _outcome(self, row: dict[str, Any]) -> Outcome:
        n_i, n_j = row["n_i"], row["n_j"]
        asked = n_i + n_j >= self.eligibility.min_citations and not n_i == n_j > 0
        possible = self.demand.possible_labels(n_i, n_j)
        return Outcome(label=self.demand.labels.get(row["work_id"]), possible=possible, asks_references=asked)

    def result(self) -> Pulled:
        """Put together what was pulled, and where it came from."""
        provenance = {
            "kind": "openalex",
            **asdict(self.config),
            "filter": self.candidates.filter_text(),
            "rounds": self.rounds,
            "candidates": len(self.shapes) + self.passed_over.get("unfit_record", 0),
            "judged": len(self.rows),
            "passed_over": dict(sorted(self.passed_over.items())),
        }
        return Pulled(*self.tables(), provenance, self.records)


def describe_answers(client: OpenAlexClient) -> dict[str, Any]:
    """Sum up in JSON types the answers that a run used: the same for a resumed and for an offline run.

    Answers that were paid for and found wanting are not among them; ``client.cost_usd`` is what a run really spent.
    """
    kept = client.summary()
    return {
        "requests": kept.n_requests,
        "cost_of_answers_usd": round(kept.cost_usd, 4),
        "first_fetched_on": kept.first_fetched_on,
        "data_date": kept.last_fetched_on,
        "responses_sha256": kept.sha256,
    }


def _shape(side: str, work: Work) -> Shape:
    return Shape(side, len(work.references), work.cited_by_count or 0)


def _own_references(work: Work) -> list[int]:
    """Return the distinct references of a work in ascending order, itself left out."""
    return sorted(set(work.references) - {work.work_id})
