"""Find a work by whatever names it: its number, its own id, an address of OpenAlex, or a DOI in any form."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import polars as pl

from sciscidata.errors import ConfigError, WorkIdError
from sciscidata.options.did_you_mean import suggest
from sciscidata.records.dois import bare_dois
from sciscidata.records.ids import ORIGINAL_ID, number_ids
from sciscidata.records.listed_ids import OF_WORKS, list_ids
from sciscidata.terminal.messages import shorten

_NAMES: Final = ("work_id", ORIGINAL_ID, "doi")
_BEGINNING: Final = 5  # letters or digits that a suggestion has in common
_MOST: Final = 2_000  # works that are looked at for one


def find_work(work: object, works: pl.LazyFrame, where: str, is_cited: Callable[[int], bool] = lambda _: False) -> int:
    """Return the work_id of a work of WORKS.

    A WorkIdError says that there is none, or that several have the DOI; ``where`` names the works, and ``is_cited``
    tells whether others cite a number that no work has.
    """
    number, doi = read_name(work)
    there = works.collect_schema()
    rows = works.select(name for name in _NAMES if name in there)
    if number is not None and _has(rows.filter(pl.col("work_id") == number)):
        return number
    text = str(work).strip()
    is_it = pl.lit(value=False)
    if there.get(ORIGINAL_ID) == pl.String():
        is_it |= pl.col(ORIGINAL_ID) == text
    if doi is not None and there.get("doi") == pl.String():
        is_it |= bare_dois(pl.col("doi")) == doi
    found = rows.filter(is_it).head(3).collect(engine="streaming")
    if found.height == 1:
        return found["work_id"].item()
    if found.height:
        own = ORIGINAL_ID if ORIGINAL_ID in found.columns else "work_id"
        ids = ", ".join(map(str, found[own]))
        raise WorkIdError(f"explain: several works of {where} are {shorten(text)!r}: {own} {ids}. Name one of them.")
    if number is not None and doi is None and is_cited(number):
        raise WorkIdError(
            f"explain: {where} has no work {shorten(text)!r}, and others cite it: merged or deleted. Ask by its DOI."
        )
    raise WorkIdError(f"explain: {where} has no work {shorten(text)!r}.{_suggest(text, number, doi, rows)}")


def read_name(work: object) -> tuple[int | None, str | None]:
    """Return the work_id that a name has by itself, and the DOI in it, if it is one.

    Example:
        >>> read_name("https://openalex.org/W42"), read_name(" doi:10.1234/ABC ")[1]
        ((42, None), '10.1234/abc')
    """
    if isinstance(work, str) and work.strip():
        names = pl.Series("work", [work])
        _, kind, number, doi = list_ids(names).row(0)
        # An id of a source's own counts as it is, with brackets and stops.
        return number if kind in OF_WORKS else number_ids(names).item(), doi
    value: Any = work
    if not isinstance(work, str | bool) and hasattr(work, "__index__"):  # also a number of NumPy
        return int(value), None
    raise ConfigError(
        f"work is {work!r}, needs a work_id, the work's own id, an OpenAlex id or address, or a DOI: 'W2741809807' or "
        "'10.1234/abc'."
    )


def _has(rows: pl.LazyFrame) -> bool:
    return not rows.head(1).collect(engine="streaming").is_empty()


def _suggest(text: str, number: int | None, doi: str | None, rows: pl.LazyFrame) -> str:
    """Suggest a work whose id begins alike, and is nearly the same; else say what a name may be."""
    there = rows.collect_schema()
    sought, names = doi or text, list[pl.Expr]()
    if doi is None and number is not None and number < 1 << 62:
        sought = str(number)
        names.append(pl.col("work_id").cast(pl.String))
    names += [pl.col(name) for name in (ORIGINAL_ID, "doi") if there.get(name) == pl.String()]
    close = ""
    for name, n in product(names, (len(sought), len(sought) - 2, _BEGINNING)):
        alike = rows.filter(name.str.starts_with(sought[: max(n, 1)])).select(name.alias("name")).head(_MOST)
        close = close or suggest(sought, alike.collect(engine="streaming")["name"].to_list())
    return close or " Name it by its work_id, its own id, an OpenAlex id or address, or its DOI."
