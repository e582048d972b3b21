"""One stage at a time, each from disk to disk: corpus, graph, disruption, novelty.

A killed run loses little. The next one uses finished parts of a corpus, stages of a graph and years of scores.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import polars as pl

from sciscidata import plots
from sciscidata.corpus.folder import list_older_graphs, open_corpus_graph, scan_corpus
from sciscidata.corpus.scores import hash_facts, is_done, state_facts, write_scores
from sciscidata.corpus.writer import write_corpus
from sciscidata.diagnostics.diagnose import DataYears, diagnose_graph, diagnose_works, log_warnings
from sciscidata.disruption.config import COMPAT, WindowYears
from sciscidata.disruption.index import CDConfig, cache_cd_index, shard_range
from sciscidata.disruption.label_prior import PriorCounter
from sciscidata.disruption.null_model import Draws, NDraws, Null, score_nulls
from sciscidata.disruption.windows import close_windows, find_open_in_fields, last_year_of
from sciscidata.engines.engine import Engine
from sciscidata.errors import ConfigError, EmptyInputError, StorageError
from sciscidata.graph.edges import count_edges, warn_of_edges, watch_scores
from sciscidata.graph.graph import CitationGraph, Time, graph_folder
from sciscidata.graph.year_files import by_work_id
from sciscidata.judged import WINDOW_COMPLETE
from sciscidata.novelty.atypicality import YearScorer, cache_atypicality
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.options.checks import check_value, checked_config, parse_shard
from sciscidata.plots.figure import check_picture
from sciscidata.records.ids import original_ids_beside
from sciscidata.remote.object_store import refuse_url
from sciscidata.sampling.manifest_entries import describe_background
from sciscidata.schemas import CD_SWEEP, Corpus
from sciscidata.sources.authors import WithAuthors, scan_kept_authors
from sciscidata.sources.registry import SourceConfig, find_source, open_citations
from sciscidata.storage import refuse_unwritable
from sciscidata.storage.lock import own_work
from sciscidata.terminal.progress import progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOG = logging.getLogger(__name__)
Conventions = Annotated[tuple[str, ...], msgspec.Meta(title="NAME")]
_NEEDED = "windows: years from 0 to 9999, or None for no end"
Windows = Annotated[tuple[WindowYears, ...], msgspec.Meta(title="WINDOW", description=_NEEDED)]


class Measure(NamedTuple):
    """A measure that corpora are scored by. Its row in MEASURES says what differs from these defaults.

    Attributes:
        title: what `describe` calls its scores.
        version: raised by one whenever the same corpus and config give other scores.
        score: the column that is null where a row has no score. "": the first one of floats.
        rows: what the rows are.
        plot: draws the rows for `describe --html`. None: no picture.
    """

    title: str
    version: int = 1
    score: str = ""
    rows: str = "works"
    plot: Callable[..., Figure] | None = None


#: By the stage that a file of scores states.
MEASURES: Final = {
    "cd": Measure("CD index", version=2, plot=plots.plot_disruption),
    "null_cd": Measure("CD index against a null model", score="z", plot=plots.plot_null_cd_index),
    "cd_sweep": Measure("CD index in many ways", version=2, rows="rows", plot=plots.plot_cd_sweep),
    "novelty": Measure("atypicality"),
    "id_scores": Measure("scores of a list of ids", rows="ids"),
    "changes": Measure("what changed from A to B", plot=plots.plot_changes),
}


def find_measure(stage: str) -> Measure:
    """Find the row of a measure, which needs none."""
    return MEASURES.get(stage, Measure(stage.replace("_", " ")))


def ingest(
    source: SourceConfig | Corpus,
    out: str | Path,
    *,
    cache_dir: str | Path,
    texts: bool = True,
    keep_authors: bool = False,
    overwrite: bool = False,
    engine: Engine | None = None,
) -> Corpus:
    """Read a source once into a corpus on disk. Every later stage reads the corpus.

    From a newer snapshot, or newer records, only parts that are new or changed are read. The corpus has the same bytes
    as a fresh one, and the old one can be read until all of it is there.

    Args:
        source: any source but the OpenAlex API, which gives a sample, or a corpus on disk. A Corpus (works, citations,
            provenance) too.
        out: the folder of the corpus.
        cache_dir: for records parsed on the way.
        texts: write titles and abstracts too. A snapshot is always read with its texts.
        keep_authors: write who wrote which work too, for ``scan_authors(CorpusConfig(folder=out))`` and self-citations.
            Tables name the column instead (TablesConfig.authors).
        overwrite: replace another corpus in ``out``. Other files are never replaced.
        engine: who reads the parts of a snapshot; processes of this machine when None.

    Returns:
        The corpus, as ``scan_corpus(out)`` gives it: works, citations (both lazy) and provenance.

    Raises:
        ConfigError: before anything is read, if the source cannot become a corpus, contradicts ``texts=False``, or says
            of no work who wrote it and authors shall be kept.
        EmptyInputError: the source has no work, or no author that shall be kept.
        ReleaseExistsError: before anything is read, if ``out`` holds something that may not be replaced.
        SciSciDataError: as the source raises. Finished parts of a snapshot are kept for the next run.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     corpus = ingest(SyntheticConfig(n_works=500), Path(home) / "world", cache_dir=home)
        ...     corpus.provenance["works"], corpus.works.select("title").collect().height
        (500, 500)
    """
    refuse_url(out, "out")
    if not isinstance(source, Corpus):
        check_value("source", source, SourceConfig)
    kind = find_source(source)
    if not kind.can_be_ingested:
        raise ConfigError(
            "a corpus is made of a whole source: name a snapshot (SnapshotConfig.folder), files of works "
            "(RecordsConfig.inputs, TablesConfig.works), SciSciNet (SciSciNetConfig.folder) or a synthetic world."
        )
    if engine is not None and not kind.has_tasks:
        raise ConfigError(
            "only the parts of a snapshot are tasks for an engine; other sources are read by one process. Leave it out."
        )
    if kind.ingest is not None:
        corpus = kind.ingest(source, out, texts=texts, authors=keep_authors, overwrite=overwrite, engine=engine)
    else:
        authors = None
        if keep_authors:
            if not isinstance(source, WithAuthors):
                name = type(source).__name__
                raise ConfigError(
                    f"keep_authors=True has no effect: {name} says of no work who wrote it. Leave it out."
                )
            authors = scan_kept_authors(source, Path(cache_dir))
        opening = open_citations(source, Path(cache_dir), is_ingested=True)
        with opening as opened, progress_bar("write corpus", unit="rows") as advance:
            corpus = write_corpus(opened, out, texts=texts, authors=authors, overwrite=overwrite, advance=advance)
    log_warnings(diagnose_works(corpus.works, DataYears(None)))
    warn_of_edges(count_edges(corpus.works, corpus.citations), "ingest")
    for graph in list_older_graphs(Path(out)):
        _LOG.info(
            "%s is a graph of the corpus as it was; the next stage builds another. You may remove it, and the scores "
            "beside it that are older than the corpus",
            graph,
        )
    return corpus


def write_cd_index(
    folder: str | Path,
    out: str | Path,
    config: CDConfig | None = None,
    *,
    shard: str | None = None,
    cache_dir: str | Path | None = None,
    overwrite: bool = False,
    engine: Engine | None = None,
) -> Path:
    """Score every work of a corpus on disk by its CD index, into one Parquet file.

    Args:
        folder: the corpus.
        out: the file to write. If it already holds these scores of this corpus, it stays as it is.
        config: which convention; ``CDConfig()`` when None.
        shard: score one share of the works, for example ``"2/8"``: the second of eight with about as many references
            each. All works still count as citers. Shares do not overlap; together they are the whole.
        cache_dir: for the graph, and for years of scores that a killed run has finished; ``folder/cache`` when None.
        overwrite: replace another file of scores in ``out``. Any other file is never replaced.
        engine: who scores shares of the works, with ``cache_dir`` on a disk that all see; threads here when None.

    Returns:
        ``out``: CD_SCORES (with ``config.family`` also CD_FAMILY), sorted by work_id. Its metadata name the corpus and
        the convention, and without ``shard`` the prior of label confidence: ``indicators.LabelPrior.of_file``.

    Raises:
        InputNotFoundError, EmptyInputError: there is no corpus in ``folder``, or it holds no work.
        ConfigError: before anything is read, if ``folder`` is a frame, ``out`` is not named as Parquet, or ``shard`` is
            not like ``"2/8"``.
        ReleaseExistsError: before anything is read, if ``out`` may not be replaced.
        StorageError: a file of the corpus is damaged, the disk is full, or ``out`` cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.corpus.scores import read_score_facts
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     world = Path(home) / "world"
        ...     _ = ingest(SyntheticConfig(n_works=500), world, cache_dir=home)
        ...     file = write_cd_index(world, Path(home) / "cd.parquet", cache_dir=home)
        ...     pl.read_parquet(file).height, read_score_facts(file)["stage"]
        (500, 'cd')
    """
    cache_dir = _cache_of(folder, cache_dir, "compute_cd_index")
    config = checked_config(config, CDConfig)
    facts = _state("cd", folder, config.stated())
    number, n_shards = (1, 1) if shard is None else parse_shard(shard)
    if shard is not None:
        facts |= {"shard": f"{number}/{n_shards}"}

    def score(graph: CitationGraph) -> Iterator[pl.DataFrame]:
        focal = shard_range(graph, number - 1, n_shards)
        parts = cache_cd_index(graph, cache_dir, config, focal=focal, engine=engine)
        is_open = find_open_in_fields(scan_corpus(folder).works, config, last_year_of(graph))
        return (close_windows(rows, is_open) for rows in by_work_id(parts, graph.work_ids[focal.start : focal.stop]))

    return _score_to_file(score, out, _Scored(facts, folder, cache_dir, config.time), overwrite=overwrite)


class _Scored(NamedTuple):
    """What is scored: a corpus by its graph, with what the file of scores states of it."""

    facts: Mapping[str, Any]
    folder: str | Path
    cache_dir: str | Path
    time: Time = "publication_year"


def _score_to_file(
    score: Callable[[CitationGraph], Iterator[pl.DataFrame]], out: str | Path, scored: _Scored, *, overwrite: bool
) -> Path:
    """Score into ``out``, in the order of ids, if the scores with these facts are not there."""
    refuse_url(out, "out")
    out, facts = Path(out), scored.facts
    if is_done(out, facts, overwrite=overwrite):
        return out
    refuse_unwritable(out)
    replace = out.exists()  # another result, or a damaged one
    scores = score(_open_graph(scored.folder, scored.cache_dir, scored.time))
    prior = PriorCounter()
    if facts["stage"] == "cd" and "shard" not in facts:  # a share of the works has the works of some years
        scores = prior.watch(scores)
    rows = original_ids_beside(watch_scores(scores, facts["stage"]), scan_corpus(scored.folder).works)
    try:
        return write_scores(rows, out, facts, replace=replace, learned=prior.stated)
    except StorageError:  # of two runs at the same time, the first one counts
        if not out.exists() or not is_done(out, facts, overwrite=True):
            raise
        return out


def write_null_cd_index(
    folder: str | Path,
    out: str | Path,
    config: CDConfig | None = None,
    *,
    null: Null = "rewired",
    n_draws: NDraws = 100,
    seed: int = 0,
    cache_dir: str | Path | None = None,
    overwrite: bool = False,
    engine: Engine | None = None,
) -> Path:
    """Compare the CD index of every work of a corpus with that in rewired graphs, in one Parquet file.

    Args:
        folder: the corpus.
        out: the file to write, as in ``write_cd_index``.
        config: which convention; ``CDConfig()`` when None. The family is left out.
        null: what a draw keeps: references, their years and citations by year ("rewired"), or only how many
            ("configuration").
        n_draws: rewired graphs.
        seed: of the draws.
        cache_dir: as in ``write_cd_index``.
        overwrite: as in ``write_cd_index``.
        engine: who makes the draws, as in ``write_cd_index``. Draws that are done are then kept for the next run; each
            takes about 2 to 8 bytes a work of disk until the end.

    Returns:
        ``out``: NULL_CD_INDEX, sorted by work_id. Its metadata name the corpus, the convention and the null model.
    """
    cache_dir = _cache_of(folder, cache_dir, "indicators.compute_null_cd_index")
    config = checked_config(config, CDConfig)
    draws = Draws(null, n_draws, seed).check()
    facts = _state("null_cd", folder, asdict(config) | {"family": False, "di_l": 5} | draws._asdict())
    home = _tasks_folder(cache_dir, facts, out)

    def score(graph: CitationGraph) -> Iterator[pl.DataFrame]:
        tasks = None if engine is None else (engine, home)
        scores = score_nulls(graph, {"": replace(config, windows=())}, draws, tasks=tasks)
        return iter([scores["", ""].sort("work_id")])

    with own_work(home):
        return _score_to_file(score, out, _Scored(facts, folder, cache_dir), overwrite=overwrite)


def write_atypicality(
    folder: str | Path,
    out: str | Path,
    config: NoveltyConfig | None = None,
    *,
    background: str | Path | None = None,
    cache_dir: str | Path | None = None,
    overwrite: bool = False,
    engine: Engine | None = None,
) -> Path:
    """Score every work of a corpus on disk by how unusual its venue pairs are, into one Parquet file.

    Args:
        folder: the corpus.
        out: the file to write, as in ``write_cd_index``.
        config: the null model; ``NoveltyConfig()`` when None.
        background: a saved null model to score against; that of the corpus itself when None.
        cache_dir: as in ``write_cd_index``.
        overwrite: as in ``write_cd_index``.
        engine: who scores the citing years, as in ``write_cd_index``.

    Returns:
        ``out``: ATYPICALITY, sorted by work_id. Its metadata name the corpus and the null model.

    Raises:
        BackgroundError, ConfigError: before anything is read, if ``background`` is not a background, or one of another
            null model.
        InputNotFoundError, EmptyInputError, ReleaseExistsError, StorageError: as ``write_cd_index``.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     world = Path(home) / "world"
        ...     _ = ingest(SyntheticConfig(n_works=500), world, cache_dir=home)
        ...     file = write_atypicality(world, Path(home) / "novelty.parquet", cache_dir=home)
        ...     pl.read_parquet(file)["z_p10"].count() > 100
        True
    """
    cache_dir = _cache_of(folder, cache_dir, "compute_atypicality")
    config = checked_config(config, NoveltyConfig)
    table = None if background is None else Path(background)
    stated = describe_background(table, config)
    facts = _state("novelty", folder, asdict(config)) | {"background": stated}

    def score(graph: CitationGraph) -> Iterator[pl.DataFrame]:
        scorer = YearScorer.of(graph, scan_corpus(folder).works, config, table)
        return by_work_id(cache_atypicality(scorer, cache_dir, engine=engine), graph.work_ids[: graph.n_known])

    return _score_to_file(score, out, _Scored(facts, folder, cache_dir), overwrite=overwrite)


def write_cd_sweep(
    folder: str | Path,
    out: str | Path,
    *,
    windows: Windows = (3, 5, 10, None),
    conventions: Conventions = ("default",),
    n_draws: NDraws | None = None,
    seed: int = 0,
    cache_dir: str | Path | None = None,
    overwrite: bool = False,
    engine: Engine | None = None,
) -> Path:
    """Score every work of a corpus by its CD index in many ways: one long Parquet file and a picture.

    The graph is read once, and all windows of a convention are counted in one pass.

    Args:
        folder: the corpus.
        out: the file to write, as in ``write_cd_index``; the picture has the same name with ``.png``.
        windows: citation windows in years; None, on a command line all: without end.
        conventions: names of ``CDConfig.compat``, and ``"default"`` for ``CDConfig()``.
        n_draws: rewired graphs of the null model for each window and convention. None: no null model.
        seed: of the draws.
        cache_dir: as in ``write_cd_index``.
        overwrite: as in ``write_cd_index``.
        engine: who does the scoring and the draws, as in ``write_cd_index``.

    Returns:
        ``out``: CD_SWEEP, with ``n_draws`` also null_mean, null_std and z (Float64). There is a row for each work,
        convention and window, sorted by work_id, then in the order in which they were given.
    """
    cache_dir = _cache_of(folder, cache_dir, "compute_cd_index")
    configs = _sweep_configs(windows, conventions)
    draws = None if n_draws is None else Draws("rewired", n_draws, seed).check()
    stated = {"windows": [*windows], "conventions": [*conventions], "n_draws": n_draws, "seed": seed}
    facts = _state("cd_sweep", folder, stated)
    refuse_url(out, "out")
    check_picture(picture := Path(out).with_suffix(".png"))
    home = _tasks_folder(cache_dir, facts, out)

    def score(graph: CitationGraph) -> Iterator[pl.DataFrame]:
        parts = {name: cache_cd_index(graph, cache_dir, config, engine=engine) for name, config in configs.items()}
        nulls: dict[tuple[str, str], pl.DataFrame] = {}
        if draws is not None:
            scores = score_nulls(graph, configs, draws, tasks=None if engine is None else (engine, home))
            nulls = {name: rows.select("work_id", "null_mean", "null_std", "z") for name, rows in scores.items()}
        ids, years = graph.work_ids[: graph.n_known], _years(graph)
        works, end = scan_corpus(folder).works, last_year_of(graph)
        is_open = {name: find_open_in_fields(works, config, end) for name, config in configs.items()}
        files = {name: (close_windows(rows, is_open[name]) for rows in by_work_id(parts[name], ids)) for name in parts}
        spans = zip(*files.values(), strict=True)
        return (_sweep_rows(dict(zip(parts, span, strict=True)), configs, nulls, years) for span in spans)

    with own_work(home):
        file = _score_to_file(score, out, _Scored(facts, folder, cache_dir), overwrite=overwrite)
    with suppress(EmptyInputError):  # no work has an index
        plots.plot_cd_sweep(pl.scan_parquet(file, glob=False), path=picture)
    return file


def _state(stage: str, folder: str | Path, config: dict[str, Any]) -> dict[str, Any]:
    return state_facts(stage, find_measure(stage).version, folder, config)


def _cache_of(folder: object, cache_dir: str | Path | None, compute: str) -> Path:
    """Return where to keep what the next run uses again; a ConfigError says what to call for frames."""
    if not isinstance(folder, str | Path):
        raise ConfigError(
            f"folder is of type {type(folder).__name__}, needs the folder of a corpus on disk. Make one with ingest, "
            f"or for frames call {compute}(works, citations)."
        )
    return Path(folder) / "cache" if cache_dir is None else Path(cache_dir)


def _tasks_folder(cache_dir: str | Path, facts: Mapping[str, Any], out: str | Path) -> Path:
    """Return where the draws of a null model lie until its scores are written: the same command finds them there."""
    key = hash_facts({**facts, "out": str(Path(out).absolute())})
    return (Path(cache_dir) / f"null-{key[:32]}.tasks").absolute()


def _years(graph: CitationGraph) -> pl.DataFrame:
    lengths = np.diff(graph.year_offsets)
    return pl.DataFrame(
        {"work_id": graph.work_ids[: graph.n_dated], "publication_year": np.repeat(graph.years, lengths)}
    )


def _sweep_configs(windows: Windows, conventions: tuple[str, ...]) -> dict[str, CDConfig]:
    """Return one configuration with all windows for each convention."""
    check_value("windows", windows, Windows)
    check_value("conventions", conventions, Conventions)
    known = ("default", *COMPAT)
    if not windows or not conventions or any(len({*one}) < len(one) for one in (windows, conventions)):
        raise ConfigError("a sweep needs at least one window, and at least one convention, each once. Name them.")
    configs: dict[str, CDConfig] = {}
    for name, (n, window) in product(conventions, enumerate(windows)):
        if name not in known:
            raise ConfigError(f"a sweep knows no convention {name!r}, needs some of {', '.join(known)}.")
        options: dict[str, Any] = {"window_years": windows[0], "windows": windows[1 : n + 1]}
        try:
            configs[name] = CDConfig(**COMPAT.get(name, {}) | options)
        except ConfigError as error:
            shown = "all" if window is None else window
            raise ConfigError(
                f"convention {name!r} has no window {shown}. Leave out one of the two, or sweep them apart."
            ) from error
    return configs


def _sweep_rows(
    spans: Mapping[str, pl.DataFrame],
    configs: Mapping[str, CDConfig],
    nulls: Mapping[tuple[str, str], pl.DataFrame],
    years: pl.DataFrame,
) -> pl.DataFrame:
    """Put the scores of a span of works below each other, sorted by work, convention and window."""
    names, long = ("n_i", "n_j", "n_k", "cd_index", WINDOW_COMPLETE), list[pl.DataFrame]()
    for name, rows in spans.items():
        for window, length in configs[name].all_windows.items():
            part = rows.select("work_id", *(pl.col(column + window).alias(column) for column in names)).with_columns(
                pl.lit(name).alias("convention"), pl.lit("all" if length is None else str(length)).alias("window")
            )
            if (name, window) in nulls:
                part = part.join(nulls[name, window], on="work_id", how="left", maintain_order="left")
            long.append(part)
    order = pl.concat([part.with_columns(pl.lit(n).alias("order")) for n, part in enumerate(long)])
    rows = order.sort("work_id", "order").join(years, on="work_id", how="left", maintain_order="left")
    extra = [name for name in ("null_mean", "null_std", "z") if name in rows.columns]
    return rows.select(*(pl.col(name).cast(kind) for name, kind in CD_SWEEP.items()), *extra)


def warn_of_graph(graph: CitationGraph, folder: str | Path) -> None:
    """Log what in the works and citations of a corpus makes its scores wrong."""
    log_warnings(diagnose_graph(graph, scan_corpus(folder).works, None, DataYears(None)))


def _open_graph(folder: str | Path, cache_dir: str | Path, time: Time) -> CitationGraph:
    """Open the graph of a corpus. Where it is built now, warn as ``sciscidata graph`` does."""
    known = {path.name for path in Path(cache_dir).glob("graph-*")}
    graph = open_corpus_graph(folder, cache_dir=cache_dir, time=time)
    if graph_folder(graph).name not in known:
        warn_of_graph(graph, folder)
    return graph
