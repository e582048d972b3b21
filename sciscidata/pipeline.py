"""The whole flow in one place: from a source to a release. Read this first."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from sciscidata.config import BuildConfig, no_effect, refuse_unread_of_published, refuse_windows
from sciscidata.diagnostics.diagnose import log_warnings
from sciscidata.diagnostics.of_release import check_works, describe, plot_pictures
from sciscidata.eligibility import remark_on_names
from sciscidata.engines.engine import Engine
from sciscidata.errors import ConfigError, NotEnoughWorksError
from sciscidata.novelty.background import (
    Background,
    VenuePairs,
    check_replaceable,
    read_background,
    write_null_model,
)
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.options.checks import check_value, require_config, require_parquet_name
from sciscidata.own_label import vocabularies
from sciscidata.records.listed_ids import ListedIds
from sciscidata.release.context import find_context
from sciscidata.release.export import write_labelled
from sciscidata.release.read import Release
from sciscidata.release.release import Target, check_target, write_release
from sciscidata.remote.object_store import refuse_url
from sciscidata.sampling.demand import Demand
from sciscidata.sampling.draw import Drawn, draw
from sciscidata.sampling.manifest_entries import describe_background
from sciscidata.schemas import Corpus
from sciscidata.scoring import Computed, add_confidence, label_works, score
from sciscidata.sources.id_files import read_ids
from sciscidata.sources.kinds import Ask, Citations, Scored, Scores
from sciscidata.sources.registry import SourceConfig, find_source, open_citations, open_source
from sciscidata.storage import refuse_unwritable
from sciscidata.storage.user_cache import default_cache_dir
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import begin_step, end_step, name_steps

logger = logging.getLogger(__name__)

_SMALLER = (
    "there are too few texts for %s, so %s are drawn. The rest is left out: a hash of its id puts a text into train or "
    "test, and each class has to fill both. State these sizes (SplitConfig.n_train, SplitConfig.n_test) if texts may "
    "be added later: other sizes deal texts anew to train and test"
)
_EXAMPLE = "source=SyntheticConfig(), out=Path('slices/first')"


def build(config: BuildConfig) -> Release:
    """Read a source, score and label its works, draw a balanced split, and write a release.

    Returns:
        The release. It appears whole at ``config.out``, or not at all.

    Raises:
        ReleaseExistsError: before anything is read, if ``config.out`` may not be replaced.
        SciSciDataError: as the stages raise.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata import BuildConfig, SplitConfig, SyntheticConfig, build
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
    refuse_windows(config)
    refuse_unread_of_published(config, "window_years")
    check_target(config.out, overwrite=config.overwrite)
    refuse_unwritable(config.out)
    background = describe_background(config.background, config.novelty)
    listed = None if config.ids is None else read_ids(config.ids, config.id_column)
    steps = ("filter and draw", *(["describe references"] if config.context else []), "write the release")
    with _open_in_steps(config, *steps) as source:
        config = _choose_listed(config, listed, source)
        demand = config.demand
        scored = score(source, demand, config.measures)
        begin_step("filter and draw")
        labelled, label = label_works(scored, config.thresholds, config.label)
        drawn = _draw_or_shrink(labelled, replace(demand, label=label), config)
        manifest = describe(labelled, drawn, config, background)
        context = _describe_references(labelled, drawn) if config.context else None
        begin_step("write the release")
        scores_file = config.scores_file and labelled.facts.has_index
        target = Target(config.out, config.overwrite, scores_file, partial(plot_pictures, labelled, drawn, manifest))
        return write_release(drawn.drawn, drawn.works, manifest, target, context)


def _describe_references(labelled: Scored, drawn: Drawn) -> pl.DataFrame:
    begin_step("describe references")
    assert isinstance(labelled, Computed)  # the configuration refuses scores of others
    return find_context(drawn.drawn["work_id"], labelled.graph, labelled.works)


def _choose_listed(config: BuildConfig, listed: ListedIds | None, source: Citations | Scores | Ask) -> BuildConfig:
    """Let a list of ids say which works may be drawn: those of the source that it names."""
    if listed is None:
        return config
    if not isinstance(source, Ask):  # which looks them up itself
        n_ids = listed.rows.height
        listed = listed.among(source.texts.works if isinstance(source, Scores) else source.works)
        n = int(listed.stated["works"])
        wanted = sum(config.split.sizes.values())
        # Texts without scores, and own labels, draw fewer works where fewer are there.
        if n < (wanted if isinstance(source, Citations) and config.label is None else 1):
            raise NotEnoughWorksError(
                f"BuildConfig.ids is {str(config.ids)!r}, of whose {counted(n_ids, 'id')} the source has "
                f"{counted(n, 'work')}, and {wanted:,} are to be drawn. Give a longer list, a larger source or a "
                "smaller draw (SplitConfig.n_train, SplitConfig.n_test)."
            )
        end_step(f"{counted(n, 'work')} of the source are in the list")
    return replace(config, eligibility=replace(config.eligibility, listed=listed))


@contextmanager
def _open_in_steps(config: BuildConfig, *later: str) -> Generator[Citations | Scores | Ask]:
    """Open the source of a run. Name its steps in the log: those until all works have scores, and ``later`` ones."""
    if find_source(config.source).sample:
        steps = ["sample and score works"]
    elif config.has_published_scores:
        steps = ["read works"]
    else:
        novelty = ["score novelty"] if config.novelty else []
        steps = ["read works", "build the citation graph", "score disruption", *novelty]
    with name_steps(*steps, *later):
        begin_step(steps[0])
        with open_source(config.source, config.cache_dir, config.api, is_scored=config.label is None) as source:
            if not isinstance(source, Ask):
                stated = source.facts.provenance
                n, date = stated.get("works", stated.get("config", {}).get("n_works")), source.facts.data_date
                end_step(f"{n:,} works" if isinstance(n, int) else "", f"as of {date}" if date else "")
            yield source


def _draw_or_shrink(labelled: Scored, demand: Demand, config: BuildConfig) -> Drawn:
    """Draw. Of too few texts without scores draw fewer: no more works can come from anywhere."""
    try:
        return _draw(labelled, demand, config)
    except NotEnoughWorksError as error:
        wanted, fits = demand.split, error.fits
        if fits is None or labelled.facts.has_index or not wanted.stated_sizes.items() <= fits.sizes.items():
            raise
    logger.warning(_SMALLER, *(" + ".join(f"{n:,}" for n in split.sizes.values()) for split in (wanted, fits)))
    return _draw(labelled, replace(demand, split=fits), config)


def _draw(labelled: Scored, demand: Demand, config: BuildConfig) -> Drawn:
    """Draw, with label confidence where a filter reads it, and say what was meant, or went wrong."""
    kind = find_source(config.source)
    if not kind.sample:
        for remark in remark_on_names(labelled.facts.vocabulary, demand.eligibility):
            logger.warning("%s", remark)
    if demand.eligibility.min_label_confidence:
        labelled = add_confidence(labelled, demand, config.measures)
    try:
        return draw(labelled, demand, kind.text_options)
    except NotEnoughWorksError:
        log_warnings(check_works(labelled, config))  # which often say why
        raise


def export_labelled(config: BuildConfig, *, engine: Engine | None = None) -> dict[str, Any]:
    """Write every labelled work of a source as one line of JSON, without a draw.

    Args:
        config: as for ``build``; ``split`` and ``eligibility`` are not read. ``out`` names a new folder.
        engine: who scores the works of a corpus on disk, with ``config.cache_dir`` on a disk that all see; threads here
            when None.

    Returns:
        The report beside the lines, ``labelled.json``: ``rows``, ``classes``, ``bytes``, ``sha256``, ``source``.
        ``classes`` counts works by label, ``null`` for those without.

    Raises:
        ConfigError: before anything is read, if the source is the OpenAlex API, which gives a sample. With ``engine``,
            also if it is no corpus on disk.
        ReleaseExistsError: before anything is read, if ``out`` holds anything.
        SciSciDataError: as the stages raise; nothing is left half-written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata import BuildConfig, SyntheticConfig, export_labelled
        >>> with TemporaryDirectory() as home:
        ...     source, places = SyntheticConfig(n_works=2_000), {"out": Path(home) / "all", "cache_dir": home}
        ...     report = export_labelled(BuildConfig(source=source, **places))
        ...     sum(report["classes"]["disruption_label"].values()) == report["rows"]
        True
    """
    require_config(config, BuildConfig, _EXAMPLE)
    kind = find_source(config.source)
    if kind.sample:
        raise ConfigError(
            "the OpenAlex API gives a sample, so there is no whole source to label. Name files of works "
            "(RecordsConfig.inputs), a snapshot, SciSciNet or a corpus."
        )
    if engine is not None and kind.corpus_folder(config.source) is None:
        raise ConfigError(
            "an engine scores the works of a corpus on disk; other sources are read by one process. Make a corpus with "
            "`sciscidata ingest`, and name it as source."
        )
    if config.context:
        reason = "an export has the columns of labels only"
        raise no_effect(BuildConfig, ["context"], reason, "draw a release with it (`sciscidata build`)")
    refuse_windows(config)
    refuse_unread_of_published(config)
    check_target(config.out, can_replace=False)
    refuse_unwritable(config.out)
    describe_background(config.background, config.novelty)  # refused before any work is read
    with _open_in_steps(config, "write labelled works") as source:
        scored = score(source, config.demand, replace(config.measures, engine=engine))
        begin_step("write labelled works")
        labelled, label = label_works(scored, config.thresholds, config.label)
        rows = labelled.rows.filter(pl.any_horizontal(pl.col(*vocabularies(label)).is_not_null()))
        return write_labelled(labelled.works, rows, config.out, source=labelled.facts.provenance, label=label)


def write_background(
    source: SourceConfig | Corpus,
    path: str | Path,
    config: NoveltyConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    overwrite: bool = False,
    engine: Engine | None = None,
) -> Background:
    """Save the null model of a whole corpus as a background, to score other works against it.

    The background holds the mean and the standard deviation of every venue pair of every citing year.

    Args:
        source: a source configuration, or a Corpus: works (WORKS), citations (CITATIONS), provenance. The OpenAlex API
            gives a sample and has no background.
        path: the Parquet file to write. It appears whole or not at all.
        config: the null model, and ``years``; ``NoveltyConfig()`` when None. Options of scoring are not read.
        cache_dir: for parsed records and the graph; the user's cache folder when None.
        overwrite: replace an existing background. Any other file is never replaced.
        engine: who makes the pairs of each citing year, with ``cache_dir`` on a disk that all see; threads here when
            None.

    Returns:
        The background; ``.scan()`` gives its rows: PAIR_STATISTICS, sorted by publication_year, source_id_a,
        source_id_b. n_observed says how many pairs of references of one work lead to the two venues. mean and std are
        those of this count under the null model. ``.counts``: works, references and venue pairs of each year.

    Raises:
        ConfigError: before anything is read, if the source is the OpenAlex API or ``path`` is not named as Parquet.
        ReleaseExistsError: before anything is read, if ``path`` exists and may not be replaced.
        SchemaMismatchError: before any row is read, if a frame of a Corpus lacks a column.
        SciSciDataError: as the stages raise; nothing is left half-written.

    Source: Uzzi et al. 2013, doi:10.1126/science.1240474.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata import SyntheticConfig, scan_synthetic, write_background
        >>> corpus = scan_synthetic(SyntheticConfig(n_works=2_000))  # or Corpus(works, citations, {})
        >>> with TemporaryDirectory() as home:
        ...     write_background(corpus, Path(home) / "pairs.parquet", cache_dir=home)
        Background(...pairs.parquet: 1980 to 2024, ... venue pairs, null='analytic')
    """
    if not isinstance(source, Corpus):
        check_value("source", source, SourceConfig)
    if find_source(source).sample:
        raise ConfigError(
            "a background is the null model of a whole corpus, and the OpenAlex API gives a sample. Name files of "
            "works (RecordsConfig.inputs), a snapshot, SciSciNet, a corpus or a synthetic world."
        )
    refuse_url(path, "path")
    path = Path(path)
    require_parquet_name(path, "a background is")
    check_replaceable(path, overwrite=overwrite)
    refuse_unwritable(path)
    cache_dir = default_cache_dir() if cache_dir is None else Path(cache_dir)
    with open_citations(source, cache_dir) as (works, citations, _):
        pairs = VenuePairs.of(works, citations, config, cache_dir=cache_dir)
        write_null_model(pairs, path, overwrite=overwrite, engine=engine)
        return read_background(path)
