"""One part of a snapshot to its three Parquet files and the receipt that makes them count."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow.parquet as pq

from sciscidata.corpus.folder import RECEIPTS, TABLES, UNFINISHED, describe_part, find_damaged, own_files
from sciscidata.errors import CorruptRecordError, SciSciDataError
from sciscidata.records.lines import DEFAULT_LIMITS, ReadLimits
from sciscidata.records.work_row import PARSER_VERSION, Work, citations_frame, works_frame
from sciscidata.sources.snapshot.layout import Part
from sciscidata.sources.snapshot.reading import BATCH_WORKS, read_batches
from sciscidata.storage import BLANK_SEAL, is_sealed_text, seal_text, storage_error
from sciscidata.storage.parquet import CHECKED
from sciscidata.storage.paths import remove_folder
from sciscidata.storage.small_files import read_whole

#: Raised by one whenever the same works give other files.
_FORMAT_VERSION = 2

_KEPT_PROBLEMS = 20


class Job(msgspec.Struct, frozen=True):
    """What a worker is asked to do: one part, into one folder."""

    part: Part
    out: str
    include_xpac: bool
    strict: bool  # a corrupt line costs the part
    limits: ReadLimits = DEFAULT_LIMITS


class Table(msgspec.Struct, frozen=True):
    """One finished file, as describe_part states it."""

    bytes: int
    sha256: str
    sums: list[str] | None = None


class Receipt(msgspec.Struct):
    """What one part was, what was read of it, and what was made of it; written last."""

    part: str
    bytes: int
    modified_ns: int
    made_by: list[int | bool]
    lines: int = 0
    works: int = 0
    citations: int = 0
    xpac_works: int = 0  # left out
    corrupt_lines: int = 0
    duplicate_ids: int = 0
    malformed_references: int = 0
    without_venue: int = 0
    data_date: str | None = None
    first_corrupt_lines: list[str] = []
    tables: dict[str, Table] = {}


def write_part(job: Job, advance: Callable[[float], None] | None = None) -> Receipt:
    """Read one part and write its works, texts and citations, in the order of the file.

    The files appear one by one under their final names, each whole, and the receipt last: without a receipt they
    do not count, and are made again with the same bytes.

    Raises:
        CorruptRecordError: the part is damaged, has another number of records than the manifest says, or (with
            ``strict``) holds a corrupt line. Its message is the reason alone. Nothing of it is left.
        StorageError: the disk is full, or the folder cannot be written.
    """
    part, out = job.part, Path(job.out)
    state = Path(part.path).stat()
    receipt = Receipt(part.name, state.st_size, state.st_mtime_ns, _made_by(job))
    # The random name keeps a run that was killed, and whose workers are still ending, out of the way of this one.
    scratch = out / UNFINISHED / f"{part.stem}-{secrets.token_hex(8)}"
    with _storage_errors(out):
        scratch.mkdir(parents=True)
        try:
            _write_tables(job, receipt, scratch, advance)
            for name in TABLES:
                _move(scratch / name, out / name / f"{part.stem}.parquet")
            (scratch / RECEIPTS).write_bytes(_render(receipt))
            _move(scratch / RECEIPTS, _receipt_path(out, part.stem))
        finally:
            remove_folder(scratch)
    return receipt


def read_receipt(job: Job) -> Receipt | None:
    """Give the receipt of an earlier run, if the part and what was made of it are still the same.

    Compared are the size and time of the part, the options, and the SHA-256 of the receipt and of the three files.
    """
    out, stem = Path(job.out), job.part.stem
    try:
        content = read_whole(_receipt_path(out, stem))
        receipt = msgspec.json.decode(content, type=Receipt)
        state = Path(job.part.path).stat()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not is_sealed_text(content) or receipt.tables.keys() != TABLES.keys():
        return None
    is_same = (receipt.part, receipt.bytes, receipt.modified_ns, receipt.made_by) == (
        job.part.name, state.st_size, state.st_mtime_ns, _made_by(job),
    )  # fmt: skip
    had_loss = job.strict and receipt.corrupt_lines > 0
    sums = {f"{name}/{stem}.parquet": table.sha256 for name, table in receipt.tables.items()}
    return receipt if is_same and not had_loss and not find_damaged(out, sums) else None


def _render(receipt: Receipt) -> bytes:
    facts = msgspec.to_builtins(receipt) | BLANK_SEAL
    return seal_text(msgspec.json.format(msgspec.json.encode(facts), indent=1).decode())


def remove_part(out: Path, stem: str) -> None:
    """Remove what was made of a part, the receipt first."""
    _receipt_path(out, stem).unlink(missing_ok=True)
    for name in TABLES:
        (out / name / f"{stem}.parquet").unlink(missing_ok=True)


def remove_leftovers(out: Path, stems: set[str]) -> list[str]:
    """Remove the half work of killed runs, and all parts that are not among ``stems``; name these."""
    remove_folder(out / UNFINISHED)
    found = {path.stem for name in (RECEIPTS, *TABLES) for path in own_files(out, name)}
    for stem in found - stems:
        remove_part(out, stem)
    return sorted(found - stems)


def _made_by(job: Job) -> list[int | bool]:
    # Other limits may give other works. The usual ones are not named: what was read before there were any stays.
    limits = [] if job.limits == DEFAULT_LIMITS else list(job.limits)
    return [_FORMAT_VERSION, PARSER_VERSION, job.include_xpac, *limits]


def _receipt_path(out: Path, stem: str) -> Path:
    return out / RECEIPTS / f"{stem}.json"


def _write_tables(job: Job, receipt: Receipt, scratch: Path, advance: Callable[[float], None] | None) -> None:
    seen: set[int] = set()
    with _writers(scratch) as write:
        for batch in read_batches(job.part, advance, job.limits):
            receipt.lines += len(batch)
            works: list[Work] = []
            for work in batch:
                if not isinstance(work, Work):
                    _note(job, receipt, *work)
                elif work.is_xpac and not job.include_xpac:
                    receipt.xpac_works += 1
                elif work.work_id in seen:
                    receipt.duplicate_ids += 1
                else:
                    seen.add(work.work_id)
                    works.append(work)
            frame, citations = works_frame(works), citations_frame(works)
            write("works", frame.select(TABLES["works"].names()))
            write("texts", frame.select(TABLES["texts"].names()))
            write("citations", citations)
            receipt.works += len(works)
            receipt.citations += citations.height
            receipt.malformed_references += sum(work.malformed_references for work in works)
            receipt.without_venue += sum(work.source_id is None for work in works)
            receipt.data_date = max(filter(None, (receipt.data_date, *(w.changed_on for w in works))), default=None)
    expected = job.part.record_count
    if expected is not None and receipt.lines != expected:
        msg = f"has {receipt.lines:,} records, the manifest says {expected:,}"
        raise CorruptRecordError(msg)
    for name in TABLES:
        with (scratch / name).open("rb") as file:
            os.fsync(file.fileno())
        with (scratch / name).open("rb") as file:
            receipt.tables = receipt.tables | {name: Table(**describe_part(file, name))}


def _note(job: Job, receipt: Receipt, line: int, error: CorruptRecordError) -> None:
    if job.strict:
        msg = f"line {line:,}: {error}"
        raise CorruptRecordError(msg)
    receipt.corrupt_lines += 1
    if len(receipt.first_corrupt_lines) < _KEPT_PROBLEMS:
        receipt.first_corrupt_lines = [*receipt.first_corrupt_lines, f"line {line:,}: {error}"]


@contextmanager
def _writers(folder: Path) -> Generator[Callable[[str, pl.DataFrame], None]]:
    """Open the three files; they are whole when the block has ended well."""
    with ExitStack() as stack:
        writers: dict[str, Any] = {}
        for name, schema in TABLES.items():
            arrow = _arrow(schema.to_frame()).schema
            writer = pq.ParquetWriter(folder / name, arrow, compression_level=1, **CHECKED)
            writers[name] = stack.enter_context(writer)

        def write(name: str, frame: pl.DataFrame) -> None:
            rows = BATCH_WORKS * (16 if name == "citations" else 1)
            if frame.height:
                writers[name].write_table(_arrow(frame), row_group_size=rows)

        yield write


def _arrow(frame: pl.DataFrame) -> Any:  # noqa: ANN401
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


@contextmanager
def _storage_errors(out: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, SciSciDataError):
            raise
        raise storage_error(error, out) from error
