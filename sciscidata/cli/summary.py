"""What each command prints: what it read, what it wrote, how long it took, and its peak memory."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeAlias

import polars as pl
from rich.console import Console
from rich.text import Text

from sciscidata.cli.build_options import list_settings
from sciscidata.corpus.folder import FOLDERS, INDEX, WRITTEN_BY, list_left_out, read_report, scan_corpus
from sciscidata.corpus.scores import verify_scores
from sciscidata.eligibility import list_removed
from sciscidata.graph.graph import CitationGraph, read_graph
from sciscidata.judged import choose_works
from sciscidata.novelty.background import Background, read_background
from sciscidata.novelty.null_model import remark_on_concentration
from sciscidata.options.parser import translate
from sciscidata.own_label import stated_label, vocabularies
from sciscidata.release.documents import name_release, remark_on_release
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
from sciscidata.release.read import Release, list_data_files, list_splits, read_release, sha256_of
from sciscidata.release.remarks import is_demonstration, list_skipped
from sciscidata.release.verify import Verified, kind_of
from sciscidata.sampling.manifest_entries import describe_unread, find_one_sided, name_eligible
from sciscidata.stages import find_measure
from sciscidata.storage import real_path, storage_error
from sciscidata.terminal.messages import align_columns, discard, printable

if TYPE_CHECKING:
    from sciscidata.changes.compare import Comparison
    from sciscidata.hubs.publish import Published

P = ParamSpec("P")
_WIDTH: Final = 110


class Table(NamedTuple):
    """A table: its head begins with what it is about. Columns are numbers but the first, and those on the ``left``."""

    head: list[str]
    rows: list[list[str]]
    left: tuple[int, ...] = (0,)

    def lines(self) -> list[str]:
        """Write it as lines of text."""
        columns = zip(*([self.head] if any(self.head) else []), *self.rows, strict=True)
        fitted = [
            column if n in self.left else [cell.rjust(max(map(len, column))) for cell in column]
            for n, column in enumerate(columns)
        ]
        return align_columns([*zip(*fitted, strict=True)])


class Heading(str):
    """A line above others."""

    __slots__ = ()


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
    """Make a function print the lines and tables that it yields, the first and headings bold, and return them."""

    @wraps(report)
    def show(*args: P.args, **options: P.kwargs) -> list[Part]:
        parts = list(report(*args, **options))
        with standard_output() as console:
            for number, part in enumerate(parts):
                is_bold = number == 0 or isinstance(part, Heading)
                for line in part.lines() if isinstance(part, Table) else [part]:
                    console.print(line, style="bold" if is_bold else None)
        return parts

    return show


@printed
def print_release(release: Release, seconds: float | None = None, *, verbose: bool = False) -> Iterator[Part]:
    """Print what a release is, why works may not be drawn, its labels, what to know of it, and where it lies.

    Args:
        release: a release.
        seconds: how long it took to build. None: it was not built now.
        verbose: print the facts of the source, what filters removed by class, and the SHA-256 of all files, too.
    """
    manifest = release.manifest
    yield from () if seconds is None else [""]  # between the steps and what they have made
    yield Heading(name_release(manifest))
    yield describe_rows(manifest)
    yield from (f"  {line}" for line in list_skipped(manifest.get("source", {})))
    if "filters" in manifest.get("counts", {}):
        yield ""
        yield Heading(name_removed(manifest["counts"]))
        yield tabulate_filters(manifest, by_class=verbose)
    for part in describe_classes(manifest, verbose=verbose):
        yield from _fill("", part) or [""] if isinstance(part, str) else [part]
    if remarks := remarks_by_flags(manifest):
        yield ""
        yield Heading("Read this before you use it")
        for number, lines in enumerate(remarks, 1):
            first, *more = filter(None, lines)
            yield from _fill(f"  {number}  ", first)
            for line in more:
                yield from _fill("     ", line)
    yield ""
    yield from _list_files(release, seconds, verbose=verbose)


def _fill(mark: str, text: str) -> list[str]:
    """Write a text as lines behind a mark."""
    return textwrap.wrap(text, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)


def list_facts(release: Release) -> list[str]:
    """List what nobody needs at first: facts of the source, and the SHA-256 of what was read and written."""
    files, digest, source = (
        release.manifest["files"],
        release.manifest["manifest_sha256"],
        release.manifest.get("source", {}),
    )
    width = max(map(len, [*files, MANIFEST]))
    return [
        *_list_source(source),
        *(f"  {file['name']}: sha256 {file['sha256']}" for file in source.get("inputs", [])),
        f"files: {shown(release.folder)}",
        *(f"  {name:<{width}} {facts['bytes']:>12,} bytes  sha256 {facts['sha256']}" for name, facts in files.items()),
        f"  {MANIFEST:<{width}} {'':>12}        sha256 {digest} (without this line)",
    ]


def describe_rows(manifest: dict[str, Any]) -> str:
    """Say how many works each split has, how many labels there are, and of which day the data are."""
    splits, noun = list_splits(manifest), "texts" if lacks_scores(manifest) else "works"
    rows = " + ".join(f"{manifest['sides'][split]['rows']:,} {split}" for split in splits)
    labels = [
        f"{len(words)} {column.removesuffix('_label')}"
        for column, words in vocabularies(stated_label(manifest)).items()
        if any(any(manifest["class_counts"][split][column].values()) for split in splits)
    ]
    date = manifest.get("source", {}).get("data_date")
    said = [f"{rows} {noun}", *([f"{' and '.join(labels)} labels"] if labels else [])]
    return ", ".join([*said, *([f"data of {date}"] if date else [])])


def describe_classes(manifest: dict[str, Any], *, verbose: bool = False) -> Iterator[Part]:
    """Tabulate labels, and say what they rest on."""
    label, has_novelty = stated_label(manifest), manifest["novelty"]["available"]
    if not lacks_scores(manifest):
        yield ""
        yield tabulate_classes(manifest, "disruption_label")
        yield from filter(None, [describe_judged(manifest), describe_unread(manifest.get("counts", {}))])
    if has_novelty:
        yield ""
        yield tabulate_classes(manifest, "novelty_label")
    elif not lacks_scores(manifest):
        yield "There is no novelty: its fields are null."
    if label is not None:
        yield ""
        yield tabulate_classes(manifest, label.name)
        yield from (f"  {word}: {meaning}" for word, meaning in label.meanings.items())
    if verbose:
        yield ""
        yield from filter(None, [describe_ceiling(manifest), describe_coverage(manifest)])
        yield from _list_null_model(manifest.get("atypicality")) if has_novelty else ()


def find_fingerprint(manifest: Mapping[str, Any]) -> str:
    """Return twelve digits that tell whether two releases have the same works, whatever machine made them.

    They begin the SHA-256 of those of the JSONL files of the splits, in hexadecimal, train first. Pictures and Parquet,
    whose bytes may differ by version of a library, have no part in it.
    """
    lines = [name for name in list_data_files(manifest) if name.endswith(".jsonl")]
    return sha256_of("".join(manifest["files"][name]["sha256"] for name in lines).encode())[:12]


def _list_files(release: Release, seconds: float | None, *, verbose: bool) -> Iterator[str]:
    """Say where a release lies and what it holds; after a build, what to type next."""
    files, place = release.manifest["files"], shown(release.folder)
    size = f"{sum(facts['bytes'] for facts in files.values()) / 1e6:,.1f} MB"
    hashes = f"SHA-256 of each in {MANIFEST} (fingerprint of its works: {find_fingerprint(release.manifest)})"
    done = "release" if seconds is None else f"Done in {seconds:.0f} s"
    yield f"{done}: {place}   {len(files) + 1} files, {size}, {hashes}"
    if verbose:
        yield from list_facts(release)
    quoted, page = shlex.quote(place), shlex.quote(f"{release.folder.name}.html")
    if seconds is not None:
        yield f"Next   sciscidata verify {quoted}"
        yield f"       sciscidata describe {quoted} --html {page}"
        yield f"       python: sciscidata.read_release({json.dumps(place, ensure_ascii=False)}).train"
        if is_demonstration(release.manifest):
            yield "       your own works: sciscidata build --help   (--input, or --works and --citations)"


def remarks_by_flags(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    """List what to know of a release, and what to do about it, by the flags of a build for its options."""
    remarks, options = [(one.text, one.remedy) for one in remark_on_release(manifest)], list_settings()
    for remark in remark_on_concentration((manifest.get("atypicality") or {}).get("venue_concentration", {})):
        text, begin, remedy = remark.partition("To compare")
        remarks.append((text.strip(), begin + remedy))
    return [
        (f"{text[:1].upper()}{translate(text[1:], options)}", translate(remedy, options)) for text, remedy in remarks
    ]


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


def name_removed(counts: dict[str, Any]) -> str:
    """Say how many works may not be drawn."""
    n, left = counts["filters"]["works"], counts["filters"]["eligible"]
    return f"Why {n - left:,} of {n:,} works may not be drawn" if n > left else f"All {n:,} works may be drawn"


def tabulate_filters(manifest: dict[str, Any], *, by_class: bool = False) -> Table:
    """Tabulate how many works each filter removed, most first; by class, or with a note where it is almost only one."""
    counts: dict[str, Any] = manifest["counts"]
    removed = sorted(list_removed(manifest), key=lambda row: -row[2])
    if not by_class or "removed" not in counts:
        notes = {one.name: one.describe() for one in reversed(find_one_sided(counts))}
        rows = [[f"  {note}", f"{n:,}", f"  {notes.get(name, '')}"] for name, note, n in removed]
        return Table(["", "", ""], rows, left=(0, 2))
    words, balance = vocabularies(stated_label(manifest)), manifest.get("split", {}).get("balance")
    column = [*words][-1] if str(balance).startswith("label") else "disruption_label"
    rows = [
        [
            f"  {note}",
            f"{n:,}",
            *(f"{counts['removed'].get(name, {}).get(column, {}).get(label, 0):,}" for label in words[column]),
        ]
        for name, note, n in removed
    ]
    return Table(["  removed as", "works", *words[column]], rows)


def tabulate_classes(manifest: dict[str, Any], column: str) -> Table:
    """Count the works of each class: with a label, those that may be drawn, and the splits; judged ones below."""
    labels, counts = vocabularies(stated_label(manifest))[column], manifest.get("counts", {})
    judged, drawn = counts.get("judged", {}), manifest["class_counts"]
    stages = {
        name: [stage]
        for stage, name in (("scored", "labelled"), ("eligible", name_eligible(counts)))
        if stage in counts
    }
    splits = list_splits(manifest)

    def row(name: str, found: list[dict[str, Any]]) -> list[str]:
        numbers = [[one[column][label] for one in found] for label in labels]
        every = [sum(one[column][label] for label in labels) for one in found]
        return [name, *(" / ".join(f"{n:,}" for n in cell) for cell in (*numbers, every))]

    rows: list[list[str]] = []
    for name, parts in {**stages, " / ".join(splits): [*splits]}.items():
        found = [drawn[part] if part in drawn else counts[part] for part in parts]
        rows.append(row(name, found))
        of_judged = [judged.get(part, one) for part, one in zip(parts, found, strict=True)]
        if column == "disruption_label" and any(
            one[column] != of[column] for one, of in zip(found, of_judged, strict=True)
        ):
            rows.append(row("  judged", of_judged))
    return Table([column.removesuffix("_label"), *labels, "all"], rows)


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


def print_path(path: Path, *, verbose: bool = False) -> list[Part]:
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
        return print_release(read_release(path), verbose=verbose)


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
