"""Which works may be drawn: named filters in a fixed order. A removal counts at the first filter that applies.

The order is part of the manifest's meaning: a retracted work without a title counts as retracted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import polars as pl

from sciscidata.disruption.config import WindowYears
from sciscidata.errors import ConfigError
from sciscidata.options.checks import Configuration, Share, Year, check_value, checked_config
from sciscidata.options.did_you_mean import suggest
from sciscidata.records.ids import number_ids
from sciscidata.records.last_year_of_data import (
    count_years,
    describe_later_works,
    find_last_year,
    remark_on_later_works,
)
from sciscidata.sampling.duplicates import find_duplicates
from sciscidata.schemas import CD_SCORES, CITATIONS, WORKS, require_columns

logger = logging.getLogger(__name__)

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]  # counts are UInt32
_Code = Annotated[str, msgspec.Meta(min_length=1, title="CODE")]
_Type = Annotated[str, msgspec.Meta(min_length=1, title="TYPE")]
_Field = Annotated[str, msgspec.Meta(min_length=1, title="FIELD")]
_Venue = Annotated[str, msgspec.Meta(min_length=1, title="VENUE")]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class EligibilityConfig(Configuration):
    """What a work needs to be drawn; a filter that is off removes nothing and counts 0.

    Attributes:
        require_title: remove works without a title, or with a blank one.
        require_abstract: remove works without an abstract, or with a blank one.
        exclude_retracted: remove retracted works.
        min_references: fewest distinct references on record.
        min_citations: fewest citing works inside the window (n_i + n_j).
        languages: OpenAlex language codes to keep; empty: any.
        keep_unknown_language: keep works whose language is unknown. Records fetched before mid-2023 have none. Read
            only when ``languages`` is not empty.
        work_types: OpenAlex types to keep; empty: any. An unknown type is not one of them.
        fields: primary fields to keep, by their exact names ("Medicine"); empty: any. An unknown field is not one of
            them.
        venues: journals and other venues to keep, by id ("S137773608", or the number alone) or by exact name; empty:
            any. A name stands for every venue of that name. An unknown venue is not one of them.
        min_year: first publication year to keep. None: any.
        max_year: last publication year to keep. None: any.
        complete_window: keep only works whose citation window ends before ``last_year``, because a database's last year
            is rarely complete.
        last_year: last year of the data. None: found in the numbers of works of each year, in spite of mistaken dates
            in the future (``last_year_of_data.find_last_year``).
        min_label_confidence: lowest confidence in the disruption label (``compute_label_confidence``), found from all
            works before any filter. It needs n_i, n_j and n_k. Where novelty labels alone are balanced, that in the
            novelty label (``compute_novelty_confidence``), which needs references. None: any.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or the years are out of order.

    Example:
        >>> EligibilityConfig(min_year=2000, max_year=1990)
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: EligibilityConfig.min_year (2000) lies after EligibilityConfig.max_year (1990).
        Swap them.
    """

    require_title: bool = True
    require_abstract: bool = True
    exclude_retracted: bool = True
    min_references: _Count = 1
    min_citations: _Count = 1
    languages: tuple[_Code, ...] = ("en",)
    keep_unknown_language: bool = True
    work_types: tuple[_Type, ...] = ()
    fields: tuple[_Field, ...] = ()
    venues: tuple[_Venue, ...] = ()
    min_year: Year | None = None
    max_year: Year | None = None
    complete_window: bool = True
    last_year: Year | None = None
    min_label_confidence: Share | None = None

    def _check(self) -> None:
        if self.min_year is not None and self.max_year is not None and self.min_year > self.max_year:
            raise ConfigError(
                f"EligibilityConfig.min_year ({self.min_year}) lies after EligibilityConfig.max_year "
                f"({self.max_year}). Swap them."
            )


#: The filters, in the order in which they are applied, and why each removes works, with the settings of the release.
#: What can be read off a record comes first, then what its citations say. The last one looks at other works.
FILTER_NOTES: Final[Mapping[str, str]] = {
    "retracted": "retracted",
    "work_type": "another work type",
    "field": "another field",
    "venue": "another venue",
    "language": "another language",
    "no_title": "no title",
    "no_abstract": "no abstract",
    "no_year": "no publication year",
    "year_range": "year outside the chosen range",
    "few_references": "fewer than {min_references} references",
    "few_citations": "fewer than {min_citations} citers in the window",
    "window_incomplete": "window not over before {last_year}",
    "undefined_score": "CD index undefined",
    "unsure_label": "label confidence below {min_label_confidence}",
    "duplicate": "title or DOI of an older work",
}
FILTERS: Final = tuple(FILTER_NOTES)
#: Those that read texts.
TEXT_FILTERS: Final = ("language", "no_title", "no_abstract")
#: Filters that releases of older versions knew nothing of, by their option. Off, a manifest leaves them out.
LATER_FILTERS: Final[Mapping[str, str]] = {
    "field": "fields",
    "venue": "venues",
    "unsure_label": "min_label_confidence",
}

_READ_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "fields": ("primary_field",),
    "venues": ("source_id", "source_name"),
}
_OF_NAMES: Final = tuple(name for names in _READ_BY.values() for name in names)
_FROM_WORKS: Final = (
    "work_id",
    "publication_year",
    "title",
    "abstract",
    "language",
    "work_type",
    "is_retracted",
    "doi",
    *_OF_NAMES,
)

#: What the filters read; made by :func:`join_candidates`.
CANDIDATES: Final = pl.Schema({name: WORKS[name] for name in _FROM_WORKS} | CD_SCORES | {"n_references": pl.UInt32()})


def count_references(citations: pl.LazyFrame | pl.DataFrame) -> pl.LazyFrame:
    """Count the distinct references of every citing work, unordered: self-citations do not count, unknown works do."""
    edges = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage="count_references")
    return (
        edges.filter(pl.col("citing_id") != pl.col("cited_id"))
        .group_by(pl.col("citing_id").alias("work_id"))
        .agg(pl.col("cited_id").n_unique().cast(pl.UInt32).alias("n_references"))
    )


def join_candidates(
    works: pl.LazyFrame | pl.DataFrame,
    scores: pl.LazyFrame | pl.DataFrame,
    citations: pl.LazyFrame | pl.DataFrame,
) -> pl.LazyFrame:
    """Join what the filters read of each work, unordered: CANDIDATES, and the further columns of ``scores``."""
    facts = require_columns(works, WORKS, frame_name="WORKS", stage="join_candidates", columns=_FROM_WORKS)
    scored = require_columns(scores, CD_SCORES, frame_name="CD_SCORES", stage="join_candidates")
    return (
        facts.select(_FROM_WORKS)
        .join(scored.drop(*_OF_NAMES, "publication_year", strict=False), on="work_id", how="left")
        .join(count_references(citations), on="work_id", how="left")
        .with_columns(pl.col("n_references").fill_null(0))
    )


def mark_removals(
    candidates: pl.LazyFrame | pl.DataFrame,
    config: EligibilityConfig | None = None,
    *,
    window_years: int | None,
    data_date: str | None = None,
) -> pl.LazyFrame:
    """Add ``removed_by``: the first of FILTERS that removes a work, null if it may be drawn. Sorted by ``work_id``.

    Drops texts, field and venue; further columns pass through. ``window_years`` is the citation window of the scores;
    None (no upper bound) removes nothing for its window. ``data_date``, when the youngest record was changed
    (YYYY-MM-DD), bounds a last year that is not named. The plan runs once and streams: abstracts never lie in memory
    together.
    """
    check_value("window_years", window_years, WindowYears)
    config = checked_config(config, EligibilityConfig)
    needed = [name for name in CANDIDATES if name not in _OF_NAMES or name in names_read(config)]
    known = CANDIDATES
    if config.min_label_confidence:
        known = pl.Schema({**CANDIDATES, "label_confidence": pl.Float64()})
        needed.append("label_confidence")
    frame = require_columns(candidates, known, frame_name="CANDIDATES", stage="mark_removals", columns=needed)
    dropped = ("title", "abstract", *_OF_NAMES)
    kept = {name: dtype for name, dtype in frame.collect_schema().items() if name not in dropped}
    schema = kept | {"removed_by": pl.String()}

    def run() -> pl.DataFrame:
        marked = (
            frame.with_columns(removed_by=first_reason(config, window_years, config.last_year))
            .drop(dropped[1:], strict=False)
            # Only the titles that can still be compared are worth their memory.
            .with_columns(pl.when(pl.col("removed_by").is_null()).then("title"))
            .sort("work_id")
            .collect(engine="streaming")
        )
        if config.last_year is None:  # only now are the years of all works known
            marked = _judge_windows(marked, config, window_years, data_date)
        repeated = find_duplicates(marked.filter(pl.col("removed_by").is_null()))
        is_repeated = pl.col("removed_by").is_null() & pl.col("work_id").is_in(repeated.implode())
        return marked.with_columns(
            pl.when(is_repeated).then(pl.lit("duplicate")).otherwise("removed_by").alias("removed_by")
        ).select(list(schema))

    return pl.defer(run, schema=schema)


def names_read(config: EligibilityConfig) -> list[str]:
    """List the columns of WORKS that the filters of field and venue read, as far as they are on."""
    return [name for option, names in _READ_BY.items() if getattr(config, option) for name in names]


def chosen_names(config: EligibilityConfig) -> list[pl.Expr]:
    """Say whether each work has a chosen field, and a chosen venue, as far as any are chosen."""
    chosen = {option: words for option in _READ_BY if (words := getattr(config, option))}
    return [_is_named(option, words) for option, words in chosen.items()]


def remark_on_names(works: pl.LazyFrame, config: EligibilityConfig) -> Iterator[str]:
    """Warn of each name of a field or a venue that no work has, with the nearest known one."""
    for option, columns in _READ_BY.items():
        words: tuple[str, ...] = getattr(config, option)
        is_named = works.select(columns).filter(_is_named(option, words))
        found = is_named.unique().collect(engine="streaming") if words else pl.DataFrame()
        missing = [word for word in words if found.filter(_is_named(option, (word,))).is_empty()]
        names = works.select(columns[-1]).unique() if missing else pl.LazyFrame({columns[-1]: []})
        known = names.collect(engine="streaming").to_series().drop_nulls().sort()
        for word in missing:
            yield f"no work has the {option[:-1]} {word!r} (EligibilityConfig.{option}).{suggest(word, known)}"


def _is_named(option: str, words: tuple[str, ...]) -> pl.Expr:
    """Say of each work whether it has one of these fields or venues; never null."""
    is_named = pl.col(_READ_BY[option][-1]).is_in(words).fill_null(value=False)
    if option == "venues":
        numbers = number_ids(pl.Series(words), "S")
        is_named |= pl.col("source_id").is_in(numbers.implode()).fill_null(value=False)
    return is_named


def _judge_windows(
    marked: pl.DataFrame, config: EligibilityConfig, window_years: int | None, data_date: str | None
) -> pl.DataFrame:
    """Mark the works whose window was not over before the last year, unless an earlier filter removes them."""
    last_year = choose_last_year(marked, config, data_date)
    if not config.complete_window or window_years is None or last_year is None:
        return marked
    later = FILTERS[FILTERS.index("window_incomplete") :]
    is_removed = _is_open(window_years, last_year) & pl.col("removed_by").fill_null(later[0]).is_in(later)
    reason = pl.when(is_removed).then(pl.lit("window_incomplete")).otherwise("removed_by")
    return marked.with_columns(removed_by=reason)


def choose_last_year(
    works: pl.LazyFrame | pl.DataFrame, config: EligibilityConfig, data_date: str | None
) -> int | None:
    """Return the last year that ``config`` names, else find it, and warn of works dated after it."""
    if config.last_year is not None:
        return config.last_year
    counts = count_years(works)
    last_year = find_last_year(counts, data_date=data_date)
    for remark in remark_on_later_works(describe_later_works(counts, last_year), last_year):
        logger.warning("%s", remark)
    return last_year


def _is_open(window_years: int, last_year: int) -> pl.Expr:
    # A year and a window each fit their 32 bits; their sum may not.
    return pl.col("publication_year").cast(pl.Int64) + window_years >= last_year


def first_reason(
    config: EligibilityConfig, window_years: int | None, last_year: int | None, without: Collection[str] = ()
) -> pl.Expr:
    """Name the filter that removes a row of CANDIDATES, null if none. The filter ``duplicate`` is the caller's."""
    year = pl.col("publication_year")
    language, work_type = pl.col("language"), pl.col("work_type")
    removes: dict[str, pl.Expr] = {
        "no_year": year.is_null(),
        "undefined_score": pl.col("cd_index").fill_nan(None).is_null(),
    }
    if config.exclude_retracted:
        removes["retracted"] = pl.col("is_retracted")
    if config.work_types:
        removes["work_type"] = ~work_type.is_in(config.work_types).fill_null(value=False)
    for option in _READ_BY:
        if words := getattr(config, option):
            removes[option.removesuffix("s")] = ~_is_named(option, words)
    if config.languages:
        known = config.keep_unknown_language
        removes["language"] = ~language.is_in(config.languages).fill_null(value=known)
    for column, required in (("title", config.require_title), ("abstract", config.require_abstract)):
        if required:
            removes[f"no_{column}"] = pl.col(column).str.strip_chars().fill_null("") == ""
    # Only the bounds that there are: for a null literal a streaming query holds all rows.
    bounds = [] if config.min_year is None else [year < config.min_year]
    bounds += [] if config.max_year is None else [year > config.max_year]
    if bounds:
        removes["year_range"] = pl.any_horizontal(bounds)
    removes["few_references"] = pl.col("n_references").fill_null(0) < config.min_references
    removes["few_citations"] = (pl.col("n_i") + pl.col("n_j")).fill_null(0) < config.min_citations
    if config.complete_window and window_years is not None and last_year is not None:
        removes["window_incomplete"] = _is_open(window_years, last_year)
    if config.min_label_confidence:
        removes["unsure_label"] = (pl.col("label_confidence") < config.min_label_confidence).fill_null(value=True)
    applied = [name for name in FILTERS if name in removes and name not in without]
    # Without a filter, a null literal; with one it would make a streaming query hold all rows.
    return (
        pl.coalesce(pl.when(removes[name]).then(pl.lit(name)) for name in applied)
        if applied
        else pl.lit(None, pl.String)
    )
