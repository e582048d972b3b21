"""Find listed works in a corpus or a graph, and score them from no more of it than they need.

The CD index of a work depends on its references, on what cites it, and on what cites these references. So a few passes
over the citations leave a small graph, which the usual kernels score.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import compute_cd_index, score_graph
from sciscidata.disruption.label_prior import SHIPPED, LabelPrior, choose_prior
from sciscidata.disruption.windows import close_windows, find_open_in_fields, last_year_of
from sciscidata.eligibility import count_references
from sciscidata.explanation.neighbourhood import facts_of, find_citers, find_places, read_references, take
from sciscidata.graph.graph import CitationGraph, build_graph
from sciscidata.judged import is_over_by_year
from sciscidata.novelty.atypicality import join_atypicality
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.records.last_year_of_data import count_years, find_last_year
from sciscidata.records.listed_ids import ListedIds
from sciscidata.schemas import CD_SCORES, CITATIONS, WORKS

logger = logging.getLogger(__name__)

#: What is said of a work besides its scores.
FACTS: Final = ("work_id", "doi", "title", "publication_year", "cited_by_count", "primary_field")
_OF_VENUES: Final = ("work_id", "publication_year", "source_id", "source_name")
_NEAR: Final = ("work_id", "publication_year")


class ScoredIds(NamedTuple):
    """Works that were found, each once.

    Attributes:
        works: FACTS, ``n_references``, the columns of CD_SCORES and ATYPICALITY, and ``window_complete``.
        prior: what small counts shrink to.
        gone: numbers that are cited, but of no work.
        merged: numbers of works that are another one now, by the number that was asked for.
        unscored: numbers of works that the source cannot score, and why.
    """

    works: pl.DataFrame
    prior: LabelPrior
    gone: frozenset[int] = frozenset()
    merged: Mapping[int, int] = MappingProxyType({})
    unscored: Mapping[int, str] = MappingProxyType({})


class Rules(NamedTuple):
    """How listed works are scored. ``prior`` of None is that of all works of the source."""

    cd: CDConfig
    novelty: NoveltyConfig
    background: Path | None
    prior: LabelPrior | None


def score_frames(
    works: pl.LazyFrame,
    citations: pl.LazyFrame,
    listed: ListedIds,
    rules: Rules,
    cache_dir: Path,
    merges: Mapping[int, int] = MappingProxyType({}),
) -> ScoredIds:
    """Score the listed works of a corpus, and those into which they were merged. Its own prior takes all scores."""
    schema = works.collect_schema()
    is_target = pl.col("work_id").is_in(pl.Series([*merges.values()], dtype=pl.Int64).implode())
    columns = [*FACTS, *(name for name in (ORIGINAL_ID,) if name in schema)]
    facts = works.filter(listed.holds() | is_target).select(columns).collect(engine="streaming").sort("work_id")
    citations = citations.select([*CITATIONS]).drop_nulls()
    wanted = facts["work_id"]
    if (listed.rows["kind"] == "DOI").any() and not facts["doi"].is_not_null().any():
        with_doi = works.select("doi").drop_nulls().head(1).collect(engine="streaming")
        if with_doi.is_empty():
            logger.warning(
                "no work of this source has a DOI, so DOIs are not found. Own tables: name a column doi or DOI."
            )
    of_own = citations.filter(pl.col("citing_id").is_in(wanted.implode())).collect(engine="streaming")
    prior = rules.prior
    if prior is None:
        logger.info("all works are scored, for the prior of the corpus; prior='shipped' scores the listed ones alone")
        scores = compute_cd_index(works, citations, rules.cd, cache_dir=cache_dir).drop(ORIGINAL_ID, strict=False)
        of_all = scores.collect()
        prior = choose_prior(of_all)
        scores = of_all.filter(pl.col("work_id").is_in(wanted.implode()))
    else:
        last_year = find_last_year(count_years(works))
        scores = _score_near(works, citations, facts, of_own, rules.cd)
        scores = mark_open(scores, facts, rules.cd, last_year)
        scores = close_windows(scores, find_open_in_fields(works, rules.cd, last_year))
    known = pl.concat([wanted, of_own["cited_id"]]).unique()
    if rules.background is not None:
        venues = works.filter(pl.col("work_id").is_in(known.implode())).select(_OF_VENUES)
        scores = with_novelty(scores, venues, of_own.lazy(), rules)
    else:
        scores = with_novelty(scores, works, citations, rules)
    n_references = count_references(of_own).collect()
    found = facts.join(scores, on="work_id", how="left").join(n_references, on="work_id", how="left")
    found = found.with_columns(pl.col("n_references").fill_null(0))
    there = {*wanted}
    merged = {old: now for old, now in merges.items() if now in there and old not in there}
    return ScoredIds(found, prior, _find_gone(citations, listed, wanted), merged)


def _score_near(
    works: pl.LazyFrame, citations: pl.LazyFrame, facts: pl.DataFrame, of_own: pl.DataFrame, cd: CDConfig
) -> pl.DataFrame:
    """Score works from the citations near them."""
    wanted = facts["work_id"]
    cited = pl.concat([wanted, of_own["cited_id"]]).unique()
    near = citations.filter(pl.col("cited_id").is_in(cited.implode())).collect(engine="streaming")
    near = pl.concat([near, of_own]).unique()
    ids = pl.concat([wanted, near["citing_id"], near["cited_id"]]).unique()
    years = works.filter(pl.col("work_id").is_in(ids.implode())).select(_NEAR).collect(engine="streaming")
    return score_small(years, near, wanted, cd)


def score_small(years: pl.DataFrame, near: pl.DataFrame, wanted: pl.Series, cd: CDConfig) -> pl.DataFrame:
    """Score some works of a small graph: CD_SCORES."""
    if years.is_empty():
        return CD_SCORES.to_frame()
    scores = score_graph(build_graph(years, near), cd).select(*CD_SCORES)
    return scores.filter(pl.col("work_id").is_in(wanted.implode()))


def mark_open(scores: pl.DataFrame, facts: pl.DataFrame, cd: CDConfig, last_year: int | None) -> pl.DataFrame:
    """Add ``window_complete`` by the year of each work, as ``compute_cd_index`` does."""
    first = cd.first_open_time(cd.window_years, last_year)
    return scores.join(facts.select("work_id", is_over_by_year(first)), on="work_id", how="left")


def with_novelty(scores: pl.DataFrame, works: pl.LazyFrame, citations: pl.LazyFrame, rules: Rules) -> pl.DataFrame:
    """Add the columns of ATYPICALITY, null without a background."""
    novelty = None if rules.background is None else rules.novelty
    return join_atypicality(scores, works, citations, novelty, background=rules.background).collect()


def _find_gone(citations: pl.LazyFrame, listed: ListedIds, found: pl.Series) -> frozenset[int]:
    """Find the OpenAlex ids that are cited, but of no work: they were merged or deleted, or are not in the source."""
    asked = listed.rows.filter(pl.col("kind") == "OpenAlex")["work_id"].unique()
    lost = asked.filter(~asked.is_in(found.implode()))
    if lost.is_empty():
        return frozenset()
    cited = citations.filter(pl.col("cited_id").is_in(lost.implode())).select(pl.col("cited_id").unique())
    return frozenset(cited.collect(engine="streaming").to_series().to_list())


def score_graph_ids(graph: CitationGraph, listed: ListedIds, rules: Rules, n_threads: int | None = None) -> ScoredIds:
    """Score the listed works of a graph, of which only ids, years and references are known."""
    asked = listed.rows["work_id"].drop_nulls().unique().sort()
    places = find_places(graph, asked.to_numpy())
    is_known = (places >= 0) & (places < graph.n_known)
    wanted = np.sort(places[is_known])
    gone = frozenset(asked.filter(pl.Series(places >= graph.n_known)).to_list())
    places_of = [read_references(graph, place) for place in wanted.tolist()]
    n_references = np.array([refs.size for refs in places_of], np.uint32)
    references = np.concatenate([np.empty(0, np.int32), *places_of])
    targets = np.unique(np.concatenate([wanted.astype(np.int32), references]))
    citing, which = find_citers(graph, targets, n_threads or pl.thread_pool_size())
    ends = np.concatenate([citing, np.repeat(wanted, n_references)]), np.concatenate([targets[which], references])
    nodes = np.unique(np.concatenate([wanted, *ends])).astype(np.int64)
    ids, has_row = take(graph.work_ids, nodes), nodes < graph.n_known
    years = facts_of(graph, nodes[has_row], ids[has_row]).select(_NEAR)
    ids_of_ends = (ids[np.searchsorted(nodes, end)] for end in ends)
    citations = pl.DataFrame(dict(zip(CITATIONS, ids_of_ends, strict=True)), CITATIONS).unique()
    ids_wanted = ids[np.searchsorted(nodes, wanted)]
    facts = years.filter(pl.col("work_id").is_in(pl.Series(ids_wanted).implode()))
    facts = facts.with_columns(pl.lit(None, WORKS[name]).alias(name) for name in FACTS if name not in _NEAR)
    scores = score_small(years, citations, facts["work_id"], rules.cd)
    scores = mark_open(scores, facts, rules.cd, last_year_of(graph))
    scores = with_novelty(scores, pl.LazyFrame(schema=WORKS), pl.LazyFrame(schema=CITATIONS), rules)
    counts = pl.DataFrame({"work_id": ids_wanted, "n_references": n_references})
    found = facts.join(scores, on="work_id", how="left").join(counts, on="work_id", how="left")
    return ScoredIds(found, rules.prior or SHIPPED, gone)
