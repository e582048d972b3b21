"""What a failing disk says, turned into an error that names the remedy."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sciscidata.errors import SciSciDataError, StorageError
from sciscidata.storage.paths import real_path

_IN_THE_WAY = "Something else is in the way: look at it, then move it or choose another folder."
_NOT_ALLOWED = "Choose a folder that you may write, or mend its permissions."
_REMEDIES = {
    errno.ENOSPC: "Free some disk space, or choose a folder on a larger disk.",
    errno.EDQUOT: "The disk quota is used up: free some space, or choose another folder.",
    errno.EFBIG: "The file system refuses files of this size: choose a folder on another disk.",
    errno.EROFS: "The disk is mounted read-only: choose a folder on another disk.",
    errno.EMFILE: "Allow this process more open files: ulimit -n 4096.",
    errno.EIO: "The disk reports an error: check it, or choose a folder on another disk.",
    errno.ENOENT: "The folder above it cannot be made: choose another folder.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTEMPTY: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.ELOOP: _IN_THE_WAY,
}
#: How the names of hidden folders end, see atomic.py and cache.py.
_HIDDEN = re.compile(r"\.(?:(?:tmp|new)-[0-9a-f]{16}|unfinished)(?=/|$)")


def storage_error(error: BaseException, path: Path, hint: str = "") -> StorageError:
    """Translate a failure to write ``path`` into an error that says what to do about it.

    Example:
        >>> from pathlib import Path
        >>> print(storage_error(OSError(28, "No space left on device"), Path("out")))
        cannot write out: No space left on device. Free some disk space, or choose a folder on a larger disk.
    """
    number = _error_number(error)
    reason = os.strerror(number) if number else str(error).rstrip(".")
    remedy = _REMEDIES.get(number or 0, "Check the disk and the path, then run again.")
    if remedy is _IN_THE_WAY and (file := next((above for above in path.parents if above.is_file()), None)):
        reason = f"{file} is a file, not a folder"
    return StorageError(f"cannot write {path}: {reason}. {remedy}{hint}")


def about_os_error(error: OSError) -> str | None:
    """Say in one line which file the system refused; None where the error names no file."""
    if error.filename is not None:
        problem = f"{os.fsdecode(error.filename)}: {error.strerror}"
    else:  # Polars sets neither number nor name, and names the file in its first line
        problem = str(error).partition("\n")[0].partition(" (set POLARS_VERBOSE")[0]
        if "(os error " not in problem:
            return None
    return f"{problem}. Check the path, its permissions and its disk."


@contextmanager
def errors_about(target: Path, hint: str = "") -> Generator[None]:
    """Turn what fails because of the disk of ``target`` into a StorageError; other errors pass through unchanged."""
    try:
        yield
    except BaseException as error:  # Polars' panics are no Exception
        if _is_about(error, target):
            raise storage_error(error, target, hint) from error
        raise


def _is_about(error: BaseException, target: Path) -> bool:
    """Whether the disk or the permissions of the target failed, and not some input that was read in the block."""
    if isinstance(error, SciSciDataError) or _error_number(error) not in _REMEDIES.keys() - {errno.ENOENT}:
        return False
    if isinstance(error, OSError) and error.filename:
        return _is_ours(Path(os.fsdecode(error.filename)), target)
    # Polars names a file in the text only, and of a long path only the end.
    named = re.search(r"\(os error [0-9]+\): (\.{3})?([^\n]+?)(?: \(set POLARS_VERBOSE=1 [^()]*\))?$", str(error), re.M)
    if named is None:
        return True
    return _is_end_of_ours(named[2], target) if named[1] else _is_ours(Path(named[2]), target)


def _is_ours(path: Path, target: Path) -> bool:
    """Whether a path is the target, in it, above it, or in a hidden folder beside it. Others may be inputs."""
    # Compared both as named and as resolved: other libraries resolve the path that they get.
    for one, other in ((path, target), (real_path(path), real_path(target))):
        if one.is_relative_to(other) or other.is_relative_to(one):
            return True
        if one.is_relative_to(other.parent):
            beside = one.relative_to(other.parent).parts[0]
            if beside.startswith(f".{other.name}.") and _HIDDEN.search(f"{beside}/"):
                return True
    return False


def _is_end_of_ours(end: str, target: Path) -> bool:
    """Whether the end of a path shows that it lies in a hidden folder of the target."""
    hidden = _HIDDEN.search(end)
    return hidden is not None and f".{target.name}".endswith(end[: hidden.start()].rpartition("/")[2])


def _error_number(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    # Polars passes the number on in the text only, and not always as an OSError.
    in_text = re.search(r"\(os error ([0-9]+)\)", str(error))
    return int(in_text[1]) if in_text else None
