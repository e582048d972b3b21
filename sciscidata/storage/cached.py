"""Folders that a later run goes on with, or uses again once they are whole."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from sciscidata.errors import StorageError
from sciscidata.storage.errors import errors_about, storage_error
from sciscidata.storage.paths import hash_file, real_path
from sciscidata.storage.whole import atomic_folder, flush, flush_folder, take_place
from sciscidata.storage.workspaces import LOCK, clear_leftovers, try_lock

logger = logging.getLogger(__name__)

_SUMS: Final = "SHA256SUMS"


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
    target = real_path(target)
    workspace = target.with_name(f".{target.name}.unfinished")
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            workspace.mkdir(exist_ok=True)
            lock = stack.enter_context((workspace / LOCK).open("a"))
            # Its owner may have removed it while we waited for the lock.
            ours = try_lock(lock) and os.path.samestat(os.fstat(lock.fileno()), (workspace / LOCK).stat())
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
            with errors_about(target):
                new.mkdir(exist_ok=True)
                yield new
                flush_folder(new)
                take_place(new, target)
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
    was_there = target.exists()  # asked first: another run may be about to make it
    if is_whole_folder(target):
        logger.info("reusing %s", target)
        return target
    if was_there:
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
    return f"{hash_file(path)}  {path.name}\n"
