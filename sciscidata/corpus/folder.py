"""Read a corpus on disk as lazy frames, or its citation graph; only a query of text reads texts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, cast, get_args

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from sciscidata.errors import (
    ConfigError,
    EmptyInputError,
    InputNotFoundError,
    SciSciDataError,
    StorageError,
    UnsafeNameError,
)
from sciscidata.graph.graph import FORMAT_VERSION, CitationGraph, Time, read_graph, write_graph
from sciscidata.options.checks import Configuration, Folder
from sciscidata.records.authors_table import AUTHORS
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.schemas import BESIDE, CITATIONS, COVERAGE, DATES, WORKS, Corpus
from sciscidata.storage import (
    BLANK_SEAL,
    cached_folder,
    find_damaged,
    is_sealed_text,
    path_inside,
    real_path,
    refuse_link,
)
from sciscidata.storage.parquet import CheckedGroups, ChecksumError, open_groups, read_parquet, sum_groups
from sciscidata.storage.paths import refuse_undecodable
from sciscidata.storage.small_files import read_whole

#: Raised by one whenever the same corpus gives other files. 1 had no checksums of pages and row groups, and no seal;
#: 2 no numbers of authors.
FORMAT_VERSION_OF_CORPUS = 3
TEXT = ("title", "abstract")
#: The three tables, each a folder of Parquet files. Text is apart, so that graph work never reads it.
TABLES: dict[str, pl.Schema] = {
    "works": pl.Schema({name: dtype for name, dtype in WORKS.items() if name not in TEXT}),
    "texts": pl.Schema({name: WORKS[name] for name in ("work_id", *TEXT)}),
    "citations": CITATIONS,
}
WRITTEN_BY = "authors"  # the table of who wrote which work, which a corpus may have; its number of rows in the report
AUTHOR_KEY = "author_id"  # of the report, where there are authors: the type of their ids
_AFFILIATED_KEY = "has_affiliations"  # of the report, where the authors have all columns of AUTHORS
_REPEATING = ["author_position", "author_name", "rors.list.element", "country_codes.list.element"]  # columns of AUTHORS
FOLDERS = (*TABLES, WRITTEN_BY)
_TYPES_OF_IDS = {"String": pl.String(), "Int64": pl.Int64()}
ORIGINAL_KEY = "original_id"  # of the report: the type of this column of the works, where they have one
#: What the report says where the works have DATES, and COVERAGE.
KEYS_BESIDE = MappingProxyType({"has_dates": DATES, "has_last_full_year": COVERAGE})
INDEX, REMOVED_FILE, MADE_OF, RECEIPTS = "corpus.json", "removed.parquet", "made_of.json", "receipts"
UNFINISHED = ".unfinished"  # parts that workers are writing
_KEY = "work_id"
REMOVED_ROWS = pl.Schema({"part": pl.String(), _KEY: pl.Int64()})  # columns that REMOVED_FILE needs
_NAMED_PARTS = 20
_Reader = Callable[[list[str] | None, pl.Expr | None, int | None], Iterator[pl.DataFrame]]
_OWN_NAME = re.compile(r"part-([0-9]{6,}\.parquet|[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9]+\.(parquet|json))")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class CorpusConfig(Configuration):
    """A corpus on disk, which ``sciscidata ingest``, ``ingest_snapshot`` or ``write_corpus`` has made.

    Attributes:
        folder: folder that `sciscidata ingest` has made.

    Raises:
        ConfigError: on construction, if ``folder`` is not a path.

    Example:
        >>> CorpusConfig(folder="corpora/openalex").folder
        'corpora/openalex'
    """

    folder: Folder


def scan_corpus(out: str | Path, *, part: int | None = None) -> Corpus:
    """Describe a corpus on disk as lazy frames.

    Args:
        out: its folder. ``works/*.parquet`` has WORKS without title and abstract. ``texts/*.parquet``, if it exists,
            has work_id, title, abstract: the same rows in the same order. ``citations/*.parquet`` has CITATIONS,
            ``authors/*.parquet``, if it exists, who wrote which work (``scan_authors`` reads it), and
            ``removed.parquet`` the rows that do not count. ``corpus.json``, the report, is written last.
        part: read one of its ``n_parts`` only, counted from 0.

    Returns:
        WORKS, each work once, and CITATIONS, in the order of the parts. A query on ``works`` without title and abstract
        reads no file of texts. A query may filter by structure, for example by ids, and want text. It reads only the
        row groups of texts (4,096 works) with works left. The provenance is the report without the list of parts, and
        the SHA-256 of the whole report.

        Files of works and citations are compared with their SHA-256 once, before their first row is read. A row group
        of texts is compared with its checksum whenever it is read.

    Raises:
        ConfigError: when called; there is no such part.
        InputNotFoundError: when called; there is no corpus, or it is not finished.
        UnsafeNameError: when called; the report names a file that cannot belong to a corpus.
        StorageError: when called; ``out`` is not UTF-8, the report is damaged, a file is missing or has another size,
            or ``removed.parquet`` another content. At collect; a file is damaged, and the message names it.

    Example:
        >>> scan_corpus("no/such/folder")
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: no corpus in no/such/folder: there is no such folder. Make one with
        `sciscidata ingest`, or check the path.
    """
    files, stems, by_part, report = _open(Path(out), part)
    beside = [name for key, own in KEYS_BESIDE.items() if report.get(key) is True for name in own]
    schema = works_schema(report.get(ORIGINAL_KEY), beside)
    works = _source(files.out, _works_reader(files, stems, by_part, list(schema)), schema)
    citations = _source(files.out, _reader(files, "citations", stems, by_part, CITATIONS), CITATIONS)
    return Corpus(works, citations, report)


def scan_authors_of(out: str | Path) -> pl.LazyFrame:
    """Scan who wrote which work of a corpus on disk: AUTHORS or its first two columns, in the order of the parts.

    Files are compared with their SHA-256 once, before their first row is read. Raises ConfigError if there are none.
    """
    files, stems, by_part, report = _open(Path(out), None)
    if (dtype := _TYPES_OF_IDS.get(str(report.get(AUTHOR_KEY)))) is None:
        raise ConfigError(
            f"the corpus in {out} holds no authors. Ingest its source again with keep_authors=True (and overwrite=True "
            "unless it is a snapshot), or name two columns of a table: scan_authors(table, id='paper', authors='by')."
        )
    is_whole = report.get(_AFFILIATED_KEY) is True
    schema = AUTHORS if is_whole else pl.Schema({_KEY: WORKS[_KEY], AUTHOR_KEY: dtype})
    return _source(files.out, _reader(files, WRITTEN_BY, stems, by_part, schema), schema)


def describe_authors(n_rows: int, schema: Mapping[str, pl.DataType]) -> dict[str, Any]:
    """Return what the report says of the authors."""
    is_whole = schema.keys() >= AUTHORS.keys()
    return {WRITTEN_BY: n_rows, AUTHOR_KEY: str(schema[AUTHOR_KEY])} | ({_AFFILIATED_KEY: True} if is_whole else {})


def _open(out: Path, part: int | None) -> tuple[_Files, dict[str, list[str]], dict[str, pl.Series], dict[str, Any]]:
    """Check that all files of a corpus are there; return them, their stems by table, removed ids, and provenance."""
    refuse_undecodable(out)
    report, digest = read_report(out)
    parts: list[dict[str, Any]] = report.pop("parts")
    stems: dict[str, list[str]] = {name: [] for name in FOLDERS}
    if part is not None and not 0 <= part < len(parts):
        raise ConfigError(
            f"part is {part!r}, and the corpus in {out} has parts from 0 to {len(parts) - 1}. Name one of them."
        )
    read = parts if part is None else [parts[part]]
    described = {name: file for one in read for name, file in one["files"].items()}
    for name, file in described.items():
        path = out / name
        size = path.stat().st_size if path.is_file() else None
        if size != file["bytes"]:
            raise _damage(path, "is missing" if size is None else f"has {size:,} bytes instead of {file['bytes']:,}")
        stems[path.parent.name].append(path.stem)
    if REMOVED_FILE in find_damaged(out, {REMOVED_FILE: report["removed_sha256"]}):
        raise _damage(out / REMOVED_FILE, "is missing or damaged")
    removed = _read_removed(out / REMOVED_FILE)
    by_part = {str(name[0]): frame[_KEY] for name, frame in removed.group_by("part", maintain_order=True)}
    return _Files(out, described), stems, by_part, {**report, "n_parts": len(parts), "report_sha256": digest}


def works_schema(original_id: object, beside: Collection[str] = ()) -> pl.Schema:
    """Return WORKS, with ``original_id`` behind ``work_id`` where its type is named; columns of BESIDE follow."""
    dtype = _TYPES_OF_IDS.get(str(original_id))
    own = {} if dtype is None else {ORIGINAL_ID: dtype}
    more = {name: dtype for name, dtype in BESIDE.items() if name in beside}
    return pl.Schema({_KEY: WORKS[_KEY], **own, **WORKS, **more})


def refuse_linked_cache(out: str | Path, cache_dir: str | Path) -> None:
    """Raise StorageError if ``cache`` inside a corpus, maybe somebody else's, is a link, however the path spells it."""
    own, named = real_path(out) / "cache", Path(cache_dir)
    if any(real_path(path.parent) / path.name == own for path in (named, *named.parents)):
        refuse_link(Path(out) / "cache")


def read_report(out: Path) -> tuple[dict[str, Any], str]:
    """Read ``corpus.json`` and its SHA-256; every name in it is checked to be a file of a corpus inside ``out``."""
    try:
        text = read_whole(out / INDEX)
        report: dict[str, Any] = json.loads(text)
        is_report = isinstance(report["parts"], list) and isinstance(report["removed_sha256"], str)
        is_ours = report.pop("format_version", None) == FORMAT_VERSION_OF_CORPUS
        if not is_report or not is_ours or not BLANK_SEAL.keys() <= report.keys():
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if not out.is_dir():
            what = "it is a file, and a corpus is a folder" if out.is_file() else "there is no such folder"
            msg = f"no corpus in {out}: {what}. Make one with `sciscidata ingest`, or check the path."
        elif any((out / name).is_dir() for name in TABLES):
            msg = (
                f"the corpus in {out} is not finished, or was made by an earlier version: no readable {INDEX}. Run the "
                "same ingest again."
            )
        else:
            msg = f"no corpus in {out}: no readable {INDEX}. Make one with `sciscidata ingest`, or check the path."
        raise InputNotFoundError(msg) from error
    if not is_sealed_text(text):
        raise _damage(out / INDEX, "is damaged: it differs from the SHA-256 that it holds")
    for part in report["parts"]:
        _check_part(out, part)
    return {name: value for name, value in report.items() if name not in BLANK_SEAL}, hashlib.sha256(text).hexdigest()


def _check_part(out: Path, part: Any) -> None:  # noqa: ANN401 (JSON)
    """Refuse a part of the report that this package cannot have written: its names become paths."""
    try:
        for name, facts in part["files"].items():
            path = path_inside(out, name, stated_by=out / INDEX)
            table, _, file = str(name).partition("/")
            if table not in FOLDERS or not _OWN_NAME.fullmatch(file) or path.suffix != ".parquet":
                raise UnsafeNameError(
                    f"{out / INDEX} names {name!r}, which is no file of a corpus. Get it again from where it came."
                )
            sums = facts.get("sums", [])
            if type(facts["bytes"]) is not int or not isinstance(facts["sha256"], str) or not isinstance(sums, list):
                raise TypeError
    except (AttributeError, KeyError, TypeError) as error:
        raise InputNotFoundError(
            f"{out / INDEX} holds no list of parts that this version can read ({error!r}). Run the same ingest again."
        ) from error


def _read_removed(path: Path) -> pl.DataFrame:
    """Read which rows do not count; refuse another kind of file, since anybody may state its SHA-256 in a report."""
    try:
        rows = read_parquet(path)
        if any(rows.schema.get(name) != dtype for name, dtype in REMOVED_ROWS.items()):
            raise TypeError(rows.schema)
    except (OSError, pa.ArrowException, TypeError) as error:
        columns = ", ".join(f"{name}: {dtype}" for name, dtype in REMOVED_ROWS.items())
        raise StorageError(
            f"{path} is no list of removed rows ({columns}). Get the corpus again from where it came, or remove it and "
            "ingest again."
        ) from error
    return rows


def options_of(table: str) -> dict[str, Any]:
    """Return how pyarrow writes a table. Ids of authors, and of citations, take more space with a dictionary."""
    repeating = {WRITTEN_BY: _REPEATING, "citations": False}
    return {"compression_level": 1, "use_dictionary": repeating.get(table, True)}


def describe_part(file: IO[bytes], table: str) -> dict[str, Any]:
    """Describe an open file of one of FOLDERS for the report: ``bytes``, ``sha256``, and for texts ``sums``."""
    facts: dict[str, Any] = {"bytes": file.seek(0, 2)}
    file.seek(0)
    facts["sha256"] = hashlib.file_digest(cast("Any", file), "sha256").hexdigest()
    return facts | ({"sums": sum_groups(file)} if table == "texts" else {})


def own_files(out: Path, folder: str) -> list[Path]:
    """List the files in one folder of a corpus that have a name given by this package, in order."""
    return [path for path in sorted((out / folder).glob("part-*")) if _OWN_NAME.fullmatch(path.name)]


def recorded_sums(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of every file of a corpus, from its report."""
    sums = {name: facts["sha256"] for part in report["parts"] for name, facts in part["files"].items()}
    return sums | {REMOVED_FILE: report["removed_sha256"]}


def list_left_out(parts: Mapping[str, str]) -> Iterator[str]:
    """Yield the name and reason of each part that was left out; of many, the first 20 and a count."""
    for name, reason in islice(parts.items(), _NAMED_PARTS):
        yield f"{name}: {reason}"
    if len(parts) > _NAMED_PARTS:
        yield f"and {len(parts) - _NAMED_PARTS:,} more, all listed in {INDEX}"


@contextmanager
def naming_damage(out: Path) -> Generator[None]:
    """If reading a corpus fails, raise StorageError for a damaged or missing file, which Polars does not name."""
    try:
        yield
    except SciSciDataError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        damaged = find_damaged(out, recorded_sums(read_report(out)[0]))
        if damaged:
            raise _damage_of(out / damaged[0]) from error
        raise


def _damage_of(path: Path) -> StorageError:
    return _damage(path, "is damaged: its SHA-256 is not the recorded one" if path.exists() else "is missing")


def _damage(path: Path, what: str) -> StorageError:
    return StorageError(f"{path} {what}. Run the same ingest again: damaged files are made again.")


#: Files that this process has compared with their SHA-256, as they were then. The next stage need not do it again.
_whole: set[tuple[object, ...]] = set()


def _state(path: Path, digest: str) -> tuple[object, ...]:
    try:
        state = path.stat()
    except OSError:
        return (path,)
    return (path, digest, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


class _Files:
    """The files of one corpus, compared with their SHA-256 the first time that rows of them are asked for."""

    def __init__(self, out: Path, facts: Mapping[str, Mapping[str, Any]]) -> None:
        self.out = out
        self._facts = facts

    def paths(self, table: str, stems: Sequence[str]) -> list[Path]:
        """Return the files of a table, each compared; raise StorageError for a damaged or missing one."""
        names = [f"{table}/{stem}.parquet" for stem in stems]
        sums = {name: str(self._facts[name]["sha256"]) for name in names}
        states = {name: _state(self.out / name, sums[name]) for name in names}
        unknown = {name: sums[name] for name in names if states[name] not in _whole}
        for name in find_damaged(self.out, unknown):
            raise _damage_of(self.out / name)
        _whole.update(states[name] for name in unknown)
        return [self.out / name for name in names]

    @contextmanager
    def texts(self, stem: str) -> Generator[CheckedGroups]:
        """Open a file of texts by row group, each compared when read; raise StorageError for a damaged one."""
        name = f"texts/{stem}.parquet"
        if name not in self._facts:
            raise _damage(self.out / name, f"is not in {INDEX}")
        try:
            with open_groups(self.out / name, self._facts[name].get("sums", [])) as groups:
                yield groups
        except ChecksumError as error:
            raise _damage_of(self.out / name) from error


def _scan(
    files: _Files, table: str, stems: Sequence[str], removed: dict[str, pl.Series], schema: pl.Schema
) -> pl.LazyFrame:
    """Scan the files of one table, in order; parts without removed rows are scanned together."""
    runs: list[pl.LazyFrame] = []
    key = schema.names()[0]
    paths = dict(zip(stems, files.paths(table, stems), strict=True))
    for stem, run in groupby(paths, lambda stem: stem if stem in removed else None):
        rows = pl.scan_parquet([paths[name] for name in run], glob=False)
        runs.append(rows if stem is None else rows.filter(~pl.col(key).is_in(removed[stem].implode())))
    return pl.concat(runs) if runs else pl.LazyFrame(schema=schema)


def _source(out: Path, read: _Reader, schema: pl.Schema) -> pl.LazyFrame:
    """Make a lazy frame of a reader; collecting it raises an error that names a damaged file."""

    def rows(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        with naming_damage(out):
            yield from read(with_columns, predicate, n_rows)

    return register_io_source(rows, schema=schema, explain_name="corpus on disk")


def _reader(
    files: _Files, table: str, stems: Mapping[str, Sequence[str]], removed: dict[str, pl.Series], schema: pl.Schema
) -> _Reader:
    """Read a table whose first column has the id of the work that a row belongs to."""

    def scan(some: Sequence[str]) -> pl.LazyFrame:
        return _scan(files, table, some, removed, schema)

    return lambda columns, predicate, n_rows: _batches(scan, stems[table], columns or list(schema), predicate, n_rows)


def _works_reader(
    files: _Files, stems: Mapping[str, Sequence[str]], removed: dict[str, pl.Series], names: list[str]
) -> _Reader:
    def read(columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None) -> Iterator[pl.DataFrame]:
        columns = columns if columns is not None else names
        asked = set(columns) | set(predicate.meta.root_names() if predicate is not None else ())
        if asked.isdisjoint(TEXT) or not stems["texts"]:

            def scan(some: Sequence[str]) -> pl.LazyFrame:
                rows = _scan(files, "works", some, removed, TABLES["works"])
                return rows.with_columns(pl.lit(None, dtype=pl.String()).alias(name) for name in TEXT)

            yield from _batches(scan, stems["works"], columns, predicate, n_rows)
            return
        left = n_rows
        for stem in stems["works"]:
            for rows in _with_text(files, stem, removed.get(stem), asked, predicate):
                rows = (rows if left is None else rows.head(left)).select(columns)
                yield rows
                if left is not None and (left := left - rows.height) <= 0:
                    return

    return read


def _batches(
    scan: Callable[[Sequence[str]], pl.LazyFrame],
    stems: Sequence[str],
    columns: list[str],
    predicate: pl.Expr | None,
    n_rows: int | None,
) -> Iterator[pl.DataFrame]:
    """Read all files in one query; for the first ``n_rows`` only, one file after another."""
    runs = [stems] if n_rows is None else [[stem] for stem in stems]
    left = n_rows
    for some in runs:
        rows = scan(some)
        rows = rows if predicate is None else rows.filter(predicate)
        rows = rows if left is None else rows.head(left)
        for batch in rows.select(columns).collect_batches(maintain_order=True):
            yield batch
            left = None if left is None else left - batch.height
        if left is not None and left <= 0:
            return


def _with_text(
    files: _Files, stem: str, removed: pl.Series | None, asked: set[str], predicate: pl.Expr | None
) -> Iterator[pl.DataFrame]:
    """Read works and their texts together; a row group without works left reads no text."""
    structure = [name for name in (*TABLES["works"], ORIGINAL_ID, *BESIDE) if name in asked or name == _KEY]
    text = [name for name in TEXT if name in asked]
    first = predicate if predicate is not None and set(predicate.meta.root_names()).isdisjoint(TEXT) else None
    keep = pl.col(_KEY).is_not_null() if removed is None else ~pl.col(_KEY).is_in(removed.implode())
    keep = keep if first is None else keep & first
    (path,) = files.paths("works", [stem])
    with ExitStack() as stack:
        works = stack.enter_context(pq.ParquetFile(path, page_checksum_verification=True))
        texts: CheckedGroups | None = None
        for group in range(works.metadata.num_row_groups):
            rows: Any = pl.from_arrow(works.read_row_group(group, columns=structure))
            kept = rows.select(keep.alias("kept")).to_series()
            if not kept.any():
                continue
            texts = texts or stack.enter_context(files.texts(stem))
            rows = rows.hstack(texts.read(group, text)).filter(kept)
            yield rows if predicate is None or first is not None else rows.filter(predicate)


def open_corpus_graph(folder: str | Path, *, cache_dir: str | Path, time: Time = "publication_year") -> CitationGraph:
    """Build the citation graph of a corpus on disk, or map the one in ``cache_dir``, after all SHA-256 were compared.

    The graph lies under a hash of the corpus's content, so the corpus is not read again.
    """
    refuse_linked_cache(folder, cache_dir)
    corpus = scan_corpus(folder)
    place = _graph_folder(folder, cache_dir, time, corpus.provenance["report_sha256"])

    def build(path: Path) -> None:
        if corpus.citations.head(1).collect().is_empty():
            raise EmptyInputError(f"the corpus in {folder} holds no citations, so it has no graph. Check its source.")
        write_graph(corpus.works, corpus.citations, path, *_of_dates(time))

    return read_graph(cached_folder(place, build, resume=True), trusted=True)


def find_corpus_graph(folder: str | Path, *, time: Time = "publication_year") -> CitationGraph:
    """Map the graph in the cache of a corpus, without reading it all; build it where it is not there."""
    place = _graph_folder(folder, Path(folder) / "cache", time, None)
    if not place.is_dir():
        return open_corpus_graph(folder, cache_dir=place.parent, time=time)
    refuse_linked_cache(folder, place.parent)
    return read_graph(place, trusted=True, whole=False)


def list_older_graphs(folder: Path) -> list[Path]:
    """List the graphs in the cache of a corpus that are of another version of it."""
    cache = Path(folder) / "cache"
    own = {_graph_folder(folder, cache, time, None) for time in get_args(Time)}
    return [path for path in sorted(cache.glob("graph-*")) if path.is_dir() and path not in own]


def _of_dates(time: Time) -> tuple[Time, ...]:
    return () if time == "publication_year" else (time,)


def _graph_folder(folder: str | Path, cache_dir: str | Path, time: Time, expected: str | None) -> Path:
    """Name the folder of a graph by the content of its corpus, whose report has the ``expected`` SHA-256, if any."""
    report, digest = read_report(Path(folder))
    if expected is not None and digest != expected:
        raise StorageError(f"the corpus in {folder} was replaced while it was read. Run again.")
    other = ("texts/", f"{WRITTEN_BY}/")
    sums = sorted(item for item in recorded_sums(report).items() if not item[0].startswith(other))
    key = hashlib.sha256(json.dumps([FORMAT_VERSION, sums, *_of_dates(time)]).encode()).hexdigest()[:32]
    return Path(cache_dir) / f"graph-{key}"
