"""Paths: checked names that a file states, links resolved, files hashed, folders listed and removed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sciscidata.errors import StorageError, UnsafeNameError

_LONGEST_SHOWN: Final = 80
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


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
