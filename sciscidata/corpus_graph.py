"""The citation graph of a corpus on disk: found again without reading the corpus, or built."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from sciscidata.errors import EmptyInputError
from sciscidata.graph import FORMAT_VERSION, CitationGraph, build_graph, open_graph
from sciscidata.sources.corpus_folder import REMOVED_FILE, read_report, scan_corpus
from sciscidata.sources.corpus_writing import write_small
from sciscidata.storage import is_whole_folder


def open_graph_of(folder: str | Path, *, cache_dir: str | Path) -> CitationGraph:
    """Build the citation graph of a corpus on disk, or map the one that is there. Executes.

    A graph that is there is compared with its SHA-256. The corpus is not read again for it, unless the size or time of
    one of its files has changed since, or its report.

    Args:
        folder: the corpus.
        cache_dir: where the graph lies; ``folder / "cache"`` by convention.

    Raises:
        InputNotFoundError: at once; no corpus, or an unfinished one.
        EmptyInputError: it holds no citations.
        StorageError: a file of it is damaged.
        SciSciDataError: as build_graph raises.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic import SyntheticConfig
        >>> from sciscidata.stages import ingest_corpus
        >>> with TemporaryDirectory() as home:
        ...     _ = ingest_corpus(SyntheticConfig(n_works=500), Path(home) / "world", cache_dir=home)
        ...     open_graph_of(Path(home) / "world", cache_dir=home).n_works
        500
    """
    cache_dir, corpus = Path(cache_dir), scan_corpus(folder)
    note = cache_dir / f"corpus-{_fingerprint(Path(folder))}.json"
    if (known := _noted(note)) is not None:
        return open_graph(known)
    if corpus.citations.head(1).collect().is_empty():
        msg = f"the corpus in {folder} holds no citations, so it has no graph. Check its source."
        raise EmptyInputError(msg)
    graph = build_graph(corpus.citations, corpus.works, cache_dir=cache_dir)
    write_small(note, lambda path: path.write_text(json.dumps({"graph": graph_folder(graph).name}) + "\n"))
    return graph


def graph_folder(graph: CitationGraph) -> Path:
    """Return where a graph of open_graph_of lies."""
    mapped: Any = graph.ref_offsets  # never empty, so it is mapped
    return Path(mapped.filename).parent


def _fingerprint(folder: Path) -> str:
    """Hash the report, and the size and time of every file that a graph is made of, 32 digits."""
    report, digest = read_report(folder)
    names = sorted(name for part in report["parts"] for name in part["files"] if not name.startswith("texts/"))
    stats = [(name, (folder / name).stat()) for name in (*names, REMOVED_FILE)]
    facts = [FORMAT_VERSION, digest, [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _noted(note: Path) -> Path | None:
    """Return the whole graph that a note names, or None."""
    try:
        name = json.loads(note.read_bytes())["graph"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    folder = note.with_name(str(name))
    return folder if is_whole_folder(folder) else None
