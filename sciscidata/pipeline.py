"""The whole flow in one place: a source in, a frozen slice out. Read this first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import platformdirs
import polars as pl

from sciscidata.cdindex import CDConfig, compute_cd_index
from sciscidata.demand import Demand
from sciscidata.eligibility import (
    EligibilityConfig,
    count_references,
    count_removals,
    join_candidates,
    mark_ineligible,
)
from sciscidata.errors import ConfigError
from sciscidata.labels import LabelThresholds, count_labels, label_disruption, label_novelty
from sciscidata.late_text import draw_before_text
from sciscidata.openalex.client import OpenAlexClient
from sciscidata.openalex.config import ApiConfig
from sciscidata.openalex.store import ResponseStore
from sciscidata.plots import draw_disruption
from sciscidata.progress import progress_bar
from sciscidata.release import Release, check_target, write_release
from sciscidata.schemas import CITATIONS
from sciscidata.sources.openalex import describe_answers, pull_openalex
from sciscidata.sources.openalex_candidates import Candidates, OpenAlexConfig
from sciscidata.sources.record_files import find_record_files
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.sources.sciscinet import SciSciNet, SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet_values import compare_scores
from sciscidata.sources.synthetic import SyntheticConfig, scan_synthetic
from sciscidata.splits import SplitConfig, draw_split, require_available

logger = logging.getLogger(__name__)

SourceConfig: TypeAlias = RecordsConfig | SyntheticConfig | OpenAlexConfig | SciSciNetConfig

#: The picture that every release holds beside its data.
PICTURE = "disruption.png"


def default_cache_dir() -> Path:
    """Return the folder for what later runs can use again: parsed records and citation graphs."""
    return Path(platformdirs.user_cache_dir("sciscidata"))


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildConfig:
    """Everything that decides what a release holds, and where it goes.

    ``out``, ``api``, ``cache_dir`` and ``overwrite`` do not change what is released, so the manifest leaves them out.
    """

    source: SourceConfig
    out: Path
    cd: CDConfig = field(default_factory=CDConfig)
    thresholds: LabelThresholds = field(default_factory=LabelThresholds)
    eligibility: EligibilityConfig = field(default_factory=EligibilityConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    cache_dir: Path = field(default_factory=default_cache_dir)
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Take paths as text too."""
        for name in ("out", "cache_dir"):
            object.__setattr__(self, name, Path(getattr(self, name)))
        if not isinstance(self.source, SourceConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = (
                f"BuildConfig.source is {self.source!r}, needs a RecordsConfig, SyntheticConfig, OpenAlexConfig or "
                "SciSciNetConfig, for example SyntheticConfig()."
            )
            raise ConfigError(msg)


def build(config: BuildConfig) -> Release:
    """Read a source, score, label, filter and draw its works, and release them. Executes.

    Args:
        config: see BuildConfig.

    Returns:
        The release, whole on disk at ``config.out``.

    Raises:
        SciSciDataError: whatever its stages raise; nothing is left half-written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     release = build(BuildConfig(
        ...         source=SyntheticConfig(n_works=3_000),
        ...         out=Path(home) / "slice",
        ...         split=SplitConfig(n_train=60, n_test=9),
        ...         cache_dir=Path(home) / "cache",
        ...     ))
        ...     release.train.height, release.test.height
        (60, 9)
    """
    check_target(config.out, overwrite=config.overwrite)
    if not isinstance(config.source, SciSciNetConfig):  # which publishes novelty
        require_available(config.split)
    with open_source(config) as source:
        drawn, works, eligible, counts = _draw_late(source, config) if source.read_works else _draw(source, config)
        works_read = counts["filters"]["works"]
        logger.info("%s of %s works are eligible", f"{eligible.height:,}", f"{works_read:,}")
        provenance = source.finish(drawn)

        def draw_picture(folder: Path) -> None:
            draw_disruption(
                eligible["cd_index"],
                config.thresholds,
                eligible=count_labels(eligible),
                drawn=count_labels(drawn),
                path=folder / PICTURE,
            )

        return write_release(
            drawn,
            works,
            config.out,
            manifest=_describe(config, provenance, counts),
            overwrite=config.overwrite,
            extra=draw_picture,
        )


@dataclass(frozen=True)
class ScoredSource:
    """Works, citations and scores of any source; ``finish`` takes the draw and says where everything came from.

    ``eligibility`` is that of the configuration, with the data's last year filled in by a source that knows it.
    """

    works: pl.LazyFrame
    citations: pl.LazyFrame
    scores: pl.LazyFrame
    eligibility: EligibilityConfig
    finish: Callable[[pl.DataFrame], dict[str, Any]]
    read_works: Callable[[pl.Series], pl.DataFrame] | None = None


class _Drawn(NamedTuple):
    """What was drawn, the WORKS it is to be found in, what it was drawn from, and what the manifest counts."""

    drawn: pl.DataFrame
    works: pl.LazyFrame
    eligible: pl.DataFrame
    counts: dict[str, Any]


def _draw(source: ScoredSource, config: BuildConfig) -> _Drawn:
    """Filter all works, then draw."""
    labelled = label_disruption(source.scores, config.thresholds)
    candidates = join_candidates(source.works, labelled, source.citations)
    marked = mark_ineligible(candidates, source.eligibility, window_years=config.cd.window_years).collect()
    eligible = marked.filter(pl.col("removed_by").is_null())
    years, last_year = marked["publication_year"], source.eligibility.last_year
    counts = {
        "filters": count_removals(marked),
        "scored": count_labels(marked),
        "eligible": count_labels(eligible),
        "first_year": years.min(),
        "last_year": years.max() if last_year is None else last_year,
    }
    return _Drawn(draw_split(eligible, config.split).collect(), source.works, eligible, counts)


def _draw_late(source: ScoredSource, config: BuildConfig) -> _Drawn:
    """Draw by what is known without a text, and read texts until the draw is full."""
    assert source.read_works is not None
    labelled = label_disruption(source.scores, config.thresholds)
    if "novelty_score" in labelled.collect_schema():
        labelled = label_novelty(labelled, config.thresholds)
    late = draw_before_text(
        labelled, source.read_works, source.eligibility, config.split, window_years=config.cd.window_years
    )
    first, last = late.years
    last_year = source.eligibility.last_year
    counts = {
        "filters": late.filters,
        "scored": late.scored,
        "eligible": count_labels(late.eligible),
        "text": late.reading,
        "first_year": first,
        "last_year": last if last_year is None else last_year,
    }
    return _Drawn(late.drawn, late.works.lazy(), late.eligible, counts)


@contextmanager
def open_source(config: BuildConfig) -> Generator[ScoredSource]:
    """Make a source ready and score its works: from the citation graph, or by the counts of the OpenAlex API."""
    if isinstance(config.source, OpenAlexConfig):
        with ResponseStore(config.cache_dir / "openalex") as store, OpenAlexClient(config.api, store) as client:
            yield _pull_scored(config, config.source, client)
        return
    if isinstance(config.source, SciSciNetConfig):
        yield _open_sciscinet(config, scan_sciscinet(config.source))
        return
    if isinstance(config.source, SyntheticConfig):
        corpus = scan_synthetic(config.source)
    else:
        n_bytes = sum(file.stat().st_size for file in find_record_files(config.source.inputs))
        with progress_bar("read records", n_bytes, unit="bytes") as advance:
            corpus = pull_records(config.source, config.cache_dir, advance)
    scores = compute_cd_index(corpus.citations, corpus.works, config.cd, cache_dir=config.cache_dir)
    yield ScoredSource(corpus.works, corpus.citations, scores, config.eligibility, lambda _: corpus.provenance)


def _pull_scored(config: BuildConfig, source: OpenAlexConfig, client: OpenAlexClient) -> ScoredSource:
    candidates = Candidates.count(client, source, config.cd, config.eligibility)
    demand = Demand(config.thresholds, candidates.eligibility, config.split, config.cd.window_years)
    pulled = pull_openalex(client, candidates, config.cd, demand)

    def finish(drawn: pl.DataFrame) -> dict[str, Any]:
        """Put the venues of the drawn works' references into the store, where novelty will look for them."""
        if source.venues:
            cited = pulled.citations.filter(pl.col("citing_id").is_in(drawn["work_id"].implode()))["cited_id"]
            pulled.references.ask(cited)
        logger.info("OpenAlex: %s calls, $%.4f in this run", f"{client.n_calls:,}", client.cost_usd)
        return pulled.provenance | describe_answers(client)

    works, citations, scores, *_ = pulled
    return ScoredSource(works.lazy(), citations.lazy(), scores.lazy(), candidates.eligibility, finish)


def _open_sciscinet(config: BuildConfig, tables: SciSciNet) -> ScoredSource:
    """Take the published scores, or compute them from the references and compare the two."""
    structure, citations = tables.structure, pl.LazyFrame(schema=CITATIONS)
    provenance, n_citers = tables.provenance, pl.col("citation_count")
    n_references = pl.col("reference_count")
    if not tables.config.recompute:
        tables.require_published()
    else:
        citations = tables.citations
        if "reference_count" not in tables.tables["papers"].columns:
            listed = count_references(citations).rename({"n_references": "listed"})
            structure = structure.join(listed, on="work_id", how="left")
            n_references = pl.col("listed")
        scores = compute_cd_index(citations, tables.papers, config.cd, cache_dir=config.cache_dir).collect()
        if "cd_index" in structure.collect_schema():
            compared = provenance["comparison"] = compare_scores(
                structure.select("work_id", "cd_index"), scores, config.thresholds
            )
            told = ", ".join(f"{name} {compared[name]}" for name in ("both", "spearman", "same_sign", "same_label"))
            logger.info("published against computed CD index: %s", told)
        n_citers = pl.col("n_i") + pl.col("n_j")
        structure = structure.drop("cd_index", strict=False).join(scores.lazy(), on="work_id", how="left")
    structure = structure.with_columns(
        n_references.cast(pl.Int64).alias("n_references"), n_citers.cast(pl.Int64).alias("n_citers")
    )
    return ScoredSource(tables.works, citations, structure, config.eligibility, lambda _: provenance, tables.read_works)


def _describe(config: BuildConfig, provenance: dict[str, Any], counts: dict[str, Any]) -> dict[str, Any]:
    """State in JSON types what was read, decided and counted; write_release adds what the files hold."""
    return {
        "source": provenance,
        "cd": asdict(config.cd),
        "thresholds": asdict(config.thresholds),
        "eligibility": asdict(config.eligibility),
        "split": asdict(config.split),
        "counts": counts,
    }
