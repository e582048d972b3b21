"""Tables that are made once per session, when a query first needs them, and are gone when Python ends."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow.parquet as pq

from sciscidata.storage import scratch_folder
from sciscidata.storage.paths import remove_folder

_LOCK: Final = threading.Lock()
_folders: dict[Hashable, Path] = {}
_session: dict[int, Path] = {}  # by process: one that was forked makes its own


def make_once(key: Hashable, make: Callable[[Path], object]) -> Path:
    """Return a folder that ``make`` has filled, now or earlier in this session; other threads wait for it.

    Raises:
        StorageError: the place for temporary files (TMPDIR) is full or cannot be written.

    Example:
        >>> for _ in range(2):
        ...     folder = make_once("answer", lambda folder: print((folder / "answer.txt").write_text("42")))
        2
    """
    with _LOCK:
        if (found := _folders.get((os.getpid(), key))) is not None and found.is_dir():
            return found
        folder = _session_folder() / str(len(_folders))
        folder.mkdir()
        try:
            make(folder)
        except BaseException:
            remove_folder(folder)
            raise
        _folders[os.getpid(), key] = folder
        return folder


def is_made(key: Hashable) -> bool:
    """Whether ``make_once`` would find its folder."""
    return (os.getpid(), key) in _folders


def read_batches(path: Path, columns: list[str], n_rows: int) -> Iterator[pl.DataFrame]:
    """Read columns of a Parquet file in batches of ``n_rows``."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=n_rows, columns=columns):
            yield pl.DataFrame(batch).select(columns)


def _session_folder() -> Path:
    process = os.getpid()
    if process not in _session:
        stack = ExitStack()
        _session[process] = stack.enter_context(scratch_folder())
        atexit.register(lambda: stack.close() if os.getpid() == process else None)
    return _session[process]
