"""Write each part of a snapshot as Parquet files and a receipt: one task of an engine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pyarrow.parquet as pq

from sciscidata.corpus.folder import (
    FOLDERS,
    RECEIPTS,
    TABLES,
    TEXT,
    UNFINISHED,
    WRITTEN_BY,
    describe_part,
    options_of,
    own_files,
)
from sciscidata.corpus.replacement import home_of
from sciscidata.engines.engine import Engine
from sciscidata.engines.local import run_here
from sciscidata.engines.task import Task, name_of, task
from sciscidata.errors import CorruptRecordError, SciSciDataError
from sciscidata.records.authors_table import AUTHORS
from sciscidata.records.plain_text import clean_texts
from sciscidata.records.work_columns import PARSER_VERSION, citations_of
from sciscidata.sources.record_files import count_new, later_change
from sciscidata.sources.snapshot.authors import read_authors
from sciscidata.sources.snapshot.downloads import Reach, downloaded
from sciscidata.sources.snapshot.layout import Part
from sciscidata.sources.snapshot.plausibility import Tally
from sciscidata.sources.snapshot.reading import read_batches
from sciscidata.storage import find_damaged, hash_file, is_sealed_text, seal_json, storage_error
from sciscidata.storage.parquet import CHECKED, ROWS_PER_GROUP, to_arrow
from sciscidata.storage.paths import remove_folder
from sciscidata.storage.small_files import read_whole
from sciscidata.terminal.progress import Advance

#: Raised by one whenever the same works give other files.
_FORMAT_VERSION = 2

_KEPT_PROBLEMS = 20
#: Bytes to read from which processes pay: each takes a second to start, but threads wait for Python's lock.
_PROCESSES_FROM = 400_000_000
AUTHOR_IDS = "author_ids"  # of counts: how many rows of authors have an id


class Job(msgspec.Struct, frozen=True):
    """The task of a worker: read one part into one folder."""

    part: Part
    out: str
    include_xpac: bool
    strict: bool  # a corrupt line makes the part corrupt
    reach: Reach = Reach()  # of a part in a store
    authors: bool = False  # keep them

    @property
    def tables(self) -> dict[str, pl.Schema]:
        """The tables that it writes."""
        return TABLES | ({WRITTEN_BY: AUTHORS} if self.authors else {})


class Table(msgspec.Struct, frozen=True):
    """One finished file, as describe_part states it."""

    bytes: int
    sha256: str
    sums: list[str] | None = None


class Receipt(msgspec.Struct):
    """The record of a finished part, written last: the part, its counts, and its files."""

    part: str
    bytes: int
    modified_ns: int
    made_by: list[int | bool | str]
    lines: int = 0
    works: int = 0
    citations: int = 0
    xpac_works: int = 0  # left out
    corrupt_lines: int = 0
    duplicate_ids: int = 0
    malformed_references: int = 0
    missing_values: int = 0
    changed_dois: int = 0
    without_venue: int = 0
    data_date: str | None = None
    sha256: str | None = None  # of the part; none in receipts of older versions
    first_corrupt_lines: list[str] = []
    counts: dict[str, int] = {}  # of a Tally; empty in receipts of older versions
    tables: dict[str, Table] = {}

    def of(self, tables: Collection[str]) -> Receipt:
        """Leave out other tables, which an earlier run was asked for."""
        counts = (
            self.counts
            if WRITTEN_BY in tables
            else {name: n for name, n in self.counts.items() if name not in (WRITTEN_BY, AUTHOR_IDS)}
        )
        tables = {name: one for name, one in self.tables.items() if name in tables}
        return msgspec.structs.replace(self, counts=counts, tables=tables)


def write_part(job: Job, advance: Advance | None = None) -> Receipt:
    """Read one part and write its tables, in the order of the file; the receipt comes last.

    Files without a receipt do not count, and are made again with the same bytes. A corrupt part leaves none.
    """
    part, out = job.part, Path(job.out)
    receipt = Receipt(part.name, *_state(part), _made_by(job))
    # The random name avoids a clash with the last workers of a killed run.
    scratch = out / UNFINISHED / f"{part.stem}-{secrets.token_hex(8)}"
    try:
        scratch.mkdir(parents=True)
        try:
            if part.stored:
                with downloaded(part.stored, out, job.reach, advance or (lambda amount: None)) as copy:
                    local = msgspec.structs.replace(job, part=msgspec.structs.replace(part, path=str(copy)))
                    _write_tables(local, receipt, scratch, None)
                    receipt.sha256 = hash_file(copy)
            else:
                _write_tables(job, receipt, scratch, advance)
                receipt.sha256 = hash_file(Path(part.path))
                if _state(part) != (receipt.bytes, receipt.modified_ns):
                    receipt.sha256 = None  # it changed while it was read, so the next run reads it again
            for name in job.tables:
                _move(scratch / name, out / name / f"{part.stem}.parquet")
            (scratch / RECEIPTS).write_bytes(_sealed(receipt))
            _move(scratch / RECEIPTS, _receipt_path(out, part.stem))
        finally:
            remove_folder(scratch)
    except OSError as error:
        if isinstance(error, SciSciDataError):
            raise
        raise storage_error(error, out) from error
    return receipt


class Known(NamedTuple):
    """A part that an earlier run has read.

    Attributes:
        receipt: of the part as it is now, with the tables that are asked for.
        folder: where its files lie.
        is_other: the receipt there has another time of the part, or more tables.
        is_compared: the part has another time, and SHA-256 says that it is the same; that of a store is known by its
            ETag.
    """

    receipt: Receipt
    folder: Path
    is_other: bool
    is_compared: bool


def find_receipt(job: Job, folder: Path) -> Known | None:
    """Find the receipt of an earlier run in a folder, if part, options and the SHA-256 of all files are the same.

    A part of the same size is the same if its time is, or else its ETag or SHA-256.
    """
    stem, stored = job.part.stem, job.part.stored
    try:
        content = read_whole(_receipt_path(folder, stem))
        receipt = msgspec.json.decode(content, type=Receipt)
        n_bytes, modified_ns = _state(job.part)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not is_sealed_text(content) or not job.tables.keys() <= receipt.tables.keys():
        return None
    if job.authors and AUTHOR_IDS not in receipt.counts:  # of a version that kept no institutions
        return None
    is_same = (receipt.part, receipt.bytes, receipt.made_by) == (job.part.name, n_bytes, _made_by(job))
    had_loss = job.strict and receipt.corrupt_lines > 0
    sums = {f"{name}/{stem}.parquet": receipt.tables[name].sha256 for name in job.tables}
    if not is_same or had_loss or find_damaged(folder, sums):
        return None
    is_other_time = receipt.modified_ns != modified_ns
    is_compared = is_other_time and stored is None
    if is_compared and (receipt.sha256 is None or receipt.sha256 != hash_file(Path(job.part.path))):
        return None
    if is_other_time and stored is not None and not stored.version:
        return None
    now = msgspec.structs.replace(receipt.of(job.tables), modified_ns=modified_ns)
    return Known(now, folder, now != receipt, is_compared)


def restate(job: Job, receipt: Receipt) -> None:
    """Write the receipt of a part whose files stay."""
    path = _receipt_path(Path(job.out), job.part.stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_sealed(receipt))


def _sealed(receipt: Receipt) -> bytes:
    return seal_json(msgspec.to_builtins(receipt), end="", indent=1, ensure_ascii=False)


def remove_part(out: Path, stem: str) -> None:
    """Remove the files of a part, the receipt first."""
    _receipt_path(out, stem).unlink(missing_ok=True)
    for name in FOLDERS:
        (out / name / f"{stem}.parquet").unlink(missing_ok=True)


def remove_leftovers(out: Path, stems: set[str], tables: Collection[str]) -> list[str]:
    """Remove unfinished files of killed runs, other tables, and parts outside ``stems``; return those stems."""
    remove_folder(out / UNFINISHED)
    for name in FOLDERS:
        if name not in tables:
            for path in own_files(out, name):
                path.unlink()
            with suppress(OSError):  # none, or not empty
                (out / name).rmdir()
    found = {path.stem for name in (RECEIPTS, *FOLDERS) for path in own_files(out, name)}
    for stem in found - stems:
        remove_part(out, stem)
    return sorted(found - stems)


def _state(part: Part) -> tuple[int, int]:
    """Return the bytes of a part and the time of its last change, in nanoseconds since 1970."""
    if part.stored:
        return part.stored.size, part.stored.modified_ns
    state = Path(part.path).stat()
    return state.st_size, state.st_mtime_ns


def _made_by(job: Job) -> list[int | bool | str]:
    versions = [job.part.stored.version] if job.part.stored else []
    return [_FORMAT_VERSION, PARSER_VERSION, job.include_xpac, *versions]


def _receipt_path(out: Path, stem: str) -> Path:
    return out / RECEIPTS / f"{stem}.json"


def _write_tables(job: Job, receipt: Receipt, scratch: Path, advance: Advance | None) -> None:
    seen: set[int] = set()
    tally = Tally(job.part.year)
    with _writers(scratch, job.tables) as write:
        for batch in read_batches(job.part, advance, include_xpac=job.include_xpac):
            receipt.lines += batch.n_records
            for number, error in batch.problems:
                _note(job, receipt, number, error)
            rows = batch.rows if job.include_xpac else batch.rows.filter(~pl.col("is_xpac"))
            receipt.xpac_works += batch.rows.height - rows.height
            rows = count_new(receipt, rows, seen)
            rows, citations = clean_texts(rows, TEXT), citations_of(rows)
            write("works", rows.select(TABLES["works"].names()))
            write("texts", rows.select(TABLES["texts"].names()))
            write("citations", citations)
            receipt.citations += citations.height
            tally.add(rows, citations, int(rows["malformed_references"].sum()))
            receipt.data_date = later_change(receipt.data_date, rows)
        receipt.counts = tally.counts()
        if job.authors:
            receipt.counts |= {WRITTEN_BY: 0, AUTHOR_IDS: 0}
            kept = pl.Series([*seen], dtype=pl.Int64).implode()
            for rows, _ in read_authors(job.part, set(), AUTHORS, include_xpac=job.include_xpac):
                known = rows.filter(pl.col("work_id").is_in(kept))
                receipt.counts[WRITTEN_BY] += known.height
                receipt.counts[AUTHOR_IDS] += known.height - known["author_id"].null_count()
                write(WRITTEN_BY, known)
    expected = job.part.record_count
    if expected is not None and receipt.lines != expected:
        raise CorruptRecordError(f"has {receipt.lines:,} records, the manifest says {expected:,}")
    for name in job.tables:
        with (scratch / name).open("rb") as file:
            os.fsync(file.fileno())
        with (scratch / name).open("rb") as file:
            receipt.tables = receipt.tables | {name: Table(**describe_part(file, name))}


def _note(job: Job, receipt: Receipt, line: int, error: CorruptRecordError) -> None:
    if job.strict:
        raise CorruptRecordError(f"line {line:,}: {error}")
    receipt.corrupt_lines += 1
    if len(receipt.first_corrupt_lines) < _KEPT_PROBLEMS:
        receipt.first_corrupt_lines = [*receipt.first_corrupt_lines, f"line {line:,}: {error}"]


@contextmanager
def _writers(folder: Path, tables: dict[str, pl.Schema]) -> Generator[Callable[[str, pl.DataFrame], None]]:
    """Open the files; they are whole when the block has ended without an error."""
    with ExitStack() as stack:
        writers: dict[str, Any] = {}
        for name, schema in tables.items():
            arrow = to_arrow(schema.to_frame()).schema
            writer = pq.ParquetWriter(folder / name, arrow, **options_of(name), **CHECKED)
            writers[name] = stack.enter_context(writer)

        def write(name: str, frame: pl.DataFrame) -> None:
            if frame.height:
                writers[name].write_table(to_arrow(frame), row_group_size=ROWS_PER_GROUP[name])

        yield write


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


def run_jobs(
    jobs: Sequence[Job], n_workers: int, advance: Advance | None = None, engine: Engine | None = None
) -> Generator[tuple[Job, Receipt | CorruptRecordError]]:
    """Write all parts; yield each job when it is done. An error other than a corrupt part ends all."""
    if n_workers > 1 or engine is not None:  # the largest first, so that no large part runs alone at the end
        jobs = sorted(jobs, key=lambda job: -(job.part.content_length or 0))
    by_name = {job.part.name: job for job in jobs}
    is_large = sum(job.part.size for job in jobs) >= _PROCESSES_FROM
    tasks = [_part_task(job, is_large) for job in jobs]
    advance = advance or (lambda amount, note="": None)
    if engine is None or not jobs:
        outcomes = run_here(tasks, n_workers, advance)
    else:
        outcomes = engine.run(tasks, advance, home_of(Path(jobs[0].out)).absolute() / "cache")
    with closing(outcomes) as results:
        for given, outcome in results:
            facts = outcome.get()
            is_corrupt = "corrupt" in facts
            result = CorruptRecordError(facts["corrupt"]) if is_corrupt else msgspec.convert(facts["receipt"], Receipt)
            yield by_name[given.name], result


def _part_task(job: Job, in_process: bool) -> Task:
    part = job.part
    if not part.stored:
        part = msgspec.structs.replace(part, path=str(Path(part.path).absolute()))
    job = msgspec.structs.replace(job, part=part, out=str(Path(job.out).absolute()))
    arguments = {"job": msgspec.to_builtins(job)}
    cost = float(part.size)
    return Task(name=part.name, work=name_of(read_part), arguments=arguments, cost=cost, in_process=in_process)


@task
def read_part(advance: Advance, *, job: dict[str, Any]) -> dict[str, Any]:
    """Do ``write_part`` as a task. That a part is corrupt is a result, not an error."""
    try:
        return {"receipt": msgspec.to_builtins(write_part(msgspec.convert(job, Job), advance))}
    except CorruptRecordError as error:
        return {"corrupt": str(error)}
