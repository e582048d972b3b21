"""Which citation windows are over in the data: the columns ``window_complete`` of scores.

In a graph, index order is time order. So the works whose window is over are those before one index. A field whose works
end earlier has its own last year.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.graph.graph import CitationGraph
from sciscidata.judged import WINDOW_COMPLETE, choose_works
from sciscidata.records.last_year_of_data import find_last_year
from sciscidata.terminal.messages import counted

logger = logging.getLogger(__name__)

_FIELD, _YEAR, _DATE = "primary_field", "publication_year", "publication_date"
#: Works that a field needs in the fullest of its last years. In a smaller one a year without works may be chance.
_LEAST: Final = 100
_YEARS: Final = 10
_NAMES: Final = (pl.String, pl.Categorical, pl.Enum)


def last_year_of(graph: CitationGraph) -> int | None:
    """Find the last year of the known works of a graph."""
    sizes = np.diff(graph.year_offsets)
    return find_last_year(dict(zip(graph.years.tolist(), sizes.tolist(), strict=True)))


def window_schema(config: CDConfig) -> pl.Schema:
    """Return the columns that ``mark_windows`` makes: Boolean, one for each window."""
    return pl.Schema(dict.fromkeys((WINDOW_COMPLETE + window for window in config.all_windows), pl.Boolean()))


def mark_windows(graph: CitationGraph, config: CDConfig, span: range, last_year: int | None) -> pl.DataFrame:
    """Say of the works of a span, for each window, whether it is over before the data's last year."""
    columns = dict[str, pl.Series]()
    index = pl.int_range(span.start, span.stop, eager=True)
    for name, window in config.all_windows.items():
        first = config.first_open_time(window, last_year)
        is_over: pl.Series = pl.repeat(None, len(span), dtype=pl.Boolean, eager=True)
        if first is not None:
            is_over = (index < _place_of(graph, config, first)).set(index >= graph.n_dated, None)
        columns[WINDOW_COMPLETE + name] = is_over
    return pl.DataFrame(columns, window_schema(config))


def _place_of(graph: CitationGraph, config: CDConfig, time: int) -> int:
    """Return the index of the first work of a time, or of the first later one."""
    if config.time == "publication_date" and graph.days is not None and graph.day_offsets is not None:
        return int(graph.day_offsets[np.searchsorted(graph.days, time)])
    return int(graph.year_offsets[np.searchsorted(graph.years, time)])


def find_open_in_fields(works: pl.LazyFrame, config: CDConfig, last_year: int | None) -> dict[str, pl.Series]:
    """Find the works whose window is not over in their field, though it would be by the last year of the data.

    Returns ``work_id`` of these works, by the column of the window.
    """
    if last_year is None or not isinstance(works.collect_schema().get(_FIELD), _NAMES):
        return {}
    works = works.with_columns(pl.col(_FIELD).cast(pl.String))
    year, time = pl.col(_YEAR), pl.col(_YEAR).cast(pl.Int64)
    if config.time == "publication_date":
        year = pl.coalesce(pl.col(_DATE).dt.year(), year)
        time = pl.coalesce(_DATE, pl.date(pl.col(_YEAR), 7, 1)).cast(pl.Int32).cast(pl.Int64)
    counts = works.select(_FIELD, year=year).drop_nulls().group_by(_FIELD, "year").len().collect(engine="streaming")
    ends = _last_years(counts, last_year)
    if not ends:
        return {}
    logger.info(
        "compute_cd_index: the works of %s end before %d, those of all: %s. Their windows end with them.",
        *(counted(len(ends), "field"), last_year, ", ".join(f"{field} {end}" for field, end in sorted(ends.items()))),
    )
    is_open: dict[str, pl.Expr] = {}
    for name, window in config.all_windows.items():
        of_all = config.first_open_time(window, last_year)
        if of_all is not None:
            firsts = {field: config.first_open_time(window, end) for field, end in ends.items()}
            first = pl.col(_FIELD).replace_strict(firsts, default=None, return_dtype=pl.Int64)
            is_open[WINDOW_COMPLETE + name] = (time >= first) & (time < of_all)
    found = works.filter(pl.col(_FIELD).is_in([*ends])).select("work_id", **is_open).collect(engine="streaming")
    return {name: found.filter(pl.col(name))["work_id"] for name in is_open}


def _last_years(counts: pl.DataFrame, last_year: int) -> dict[str, int]:
    """Find the last year of each field that ends before the data, and is large enough to tell."""
    ends: dict[str, int] = {}
    for (field,), of_field in counts.partition_by(_FIELD, as_dict=True).items():
        by_year = dict(of_field.select("year", "len").rows())
        end = find_last_year(by_year)
        if end is not None and end < last_year:
            fullest = max(n for year, n in by_year.items() if end - _YEARS < year <= end)
            ends |= {str(field): end} if fullest >= _LEAST else {}
    return ends


def close_windows(scores: pl.DataFrame, open_works: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Mark windows as not over, by ``find_open_in_fields``."""
    some = {name: ids for name, ids in open_works.items() if len(ids)}
    return scores.with_columns(
        (pl.col(name) & ~pl.col("work_id").is_in(ids.implode())).alias(name) for name, ids in some.items()
    )


def say_judged(scores: pl.DataFrame, stage: str) -> None:
    """Log how many of the works with an index are judged."""
    found = choose_works(scores.columns, "cd_index", "judged").count_left_out(scores.lazy(), "cd_index")
    if n := found.judged + found.open + found.uncited:
        logger.info(
            "%s: of %s with an index %s judged. In the window %s uncited; of %s the window is not over.",
            *(stage, counted(n, "work"), counted(found.judged, "is", "are")),
            *(counted(found.uncited, "is", "are"), f"{found.open:,}"),
        )
