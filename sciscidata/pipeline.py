"""The whole flow in one place: a source in, a frozen slice out. Read this first."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from sciscidata._support.validate import require_config, require_parquet_name
from sciscidata.config import (
    BuildConfig,
    SourceConfig,
    check_source,
    default_cache_dir,
    refuse_unread_of_published,
)
from sciscidata.errors import BackgroundError, ConfigError, InputNotFoundError, ReleaseExistsError
from sciscidata.labels import VOCABULARIES, LabelThresholds, count_labels, find_conventionality_cut
from sciscidata.novelty.background import Background, read_background, write_null_model
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.open_source import ScoredSource, open_corpus, open_source
from sciscidata.plots import plot_disruption, plot_novelty, plot_novelty_by_year
from sciscidata.release.export import write_labelled
from sciscidata.release.release import Release, check_target, write_release
from sciscidata.sampling.draw import Drawn, draw_after_text
from sciscidata.sampling.late_text import draw_before_text
from sciscidata.sampling.manifest_entries import describe_background, describe_novelty, remark_on_novelty
from sciscidata.scoring import compute_labels
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet.tables import reading

logger = logging.getLogger(__name__)

_EXAMPLE = "source=SyntheticConfig(), out=Path('slices/first')"


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
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
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
    require_config(config, BuildConfig, _EXAMPLE)
    refuse_unread_of_published(config, "window_years")
    check_target(config.out, overwrite=config.overwrite)
    background = describe_background(config.background, config.novelty)
    with open_source(config) as source:
        result = _draw(source, config)
        works, eligible = (f"{result.counts['filters'][name]:,}" for name in ("works", "eligible"))
        logger.info("%s of %s works are eligible", eligible, works)
        novelty = _describe_novelty(config, background, result, source.concentrations)
        for remark in remark_on_novelty(novelty, config.thresholds.novelty_rule):
            logger.warning("%s", remark)
        return write_release(
            result.drawn,
            result.works,
            config.out,
            manifest=_describe(config, source.provenance, novelty, result),
            overwrite=config.overwrite,
            extra=lambda folder: _plot_pictures(result, source, config.thresholds, novelty, folder),
        )


def _draw(source: ScoredSource, config: BuildConfig) -> Drawn:
    """Label, filter and draw: by all that is known, or, where texts are too many, by structure and then by text."""
    labelled = _label(source, config.thresholds)
    rules, window = (source.eligibility, config.split), config.cd.window_years
    dated = source.provenance.get("data_date")
    dated = dated if isinstance(dated, str) else None
    if source.read_works is not None:
        reader, names = source.read_works, source.names
        return draw_before_text(labelled, reader, *rules, window_years=window, data_date=dated, names=names)
    return draw_after_text(source.works, labelled, source.citations, *rules, window_years=window, data_date=dated)


def _label(source: ScoredSource, thresholds: LabelThresholds) -> pl.LazyFrame:
    """Label all works; where they may be too many for memory, what Uzzi's rule compares them with is found before."""
    if source.read_works is None or thresholds.novelty_rule != "uzzi":
        return compute_labels(source.scores, thresholds)
    cut = find_conventionality_cut(source.scores, thresholds)
    return compute_labels(source.scores, thresholds, cut=0.0 if cut is None else cut)  # of none, any will do


def export_labelled(config: BuildConfig) -> dict[str, Any]:
    """Write every work of a source that has a label as a line of JSON, instead of a slice. Executes.

    Args:
        config: as for build; ``split`` and ``eligibility`` are not read. ``out`` is a new folder.

    Returns:
        The report of ``write_labelled``.

    Raises:
        ConfigError: at once, if the source is the API, which reads a sample.
        ReleaseExistsError: at once, if ``out`` holds anything.
        SciSciDataError: whatever its stages raise; nothing is left half-written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     source, places = SyntheticConfig(n_works=2_000), {"out": Path(home) / "all", "cache_dir": home}
        ...     report = export_labelled(BuildConfig(source=source, **places))
        ...     sum(report["classes"]["disruption_label"].values()) == report["rows"]
        True
    """
    require_config(config, BuildConfig, _EXAMPLE)
    if isinstance(config.source, OpenAlexConfig):
        msg = (
            "the OpenAlex API gives a sample, so there is no whole source to label. Name files of works "
            "(--input FILE), a snapshot, SciSciNet or a corpus."
        )
        raise ConfigError(msg)
    refuse_unread_of_published(config)
    check_target(config.out, can_replace=False)
    describe_background(config.background, config.novelty)  # refused before any work is read
    with open_source(config) as source:
        has_label = pl.any_horizontal(pl.col(*VOCABULARIES).is_not_null())
        labelled = _label(source, config.thresholds).filter(has_label)
        return write_labelled(source.works, labelled, config.out, source=source.provenance)


def write_background(
    source: SourceConfig,
    path: str | Path,
    config: NoveltyConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    overwrite: bool = False,
) -> Background:
    """Save the null model of a whole source, to score other works against it. Executes.

    Args:
        source: any but the API, which reads a sample, of which this would be no background.
        path: the file to write.
        config: the null model; ``NoveltyConfig()`` when None.
        cache_dir: for parsed records and the graph; the user's cache folder when None.
        overwrite: replace an existing background. Anything else that is there is never replaced.

    Returns:
        The table on disk; see write_null_model.

    Raises:
        ConfigError: at once, if the source is the API.
        ReleaseExistsError: at once, if ``path`` exists and may not be replaced.
        SciSciDataError: whatever its stages raise; nothing is left half-written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     source = SyntheticConfig(n_works=2_000)
        ...     table = write_background(source, Path(home) / "pairs.parquet", cache_dir=home)
        ...     table.counts["publication_year"].max()
        2024
    """
    check_source(source, "source")
    if isinstance(source, OpenAlexConfig):
        msg = (
            "a background is the null model of a whole corpus, and the OpenAlex API gives a sample. Name files of "
            "works (RecordsConfig, --input FILE), or a synthetic world (SyntheticConfig, --source synthetic)."
        )
        raise ConfigError(msg)
    path = Path(path)
    require_parquet_name(path, "a background is")
    _check_replaceable(path, overwrite=overwrite)
    cache_dir = default_cache_dir() if cache_dir is None else Path(cache_dir)
    tables = scan_sciscinet(source).tables if isinstance(source, SciSciNetConfig) else {}
    with reading(tables):
        works, citations, _ = open_corpus(source, cache_dir)
        write_null_model(works, citations, path, config, cache_dir=cache_dir, overwrite=overwrite)
        return read_background(path)


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


def _plot_pictures(
    result: Drawn, source: ScoredSource, thresholds: LabelThresholds, novelty: dict[str, Any] | None, folder: Path
) -> None:
    """Draw what a release holds beside its data; of novelty only where a work has a score."""
    if source.plot_comparison is not None:
        source.plot_comparison(folder / "comparison.png")
    disruption, atypicality = (
        [result.counts["eligible"][name], count_labels(result.drawn, name)] for name in VOCABULARIES
    )
    cd = result.eligible.select("cd_index")
    plot_disruption(cd, thresholds, eligible=disruption[0], drawn=disruption[1], path=folder / "disruption.png")
    if not result.scored.head(1).collect().is_empty():
        counts = {"eligible_counts": atypicality[0], "drawn_counts": atypicality[1]}
        n_unlabelled, path = result.drawn["novelty_label"].null_count(), folder / "novelty.png"
        cut = novelty["conventionality_cut"] if novelty else None
        plot_novelty(
            result.scored, result.eligible, thresholds, **counts, n_unlabelled=n_unlabelled, cut=cut, path=path
        )
        plot_novelty_by_year(result.scored, folder / "novelty_by_year.png")


def _describe_novelty(
    config: BuildConfig, background: dict[str, Any] | None, result: Drawn, concentrations: Mapping[int, float]
) -> dict[str, Any] | None:
    return describe_novelty(
        config.novelty,
        config.thresholds,
        background,
        result.scored,
        works=result.counts["filters"]["works"],
        published=config.has_published_scores,
        concentrations=concentrations,
    )


def _describe(
    config: BuildConfig, provenance: dict[str, Any], novelty: dict[str, Any] | None, result: Drawn
) -> dict[str, Any]:
    """State in JSON types what was read, decided and counted; write_release adds what the files hold."""
    return {
        "source": provenance,
        **{name: asdict(getattr(config, name)) for name in ("cd", "thresholds", "eligibility", "split")},
        "atypicality": novelty,
        "counts": result.counts,
    }
