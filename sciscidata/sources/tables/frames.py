"""Tables in memory, of any library of data frames, as works and citations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError, WorkIdError
from sciscidata.frames import to_lazy, with_named_index
from sciscidata.graph.edges import count_edges, warn_of_edges
from sciscidata.options.did_you_mean import suggest
from sciscidata.records.ids import MISSING, ORIGINAL_ID, refuse_shared_numbers
from sciscidata.schemas import BESIDE, SWAPPED, WORKS, Corpus
from sciscidata.sources.tables.columns import (
    OF_CITATIONS,
    OF_WORKS,
    Names,
    Tally,
    are_swapped,
    citation_rows,
    complete_works,
    describe_gaps,
    find_columns,
    kept_columns,
    reference_rows,
    require_years,
    say_unused,
    warn_of_gaps,
    work_rows,
)

_STAGE = "from_tables"


def from_tables(
    works: Any,  # noqa: ANN401 (a frame of any library)
    citations: Any = None,  # noqa: ANN401
    *,
    id: str | None = None,
    year: str | None = None,
    venue: str | None = None,
    citing: str | None = None,
    cited: str | None = None,
    title: str | None = None,
    abstract: str | None = None,
    field: str | None = None,
    date: str | None = None,
    references: str | None = None,
    keep: Sequence[str] = (),
    missing: Sequence[str] = MISSING,
) -> Corpus:
    """Make a corpus of your own tables: patents, court cases, an export of any database, with ids of any kind.

    Every id gets a number that depends on the id alone (``sciscidata.records.ids.number_ids``). The ids themselves stay
    in the column ``original_id``, and every result has it right after ``work_id``.

    Args:
        works: one row per work: a frame of Polars (lazy too), pandas, Arrow, DuckDB, or any other with the Arrow
            PyCapsule or the dataframe interchange interface. Further columns with a name of WORKS are kept:
            cited_by_count, source_name, language, work_type, is_retracted, doi (also DOI), n_authors. The log lists
            columns that are not used.
        citations: one row per citation; None: they are in ``references``.
        id: column of ``works``, text or whole numbers. None: work_id.
        year: column of years: whole numbers, floats, text or dates. None: publication_year.
        venue: column of venues (journals, courts), text or whole numbers. None: source_id, if there is one.
        citing: column of ``citations`` with the citing work. None: citing_id.
        cited: column of ``citations`` with the cited work. None: cited_id.
        title: column of titles. None: title, if there is one.
        abstract: column of abstracts. None: abstract, if there is one.
        field: column of fields. None: primary_field, if there is one.
        date: column of dates (2001-05-09). They become publication_date, and give the year where there is none.
        references: column of ``works`` with the works that each one cites: lists, or text with |, ; or commas.
        keep: further columns of ``works`` that the corpus keeps as they are, after those of WORKS. Results have ids, so
            join them: ``scores.join(corpus.works.select("work_id", "court"), on="work_id")``.
        missing: words that stand for a missing value, wherever they are all of a text.

    Returns:
        Corpus. ``works`` is WORKS with ``original_id`` (String or Int64) and ``keep``, in the order of work_id.
        ``citations`` is CITATIONS. Both are in memory, as lazy frames. Years that are not from 1000 to 2100 are null.
        The provenance counts them, works without a year, and words of ``missing``. It also counts citations that lack
        an id, which are left out. The log warns.

    Raises:
        SchemaMismatchError: a column is missing, is there twice, or has a type that its role cannot have.
        ConfigError: a column is named for two roles; or citations are missing, or given twice.
        WorkIdError: an id of a work is null or repeated, or two ids have one number.
        EmptyInputError: ``works`` has no row.

    Example:
        >>> years = ["1990-05-01", "2000-01-02", "2001-03-04"]
        >>> patents = pl.DataFrame({"patent": ["P1", "P2", "P3"], "granted": years})
        >>> cites = pl.DataFrame({"from": ["P2", "P3"], "to": ["P1", "P2"]})
        >>> corpus = from_tables(patents, cites, id="patent", year="granted", citing="from", cited="to")
        >>> from sciscidata import compute_cd_index
        >>> scores = compute_cd_index(corpus.works, corpus.citations).collect()
        >>> scores.filter(original_id="P2").select("original_id", "cd_index").row(0)
        ('P2', 1.0)
    """
    named: Names = {
        **{"id": id, "year": year, "date": date, "venue": venue, "title": title, "abstract": abstract, "field": field},
        **{"references": references, "citing": citing, "cited": cited},
    }
    works = _Table(works, "works")
    check_citations_given(citations is not None, references, "citations", "references")
    tally = Tally()
    citations = None if citations is None else _Table(citations, "citations")
    if citations is not None and are_swapped(works.columns, citations.columns, named):
        raise SchemaMismatchError(f"{_STAGE}: {SWAPPED}")
    at = find_columns(works.columns, OF_WORKS, named, table=f"{_STAGE}: works")
    _check_kept(keep, works.columns)
    used = [*at.values(), *kept_columns(works.columns, at.values()).values()]
    say_unused(works.columns, [*used, *keep], _STAGE)
    table = works.read([*used, *keep])
    if table.is_empty():
        raise EmptyInputError(f"{_STAGE}: works has no row. Check the table and the filters before.")
    own, table = table.select(keep), table.drop(name for name in keep if name not in used)
    try:
        rows = work_rows(table, at, tally, missing=missing).hstack(own).sort("work_id")
    except (WorkIdError, SchemaMismatchError) as error:
        raise type(error)(f"{_STAGE}: works: {error}") from error
    require_years(tally, rows.height, f"{_STAGE}: works")
    refuse_shared_numbers(rows, f"{_STAGE}: works")
    if citations is None:
        edges = reference_rows(table, at, tally, missing)
    else:
        ends = find_columns(citations.columns, OF_CITATIONS, named, table=f"{_STAGE}: citations")
        table = citations.read([*ends.values()])
        edges = citation_rows(table, ends, tally, missing)
        at |= ends
    warn_of_gaps(tally, _STAGE, tally.example)
    works = complete_works(rows.drop(keep).lazy())
    if keep:
        works = pl.concat([works.collect(), rows.select(keep)], how="horizontal").lazy()
    warn_of_edges(count_edges(works, edges.lazy()), _STAGE)
    facts = {"kind": "tables", "columns": at, "works": rows.height, "citations": edges.height, **describe_gaps(tally)}
    return Corpus(works, edges.lazy(), facts)


def _check_kept(keep: Sequence[str], columns: Sequence[str]) -> None:
    """Raise unless further columns are there, and have no name that WORKS takes."""
    if isinstance(keep, str):
        raise ConfigError(f"keep is {keep!r}, needs a list of columns: keep=[{keep!r}].")
    taken = {*WORKS, *BESIDE, ORIGINAL_ID}
    for name in keep:
        if name not in columns:
            close = suggest(name, columns) or f" It has {', '.join(columns)}."
            raise SchemaMismatchError(f"{_STAGE}: works lacks column {name!r}, which keep names.{close}")
        if name in taken or keep.count(name) > 1:
            why = "WORKS has a column of that name" if name in taken else "it is there twice"
            raise ConfigError(f"keep holds {name!r}, and {why}. Rename it before, or leave it out.")


def check_citations_given(has_citations: bool, references: Any, table: str, column: str) -> None:  # noqa: ANN401
    """Raise ConfigError unless citations come from exactly one place."""
    if has_citations == bool(references):
        what = "are both given" if has_citations else "are both missing"
        raise ConfigError(
            f"{table} and {column} {what}: citations are either a table of their own or a column of works. Give one."
        )


def _with_text_names(frame: Any) -> Any:  # noqa: ANN401 (pandas)
    """Return a pandas frame whose columns are named by texts: a table read without names has numbers."""
    frame = with_named_index(frame)
    return frame.set_axis([*map(str, frame.columns)], axis=1)


class _Table:
    """A frame of any library: its columns, and some of them as a Polars frame."""

    def __init__(self, frame: Any, name: str) -> None:  # noqa: ANN401
        if hasattr(frame, "to_native"):  # narwhals
            frame = frame.to_native()
        self._is_pandas = type(frame).__module__.split(".")[0] == "pandas" and hasattr(frame, "columns")
        self._frame: Any = _with_text_names(frame) if self._is_pandas else to_lazy(frame, name, _STAGE)
        self._name = name
        columns = map(str, self._frame.columns if self._is_pandas else self._frame.collect_schema())
        self.columns = [column for column in columns if column]  # without a name: an index saved as a column

    def read(self, columns: Sequence[str]) -> pl.DataFrame:
        """Read some columns; of pandas no other is converted, since it may hold anything."""
        columns = list(dict.fromkeys(columns))
        return to_lazy(self._frame, self._name, _STAGE, columns).select(columns).collect(engine="streaming")
