"""All options of a build in one configuration, and a check that each of them has an effect."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, get_args

import platformdirs

from sciscidata._support.short_repr import short_repr
from sciscidata._support.validate import require_config
from sciscidata.corpus.folder import CorpusConfig
from sciscidata.disruption.index import CDConfig
from sciscidata.errors import ConfigError
from sciscidata.labels import LabelThresholds
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.sampling.eligibility import EligibilityConfig
from sciscidata.sampling.split import BALANCED, SplitConfig
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.sciscinet.source import SciSciNetConfig
from sciscidata.sources.snapshot.source import SnapshotConfig
from sciscidata.sources.synthetic.source import SyntheticConfig

SourceConfig = RecordsConfig | SyntheticConfig | OpenAlexConfig | SciSciNetConfig | SnapshotConfig | CorpusConfig

_OF_MARGIN: Final = ("novelty_margin",)
_OF_UZZI: Final = ("uzzi_tail_max",)
_OF_CUT: Final = ("uzzi_median_share",)  # read with either rule: the manifest states the cut


def default_cache_dir() -> Path:
    """Return the folder for what later runs can use again: parsed records and citation graphs."""
    return Path(platformdirs.user_cache_dir("sciscidata"))


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildConfig:
    """Everything that decides what a release holds, and where it goes.

    ``novelty=None``, or a pull without venues, leaves novelty out: its fields are null. ``background`` names a saved
    table of pair statistics to take the null model from, instead of the source's own works.

    ``out``, ``api``, ``cache_dir`` and ``overwrite`` do not change what is released, so the manifest leaves them out;
    of ``background`` it names the SHA-256.

    Raises:
        ConfigError: on construction, if ``source`` or a part is no configuration of its kind or a path no path, or
            novelty is left out and needed nevertheless.
    """

    source: SourceConfig
    out: Path
    cd: CDConfig = field(default_factory=CDConfig)
    novelty: NoveltyConfig | None = field(default_factory=NoveltyConfig)
    background: Path | None = None
    thresholds: LabelThresholds = field(default_factory=LabelThresholds)
    eligibility: EligibilityConfig = field(default_factory=EligibilityConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    cache_dir: Path = field(default_factory=default_cache_dir)
    overwrite: bool = False

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Take paths as text too."""
        for name in ("out", "cache_dir", *(("background",) if self.background is not None else ())):
            value = getattr(self, name)
            if not isinstance(value, str | os.PathLike):
                msg = f"BuildConfig.{name} is {value!r}, needs a path."
                raise ConfigError(msg)
            object.__setattr__(self, name, Path(value))
        check_source(self.source, "BuildConfig.source")
        require_config(self.cd, CDConfig, name="BuildConfig.cd")
        require_config(self.thresholds, LabelThresholds, name="BuildConfig.thresholds")
        require_config(self.eligibility, EligibilityConfig, name="BuildConfig.eligibility")
        require_config(self.split, SplitConfig, name="BuildConfig.split")
        if not isinstance(self.novelty, NoveltyConfig | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"BuildConfig.novelty is {self.novelty!r}, needs a NoveltyConfig, or None to leave novelty out."
            raise ConfigError(msg)
        if self.novelty is None:
            remedy = "Leave novelty on (novelty=NoveltyConfig(), no --no-novelty)"
            self._check_without_novelty("novelty is switched off", remedy)
        if isinstance(self.source, OpenAlexConfig) and not self.source.venues:
            remedy = "Leave venues on (OpenAlexConfig.venues, no --no-venues)"
            self._check_without_novelty("the venues of references are not asked for", remedy)
            object.__setattr__(self, "novelty", None)
        if self.background is not None and self.has_published_scores:
            msg = (
                "background is given, but the novelty of SciSciNet is taken as published. Compute it from the "
                "references (SciSciNetConfig.recompute, --recompute), or give no background."
            )
            raise ConfigError(msg)

    @property
    def has_published_scores(self) -> bool:
        """Whether the scores are the source's own, and not computed here."""
        return isinstance(self.source, SciSciNetConfig) and not self.source.recompute

    def _check_without_novelty(self, reason: str, remedy: str) -> None:
        if "novelty_label" in BALANCED[self.split.balance]:
            msg = (
                f"balance is {self.split.balance!r}, but {reason}, so there are no labels to balance. "
                f"{remedy}, or use balance='disruption' (--balance disruption)."
            )
            raise ConfigError(msg)
        if self.background is not None:
            msg = f"background is given, but {reason}. {remedy}, or give no background."
            raise ConfigError(msg)


def check_source(source: object, name: str) -> None:
    """Refuse what is no configuration of a source, a path, say.

    Raises:
        ConfigError: at once.
    """
    if not isinstance(source, SourceConfig):
        kinds = ", ".join(kind.__name__ for kind in get_args(SourceConfig))
        msg = f"{name} is {source!r}, needs one of {kinds}, for example SyntheticConfig()."
        raise ConfigError(msg)


def refuse_unread(settings: Mapping[str, Mapping[str, Any]], parts: Mapping[str, Any]) -> None:
    """Refuse settings that were given and have no effect beside the others.

    Args:
        settings: what was given, by section.
        parts: the configurations that were made of it, by section; ``source`` that of the source, and ``novelty`` None
            where it is switched off.

    Raises:
        ConfigError: at once; names the first of them, why it is not read, and the remedy.

    Example:
        >>> from sciscidata.cli.settings import resolve
        >>> resolve({"": {"source": "synthetic"}, "novelty": {"n_shuffles": 50}})
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: [novelty] sets n_shuffles, but the closed form draws no shuffles. Leave it out,
        or choose shuffles: null = "permutation" (--null permutation).
    """
    for section, names, reason, remedy in _unread(parts):
        given = [name for name in settings.get(section, {}) if names is None or name in names]
        if given:
            msg = f"[{section}] sets {', '.join(given)}, but {reason}. Leave it out, or {remedy}."
            raise ConfigError(msg)


def _unread(parts: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...] | None, str, str]]:
    """List what these configurations leave unread: section, names (None: all), why, and what would read them."""
    novelty, rule, source = parts["novelty"], parts["thresholds"].novelty_rule, parts["source"]
    no_venues = isinstance(source, OpenAlexConfig) and not source.venues
    if novelty is None or no_venues:
        off, remedy = "novelty is switched off", "switch novelty on: --novelty"
        if no_venues:
            off, remedy = "the venues of references are not asked for, so there is no novelty", "ask for them: --venues"
        yield "novelty", None, off, remedy
        yield "thresholds", ("novelty_rule", *_OF_MARGIN, *_OF_UZZI, *_OF_CUT), off, remedy
    elif novelty.null == "analytic":
        remedy = 'choose shuffles: null = "permutation" (--null permutation)'
        yield "novelty", ("n_shuffles", "seed"), "the closed form draws no shuffles", remedy
    unread, other = (_OF_MARGIN, "margin") if rule == "uzzi" else (_OF_UZZI, "uzzi")
    reads = f'choose the one that does: novelty_rule = "{other}" (--novelty-rule {other})'
    yield "thresholds", unread, f"the novelty rule {rule} does not read it", reads
    # Who asks for the complete window not to be asked for, or for unknown languages too, gets what was asked.
    rules = parts["eligibility"]
    if not rules.languages and not rules.keep_unknown_language:
        yield (
            "eligibility",
            ("keep_unknown_language",),
            "works of any language are kept",
            "name languages: --language en",
        )
    if parts["cd"].window_years is None and rules.complete_window:
        yield "eligibility", ("complete_window",), "a window without end is never complete", "end it: --window-years 5"


def refuse_unread_of_published(config: BuildConfig, *read: str) -> None:
    """Refuse, where scores are taken as published, conventions by which none are computed.

    Args:
        config: of a build or an export.
        *read: options of ``config.cd`` that are read nevertheless.

    Raises:
        ConfigError: at once.
    """
    if not config.has_published_scores:
        return
    for name, part, default, known in (
        ("cd", config.cd, CDConfig(), read),
        ("novelty", config.novelty, NoveltyConfig(), ("score",)),
    ):
        if part is None:
            continue
        changed = [
            f"{option.name} to {value!r}"
            for option in fields(part)
            if option.name not in known and (value := getattr(part, option.name)) != getattr(default, option.name)
        ]
        if changed:
            msg = (
                f"[{name}] sets {', '.join(changed)}, but the scores of SciSciNet are taken as published. Leave that "
                "out, or compute them from the references: SciSciNetConfig.recompute (--recompute)."
            )
            raise ConfigError(msg)
