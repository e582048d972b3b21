"""Tasks in threads of this process, which share what it has read and compiled, or in processes of this machine.

A process is ``python -m`` of this module: it takes tasks on its standard input and answers on its standard output.
Unlike ``multiprocessing`` this needs no ``__main__`` guard and works in notebooks. It ends when its parent was killed,
because its input ends.
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
from typing import IO, Final

import msgspec

from sciscidata._support.parallel import StoppedError
from sciscidata.engines.task import Outcome, Task, forget_shared, run_task
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
    """Do all tasks by ``n_workers`` threads or processes, in this thread if one is enough; yield each when it is done.

    A caller that stops early waits for threads: each ends when its task next tells how far it is.
    """
    if not tasks:
        return
    n_workers, lock, stop = min(n_workers, len(tasks)), threading.Lock(), threading.Event()

    def advance_safely(amount: float, _: str = "") -> None:
        if stop.is_set():
            raise StoppedError
        with lock:
            advance(amount)

    with ExitStack() as stack:
        stack.callback(forget_shared)
        in_processes = n_workers > 1 and tasks[0].in_process
        do = _start_processes(n_workers, stack) if in_processes else run_task

        def run(task: Task) -> Outcome:
            share = _Share(task.cost, advance_safely)
            outcome = do(task, share.add)
            share.fill()
            return outcome

        if n_workers == 1:
            yield from ((task, run(task)) for task in tasks)
            return
        pool = ThreadPoolExecutor(n_workers, thread_name_prefix="sciscidata")
        stack.callback(pool.shutdown, wait=not in_processes, cancel_futures=True)
        stack.callback(stop.set)
        futures = {pool.submit(run, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _start_processes(n_workers: int, stack: ExitStack) -> Callable[[Task, Advance], Outcome]:
    """Start processes, which end with the stack; return what has one of them do a task."""
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for _ in range(n_workers):
        worker = _Worker()
        stack.callback(worker.stop)
        idle.put(worker)

    def run(task: Task, advance: Advance) -> Outcome:
        worker = idle.get()
        try:
            return worker.run(task, advance)
        finally:
            idle.put(worker)

    return run


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
        for line in self._answers:
            answer = msgspec.json.decode(line, type=_Answer)
            if answer.outcome is not None:
                return answer.outcome
            advance(answer.done)
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
