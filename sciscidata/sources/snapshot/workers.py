"""Parts read by several processes: decoding JSON holds Python's lock, so that threads would gain nothing.

Each worker is a plain ``python -m`` of this module that takes jobs on its standard input and answers on its standard
output. Unlike ``multiprocessing`` that asks nothing of the script it is called from (no ``__main__`` guard, no
notebook trouble), and a worker whose parent was killed sees its input end, and ends too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import IO

import msgspec

from sciscidata import errors
from sciscidata.sources.snapshot.parts import Job, Receipt, write_part

Advance = Callable[[float], None]


class _Answer(msgspec.Struct, omit_defaults=True):
    """One line from a worker: bytes read so far, or how the job ended."""

    read: float = 0
    receipt: Receipt | None = None
    error: str | None = None  # the name of its class
    message: str = ""


def run_jobs(
    jobs: Sequence[Job], n_workers: int, advance: Advance | None = None
) -> Generator[tuple[Job, Receipt | errors.CorruptRecordError]]:
    """Write all parts, in any order of time; hand out each job with its receipt, or why the part is corrupt.

    Raises:
        SciSciDataError: whatever else a job raised (a full disk, say), as soon as it did; jobs not begun are dropped.
    """
    if n_workers == 1 or len(jobs) < 2:
        yield from ((job, _attempt(job, advance)) for job in jobs)
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

        def run(job: Job) -> Receipt | errors.CorruptRecordError:
            worker = idle.get()
            try:
                return worker.run(job, advance_safely)
            finally:
                idle.put(worker)

        pool = ThreadPoolExecutor(n_workers)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        # The largest first, so that none of them is left alone at the end.
        by_size = sorted(jobs, key=lambda job: -(job.part.content_length or 0))
        futures = {pool.submit(run, job): job for job in by_size}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _attempt(job: Job, advance: Advance | None) -> Receipt | errors.CorruptRecordError:
    try:
        return write_part(job, advance)
    except errors.CorruptRecordError as error:
        return error


class _Worker:
    """One process, and the pipes to it."""

    def __init__(self) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "POLARS_MAX_THREADS": "1",  # one process per core is all the parallelism there is
            "NUMBA_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._jobs: IO[bytes] = self._process.stdin
        self._answers: IO[bytes] = self._process.stdout

    def run(self, job: Job, advance: Advance) -> Receipt | errors.CorruptRecordError:
        """Have one part written."""
        with suppress(BrokenPipeError):  # it has died: told below
            self._jobs.write(msgspec.json.encode(job) + b"\n")
            self._jobs.flush()
        for line in self._answers:
            answer = msgspec.json.decode(line, type=_Answer)
            advance(answer.read)
            if answer.receipt is not None:
                return answer.receipt
            if answer.error == errors.CorruptRecordError.__name__:
                return errors.CorruptRecordError(answer.message)
            if answer.error is not None:
                kind: type[Exception] = getattr(errors, answer.error, RuntimeError)
                raise kind(answer.message)
        msg = (
            f"the process that read {job.part.name} ended with code {self._process.wait()}, perhaps for want of "
            "memory. Run again: finished parts are kept. Fewer n_workers need less memory."
        )
        raise errors.StorageError(msg)

    def stop(self) -> None:
        """End the process, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._jobs, self._answers):
            with suppress(OSError):  # what was not yet sent is sent to nobody
                pipe.close()


def _serve(jobs: IO[bytes], answers: IO[bytes]) -> None:
    """Work until the input ends."""
    queue: SimpleQueue[bytes] = SimpleQueue()

    def listen() -> None:
        for line in jobs:
            queue.put(line)
        os._exit(1)  # the parent is gone: nobody waits for the part at hand

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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops its workers
    _serve(sys.stdin.buffer, sys.stdout.buffer)
