"""Open the citation graph of a corpus on disk: map the one in the cache, or build it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from sciscidata.corpus.folder import read_report, recorded_sums, refuse_linked_cache, scan_corpus
from sciscidata.errors import EmptyInputError, StorageError
from sciscidata.graph.graph import FORMAT_VERSION, CitationGraph, read_graph, write_graph
from sciscidata.storage import cached_folder


def open_corpus_graph(folder: str | Path, *, cache_dir: str | Path) -> CitationGraph:
    """Build the citation graph of a corpus on disk, or map the one in ``cache_dir`` (mostly ``folder / "cache"``).

    The graph lies under a hash of the content of the corpus, so the corpus is not read again for it. Both the graph and
    the files that it is built from are compared with their SHA-256.

    Raises InputNotFoundError if there is no corpus, or an unfinished one; EmptyInputError if it holds no citations;
    StorageError if a file is damaged or ``cache_dir`` is a link inside the corpus; and what ``build_graph`` raises.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
        >>> from sciscidata.stages import ingest
        >>> with TemporaryDirectory() as home:
        ...     _ = ingest(SyntheticConfig(n_works=500), Path(home) / "world", cache_dir=home)
        ...     open_corpus_graph(Path(home) / "world", cache_dir=home).n_works
        500
    """
    refuse_linked_cache(folder, cache_dir)
    cache_dir, corpus = Path(cache_dir), scan_corpus(folder)

    def build(path: Path) -> None:
        if corpus.citations.head(1).collect().is_empty():
            msg = f"the corpus in {folder} holds no citations, so it has no graph. Check its source."
            raise EmptyInputError(msg)
        write_graph(corpus.works, corpus.citations, path)

    report, digest = read_report(Path(folder))
    if digest != corpus.provenance["report_sha256"]:
        msg = f"the corpus in {folder} was replaced while it was read. Run again."
        raise StorageError(msg)
    sums = sorted(item for item in recorded_sums(report).items() if not item[0].startswith("texts/"))
    key = hashlib.sha256(json.dumps([FORMAT_VERSION, sums]).encode()).hexdigest()[:32]
    return read_graph(cached_folder(cache_dir / f"graph-{key}", build, resume=True), trusted=True)


def graph_folder(graph: CitationGraph) -> Path:
    """Return the folder of a graph from ``open_corpus_graph``."""
    mapped: Any = graph.ref_offsets  # never empty, so it is mapped
    return Path(mapped.filename).parent
