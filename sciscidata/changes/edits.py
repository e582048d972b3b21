"""Tell which edit moved a label where several came at once: make each alone in the citations of A, and look.

An edit is that works which cite a work came or went, that these cite other references of it, that other works cite its
references, that its own list of references is another one, or that it has another year.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.explanation.classes import label, score_window
from sciscidata.explanation.neighbourhood import YEAR, Neighbourhood, cut_from_graph, find_citers, find_places
from sciscidata.graph.graph import CitationGraph
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.terminal.progress import Advance

#: Works that are looked at, of graphs with at most so many citations: each takes a pass over both.
MOST_WORKS: Final = 500
MOST_CITATIONS: Final = 50_000_000


class Cited(NamedTuple):
    """The citations of both sides, and how works are scored and labelled in both."""

    graphs: tuple[CitationGraph, CitationGraph]
    config: CDConfig
    thresholds: LabelThresholds


def name_edits(works: Iterable[int], cited: Cited, advance: Advance) -> pl.DataFrame:
    """Return work_id and cause of the works whose label one edit moves as all together do, and no other edit moves."""
    found: list[tuple[int, str]] = []
    for work in works:
        a, b = (cut_from_graph(graph, work) for graph in cited.graphs)
        targets = pl.concat([a.references, b.references, pl.Series([work])]).unique()
        links = [_links_to(graph, targets).filter(pl.col("citing_id") != work) for graph in cited.graphs]
        facts = pl.concat([a.facts, b.facts.join(a.facts, on="work_id", how="anti")], how="diagonal")
        before = _score(_only(a._replace(facts=facts, links=links[0])), cited)
        after = _score(b, cited)
        edits = [(kind, _score(_only(one), cited)) for kind, one in _edit(a._replace(facts=facts), b, links)]
        moving = [(kind, one) for kind, one in edits if one.label != before.label]
        if len(moving) == 1 and moving[0][1].label == after.label:
            cause = _name(moving[0][0], moving[0][1].n - before.n, b.references.len() - a.references.len())
            found += [(work, cause)] if cause else []
        advance(1)
    return pl.DataFrame(found, {"work_id": pl.Int64(), "cause": pl.String()}, orient="row")


def _name(kind: str, more_citers: int, more_references: int) -> str | None:
    """Name an edit as a cause; None for one that has no name."""
    if kind == "citers":
        return "new_citers" if more_citers > 0 else "lost_citers" if more_citers else "other_citers"
    if kind == "references":
        return "new_references" if more_references > 0 else "lost_references" if more_references else None
    return kind


class _Scored(NamedTuple):
    label: str | None
    n: int  # citers in the window


def _score(around: Neighbourhood, cited: Cited) -> _Scored:
    rows = score_window(around, cited.config, cited.config.window_years).drop("work_id")
    row = label(rows, around, cited.thresholds).row(0, named=True)
    return _Scored(row["disruption_label"], (row["n_i"] or 0) + (row["n_j"] or 0))


def _links_to(graph: CitationGraph, targets: pl.Series) -> pl.DataFrame:
    """Return who cites some works of a graph, whatever else is around them."""
    places = find_places(graph, targets.to_numpy())
    places = np.unique(places[places >= 0]).astype(np.int32)
    citing, which = find_citers(graph, places, pl.thread_pool_size())
    return pl.DataFrame({"citing_id": graph.work_ids[citing], "cited_id": graph.work_ids[places[which]]})


def _only(around: Neighbourhood) -> Neighbourhood:
    """Keep the links to a work and its references."""
    targets = pl.concat([around.references, pl.Series([around.work_id])])
    return around._replace(links=around.links.filter(pl.col("cited_id").is_in(targets.implode())))


def _edit(a: Neighbourhood, b: Neighbourhood, links: Sequence[pl.DataFrame]) -> Iterator[tuple[str, Neighbourhood]]:
    """Make each edit from A to B alone; ``links`` are those of both to the work, and to references of either."""
    old, new = links
    cites = [pl.col("citing_id").is_in(one.filter(cited_id=a.work_id)["citing_id"].implode()) for one in links]
    groups = {
        "citers": cites[0] != cites[1],
        "other_citers": cites[0] & cites[1],
        "citers_of_references": ~cites[0] & ~cites[1],
    }
    for kind, of_group in groups.items():
        yield kind, a._replace(links=pl.concat([old.filter(~of_group), new.filter(of_group)]))
    yield "references", a._replace(references=b.references, links=old)
    own = pl.lit(b.fact(YEAR), pl.Int32)
    year = pl.when(pl.col("work_id") == a.work_id).then(own).otherwise(YEAR)
    yield "changed_year", a._replace(facts=a.facts.with_columns(year.alias(YEAR)), links=old)
