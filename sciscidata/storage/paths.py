"""Which file or folder a name means."""

from __future__ import annotations

import os
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
