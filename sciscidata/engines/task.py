"""A task: a piece of a stage for any process on any machine. A second run makes the same file.

A task is data: a function of this package by name, and JSON. So it goes to another process, another machine, or into a
file. What comes back is an Outcome, never a pickled error.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import secrets
import threading
import traceback
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from sciscidata import errors
from sciscidata.errors import SciSciDataError, StorageError, UnsafeNameError
from sciscidata.storage import hash_file, is_sealed_text, seal_json, storage_error, whole_when_done
from sciscidata.storage.atomic import flush
from sciscidata.storage.small_files import parse_json, read_whole
from sciscidata.terminal.progress import Advance

_OWN_FUNCTION: Final = re.compile(r"sciscidata(\.\w+)+:\w+")
Result = TypeVar("Result")
_declared: dict[str, Callable[..., dict[str, Any] | None]] = {}
_shared: list[Callable[[], None]] = []  # each forgets one


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a stage: ``work`` ("module:name", declared by ``task``) is called with ``advance`` and ``arguments``.

    What it writes to the hidden path ``out`` gets its name when it is whole, and a receipt beside it. ``cost`` is its
    share of the bar. ``in_process``: engine local does it in a process, because threads would wait for Python's lock.
    """

    name: str
    work: str
    arguments: dict[str, Any]
    out: str = ""
    cost: float = 1.0
    in_process: bool = False


class Outcome(msgspec.Struct, omit_defaults=True):
    """What came of a task: the facts that its function returned, or an error by class and message."""

    facts: dict[str, Any] | None = None
    error: str = ""
    message: str = ""

    def get(self) -> dict[str, Any]:
        """Return the facts, or raise the error as if it had happened here."""
        if self.facts is not None:
            return self.facts
        kind: Any = getattr(errors, self.error, RuntimeError)
        raise kind(self.message)


def task(function: Callable[..., dict[str, Any] | None]) -> Callable[..., dict[str, Any] | None]:
    """Declare a function as the work of tasks: no other function can be named by one."""
    _declared[name_of(function)] = function
    return function


def shared(function: Callable[..., Result]) -> Callable[..., Result]:
    """Let the tasks of a process share what a function has made last. One makes it, while the others wait."""
    lock, kept = threading.Lock(), lru_cache(maxsize=1)(function)

    @wraps(function)
    def get(*arguments: str | None) -> Result:
        with lock:
            return kept(*arguments)

    _shared.append(kept.cache_clear)
    return get


def forget_shared() -> None:
    """Free the memory of what tasks have shared."""
    for forget in _shared:
        forget()


def name_of(function: Callable[..., Any]) -> str:
    """Return how a task names a function."""
    return f"{function.__module__}:{function.__qualname__}"


def run_task(piece: Task, advance: Advance | None = None) -> Outcome:
    """Do a task here, or find that an earlier run has done it. ``advance`` gets shares of its cost on the way."""
    try:
        done = read_receipt(piece)
        return Outcome(_work(piece, advance or (lambda amount, note="": None)) if done is None else done)
    except SciSciDataError as error:
        return Outcome(error=type(error).__name__, message=str(error))
    except OSError as error:
        return Outcome(error="StorageError", message=str(storage_error(error, Path(piece.out or "."))))
    except MemoryError:
        return Outcome(error="StorageError", message=f"{piece.name}: not enough memory. Give each task more of it.")
    except Exception:  # a bug: its trace has to reach who can mend it
        return Outcome(error="RuntimeError", message=f"{piece.name} failed:\n{traceback.format_exc()}")


def read_receipt(piece: Task) -> dict[str, Any] | None:
    """Return the facts of a finished task whose file and receipt are whole; None if it has to be done."""
    if not piece.out:
        return None
    try:
        content = read_whole(_receipt_path(piece))
        receipt = parse_json(content)
        is_same = receipt["arguments"] == _as_json(piece.arguments) and receipt["work"] == piece.work
        is_same = is_same and is_sealed_text(content)
        return receipt["facts"] if is_same and receipt["sha256"] == hash_file(Path(piece.out)) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _work(piece: Task, advance: Advance) -> dict[str, Any]:
    if _OWN_FUNCTION.fullmatch(piece.work):
        importlib.import_module(piece.work.partition(":")[0])
    function = _declared.get(piece.work)
    if function is None:
        raise UnsafeNameError(
            f"{piece.work!r} is no task of this package. The tasks were written by another version: start the stage "
            "again."
        )
    if not piece.out:
        return function(advance, **piece.arguments) or {}
    # The name is this run's own: a task that was believed lost may still be at work elsewhere.
    out = Path(piece.out)
    unfinished = out.with_name(f".{out.name}.{secrets.token_hex(8)}.tmp")
    try:
        facts = function(advance, out=unfinished, **piece.arguments) or {}
        if not unfinished.exists():
            raise StorageError(f"{piece.name} has written nothing to {out}. Run it again.")
        receipt = {"work": piece.work, "arguments": piece.arguments, "sha256": hash_file(unfinished), "facts": facts}
        flush(unfinished)
        unfinished.replace(out)
        unfinished.write_bytes(seal_json(receipt, end=""))
        flush(unfinished)
        unfinished.replace(_receipt_path(piece))
    finally:
        unfinished.unlink(missing_ok=True)
    return facts


def _as_json(arguments: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return arguments as they come back from a file: lists for tuples."""
    return json.loads(json.dumps(arguments))


def _receipt_path(piece: Task) -> Path:
    return Path(f"{piece.out}.json")


def hash_array(array: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of the bytes of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def hand_over(array: npt.NDArray[Any], path: Path) -> str:
    """Write an array, too long for a task's arguments, for ``np.load``; its SHA-256 is in the name of the file."""
    path = path.with_stem(f"{path.stem}-{hash_array(array)[:16]}")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_when_done(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, array)
    return str(path.absolute())
