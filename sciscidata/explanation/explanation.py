"""What ``explain`` returns: the sentences a researcher would say of one number, and the papers behind it as frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, Final
from urllib.parse import quote

import polars as pl

from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.terminal.messages import printable

_ROWS: Final = 20  # of a table in HTML
_TABLES: Final = {
    "citers": "Citers that count",
    "references": "What it cites",
    "citers_of_references": "Works that cite only its references",
    "conventions": "Other windows and conventions",
    "turns": "What would turn the label",
    "venue_pairs": "Venue pairs behind z",
}
#: Column of ids of the user's table beside ``shared``.
SHARED_ORIGINAL: Final = "shared_original_id"
#: What the columns of a table mean, a line each.
NOTES: Final = {
    "citers": "class i cites none of its references, class j at least one; n_shared counts those that it cites too.",
    "references": "n_citers: how many of the citers cite it too. Without a title: the data have no record of it.",
    "citers_of_references": "n_shared: how many of its references they cite.",
    "conventions": "'this' is the convention of the sentences. Labels are by the same cut-offs.",
}


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """The papers behind the CD index of one work, as ``explain`` finds them.

    ``print`` shows the sentences, a notebook also the tables. Every table has one row a work, sorted by year, where
    nothing else is said. ``original_id``, ``title`` and ``doi`` are there where the works have them. With
    ``original_id``, ``shared_original_id`` has the same ids of your own as ``shared`` has numbers.

    Attributes:
        text: the sentences, a line each.
        scores: one row: work_id, publication_year, n_refs, the columns of ``compute_cd_index`` (without CD_FAMILY),
            is_judged, disruption_label, those of ``compute_cd_interval`` and ``compute_label_confidence``. With
            ``authors`` n_self_citers and independent_cd_index, with ``novelty`` those of ``compute_atypicality``.
        citers: the works of n_i and n_j: work_id, title, publication_year, class ("i" or "j"), n_shared, shared (ids of
            the references that it cites too); with ``authors`` is_self_citation.
        references: what the work cites: work_id, title, publication_year, n_citers (how many of ``citers`` cite it),
            the most first.
        citers_of_references: the first works of n_k: work_id, title, publication_year, n_shared, shared.
        by_year: publication_year, class ("i", "j" or "k"), works: how many are counted, all of n_k among them.
        conventions: convention ("this", or a name of ``CDConfig.compat``), window, n_i, n_j, n_k, cd_index,
            window_complete, disruption_label; in the order of the table of conventions.
        turns: to_label, change, n_citers, cd_index: the fewest citers more or fewer that give another label.
        venue_pairs: source_id_a, source_id_b, their names, n_reference_pairs, n_observed, mean, std, z, role (which
            quantile of the work is nearest to this pair), the lowest z first. Without ``novelty`` empty.
    """

    text: str
    scores: pl.DataFrame
    citers: pl.DataFrame
    references: pl.DataFrame
    citers_of_references: pl.DataFrame
    by_year: pl.DataFrame
    conventions: pl.DataFrame
    turns: pl.DataFrame
    venue_pairs: pl.DataFrame

    def __str__(self) -> str:
        """Return the sentences."""
        return self.text

    def __repr__(self) -> str:
        """Return the sentences, and the names of the tables with their sizes."""
        sizes = ", ".join(f".{name} ({rows.height:,})" for name, _, rows in self.tables())
        return f"{self.text}\nTables, with their rows: .scores (1){', ' if sizes else ''}{sizes}"

    def tables(self) -> Iterator[tuple[str, str, pl.DataFrame]]:
        """Give each table that has a row: its name, a heading, and its rows."""
        for name, heading in _TABLES.items():
            rows: pl.DataFrame = getattr(self, name)
            if rows.height:
                yield name, heading, rows

    def _repr_html_(self) -> str:
        """Show the sentences and the beginning of every table, for a notebook."""
        return f"<p>{_text(self.text.partition(chr(10))[0])}</p>{self.to_html()}"

    def to_html(self, most: int = _ROWS, picture: str = "") -> str:
        """Write the sentences but the name of the work, a picture, and at most the first rows of every table."""
        lines = "".join(f"<p>{_text(line)}</p>" for line in self.text.splitlines()[1:])
        return (
            lines
            + picture
            + "".join(_table(heading, NOTES.get(name, ""), rows, most) for name, heading, rows in self.tables())
        )


def _table(heading: str, note: str, rows: pl.DataFrame, most: int) -> str:
    more = f" (the first {most:,} of {rows.height:,})" if rows.height > most else f" ({rows.height:,})"
    rows = with_own_ids(rows)
    shown = [name for name in rows.columns if name != "doi"]
    head = "".join(f"<th>{_text(name.replace('_', ' '))}</th>" for name in shown)
    body = "".join(f"<tr>{_cells(row, shown)}</tr>" for row in rows.head(most).iter_rows(named=True))
    table = f"<table><tr>{head}</tr>{body}</table>"
    said = f"<p>{_text(note)}</p>" if note else ""
    return f'<h3>{_text(heading + more)}</h3>{said}<div class="wide" tabindex="0">{table}</div>'


def with_own_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out numbers of works where a table has the user's own ids; a work without one keeps its number."""
    if ORIGINAL_ID not in rows.columns:
        return rows
    own = [pl.col(name).cast(pl.String) for name in (ORIGINAL_ID, "work_id")]
    rows = rows.with_columns(pl.coalesce(own).alias(ORIGINAL_ID)).drop("work_id", "shared", strict=False)
    return rows.rename({SHARED_ORIGINAL: "shared"}, strict=False)


def _cells(row: dict[str, Any], shown: Iterable[str]) -> str:
    """Write the cells of a row; the title of a work, else its id, leads to its DOI."""
    cells = {name: _text(show(row[name])) for name in shown}
    if row.get("doi"):
        name = "title" if row.get("title") else ORIGINAL_ID if ORIGINAL_ID in row else "work_id"
        cells[name] = f'<a href="https://doi.org/{quote(row["doi"])}" rel="noreferrer">{cells[name]}</a>'
    return "".join(f"<td>{cell}</td>" for cell in cells.values())


def show(value: Any) -> str:  # noqa: ANN401
    """Write a cell of a table: numbers with few digits, of a list the first items.

    Example:
        >>> show(0.123456), show([1, 2, 3, 4, 5]), show(None)
        ('0.123', '1, 2, 3 and 2 more', '')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        items: Iterable[Any] = value[:3]
        return ", ".join(map(str, items)) + (f" and {len(value) - 3} more" if len(value) > 3 else "")
    return str(value)


def _text(value: object) -> str:
    return escape(printable(value))
