"""Read the files that Web of Science and Scopus export: tagged text, RIS, BibTeX and tables.

rispy 0.10 was tried, too. It drops a record that was cut off, and one without an end, where an error is needed.
"""

from __future__ import annotations

import html
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from sciscidata.errors import CorruptRecordError, EmptyInputError, SchemaMismatchError
from sciscidata.records.ids import MISSING
from sciscidata.sources.exports.bibtex import ENTRY, BibtexError, read_entries
from sciscidata.sources.record_files import decompressed_bytes
from sciscidata.sources.tables.files import refuse_packed
from sciscidata.storage.small_files import name_encoding

_Names = Mapping[str, tuple[str, ...]]
#: The names of each role in each format; the first with a value counts. One tag may mean two things: in RIS, Y1 is a
#: year and SP a page; in Web of Science, a Portuguese title and a sponsor.
_TAGS: Final[_Names] = {
    "id": ("UT",),
    "doi": ("DI",),
    "title": ("TI",),
    "abstract": ("AB",),
    "author": ("AU", "CA"),
    "n_authors": ("AU", "CA"),
    "year": ("PY", "EY", "EA"),
    "source_name": ("SO",),
    "volume": ("VL",),
    "page": ("BP", "AR"),
    "work_type": ("DT",),
    "language": ("LA",),
    "cited_by_count": ("TC",),
    "primary_field": ("WC",),
    "concepts": ("DE",),
    "references": ("CR",),
    "n_references": ("NR",),
}
_RIS: Final[_Names] = {
    "id": ("AN",),
    "doi": ("DO",),
    "title": ("TI", "T1"),
    "abstract": ("AB", "N2"),
    "author": ("AU", "A1"),
    "n_authors": ("AU", "A1"),
    "year": ("PY", "Y1", "DA"),
    "source_name": ("T2", "JO", "JF"),
    "volume": ("VL",),
    "page": ("SP", "AR", "C7"),
    "work_type": ("M3",),
    "language": ("LA",),
    "concepts": ("KW",),
    "references": ("References",),
}
_BIBTEX: Final[_Names] = {
    "id": ("unique-id", "eid"),
    "doi": ("doi",),
    "title": ("title",),
    "abstract": ("abstract",),
    "author": ("author",),
    "n_authors": ("author",),
    "year": ("year", "date", "earlyaccessdate"),
    "source_name": ("journal", "booktitle", "journaltitle"),
    "volume": ("volume",),
    "page": ("pages", "article-number", "art_number"),
    "work_type": ("type", "document_type"),
    "language": ("language",),
    "cited_by_count": ("times-cited",),
    "primary_field": ("web-of-science-categories", "research-areas"),
    "concepts": ("author_keywords", "keywords"),
    "references": ("cited-references", "references"),
    "n_references": ("number-of-cited-references",),
}
#: Tables of Scopus, and the sheet of Web of Science.
_COLUMNS: Final[_Names] = {
    "id": ("EID", "UT (Unique WOS ID)"),
    "doi": ("DOI",),
    "title": ("Title", "Article Title"),
    "abstract": ("Abstract",),
    "author": ("Authors", "Group Authors"),
    "n_authors": ("Author(s) ID", "Authors", "Group Authors"),
    "year": ("Year", "Publication Year", "Early Access Date"),
    "source_name": ("Source title", "Source Title"),
    "volume": ("Volume",),
    "page": ("Page start", "Start Page", "Art. No.", "Article Number"),
    "work_type": ("Document Type",),
    "language": ("Language of Original Document", "Language"),
    "cited_by_count": ("Cited by", "Times Cited, WoS Core"),
    "primary_field": ("WoS Categories",),
    "concepts": ("Author Keywords",),
    "references": ("References", "Cited References"),
    "n_references": ("Cited Reference Count",),
}
#: And the authors, each in a line: ids where there are such, else names as ``_author_key`` writes them.
ROLES: Final = pl.Schema(dict.fromkeys((*_TAGS, "authors"), pl.String()))
#: Where each line is a value. Elsewhere a value goes on in the next line.
_BY_LINE: Final = ("AU", "CA", "CR", "A1", "KW", "cited-references")
_END: Final = re.compile(r"^ER(?: {1,2}-.*)?\s*$", re.M)
_TAG: Final = re.compile(r"^([A-Z][A-Z0-9]) (.*(?:\n(?![A-Z][A-Z0-9](?: |$)).*)*)", re.M)
_RIS_TAG: Final = re.compile(r"^([A-Z][A-Z0-9]) {1,2}- ?(.*(?:\n(?![A-Z][A-Z0-9] {1,2}-).*)*)", re.M)
_QUOTED_LINE: Final = re.compile(r'^"((?:[A-Z][A-Z0-9] |   ).*)"$', re.M)  # as a spreadsheet writes it
_LINES_IN_CELL: Final = re.compile(r'(?<![^\t\n])"(?:[^"\t]|"")*"(?![^\t\n])')
_WRAPPED: Final = re.compile(r"\s*\n\s*")
_ENTITY: Final = re.compile(r"&(?:#\w+|\w+);")
_NONE: Final = ("", *MISSING)
#: What parts authors where no line end or semicolon does: in BibTeX a word, in CSV of Scopus until 2023 a comma.
_AUTHORS: Final = {"author": r"\s+and\s+", "Authors": r",\s+(?!(?:Jr|Sr|I+|IV)\b)"}
_SEPARATED: Final = r'"?(?i:sep)=.?"?[,;\t]*\n'  # what a spreadsheet may write into the first line
_MOST_INITIALS: Final = 4
_CELL: Final = 32_767  # signs that a cell of a spreadsheet holds at most
#: What Polars says of a damaged table, in the words of a user.
_DAMAGE: Final = {"found more fields": "a row has more cells than the header", "could not parse": "quotes do not end"}
_HOW: Final = (
    "Export from Web of Science as plain text, tab-delimited text or BibTeX, or from Scopus as CSV, RIS or BibTeX. "
    "Other tables are read by TablesConfig.works."
)


class Export(NamedTuple):
    """The records of a file, rows of ROLES, with the name of its format and the addresses that records have."""

    format: str
    rows: pl.DataFrame
    addresses: pl.Series


class _Format(NamedTuple):
    name: str
    names: _Names
    records: Iterator[Mapping[str, str | None]]


def read_export(path: Path) -> Export:
    """Read one file into rows of ROLES, all text; a cited reference or author of each line keeps its line."""
    text = read_text(path)
    head = text[:10_000]
    kinds: tuple[tuple[str, Callable[[str, Path], _Format]], ...] = (
        (r"^PT [A-Z]\s*$", _tagged),
        (r"^TY {1,2}-", _ris),
        (rf"^\s*{ENTRY.pattern}", _bibtex),
        (rf"\A(?:{_SEPARATED})?(?!.*\bPublication ID\b).*\b(?:UT|EID|Source title|Author full names)\b", _table),
    )
    starts = [(found.start(), read) for pattern, read in kinds if (found := re.search(pattern, head, re.M))]
    if text.strip() and not starts:
        raise SchemaMismatchError(
            f"{path} is no export of Web of Science or Scopus; it begins with {head.strip()[:60]!r}. {_HOW}"
        )
    if not starts:
        raise EmptyInputError(f"{path} holds no record. {_HOW}")
    form = min(starts, key=lambda start: start[0])[1](text, path)
    records = [record for record in form.records if any(record.values())]
    if not records:
        raise EmptyInputError(f"{path} holds no record. {_HOW}")
    keys = Counter(record.get("key") for record in records)
    rows = [_row(record, form.names, keys[record.get("key")] == 1) for record in records]
    addresses = pl.Series("address", map(_address_of, records), pl.String(), strict=True)
    return Export(form.name, pl.DataFrame(rows, ROLES, orient="row"), addresses)


def read_text(path: Path) -> str:
    """Read a text in UTF-8 or UTF-16, compressed or not, with plain line ends."""
    try:
        content = b"".join(decompressed_bytes(path))
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{path}: {str(error).rstrip('.')}. Get the file again.") from error
    refuse_packed(path, content)
    encoding = name_encoding(content[:256]).lower() or "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise CorruptRecordError(
            f"{path} is no text in UTF-8 or UTF-16. Choose UTF-8 when you export ('CSV UTF-8' in a spreadsheet), or "
            "convert it: iconv -t UTF-8."
        ) from error
    return text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")


def _row(record: Mapping[str, str | None], names_of: _Names, has_own_key: bool) -> list[str | None]:
    values: dict[str, str | None] = dict.fromkeys(ROLES)
    for role, names in names_of.items():
        name = next((name for name in names if (record.get(name) or "") not in _NONE), "")
        value = record[name] if name else None
        if value:
            value = _ENTITY.sub(lambda sign: html.unescape(html.unescape(sign[0])), value)
            value = value if name in _BY_LINE else _WRAPPED.sub(" ", value)
        if value and role == "concepts":
            value = re.sub(r";\s+", "\n", value)
        if value and role == "n_authors":
            authors = re.split(";" if ";" in value else _AUTHORS.get(name, "\n"), value)
            authors = [author for author in authors if author.strip()[:1] not in ("", "[")]  # "[Anonymous]" is none
            values["authors"] = "\n".join(filter(None, map(_author_key, authors))) or None
            value = str(len(authors)) if authors else None
        values[role] = value
    notes = record.get("N1") or record.get("note") or ""
    if not values["cited_by_count"] and (found := re.search(r"\bcited by\s*:?\s*([0-9]+)", notes, re.I)):
        values["cited_by_count"] = found[1]
    if not values["id"]:
        eid = re.search(r"\beid=(2-s2\.0-[0-9]+)", _address_of(record) or "")
        title = f"{values['title']} ({values['year']})" if values["title"] else None
        key = record.get("key") if has_own_key else None
        values["id"] = eid[1] if eid else values["doi"] or key or title
    return [*values.values()]


def _address_of(record: Mapping[str, str | None]) -> str | None:
    """Return the address that a record has, as RIS, BibTeX and tables name it."""
    return record.get("UR") or record.get("url") or record.get("Link")


def _author_key(author: str) -> str:
    """Write an id as it is, and a name as surname and initials, so that most forms of a name are one.

    Example:
        >>> [_author_key(name) for name in ("Poe, EA", "Poe E.A.", "Poe, Edgar Allan", "M\u00fcller, J-P", "57190000")]
        ['poe ea', 'poe ea', 'poe ea', 'muller jp', '57190000']
    """
    author = author.strip()
    if author.isdecimal():
        return author
    surname, comma, given = author.partition(",")
    if not comma:
        surname, _, given = author.rpartition(" ")
    words = re.findall(r"\w+", given)
    is_short = "".join(words).isupper() and len(words) == 1 and len(words[0]) <= _MOST_INITIALS
    initials = words[0] if is_short else "".join(word[0] for word in words)
    plain = unicodedata.normalize("NFKD", f"{surname or given} {initials if surname else ''}")
    return " ".join("".join(sign for sign in plain if sign.isalnum() or sign == " ").casefold().split())


def _tagged(text: str, path: Path) -> _Format:
    return _Format("text of Web of Science", _TAGS, _tagged_records(text, path, "PT", _TAG))


def _ris(text: str, path: Path) -> _Format:
    text = re.sub(r"(?<=\S)(?=(?:AN|WE)  - )", "\n", text)  # Web of Science forgets the line end between them
    return _Format("RIS", _RIS, _tagged_records(text, path, "TY", _RIS_TAG))


def _tagged_records(text: str, path: Path, start: str, tag: re.Pattern[str]) -> Iterator[Mapping[str, str]]:
    text = _QUOTED_LINE.sub(lambda line: line[1].replace('""', '"'), text)
    *records, rest = _END.split(text)
    for record in [*records, rest]:
        fields: dict[str, str] = {}
        for name, value in tag.findall(record):
            if name == start and (start in fields or record is rest):
                raise CorruptRecordError(f"{path} ends inside a record, or lacks an ER. Export it again.")
            value = re.sub(r"\n[ \t]+", "\n", value.strip()) if "\n" in value else value.strip()
            if name == "N1" and value.startswith("References: "):  # Scopus has no tag for them
                name, value = "References", value.removeprefix("References: ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        if start in fields:
            yield fields


def _bibtex(text: str, path: Path) -> _Format:
    try:
        return _Format("BibTeX", _BIBTEX, iter([*read_entries(text)]))
    except BibtexError as error:
        raise CorruptRecordError(f"{path}: {error}. Export it again, or mend its braces.") from error


def _table(text: str, path: Path) -> _Format:
    """Read a table as the sites write it, or as a spreadsheet saved it again."""
    head, _, rows = re.sub(rf"\A{_SEPARATED}", "", text).partition("\n")
    separator = max(",\t;|", key=head.count)
    if separator == "\t":
        rows = _LINES_IN_CELL.sub(lambda cell: cell[0].replace("\n", " "), rows)
    try:
        table = pl.read_csv(
            io.BytesIO(f"{head}{separator}\n{rows}".encode()),  # rows of Web of Science end with one tab more
            separator=separator,
            infer_schema=False,
            quote_char=None if separator == "\t" else '"',
        )
    except pl.exceptions.PolarsError as error:
        what = next((mended for found, mended in _DAMAGE.items() if found in str(error)), str(error).splitlines()[0])
        raise CorruptRecordError(f"{path}: {what}. Export it again; a program may have changed it.") from error
    # A spreadsheet quotes cells of text between tabs, and doubles the quotes in them.
    quoted = pl.all().str.contains(r'^"(?:[^"]|"")*"$')
    plain = pl.all().str.slice(1).str.head(-1).str.replace_all('""', '"', literal=True)
    table = table.with_columns(pl.when(quoted).then(plain).otherwise(pl.all()).str.strip_chars().name.keep())
    table = table.rename(lambda name: name.strip().strip('"'))
    *_, last = table.columns
    if (more := table[last].filter((table[last] != "").fill_null(value=False))).len():
        raise CorruptRecordError(
            f"{path}: a row has a cell more than the header, {more[0][:40]!r}. Export it again; a program may have "
            "changed it."
        )
    if table.select(pl.any_horizontal(pl.all().str.len_chars() == _CELL).any()).item():
        raise CorruptRecordError(
            f"{path}: a spreadsheet cut a text after {_CELL:,} signs, so references are lost. Take the export itself."
        )
    first = table.columns[0]
    table = table.filter(pl.col(first).ne_missing(first))  # the header again, where files were put together
    if first == "PT" and (strange := table["PT"].filter(table["PT"].str.len_chars() > 1)).len():
        raise CorruptRecordError(
            f"{path}: a row begins with {strange[0][:40]!r} where the type of a publication belongs. "
            "Export it again; a program may have changed it."
        )
    has_tags, has_sheet = "UT" in table.columns, "UT (Unique WOS ID)" in table.columns
    site = "Web of Science" if has_tags or has_sheet else "Scopus"
    return _Format(f"table of {site}", _TAGS if has_tags else _COLUMNS, table.iter_rows(named=True))
