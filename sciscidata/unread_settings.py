"""Settings that nothing reads beside others: who gives them believes otherwise, and is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from sciscidata.cdindex import CDConfig
from sciscidata.errors import ConfigError
from sciscidata.novelty_config import NoveltyConfig
from sciscidata.sources.openalex_candidates import OpenAlexConfig

if TYPE_CHECKING:
    from sciscidata.pipeline import BuildConfig

_OF_MARGIN: Final = ("novelty_margin",)
_OF_UZZI: Final = ("uzzi_tail_max",)
_OF_CUT: Final = ("uzzi_median_share",)  # read with either rule: the manifest states the cut


def refuse_unread(settings: Mapping[str, Mapping[str, Any]], parts: Mapping[str, Any]) -> None:
    """Refuse settings that were given and have no effect beside the others.

    Args:
        settings: what was given, by section.
        parts: the configurations that were made of it, by section; ``source`` that of the source, and ``novelty`` None
            where it is switched off.

    Raises:
        ConfigError: at once; names the first of them, why it is not read, and the remedy.

    Example:
        >>> from sciscidata.settings import resolve
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
