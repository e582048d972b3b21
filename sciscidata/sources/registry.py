"""The table of all sources: a new one is its own module or folder, and a row here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from sciscidata.corpus.folder import CorpusConfig
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.schemas import Corpus
from sciscidata.sources.example.source import ExampleConfig, measure_example, open_example
from sciscidata.sources.exports.source import ExportsConfig, measure_exports, open_exports
from sciscidata.sources.kinds import (
    Ask,
    Citations,
    Opening,
    Scores,
    ToRead,
    measure_corpus,
    name_only,
    open_corpus,
    open_frames,
)
from sciscidata.sources.labelled import (
    LabelledConfig,
    lack_scores,
    measure_labelled,
    open_labelled,
    refuse_citations,
)
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.openalex.source import OpenAlex
from sciscidata.sources.records import RecordsConfig, measure_records, open_records
from sciscidata.sources.sciscinet.config import SciSciNetConfig
from sciscidata.sources.sciscinet.source import (
    measure_sciscinet,
    open_sciscinet,
    read_citations_of,
    write_sciscinet,
)
from sciscidata.sources.snapshot.source import SnapshotConfig, measure_snapshot, open_snapshot, write_snapshot
from sciscidata.sources.synthetic.source import SyntheticConfig, measure_synthetic, open_synthetic
from sciscidata.sources.tables.source import TablesConfig, measure_tables, open_tables, write_tables

SourceConfig = (
    ExampleConfig
    | RecordsConfig
    | TablesConfig
    | ExportsConfig
    | SyntheticConfig
    | OpenAlexConfig
    | SciSciNetConfig
    | SnapshotConfig
    | CorpusConfig
    | LabelledConfig
)


class Reason(NamedTuple):
    """Why an option has no effect, and what would give it one."""

    reason: str
    remedy: str


class Source(NamedTuple):
    """What a build knows of a kind of source before it opens one.

    Attributes:
        config: its configuration.
        open: opens it. What it needs besides its configuration is in Opening.
        measure: says what a build would read; one to Ask says it by ``estimate``.
        sample: why there is no whole corpus. None: there is one.
        own_scores: why scores are taken as they are. None: they are computed.
        brings_labels: whether it has labels, too, and no z.
        no_novelty: why there is no novelty. None: there is.
        ingest: makes a corpus on disk, in place of the common way.
        can_be_ingested: whether a corpus on disk can be made of it.
        has_tasks: whether an engine may help.
        corpus_folder: where a corpus is on disk already.
        sizes: of the default draw, where these are others.
        has_own_labels_only: whether works have no score.
        with_citations: the configuration whose works have citations; a ConfigError if there are none.
        text_options: options that name its texts, for messages.
    """

    config: type
    open: Callable[[Any, Opening], Citations | Scores | Ask]
    measure: Callable[[Any], ToRead] = name_only
    sample: Reason | None = None
    own_scores: Callable[[Any], Reason | None] = lambda _: None
    brings_labels: bool = False
    no_novelty: Callable[[Any], Reason | None] = lambda _: None
    ingest: Callable[..., Corpus] | None = None
    can_be_ingested: bool = True
    has_tasks: bool = False
    corpus_folder: Callable[[Any], str | None] = lambda _: None
    sizes: Mapping[str, Any] = {}
    has_own_labels_only: Callable[[Any], bool] = lambda _: False
    with_citations: Callable[[Any], Any] = lambda config: config
    text_options: tuple[str, ...] = ()


_LABELLED = Reason(
    "labelled files hold the scores, so none are computed", "name the files that the scores come from as another source"
)
_PUBLISHED = Reason(
    "the scores of SciSciNet are taken as published",
    "compute them from the references with SciSciNetConfig.recompute=True",
)
_SAMPLE = Reason("the OpenAlex API gives a sample", "read a snapshot or SciSciNet, or ingest a corpus")
_NO_VENUES = Reason("the venues of references are not fetched", "set OpenAlexConfig.venues=True")


def _labelled(_: LabelledConfig) -> Reason:
    return _LABELLED


def _folder(config: CorpusConfig) -> str:
    return config.folder


def _published(config: SciSciNetConfig) -> Reason | None:
    return None if config.recompute else _PUBLISHED


def _without_venues(config: OpenAlexConfig) -> Reason | None:
    return None if config.venues else _NO_VENUES


SOURCES: Final = (
    Source(ExampleConfig, open_example, measure_example, sizes={"n_train": 120, "n_test": 30}),
    Source(RecordsConfig, open_records, measure_records),
    Source(
        TablesConfig,
        open_tables,
        measure_tables,
        ingest=write_tables,
        text_options=("TablesConfig.title", "TablesConfig.abstract"),
    ),
    Source(ExportsConfig, open_exports, measure_exports),
    Source(SyntheticConfig, open_synthetic, measure_synthetic),
    Source(OpenAlexConfig, OpenAlex, sample=_SAMPLE, no_novelty=_without_venues, can_be_ingested=False),
    Source(
        SciSciNetConfig,
        open_sciscinet,
        measure_sciscinet,
        own_scores=_published,
        ingest=write_sciscinet,
        with_citations=read_citations_of,
        text_options=("SciSciNetConfig.texts",),
    ),
    Source(SnapshotConfig, open_snapshot, measure_snapshot, ingest=write_snapshot, has_tasks=True),
    Source(CorpusConfig, open_corpus, measure_corpus, can_be_ingested=False, corpus_folder=_folder),
    Source(
        LabelledConfig,
        open_labelled,
        measure_labelled,
        own_scores=_labelled,
        brings_labels=True,
        can_be_ingested=False,
        has_own_labels_only=lack_scores,
        with_citations=refuse_citations,
        text_options=("LabelledConfig.text",),
    ),
    Source(Corpus, open_frames),
)


def find_source(config: SourceConfig | Corpus) -> Source:
    """Find the row of a configuration, or of a Corpus of Python."""
    return next(source for source in SOURCES if isinstance(config, source.config))


@contextmanager
def open_source(
    config: SourceConfig | Corpus, cache_dir: Path, api: ApiConfig | None = None, *, is_scored: bool = True
) -> Generator[Citations | Scores | Ask]:
    """Open any source for the time of a block; without ``is_scored``, for a label of one's own."""
    with ExitStack() as until_end:
        yield find_source(config).open(config, Opening(cache_dir, until_end, api or ApiConfig(), is_scored))


@contextmanager
def open_citations(config: SourceConfig | Corpus, cache_dir: Path, *, is_ingested: bool = False) -> Generator[Corpus]:
    """Open a source whose works have citations as a corpus, whatever scores it brings; to ingest it, read it once."""
    config = find_source(config).with_citations(config)
    with ExitStack() as until_end:
        opening = Opening(cache_dir, until_end, ApiConfig(), is_ingested=is_ingested)
        source = find_source(config).open(config, opening)
        assert isinstance(source, Citations)  # commands refuse others before they read
        yield source.corpus
