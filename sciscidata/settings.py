"""From a TOML file and command-line flags to one BuildConfig; unknown names are errors."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sciscidata.cdindex import CDConfig
from sciscidata.eligibility import EligibilityConfig
from sciscidata.errors import ConfigError, InputNotFoundError, UnavailableError
from sciscidata.labels import LabelThresholds
from sciscidata.pipeline import BuildConfig
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.synthetic import SyntheticConfig
from sciscidata.splits import SplitConfig

#: Settings by section, as in the file: ``[split]`` then ``n_train = 300``. The top level is section "".
Settings = dict[str, dict[str, Any]]

SOURCES = ("openalex", "records", "synthetic")
_CONFIGS: dict[str, type] = {
    "records": RecordsConfig,
    "synthetic": SyntheticConfig,
    "cd": CDConfig,
    "thresholds": LabelThresholds,
    "eligibility": EligibilityConfig,
    "split": SplitConfig,
}
_BASES = {"cd": "compat", "thresholds": "preset"}  # a named starting point within a section
_TOP = ("source", "out", "cache_dir", "overwrite")
_NO_OPENALEX = (
    "--source openalex is not part of this version: it cannot pull from the OpenAlex API yet. Use --source records "
    "--input FILE with works saved from the API, or --source synthetic, which needs nothing."
)


def read_toml(path: Path) -> Settings:
    """Read a configuration file into sections; values are checked by resolve.

    Raises:
        InputNotFoundError: there is no such file.
        ConfigError: it is not TOML.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        msg = f"--config {path}: no such file. Check the path."
        raise InputNotFoundError(msg) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"--config {path}: not a TOML file ({error}). Mend the line it names."
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

    The source is what ``source`` names; else ``records`` when inputs are named, else ``openalex``.

    Raises:
        ConfigError: a section, name or value is not known.
        UnavailableError: the source is ``openalex``, which this version cannot read yet.

    Example:
        >>> config = resolve({"": {"source": "synthetic", "out": "slices/demo"}, "split": {"n_train": 60}})
        >>> config.split.n_train, config.source.n_works
        (60, 100000)
    """
    unknown = sorted(set(settings) - {"", *_CONFIGS})
    if unknown:
        msg = f"configuration has no section [{unknown[0]}]; it has {', '.join(f'[{name}]' for name in _CONFIGS)}."
        raise ConfigError(msg)
    top = settings.get("", {})
    _check_names("", top, _TOP)
    source = top.get("source", "records" if settings.get("records", {}).get("inputs") else "openalex")
    if source not in SOURCES:
        msg = f"source is {source!r}, needs one of {', '.join(SOURCES)}."
        raise ConfigError(msg)
    if "out" not in top:
        top = top | {"out": f"slices/{source}"}
    parts = {name: _make(name, settings.get(name, {})) for name in ("cd", "thresholds", "eligibility", "split")}
    if source == "openalex":
        raise UnavailableError(_NO_OPENALEX)
    paths = {name: Path(top[name]) for name in ("out", "cache_dir") if name in top}
    overwrite = bool(top.get("overwrite", False))
    return BuildConfig(source=_make(source, settings.get(source, {})), overwrite=overwrite, **paths, **parts)


def _make(section: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Construct the configuration of one section, from a named starting point if it names one."""
    kind = _CONFIGS[section]
    base_name = _BASES.get(section, "")
    names = [field.name for field in dataclasses.fields(kind)]
    _check_names(section, values, [*names, *([base_name] if base_name else [])])
    given = {name: _plain(name, value) for name, value in values.items() if name != base_name}
    if base_name in values:
        base = getattr(kind, base_name)(values[base_name])
        return dataclasses.replace(base, **given)
    if section == "records" and not given.get("inputs"):
        msg = "source records needs at least one file. Name it: --input FILE, or inputs = [...] under [records]."
        raise ConfigError(msg)
    return kind(**given)


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401
    """Turn TOML's lists into tuples, and the word for an open window into None: TOML has no null."""
    if name == "window_years" and value == "all":
        return None
    return tuple(value) if isinstance(value, list) else value


def _check_names(section: str, values: Mapping[str, Any], names: list[str] | tuple[str, ...]) -> None:
    unknown = sorted(set(values) - set(names))
    if unknown:
        where = f"[{section}]" if section else "the top level"
        msg = f"configuration: {where} has no setting {unknown[0]!r}; it has {', '.join(names)}."
        raise ConfigError(msg)
