"""Score and label the works of an opened source: from its citations, or by the scores that it brings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sciscidata.disruption.compare import compare_scores, compare_z
from sciscidata.disruption.index import cache_cd_index, score_graph
from sciscidata.disruption.label_confidence import compute_label_confidence
from sciscidata.eligibility import add_references
from sciscidata.graph.graph import CitationGraph, build_graph
from sciscidata.judged import n_citers
from sciscidata.label_thresholds import LabelThresholds, compute_labels, find_conventionality_cut
from sciscidata.novelty.atypicality import YearScorer, cache_atypicality, join_atypicality, rescore
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.label_confidence import score_novelty_confidence
from sciscidata.own_label import OwnLabel, compute_own_labels, with_classes
from sciscidata.sampling.demand import Demand
from sciscidata.schemas import AS_PUBLISHED, CD_SCORES, has_own_scores
from sciscidata.sources.kinds import Ask, Citations, Measures, Scored, Scores, Texts
from sciscidata.sources.label_files import find_label_files, read_label_files
from sciscidata.sources.lazy_batches import put_beside
from sciscidata.sources.record_files import state_files
from sciscidata.storage.parquet import read_parquet
from sciscidata.storage.paths import list_visible
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import begin_step, end_step

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Computed(Scored):
    """Scores that were computed from citations.

    ``concentrations`` are filled when ``rows`` are collected, but not by an engine.
    """

    source: Citations
    graph: CitationGraph
    concentrations: dict[int, float]


def score(source: Citations | Scores | Ask, demand: Demand, measures: Measures) -> Scored:
    """Take the scores of a source, ask for them, or score its works by their citations."""
    if isinstance(source, Citations):
        return _score_citations(source, demand, measures)
    if isinstance(source, Ask):
        quotas = demand.quotas
        asked = source.until(quotas, measures)
        demand.eligibility = quotas.eligibility  # with the last year of the data
        return asked
    if not has_own_scores(source.facts.provenance):
        source.facts.provenance["scores"] = AS_PUBLISHED
    demand.leave_out(source.facts)
    rows = source.rows(measures.novelty, demand.thresholds)
    return Scored(demand.take_structure(rows, source.texts), source.facts, source.texts)


def _score_citations(source: Citations, demand: Demand, measures: Measures) -> Computed:
    """Score works by their citations, and compare published scores by label."""
    works, citations, facts, texts = source
    if has_own_scores(facts.provenance):  # of what a corpus was made of: it has citations only
        kept = {name: fact for name, fact in facts.provenance.items() if name not in ("scores", "labels")}
        facts = facts._replace(provenance=kept)
    begin_step("build the citation graph")
    graph, concentrations = build_graph(works, citations, cache_dir=measures.cache_dir), dict[int, float]()
    end_step(counted(graph.n_citations, "citation"))
    of_graph = (source, graph, concentrations)
    if texts is None:
        begin_step("score disruption")
        scores = score_graph(graph, measures.cd).select(*CD_SCORES)
        scores = _add_novelty(scores, graph, works, measures, concentrations)
        return Computed(add_references(scores, citations), facts, works, *of_graph)
    scores = score_structure(graph, works, measures, concentrations)
    if len(facts.published.collect_schema()) > 1:  # than the ids
        facts.provenance["comparison"] = _compare(facts.published, scores, demand.thresholds)
    rows = _beside_scores(demand.take_structure(works, texts), scores, measures.novelty)
    return Computed(rows, facts, texts, *of_graph)


def score_structure(
    graph: CitationGraph,
    works: pl.LazyFrame,
    measures: Measures,
    concentrations: dict[int, float] | None = None,
) -> pl.DataFrame:
    """Score every work of a graph, without its text, in index order; with an engine a graph in the cache folder."""
    n_references = pl.Series("n_references", np.diff(graph.ref_offsets[: graph.n_known + 1]))
    begin_step("score disruption")
    if measures.engine is None:
        scores = score_graph(graph, measures.cd)
    else:
        scores = _read_years(cache_cd_index(graph, measures.cache_dir, measures.cd, engine=measures.engine))
    scores = scores.select(*CD_SCORES, n_references, n_citers=n_citers())
    return _add_novelty(scores, graph, works, measures, concentrations)


def _read_years(folder: Path) -> pl.DataFrame:
    """Read the scores of all years in the order of the graph's index."""
    return pl.concat([read_parquet(path) for path in list_visible(folder.glob("*.parquet"))])


def _add_novelty(
    scores: pl.DataFrame,
    graph: CitationGraph,
    works: pl.LazyFrame,
    measures: Measures,
    concentrations: dict[int, float] | None,
) -> pl.DataFrame:
    """Add the columns of ATYPICALITY to scores that are in index order."""
    end_step(f"{counted(scores['cd_index'].count(), 'work has', 'works have')} a CD index")
    if measures.novelty is None:
        return join_atypicality(scores, works, works, None).collect()
    begin_step("score novelty")
    scorer = YearScorer.of(graph, works, measures.novelty, measures.background)
    if measures.engine is None:
        found = scorer.score_all()
        if concentrations is not None:
            concentrations |= scorer.concentrations
    else:
        found = _read_years(cache_atypicality(scorer, measures.cache_dir, engine=measures.engine))
    end_step(f"{counted(found['z_p10'].count(), 'work has', 'works have')} a novelty score")
    return scores.hstack(found.drop("work_id"))


def _beside_scores(facts: pl.LazyFrame, scores: pl.DataFrame, novelty: NoveltyConfig | None) -> pl.LazyFrame:
    """Put scores next to facts in 48 bytes a work. Counts are narrow, and what follows from a row is computed again."""
    made_of_z = ("novelty_score", "conventionality_score") if novelty and novelty.score == "sigmoid" else ()
    counts = ("n_references", "n_pairs")
    n_i, n_j, n_k = (pl.col(name).cast(pl.Int64) for name in ("n_i", "n_j", "n_k"))
    ratio = (n_i - n_j) / (n_i + n_j + n_k)  # NaN if all are 0
    is_ratio = (pl.col("cd_index") == ratio).alias("is_ratio")  # else it is 0, by ``CDConfig.undefined``
    held = scores.with_columns(is_ratio, pl.col("cd_index").is_not_null().alias("is_defined")).drop(
        "cd_index", "n_citers", *made_of_z
    )
    beside = put_beside(facts, held.cast(dict.fromkeys(counts, pl.UInt32))).cast(dict.fromkeys(counts, pl.Int64()))
    cd_index = pl.when("is_defined").then(pl.when("is_ratio").then(ratio).otherwise(0.0)).alias("cd_index")
    beside = beside.with_columns(cd_index, (n_i + n_j).alias("n_citers")).drop("is_ratio", "is_defined")
    return rescore(beside, "sigmoid") if made_of_z else beside


def _compare(published: pl.LazyFrame, computed: pl.DataFrame, thresholds: LabelThresholds) -> dict[str, Any]:
    """Compare published scores with computed ones, as far as both exist; labels by rank by the default thresholds."""
    thresholds = LabelThresholds() if thresholds.cells else thresholds
    there, agreement = published.collect_schema(), {}
    if "cd_index" in there:
        agreement = compare_scores(published.select("work_id", "cd_index"), computed, thresholds)
        _log_agreement("CD index", agreement)
    for name in ("z_p10", "z_median"):
        if name in there and computed[name].count():
            agreement[name] = compare_z(published.select("work_id", name), computed.select("work_id", name), name)
            _log_agreement(name, agreement[name])
    return agreement


def _log_agreement(name: str, agreement: Mapping[str, Any]) -> None:
    named = ("both", "spearman", "same_sign", "same_label")
    facts = ", ".join(f"{fact} {agreement[fact]}" for fact in named if fact in agreement)
    logger.info("published against computed %s: %s", name, facts)


def label_works(scored: Scored, thresholds: LabelThresholds, own: OwnLabel | None) -> tuple[Scored, OwnLabel | None]:
    """Label all works by their scores, and by the own label, if there is one; return it with its classes."""
    labelled = _label_by_scores(scored, thresholds)
    if own is None:
        return replace(scored, rows=labelled), None
    facts, works = scored.facts, scored.works
    columns = [*works.collect_schema(), *labelled.collect_schema()]
    where = find_label_files(own, facts.label_files, columns)
    if where.files:
        found = read_label_files(own, where)
        facts.provenance["label_files"] = state_files(where.files)
    else:
        found = compute_own_labels(works, labelled, own)
    logger.info("%s: %s works have a class", own.name, f"{found.height:,}")
    return replace(scored, rows=labelled.join(found.lazy(), on="work_id", how="left")), with_classes(own, found)


def add_confidence(labelled: Scored, demand: Demand, measures: Measures) -> Scored:
    """Add how sure the labels of all works are: of disruption, or of novelty where that alone is balanced."""
    thresholds = demand.thresholds
    if demand.balanced == ("novelty_label",):
        assert isinstance(labelled, Computed)  # the configuration refuses scores of others
        assert measures.novelty is not None
        scorer = YearScorer.of(labelled.graph, labelled.source.works, measures.novelty, measures.background)
        sure = score_novelty_confidence(scorer, thresholds).lazy()
    else:
        sure = compute_label_confidence(labelled.rows.select(*CD_SCORES, *thresholds.cell_columns), thresholds)
    beside = sure.select("work_id", "label_confidence").collect()
    return replace(labelled, rows=put_beside(labelled.rows, beside))


def _label_by_scores(scored: Scored, thresholds: LabelThresholds) -> pl.LazyFrame:
    """Label all works that have no labels. If they may not fit into memory, find the cut of Uzzi's rule first."""
    rows = scored.rows
    if "disruption_label" in rows.collect_schema():
        return rows
    if not isinstance(scored.texts, Texts):
        if thresholds.cells:
            rows = rows.join(scored.texts.select("work_id", *thresholds.cell_columns), on="work_id", how="left")
        return compute_labels(rows, thresholds)
    if thresholds.novelty_rule != "uzzi":
        return compute_labels(rows, thresholds)
    cut = find_conventionality_cut(rows, thresholds)
    return compute_labels(rows, thresholds, cut=0.0 if cut is None else cut)  # without a z no work is compared
