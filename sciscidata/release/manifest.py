"""The manifest of a release: what the release holds, how it is described, and how it is read back."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

import polars as pl

from sciscidata.errors import ConfigError, InputNotFoundError, VerificationError
from sciscidata.label_thresholds import LabelThresholds, count_labels
from sciscidata.own_label import OwnLabel, stated_label, vocabularies
from sciscidata.sampling.eligibility import LATER_FILTERS
from sciscidata.sampling.split import SPLITS, SplitConfig
from sciscidata.storage import hash_file
from sciscidata.storage.small_files import read_json

#: Grows when a reader of older releases would misread a newer one.
FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
#: What every release holds; ``list_data_files`` names the files of a development split too.
DATA_FILES: Final = ("train.jsonl", "train.parquet", "test.jsonl", "test.parquet")
#: What the scores follow from, in every release but those made without it, and before it was known.
SCORES_FILE: Final = "scores.parquet"
#: What describes a release, and follows from its manifest: the card, Croissant metadata, and how to cite it. A hub or
#: an author may change these, and ``verify`` says so.
CARD, CROISSANT, CITATION = "README.md", "croissant.json", "CITATION.cff"
DOCUMENTS: Final = (CARD, CROISSANT, CITATION)
#: What hubs put beside a release: settings of Git, its history, and notes of a download.
_OF_HUBS: Final = re.compile(r"\.gitattributes|\.git(?:/.*)?|\.cache/huggingface/.*", re.DOTALL)
#: What ``build`` adds to them, each where there is something to draw.
PICTURES: Final = ("comparison.png", "disruption.png", "label.png", "novelty.png", "novelty_by_year.png")
NOVELTY_COLUMNS: Final = ("novelty_score", "conventionality_score", "novelty_label")

_SELF_HASH: Final = "manifest_sha256"
_OWN_KEYS: Final = ("class_counts", "files", "format_version", _SELF_HASH, "novelty", "sides", "versions")
_PACKAGES: Final = ("sciscidata", "polars", "pyarrow", "numpy", "numba", "matplotlib")

REMEDY: Final = "Copy the release again, or rebuild it."


def list_splits(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the splits of a release, train first; dev only where its rows are on record.

    Example:
        >>> list_splits({"sides": {"dev": {}, "test": {}, "train": {}}}), list_splits({})
        (('train', 'test', 'dev'), ('train', 'test'))
    """
    sides = manifest.get("sides")
    return tuple(split for split in SPLITS if split != "dev" or (isinstance(sides, dict) and split in sides))


def lacks_scores(manifest: Mapping[str, Any]) -> bool:
    """Whether the works of a release came from files without scores, so that it has its own label only.

    Example:
        >>> lacks_scores({"source": {"filters_left_out": ["no_year", "undefined_score"]}}), lacks_scores({})
        (True, False)
    """
    return "undefined_score" in list_left_out(manifest)


def list_left_out(manifest: Mapping[str, Any]) -> list[str]:
    """Name the filters whose columns labelled files lacked, so that they were not applied."""
    source = manifest.get("source")
    left_out = cast("dict[str, Any]", source).get("filters_left_out") if isinstance(source, dict) else None
    return cast("list[str]", left_out) if isinstance(left_out, list) else []


def list_data_files(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the files of the splits of a release, and the file of scores if the manifest lists it.

    Example:
        >>> list_data_files({"files": {"scores.parquet": {}}})
        ('train.jsonl', 'train.parquet', 'test.jsonl', 'test.parquet', 'scores.parquet')
    """
    files = manifest.get("files")
    scores = (SCORES_FILE,) if isinstance(files, dict) and SCORES_FILE in files else ()
    return (*DATA_FILES, *(("dev.jsonl", "dev.parquet") if "dev" in list_splits(manifest) else ()), *scores)


def complete_manifest(stated: Mapping[str, Any], examples: Mapping[str, pl.DataFrame], folder: Path) -> dict[str, Any]:
    """Add to the caller's part of a manifest what the rows and the files in ``folder`` say.

    ``stated`` has passed check_stated; ``examples`` are EXAMPLE rows by split. The manifest is sealed with its own
    SHA-256. It holds no time and no path, nothing that differs between two equal runs.
    """
    whole = {
        **_without_later_options(stated),
        **describe_examples(examples, stated_label(stated)),
        "format_version": FORMAT_VERSION,
        "versions": {package: version(package) for package in _PACKAGES} | {"python": platform.python_version()},
        "files": {name: describe_file(folder / name) for name in list_files(folder)},
    }
    return whole | {_SELF_HASH: hash_manifest(whole)}


def _without_later_options(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out options that are off and that older releases knew nothing of, so that a manifest keeps its bytes."""
    kept = {**stated, "split": {name: value for name, value in stated["split"].items() if name != "n_dev" or value}}
    chosen = stated.get("eligibility")
    if isinstance(chosen, Mapping):
        off = {name: option for name, option in LATER_FILTERS.items() if not chosen.get(option)}
        kept["eligibility"] = {name: value for name, value in chosen.items() if name not in off.values()}
        counts = stated.get("counts")
        if isinstance(counts, Mapping) and isinstance(counts.get("filters"), Mapping):
            filters = {name: n for name, n in counts["filters"].items() if n or name not in off}
            kept["counts"] = {**counts, "filters": filters}
    return kept


def hash_manifest(manifest: Mapping[str, Any]) -> str:
    """Compute ``manifest_sha256``: the SHA-256 of the manifest as written, without that line.

    Example:
        >>> sealed = {"seed": 0, "manifest_sha256": hash_manifest({"seed": 0})}
        >>> hash_manifest(sealed) == sealed["manifest_sha256"]
        True
    """
    return _sha256(render_manifest({key: value for key, value in manifest.items() if key != _SELF_HASH}))


def check_stated(manifest: Mapping[str, Any]) -> None:
    """Check the caller's part of a manifest before anything is computed for it.

    A ConfigError says that it lacks ``thresholds`` or ``split``, sets a key that is written here, or is not JSON.

    Example:
        >>> check_stated({"files": {}})
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: the manifest's files is written by write_release. Rename or drop it.
    """
    taken = sorted(set(manifest) & set(_OWN_KEYS))
    if taken:
        msg = f"the manifest's {', '.join(taken)} is written by write_release. Rename or drop it."
        raise ConfigError(msg)
    read_settings(manifest)
    stated_label(manifest)
    render_manifest(manifest)


def render_manifest(manifest: Mapping[str, Any]) -> bytes:
    r"""Write a manifest as JSON: UTF-8, sorted keys, two spaces; a ConfigError if it is not JSON.

    Example:
        >>> render_manifest({"seed": 0})
        b'{\n  "seed": 0\n}\n'
    """
    try:
        return f"{json.dumps(manifest, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=2)}\n".encode()
    except (TypeError, ValueError) as error:
        msg = f"the manifest cannot be written as JSON: {error}. Give JSON types only, undefined as None."
        raise ConfigError(msg) from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read ``manifest.json`` alone.

    An InputNotFoundError says that it is not there, or cannot be opened; a VerificationError, that this version cannot
    read it, or that it was changed after it was written.
    """
    try:
        manifest = read_json(folder / MANIFEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        why = f"it has no {MANIFEST}" if folder.is_dir() else "no such folder is there"
        msg = f"{folder} is not a release: {why}. Check the path, or build one: sciscidata build."
        raise InputNotFoundError(msg) from error
    except OSError as error:
        msg = f"{folder / MANIFEST} cannot be read: {error.strerror}. Check what lies there, and its permissions."
        raise InputNotFoundError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{folder / MANIFEST} is not JSON ({error}). {REMEDY}"
        raise VerificationError(msg) from error
    found = cast("dict[str, Any]", manifest).get("format_version") if isinstance(manifest, dict) else None
    if found != FORMAT_VERSION:
        msg = (
            f"{folder / MANIFEST} has format_version {found!r}, this version of sciscidata reads "
            f"{FORMAT_VERSION}. Install the version of sciscidata that it names under 'versions'."
        )
        raise VerificationError(msg)
    stated = manifest.get(_SELF_HASH)
    try:
        digest = hash_manifest(manifest)
    except ConfigError as error:  # NaN, or half of a surrogate pair: never written here
        digest = str(error)
    if digest != stated:
        what = f"was changed after it was written: {_SELF_HASH} is {stated!r}, found {digest!r}"
        msg = f"{folder / MANIFEST} {what}. {REMEDY}"
        raise VerificationError(msg)
    return manifest


def describe_examples(examples: Mapping[str, pl.DataFrame], label: OwnLabel | None = None) -> dict[str, Any]:
    r"""Derive the part of a manifest that follows from the rows alone (EXAMPLE, by split), and can be derived again.

    ``sides`` has the rows of each split, and the SHA-256 of the ids in order, joined by ``\n``; ``class_counts`` the
    works by split and label column; ``novelty`` says whether the novelty columns hold anything.
    """
    novel = any(frame[column].null_count() < frame.height for frame in examples.values() for column in NOVELTY_COLUMNS)
    novelty: dict[str, Any] = {"available": novel}
    if not novel:
        novelty["note"] = f"{', '.join(NOVELTY_COLUMNS)} are null in every row."
    return {
        "sides": {
            split: {
                "rows": frame.height,
                "ids_sha256": _sha256("\n".join(frame["openalex_id"].drop_nulls()).encode()),
            }
            for split, frame in examples.items()
        },
        "class_counts": {
            split: {column: count_labels(frame, column, words) for column, words in vocabularies(label).items()}
            for split, frame in examples.items()
        },
        "novelty": novelty,
    }


def describe_file(path: Path) -> dict[str, Any]:
    """Measure one file as the manifest records it: ``bytes`` and ``sha256``."""
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def list_files(folder: Path) -> list[str]:
    """Name every file and every link under ``folder``, with forward slashes, sorted, without what hubs add."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = sorted(path.relative_to(folder).as_posix() for path in paths)
    return [name for name in names if not _OF_HUBS.fullmatch(name)]


def copy_what_git_keeps(folder: Path, new: Path) -> None:
    """Copy the history and the settings of Git from a release to the one that replaces it."""
    for name in (".git", ".gitattributes"):
        kept = folder / name
        if kept.is_dir() and not kept.is_symlink():
            shutil.copytree(kept, new / name, symlinks=True)
        elif os.path.lexists(kept):
            shutil.copy2(kept, new / name, follow_symlinks=False)


def read_settings(manifest: Mapping[str, Any]) -> tuple[LabelThresholds, SplitConfig]:
    """Read back the thresholds and the split that a manifest names; a ConfigError if either is missing or impossible.

    Example:
        >>> read_settings({"thresholds": {}, "split": {"seed": 7}})[1].seed
        7
    """
    try:
        return LabelThresholds(**manifest["thresholds"]), SplitConfig(**manifest["split"])
    except (KeyError, TypeError) as error:
        msg = (
            f"the manifest's thresholds and split cannot be read ({error!r}). Give both, as "
            "dataclasses.asdict of LabelThresholds and SplitConfig."
        )
        raise ConfigError(msg) from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
