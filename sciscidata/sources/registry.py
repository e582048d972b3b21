"""The table of all sources: a new one is its own module or folder, and a row here."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from sciscidata.corpus.folder import CorpusConfig
from sciscidata.sampling.split import SplitConfig
from sciscidata.schemas import Corpus
from sciscidata.sources.example.source import ExampleConfig, measure_example, open_example
from sciscidata.sources.exports.source import ExportsConfig, measure_exports, open_exports
from sciscidata.sources.labelled import LabelledConfig, lack_scores, measure_labelled, open_labelled
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.openalex.source import measure_openalex, open_openalex
from sciscidata.sources.opened import (
    OpenedSource,
    SourceRequest,
    ToAsk,
    ToRead,
    measure_corpus,
    name_only,
    open_corpus,
    open_frames,
)
from sciscidata.sources.records import RecordsConfig, measure_records, open_records
from sciscidata.sources.sciscinet.config import SciSciNetConfig
from sciscidata.sources.sciscinet.source import measure_sciscinet, open_sciscinet, write_sciscinet
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

    ``measure`` says what a build would read. A Reason says why there is no whole corpus (``sample``), why scores are
    taken as they are (``own_scores``), or why there is no novelty; None: there is. ``ingest`` replaces the common way.
    ``has_tasks``: an engine may help. ``corpus_folder`` is where a corpus is on disk already. ``split`` is the default
    draw.
    """

    config: type
    open: Callable[[Any, SourceRequest], OpenedSource]
    measure: Callable[[Any, SourceRequest], ToRead | ToAsk] = name_only
    sample: Reason | None = None
    own_scores: Callable[[Any], Reason | None] = lambda _: None
    no_novelty: Callable[[Any], Reason | None] = lambda _: None
    ingest: Callable[..., Corpus] | None = None
    can_be_ingested: bool = True
    has_tasks: bool = False
    corpus_folder: Callable[[Any], str | None] = lambda _: None
    split: SplitConfig = SplitConfig()
    has_own_labels_only: Callable[[Any], bool] = lambda _: False


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
    Source(ExampleConfig, open_example, measure_example, split=SplitConfig(n_train=120, n_test=30)),
    Source(RecordsConfig, open_records, measure_records),
    Source(TablesConfig, open_tables, measure_tables, ingest=write_tables),
    Source(ExportsConfig, open_exports, measure_exports),
    Source(SyntheticConfig, open_synthetic, measure_synthetic),
    Source(
        OpenAlexConfig,
        open_openalex,
        measure_openalex,
        sample=_SAMPLE,
        no_novelty=_without_venues,
        can_be_ingested=False,
    ),
    Source(SciSciNetConfig, open_sciscinet, measure_sciscinet, own_scores=_published, ingest=write_sciscinet),
    Source(SnapshotConfig, open_snapshot, measure_snapshot, ingest=write_snapshot, has_tasks=True),
    Source(CorpusConfig, open_corpus, measure_corpus, can_be_ingested=False, corpus_folder=_folder),
    Source(
        LabelledConfig,
        open_labelled,
        measure_labelled,
        own_scores=_labelled,
        can_be_ingested=False,
        has_own_labels_only=lack_scores,
    ),
    Source(Corpus, open_frames),
)


def find_source(config: SourceConfig | Corpus) -> Source:
    """Find the row of a configuration, or of a Corpus of Python."""
    return next(source for source in SOURCES if isinstance(config, source.config))


@contextmanager
def open_source(config: SourceConfig | Corpus, request: SourceRequest) -> Generator[OpenedSource]:
    """Open any source for the time of a block."""
    opened = find_source(config).open(config, request)
    with opened.open_until_end:
        yield opened
