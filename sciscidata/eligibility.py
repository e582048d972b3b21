"""Which works may be drawn: named filters in a fixed order. A removal counts at the first filter that applies.

The order is part of the manifest's meaning: a retracted work without a title counts as retracted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, cast

import msgspec
import polars as pl

from sciscidata.disruption.config import WindowYears, first_open_window
from sciscidata.errors import ConfigError
from sciscidata.options.checks import Configuration, Share, Year, check_value, checked_config
from sciscidata.options.did_you_mean import suggest
from sciscidata.own_label import stated_where
from sciscidata.records.duplicates import find_duplicates
from sciscidata.records.ids import number_ids
from sciscidata.records.last_year_of_data import (
    count_years,
    describe_later_works,
    find_last_year,
    remark_on_later_works,
)
from sciscidata.records.listed_ids import ListedIds
from sciscidata.schemas import CD_SCORES, CITATIONS, COVERAGE, WORKS, require_columns

logger = logging.getLogger(__name__)

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]  # counts are UInt32
_Code = Annotated[str, msgspec.Meta(min_length=1, title="CODE")]
_Type = Annotated[str, msgspec.Meta(min_length=1, title="TYPE")]
_Field = Annotated[str, msgspec.Meta(min_length=1, title="FIELD")]
_Venue = Annotated[str, msgspec.Meta(min_length=1, title="VENUE")]
_Where = Annotated[Mapping[str, pl.Expr], msgspec.Meta(description="a dict of names and Polars expressions")]
_Listed = Annotated[ListedIds, msgspec.Meta(description="what BuildConfig.ids names")]
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,50}")


class _Expressions(dict[str, pl.Expr]):
    """Expressions by name. Those with the same steps are equal: ``==`` of Polars makes an expression."""

    def __eq__(self, other: object) -> bool:
        theirs = cast("dict[str, pl.Expr]", other) if isinstance(other, dict) else {}
        same = [*self] == [*theirs] and all(self[name].meta.eq(theirs[name]) for name in self)
        return isinstance(other, dict) and same

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return repr({name: str(expression) for name, expression in self.items()})


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
            is rarely complete. Where works have a column ``last_full_year``, it also ends by that year.
        last_year: last year of the data. None: the year after the latest ``last_full_year``, else found in the numbers
            of works of each year, in spite of mistaken dates in the future (``last_year_of_data.find_last_year``).
        min_label_confidence: lowest confidence in the disruption label (``compute_label_confidence``), found from all
            works before any filter. It needs n_i, n_j and n_k. Where novelty labels alone are balanced, that in the
            novelty label (``compute_novelty_confidence``), which needs references. None: any.
        where: filters of your own, by name: ``{"long": pl.col("abstract").str.len_chars() > 500}``. They keep the works
            for which the expression is true. It reads columns of WORKS, scores and labels, of one work at a time.
        listed: ids of the works to keep, which ``BuildConfig.ids`` names. None: any.

    Raises:
        ConfigError: on construction, if a value does not fit its type, the years are out of order, or a filter of your
            own cannot be used.

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
    where: _Where = field(default_factory=dict[str, pl.Expr], hash=False, metadata={"python_only": True})
    listed: _Listed | None = field(default=None, metadata={"python_only": True})

    def _check(self) -> None:
        object.__setattr__(self, "where", _Expressions(self.where))
        for name, expression in self.where.items():
            _check_own(name, expression)
        if self.min_year is not None and self.max_year is not None and self.min_year > self.max_year:
            raise ConfigError(
                f"EligibilityConfig.min_year ({self.min_year}) lies after EligibilityConfig.max_year "
                f"({self.max_year}). Swap them."
            )

    def stated(self) -> dict[str, Any]:
        """Describe the filters for a manifest, in JSON types: an expression as text."""
        own = [{"name": name, "expression": str(expression)} for name, expression in self.where.items()]
        listed = None if self.listed is None else self.listed.stated
        return {option.name: getattr(self, option.name) for option in fields(self)} | {"where": own, "listed": listed}


def _check_own(name: str, expression: pl.Expr) -> None:
    """Raise a ConfigError for a filter that cannot be counted, or compares works with each other."""
    what = f"EligibilityConfig.where[{name!r}]"
    if not _NAME.fullmatch(name) or name in (*FILTERS, "works", "eligible"):
        raise ConfigError(
            f"{what}: the name cannot be used. It needs small letters, digits and _, and is no filter that there is: "
            f"{', '.join(FILTERS)}."
        )
    parts = [expression]
    for part in parts:  # which grows
        parts += part.meta.pop()
        if part.meta.has_multiple_outputs():
            raise ConfigError(f"{what} has {part}, which may be several columns. Name each column.")
        try:
            is_of_one = "element()" in str(part) or part.meta.is_row_separable()
        except pl.exceptions.ColumnNotFoundError:  # Polars does not say it of lists and of functions of Python
            is_of_one = True
        if not is_of_one:
            raise ConfigError(
                f"{what} has {part}, which depends on other works, and not all of them are read. Use what one work "
                "says; to compare works, make a label of your own: OwnLabel.expression."
            )


@dataclass(frozen=True)
class Filter:
    """One filter.

    Attributes:
        note: why it removes works, with the settings of the release.
        options: those that decide it; changing one from its default may make it too strict.
        reads: columns, of which labelled files need at least one.
        removes: makes the expression that is true of works to remove, from the settings and the first year whose
            window was not over (None: every window was). Anything but an expression: the filter is off.
        is_new: whether releases of older versions knew nothing of it. Off, a manifest leaves it out.
    """

    note: str
    options: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    removes: Callable[[EligibilityConfig, int | pl.Expr | None], object] = lambda _, __: None
    is_new: bool = False


def is_blank(column: str) -> pl.Expr:
    """Say of each work whether a text is missing or empty; never null."""
    return pl.col(column).str.strip_chars().fill_null("") == ""


def _is_named(words: tuple[str, ...], of: tuple[str, ...]) -> pl.Expr:
    """Say of each work whether it has one of these fields or venues; never null."""
    is_named = pl.col(of[-1]).is_in(words).fill_null(value=False)
    if "source_id" in of:
        numbers = number_ids(pl.Series(words, dtype=pl.String()), "S")
        is_named |= pl.col("source_id").is_in(numbers.implode()).fill_null(value=False)
    return is_named


def _is_outside(config: EligibilityConfig) -> pl.Expr | None:
    # Only the bounds that there are: for a null literal a streaming query holds all rows.
    bounds = [] if config.min_year is None else [pl.col("publication_year") < config.min_year]
    bounds += [] if config.max_year is None else [pl.col("publication_year") > config.max_year]
    return pl.any_horizontal(bounds) if bounds else None


_FIELD: Final = ("primary_field",)
_VENUE: Final = ("source_id", "source_name")

#: The filters, in the order in which they are applied. What can be read off a record comes first, then the user's own
#: (``list_filters``), then what citations say. The last one looks at other works.
FILTERS: Final[Mapping[str, Filter]] = {
    "unlisted": Filter("not in the list of ids", ("listed",), (),
        lambda config, _: config.listed and ~config.listed.holds(), is_new=True),
    "retracted": Filter("retracted", ("exclude_retracted",), ("is_retracted",),
        lambda config, _: config.exclude_retracted and pl.col("is_retracted")),
    "work_type": Filter("another work type", ("work_types",), ("work_type",),
        lambda config, _: config.work_types and ~_is_named(config.work_types, ("work_type",))),
    "field": Filter("another field", ("fields",), _FIELD,
        lambda config, _: config.fields and ~_is_named(config.fields, _FIELD), is_new=True),
    "venue": Filter("another venue", ("venues",), _VENUE,
        lambda config, _: config.venues and ~_is_named(config.venues, _VENUE), is_new=True),
    "language": Filter("another language", ("languages",), ("language",),
        lambda config, _: config.languages
        and ~pl.col("language").is_in(config.languages).fill_null(value=config.keep_unknown_language)),
    "no_title": Filter("no title", ("require_title",), ("title",),
        lambda config, _: config.require_title and is_blank("title")),
    "no_abstract": Filter("no abstract", ("require_abstract",), ("abstract",),
        lambda config, _: config.require_abstract and is_blank("abstract")),
    "no_year": Filter("no publication year", (), ("publication_year",),
        lambda _, __: pl.col("publication_year").is_null()),
    "year_range": Filter("year outside the chosen range", ("min_year", "max_year"), ("publication_year",),
        lambda config, _: _is_outside(config)),
    "few_references": Filter("fewer than {min_references} references", ("min_references",), ("n_references",),
        lambda config, _: pl.col("n_references").fill_null(0) < config.min_references),
    # n_citers of labelled files is the sum of n_i and n_j.
    "few_citations": Filter("fewer than {min_citations} citers in the window", ("min_citations",), ("n_citers",),
        lambda config, _: (pl.col("n_i") + pl.col("n_j")).fill_null(0) < config.min_citations),
    "window_incomplete": Filter("window not over before {last_year}", ("complete_window", "last_year"),
        ("publication_year",), lambda _, first: None if first is None else pl.col("publication_year") >= first),
    "undefined_score": Filter("CD index undefined", (), ("cd_index",),
        lambda _, __: pl.col("cd_index").fill_nan(None).is_null()),
    "unsure_label": Filter("label confidence below {min_label_confidence}", ("min_label_confidence",),
        ("label_confidence",), lambda config, _: config.min_label_confidence
        and (pl.col("label_confidence") < config.min_label_confidence).fill_null(value=True), is_new=True),
    # What find_duplicates reads is known only of works that every other filter keeps.
    "duplicate": Filter("title or DOI of an older work"),
}  # fmt: skip
#: Where the user's own filters come.
_OWN_PLACE: Final = [*FILTERS].index("few_references")


def list_filters(config: EligibilityConfig) -> dict[str, Filter]:
    """List the filters in their order, with those of ``where``."""

    def row(name: str, expression: pl.Expr) -> Filter:
        return Filter(f"not {name}", removes=lambda _, __: ~expression.fill_null(value=False))

    return _insert({name: row(name, expression) for name, expression in config.where.items()})


def list_read(config: EligibilityConfig) -> dict[str, set[str]]:
    """List the columns that each filter reads that is on, as its expression has them."""
    any_year = 0  # the first whose window is open changes no column
    removes = {name: row.removes(config, any_year) for name, row in list_filters(config).items()}
    return {name: {*on.meta.root_names()} for name, on in removes.items() if isinstance(on, pl.Expr)}


def list_removed(manifest: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Say by a manifest which filters removed works, why, and how many, in their order."""
    counts = manifest["counts"]
    values = manifest.get("eligibility", {}) | {"last_year": name_last_year(manifest)}
    rows = _insert({name: Filter(f"not {name}") for name in stated_where(manifest)})
    counted: dict[str, int] = counts["filters"]
    notes = [(name, row.note.format_map(values), counted[name]) for name, row in rows.items() if counted.get(name)]
    return [(name, re.sub(r"^fewer than 1 (\w+)s\b", r"no \1", note), n) for name, note, n in notes]


def name_last_year(manifest: Mapping[str, Any], whose: str = "its") -> str:
    """Name what windows had to be over before: one year, or with COVERAGE the end of the data of each work."""
    if manifest.get("source", {}).get("has_last_full_year"):
        return f"{whose} data end"
    return str(manifest.get("counts", {}).get("last_year"))


def _insert(own: Mapping[str, Filter]) -> dict[str, Filter]:
    rows = [*FILTERS.items()]
    return dict([*rows[:_OWN_PLACE], *own.items(), *rows[_OWN_PLACE:]])


_OF_NAMES: Final = (*_FIELD, *_VENUE)
_OF_RECORDS: Final = ("publication_year", "title", "abstract", "language", "work_type", "is_retracted", "doi")
_FROM_WORKS: Final = ("work_id", *_OF_RECORDS, *_OF_NAMES)

#: What the filters read; made by :func:`join_candidates`.
CANDIDATES: Final = pl.Schema({name: WORKS[name] for name in _FROM_WORKS} | CD_SCORES | {"n_references": pl.UInt32()})


def count_references(citations: pl.LazyFrame | pl.DataFrame) -> pl.LazyFrame:
    """Count the distinct references of every citing work, unordered: itself does not count, unknown works do."""
    edges = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage="count_references")
    return (
        edges.filter(pl.col("citing_id") != pl.col("cited_id"))
        .group_by(pl.col("citing_id").alias("work_id"))
        .agg(pl.col("cited_id").n_unique().cast(pl.UInt32).alias("n_references"))
    )


def add_references(scores: pl.LazyFrame | pl.DataFrame, citations: pl.LazyFrame | pl.DataFrame) -> pl.LazyFrame:
    """Put ``n_references`` beside scores, 0 where a work has none on record."""
    joined = scores.lazy().join(count_references(citations), on="work_id", how="left")
    return joined.with_columns(pl.col("n_references").fill_null(0))


def join_candidates(
    works: pl.LazyFrame | pl.DataFrame, scores: pl.LazyFrame | pl.DataFrame, config: EligibilityConfig | None = None
) -> pl.LazyFrame:
    """Join what the filters read of each work, unordered: CANDIDATES, and the further columns of ``scores``.

    ``scores`` have ``n_references``, as of ``add_references``.
    """
    columns = [*_FROM_WORKS, *_more_of_works(config or EligibilityConfig())]
    facts = require_columns(works, WORKS, frame_name="WORKS", stage="join_candidates", columns=columns)
    columns += [name for name in COVERAGE if name in facts.collect_schema()]
    scored = require_columns(scores, CD_SCORES, frame_name="CD_SCORES", stage="join_candidates")
    joined = facts.select(columns).join(scored.drop(*columns[1:], strict=False), on="work_id", how="left")
    return joined.with_columns(pl.col("n_references").fill_null(0))


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
    check_where(config, frame.collect_schema())
    dropped = ("title", "abstract", *_OF_NAMES, *_more_of_works(config))
    kept = {name: dtype for name, dtype in frame.collect_schema().items() if name not in dropped}
    schema = kept | {"removed_by": pl.String()}
    first_open = narrow_windows(first_open_year(config, window_years, config.last_year), window_years, kept)

    def run() -> pl.DataFrame:
        marked = (
            frame.with_columns(removed_by=first_reason(list_filters(config), config, first_open))
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


def _more_of_works(config: EligibilityConfig) -> list[str]:
    """List the columns of WORKS that filters read besides those that are always read."""
    read = set[str]().union(*list_read(config).values())
    return [name for name in WORKS if name in read and name not in _FROM_WORKS]


def check_where(config: EligibilityConfig, schema: Mapping[str, pl.DataType]) -> None:
    """Raise a ConfigError unless each of the user's own filters can be computed of works with these columns."""
    for name, expression in config.where.items():
        what = f"EligibilityConfig.where[{name!r}]"
        missing = [column for column in expression.meta.root_names() if column not in schema]
        if missing:
            close = suggest(missing[0], schema)
            there = ", ".join(schema)
            raise ConfigError(f"{what} reads the column {missing[0]!r}, and these works have {there}.{close}")
        try:
            found = pl.LazyFrame(schema=schema).select(expression).collect_schema().dtypes()
        except pl.exceptions.PolarsError as error:
            raise ConfigError(f"{what} cannot be computed: {str(error).splitlines()[0]}. Mend it.") from error
        if found != [pl.Boolean()]:
            raise ConfigError(
                f"{what} is {', '.join(map(str, found))}, needs True or False. Compare with something: for example "
                f"pl.col('title').str.len_chars() > 20."
            )


def _named_rows(config: EligibilityConfig) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """List option, words and columns of the filters of field and venue, as far as they are on."""
    rows = ((row.options[0], row.reads) for row in FILTERS.values() if row.reads in (_FIELD, _VENUE))
    return [(option, words, reads) for option, reads in rows if (words := getattr(config, option))]


def names_read(config: EligibilityConfig) -> list[str]:
    """List the columns of WORKS that the filters of field and venue read, as far as they are on."""
    return [name for *_, reads in _named_rows(config) for name in reads]


def chosen_names(config: EligibilityConfig) -> list[pl.Expr]:
    """Say whether each work has a chosen field, and a chosen venue, as far as any are chosen."""
    return [_is_named(words, reads) for _, words, reads in _named_rows(config)]


def remark_on_names(works: pl.LazyFrame, config: EligibilityConfig) -> Iterator[str]:
    """Warn of each name of a field or a venue that no work has, with the nearest known one."""
    for option, words, columns in _named_rows(config):
        found = works.select(columns).filter(_is_named(words, columns)).unique().collect(engine="streaming")
        missing = [word for word in words if found.filter(_is_named((word,), columns)).is_empty()]
        names = works.select(columns[-1]).unique() if missing else pl.LazyFrame({columns[-1]: []})
        known = names.collect(engine="streaming").to_series().drop_nulls().sort()
        for word in missing:
            yield f"no work has the {option[:-1]} {word!r} (EligibilityConfig.{option}).{suggest(word, known)}"


def _judge_windows(
    marked: pl.DataFrame, config: EligibilityConfig, window_years: int | None, data_date: str | None
) -> pl.DataFrame:
    """Mark the works whose window was not over before the last year, unless an earlier filter removes them."""
    first_open = first_open_year(config, window_years, choose_last_year(marked, config, data_date))
    if first_open is None:
        return marked
    later = [*FILTERS][[*FILTERS].index("window_incomplete") :]
    is_open = pl.col("publication_year") >= narrow_windows(first_open, window_years, marked.columns)
    is_removed = is_open & pl.col("removed_by").fill_null(later[0]).is_in(later)
    reason = pl.when(is_removed).then(pl.lit("window_incomplete")).otherwise("removed_by")
    return marked.with_columns(removed_by=reason)


def choose_last_year(
    works: pl.LazyFrame | pl.DataFrame, config: EligibilityConfig, data_date: str | None
) -> int | None:
    """Return the last year that ``config`` names, else find it, and warn of works dated after it.

    Where works have COVERAGE, it is the year after the last full one.
    """
    if config.last_year is not None:
        return config.last_year
    frame = works.lazy()
    if {*COVERAGE} <= {*frame.collect_schema()}:
        last_full: int | None = frame.select(pl.col("last_full_year").max()).collect(engine="streaming").item()
        if last_full is not None:
            return last_full + 1
    counts = count_years(works)
    last_year = find_last_year(counts, data_date=data_date)
    for remark in remark_on_later_works(describe_later_works(counts, last_year), last_year):
        logger.warning("%s", remark)
    return last_year


def first_open_year(config: EligibilityConfig, window_years: int | None, last_year: int | None) -> int | None:
    """Return the first publication year whose window was not over before the last year; None if that is no matter."""
    return first_open_window(window_years, last_year) if config.complete_window else None


def narrow_windows(first_open: int | None, window_years: int | None, columns: Collection[str]) -> int | pl.Expr | None:
    """Let windows of works with COVERAGE among their ``columns`` end by their last full year, too."""
    if first_open is None or window_years is None or not {*COVERAGE} <= {*columns}:
        return first_open
    return pl.min_horizontal(pl.lit(first_open), pl.col("last_full_year") + 1 - window_years)


def first_reason(rows: Mapping[str, Filter], config: EligibilityConfig, first_open: int | pl.Expr | None) -> pl.Expr:
    """Name the filter of ``rows`` that removes a row of CANDIDATES, null if none. ``duplicate`` is the caller's."""
    removes = {name: row.removes(config, first_open) for name, row in rows.items()}
    applied = [pl.when(on).then(pl.lit(name)) for name, on in removes.items() if isinstance(on, pl.Expr)]
    # Without a filter, a null literal; with one it would make a streaming query hold all rows.
    return pl.coalesce(applied) if applied else pl.lit(None, pl.String)
