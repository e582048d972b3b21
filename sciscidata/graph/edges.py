"""What citations say of themselves: whether they join works at all, and lead to earlier ones.

The plain path warns where no score means anything; ``diagnose`` says the same, and more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata.errors import WorkIdError
from sciscidata.graph.build import look_up, table_of
from sciscidata.graph.graph import CitationGraph
from sciscidata.terminal.shares import percent

logger = logging.getLogger(__name__)

SWAPPED: Final = "are citing and cited swapped?"
LATER: Final = ("citations", "lead to a later work")
#: Of citations join two works. Six real fields with all their references have 3.7 to 11 %, and 248 works of many
#: fields 2.4 %. Where ids are not those of works, it is next to none.
_FEW: Final = 0.01
_MOST: Final = 0.5  # of citations lead to a later work
_MOST_ROWS: Final = 1 << 24  # that count_edges looks at: enough to tell, and looked up within a second
_NO_YEAR: Final = np.iinfo(np.int32).min
_SPAN: Final = 1 << 22
_BATCH: Final = 1 << 18


class Edges(NamedTuple):
    """Counts of citations: all, those between two works of WORKS, those whose two works have a year, to a later one."""

    n: int
    joined: int
    dated: int
    later: int


def count_edges(works: pl.LazyFrame, citations: pl.LazyFrame) -> Edges:
    """Count citations without a graph, by looking their works up: the first ``_MOST_ROWS``.

    It stops as soon as the others can change nothing that ``warn_of_edges`` says.
    """
    known = works.select("work_id", "publication_year").drop_nulls("work_id").collect(engine="streaming")
    try:
        table = table_of(ids := known["work_id"].to_numpy())
    except WorkIdError:  # an id that is there twice is for others to refuse
        known = known.unique("work_id")
        table = table_of(ids := known["work_id"].to_numpy())
    years = np.append(known["publication_year"].fill_null(_NO_YEAR).to_numpy(), np.int32(_NO_YEAR))  # that of -1, last
    n = joined = dated = later = 0
    rows = citations.select("citing_id", "cited_id").drop_nulls().head(_MOST_ROWS)
    for batch in rows.collect_batches(chunk_size=_BATCH, maintain_order=True, engine="streaming"):
        (citing, _), (cited, _) = (look_up(table, ids, batch[end].to_numpy()) for end in batch.columns)
        n += batch.height
        joined += int(np.count_nonzero((citing >= 0) & (cited >= 0)))
        of_citing, of_cited = years[citing], years[cited]
        has_years = (of_citing != _NO_YEAR) & (of_cited != _NO_YEAR)
        dated += int(np.count_nonzero(has_years))
        later += int(np.count_nonzero(has_years & (of_cited > of_citing)))
        if joined >= _FEW * _MOST_ROWS and later + _MOST * (_MOST_ROWS - n) <= _MOST * dated:
            break
    return Edges(n, joined, dated, later)


def edges_of(graph: CitationGraph) -> Edges:
    """Count the citations of a graph."""
    joined = dated = later = 0
    for first, last in pairwise([*graph.year_offsets.tolist(), graph.n_known]):
        low, high = int(graph.ref_offsets[first]), int(graph.ref_offsets[last])
        for start in range(low, high, _SPAN):
            refs = graph.refs[start : min(start + _SPAN, high)]
            joined += int(np.count_nonzero(refs < graph.n_known))
            if last <= graph.n_dated:
                with_year = int(np.count_nonzero(refs < graph.n_dated))
                dated += with_year
                later += with_year - int(np.count_nonzero(refs < last))
    return Edges(graph.n_citations, joined, dated, later)


def say_share(n: int, of: int, noun: str, predicate: str) -> str:
    """Say how many of all are something."""
    return f"{n:,} of {of:,} {noun}{f' ({percent(n / of, 1)})' if of else ''} {predicate}"


def say_few_joined(edges: Edges) -> str:
    """Say that there is no citation, or that few join two works; "" if enough do."""
    if not edges.n:
        return "there is no citation, and without one there is no score"
    if edges.joined >= _FEW * edges.n:
        return ""
    why = "are the ids of citations those of works? Is the table of works complete?"
    return f"{say_share(edges.joined, edges.n, 'citations', 'join two works')}: {why}"


def warn_of_edges(edges: Edges, stage: str) -> bool:
    """Log one warning if no score of these citations means anything; return whether there is one."""
    text = say_few_joined(edges)
    if not text and edges.later > _MOST * edges.dated:
        text = f"{say_share(edges.later, edges.dated, *LATER)}: {SWAPPED}"
    if text:
        logger.warning("%s: %s", stage, text)
    return bool(text)


def watch_scores(batches: Iterable[pl.DataFrame], stage: str) -> Iterator[pl.DataFrame]:
    """Pass scores on, and log one warning if a column of them is null throughout."""
    empty: list[str] | None = None
    n = 0
    for rows in batches:
        n += rows.height
        names = rows.columns if empty is None else empty
        empty = [name for name in names if rows[name].null_count() == rows.height and rows[name].dtype == pl.Float64()]
        yield rows
    if n and empty:
        columns = f"{', '.join(empty)} {'is' if len(empty) == 1 else 'are'}"
        logger.warning("%s: %s null for all %s works. diagnose(works, citations) says why.", stage, columns, f"{n:,}")


def watched(scores: pl.DataFrame, graph: CitationGraph, stage: str) -> pl.DataFrame:
    """Return the scores of a graph; log one warning if they mean nothing, or a column is null throughout."""
    if not warn_of_edges(edges_of(graph), stage):
        (scores,) = watch_scores([scores], stage)
    return scores
