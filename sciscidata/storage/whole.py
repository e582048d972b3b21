"""Files and folders that appear whole or not at all: a killed run leaves nothing that looks like a result."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sciscidata.errors import StorageError
from sciscidata.storage.errors import errors_about, storage_error
from sciscidata.storage.paths import real_path
from sciscidata.storage.workspaces import OLD, clear_leftovers, locked_workspace, one_at_a_time

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
