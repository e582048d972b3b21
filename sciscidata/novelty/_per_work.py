"""What the measures over venue pairs share: checks first, years in threads, one row per work at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Int32Array
from sciscidata._support.parallel import map_in_order
from sciscidata._support.progress import progress_bar
from sciscidata.errors import ConfigError
from sciscidata.graph.graph import CitationGraph
from sciscidata.schemas import CITATIONS, WORKS, require_columns


def require_corpus(works: pl.LazyFrame, citations: pl.LazyFrame, stage: str) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Check the columns of both frames, and keep of ``works`` the three that venue pairs are made from."""
    read = ("work_id", "publication_year", "source_id")
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=stage)
    works = require_columns(works, WORKS, frame_name="WORKS", stage=stage, columns=read)
    return works.select(read), citations


def check_venues(graph: CitationGraph, venues: Int32Array) -> None:
    """Raise a ConfigError unless ``venues`` has one number for each dated work of the graph."""
    if venues.shape != (graph.n_dated,):
        msg = (
            f"venues has shape {venues.shape}, needs ({graph.n_dated},), one for each dated work: "
            "venue_numbers(graph, works)."
        )
        raise ConfigError(msg)


def score_years(graph: CitationGraph, score: Callable[[int], None], name: str, n_threads: int | None) -> None:
    """Call ``score`` with the place of every citing year, in threads, the years with most references first."""
    ends = graph.ref_offsets[graph.year_offsets]
    largest_first = np.argsort(ends[:-1] - ends[1:], kind="stable").tolist()

    def done(j: int) -> float:
        score(j)
        return float(ends[j + 1] - ends[j])

    n_threads = n_threads or pl.thread_pool_size()
    with (
        progress_bar(name, float(ends[-1]), unit="references") as advance,
        closing(map_in_order(done, largest_first, n_threads, n_held=len(largest_first))) as results,
    ):
        for n_references in results:
            advance(n_references)


def one_row_per_work(graph: CitationGraph, columns: Mapping[str, Any], schema: pl.Schema) -> pl.DataFrame:
    """Lay out one value per dated work, NaN as null, and null for the works of WORKS without a year."""
    n = graph.n_dated
    rows = pl.DataFrame({"work_id": graph.work_ids[:n], **columns}).fill_nan(None)
    undated = pl.DataFrame({"work_id": graph.work_ids[n : graph.n_known]})
    return pl.concat([rows, undated], how="diagonal").select(schema.names()).cast(schema)
