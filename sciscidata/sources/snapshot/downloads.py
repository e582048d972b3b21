"""Copies of objects of a store while they are read: an interrupted one continues where it ended."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from sciscidata.errors import CorruptRecordError
from sciscidata.remote.object_store import RETRIES, Store, StoredObject
from sciscidata.storage.lock import open_lock, try_lock

_DOWNLOADS = ".downloads"  # in the folder of the corpus


class Reach(msgspec.Struct, frozen=True):
    """How a worker reaches the store: options without credentials, which are in its environment."""

    options: dict[str, Any] = {}

    def open(self, url: str, *, n_retries: int = RETRIES) -> Store:
        """Open the bucket of a URL."""
        return Store(url, self.options, n_retries)


def name_download(found: StoredObject) -> str:
    """Return the name of the copy of an object: another version has another name, and the ending stays."""
    digest = hashlib.sha256("\n".join(map(str, msgspec.structs.astuple(found))).encode()).hexdigest()[:16]
    return f"{digest}-{PurePosixPath(found.url).name}"


@contextmanager
def downloaded(
    found: StoredObject, out: Path, reach: Reach, advance: Callable[[float], None], *, keep: bool = False
) -> Generator[Path]:
    """Download an object for the block, or what a killed run left of it; remove the copy after it, also if corrupt.

    Other errors leave it for the next run. A second process for the same object, which an engine may start, has its own
    copy.
    """
    folder = out / _DOWNLOADS
    folder.mkdir(parents=True, exist_ok=True)
    name = name_download(found)
    with open_lock(folder / f"{name}.lock") as lock:
        is_ours = False
        with suppress(OSError):  # a disk without locks
            is_ours = try_lock(lock)
        copy = folder / (name if is_ours else f"{secrets.token_hex(8)}-{name}")
        try:
            reach.open(found.url).download(found, copy, advance)
            yield copy
        except CorruptRecordError:
            copy.unlink(missing_ok=True)
            raise
        finally:
            if not is_ours:
                copy.unlink(missing_ok=True)
        if not keep:
            copy.unlink(missing_ok=True)


def tidy_downloads(out: Path, wanted: set[str]) -> None:
    """Remove all copies but those of some names, and their locks. A worker of a killed run may still hold one."""
    for path in (out / _DOWNLOADS).glob("*"):
        if path.name.removesuffix(".lock") not in wanted:
            path.unlink(missing_ok=True)
    with suppress(OSError):
        (out / _DOWNLOADS).rmdir()
