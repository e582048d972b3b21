"""Cached folders: used again once they are whole, and continued after a killed run."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from sciscidata.errors import ResumableError, StorageError
from sciscidata.storage.atomic import LOCK, atomic_folder, clear_leftovers, flush, flush_tree, take_place
from sciscidata.storage.disk_errors import errors_about, storage_error
from sciscidata.storage.lock import open_lock, try_lock
from sciscidata.storage.paths import hash_file, list_visible, real_path, refuse_link, remove_folder
from sciscidata.storage.small_files import read_whole
from sciscidata.storage.sums import SUMS, parse_sums, render_sums

logger = logging.getLogger(__name__)

_LEDGER: Final = "finished"  # beside the folder that is filled: which of its files are whole, and their SHA-256
_ledger_lock = threading.Lock()
_of_this_run: set[Path] = set()  # folders that this process has made, or has said that it uses again


class _NoFileError(OSError):
    """A folder, a pipe or a device lies where a file belongs."""


@contextmanager
def resumable_folder(target: Path) -> Generator[Path]:
    """Give a folder to fill like ``atomic_folder``, with the files that a killed run has finished.

    It lies in ``.{target.name}.unfinished`` beside ``target``. A run that is killed, whose disk is full, or that can go
    on later (ResumableError) leaves it.
    Files that ``note_finished`` noted stay if their SHA-256 is the same; the rest is removed. Where another run is at
    work on the same target, or the disk knows no locks, it is an ``atomic_folder``.
    """
    target = real_path(target)
    workspace = target.with_name(f".{target.name}.unfinished")
    with ExitStack() as stack:
        ours = False
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            refuse_link(workspace)
            workspace.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # its owner has just removed it
                lock = stack.enter_context(open_lock(workspace / LOCK))
                with suppress(OSError):  # a disk without locks, or its owner removed it while we asked for the lock
                    ours = try_lock(lock) and os.path.samestat(os.fstat(lock.fileno()), (workspace / LOCK).stat())
        except StorageError:
            raise
        except OSError as error:
            raise storage_error(error, target) from error
        if not ours:
            yield stack.enter_context(atomic_folder(target))
            return
        clear_leftovers(target)
        new = workspace / "new"
        try:
            with errors_about(target):
                refuse_link(new)
                new.mkdir(exist_ok=True)
                _remove_untrusted(new)
                yield new
                flush_tree(new)
                take_place(new, target)
                flush(target.parent)
        except (StorageError, ResumableError):
            if target.exists():  # of another run, in whose way it would be
                remove_folder(workspace)
            raise
        except Exception:
            remove_folder(workspace)
            raise
        remove_folder(workspace)


def note_finished(folder: Path, name: str, sha256: str) -> None:
    """Note that a file, which may be about to appear, of a ``resumable_folder`` is whole; elsewhere do nothing."""
    ledger = folder.parent / _LEDGER
    if ledger.is_file():
        with _ledger_lock, ledger.open("a", encoding="utf-8") as file:
            file.write(render_sums([(name, sha256)]))
            file.flush()
            os.fsync(file.fileno())


def cached_folder(target: Path, make: Callable[[Path], None], *, resume: bool = False) -> Path:
    """Make a folder whose name decides its content, or use again what an earlier run made whole. Return ``target``.

    With ``resume``, ``make`` finds the files that a killed run has finished. Their SHA-256 stand in a file that
    ``sha256sum -c`` reads, and are compared before the folder is used again. A damaged folder is made again, with a
    warning. If two run at the same time, the first one counts.
    """
    refuse_link(target)
    was_there = target.exists()  # asked first: another run may be about to make it
    if was_there and not target.is_dir():
        raise storage_error(NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)), target)
    if is_whole_folder(target):
        if target not in _of_this_run:
            logger.info("reusing %s", target, extra={"fact": "reused from cache"})
        _of_this_run.add(target)
        return target
    if was_there:
        logger.warning("%s is damaged or unfinished; it is made again", target)
        remove_folder(target)
    try:
        with resumable_folder(target) if resume else atomic_folder(target) as folder:
            make(folder)
            (folder / SUMS).write_bytes(_sums(folder, _read_ledger(folder)))
    except StorageError:
        if not is_whole_folder(target):  # else another run has made the same folder meanwhile
            raise
    _of_this_run.add(target)
    return target


def is_whole_folder(folder: Path) -> bool:
    """Whether a folder of ``cached_folder`` has its first content. After an OSError, it may be whole: keep it."""
    try:
        return read_whole(folder / SUMS) == _sums(folder)
    except (FileNotFoundError, NotADirectoryError, _NoFileError):
        return False


def _remove_untrusted(new: Path) -> None:
    """Remove what an earlier run left without a note, or with another SHA-256 than the noted one."""
    noted, ledger = _read_ledger(new), new.parent / _LEDGER
    for entry in sorted(new.iterdir()):
        paths = _files_of(entry)
        names = _names_of(entry, new)
        stated = [name for name in noted if name == entry.name or name.startswith(f"{entry.name}/")]
        is_whole = not entry.is_symlink() and bool(names) and sorted(stated) == sorted(names)
        if is_whole and all(_is_noted(path, noted[name]) for path, name in zip(paths, names, strict=True)):
            continue
        if set(stated) & set(names):
            logger.warning("%s is damaged; it is made again", entry.name)
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    ledger.unlink(missing_ok=True)  # which may be a link
    kept = ((name, noted[name]) for entry in new.iterdir() for name in _names_of(entry, new))
    ledger.write_text(render_sums(kept), "utf-8")


def _files_of(entry: Path) -> list[Path]:
    if entry.is_symlink() or not entry.is_dir():
        return [entry]
    return [path for path in sorted(entry.rglob("*")) if path.is_symlink() or not path.is_dir()]


def _names_of(entry: Path, new: Path) -> list[str]:
    return [path.relative_to(new).as_posix() for path in _files_of(entry)]


def _is_noted(path: Path, sha256: str) -> bool:
    try:
        return path.is_file() and not path.is_symlink() and hash_file(path) == sha256
    except OSError:
        return False


def _read_ledger(folder: Path) -> dict[str, str]:
    """Read which files of a resumable folder were noted, and with what SHA-256; the last note of a name counts."""
    ledger = folder.parent / _LEDGER
    try:
        text = read_whole(ledger).decode("utf-8", "replace") if not ledger.is_symlink() else ""
    except OSError:
        return {}
    return dict(parse_sums(text[: text.rfind("\n") + 1]))  # a killed run may have left half a line


def _sums(folder: Path, noted: Mapping[str, str] | None = None) -> bytes:
    paths = [path for path in list_visible(folder.iterdir()) if path.name != SUMS]

    def entry(path: Path) -> tuple[str, str]:
        if not path.is_file():  # reading a pipe would wait for a writer
            raise _NoFileError(errno.EINVAL, "It is no file", str(path))
        return path.name, (noted or {}).get(path.name) or hash_file(path)

    with ThreadPoolExecutor(2) as pool:
        return render_sums(pool.map(entry, paths)).encode()
