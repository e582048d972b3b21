"""The whole flow in one place: from a source to a release. Read this first."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from sciscidata.config import BuildConfig, default_cache_dir, refuse_unread_of_published, refuse_windows
from sciscidata.diagnostics.diagnose import Check, DataYears, diagnose_graph, diagnose_works, log_warnings
from sciscidata.diagnostics.labels import diagnose_labels
from sciscidata.disruption.label_confidence import compute_label_confidence
from sciscidata.eligibility import remark_on_names
from sciscidata.engines.engine import Engine
from sciscidata.errors import (
    ConfigError,
    EmptyInputError,
    NotEnoughWorksError,
)
from sciscidata.label_thresholds import VOCABULARIES, LabelThresholds, count_labels
from sciscidata.novelty.atypicality import YearScorer
from sciscidata.novelty.background import (
    Background,
    VenuePairs,
    check_replaceable,
    read_background,
    write_null_model,
)
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.label_confidence import score_novelty_confidence
from sciscidata.options.checks import check_value, require_config, require_parquet_name
from sciscidata.own_label import vocabularies
from sciscidata.plots import plot_comparison, plot_disruption, plot_label, plot_novelty, plot_novelty_by_year
from sciscidata.release.documents import name_source
from sciscidata.release.export import write_labelled
from sciscidata.release.read import Release
from sciscidata.release.release import check_target, write_release
from sciscidata.remote.object_store import refuse_url
from sciscidata.sampling.demand import Demand
from sciscidata.sampling.draw import Drawn, draw
from sciscidata.sampling.manifest_entries import NullModel, describe_background, describe_novelty, remark_on_novelty
from sciscidata.schemas import CD_SCORES, Corpus
from sciscidata.scoring import Computed, label_works, score
from sciscidata.sources.kinds import Ask, Citations, Scored, Scores, Texts
from sciscidata.sources.lazy_batches import put_beside
from sciscidata.sources.registry import SourceConfig, find_source, open_citations, open_source
from sciscidata.storage import refuse_unwritable
from sciscidata.terminal.progress import begin_step, name_steps

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
    with _open_in_steps(config, "filter and draw", "write the release") as source:
        demand = config.demand
        scored = score(source, demand, config.measures)
        begin_step("filter and draw")
        labelled, label = label_works(scored, config.thresholds, config.label)
        drawn = _draw_or_shrink(labelled, replace(demand, label=label), config)
        facts = _describe(labelled, drawn, config, background)
        begin_step("write the release")
        return write_release(
            drawn.drawn,
            drawn.works,
            config.out,
            manifest=facts,
            overwrite=config.overwrite,
            scores_file=config.scores_file and labelled.facts.has_index,
            extra=partial(_plot_pictures, labelled, drawn, facts),
        )


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
    eligibility, label, kind = demand.eligibility, demand.label, find_source(config.source)
    if not kind.sample:
        for remark in remark_on_names(labelled.facts.vocabulary, eligibility):
            logger.warning("%s", remark)
    if eligibility.min_label_confidence:
        sure = _find_confidence(labelled, demand, config).select("work_id", "label_confidence").collect()
        labelled = replace(labelled, rows=put_beside(labelled.rows, sure))
    try:
        drawn = draw(labelled, demand, kind.text_options)
    except NotEnoughWorksError:
        log_warnings(_diagnose(labelled, config))  # which often say why
        raise
    except pl.exceptions.PolarsError as error:
        if not eligibility.where:
            raise
        names = ", ".join(eligibility.where)
        raise ConfigError(
            f"EligibilityConfig.where ({names}) cannot be computed: {str(error).splitlines()[0]}. Mend the expression."
        ) from error
    works, eligible = (f"{drawn.counts['filters'][name]:,}" for name in ("works", "eligible"))
    logger.info("%s of %s works are eligible", eligible, works)
    if label is not None:
        n_without = drawn.counts["filters"]["eligible"] - sum(drawn.counts["eligible"][label.name].values())
        if n_without:
            logger.info("%s of the eligible works have no %s and are not drawn", f"{n_without:,}", label.name)
    return drawn


def _find_confidence(labelled: Scored, demand: Demand, config: BuildConfig) -> pl.LazyFrame:
    """Find how sure the labels of all works are: of disruption, or of novelty where that alone is balanced."""
    if demand.balanced != ("novelty_label",):
        rows = labelled.rows.select(*CD_SCORES, *config.thresholds.cell_columns)
        return compute_label_confidence(rows, config.thresholds)
    assert isinstance(labelled, Computed)  # the configuration refuses scores of others
    assert config.novelty is not None
    scorer = YearScorer.of(labelled.graph, labelled.source.works, config.novelty, config.background)
    return score_novelty_confidence(scorer, config.thresholds).lazy()


def _diagnose(scored: Scored, config: BuildConfig, last_year: int | None = None) -> list[Check]:
    """Check the works, and their citations where the source has them."""
    facts, lacks = scored.facts, scored.facts.lacks
    years = DataYears(config.cd.window_years, last_year, facts.data_date)
    if isinstance(scored, Computed):
        return diagnose_graph(scored.graph, scored.source.works, scored.source.citations, years)
    if "publication_year" in lacks:
        return []
    known = scored.rows.drop({"n_references", "n_citers"} & lacks.keys())
    return diagnose_works(known if isinstance(scored.texts, Texts) else scored.texts, years)


def _describe(labelled: Scored, drawn: Drawn, config: BuildConfig, background: dict[str, Any] | None) -> dict[str, Any]:
    """State in JSON types what was read, decided and counted, and warn of what was probably not meant."""
    kind, demand = find_source(config.source), drawn.demand
    model = NullModel(
        config=None if kind.brings_labels else config.novelty,
        background=background,
        is_published=config.has_published_scores,
        concentrations=labelled.concentrations if isinstance(labelled, Computed) else {},
    )
    novelty = describe_novelty(model, drawn.scored, drawn.counts["filters"]["works"], config.thresholds)
    name = name_source(labelled.facts.provenance)
    for remark in remark_on_novelty(novelty, config.thresholds.novelty_rule, name):
        logger.warning("%s", remark)
    checks, ceiling = _diagnose(labelled, config, last_year=drawn.counts["last_year"]), None
    # Sure labels are no fair draw of citers, so a filter of confidence leaves the ceiling unknown. A sample has no
    # prior, and the ceiling of labels by rank is not known.
    is_chosen = kind.sample or config.eligibility.min_label_confidence or config.thresholds.cells
    if not is_chosen and "disruption_label" in demand.needed:
        tested = drawn.drawn.filter(split="test") if demand.split.n_test else drawn.drawn
        counts = drawn.counts["eligible"]["disruption_label"]
        ceiling, sure = diagnose_labels(drawn.eligible, counts, count_labels(tested), config.thresholds)
        checks += sure
    log_warnings(checks)
    return {
        "source": labelled.facts.provenance,
        "cd": config.cd.stated(),
        "thresholds": asdict(config.thresholds),
        "eligibility": config.eligibility.stated(),
        "split": asdict(demand.split),
        **({"build": own} if (own := config.stated()) else {}),
        **({} if demand.label is None else {"label": demand.label.stated()}),
        "atypicality": novelty,
        "counts": drawn.counts,
        "diagnostics": [check.stated() for check in checks],
        **({} if ceiling is None else {"ceiling": ceiling}),
    }


def _plot_pictures(labelled: Scored, drawn: Drawn, facts: dict[str, Any], folder: Path) -> None:
    """Draw the pictures of a release, those of published scores and of novelty only where works have them."""
    thresholds, eligible = drawn.demand.thresholds, drawn.counts["eligible"]
    data, published = labelled.facts.provenance, labelled.facts.published
    if (label := drawn.demand.label) is not None:
        found = count_labels(drawn.drawn, label.name, label.classes)
        plot_label(label, eligible[label.name], found, data=data, path=folder / "label.png")
    if isinstance(labelled, Computed) and "cd_index" in published.collect_schema():
        scores, found = published.select("work_id", "cd_index"), data["comparison"]
        plain = LabelThresholds() if thresholds.cells else thresholds  # as those of the comparison
        with suppress(EmptyInputError):  # no work has both scores
            plot_comparison(scores, labelled.to_compare, found, plain, data=data, path=folder / "comparison.png")
    drawn_counts = {name: count_labels(drawn.drawn, name) for name in VOCABULARIES}
    if labelled.facts.has_index:
        plot_disruption(
            drawn.eligible.select("cd_index"),
            thresholds,
            eligible=eligible["disruption_label"],
            drawn=drawn_counts["disruption_label"],
            data=data,
            path=folder / "disruption.png",
        )
    with suppress(EmptyInputError):  # no eligible work has a z
        plot_novelty(
            drawn.scored,
            drawn.eligible,
            thresholds,
            eligible_counts=eligible["novelty_label"],
            drawn_counts=drawn_counts["novelty_label"],
            n_unlabelled=drawn.drawn["novelty_label"].null_count(),
            cut=(facts["atypicality"] or {}).get("conventionality_cut"),
            data=data,
            path=folder / "novelty.png",
        )
    with suppress(EmptyInputError):  # no work with a z has a year
        plot_novelty_by_year(drawn.scored, thresholds, data=data, path=folder / "novelty_by_year.png")


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
