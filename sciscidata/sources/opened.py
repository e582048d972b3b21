"""What every source gives when it is opened, and what a source may be asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata.disruption.index import CDConfig
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.own_label import OwnLabel
from sciscidata.sampling.filter import EligibilityConfig, names_read
from sciscidata.sampling.split import SplitConfig
from sciscidata.schemas import Corpus


@dataclass(frozen=True, kw_only=True)
class SourceRequest:
    """What is wanted of a source. Most sources read only ``cache_dir``, the others as in ``BuildConfig``.

    ``only_corpus``: works and citations are all that is read; scores that a source brings do not help.
    """

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


class LabelFiles(NamedTuple):
    """Files of a source that may hold a column of the user's own, and possible names of their ids.

    Where a file has no ids, ``find_texts`` names the columns whose text is the id.
    """

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
        vocabulary: frame with all primary fields and venues. None: ``works`` has them; of a sample nobody knows them.
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
    """Open a corpus whose texts may not fit into memory: only those of works that may be drawn are read.

    ``names`` are ``SourceRequest.read_early``; ``more`` other fields of OpenedSource.
    """
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
