"""Tasks in processes of this machine.

A worker is ``python -m`` of this module: it takes tasks on its standard input and answers on its standard output.
Unlike ``multiprocessing`` this needs no ``__main__`` guard and works in notebooks. A worker ends when its parent was
killed, because its input ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import IO, Final

import msgspec

from sciscidata.engines.task import Outcome, Task, run_task
from sciscidata.terminal.memory import collect_garbage_rarely
from sciscidata.terminal.processes import import_path, python_command, python_environment
from sciscidata.terminal.progress import Advance

#: Polars (jemalloc) and Arrow (mimalloc) keep freed memory for a minute. Else reading a snapshot spends a seventh of
#: its time on fresh pages: each batch frees what the next one needs.
_KEEP_MEMORY: Final = {
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:60000,muzzy_decay_ms:60000",
    "MIMALLOC_PURGE_DELAY": "60000",
}


class _Answer(msgspec.Struct, omit_defaults=True):
    """One line from a worker: progress, or what came of the task."""

    done: float = 0
    outcome: Outcome | None = None


def run_here(tasks: Sequence[Task], n_workers: int, advance: Advance) -> Generator[tuple[Task, Outcome]]:
    """Do all tasks in ``n_workers`` processes, in this one if one is enough; yield each when it is done."""
    if n_workers == 1 or len(tasks) < 2:
        for task in tasks:
            share = _Share(task.cost, advance)
            outcome = run_task(task, share.add)
            share.fill()
            yield task, outcome
        return
    lock = threading.Lock()

    def advance_safely(amount: float, _: str = "") -> None:
        with lock:
            advance(amount)

    with ExitStack() as stack:
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(min(n_workers, len(tasks))):
            worker = _Worker()
            stack.callback(worker.stop)
            idle.put(worker)

        def run(task: Task) -> Outcome:
            worker = idle.get()
            try:
                return worker.run(task, advance_safely)
            finally:
                idle.put(worker)

        pool = ThreadPoolExecutor(n_workers)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        futures = {pool.submit(run, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()


class _Share:
    """The share of one task in the bar: what it tells on the way, and the rest at its end."""

    def __init__(self, cost: float, advance: Advance) -> None:
        self._left, self._advance = cost, advance

    def add(self, amount: float, _: str = "", /) -> None:
        """Advance by a part."""
        self._left -= amount
        self._advance(amount)

    def fill(self) -> None:
        """Advance by the rest."""
        if self._left > 0:
            self._advance(self._left)


class _Worker:
    """One process, and the pipes to it."""

    def __init__(self) -> None:
        environment = _KEEP_MEMORY | python_environment()
        environment |= {
            "PYTHONPATH": import_path(),
            "POLARS_MAX_THREADS": "1",  # there is one process per core
            "NUMBA_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            python_command("-m", __name__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._tasks: IO[bytes] = self._process.stdin
        self._answers: IO[bytes] = self._process.stdout

    def run(self, piece: Task, advance: Advance) -> Outcome:
        """Send a task and wait for what comes of it."""
        with suppress(BrokenPipeError):  # the process has died: told below
            self._tasks.write(msgspec.json.encode(piece) + b"\n")
            self._tasks.flush()
        share = _Share(piece.cost, advance)
        for line in self._answers:
            answer = msgspec.json.decode(line, type=_Answer)
            if answer.outcome is not None:
                share.fill()
                return answer.outcome
            share.add(answer.done)
        msg = (
            f"the process at work on {piece.name} ended with code {self._process.wait()}, perhaps without enough "
            "memory. Run again: what is finished is kept. Fewer workers need less memory."
        )
        return Outcome(error="StorageError", message=msg)

    def stop(self) -> None:
        """End the process, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._tasks, self._answers):
            with suppress(OSError):  # the rest of a task cannot be sent any more
                pipe.close()


def _serve(tasks: IO[bytes], answers: IO[bytes]) -> None:
    """Take tasks until the input ends."""
    queue: SimpleQueue[bytes] = SimpleQueue()

    def listen() -> None:
        for line in tasks:
            queue.put(line)
        os._exit(1)  # the parent has ended, so the current task is not needed

    threading.Thread(target=listen, daemon=True).start()

    def answer(value: _Answer) -> None:
        answers.write(msgspec.json.encode(value) + b"\n")
        answers.flush()

    while True:
        task = msgspec.json.decode(queue.get(), type=Task)
        answer(_Answer(outcome=run_task(task, lambda amount, note="": answer(_Answer(done=amount)))))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent stops its workers
    collect_garbage_rarely()
    _serve(sys.stdin.buffer, sys.stdout.buffer)
