"""What a single stage prints: what it read, what it wrote, how long it took, and its peak memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from sciscidata.graph import CitationGraph, open_graph
from sciscidata.labelled import LINES, read_labelled
from sciscidata.manifest import describe_file
from sciscidata.novelty_background import read_background
from sciscidata.release import read_release
from sciscidata.score_files import verify_scores
from sciscidata.sources.corpus_folder import INDEX, TABLES, list_left_out, read_report, scan_corpus
from sciscidata.summary import print_background, print_release, shown, standard_output
from sciscidata.verify_paths import Verified, kind_of


@contextmanager
def measured() -> Generator[None]:
    """Print, when the block has ended well, how long it took and the most memory that this process has had.

    Raises:
        StorageError: it cannot be printed.
    """
    start = time.monotonic()
    yield
    own, workers = peak_memory()
    told = f"peak memory {own / 1e9:.2f} GB" + (f", of the largest worker {workers / 1e9:.2f} GB" if workers else "")
    with standard_output() as console:
        console.print(f"took {time.monotonic() - start:.1f} s, {told if own else 'peak memory unknown'}")


def peak_memory() -> tuple[int, int]:
    """Return the most bytes that this process, and that the largest of its ended workers, had in memory.

    Example:
        >>> peak_memory()[0] > 1_000_000
        True
    """
    if sys.platform == "win32":
        return 0, 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    own, workers = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own * unit, workers * unit


def print_path(path: Path) -> None:
    """Print what lies at a path: a release, a corpus, a graph, scores or a null model.

    Raises:
        InputNotFoundError: it is something else, or an export whose report cannot be read.
        SciSciDataError: as reading it raises.
    """
    kind = kind_of(path)
    if kind == "graph":
        print_graph(open_graph(path), path)
    elif kind == "export":
        print_labelled(read_labelled(path), path)
    elif kind == "corpus":
        print_corpus(path)
    elif kind == "scores":
        print_result(path)
    elif kind == "background":
        print_background(read_background(path))
    else:
        print_release(read_release(path))


def print_verified(verified: Verified) -> None:
    """Print that something holds what it says of itself.

    Raises:
        StorageError: it cannot be printed.
    """
    counts = ", ".join(
        f"{name} {count:,}" if verified.kind == "release" else f"{count:,} {name}"
        for name, count in verified.counts.items()
    )
    counts += " works" if verified.kind == "release" else ""
    with standard_output() as console:
        console.print(f"verified: {verified.kind} {shown(verified.path)} ({counts})")


def print_corpus(folder: Path) -> None:
    """Print what a corpus on disk was made of and what it holds.

    Raises:
        InputNotFoundError, StorageError: as scan_corpus.
    """
    provenance = scan_corpus(folder).provenance
    report, digest = read_report(folder)
    files = {name: facts for part in report["parts"] for name, facts in part["files"].items()}
    with standard_output() as console:
        console.print(f"source: {provenance.get('kind', 'not stated')}", style="bold")
        for name, value in (provenance | provenance.get("config", {})).items():
            if isinstance(value, (int, str)) and name not in ("kind", "report_sha256", "removed_sha256"):
                text = f"{value:,}" if type(value) is int and "year" not in name else str(value)
                console.print(f"  {name.replace('_', ' ')}: {text}")
        for told in list_left_out(provenance.get("corrupt_parts", {})):
            console.print(f"  left out: {told}")
        console.print()
        console.print(f"corpus: {shown(folder)}")
        for table in TABLES:
            sizes = [facts["bytes"] for name, facts in files.items() if name.startswith(f"{table}/")]
            console.print(f"  {table:<9} {len(sizes):>6,} files {sum(sizes):>18,} bytes")
        console.print(f"  {INDEX} sha256 {digest}")


def print_graph(graph: CitationGraph, folder: Path) -> None:
    """Print the size of a graph, and where it lies."""
    years = graph.years
    with standard_output() as console:
        console.print("citation graph", style="bold")
        console.print(f"  works: {graph.n_known:,}, of them with a year: {graph.n_dated:,}")
        console.print(f"  works known only as references: {graph.n_works - graph.n_known:,}")
        console.print(f"  citations, each once: {graph.n_citations:,}")
        if years.size:
            console.print(f"  years: {years.size} ({years[0]} to {years[-1]})")
        console.print()
        console.print(f"graph: {shown(folder)}")
        console.print(f"  {sum(path.stat().st_size for path in folder.iterdir()):,} bytes")


def print_result(path: Path) -> None:
    """Print what a file of scores holds, and by which conventions.

    Raises:
        InputNotFoundError, VerificationError: as verify_scores.
    """
    facts = verify_scores(path)
    name = "cd_index" if facts["stage"] == "cd" else "z_p10"
    known = pl.scan_parquet(path, glob=False).select(pl.col(name).count()).collect().item()
    size = describe_file(path)
    settings: dict[str, Any] = {key: value for key, value in facts["config"].items() if value is not None}
    with standard_output() as console:
        console.print("CD index" if facts["stage"] == "cd" else "atypicality", style="bold")
        console.print(f"  {', '.join(f'{key} {value}' for key, value in settings.items())}")
        if facts.get("background"):
            console.print(f"  null model: background {facts['background']['sha256']}")
        if "shard" in facts:
            console.print(f"  shard {facts['shard']} of the works")
        console.print(f"  works: {facts['rows']:,}, of them with a score: {known:,}")
        console.print(f"  columns: {', '.join(facts['columns'])}")
        console.print(f"  corpus: {facts['source']}, corpus.json sha256 {facts['corpus_sha256']}")
        console.print()
        console.print(f"scores: {shown(path)}")
        console.print(f"  {size['bytes']:,} bytes  sha256 {size['sha256']}")


def print_labelled(report: dict[str, Any], folder: Path) -> None:
    """Print how many works were labelled how, and where their lines lie."""
    with standard_output() as console:
        console.print(f"source: {report['source'].get('kind', 'not stated')}", style="bold")
        for column, counts in report["classes"].items():
            told = ", ".join(f"{label} {count:,}" for label, count in counts.items())
            console.print(f"  {column.removesuffix('_label')}: {told}")
        console.print()
        console.print(f"labelled works: {shown(folder)}")
        console.print(f"  {LINES}: {report['rows']:,} lines, {report['bytes']:,} bytes  sha256 {report['sha256']}")
