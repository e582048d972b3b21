"""The entries of a manifest about novelty and numbers of works, in JSON types, and remarks on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata.judged import is_over, is_over_by_year, n_citers
from sciscidata.label_thresholds import LabelThresholds, find_conventionality_cut
from sciscidata.novelty.background import read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.own_label import OwnLabel, vocabularies
from sciscidata.records.last_year_of_data import describe_later_works, find_last_year
from sciscidata.schemas import COVERAGE
from sciscidata.storage import hash_file

#: A filter is remarkable if it removes so many works with a label, almost all of one class, beyond its share.
_FEWEST_REMOVED: Final = 10
_ALMOST_ONLY: Final = 0.9
_LIFT: Final = 1.2


def describe_background(path: Path | None, config: NoveltyConfig | None) -> dict[str, Any] | None:
    """Describe a background of the null model of ``config`` by its SHA-256 (not its path) and what it was made of."""
    if path is None or config is None:
        return None
    table = read_background(path, config)
    year, totals = pl.col("publication_year"), pl.col("n_works", "n_references", "n_pairs").sum()
    facts = table.counts.select(totals, first_year=year.min(), last_year=year.max())
    return {"sha256": hash_file(path), **facts.row(0, named=True)}


class NullModel(NamedTuple):
    """How novelty was scored.

    Attributes:
        config: the null model. None: there is no novelty.
        background: from describe_background.
        is_published: z was published by others: only scores follow from ``config``.
        concentrations: of venues, by year.
    """

    config: NoveltyConfig | None
    background: dict[str, Any] | None
    is_published: bool
    concentrations: Mapping[int, float]


def describe_novelty(
    model: NullModel, scored: pl.LazyFrame | pl.DataFrame, n_works: int, thresholds: LabelThresholds
) -> dict[str, Any] | None:
    """State the null model, how many works and pairs were scored, and the cut of Uzzi's rule; None without novelty."""
    config, background, published, concentrations = model
    if config is None:
        return None
    with_z = pl.col("n_pairs").filter(pl.col("z_p10").is_not_null())
    found = scored.lazy().select(works=pl.col("z_p10").count(), pairs=with_z.sum())
    summary = found.collect(engine="streaming").row(0, named=True)
    return {
        "config": None if published else asdict(config),
        "published": {"score": config.score} if published else None,
        "background": background,
        "works": n_works,
        "scored_works": summary["works"],
        "scored_pairs": summary["pairs"],
        "venue_concentration": {str(year): round(share, 4) for year, share in sorted(concentrations.items())},
        "conventionality_cut": find_conventionality_cut(scored.lazy(), thresholds),
    }


def remark_on_novelty(atypicality: Mapping[str, Any] | None, rule: str | None, source: str) -> list[str]:
    """Warn about novelty that is probably not what was meant: ``rule`` is that of the labels, ``source`` its name."""
    if not atypicality:
        return []
    remarks: list[str] = []
    config, background = atypicality["config"], atypicality["background"]
    if not atypicality["scored_works"]:
        needs = ["a work needs two references whose venue and year are known, and a year of its own"]
        if config is None:
            needs = [f"{source} publishes none for them"]
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


def count_works(
    counted: pl.DataFrame,
    last_year: int | None,
    filters: Iterable[str],
    *,
    label: OwnLabel | None = None,
    data_date: str | None = None,
) -> dict[str, Any]:
    """State how many works each of the ``filters`` removed, how many are left, and their years.

    ``counted`` has rows of these.
    """

    def count(rows: pl.DataFrame) -> dict[str, dict[str, int]]:
        return _by_label(rows, "len", label)

    by_filter, by_year = (
        dict(counted.group_by(name).agg(pl.col("len").sum()).rows()) for name in ("removed_by", "publication_year")
    )
    years = {year: n for year, n in by_year.items() if year is not None and n}
    last_year = find_last_year(years, data_date=data_date) if last_year is None else last_year
    return {
        "filters": {
            "works": sum(by_filter.values()),
            **{name: by_filter.get(name, 0) for name in filters},
            "eligible": by_filter.get(None, 0),
        },
        "scored": count(counted),
        "eligible": count(counted.filter(pl.col("removed_by").is_null())),
        "removed": {name: count(counted.filter(removed_by=name)) for name in filters if name in by_filter},
        "first_year": min(years, default=None),
        "last_year": last_year,
        "later_works": describe_later_works(years, last_year),
    }


def name_eligible(counts: Mapping[str, Any]) -> str:
    """Name the eligible works: some were not read where texts are read late, so their number is a bound."""
    return "may be drawn, at most" if counts.get("text", {}).get("not_read") else "may be drawn"


def describe_unread(counts: Mapping[str, Any]) -> str | None:
    """Say how many eligible works have a text that was not read, so that they may be fewer; None if all were."""
    if not (n := counts.get("text", {}).get("not_read")):
        return None
    return (
        f"The texts of {n:,} works that may be drawn were not read. Filters of text may remove some of them, so fewer "
        "may be drawn."
    )


def count_judged(
    counted: pl.DataFrame, drawn: pl.DataFrame, first_open: int | pl.Expr | None, label: OwnLabel | None
) -> dict[str, Any]:
    """State how many works with each label are judged: of all, of those that may be drawn, and of each split.

    Windows are over that begin before the year ``first_open``; None: all are. ``counted`` has the cited works in a
    column ``cited``, and ``drawn`` has ``n_i`` and ``n_j``, or ``n_citers``.
    """
    citers = n_citers() if "n_i" in drawn.columns else pl.col("n_citers")
    full = [name for name in COVERAGE if name in counted.columns]
    each = drawn.select("split", "publication_year", *full, *vocabularies(label), cited=(citers > 0).cast(pl.Int64))
    counted, each = (rows.with_columns(is_over_by_year(first_open)).filter(is_over()) for rows in (counted, each))
    rows = {"scored": counted, "eligible": counted.filter(pl.col("removed_by").is_null())}
    rows |= {split: each.filter(split=split) for split in drawn["split"].unique().sort()}
    return {name: _by_label(some, "cited", label) for name, some in rows.items()}


def _by_label(rows: pl.DataFrame, n: str, label: OwnLabel | None) -> dict[str, dict[str, int]]:
    return {
        column: {word: int(rows.filter(pl.col(column) == word)[n].sum()) for word in words}
        for column, words in vocabularies(label).items()
    }


class OneSided(NamedTuple):
    """A filter that removed almost only works of one class: ``n`` of the ``of`` removed ones with a label."""

    name: str
    kind: str
    label: str
    n: int
    of: int

    def describe(self) -> str:
        """Say it behind the number of removed works."""
        which = "all" if self.n == self.of else f"{self.n:,}"
        return f"{self.of:,} {self.kind} labels, {which} of them {self.label}"


def find_one_sided(counts: Mapping[str, Any]) -> list[OneSided]:
    """Find the filters that removed almost only works of one class, beyond the share of that class in all works."""
    found: list[OneSided] = []
    for name, columns in sorted(counts.get("removed", {}).items()):
        for column, by_class in sorted(columns.items()):
            n, of_all = sum(by_class.values()), counts["scored"][column]
            label = max(by_class, key=lambda word: by_class[word])
            share, share_of_all = by_class[label] / max(n, 1), of_all[label] / max(sum(of_all.values()), 1)
            if n >= _FEWEST_REMOVED and share >= _ALMOST_ONLY and share > _LIFT * share_of_all:
                found.append(OneSided(name, column.removesuffix("_label"), label, by_class[label], n))
    return found
