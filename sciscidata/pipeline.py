"""The whole flow in one place: a source in, a frozen slice out. Read this first."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
import polars as pl

from sciscidata.cdindex import CDConfig, compute_cd_index
from sciscidata.eligibility import EligibilityConfig, count_removals, join_candidates, mark_ineligible
from sciscidata.labels import LabelThresholds, count_labels, label_disruption
from sciscidata.plots import draw_disruption
from sciscidata.progress import progress_bar
from sciscidata.release import Release, check_target, write_release
from sciscidata.sources import Corpus
from sciscidata.sources.record_files import find_record_files
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.sources.synthetic import SyntheticConfig, scan_synthetic
from sciscidata.splits import SplitConfig, draw_split, require_available

logger = logging.getLogger(__name__)

#: The picture that every release holds beside its data.
PICTURE = "disruption.png"


def default_cache_dir() -> Path:
    """Return the folder for what later runs can use again: parsed records and citation graphs."""
    return Path(platformdirs.user_cache_dir("sciscidata"))


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildConfig:
    """Everything that decides what a release holds, and where it goes.

    ``out``, ``cache_dir`` and ``overwrite`` do not change what is released, so the manifest leaves them out.
    """

    source: RecordsConfig | SyntheticConfig
    out: Path
    cd: CDConfig = field(default_factory=CDConfig)
    thresholds: LabelThresholds = field(default_factory=LabelThresholds)
    eligibility: EligibilityConfig = field(default_factory=EligibilityConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    cache_dir: Path = field(default_factory=default_cache_dir)
    overwrite: bool = False


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
    require_available(config.split)
    corpus = open_source(config.source, config.cache_dir)
    scores = compute_cd_index(corpus.citations, corpus.works, config.cd, cache_dir=config.cache_dir)
    labelled = label_disruption(scores, config.thresholds)
    candidates = join_candidates(corpus.works, labelled, corpus.citations)
    marked = mark_ineligible(candidates, config.eligibility, window_years=config.cd.window_years).collect()
    eligible = marked.filter(pl.col("removed_by").is_null())
    logger.info("%s of %s works are eligible", f"{eligible.height:,}", f"{marked.height:,}")
    drawn = draw_split(eligible, config.split).collect()

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
        corpus.works,
        config.out,
        manifest=_describe(config, corpus, marked, eligible),
        overwrite=config.overwrite,
        extra=draw_picture,
    )


def open_source(source: RecordsConfig | SyntheticConfig, cache_dir: Path) -> Corpus:
    """Make works and citations of any source ready to be scanned."""
    if isinstance(source, SyntheticConfig):
        return scan_synthetic(source)
    n_bytes = sum(file.stat().st_size for file in find_record_files(source.inputs))
    with progress_bar("read records", n_bytes, unit="bytes") as advance:
        return pull_records(source, cache_dir, advance)


def _describe(config: BuildConfig, corpus: Corpus, marked: pl.DataFrame, eligible: pl.DataFrame) -> dict[str, Any]:
    """State in JSON types what was read, decided and counted; write_release adds what the files hold."""
    years = marked["publication_year"]
    return {
        "source": corpus.provenance,
        "cd": asdict(config.cd),
        "thresholds": asdict(config.thresholds),
        "eligibility": asdict(config.eligibility),
        "split": asdict(config.split),
        "counts": {
            "filters": count_removals(marked),
            "scored": count_labels(marked),
            "eligible": count_labels(eligible),
            "first_year": years.min(),
            "last_year": config.eligibility.last_year or years.max(),
        },
    }
