"""Every option of a build, from the configuration classes; and from a TOML file and flags to one BuildConfig."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from sciscidata.config import BuildConfig, no_effect, refuse_unread
from sciscidata.disruption.config import COMPAT as CD_COMPAT
from sciscidata.errors import ConfigError, InputNotFoundError
from sciscidata.label_thresholds import PRESETS
from sciscidata.novelty.config import COMPAT as NOVELTY_COMPAT
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.options.checks import Hint, check_value, field_hints
from sciscidata.options.commands import GENERAL
from sciscidata.options.did_you_mean import find_unknown, suggest
from sciscidata.options.parser import Option, list_fields, plain
from sciscidata.schemas import Corpus
from sciscidata.sources import registry
from sciscidata.storage.small_files import SETTINGS_BYTES, decode_text, read_whole

#: Settings by section, as in the file: ``[split]`` then ``n_train = 300``. The top level is section "".
Sections = dict[str, dict[str, Any]]

#: The configuration class of each source, and of each other section of the settings file.
_ROWS: Final = {
    row.config.__name__.removesuffix("Config").lower(): row for row in registry.SOURCES if row.config is not Corpus
}
SOURCES: Final[Mapping[str, type]] = {name: row.config for name, row in _ROWS.items()}
SECTIONS: Final[Mapping[str, type]] = SOURCES | {
    name: hint.configurations[0]
    for name, hint in field_hints(BuildConfig).items()
    if hint.configurations and name != "source"
}
#: The sources that can be written as a corpus on disk.
INGESTED: Final = frozenset(name for name, row in _ROWS.items() if row.can_be_ingested)
#: Named starting points of a section; other options go over them.
_BASES: Final = {"cd": ("compat", CD_COMPAT), "novelty": ("compat", NOVELTY_COMPAT), "thresholds": ("preset", PRESETS)}
#: Where sections share a name, its flag starts with the section (``--novelty-seed``), but not in these.
_SHORT: Final = ("", "records", "cd", "thresholds", "eligibility", "split")
#: Flags that would have the name of another option.
_OTHER_FLAGS: Final = {
    ("labelled", "inputs"): "--labelled",
    ("exports", "files"): "--exports",
    ("labelled", "missing"): "--labelled-missing",
    ("label", "column"): "--label",
    ("eligibility", "fields"): "--only-field",
    ("eligibility", "venues"): "--only-venue",
    ("split", "labels"): "--only-label",
}
#: Flags for several files that keep their plural, because it names what the files hold.
_WHOLE_FLAGS: Final = ("works", "citations")
#: Every name that a section has, some of them twice, and those of flags that are not settings.
_NAMES: Final = [
    *("version", "help", "config", "texts"),
    *(
        name
        for key, kind in SECTIONS.items()
        if key != "label"
        for name in field_hints(kind)
        if (key, name) not in _OTHER_FLAGS
    ),
    *(name for name, _ in _BASES.values()),
]


def name_flag(section: str, name: str, hint: Hint) -> str:
    """Make a flag of a setting: ``--n-train``, ``--novelty-seed``, ``--snapshot`` for its folder, ``--language``.

    Some names are others' already: ``--input`` names records, ``--field`` and ``--venue`` columns.
    """
    if (section, name) in _OTHER_FLAGS:
        return _OTHER_FLAGS[section, name]
    if name == "folder":
        return f"--{section}"
    if section == "label":
        return f"--label-{name}"
    if name in _WHOLE_FLAGS:
        return f"--{name}"
    prefix = f"{section}-" if section not in _SHORT and (_NAMES.count(name) > 1 or name in _NAMES[:4]) else ""
    return f"--{prefix}{name.removesuffix('s') if hint.is_list else name}".replace("_", "-")


@functools.cache
def list_settings() -> tuple[Option, ...]:
    """List all options of a build: each is a setting of the file, and a flag."""
    switches = {
        "source": (Literal[*SOURCES], "openalex", "where works come from; or what a flag with files or a folder names"),
        "novelty": (bool, True, "score atypical combinations of venues; else the novelty fields are null"),
    }
    options = [
        Option("BuildConfig", "", name, f"--{name}", Hint(hint), default, text, GENERAL)
        for name, (hint, default, text) in switches.items()
    ]
    shown = {"out": "slices/SOURCE", "cache_dir": "the user's cache folder"}
    for option in list_fields(BuildConfig, "", name_flag, GENERAL):
        options.append(dataclasses.replace(option, default=shown.get(option.name, option.default)))
    for section, kind in SECTIONS.items():
        title = f"[{section}] {plain((kind.__doc__ or '').partition('.')[0])}"
        if section in _BASES:
            name, known = _BASES[section]
            word = "convention of another implementation" if name == "compat" else "set of thresholds"
            hint, text = Hint(Literal[*known]), f"{word} to start from; other options go over it"
            flag = name_flag(section, name, hint)
            options.append(Option(kind.__name__, section, name, flag, hint, None, text, title))
        options += list_fields(kind, section, name_flag, title)
    return tuple(options)


def read_toml(path: Path) -> Sections:
    """Read a settings file into sections; resolve checks the values."""
    try:
        content = tomllib.loads(decode_text(read_whole(path, SETTINGS_BYTES)))
    except OSError as error:
        raise InputNotFoundError(
            f"--config {path} cannot be read: {error.strerror}. Check the path and its permissions."
        ) from error
    except RecursionError:
        raise ConfigError(
            f"--config {path}: not a file of settings: its values are nested too deeply. Write names and values."
        ) from None
    except ValueError as error:
        # TOML calls it so when `novelty = false` and `[novelty]` stand in one file.
        remedy = " A name may be a value or a section, not both." if "overwrite a value" in str(error) else ""
        raise ConfigError(f"--config {path}: not a TOML file ({error}).{remedy} Mend the line it names.") from error
    top = {name: value for name, value in content.items() if not isinstance(value, dict)}
    return {"": top} | {name: value for name, value in content.items() if name not in top}


def merge(base: Sections, changes: Sections) -> Sections:
    """Return ``base`` with the settings of ``changes`` put over it."""
    return {name: base.get(name, {}) | changes.get(name, {}) for name in (base | changes)}


def resolve(settings: Sections, given: Sections | None = None) -> BuildConfig:
    """Check every name and value and make the one configuration of a build; refuse what is ``given`` without effect.

    The source is what ``source`` names; else the first one whose files or folder are given; else ``openalex``.
    """
    by_section = {section: _prepared(section, values) for section, values in settings.items()}
    top = by_section.pop("", {})
    implied = next((name for name, kind in SOURCES.items() if by_section.get(name, {}).get(_needed(kind))), "openalex")
    source = check_value("BuildConfig.source", top.pop("source", implied), Literal[*SOURCES])
    with_novelty = check_value("BuildConfig.novelty", top.pop("novelty", True), bool)
    of_sources = {name: name for name in SOURCES} | {"api": "openalex"}
    for section, other in of_sources.items():
        if other != source and by_section.get(section):
            remedy = f"set BuildConfig.source={other!r}"
            raise no_effect(SECTIONS[section], by_section[section], f"the source is {source}", remedy)
    # The settings of an unread source may be wrong: those of the API come from the environment too.
    parts: dict[str, Any] = {
        section: _make(section, by_section.get(section, {}))
        for section in SECTIONS
        if section not in of_sources and (section != "label" or by_section.get(section))
    }
    parts["source"] = _make(source, by_section.get(source, {}))
    split = by_section.get("split", {})
    if "label" in parts and "balance" not in split and _ROWS[source].has_own_labels_only(parts["source"]):
        split = {"balance": "label"} | split
    parts["split"] = SECTIONS["split"](**{**_ROWS[source].sizes, **split})
    if source == "openalex":
        parts["api"] = _make("api", by_section.get("api", {}))
    if not with_novelty:
        parts["novelty"] = None
    parts |= {"out": f"slices/{source}"} | top
    config = BuildConfig(**parts)
    chosen = settings if given is None else given
    refuse_unread({SECTIONS[section]: [*values] for section, values in chosen.items() if section}, config)
    return config


def _prepared(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Check the names of a section's settings, and read the words that stand for None and for the user's home."""
    known = {option.name: option for option in list_settings() if option.section == section}
    if section not in ("", *SECTIONS):
        near = suggest(section, SECTIONS) or f" It has {', '.join(f'[{name}]' for name in SECTIONS)}."
        raise ConfigError(f"the settings file has no section [{section}].{near}")
    where = f"the {f'section [{section}]' if section else 'top level'} of the settings file"
    for name in () if section else values:
        if at := [one for one in list_settings() if one.section and one.name == name.replace("-", "_")]:
            sections = " or ".join(f"[{one.section}]" for one in at)
            raise ConfigError(f"{where} has no setting {name!r}. Write it below {sections}: {at[0].name}.")
    kind = SECTIONS.get(section, BuildConfig)
    of_python = {field.name for field in dataclasses.fields(kind) if field.metadata.get("python_only")}
    if in_vain := [name for name in values if name in of_python]:
        raise ConfigError(
            f"{where} cannot hold {in_vain[0]!r}, which is for Python only. Leave it out, and build in Python: "
            f"{kind.__name__}({in_vain[0]}=...)."
        )
    if msg := find_unknown(values, known, where=where, what="setting"):
        raise ConfigError(msg)
    return {name: known[name].prepare(value) for name, value in values.items()}


def _needed(kind: type) -> str:
    """Return the field without which a configuration cannot be made, "" if there is none."""
    return next((field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING), "")


def _make(section: str, given: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Construct the configuration of one section, from a named starting point if it names one."""
    kind: Any = SECTIONS[section]
    if kind is ApiConfig:
        return ApiConfig.from_environment(**given)
    base = _BASES[section][0] if section in _BASES else ""
    if base in given:
        return dataclasses.replace(getattr(kind, base)(given[base]), **{k: v for k, v in given.items() if k != base})
    needed = _needed(kind) if section in SOURCES else ""
    if needed and not given.get(needed):
        what = "a folder" if needed == "folder" else "at least one file"
        raise ConfigError(f"the source {section} needs {what}: {kind.__name__}.{needed}.")
    return kind(**given)
