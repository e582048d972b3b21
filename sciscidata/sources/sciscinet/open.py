"""Open SciSciNet as a source: its published scores are taken as they are, or compared with computed ones."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from sciscidata.corpus.writer import write_corpus
from sciscidata.engines.engine import Engine
from sciscidata.errors import ConfigError
from sciscidata.label_thresholds import LabelThresholds, compute_labels, count_labels
from sciscidata.novelty.atypicality import join_atypicality, rank_on_disk
from sciscidata.remote.object_store import is_url
from sciscidata.sampling.filter import chosen_names
from sciscidata.sampling.split import balanced_columns
from sciscidata.schemas import CITATIONS, Corpus
from sciscidata.sources.dry_run import ToRead
from sciscidata.sources.lazy_batches import put_beside
from sciscidata.sources.opened import OpenedSource, SourceRequest
from sciscidata.sources.sciscinet.config import SciSciNetConfig
from sciscidata.sources.sciscinet.source import SciSciNet, scan_sciscinet
from sciscidata.sources.sciscinet.tables import reading
from sciscidata.storage import scratch_folder
from sciscidata.terminal.progress import progress_bar


def open_sciscinet(config: SciSciNetConfig, request: SourceRequest) -> OpenedSource:
    """Open the tables. With ``recompute``, works are scored by their citations, and published scores compared."""
    tables = scan_sciscinet(config)
    with ExitStack() as stack:
        stack.enter_context(reading(tables.tables))
        opened = OpenedSource(
            works=tables.in_text_order(),
            citations=pl.LazyFrame(schema=CITATIONS),
            provenance=tables.provenance,
            vocabulary=tables.vocabulary,
            read_works=tables.read_works,
            text_options=("SciSciNetConfig.texts",),
        )
        more = _from_citations(tables, request) if config.recompute or request.only_corpus else None
        more = more or _as_published(tables, request, stack)
        return replace(opened, **more, open_until_end=stack.pop_all())


def _from_citations(tables: SciSciNet, request: SourceRequest) -> dict[str, Any]:
    structure = tables.structure
    facts = structure.select("work_id", "publication_year", "work_type", "is_retracted")
    return {
        "citations": tables.citations,
        "unordered": tables.works,  # the graph reads only years and venues
        "structure": _with_names(facts, tables, request),
        "published": structure,
    }


def _as_published(tables: SciSciNet, request: SourceRequest, scratch: ExitStack) -> dict[str, Any]:
    """Return the published scores. Their ranks lie on disk in ``scratch``, because a query would hold all works."""
    structure, novelty = tables.structure, request.novelty
    tables.require_published(novelty="novelty_label" in balanced_columns(request.split, request.label))
    if novelty is None or "z_p10" not in structure.collect_schema():
        structure = join_atypicality(structure, structure, structure, None)
    elif novelty.score == "rank":
        structure = rank_on_disk(structure, scratch.enter_context(scratch_folder()))
    structure = structure.rename({"reference_count": "n_references", "citation_count": "n_citers"})
    structure = _with_names(structure, tables, request)
    return {"scores": structure, "checked": structure}


def _with_names(structure: pl.LazyFrame, tables: SciSciNet, request: SourceRequest) -> pl.LazyFrame:
    """Add field and venue of the works that have a chosen one; of all others they are null.

    If only the balance reads fields, add those of all works. The tables of fields and venues are read once, in bounded
    memory. What is held: about 40 bytes for each work that gets a name.
    """
    if not request.read_early:
        return structure
    chosen = chosen_names(request.eligibility) or [pl.col("primary_field").is_not_null()]
    named = tables.in_id_order().select("work_id", *request.read_early).filter(pl.any_horizontal(chosen))
    return put_beside(structure, named.collect(engine="streaming"))


def measure_sciscinet(config: SciSciNetConfig, _: SourceRequest) -> ToRead:
    """Name the tables. Where scores are published and lie on this machine, count the classes too."""
    corpus = scan_sciscinet(config)

    def count(thresholds: LabelThresholds) -> str:
        with reading(corpus.tables):
            counts = count_labels(compute_labels(corpus.structure.select("cd_index"), thresholds))
        return "classes, counted, before the filters: " + ", ".join(f"{label} {n:,}" for label, n in counts.items())

    return ToRead(
        f"SciSciNet, {len(corpus.tables)} tables of {config.folder}: {', '.join(corpus.tables)}",
        describe_classes=None if config.recompute or is_url(str(config.folder)) else count,
        time="minutes where scores are published; with recompute about one for each 60 million citations",
    )


def write_sciscinet(
    config: SciSciNetConfig, out: str | Path, *, texts: bool, overwrite: bool, engine: Engine | None
) -> Corpus:
    """Write the tables as a corpus on disk, with a progress bar."""
    _ = engine
    if config.texts is not None and not texts:
        raise ConfigError(
            f"texts lie in {config.texts} (SciSciNetConfig.texts), and texts=False says not to read them. "
            "Leave out one of the two."
        )
    tables = scan_sciscinet(config)
    # Without texts no other order is given; and only a fixed one gives the same files every time.
    works = tables.in_text_order() if texts else tables.in_id_order()
    absent = [] if texts else [pl.lit(None, pl.String()).alias(name) for name in ("title", "abstract")]
    corpus = Corpus(works.with_columns(absent), tables.citations, tables.provenance)
    places: dict[str, Any] = {"inputs": _local_files(tables), "overwrite": overwrite}
    with reading(tables.tables), progress_bar("write corpus", unit="rows") as advance:
        return write_corpus(corpus, out, texts=texts, **places, advance=advance)


def _local_files(tables: SciSciNet) -> list[Path]:
    """List the files of SciSciNet that lie on this machine."""
    found: list[Path] = []
    for table in tables.tables.values():
        location = Path(re.sub("^file://", "", table.location, flags=re.I))
        found += sorted(location.parent.glob(location.name)) if location.parent.is_dir() else []
    return sorted(set(found))
