"""Find the parts, manifest and deleted ids of an OpenAlex snapshot, in a folder or a store; read no part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal, TypeAlias

import msgspec

from sciscidata.errors import InputNotFoundError
from sciscidata.remote.object_store import Store, StoredObject
from sciscidata.storage.small_files import is_special, parse_json, read_json

Edition: TypeAlias = Literal["jsonl", "parquet"]
#: A file of this machine, or an object in a store.
File: TypeAlias = Path | StoredObject

# The layout of 2026, copies of a part, the layout before (moved to legacy-data), or the works' own folder.
_HOMES: dict[Edition, tuple[str, ...]] = {
    "parquet": ("data/parquet/works", "parquet/works", "works", "."),
    "jsonl": ("data/jsonl/works", "jsonl/works", "data/works", "legacy-data/works", "works", "."),
}
_PART = re.compile(r"updated_date=([0-9]{4}-[0-9]{2}-[0-9]{2})/part_([0-9]+)(?:\.[a-z]+)*")
_SUFFIX: dict[Edition, str] = {"jsonl": ".gz", "parquet": ".parquet"}


class Part(msgspec.Struct, frozen=True):
    """One file of works: its path (in a store its URL), and its entry in the manifest."""

    name: str  # as in the manifest: updated_date=YYYY-MM-DD/part_NNNN.gz
    path: str
    edition: Edition
    content_length: int | None = None  # bytes
    record_count: int | None = None
    stored: StoredObject | None = None  # in a store: what it lists

    @property
    def stem(self) -> str:
        """The name of the files that are made of it."""
        found = _PART.fullmatch(self.name)
        assert found is not None, self.name
        return f"part-{found[1]}-{found[2]}"

    @property
    def year(self) -> int:
        """The year of its date."""
        return int(self.name.partition("=")[2][:4])

    @property
    def size(self) -> int:
        """Its bytes, as they lie there now, or as the store lists them."""
        return self.stored.size if self.stored else Path(self.path).stat().st_size


class Layout(msgspec.Struct, frozen=True):
    """The parts to read, oldest date first, and the problems of others."""

    folder: str  # of the works
    edition: Edition
    parts: list[Part]
    problems: dict[str, str]  # of listed parts: by name, what is wrong
    unlisted: list[str]  # parts that the manifest does not list, from an older copy
    deleted: list[File]  # of deleted or merged ids
    date: str | None = None  # of the snapshot, if the manifest states it


def find_layout(place: Path | Store, edition: Edition | None, *, allow_missing_manifest: bool) -> Layout:
    """Find the works of a snapshot below a folder or in a store, Parquet first, and compare them with the manifest.

    The folder is the bucket, its copy, or any folder down to ``works``. A missing manifest, which is written last,
    means an unfinished copy. Source: https://help.openalex.org/access/snapshot (2026),
    https://docs.openalex.org/download-all-data (before).
    """
    home = _Bucket(place) if isinstance(place, Store) else _Disk(place)
    home_of_works = next(_find_works(home, (edition,) if edition else ("parquet", "jsonl")), None)
    if home_of_works is None:
        raise InputNotFoundError(
            f"{home.show(home.root)} holds no {edition or 'jsonl or parquet'} part of works. Needed: "
            f"{_HOMES[edition or 'jsonl'][0]}/updated_date=YYYY-MM-DD/part_NNNN{_SUFFIX[edition or 'jsonl']}. "
            f"{home.remedy}"
        )
    edition, works, here = home_of_works
    manifest = _read_manifest(home, works)
    if manifest is None and not allow_missing_manifest:
        raise InputNotFoundError(
            f"{home.show(works)} has no manifest.json (before 2026: manifest), which is copied last: the copy "
            "is unfinished. Run the copy again, or read the existing parts with "
            "SnapshotConfig.allow_missing_manifest=True."
        )
    listed, date = manifest or ({name: {} for name in here}, None)
    parts: list[Part] = []
    problems: dict[str, str] = {}
    for name, meta in sorted(listed.items()):
        file = here.get(name)
        stored, path = (file, file.url) if isinstance(file, StoredObject) else (None, str(file))
        part = Part(name, path, edition, meta.get("content_length"), meta.get("record_count"), stored)
        problem = _compare(part) if file else "is in the manifest, but not here"
        if problem:
            problems[name] = problem
        else:
            parts.append(part)
    return Layout(
        folder=home.show(works),
        edition=edition,
        parts=parts,
        problems=problems,
        unlisted=sorted(here.keys() - listed.keys()),
        deleted=_find_deleted(home, works),
        date=date,
    )


class _Disk:
    """A folder of this machine."""

    remedy = "Copy it: aws s3 sync s3://openalex/data/jsonl/works ... --no-sign-request."

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputNotFoundError(
                f"snapshot folder {folder} does not exist. Set SnapshotConfig.folder to your copy of s3://openalex."
            )
        self.root: PurePath = folder

    def show(self, place: PurePath) -> str:
        """Name a place in it for a message."""
        return str(place)

    def parts(self, works: PurePath, suffix: str) -> dict[str, File]:
        """List the files that may be parts by their path below ``works``."""
        found = Path(works).glob(f"updated_date=*/part_*{suffix}")
        return {path.relative_to(works).as_posix(): path for path in found}

    def find(self, folder: PurePath, *names: str) -> File | None:
        """Find the first of some files in a folder."""
        paths = (Path(folder, name) for name in names)
        return next((path for path in paths if path.is_file() or is_special(path)), None)

    def lists(self, folder: PurePath) -> list[File]:
        """List the CSV files in a folder."""
        return [path for path in sorted(Path(folder).glob("*.csv*")) if path.is_file() or is_special(path)]

    def read(self, file: File) -> Any:  # noqa: ANN401 (JSON)
        """Read a JSON file."""
        assert isinstance(file, Path)
        return read_json(file)


class _Bucket:
    """A folder in a store. Folders are listed instead of asking for files that may not be there."""

    remedy = "Check the address: the public snapshot is s3://openalex."

    def __init__(self, store: Store) -> None:
        self._store = store
        self.root: PurePath = PurePosixPath(store.folder)
        self._folders: dict[PurePath, dict[str, StoredObject]] = {}

    def show(self, place: PurePath) -> str:
        """Name a place in it for a message."""
        return f"{self._store.bucket}/{place}".removesuffix("/.")

    def parts(self, works: PurePath, suffix: str) -> dict[str, File]:
        """List the objects that may be parts by their key below ``works``."""
        found = self._store.list_below(str(works)).items()
        return {PurePosixPath(key).relative_to(works).as_posix(): one for key, one in found if key.endswith(suffix)}

    def find(self, folder: PurePath, *names: str) -> File | None:
        """Find the first of some objects in a folder."""
        there = self._files(folder)
        return next((there[name] for name in names if name in there), None)

    def lists(self, folder: PurePath) -> list[File]:
        """List the CSV files in a folder."""
        return [one for name, one in sorted(self._files(folder).items()) if ".csv" in name]

    def read(self, file: File) -> Any:  # noqa: ANN401 (JSON)
        """Read a JSON file."""
        assert isinstance(file, StoredObject)
        return parse_json(self._store.read(file))

    def _files(self, folder: PurePath) -> dict[str, StoredObject]:
        if folder not in self._folders:
            self._folders[folder] = self._store.list_in(str(folder))
        return self._folders[folder]


_Home: TypeAlias = _Disk | _Bucket


def _find_works(home: _Home, editions: tuple[Edition, ...]) -> Iterator[tuple[Edition, PurePath, dict[str, File]]]:
    for edition in editions:
        for inside in _HOMES[edition]:
            files = home.parts(home.root / inside, _SUFFIX[edition])
            if files := {name: file for name, file in files.items() if _PART.fullmatch(name)}:
                yield edition, home.root / inside, files


def _compare(part: Part) -> str | None:
    if not part.stored and not Path(part.path).is_file():
        return "is a pipe, a device or a folder, not a file"
    if part.content_length is None or part.size == part.content_length:
        return None
    return f"has {part.size:,} bytes, the manifest says {part.content_length:,}"


def _read_manifest(home: _Home, works: PurePath) -> tuple[dict[str, dict[str, int]], str | None] | None:
    """Read a manifest of any form: content_length and record_count by name, and the date."""
    file = home.find(works, "manifest.json", "manifest") or home.find(works.parent, "manifest.json")
    if file is None:
        return None
    path = file.url if isinstance(file, StoredObject) else file
    try:
        entry = _entry_of_works(home.read(file))
        files: list[Any] = entry.get("files") or entry["entries"]
        listed: dict[str, dict[str, int]] = {
            "/".join(str(file["url"]).split("/")[-2:]): dict(file.get("meta") or {}) for file in files
        }
    except InputNotFoundError:
        raise
    except OSError as error:
        raise InputNotFoundError(
            f"the manifest {path} cannot be read: {error.strerror}. Copy it again, or delete it and set "
            "SnapshotConfig.allow_missing_manifest=True."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        raise InputNotFoundError(
            f"{path} is no manifest of works: it lacks 'files' (2026) or 'entries' (before) with url and meta. "
            "Copy it again, or delete it and set SnapshotConfig.allow_missing_manifest=True."
        ) from None
    return {name: meta for name, meta in listed.items() if _PART.fullmatch(name)}, entry.get("date")


def _entry_of_works(manifest: Any) -> dict[str, Any]:  # noqa: ANN401
    """Take the entry of works from a manifest of all entities; a manifest of works stays as it is."""
    entities = manifest.get("entities")
    if entities is None:
        return manifest
    works = entities["works"] if isinstance(entities, dict) else next(e for e in entities if e["entity"] == "works")
    return {"date": manifest.get("date"), **works}


def _find_deleted(home: _Home, works: PurePath) -> list[File]:
    """List the files of deleted ids: ``deleted_ids`` since August 2026, ``merged_ids`` before."""
    names = ("deleted_ids.csv.gz", "deleted_ids.csv")
    folders = (works, works.parent, works.parent.parent)
    found = next((file for folder in folders if (file := home.find(folder, *names))), None)
    files = [found] if found else home.lists(works.parent / "merged_ids" / "works")
    for path in files:
        if isinstance(path, Path) and is_special(path):
            raise InputNotFoundError(
                f"the list of deleted works {path} is a pipe or a device. Copy it again, or remove it to keep all "
                "works."
            )
    return files
