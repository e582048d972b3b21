"""What a source may be asked for, what every source gives when it is measured or opened, and corpora opened here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata.corpus.folder import CorpusConfig, refuse_linked_cache, scan_corpus
from sciscidata.disruption.index import CDConfig
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.own_label import OwnLabel
from sciscidata.release.manifest import render_manifest
from sciscidata.sampling.filter import EligibilityConfig, names_read
from sciscidata.sampling.split import SplitConfig
from sciscidata.schemas import CITATIONS, WORKS, Corpus, require_columns

#: Citations within all of science that a work of real records has.
REFERENCES_PER_WORK: Final = 11


@dataclass(frozen=True, kw_only=True)
class SourceRequest:
    """What is wanted of a source. With ``only_corpus``, scores that it brings do not help."""

    cache_dir: Path
    eligibility: EligibilityConfig = field(default_factory=EligibilityConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    label: OwnLabel | None = None
    thresholds: LabelThresholds = field(default_factory=LabelThresholds)
    cd: CDConfig = field(default_factory=CDConfig)
    novelty: NoveltyConfig | None = None
    background: Path | None = None
    api: ApiConfig = field(default_factory=ApiConfig)
    only_corpus: bool = False

    @property
    def read_early(self) -> list[str]:
        """Columns of works, besides the year, that filters, the balance or labels by rank read before texts."""
        cells = self.split.cell_columns or self.thresholds.cell_columns
        names = dict.fromkeys([*names_read(self.eligibility), *cells])
        return [name for name in names if name != "publication_year"]


class ToRead(NamedTuple):
    """What a build would read, found without reading it.

    Attributes:
        name: what there is, in words.
        works: how many, if that is known.
        citations: of these works.
        parsed_bytes: bytes of text to parse, compressed.
        columns: WORKS whose columns are read in seconds, to count chosen fields and venues.
        shares: share of each disruption label in works like these, and which works show that. None: of real works.
        describe_classes: says in a line which classes there are, where the source knows. None: ``shares`` give them.
        time: how long reading takes, in words. None: that follows from the numbers.
    """

    name: str
    works: int | None = None
    citations: int | None = None
    parsed_bytes: float = 0
    columns: pl.LazyFrame | None = None
    shares: tuple[Mapping[str, float], str] | None = None
    describe_classes: Callable[[LabelThresholds], str] | None = None
    time: str | None = None


class ToAsk(NamedTuple):
    """What a build would ask of an API, and what this look has cost.

    Attributes:
        per_year: how many works of each year pass the filters.
        calls: at least, about and at most.
        call_usd: price of a call.
        days: in how many days the daily budget allows that, in words.
        judged: works that stored answers of earlier runs judge; with any, their classes decide all numbers.
        novelty_labels: at least and at most, how many works of the draw have one. None: there is no novelty.
        asked_calls: calls of this look.
        asked_usd: their price.
        left_usd: rest of today's budget.
    """

    per_year: Mapping[int, int]
    calls: tuple[float, float, float]
    call_usd: float
    days: str
    judged: int
    novelty_labels: tuple[float, float] | None
    asked_calls: int
    asked_usd: float
    left_usd: float | None


def name_only(config: Any, _: object) -> ToRead:  # noqa: ANN401 (any source)
    """Name a source that says nothing else of itself."""
    return ToRead(f"a source of the kind {type(config).__name__}")


class LabelFiles(NamedTuple):
    """Files that may hold a user's own column, and names of their ids; ``find_texts`` where the text is the id."""

    files: list[Path]
    ids: tuple[str, ...]
    find_texts: Callable[[Collection[str]], Mapping[str, str]] = lambda _: {}


NO_FILES: Final = LabelFiles([], ())


@dataclass(frozen=True, kw_only=True)
class OpenedSource:
    """Works, citations and where they come from; the rest says how this source differs from a small corpus in memory.

    Attributes:
        works: WORKS, lazy.
        citations: CITATIONS, lazy.
        provenance: where the works come from, in JSON types, for the manifest.
        eligibility: which works may be drawn, where the source changes the request. It may know the last year of its
            data, or lack what a filter needs. None: as requested.
        left_out: filters that cannot be applied, because the source has not what they read.
        vocabulary: frame with all primary fields and venues. None: ``works`` has them, or they are unknown, of a
            sample.
        is_sample: the works are a sample, so neither their references nor their citers are all there.
        read_works: reads WORKS of some ids, sorted. Then the draw comes first, and texts are read after it.
        structure: what the draw reads of all works before their texts: year, type, retraction, chosen names.
        names: titles and DOIs of all works, for a draw before texts. None: reading them costs too much.
        unordered: WORKS in any order, for the graph. None: ``works`` serve.
        scores: scores that are taken as they are, with the columns of ``structure`` where there is one: CD_SCORES and
            ATYPICALITY. None: works are scored by their citations.
        has_labels: ``scores`` has the labels, too.
        checked: frame whose years and venues are checked where there is no graph. None: there is nothing to check.
        published: scores to compare the computed ones with: ``work_id``, and ``cd_index`` or z or both.
        label_files: files of the source that may hold the column of a label of one's own.
        text_options: options that name the texts of the source, for messages.
        open_until_end: what is closed when the source is no longer read.
    """

    works: pl.LazyFrame
    citations: pl.LazyFrame
    provenance: dict[str, Any]
    eligibility: EligibilityConfig | None = None
    left_out: tuple[str, ...] = ()
    vocabulary: pl.LazyFrame | None = None
    is_sample: bool = False
    read_works: Callable[[pl.Series], pl.DataFrame] | None = None
    structure: pl.LazyFrame | None = None
    names: pl.LazyFrame | None = None
    unordered: pl.LazyFrame | None = None
    scores: pl.LazyFrame | None = None
    has_labels: bool = False
    checked: pl.LazyFrame | None = None
    published: pl.LazyFrame | None = None
    label_files: LabelFiles = NO_FILES
    text_options: tuple[str, ...] = ()
    open_until_end: ExitStack = field(default_factory=ExitStack)

    @property
    def for_graph(self) -> Corpus:
        """Works in any order and citations, for a graph or a corpus on disk."""
        return Corpus(self.works if self.unordered is None else self.unordered, self.citations, self.provenance)


def open_large(corpus: Corpus, names: Collection[str], **more: Any) -> OpenedSource:  # noqa: ANN401 (any field)
    """Open a corpus that may not fit into memory: only texts of works that may be drawn are read."""
    works = corpus.works

    def read_works(work_ids: pl.Series) -> pl.DataFrame:
        return works.filter(pl.col("work_id").is_in(work_ids.implode())).collect().sort("work_id")

    return OpenedSource(
        works=works,
        citations=corpus.citations,
        provenance=corpus.provenance,
        read_works=read_works,
        structure=works.select("work_id", "publication_year", "work_type", "is_retracted", *names),
        names=works.select("work_id", "title", "doi"),
        **more,
    )


def open_corpus(config: CorpusConfig, request: SourceRequest) -> OpenedSource:
    """Open a corpus on disk."""
    refuse_linked_cache(config.folder, request.cache_dir)
    return open_large(scan_corpus(config.folder), request.read_early)


def measure_corpus(config: CorpusConfig, __: SourceRequest) -> ToRead:
    """Say how many works and citations the corpus on disk has."""
    works, _, facts = scan_corpus(config.folder)
    n_works, n_citations = int(facts["works"]), int(facts["citations"])
    name = f"the corpus {config.folder}: {n_works:,} works, {n_citations:,} citations"
    return ToRead(name, n_works, n_citations, columns=works)


def open_frames(corpus: Corpus, _: SourceRequest) -> OpenedSource:
    """Check a corpus of Python, before any row is read."""
    works = require_columns(corpus.works, WORKS, frame_name="WORKS", stage="Corpus")
    citations = require_columns(corpus.citations, CITATIONS, frame_name="CITATIONS", stage="Corpus")
    render_manifest(corpus.provenance)
    return OpenedSource(works=works, citations=citations, provenance=corpus.provenance)
