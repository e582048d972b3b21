"""Paths: checked names, links resolved, targets that may be written, files hashed, folders listed and removed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sciscidata.errors import ReleaseExistsError, StorageError, UnsafeNameError

_LONGEST_SHOWN: Final = 80
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SPECIAL: Final = {
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFLNK: "a link that leads to itself",
    stat.S_IFSOCK: "a socket",
}
_LOOKED_AT: Final = 64 << 10  # bytes at each end; the mark of a PDF lies at its end


def path_inside(folder: Path, name: object, *, stated_by: object) -> Path:
    """Turn a name that a file (``stated_by``) states into a path below ``folder``, which need not exist.

    Every name that was read from a file goes through here: it may be wrong, or made to mislead. It is plain parts
    joined by ``/``, and a link is followed only inside ``folder``; else an UnsafeNameError is raised.
    """
    if isinstance(name, str) and is_plain_name(name):
        path = folder / name
        if real_path(path).is_relative_to(real_path(folder)):
            return path
        problem = "which a link leads out of"
    else:
        problem = "which is not a file inside"
    shown = repr(name) if len(repr(name)) <= _LONGEST_SHOWN else f"{repr(name)[:_LONGEST_SHOWN]}..."
    raise UnsafeNameError(
        f"{stated_by} names {shown}, {problem} {folder}. The file is damaged, or was made to mislead: get it again "
        "from where it came, or make it anew."
    )


def is_plain_name(name: str) -> bool:
    r"""Whether a name is parts joined by ``/`` that stay below any folder, on any system.

    Example:
        >>> [is_plain_name(name) for name in ("a/b.txt", "", "/etc/passwd", "a/../b", "a//b", "C:\\a", "a\x1b[2J")]
        [True, False, False, False, False, False, False]
    """
    parts = name.split("/")
    return all(part not in ("", ".", "..") for part in parts) and name.isprintable() and not {"\\", ":"} & set(name)


def refuse_link(path: Path) -> None:
    """Raise a StorageError for a link where this package makes a folder: it may lead to any file of the user."""
    if path.is_symlink():
        raise StorageError(
            f"{path} is a link, and nothing is written through it. Remove the link, or choose another folder."
        )


def refuse_special(target: Path) -> None:
    """Raise a StorageError if a device, a pipe or a socket lies where ``target`` leads to: none is ever replaced."""
    try:
        kind = stat.S_IFMT(real_path(target).lstat().st_mode)
    except OSError:  # nothing is there, or what is above says so when it is written
        return
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        what = _SPECIAL.get(kind, "no file and no folder")
        raise StorageError(f"cannot write {target}: it is {what}, which is never replaced. Choose another name.")


def refuse_input(target: Path, name: str, inputs: Iterable[Path]) -> None:
    """Raise a StorageError if ``target`` is one of the inputs, or lies in one: no option may replace what is read."""
    for read in inputs:
        is_read = target.exists() and read.exists() and target.samefile(read)  # a hard link has another path
        if is_read or real_path(target).is_relative_to(real_path(read)):
            where = "is" if is_read else "lies in"
            raise StorageError(f"{name}: {target} {where} {read}, which is read. Choose another file.")


def check_file(file: Path, mark: bytes, what: str, *, overwrite: bool | None = None) -> None:
    """Raise before any work unless ``file`` is new, begins or ends with the mark of ours, or ``overwrite`` is set.

    ``what`` names a file with this mark. ``overwrite`` is None where the caller has no such option.
    """
    refuse_special(file)
    if file.is_dir():
        raise ReleaseExistsError(f"{file} is a folder. Name a file to write, for example {file / 'page.html'}.")
    if not overwrite and os.path.lexists(real_path(file)) and not _has_mark(file, mark):
        remedy = "remove it yourself" if overwrite is None else "replace it: overwrite=True"
        raise ReleaseExistsError(f"{file} already exists, and is no {what}. Choose another file, or {remedy}.")


def _has_mark(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        beginning = file.read(_LOOKED_AT)
        file.seek(-min(_LOOKED_AT, file.seek(0, os.SEEK_END)), os.SEEK_END)
        return mark in beginning or mark in file.read(_LOOKED_AT)


def refuse_undecodable(path: str | Path) -> None:
    """Raise a StorageError for a path that Polars cannot read: Python keeps bytes that are no text as surrogates."""
    if _SURROGATE.search(str(path)):
        raise StorageError(about_undecodable(path))


def about_undecodable(name: object) -> str:
    """Say what to do about a name that is no text."""
    return (
        f"{str(name)!r} has bytes that are no {sys.getfilesystemencoding()}, and Polars reads names in UTF-8 only. "
        "Rename it, or if the name is UTF-8, export PYTHONUTF8=1."
    )


def expand_home(name: str) -> str:
    """Replace a leading ``~`` by the home folder; an unknown user's name stays, and so does an address.

    Example:
        >>> expand_home("~no-such-user/slices"), expand_home("s3://science//v2")
        ('~no-such-user/slices', 's3://science//v2')
    """
    return os.path.expanduser(name)  # noqa: PTH111 - Path.expanduser raises, and would mend the address


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path behind all symbolic links; one that leads to itself is returned as it is."""
    return Path(os.path.realpath(path))


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the content of a file, in hexadecimal. An OSError names the file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        error.filename = error.filename or os.fspath(path)  # a disk that fails in the middle names none
        raise


def list_visible(paths: Iterable[Path]) -> list[Path]:
    """Sort paths and leave out hidden ones: file managers, foreign disks and Spark put those anywhere."""
    return sorted(path for path in paths if not path.name.startswith("."))


def remove_folder(path: Path) -> None:
    """Remove a folder as far as possible. A file or link is not ours, and rmtree of a FIFO would wait for a writer."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
