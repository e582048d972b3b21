"""A folder that a run or an evaluation writes to: its lock, what it may not be, and errors of its disk."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from sciscidata.errors import StorageError
from sciscidata.release.release import MANIFEST
from sciscidata.storage import real_path, refuse_special
from sciscidata.storage.disk_errors import errors_about
from sciscidata.storage.lock import hold_folder
from sciscirl.errors import SciSciRLError

#: End of the message of a failure after which a run can be resumed.
RESUME_HINT: Final = " The run goes on from its last checkpoint: behavior_if_log_dir_exists=resume."
_DEPTH: Final = 4  # recipe / seed / checkpoints / checkpoint-50


@contextmanager
def locked_folder(
    folder: Path, *, user: str = "run", option: str = "log_path", error: type[SciSciRLError] = SciSciRLError
) -> Generator[None]:
    """Lock a folder, but no release, by its file ``.lock``, made if needed; messages name ``user`` and ``option``."""
    refuse_release(folder, option, error)
    in_use = f"{folder} is in use by another {user}. Stop it or wait for its end, or choose another {option}."
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_links(folder, option, error)
            stack.enter_context(hold_folder(folder, error(in_use)))
        except StorageError:
            raise
        except OSError as caught:
            raise error(_no_place(folder, caught, option)) from caught
        yield


def _refuse_links(folder: Path, option: str, error: type[SciSciRLError]) -> None:
    """Refuse a folder with links out of it, pipes or devices, as deep as anything is written there."""
    home = real_path(folder)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            refuse_special(path)
            if path.is_symlink() and not real_path(path).is_relative_to(home):
                raise error(
                    f"{path} is a link that leads out of {folder}, so that what is written there would land elsewhere. "
                    f"Remove the link, or choose another {option}."
                )
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = [name for name in folders if depth + 1 < _DEPTH and not name.startswith(".")]


def refuse_release(folder: Path, option: str, error: type[SciSciRLError] = SciSciRLError) -> None:
    """Make sure that nothing is written into a release; arguments as for ``locked_folder``."""
    try:
        is_release = (folder / MANIFEST).exists()
    except OSError as caught:  # a name that is too long, or a folder above that may not be read
        raise error(_no_place(folder, caught, option)) from caught
    if is_release:
        raise error(f"{folder} is a release, which nothing is added to. Choose another {option}.")


def _no_place(folder: Path, caught: OSError, option: str) -> str:
    return f"{folder} cannot be written: {caught.strerror}. Choose another {option}."


def expand_home(path: str) -> Path:
    """Return the folder that a setting names, with ``~`` expanded."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SciSciRLError(f"{path!r}: there is no such home. Write the folder out.") from error


@contextmanager
def disk_errors(folder: Path) -> Generator[None]:
    """Turn disk errors of a run, also those from the cookbook's loops, into one line."""
    with errors_about(folder, RESUME_HINT):
        try:
            yield
        except RuntimeError as error:
            if "inline_container" not in str(error):
                raise
            # PyTorch's writer of checkpoints, which does not say why.
            raise StorageError(
                f"cannot write {folder}: PyTorch failed at a checkpoint. Is the disk full? Free space.{RESUME_HINT}"
            ) from error
