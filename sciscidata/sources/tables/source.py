"""The source "tables": files of works and citations in any layout, read out of core into a corpus on disk."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import polars as pl

from sciscidata.corpus.folder import works_schema
from sciscidata.corpus.writer import write_corpus
from sciscidata.engines.engine import Engine
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError, WorkIdError
from sciscidata.options.checks import Configuration
from sciscidata.records.ids import MISSING, ORIGINAL_ID, plain_ids, refuse_shared_numbers
from sciscidata.schemas import CITATIONS, COVERAGE, DATES, Corpus
from sciscidata.sources.kinds import Citations, LabelFiles, Opening, ToRead, open_large
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.sources.record_files import find_files, printable_name
from sciscidata.sources.tables.authors import author_rows, find_separator
from sciscidata.sources.tables.columns import (
    GAPS,
    OF_CITATIONS,
    OF_WORKS,
    Tally,
    are_swapped,
    citation_rows,
    complete_works,
    find_columns,
    kept_columns,
    reference_rows,
    require_years,
    say_unused,
    warn_of_gaps,
    work_rows,
)
from sciscidata.sources.tables.files import TableFile
from sciscidata.sources.tables.frames import check_citations_given
from sciscidata.storage import hash_file, scratch_folder
from sciscidata.storage.spill import DiskSort
from sciscidata.terminal.progress import progress_bar

_Files = tuple[str, ...]
_LAST_INT64 = (1 << 63) - 1
_Column = Annotated[str, msgspec.Meta(min_length=1, title="COLUMN")]
_ROLES = (*OF_WORKS, *OF_CITATIONS)
_PRESETS: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("presets.toml").read_text("utf-8"))


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class TablesConfig(Configuration):
    """Files of works and citations in any layout, with ids of any kind.

    A file is CSV, TSV, Parquet, Arrow (Feather), or JSON (one object per line, or a list), also as .gz and .zst. It is
    recognised by its content. Its name may be a pattern. Of JSON, ``a.b`` is the field b of the object a.

    Attributes:
        works: files with one row per work.
        citations: files with one row per citation. Empty: the references are a column of the works.
        preset: layout that names the columns; other options go over it.
        id: column of ``works`` with the ids: text or whole numbers. None: work_id.
        year: column of years: whole numbers, text or dates. None: publication_year.
        venue: column of venues (journals, courts, classes). None: source_id, if there is one.
        citing: column of ``citations`` with the citing work. None: citing_id.
        cited: column of ``citations`` with the cited work. None: cited_id.
        title: column of titles. None: title, if there is one.
        abstract: column of abstracts. None: abstract, if there is one.
        field: column of fields. None: primary_field, if there is one.
        date: column of dates (publication_date), which give the year where there is none.
        references: column of ``works`` with the works that each one cites: lists, or text with |, ; or commas.
        authors: column of ``works`` with ids of authors, or names: lists, or text with | or ; between. A corpus on disk
            keeps them, for ``scan_authors``.
        missing: words that stand for a missing value, wherever they are all of a field.
        apart: each file of ``works`` numbers its works itself, and the file of ``citations`` at the same place uses
            these numbers: the id 17 of the second files is 2:17.
        quotes: whether text files have fields in quotes. None: yes, but between tabs only if the beginning shows them.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or citations are missing or given twice.

    Example:
        >>> TablesConfig(works=("patents.tsv",), citations=("cites.tsv",), preset="patentsview").preset
        'patentsview'
    """

    works: Annotated[_Files, msgspec.Meta(min_length=1, title="FILE")]
    citations: Annotated[_Files, msgspec.Meta(title="FILE")] = ()
    preset: Literal["patentsview", "snap-patents", "dblp", "openalexr", "s2ag"] | None = None
    id: _Column | None = None
    year: _Column | None = None
    venue: _Column | None = None
    citing: _Column | None = None
    cited: _Column | None = None
    title: _Column | None = None
    abstract: _Column | None = None
    field: _Column | None = None
    date: _Column | None = None
    references: _Column | None = None
    authors: _Column | None = None
    missing: tuple[str, ...] = MISSING
    apart: bool = False
    quotes: bool | None = None

    def _check(self) -> None:
        names = ("TablesConfig.citations", "TablesConfig.references")
        check_citations_given(bool(self.citations), self.columns["references"], *names)
        if self.apart and not self.citations:
            raise ConfigError("TablesConfig.apart needs a file of citations for each file of works. Name them.")

    @property
    def columns(self) -> dict[str, str | Sequence[str] | None]:
        """The column of each role: as given, or that of the preset."""
        preset = dict(_PRESETS.get(self.preset or "", {}))
        if self.citations:
            preset.pop("references", None)
        return {role: getattr(self, role) or preset.get(role) for role in _ROLES}


def find_table_files(config: TablesConfig) -> dict[str, list[Path]]:
    """List the files of ``works`` and ``citations``, each once; those of a pattern sorted."""
    return {name: find_files(getattr(config, name), f"TablesConfig.{name}") for name in ("works", "citations")}


def ingest_tables(
    config: TablesConfig,
    out: str | Path,
    advance: Callable[[float], None] | None = None,
    *,
    texts: bool = True,
    overwrite: bool = False,
) -> Corpus:
    """Read the files once into a corpus on disk, whatever their size; works come in the order of ``work_id``.

    ``advance`` gets bytes. The provenance counts impossible years, works without a year, citations that lack an id, and
    words of ``missing``.
    """
    paths = find_table_files(config)
    works, citations = (
        [TableFile(path, quotes=config.quotes) for path in paths[option]] for option in ("works", "citations")
    )
    if config.apart and len(works) != len(citations):
        raise ConfigError(
            f"TablesConfig.apart needs a file of citations for each file of works, and there are {len(citations)} and "
            f"{len(works)}. Name them in one order."
        )
    if citations and are_swapped(works[0].columns, citations[0].columns, config.columns):
        raise SchemaMismatchError(
            f"TablesConfig.works names {works[0].path}, which has the columns of citations, and TablesConfig.citations "
            f"names {citations[0].path}, which lacks them. Swap the two."
        )
    at = _find_columns(works, OF_WORKS, config, "works")
    kept = [
        name
        for name in kept_columns(works[0].columns, at.values()).values()
        if all(file.is_json or name in file.columns for file in works)
    ]
    by_coverage = sorted(works, key=lambda file: {*COVERAGE}.isdisjoint(file.columns))
    _find_columns(by_coverage, {"": "last_full_year"}, config, "works")  # of some files only, it would be left out
    beside = [*(DATES if "date" in at else ()), *(name for name in COVERAGE if name in kept)]
    say_unused(works[0].columns, [*at.values(), *kept, config.authors or ""], "tables")
    if not texts:
        at = {role: name for role, name in at.items() if role not in ("title", "abstract")}
    ends = _find_columns(citations, OF_CITATIONS, config, "citations") if citations else {}
    dtype = pl.String() if config.apart else _type_of_ids(works, at["id"])
    tally = Tally(dict.fromkeys(GAPS, 0))
    advance = advance or (lambda _: None)

    def read_works(columns: list[str]) -> Iterator[pl.DataFrame]:
        wanted = [*(name for role, name in at.items() if role != "references"), *kept]

        def rows_of(batch: pl.DataFrame, n_before: int) -> pl.DataFrame:
            return work_rows(batch, at, tally, n_before, config.missing).with_columns(pl.col(ORIGINAL_ID).cast(dtype))

        with scratch_folder() as scratch:
            by_id, last, n_works = DiskSort(["work_id"], scratch), pl.DataFrame(), 0
            for rows in _read(works, wanted, advance, rows_of, [at["id"]] if config.apart else ()):
                by_id.add(rows)
                n_works += rows.height
            if not n_works:
                raise EmptyInputError(f"{named} holds no row below its first. Check the file.")
            require_years(tally, n_works, named)
            for rows in by_id.merge():
                last = pl.concat([last, rows.select("work_id", ORIGINAL_ID)])
                _refuse_shared_numbers(last, named, n_files=len(works))
                last = last.tail(1)
                yield complete_works(rows.lazy()).select(columns).collect()

    def read_citations(columns: list[str]) -> Iterator[pl.DataFrame]:
        names = [*ends.values()] if citations else [at["id"], at["references"]]

        def rows_of(batch: pl.DataFrame, _: int) -> pl.DataFrame:
            rows = citation_rows if citations else reference_rows
            return rows(batch, ends or at, tally, config.missing).select(columns)

        yield from _read(citations or works, names, advance, rows_of, names if config.apart else ())
        counted.update(tally, inputs=[facts | {"sha256": hash_file(path)} for path, facts in inputs.items()])

    named = ", ".join(map(printable_name, paths["works"]))
    listed = [path for files in paths.values() for path in files]
    inputs = {path: {"name": printable_name(path), "bytes": path.stat().st_size} for path in listed}
    counted: dict[str, Any] = {}
    provenance: dict[str, Any] = {
        "kind": "tables",
        "columns": {**at, **ends},
        "missing": [*config.missing],
        **({} if config.quotes is None else {"quotes": config.quotes}),
        **({"apart": True} if config.apart else {}),
        **({"last_full_year": "that of each work"} if {*COVERAGE} <= {*beside} else {}),
        **({} if config.authors is None else {"authors_column": config.authors}),
        "inputs": [*inputs.values()],
    }
    frames = (
        scan_batches(read_works, works_schema(str(dtype), beside), "files of works"),
        scan_batches(read_citations, CITATIONS, "files of citations"),
    )
    authors = None if config.authors is None else scan_table_authors(config)
    corpus = write_corpus(
        Corpus(*frames, provenance),
        out,
        texts=texts,
        authors=authors,
        inputs=listed,
        overwrite=overwrite,
        facts=counted,
    )
    warn_of_gaps(corpus.provenance, "tables", tally.example)
    return corpus


def scan_table_authors(config: TablesConfig) -> pl.LazyFrame:
    """Scan who wrote the works: ``work_id`` and ``author_id``, Int64 or String. The files are read at each collect."""
    if config.authors is None:
        raise ConfigError("TablesConfig.authors names no column, so authors are not known. Name the column of authors.")
    files = [TableFile(path, quotes=config.quotes) for path in find_table_files(config)["works"]]
    names = [_find_columns(files, {"id": OF_WORKS["id"]}, config, "works")["id"], config.authors]
    for file in files:
        if config.authors not in file.columns and not file.is_json:
            raise SchemaMismatchError(
                f"{file.path} has no column {config.authors!r}; it has {', '.join(file.columns)}. Name the column of "
                "authors in TablesConfig.authors."
            )
    dtype = _type_of_ids(files, config.authors)

    def read(columns: list[str]) -> Iterator[pl.DataFrame]:
        separator: str | None = None

        def rows_of(batch: pl.DataFrame, _: int) -> pl.DataFrame:
            nonlocal separator  # that of the first batches, so that all are parted alike
            rows = batch.select(work_id=names[0], author_id=names[1])
            separator = separator or find_separator(rows["author_id"])
            rows = author_rows(rows, separator, config.missing)
            return rows.with_columns(pl.col("author_id").cast(dtype)).select(columns)

        yield from _read(files, names, lambda _: None, rows_of, names[:1] if config.apart else ())

    schema = pl.Schema({"work_id": pl.Int64(), "author_id": dtype})
    return scan_batches(read, schema, "authors of files of works")


def _type_of_ids(files: Sequence[TableFile], column: str) -> pl.DataType:
    """Return how ids of files are kept: as Int64, or as text where one of them is no Int64."""
    kind = files[0].dtype_of(column)
    dtype = plain_ids(pl.Series([], dtype=kind.inner if isinstance(kind, pl.List) else kind)).dtype
    unsigned = [file for file in files if file.dtype_of(column) in (pl.UInt64(), pl.List(pl.UInt64()))]
    batches = (batch for file in unsigned for batch in file.read([column]))
    is_long = any((batch[column].explode().max() or 0) > _LAST_INT64 for batch in batches)  # pyright: ignore[reportOperatorIssue]
    return pl.String() if is_long else dtype


def _read(
    files: Sequence[TableFile],
    columns: Sequence[str],
    advance: Callable[[float], None],
    rows_of: Callable[[pl.DataFrame, int], pl.DataFrame],
    apart: Sequence[str] = (),
) -> Iterator[pl.DataFrame]:
    """Make rows of every batch, given the rows before it; an error names the file.

    Ids in the columns ``apart`` get the place of their file before them.
    """
    for place, file in enumerate(files, start=1):
        n_rows = 0
        for batch in file.read(columns, advance):
            batch = batch.with_columns(pl.format(f"{place}:{{}}", name).alias(name) for name in apart)
            try:
                yield rows_of(batch, n_rows)
            except (WorkIdError, SchemaMismatchError) as error:
                raise type(error)(f"{file.path}: {error}") from error
            n_rows += batch.height


def _refuse_shared_numbers(works: pl.DataFrame, named: str, n_files: int) -> None:
    try:
        refuse_shared_numbers(works, named)
    except WorkIdError as error:
        if n_files < 2:
            raise
        raise WorkIdError(f"{error} If each file has a numbering of its own, set TablesConfig.apart=True.") from None


def table_bytes(config: TablesConfig) -> int:
    """Return the size of what is read."""
    paths = find_table_files(config)
    sizes = {option: sum(path.stat().st_size for path in files) for option, files in paths.items()}
    return sizes["works"] * (1 if paths["citations"] else 2) + sizes["citations"]


def _find_columns(files: Sequence[TableFile], roles: Any, config: TablesConfig, table: str) -> dict[str, str]:  # noqa: ANN401
    found = find_columns(files[0].columns, roles, config.columns, table=str(files[0].path), owner="TablesConfig")
    for file in files[1:]:
        missing = [name for name in found.values() if name not in file.columns]
        if missing and not file.is_json:
            raise SchemaMismatchError(
                f"{file.path} has no column {missing[0]!r}, which {files[0].path} has. Give files of one layout."
            )
    return found


def open_tables(config: TablesConfig, opening: Opening) -> Citations:
    """Read the files into a corpus in the cache, once."""
    files = {option: [str(path) for path in paths] for option, paths in find_table_files(config).items()}
    asked = [files, config.columns, config.quotes, config.missing, *([True] if config.apart else [])]
    key = hashlib.sha256(json.dumps(asked).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    with progress_bar("read tables", table_bytes(config), unit="bytes") as advance:
        corpus = ingest_tables(config, opening.cache_dir / f"tables-{key}", advance, overwrite=True)
    named = config.columns["id"]
    ids = (named,) if isinstance(named, str) else tuple(named or (OF_WORKS["id"],))
    return open_large(corpus, LabelFiles(find_table_files(config)["works"], ids))


def write_tables(
    config: TablesConfig, out: str | Path, *, texts: bool, authors: bool, overwrite: bool, engine: Engine | None
) -> Corpus:
    """Write the files as a corpus on disk, with a progress bar."""
    _ = engine
    if authors:
        scan_table_authors(config)
    with progress_bar("read tables", table_bytes(config), unit="bytes") as advance:
        return ingest_tables(config, out, advance, texts=texts, overwrite=overwrite)


def measure_tables(config: TablesConfig) -> ToRead:
    """Say how large the files are."""
    n_bytes, n_files = table_bytes(config), sum(map(len, find_table_files(config).values()))
    return ToRead(f"{n_files:,} tables, {n_bytes:,} bytes", parsed_bytes=n_bytes)
