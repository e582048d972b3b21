"""The settings of a build that one command reads. Light, because commands are listed without what a build loads."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sciscidata.options.commands import GENERAL, InFile, Part, Values
from sciscidata.options.parser import ARGUMENTS, REQUIRED, Option

if TYPE_CHECKING:
    from sciscidata.config import BuildConfig


def settings(
    sections: str, top: str = "out cache_dir overwrite", *, without: str = "", of_corpus: bool = False, writes: str = ""
) -> Part:
    """Stand for settings that come from flags and from the file of ``--config``: a BuildConfig.

    Args:
        sections: of the file: their names, "ingested" for all sources that can be a corpus, "all" for all of them and
            all settings outside.
        top: those outside all sections, beside the source.
        without: names that have no flag here.
        of_corpus: the source is the corpus that the command names, which has the cache too.
        writes: what ``--out`` names, without which the command cannot run; "": a release.
    """

    def list_options() -> list[Option]:
        import msgspec

        from sciscidata.cli.build_options import INGESTED, SECTIONS, SOURCES, list_settings
        from sciscidata.options.checks import Hint

        groups: dict[str, Collection[str]] = {"all": ("", *SECTIONS), "ingested": INGESTED}
        known = {one for name in sections.split() for one in groups.get(name, (name,))}
        changes: dict[str, dict[str, Any]] = {}
        if of_corpus:
            text = "what `sciscidata ingest` has made"
            changes["corpus.folder"] = {"flag": "CORPUS", "text": text, "title": GENERAL}
            changes[".cache_dir"] = {"default": "CORPUS/cache"}
        elif sections != "all":
            some = Hint(Literal[*(name for name in SOURCES if name in known)])
            changes[".source"] = {"hint": some, "default": None}
        if writes:
            changes[".out"] = {"text": writes, "default": REQUIRED}
        named = {f".{name}" for name in top.split()} | {"corpus.folder" if of_corpus else ".source"}
        file = Hint(Annotated[Path, msgspec.Meta(title="FILE")])
        text = "TOML file of settings, which flags go over"
        return [
            Option("", ARGUMENTS, "config", "--config", file, None, text, GENERAL),
            *(
                dataclasses.replace(option, **changes.get(option.key, {}))
                for option in list_settings()
                if (option.section in known and option.name not in without.split()) or option.key in named
            ),
        ]

    def make(values: Values, in_file: InFile) -> BuildConfig:
        """Put the flags over the settings file, and note in ``in_file`` which settings are left of the file."""
        from sciscidata.cli.build_options import merge, read_toml, resolve

        flags: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            section, dot, name = key.partition(".")
            if dot:
                flags.setdefault(section, {})[name] = value
        file = read_toml(Path(values["config"])) if "config" in values else {}
        in_file |= {(section, name) for section, one in file.items() for name in one}
        in_file -= {(section, name) for section, one in flags.items() for name in one}
        typed = merge(file, flags)
        if "from_manifest" in values:
            from sciscidata.cli.repeat_run import check_background, read_release_settings

            path = Path(values["from_manifest"])
            config = resolve(merge(read_release_settings(path, typed), typed), typed)
            check_background(config, path)
            return config
        base = {"": {"cache_dir": str(Path(flags["corpus"]["folder"]) / "cache")}} if of_corpus else {}
        return resolve(merge(base, typed))

    return Part(list_options, make)
