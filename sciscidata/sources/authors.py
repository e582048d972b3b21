"""scan_authors: who wrote which work, of any source that says so, beside works and citations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import polars as pl

from sciscidata.corpus.folder import CorpusConfig, scan_authors_of
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.remote.object_store import is_url
from sciscidata.schemas import AUTHORS
from sciscidata.sources.example.source import AUTHORS_FILE, ExampleConfig
from sciscidata.sources.exports.source import ExportsConfig, scan_author_names
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.sources.parsed_files import ParsedFiles
from sciscidata.sources.record_files import find_files
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.snapshot.authors import pairs_of, read_authors
from sciscidata.sources.snapshot.layout import Part, find_layout
from sciscidata.sources.snapshot.source import SnapshotConfig
from sciscidata.sources.tables.authors import author_rows
from sciscidata.sources.tables.source import TablesConfig, scan_table_authors
from sciscidata.storage import expand_home
from sciscidata.terminal.messages import counted

logger = logging.getLogger(__name__)

_STAGE: Final = "scan_authors"
#: Reads a file as ``read_authors`` does: it gets the works that were seen before.
_ReadPairs: TypeAlias = Callable[[set[int]], Iterator[tuple[pl.DataFrame, int]]]
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
    """Scan who wrote which work: one row per work and author, for ``find_self_citations`` and others.

    Of OpenAlex, an author is the number of its id; authors without one are left out, and counted in the log. Exports of
    Scopus as CSV have ids, too. Other exports have names only: surname and initials (``poe ea``), so that namesakes are
    one author, and a person who changes names is two. The log says which of the two it is.

    Args:
        source: an ExampleConfig, RecordsConfig, ExportsConfig, a TablesConfig that names its column, or a
            SnapshotConfig of a copy on this machine; the files are read at each collect. A CorpusConfig, whose corpus
            was ingested with ``keep_authors``, is read fastest. Or a table: a frame of any library, read when called.
        id: column of a table with ids of works, as in ``from_tables``.
        authors: column of a table with ids of authors, or names: one a row, lists, or text with | or ; between.
        separator: what parts authors in that text, if anything else does.

    Returns:
        work_id (Int64, as in WORKS) and author_id (Int64; String of exports, and where a table has text), each pair
        once, unordered.

    Raises:
        ConfigError: when called; ``source`` is another thing, columns of a table are not named, or the corpus holds no
            authors.
        InputNotFoundError: when called; an input is missing.
        SchemaMismatchError: when called; a table lacks a column.
        EmptyInputError: at collect; no work has an author with an id.

    Example:
        >>> from sciscidata import ExampleConfig
        >>> scan_authors(ExampleConfig()).collect().height
        20084
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
            return scan_authors_of(source.folder)
        if isinstance(source, TablesConfig):
            return scan_table_authors(source)
        parts = _find_parts(source)
        return _scan_once_each(lambda: [partial(read_authors, part) for part in parts])
    kind = type(source).__name__
    if kind.endswith("Config") or kind in ("Corpus", "str", "PosixPath"):
        raise ConfigError(f"{_STAGE}: {kind} says of no work who wrote it; {_STAGE} {_NEEDS}")
    if not (id and authors):
        raise ConfigError(f"{_STAGE}: id and authors must name two columns of the table; {_STAGE} {_NEEDS}")
    return _authors_of_table(source, id, authors, separator).lazy()


def _authors_of_table(table: AnyFrame, id: str, authors: str, separator: str | None) -> pl.DataFrame:
    lazy = to_lazy(table, "the table", _STAGE, [id, authors])
    columns = lazy.collect_schema().names()
    if missing := [name for name in (id, authors) if name not in columns]:
        raise SchemaMismatchError(
            f"{_STAGE}: the table lacks column {missing[0]!r}; it has {', '.join(columns)}. Name another."
        )
    return author_rows(lazy.select(work_id=id, author_id=authors).collect(engine="streaming"), separator)


def _find_parts(source: RecordsConfig | SnapshotConfig) -> list[Part]:
    """List the files of a source, as parts of a snapshot."""
    if isinstance(source, RecordsConfig):
        files = find_files(source.inputs, "RecordsConfig.inputs", in_folders=True)
        return [Part(file.name, str(file), "jsonl") for file in files]
    if is_url(source.folder):
        raise ConfigError(
            f"{_STAGE}: SnapshotConfig.folder is {source.folder}, needs a copy on this machine. Copy its works; "
            "or ingest it with keep_authors=True, and scan the corpus: scan_authors(CorpusConfig(folder=...))."
        )
    place = Path(expand_home(source.folder))
    layout = find_layout(place, source.edition, allow_missing_manifest=source.allow_missing_manifest)
    return layout.parts


def scan_kept_authors(source: WithAuthors, cache_dir: Path) -> pl.LazyFrame:
    """Scan who wrote which work for a corpus: of record files, what is parsed is kept, and the others are parsed."""
    if not isinstance(source, RecordsConfig):
        return scan_authors(source)
    files = find_files(source.inputs, "RecordsConfig.inputs", in_folders=True)

    def readers() -> list[_ReadPairs]:
        parsed = ParsedFiles(cache_dir / "record-files", files)
        return [lambda seen, place=place: pairs_of(parsed.read_written(place), seen) for place in range(len(files))]

    return _scan_once_each(readers)


def _scan_once_each(
    readers: Callable[[], list[_ReadPairs]],
) -> pl.LazyFrame:
    return scan_batches(lambda columns: _read_once_each(readers(), columns), AUTHORS, "authors of OpenAlex")


def _read_once_each(files: list[_ReadPairs], columns: list[str]) -> Iterator[pl.DataFrame]:
    """Read the pairs of all files; of a work that is there twice in JSON, the first counts, as in WORKS."""
    seen: set[int] = set()
    n_pairs = n_without = n_cut = 0
    for read in files:
        for pairs, cut in read(seen):
            known = pairs.filter(pl.col("author_id") >= 0)
            n_without += pairs.height - known.height
            n_cut += cut
            n_pairs += known.height
            yield known.unique().sort(AUTHORS.names()).select(columns)
    if not n_pairs:
        raise EmptyInputError(
            f"{_STAGE}: no work of {counted(len(files), 'file')} has an author with an id of OpenAlex. Ask for the "
            "field authorships when you download works."
        )
    if n_without:
        logger.info("%s: left out %s no id of OpenAlex", _STAGE, counted(n_without, "author with", "authors with"))
    if n_cut:
        logger.warning(
            "%s: %s only the first 100 authors, as lists of the API have. Self-citations of the others are not seen. "
            "Ask for these works one by one.",
            *(_STAGE, counted(n_cut, "work has", "works have")),
        )
