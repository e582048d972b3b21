"""What a paper built on, and what earlier years said of that: two more columns of a release, on request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Int64Array
from sciscidata.disruption.publication_features import PUBLICATION_FEATURES, describe_graph, with_shares
from sciscidata.eligibility import is_blank
from sciscidata.graph.graph import CitationGraph
from sciscidata.own_label import example_schema, stated_label
from sciscidata.schemas import WORKS

#: What a released paper says of each work that it cites.
REFERENCE: Final = pl.Schema({name: WORKS[name] for name in ("title", "publication_year", "source_name")})
#: What earlier years said of the references: PUBLICATION_FEATURES without what a row has anyway.
AT_PUBLICATION: Final = pl.Schema(
    {
        name: dtype
        for name, dtype in PUBLICATION_FEATURES.items()
        if name not in ("work_id", "publication_year", "primary_field")
    }
)
#: The columns after all others; both were known when the paper appeared.
CONTEXT: Final = pl.Schema({"references": pl.List(pl.Struct(REFERENCE)), "at_publication": pl.Struct(AT_PUBLICATION)})
MOST_REFERENCES: Final = 50


def has_context(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest says that the rows of its release have the columns of CONTEXT."""
    return bool(manifest.get("build", {}).get("context"))


def released_schema(manifest: Mapping[str, Any]) -> pl.Schema:
    """Return the columns of a release by its manifest: EXAMPLE, the own label, and CONTEXT."""
    return pl.Schema({**example_schema(stated_label(manifest)), **(CONTEXT if has_context(manifest) else {})})


def find_context(work_ids: pl.Series, graph: CitationGraph, works: pl.LazyFrame) -> pl.DataFrame:
    """Describe some works of a graph (Int64, each once) by what was known when they appeared.

    Args:
        work_ids: the works.
        graph: of all works of the source, by years.
        works: WORKS; titles, years and venues of references are read from it in one pass.

    Returns:
        ``work_id`` and CONTEXT, one row per work, by index. ``references``: those with a row and a title, the newest
        first, then by id; at most MOST_REFERENCES. Where the year is later than that of the work, it was not known yet,
        nor was the venue: both are null, and the reference is among those without a year, which come last.
    """
    known = pl.Series(graph.work_ids[: graph.n_known])
    indices = known.is_in(work_ids.implode()).arg_true().to_numpy().astype(np.int64)
    described = describe_graph(graph, pl.thread_pool_size(), indices)
    features = with_shares(described).select("work_id", at_publication=pl.struct(AT_PUBLICATION.names()))
    references = _list_references(_find_cited(graph, indices), works)
    none = pl.lit([], CONTEXT["references"])
    return (
        features.join(references, on="work_id", how="left", maintain_order="left")
        .with_columns(pl.coalesce("references", none))
        .select(pl.col("work_id"), *(pl.col(name).cast(dtype) for name, dtype in CONTEXT.items()))
    )


def _find_cited(graph: CitationGraph, indices: Int64Array) -> pl.DataFrame:
    """List the references that have a row: ``work_id``, ``cited_id``, and ``is_dated`` where their year was known."""
    begin, end = graph.ref_offsets[indices], graph.ref_offsets[indices + 1]
    n = end - begin
    first_of_each = np.repeat(np.cumsum(n) - n, n)
    cited = graph.refs[np.repeat(begin, n) + np.arange(n.sum()) - first_of_each]
    # Indices are in order of time: those below the end of a work's own year were published by then.
    own_year = np.searchsorted(graph.year_offsets, indices, side="right")
    by_then = np.append(graph.year_offsets, 0)[np.minimum(own_year, graph.year_offsets.size)]
    has_row = cited < graph.n_known
    return pl.DataFrame(
        {
            "work_id": np.repeat(graph.work_ids[indices], n)[has_row],
            "cited_id": graph.work_ids[cited[has_row]],
            "is_dated": (cited < np.repeat(by_then, n))[has_row],
        }
    )


def _list_references(cited: pl.DataFrame, works: pl.LazyFrame) -> pl.DataFrame:
    """Return ``work_id`` and ``references`` of works with at least one that has a title."""
    wanted = cited.lazy().select(work_id="cited_id").unique()
    told = works.select("work_id", *REFERENCE).join(wanted, on="work_id", how="semi").filter(~is_blank("title"))
    told = told.rename({"work_id": "cited_id"}).collect(engine="streaming")
    # A source may have two texts of a work: take the same one every time.
    told = told.sort("cited_id", *REFERENCE).unique("cited_id", keep="first", maintain_order=True)
    known_then = [pl.when("is_dated").then(name).alias(name) for name in ("publication_year", "source_name")]
    rows = cited.join(told, on="cited_id").with_columns(known_then)
    rows = rows.sort("work_id", "publication_year", "cited_id", descending=[False, True, False], nulls_last=True)
    listed = rows.group_by("work_id", maintain_order=True).agg(pl.struct(REFERENCE.names()).head(MOST_REFERENCES))
    return listed.rename({"title": "references"})
