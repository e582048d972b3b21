"""What may be asked together, and OpenAlex's words for what may not."""

from __future__ import annotations

from tests.servers.openalex.collection import Collection
from tests.servers.openalex.filters import Refused, not_served
from tests.servers.openalex.vocabulary import PARAMETERS

MAX_PER_PAGE = 200  # 100 is documented; the code still takes 200
MAX_ROWS_BY_PAGE = 10_000
MAX_SAMPLE = 10_000
CORPORA = ("core", "expansion", "all")


def check_parameters(params: list[tuple[str, str]], given: dict[str, str]) -> None:
    for name in given:
        if name.startswith("search"):
            raise not_served("Search")
        if name not in PARAMETERS:
            message = f"{name} is not a valid parameter. Valid parameters are: {', '.join(PARAMETERS)}."
            raise Refused(message)
    if any("host_venue" in value for _, value in params):
        message = (
            "host_venue and alternate_host_venues are deprecated in favor of locations. "
            "Read more here: https://groups.google.com/g/openalex-users/c/rRf34GRr-Oo"
        )
        raise Refused(message)
    if sum(name == "filter" for name, _ in params) > 1:
        message = (
            "Only one filter parameter is allowed. Your URL contains filters like: "
            "/works?filter=publication_year:2020&filter=is_open_access:true. Combine and separate filters with a "
            "comma, like: /works?filter=publication_year:2020,is_open_access:true."
        )
        raise Refused(message)
    if "corpus" in given and (given["corpus"] not in CORPORA or given.keys() & {"include_xpac", "include-xpac"}):
        message = f"corpus must be one of {', '.join(CORPORA)}, and cannot be combined with include_xpac."
        raise Refused(message)
    if given.keys() & {"format", "q"}:
        raise not_served("format= and q=")
    grouping = given.keys() & {"group_by", "group-by"}
    if grouping and "sort" in given:
        raise not_served("Sorting groups")
    if grouping and "select" in given:
        message = "select does not work with group_by."
        raise Refused(message)
    if "sample" in given:
        _check_sample(given, grouping=bool(grouping))
    elif "seed" in given:
        message = "You must include the sample parameter when using a seed value."
        raise Refused(message)


def _check_sample(given: dict[str, str], *, grouping: bool) -> None:
    size = number(given["sample"], "sample must be an integer.")
    message = None
    if size > MAX_SAMPLE:
        message = "Sample size must be less than or equal to 10,000."
    elif "sort" in given:
        message = "sample does not work with sort."
    elif grouping:
        message = "sample does not work with group_by."
    elif "cursor" in given:
        message = "sample does not work with cursor."
    elif number_of(given, "page", 1) > 1 and "seed" not in given:
        message = (
            "A seed value is required when paginating through samples of results. Without a seed value, you may "
            "receive duplicate results between pages. Add a seed value like this: /works?sample=100&seed=123&page=2"
        )
    if message:
        raise Refused(message)


def check_paging(page: int, per_page: int, *, group_by: str | None, cursor: str | None) -> None:
    message = None
    if group_by and page != 1:
        message = "Unable to paginate beyond page 1. Group-by is limited to page 1 with up to 200 results at this time."
    elif page < 1:
        message = "Page parameter must be greater than 0."
    elif not 1 <= per_page <= MAX_PER_PAGE:
        message = "per-page parameter must be between 1 and 200"
    elif page * per_page > MAX_ROWS_BY_PAGE:
        message = (
            "Maximum results size of 10,000 records is exceeded. Cursor pagination is required for records beyond "
            "10,000. See: https://docs.openalex.org/api#cursor-paging"
        )
    elif cursor and page != 1:
        message = "Cannot use page parameter with cursor."
    if message:
        raise Refused(message, error="Pagination error.")


def number(text: str, message: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(message) from None


def number_of(given: dict[str, str], name: str, default: int) -> int:
    """A parameter that may be spelt with - or _; an empty one counts as absent."""
    text = given.get(name) or given.get(name.replace("-", "_"))
    return number(text, f"Param {name} must be a number.") if text else default


def selected(collection: Collection, text: str | None) -> list[str] | None:
    if not text:
        return None
    wanted = text.split(",")
    for field in wanted:
        if field not in collection.fields:
            listed = ", ".join(collection.fields)
            message = f"{field} is not a valid select field. Valid fields for select are: {listed}."
            raise Refused(message)
    return [field for field in collection.fields if field in wanted]
