"""That a run uses a cache folder, so that another run removes nothing there meanwhile."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from sciscidata.storage.disk_errors import storage_error
from sciscidata.storage.lock import one_at_a_time, open_lock, try_lock
from sciscidata.storage.paths import list_visible, remove_folder

_USED: Final = ".used-by-"
_GONE: Final = ".gone-"


class Use:
    """The use of a cache folder from now on, until this object or the process ends: a file that it keeps locked.

    On a disk without locks it keeps nothing.
    """

    def __init__(self, home: Path) -> None:
        self._home, self._file = home, home / f"{_USED}{secrets.token_hex(8)}"
        try:
            home.mkdir(parents=True, exist_ok=True)
            with one_at_a_time(home):  # unlocked, it would be that of a killed run
                lock = open_lock(self._file)
                weakref.finalize(self, _end, self._file, lock)
                with suppress(OSError):
                    try_lock(lock)
        except OSError as error:
            raise storage_error(error, home) from error

    def remove_others(self, pattern: str, keep: Collection[str]) -> None:
        """Remove folders other than those to ``keep``, unless another run uses the cache: then the next one does it."""
        with one_at_a_time(self._home):
            if any(_is_locked(file) for file in self._home.glob(f"{_USED}*") if file != self._file):
                return
            for folder in list_visible(self._home.glob(pattern)):
                if folder.name not in keep and folder.is_dir() and not folder.is_symlink():
                    folder.rename(self._home / f"{_GONE}{secrets.token_hex(8)}")  # at once: others wait
        for folder in self._home.glob(f"{_GONE}*"):
            remove_folder(folder)


def _is_locked(file: Path) -> bool:
    """Whether a living run holds a file; that of a killed one is removed."""
    with suppress(OSError), open_lock(file, create=False) as lock:
        if not try_lock(lock):
            return True
        file.unlink()
    return False


def _end(file: Path, lock: IO[str]) -> None:
    lock.close()
    with suppress(OSError):
        file.unlink(missing_ok=True)
