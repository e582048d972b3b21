"""Read a folder that another run may be replacing: the old one or the new one, never a bit of both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from sciscidata.errors import SciSciDataError, StorageError
from sciscidata.storage.lock import one_at_a_time
from sciscidata.storage.paths import real_path

_Result = TypeVar("_Result")
_ATTEMPTS: Final = 10


def read_steadily(folder: Path, read: Callable[[], _Result]) -> _Result:
    """Return what ``read`` reads of a folder. If it fails, and the folder is another one by then, read that one."""
    folder = real_path(folder)
    for _ in range(_ATTEMPTS):
        before = _identify(folder)
        try:
            return read()
        except (SciSciDataError, OSError):
            # Under the lock no run is between putting the old folder aside and giving its name to the new one.
            now = None
            with suppress(OSError), one_at_a_time(folder.parent):
                now = _identify(folder)
            if now == before:
                raise
    raise StorageError(
        f"{folder} is being replaced: {_ATTEMPTS} times while it was read. Read it when those runs have ended."
    )


def _identify(folder: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        facts = folder.stat()
        return facts.st_dev, facts.st_ino, facts.st_mtime_ns
    return None
