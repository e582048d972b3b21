"""A run again: its settings as a file (``--print-config``), and those of a release (``--from-manifest``)."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sciscidata.cli.build_options import SECTIONS, SOURCES, Sections
from sciscidata.config import BuildConfig, list_unread
from sciscidata.errors import ConfigError, VerificationError
from sciscidata.options.checks import field_hints
from sciscidata.own_label import stated_where
from sciscidata.release.manifest import MANIFEST
from sciscidata.release.read import SCORES_FILE, Release, read_manifest
from sciscidata.sampling.manifest_entries import describe_background
from sciscidata.schemas import has_own_scores
from sciscidata.storage import hash_file
from sciscidata.storage.lock import read_steadily

logger = logging.getLogger(__name__)


def render_toml(config: BuildConfig) -> str:
    """Write the settings of a run as a settings file, also those at their defaults; a key of the API is left out."""
    kind = next(name for name, source in SOURCES.items() if type(config.source) is source)
    top = {"source": kind} | _read_fields(config, config) | ({"novelty": False} if config.novelty is None else {})
    parts: dict[str, Any] = {kind: config.source} | ({"api": config.api} if kind == "openalex" else {})
    parts |= {name: getattr(config, name) for name in SECTIONS if name not in SOURCES and name != "api"}
    lines = _assign(top)
    for section, part in parts.items():
        if part is not None:
            lines += ["", f"[{section}]", *_assign(_read_fields(part, config))]
    return "\n".join(lines) + "\n"


def _read_fields(part: Any, config: BuildConfig) -> dict[str, Any]:  # noqa: ANN401
    """Return the fields of a configuration that are read, without secrets; a None that was chosen is "all"."""
    unread = {name for kind, names, *_ in list_unread(config) if isinstance(part, kind) for name in names or ()}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        is_default_secret = (
            "secret" in field.metadata and value == field.default
        )  # the usual address of the API, for example
        is_section = field_hints(type(part))[field.name].configurations
        is_written = field.repr and "python_only" not in field.metadata and not is_section
        if field.name not in unread and is_written and not is_default_secret:
            values[field.name] = "all" if value is None and field.default is not None else value
    return values


def _assign(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]


def _toml(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(str(key))} = {_toml(item)}' for key, item in value.items())}}}"
    if value is None:
        return '"all"'
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, tuple) else repr(value)


def read_release_settings(path: Path, given: Collection[str] = ()) -> Sections:
    """Read settings of a release from its manifest, without paths; a source in ``given``, of flags, goes before."""
    manifest = read_old_manifest(path)
    label, own = manifest.get("label") or {}, stated_where(manifest)
    if own:
        raise ConfigError(
            f"the filters {', '.join(own)} of {path} are expressions of Polars, which a manifest states as text only. "
            "Build it again in Python, with EligibilityConfig.where."
        )
    if "expression" in label:
        raise ConfigError(
            f"the label of {path} is an expression of Polars, which a manifest states as text only. Build it again in "
            "Python, with its OwnLabel."
        )
    if manifest["thresholds"].get("cells"):
        raise ConfigError(
            f"the labels of {path} are by rank, with cut-offs of cells that no flag names. Build it again in Python, "
            "with LabelThresholds(**manifest['thresholds'])."
        )
    try:
        source = manifest["source"]
        kind = _kind_of(source)
        if kind not in SOURCES:
            if not SOURCES.keys() & {*given}:
                raise ConfigError(
                    f"{path} was drawn from a Corpus that a program has made, which no command can repeat. Repeat it "
                    "in Python, or name a corpus on disk with the same works: CorpusConfig.folder."
                )
            kind = next(name for name in SOURCES if name in given)
        stated = source | source.get("config", {})
        if kind == "tables":  # its counts have the names of its files
            stated = source["columns"] | {name: source.get(name) for name in ("missing", "quotes")}
        if kind == "openalex":  # whose filter is that of all options together
            stated = {**stated, "filter": source.get("own_filter")}
        # A field without a default is a path, and the manifest has none.
        options = [field for field in dataclasses.fields(SOURCES[kind]) if field.default is not dataclasses.MISSING]
        of_source = {field.name: stated[field.name] for field in options if stated.get(field.name) is not None}
        settings: Sections = {name: {**manifest[name]} for name in ("cd", "thresholds", "eligibility", "split")}
        settings["eligibility"].pop("listed", None)  # check_files asks for its file
        atypicality = manifest["atypicality"] or {}
        novelty = atypicality.get("config") or atypicality.get("published")
        # Some sources bring their scores, and no null model.
        has_novelty = novelty or (has_own_scores(source) and manifest["novelty"]["available"])
    except (KeyError, TypeError, AttributeError) as error:
        raise VerificationError(
            f"{path} does not say how it was made ({error!r}). Name a release that `sciscidata build` has written."
        ) from error
    settings[""] = {**manifest.get("build", {})} | ({} if has_novelty else {"novelty": False})
    if novelty:
        settings["novelty"] = novelty
    if "sql" in label or "column" in label:  # the name of its file is no path: flags give it
        settings["label"] = {name: value for name, value in label.items() if name in field_hints(SECTIONS["label"])}
    if SCORES_FILE not in manifest["files"]:
        settings[""]["scores_file"] = False
    if not (SOURCES.keys() - {kind}) & {*given}:
        settings[""]["source"] = kind
        settings[kind] = of_source
    return settings


def read_old_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a release, named by its folder or by its file."""
    folder = path.parent if path.name == MANIFEST else path
    return read_steadily(folder, partial(read_manifest, folder))


def check_files(config: BuildConfig, path: Path) -> None:
    """Check that a repeated run has the list of ids and the background of the release; warn of another file."""
    manifest = read_old_manifest(path)
    listed = manifest["eligibility"].get("listed")
    if listed and config.ids is None:
        raise ConfigError(
            f"the release was drawn from {listed['ids']:,} ids with SHA-256 {listed['sha256']}, and a manifest names "
            "no path. Name their file: BuildConfig.ids."
        )
    if listed and config.ids is not None and config.ids.is_file() and hash_file(config.ids) != listed["sha256"]:
        was = f"the release was drawn from another one, with SHA-256 {listed['sha256']}"
        logger.warning("%s has another SHA-256; %s", config.ids, was)
    stated = (manifest["atypicality"] or {}).get("background")
    if stated and config.background is None:
        raise ConfigError(
            f"the release was scored against a background with SHA-256 {stated['sha256']}, and a manifest names "
            "no path. Name its file: BuildConfig.background."
        )
    given = describe_background(config.background, config.novelty)
    if stated and given and given["sha256"] != stated["sha256"]:
        was = f"the release was scored against another one, with SHA-256 {stated['sha256']}"
        logger.warning("%s has SHA-256 %s; %s", config.background, given["sha256"], was)


def compare_lines(release: Release, path: Path) -> str:
    """Say whether a repeated build has the lines of the release that it repeats."""
    old, new = read_old_manifest(path)["files"], release.manifest["files"]
    lines = [f"{split}.jsonl" for split in release.splits]
    other = [name for name in lines if old.get(name, {}).get("sha256") != new[name]["sha256"]]
    if not other:
        *first, last = release.splits
        return f"the lines of {', '.join(first)} and {last} are those of {path}"
    return (
        f"{' and '.join(other)} differ from those of {path}: the source has changed, or another version made them "
        "(versions in the manifest)"
    )


def _kind_of(source: Mapping[str, Any]) -> str:
    """Find the source of a release. A corpus also reports what it was made from."""
    if "report_sha256" in source and source.get("kind") not in ("openalex snapshot", "tables"):
        return "corpus"
    kind: str = source.get("kind", "")
    return {"openalex snapshot": "snapshot"}.get(kind, kind)
