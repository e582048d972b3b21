"""SHA256SUMS, as ``sha256sum -c`` reads it: its form, which files differ from it, and the list beside those of a run.

A file of a run is entered when it is written, and compared when it is read.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from sciscidata.errors import ChangedFileError, ReleaseExistsError
from sciscidata.storage.atomic import atomic_file, whole_when_done
from sciscidata.storage.disk_errors import errors_about
from sciscidata.storage.lock import one_at_a_time
from sciscidata.storage.paths import hash_file, refuse_special
from sciscidata.storage.small_files import is_special, read_whole
from sciscidata.storage.small_files import read_json as read_any_json

#: The name of the list.
SUMS: Final = "SHA256SUMS"
#: Folders whose files stand in the list of the folder above, so that none can be taken from another run.
_PARTS: Final = ("predictions", "cells")
_log = logging.getLogger(__name__)


def render_sums(sums: Iterable[tuple[str, str]]) -> str:
    """Write a list: each name with its SHA-256."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums)


def parse_sums(text: str) -> Iterator[tuple[str, str]]:
    """Yield each name of a list with its SHA-256."""
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        yield name, digest


def find_damaged(folder: Path, sums: Mapping[str, str]) -> list[str]:
    """Return the names of files that are missing or differ from their SHA-256; an unreadable one is an OSError."""

    def is_whole(item: tuple[str, str]) -> bool:
        path = folder / item[0]
        try:
            return path.is_file() and hash_file(path) == item[1]  # reading a pipe would wait
        except FileNotFoundError:
            return False

    with ThreadPoolExecutor(4) as pool:
        return [name for name, whole in zip(sums, pool.map(is_whole, sums.items()), strict=True) if not whole]


@contextmanager
def sealed_file(target: Path) -> Generator[Path]:
    """Write a file as ``atomic_file`` does, and enter its SHA-256 in SHA256SUMS, beside the old one until the end.

    A file that is there already is replaced if SHA256SUMS lists it, or if lines are added to it before it is sealed.
    """
    if target.suffix != ".jsonl":
        check_ours(target)
    with atomic_file(target) as unfinished:
        yield unfinished
        written = hash_file(unfinished)
        home, name = _place(target)
        if older := [one for one in (_read(home) or {}).get(name, []) if one != written]:
            _enter(target, *older, written)
        else:
            _enter(target, written)
    if older:
        _enter(target, written)


def check_ours(*targets: Path) -> None:
    """Raise before any work if something lies at one of the targets that SHA256SUMS does not list."""
    for target in targets:
        refuse_special(target)
        if target.exists() and not is_listed(target):
            raise ReleaseExistsError(
                f"{target} already exists, and {SUMS} beside it does not list it. Choose another folder, or remove it "
                "yourself."
            )


def seal_file(path: Path) -> None:
    """Enter a file as it is now."""
    _enter(path, hash_file(path))


def remove_sealed(path: Path) -> None:
    """Remove a file, and its entry."""
    path.unlink(missing_ok=True)
    if is_listed(path):
        _enter(path)


def is_listed(path: Path) -> bool:
    """Whether SHA256SUMS names a file."""
    home, name = _place(path)
    return name in (_read(home) or {})


def check_sealed(path: Path, *, grows: bool = False) -> None:
    """Compare a file with SHA256SUMS. One that ``grows`` is compared up to its end at entry, and may be missing there.

    A folder without a list is another program's: one warning says so.
    """
    home, name = _place(path)
    listed = _read(home)
    if is_special(path) or not path.exists():  # what reads it says so
        return
    if listed is None:
        if not grows:
            _warn(home)
        return
    sums = listed.get(name, [])
    if (grows and not sums) or any(digest in sums for digest in _hash(path, grows=grows)):
        return
    what = "differs from what was written" if sums else "is not in the list"
    raise ChangedFileError(
        f"{path} {what} ({home / SUMS}): it is damaged, or of another run. Put it back as it was, or leave it out."
    )


def read_json(path: Path, **limit: int) -> Any:  # noqa: ANN401
    """Read a JSON file that SHA256SUMS lists; errors are those of ``check_sealed`` and ``small_files.read_json``."""
    check_sealed(path)
    return read_any_json(path, **limit)


def find_changed(folder: Path) -> list[str]:
    """Name the listed files of a folder that are missing or differ from the list."""
    return [
        name
        for name, sums in (_read(folder) or {}).items()
        if not (folder / name).is_file()
        or not any(digest in sums for digest in _hash(folder / name, grows=name.endswith(".jsonl")))
    ]


def _place(path: Path) -> tuple[Path, str]:
    """Return the folder of the list, and the name in it."""
    if path.parent.name in _PARTS:
        return path.parent.parent, f"{path.parent.name}/{path.name}"
    return path.parent, path.name


def _hash(path: Path, *, grows: bool) -> Iterator[str]:
    if not grows:
        yield hash_file(path)
        return
    digest = hashlib.sha256()
    yield digest.hexdigest()
    with path.open("rb") as file:
        for line in file:
            digest.update(line)
            yield digest.hexdigest()


def _read(home: Path) -> dict[str, list[str]] | None:
    """Read a list; None without one. A file that is being replaced has two sums."""
    try:
        text = read_whole(home / SUMS).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    listed: dict[str, list[str]] = {}
    for name, written in parse_sums(text):
        listed.setdefault(name, []).append(written)
    return listed


def _enter(path: Path, *sums: str) -> None:
    home, name = _place(path)
    with errors_about(path), one_at_a_time(home):
        listed = {**(_read(home) or {}), name: [*sums]}
        with whole_when_done(home / SUMS) as new:
            new.write_text(render_sums((each, one) for each in sorted(listed) for one in listed[each]), "utf-8")


@cache
def _warn(home: Path) -> None:
    _log.warning("%s has no %s: damage to its files does not show.", home.absolute(), SUMS)
