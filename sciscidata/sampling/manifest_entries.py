"""The entries of a manifest about novelty and numbers of works, in JSON types, and remarks on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from sciscidata.label_thresholds import VOCABULARIES, LabelThresholds, count_labels, find_conventionality_cut
from sciscidata.last_year_of_data import count_years, describe_later_works, find_last_year, remark_on_later_works
from sciscidata.novelty.background import read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.null_model import remark_on_concentration
from sciscidata.sampling.eligibility import count_removals
from sciscidata.storage import hash_file


def describe_background(path: Path | None, config: NoveltyConfig | None) -> dict[str, Any] | None:
    """Describe a background by its SHA-256 (not its path) and what it was made of; None if there is none.

    Errors are those of ``read_background``, and a ConfigError if its null model is not the one that ``config`` asks
    for.
    """
    if path is None or config is None:
        return None
    table = read_background(path)
    table.check_null_model(config)
    year, totals = pl.col("publication_year"), pl.col("n_works", "n_references", "n_pairs").sum()
    facts = table.counts.select(totals, first_year=year.min(), last_year=year.max())
    return {"sha256": hash_file(path), **facts.row(0, named=True)}


def describe_novelty(
    config: NoveltyConfig | None,
    thresholds: LabelThresholds,
    background: dict[str, Any] | None,
    scored: pl.LazyFrame | pl.DataFrame,
    *,
    works: int,
    published: bool = False,
    concentrations: Mapping[int, float] | None = None,
) -> dict[str, Any] | None:
    """State the null model, how many works and pairs were scored, and the cut of Uzzi's rule; None without novelty.

    ``background`` is from describe_background, None if the null model is made of the works themselves. ``scored`` is
    ATYPICALITY of every work with a ``z_p10``, perhaps of others; ``works`` says how many were read. With
    ``published``, z was published by others, and only the scores follow from ``config``: then ``config`` is null in the
    manifest, and ``published`` names the score. ``concentrations`` are of venues, by year that the closed form scored;
    see score_atypicality.

    Example:
        >>> scored = pl.DataFrame({"n_pairs": [3, 1, 5], "z_p10": [0.1, 2.0, None], "z_median": [1.0, 2.0, None]})
        >>> stated = describe_novelty(NoveltyConfig(), LabelThresholds(), None, scored, works=3)
        >>> stated["works"], stated["scored_works"], stated["scored_pairs"], stated["conventionality_cut"]
        (3, 2, 4, 1.0)
    """
    if config is None:
        return None
    with_z = pl.col("n_pairs").filter(pl.col("z_p10").is_not_null())
    found = scored.lazy().select(works=pl.col("z_p10").count(), pairs=with_z.sum())
    facts = found.collect(engine="streaming").row(0, named=True)
    return {
        "config": None if published else asdict(config),
        "published": {"score": config.score} if published else None,
        "background": background,
        "works": works,
        "scored_works": facts["works"],
        "scored_pairs": facts["pairs"],
        "venue_concentration": {str(year): round(share, 4) for year, share in sorted((concentrations or {}).items())},
        "conventionality_cut": find_conventionality_cut(scored.lazy(), thresholds),
    }


def remark_on_novelty(atypicality: Mapping[str, Any] | None, rule: str | None) -> list[str]:
    """Warn about novelty in a release that is probably not what was meant; ``rule`` is the rule of the labels.

    Example:
        >>> scored = pl.DataFrame(schema={"n_pairs": pl.Int64, "z_p10": pl.Float64, "z_median": pl.Float64})
        >>> stated = describe_novelty(NoveltyConfig(years=(2030, 2031)), LabelThresholds(), None, scored, works=0)
        >>> print(*remark_on_novelty(stated, "margin"))
        no work of the 0 read has a novelty score: a work needs two references whose venue and year are known, and
        a year of its own; only the years 2030 to 2031 were asked for (NoveltyConfig.years, [novelty] years).
    """
    if not atypicality:
        return []
    remarks: list[str] = []
    config, background = atypicality["config"], atypicality["background"]
    if not atypicality["scored_works"]:
        needs = ["a work needs two references whose venue and year are known, and a year of its own"]
        if config is None:
            needs = ["SciSciNet publishes none for them"]
        elif config["years"]:
            first, last = config["years"]
            needs.append(f"only the years {first} to {last} were asked for (NoveltyConfig.years, [novelty] years)")
        if background:
            years = f"{background['first_year']} to {background['last_year']}"
            needs.append(f"the background knows the years {years}, and of these works no pair of venues in them")
        remarks.append(f"no work of the {atypicality['works']:,} read has a novelty score: {'; '.join(needs)}.")
    if rule == "uzzi" and (config or atypicality["published"])["score"] == "rank":
        remarks.append("scores are ranks, but the novelty labels are not of them: Uzzi's rule labels by z.")
    return remarks


def remark_on_venues(atypicality: Mapping[str, Any] | None) -> list[str]:
    """Warn about the years in which few venues dominate, as the log did when they were scored.

    Example:
        >>> remark_on_venues({"venue_concentration": {"1999": 0.3}})[0].split(":")[0]
        'few venues dominate the references of 1 of 1 years (1999)'
    """
    stated = atypicality.get("venue_concentration", {}) if atypicality else {}
    return remark_on_concentration({int(year): share for year, share in stated.items()})


def count_stages(
    marked: pl.DataFrame, eligible: pl.DataFrame, last_year: int | None, *, data_date: str | None = None
) -> dict[str, Any]:
    """Count the works at every filter, and the scored and the eligible ones by label.

    ``marked`` is every work read, labelled, from mark_removals; ``eligible`` those that may be drawn. A ``last_year``
    of None is found.
    """
    stages = {"scored": marked, "eligible": eligible}
    return {
        "filters": count_removals(marked),
        **{stage: {name: count_labels(works, name) for name in VOCABULARIES} for stage, works in stages.items()},
        **describe_years(count_years(marked), last_year, data_date=data_date),
    }


def describe_years(counts: Mapping[int, int], last_year: int | None, *, data_date: str | None = None) -> dict[str, Any]:
    """State the first and the last year of the data, and which works are dated after it.

    A ``last_year`` of None is found.

    Example:
        >>> describe_years({2000: 40, 2001: 60, 2050: 1}, None)
        {'first_year': 2000, 'last_year': 2001, 'later_works': {'works': 1, 'first_year': 2050, 'last_year': 2050}}
    """
    last_year = find_last_year(counts, data_date=data_date) if last_year is None else last_year
    first_year = min((year for year, n in counts.items() if n), default=None)
    return {
        "first_year": first_year,
        "last_year": last_year,
        "later_works": describe_later_works(counts, last_year),
    }


def remark_on_years(manifest: Mapping[str, Any]) -> list[str]:
    """Warn about works of a release that are dated after the last year; empty where the last year was named.

    Example:
        >>> counts = {"last_year": 2001, "later_works": {"works": 1, "first_year": 2050, "last_year": 2050}}
        >>> remark_on_years({"counts": counts, "eligibility": {"last_year": None}})[0].split(":")[0]
        '1 work is dated after 2001, the last year of the data'
    """
    counts = manifest.get("counts", {})
    if manifest.get("eligibility", {}).get("last_year") is not None:
        return []
    return remark_on_later_works(counts.get("later_works"), counts.get("last_year"))
