"""A source is one of three: works and citations (Citations), works with their scores (Scores), or somebody to Ask.

Here are these kinds, what a build says to them, what they say of themselves, and the corpora that need no reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import polars as pl

from sciscidata.corpus.folder import CorpusConfig, refuse_linked_cache, scan_corpus
from sciscidata.disruption.config import CDConfig
from sciscidata.engines.engine import Engine
from sciscidata.label_thresholds import VOCABULARIES, LabelThresholds
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.schemas import ATYPICALITY, CITATIONS, EXAMPLE, WORKS, Corpus, require_columns
from sciscidata.sources.quotas import Quotas
from sciscidata.storage.small_files import render_json

#: Citations within all of science that a work of real records has.
REFERENCES_PER_WORK: Final = 11

#: What is judged of a work before its text is read: rows of ``Scored`` whose texts are read late.
STRUCTURE: Final = pl.Schema(
    {
        "work_id": WORKS["work_id"],
        "publication_year": WORKS["publication_year"],
        "work_type": WORKS["work_type"],
        "is_retracted": WORKS["is_retracted"],
        "n_references": pl.Int64(),
        "n_citers": pl.Int64(),  # inside the window; of published scores, all there are
        "cd_index": EXAMPLE["cd_index"],
        **ATYPICALITY,
        **{label: EXAMPLE[label] for label in VOCABULARIES},
    }
)
NO_SCORES: Final = pl.LazyFrame(schema={"work_id": WORKS["work_id"]})


class LabelFiles(NamedTuple):
    """Files that may hold a user's own column, and names of their ids; ``find_texts`` where the text is the id."""

    files: list[Path]
    ids: tuple[str, ...]
    find_texts: Callable[[Collection[str]], Mapping[str, str]] = lambda _: {}


NO_FILES: Final = LabelFiles([], ())


class Facts(NamedTuple):
    """What a source says of itself.

    Attributes:
        provenance: where the works come from, in JSON types, for the manifest: its ``kind``, and the ``name`` that
            cards and messages call it by ("MyCatalogue"). Of Scores also ``scores``, words that begin with
            AS_PUBLISHED, and ``labels`` where it brings them.
        vocabulary: frame with all primary fields and venues.
        label_files: files of the source that may hold the column of a label of one's own.
        lacks: columns that are unknown of every work, and what to do where one is needed. "": leave out what reads it.
        published: scores to compare computed ones with: ``work_id``, and ``cd_index`` or z or both.
        files: what messages say lacks a column, in the plural.
    """

    provenance: dict[str, Any]
    vocabulary: pl.LazyFrame
    label_files: LabelFiles = NO_FILES
    lacks: Mapping[str, str] = {}
    published: pl.LazyFrame = NO_SCORES
    files: str = "files of the source"

    @property
    def has_index(self) -> bool:
        """Whether works have a CD index; only works with a label of one's own may lack it."""
        return "cd_index" not in self.lacks

    @property
    def data_date(self) -> str | None:
        """When the youngest record was changed (YYYY-MM-DD), if that is known."""
        date = self.provenance.get("data_date")
        return date if isinstance(date, str) else None


class Texts(NamedTuple):
    """Works of which there may be too many to read all texts: the draw comes first.

    Attributes:
        works: WORKS, in the order of an export.
        read: reads WORKS of some ids, sorted.
        fields: primary field and venue of all works. None: the rows that the draw reads first have them.
        names: ``work_id``, ``title`` and ``doi`` of all works. None: reading them costs too much.
    """

    works: pl.LazyFrame
    read: Callable[[pl.Series], pl.DataFrame]
    fields: pl.LazyFrame | None = None
    names: pl.LazyFrame | None = None


class Citations(NamedTuple):
    """A source whose works are scored by their citations.

    ``works`` is WORKS, in any order, and ``citations`` CITATIONS. Without ``texts``, ``works`` may be read with theirs.
    """

    works: pl.LazyFrame
    citations: pl.LazyFrame
    facts: Facts
    texts: Texts | None = None

    @property
    def corpus(self) -> Corpus:
        """The same as a Corpus, for a graph or a corpus on disk."""
        return Corpus(self.works, self.citations, self.facts.provenance)


class Scores(NamedTuple):
    """A source that brings its scores.

    ``rows`` makes STRUCTURE of them, null where it is unknown. A column of labels is there only if it holds the labels,
    so that no threshold makes them.
    """

    rows: Callable[[NoveltyConfig | None, LabelThresholds], pl.LazyFrame]
    facts: Facts
    texts: Texts


@dataclass(frozen=True)
class Scored:
    """All works of a source with their scores, whatever its kind.

    Attributes:
        rows: CD_SCORES, ATYPICALITY and ``n_references`` of all works. Where texts are read late, STRUCTURE.
        facts: what the source says of itself.
        texts: WORKS, or how to read them.
    """

    rows: pl.LazyFrame
    facts: Facts
    texts: pl.LazyFrame | Texts

    @property
    def works(self) -> pl.LazyFrame:
        """WORKS with all texts, in the order of an export."""
        return self.texts.works if isinstance(self.texts, Texts) else self.texts


@dataclass(frozen=True, kw_only=True)
class Measures:
    """How works are scored, as in ``BuildConfig``; ``engine`` scores by tasks in the cache folder."""

    cd: CDConfig
    novelty: NoveltyConfig | None
    background: Path | None
    cache_dir: Path
    engine: Engine | None = None


@runtime_checkable
class Ask(Protocol):
    """A source that pays for every score, so it asks for what is still wanted and no more."""

    def until(self, quotas: Quotas, measures: Measures) -> Scored:
        """Score works until the quotas are full. They learn the last year of the data."""
        ...

    def estimate(self, quotas: Quotas, measures: Measures) -> ToAsk:
        """Say what that would cost."""
        ...


class Opening(NamedTuple):
    """What a source may need besides its configuration.

    ``cache_dir`` is for what later runs use again, ``until_end`` holds what is closed when the source is no longer
    read. Without ``is_scored``, a label of one's own is drawn, and works need no score. If ``is_ingested``, works and
    citations are read once, into a corpus on disk.
    """

    cache_dir: Path
    until_end: ExitStack
    api: ApiConfig
    is_scored: bool = True
    is_ingested: bool = False


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


def name_only(config: Any) -> ToRead:  # noqa: ANN401 (any source)
    """Name a source that says nothing else of itself."""
    return ToRead(f"a source of the kind {type(config).__name__}")


def open_large(corpus: Corpus, label_files: LabelFiles = NO_FILES) -> Citations:
    """Open a corpus that may not fit into memory: only texts of works that may be drawn are read."""
    works, citations, provenance = corpus
    return Citations(works, citations, Facts(provenance, works, label_files), read_late(works))


def read_late(works: pl.LazyFrame) -> Texts:
    """Read texts of WORKS by a filter of ids."""

    def read(work_ids: pl.Series) -> pl.DataFrame:
        return works.filter(pl.col("work_id").is_in(work_ids.implode())).collect().sort("work_id")

    return Texts(works, read, names=works.select("work_id", "title", "doi"))


def open_corpus(config: CorpusConfig, opening: Opening) -> Citations:
    """Open a corpus on disk."""
    refuse_linked_cache(config.folder, opening.cache_dir)
    return open_large(scan_corpus(config.folder))


def measure_corpus(config: CorpusConfig) -> ToRead:
    """Say how many works and citations the corpus on disk has."""
    works, _, facts = scan_corpus(config.folder)
    n_works, n_citations = int(facts["works"]), int(facts["citations"])
    name = f"the corpus {config.folder}: {n_works:,} works, {n_citations:,} citations"
    return ToRead(name, n_works, n_citations, columns=works)


def open_frames(corpus: Corpus, _: Opening) -> Citations:
    """Check a corpus of Python, before any row is read."""
    works = require_columns(corpus.works, WORKS, frame_name="WORKS", stage="Corpus")
    citations = require_columns(corpus.citations, CITATIONS, frame_name="CITATIONS", stage="Corpus")
    render_json(corpus.provenance, "manifest")
    return Citations(works, citations, Facts(corpus.provenance, works))
