"""Check an answer against its request, and the pages of a list against each other.

OpenAlex may answer in part, from a cache, or while its index changes. Only the numbers in the answer show it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from sciscidata.openalex_api.request import works_request

Answer: TypeAlias = dict[str, Any]

#: OpenAlex cuts longer reference lists.
_MOST_LISTED_REFERENCES: Final = 5_000
#: OpenAlex lists the largest groups.
_MOST_GROUPS: Final = 200


def check_answer(request: str, answer: Answer) -> str | None:
    """Return what is wrong with the answer to a request for a list or for counts, or None."""
    asked, meta = _params(request), answer.get("meta")
    if not isinstance(meta, dict):
        return "meta is missing"
    if not _is_count(meta.get("count")):
        return "meta.count is missing"
    if meta.get("timed_out"):
        return "OpenAlex ran out of time, and counts a part only"
    for name, value in asked.items():
        if name in ("page", "per_page") and not (_is_count(meta.get(name)) and meta[name] == int(value)):
            return f"{name} is {meta.get(name)!r:.40} where {value} was requested"
    return _check_groups(answer) if "group_by" in asked else _check_results(asked, answer)


def other_pages(request: str, answer: Answer, n_listed: int) -> list[str]:
    """Return the requests for the other pages of a list of up to ``n_listed`` results, from its first page."""
    asked = _params(request)
    if "page" not in asked or (count := answer["meta"]["count"]) > n_listed:
        return []
    n_pages = -(-count // int(asked["per_page"]))
    return [works_request(**asked | {"page": f"{page}"}) for page in range(2, n_pages + 1)]


def compare_pages(pages: Sequence[Answer]) -> str | None:
    """Return how the last of some checked pages contradicts those before it, or None."""
    *earlier, last = pages
    number, count, before = len(pages), last["meta"]["count"], earlier[0]["meta"]["count"]
    if count != before:
        return f"page {number} counts {count:,} works where page 1 counts {before:,}"
    known = {_number(record) for page in earlier for record in page["results"]}
    repeated = sum(_number(record) in known for record in last["results"])
    return f"page {number} repeats {repeated} works of earlier pages" if repeated else None


def _params(request: str) -> dict[str, str]:
    return dict(parse_qsl(request.partition("?")[2], keep_blank_values=True))


def _check_groups(answer: Answer) -> str | None:
    groups, meta = answer.get("group_by"), answer["meta"]
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        return "group_by is missing"
    if meta.get("page") not in (None, 1):
        return f"page is {meta['page']!r:.40}, and counts have one page"
    per_page = meta.get("per_page", _MOST_GROUPS)
    if not (_is_count(per_page) and per_page >= max(1, len(groups))):
        return f"per_page is {per_page!r:.40} for {len(groups)} groups"
    keys, sizes = [str(group.get("key", "")) for group in groups], [group.get("count") for group in groups]
    if not all(re.fullmatch(r"\d{1,9}|-111|unknown|None", key) for key in keys) or not all(map(_is_count, sizes)):
        return "a group has no key or count"
    if len(set(keys)) < len(keys):
        return "a group is repeated"
    is_cut = len(groups) >= _MOST_GROUPS and sum(sizes) <= meta["count"]  # the rarest years are left out
    return None if is_cut or sum(sizes) == meta["count"] else f"groups add up to {sum(sizes)} of {meta['count']} works"


def _check_results(asked: dict[str, str], answer: Answer) -> str | None:
    results, count = answer.get("results"), answer["meta"]["count"]
    if not isinstance(results, list) or not all(isinstance(record, dict) for record in results):
        return "results are missing"
    numbers = [_number(record) for record in results]
    if None in numbers:
        return "a result has no work id"
    if len(set(numbers)) < len(numbers):
        return "a work is repeated"
    page, per_page = int(asked.get("page", 1)), int(asked.get("per_page", 25))
    due = max(0, min(per_page, count - (page - 1) * per_page))
    if len(results) != due:
        return f"{len(results)} results where {due} of {count} are due"
    if "sample" in asked and count > int(asked["sample"]):
        return f"a sample of {count} works where {asked['sample']} were requested"
    filters = [clause.partition(":")[::2] for clause in asked.get("filter", "").split(",")]
    return next((what for record in results for name, value in filters if (what := _misfit(record, name, value))), None)


def _misfit(record: Answer, name: str, value: str) -> str | None:
    """Say how a result lies outside of a clause of the filter, for the clauses that scores rest on."""
    wanted = {_last_part(text) for text in value.split("|")}
    if name == "openalex" and not value.startswith("!") and _number(record) not in wanted:
        return f"{_number(record)} was not requested"
    dois = {_bare(text) for text in value.split("|")}
    if name == "doi" and not value.startswith("!") and _bare(record.get("doi")) not in dois:
        return f"{_number(record)} has the DOI {record.get('doi')!s:.60}, which was not requested"
    if name == "cites" and not value.startswith("!"):
        cited = record.get("referenced_works")
        cited = cited if isinstance(cited, list) else []
        if len(cited) < _MOST_LISTED_REFERENCES and wanted.isdisjoint(map(_last_part, cited)):
            return f"{_number(record)} does not cite {value}"
    if name == "publication_year" and (years := re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", value)):
        year = record.get("publication_year")
        if not (isinstance(year, int) and int(years[1]) <= year <= int(years[2] or years[1])):
            return f"{_number(record)} is of the year {year!r:.40}, not of {value}"
    return None


def _number(record: Answer) -> str | None:
    number = _last_part(record.get("id"))
    return number if re.fullmatch(r"W\d{1,18}", number) else None


def _last_part(address: Any) -> str:  # noqa: ANN401
    return str(address).rpartition("/")[2].upper()


def _bare(doi: Any) -> str:  # noqa: ANN401
    return str(doi).lower().removeprefix("https://doi.org/")


def _is_count(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
