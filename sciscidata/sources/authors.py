"""scan_authors: who wrote which work, of records, a snapshot, exports or a table, beside works and citations."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import polars as pl
import pyarrow.parquet as pq

from sciscidata.errors import ConfigError, CorruptRecordError, EmptyInputError, SchemaMismatchError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.records.dois import BLANKS
from sciscidata.records.ids import MISSING, number_ids, openalex_number, openalex_numbers, plain_ids, without_missing
from sciscidata.records.json_record import split_entries, strict_json
from sciscidata.remote.object_store import is_url
from sciscidata.schemas import AUTHORS
from sciscidata.sources.example.source import AUTHORS_FILE, ExampleConfig
from sciscidata.sources.exports.source import ExportsConfig, scan_author_names
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.sources.record_files import BATCH_WORKS, find_files, read_values
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.snapshot.layout import Part, find_layout
from sciscidata.sources.snapshot.source import SnapshotConfig
from sciscidata.sources.tables.columns import split_references
from sciscidata.storage import expand_home
from sciscidata.terminal.messages import counted

logger = logging.getLogger(__name__)

_STAGE: Final = "scan_authors"
#: Sources that say who wrote a work.
WithAuthors: TypeAlias = ExampleConfig | RecordsConfig | SnapshotConfig | ExportsConfig
_NEEDS: Final = (
    "needs an ExampleConfig, a RecordsConfig, a SnapshotConfig or an ExportsConfig, or a table with its columns: "
    "scan_authors(table, id='paper', authors='author_ids')."
)
#: Levels of a list in Parquet, which differ between writers.
_LEVELS: Final = {"list", "element", "item", "array", "bag", "array_element"}
_PATHS: Final = ("id", "authorships.author.id")


def scan_authors(
    source: WithAuthors | AnyFrame, *, id: str | None = None, authors: str | None = None, separator: str | None = None
) -> pl.LazyFrame:
    """Scan who wrote which work: one row per work and author, for ``find_self_citations`` and others.

    Of OpenAlex, an author is the number of its id; authors without one are left out, and counted in the log. Exports of
    Scopus as CSV have ids, too. Other exports have names only: surname and initials (``poe ea``), so that namesakes are
    one author, and a person who changes names is two. The log says which of the two it is.

    Args:
        source: an ExampleConfig, RecordsConfig, ExportsConfig, or a SnapshotConfig of a copy on this machine; the files
            are read at each collect. Or a table: a frame of any library, read when called.
        id: column of a table with ids of works, as in ``from_tables``.
        authors: column of a table with ids of authors, or names: one a row, lists, or text with | or ; between.
        separator: what parts authors in that text, if anything else does.

    Returns:
        work_id (Int64, as in WORKS) and author_id (Int64; String of exports, and where a table has text), each pair
        once, unordered.

    Raises:
        ConfigError: when called; ``source`` is another thing, or columns of a table are not named.
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
    if isinstance(source, ExampleConfig | RecordsConfig | SnapshotConfig | ExportsConfig):
        if id or authors or separator:
            raise ConfigError(f"{_STAGE}: id, authors and separator name columns of a table. Leave them out.")
        if isinstance(source, ExampleConfig):
            return pl.scan_parquet(AUTHORS_FILE, glob=False)
        if isinstance(source, ExportsConfig):
            return scan_author_names(source)
        parts = _find_parts(source)
        return scan_batches(lambda columns: _read_once_each(parts, columns), AUTHORS, "authors of OpenAlex")
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
    rows = lazy.select(work_id=id, author_id=authors).collect(engine="streaming")
    listed, _ = without_missing(rows["author_id"])
    if listed.dtype == pl.String():
        if separator is None:
            separator = next((sign for sign in "|;" if listed.str.contains(sign, literal=True).any()), None)
        is_list = listed.str.contains(r"^\s*[\[{]").any()
        listed = split_references(listed) if is_list else listed.str.split(separator) if separator else listed
    rows = rows.with_columns(listed.alias("author_id"))
    if isinstance(listed.dtype, pl.List):
        rows = rows.explode("author_id")
    if not (rows["author_id"].dtype == pl.String() or rows["author_id"].dtype.is_integer()):
        rows = rows.with_columns(plain_ids(rows["author_id"]))
    if rows["author_id"].dtype == pl.String():
        author = pl.col("author_id").str.strip_chars(BLANKS)
        rows = rows.with_columns(pl.when(~author.is_in(["", *MISSING])).then(author))
    rows = rows.with_columns(number_ids(rows["work_id"]).alias("work_id"))
    return rows.drop_nulls().unique()


def _find_parts(source: RecordsConfig | SnapshotConfig) -> list[Part]:
    """List the files of a source, as parts of a snapshot."""
    if isinstance(source, RecordsConfig):
        files = find_files(source.inputs, "RecordsConfig.inputs", in_folders=True)
        return [Part(file.name, str(file), "jsonl") for file in files]
    if is_url(source.folder):
        raise ConfigError(
            f"{_STAGE}: SnapshotConfig.folder is {source.folder}, needs a copy on this machine: authors are not kept "
            "in a corpus. Copy its works, or name the authors of a table."
        )
    place = Path(expand_home(source.folder))
    layout = find_layout(place, source.edition, allow_missing_manifest=source.allow_missing_manifest)
    return layout.parts


def _read_once_each(parts: list[Part], columns: list[str]) -> Iterator[pl.DataFrame]:
    """Read the pairs of all files; of a work that is there twice in JSON, the first counts, as in WORKS."""
    seen: set[int] = set()
    n_pairs = n_without = n_cut = 0
    for part in parts:
        frames = _read_parquet(part) if part.edition == "parquet" else _read_json(part, seen)
        for pairs, cut in frames:
            known = pairs.filter(pl.col("author_id") >= 0)
            n_without += pairs.height - known.height
            n_cut += cut
            n_pairs += known.height
            yield known.unique().select(columns)
    if not n_pairs:
        raise EmptyInputError(
            f"{_STAGE}: no work of {counted(len(parts), 'file')} has an author with an id of OpenAlex. Ask for the "
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


class _Author(msgspec.Struct):
    id: Any = None


class _Authorship(msgspec.Struct):
    author: _Author | None = None


class _Record(msgspec.Struct):
    """What is read of a work; ``results`` is there if it is a page of the API."""

    id: Any = None
    ids: dict[str, Any] | None = None
    authorships: list[_Authorship] | None = None
    is_authors_truncated: Any = None
    results: msgspec.Raw = msgspec.Raw()


_DECODER: Final = msgspec.json.Decoder(_Record)


def _read_json(part: Part, seen: set[int]) -> Iterator[tuple[pl.DataFrame, int]]:
    """Read the pairs of a file of JSON. What is no work was reported when works were read."""
    works: list[int] = []
    authors: list[int] = []
    n_cut = 0

    def taken() -> tuple[pl.DataFrame, int]:
        return pl.DataFrame({"work_id": works, "author_id": authors}, AUTHORS), n_cut

    with suppress(CorruptRecordError):
        for _, piece in read_values(Path(part.path)):
            for record in _records_of(piece):
                work = openalex_number(record.id, "W") or openalex_number((record.ids or {}).get("openalex"), "W")
                if work is None or work in seen:
                    continue
                seen.add(work)
                n_cut += record.is_authors_truncated is True
                for one in record.authorships or ():
                    works.append(work)
                    author = openalex_number(one.author.id, "A") if one.author else None
                    authors.append(-1 if author is None else author)
            if len(works) >= 16 * BATCH_WORKS:
                yield taken()
                works, authors, n_cut = [], [], 0
    yield taken()


def _records_of(piece: bytes) -> Iterable[_Record]:
    for text in (bytes, strict_json):
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError, CorruptRecordError):
            record = _DECODER.decode(text(piece))
            if record.id is None and bytes(record.results):
                return [one for entry in split_entries(piece) for one in _records_of(bytes(entry))]
            return [record]
    return []


def _read_parquet(part: Part) -> Iterator[tuple[pl.DataFrame, int]]:
    with pq.ParquetFile(part.path) as file:
        schema = file.schema
        paths = [schema.column(place).path for place in range(len(schema))]
        plain = {path: ".".join(level for level in path.split(".") if level not in _LEVELS) for path in paths}
        columns = [path for path, name in plain.items() if name in _PATHS]
        if len(columns) < len(_PATHS):
            return
        for batch in file.iter_batches(BATCH_WORKS, columns=columns):
            rows = pl.DataFrame(batch).select("id", pl.col("authorships")).explode("authorships").drop_nulls()
            author = pl.col("authorships").struct.field("author").struct.field("id")
            rows = rows.select("id", author=author)
            pairs = {"work_id": openalex_numbers(rows["id"], "W"), "author_id": openalex_numbers(rows["author"], "A")}
            yield pl.DataFrame(pairs).filter(pl.col("work_id") >= 0), 0
