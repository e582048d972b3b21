"""Which file or folder a name means, what a file holds, and how a folder goes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path


def expand_home(name: str) -> str:
    """Write a home for a leading ``~``; with the name of a user whom nobody knows it stays, as does an address.

    Example:
        >>> expand_home("~no-such-user/slices"), expand_home("s3://science//v2")
        ('~no-such-user/slices', 's3://science//v2')
    """
    return os.path.expanduser(name)  # noqa: PTH111 - Path.expanduser raises, and would mend the address


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path behind all symbolic links; one that leads to itself is returned as it is.

    Example:
        >>> real_path("/a/b/../c").as_posix()
        '/a/c'
    """
    return Path(os.path.realpath(path))


def hash_file(path: Path) -> str:
    """Return the SHA-256 of what a file holds, in hexadecimal.

    Raises:
        OSError: it cannot be read.

    Example:
        >>> hash_file(Path(os.devnull))[:8]
        'e3b0c442'
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        error.filename = error.filename or os.fspath(path)  # a disk that fails in the middle names none
        raise


def list_visible(paths: Iterable[Path]) -> list[Path]:
    """Sort paths, without hidden ones: file managers, foreign disks and Spark leave those anywhere.

    Example:
        >>> [path.name for path in list_visible([Path("b"), Path(".DS_Store"), Path("a")])]
        ['a', 'b']
    """
    return sorted(path for path in paths if not path.name.startswith("."))


def remove_folder(path: Path) -> None:
    """Remove a folder with what is in it, as far as that is possible.

    Anything else of that name stays: a file and a link are not ours, and rmtree of a FIFO would wait for a writer.

    Example:
        >>> remove_folder(Path("no/such/folder"))
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
