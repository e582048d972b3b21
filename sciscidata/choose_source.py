"""From the source that a configuration names to works, citations and scores: what every draw starts from."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sciscidata._support.progress import progress_bar
from sciscidata.config import BuildConfig, SourceConfig
from sciscidata.corpus.folder import CorpusConfig, refuse_linked_cache, scan_corpus
from sciscidata.disruption.index import CDConfig, compute_cd_index, score_graph
from sciscidata.graph.graph import build_graph
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.atypicality import rank_on_disk, score_atypicality
from sciscidata.novelty.background import read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.venue_pairs import venue_numbers
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.plots import plot_comparison
from sciscidata.sampling.eligibility import EligibilityConfig
from sciscidata.sampling.open_quotas import Demand
from sciscidata.sampling.split import BALANCED
from sciscidata.schemas import CITATIONS, Corpus
from sciscidata.scoring import join_atypicality
from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
from sciscidata.sources.openalex.source import describe_answers, pull_openalex
from sciscidata.sources.record_files import find_record_files
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.sources.sciscinet.published_scores import compare_scores, compare_z, rescore
from sciscidata.sources.sciscinet.source import SciSciNet, SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet.tables import reading
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot, snapshot_bytes
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from sciscidata.storage import real_path, scratch_folder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoredSource:
    """Works, citations and scores of any source, and where everything came from.

    ``works`` and ``citations`` are WORKS and CITATIONS, lazy; ``scores`` is CD_SCORES with ATYPICALITY, which is null
    if novelty is left out. ``eligibility`` has the data's last year where the source knows it. ``provenance`` says in
    JSON types where the works come from. ``concentrations`` are filled when ``scores`` are collected; see
    ``score_atypicality``.

    Where texts are read only after the draw, ``read_works`` reads the works of some ids, ``names`` has the titles and
    DOIs of all works (None where reading all of them costs too much), and ``scores`` has the columns of STRUCTURE (see
    ``draw_before_texts``) without the labels, one row per work. Where the source has published scores too,
    ``plot_comparison`` draws published against computed ones into a PNG file.
    """

    works: pl.LazyFrame
    citations: pl.LazyFrame
    scores: pl.LazyFrame
    eligibility: EligibilityConfig
    provenance: dict[str, Any]
    read_works: Callable[[pl.Series], pl.DataFrame] | None = None
    names: pl.LazyFrame | None = None
    concentrations: dict[int, float] = field(default_factory=dict[int, float])
    plot_comparison: Callable[[Path], None] | None = None


@contextmanager
def open_source(config: BuildConfig) -> Generator[ScoredSource]:
    """Make a source ready and score its works: from the graph, from counts of the API, or from published scores."""
    source = config.source
    if isinstance(source, OpenAlexConfig):
        with ResponseStore(config.cache_dir / "openalex") as store, OpenAlexClient(config.api, store) as client:
            yield _pull_scored(config, source, client)
    elif isinstance(source, SciSciNetConfig):
        tables = scan_sciscinet(source)
        with reading(tables.tables), ExitStack() as scratch:
            yield _open_sciscinet(config, tables, scratch)
    elif isinstance(source, SnapshotConfig | CorpusConfig):
        yield _open_large(config, open_corpus(source, config.cache_dir))
    else:
        works, citations, provenance = open_corpus(source, config.cache_dir)
        disruption = compute_cd_index(works, citations, config.cd, cache_dir=config.cache_dir)
        places, found = {"background": config.background, "cache_dir": config.cache_dir}, dict[int, float]()
        scores = join_atypicality(disruption, works, citations, config.novelty, **places, concentrations=found)
        yield ScoredSource(works, citations, scores, config.eligibility, provenance, concentrations=found)


def open_corpus(source: SourceConfig, cache_dir: Path) -> Corpus:
    """Open a source that is a whole corpus. Records and snapshots are parsed into ``cache_dir`` once."""
    if isinstance(source, SyntheticConfig):
        return scan_synthetic(source)
    if isinstance(source, CorpusConfig):
        refuse_linked_cache(source.folder, cache_dir)
        return scan_corpus(source.folder)
    if isinstance(source, SciSciNetConfig):
        return scan_sciscinet(source).corpus
    if isinstance(source, SnapshotConfig):
        with progress_bar("read snapshot", snapshot_bytes(source), unit="bytes") as advance:
            # One folder per snapshot: later runs read only the parts that have changed.
            name = hashlib.sha256(os.fsencode(real_path(source.folder))).hexdigest()[:16]
            return ingest_snapshot(source, cache_dir / f"snapshot-{name}", advance)
    assert isinstance(source, RecordsConfig)
    n_bytes = sum(file.stat().st_size for file in find_record_files(source.inputs))
    with progress_bar("read records", n_bytes, unit="bytes") as advance:
        return pull_records(source, cache_dir, advance)


def score_structure(
    works: pl.LazyFrame,
    citations: pl.LazyFrame,
    cd: CDConfig,
    novelty: NoveltyConfig | None,
    *,
    background: Path | None = None,
    cache_dir: Path | None = None,
    concentrations: dict[int, float] | None = None,
) -> pl.DataFrame:
    """Score every work from one graph, without its text.

    The result has ``work_id``, ``cd_index``, ``n_references`` and ``n_citers`` (n_i + n_j) Int64, and the columns of
    ATYPICALITY (null if ``novelty`` is None), in index order.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3], "publication_year": [1990, 2000, 2001]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [2, 3, 3], "cited_id": [1, 2, 9]})
        >>> scores = score_structure(works, citations, CDConfig(), None)
        >>> scores.select("work_id", "cd_index", "n_references", "n_citers").rows()
        [(1, None, 0, 0), (2, 1.0, 1, 1), (3, None, 2, 0)]
    """
    graph = build_graph(works, citations, cache_dir=cache_dir)
    n_references = pl.Series("n_references", np.diff(graph.ref_offsets[: graph.n_known + 1]))
    n_citers = (pl.col("n_i") + pl.col("n_j")).cast(pl.Int64).alias("n_citers")
    scores = score_graph(graph, cd).select("work_id", "cd_index", n_references, n_citers)
    if novelty is None:
        return join_atypicality(scores, works, citations, None).collect()
    table = None if background is None else read_background(background).for_venues_of(works)
    given = (graph, venue_numbers(graph, works), novelty)
    atypicality = score_atypicality(*given, background=table, concentrations=concentrations)
    return scores.hstack(atypicality.drop("work_id"))  # both in index order


def _pull_scored(config: BuildConfig, source: OpenAlexConfig, client: OpenAlexClient) -> ScoredSource:
    candidates = Candidates.count(client, source, config.cd, config.eligibility)
    demand = Demand(config.thresholds, candidates.eligibility, config.split, config.cd.window_years)
    pulled = pull_openalex(client, candidates, config.cd, demand, config.novelty, background=config.background)
    logger.info("OpenAlex: %s calls, $%.4f in this run", f"{client.n_calls:,}", client.cost_usd)
    works, citations, scores, provenance, _ = pulled
    provenance |= describe_answers(client)
    return ScoredSource(works.lazy(), citations.lazy(), scores.lazy(), candidates.eligibility, provenance)


def _open_large(config: BuildConfig, corpus: Corpus) -> ScoredSource:
    """Score by structure alone; texts are read later, and only of the works that may be drawn."""
    works, citations, provenance = corpus
    places, concentrations = {"background": config.background, "cache_dir": config.cache_dir}, dict[int, float]()
    scores = score_structure(works, citations, config.cd, config.novelty, **places, concentrations=concentrations)
    facts = works.select("work_id", "publication_year", "work_type", "is_retracted")
    structure = _beside_scores(facts, scores, config.novelty)

    def read_works(work_ids: pl.Series) -> pl.DataFrame:
        return works.filter(pl.col("work_id").is_in(work_ids.implode())).collect().sort("work_id")

    names = works.select("work_id", "title", "doi")
    return ScoredSource(works, citations, structure, config.eligibility, provenance, read_works, names, concentrations)


def _open_sciscinet(config: BuildConfig, tables: SciSciNet, scratch: ExitStack) -> ScoredSource:
    """Take the published scores, or compute them from the references and compare the two.

    Ranks of published values lie on disk until ``scratch`` is closed, because a query would hold all works to rank
    them.
    """
    structure, provenance, novelty = tables.structure, tables.provenance, config.novelty
    if not tables.config.recompute:
        tables.require_published(novelty="novelty_label" in BALANCED[config.split.balance])
        if novelty is None or "z_p10" not in structure.collect_schema():
            structure = join_atypicality(structure, structure, structure, None)
        elif novelty.score == "rank":
            structure = rank_on_disk(structure, scratch.enter_context(scratch_folder()))
        counts = {"n_references": "reference_count", "n_citers": "citation_count"}
        structure = structure.rename({theirs: ours for ours, theirs in counts.items()})
        return _late(tables, structure, config, provenance)
    # The table of works is read for year and venue, and no other of its columns.
    places, found = {"background": config.background, "cache_dir": config.cache_dir}, dict[int, float]()
    scores = score_structure(tables.works, tables.citations, config.cd, novelty, **places, concentrations=found)
    provenance["comparison"] = _compare(structure, scores, config.thresholds)
    facts = structure.select("work_id", "publication_year", "work_type", "is_retracted")
    source = _late(tables, _beside_scores(facts, scores, novelty), config, provenance)
    source = replace(source, concentrations=found)
    if "cd_index" not in structure.collect_schema():
        return source
    computed = scores.select("work_id", "cd_index")

    def draw(path: Path) -> None:
        published = structure.select("work_id", "cd_index")
        plot_comparison(published, computed, provenance["comparison"], config.thresholds, data=provenance, path=path)

    return replace(source, plot_comparison=draw)


def _beside_scores(facts: pl.LazyFrame, scores: pl.DataFrame, novelty: NoveltyConfig | None) -> pl.LazyFrame:
    """Put scores next to the facts of works, row by row. A join would hold a second table of all works.

    Memory: about 48 bytes a work. Counts are narrow, and scores that follow from one row's z are computed again.
    """
    made_of_z = ("novelty_score", "conventionality_score") if novelty and novelty.score == "sigmoid" else ()
    counts = ("n_references", "n_citers", "n_pairs")
    order = scores["work_id"].arg_sort().to_numpy()
    ids = scores["work_id"].to_numpy()[order]
    held = scores.drop("work_id", *made_of_z).cast(dict.fromkeys(counts, pl.UInt32))

    def look_up(works: pl.DataFrame) -> pl.DataFrame:
        wanted = works["work_id"].to_numpy()
        at = np.minimum(np.searchsorted(ids, wanted), max(ids.size - 1, 0))
        known = pl.Series(ids[at] == wanted) if ids.size else pl.repeat(value=False, n=works.height, eager=True)
        rows = pl.select(pl.when(known).then(pl.Series(order[at] if ids.size else at, dtype=pl.UInt32))).to_series()
        return works.hstack(held.select(pl.all().gather(rows)).cast(dict.fromkeys(counts, pl.Int64)))

    schema = {**facts.collect_schema(), **held.schema, **dict.fromkeys(counts, pl.Int64())}
    pushed = {"predicate_pushdown": False, "projection_pushdown": False}
    beside = facts.map_batches(look_up, schema=schema, streamable=True, **pushed)
    return rescore(beside, "sigmoid") if made_of_z else beside


def _late(tables: SciSciNet, structure: pl.LazyFrame, config: BuildConfig, provenance: dict[str, Any]) -> ScoredSource:
    citations = tables.citations if tables.config.recompute else pl.LazyFrame(schema=CITATIONS)
    return ScoredSource(tables.in_text_order(), citations, structure, config.eligibility, provenance, tables.read_works)


def _compare(published: pl.LazyFrame, computed: pl.DataFrame, thresholds: LabelThresholds) -> dict[str, Any]:
    """Compare published scores with computed ones, as far as both exist."""
    there, found = published.collect_schema(), {}
    if "cd_index" in there:
        found = compare_scores(published.select("work_id", "cd_index"), computed, thresholds)
        _log_agreement("CD index", found)
    for name in ("z_p10", "z_median"):
        if name in there and computed[name].count():
            found[name] = compare_z(published.select("work_id", name), computed.select("work_id", name), name)
            _log_agreement(name, found[name])
    return found


def _log_agreement(name: str, agreement: Mapping[str, Any]) -> None:
    named = ("both", "spearman", "same_sign", "same_label")
    facts = ", ".join(f"{fact} {agreement[fact]}" for fact in named if fact in agreement)
    logger.info("published against computed %s: %s", name, facts)
