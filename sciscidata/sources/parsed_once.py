"""Tables that are made once per session, when a query first needs them, and are gone when Python ends."""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow.parquet as pq

from sciscidata.storage import ABOUT_TMPDIR, scratch_folder
from sciscidata.storage.disk_errors import errors_about
from sciscidata.storage.paths import remove_folder

_LOCK: Final = threading.Lock()
_made: dict[Hashable, list[Path]] = {}  # each folder, then what was put into it
_session: dict[int, Path] = {}  # by process: one that was forked makes its own


def make_once(key: Hashable, make: Callable[[Path], object]) -> Path:
    """Return a folder that ``make`` has filled, now or earlier in this session; other threads wait for it."""
    with _LOCK:
        if is_made(key):
            return _made[os.getpid(), key][0]
        home = _session_folder()
        with errors_about(home, ABOUT_TMPDIR):
            folder = Path(tempfile.mkdtemp(dir=home))
            try:
                make(folder)
            except BaseException:
                remove_folder(folder)
                raise
        _made[os.getpid(), key] = [folder, *folder.rglob("*")]
        return folder


def is_made(key: Hashable) -> bool:
    """Whether ``make_once`` would find its folder whole. Some systems remove temporary files after days."""
    made = _made.get((os.getpid(), key))
    return made is not None and all(path.exists() for path in made)


def read_batches(path: Path, columns: list[str], n_rows: int) -> Iterator[pl.DataFrame]:
    """Read columns of a Parquet file in batches of ``n_rows``."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=n_rows, columns=columns):
            yield pl.DataFrame(batch).select(columns)


def _session_folder() -> Path:
    process = os.getpid()
    if process not in _session or not _session[process].is_dir():
        stack = ExitStack()
        _session[process] = stack.enter_context(scratch_folder())
        atexit.register(lambda: stack.close() if os.getpid() == process else None)
    return _session[process]
