"""Folders that appear whole or not at all: a killed run leaves nothing that looks like a result."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from sciscidata.errors import SciSciDataError, StorageError

logger = logging.getLogger(__name__)

_LOCK, _OLD = "lock", "old"  # in the hidden folder of an unfinished run
_SUMS = "SHA256SUMS"
_unfinished: dict[Path, Path] = {}  # the hidden folders of this process, and what each is to become
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
    target = target.resolve()  # through a symbolic link: the link stays, the folder behind it is replaced
    with _workspace_beside(target) as workspace:
        new = workspace / "new"
        new.mkdir()
        yield new
        _flush(new)
        if overwrite and target.exists():
            target.rename(workspace / _OLD)
        new.rename(target)
        flush(target.parent)


@contextmanager
def atomic_file(target: Path) -> Generator[Path]:
    """Give a path to write a file to; when the block ends well it becomes ``target``, and replaces what is there.

    The rest is as in atomic_folder. A run that ends because its result is there already calls clear_leftovers.

    Raises:
        StorageError: the disk is full, or the file cannot be written. Other errors of the block pass through unchanged.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     with atomic_file(Path(home, "answer.txt")) as path:
        ...         _ = path.write_text("42")
        ...     Path(home, "answer.txt").read_text(), len(list(Path(home).iterdir()))
        ('42', 1)
    """
    target = target.resolve()
    with _workspace_beside(target) as workspace:
        new = workspace / "new"
        yield new
        flush(new)
        new.replace(target)
        flush(target.parent)


@contextmanager
def _workspace_beside(target: Path) -> Generator[Path]:
    """Make a hidden folder of this run's own on the disk of ``target``; clear away what killed runs left there."""
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            clear_leftovers(target)
            workspace = stack.enter_context(_locked_workspace(target))
        except OSError as error:
            raise storage_error(error, target) from error
        with _errors_about(target):
            yield workspace


@contextmanager
def scratch_folder() -> Generator[Path]:
    """Give a folder in the system's place for temporary files (TMPDIR), and remove it at the end.

    Raises:
        StorageError: the disk is full, or the place cannot be written. Other errors pass through unchanged.

    Example:
        >>> with scratch_folder() as folder:
        ...     folder.is_dir()
        True
    """
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sciscidata-")))
        except OSError as error:
            raise storage_error(error, Path(os.environ.get("TMPDIR", "the folder for temporary files"))) from error
        with _errors_about(folder / "scratch"):  # what lies beside the folder is not ours
            yield folder


@contextmanager
def resumable_folder(target: Path) -> Generator[Path]:
    """Give a folder to fill like atomic_folder, with what a killed run left of the same one.

    It lies in ``.{target.name}.unfinished`` beside ``target``. Whoever fills it must tell whole files from others, for
    example by a rename at their end, and may leave nothing else behind at its own end. A run that is killed or
    interrupted, or whose disk is full, leaves the folder for the next one; a run that fails in another way removes it.
    Where another run is at work on the same target, or the disk knows no locks, it is a folder of atomic_folder.

    Raises:
        StorageError: as atomic_folder.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     try:
        ...         with resumable_folder(Path(home, "result")) as folder:
        ...             _ = (folder / "first.txt").write_text("1")
        ...             raise KeyboardInterrupt
        ...     except KeyboardInterrupt:
        ...         with resumable_folder(Path(home, "result")) as folder:
        ...             print([path.name for path in folder.iterdir()])
        ['first.txt']
    """
    target = target.resolve()
    workspace = target.with_name(f".{target.name}.unfinished")
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            workspace.mkdir(exist_ok=True)
            lock = stack.enter_context((workspace / _LOCK).open("a"))
            # Its owner may have removed it while we waited for the lock.
            ours = _try_lock(lock) and os.path.samestat(os.fstat(lock.fileno()), (workspace / _LOCK).stat())
        except FileNotFoundError:
            ours = False
        except OSError as error:
            raise storage_error(error, target) from error
        if not ours:
            yield stack.enter_context(atomic_folder(target))
            return
        clear_leftovers(target)
        new = workspace / "new"
        try:
            with _errors_about(target):
                new.mkdir(exist_ok=True)
                yield new
                _flush(new)
                new.rename(target)
                flush(target.parent)
        except StorageError:
            if target.exists():  # of another run, in whose way it would be
                shutil.rmtree(workspace, ignore_errors=True)
            raise
        except Exception:
            shutil.rmtree(workspace, ignore_errors=True)
            raise
        shutil.rmtree(workspace, ignore_errors=True)


def cached_folder(target: Path, make: Callable[[Path], None], *, resume: bool = False) -> Path:
    """Make a folder whose name decides its content, or reuse what an earlier run made whole.

    Beside the files of ``make`` stands their SHA-256, in a file that ``sha256sum -c`` reads. They are checked
    before a reuse; a folder that is damaged or unfinished is made again, with a warning in the log.

    Args:
        target: where to keep it. Two runs may make it at the same time: the first one counts.
        make: fills an empty folder, always with the same files for the same ``target``.
        resume: keep what a killed run has finished, and give ``make`` a folder with it; see resumable_folder.

    Returns:
        ``target``.

    Raises:
        StorageError: the disk is full, or the folder cannot be written. Other errors of ``make`` pass through.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     for _ in range(2):
        ...         made = cached_folder(Path(home, "sum-2-3"), lambda folder: print((folder / "5").write_text("")))
        ...     sorted(path.name for path in made.iterdir())
        0
        ['5', 'SHA256SUMS']
    """
    if is_whole_folder(target):
        logger.info("reusing %s", target)
        return target
    if target.exists():
        logger.warning("%s is damaged or unfinished; it is made again", target)
        shutil.rmtree(target, ignore_errors=True)
    try:
        with resumable_folder(target) if resume else atomic_folder(target) as folder:
            make(folder)
            (folder / _SUMS).write_bytes(_sums(folder))
    except StorageError:
        if not is_whole_folder(target):  # else another run has made the same folder meanwhile
            raise
    return target


def is_whole_folder(folder: Path) -> bool:
    """Whether a folder of cached_folder is there with the content it was given: compares every SHA-256.

    Example:
        >>> is_whole_folder(Path("no/such/folder"))
        False
    """
    try:
        return (folder / _SUMS).read_bytes() == _sums(folder)
    except OSError:
        return False


def _sums(folder: Path) -> bytes:
    # File managers leave hidden files anywhere.
    paths = [path for path in sorted(folder.iterdir()) if path.name != _SUMS and not path.name.startswith(".")]
    with ThreadPoolExecutor(2) as pool:
        return "".join(pool.map(_sum_line, paths)).encode()


def _sum_line(path: Path) -> str:
    with path.open("rb") as file:
        return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n"


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
    if remedy is _IN_THE_WAY and (file := next((above for above in path.parents if above.is_file()), None)):
        reason = f"{file} is a file, not a folder"
    return StorageError(f"cannot write {path}: {reason}. {remedy}")


@contextmanager
def _errors_about(target: Path) -> Generator[None]:
    try:
        yield
    except BaseException as error:  # Polars' panics are no Exception
        if _is_about(error, target):
            raise storage_error(error, target) from error
        raise


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
        if ours.fullmatch(leftover.name):
            # Another run may be clearing it too, or it may be another user's.
            with suppress(OSError), (leftover / _LOCK).open("r+") as lock:
                if _try_lock(lock):
                    _clear(leftover, target)


@contextmanager
def _locked_workspace(target: Path) -> Generator[Path]:
    token = secrets.token_hex(8)
    unlocked = target.with_name(f".{target.name}.new-{token}")
    try:
        unlocked.mkdir()
        with (unlocked / _LOCK).open("w") as lock:
            _try_lock(lock)
            # It gets the name that other runs look for only now, lest they take it for a leftover.
            workspace = unlocked.rename(target.with_name(f".{target.name}.tmp-{token}"))
            _unfinished[workspace] = target
            try:
                yield workspace
            finally:
                _clear(workspace, target)
                _unfinished.pop(workspace, None)
    finally:
        shutil.rmtree(unlocked, ignore_errors=True)


def clear_unfinished() -> None:
    """Remove the half work of this process, which is about to end while other threads of it are still at work.

    Example:
        >>> clear_unfinished()
    """
    for workspace, target in list(_unfinished.items()):
        _clear(workspace, target)


def _clear(workspace: Path, target: Path) -> None:
    aside = workspace / _OLD
    if aside.exists() and not target.exists():
        aside.rename(target)
    # Whatever cannot be removed now is a leftover, not a failure.
    shutil.rmtree(workspace, ignore_errors=True)


def _try_lock(file: IO[str]) -> bool:
    """Whether ``file`` is now ours, until it is closed or the process ends, on whichever machine that may be."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody else's, or a disk that knows no locks
        return False
    return True


def _flush(folder: Path) -> None:
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
