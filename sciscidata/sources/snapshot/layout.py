"""Find the parts, the manifest and the deleted ids of an OpenAlex snapshot, without reading a part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from sciscidata.errors import InputNotFoundError
from sciscidata.storage.small_files import is_special, read_json

Edition: TypeAlias = Literal["jsonl", "parquet"]

# The layout of 2026, copies of a part of it, the one before (moved to legacy-data), or the folder of the works itself.
_HOMES: dict[Edition, tuple[str, ...]] = {
    "parquet": ("data/parquet/works", "parquet/works", "works", "."),
    "jsonl": ("data/jsonl/works", "jsonl/works", "data/works", "legacy-data/works", "works", "."),
}
_PART = re.compile(r"updated_date=([0-9]{4}-[0-9]{2}-[0-9]{2})/part_([0-9]+)(?:\.[a-z]+)*")
_SUFFIX: dict[Edition, str] = {"jsonl": ".gz", "parquet": ".parquet"}


class Part(msgspec.Struct, frozen=True):
    """One file of works: its path, and its entry in the manifest."""

    name: str  # as in the manifest: updated_date=YYYY-MM-DD/part_NNNN.gz
    path: str
    edition: Edition
    content_length: int | None = None  # bytes
    record_count: int | None = None

    @property
    def stem(self) -> str:
        """The name of the files that are made of it."""
        found = _PART.fullmatch(self.name)
        assert found is not None, self.name
        return f"part-{found[1]}-{found[2]}"


class Layout(msgspec.Struct, frozen=True):
    """The parts to read, oldest date first, and the problems of others."""

    folder: str  # of the works
    edition: Edition
    parts: list[Part]
    problems: dict[str, str]  # of listed parts: by name, what is wrong
    unlisted: list[str]  # parts that the manifest does not list, from an older copy
    deleted: list[str]  # files of deleted or merged ids
    date: str | None = None  # of the snapshot, if the manifest states it


def find_layout(folder: Path, edition: Edition | None, *, allow_missing_manifest: bool) -> Layout:
    """Find the works of a snapshot below ``folder``, and compare them with the manifest.

    The folder is the copy of the bucket, its ``data``, or any folder down to ``works``. Without ``edition``, Parquet
    comes first. The manifest is copied last, so a missing one means that the copy may be unfinished. A missing folder,
    part or manifest is an InputNotFoundError.

    Source: https://help.openalex.org/access/snapshot (2026), https://docs.openalex.org/download-all-data (before).
    """
    if not folder.is_dir():
        msg = f"snapshot folder {folder} does not exist. Set SnapshotConfig.folder to your copy of s3://openalex."
        raise InputNotFoundError(msg)
    found = next(_find_works(folder, (edition,) if edition else ("parquet", "jsonl")), None)
    if found is None:
        msg = (
            f"{folder} holds no {edition or 'jsonl or parquet'} part of works. Needed: "
            f"{_HOMES[edition or 'jsonl'][0]}/updated_date=YYYY-MM-DD/part_NNNN{_SUFFIX[edition or 'jsonl']}. "
            "Copy it: aws s3 sync s3://openalex/data/jsonl/works ... --no-sign-request."
        )
        raise InputNotFoundError(msg)
    edition, works, here = found
    manifest = _read_manifest(works)
    if manifest is None and not allow_missing_manifest:
        msg = (
            f"{works} has no manifest.json (before 2026: manifest), which is copied last: the copy is unfinished. "
            "Run the copy again, or read the existing parts with SnapshotConfig.allow_missing_manifest=True."
        )
        raise InputNotFoundError(msg)
    listed, date = manifest or ({name: {} for name in here}, None)
    parts: list[Part] = []
    problems: dict[str, str] = {}
    for name, meta in sorted(listed.items()):
        part = Part(name, str(works / name), edition, meta.get("content_length"), meta.get("record_count"))
        problem = _compare(part) if name in here else "is in the manifest, but not here"
        if problem:
            problems[name] = problem
        else:
            parts.append(part)
    return Layout(
        folder=str(works),
        edition=edition,
        parts=parts,
        problems=problems,
        unlisted=sorted(here - listed.keys()),
        deleted=[str(path) for path in _find_deleted(works)],
        date=date,
    )


def _find_works(folder: Path, editions: tuple[Edition, ...]) -> Iterator[tuple[Edition, Path, set[str]]]:
    for edition in editions:
        for home in _HOMES[edition]:
            found = (folder / home).glob(f"updated_date=*/part_*{_SUFFIX[edition]}")
            names = {path.relative_to(folder / home).as_posix() for path in found}
            if names := {name for name in names if _PART.fullmatch(name)}:
                yield edition, folder / home, names


def _compare(part: Part) -> str | None:
    if not Path(part.path).is_file():
        return "is a pipe, a device or a folder, not a file"
    size = Path(part.path).stat().st_size
    if part.content_length is None or size == part.content_length:
        return None
    return f"has {size:,} bytes, the manifest says {part.content_length:,}"


def _read_manifest(works: Path) -> tuple[dict[str, dict[str, int]], str | None] | None:
    """Read a manifest of any form: content_length and record_count by name, and the date."""
    for path in (works / "manifest.json", works / "manifest", works.parent / "manifest.json"):
        if not path.is_file() and not is_special(path):
            continue
        try:
            entry = _entry_of_works(read_json(path))
            files: list[Any] = entry.get("files") or entry["entries"]
            listed: dict[str, dict[str, int]] = {
                "/".join(str(file["url"]).split("/")[-2:]): dict(file.get("meta") or {}) for file in files
            }
        except OSError as error:
            msg = (
                f"the manifest {path} cannot be read: {error.strerror}. Copy it again, or delete it and set "
                "SnapshotConfig.allow_missing_manifest=True."
            )
            raise InputNotFoundError(msg) from error
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
            msg = (
                f"{path} is no manifest of works: it lacks 'files' (2026) or 'entries' (before) with url and meta. "
                "Copy it again, or delete it and set SnapshotConfig.allow_missing_manifest=True."
            )
            raise InputNotFoundError(msg) from None
        return {name: meta for name, meta in listed.items() if _PART.fullmatch(name)}, entry.get("date")
    return None


def _entry_of_works(manifest: Any) -> dict[str, Any]:  # noqa: ANN401
    """Take the entry of works from a manifest of all entities; a manifest of works stays as it is."""
    entities = manifest.get("entities")
    if entities is None:
        return manifest
    works = entities["works"] if isinstance(entities, dict) else next(e for e in entities if e["entity"] == "works")
    return {"date": manifest.get("date"), **works}


def _find_deleted(works: Path) -> list[Path]:
    """List the files of deleted ids: ``deleted_ids`` since August 2026, ``merged_ids`` before."""
    for folder in (works, works.parent, works.parent.parent):
        for name in ("deleted_ids.csv.gz", "deleted_ids.csv"):
            if _is_file(folder / name):
                return [folder / name]
    return sorted(path for path in (works.parent / "merged_ids" / "works").glob("*.csv*") if _is_file(path))


def _is_file(path: Path) -> bool:
    if is_special(path):
        msg = f"the list of deleted works {path} is a pipe or a device. Copy it again, or remove it to keep all works."
        raise InputNotFoundError(msg)
    return path.is_file()
