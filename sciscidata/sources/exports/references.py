"""Tell which work a cited reference names: by its DOI, else by author and year, with volume and page or title."""

from __future__ import annotations

from typing import Final

import polars as pl

from sciscidata.records.dois import bare_dois
from sciscidata.records.ids import number_ids
from sciscidata.schemas import CITATIONS

_DOI: Final = r"(10\.[0-9]{4,9}/[^\s\],]+)"
#: Web of Science: Author, year, source, Vvolume, Ppage, DOI ...
_OF_WOS: Final = r"^[^,]+, ([0-9]{4})(?:,|$)"
#: Scopus: authors, title (year) source, volume (issue), pp. first-last.
#: Scopus since 2023: authors, title, source, volume, issue, pp. first-last, (year).
_YEAR: Final = (r"\(([0-9]{4})[a-z]?\)\s*$", r"\(([0-9]{4})[a-z]?\)")
_PLACE: Final = r",\s*([A-Za-z]?[0-9]\w*)(?:\s*\([^)]*\)|,[^,]*)?,\s*pp?\.\s*([A-Za-z]*[0-9]+)"
_SOURCE: Final = (r"\([0-9]{4}[a-z]?\)\s*(\pL)", r",\s*(\pL)[^,]*,\s*[A-Za-z]?[0-9]\w*(?:,[^,]*)?,\s*pp?\.")
_TITLE: Final = r"^(?:(?:[^,]+,\s+)?(?:[^,]*\s)?(?:\pL\.[- ]?)+,\s+)+(?:[Ee]t al\.,\s+)?(.+)"
#: Letters that tell names and titles apart. "van der Leeuw S", "VANDERLEEUW SE" and "Van der Leeuw, S." begin alike.
_NAME_LETTERS, _TITLE_LETTERS = 3, 25


def _plain(text: pl.Expr, n_letters: int | None = None) -> pl.Expr:
    """Keep letters and digits, in lower case and without accents: all, or the first ones."""
    text = text if n_letters is None else text.str.slice(0, 5 * n_letters)
    return text.str.normalize("NFKD").str.replace_all(r"[^\pL\pN]", "").str.to_lowercase().str.slice(0, n_letters)


def _keys(author: pl.Expr, year: pl.Expr, place: tuple[pl.Expr, pl.Expr, pl.Expr], title: pl.Expr) -> list[pl.Expr]:
    """Join what names a work, by source, volume and page, and by title; null if a part is missing."""
    source, volume, page = place
    initial = source.str.extract(r"^(?i:the )?(\pL)").str.to_lowercase()
    place = (initial, volume.str.to_lowercase(), page.str.to_lowercase().str.strip_chars_start("0"))
    words = _plain(title, _TITLE_LETTERS)
    long = pl.when(words.str.len_chars() == _TITLE_LETTERS).then(words)
    named = (pl.lit("key:"), _plain(author, _NAME_LETTERS), year.str.slice(0, 4))
    return [pl.concat_str(*named, *rest, separator="|") for rest in (place, (long,))]


def _numbers(rows: pl.DataFrame, **named: pl.Expr) -> pl.DataFrame:
    return pl.DataFrame([number_ids(column) for column in rows.select(**named).iter_columns()])


def number_works(rows: pl.DataFrame) -> pl.DataFrame:
    """Number what may name works: ``doi_number``, ``place_number`` and ``title_number``, null if a part is missing."""
    volume, page = pl.col("volume").str.extract(r"(\w[\w-]*)"), pl.col("page").str.extract(r"(\w+)")
    place, title = _keys(pl.col("author"), pl.col("year"), (pl.col("source_name"), volume, page), pl.col("title"))
    return _numbers(rows, doi_number=bare_dois(pl.col("doi")), place_number=place, title_number=title)


def number_references(texts: pl.Series) -> pl.DataFrame:
    """Number what names references of one file: ``doi_number``; ``key_number``, of place or title; or ``text_number``.

    Example:
        >>> work = {"author": "Noé, SJ", "year": "2001", "volume": "12", "page": "7", "source_name": "Maps"}
        >>> work |= {"doi": "10.1/A", "title": "Dams"}
        >>> place = number_works(pl.DataFrame(work))["place_number"].item()
        >>> for reference in ("NOE S, 2001, MAPS, V12, P7", "Noé S.J., Of dams (2001) Maps, 12 (3), pp. 7-9"):
        ...     print(number_references(pl.Series([reference]))["key_number"].item() == place)
        True
        True
    """
    text = pl.col("text")
    of_wos = 2 * (texts.str.contains(_OF_WOS).sum() or 0) > len(texts)  # a file is of one database

    def found(wos: str, *scopus: str, group: int = 1) -> pl.Expr:
        patterns = [(wos, 1)] if of_wos else [(pattern, group) for pattern in scopus]
        return pl.coalesce(*(text.str.extract(*pattern) for pattern in patterns))

    page = found(r", (?:P|p|ARTN )([0-9]\w*|[A-Za-z]{1,2}[0-9]+)", _PLACE, group=2)
    place = (found(r"^[^,]+, [0-9]{4}, (\w)", *_SOURCE), found(r", V([0-9][\w-]*)", _PLACE), page)
    title = pl.lit(None, pl.String) if of_wos else found("", _TITLE)
    keys = _keys(text.str.extract(r"^([^,]+)"), found(_OF_WOS, *_YEAR), place, title)
    rows = texts.alias("text").to_frame()
    numbers = _numbers(rows, doi_number=bare_dois(text.str.extract(_DOI)), key_number=pl.coalesce(keys))
    # Few have neither, and whole texts take long.
    rest = texts.set(numbers.select(pl.any_horizontal(pl.all().is_not_null())).to_series(), None)
    whole = pl.concat_str(pl.lit("text:"), _plain(text))
    return numbers.hstack(_numbers(rest.alias("text").to_frame(), text_number=whole))


def match_references(works: pl.DataFrame, references: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Make CITATIONS of references, each once, whether what they cite is one of ``works`` or not.

    A reference is the work that has its DOI, else the only work that has its key. Any other gets its own number.
    The counts say how well keys agree with DOIs.
    """

    def only(frame: pl.DataFrame, by: str, value: str, name: str) -> pl.DataFrame:
        pairs = frame.select(by, pl.col(value).alias(name)).drop_nulls().unique()
        return pairs.filter(~pl.col(by).is_duplicated())

    keys = pl.concat([works.select("work_id", key_number=name) for name in ("place_number", "title_number")])
    rows = references.join(only(works, "doi_number", "work_id", "by_doi"), "doi_number", how="left")
    rows = rows.join(only(keys, "key_number", "work_id", "by_key"), "key_number", how="left")
    rows = rows.join(only(references, "key_number", "doi_number", "other_doi"), "key_number", how="left")
    both = rows.join(works.rename({"work_id": "by_doi"}).drop("doi_number"), "by_doi").drop_nulls("key_number")
    counts = {
        "references": rows.height,
        "matched_by_doi": rows["by_doi"].count(),
        "matched_by_key": rows.filter(pl.col("by_doi").is_null())["by_key"].count(),
        "matched_by_doi_with_key": both.height,
        "key_agrees": both.filter(
            pl.any_horizontal(pl.col("place_number", "title_number") == pl.col("key_number"))
        ).height,
    }
    named = pl.coalesce("by_doi", "by_key", "doi_number", "other_doi", "key_number", "text_number").alias("cited_id")
    return rows.select("citing_id", named).drop_nulls().unique().sort(CITATIONS.names()), counts
