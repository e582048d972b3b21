"""Tell which work a cited reference names: by its DOI, else by author and year, with volume and page or title."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

import polars as pl

from sciscidata.records.dois import bare_dois
from sciscidata.records.ids import number_ids
from sciscidata.schemas import CITATIONS

#: Web of Science: author, year, source, Vvolume, Ppage, DOI ... The author is up to four parts, or missing.
_AUTHOR: Final = r"^((?:[^,]+,\s*){0,4}?)"
_OF_WOS: Final = _AUTHOR + r"([12][0-9]{3})[a-z]?(?:,|\.?$)"
_WOS_SOURCE: Final = _AUTHOR + r"[12][0-9]{3}[a-z]?,\s*(\pL[^,]*)"
#: Scopus: authors, title (year) source, volume (issue), pp. first-last.
#: Scopus since 2023: authors, title, source, volume, issue, pp. first-last, (year). Since 2025, "; " parts the authors.
_YEAR: Final = (
    r"(?:^|,)\s*\(([12][0-9]{3})[a-z]?\)\s*\.?$",
    r"^.*\(([12][0-9]{3})[a-z]?\)\s*\pL",  # the last one, for titles have years, too
    r"\(([12][0-9]{3})[a-z]?\)",
)
_PLACE: Final = r",\s*([A-Za-z]?[0-9]\w*)(?:\s*\([^)]*\)|,[^,]*)?,\s*pp?\.\s*([A-Za-z]*[0-9]+)"
_SOURCE: Final = (r"^.*\([0-9]{4}[a-z]?\)\s*(\pL[^,]*)", r",\s*(\pL[^,]*),\s*[A-Za-z]?[0-9]\w*(?:,[^,]*)?,\s*pp?\.")
_TITLE: Final = (
    r"^(?:(?:[^,]+,\s+)?(?:[^,]*\s)?(?:\pL\.[- ]?)+,\s+)+(?:[Ee]t al\.,\s+)?(.+)",
    r"^(?:\pL[\pL'’-]*(?: \pL[\pL'’-]*){0,2} \p{Lu}{1,4}(?:-\p{Lu}+)?,\s+)+(?:[Ee]t al\.,\s+)?(.+)",
)
#: Letters that tell names and titles apart. "van der Leeuw S", "VANDERLEEUW SE" and "Van der Leeuw, S." begin alike.
_NAME_LETTERS, _TITLE_LETTERS = 3, 25


_IS_WOS, _ENDS, _HAS_YEAR = re.compile(_OF_WOS), re.compile(_YEAR[0]), re.compile(_YEAR[2])
_PARTICLE: Final = "(?:[Vv][ao]n|[Dd](?:e[nrl]?|ella|[aiu]|os)|l[ae]|te[rn]|zu|bin|ibn|y|e)"
_SURNAME: Final = rf"(?:{_PARTICLE}|(?:[a-z]{{1,2}}['’-])?(?![a-zß-öø-ÿ])[^\W\d_][\w'’-]*)"
_INITIALS: Final = r"(?:(?:[^\W\d_]{1,3}\.[- ]?)+|[A-ZÀ-Þ]{1,4}(?:-[A-ZÀ-Þ]{1,2})?\b)"
_NAME: Final = rf"{_SURNAME}(?: {_SURNAME}){{0,4}}?,? {_INITIALS}(?:,? (?:Jr|Sr|I{{2,3}}|IV)\b\.?)?"
_IS_NAME: Final = re.compile(rf"{_NAME}\s*$|[Ee]t al\.$")
_BEGINS: Final = re.compile(rf"{_NAME}\s*(?:[,;]|$)(?!.*\bEds?\.$)")
_PAGES_LAST: Final = re.compile(r"\bpp?\. \w+(?:-\w+)?$")
_BARE_SEPARATOR: Final = r"(?i)(?<!\.CO);"  # programs drop the blank behind it; in a DOI of the form SICI is one, too
_UNFINISHED: Final = re.compile(r"(?<!\.)\n")
#: A line of Web of Science that goes on: behind a comma, or with a part that begins no reference.
_GOES_ON: Final = re.compile(
    r"(?<=,)\n\s*(?![^\n]*,\s*[12]\d{3}[a-z]?(?:,|\.?$)|\[Anonymous)|"
    r"\n\s*(?=DOI\b|\[?10\.[0-9.]+/|[VP][0-9]+(?:,|\s*$)|ARTN )",
    re.M,
)


class Form(StrEnum):
    """How a site writes cited references."""

    WOS = "Web of Science"
    SCOPUS_2004 = "Scopus until 2023"
    SCOPUS_2023 = "Scopus since 2023"
    SCOPUS_2025 = "Scopus since 2025"


class CitedReferences(NamedTuple):
    """The references of one record, their form, and how many pieces between separators were joined."""

    form: Form
    texts: list[str]
    n_joined: int


def split_references(text: str) -> CitedReferences:
    """Split the cited references of one record. They have one form, that of most: a record was written at once.

    Example:
        >>> split_references("Poe E.A.; Noe N., Dams; an essay, Maps, 3, pp. 1-9, (2001); Maps, (1999)").texts
        ['Poe E.A., Noe N., Dams; an essay, Maps, 3, pp. 1-9, (2001)', 'Maps, (1999)']
    """
    text, n_joined = text.strip(), 0
    if text.endswith(".") and 2 * text.count(".\n") >= text.count("\n"):  # BibTeX ends each with a full stop
        text, n_joined = _UNFINISHED.subn(" ", text)
    if "\n" in text:
        text, n_more = _GOES_ON.subn(" ", text)
        n_joined += n_more
    between = "\n" if "\n" in text else r";\s+" if re.search(r";\s", text) else _BARE_SEPARATOR
    pieces = [piece for part in re.split(between, text) if (piece := part.strip())]
    n_ends, n_years, n_wos = (
        sum(map(bool, map(has, pieces[:40]))) for has in (_ENDS.search, _HAS_YEAR.search, _IS_WOS.match)
    )
    form = Form.SCOPUS_2004 if n_years > 2 * n_ends else Form.SCOPUS_2023
    if n_wos > n_years or (n_wos == n_years and ("\n" in text or "[Anonymous]" in text)):
        form = Form.WOS
    if "\n" in text or form == Form.WOS:
        return CitedReferences(form, pieces, n_joined)
    texts: list[str] = []
    is_list, is_whole = False, True  # of what the last text has: only authors, and its year
    for piece in pieces:
        if texts and not _is_new(piece, texts[-1], form, is_whole=is_whole, is_list=is_list):
            texts[-1] += (", " if is_list else "; ") + piece
            form = Form.SCOPUS_2025 if is_list and form == Form.SCOPUS_2023 else form
        else:
            texts.append(piece)
            is_list, is_whole = True, False
        is_list = is_list and (_IS_NAME.match(piece) is not None or "," not in piece)
        is_whole = is_whole or bool((_HAS_YEAR if form == Form.SCOPUS_2004 else _ENDS).search(piece))
    return CitedReferences(form, texts, len(pieces) - len(texts))


def _is_new(piece: str, before: str, form: Form, *, is_whole: bool, is_list: bool) -> bool:
    """Tell whether a piece behind "; " begins a reference, or goes on with the one before."""
    begins = _BEGINS.match(piece) is not None
    goes_on = piece[:1].islower() and not begins and not piece.startswith("http")
    if is_whole and not goes_on:
        return form != Form.SCOPUS_2004 or begins or _HAS_YEAR.search(piece) is not None
    return not is_list and (begins or (form != Form.SCOPUS_2004 and _PAGES_LAST.search(before) is not None))


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


def number_references(references: pl.DataFrame) -> pl.DataFrame:
    """Number what names references: ``doi_number``, ``other_dois``, ``key_number`` of place or title, ``text_number``.

    The last is null where another names the work. Of ``references``, ``text`` and ``of_wos`` are read.

    Example:
        >>> work = {"author": "Noé, SJ", "year": "2001", "volume": "12", "page": "7", "source_name": "Maps"}
        >>> work |= {"doi": "10.1/A", "title": "Dams"}
        >>> place = number_works(pl.DataFrame(work))["place_number"].item()
        >>> for reference in ("NOE, S, 2001, MAPS, V12, P7", "Noé S.J., Of dams (2001) Maps, 12 (3), pp. 7-9"):
        ...     texts = pl.DataFrame({"text": [reference], "of_wos": ["V12" in reference]})
        ...     print(number_references(texts)["key_number"].item() == place)
        True
        True
    """
    text, of_wos = pl.col("text"), pl.col("of_wos")

    def found(wos: str, *scopus: str, group: int = 1, of_scopus: int = 1) -> pl.Expr:
        elsewhere = pl.coalesce(text.str.extract(pattern, of_scopus) for pattern in scopus)
        return pl.when(of_wos).then(text.str.extract(wos, group)).otherwise(elsewhere)

    page = found(r",\s*(?:[Pp] ?|pp\. ?|ARTN )([0-9]\w*|[A-Za-z]{1,2}[0-9]+)", _PLACE, of_scopus=2)
    place = (found(_WOS_SOURCE, *_SOURCE, group=2), found(r",\s*[Vv] ?((?:[A-Z]{1,3}-?)?[0-9][\w-]*)", _PLACE), page)
    author = pl.when(of_wos).then(text.str.extract(_OF_WOS)).otherwise(text)
    title = pl.when(~of_wos).then(pl.coalesce(text.str.extract(pattern) for pattern in _TITLE))
    keys = _keys(pl.when(author != "").then(author), found(_OF_WOS, *_YEAR, group=2), place, title)
    rows = references.select("text", "of_wos")
    numbers = _number_dois(rows).hstack(_numbers(rows, key_number=pl.coalesce(keys)))
    # Few have neither, and whole texts take long.
    is_named = numbers.select(pl.any_horizontal(pl.col("doi_number", "key_number").is_not_null())).to_series()
    whole = pl.concat_str(pl.lit("text:"), _plain(text))
    return numbers.hstack(_numbers(rows["text"].set(is_named, None).to_frame(), text_number=whole))


def _number_dois(rows: pl.DataFrame) -> pl.DataFrame:
    """Number the first DOI of each text, and any others: ``doi_number`` and ``other_dois``."""
    text = pl.col("text").str.replace_all(r",(?:\s*DOI)*\s*(10\.[0-9.]+/)", " $1")
    dois = rows.select(at=pl.int_range(pl.len()), doi=text.str.extract_all(r"\b10\.[0-9.]+(?:/|%2[Ff])\S+"))
    doi = pl.col("doi")
    dois = dois.filter(doi.list.len() > 0).explode("doi").with_columns(doi.str.strip_chars_end(",;.\"'"))
    for opening, closing in ("[]", "()", "{}", "<>"):  # a bracket around the DOI, not in it
        is_around = doi.str.ends_with(closing) & (
            doi.str.count_matches(opening, literal=True) < doi.str.count_matches(closing, literal=True)
        )
        dois = dois.with_columns(pl.when(is_around).then(doi.str.head(-1)).otherwise(doi).alias("doi"))
    dois = dois.with_columns(bare_dois(doi))
    dois = dois.select("at", number=number_ids(dois["doi"])).drop_nulls().unique(maintain_order=True)
    listed = dois.group_by("at", maintain_order=True).agg("number")
    first, others = pl.col("number").list.first(), pl.col("number").list.slice(1)
    listed = listed.select(
        "at", first.alias("doi_number"), pl.when(others.list.len() > 0).then(others).alias("other_dois")
    )
    return rows.select(at=pl.int_range(pl.len())).join(listed, "at", how="left", maintain_order="left").drop("at")


def match_references(works: pl.DataFrame, references: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Make CITATIONS of references, each once, whether what they cite is one of ``works`` or not.

    A reference is the work that has its DOI, else another one of its DOIs, else the only work that has its key. Any
    other gets its own number. The counts say how well keys agree with DOIs.
    """
    keys = pl.concat([works.select("work_id", key_number=name) for name in ("place_number", "title_number")])
    rows = references.join(_only(works, "doi_number", "work_id", "by_first"), "doi_number", how="left")
    same = _same_dois(works, references)
    rows, named = (
        frame.join(same, "doi_number", how="left").with_columns(pl.coalesce("same", "doi_number").alias("doi_number"))
        for frame in (rows, works)
    )
    rows = rows.join(_only(named, "doi_number", "work_id", "by_other"), "doi_number", how="left")
    rows = rows.with_columns(by_doi=pl.coalesce("by_first", "by_other"))
    rows = rows.join(_only(keys, "key_number", "work_id", "by_key"), "key_number", how="left")
    rows = rows.join(_only(rows, "key_number", "doi_number", "other_doi"), "key_number", how="left")
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
    cited = pl.coalesce("by_doi", "by_key", "doi_number", "other_doi", "key_number", "text_number").alias("cited_id")
    return rows.select("citing_id", cited).drop_nulls().unique().sort(CITATIONS.names()), counts


def _only(frame: pl.DataFrame, by: str, value: str, name: str) -> pl.DataFrame:
    """Map each ``by`` that has one ``value`` only to that."""
    pairs = frame.select(by, pl.col(value).alias(name)).drop_nulls().unique()
    return pairs.filter(~pl.col(by).is_duplicated())


def _same_dois(works: pl.DataFrame, references: pl.DataFrame) -> pl.DataFrame:
    """Map DOIs that references list together to the least of them: ``doi_number`` to ``same``.

    Web of Science also lists DOIs of other works by mistake. So one whose own key is another is left out.
    """
    listed = references.filter(pl.col("other_dois").is_not_null())
    pairs = listed.select("doi_number", "key_number", other="other_dois").explode("other").unique()
    alone = _only(references.filter(pl.col("other_dois").is_null()), "doi_number", "key_number", "own")
    for name, known in {
        "own": alone,
        "place": _only(works, "doi_number", "place_number", "place"),
    }.items():
        pairs = pairs.join(known.rename({"doi_number": "other"}), "other", how="left")
        pairs = pairs.filter((pl.col(name) == pl.col("key_number")).fill_null(value=True))
    pairs = pairs.select("doi_number", "other")
    pairs = pl.concat([pairs, pairs.select(doi_number="other", other="doi_number")]).unique()
    same = pairs.select("doi_number", same="doi_number").unique()
    while True:
        near = pairs.join(same, left_on="other", right_on="doi_number").group_by("doi_number").agg(pl.col("same").min())
        nearer = same.join(near, "doi_number", suffix="_near").select(
            "doi_number", same=pl.min_horizontal("same", "same_near")
        )
        if nearer.sort("doi_number").equals(same.sort("doi_number")):
            return nearer
        same = nearer
