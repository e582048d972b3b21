"""Read ids of works as people list them: DOIs and OpenAlex ids in any form, and ids of a source's own.

A list keeps its order and its repeats. Each id has the number and the DOI by which works of a source are found.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from sciscidata.errors import SciSciDataError
from sciscidata.records.dois import BLANKS, normalize_doi
from sciscidata.records.ids import number_ids
from sciscidata.terminal.messages import shorten

logger = logging.getLogger(__name__)

#: One row per id of a list, in its order. ``kind`` is "OpenAlex", "DOI", "other", or what another entity is called;
#: null for blanks. ``work_id`` is the number to look for, ``doi`` the DOI in the form of WORKS.
LISTED: Final = pl.Schema({"asked": pl.String(), "kind": pl.String(), "work_id": pl.Int64(), "doi": pl.String()})
#: Kinds of ids that name a work in any source.
OF_WORKS: Final = ("OpenAlex", "DOI")
#: What the letters of OpenAlex ids stand for, in words.
ENTITIES: Final = {
    "A": "an author", "S": "a venue", "V": "a venue", "I": "an institution", "C": "a concept", "T": "a topic",
    "P": "a publisher", "F": "a funder",
}  # fmt: skip
#: An address of OpenAlex before an id, of its pages and of its API; the id may itself be the address of a DOI.
_ADDRESS: Final = r"(?i:(?:https?://)?(?:[a-z]+\.)*openalex\.org/(?:[a-z]+/)?|openalex:\s*)"
_OPENALEX: Final = rf"^(?:{_ADDRESS})?([A-Za-z])0*([1-9][0-9]{{0,17}})(?:[/?#].*)?$"
#: A page of OpenAlex with a list, beside which one work is open.
_BESIDE: Final = r"(?i)openalex\.org/.*[?&]zoom=(w[0-9]{1,18})"
#: A DOI inside an address of a publisher, or inside a sentence.
_INSIDE: Final = r"(?i)\b(10\.[0-9]{4,9}(?:\.[0-9]+)*(?:/|%(?:25)*2f)[^\s?#]+)"
#: What publishers write behind a DOI in an address.
_VIEW: Final = r"(?i)/(?:full|abstract|e?pdf|summary|html|xml|fulltext)$"
_AROUND: Final = "\"'`‘’“”<>(),.;[]{}" + BLANKS
#: How an id begins, within a line that may hold several.
_START: Final = re.compile(
    r"""(?i)(?<![^\s,;|"'<(\[{])(?:https?://\S*?|www\.\S*?|(?:urn:|info:)?doi[:=]?\s*|openalex:\s*)?"""
    r"""(?:10\.[0-9]{4,9}(?:\.[0-9]+)*(?:/|%(?:25)*2f)|[wasi][1-9][0-9]{2,17}(?![\w.-]))"""
)
#: Blanks around the first slash of a DOI, as they are in texts of PDF files.
_GAP: Final = re.compile(r"(?<![^\s:/(\[])(10\.[0-9]{4,9}(?:\.[0-9]+)*)(?:\s+/\s*|/\s+)(?=\S)")
_NEARLY_ALL: Final = 0.9
_HEADERS: Final = frozenset(("doi", "dois", "id", "ids", "openalex", "openalex_id", "work_id", "asked"))


def split_ids(text: str) -> list[str]:
    r"""Take a pasted text apart into ids: one or several in a line, and blank lines left out.

    A line without anything that looks like an id is one id. The rest of a line around ids is dropped.

    Example:
        >>> split_ids("10.1234/a, https://doi.org/10.1234/B; W123\n\n- Poe 2001. doi: 10.1234/c\nours-7")
        ['10.1234/a', 'https://doi.org/10.1234/B', 'W123', 'doi: 10.1234/c', 'ours-7']
    """
    ids: list[str] = []
    lines = [line for line in (line.strip(BLANKS) for line in text.splitlines()) if line]
    lines = [_GAP.sub(r"\1/", line) for line in lines]
    if lines and _is_heading(lines):
        logger.info("the first line, %r, is taken for a heading", shorten(lines.pop(0)))
    for line in lines:
        starts = [*_START.finditer(line)]
        ends = [*(found.start() for found in starts[1:]), len(line)]
        # An id holds no blank, but one may stand between "doi:" and it. A quote before > ends an address in HTML.
        parts = [
            found[0] + re.split(r"""\s|["'](?=/?>)""", line[found.end() : end])[0]
            for found, end in zip(starts, ends, strict=False)
        ]
        ids += [part.rstrip(",;|\"'") for part in parts] or [line]
    return ids


def _is_heading(lines: list[str]) -> bool:
    """Whether the first line names what the others are: it is such a name, or nearly all others hold an id."""
    if has_id(lines[0]):
        return False
    others = lines[1:]
    return lines[0].strip(_AROUND).lower() in _HEADERS or 0 < _NEARLY_ALL * len(others) <= sum(map(has_id, others))


def has_id(text: str) -> bool:
    """Whether a line holds something that looks like an OpenAlex id or a DOI."""
    return bool(_START.search(text))


def list_ids(asked: pl.Series) -> pl.DataFrame:
    """Read ids, text or whole numbers, one in each row: LISTED, in their order.

    A whole number is that of an OpenAlex id. What is neither an OpenAlex id nor a DOI is an id of the source's own.
    """
    text = pl.col("asked").str.strip_chars(_AROUND)
    number = pl.coalesce(text.str.extract(_BESIDE).str.slice(1), text.str.extract(_OPENALEX, 2))
    letter = pl.when(text.str.contains(_BESIDE)).then(pl.lit("W")).otherwise(text.str.extract(_OPENALEX, 1))
    rows = asked.cast(pl.String).alias("asked").to_frame()
    rows = rows.with_columns(
        text=pl.when(text.str.len_bytes() > 0).then(text),
        letter=letter.str.to_uppercase(),
        number=pl.coalesce(number, text.str.extract("^0*([1-9][0-9]{0,17})$")).cast(pl.Int64),
    )
    is_work = pl.coalesce(pl.col("letter") == "W", pl.col("letter").is_null() & pl.col("number").is_not_null())
    rows = rows.with_columns(number=pl.when(is_work).then("number"), left=pl.when(~is_work).then("text"))
    dois = _find_dois(rows["left"])
    own = _number_own(rows["left"].set(dois.is_not_null(), None))
    kind = (
        pl.when(pl.col("number").is_not_null()).then(pl.lit("OpenAlex"))
        .when(dois.is_not_null()).then(pl.lit("DOI"))
        .when(pl.col("letter").is_in([*ENTITIES])).then(pl.col("letter").replace(ENTITIES))
        .when(pl.col("text").is_not_null()).then(pl.lit("other"))
    )  # fmt: skip
    # Tables may hold DOIs as their ids; a source numbers these as it numbers any text.
    numbers = pl.coalesce(pl.col("number"), _number_own(dois), own)
    return rows.select("asked", kind.alias("kind"), numbers.alias("work_id"), dois.alias("doi"))


def _find_dois(texts: pl.Series) -> pl.Series:
    """Return the DOI of each text, also inside an address of a publisher; null where there is none."""
    dois = normalize_doi(texts)
    left = (dois.is_null() & texts.str.contains(_INSIDE)).fill_null(value=False).arg_true()
    inside = texts.gather(left).str.extract(_INSIDE).str.replace(_VIEW, "")
    return dois.scatter(left, normalize_doi(inside)) if len(left) else dois


def _number_own(texts: pl.Series) -> pl.Series:
    """Give ids their numbers as sources do; null for those that no source could read."""
    if texts.null_count() == len(texts):  # numba takes a while to import
        return pl.Series(texts.name, [None] * len(texts), dtype=pl.Int64())
    try:
        return number_ids(texts)
    except SciSciDataError:  # several ids in one, or lost digits: only these have none
        return pl.Series(texts.name, [_number_one(text) for text in texts], dtype=pl.Int64())


def _number_one(text: str | None) -> int | None:
    try:
        return number_ids(pl.Series([text], dtype=pl.String()))[0]
    except SciSciDataError:
        return None


class ListedIds:
    """A list of ids: its rows, LISTED, and what a manifest states of it. Two of one content are equal."""

    def __init__(self, rows: pl.DataFrame, stated: Mapping[str, Any]) -> None:
        self.rows, self.stated = rows, dict(stated)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListedIds) and self.stated == other.stated

    def __hash__(self) -> int:
        return hash(self.stated["sha256"])

    def __repr__(self) -> str:
        return f"ListedIds({self.rows.height:,} ids)"

    def holds(self) -> pl.Expr:
        """Say of works, in an expression over ``work_id`` and ``doi``, whether they are listed; never null."""
        numbers, dois = (self.rows[name].drop_nulls().unique().sort() for name in ("work_id", "doi"))
        is_listed = pl.col("work_id").is_in(numbers.implode())
        return is_listed if dois.is_empty() else is_listed | pl.col("doi").is_in(dois.implode()).fill_null(value=False)

    def among(self, works: pl.LazyFrame) -> ListedIds:
        """Return the list of the numbers of these works that are listed, so that no DOI has to be looked up again."""
        return self.of_works(works.filter(self.holds()).select("work_id").collect(engine="streaming")["work_id"])

    def of_works(self, found: pl.Series) -> ListedIds:
        """Return the list of these numbers, which were found for the ids."""
        found = found.unique().sort()
        rows = pl.DataFrame({"work_id": found}).with_columns(asked=None, kind=pl.lit("OpenAlex"), doi=None)
        return ListedIds(rows.select(LISTED.names()).cast(LISTED), self.stated | {"works": found.len()})
