"""The manifest of a release: what the release holds, how it is described, and how it is read back."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec
import polars as pl

from sciscidata.errors import ConfigError, InputNotFoundError, VerificationError
from sciscidata.label_thresholds import LabelThresholds, count_labels
from sciscidata.options.checks import Share
from sciscidata.options.did_you_mean import find_close
from sciscidata.own_label import OwnLabel, stated_label, vocabularies
from sciscidata.sampling.filter import LATER_FILTERS
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

# The types of the entries that are read here. A manifest may come from anyone, and may state more.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_AnyYear = Annotated[int, msgspec.Meta(ge=-(10**6), le=10**6)]
_MaybeYear: TypeAlias = _AnyYear | None
_YearText = Annotated[str, msgspec.Meta(pattern=r"^-?[0-9]{1,6}$")]
_Version = Annotated[str, msgspec.Meta(pattern=r"^[\w.+!-]*$")]
_Classes = dict[str, dict[str, _Count]]


def _entry(needed: Mapping[str, Any], **optional: Any) -> Any:  # noqa: ANN401 (a type)
    """Make the type of an entry: names and types of what it has to state, and of what it may."""
    fields = [*needed.items(), *((name, kind, None) for name, kind in optional.items())]
    return msgspec.defstruct("Entry", fields, kw_only=True)


_Later = _entry({"works": _Count, "first_year": _AnyYear, "last_year": _AnyYear})
_Counts = _entry(
    {},
    **{"filters": dict[str, _Count], "last_year": _MaybeYear, "later_works": _Later | None},
    **{"eligible": _Classes, "scored": _Classes, "removed": dict[str, _Classes]},
)
_Input = _entry({"name": str}, bytes=_Count, sha256=str | None)
_Source = _entry(
    {},
    **{"kind": str, "config": dict[str, Any], "inputs": list[_Input], "first_corrupt_lines": list[Any]},
    **{"scores": str, "labels": str},
)
_Years = tuple[_AnyYear, _AnyYear] | None
_NullModel = _entry({"score": str, "null": str, "n_shuffles": _Count, "seed": int, "years": _Years})
_Background = _entry({"sha256": str, "first_year": _MaybeYear, "last_year": _MaybeYear})
_Atypicality = _entry(
    {
        **{"config": _NullModel | None, "background": _Background | None, "published": _entry({"score": str}) | None},
        **{"works": _Count, "scored_works": _Count, "scored_pairs": _Count},
    },
    **{"venue_concentration": dict[_YearText, float], "conventionality_cut": float | None},
)
_Eligibility = _entry(
    {},
    **{"languages": list[str] | None, "last_year": _MaybeYear},
    **{"min_references": _Count, "min_citations": _Count},
)
#: What the caller has to state, and may state; and what a release adds.
_NEEDED: Final = {"thresholds": dict[str, Any], "split": dict[str, Any]}
_OPTIONAL: Final = {
    **{"source": _Source, "cd": dict[str, Any], "eligibility": _Eligibility, "label": dict[str, Any] | None},
    **{"atypicality": _Atypicality | None, "counts": _Counts},
    "diagnostics": list[_entry({"level": str, "text": str})],
    "ceiling": _entry({"accuracy": Share, "macro_f1": Share, "works": _Count}),
}
_ADDED: Final = {
    "files": dict[str, _entry({"bytes": _Count, "sha256": str})],
    "sides": dict[str, _entry({"rows": _Count, "ids_sha256": str})],
    **{"class_counts": dict[str, _Classes], "novelty": _entry({"available": bool})},
}
_STATED: Final = _entry(_NEEDED, **_OPTIONAL)
_WHOLE: Final = _entry(_NEEDED | _ADDED, **_OPTIONAL, versions=dict[str, _Version])


def list_splits(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the splits of a release, train first; dev only where its rows are on record."""
    sides = manifest.get("sides")
    return tuple(split for split in SPLITS if split != "dev" or (isinstance(sides, dict) and split in sides))


def lacks_scores(manifest: Mapping[str, Any]) -> bool:
    """Whether the works of a release came from files without scores, so that it has its own label only."""
    return "undefined_score" in list_left_out(manifest)


def describe_ceiling(manifest: Mapping[str, Any]) -> str | None:
    """Say how high any predictor of the disruption labels can get, if the manifest knows it."""
    ceiling = manifest.get("ceiling")
    if ceiling is None:
        return None
    numbers = f"accuracy {ceiling['accuracy']:.3f}, macro-F1 {ceiling['macro_f1']:.3f}"
    return f"highest expected of any predictor of the disruption label: {numbers}"


def list_left_out(manifest: Mapping[str, Any]) -> list[str]:
    """Name the filters whose columns labelled files lacked, so that they were not applied."""
    source = manifest.get("source")
    left_out = cast("dict[str, Any]", source).get("filters_left_out") if isinstance(source, dict) else None
    return cast("list[str]", left_out) if isinstance(left_out, list) else []


def list_data_files(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the files of the splits of a release, and the file of scores if the manifest lists it."""
    files = manifest.get("files")
    scores = (SCORES_FILE,) if isinstance(files, dict) and SCORES_FILE in files else ()
    return (*DATA_FILES, *(("dev.jsonl", "dev.parquet") if "dev" in list_splits(manifest) else ()), *scores)


def complete_manifest(stated: Mapping[str, Any], examples: Mapping[str, pl.DataFrame], folder: Path) -> dict[str, Any]:
    """Add to the caller's part of a manifest what rows and files say, and seal it. Equal runs give one manifest."""
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
    later = {"split": "n_dev", "thresholds": "cells"}
    kept = {**stated} | {
        part: {name: value for name, value in stated[part].items() if name != option or value}
        for part, option in later.items()
    }
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
    """Compute ``manifest_sha256``: the SHA-256 of the manifest as written, without that line."""
    return _sha256(render_manifest({key: value for key, value in manifest.items() if key != _SELF_HASH}))


def check_stated(manifest: Mapping[str, Any]) -> None:
    """Check the caller's part of a manifest before anything is computed for it."""
    taken = sorted(set(manifest) & set(_OWN_KEYS))
    if taken:
        raise ConfigError(f"the manifest's {', '.join(taken)} is written by write_release. Rename or drop it.")
    read_settings(manifest)
    render_manifest(manifest)
    if wrong := _find_wrong_entry(manifest, _STATED):
        raise ConfigError(f"the manifest cannot be read back: {wrong}. Mend this entry.")


def render_manifest(manifest: Mapping[str, Any]) -> bytes:
    r"""Write a manifest as JSON: UTF-8, sorted keys, two spaces; a ConfigError if it is not JSON."""
    try:
        return f"{json.dumps(manifest, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=2)}\n".encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the manifest cannot be written as JSON: {error}. Give JSON types only, undefined as None."
        ) from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read ``manifest.json`` alone; a VerificationError says that it was changed, or is of another version."""
    try:
        manifest = read_json(folder / MANIFEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        is_file = "it is a file, and a release is a folder" if folder.is_file() else "no such folder is there"
        why = f"it has no {MANIFEST}" if folder.is_dir() else is_file
        beside = [] if folder.exists() else [one.parent.name for one in folder.parent.glob(f"*/{MANIFEST}")]
        near = f" Did you mean {folder.with_name(close)}?" if (close := find_close(folder.name, beside)) else ""
        raise InputNotFoundError(
            f"{folder} is not a release: {why}.{near} Check the path, or build one: sciscidata build."
        ) from error
    except OSError as error:
        raise InputNotFoundError(
            f"{folder / MANIFEST} cannot be read: {error.strerror}. Check what lies there, and its permissions."
        ) from error
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"{folder / MANIFEST} is not JSON ({error}). {REMEDY}") from error
    found = cast("dict[str, Any]", manifest).get("format_version") if isinstance(manifest, dict) else None
    if found != FORMAT_VERSION:
        raise VerificationError(
            f"{folder / MANIFEST} has format_version {found!r}, this version of sciscidata reads "
            f"{FORMAT_VERSION}. Install the version of sciscidata that it names under 'versions'."
        )
    stated = manifest.get(_SELF_HASH)
    try:
        digest = hash_manifest(manifest)
    except ConfigError as error:  # NaN, or half of a surrogate pair: never written here
        digest = str(error)
    if digest != stated:
        what = f"was changed after it was written: {_SELF_HASH} is {stated!r}, found {digest!r}"
        raise VerificationError(f"{folder / MANIFEST} {what}. {REMEDY}")
    if wrong := _find_wrong_entry(manifest, _WHOLE):
        raise VerificationError(f"{folder / MANIFEST} was not written by sciscidata: {wrong}. {REMEDY}")
    return manifest


def _find_wrong_entry(manifest: Mapping[str, Any], kind: Any) -> str | None:  # noqa: ANN401 (a type)
    """Say which entry has another type than ``kind``, or lacks a part that goes with another; None: all are right."""
    try:
        msgspec.convert(manifest, kind)
        words = vocabularies(stated_label(manifest))
    except msgspec.ValidationError as error:
        needed, _, place = str(error).replace("`", "").replace("$.", "").partition(" - at ")
        return f"{place or 'the whole'}: {needed}"
    except ConfigError as error:
        return str(error).rstrip(".")
    for place, part, names in _list_parts(manifest, words):
        if missing := {*names} - {*part}:
            return f"{place} has no {min(missing)}"
    novelty = manifest.get("atypicality")
    if novelty and not (novelty["config"] or novelty["published"]):
        return "atypicality has neither config nor published"
    return None


def _list_parts(
    manifest: Mapping[str, Any], words: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, Iterable[str], Iterable[str]]]:
    """List what has to be in which entry: its place, what is in it, and the names that are needed."""
    counts: dict[str, Any] = manifest.get("counts", {})
    removed: dict[str, Any] = counts.get("removed", {})
    if "filters" in counts:
        yield "counts", counts, ("last_year",)
        yield "counts.filters", counts["filters"], ("works", "eligible")
        yield "eligibility", manifest.get("eligibility", ()), ("min_references", "min_citations")
    if removed:
        yield "counts", counts, ("scored", "eligible")
    tables = {f"counts.{name}": counts[name] for name in ("scored", "eligible") if name in counts}
    tables |= {f"counts.removed.{name}": table for name, table in removed.items()}
    if "files" in manifest:
        yield "files", manifest["files"], list_data_files(manifest)
        yield "class_counts", manifest["class_counts"], list_splits(manifest)
        tables |= {f"class_counts.{name}": manifest["class_counts"][name] for name in list_splits(manifest)}
    for name, table in tables.items():
        yield name, table, words
        yield "the release", words, table
        for column, labels in words.items():
            yield f"{name}.{column}", table[column], labels
            yield f"the {column}", labels, table[column]


def describe_examples(examples: Mapping[str, pl.DataFrame], label: OwnLabel | None = None) -> dict[str, Any]:
    """Derive the part of a manifest that follows from the rows alone (EXAMPLE, by split), and can be derived again."""
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
    """Read the thresholds and the split of a manifest; a ConfigError if either is missing or impossible."""
    try:
        return LabelThresholds(**manifest["thresholds"]), SplitConfig(**manifest["split"])
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"the manifest's thresholds and split cannot be read ({error!r}). Give both, as "
            "dataclasses.asdict of LabelThresholds and SplitConfig."
        ) from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
