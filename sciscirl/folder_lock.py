"""A folder that one process at a time works in."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from sciscidata.release import MANIFEST
from sciscidata.storage import real_path
from sciscirl.errors import SciSciRLError

_DEPTH: Final = 4  # group sizes / run / checkpoints / checkpoint-50


@contextmanager
def locked_folder(
    folder: Path, *, user: str = "run", option: str = "log_path", error: type[SciSciRLError] = SciSciRLError
) -> Generator[None]:
    """Hold a folder, made if need be, until the block ends or the process does, however it ends.

    Args:
        folder: where the lock lies, as ``.lock``.
        user: what holds it, for the message.
        option: by which another folder is chosen, for the message.
        error: the class to raise.

    Raises:
        SciSciRLError: if another process holds the folder, it cannot be written, a link in it leads out of it, through
            which other files would be written, or it is that of a slice, which would no longer be the one that its
            manifest describes.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home, locked_folder(Path(home, "run")):
        ...     [path.name for path in Path(home, "run").iterdir()]
        ['.lock']
    """
    refuse_slice(folder, option, error)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_links(folder, option, error)
        lock = FileLock(folder / ".lock", timeout=0)
        lock.acquire()
    except Timeout as caught:
        msg = f"{folder} is in use by another {user}. Stop it or wait for its end, or choose another {option}."
        raise error(msg) from caught
    except OSError as caught:
        raise error(_no_place(folder, caught, option)) from caught
    try:
        yield
    finally:
        lock.release()


def _refuse_links(folder: Path, option: str, error: type[SciSciRLError]) -> None:
    """Refuse a folder with links out of it, as deep as runs, evaluations, sweeps and servers write into theirs."""
    home = real_path(folder)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() and not real_path(path).is_relative_to(home):
                msg = (
                    f"{path} is a link that leads out of {folder}, so that what is written there would land elsewhere. "
                    f"Remove the link, or choose another {option}."
                )
                raise error(msg)
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = [name for name in folders if depth + 1 < _DEPTH and not name.startswith(".")]


def refuse_slice(folder: Path, option: str, error: type[SciSciRLError] = SciSciRLError) -> None:
    """Make sure that nothing is written into a slice; arguments as for ``locked_folder``.

    Raises:
        SciSciRLError: if the folder is that of a slice, or cannot be looked into.
    """
    try:
        is_slice = (folder / MANIFEST).exists()
    except OSError as caught:  # a name that is too long, or a folder above that may not be read
        raise error(_no_place(folder, caught, option)) from caught
    if is_slice:
        msg = f"{folder} is a slice, which nothing is added to. Choose another {option}."
        raise error(msg)


def _no_place(folder: Path, caught: OSError, option: str) -> str:
    return f"{folder} cannot be written: {caught.strerror}. Choose another {option}."
