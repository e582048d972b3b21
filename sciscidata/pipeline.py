"""The whole flow in one place: a source in, a frozen slice out. Read this first."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import platformdirs
import polars as pl

from sciscidata.cdindex import CDConfig, compute_cd_index
from sciscidata.demand import Demand
from sciscidata.eligibility import EligibilityConfig, join_candidates, mark_ineligible
from sciscidata.errors import BackgroundError, ConfigError, InputNotFoundError, ReleaseExistsError
from sciscidata.labels import VOCABULARIES, LabelThresholds, count_labels
from sciscidata.novelty_background import Background, read_background, write_background
from sciscidata.novelty_config import NoveltyConfig
from sciscidata.novelty_plots import draw_novelty, draw_novelty_by_year
from sciscidata.openalex.client import OpenAlexClient
from sciscidata.openalex.config import ApiConfig
from sciscidata.openalex.store import ResponseStore
from sciscidata.plots import draw_disruption
from sciscidata.progress import progress_bar
from sciscidata.release import Release, check_target, write_release
from sciscidata.scoring import add_novelty, label_scores
from sciscidata.sources import Corpus
from sciscidata.sources.openalex import describe_answers, pull_openalex
from sciscidata.sources.openalex_candidates import Candidates, OpenAlexConfig
from sciscidata.sources.record_files import find_record_files
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.sources.synthetic import SyntheticConfig, scan_synthetic
from sciscidata.splits import BALANCED, SplitConfig, draw_split
from sciscidata.statement import count_stages, describe_background, describe_novelty, remark_on_novelty

logger = logging.getLogger(__name__)

SourceConfig: TypeAlias = RecordsConfig | SyntheticConfig | OpenAlexConfig


def default_cache_dir() -> Path:
    """Return the folder for what later runs can use again: parsed records and citation graphs."""
    return Path(platformdirs.user_cache_dir("sciscidata"))


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildConfig:
    """Everything that decides what a release holds, and where it goes.

    ``novelty=None``, or a pull without venues, leaves novelty out: its fields are null. ``background`` names a saved
    table of pair statistics to take the null model from, instead of the source's own works.

    ``out``, ``api``, ``cache_dir`` and ``overwrite`` do not change what is released, so the manifest leaves them out;
    of ``background`` it names the SHA-256.

    Raises:
        ConfigError: on construction, if ``source`` or ``novelty`` is none or a path no path, or novelty is left out and
            needed nevertheless.
    """

    source: SourceConfig
    out: Path
    cd: CDConfig = field(default_factory=CDConfig)
    novelty: NoveltyConfig | None = field(default_factory=NoveltyConfig)
    background: Path | None = None
    thresholds: LabelThresholds = field(default_factory=LabelThresholds)
    eligibility: EligibilityConfig = field(default_factory=EligibilityConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    cache_dir: Path = field(default_factory=default_cache_dir)
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Take paths as text too."""
        for name in ("out", "cache_dir", *(("background",) if self.background is not None else ())):
            value = getattr(self, name)
            if not isinstance(value, str | os.PathLike):
                msg = f"BuildConfig.{name} is {value!r}, needs a path."
                raise ConfigError(msg)
            object.__setattr__(self, name, Path(value))
        if not isinstance(self.source, RecordsConfig | SyntheticConfig | OpenAlexConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = (
                f"BuildConfig.source is {self.source!r}, needs a RecordsConfig, SyntheticConfig or OpenAlexConfig, "
                "for example SyntheticConfig()."
            )
            raise ConfigError(msg)
        if not isinstance(self.novelty, NoveltyConfig | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"BuildConfig.novelty is {self.novelty!r}, needs a NoveltyConfig, or None to leave novelty out."
            raise ConfigError(msg)
        if self.novelty is None:
            remedy = "Leave novelty on (novelty=NoveltyConfig(), no --no-novelty)"
            self._check_without_novelty("novelty is switched off", remedy)
        if isinstance(self.source, OpenAlexConfig) and not self.source.venues:
            remedy = "Leave venues on (OpenAlexConfig.venues, no --no-venues)"
            self._check_without_novelty("the venues of references are not asked for", remedy)
            object.__setattr__(self, "novelty", None)

    def _check_without_novelty(self, reason: str, remedy: str) -> None:
        if "novelty_label" in BALANCED[self.split.balance]:
            msg = (
                f"balance is {self.split.balance!r}, but {reason}, so there are no labels to balance. "
                f"{remedy}, or use balance='disruption' (--balance disruption)."
            )
            raise ConfigError(msg)
        if self.background is not None:
            msg = f"background is given, but {reason}. {remedy}, or give no background."
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
    background = describe_background(config.background, config.novelty)
    with open_source(config) as source:
        labelled = label_scores(source.scores, config.thresholds)
        candidates = join_candidates(source.works, labelled, source.citations)
        marked = mark_ineligible(candidates, source.eligibility, window_years=config.cd.window_years).collect()
        eligible = marked.filter(pl.col("removed_by").is_null())
        logger.info("%s of %s works are eligible", f"{eligible.height:,}", f"{marked.height:,}")
        novelty = describe_novelty(config.novelty, config.thresholds, background, marked)
        for remark in remark_on_novelty(novelty, config.thresholds.novelty_rule):
            logger.warning("%s", remark)
        drawn = draw_split(eligible, config.split).collect()
        return write_release(
            drawn,
            source.works,
            config.out,
            manifest={
                "source": source.provenance,
                **_describe_settings(config),
                "atypicality": novelty,
                "counts": count_stages(marked, eligible, source.eligibility.last_year),
            },
            overwrite=config.overwrite,
            extra=lambda folder: _draw_pictures(marked, eligible, drawn, config.thresholds, folder),
        )


def build_background(
    source: SourceConfig,
    path: str | Path,
    config: NoveltyConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    overwrite: bool = False,
) -> Background:
    """Save the null model of a whole source, to score other works against it. Executes.

    Args:
        source: records or a synthetic world. A pull of the API reads a sample, of which this would be no background.
        path: the file to write.
        config: the null model; ``NoveltyConfig()`` when None.
        cache_dir: for parsed records and the graph; the user's cache folder when None.
        overwrite: replace an existing background. Anything else that is there is never replaced.

    Returns:
        The table on disk; see write_background.

    Raises:
        ConfigError: at once, if the source is the API.
        ReleaseExistsError: at once, if ``path`` exists and may not be replaced.
        SciSciDataError: whatever its stages raise; nothing is left half-written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     source = SyntheticConfig(n_works=2_000)
        ...     table = build_background(source, Path(home) / "pairs.parquet", cache_dir=home)
        ...     table.counts["publication_year"].max()
        2024
    """
    if isinstance(source, OpenAlexConfig):
        msg = (
            "a background is the null model of a whole corpus, and the OpenAlex API gives a sample. Name files of "
            "works (RecordsConfig, --input FILE), or a synthetic world (SyntheticConfig, --source synthetic)."
        )
        raise ConfigError(msg)
    path = Path(path)
    _check_replaceable(path, overwrite=overwrite)
    cache_dir = default_cache_dir() if cache_dir is None else Path(cache_dir)
    works, citations, _ = open_corpus(source, cache_dir)
    return read_background(write_background(citations, works, path, config, cache_dir=cache_dir))


def _check_replaceable(path: Path, *, overwrite: bool) -> None:
    if not path.exists():
        return
    if not overwrite:
        msg = f"{path} already exists. Choose another file, or replace it: overwrite=True (--overwrite)."
        raise ReleaseExistsError(msg)
    try:
        read_background(path)
    except (InputNotFoundError, BackgroundError) as error:  # a mistyped path must not cost anyone a file
        msg = f"{path} is no background of this version, so it is not replaced. Choose another file, or remove it."
        raise ReleaseExistsError(msg) from error


@dataclass(frozen=True)
class ScoredSource:
    """Works, citations and scores of any source, and where everything came from.

    ``scores`` has the columns of CD_SCORES and of ATYPICALITY; the latter are null when novelty is left out.
    ``eligibility`` is that of the configuration, with the data's last year filled in by a source that knows it.
    """

    works: pl.LazyFrame
    citations: pl.LazyFrame
    scores: pl.LazyFrame
    eligibility: EligibilityConfig
    provenance: dict[str, Any]


@contextmanager
def open_source(config: BuildConfig) -> Generator[ScoredSource]:
    """Make a source ready and score its works: from the citation graph, or by the counts of the OpenAlex API."""
    if isinstance(config.source, OpenAlexConfig):
        with ResponseStore(config.cache_dir / "openalex") as store, OpenAlexClient(config.api, store) as client:
            yield _pull_scored(config, config.source, client)
        return
    works, citations, provenance = open_corpus(config.source, config.cache_dir)
    disruption = compute_cd_index(citations, works, config.cd, cache_dir=config.cache_dir)
    null_model = {"background": config.background, "cache_dir": config.cache_dir}
    scores = add_novelty(disruption, citations, works, config.novelty, **null_model)
    yield ScoredSource(works, citations, scores, config.eligibility, provenance)


def open_corpus(source: RecordsConfig | SyntheticConfig, cache_dir: Path) -> Corpus:
    """Make a source that is a whole corpus ready; records are parsed into ``cache_dir``, once."""
    if isinstance(source, SyntheticConfig):
        return scan_synthetic(source)
    n_bytes = sum(file.stat().st_size for file in find_record_files(source.inputs))
    with progress_bar("read records", n_bytes, unit="bytes") as advance:
        return pull_records(source, cache_dir, advance)


def _pull_scored(config: BuildConfig, source: OpenAlexConfig, client: OpenAlexClient) -> ScoredSource:
    candidates = Candidates.count(client, source, config.cd, config.eligibility)
    demand = Demand(config.thresholds, candidates.eligibility, config.split, config.cd.window_years)
    pulled = pull_openalex(client, candidates, config.cd, demand, config.novelty, background=config.background)
    logger.info("OpenAlex: %s calls, $%.4f in this run", f"{client.n_calls:,}", client.cost_usd)
    works, citations, scores, provenance, _ = pulled
    provenance |= describe_answers(client)
    return ScoredSource(works.lazy(), citations.lazy(), scores.lazy(), candidates.eligibility, provenance)


def _draw_pictures(
    marked: pl.DataFrame, eligible: pl.DataFrame, drawn: pl.DataFrame, thresholds: LabelThresholds, folder: Path
) -> None:
    """Draw what a release holds beside its data; of novelty only where a work has a score."""
    disruption, novelty = ([count_labels(works, name) for works in (eligible, drawn)] for name in VOCABULARIES)
    cd = eligible["cd_index"]
    draw_disruption(cd, thresholds, eligible=disruption[0], drawn=disruption[1], path=folder / "disruption.png")
    if marked["z_p10"].count():
        counts = {"eligible_counts": novelty[0], "drawn_counts": novelty[1]}
        n_unlabelled = drawn["novelty_label"].null_count()
        draw_novelty(marked, eligible, thresholds, **counts, n_unlabelled=n_unlabelled, path=folder / "novelty.png")
        draw_novelty_by_year(marked, folder / "novelty_by_year.png")


def _describe_settings(config: BuildConfig) -> dict[str, Any]:
    parts = ("cd", "thresholds", "eligibility", "split")
    return {name: asdict(getattr(config, name)) for name in parts}
