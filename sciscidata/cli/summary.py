"""What each command prints: what it read, what it wrote, how long it took, and its peak memory."""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sciscidata.cli.build_options import list_settings
from sciscidata.corpus.folder import FOLDERS, INDEX, WRITTEN_BY, list_left_out, read_report, scan_corpus
from sciscidata.corpus.scores import verify_scores
from sciscidata.eligibility import list_removed
from sciscidata.graph.graph import CitationGraph, read_graph
from sciscidata.judged import choose_works
from sciscidata.novelty.background import Background, read_background
from sciscidata.options.parser import translate
from sciscidata.own_label import stated_label, vocabularies
from sciscidata.release.documents import remark_on_release
from sciscidata.release.export import LINES, read_labelled
from sciscidata.release.manifest import (
    MANIFEST,
    describe_ceiling,
    describe_coverage,
    describe_file,
    describe_judged,
    lacks_scores,
    of_a_stranger,
)
from sciscidata.release.read import Release, list_splits, read_release
from sciscidata.release.verify import Verified, kind_of
from sciscidata.sampling.manifest_entries import describe_unread, name_eligible
from sciscidata.stages import find_measure
from sciscidata.storage import real_path, storage_error
from sciscidata.terminal.messages import discard, printable

if TYPE_CHECKING:
    from sciscidata.changes.compare import Comparison
    from sciscidata.hubs.publish import Published

logger = logging.getLogger(__name__)

P = ParamSpec("P")
Part: TypeAlias = str | Table


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


def printed(report: Callable[P, Iterator[Part]]) -> Callable[P, list[Part]]:
    """Make a function print the lines and tables that it yields, the first and warnings bold, and return them."""

    @wraps(report)
    def show(*args: P.args, **options: P.kwargs) -> list[Part]:
        parts = list(report(*args, **options))
        with standard_output() as console:
            for number, part in enumerate(parts):
                is_bold = number == 0 or str(part).startswith("warning: ")
                console.print(part, style="bold" if is_bold else None)
        return parts

    return show


@printed
def print_release(release: Release) -> Iterator[Part]:
    """Print what was read, what each filter removed, the classes and the files, as far as the manifest states them."""
    manifest = release.manifest
    source = manifest.get("source", {})
    yield from _list_source(source)
    for file in source.get("inputs", []):
        yield f"  {file['name']}: sha256 {file['sha256']}"
    for line in source.get("first_corrupt_lines", []):
        yield f"  skipped: {line['file']} line {line['line']}: {line['reason']}"
    if "filters" in manifest.get("counts", {}):
        yield tabulate_filters(manifest)
    if unread := describe_unread(manifest.get("counts", {})):
        yield unread
    if not lacks_scores(manifest):
        yield tabulate_classes(manifest, "disruption_label")
    if judged := describe_judged(manifest):
        yield judged
    if ceiling := describe_ceiling(manifest):
        yield ceiling
    if manifest["novelty"]["available"]:
        yield tabulate_classes(manifest, "novelty_label")
        yield from _list_null_model(manifest.get("atypicality"))
        if coverage := describe_coverage(manifest):
            yield f"  {coverage}"
    elif not lacks_scores(manifest):
        yield "novelty fields: null in every row"
    label = stated_label(manifest)
    if label is not None:
        yield tabulate_classes(manifest, label.name)
        for word, meaning in label.meanings.items():
            yield f"  {word}: {meaning}"
    for remark in remarks_by_flags(manifest):
        yield f"warning: {remark}"
    yield from _list_place("release", release.folder)
    width = max(map(len, manifest["files"]))
    for name, facts in manifest["files"].items():
        yield f"  {name:<{width}} {facts['bytes']:>12,} bytes  sha256 {facts['sha256']}"
    yield f"  {MANIFEST:<{width}} {'':>12}        sha256 {manifest['manifest_sha256']} (without this line)"


def log_first_steps(release: Release) -> None:
    """Say after a first build what to look at, and what to type next; not on standard output, which has the facts."""
    folder = shlex.quote(shown(release.folder))
    page = shlex.quote(f"{release.folder.name}.html")
    pictures = [name for name in release.manifest["files"] if name.endswith(".png")]
    logger.info("look at: %s in %s", ", ".join(["README.md", *pictures, "train.jsonl"]), folder)
    logger.info("next: sciscidata describe %s --html %s  (the release on one page, for a browser)", folder, page)
    logger.info("then: sciscidata build --help  (works of your own: --input, or --works and --citations)")


def remarks_by_flags(manifest: dict[str, Any]) -> list[str]:
    """Return the remarks on a release, with the flags of a build for its options."""
    options = list_settings()
    return [translate(remark, options) for remark in remark_on_release(manifest)]


@printed
def print_background(table: Background, seconds: float | None = None) -> Iterator[Part]:
    """Print what a saved null model holds, where it lies, and how long it took to make."""
    works, references, pairs = (table.counts[name].sum() for name in ("n_works", "n_references", "n_pairs"))
    file, years = describe_file(table.path), table.counts["publication_year"]
    model = ", ".join(f"{name} {value}" for name, value in table.null_model.items())
    yield f"null model: {model}"
    yield f"  years: {table.counts.height} ({years.min()} to {years.max()})"
    yield f"  works with references of known year and venue: {works:,} ({references:,} references)"
    yield f"  rows (venue pairs by year): {pairs:,}"
    yield from _list_place("background", table.path, "" if seconds is None else f" in {seconds:.1f} s")
    yield f"  {file['bytes']:,} bytes  sha256 {file['sha256']}"


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    with standard_output() as console:
        for line in lines:
            console.print(line)


def shown(path: Path) -> str:
    """Write a path relative to the current folder if it lies in there."""
    path = real_path(path)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _list_place(what: str, path: Path, note: str = "") -> Iterator[str]:
    yield ""
    yield f"{what}: {shown(path)}{note}"


def _list_source(source: dict[str, Any], *hidden: str) -> Iterator[str]:
    """List the kind of a source, and its numbers and words but the ``hidden`` ones."""
    yield f"source: {source.get('kind', 'not stated')}"
    for name, value in (source | source.get("config", {})).items():
        if isinstance(value, (int, str)) and name not in ("kind", *hidden):
            text = f"{value:,}" if type(value) is int and "year" not in name else str(value)
            yield f"  {name.replace('_', ' ')}: {text}"


def _list_null_model(atypicality: dict[str, Any] | None) -> Iterator[str]:
    """Say how many works have a novelty score, and which null model or publication it comes from."""
    if not atypicality:
        return
    scored = (
        f"novelty: {atypicality['scored_works']:,} of {atypicality['works']:,} works scored by "
        f"{atypicality['scored_pairs']:,} venue pairs"
    )
    config, background = atypicality["config"], atypicality["background"]
    if config is None:
        yield f"{scored}; z as published, score: {atypicality['published']['score']}"
        return
    null = config["null"] if config["null"] == "analytic" else f"{config['n_shuffles']} shuffles, seed {config['seed']}"
    corpus = f"background {background['sha256']}" if background else f"the {atypicality['works']:,} works read"
    yield f"{scored}; null model: {null}, of {corpus}"


def tabulate_filters(manifest: dict[str, Any]) -> Table:
    """Tabulate how many works each filter removed, and of which class, without filters that removed none."""
    counts: dict[str, int] = manifest["counts"]["filters"]
    removed: dict[str, Any] = manifest["counts"].get("removed", {})
    words, balance = vocabularies(stated_label(manifest)), manifest.get("split", {}).get("balance")
    column = [*words][-1] if str(balance).startswith("label") else "disruption_label"
    labels = words[column] if removed else ()
    table = Table(
        title="which works may be drawn (what each filter removed)", title_justify="left", box=None, pad_edge=False
    )
    table.add_column("works")
    for name in ("number", *labels):
        table.add_column(name, justify="right")

    def cells(stage: str) -> list[str]:
        return [f"{manifest['counts'][stage][column][label]:,}" for label in labels]

    table.add_row("read", f"{counts['works']:,}", *cells("scored"))
    for name, note, n in list_removed(manifest):
        found = removed.get(name, {}).get(column, {})
        costs = [f"-{found[label]:,}" if found.get(label) else "" for label in labels]
        table.add_row(f"  {note}", f"-{n:,}", *costs)
    table.add_row(name_eligible(manifest["counts"]), f"{counts['eligible']:,}", *cells("eligible"))
    return table


def tabulate_classes(manifest: dict[str, Any], column: str) -> Table:
    """Count the works of each class: all scored ones, the eligible ones, and those of each split; and judged ones."""
    table = Table(title=f"{column.removesuffix('_label')} classes", title_justify="left", box=None)
    table.add_column("works")
    labels = vocabularies(stated_label(manifest))[column]
    for label in (*labels, "all"):
        table.add_column(label, justify="right")
    counts = manifest.get("counts", {})
    stages = {name: counts[name] for name in ("scored", "eligible") if name in counts}
    stages |= {split: manifest["class_counts"][split] for split in list_splits(manifest)}
    for name, found in stages.items():
        judged = counts.get("judged", {}).get(name, found)
        differ = [("  judged", judged)] if judged[column] != found[column] and column == "disruption_label" else []
        for row, by_label in ((name, found), *differ):
            numbers = [by_label[column][label] for label in labels]
            table.add_row(row, *(f"{number:,}" for number in (*numbers, sum(numbers))))
    return table


@contextmanager
def measured() -> Generator[None]:
    """Print, when the block has ended well, how long it took and the most memory that this process has had."""
    start = time.monotonic()
    yield
    memory = "peak memory unknown"
    if sys.platform != "win32":
        import resource

        per_gb = 1e9 if sys.platform == "darwin" else 1e9 / 1024
        own, workers = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        memory = f"peak memory {own / per_gb:.2f} GB"
        memory += f" (largest worker {workers / per_gb:.2f} GB)" if workers else ""
    print_lines([f"took {time.monotonic() - start:.1f} s, {memory}"])


def print_path(path: Path) -> list[Part]:
    """Print and return what lies at a path: a release, a corpus, a graph, an export, scores or a null model."""
    printers: dict[str, Callable[[Path], list[Part]]] = {
        "graph": lambda path: print_graph(read_graph(path), path),
        "export": lambda path: print_labelled(read_labelled(path), path),
        "corpus": print_corpus,
        "scores": print_result,
        "background": lambda path: print_background(read_background(path)),
    }
    if (kind := kind_of(path)) in printers:
        return printers[kind](path)
    with of_a_stranger(path):
        return print_release(read_release(path))


@printed
def print_comparison(found: Comparison, out: Path | None, picture: Path | None) -> Iterator[Part]:
    """Print what changed between two sides, and which files say more."""
    yield from found.describe()
    if out is not None:
        size = describe_file(out)
        yield from _list_place("changes", out)
        yield f"  {size['bytes']:,} bytes  sha256 {size['sha256']}"
    if picture is not None:
        yield f"picture: {shown(picture)}"


@printed
def print_verified(verified: Verified) -> Iterator[Part]:
    """Print that something holds what it says of itself."""
    counts = ", ".join(
        f"{name} {count:,}" if verified.kind == "release" else f"{count:,} {name}"
        for name, count in verified.counts.items()
    )
    counts += " works" if verified.kind == "release" else ""
    done, left = verified.recomputed or ({}, {})
    yield f"verified: {verified.kind} {shown(verified.path)} ({counts})"
    for name, numbers in done.items():
        yield f"  recomputed: {name} from {numbers}"
    for name, reason in left.items():
        yield f"  not recomputed: {name} ({reason})"
    for name in verified.changed:
        yield f"  changed since, or added: {name}, which describes the release and holds no data"


@printed
def print_published(published: Published) -> Iterator[Part]:
    """Print what went where, or would."""
    n_bytes = sum(published.files.values())
    yield f"{'published' if published.is_final else 'not published yet'}: {published.place}"
    yield f"  files: {len(published.files):,} ({n_bytes:,} bytes)"
    if published.revision:
        yield f"  revision: {published.revision}"


@printed
def print_corpus(folder: Path) -> Iterator[Part]:
    """Print what a corpus on disk was made of and what it holds."""
    provenance = scan_corpus(folder).provenance
    report, digest = read_report(folder)
    files = {name: facts for part in report["parts"] for name, facts in part["files"].items()}
    yield from _list_source(provenance, "report_sha256", "removed_sha256")
    for part in list_left_out(provenance.get("corrupt_parts", {})):
        yield f"  left out: {part}"
    for part in list_left_out(provenance.get("implausible_parts", {})):
        yield f"  implausible ({provenance['implausible']}): {part}"
    yield from _list_place("corpus", folder)
    for table in FOLDERS:
        sizes = [facts["bytes"] for name, facts in files.items() if name.startswith(f"{table}/")]
        if sizes or table != WRITTEN_BY:
            yield f"  {table:<9} {len(sizes):>6,} files {sum(sizes):>18,} bytes"
    yield f"  {INDEX} sha256 {digest}"


@printed
def print_graph(graph: CitationGraph, folder: Path) -> Iterator[Part]:
    """Print the size of a graph, and where it lies."""
    years = graph.years
    yield "citation graph"
    yield f"  works: {graph.n_known:,} ({graph.n_dated:,} with a year)"
    yield f"  works known only as references: {graph.n_works - graph.n_known:,}"
    yield f"  distinct citations: {graph.n_citations:,}"
    if years.size:
        yield f"  years: {years.size} ({years[0]} to {years[-1]})"
    yield from _list_place("graph", folder)
    yield f"  {sum(path.stat().st_size for path in folder.iterdir()):,} bytes"


def list_numbers(rows: pl.LazyFrame) -> list[str]:
    """List the columns of a file of scores that hold measured numbers."""
    return [name for name, kind in rows.collect_schema().items() if kind.is_float()]


@printed
def print_result(path: Path) -> Iterator[Part]:
    """Print what a file of scores holds, and by which conventions."""
    metadata = verify_scores(path)
    measure, rows = find_measure(metadata["stage"]), pl.scan_parquet(path, glob=False)
    score = measure.score or next(iter(list_numbers(rows)), "work_id")
    known = rows.select(pl.col(score).count()).collect().item()
    size = describe_file(path)
    settings = ", ".join(f"{key} {value}" for key, value in metadata["config"].items() if value is not None)
    yield measure.title
    if settings:
        yield f"  {settings}"
    if metadata.get("background"):
        yield f"  null model: background {metadata['background']['sha256']}"
    if "shard" in metadata:
        yield f"  shard {metadata['shard']} of the works"
    yield f"  {measure.rows}: {metadata['rows']:,} ({known:,} with a score)"
    choice = choose_works(rows.collect_schema().names(), score, "judged")
    if choice.counts is not None:
        left_out = choice.count_left_out(rows, score)
        yield f"  judged: {left_out.judged:,}.{left_out.describe(measure.rows.removesuffix('s'))}"
    yield f"  columns: {', '.join(metadata['columns'])}"
    if metadata["corpus_sha256"] is None:
        yield f"  of: {metadata.get('ids', metadata['source'])}"
    else:
        yield f"  corpus: {metadata['source']}, corpus.json sha256 {metadata['corpus_sha256']}"
        if "ids" in metadata:
            yield f"  of: {metadata['ids']}"
    yield from _list_place("scores", path)
    yield f"  {size['bytes']:,} bytes  sha256 {size['sha256']}"


@printed
def print_labelled(report: dict[str, Any], folder: Path) -> Iterator[Part]:
    """Print how many works were labelled how, and where their lines lie."""
    yield from _list_source(report["source"])
    for column, counts in report["classes"].items():
        by_label = ", ".join(f"{label} {count:,}" for label, count in counts.items())
        yield f"  {column.removesuffix('_label')}: {by_label}"
    yield from _list_place("labelled works", folder)
    yield f"  {LINES}: {report['rows']:,} lines, {report['bytes']:,} bytes  sha256 {report['sha256']}"
