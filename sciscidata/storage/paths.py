"""Which file or folder a name means, and what a file holds."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 1 << 30


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


def read_small_file(path: Path, *, most_bytes: int = _MOST_BYTES) -> bytes:
    """Read a whole file of notes or settings. A pipe or a device is refused: it might never end.

    Raises:
        OSError: it cannot be read, is no file, or is larger than ``most_bytes``.

    Example:
        >>> read_small_file(Path(os.devnull))
        Traceback (most recent call last):
        ...
        OSError: [Errno 22] It is no regular file: '/dev/null'
    """
    with open(path, "rb", buffering=0, opener=_open_at_once) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "It is no regular file", str(path))
        if state.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"It has more than {most_bytes:,} bytes", str(path))
        return file.read()


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # else a pipe waits for somebody to write


def hash_file(path: Path) -> str:
    """Return the SHA-256 of what a file holds, in hexadecimal.

    Raises:
        OSError: it cannot be read.

    Example:
        >>> hash_file(Path(os.devnull))[:8]
        'e3b0c442'
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
