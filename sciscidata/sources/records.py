"""The source "records": files of OpenAlex Works, from the API or the snapshot, as works and citations."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl
import pyarrow.parquet as pq

from sciscidata.errors import CorruptRecordError, EmptyInputError
from sciscidata.options.checks import Configuration, require_config
from sciscidata.records.dois import CHANGED_DOIS, describe_changed
from sciscidata.records.work_columns import PARSER_VERSION, citations_of, works_of
from sciscidata.schemas import CITATIONS, DATES, WORKS, Corpus
from sciscidata.sources.kinds import REFERENCES_PER_WORK, Citations, Facts, Opening, ToRead
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.sources.parsed_files import ParsedFiles, up_to_damage
from sciscidata.sources.parsed_once import is_made, make_once, read_batches
from sciscidata.sources.record_files import (
    ReadSoFar,
    count_new,
    decompressed_chunks,
    find_files,
    in_batches,
    later_change,
    printable_name,
)
from sciscidata.storage import cached_folder, hash_file
from sciscidata.storage.atomic import workspace_beside
from sciscidata.storage.parquet import CHECKED, to_arrow
from sciscidata.storage.spill import DiskSort
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import AT_END, progress_bar

_LOG = logging.getLogger(__name__)
_KEPT_PROBLEMS = 20
_BATCH_WORKS = 2_048
_PART_WORKS = 16_384
_PART_BYTES = 256 << 20  # of text; 16,384 real works have 100 MB
#: Compressed, of real records; plain files take five times as many.
_BYTES_PER_WORK, _PLAIN = 2_400, 5
_EXAMPLE = "inputs=('works.jsonl',)"


@dataclass(slots=True)
class _FileCounts:
    name: str
    bytes: int
    sha256: str | None
    lines: int = 0
    works: int = 0
    corrupt: int = 0
    duplicate_ids: int = 0
    malformed_references: int = 0
    missing_values: int = 0
    changed_dois: int = 0
    without_venue: int = 0
    empty_lines: int = 0


@dataclass(slots=True)
class Reading:
    """Yields the rows of all files, each id once (the first in order counts), and counts what it skips."""

    files: Sequence[Path]
    hashes: Sequence[str | None]
    strict: bool = False
    parsed: ParsedFiles | None = None  # read this instead
    counts: list[_FileCounts] = field(default_factory=lambda: [])
    problems: list[dict[str, Any]] = field(default_factory=lambda: [])
    seen: set[int] = field(default_factory=lambda: set())
    data_date: str | None = None

    def batches(self, advance: Callable[[float], None] | None = None) -> Iterator[pl.DataFrame]:
        """Read all files once, in order, and yield ROWS, or KEPT of ``parsed``; ``advance`` gets the bytes read."""
        for place, (file, digest) in enumerate(zip(self.files, self.hashes, strict=True)):
            counts = _FileCounts(printable_name(file), file.stat().st_size, digest)
            self.counts.append(counts)
            so_far = ReadSoFar()
            read = self.parsed.read(place, so_far) if self.parsed else up_to_damage(file, advance, so_far)
            for rows, problems, _ in read if self.parsed else in_batches(read, so_far):
                for line, error in problems:
                    self._note(counts, line, error)
                rows = count_new(counts, rows, self.seen)
                self.data_date = later_change(self.data_date, rows)
                yield rows
            counts.lines, counts.empty_lines = so_far.n_lines, so_far.n_blank
            counts.corrupt = max(counts.corrupt, so_far.n_corrupt)

    def _note(self, counts: _FileCounts, line: int, error: CorruptRecordError) -> None:
        counts.corrupt += 1
        if self.strict:
            raise CorruptRecordError(
                f"{counts.name}, line {line}: {error}. Repair the file or get it again, or skip and count corrupt "
                "lines with RecordsConfig.strict=False."
            ) from error
        if len(self.problems) < _KEPT_PROBLEMS:
            self.problems.append({"file": counts.name, "line": line, "reason": str(error)})

    def report(self) -> dict[str, Any]:
        """Sum up the reading so far in JSON types, with the files' base names."""
        skipped = ("corrupt", "duplicate_ids", "malformed_references", "missing_values")
        names = ("lines", "works", *skipped, "without_venue", "empty_lines")
        n_changed = sum(counts.changed_dois for counts in self.counts)
        inputs = [asdict(counts) for counts in self.counts]
        return {
            "kind": "records",
            "strict": self.strict,
            "parser_version": PARSER_VERSION,
            **{name: sum(getattr(counts, name) for counts in self.counts) for name in names},
            "data_date": self.data_date,
            **({CHANGED_DOIS: n_changed} if n_changed else {}),
            "inputs": [{name: fact for name, fact in one.items() if fact or name != CHANGED_DOIS} for one in inputs],
            "first_corrupt_lines": self.problems,
        }


def _log_skipped(report: Mapping[str, Any]) -> None:
    """Log a warning for what a report of Reading counts as skipped, if anything."""
    skipped = {name: report[name] for name in ("corrupt", "duplicate_ids", "malformed_references")}
    if any(skipped.values()):
        said = ", ".join(f"{n:,} {name}" for name, n in skipped.items() if n)
        _LOG.warning("records: skipped %s", said, extra=AT_END)
    if n := report["missing_values"]:
        _LOG.warning("records: %s values are NA or another word for a missing value (now null)", f"{n:,}")
    if n := report.get(CHANGED_DOIS):
        _LOG.warning("records: %s", describe_changed(n))
    for problem in report["first_corrupt_lines"]:
        _LOG.warning("%(file)s, line %(line)d: %(reason)s", problem, extra=AT_END)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RecordsConfig(Configuration):
    """Which files to read, and whether a corrupt line is fatal.

    Attributes:
        inputs: files, folders or patterns of OpenAlex works: JSON lines (.gz, .zst too), API pages or single works.
        strict: stop at the first corrupt line, instead of counting and reporting it.
        dates: read publication_date too, for windows by exact dates.

    Raises:
        ConfigError: on construction, if a value does not fit its type.

    Example:
        >>> RecordsConfig(inputs=("works/*.jsonl.gz",)).strict
        False
    """

    inputs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, title="FILE")]
    strict: bool = False
    dates: bool = False

    @property
    def columns(self) -> pl.Schema:
        """The columns of works: WORKS, and DATES if asked for."""
        return pl.Schema(WORKS | DATES) if self.dates else WORKS


def _find(config: RecordsConfig) -> list[Path]:
    return find_files(require_config(config, RecordsConfig, _EXAMPLE).inputs, "RecordsConfig.inputs", in_folders=True)


def scan_records(config: RecordsConfig) -> Corpus:
    """Scan the files. The first collect of a session parses them all, once and for both frames, in bounded memory.

    Later collects read the result. It lies in the place for temporary
    files (TMPDIR) until Python ends; the log says so. Files that have changed since are parsed again. A query for some
    first rows (``head``) reads no more than it needs. If a work is repeated, the first counts, in the order of files
    and lines. This needs about 100 bytes per work. A warning counts the skipped lines when the files are parsed.

    Returns:
        WORKS and CITATIONS in the order of files and lines (the streaming engine may change it).

    Raises:
        InputNotFoundError: when called; an input is missing.
        CorruptRecordError: at collect, with ``strict``: at the first corrupt line.
        EmptyInputError: at collect; every line is corrupt.
        StorageError: at collect; the place for temporary files is full or cannot be written.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     file = Path(home, "works.jsonl")
        ...     _ = file.write_text('{"id": "W42", "title": "Dams", "referenced_works": ["W7"]}')
        ...     corpus = scan_records(RecordsConfig(inputs=(str(file),)))
        ...     corpus.works.select("work_id", "title").collect().rows(), corpus.citations.collect().rows()
        ([(42, 'Dams')], [(42, 7)])
    """
    files = _find(config)
    provenance = {
        "kind": "records",
        "strict": config.strict,
        "parser_version": PARSER_VERSION,
        "inputs": [{"name": printable_name(file), "bytes": file.stat().st_size} for file in files],
        **({"dates": True} if config.dates else {}),
    }

    def key() -> tuple[object, ...]:
        facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        return ("records", *facts, config.strict, config.dates)

    def scan(name: str, schema: pl.Schema, frame_of: Callable[[pl.DataFrame, list[str]], pl.DataFrame]) -> pl.LazyFrame:
        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            folder = make_once(key(), lambda folder: _parse(files, config, folder))
            yield from read_batches(folder / f"{name}.parquet", columns, _BATCH_WORKS)

        def read_first(columns: list[str]) -> Iterator[pl.DataFrame]:
            if is_made(key()):
                yield from read(columns)
                return
            reading = Reading(files, [None] * len(files), config.strict)
            yield from (frame_of(rows, columns) for rows in reading.batches())
            _log_and_check(files, reading.report())

        return scan_batches(read, schema, "OpenAlex records", read_first=read_first)

    citations = scan("citations", CITATIONS, lambda rows, columns: citations_of(rows).select(columns))
    return Corpus(scan("works", config.columns, works_of), citations, provenance)


def _parse(files: Sequence[Path], config: RecordsConfig, folder: Path) -> None:
    """Write both tables in the order of files and lines."""
    reading = Reading(files, [None] * len(files), config.strict)
    n_bytes = sum(file.stat().st_size for file in files)
    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar("parse records, once per session", n_bytes, unit="bytes"))
        writers = {
            name: stack.enter_context(pq.ParquetWriter(folder / f"{name}.parquet", to_arrow(schema.to_frame()).schema))
            for name, schema in (("works", config.columns), ("citations", CITATIONS))
        }
        for rows in reading.batches(advance):
            writers["works"].write_table(to_arrow(works_of(rows, config.columns)))
            writers["citations"].write_table(to_arrow(citations_of(rows)))
    report = reading.report()
    _log_and_check(files, report)
    told = "records: parsed %s works of %s once; later queries of this session read the result"
    _LOG.info(told, f"{report['works']:,}", counted(len(files), "file"))


def pull_records(config: RecordsConfig, folder: str | Path, progress: Callable[[float], None] | None = None) -> Corpus:
    """Parse the files once into Parquet, or reuse what an earlier run made of the same bytes.

    The result is a subfolder, named after the content of the files, that appears whole or not at all. Works are sorted
    by work_id, citations by both ids. A damaged result is made again. Memory: about 100 bytes per work, and a part.
    ``progress`` gets bytes.
    """
    files = _find(config)
    hashes = [hash_file(file) for file in files]
    identity = [[file.name, digest] for file, digest in zip(files, hashes, strict=True)]
    key_of = [identity, config.strict, PARSER_VERSION, *(["dates"] if config.dates else [])]
    key = hashlib.sha256(json.dumps(key_of).encode()).hexdigest()
    target = cached_folder(
        Path(folder) / f"records-{key[:16]}", lambda new: _ingest(files, hashes, config, new, progress)
    )
    report = json.loads((target / "ingest.json").read_text("utf-8"))
    _log_skipped(report)  # also for a reused folder
    works, citations = (pl.scan_parquet(target / f"{name}.parquet", glob=False) for name in ("works", "citations"))
    return Corpus(works, citations, report)


def _ingest(
    files: Sequence[Path],
    hashes: Sequence[str],
    config: RecordsConfig,
    folder: Path,
    progress: Callable[[float], None] | None,
) -> None:
    reading = Reading(files, hashes, config.strict)
    runs = folder / "runs"
    runs.mkdir()
    by_id = DiskSort(["work_id"], runs, run_bytes=_PART_BYTES // 4)
    by_citing = DiskSort(["citing_id", "cited_id"], runs, run_bytes=_PART_BYTES // 4)
    for rows in reading.batches(progress):
        by_id.add(works_of(rows, config.columns))
        by_citing.add(citations_of(rows))
    report = reading.report() | ({"dates": True} if config.dates else {})
    if not reading.seen:
        raise _no_work(files, report)
    _write_sorted(by_id, folder / "works.parquet", config.columns, _PART_WORKS)
    _write_sorted(by_citing, folder / "citations.parquet", CITATIONS, 16 * _PART_WORKS)
    shutil.rmtree(runs)
    (folder / "ingest.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _no_work(files: Sequence[Path], report: Mapping[str, Any]) -> EmptyInputError:
    if table := next(filter(_is_table, files), None):
        return EmptyInputError(
            f"{table} is a table (CSV, TSV or Parquet), and RecordsConfig.inputs are OpenAlex works in JSON. Name "
            "it with TablesConfig.works, or with LabelledConfig.inputs if it has scores or labels."
        )
    problems = report["first_corrupt_lines"]
    named = printable_name(files[0]) if len(files) == 1 else counted(len(files), "file")
    first = "".join(" The first: {file}, line {line:,}: {reason}.".format(**one) for one in problems[:1])
    return EmptyInputError(
        f"no OpenAlex work in {named}, {counted(report['lines'], 'line')} read, "
        f"{report['corrupt']:,} corrupt.{first} Write one work on each line (jq -c .)."
    )


def _log_and_check(files: Sequence[Path], report: Mapping[str, Any]) -> None:
    """Log what a scan skipped; raise EmptyInputError if that is all."""
    if report["corrupt"] and not report["works"]:
        raise _no_work(files, report)
    _log_skipped(report)


def _is_table(file: Path) -> bool:
    with suppress(CorruptRecordError):
        line = next(decompressed_chunks(file), b"").lstrip().partition(b"\n")[0]
        is_json = line.startswith((b"{", b"[")) or b'":' in line
        return line.startswith(b"PAR1") or (not is_json and re.search(rb"\w[\"']?[,;\t]", line) is not None)
    return False


def _write_sorted(rows: DiskSort, path: Path, schema: pl.Schema, n_rows: int) -> None:
    """Write sorted rows into one file, in row groups of ``n_rows`` or fewer that stay below _PART_BYTES."""
    with pq.ParquetWriter(path, to_arrow(schema.to_frame()).schema, **CHECKED) as writer:
        held, size = schema.to_frame(), 0
        for batch in rows.merge():
            for part in batch.iter_slices(n_rows):
                is_full = held.height + part.height > n_rows or size + part.estimated_size() > _PART_BYTES
                if is_full and held.height:
                    writer.write_table(to_arrow(held))
                    held, size = schema.to_frame(), 0
                held, size = pl.concat([held, part]), size + part.estimated_size()
        writer.write_table(to_arrow(held))


def open_records(config: RecordsConfig, opening: Opening) -> Citations:
    """Parse the files into the cache, once; for a corpus on disk, file by file, so that a later one parses less."""
    n_bytes = sum(file.stat().st_size for file in _find(config))
    with progress_bar("read records", n_bytes, unit="bytes") as advance:
        if opening.is_ingested:
            works, citations, provenance = _sort_parsed(config, opening, advance)
        else:
            works, citations, provenance = pull_records(config, opening.cache_dir, advance)
    return Citations(works, citations, Facts(provenance, works))


def _sort_parsed(config: RecordsConfig, opening: Opening, advance: Callable[[float], None]) -> Corpus:
    """Give what ``pull_records`` gives, from files that are kept one by one. It is sorted on disk until the end."""
    files = _find(config)
    parsed = ParsedFiles(opening.cache_dir / "record-files", files)
    parsed.parse(advance)
    runs = opening.until_end.enter_context(workspace_beside(opening.cache_dir / "record-files" / "sorted"))
    by_id = DiskSort(["work_id"], runs, run_bytes=_PART_BYTES // 4)
    by_citing = DiskSort(["citing_id", "cited_id"], runs, run_bytes=_PART_BYTES // 4)
    reading = Reading(files, parsed.sums, config.strict, parsed)
    for rows in reading.batches():
        by_id.add(rows.select(config.columns.names()))
        by_citing.add(citations_of(rows))
    report = reading.report() | ({"dates": True} if config.dates else {})
    if not reading.seen:
        raise _no_work(files, report)
    _log_skipped(report)

    def scan(rows: DiskSort, schema: pl.Schema) -> pl.LazyFrame:
        return scan_batches(
            lambda columns: (batch.select(columns) for batch in rows.merge()), schema, "OpenAlex records"
        )

    return Corpus(scan(by_id, config.columns), scan(by_citing, CITATIONS), json.loads(json.dumps(report)))


def measure_records(config: RecordsConfig) -> ToRead:
    """Estimate the works from the size of the files."""
    files = _find(config)
    n_bytes = sum(file.stat().st_size for file in files)
    packed = sum(file.stat().st_size / (1 if file.suffix in (".gz", ".zst") else _PLAIN) for file in files)
    works = round(packed / _BYTES_PER_WORK)
    name = f"{counted(len(files), 'file')} of records, {n_bytes:,} bytes: about {works:,} works"
    return ToRead(name, works, works * REFERENCES_PER_WORK, packed)
