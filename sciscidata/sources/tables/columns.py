"""Find the columns of a table by their role, and make rows of WORKS and CITATIONS from them."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from sciscidata.errors import ConfigError, SchemaMismatchError, WorkIdError
from sciscidata.options.did_you_mean import suggest
from sciscidata.records.dois import BLANKS, CHANGED_DOIS, DOI_START, describe_changed, read_dois
from sciscidata.records.ids import MISSING, ORIGINAL_ID, number_ids, plain_ids, without_missing
from sciscidata.schemas import BESIDE, CITATIONS, COVERAGE, WORKS
from sciscidata.terminal.messages import counted, list_names, shorten

logger = logging.getLogger(__name__)

#: What a column may hold, and its default name ("": none).
OF_WORKS: Final[Mapping[str, str]] = {
    "id": "work_id",
    "year": "publication_year",
    "date": "",
    "venue": "source_id",
    "title": "title",
    "abstract": "abstract",
    "field": "primary_field",
    "references": "",
}
OF_CITATIONS: Final[Mapping[str, str]] = {"citing": "citing_id", "cited": "cited_id"}
#: Columns of WORKS and COVERAGE that are read where a table has them under their own name.
_KEPT: Final = ("cited_by_count", "source_name", "language", "work_type", "is_retracted", "doi", "n_authors", *COVERAGE)
_TEXTS: Final = {"title": "title", "abstract": "abstract", "field": "primary_field"}
_ROLE_WORDS: Final = {"citing": "the citing work", "cited": "the cited work", "id": "ids", "year": "years"}
#: Words that tables have for true and false, in lower case.
_FLAGS: Final = {
    **dict.fromkeys(("true", "yes", "1", "1.0"), True),
    **dict.fromkeys(("false", "no", "0", "0.0"), False),
}
#: What R, Python and NumPy write around a list, and instead of an empty one.
_AROUND: Final = r"^(?:list|(?:frozen)?set|tuple|(?:np\.)?array)\(\s*[\[{(]?([\s\S]*?)[\])}]?\s*(?:,\s*dtype=\S+)?\)$"
_EMPTY: Final = r"^(?:character|integer|numeric|logical)\(0\)$"
_NUMPY_ENTRY: Final = r"\bnp\.\w+\(([^()]*)\)"
#: A list as Python, JSON, Postgres or R writes it, and its entries.
_LIST: Final = r"^(?:\[|\{|c?\()([\s\S]*)[\])}]$"
_ENTRY: Final = r"""\"[^\"]*\"|'[^']*'|[^\s,\"']+"""
#: Ids of OpenAlex with any separators, or whole numbers with blanks between them.
_OPENALEX_IDS: Final = r"^(?:(?:\S*/)?[Ww][0-9]+(?:[\s,;|]+|$))+$|^[0-9]+(?:\s+[0-9]+)+$"
FIRST_YEAR, LAST_YEAR = 1_000, 2_100
_YEAR: Final = r"^\s*([0-9]{4})(?:\.0*|[-/T ].*)?\s*$"  # 2001, 2001.0, 2001-05-09
#: What is counted in a table, as a provenance names it.
GAPS: Final = ("without_year", "impossible_years", "citations_without_id", "missing_values")

Names = Mapping[str, str | Sequence[str] | None]


class Tally(Counter[str]):
    """Counts of what a table lacks; ``example`` shows a value that is no year."""

    example = ""


def find_columns(
    there: Sequence[str], roles: Mapping[str, str], given: Names, *, table: str, owner: str = ""
) -> dict[str, str]:
    """Find the column of each role among those of a table; of several that ``given`` names, the first that is there."""
    owner = f"{owner}." if owner else ""
    columns: dict[str, str] = {}
    for role, own in roles.items():
        name = given.get(role)
        listed = [name] if isinstance(name, str) else [*name] if name else []
        at = next((column for column in listed or [own] if column in there), None)
        is_needed = role in ("id", "citing", "cited") or (role == "year" and not given.get("date"))
        if at is not None:
            columns[role] = at
        elif is_needed or isinstance(name, str):
            if len(there) == 1 and re.search(r"\w[|:~^ ]\w", there[0]):
                raise SchemaMismatchError(
                    f"{table} has one column, {shorten(there[0])!r}: is there another delimiter? Save it with commas, "
                    "tabs or semicolons."
                )
            raise SchemaMismatchError(
                f"{table} has no column {' or '.join(map(repr, listed or [own]))}; it has {list_names(there)}."
                f"{suggest((listed or [own])[0], there)} Name the column of {_ROLE_WORDS.get(role, f'the {role}')}: "
                f"{owner}{role}=..."
            )
    for column, n in Counter(columns.values()).items():
        if n > 1:
            twice = " and ".join(f"{owner}{role}" for role, name in columns.items() if name == column)
            raise ConfigError(f"{twice} are both {column!r}, need a column each. Name another column for one of them.")
        if [*there].count(column) > 1:
            raise SchemaMismatchError(f"{table} has two columns {column!r}, needs one. Rename or drop the other.")
    return columns


def are_swapped(works: Sequence[str], citations: Sequence[str], given: Names) -> bool:
    """Whether the table of works has the columns of citations, and that of citations lacks them."""

    def has_ends(there: Sequence[str]) -> bool:
        names = ((given.get(role) or own) for role, own in OF_CITATIONS.items())
        return all(any(name in there for name in ([one] if isinstance(one, str) else one)) for one in names)

    return has_ends(works) and not has_ends(citations)


def kept_columns(there: Iterable[str], used: Iterable[str] = ()) -> dict[str, str]:
    """Find further columns of WORKS and COVERAGE in a table, but those ``used``; ``doi`` may be ``DOI`` there."""
    free = [column for column in there if column not in {*used}]
    kept = {name: name for name in _KEPT if name in free}
    doi = next((column for column in free if column.lower() == "doi"), None)
    return kept if doi is None else {"doi": doi} | kept


def say_unused(there: Sequence[str], used: Iterable[str], stage: str) -> None:
    """Log which columns of a table of works are not read."""
    if unused := [column for column in there if column not in {*used}]:
        logger.info("%s: columns of works that are not used: %s", stage, list_names(unused))


def work_rows(
    rows: pl.DataFrame,
    at: Mapping[str, str],
    tally: Tally,
    n_before: int = 0,
    missing: Sequence[str] = MISSING,
) -> pl.DataFrame:
    """Make rows of works: ``work_id``, ``original_id``, and columns of WORKS that the table has. Tally the gaps."""
    rows = _without_missing(rows.drop(at.get("references", ""), strict=False), tally, missing)
    original = plain_ids(rows[at["id"]])
    numbers = number_ids(original, tally=tally)
    if n_null := numbers.null_count():
        raise WorkIdError(
            f"{counted(n_null, 'work has', 'works have')} no id, the first in row "
            f"{(numbers.is_null().arg_max() or 0) + 1 + n_before:,}: the "
            f"column {at['id']!r} is null or empty there. Drop these rows, or name another column."
        )
    made = [numbers.alias("work_id"), original.alias(ORIGINAL_ID), _years(rows, at, tally)]
    if "date" in at:
        made.append(_dates(rows[at["date"]]))
    if "venue" in at:
        venue = plain_ids(rows[at["venue"]])
        made.append(number_ids(venue, "S").alias("source_id"))
        if venue.dtype == pl.String() and "source_name" not in rows.columns:
            made.append(venue.alias("source_name"))
    made += [_cast(rows[at[role]], pl.String()).alias(name) for role, name in _TEXTS.items() if role in at]
    kept = kept_columns(rows.columns, at.values())
    made += [_cast(rows[column], {**WORKS, **BESIDE}[name]).alias(name) for name, column in kept.items()]
    made = pl.DataFrame(made)
    if "doi" in made.columns:
        dois, is_changed = read_dois(made["doi"])
        made = made.with_columns(dois)
        tally.update({CHANGED_DOIS: int(is_changed.sum())} if is_changed.any() else {})
    return made


def complete_works(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Add to ``work_id`` and ``original_id`` what WORKS has besides: null, but not retracted and without concepts."""
    there = rows.collect_schema()
    known = {"is_retracted": pl.lit(value=False), "concepts": pl.lit(pl.Series([[]], dtype=WORKS["concepts"])).first()}
    absent = [known.get(name, pl.lit(None, dtype)).alias(name) for name, dtype in WORKS.items() if name not in there]
    return (
        rows.with_columns(absent)
        .with_columns(pl.col("is_retracted").fill_null(value=False))
        .select(
            "work_id",
            ORIGINAL_ID,
            *(name for name in WORKS if name != "work_id"),
            *(name for name in BESIDE if name in there),
        )
    )


def _without_missing(rows: pl.DataFrame, tally: Counter[str], missing: Sequence[str]) -> pl.DataFrame:
    found = [without_missing(column, missing) for column in rows.iter_columns()]
    tally["missing_values"] += sum(n for _, n in found)
    return pl.DataFrame([column for column, _ in found])


def read_flags(words: pl.Series) -> pl.Series:
    """Read words for true and false as Boolean; any other is null."""
    return words.str.to_lowercase().replace_strict(_FLAGS, default=None, return_dtype=pl.Boolean())


def _cast(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    if dtype == pl.Boolean() and values.dtype == pl.String():
        read = read_flags(values)
        needed = "true, false, yes, no, 1 or 0"
    elif dtype.is_integer() and (values.dtype == pl.String() or values.dtype.is_float()):
        values = values.fill_nan(None) if values.dtype.is_float() else values
        read = values.cast(pl.String).str.replace(r"\.0*$", "").cast(dtype, strict=False)  # pandas writes 5 as 5.0
        needed = "whole numbers"
    else:
        try:
            return values.cast(dtype)
        except pl.exceptions.PolarsError as error:
            raise SchemaMismatchError(
                f"{values.name!r} is {values.dtype}, needs {dtype}. Cast it, or drop the column."
            ) from error
    if len(wrong := values.filter(read.is_null() & values.is_not_null())):
        raise SchemaMismatchError(
            f"column {values.name!r} holds {wrong[0]!r}, needs {needed}. Mend the value, or leave it empty."
        )
    return read


def _years(rows: pl.DataFrame, at: Mapping[str, str], tally: Tally) -> pl.Series:
    """Read the year of every row, from the date where the year is null."""
    years = pl.Series("publication_year", [None], WORKS["publication_year"]).new_from_index(0, rows.height)
    for role in ("year", "date"):
        if role in at:
            values = rows[at[role]].fill_nan(None) if rows[at[role]].dtype.is_float() else rows[at[role]]
            read = _read_years(values)
            if n_impossible := read.null_count() - values.null_count():
                tally["impossible_years"] += n_impossible
                wrong = values.filter(read.is_null() & values.is_not_null())
                tally.example = tally.example or f"for example {wrong[0]!r} in column {at[role]!r}"
            years = pl.select(pl.coalesce(years, read)).to_series()
    tally["without_year"] += years.null_count()
    return years.alias("publication_year")


def _dates(values: pl.Series) -> pl.Series:
    """Read the day of every row; null where there is none, or one of an impossible year."""
    dtype = values.dtype
    if dtype == pl.String() or isinstance(dtype, pl.Categorical | pl.Enum):
        dates = values.cast(pl.String).str.strip_chars().str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)
    elif isinstance(dtype, pl.Date | pl.Datetime):
        dates = values.cast(pl.Date)
    else:  # years
        dates = pl.Series([None], dtype=pl.Date).new_from_index(0, len(values))
    is_possible = dates.dt.year().is_between(FIRST_YEAR, LAST_YEAR)
    return dates.set(~is_possible.fill_null(value=True), None).alias("publication_date")


def _read_years(values: pl.Series) -> pl.Series:
    dtype = values.dtype
    if isinstance(dtype, pl.Date | pl.Datetime):
        years = values.dt.year()
    elif dtype == pl.String() or isinstance(dtype, pl.Categorical | pl.Enum):
        values = values.cast(pl.String)
        years = values.str.extract(_YEAR).cast(pl.Int32)
    elif dtype.is_float():
        years = values.set(values != values.floor(), None).cast(pl.Int32, strict=False)
    elif dtype.is_integer() or dtype == pl.Null():
        years = values.cast(pl.Int32, strict=False)
    else:
        raise SchemaMismatchError(f"{values.name!r} is {dtype}, needs years: whole numbers, text or dates.")
    return years.set(~years.is_between(FIRST_YEAR, LAST_YEAR).fill_null(value=True), None)


def citation_rows(
    rows: pl.DataFrame, at: Mapping[str, str], tally: Counter[str], missing: Sequence[str] = MISSING
) -> pl.DataFrame:
    """Make CITATIONS of a table with one row per citation; ``tally`` counts those that lack an end, which go."""
    rows = _without_missing(rows, tally, missing)
    ends = pl.DataFrame([number_ids(rows[at[role]], tally=tally).alias(f"{role}_id") for role in OF_CITATIONS])
    whole = ends.drop_nulls() if any(column.null_count() for column in ends.iter_columns()) else ends
    tally["citations_without_id"] += ends.height - whole.height
    return whole


def reference_rows(
    rows: pl.DataFrame, at: Mapping[str, str], tally: Counter[str], missing: Sequence[str] = MISSING
) -> pl.DataFrame:
    """Make CITATIONS of a table of works with a column of references: lists, or text (see ``split_references``)."""
    citing = number_ids(rows[at["id"]]).alias("citing_id")
    lists, n_missing = without_missing(rows[at["references"]], missing)
    if lists.dtype == pl.String():
        lists = split_references(lists)
    elif not isinstance(lists.dtype, pl.List):
        if lists.null_count() < len(lists):
            raise SchemaMismatchError(
                f"{lists.name!r} is {lists.dtype}, needs references: lists of ids, or text with |, ; or commas."
            )
        return pl.DataFrame(schema=CITATIONS)
    pairs = pl.DataFrame([citing, lists]).explode(lists.name)
    cited, n_more = without_missing(pairs[lists.name], missing)
    tally["missing_values"] += n_missing + n_more
    return pl.DataFrame([pairs["citing_id"], number_ids(cited, tally=tally).alias("cited_id")]).drop_nulls()


def split_references(texts: pl.Series) -> pl.Series:
    """Cut each text into ids: a list saved as text, or ids with ``|``, ``;`` or commas between.

    The separator is the first of the three that a column has. Others, and those inside of a DOI, are part of an id.
    """
    text, name = pl.col(texts.name).str.strip_chars(BLANKS), texts.name
    text = text.str.replace_all(_NUMPY_ENTRY, "$1").str.replace(_AROUND, "($1)").str.replace(_EMPTY, "()")
    inside = text.str.extract(_LIST)
    if len(cut := texts.filter(texts.to_frame().select(inside.str.contains("...", literal=True))[name])):
        raise SchemaMismatchError(
            f"{name!r} holds a list that was shortened when it was saved: {cut[0][:80]!r}. Save whole lists."
        )
    is_doi = text.str.contains(f"^{DOI_START}")
    plain = texts.to_frame().filter(~is_doi & inside.is_null())[name]
    separator = next((sign for sign in "|;" if plain.str.contains(sign, literal=True).any()), ",")
    joined = (
        pl.when(is_doi)
        .then(text.str.replace_all(rf"\s*[,;]\s*({DOI_START})", "|$1"))
        .when(text.str.contains(_OPENALEX_IDS))
        .then(text.str.replace_all(r"[\s,;]+", "|"))
        .otherwise(text.str.replace_all(separator, "|", literal=True))
    )
    entries = pl.when(inside.is_null()).then(joined.str.split("|")).otherwise(inside.str.extract_all(_ENTRY))
    return texts.to_frame().select(entries.list.eval(pl.element().str.strip_chars(BLANKS + "\"'")))[name]


def require_years(tally: Tally, n_works: int, table: str) -> None:
    """Raise SchemaMismatchError if there are values in a column of years, and none is a year."""
    if tally.example and tally["without_year"] == n_works:
        raise SchemaMismatchError(
            f"{table}: no work has a year from {FIRST_YEAR} to {LAST_YEAR}, {tally.example}. Name another column, or "
            "write years as 2001 or 2001-05-09."
        )


def warn_of_gaps(tally: Mapping[str, int], stage: str, example: str = "") -> None:
    """Log one warning for what a table lacks, if anything; ``example`` shows a value that is no year."""
    remedy = "; write years as 2001 or 2001-05-09" if example.startswith("for example '") else ""  # a text
    texts = {
        "impossible_years": (
            ("work has", "works have"),
            f"a year that is not from {FIRST_YEAR} to {LAST_YEAR} (now null{example and f'; {example}'}{remedy})",
        ),
        "citations_without_id": (("citation lacks one of its", "citations lack one of their"), "ids (left out)"),
        "missing_values": (("value is", "values are"), "NA or another word for a missing value (now null)"),
    }
    gaps = [f"{counted(tally[name], *words)} {text}" for name, (words, text) in texts.items() if tally.get(name)]
    gaps += [describe_changed(n)] if (n := tally.get(CHANGED_DOIS, 0)) else []
    if gaps:
        logger.warning("%s: %s", stage, "; ".join(gaps))


def describe_gaps(tally: Mapping[str, int]) -> dict[str, Any]:
    """State the counts for a provenance."""
    counts = {name: tally.get(name, 0) for name in GAPS}
    return counts | ({CHANGED_DOIS: tally[CHANGED_DOIS]} if CHANGED_DOIS in tally else {})
