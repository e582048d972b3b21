"""Folders that appear whole or not at all: a killed run leaves nothing that looks like a result."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sciscidata.errors import SciSciDataError, StorageError

_IN_THE_WAY = "Something else is in the way: look at it, then move it or choose another folder."
_NOT_ALLOWED = "Choose a folder that you may write, or mend its permissions."
_REMEDIES = {
    errno.ENOSPC: "Free some disk space, or choose a folder on a larger disk.",
    errno.EDQUOT: "The disk quota is used up: free some space, or choose another folder.",
    errno.EFBIG: "The file system refuses files of this size: choose a folder on another disk.",
    errno.EROFS: "The disk is mounted read-only: choose a folder on another disk.",
    errno.EIO: "The disk reports an error: check it, or choose a folder on another disk.",
    errno.ENOENT: "The folder above it cannot be made: choose another folder.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTEMPTY: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
}


@contextmanager
def atomic_folder(target: Path, *, overwrite: bool = False) -> Generator[Path]:
    """Give a temporary folder to fill; when the block ends well it becomes ``target`` in one rename.

    The temporary folder is a hidden sibling, ``.{target.name}.tmp-{pid}``, so that the rename stays on one
    disk. Its files are flushed to the disk first. When the block fails, the temporary folder is removed and
    ``target`` is as it was. A killed run leaves the temporary folder at most; the next run for the same
    target removes it.

    Args:
        target: the folder to make; missing parents are made too. Whether it may exist is for the caller to
            check beforehand. One writer per process and target.
        overwrite: put an existing folder aside (``.{target.name}.old-{pid}``), and remove it once the new
            one is in place. A run killed between these two renames is mended by the next one.

    Yields:
        The path of the empty temporary folder.

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
    target = target.resolve()  # through a symbolic link: the link stays, the folder behind it is replaced
    temporary = target.with_name(f".{target.name}.tmp-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(target)
        temporary.mkdir()
    except OSError as error:
        raise storage_error(error, target) from error
    try:
        yield temporary
        _flush(temporary)
        if overwrite and target.exists():
            _swap(temporary, target)
        else:
            temporary.rename(target)
        _flush_directory(target.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if _is_about(error, target):
            raise storage_error(error, target) from error
        raise


def storage_error(error: BaseException, path: Path) -> StorageError:
    """Translate a failure to write ``path`` into an error that says what to do about it.

    Example:
        >>> from pathlib import Path
        >>> print(storage_error(OSError(28, "No space left on device"), Path("out")))
        cannot write out: No space left on device. Free some disk space, or choose a folder on a larger disk.
    """
    number = _error_number(error)
    reason = os.strerror(number) if number else str(error).rstrip(".")
    remedy = _REMEDIES.get(number or 0, "Check the disk and the path, then run again.")
    return StorageError(f"cannot write {path}: {reason}. {remedy}")


def _is_about(error: BaseException, target: Path) -> bool:
    """Whether the target's disk or permissions failed, and not some input that was read in the block."""
    if isinstance(error, SciSciDataError) or _error_number(error) not in _REMEDIES.keys() - {errno.ENOENT}:
        return False
    return not (isinstance(error, OSError) and error.filename and not _is_beside(Path(error.filename), target))


def _error_number(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    # Polars passes the number on in the text only, and not always as an OSError.
    in_text = re.search(r"\(os error ([0-9]+)\)", str(error))
    return int(in_text[1]) if in_text else None


def _is_beside(path: Path, target: Path) -> bool:
    return path.is_relative_to(target.parent) or target.is_relative_to(path)


def clear_leftovers(target: Path) -> None:
    """Mend what killed runs left beside ``target``: remove their half work, restore a folder they put aside.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     (Path(home) / ".result.old-999999999").mkdir()
        ...     clear_leftovers(Path(home) / "result")
        ...     [entry.name for entry in Path(home).iterdir()]
        ['result']
    """
    # Not a glob: the target's own name may hold pattern characters.
    for leftover in sorted(target.parent.iterdir()):
        kind, _, pid = leftover.name.removeprefix(f".{target.name}.").partition("-")
        if leftover.name != f".{target.name}.{kind}-{pid}" or not pid.isdecimal() or _is_running(int(pid)):
            continue
        if kind == "old" and not target.exists():
            leftover.rename(target)
        elif kind in ("old", "tmp"):
            shutil.rmtree(leftover)


def _swap(temporary: Path, target: Path) -> None:
    aside = target.with_name(f".{target.name}.old-{os.getpid()}")
    target.rename(aside)
    try:
        temporary.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    # The new folder is in place: what cannot be removed now is a leftover, not a failure.
    shutil.rmtree(aside, ignore_errors=True)


def _is_running(pid: int) -> bool:
    """Whether another process has this number; our own is stale by definition (containers reuse numbers)."""
    if pid == os.getpid():
        return False
    if sys.platform == "win32":  # signal 0 would end the process there
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    _flush_directory(folder)


def _flush_directory(folder: Path) -> None:
    if sys.platform == "win32":  # directories cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
