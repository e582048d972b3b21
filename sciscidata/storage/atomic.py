"""The hidden folders of unfinished runs: whose each is, and what becomes of it when its run was killed."""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from sciscidata.errors import StorageError
from sciscidata.storage.disk import errors_about, real_path, remove_folder, storage_error

# ---------- Files and folders that appear whole or not at all: a killed run leaves nothing that looks like a result.


_ABOUT_TMPDIR = " Temporary files lie where TMPDIR says."


@contextmanager
def atomic_folder(
    target: Path, *, overwrite: bool = False, recheck: Callable[[], object] | None = None
) -> Generator[Path]:
    """Give a new folder to fill; when the block ends well it becomes ``target`` in one rename.

    Until then it lies in a hidden folder beside ``target``, ``.{target.name}.tmp-{16 random digits}``, so that
    the rename stays on one disk. Its files are flushed to the disk first. When the block fails, it is removed
    and ``target`` is as it was. A killed run leaves the hidden folder at most; the next run for the same target
    removes it, and nobody else's: a run locks its own for as long as it lives.

    Args:
        target: the folder to make; missing parents are made too. Whether it may exist is for the caller to
            check beforehand.
        overwrite: put an existing folder aside, into the hidden one, until the new one is in place. A run killed
            between these two renames is mended by the next one.
        recheck: called right before that: it raises if what lies there by then may not be replaced.

    Yields:
        The path of the empty new folder.

    Raises:
        StorageError: the disk is full, the folder cannot be written, or without ``overwrite`` something
            appeared at ``target``. Other errors of the block pass through unchanged.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     with atomic_folder(Path(home) / "result") as folder:
        ...         _ = (folder / "answer.txt").write_text("42")
        ...     (Path(home) / "result" / "answer.txt").read_text()
        '42'
    """
    target = real_path(target)  # through a symbolic link: the link stays, the folder behind it is replaced
    with _workspace_beside(target) as workspace:
        new = workspace / "new"
        new.mkdir()
        yield new
        flush_folder(new)
        with one_at_a_time(target.parent):
            if overwrite and target.exists():
                if recheck is not None:
                    recheck()
                target.rename(workspace / OLD)
            take_place(new, target)
        flush(target.parent)


def take_place(new: Path, target: Path) -> None:
    """Let a whole folder become ``target``, where nothing lies, or an empty folder.

    Raises:
        StorageError: something appeared there, such as the result of another run for the same target.
        OSError: the disk failed otherwise.
    """
    try:
        new.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise _appeared(target) from error


def _appeared(target: Path) -> StorageError:
    return StorageError(
        f"cannot write {target}: another run has made it meanwhile, or something else is in the way. What this run "
        "made is not kept. Look at what is there: use it, move it, or choose another name."
    )


@contextmanager
def atomic_file(
    target: Path, *, overwrite: bool = True, recheck: Callable[[], object] | None = None
) -> Generator[Path]:
    """Give a path to write a file to; when the block ends well it becomes ``target``, and replaces what is there.

    The rest is as in atomic_folder. A run that ends because its result is there already calls clear_leftovers.

    Args:
        target: the file to make.
        overwrite: False where the caller has seen that nothing is there: what appears meanwhile is then kept.
        recheck: as in atomic_folder.

    Raises:
        StorageError: the disk is full, the file cannot be written, or without ``overwrite`` something appeared at
            ``target``. Other errors of the block pass through unchanged.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     with atomic_file(Path(home, "answer.txt")) as path:
        ...         _ = path.write_text("42")
        ...     Path(home, "answer.txt").read_text(), len(list(Path(home).iterdir()))
        ('42', 1)
    """
    target = real_path(target)
    with _workspace_beside(target) as workspace:
        new = workspace / "new"
        yield new
        flush(new)
        with one_at_a_time(target.parent):
            if not overwrite and os.path.lexists(target):
                raise _appeared(target)
            if recheck is not None and os.path.lexists(target):
                recheck()
            new.replace(target)
        flush(target.parent)


@contextmanager
def _workspace_beside(target: Path) -> Generator[Path]:
    """Make a hidden folder of this run's own on the disk of ``target``; clear away what killed runs left there."""
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            clear_leftovers(target)
            workspace = stack.enter_context(locked_workspace(target))
        except OSError as error:
            raise storage_error(error, target) from error
        with errors_about(target):
            yield workspace


@contextmanager
def scratch_folder() -> Generator[Path]:
    """Give a folder in the system's place for temporary files (TMPDIR), and remove it at the end.

    A killed run leaves it there; the next one removes it, and not that of a living run.

    Raises:
        StorageError: the disk is full, or the place cannot be written. Other errors pass through unchanged.

    Example:
        >>> with scratch_folder() as folder:
        ...     folder.is_dir()
        True
    """
    with ExitStack() as stack:
        try:
            target = Path(tempfile.gettempdir(), "sciscidata")
            clear_leftovers(target)
            folder = stack.enter_context(locked_workspace(target)) / "scratch"
            folder.mkdir(mode=0o700)  # others may look into the place, but not at what is read here
        except OSError as error:
            place = Path(os.environ.get("TMPDIR", "the folder for temporary files"))
            raise storage_error(error, place, _ABOUT_TMPDIR) from error
        with errors_about(folder, _ABOUT_TMPDIR):
            yield folder


def flush_folder(folder: Path) -> None:
    """Send a folder with all that is in it to the disk.

    Example:
        >>> with scratch_folder() as folder:
        ...     flush_folder(folder)
    """
    for path in (*folder.rglob("*"), folder):
        if path.is_file() or path.is_dir():
            flush(path)


def flush(path: Path) -> None:
    """Send a file, or the names in a folder, to the disk.

    Example:
        >>> flush(Path("."))
    """
    if sys.platform == "win32":  # nothing opened for reading can be flushed there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
