"""The source "OpenAlex API": sample and score works until the draw has what it needs.

Candidates are sampled by publication year and taken in the order of their split keys. So the first scored works are
those that the draw would take. A candidate costs no more calls once its score cannot change the draw. Then its split is
full, all its possible labels are full, or it has no citation inside the window.

The null model of novelty uses all judged works, or a saved background. Without a background a label may change as works
come in. So a draw that balances novelty looks at all works again, and candidates that were passed over may return.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from sciscidata.disruption.index import CDConfig
from sciscidata.eligibility import add_references, join_candidates, mark_removals
from sciscidata.errors import ConfigError, NotEnoughWorksError, OfflineError
from sciscidata.label_thresholds import NOVELTY_LABELS, compute_labels
from sciscidata.novelty.atypicality import join_atypicality
from sciscidata.novelty.background import read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.request import CREDIT_USD
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.schemas import CD_SCORES, CITATIONS, WORKS
from sciscidata.sources.kinds import Facts, Measures, Opening, Scored, ToAsk
from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
from sciscidata.sources.openalex.citer_counts import (
    ANY_OF,
    PER_PAGE,
    REFERENCE_WORKS,
    FocalCiters,
    ReferenceRecords,
    Years,
    ask_citers,
    ask_reference_citers,
    converse,
    count_calls,
    count_row,
    scores_of,
    split_citers,
)
from sciscidata.sources.openalex.estimate import (
    DISRUPTION,
    NOVELTY,
    Calls,
    bound_candidates,
    bound_share,
    describe_days,
    highest_mean,
)
from sciscidata.sources.openalex.works_of_answers import Work, own_references, works_frame
from sciscidata.sources.quotas import Cell, Quotas
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

_WAVE = 100  # candidates scored before the draw is updated
_GROWTH = 1.1  # a draw that balances novelty is updated when the judged works have grown by this factor
_IDLE_ROUNDS = 20  # after so many samples without a new work, the rest is too rare


class Pulled(NamedTuple):
    """The result of a pull; the first three are about the judged candidates."""

    works: pl.DataFrame  # WORKS
    citations: pl.DataFrame  # CITATIONS
    scores: pl.DataFrame  # CD_SCORES with the columns of ATYPICALITY
    provenance: dict[str, Any]  # the manifest's entry


def pull_openalex(
    candidates: Candidates,
    cd: CDConfig,
    quotas: Quotas,
    novelty: NoveltyConfig | None = None,
    *,
    background: Path | None = None,
) -> Pulled:
    """Sample candidates and score them until the quotas are full or no candidates are left. This may cost money.

    Rows are sorted by work_id. n_k is null where the index is certainly 0 without it (n_i = n_j). A candidate with too
    few citers has no n_k and no index. With ``cd.family``, columns that need every citer's references are null for
    works with more than 200 citers. Without ``background``, the null model comes from the judged works.
    """
    wanted = sum(quotas.groups.values())
    if candidates.available < wanted:
        raise NotEnoughWorksError(
            f"{wanted:,} works are wanted, and OpenAlex has {candidates.available:,} candidates. Lower "
            "SplitConfig.n_train and SplitConfig.n_test, widen the years, relax the filters, or raise "
            "OpenAlexConfig.max_candidates."
        )
    if cd.window_from == "cited":
        raise ConfigError(
            "CDConfig.window_from='cited' (of compat pyscisci) needs the whole graph. Use another source, or another "
            "convention."
        )
    if not candidates.config.venues:
        novelty = None
    if quotas.needs_novelty and novelty is None:
        raise ConfigError(
            f"SplitConfig.balance is {quotas.balance!r}, which needs novelty, and novelty needs the venues of "
            "references. Set both (BuildConfig.novelty, OpenAlexConfig.venues=True), or use "
            "SplitConfig.balance='disruption'."
        )
    if novelty is not None and background is not None:
        read_background(background, novelty)  # before anything is paid for
    if quotas.needs_novelty and background is None:
        logger.warning(
            "Novelty is computed from the works of this pull alone, which have few venue pairs: many common pairs look "
            "rare, or equal. Give a saved background for better labels (BuildConfig.background)."
        )
    pull, client = _Pull(candidates, cd, quotas, novelty, background), candidates.client
    shown = 0
    with progress_bar("score candidates", wanted, unit="works filled") as advance:
        client.watch(lambda cost: advance(0, f"${cost:.4f}"))
        for _ in pull.waves():
            advance(quotas.filled - shown, f"${client.cost_usd:.4f}")
            shown = quotas.filled
        client.watch(None)
    return pull.result()


def describe_answers(client: OpenAlexClient) -> dict[str, Any]:
    """Sum up the answers that a run used, without those that failed; equal for a resumed and for an offline run."""
    kept = client.summary()
    return {
        "requests": kept.n_requests,
        "cost_of_answers_usd": round(kept.cost_usd, 4),
        "first_fetched_on": kept.first_fetched_on,
        "data_date": kept.last_fetched_on,
        "responses_sha256": kept.sha256,
    }


@dataclass
class _Pull:
    """The state of one run: the arguments of ``pull_openalex``, and what is known so far."""

    candidates: Candidates
    cd: CDConfig
    quotas: Quotas
    novelty: NoveltyConfig | None
    background: Path | None
    frames: list[tuple[pl.DataFrame, pl.DataFrame]] = field(default_factory=list[tuple[pl.DataFrame, pl.DataFrame]])
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    closed: dict[int, frozenset[Cell]] = field(default_factory=dict[int, frozenset[Cell]])  # what each may still be
    shapes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # references and citers of candidates
    passed_over: dict[str, int] = field(default_factory=dict[str, int])
    rounds: int = 0
    estimated_at: int = 0
    tells: bool = True
    looked_at: int = 0

    def __post_init__(self) -> None:
        self.client, self.config = self.candidates.client, self.candidates.config
        self.eligibility = self.candidates.eligibility
        self.records = ReferenceRecords(self.client)

    def waves(self) -> Iterator[None]:
        """Score candidates in waves, the lowest split keys of each round first."""
        seen: set[int] = set()
        queue: list[tuple[str, Work]] = []
        idle = 0  # rounds in a row that brought nothing new
        for round_ in itertools.count():
            room = min(self.config.candidates_per_round, self.candidates.available - len(seen))
            if room <= 0 or idle == _IDLE_ROUNDS or self.quotas.is_met:
                return
            fresh = [work for work in self.candidates.sample(round_, room) if work.work_id not in seen]
            sampled = self._in_order(fresh)[:room]
            seen.update(work.work_id for _, work in sampled)
            idle = 0 if sampled else idle + 1
            self.rounds += 1
            queue += self._fit(sampled)
            if queue and not self.estimated_at:
                self._tell_cost()
            while not self.quotas.is_met:
                wave, queue = self._next_wave(queue)
                if wave:
                    queue = [*self._score(wave), *queue]
                elif self.looked_at < len(self.rows):
                    self._look()
                else:
                    break
                if len(self.rows) >= 2 * self.estimated_at:
                    self._look()
                    if not self.quotas.is_met:
                        self._tell_cost()
                yield

    def _in_order(self, works: Iterable[Work]) -> list[tuple[str, Work]]:
        """Sort candidates in the order of the draw, those of dev last, each with its group of ``split.groups``."""
        unique = {work.work_id: work for work in works}
        return [(split, unique[work_id]) for split, work_id in self.quotas.in_order(unique)]

    def _fit(self, queue: list[tuple[str, Work]]) -> list[tuple[str, Work]]:
        """Remove works that their own record makes ineligible, for example by a blank title; note what others cost."""
        works, citations = _tables_of(work for _, work in queue)
        scores = works.select("work_id").join(CD_SCORES.to_frame(), on="work_id", how="left")
        own = replace(self.eligibility, min_citations=0)
        candidates = join_candidates(works, add_references(scores, citations), own)
        marked = mark_removals(candidates, own, window_years=self.cd.window_years)
        fit = set(marked.filter(removed_by="undefined_score").collect()["work_id"].to_list())
        for _ in range(len(queue) - len(fit)):
            self._pass_over("unfit_record")
        self.shapes += [(len(work.references), work.cited_by_count or 0) for _, work in queue if work.work_id in fit]
        return [(split, work) for split, work in queue if work.work_id in fit]

    def _next_wave(self, queue: list[tuple[str, Work]]) -> tuple[list[tuple[str, Work]], list[tuple[str, Work]]]:
        """Take the next candidates that may get a label that their split still needs."""
        is_open, every = self.quotas.open_cells, frozenset(self.quotas.cells)
        wave: list[tuple[str, Work]] = []
        waiting: list[tuple[str, Work]] = []
        for place, (split, work) in enumerate(queue):
            if len(wave) == _WAVE:
                return wave, waiting + queue[place:]
            if self.closed.get(work.work_id, every) & is_open[split]:
                wave.append((split, work))
            elif self.quotas.needs_novelty:
                waiting.append((split, work))
            else:
                self._pass_over("side_full")
        return wave, waiting

    def _score(self, wave: Sequence[tuple[str, Work]]) -> list[tuple[str, Work]]:
        """Request the citers of each work, then those of its references if needed; return works to look at later."""
        citers = self._citers([work for _, work in wave])
        undecided: list[Work] = []
        waiting: list[tuple[str, Work]] = []
        for split, work in wave:
            focal = citers[work.work_id]
            self.closed.pop(work.work_id, None)
            if focal is None:
                continue
            n_i, n_j = split_citers(work, focal, self.cd)
            if n_i + n_j < self.eligibility.min_citations or n_i == n_j > 0:
                continue
            possible = self.quotas.possible_cells(n_i, n_j)
            if possible & self.quotas.open_cells[split]:
                undecided.append(work)
            else:
                self.closed[work.work_id] = possible
                waiting.append((split, work))
                citers[work.work_id] = None
        of_references = self._citers_of_references(undecided, citers)
        judged: list[Work] = []
        for _, work in wave:
            focal, years = citers[work.work_id], of_references.get(work.work_id)
            if focal is not None:
                judged.append(work)
                self.rows.append(count_row(work, focal, years, self.cd))
        if self.novelty is not None:
            self.records.ask(reference for work in judged for reference in work.references)
        self.frames.append(_tables_of(judged))
        # To label novelty takes all works: do it only when the draw may succeed.
        enough = max(self.looked_at + sum(self.quotas.still_missing.values()), _GROWTH * self.looked_at)
        if not self.quotas.needs_novelty or len(self.rows) >= enough:
            self._look()
        return waiting if self.quotas.needs_novelty else []

    def _look(self) -> None:
        """Update the draw with the works judged so far."""
        if self.looked_at < len(self.rows):
            works, citations, scores = self._tables(at_end=False)
            self.quotas.update(works, add_references(scores, citations).collect())
            self.looked_at = len(self.rows)

    def _citers(self, works: Sequence[Work]) -> dict[int, FocalCiters | None]:
        """Request the citers of each work; None for a work that is passed over."""
        dialogues = [ask_citers(work.work_id, own_references(work), work.cited_by_count) for work in works]
        answers = dict(zip((work.work_id for work in works), converse(self.client, dialogues), strict=True))
        counted = [work for work in works if answers[work.work_id].shared is None]
        self.records.ask(reference for work in counted for reference in work.references)
        for work in counted:
            focal = answers[work.work_id]
            both_in_vain, _ = self.records.counted_in_vain(work.work_id, own_references(work))
            answers[work.work_id] = replace(focal, citing_both=focal.citing_both - both_in_vain)
        consistent: dict[int, FocalCiters | None] = {}
        for work_id, focal in answers.items():
            consistent[work_id] = focal if focal.citing_both <= focal.citing_focal else None
            if consistent[work_id] is None:
                self._pass_over("inconsistent_counts")
        return consistent

    def _citers_of_references(self, works: Sequence[Work], citers: dict[int, FocalCiters | None]) -> dict[int, Years]:
        """Request the citers of the references of each work; pass over a work with contradictory answers."""
        dialogues = [ask_reference_citers(work.work_id, own_references(work)) for work in works]
        answers = converse(self.client, dialogues)
        self.records.ask(reference for work in works for reference in work.references)
        years_of: dict[int, Years] = {}
        for work, years in zip(works, answers, strict=True):
            focal = citers[work.work_id]
            _, all_in_vain = self.records.counted_in_vain(work.work_id, own_references(work))
            years_of[work.work_id] = years - all_in_vain
            if focal and not focal.citing_both <= years_of[work.work_id]:
                self._pass_over("inconsistent_counts")
                citers[work.work_id] = None
        return years_of

    def _tables(self, *, at_end: bool) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Make WORKS, CITATIONS and the scores of all works judged so far; whole texts only at the end."""
        is_read = at_end or self.eligibility.where  # by a filter of the user's own
        abstract = pl.col("abstract") if is_read else pl.col("abstract").str.head(1)
        works = pl.concat([WORKS.to_frame(), *(works.with_columns(abstract) for works, _ in self.frames)])
        citations = pl.concat([CITATIONS.to_frame(), *(citations for _, citations in self.frames)])
        scores = scores_of(self.rows, self.cd)
        known = pl.concat([works.select(REFERENCE_WORKS.names()), self.records.works()])
        known = known.unique("work_id", keep="first", maintain_order=True)
        config = self.novelty if at_end or self.quotas.needs_novelty else None
        scores = join_atypicality(scores, known.lazy(), citations.lazy(), config, background=self.background).collect()
        return works.sort("work_id"), citations.sort("citing_id", "cited_id"), scores

    def _pass_over(self, reason: str) -> None:
        self.passed_over[reason] = self.passed_over.get(reason, 0) + 1

    def _tell_cost(self) -> None:
        """Log an estimate of the calls ahead."""
        self.estimated_at = max(len(self.rows), _WAVE // 2)
        if not self.tells:
            return
        calls = self.estimate()
        cost = self.client.cost_usd + calls.about * CREDIT_USD
        days = describe_days(cost, has_key=self.client.config.api_key is not None)
        at_least, about, at_most = (f"{n:,.0f}" for n in calls)
        told = "estimate: about %s more calls, $%.2f in all; %s; at least %s, at most %s more calls"
        logger.info(told, about, cost, days, at_least, at_most)
        limit = self.client.config.max_cost_usd
        if limit is not None and cost > limit:
            stop = "the run will stop there, and the same command continues it"
            logger.warning("this is more than ApiConfig.max_cost_usd=%g: %s", limit, stop)

    def _outcomes(self) -> Iterator[tuple[Cell | None, frozenset[Cell], bool, float]]:
        """Yield cell, possible cells, whether n_k is requested, and share: of the works so far, at first as published.

        Works that are not eligible, or were passed over, have no cell.
        """
        quotas, n_seen = self.quotas, len(self.rows) + len(self.closed)
        for row in self.rows:
            possible = quotas.possible_cells(row["n_i"], row["n_j"])
            yield quotas.cell_of.get(row["work_id"]), possible, row["n_k"] is not None, 1 / n_seen
        for possible in self.closed.values():
            yield None, possible, True, 1 / n_seen
        published = () if n_seen else DISRUPTION
        novelty = zip(NOVELTY_LABELS, NOVELTY[quotas.thresholds.novelty_rule], strict=True)
        for (label, may_be, asks, share), (novel, of_novel) in itertools.product(published, novelty):
            labels = {"disruption_label": label, "novelty_label": novel}
            cell = tuple(labels[column] for column in quotas.columns)
            yield cell, quotas.cells_with(may_be), asks, share * of_novel

    def estimate(self) -> Calls:
        """Estimate the calls that the rest takes, repeated calls left out."""
        fewest, most = self._bound_candidates()
        per_work = [count_calls(*shape) for shape in self.shapes]
        dearest = [sum(calls) + shape[0] / ANY_OF for calls, shape in zip(per_work, self.shapes, strict=True)]
        n_waves = math.ceil(most / _WAVE)  # each asks for records up to three times, and the last call has room
        about, n_candidates = self._estimate()
        return Calls(
            fewest + (0 if self.rounds else self._sampling_calls(1)),
            about + self._sampling_calls(n_candidates),
            most * highest_mean(dearest) + 3 * n_waves + self._sampling_calls(most),
        )

    def _bound_candidates(self) -> tuple[float, float]:
        """Bound how many more candidates are scored, by the works so far; before any, each class may have any share."""
        quotas, n_seen = self.quotas, len(self.rows) + len(self.closed)
        left = max(0, self.candidates.available - n_seen - self.passed_over.get("unfit_record", 0))
        seen = Counter(quotas.cell_of.values())
        fewest = most = 0.0
        for group in quotas.groups:
            missing = {cell: n for (of_group, cell), n in quotas.still_missing.items() if of_group == group and n}
            bounds = [bound_candidates(n, seen[cell] if cell else seen.total(), n_seen) for cell, n in missing.items()]
            fewest += max([sum(missing.values()), *(low for low, _ in bounds)])
            most += max([0, *(high for _, high in bounds)])
        if quotas.is_met:
            return 0.0, 0.0
        if quotas.needs_novelty and self.background is None:  # a label may change with every work
            return max(0.0, sum(quotas.groups.values()) - n_seen), left
        growth = _GROWTH if quotas.needs_novelty else 1.0
        return min(fewest, left), min(growth * most + _WAVE, left)

    def _sampling_calls(self, n_more: float) -> float:
        """Estimate the calls that sample so many more candidates than are scored; later rounds repeat works."""
        candidates, calls = self.candidates, 0.0
        seen = float(len(self.shapes) + self.passed_over.get("unfit_record", 0)) if self.rounds else 0.0
        goal = min(len(self.rows) + len(self.closed) + n_more, candidates.available)
        while seen < goal:
            room = min(self.config.candidates_per_round, candidates.available - seen)
            sizes = candidates.sizes_of(room).values()
            calls += sum(-(-size // PER_PAGE) for size in sizes)
            new = min(room, sum(sizes) * (1 - seen / sum(candidates.per_year.values())))
            if new < 1 / _IDLE_ROUNDS:
                break
            seen += new
        return calls

    def _estimate(self) -> tuple[float, float]:
        """Estimate the calls that scoring still takes, and for how many candidates, if these stay as they are.

        For novelty each judged work costs its references' records, otherwise only where their citers are counted.
        """
        missing, outcomes = self.quotas.still_missing, list(self._outcomes())
        per_work = [count_calls(*shape) for shape in self.shapes]
        of_citers, of_references = (fmean(calls) for calls in zip(*per_work, strict=True))
        of_records = fmean(n_references for n_references, _ in self.shapes) / ANY_OF
        total, n_candidates, left = 0.0, 0.0, self.candidates.available - len(self.rows)
        for group in self.quotas.groups:
            until: dict[Cell, float] = {}  # how many candidates fill a cell
            for cell in (cell for of_group, cell in missing if of_group == group):
                share = sum(share for own, _, _, share in outcomes if own and cell in ((), own))
                until[cell] = min(missing[group, cell] / max(share, 1e-9), left)
            n_judged = 0.0
            for n in sorted(set(until.values())):
                is_open = {cell for cell, n_needed in until.items() if n_needed >= n}
                counted = recorded = 0.0
                for _, possible, asks_references, share in outcomes:
                    if not asks_references or () in is_open or possible & is_open:
                        counted += share * asks_references
                        recorded += share if self.novelty is not None else share * asks_references
                total += (n - n_judged) * (of_citers + counted * of_references + recorded * of_records)
                n_judged = n
            left -= n_judged
            n_candidates += n_judged
        return total, n_candidates

    def look(self) -> None:
        """See what candidates look like, from a page of all years."""
        seen = self._in_order(self.candidates.look())
        if not self._fit(seen):
            raise NotEnoughWorksError(
                f"none of {len(seen):,} sampled works passes the filters. Relax EligibilityConfig, or widen the years."
            )

    def novelty_labels(self) -> tuple[float, float] | None:
        """Bound how many of the works that are drawn have a novelty label; None without novelty."""
        quotas, wanted = self.quotas, sum(self.quotas.groups.values())
        if self.novelty is None:
            return None
        if quotas.needs_novelty or not self.rows:
            return (wanted if quotas.needs_novelty else 0), wanted
        labelled = compute_labels(self._tables(at_end=True)[2], quotas.thresholds)
        with_label = set(labelled.filter(pl.col("novelty_label").is_not_null()).collect()["work_id"])
        seen = Counter(quotas.cell_of.values())
        has_label = Counter(cell for work_id, cell in quotas.cell_of.items() if work_id in with_label)
        bounds = [
            (n, *(bound_share(has_label[cell], seen[cell]) if cell else bound_share(has_label.total(), seen.total())))
            for (_, cell), n in quotas.wanted.items()
        ]
        return sum(n * low for n, low, _ in bounds), sum(n * high for n, _, high in bounds)

    def result(self) -> Pulled:
        """Collect the result and its provenance."""
        passed_over = self.passed_over | ({"label_full": len(self.closed)} if self.closed else {})
        provenance = {
            "kind": "openalex",
            **asdict(self.config),
            "filter": "" if self.candidates.listed else self.candidates.filter_text(),
            **({"own_filter": self.config.filter} if self.config.filter else {}),
            "rounds": self.rounds,
            "later_works": self.candidates.later_works,
            "candidates": len(self.shapes) + self.passed_over.get("unfit_record", 0),
            "judged": len(self.rows),
            "passed_over": dict(sorted(passed_over.items())),
        }
        return Pulled(*self._tables(at_end=True), provenance)


def _tables_of(works: Iterable[Work]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make WORKS and CITATIONS of works."""
    listed = list(works)
    citations = [(work.work_id, cited) for work in listed for cited in work.references]
    return works_frame(listed), pl.DataFrame(citations, schema=CITATIONS, orient="row")


@dataclass(frozen=True)
class OpenAlex:
    """The OpenAlex API, which is asked for scores until a draw has what it needs."""

    config: OpenAlexConfig
    opening: Opening

    def until(self, quotas: Quotas, measures: Measures) -> Scored:
        """Sample works of the API until the quotas are full. Their scores come from counts of the API."""
        with self._count_candidates(quotas, measures) as (client, candidates):
            pulled = pull_openalex(candidates, measures.cd, quotas, measures.novelty, background=measures.background)
            logger.info("OpenAlex: %s calls, $%.4f in this run", f"{client.n_calls:,}", client.cost_usd)
            provenance = pulled.provenance | describe_answers(client)
        works = pulled.works.lazy()
        return Scored(add_references(pulled.scores, pulled.citations), Facts(provenance, works), works)

    def estimate(self, quotas: Quotas, measures: Measures) -> ToAsk:
        """Ask how many candidates there are and what some look like, and estimate the rest.

        What an earlier run has stored is judged again, without a call: its classes are those of the candidates.
        """
        novelty = measures.novelty if self.config.venues else None
        api = self.opening.api
        with (
            self._count_candidates(quotas, measures) as (client, candidates),
            ResponseStore(self.opening.cache_dir / "openalex") as store,
            OpenAlexClient(replace(api, offline=True), store) as kept,
        ):
            pull = _Pull(candidates, measures.cd, quotas, novelty, measures.background)
            pull.look()
            look = client.n_calls, client.cost_usd, client.remaining_usd
            earlier = replace(candidates, client=kept)
            again = _Pull(earlier, measures.cd, quotas.again(), novelty, measures.background, tells=False)
            with suppress(OfflineError):
                deque(again.waves(), maxlen=0)
            pull = again if again.shapes else pull
            at_least, about, at_most = pull.estimate()
            if again.rounds:  # a part of the next wave may be stored, too
                at_least = max(0.0, at_least - _WAVE)
            labels, n_judged = pull.novelty_labels(), len(pull.rows)
        days = describe_days(about * CREDIT_USD, has_key=api.api_key is not None)
        return ToAsk(candidates.per_year, (at_least, about, at_most), CREDIT_USD, days, n_judged, labels, *look)

    @contextmanager
    def _count_candidates(self, quotas: Quotas, measures: Measures) -> Generator[tuple[OpenAlexClient, Candidates]]:
        """Count the candidates of each year. The quotas learn the last year of the data."""
        store = ResponseStore(self.opening.cache_dir / "openalex")
        with store, OpenAlexClient(self.opening.api, store) as client:
            candidates = Candidates.count(client, self.config, measures.cd, quotas.eligibility)
            quotas.eligibility = candidates.eligibility
            yield client, candidates
