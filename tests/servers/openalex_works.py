"""The works of a loopback OpenAlex, and the answer to a question about them, with OpenAlex's rules and words.

It answers what the client asks: a work by its id, and lists of works that are filtered, sampled, cut to some fields or
counted by year. Anything else is answered with 501, never wrongly. A set of works is one integer, a bit for each work.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from sciscidata.sources.record_files import decompressed_chunks

Records = str | Path | Iterable[dict[str, Any]]
Params = list[tuple[str, str]]

HTML, JSON = "text/html; charset=utf-8", "application/json"
MAX_VALUES, MAX_PER_PAGE, MAX_ROWS = 100, 200, 10_000

#: Every ``select=`` field, in the order in which an answer holds them.
FIELDS = """
    id doi title display_name publication_year publication_date ids language primary_location
    sources type type_crossref indexed_in open_access authorships institution_assertions institutions
    countries_distinct_count institutions_distinct_count corresponding_author_ids corresponding_institution_ids
    apc_list apc_paid fwci is_authors_truncated has_fulltext fulltext_origin cited_by_count
    citation_normalized_percentile cited_by_percentile_year biblio is_retracted is_paratext is_xpac
    primary_topic topics keywords concepts mesh locations_count locations best_oa_location
    sustainable_development_goals awards funders datasets versions has_content content_urls
    referenced_works_count referenced_works related_works abstract_inverted_index cited_by_api_url
    counts_by_year updated_date created_date
""".split()  # noqa: SIM905 - a list literal would fill 60 lines

#: Crossref's words, which ``type`` held until 2023, and the ones it holds now.
_TYPES = {
    **{"journal-article": "article", "proceedings-article": "article", "posted-content": "preprint"},
    **{"monograph": "book", "edited-book": "book", "reference-book": "book"},
    **{"book-section": "book-chapter", "book-part": "book-chapter", "report-series": "report"},
    **{"journal-issue": "paratext", "journal-volume": "paratext", "journal": "paratext", "proceedings": "paratext"},
}
_PARAMETERS = {"corpus", "filter", "group_by", "mailto", "page", "per_page", "sample", "seed", "select"}
_GONE = ("host_venue", "alternate_host_venues", "ngrams_url", "abstract_inverted_index_v3", "grants")
_LINE = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclasses.dataclass
class Answer:
    """What goes back."""

    status: int
    payload: Any
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    content_type: str = JSON

    def body(self) -> bytes:
        return self.payload.encode() if isinstance(self.payload, str) else msgspec.json.encode(self.payload)


class Refused(Exception):
    """OpenAlex answers this request with an error, or answers it and this server was not taught to (501)."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def short_id(text: str) -> str | None:
    """``W123`` of a bare, lower-case or URL id; None for anything else."""
    match = re.fullmatch(r"(?:https?://(?:api\.)?openalex\.org/(?:[a-z]+/)?)?([a-z]\d+)", text.strip(), re.IGNORECASE)
    return match[1].upper() if match else None


class Column:
    """One ``filter=`` field: the works that hold each value. ``kind``: id, number, term or flag."""

    def __init__(self, kind: str, values: Iterable[Any]) -> None:
        self.kind = kind
        self.present = 0
        self.rows: dict[Any, list[int]] = {}
        self._masks: dict[Any, int] = {}
        for row, value in enumerate(values):
            for one in dict.fromkeys(value) if isinstance(value, list) else [value]:
                if one is not None:
                    self.rows.setdefault(one, []).append(row)
                    self.present |= 1 << row

    def mask(self, value: Any) -> int:
        if value in self._masks:
            return self._masks[value]
        mask = 0
        for row in self.rows.get(value, ()):
            mask |= 1 << row
        if len(self.rows.get(value, ())) > 64:  # a reference that two works cite is cheaper to set anew
            self._masks[value] = mask
        return mask

    def where(self, test: Callable[[Any], bool]) -> int:
        rows = 0
        for value in self.rows:
            if test(value):
                rows |= self.mask(value)
        return rows


class Works:
    """All works, numbered in OpenAlex's order: most cited first, then by id."""

    def __init__(self, records: list[dict[str, msgspec.Raw]]) -> None:
        read = [{name: msgspec.json.decode(raw) for name, raw in row.items() if name in _INDEXED} for row in records]
        order = sorted(range(len(read)), key=lambda n: (-(read[n].get("cited_by_count") or 0), read[n]["id"]))
        works = [read[n] for n in order]
        self.rows = [_modernise(records[n], read[n]) for n in order]
        self.ids = [short_id(work["id"]) or work["id"] for work in works]
        self.position = {identifier: row for row, identifier in enumerate(self.ids)}
        self._samples: dict[str, list[int]] = {}
        references = [[short_id(cited) or cited for cited in work.get("referenced_works") or ()] for work in works]
        self.columns = {
            "openalex": Column("id", self.ids),
            "cites": Column("id", references),
            "primary_location.source.id": Column("id", map(_source_of, works)),
            "publication_year": Column("number", (work.get("publication_year") for work in works)),
            "cited_by_count": Column("number", (work.get("cited_by_count") for work in works)),
            "referenced_works_count": Column("number", map(len, references)),
            "type": Column("term", (work.get("type") for work in works)),
            "language": Column("term", (work.get("language") for work in works)),
            "primary_topic.field.id": Column("term", map(_field_of, works)),
            "is_retracted": Column("flag", (bool(work.get("is_retracted")) for work in works)),
            "has_abstract": Column("flag", (bool(work.get("abstract_inverted_index")) for work in works)),
        }

    def matching(self, text: str) -> int:
        """The works that satisfy every clause of a filter; a field that is named twice has to satisfy both."""
        rows = (1 << len(self.ids)) - 1
        for clause in text.split(",") if text else ():
            name, _, value = clause.partition(":")
            if name not in self.columns:
                message = f"The filter {name} is not served here."
                raise Refused(message, 501)
            negated, parts = value.startswith("!"), value.removeprefix("!").split("|")
            if len(parts) > MAX_VALUES:
                message = f"Maximum number of values exceeded for {name}. Decrease values to {MAX_VALUES} or below."
                raise Refused(message)
            if any(part.startswith("!") for part in parts):
                message = "The ! operator can only be used at the beginning of an OR query."
                raise Refused(message)
            found = 0
            for part in parts:
                found |= _holding(name, self.columns[name], part)
            rows &= ~found if negated else found
        return rows

    def order_of(self, seed: str) -> list[int]:
        """All works as a seed shuffles them."""
        if seed not in self._samples:
            drawn = [hashlib.sha256(f":{seed}:{identifier}".encode()).digest() for identifier in self.ids]
            self._samples[seed] = sorted(range(len(drawn)), key=drawn.__getitem__)
        return self._samples[seed]

    def answer(self, path: str, params: Params) -> Answer:
        """Answer a GET."""
        entity, _, identifier = path.strip("/").partition("/")
        if entity != "works":
            return Answer(404, "<h1>Not Found</h1>", content_type=HTML)
        try:
            asked = _checked(params)
            if not identifier:
                return Answer(200, self._list(asked))
        except Refused as refusal:
            error = "Not here" if refusal.status == 501 else "Invalid query parameters error."
            return Answer(refusal.status, {"error": error, "message": str(refusal)})
        row = self.position.get(short_id(identifier) or "")
        if row is None:
            return Answer(404, "<h1>Not Found</h1>", content_type=HTML)
        return Answer(200, _cut(self.rows[row], asked.get("select")))

    def _list(self, asked: dict[str, str]) -> dict[str, Any]:
        group_by = asked.get("group_by")
        page, per_page = _number(asked, "page", 1), _number(asked, "per_page", MAX_PER_PAGE if group_by else 25)
        if not 1 <= per_page <= MAX_PER_PAGE:
            message = "per-page parameter must be between 1 and 200"
            raise Refused(message)
        if page < 1 or page * per_page > MAX_ROWS:
            message = "Maximum results size of 10,000 records is exceeded, or page is below 1."
            raise Refused(message)
        rows = self.matching(asked.get("filter", ""))
        meta = {"count": rows.bit_count(), "db_response_time_ms": 3, "page": page, "per_page": per_page}
        if group_by:
            groups = self._by_year(group_by, rows)[:per_page]
            return {"meta": meta | {"groups_count": len(groups)}, "group_by": groups}
        order: Iterable[int] = range(len(self.ids))
        if "sample" in asked:
            order = self.order_of(asked["seed"])
        chosen = [row for row in order if rows >> row & 1]
        if "sample" in asked:
            chosen = chosen[: _number(asked, "sample", 0)]
            meta["count"] = len(chosen)
        results = [_cut(self.rows[row], asked.get("select")) for row in chosen[(page - 1) * per_page : page * per_page]]
        return {"meta": meta | {"groups_count": None}, "results": results, "group_by": []}

    def _by_year(self, group_by: str, rows: int) -> list[dict[str, Any]]:
        name, _, option = group_by.partition(":")
        if name != "publication_year" or option not in ("", "include_unknown"):
            message = f"group_by={group_by} is not served here."
            raise Refused(message, 501)
        column = self.columns[name]
        counts = {str(year): (column.mask(year) & rows).bit_count() for year in column.rows}
        groups = [{"key": year, "key_display_name": year, "count": n} for year, n in counts.items() if n]
        unknown = (rows & ~column.present).bit_count()
        if option and unknown:
            groups.append({"key": "-111", "key_display_name": "unknown", "count": unknown})
        return sorted(groups, key=lambda group: (-group["count"], group["key"]))


def _checked(params: Params) -> dict[str, str]:
    """Refuse what OpenAlex refuses to be asked together, or what is not served here."""
    asked = {name.replace("-", "_"): value for name, value in params}
    if len(asked) < len(params) or asked.keys() - _PARAMETERS or asked.get("corpus", "core") != "core":
        message = f"The parameters {', '.join(name for name, _ in params)} are not served here together."
        raise Refused(message, 501)
    if "sample" in asked and "group_by" in asked:
        message = "sample does not work with group_by."
        raise Refused(message)
    if "sample" in asked and "seed" not in asked:
        message = "A seed value is required when paginating through samples of results."
        raise Refused(message)
    if not 0 <= _number(asked, "sample", 0) <= MAX_ROWS:
        message = "Sample size must be less than or equal to 10,000."
        raise Refused(message)
    if "select" in asked and "group_by" in asked:
        message = "select does not work with group_by."
        raise Refused(message)
    for field in asked["select"].split(",") if "select" in asked else ():
        if field not in FIELDS:
            message = f"{field} is not a valid select field. Valid fields for select are: {', '.join(FIELDS)}."
            raise Refused(message)
    return asked


def _number(asked: dict[str, str], name: str, default: int) -> int:
    try:
        return int(asked.get(name, default))
    except ValueError:
        message = f"Param {name} must be a number."
        raise Refused(message) from None


def _holding(name: str, column: Column, value: str) -> int:
    """The works that hold a value, or one within a range."""
    if column.kind == "flag":
        if value not in ("true", "false"):
            message = f"Value for {name} must be true or false, not {value}."
            raise Refused(message)
        return column.mask(value == "true")
    if column.kind == "id":
        identifier = short_id(value)
        if identifier is None:
            message = f"'{value}' is not a valid OpenAlex ID."
            raise Refused(message)
        return column.mask(identifier)
    if column.kind == "term":
        wanted = value.rsplit("/", 1)[-1].strip().lower()
        return column.where(lambda held: str(held).lower() == wanted)
    bounds = re.fullmatch(r"(?:(>?)(\d+)|(\d*)(-)(\d*))", value)
    if not bounds:
        message = f"Value for param {name} must be a number."
        raise Refused(message)
    above, number, low, dash, high = bounds.groups()
    if dash:
        return column.where(lambda held: int(low or 0) <= held <= (int(high) if high else math.inf))
    return column.where(lambda held: held > int(number) if above else held == int(number))


_INDEXED = (
    *("id", "publication_year", "type", "language", "cited_by_count", "is_retracted", "referenced_works"),
    *("abstract_inverted_index", "primary_location", "host_venue", "primary_topic"),
)


def _source_of(work: dict[str, Any]) -> str | None:
    source = (work.get("primary_location") or {}).get("source") or work.get("host_venue") or {}
    return short_id(source.get("id") or "")


def _field_of(work: dict[str, Any]) -> str | None:
    field = (work.get("primary_topic") or {}).get("field") or {}
    return str(field["id"]).rsplit("/", 1)[-1] if field.get("id") else None


def _modernise(row: dict[str, msgspec.Raw], work: dict[str, Any]) -> dict[str, msgspec.Raw]:
    """Give a record of 2023 the shape that the API has now, and a language if it knows none."""
    work["type"] = _TYPES.get(work.get("type") or "", work.get("type"))
    work["language"] = work.get("language") or "en"
    now = {name: msgspec.Raw(msgspec.json.encode(work[name])) for name in ("type", "language")}
    kept = {name: raw for name, raw in row.items() if name not in _GONE}
    return {"referenced_works": msgspec.Raw(b"[]"), "topics": msgspec.Raw(b"[]")} | kept | now


def _cut(row: dict[str, Any], select: str | None) -> dict[str, Any]:
    if select is None:
        return row
    wanted = select.split(",")
    return {field: row.get(field) for field in FIELDS if field in wanted}


def read_works(records: Records) -> Works:
    """Read a JSONL file (compressed or not), once for all servers of a process, or works as dicts."""
    if isinstance(records, (str, Path)):
        return _read_file(Path(records), Path(records).stat().st_mtime_ns)
    return Works([_LINE.decode(msgspec.json.encode(record)) for record in records])


@functools.cache
def _read_file(path: Path, _changed: int) -> Works:
    lines = b"".join(decompressed_chunks(path)).split(b"\n")  # on \n only: titles hold U+2028
    return Works([_LINE.decode(line) for line in lines if line.strip()])
