"""Files and folders that appear whole or not at all: a killed run leaves nothing that looks like a result.

A result is made in a hidden place beside its name, flushed to the disk, and renamed. ``atomic_folder`` and
``atomic_file`` serve folders that any run may write to. The hidden place is a folder with a lock in it. So the next run
can tell what a killed run left from what a living run is at. ``whole_when_done`` serves a folder that this run holds
alone (a corpus, a cache that is being filled). It needs no lock.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from sciscidata.errors import StorageError
from sciscidata.storage.disk_errors import errors_about, storage_error
from sciscidata.storage.lock import one_at_a_time, open_lock, try_lock
from sciscidata.storage.paths import real_path, refuse_special, remove_folder

ABOUT_TMPDIR: Final = " Temporary files lie where TMPDIR says."
LOCK: Final = "lock"
_OLD: Final = "old"
_unfinished: dict[Path, Path] = {}  # the hidden folders of this process, and what each is to become


@contextmanager
def atomic_folder(
    target: Path, *, overwrite: bool = False, recheck: Callable[[], object] | None = None
) -> Generator[Path]:
    """Give an empty new folder to fill; when the block ends well, it becomes ``target`` in one rename.

    Until then it lies in ``.{target.name}.tmp-{16 random digits}`` beside ``target``. When the block fails, it is
    removed. What a killed run leaves is removed by the next one for the same target. With ``overwrite``, an existing
    folder is put aside until the new one is in place. After a kill between the two renames, the next run puts it back.
    ``recheck`` is called right before, and raises if what lies there by then may not be replaced.
    """
    target = real_path(target)  # through a symbolic link: the link stays, the folder behind it is replaced
    with workspace_beside(target) as workspace:
        new = workspace / "new"
        new.mkdir()
        yield new
        flush_tree(new)
        with one_at_a_time(target.parent):
            if overwrite and target.exists():
                refuse_special(target)
                if recheck is not None:
                    recheck()
                target.rename(workspace / _OLD)
            take_place(new, target)
        flush(target.parent)


def refuse_unwritable(target: Path) -> None:
    """Raise StorageError before any work if nothing could be written where ``target`` is to lie."""
    refuse_special(target)
    target = real_path(target)
    try:
        above = next(folder for folder in target.parents if folder.exists())
        with tempfile.TemporaryDirectory(prefix=".sciscidata-", dir=above):
            pass
    except OSError as error:
        raise storage_error(error, target) from error


def take_place(new: Path, target: Path) -> None:
    """Let a whole folder become ``target``; a StorageError if something lies there, such as another run's result."""
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
    """Give a path to write a file to; when the block ends well it becomes ``target``, as in ``atomic_folder``.

    A run that finds its result finished calls ``clear_leftovers`` instead.
    """
    target = real_path(target)
    with workspace_beside(target) as workspace:
        new = workspace / "new"
        yield new
        flush(new)
        with one_at_a_time(target.parent):
            if not overwrite and os.path.lexists(target):
                raise _appeared(target)
            refuse_special(target)
            if recheck is not None and os.path.lexists(target):
                recheck()
            new.replace(target)
        flush(target.parent)


@contextmanager
def whole_when_done(target: Path, *, lasting: bool = True) -> Generator[Path]:
    """Give a hidden path that gets its name when the block ends well. Only one run may write it.

    When the block fails, it is removed; what a killed run left there is removed first. A link at ``target`` is
    replaced, never followed. ``lasting`` flushes to the disk.
    """
    if not target.is_symlink():
        refuse_special(target)
    unfinished = target.with_name(f".{target.name}.tmp")
    _remove(unfinished)
    try:
        yield unfinished
        if lasting:
            flush_tree(unfinished)
        unfinished.replace(target)
    except BaseException:
        with suppress(OSError):  # the failure itself says more
            _remove(unfinished)
        raise


def _remove(path: Path) -> None:
    remove_folder(path)
    path.unlink(missing_ok=True)


@contextmanager
def scratch_folder() -> Generator[Path]:
    """Give a folder in TMPDIR, and remove it at the end. The next run removes that of a killed one."""
    with ExitStack() as stack:
        try:
            target = Path(tempfile.gettempdir(), "sciscidata")
            clear_leftovers(target)
            folder = stack.enter_context(_locked_workspace(target)) / "scratch"
            folder.mkdir(mode=0o700)  # others may look into the place, but not at what is read here
        except OSError as error:
            place = Path(os.environ.get("TMPDIR", "the folder for temporary files"))
            raise storage_error(error, place, ABOUT_TMPDIR) from error
        with errors_about(folder, ABOUT_TMPDIR):
            yield folder


def flush_tree(path: Path) -> None:
    """Send a file, or a folder with all that is in it, to the disk."""
    for part in (*path.rglob("*"), path):
        if part.is_file() or part.is_dir():
            flush(part)


def flush(path: Path) -> None:
    """Send a file, or the names in a folder, to the disk."""
    if sys.platform == "win32":  # nothing opened for reading can be flushed there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def workspace_beside(target: Path) -> Generator[Path]:
    """Make a hidden folder for this run on the disk of ``target``; clear away what killed runs left there."""
    refuse_special(target)
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            clear_leftovers(target)
            workspace = stack.enter_context(_locked_workspace(target))
        except OSError as error:
            raise storage_error(error, target) from error
        with errors_about(target):
            yield workspace


@contextmanager
def _locked_workspace(target: Path) -> Generator[Path]:
    """Give a hidden, locked folder beside ``target``, and remove it. A folder put aside in it goes back if need be."""
    token = secrets.token_hex(8)
    unlocked = target.with_name(f".{target.name}.new-{token}")
    try:
        unlocked.mkdir()
        with (unlocked / LOCK).open("w") as lock:
            with suppress(OSError):  # a disk without locks: leftovers stay there
                try_lock(lock)
            # Only now it gets the name that other runs look for: unlocked, it would be a leftover to them.
            workspace = unlocked.rename(target.with_name(f".{target.name}.tmp-{token}"))
            _unfinished[workspace] = target
            try:
                yield workspace
            finally:
                _clear(workspace, target)
                _unfinished.pop(workspace, None)
    finally:
        remove_folder(unlocked)


def clear_leftovers(target: Path) -> None:
    """Remove the half work of killed runs beside ``target``, restore a folder they put aside; what is locked stays."""
    ours = re.compile(re.escape(f".{target.name}.tmp-") + "[0-9a-f]{16}")
    with os.scandir(target.parent) as entries:  # in a crowded folder much quicker than sorted paths
        names = sorted(entry.name for entry in entries if ours.fullmatch(entry.name))
    for name in names:
        leftover = target.parent / name
        if not leftover.is_symlink():  # we make no links
            # Another run may be clearing it too, it may be another user's, or the disk may know no locks.
            with suppress(OSError), open_lock(leftover / LOCK, create=False) as lock:
                if try_lock(lock):
                    _clear(leftover, target)


def clear_unfinished() -> None:
    """Remove the half work of this process, which is about to end while its other threads are still at work."""
    for workspace, target in list(_unfinished.items()):
        _clear(workspace, target)


def _clear(workspace: Path, target: Path) -> None:
    aside = workspace / _OLD
    if aside.exists() and not aside.is_symlink():  # we put no links there
        with one_at_a_time(target.parent):  # else another run may be about to put its own there
            if not os.path.lexists(target):
                aside.rename(target)
    # What cannot be removed now is a leftover, not a failure.
    remove_folder(workspace)
