"""May a result be written there? One answer for every file and folder that the packages make.

What is no regular file or folder is never replaced: a device, a pipe, a socket. A link is followed, and the same holds
for what it names. ``atomic.py`` asks for every result, and commands ask before any work.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from sciscidata.errors import ReleaseExistsError, StorageError
from sciscidata.storage.paths import real_path

_SPECIAL: Final = {
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFLNK: "a link that leads to itself",
    stat.S_IFSOCK: "a socket",
}
_LOOKED_AT: Final = 64 << 10  # bytes at each end; the mark of a PDF lies at its end


def refuse_special(target: Path) -> None:
    """Raise a StorageError if a device, a pipe or a socket lies where ``target`` leads to."""
    try:
        kind = stat.S_IFMT(real_path(target).lstat().st_mode)
    except OSError:  # nothing is there, or what is above says so when it is written
        return
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        what = _SPECIAL.get(kind, "no file and no folder")
        raise StorageError(f"cannot write {target}: it is {what}, which is never replaced. Choose another name.")


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
