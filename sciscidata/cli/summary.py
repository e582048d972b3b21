"""What a single stage prints: what it read, what it wrote, how long it took, and its peak memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sciscidata._support.terminal import discard, printable
from sciscidata.corpus.folder import INDEX, TABLES, list_left_out, read_report, scan_corpus
from sciscidata.corpus.scores import verify_scores
from sciscidata.graph.graph import CitationGraph, read_graph
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.novelty.background import Background, read_background
from sciscidata.release.export import LINES, read_labelled
from sciscidata.release.manifest import MANIFEST, describe_file
from sciscidata.release.release import Release, read_release
from sciscidata.release.verify import Verified, kind_of
from sciscidata.sampling.manifest_entries import remark_on_novelty, remark_on_venues, remark_on_years
from sciscidata.sampling.split import SPLITS
from sciscidata.storage import real_path, storage_error

# ---------- A release as a person wants to see it: what was read, what each filter removed, the classes, where it lies.


_FILTER_NOTES = {
    "retracted": "retracted",
    "work_type": "another work type",
    "language": "another language",
    "no_title": "no title",
    "no_abstract": "no abstract",
    "no_year": "no publication year",
    "year_range": "outside the years asked for",
    "few_references": "fewer than {min_references} references",
    "few_citations": "fewer than {min_citations} citing works inside the window",
    "window_incomplete": "window not over before {last_year}",
    "undefined_score": "CD index undefined",
    "duplicate": "same title or DOI as an older work",
}


def print_release(release: Release) -> None:
    """Print the summary of a release to standard output, as far as its writer has stated what there is to say."""
    manifest = release.manifest
    with standard_output() as console:
        _print_source(console, manifest.get("source", {}))
        if "filters" in manifest.get("counts", {}):
            console.print(_filters(manifest))
        console.print(_classes(manifest, "disruption_label"))
        if manifest["novelty"]["available"]:
            console.print(_classes(manifest, "novelty_label"))
            _print_null_model(console, manifest.get("atypicality"))
        else:
            console.print("novelty fields: null in every row")
        of_novelty = remark_on_novelty(manifest.get("atypicality"), manifest["thresholds"].get("novelty_rule"))
        for remark in [*remark_on_years(manifest), *of_novelty, *remark_on_venues(manifest.get("atypicality"))]:
            console.print(f"warning: {remark}", style="bold")
        console.print()
        console.print(f"release: {shown(release.folder)}")
        width = max(map(len, manifest["files"]))
        for name, facts in manifest["files"].items():
            console.print(f"  {name:<{width}} {facts['bytes']:>12,} bytes  sha256 {facts['sha256']}")
        console.print(f"  {MANIFEST:<{width}} {'':>12}        sha256 {manifest['manifest_sha256']} (without this line)")


def print_background(table: Background, seconds: float | None = None) -> None:
    """Print what a saved null model holds, where it lies, and how long it took to make."""
    works, references, pairs = (table.counts[name].sum() for name in ("n_works", "n_references", "n_pairs"))
    facts, years = describe_file(table.path), table.counts["publication_year"]
    model = ", ".join(f"{name} {value}" for name, value in table.null_model.items())
    with standard_output() as console:
        console.print(f"null model: {model}", style="bold")
        console.print(f"  years: {table.counts.height} ({years.min()} to {years.max()})")
        console.print(f"  works with references of known year and venue: {works:,}; such references: {references:,}")
        console.print(f"  rows (venue pairs by year): {pairs:,}")
        took = "" if seconds is None else f" in {seconds:.1f} s"
        console.print()
        console.print(f"background: {shown(table.path)}{took}")
        console.print(f"  {facts['bytes']:,} bytes  sha256 {facts['sha256']}")


class TextConsole(Console):
    """Prints texts as they are, a line each: neither markup nor control characters in them mean anything."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401
        """Make what is printed of a text, or of a cell of a table."""
        return super().render_str(printable(text), **options)


@contextmanager
def standard_output() -> Generator[Console]:
    """Print what records and paths hold as it is, not as markup; a StorageError if it cannot be written there."""
    try:
        yield TextConsole()
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        raise storage_error(error, Path("standard output")) from error


def shown(path: Path) -> str:
    """Write a path as short as it can be from where the user stands."""
    path = real_path(path)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _print_source(console: Console, source: dict[str, Any]) -> None:
    """Print the kind of source and, for files, what could not be read in them."""
    console.print(f"source: {source.get('kind', 'not stated')}", style="bold")
    facts = source | source.get("config", {})
    for name, value in facts.items():
        if name == "kind" or isinstance(value, (dict, list, float)) or value is None:
            continue
        text = f"{value:,}" if type(value) is int and "year" not in name else str(value)
        console.print(f"  {name.replace('_', ' ')}: {text}")
    for file in source.get("inputs", []):
        console.print(f"  {file['name']}: sha256 {file['sha256']}")
    for line in source.get("first_corrupt_lines", []):
        console.print(f"  skipped: {line['file']} line {line['line']}: {line['reason']}")


def _print_null_model(console: Console, atypicality: dict[str, Any] | None) -> None:
    """Print under which null model the novelty scores were computed, or whose they are, and from how many works."""
    if not atypicality:
        return
    scored = (
        f"novelty: {atypicality['scored_works']:,} of {atypicality['works']:,} works scored by "
        f"{atypicality['scored_pairs']:,} venue pairs"
    )
    config, background = atypicality["config"], atypicality["background"]
    if config is None:
        console.print(f"{scored}; z as published, score: {atypicality['published']['score']}")
        return
    null = config["null"] if config["null"] == "analytic" else f"{config['n_shuffles']} shuffles, seed {config['seed']}"
    corpus = f"background {background['sha256']}" if background else f"the {atypicality['works']:,} works read"
    console.print(f"{scored}; null model: {null}, of {corpus}")


def _filters(manifest: dict[str, Any]) -> Table:
    """Tabulate what each filter removed; filters that removed nothing are left out."""
    counts: dict[str, int] = manifest["counts"]["filters"]
    values = manifest["eligibility"] | {"last_year": manifest["counts"]["last_year"]}
    table = Table(title="which works may be drawn", title_justify="left", box=None)
    table.add_column("works")
    table.add_column("number", justify="right")
    table.add_row("read", f"{counts['works']:,}")
    for name, note in _FILTER_NOTES.items():
        if counts[name]:
            table.add_row(f"  removed: {note.format_map(values)}", f"-{counts[name]:,}")
    table.add_row("eligible", f"{counts['eligible']:,}")
    return table


def _classes(manifest: dict[str, Any], column: str) -> Table:
    """Tabulate the classes of a label column, from all scored works to the two splits."""
    table = Table(title=f"{column.removesuffix('_label')} classes", title_justify="left", box=None)
    table.add_column("works")
    for label in (*VOCABULARIES[column], "all"):
        table.add_column(label, justify="right")
    counts = manifest.get("counts", {})
    stages = {name: counts[name] for name in ("scored", "eligible") if name in counts}
    for name, found in (stages | {split: manifest["class_counts"][split] for split in SPLITS}).items():
        numbers = [found[column][label] for label in VOCABULARIES[column]]
        table.add_row(name, *(f"{number:,}" for number in (*numbers, sum(numbers))))
    return table


@contextmanager
def measured() -> Generator[None]:
    """Print, when the block has ended well, how long it took and the most memory that this process has had."""
    start = time.monotonic()
    yield
    own, workers = peak_memory()
    told = f"peak memory {own / 1e9:.2f} GB" + (f", of the largest worker {workers / 1e9:.2f} GB" if workers else "")
    with standard_output() as console:
        console.print(f"took {time.monotonic() - start:.1f} s, {told if own else 'peak memory unknown'}")


def peak_memory() -> tuple[int, int]:
    """Return the most bytes that this process, and that the largest of its ended workers, had in memory."""
    if sys.platform == "win32":
        return 0, 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    own, workers = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own * unit, workers * unit


def print_path(path: Path) -> None:
    """Print what lies at a path: a release, a corpus, a graph, an export, scores or a null model.

    An InputNotFoundError says that it is something else; other errors are those of reading it.
    """
    kind = kind_of(path)
    if kind == "graph":
        print_graph(read_graph(path), path)
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
    """Print that something holds what it says of itself."""
    counts = ", ".join(
        f"{name} {count:,}" if verified.kind == "release" else f"{count:,} {name}"
        for name, count in verified.counts.items()
    )
    counts += " works" if verified.kind == "release" else ""
    with standard_output() as console:
        console.print(f"verified: {verified.kind} {shown(verified.path)} ({counts})")


def print_corpus(folder: Path) -> None:
    """Print what a corpus on disk was made of and what it holds."""
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
    """Print what a file of scores holds, and by which conventions."""
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
