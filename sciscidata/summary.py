"""A release as a person wants to see it: what was read, what each filter removed, the classes, where it lies."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sciscidata.labels import VOCABULARIES
from sciscidata.manifest import MANIFEST, describe_file
from sciscidata.novelty_background import Background
from sciscidata.release import Release
from sciscidata.splits import SIDES
from sciscidata.statement import remark_on_novelty, remark_on_venues, remark_on_years
from sciscidata.storage import real_path, storage_error
from sciscidata.terminal import discard, printable

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
    """Print the summary of a release to standard output, as far as its writer has stated what there is to say.

    Raises:
        StorageError: it cannot be written there.
    """
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
    """Print what a saved null model holds, where it lies, and how long it took to make.

    Raises:
        StorageError: it cannot be written there.
    """
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
    """Print what records and paths hold as it is, not as markup.

    Raises:
        StorageError: it cannot be written there.
    """
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
    """Tabulate the classes of a label column, from all scored works to the two sides."""
    table = Table(title=f"{column.removesuffix('_label')} classes", title_justify="left", box=None)
    table.add_column("works")
    for label in (*VOCABULARIES[column], "all"):
        table.add_column(label, justify="right")
    counts = manifest.get("counts", {})
    stages = {name: counts[name] for name in ("scored", "eligible") if name in counts}
    for name, found in (stages | {side: manifest["class_counts"][side] for side in SIDES}).items():
        numbers = [found[column][label] for label in VOCABULARIES[column]]
        table.add_row(name, *(f"{number:,}" for number in (*numbers, sum(numbers))))
    return table
