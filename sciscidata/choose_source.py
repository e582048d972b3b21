"""From the source that a configuration names to works, citations and scores: what every draw starts from."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sciscidata.config import BuildConfig, SourceConfig
from sciscidata.corpus.folder import CorpusConfig, refuse_linked_cache, scan_corpus
from sciscidata.diagnostics.checks import Check, diagnose_graph, diagnose_works
from sciscidata.disruption.index import cache_cd_index, score_graph
from sciscidata.engines.engine import Engine
from sciscidata.errors import ConfigError
from sciscidata.graph.graph import CitationGraph, build_graph
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.atypicality import cache_atypicality, rank_on_disk, score_atypicality
from sciscidata.novelty.background import read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.venue_pairs import venue_numbers
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.plots import plot_comparison
from sciscidata.release.manifest import NOVELTY_COLUMNS, render_manifest
from sciscidata.remote.object_store import is_url
from sciscidata.sampling.eligibility import EligibilityConfig, chosen_names, names_read
from sciscidata.sampling.open_quotas import Demand
from sciscidata.sampling.split import balanced_columns
from sciscidata.schemas import CD_SCORES, CITATIONS, EXAMPLE, WORKS, Corpus, require_columns
from sciscidata.scoring import join_atypicality
from sciscidata.sources.labelled import (
    LabelledConfig,
    find_labelled_files,
    judge_labels,
    leave_out_filters,
    make_structure,
    make_works,
    read_labelled_files,
)
from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
from sciscidata.sources.openalex.source import describe_answers, pull_openalex
from sciscidata.sources.record_files import find_record_files
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.sources.sciscinet.published_scores import compare_scores, compare_z, rescore
from sciscidata.sources.sciscinet.source import SciSciNet, SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet.tables import reading
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot, snapshot_bytes
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from sciscidata.sources.tables.source import TablesConfig, cached_tables, table_bytes
from sciscidata.storage import real_path, scratch_folder
from sciscidata.storage.parquet import read_parquet
from sciscidata.storage.paths import list_visible
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import begin_step, progress_bar

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoredSource:
    """Works, citations and scores of any source, and where everything came from.

    ``works`` and ``citations`` are WORKS and CITATIONS, lazy; ``scores`` is CD_SCORES with ATYPICALITY, which is null
    if novelty is left out. ``eligibility`` has the data's last year where the source knows it. ``provenance`` says in
    JSON types where the works come from. ``diagnose`` checks the data, with the options of ``diagnose_works``.
    ``concentrations`` are filled when ``scores`` are collected; see ``score_atypicality``.

    Where texts are read only after the draw, ``read_works`` reads the works of some ids, ``names`` has the titles and
    DOIs of all works (None where reading all of them costs too much), and ``scores`` has the columns of STRUCTURE (see
    ``draw_before_texts``) without the labels, one row per work. Where the source has published scores too,
    ``plot_comparison`` draws published against computed ones into a PNG file. With ``has_labels``, ``scores`` holds the
    labels too, and no null model is known. ``vocabulary`` has the primary fields and the venues (both columns) that
    there are; None where only the chosen ones were asked for. ``left_out`` names filters that cannot be applied.
    """

    works: pl.LazyFrame
    citations: pl.LazyFrame
    scores: pl.LazyFrame
    eligibility: EligibilityConfig
    provenance: dict[str, Any]
    diagnose: Callable[..., list[Check]]
    read_works: Callable[[pl.Series], pl.DataFrame] | None = None
    names: pl.LazyFrame | None = None
    concentrations: dict[int, float] = field(default_factory=dict[int, float])
    plot_comparison: Callable[[Path], None] | None = None
    has_labels: bool = False
    vocabulary: pl.LazyFrame | None = None
    left_out: tuple[str, ...] = ()


def list_steps(config: BuildConfig) -> tuple[str, ...]:
    """Name the steps of ``open_source``, for ``name_steps``."""
    if isinstance(config.source, OpenAlexConfig):
        return ("sample and score works",)
    if config.has_published_scores:
        return ("read works",)
    return (
        "read works",
        "build the citation graph",
        "score disruption",
        *(["score novelty"] if config.novelty else []),
    )


@contextmanager
def open_source(config: BuildConfig, engine: Engine | None = None) -> Generator[ScoredSource]:
    """Make a source ready and score its works: from the graph, from counts of the API, or from published scores.

    ``engine`` scores the works of a corpus on disk, by tasks in the cache folder. Then ``concentrations`` stay empty.
    """
    source = config.source
    begin_step(list_steps(config)[0])
    if isinstance(source, OpenAlexConfig):
        with ResponseStore(config.cache_dir / "openalex") as store, OpenAlexClient(config.api, store) as client:
            yield _pull_scored(config, source, client)
    elif isinstance(source, SciSciNetConfig):
        tables = scan_sciscinet(source)
        with reading(tables.tables), ExitStack() as scratch:
            yield _open_sciscinet(config, tables, scratch)
    elif isinstance(source, LabelledConfig):
        yield _open_labelled(config, source)
    elif isinstance(source, SnapshotConfig | CorpusConfig | TablesConfig):
        yield _open_large(config, open_corpus(source, config.cache_dir), engine)
    else:
        works, citations, provenance = open_corpus(source, config.cache_dir)
        graph, concentrations = _build_graph(works, citations, config), dict[int, float]()
        begin_step("score disruption")
        scores = _add_novelty(score_graph(graph, config.cd), graph, works, config, concentrations)
        diagnose = partial(diagnose_graph, graph, works, citations)
        facts = (scores.lazy(), config.eligibility, provenance, diagnose)
        yield ScoredSource(works, citations, *facts, concentrations=concentrations, vocabulary=works)


def open_corpus(source: SourceConfig | Corpus, cache_dir: Path) -> Corpus:
    """Open a source that is a whole corpus. Records, tables and snapshots are parsed into ``cache_dir`` once."""
    if isinstance(source, Corpus):
        return _check_corpus(source)
    if isinstance(source, LabelledConfig):
        msg = "labelled files hold no citations, so they are no corpus. Use them with build, or name another source."
        raise ConfigError(msg)
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
            place = source.folder if is_url(source.folder) else real_path(source.folder)
            name = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
            return ingest_snapshot(source, cache_dir / f"snapshot-{name}", advance)
    if isinstance(source, TablesConfig):
        with progress_bar("read tables", table_bytes(source), unit="bytes") as advance:
            return cached_tables(source, cache_dir, advance)
    assert isinstance(source, RecordsConfig)
    n_bytes = sum(file.stat().st_size for file in find_record_files(source.inputs))
    with progress_bar("read records", n_bytes, unit="bytes") as advance:
        return pull_records(source, cache_dir, advance)


def _check_corpus(corpus: Corpus) -> Corpus:
    """Check a corpus that a reader of the user's own has made, before any row is read."""
    works = require_columns(corpus.works, WORKS, frame_name="WORKS", stage="Corpus")
    citations = require_columns(corpus.citations, CITATIONS, frame_name="CITATIONS", stage="Corpus")
    render_manifest(corpus.provenance)
    return Corpus(works, citations, corpus.provenance)


def score_structure(
    graph: CitationGraph,
    works: pl.LazyFrame,
    config: BuildConfig,
    concentrations: dict[int, float] | None = None,
    engine: Engine | None = None,
) -> pl.DataFrame:
    """Score every work of a graph, without its text; with ``engine`` by tasks, of a graph in the cache folder.

    The result has CD_SCORES, ``n_references`` and ``n_citers`` (n_i + n_j) Int64, and the columns of ATYPICALITY
    (null if ``config.novelty`` is None), in index order.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3], "publication_year": [1990, 2000, 2001]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> graph = build_graph(works, pl.LazyFrame({"citing_id": [2, 3, 3], "cited_id": [1, 2, 9]}))
        >>> scores = score_structure(graph, works, BuildConfig(source=SyntheticConfig(), out="slices", novelty=None))
        >>> scores.select("work_id", "cd_index", "n_references", "n_citers").rows()
        [(1, None, 0, 0), (2, 1.0, 1, 1), (3, None, 2, 0)]
    """
    n_references = pl.Series("n_references", np.diff(graph.ref_offsets[: graph.n_known + 1]))
    n_citers = (pl.col("n_i") + pl.col("n_j")).cast(pl.Int64).alias("n_citers")
    begin_step("score disruption")
    if engine is None:
        scores = score_graph(graph, config.cd)
    else:
        scores = _read_years(cache_cd_index(graph, config.cache_dir, config.cd, engine=engine))
    scores = scores.select(*CD_SCORES, n_references, n_citers)
    return _add_novelty(scores, graph, works, config, concentrations, engine)


def _read_years(folder: Path) -> pl.DataFrame:
    """Read the scores of all years in the order of the graph's index."""
    return pl.concat([read_parquet(path) for path in list_visible(folder.glob("*.parquet"))])


def _build_graph(works: pl.LazyFrame, citations: pl.LazyFrame, config: BuildConfig) -> CitationGraph:
    begin_step("build the citation graph")
    return build_graph(works, citations, cache_dir=config.cache_dir)


def _add_novelty(
    scores: pl.DataFrame,
    graph: CitationGraph,
    works: pl.LazyFrame,
    config: BuildConfig,
    concentrations: dict[int, float] | None,
    engine: Engine | None = None,
) -> pl.DataFrame:
    """Add the columns of ATYPICALITY to scores that are in index order."""
    if config.novelty is None:
        return join_atypicality(scores, works, works, None).collect()
    begin_step("score novelty")
    table = None if config.background is None else read_background(config.background).for_venues_of(works)
    given = (graph, venue_numbers(graph, works))
    if engine is None:
        found = score_atypicality(*given, config.novelty, background=table, concentrations=concentrations)
    else:
        made = cache_atypicality(*given, config.cache_dir, config.novelty, background=table, engine=engine)
        found = _read_years(made)
    return scores.hstack(found.drop("work_id"))


def _pull_scored(config: BuildConfig, source: OpenAlexConfig, client: OpenAlexClient) -> ScoredSource:
    candidates = Candidates.count(client, source, config.cd, config.eligibility)
    demand = Demand(config.thresholds, candidates.eligibility, config.split, config.cd.window_years)
    pulled = pull_openalex(client, candidates, config.cd, demand, config.novelty, background=config.background)
    logger.info("OpenAlex: %s calls, $%.4f in this run", f"{client.n_calls:,}", client.cost_usd)
    works, citations, scores, provenance, _ = pulled
    provenance |= describe_answers(client)
    diagnose = partial(diagnose_works, works.lazy())  # references and citers of a sample are elsewhere
    return ScoredSource(works.lazy(), citations.lazy(), scores.lazy(), candidates.eligibility, provenance, diagnose)


def _open_large(config: BuildConfig, corpus: Corpus, engine: Engine | None) -> ScoredSource:
    """Score by structure alone; texts are read later, and only of the works that may be drawn."""
    works, citations, provenance = corpus
    graph, concentrations = _build_graph(works, citations, config), dict[int, float]()
    scores = score_structure(graph, works, config, concentrations, engine)
    facts = works.select("work_id", "publication_year", "work_type", "is_retracted", *names_read(config.eligibility))
    structure = _beside_scores(facts, scores, config.novelty)

    def read_works(work_ids: pl.Series) -> pl.DataFrame:
        return works.filter(pl.col("work_id").is_in(work_ids.implode())).collect().sort("work_id")

    names = works.select("work_id", "title", "doi")
    facts = (structure, config.eligibility, provenance, partial(diagnose_graph, graph, works, citations))
    return ScoredSource(works, citations, *facts, read_works, names, concentrations, vocabulary=works)


def _open_labelled(config: BuildConfig, source: LabelledConfig) -> ScoredSource:
    """Take scores and labels from the files, and draw by structure before texts are read."""
    n_bytes = sum(file.stat().st_size for file in find_labelled_files(source.inputs))
    with progress_bar("read labelled works", n_bytes, unit="bytes") as advance:
        rows, columns, report = read_labelled_files(source, config.cache_dir, advance, is_scored=config.label is None)
    eligibility, left_out = leave_out_filters(config.eligibility, columns)
    is_scored = "cd_index" in columns
    if not is_scored and config.split.balance not in ("label", "none"):
        msg = (
            f"SplitConfig.balance is {config.split.balance!r}, and the labelled files have no cd_index, so no work has "
            "such a label. Set SplitConfig.balance='label'."
        )
        raise ConfigError(msg)
    if left_out:  # texts with a label are not expected to have them
        level = logging.WARNING if is_scored else logging.INFO
        logger.log(level, "labelled files lack the columns for %s: not applied", ", ".join(left_out))
    if n_repeated := report.get("repeated_texts"):
        logger.warning(
            "labelled files: %s; only the first of equal texts is read", counted(n_repeated, "repeated text")
        )
    if config.novelty is None:
        rows = rows.with_columns(pl.lit(None, EXAMPLE[name]).alias(name) for name in NOVELTY_COLUMNS)
    judged, contradicting = judge_labels(rows, source.labels, config.thresholds)
    if contradicting:
        found = ", ".join(f"{n:,} {name}" for name, n in contradicting.items())
        logger.warning("labels that contradict their scores, taken as they are: %s", found)
    provenance = {"kind": "labelled", "labels": source.labels, "contradicting": contradicting, **report}
    works, structure = make_works(rows), make_structure(judged, names_read(eligibility))
    known = structure.drop({"n_references", "n_citers"} - columns)

    def read_works(work_ids: pl.Series) -> pl.DataFrame:
        return works.filter(pl.col("work_id").is_in(work_ids.implode())).collect(engine="streaming").sort("work_id")

    return ScoredSource(
        works,
        pl.LazyFrame(schema=CITATIONS),
        structure,
        eligibility,
        provenance | {"filters_left_out": left_out},
        partial(diagnose_works, known) if "publication_year" in columns else _find_nothing,
        read_works,
        works.select("work_id", "title", "doi"),
        has_labels=True,
        vocabulary=works,
        left_out=tuple(left_out),
    )


def _find_nothing(**_: object) -> list[Check]:
    """Check no data: of works without a year there is nothing to say."""
    return []


def _open_sciscinet(config: BuildConfig, tables: SciSciNet, scratch: ExitStack) -> ScoredSource:
    """Take the published scores, or compute them from the references and compare the two.

    Ranks of published values lie on disk until ``scratch`` is closed, because a query would hold all works to rank
    them.
    """
    structure, provenance, novelty = tables.structure, tables.provenance, config.novelty
    if not tables.config.recompute:
        tables.require_published(novelty="novelty_label" in balanced_columns(config.split, config.label))
        if novelty is None or "z_p10" not in structure.collect_schema():
            structure = join_atypicality(structure, structure, structure, None)
        elif novelty.score == "rank":
            structure = rank_on_disk(structure, scratch.enter_context(scratch_folder()))
        counts = {"n_references": "reference_count", "n_citers": "citation_count"}
        structure = structure.rename({theirs: ours for ours, theirs in counts.items()})
        structure = _with_names(structure, tables, config.eligibility)
        return _late(tables, structure, config, provenance, partial(diagnose_works, structure))
    # The table of works is read for year and venue, and no other of its columns.
    graph = _build_graph(tables.works, tables.citations, config)
    concentrations: dict[int, float] = {}
    scores = score_structure(graph, tables.works, config, concentrations)
    provenance["comparison"] = _compare(structure, scores, config.thresholds)
    facts = structure.select("work_id", "publication_year", "work_type", "is_retracted")
    diagnose = partial(diagnose_graph, graph, tables.works, tables.citations)
    scored = _with_names(_beside_scores(facts, scores, novelty), tables, config.eligibility)
    source = _late(tables, scored, config, provenance, diagnose)
    source = replace(source, concentrations=concentrations)
    if "cd_index" not in structure.collect_schema():
        return source
    computed = scores.select("work_id", "cd_index")

    def draw(path: Path) -> None:
        published = structure.select("work_id", "cd_index")
        plot_comparison(published, computed, provenance["comparison"], config.thresholds, data=provenance, path=path)

    return replace(source, plot_comparison=draw)


def _beside_scores(facts: pl.LazyFrame, scores: pl.DataFrame, novelty: NoveltyConfig | None) -> pl.LazyFrame:
    """Put scores next to the facts of works. Memory: about 48 bytes a work.

    Counts are narrow. What follows from the counts or z of one row is computed again.
    """
    made_of_z = ("novelty_score", "conventionality_score") if novelty and novelty.score == "sigmoid" else ()
    counts = ("n_references", "n_pairs")
    n_i, n_j, n_k = (pl.col(name).cast(pl.Int64) for name in ("n_i", "n_j", "n_k"))
    ratio = (n_i - n_j) / (n_i + n_j + n_k)  # NaN if all are 0
    is_ratio = (pl.col("cd_index") == ratio).alias("is_ratio")  # else it is 0, by ``CDConfig.undefined``
    held = scores.with_columns(is_ratio, pl.col("cd_index").is_not_null().alias("is_defined")).drop(
        "cd_index", "n_citers", *made_of_z
    )
    beside = _beside(facts, held.cast(dict.fromkeys(counts, pl.UInt32))).cast(dict.fromkeys(counts, pl.Int64()))
    cd_index = pl.when("is_defined").then(pl.when("is_ratio").then(ratio).otherwise(0.0)).alias("cd_index")
    beside = beside.with_columns(cd_index, (n_i + n_j).alias("n_citers")).drop("is_ratio", "is_defined")
    return rescore(beside, "sigmoid") if made_of_z else beside


def _beside(facts: pl.LazyFrame, table: pl.DataFrame) -> pl.LazyFrame:
    """Put the columns of ``table`` next to works by id, row by row. A join would hold a second table of all works."""
    order = table["work_id"].arg_sort().to_numpy()
    ids = table["work_id"].to_numpy()[order]
    held = table.drop("work_id")

    def look_up(works: pl.DataFrame) -> pl.DataFrame:
        wanted = works["work_id"].to_numpy()
        at = np.minimum(np.searchsorted(ids, wanted), max(ids.size - 1, 0))
        known = pl.Series(ids[at] == wanted) if ids.size else pl.repeat(value=False, n=works.height, eager=True)
        rows = pl.select(pl.when(known).then(pl.Series(order[at] if ids.size else at, dtype=pl.UInt32))).to_series()
        return works.hstack(held.select(pl.all().gather(rows)))

    schema = {**facts.collect_schema(), **held.schema}
    pushed = {"predicate_pushdown": False, "projection_pushdown": False}
    return facts.map_batches(look_up, schema=schema, streamable=True, **pushed)


def _with_names(structure: pl.LazyFrame, tables: SciSciNet, eligibility: EligibilityConfig) -> pl.LazyFrame:
    """Add field and venue of the works that have a chosen one; of all others they are null.

    The tables of fields and venues are read once, in bounded memory. What is held: about 40 bytes for each such work.
    """
    names = names_read(eligibility)
    if not names:
        return structure
    chosen = tables.in_id_order().select("work_id", *names).filter(pl.any_horizontal(chosen_names(eligibility)))
    return _beside(structure, chosen.collect(engine="streaming"))


def _late(
    tables: SciSciNet,
    structure: pl.LazyFrame,
    config: BuildConfig,
    provenance: dict[str, Any],
    diagnose: Callable[..., list[Check]],
) -> ScoredSource:
    citations = tables.citations if tables.config.recompute else pl.LazyFrame(schema=CITATIONS)
    facts = (structure, config.eligibility, provenance, diagnose, tables.read_works)
    return ScoredSource(tables.in_text_order(), citations, *facts, vocabulary=tables.vocabulary)


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
