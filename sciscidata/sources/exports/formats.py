"""Read the files that Web of Science and Scopus export: tagged text, RIS, BibTeX, CSV and tab-delimited text.

A pattern per format reads them: rispy and bibtexparser know neither the cited references of Scopus nor all formats.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import polars as pl

from sciscidata.errors import CorruptRecordError, EmptyInputError, SchemaMismatchError
from sciscidata.storage.small_files import name_encoding

#: The names of each role in all formats: tags of Web of Science and RIS, columns of Scopus, fields of BibTeX. The first
#: that is there counts. Only SP means two things: in Web of Science, a sponsor.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("UT", "AN", "EID", "unique-id", "eid"),
    "doi": ("DI", "DO", "DOI", "doi"),
    "title": ("TI", "T1", "Title", "title"),
    "abstract": ("AB", "N2", "Abstract", "abstract"),
    "author": ("AU", "A1", "CA", "Authors", "author"),
    "n_authors": ("Author(s) ID", "AU", "A1", "CA", "Authors", "author"),
    "year": ("PY", "Y1", "EY", "Year", "year"),
    "source_name": ("SO", "T2", "JO", "JF", "Source title", "journal", "booktitle"),
    "volume": ("VL", "Volume", "volume"),
    "page": ("BP", "AR", "SP", "C7", "Page start", "Art. No.", "pages", "article-number", "art_number"),
    "work_type": ("DT", "M3", "Document Type", "type", "document_type"),
    "language": ("LA", "Language of Original Document", "language"),
    "cited_by_count": ("TC", "Cited by", "times-cited"),
    "primary_field": ("WC", "web-of-science-categories", "research-areas"),
    "concepts": ("DE", "KW", "Author Keywords", "author_keywords", "keywords"),
    "references": ("CR", "References", "cited-references", "references"),
}
ROLES: Final = pl.Schema(dict.fromkeys(_NAMES, pl.String()))
#: Where the references stand one on a line; elsewhere a semicolon and a blank part them.
_BY_LINE: Final = ("CR", "cited-references")
_END: Final = re.compile(r"^ER(?:  -.*)?\s*$", re.M)
_TAG: Final = re.compile(r"^([A-Z][A-Z0-9]) (.*(?:\n   .*)*)", re.M)
_RIS_TAG: Final = re.compile(r"^([A-Z][A-Z0-9])  - ?(.*(?:\n(?![A-Z][A-Z0-9]  -).*)*)", re.M)
_ENTRY: Final = re.compile(r"^\s*@(\w+)\s*\{\s*([^,\s]*)\s*,", re.M)
_FIELD: Final = re.compile(r"^\s*([A-Za-z][\w-]*)\s*=\s*(?=[{\"\w])", re.M)
#: What parts authors where no line end or semicolon does: in BibTeX a word, in CSV of Scopus until 2023 a comma.
_AUTHORS: Final = {"author": r"\s+and\s+", "Authors": r",\s+(?!(?:Jr|Sr|I+|IV)\b)"}
_HOW: Final = (
    "Export from Web of Science as plain text, tab-delimited text or BibTeX, or from Scopus as CSV, RIS or BibTeX. "
    "Other tables are read by TablesConfig.works."
)


def read_export(path: Path) -> pl.DataFrame:
    """Read one file into rows of ROLES, all text; values of several lines keep their line ends."""
    text = _read_text(path)
    head = text[:10_000]
    kinds: tuple[tuple[str, Callable[[str, Path], Iterator[Mapping[str, str]]]], ...] = (
        (r"^PT [A-Z]\s*$", _tagged),
        (r"^TY  -", _ris),
        (_ENTRY.pattern, _bibtex),
        (r"\A.*\b(?:UT|EID|Source title|Author full names)\b", _table),
    )
    read = next((reader for pattern, reader in kinds if re.search(pattern, head, re.M)), None)
    if text.strip() and read is None:
        raise SchemaMismatchError(
            f"{path} is no export of Web of Science or Scopus; it begins with {head.strip()[:60]!r}. {_HOW}"
        )
    rows = [_row(record) for record in read(text, path)] if read else []
    if not rows:
        raise EmptyInputError(f"{path} holds no record. {_HOW}")
    return pl.DataFrame(rows, ROLES, orient="row")


def _read_text(path: Path) -> str:
    content = path.read_bytes()
    encoding = name_encoding(content[:256]).lower() or "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise CorruptRecordError(
            f"{path} is no text in UTF-8 or UTF-16. Choose UTF-8 when you export, or convert it: iconv -t UTF-8."
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _row(record: Mapping[str, str]) -> list[str | None]:
    values: dict[str, str | None] = {}
    for role, names in _NAMES.items():
        name = next((name for name in names if record.get(name)), "")
        value = record.get(name)
        if value and role in ("references", "concepts") and name not in _BY_LINE:
            value = re.sub(r";\s+", "\n", value)
        if value and role == "n_authors":
            authors = re.split(";" if ";" in value else _AUTHORS.get(name, "\n"), value)
            n_authors = sum(author.strip()[:1] not in ("", "[") for author in authors)  # "[Anonymous]" is no author
            value = str(n_authors) if n_authors else None
        values[role] = value
    notes = record.get("N1") or record.get("note") or ""
    if not values["cited_by_count"] and (found := re.search(r"\bcited by\s*:?\s*([0-9]+)", notes, re.I)):
        values["cited_by_count"] = found[1]
    if not values["id"]:
        eid = re.search(r"\beid=(2-s2\.0-[0-9]+)", record.get("UR") or record.get("url") or "")
        title = f"{values['title']} ({values['year']})" if values["title"] else None
        values["id"] = eid[1] if eid else values["doi"] or record.get("key") or title
    return [*values.values()]


def _tagged(text: str, path: Path, start: str = "PT", tag: re.Pattern[str] = _TAG) -> Iterator[Mapping[str, str]]:
    *records, rest = _END.split(text)
    if re.search(f"^{start} ", rest, re.M):
        raise CorruptRecordError(f"{path} ends inside a record. Export it again.")
    for record in records:
        fields: dict[str, str] = {}
        for name, value in tag.findall(record):
            value = value.replace("\n   ", "\n").strip()
            if name == "N1" and value.startswith("References: "):  # Scopus has no tag for them
                name, value = "References", value.removeprefix("References: ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        if start in fields:
            yield fields


def _ris(text: str, path: Path) -> Iterator[Mapping[str, str]]:
    return _tagged(text, path, "TY", _RIS_TAG)


def _bibtex(text: str, _: Path) -> Iterator[Mapping[str, str]]:
    parts = _ENTRY.split(text)[1:]
    for kind, key, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if kind.lower() in ("comment", "preamble", "string"):
            continue
        fields = _FIELD.split(body)[1:]
        record = {
            name.lower(): re.sub(r"[{}]|\\(?=[&%$#_{}])", "", value.strip().rstrip(',}" \n\t').lstrip('{"'))
            for name, value in zip(fields[::2], fields[1::2], strict=True)
        }
        yield {"key": key} | record


def _table(text: str, path: Path) -> Iterator[Mapping[str, str]]:
    separator = max(",\t;", key=text.partition("\n")[0].count)
    is_wos = separator == "\t"
    try:
        table = pl.read_csv(
            io.BytesIO(text.encode()),
            separator=separator,
            infer_schema=False,
            quote_char=None if is_wos else '"',
            truncate_ragged_lines=is_wos,  # rows end with one tab more than the first
        )
    except pl.exceptions.PolarsError as error:
        raise CorruptRecordError(
            f"{path}: {str(error).splitlines()[0].rstrip('.')}. Export it again; a program may have changed it."
        ) from error
    if is_wos and "CR" in table.columns:
        table = table.with_columns(pl.col("CR").str.replace_all("; ", "\n"))
    yield from table.iter_rows(named=True)
