"""Open a corpus that is there already: on disk, or made in memory by a reader of the user's own."""

from __future__ import annotations

from sciscidata.corpus.folder import CorpusConfig, refuse_linked_cache, scan_corpus
from sciscidata.release.manifest import render_manifest
from sciscidata.schemas import CITATIONS, WORKS, Corpus, require_columns
from sciscidata.sources.dry_run import ToRead
from sciscidata.sources.opened import OpenedSource, SourceRequest, open_large


def open_corpus(config: CorpusConfig, request: SourceRequest) -> OpenedSource:
    """Open a corpus on disk."""
    refuse_linked_cache(config.folder, request.cache_dir)
    return open_large(scan_corpus(config.folder), request.read_early)


def measure_corpus(config: CorpusConfig, __: SourceRequest) -> ToRead:
    """Say how many works and citations the corpus on disk has."""
    works, _, facts = scan_corpus(config.folder)
    n_works, n_citations = int(facts["works"]), int(facts["citations"])
    name = f"the corpus {config.folder}: {n_works:,} works, {n_citations:,} citations"
    return ToRead(name, n_works, n_citations, columns=works)


def open_frames(corpus: Corpus, _: SourceRequest) -> OpenedSource:
    """Check a corpus of Python, before any row is read."""
    works = require_columns(corpus.works, WORKS, frame_name="WORKS", stage="Corpus")
    citations = require_columns(corpus.citations, CITATIONS, frame_name="CITATIONS", stage="Corpus")
    render_manifest(corpus.provenance)
    return OpenedSource(works=works, citations=citations, provenance=corpus.provenance)
