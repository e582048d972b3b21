"""The hidden folders of unfinished runs: whose each is, and what becomes of it when its run was killed."""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from sciscidata.storage.paths import remove_folder

LOCK: Final = "lock"
OLD: Final = "old"
_PATIENCE_S: Final = 5.0
_unfinished: dict[Path, Path] = {}  # the hidden folders of this process, and what each is to become


@contextmanager
def locked_workspace(target: Path) -> Generator[Path]:
    """Give a hidden folder beside ``target``, which is this run's own until the end of the block, and then gone.

    A folder that was put aside in it, as ``OLD``, goes back if nothing has taken its place.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     with locked_workspace(Path(home, "result")) as workspace:
        ...         print(workspace.name[:12])
        ...     list(Path(home).iterdir())
        .result.tmp-
        []
    """
    token = secrets.token_hex(8)
    unlocked = target.with_name(f".{target.name}.new-{token}")
    try:
        unlocked.mkdir()
        with (unlocked / LOCK).open("w") as lock:
            try_lock(lock)
            # It gets the name that other runs look for only now, lest they take it for a leftover.
            workspace = unlocked.rename(target.with_name(f".{target.name}.tmp-{token}"))
            _unfinished[workspace] = target
            try:
                yield workspace
            finally:
                _clear(workspace, target)
                _unfinished.pop(workspace, None)
    finally:
        remove_folder(unlocked)


@contextmanager
def one_at_a_time(folder: Path) -> Generator[None]:
    """Wait until no other run changes the names in a folder, and keep others waiting until the end of the block.

    A run of this package holds the folder for milliseconds, so the wait ends after five seconds: then the lock is not
    ours, for example that of ``flock FOLDER sciscidata ...``. Without locks on the system or the disk nothing waits.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home, one_at_a_time(Path(home)):
        ...     list(Path(home).iterdir())
        []
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a disk that knows no locks
            end = time.monotonic() + _PATIENCE_S
            while time.monotonic() < end:
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def clear_leftovers(target: Path) -> None:
    """Mend what killed runs left beside ``target``: remove their half work, restore a folder they put aside.

    What a living run has locked is left alone, and so is everything on a disk that knows no locks.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     workspace = Path(home) / ".result.tmp-0123456789abcdef"
        ...     (workspace / "old").mkdir(parents=True)
        ...     (workspace / "lock").touch()
        ...     clear_leftovers(Path(home) / "result")
        ...     [entry.name for entry in Path(home).iterdir()]
        ['result']
    """
    ours = re.compile(re.escape(f".{target.name}.tmp-") + "[0-9a-f]{16}")
    for leftover in sorted(target.parent.iterdir()):
        if ours.fullmatch(leftover.name) and not leftover.is_symlink():  # a link is none of ours
            # Another run may be clearing it too, or it may be another user's.
            with suppress(OSError), open_lock(leftover / LOCK, create=False) as lock:
                if try_lock(lock):
                    _clear(leftover, target)


def clear_unfinished() -> None:
    """Remove the half work of this process, which is about to end while other threads of it are still at work.

    Example:
        >>> clear_unfinished()
    """
    for workspace, target in list(_unfinished.items()):
        _clear(workspace, target)


def _clear(workspace: Path, target: Path) -> None:
    aside = workspace / OLD
    if aside.exists() and not aside.is_symlink():  # this package puts no links there
        with one_at_a_time(target.parent):  # else another run may be about to put its own there
            if not os.path.lexists(target):
                aside.rename(target)
    # Whatever cannot be removed now is a leftover, not a failure.
    remove_folder(workspace)


def open_lock(path: Path, *, create: bool = True) -> IO[str]:
    """Open a file to lock it, never the one that a link in its place leads to.

    Raises:
        OSError: it cannot be opened, or is a link.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home, open_lock(Path(home, "lock")) as lock:
        ...     lock.writable()
        True
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666), "r+")


def try_lock(file: IO[str]) -> bool:
    """Whether ``file`` is now ours, until it is closed or the process ends, on whichever machine that may be.

    Example:
        >>> from tempfile import NamedTemporaryFile
        >>> with NamedTemporaryFile("w") as mine, Path(mine.name).open("w") as other:
        ...     [try_lock(mine), try_lock(other)] in ([True, False], [False, False])  # the latter where there are none
        True
    """
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody else's, or a disk that knows no locks
        return False
    return True
