"""Write DOIs in one form, whatever the source: as people, addresses, web pages and typesetters spell them."""

from __future__ import annotations

import re
import unicodedata
from html import unescape
from typing import Any, Final, overload
from urllib.parse import unquote

import polars as pl

from sciscidata.errors import SchemaMismatchError
from sciscidata.terminal.messages import counted

#: What str.strip removes.
BLANKS: Final = "".join(sign for sign in map(chr, range(0x3001)) if sign.isspace())
#: What stands before a DOI: the address of a resolver, also through a library's proxy, or the name of the scheme.
_BEFORE: Final = (
    r"(?:(?:(?:https?:?/*(?:\S*?[/.=])?|(?:dx\.|www\.)?)doi[.-]org(?:\.[\w.-]*[a-z])?(?::[0-9]+)?/+|"
    r"(?:urn:|info:)?doi(?:\.org)?(?:\s*[:/=]\s*|\s+))\s*)"
)
#: The beginning of a DOI, in any form.
DOI_START: Final = rf"(?i:[<\"']?{_BEFORE}*10\.[0-9.]+(?:/|%(?:25)*2f))"
#: The same of one in its plain form.
PLAIN_START: Final = r"^10\.[0-9.]+/"
#: The name of the count of changed DOIs, in what is stated of a source.
CHANGED_DOIS: Final = "changed_dois"
_ENDS: Final = "./,;: "
_BRACKETS: Final = {")": "(", "]": "[", "}": "{", ">": "<"}
_QUOTES: Final = "\"'`‘’‚“”„«»"
#: How a DOI may look that one pass over a column does not read: encoded, in brackets, or with the end of an address.
_ODD: Final = r"""[%&?#]|[^ -~]|^["'`(\[{<]|["'`)\]}>]$"""
#: A query, or the name of a place on the page. SICI ends with a sign that may be #, after a hyphen.
_ADDRESS_END: Final = re.compile(
    r"^(\S*?doi[.-]org[^/\s]*/.*?)(?:\?(?:[a-z_][\w.\[\]-]*=.*)?|(?<!-)#(?:[a-z].*)?)$", re.S
)
_DASHES: Final = re.compile(r"[\u2010-\u2015\u2043\u2212]")
_UNSEEN: Final = re.compile(
    r"[\0-\x08\x0e-\x1b\x7f\xad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
)
_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z]+[0-9]*);")
_BEGINNING: Final = re.compile(rf"^(?:[\s{re.escape(_QUOTES + ''.join(_BRACKETS.values()))}]|{_BEFORE})+")


@overload
def normalize_doi(doi: pl.Expr) -> pl.Expr: ...
@overload
def normalize_doi(doi: pl.Series) -> pl.Series: ...
@overload
def normalize_doi(doi: str | None) -> str | None: ...
def normalize_doi(doi: Any) -> Any:
    """Write DOIs in the one form that WORKS has them in, so that a filter or a join by DOI finds every work.

    The form is ``10.1234/abc``: in lower case, without an address, ``doi:``, a query, and stops, brackets or quotes
    around it. Percent-encoding and entities of HTML are decoded.

    Args:
        doi: a column (``pl.col("doi")``), a Series of text, or one text.

    Returns:
        The same kind: an expression, a Series of String in the same order, or a text. Null, or None, for what is no
        DOI.

    Raises:
        SchemaMismatchError: for anything else than text.

    Example:
        >>> normalize_doi("https://doi.org/10.1000%2FABC.")
        '10.1000/abc'
        >>> mine = pl.DataFrame({"doi": ["10.1/A", "doi:10.1/b", "HTTP://DX.DOI.ORG/10.1/C", "unknown"]})
        >>> mine.filter(normalize_doi(pl.col("doi")).is_in(["10.1/a", "10.1/b", "10.1/c"])).height
        3
    """
    if isinstance(doi, pl.Expr):
        return doi.map_batches(normalize_doi, return_dtype=pl.String(), is_elementwise=True)
    if isinstance(doi, pl.Series):
        if doi.dtype not in (pl.String(), pl.Null()):
            raise SchemaMismatchError(f"normalize_doi: {doi.name!r} is {doi.dtype}, needs text. Cast it to pl.String.")
        dois = read_dois(doi.cast(pl.String))[0]
        return dois.set(~dois.str.contains(PLAIN_START).fill_null(value=True), None)
    if doi is None or isinstance(doi, str):
        return normalize_doi(pl.Series([doi], dtype=pl.String()))[0]
    raise SchemaMismatchError(
        f"normalize_doi: {doi!r} is of type {type(doi).__name__}, needs text, a Series or an expression of Polars."
    )


def bare_dois(text: pl.Expr) -> pl.Expr:
    """Write DOIs in one form, or null for blanks; ``read_dois`` says which."""
    return text.map_batches(lambda texts: read_dois(texts)[0], return_dtype=pl.String(), is_elementwise=True)


def read_dois(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return DOIs in one form, and which differ from it by more than case, blanks, address and a stop at the end.

    The form is in lower case, without an address, ``doi:``, a query, and stops, brackets or quotes around it.
    Percent-encoding and entities of HTML are decoded. Signs are those of Unicode's NFKC, and every dash is a hyphen.
    """
    text = pl.first().str.strip_chars(BLANKS).str.to_lowercase().str.replace(f"^{_BEFORE}+", "").str.strip_chars(BLANKS)
    bare = text.str.strip_chars_end("./ ")
    doi = bare.str.strip_chars_end(_ENDS)
    found = texts.to_frame().select(bare=bare, doi=doi, is_odd=doi.str.contains(_ODD))
    bare, dois, odd = found["bare"], found["doi"], found["is_odd"].arg_true()
    if len(odd):
        dois = dois.scatter(odd, pl.Series([_read(doi) for doi in texts.gather(odd)], dtype=pl.String()))
    is_changed = (dois != bare).fill_null(value=False)
    empty = (dois.str.len_bytes() == 0).arg_true()
    return (dois.scatter(empty, None) if len(empty) else dois), is_changed


def describe_changed(n: int) -> str:
    """Say how many DOIs were changed, for a log."""
    return f"{counted(n, 'DOI was', 'DOIs were')} encoded, or had other signs around (now as 10.1234/abc)"


def _read(doi: str) -> str:
    """Read one DOI of any form."""
    doi, before = _ADDRESS_END.sub(r"\1", doi.strip().lower()), ""
    while doi != before:  # encoded twice, or in several wrappings
        before = doi
        doi = _ENTITY.sub(lambda entity: unescape(entity[0]), _unquoted(doi))
        doi = _UNSEEN.sub("", _DASHES.sub("-", unicodedata.normalize("NFKC", doi))).lower()
        doi = _BEGINNING.sub("", doi).removesuffix("[doi]").rstrip()
        while doi and (doi[-1] in _ENDS + _QUOTES or doi.count(doi[-1]) > doi.count(_BRACKETS.get(doi[-1], doi[-1]))):
            doi = doi[:-1]
    return doi


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return unquote(text, "latin-1")
