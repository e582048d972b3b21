"""Write the parts of a snapshot, each as three Parquet files and a receipt, in several worker processes.

Decoding JSON holds Python's lock, so threads would gain nothing. A worker is ``python -m`` of this module: it takes
jobs on its standard input and answers on its standard output. Unlike ``multiprocessing`` this needs no ``__main__``
guard and works in notebooks; and a worker ends when its parent was killed, because its input ends.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import msgspec
import polars as pl
import pyarrow.parquet as pq

from sciscidata import errors
from sciscidata.corpus.folder import (
    RECEIPTS,
    ROWS_PER_GROUP,
    TABLES,
    UNFINISHED,
    describe_part,
    find_damaged,
    own_files,
)
from sciscidata.errors import CorruptRecordError, SciSciDataError
from sciscidata.records.read_lines import DEFAULT_LIMITS, ReadLimits
from sciscidata.records.work_row import PARSER_VERSION, Work, citations_frame, works_frame
from sciscidata.sources.snapshot.layout import Part
from sciscidata.sources.snapshot.reading import read_batches
from sciscidata.storage import BLANK_SEAL, is_sealed_text, seal_text, storage_error
from sciscidata.storage.parquet import CHECKED
from sciscidata.storage.paths import remove_folder
from sciscidata.storage.small_files import read_whole

Advance = Callable[[float], None]

#: Raised by one whenever the same works give other files.
_FORMAT_VERSION = 2

_KEPT_PROBLEMS = 20


class Job(msgspec.Struct, frozen=True):
    """The task of a worker: read one part into one folder."""

    part: Part
    out: str
    include_xpac: bool
    strict: bool  # a corrupt line makes the part corrupt
    limits: ReadLimits = DEFAULT_LIMITS


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


def write_part(job: Job, advance: Advance | None = None) -> Receipt:
    """Read one part and write its works, texts and citations, in the order of the file.

    Each file appears whole under its final name, and the receipt last. Files without a receipt do not count, and are
    made again with the same bytes. A CorruptRecordError (its message is only the reason) leaves no file: the part is
    damaged, its number of records differs from the manifest, or (with ``strict``) it holds a corrupt line.
    """
    part, out = job.part, Path(job.out)
    state = Path(part.path).stat()
    receipt = Receipt(part.name, state.st_size, state.st_mtime_ns, _made_by(job))
    # The random name avoids a clash with the last workers of a killed run.
    scratch = out / UNFINISHED / f"{part.stem}-{secrets.token_hex(8)}"
    try:
        scratch.mkdir(parents=True)
        try:
            _write_tables(job, receipt, scratch, advance)
            for name in TABLES:
                _move(scratch / name, out / name / f"{part.stem}.parquet")
            facts = msgspec.to_builtins(receipt) | BLANK_SEAL
            content = seal_text(msgspec.json.format(msgspec.json.encode(facts), indent=1).decode())
            (scratch / RECEIPTS).write_bytes(content)
            _move(scratch / RECEIPTS, _receipt_path(out, part.stem))
        finally:
            remove_folder(scratch)
    except OSError as error:
        if isinstance(error, SciSciDataError):
            raise
        raise storage_error(error, out) from error
    return receipt


def read_receipt(job: Job) -> Receipt | None:
    """Return the receipt of an earlier run, if nothing has changed.

    It compares size and time of the part, the options, and the SHA-256 of the receipt and of the three files.
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


def remove_part(out: Path, stem: str) -> None:
    """Remove the files of a part, the receipt first."""
    _receipt_path(out, stem).unlink(missing_ok=True)
    for name in TABLES:
        (out / name / f"{stem}.parquet").unlink(missing_ok=True)


def remove_leftovers(out: Path, stems: set[str]) -> list[str]:
    """Remove unfinished files of killed runs, and the files of parts outside ``stems``; return those stems."""
    remove_folder(out / UNFINISHED)
    found = {path.stem for name in (RECEIPTS, *TABLES) for path in own_files(out, name)}
    for stem in found - stems:
        remove_part(out, stem)
    return sorted(found - stems)


def _made_by(job: Job) -> list[int | bool]:
    # Other limits may give other works. The defaults are left out, so that older receipts remain valid.
    limits = [] if job.limits == DEFAULT_LIMITS else list(job.limits)
    return [_FORMAT_VERSION, PARSER_VERSION, job.include_xpac, *limits]


def _receipt_path(out: Path, stem: str) -> Path:
    return out / RECEIPTS / f"{stem}.json"


def _write_tables(job: Job, receipt: Receipt, scratch: Path, advance: Advance | None) -> None:
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
    """Open the three files; they are whole when the block has ended without an error."""
    with ExitStack() as stack:
        writers: dict[str, Any] = {}
        for name, schema in TABLES.items():
            arrow = _arrow(schema.to_frame()).schema
            writer = pq.ParquetWriter(folder / name, arrow, compression_level=1, **CHECKED)
            writers[name] = stack.enter_context(writer)

        def write(name: str, frame: pl.DataFrame) -> None:
            if frame.height:
                writers[name].write_table(_arrow(frame), row_group_size=ROWS_PER_GROUP[name])

        yield write


def _arrow(frame: pl.DataFrame) -> Any:  # noqa: ANN401
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


class _Answer(msgspec.Struct, omit_defaults=True):
    """One line from a worker: the bytes of a read, or the result of the job."""

    read: float = 0
    receipt: Receipt | None = None
    error: str | None = None  # the name of its class
    message: str = ""


def run_jobs(
    jobs: Sequence[Job], n_workers: int, advance: Advance | None = None
) -> Generator[tuple[Job, Receipt | CorruptRecordError]]:
    """Write all parts; yield each job when it is done, with its receipt or the error of a corrupt part.

    Any other error of a job, for example a full disk, is raised, and the remaining jobs are dropped.
    """
    if n_workers == 1 or len(jobs) < 2:
        for job in jobs:
            try:
                result = write_part(job, advance)
            except CorruptRecordError as error:
                result = error
            yield job, result
        return
    lock = threading.Lock()

    def advance_safely(amount: float) -> None:
        if advance is not None:
            with lock:
                advance(amount)

    with ExitStack() as stack:
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(min(n_workers, len(jobs))):
            worker = _Worker()
            stack.callback(worker.stop)
            idle.put(worker)

        def run(job: Job) -> Receipt | CorruptRecordError:
            worker = idle.get()
            try:
                return worker.run(job, advance_safely)
            finally:
                idle.put(worker)

        pool = ThreadPoolExecutor(n_workers)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        # The largest first, so that no large part runs alone at the end.
        by_size = sorted(jobs, key=lambda job: -(job.part.content_length or 0))
        futures = {pool.submit(run, job): job for job in by_size}
        for future in as_completed(futures):
            yield futures[future], future.result()


class _Worker:
    """One process, and the pipes to it."""

    def __init__(self) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "POLARS_MAX_THREADS": "1",  # there is one process per core
            "NUMBA_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._jobs: IO[bytes] = self._process.stdin
        self._answers: IO[bytes] = self._process.stdout

    def run(self, job: Job, advance: Advance) -> Receipt | CorruptRecordError:
        """Send a job and wait for its result."""
        with suppress(BrokenPipeError):  # the process has died: raised below
            self._jobs.write(msgspec.json.encode(job) + b"\n")
            self._jobs.flush()
        for line in self._answers:
            answer = msgspec.json.decode(line, type=_Answer)
            advance(answer.read)
            if answer.receipt is not None:
                return answer.receipt
            if answer.error == CorruptRecordError.__name__:
                return CorruptRecordError(answer.message)
            if answer.error is not None:
                kind: type[Exception] = getattr(errors, answer.error, RuntimeError)
                raise kind(answer.message)
        msg = (
            f"the process that read {job.part.name} ended with code {self._process.wait()}, perhaps without enough "
            "memory. Run again: finished parts are kept. A lower SnapshotConfig.n_workers needs less memory."
        )
        raise errors.StorageError(msg)

    def stop(self) -> None:
        """End the process, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._jobs, self._answers):
            with suppress(OSError):  # the rest of a job cannot be sent any more
                pipe.close()


def _serve(jobs: IO[bytes], answers: IO[bytes]) -> None:
    """Take jobs until the input ends."""
    queue: SimpleQueue[bytes] = SimpleQueue()

    def listen() -> None:
        for line in jobs:
            queue.put(line)
        os._exit(1)  # the parent has ended, so the current part is not needed

    threading.Thread(target=listen, daemon=True).start()

    def answer(value: _Answer) -> None:
        answers.write(msgspec.json.encode(value) + b"\n")
        answers.flush()

    while True:
        job = msgspec.json.decode(queue.get(), type=Job)
        try:
            answer(_Answer(receipt=write_part(job, lambda read: answer(_Answer(read=read)))))
        except errors.SciSciDataError as error:
            answer(_Answer(error=type(error).__name__, message=str(error)))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent stops its workers
    _serve(sys.stdin.buffer, sys.stdout.buffer)
