"""Make a new version of a corpus beside the old one, which can be read until all of the new one is there."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sciscidata.corpus.folder import FOLDERS, INDEX, MADE_OF, RECEIPTS, REMOVED_FILE, WRITTEN_BY, own_files
from sciscidata.storage import refuse_link, seal_json, storage_error, whole_when_done
from sciscidata.storage.atomic import flush
from sciscidata.storage.paths import remove_folder
from sciscidata.storage.seals import is_sealed_text
from sciscidata.storage.small_files import read_whole

#: In the folder of a corpus: files of its next version.
NEXT: Final = ".next"
_STAY: Final = "stay.json"  # written last there: files of the old version that are of the new one, too
_TABLES: Final = (*FOLDERS, RECEIPTS)


def home_of(place: Path) -> Path:
    """Return the folder of the corpus that is made in ``place``."""
    return place.parent if place.name == NEXT else place


def take_over(out: Path, stay: Collection[str]) -> None:
    """Let the whole version in NEXT become the corpus. Old files remain only if ``stay`` names them.

    A run that is killed leaves no corpus, or a whole one. The next run finishes it.
    """
    with whole_when_done(out / NEXT / _STAY) as unfinished:
        unfinished.write_bytes(seal_json({"files": sorted(stay)}))
    finish_take_over(out)


def finish_take_over(out: Path) -> None:
    """Finish what a killed run has begun. A version in NEXT that is not whole stays as it is."""
    new = out / NEXT
    for folder in (new, *(new / name for name in _TABLES)):
        refuse_link(folder)
    stay = _read_stay(new)
    if stay is None or not (new / INDEX).is_file():
        return
    try:
        _move(out, new, stay)
    except OSError as error:
        raise storage_error(error, out) from error


def _move(out: Path, new: Path, stay: set[str]) -> None:
    (out / INDEX).unlink(missing_ok=True)
    for name in _TABLES:
        fresh = own_files(new, name)
        kept = stay | {f"{name}/{path.name}" for path in fresh}
        for path in own_files(out, name):
            if f"{name}/{path.name}" not in kept:
                path.unlink()
        for path in fresh:
            (out / name).mkdir(exist_ok=True)
            path.replace(out / name / path.name)
        if (out / name).is_dir():
            flush(out / name)
    for name in (RECEIPTS, WRITTEN_BY):
        with suppress(OSError):  # none, or not empty
            (out / name).rmdir()
    for name in (REMOVED_FILE, MADE_OF, INDEX):  # the report makes the folder a corpus
        with suppress(FileNotFoundError):
            (new / name).replace(out / name)
    flush(out)
    remove_folder(new)


def _read_stay(new: Path) -> set[str] | None:
    try:
        content = read_whole(new / _STAY)
        names: Any = json.loads(content)["files"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return {str(name) for name in names} if isinstance(names, list) and is_sealed_text(content) else None
