"""One work of a release in words: its counts, its labels, and how often they come back."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import polars as pl

from sciscidata.errors import InputNotFoundError
from sciscidata.own_label import stated_label
from sciscidata.release.manifest import lacks_scores
from sciscidata.release.read import SCORES_FILE, Release, list_data_files
from sciscidata.terminal.shares import percent

_HEADING = 120  # characters of a text without a title


def put_counts(release: Release, works: pl.DataFrame) -> pl.DataFrame:
    """Put ``n_i``, ``n_j`` and ``n_k`` beside works of a release, and ``label_confidence``, as far as it knows them."""
    if SCORES_FILE not in list_data_files(release.manifest):
        return works
    beside = release.scores.select("openalex_id", "n_i", "n_j", "n_k")
    if release.manifest.get("source", {}).get("labels") == "trust":  # they need not follow from the counts
        return works.join(beside, on="openalex_id", how="left", maintain_order="left")
    with suppress(InputNotFoundError):  # published scores have no counts
        confidence = release.label_confidence.select("openalex_id", "label_confidence")
        beside = beside.join(confidence, on="openalex_id", maintain_order="left")
    return works.join(beside, on="openalex_id", how="left", maintain_order="left")


def describe_work(work: dict[str, Any]) -> list[tuple[str, str]]:
    """Say the counts of a work, its index, its label, and how often that comes back."""
    n_i, n_j, n_k = (work.get(name) for name in ("n_i", "n_j", "n_k"))
    rows: list[tuple[str, str]] = []
    if n_i is not None and n_j is not None:
        alone = f"{n_i:,} works cite it alone (n_i), {n_j:,} with one of its references (n_j)"
        rows.append(("in its window", alone + ("" if n_k is None else f", {n_k:,} only its references (n_k)")))
    if work["cd_index"] is not None:
        rows.append(("CD index", f"{_show_ratio(work)}{work['cd_index']:.2f}"))
    rows += [(f"{kind} label", label) for kind in ("disruption", "novelty") if (label := work[f"{kind}_label"])]
    if (back := work.get("label_confidence")) is not None and work["disruption_label"]:
        again = f"cited anew, {100 * back:.0f} of 100 works like it would be {work['disruption_label']} again"
        rows.insert([name for name, _ in rows].index("disruption label") + 1, ("comes back", again))
    return rows


def _show_ratio(work: dict[str, Any]) -> str:
    """Show how the index follows from the counts, if it does."""
    counts: list[Any] = [work.get(name) for name in ("n_i", "n_j", "n_k")]
    if None in counts or not sum(counts):
        return ""
    n_i, n_j, n_k = counts
    follows = math.isclose((n_i - n_j) / (n_i + n_j + n_k), work["cd_index"], abs_tol=1e-9)
    return f"({n_i:,} - {n_j:,}) / ({n_i:,} + {n_j:,} + {n_k:,}) = " if follows else ""


def list_counts(work: dict[str, Any]) -> list[str]:
    """Say the same in two short lines, as far as it is known: counts and index; labels and how often they come back."""
    counts = [f"{name} {work[name]:,}" for name in ("n_i", "n_j", "n_k") if work.get(name) is not None]
    index = [] if work.get("cd_index") is None else [f"CD index {work['cd_index']:.2f}"]
    back = [] if work.get("label_confidence") is None else [f"comes back {percent(work['label_confidence'])}"]
    labels = [work[f"{kind}_label"] for kind in ("disruption", "novelty") if work.get(f"{kind}_label")]
    lines = (" · ".join([*counts, *index]), " · ".join([", ".join([*labels[:1], *back]), *labels[1:]]))
    return [*filter(None, lines)]


def describe_record(release: Release) -> list[tuple[str, str]]:
    """Describe the first work of a release: title, year, counts and labels."""
    works = getattr(release, next(split for split in release.splits if release.manifest["sides"][split]["rows"]))
    if not lacks_scores(release.manifest):
        works = works.filter(pl.col("disruption_label").is_not_null() | (pl.col("disruption_label").count() == 0))
    work: dict[str, Any] = put_counts(release, works.head(1)).row(0, named=True)
    text = work["title"] or work["abstract"] or ""
    short = text if len(text) <= _HEADING else f"{text[:_HEADING].rsplit(' ', 1)[0]} ..."
    rows = [("title" if work["title"] else "text", short)]
    if work["publication_year"] is not None:
        rows.append(("year", str(work["publication_year"])))
    rows += describe_work(work)
    label = stated_label(release.manifest)
    return rows + ([(label.name, work[label.name])] if label is not None and work[label.name] else [])
