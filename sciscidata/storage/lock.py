"""The one lock of the package, and how a folder is read that another run may be replacing.

It ends with the process that holds it, so no file has to be removed after a crash.

filelock's ``lock_descriptor`` does the locking, as fast as ``fcntl.flock`` (1.3 against 1.2 microseconds), on Windows
too. Its ``FileLock`` would not do. It cannot lock a folder, and opens a lock of another run only by making it. On a
disk without locks it leaves a marker file behind that ends no wait but by hand.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final, TypeVar

from sciscidata.errors import SciSciDataError, StorageError
from sciscidata.storage.paths import real_path, remove_folder

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_PATIENCE_S: Final = 5.0
_ATTEMPTS: Final = 10


def open_lock(path: Path, *, create: bool = True) -> IO[str]:
    """Open a file to lock it. An OSError if it cannot be opened, or is a link, which is never followed."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666), "r+")


def try_lock(file: IO[str]) -> bool:
    """Lock an open file until it is closed; False if another process holds it, OSError if the disk knows no locks."""
    from filelock import lock_descriptor  # 15 ms that only a run that writes has to spend

    return lock_descriptor(file.fileno(), blocking=False)


@contextmanager
def hold_folder(folder: Path, refusal: Exception) -> Generator[None]:
    """Keep other runs out of an existing folder until the block ends; on a disk without locks none is kept out."""
    with open_lock(folder / ".lock") as lock:
        is_ours = True
        with suppress(OSError):
            is_ours = try_lock(lock)
        if not is_ours:
            raise refusal
        yield


@contextmanager
def own_work(folder: Path) -> Generator[None]:
    """Keep the unfinished work in a folder for this run until the block ends; another run of the same waits.

    When the block ends well, the folder is removed. What a failed or killed run leaves there serves the next one. On a
    disk without locks no run waits.
    """
    with ExitStack() as stack:
        if sys.platform != "win32":  # a folder cannot be opened there
            with suppress(OSError):
                _wait_for(folder, stack)
        yield
        remove_folder(folder)


def _wait_for(folder: Path, stack: ExitStack) -> None:
    from filelock import lock_descriptor

    is_told = False
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        while not lock_descriptor(descriptor, blocking=False):
            if not is_told:
                logger.info("another run is at work on the same; this one waits, and uses what it has made")
                is_told = True
            time.sleep(0.05)
        with suppress(FileNotFoundError):  # the other run has removed it
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return


@contextmanager
def one_at_a_time(folder: Path) -> Generator[None]:
    """Wait until no other run changes the names in a folder, and keep others waiting until the block ends.

    A run takes milliseconds. After five seconds another program holds the lock (``flock FOLDER sciscidata ...``): go
    on.
    """
    if sys.platform == "win32":  # a folder cannot be opened there
        yield
        return
    from filelock import lock_descriptor

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            end = time.monotonic() + _PATIENCE_S
            while time.monotonic() < end and not lock_descriptor(descriptor, blocking=False):
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def read_steadily(folder: Path, read: Callable[[], _Result]) -> _Result:
    """Return what ``read`` reads of a folder that another run may be replacing: the old one or the new one, no mix.

    If it fails, and the folder is another one by then, read that one.
    """
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
