"""Names that a file states, such as those in a report or a manifest: checked before they become paths."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sciscidata.errors import UnsafeNameError
from sciscidata.storage.disk import real_path

_LONGEST_SHOWN: Final = 80


def path_inside(folder: Path, name: object, *, stated_by: object) -> Path:
    """Turn a name that a file states into a path below ``folder``.

    Every name that was read from a file goes through here: whoever wrote the file may have been mistaken, or hostile.
    A name is plain parts joined by ``/``. Links are followed only as far as they stay in ``folder``.

    Args:
        folder: where the file has to lie; it may itself be reached by a link.
        name: what the file states, of any type.
        stated_by: the file that states it, for the message.

    Returns:
        ``folder / name``, which need not exist.

    Raises:
        UnsafeNameError: the name is no text, is absolute, leaves the folder, holds a control character, or a link
            leads it out of the folder.

    Example:
        >>> path_inside(Path("corpus"), "works/part-000000.parquet", stated_by="corpus.json").as_posix()
        'corpus/works/part-000000.parquet'
        >>> path_inside(Path("corpus"), "../thesis.tex", stated_by="corpus.json")
        Traceback (most recent call last):
        ...
        sciscidata.errors.UnsafeNameError: corpus.json names '../thesis.tex', which is not a file inside corpus. The
        file is damaged, or was made to mislead: get it again from where it came, or make it anew.
    """
    if isinstance(name, str) and is_plain_name(name):
        path = folder / name
        if real_path(path).is_relative_to(real_path(folder)):
            return path
        problem = "which a link leads out of"
    else:
        problem = "which is not a file inside"
    shown = repr(name) if len(repr(name)) <= _LONGEST_SHOWN else f"{repr(name)[:_LONGEST_SHOWN]}..."
    msg = (
        f"{stated_by} names {shown}, {problem} {folder}. The file is damaged, or was made to mislead: get it again "
        "from where it came, or make it anew."
    )
    raise UnsafeNameError(msg)


def is_plain_name(name: str) -> bool:
    r"""Whether a name is parts joined by ``/`` that stay below any folder, on any system.

    Example:
        >>> [is_plain_name(name) for name in ("a/b.txt", "", "/etc/passwd", "a/../b", "a//b", "C:\\a", "a\x1b[2J")]
        [True, False, False, False, False, False, False]
    """
    parts = name.split("/")
    return all(part not in ("", ".", "..") for part in parts) and name.isprintable() and not {"\\", ":"} & set(name)
