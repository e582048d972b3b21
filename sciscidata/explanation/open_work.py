"""Find a work where it lies, in frames, in a graph or in a folder, and cut out what is around it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from sciscidata.corpus.folder import AUTHOR_KEY, find_corpus_graph, scan_authors_of, scan_corpus
from sciscidata.disruption.config import CDConfig
from sciscidata.errors import ConfigError, InputNotFoundError, WorkIdError
from sciscidata.explanation.find_work import find_work, read_name
from sciscidata.explanation.neighbourhood import (
    DATE,
    FACTS,
    YEAR,
    Neighbourhood,
    cut_from_frames,
    cut_from_graph,
    is_cited,
    is_known,
    read_facts,
)
from sciscidata.frames import AnyFrame
from sciscidata.graph.graph import CitationGraph, Time, read_graph, require_times
from sciscidata.release.verify import kind_of
from sciscidata.schemas import CITATIONS, require_columns

_STAGE: Final = "explain"


class Opened(NamedTuple):
    """A work and what is around it, and where they come from.

    Attributes:
        around: the work and the citations around it.
        frames: WORKS and CITATIONS. None: there is only a graph.
        authors: who wrote which work, if a corpus keeps that.
        graph: that of a corpus on disk.
    """

    around: Neighbourhood
    frames: tuple[pl.LazyFrame, pl.LazyFrame] | None = None
    authors: pl.LazyFrame | None = None
    graph: CitationGraph | None = None


def open_work(work: object, works: AnyFrame, citations: AnyFrame | None, config: CDConfig) -> Opened:
    """Cut a work and what is around it out of frames, a graph or a folder."""
    if isinstance(works, str | Path):
        kind = kind_of(works)
        if kind == "graph":
            graph = read_graph(works, trusted=True, whole=False)
            return Opened(_cut(graph, work, config))
        if kind != "corpus":
            what = {"export": "an export", "scores": "a file of scores"}.get(kind, f"a {kind}")
            raise InputNotFoundError(
                f"{works} is {what}, and {_STAGE} needs a corpus, a graph or a release. Name the folder that it was "
                "made of."
            )
        corpus = scan_corpus(works)
        graph = find_corpus_graph(works, time=config.time)
        work_id = read_name(work)[0]
        if work_id is None or not is_known(graph, work_id):  # else no file of works needs to be searched
            work_id = find_work(work, corpus.works, f"the corpus in {works}", lambda number: is_cited(graph, number))
        around = cut_from_graph(graph, work_id)
        facts = read_facts(corpus.works, around.facts["work_id"])
        times = [name for name in (YEAR, DATE) if name in around.facts.columns]
        named = around.facts.join(facts.drop(times, strict=False), on="work_id", how="left", maintain_order="left")
        named = named.select(name for name in FACTS if name in named.columns)
        authors = scan_authors_of(works) if AUTHOR_KEY in corpus.provenance else None
        return Opened(around._replace(facts=named), (corpus.works, corpus.citations), authors, graph)
    if isinstance(works, CitationGraph):
        return Opened(_cut(works, work, config))
    time: Time = config.time
    lazy = require_times(works, time, stage=_STAGE)
    edges = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=_STAGE)

    def has_citer(number: int) -> bool:
        return not edges.filter(pl.col("cited_id") == number).head(1).collect(engine="streaming").is_empty()

    around = cut_from_frames(find_work(work, lazy, "works", has_citer), lazy, edges, time)
    return Opened(around, (lazy, edges))


def _cut(graph: CitationGraph, work: object, config: CDConfig) -> Neighbourhood:
    number, doi = read_name(work)
    if number is None or doi is not None:
        raise WorkIdError(
            f"{_STAGE}: a graph knows works by their numbers, not {work!r}. Give its work_id or OpenAlex id."
        )
    if config.time == DATE and graph.days is None:
        raise ConfigError("CDConfig.time is 'publication_date', and the graph has no dates. Name the corpus.")
    return cut_from_graph(graph, number)
