"""What a baseline saw of papers, in names for a record and in words for a reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import polars as pl

from sciscidata.storage.sums import read_json
from sciscirl.runs.record import RUN_FILE
from sciscirl.task.papers import LATER, SEEN, list_hidden

#: The citers in the window of the label, to the next power of two. What a baseline sees where no cited_by_count is.
CITERS: Final = "n_citers"
#: What became known after publication.
_LATER: Final = (*LATER, CITERS)
_WORDS: Final = {
    "references": "titles of references",
    "publication_year": "year",
    "primary_field": "field",
    "n_references": "number of references",
    "cited_by_count": "citations",
    CITERS: "citers in the window",
}
_NUMBERS: Final = "numbers of references"
#: Goes before what came later.
LATER_MARK: Final = "LATER: "
#: What the baselines of older versions saw, which did not state it.
_BEFORE: Final[Mapping[str, tuple[str, ...]]] = {
    "tfidf_logistic": ("title", "abstract", "publication_year", "primary_field", "cited_by_count"),
    "metadata_boosting": ("publication_year", "primary_field", "cited_by_count"),
}


class Judged(NamedTuple):
    """What a baseline said, and its settings: ``baseline`` names it, ``saw`` what it saw (``list_seen``)."""

    predictions: pl.DataFrame
    settings: Mapping[str, Any]


def list_seen(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """List what the baseline of some settings saw of a paper; older ones do not state it."""
    if (stated := settings.get("saw")) is not None:
        return tuple(stated)
    hidden = list_hidden(settings.get("hide") or (), settings.get("as_of") or "release")
    return tuple(name for name in _BEFORE.get(settings["baseline"], ()) if name not in hidden)


def list_later(seen: Sequence[str]) -> tuple[str, ...]:
    """List what of it nobody knew at publication."""
    return tuple(name for name in seen if name in _LATER)


def say_seen(settings: Mapping[str, Any]) -> str:
    """Say what the baseline of some settings saw, and what of it came later; "" of anything else.

    Example:
        >>> say_seen({"baseline": "words", "saw": ["title", "abstract"]}), say_seen({"style": "plain"})
        ('title, abstract', '')
        >>> say_seen({"baseline": "metadata_boosting"})
        'year, field; LATER: citations, unknown at publication'
        >>> say_seen({"baseline": "majority"})
        'no paper'
    """
    if "baseline" not in settings:
        return ""
    seen = list_seen(settings)
    later = list_later(seen)
    known = [name for name in seen if name not in later]
    plain = {"title", "abstract", *_WORDS}
    numbers = [name for name in known if name not in plain]
    words = [_WORDS.get(name, name) for name in known if name in plain and not (numbers and name == "n_references")]
    words += [_NUMBERS] if numbers else []
    after = [LATER_MARK + ", ".join(_WORDS[name] for name in later) + ", unknown at publication"] if later else []
    return "; ".join([*([", ".join(words)] if words else []), *after]) or "no paper"


def say_known(settings: Mapping[str, Any]) -> str:
    """Say what a baseline, a model or another's result knew of a paper; "" where its settings do not state it.

    Example:
        >>> say_known({"style": "plain", "hide": ["publication_year"], "as_of": "publication", "show": ["references"]})
        'title, abstract, field, titles of references'
        >>> say_known({"preset": "exp4", "style": "checklist"})
        'title, abstract, year, field; LATER: citations, unknown at publication'
    """
    if "baseline" in settings:
        return say_seen(settings)
    if isinstance(settings.get("saw"), str):
        return settings["saw"]
    if not {"style", "prompt_sha256"} & settings.keys():
        return ""
    hidden = list_hidden(settings.get("hide") or (), settings.get("as_of") or "release")
    seen = [name for name in (*SEEN, *(settings.get("show") or ())) if name not in hidden]
    return say_seen({"baseline": "", "saw": seen})


def find_saw_later(saw: Mapping[str, str]) -> set[str]:
    """Find the names of those that saw what came after publication, by what is said of them (``say_known``)."""
    return {name for name, said in saw.items() if LATER_MARK in said}


def mark_later(names: Iterable[str], saw: Mapping[str, str]) -> dict[str, str]:
    """Mark, for a picture, the names of those that saw what came after publication.

    Example:
        >>> mark_later(["words", "later_counts"], {"later_counts": "year; LATER: citations, unknown at publication"})
        {'words': 'words', 'later_counts': 'later_counts (saw later)'}
    """
    saw_later = find_saw_later(saw)
    return {name: f"{name} (saw later)" if name in saw_later else name for name in names}


def read_seen(folder: Path) -> str:
    """Say what a baseline saw by its folder; "" of anything else."""
    try:
        return say_seen(cast("dict[str, Any]", read_json(folder / RUN_FILE))["settings"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
