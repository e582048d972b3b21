"""scan_authors: who wrote which work, of any source that says so, beside works and citations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import polars as pl

from sciscidata.corpus.folder import CorpusConfig, read_report, scan_authors_of
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.records.authors_table import AUTHORS
from sciscidata.remote.object_store import is_url
from sciscidata.sources.example.source import AUTHORS_FILE, ExampleConfig
from sciscidata.sources.exports.source import ExportsConfig, scan_author_names
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.sources.parsed_files import ParsedFiles, authors_to_damage
from sciscidata.sources.record_files import find_files
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.snapshot.layout import Layout, find_layout
from sciscidata.sources.snapshot.newest_authors import ReadAuthors, find_author_readers
from sciscidata.sources.snapshot.source import SnapshotConfig
from sciscidata.sources.tables.authors import author_rows
from sciscidata.sources.tables.source import TablesConfig, scan_table_authors
from sciscidata.storage import expand_home
from sciscidata.terminal.messages import counted

logger = logging.getLogger(__name__)

_STAGE: Final = "scan_authors"
_OPENALEX_KINDS: Final = ("openalex snapshot", "records", "example")  # of a corpus
#: Sources that say who wrote a work.
WithAuthors: TypeAlias = ExampleConfig | RecordsConfig | SnapshotConfig | ExportsConfig | TablesConfig | CorpusConfig
_NEEDS: Final = (
    "needs an ExampleConfig, RecordsConfig, SnapshotConfig, ExportsConfig, TablesConfig or CorpusConfig, or a table "
    "with its columns: "
    "scan_authors(table, id='paper', authors='author_ids')."
)


def scan_authors(
    source: WithAuthors | AnyFrame, *, id: str | None = None, authors: str | None = None, separator: str | None = None
) -> pl.LazyFrame:
    """Scan who wrote which work, and where they work: one row per work and author.

    ``find_self_citations`` and others take it as it is. Of OpenAlex, an author is the number of its id, and null
    without one, which the log counts. Exports of Scopus as CSV have ids, too. Other exports have names only: surname
    and initials (``poe ea``), so that namesakes are one author, and a person who changes names is two. The log says
    which of the two it is.

    Args:
        source: an ExampleConfig, RecordsConfig, ExportsConfig, a TablesConfig that names its column, or a
            SnapshotConfig of a copy on this machine; the files are read at each collect. A snapshot has the works of
            its corpus, but only ``ingest`` refuses damaged lines and leaves out implausible parts. A CorpusConfig,
            whose corpus was ingested with ``keep_authors``, is read fastest. Or a table: a frame of any library, read
            when called.
        id: column of a table with ids of works, as in ``from_tables``.
        authors: column of a table with ids of authors, or names: one a row, lists, or text with | or ; between.
        separator: what parts authors in that text, if anything else does.

    Returns:
        work_id (Int64, as in WORKS) and author_id (Int64; String of exports, and where a table has text), each pair
        once. Exports and tables have only these, unordered. Records of OpenAlex say more, in the order of their lists,
        those of a snapshot from its newest part on:
        author_number (Int32, from 1), author_position (String: first, middle or last), is_corresponding (Boolean),
        author_name (String, as the work prints it; in records before 2024 OpenAlex's name of the author) and orcid
        (String, an address). Then three lists of one length, an entry for each institution: institution_ids (Int64,
        the number after I), rors (String, an address) and country_codes (String, two capital letters). Countries
        without an institution stand at the end. ``explode`` of the three gives a row for each institution. What a
        record does not say is null, or an empty list. The example has no names and no orcid.

        Only the columns of a query are read. A corpus of an earlier version has the first two, and the log says so.

    Raises:
        ConfigError: when called; ``source`` is another thing, columns of a table are not named, or the corpus holds no
            authors.
        InputNotFoundError: when called; an input is missing.
        SchemaMismatchError: when called; a table lacks a column.
        CorruptRecordError: at collect; a part of a snapshot is damaged, unless its ``corrupt`` is ``"skip"``.
        EmptyInputError: at collect; no work has an author with an id.

    Example:
        >>> from sciscidata import ExampleConfig
        >>> scan_authors(ExampleConfig()).collect().height
        20462
        >>> places = scan_authors(ExampleConfig()).explode("institution_ids", "rors", "country_codes")
        >>> places.filter(country_codes="NL").select(pl.col("work_id").n_unique()).collect().item()
        131
        >>> table = pl.DataFrame({"paper": ["P1", "P2"], "by": ["poe; woolf", "poe"]})
        >>> scan_authors(table, id="paper", authors="by").collect()["author_id"].sort().to_list()
        ['poe', 'poe', 'woolf']
    """
    if isinstance(source, WithAuthors):
        if id or authors or separator:
            raise ConfigError(f"{_STAGE}: id, authors and separator name columns of a table. Leave them out.")
        if isinstance(source, ExampleConfig):
            return pl.scan_parquet(AUTHORS_FILE, glob=False)
        if isinstance(source, ExportsConfig):
            return scan_author_names(source)
        if isinstance(source, CorpusConfig):
            return _scan_kept(source.folder)
        if isinstance(source, TablesConfig):
            return scan_table_authors(source)
        if isinstance(source, SnapshotConfig):
            return _scan_once_each(find_author_readers(source, _find_layout(source)))
        files = find_files(source.inputs, "RecordsConfig.inputs", in_folders=True)
        return _scan_once_each(lambda: _of_files(files))
    kind = type(source).__name__
    if kind.endswith("Config") or kind in ("Corpus", "str", "PosixPath"):
        raise ConfigError(f"{_STAGE}: {kind} says of no work who wrote it; {_STAGE} {_NEEDS}")
    if not (id and authors):
        raise ConfigError(f"{_STAGE}: id and authors must name two columns of the table; {_STAGE} {_NEEDS}")
    return _authors_of_table(source, id, authors, separator).lazy()


def _scan_kept(folder: str) -> pl.LazyFrame:
    authors = scan_authors_of(folder)
    is_of_openalex = read_report(Path(folder))[0].get("kind") in _OPENALEX_KINDS
    if is_of_openalex and "institution_ids" not in authors.collect_schema():
        logger.warning(
            "%s: the corpus in %s was made by an earlier version, and has the ids of authors only. Ingest its source "
            "again with keep_authors=True (and overwrite=True unless it is a snapshot) for institutions and countries.",
            *(_STAGE, folder),
        )
    return authors


def _authors_of_table(table: AnyFrame, id: str, authors: str, separator: str | None) -> pl.DataFrame:
    lazy = to_lazy(table, "the table", _STAGE, [id, authors])
    columns = lazy.collect_schema().names()
    if missing := [name for name in (id, authors) if name not in columns]:
        raise SchemaMismatchError(
            f"{_STAGE}: the table lacks column {missing[0]!r}; it has {', '.join(columns)}. Name another."
        )
    return author_rows(lazy.select(work_id=id, author_id=authors).collect(engine="streaming"), separator)


def _find_layout(source: SnapshotConfig) -> Layout:
    if is_url(source.folder):
        raise ConfigError(
            f"{_STAGE}: SnapshotConfig.folder is {source.folder}, needs a copy on this machine. Copy its works; "
            "or ingest it with keep_authors=True, and scan the corpus: scan_authors(CorpusConfig(folder=...))."
        )
    place = Path(expand_home(source.folder))
    return find_layout(place, source.edition, allow_missing_manifest=source.allow_missing_manifest)


def _of_files(files: Sequence[Path]) -> list[ReadAuthors]:
    """List what reads files of records; of a work that is there twice, the first counts, as in WORKS."""
    seen: set[int] = set()
    return [partial(authors_to_damage, file, seen) for file in files]


def scan_kept_authors(source: WithAuthors, cache_dir: Path) -> pl.LazyFrame:
    """Scan the authors of a source for a corpus: of record files, only those that are not kept are parsed."""
    if not isinstance(source, RecordsConfig):
        return scan_authors(source)
    files = find_files(source.inputs, "RecordsConfig.inputs", in_folders=True)

    def readers() -> list[ReadAuthors]:
        parsed, seen = ParsedFiles(cache_dir / "record-files", files), set[int]()
        return [partial(parsed.read_authors, place, seen) for place in range(len(files))]

    return _scan_once_each(readers)


def _scan_once_each(readers: Callable[[], list[ReadAuthors]]) -> pl.LazyFrame:
    return scan_batches(lambda columns: _read_once_each(readers(), columns), AUTHORS, "authors of OpenAlex")


def _read_once_each(files: list[ReadAuthors], columns: list[str]) -> Iterator[pl.DataFrame]:
    """Read the authors of all files, and log what they lack."""
    n_rows = n_without = n_cut = 0
    for read in files:
        for rows, cut in read(columns):
            n_without += rows["author_id"].null_count()
            n_cut += len(cut)
            n_rows += rows.height
            yield rows.select(columns)
    if n_rows == n_without:
        raise EmptyInputError(
            f"{_STAGE}: no work of {counted(len(files), 'file')} has an author with an id of OpenAlex. Ask for the "
            "field authorships when you download works."
        )
    if n_without:
        who = counted(n_without, "author with", "authors with")
        logger.info("%s: author_id is null of %s no id of OpenAlex", _STAGE, who)
    if n_cut:
        logger.warning(
            "%s: %s only the first 100 authors, as lists of the API have. Self-citations of the others are not seen. "
            "Ask for these works one by one.",
            *(_STAGE, counted(n_cut, "work has", "works have")),
        )
