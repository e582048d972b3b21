"""From a TOML file and command-line flags to one BuildConfig; unknown names are errors."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from sciscidata.config import BuildConfig, refuse_unread
from sciscidata.corpus.folder import CorpusConfig
from sciscidata.disruption.index import CDConfig
from sciscidata.errors import ConfigError, InputNotFoundError
from sciscidata.labels import LabelThresholds
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.sampling.eligibility import EligibilityConfig
from sciscidata.sampling.split import SplitConfig
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.sciscinet.source import SciSciNetConfig
from sciscidata.sources.snapshot.source import SnapshotConfig
from sciscidata.sources.synthetic.source import SyntheticConfig
from sciscidata.storage import expand_home
from sciscidata.storage.small_files import SETTINGS_BYTES, read_whole

#: Settings by section, as in the file: ``[split]`` then ``n_train = 300``. The top level is section "".
Settings = dict[str, dict[str, Any]]

#: The sources, and the sections that only they read.
SOURCES = {
    "openalex": ("openalex", "api"),
    "records": ("records",),
    "synthetic": ("synthetic",),
    "sciscinet": ("sciscinet",),
    "snapshot": ("snapshot",),
    "corpus": ("corpus",),
}
#: What a source cannot do without: the setting, and the flag that gives it. To name it is to name the source.
_NEEDED = {
    "records": ("inputs", "--input FILE"),
    "sciscinet": ("folder", "--sciscinet FOLDER"),
    "snapshot": ("folder", "--snapshot FOLDER"),
    "corpus": ("folder", "--corpus FOLDER"),
}
_CONFIGS: dict[str, type] = {
    "openalex": OpenAlexConfig,
    "api": ApiConfig,
    "records": RecordsConfig,
    "synthetic": SyntheticConfig,
    "sciscinet": SciSciNetConfig,
    "snapshot": SnapshotConfig,
    "corpus": CorpusConfig,
    "cd": CDConfig,
    "novelty": NoveltyConfig,
    "thresholds": LabelThresholds,
    "eligibility": EligibilityConfig,
    "split": SplitConfig,
}
_BASES = {"cd": "compat", "novelty": "compat", "thresholds": "preset"}  # a named starting point within a section
_TOP = {"source": str, "out": str, "cache_dir": str, "overwrite": bool, "novelty": bool, "background": str}
#: What a shell leaves to us in a file of settings, and in --out=~/slices: a home.
_PATHS = {"out", "cache_dir", "background", "folder", "texts"}
#: TOML has no null: the word for None, where a setting knows that.
_WORDS_FOR_NONE = {"window_years": "all", "max_references": "all"}


def read_toml(path: Path) -> Settings:
    """Read a configuration file into sections; values are checked by resolve.

    Raises:
        InputNotFoundError: there is no such file, or it cannot be opened.
        ConfigError: it is not TOML.
    """
    try:
        content = tomllib.loads(read_whole(path, SETTINGS_BYTES).decode())
    except OSError as error:
        msg = f"--config {path} cannot be read: {error.strerror}. Check the path and its permissions."
        raise InputNotFoundError(msg) from error
    except RecursionError:
        msg = f"--config {path}: not a file of settings: its values are nested too deeply. Write names and values."
        raise ConfigError(msg) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # TOML calls it so when `novelty = false` and `[novelty]` stand in one file.
        remedy = " A name may be a value or a section, not both." if "overwrite a value" in str(error) else ""
        msg = f"--config {path}: not a TOML file ({error}).{remedy} Mend the line it names."
        raise ConfigError(msg) from error
    sections: Settings = {"": {}}
    for name, value in content.items():
        if isinstance(value, dict):
            sections[name] = dict(value)
        else:
            sections[""][name] = value
    return sections


def merge(base: Settings, changes: Settings) -> Settings:
    """Return ``base`` with the settings of ``changes`` put over it."""
    return {name: base.get(name, {}) | changes.get(name, {}) for name in (base | changes)}


def resolve(settings: Settings) -> BuildConfig:
    """Check every name and value and make the one configuration of a build.

    The source is what ``source`` names; else ``records`` when inputs are named, ``sciscinet``, ``snapshot`` or
    ``corpus`` when its folder is, else ``openalex``.

    Raises:
        ConfigError: a section, name or value is not known, or is for another source.

    Example:
        >>> config = resolve({"": {"source": "synthetic", "out": "slices/demo"}, "split": {"n_train": 60}})
        >>> config.split.n_train, config.source.n_works
        (60, 100000)
    """
    unknown = sorted(set(settings) - {"", *_CONFIGS})
    if unknown:
        msg = f"configuration has no section [{unknown[0]}]; it has {', '.join(f'[{name}]' for name in _CONFIGS)}."
        raise ConfigError(msg)
    top = _checked("", settings.get("", {}), _TOP)
    implied = next((name for name, (needed, _) in _NEEDED.items() if settings.get(name, {}).get(needed)), "openalex")
    source = top.get("source", implied)
    if source not in SOURCES:
        msg = f"source is {source!r}, needs one of {', '.join(SOURCES)}."
        raise ConfigError(msg)
    for other, sections in SOURCES.items():
        for section in sections:
            if other != source and settings.get(section):
                msg = (
                    f"[{section}] sets {', '.join(settings[section])}, but the source is {source}, which does not read "
                    f"it. Leave it out, or choose that source: --source {other}."
                )
                raise ConfigError(msg)
    if "out" not in top:
        top["out"] = f"slices/{source}"
    # Of the sections that only a source reads, its own: whoever reads files shall not mend the settings of the API.
    sections = ("cd", "novelty", "thresholds", "eligibility", "split", *SOURCES[source][1:])
    parts = {name: _make(name, settings.get(name, {})) for name in sections}
    if not top.get("novelty", True):
        parts["novelty"] = None
    parts["source"] = _make(source, settings.get(source, {}))
    refuse_unread(settings, parts)
    paths = {name: Path(top[name]) for name in ("out", "cache_dir", "background") if name in top}
    overwrite = top.get("overwrite", False)
    return BuildConfig(overwrite=overwrite, **paths, **parts)


def _make(section: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Construct the configuration of one section, from a named starting point if it names one."""
    kind = _CONFIGS[section]
    base_name = _BASES.get(section, "")
    given = _checked(section, values, get_type_hints(kind) | ({base_name: str} if base_name else {}))
    if kind is ApiConfig:
        return ApiConfig.from_environment(**given)
    if base_name in given:
        base = getattr(kind, base_name)(given.pop(base_name))
        return dataclasses.replace(base, **given)
    needed, flag = _NEEDED.get(section, ("", ""))
    if needed and not given.get(needed):
        what = "at least one file" if section == "records" else "a folder"
        msg = f"source {section} needs {what}. Name it: {flag}, or {needed} = ... under [{section}]."
        raise ConfigError(msg)
    return kind(**given)


def _checked(section: str, values: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Check the names and the types of a section's settings; lists become tuples where these are wanted.

    Values are for the configurations themselves to check, and so are words: they know which ones there are.
    """
    where = f"[{section}]" if section else "the top level"
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in types:
            msg = f"configuration: {where} has no setting {name!r}; it has {', '.join(types)}."
            raise ConfigError(msg)
        wanted = str if get_origin(types[name]) is Literal else types[name]
        try:
            checked[name] = msgspec.convert(_or_none(name, value, wanted), wanted)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            reason = "it is not UTF-8" if isinstance(error, UnicodeEncodeError) else error
            msg = f"configuration: {name} in {where}: {reason}. Mend its value."  # without the value: it may be a key
            raise ConfigError(msg) from None
        if isinstance(checked[name], str) and "\0" in checked[name]:
            msg = f"configuration: {name} in {where} holds a NUL character. Remove it."
            raise ConfigError(msg)
        if name in _PATHS and checked[name] is not None:
            checked[name] = expand_home(checked[name])
    return checked


def _or_none(name: str, value: Any, wanted: Any) -> Any:  # noqa: ANN401
    """Turn the word for no limit into None, where there may be none."""
    is_word = name in _WORDS_FOR_NONE and value == _WORDS_FOR_NONE[name]
    return None if is_word and NoneType in get_args(wanted) else value
